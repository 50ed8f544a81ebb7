//! Work on much memory: copied in slices and freed on a thread, so that other tasks run meanwhile.
//!
//! The library's own copies and frees go this way. Between two polls of a task it runs longer only for
//! the serde of one value and in the program's own functions, as operators and handlers.

use super::tasks::is_virtual;
use bytes::Bytes;
use std::io;
use std::pin::pin;
use std::task::{Context, Poll};

/// Bytes that a task copies, fills or combines before others run: 2 MiB.
///
/// They take 1 ms in new memory and a tenth of it in old; ten times as long while others use the
/// machine. To let others run costs a microsecond.
pub const SLICE_BYTES: usize = 2 << 20;

/// Most bytes that are freed by the thread that drops them: 16 MiB.
///
/// The system took 65 to 250 ms to take 1 GiB back, so 1 to 4 ms for these. A thread costs about
/// 50 us.
pub const FREED_HERE_BYTES_MAX: usize = 16 << 20;

/// The bytes that a task has worked through since others ran.
#[derive(Debug, Default)]
pub struct Slices {
    bytes: usize,
}

impl Slices {
    /// Counts bytes that were copied, filled or combined, and lets other tasks run when they are a
    /// slice together with those before.
    ///
    /// # Cancel safety
    ///
    /// The first poll has counted.
    pub async fn worked(&mut self, bytes: usize) {
        if self.is_full_with(bytes) {
            tokio::task::yield_now().await;
        }
    }

    /// As [`worked`](Self::worked), for a `poll` function: after `Pending` the task is polled again,
    /// behind all others.
    pub fn poll_worked(&mut self, context: &mut Context<'_>, bytes: usize) -> Poll<()> {
        if !self.is_full_with(bytes) {
            return Poll::Ready(());
        }
        // Woken now, the task would run again before the runtime looks at its sockets.
        let _ = pin!(tokio::task::yield_now()).poll(context);
        Poll::Pending
    }

    /// Whether these bytes fill the slice; the next one then begins. In a simulation none is ever
    /// full: there work takes the time that it declares.
    fn is_full_with(&mut self, bytes: usize) -> bool {
        self.bytes += bytes;
        if self.bytes < SLICE_BYTES || is_virtual() {
            return false;
        }
        self.bytes = 0;
        true
    }
}

/// Copies elements in slices; other tasks run in between.
///
/// # Cancel safety
///
/// When the future is dropped, some elements are copied.
///
/// # Panics
///
/// When the lengths differ.
pub async fn copy<T: Copy>(from: &[T], to: &mut [T]) {
    assert_eq!(from.len(), to.len(), "as many elements as there is room for");
    let (mut slices, each) = (Slices::default(), elements_of_slice::<T>());
    for (from, to) in from.chunks(each).zip(to.chunks_mut(each)) {
        to.copy_from_slice(from);
        slices.worked(size_of_val(from)).await;
    }
}

/// Returns a copy of elements, made in slices; other tasks run in between.
///
/// # Cancel safety
///
/// When the future is dropped, so is the copy.
pub async fn copied<T: Copy + Send + 'static>(elements: &[T]) -> Vec<T> {
    let mut copy = FreedVec(Vec::with_capacity(elements.len()));
    let mut slices = Slices::default();
    for slice in elements.chunks(elements_of_slice::<T>()) {
        copy.0.extend_from_slice(slice);
        slices.worked(size_of_val(slice)).await;
    }
    copy.into_inner()
}

/// Returns the number of elements of a slice, at least one.
#[must_use]
pub fn elements_of_slice<T>() -> usize {
    (SLICE_BYTES / size_of::<T>().max(1)).max(1)
}

/// Drops `memory`, which has about `bytes` bytes: on a thread of its own if these are more than
/// [`FREED_HERE_BYTES_MAX`]. In a simulation, and where no thread can be started, it is dropped here.
pub fn free<M: Send + 'static>(bytes: usize, memory: M) {
    free_by(bytes, memory, |freeing| {
        let thread = std::thread::Builder::new().name("chunkcomm-free".to_owned());
        thread.spawn(freeing).map(drop)
    });
}

fn free_by<M: Send + 'static>(
    bytes: usize,
    memory: M,
    start: impl FnOnce(Box<dyn FnOnce() + Send>) -> io::Result<()>,
) {
    if bytes <= FREED_HERE_BYTES_MAX || is_virtual() {
        return drop(memory);
    }
    // A thread that does not start drops it as well.
    let _ = start(Box::new(move || drop(memory)));
}

/// Frees a vector as [`free`] does, in [pieces](Piecewise).
pub fn free_vec<T: Send + 'static>(memory: Vec<T>) {
    free(memory.capacity() * size_of::<T>(), Piecewise(memory));
}

/// A vector that gives its memory back in slices of [`SLICE_BYTES`] where it is dropped, from its end, if it has
/// more than [`FREED_HERE_BYTES_MAX`].
///
/// While the system takes a block back, no thread of the process gets new memory from it: for 20 to 180 ms
/// with a block of 1 GiB. A block that its allocator moves to shrink it is freed at once.
#[derive(Debug)]
pub struct Piecewise<T>(pub Vec<T>);

