//! Values that the first task to need them computes for all tasks of its worker.

use std::any::Any;
use std::future::ready;
use std::marker::PhantomData;
use std::sync::Arc;

use chunkcomm::codec::{decode, encode_into_vec};
use chunkcomm::host;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::context::TaskContext;
use crate::machine::wait_blocking;
use crate::needs::Found;
use crate::proto::record::digest;

impl TaskContext {
    /// Returns the value of this key, which the first task of the worker that needs it computes.
    ///
    /// Other tasks that need the value wait meanwhile, and their threads run others. Each worker
    /// computes a value for itself and all its threads: a process, a node of a cluster, or a thread
    /// of the farmer's process. Values of different types have different keys. They are kept until another run
    /// begins, so a run of many keys needs memory for all of them.
    ///
    /// Two tasks that wait for each other's values wait for ever. So the keys must have an order in
    /// which they need each other.
    ///
    /// ```
    /// use chunkcomm_cluster::Registry;
    /// use chunkcomm_farm::RegistryExt;
    ///
    /// let mut registry = Registry::new();
    /// let sum = registry.register_async_task("sum", |task, to: u64| async move {
    ///     let squares = task.once(&"squares", async || (0..1000).map(|n| n * n).collect()).await;
    ///     let squares: &Vec<u64> = &squares;
    ///     squares[..to as usize].iter().sum::<u64>()
    /// });
    /// ```
    ///
    /// # Cancel safety
    /// When the future is dropped while it computes, another waiting task computes the value.
    ///
    /// # Panics
    /// If `compute` panics; another waiting task then computes the value. If the codec refuses the
    /// key.
    pub async fn once<T, F>(
        &self,
        key: &(impl Serialize + Sync),
        compute: impl FnOnce() -> F,
    ) -> Arc<T>
    where
        T: Send + Sync + 'static,
        F: Future<Output = T>,
    {
        let cell = self.values().cell::<T>(self.run(), key);
        let value = cell.get_or_init(async || {
            let value: Arc<dyn Any + Send + Sync> = Arc::new(compute().await);
            // Others get the value when the work that computed it is done.
            host::after_work().await;
            value
        });
        typed(value.await)
    }

    /// Returns the value of this key, which the first task of the farm that needs it computes.
    ///
    /// The tasks of all workers get it. Tasks that need the value wait meanwhile, and their threads
    /// run others.
    ///
    /// The value goes to the farmer, and from there once to each worker that needs it. That pays
    /// where it takes less time than to compute the value at each worker, as
    /// [`once`](TaskContext::once) does. If the computing worker is lost, or its task ends early or
    /// is given up, another waiting worker computes. The farmer and the workers that have the value
    /// keep it, encoded and decoded, until another run begins.
    ///
    /// The wait for a value counts in the task's [time](crate::FarmBuilder::task_timeout). A slow
    /// worker that computes holds up all tasks that need the value.
    ///
    /// Values of different types have different keys, which also differ from those of
    /// [`once`](TaskContext::once). Values must need each other in one direction only, in all
    /// tasks. If `a` is computed from `b` in one task, and `b` from `a` in another, both tasks wait
    /// for ever.
    ///
    /// Outside of a farm, or when the farmer is gone, a task computes the value for its worker
    /// alone.
    ///
    /// ```
    /// use chunkcomm_cluster::Registry;
    /// use chunkcomm_farm::RegistryExt;
    ///
    /// let mut registry = Registry::new();
    /// let sum = registry.register_async_task("sum", |task, to: u64| async move {
    ///     let primes = async || (2..10_000).filter(|n| (2..*n).all(|d| n % d > 0)).collect();
    ///     let primes = task.once_for_all::<Vec<u64>, _>(&"primes", primes).await;
    ///     primes.iter().take_while(|&&prime| prime < to).sum::<u64>()
    /// });
    /// ```
    ///
    /// # Cancel safety
    /// As for [`once`](TaskContext::once): another waiting task computes the value, at this worker
    /// or another.
    ///
    /// # Panics
    /// If `compute` panics, if the codec refuses the key or the value, or if the encoded value is
    /// larger than a message (`message_bytes_max`). Another waiting task then computes the value.
    pub async fn once_for_all<T, F>(
        &self,
        key: &(impl Serialize + Sync),
        compute: impl FnOnce() -> F,
    ) -> Arc<T>
    where
        T: Serialize + DeserializeOwned + Send + Sync + 'static,
        F: Future<Output = T>,
    {
        let cell = self.values().cell::<ForAll<T>>(self.run(), key);
        let value = cell.get_or_init(async || {
            let found = self.needs().ask((self.run(), self.index()), digest_of::<T>(key)).await;
            let compute = async || {
                let value = compute().await;
                // Others get the value when the work that computed it is done.
                host::after_work().await;
                value
            };
            found_or(found, compute).await
        });
        typed(value.await)
    }

