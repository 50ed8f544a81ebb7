//! Limits, waits for a condition, runtimes, and futures that are dropped early.

use std::future::{Future, poll_fn, ready};
use std::panic::Location;
use std::pin::{Pin, pin};
use std::sync::Once;
use std::task::Poll;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Time longer than anything here takes: a test that hangs fails by it.
const LIMIT: Duration = Duration::from_secs(90);

/// Time between two looks at a condition.
const LOOK: Duration = Duration::from_millis(1);

/// Time in which a thing that must not happen would happen.
const QUIET: Duration = Duration::from_millis(30);

/// Installs a listener for the warnings of nodes in this process, which forgets them: tests leave
/// messages on their way when they end.
fn hear_warnings() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let _ = tracing::subscriber::set_global_default(tracing::subscriber::NoSubscriber::new());
    });
}

/// A future whose type says nothing of what it does: the runtime's code for a task is compiled once
/// for all tests, and not for each.
type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// The same for a task, which any thread may run.
type BoxedTask<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Waits for `future`, which does not hang.
#[track_caller]
pub fn limited<F: Future>(future: F) -> impl Future<Output = F::Output> {
    hear_warnings();
    let place = Location::caller();
    async move {
        let outcome = tokio::time::timeout(LIMIT, future).await;
        outcome.unwrap_or_else(|_| panic!("it hangs at {place}"))
    }
}

/// Waits until `done` returns true.
#[track_caller]
pub fn until(mut done: impl FnMut() -> bool) -> impl Future<Output = ()> {
    until_some(move || ready(done().then_some(())))
}

/// Waits until `look` finds something.
#[track_caller]
pub fn until_some<T, F>(mut look: impl FnMut() -> F) -> impl Future<Output = T>
where
    F: Future<Output = Option<T>>,
{
    limited(async move {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            tokio::time::sleep(LOOK).await;
        }
    })
}

/// Checks that `holds` stays true, for nothing tells when a thing will never happen.
#[track_caller]
pub fn stays(what: &str, mut holds: impl FnMut() -> bool) -> impl Future<Output = ()> {
    let place = Location::caller();
    async move {
        let begun = Instant::now();
        while begun.elapsed() < QUIET {
            assert!(holds(), "no longer true at {place}: {what}");
            tokio::time::sleep(LOOK).await;
        }
        assert!(holds(), "no longer true at {place}: {what}");
    }
}

/// Waits until `read` has returned the same value for some time; returns it.
#[track_caller]
pub fn settled<T: PartialEq>(mut read: impl FnMut() -> T) -> impl Future<Output = T> {
    limited(async move {
        let (mut value, mut since) = (read(), Instant::now());
        while since.elapsed() < QUIET {
            tokio::time::sleep(LOOK).await;
            let now = read();
            if now != value {
                (value, since) = (now, Instant::now());
            }
        }
        value
    })
}

/// Starts `future` as a task; returns when the task waits.
pub async fn waiting<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    let (waits, waiting) = oneshot::channel();
    let future: BoxedTask<F::Output> = Box::pin(future);
    let task = tokio::spawn(announced(future, waits));
    waiting.await.unwrap();
    task
}

/// Sends on `waits` when `future` has been polled for the first time.
async fn announced<F: Future>(future: F, waits: oneshot::Sender<()>) -> F::Output {
    let mut future = pin!(future);
    let mut waits = Some(waits);
    poll_fn(|context| {
        let polled = future.as_mut().poll(context);
        if let Some(waits) = waits.take() {
            let _ = waits.send(());
        }
        polled
    })
    .await
}

/// Runs `test` on a runtime of one thread.
pub fn on_one_thread<F: Future>(test: F) -> F::Output {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let test: Boxed<'_, F::Output> = Box::pin(test);
    builder.enable_all().build().unwrap().block_on(limited(test))
}

/// Runs `test` on a runtime of two threads, itself on one of them.
pub fn on_two_threads<F>(test: F) -> F::Output
where
    F: Future<Output: Send> + Send + 'static,
{
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(2).enable_all().build().unwrap();
    let test: BoxedTask<F::Output> = Box::pin(test);
    let outcome = runtime.block_on(runtime.spawn(limited(test)));
    outcome.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
}

/// Runs what `test` makes on a runtime of one thread, then on one of two.
pub fn on_both<F>(test: impl Fn() -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    on_one_thread(test());
    on_two_threads(test());
}

/// Runs `future` until it has to wait for the `waits`-th time and drops it then; with 0 it is never
/// polled.
pub async fn cancelled<F: Future>(waits: u32, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut left = waits;
    poll_fn(|context| {
        if left == 0 {
            return Poll::Ready(None);
        }
        match future.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending => {
                left -= 1;
                if left == 0 { Poll::Ready(None) } else { Poll::Pending }
            }
        }
    })
    .await
}

/// Makes the future again and drops it one wait later each time, until it is ready.
#[macro_export]
macro_rules! at_last {
    ($future:expr) => {{
        let mut waits = 0;
        loop {
            if let Some(output) = $crate::limited($crate::cancelled(waits, $future)).await {
                break output;
            }
            waits += 1;
            tokio::task::yield_now().await;
        }
    }};
}

#[cfg(all(test, feature = "paused-clock"))]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    #[should_panic(expected = "it hangs at crates/testkit/src/waiting.rs")]
    async fn a_condition_that_never_comes_fails_at_its_place() {
        until(|| false).await;
    }

    #[tokio::test]
    #[should_panic(expected = "crates/testkit/src/waiting.rs")]
    async fn a_state_that_ends_fails_at_its_place() {
        let begun = Instant::now();
        stays("it is early", || begun.elapsed() < QUIET / 3).await;
    }
}