impl<T> Drop for Piecewise<T> {
    fn drop(&mut self) {
        let (memory, each) = (&mut self.0, elements_of_slice::<T>());
        // The system's allocator moves what is aligned to more.
        let is_sliced = memory.capacity().saturating_mul(size_of::<T>()) > FREED_HERE_BYTES_MAX
            && align_of::<T>() <= 16;
        let place = memory.as_ptr();
        while is_sliced && memory.capacity() > each && memory.as_ptr() == place {
            let rest = memory.capacity() - each;
            memory.truncate(rest);
            memory.shrink_to(rest);
        }
    }
}

/// A vector that is freed as [`free`] does, where it is dropped.
#[derive(Debug, Default)]
pub struct FreedVec<T: Send + 'static>(pub Vec<T>);

impl<T: Send + 'static> FreedVec<T> {
    /// Returns the vector.
    #[must_use]
    pub fn into_inner(mut self) -> Vec<T> {
        std::mem::take(&mut self.0)
    }
}

impl<T: Send + 'static> Drop for FreedVec<T> {
    fn drop(&mut self) {
        free_vec(std::mem::take(&mut self.0));
    }
}

/// Returns `message` in a form that is freed as [`free`] does, wherever its last slice is dropped.
pub(crate) fn freed_apart(message: Bytes) -> Bytes {
    if message.len() <= FREED_HERE_BYTES_MAX {
        return message;
    }
    Bytes::from_owner(Apart(message))
}

/// A message that may be the last handle of its memory; this is freed as [`free`] does. An owner that
/// the program made it of frees as it likes.
pub(crate) struct Apart(pub(crate) Bytes);

impl AsRef<[u8]> for Apart {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        // Memory that others hold as well is not freed now.
        if self.0.len() > FREED_HERE_BYTES_MAX && self.0.is_unique() {
            free(self.0.len(), std::mem::take(&mut self.0));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::{Arc, mpsc};
    use std::thread::{self, ThreadId};

    /// Tells which thread drops it.
    struct Told(mpsc::Sender<ThreadId>, Vec<u8>);

    impl Drop for Told {
        fn drop(&mut self) {
            let _ = self.0.send(thread::current().id());
        }
    }

    impl AsRef<[u8]> for Told {
        fn as_ref(&self) -> &[u8] {
            &self.1
        }
    }

    #[test]
    fn much_memory_is_freed_by_another_thread() {
        let (told, by) = mpsc::channel();
        let here = thread::current().id();
        free(FREED_HERE_BYTES_MAX, Told(told.clone(), Vec::new()));
        assert_eq!(by.recv(), Ok(here));
        free(FREED_HERE_BYTES_MAX + 1, Told(told.clone(), Vec::new()));
        assert_ne!(by.recv(), Ok(here));
        let refused = |_| Err(io::Error::other("no threads are left"));
        free_by(FREED_HERE_BYTES_MAX + 1, Told(told, Vec::new()), refused);
        assert_eq!(by.recv(), Ok(here));
    }

    #[test]
    fn an_owner_of_the_program_is_dropped_with_the_last_slice() {
        let (told, by) = mpsc::channel();
        let bytes = vec![7; FREED_HERE_BYTES_MAX + 1];
        let sent = freed_apart(Bytes::from_owner(Told(told, bytes)));
        let fragment = sent.slice(7..9);
        drop(sent);
        assert!(by.try_recv().is_err());
        assert_eq!(fragment[..], [7; 2]);
        drop(fragment);
        assert_eq!(by.recv(), Ok(thread::current().id()));
    }

    #[tokio::test]
    async fn others_run_after_each_slice() {
        let polls = Arc::new(AtomicU64::new(0));
        let others = Arc::clone(&polls);
        tokio::spawn(async move {
            loop {
                others.fetch_add(1, Ordering::Relaxed);
                tokio::task::yield_now().await;
            }
        });
        let elements: Vec<u32> = (0..(3 * SLICE_BYTES / 4 + 1) as u32).collect();
        let copy = copied(&elements).await;
        assert_eq!(polls.load(Ordering::Relaxed), 3);
        let mut again = vec![0; elements.len()];
        super::copy(&copy, &mut again).await;
        assert_eq!(polls.load(Ordering::Relaxed), 6);
        assert!(again == elements);
        let mut slices = Slices::default();
        slices.worked(SLICE_BYTES - 1).await;
        assert_eq!(polls.load(Ordering::Relaxed), 6);
        slices.worked(1).await;
        assert_eq!(polls.load(Ordering::Relaxed), 7);
    }

    #[test]
    fn a_poll_ends_with_its_slice() {
        let mut context = Context::from_waker(std::task::Waker::noop());
        let mut slices = Slices::default();
        let polled = |bytes| slices.poll_worked(&mut context, bytes);
        let polls: Vec<_> = [SLICE_BYTES / 2; 5].into_iter().map(polled).collect();
        let (full, ready) = (Poll::Pending, Poll::Ready(()));
        assert_eq!(polls, [ready, full, ready, full, ready]);
    }
}