    /// Returns the value of this key as [`once`](TaskContext::once), for functions that are not
    /// async.
    ///
    /// Both have the same values. While a task waits for a value, another thread of the worker runs
    /// other tasks, as with [`blocking`](TaskContext::blocking).
    ///
    /// # Panics
    /// As [`once`](TaskContext::once).
    pub fn once_blocking<T: Send + Sync + 'static>(
        &self,
        key: &impl Serialize,
        compute: impl FnOnce() -> T,
    ) -> Arc<T> {
        let cell = self.values().cell::<T>(self.run(), key);
        let value = cell.get_or_init(|| ready(Arc::new(compute()) as _));
        typed(wait_blocking(value))
    }

    /// Returns the value of this key as [`once_for_all`](TaskContext::once_for_all), for functions
    /// that are not async.
    ///
    /// Both have the same values. While a task waits for a value, another thread of the worker runs
    /// other tasks, as with [`blocking`](TaskContext::blocking). A waiting task computes the value
    /// itself when its run is dropped, its thread is given up, or the farmer is gone.
    ///
    /// In virtual time no thread can be blocked. There each worker computes the value for itself,
    /// as with [`once_blocking`](TaskContext::once_blocking).
    ///
    /// ```
    /// use chunkcomm_cluster::Registry;
    /// use chunkcomm_farm::RegistryExt;
    ///
    /// let mut registry = Registry::new();
    /// let sum = registry.register_task("sum", |task, to: u64| {
    ///     let primes = || (2..10_000).filter(|n| (2..*n).all(|d| n % d > 0)).collect();
    ///     let primes = task.once_for_all_blocking::<Vec<u64>>(&"primes", primes);
    ///     primes.iter().take_while(|&&prime| prime < to).sum::<u64>()
    /// });
    /// ```
    ///
    /// # Panics
    /// As [`once_for_all`](TaskContext::once_for_all).
    pub fn once_for_all_blocking<T>(
        &self,
        key: &impl Serialize,
        compute: impl FnOnce() -> T,
    ) -> Arc<T>
    where
        T: Serialize + DeserializeOwned + Send + Sync + 'static,
    {
        let cell = self.values().cell::<ForAll<T>>(self.run(), key);
        let value = cell.get_or_init(async || {
            // In virtual time the waiting thread would be the one that brings the reply.
            let found = match host::is_virtual() {
                true => None,
                false => self.needs().ask((self.run(), self.index()), digest_of::<T>(key)).await,
            };
            found_or(found, || ready(compute())).await
        });
        typed(wait_blocking(value))
    }
}

/// Returns the value that another worker has computed. If there is none, computes it and tells the
/// farmer.
async fn found_or<T, F>(
    found: Option<Found>,
    compute: impl FnOnce() -> F,
) -> Arc<dyn Any + Send + Sync>
where
    T: Serialize + DeserializeOwned + Send + Sync + 'static,
    F: Future<Output = T>,
{
    let value: T = match found {
        Some(Found::Value(bytes)) => {
            decode(&bytes).expect("the value was encoded by the same program")
        }
        found => {
            let value = compute().await;
            if let Some(Found::Compute(duty)) = found {
                let mut bytes = Vec::new();
                encode_into_vec(&value, &mut bytes).expect("the value can be encoded");
                duty.finish(bytes);
            }
            value
        }
    };
    Arc::new(value)
}

/// Marks the type of a value for all workers, so that its key differs from those of other values.
struct ForAll<T>(PhantomData<T>);

/// Returns the name of a value for all workers.
fn digest_of<T>(key: &impl Serialize) -> u128 {
    let mut bytes = Vec::new();
    encode_into_vec(key, &mut bytes).expect("the key of a value can be encoded");
    bytes.extend_from_slice(std::any::type_name::<T>().as_bytes());
    digest(&bytes)
}

fn typed<T: Send + Sync + 'static>(value: &Arc<dyn Any + Send + Sync>) -> Arc<T> {
    Arc::clone(value).downcast().expect("the type is a part of the key")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::Common;
    use crate::pieces::Piece;
    use crate::proto::wire::{self, Answer, Ask, Told};
    use bytes::Bytes;
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::task::Poll;
    use std::thread;
    use tokio::sync::mpsc::unbounded_channel;

    fn task(common: &Arc<Common>) -> TaskContext {
        task_of(common, 0)
    }

    fn task_of(common: &Arc<Common>, run: u32) -> TaskContext {
        let tasks = Piece { run, count: 1, ..Piece::default() };
        TaskContext::begin(common, &tasks, 0)
    }

    #[test]
    fn threads_compute_a_value_once() {
        let (common, computed) = (Arc::<Common>::default(), AtomicU32::new(0));
        let all = Barrier::new(4);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    all.wait();
                    for key in 0..100 {
                        let value = task(&common).once_blocking(&key, || {
                            computed.fetch_add(1, Ordering::Relaxed);
                            key * 2
                        });
                        assert_eq!(*value, key * 2);
                    }
                });
            }
        });
        assert_eq!(computed.load(Ordering::Relaxed), 100);
        // Another type is another value, and another run computes it again.
        assert_eq!(*task(&common).once_blocking(&7, || 1_u8), 1);
        drop(common.enter(0));
        assert_eq!(*task(&common).once_blocking(&7, || 3), 3);
    }

    #[test]
    fn a_task_of_a_dropped_run_has_no_value_of_the_next() {
        let common = Arc::<Common>::default();
        let dropped = task_of(&common, 1);
        drop(common.enter(2));
        assert_eq!(*dropped.once_blocking(&7, || 1), 1);
        assert_eq!(*task_of(&common, 2).once_blocking(&7, || 2), 2);
        assert_eq!(*dropped.once_blocking(&7, || 3), 1);
    }

    /// The first of two threads that wait fails at the value, the second computes it. A third has it from
    /// another worker. The last one waits as the farmer leaves.
    #[test]
    fn blocked_threads_compute_for_all_or_have_the_value_of_another_worker() {
        let (sender, mut words) = unbounded_channel();
        let common = Arc::<Common>::default();
        common.needs.connect(sender, 1000);
        let computed = AtomicU32::new(0);
        let value_of = |key: u32| {
            task(&common).once_for_all_blocking(&key, || {
                assert!(computed.fetch_add(1, Ordering::Relaxed) > 0, "the first one fails");
                key * 2
            })
        };
        /// Lets those that wait end, so that a failed test does.
        struct Close<'a>(&'a Common);
        impl Drop for Close<'_> {
            fn drop(&mut self) {
                drop(self.0.needs.close());
            }
        }
        thread::scope(|scope| {
            let _close = Close(&common);
            // The question and its name.
            let mut asked = || match wire::read_answer(&words.blocking_recv().unwrap()) {
                Ok(Answer::Once { run: 0, key, ask }) => (key, ask),
                _ => panic!("no word about a value"),
            };
            let both = [0, 1].map(|_| scope.spawn(|| value_of(7)));
            let (key, ask) = asked();
            assert_eq!(ask, Ask::Need);
            common.needs.handle_reply(0, key, Told::Compute);
            assert_eq!([asked(), asked()], [(key, Ask::GivenUp), (key, Ask::Need)]);
            common.needs.handle_reply(0, key, Told::Compute);
            assert_eq!(asked(), (key, Ask::Value(Bytes::copy_from_slice(&14u32.to_le_bytes()))));
            let values = both.map(|thread| thread.join().ok());
            assert_eq!(values.iter().flatten().map(|value| **value).collect::<Vec<_>>(), [14]);
            assert_eq!(computed.load(Ordering::Relaxed), 2);

            let third = scope.spawn(|| value_of(8));
            let (key, _) = asked();
            let told = Told::Value(Bytes::copy_from_slice(&5u32.to_le_bytes()));
            common.needs.handle_reply(0, key, told);
            assert_eq!(*third.join().unwrap(), 5, "it is the other worker's");

            let last = scope.spawn(|| value_of(9));
            assert_eq!(asked().1, Ask::Need);
            drop(common.needs.close());
            assert_eq!((*last.join().unwrap(), computed.load(Ordering::Relaxed)), (18, 3));
        });
    }

    /// The first task that computes is dropped, the second panics.
    #[tokio::test]
    async fn a_value_whose_task_ends_is_computed_by_another() {
        let task = task(&Arc::default());
        let first = task.once(&"key", std::future::pending::<u32>);
        let second = task.once(&"key", async || panic!("no luck"));
        let third = task.once(&"key", async || 3);
        let mut futures: Vec<std::pin::Pin<Box<dyn Future<Output = Arc<u32>>>>> =
            vec![Box::pin(first), Box::pin(second), Box::pin(third)];
        let poll = |future: &mut std::pin::Pin<Box<dyn Future<Output = Arc<u32>>>>| {
            let mut context = std::task::Context::from_waker(std::task::Waker::noop());
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                future.as_mut().poll(&mut context)
            }))
        };
        for future in &mut futures {
            assert!(poll(future).unwrap().is_pending());
        }
        drop(futures.remove(0));
        assert!(poll(&mut futures[1]).unwrap().is_pending(), "the second is in its place");
        assert!(poll(&mut futures[0]).is_err());
        drop(futures.remove(0));
        assert!(matches!(poll(&mut futures[0]), Ok(Poll::Ready(value)) if *value == 3));
    }
}
