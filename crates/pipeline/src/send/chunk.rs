//! Elements that a sender's program computes next.

use std::fmt;
use std::ops::{Deref, DerefMut, Range};

use chunkcomm_group::{DeltaSendError, Element, Part};

use super::DeltaSender;

/// The next elements of a [`DeltaSender`], for its program to write: a slice of at least one element.
///
/// [`commit`](Self::commit) puts them on their way. Committed elements cannot be written any more:
///
/// ```compile_fail,E0382
/// async fn rewrite(mut chunk: chunkcomm_pipeline::Chunk<'_, u8>) {
///     chunk.commit().await.unwrap();
///     chunk[0] = 1;
/// }
/// ```
///
/// ```compile_fail,E0505
/// async fn keep(mut chunk: chunkcomm_pipeline::Chunk<'_, u8>) {
///     let first = &mut chunk[0];
///     chunk.commit().await.unwrap();
///     *first = 1;
/// }
/// ```
///
/// A sender has one chunk at a time; [`parts`](DeltaSender::parts) are many, for threads:
///
/// ```compile_fail,E0499
/// fn two(sender: &mut chunkcomm_pipeline::DeltaSender<u8>) {
///     let first = sender.next(10).unwrap();
///     let second = sender.next(10).unwrap();
///     drop((first, second));
/// }
/// ```
///
/// Nor does the sender do anything else until the chunk is committed or dropped:
///
/// ```compile_fail,E0505
/// async fn take(mut sender: chunkcomm_pipeline::DeltaSender<u8>) -> Vec<u8> {
///     let _chunk = sender.next(10).unwrap();
///     sender.into_buffer().await
/// }
/// ```
///
/// A dropped chunk gives the elements that it has not committed back to the sender, with the values that they
/// have. The next call of [`next`](DeltaSender::next) hands them out again.
#[must_use = "a chunk that is not committed is not sent"]
pub struct Chunk<'a, T: Element> {
    pub(super) part: Part<T>,
    pub(super) sender: &'a mut DeltaSender<T>,
}

impl<T: Element> Chunk<'_, T> {
    /// Returns the indices of the elements in the buffer.
    #[must_use]
    pub fn range(&self) -> Range<usize> {
        self.part.range()
    }

    /// Puts the elements on their way. Does not wait for the network.
    ///
    /// Yields to the runtime when another increment is committed, at most once in 50 us, and at the end of
    /// the buffer. Elements that parts committed count, too. So the link sends even if the program's only
    /// thread computes.
    ///
    /// Less than an increment leaves when the link is idle. With
    /// [`Increment::Fixed`](crate::Increment::Fixed) it stays until the increment is whole or the buffer ends.
    /// [`Part::commit`] needs no runtime.
    ///
    /// # Errors
    /// The error of the transfer, if it failed: drop the sender.
    ///
    /// # Cancel safety
    /// The first poll has committed; dropping the rest loses nothing.
    pub async fn commit(mut self) -> Result<(), DeltaSendError> {
        let count = self.len();
        self.commit_first(count).await
    }

    /// Puts the first `count` elements on their way, as [`commit`](Self::commit) does; the chunk goes on with
    /// the rest.
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    ///
    /// # Cancel safety
    /// As [`commit`](Self::commit).
    ///
    /// # Panics
    /// When the chunk has fewer.
    pub async fn commit_first(&mut self, count: usize) -> Result<(), DeltaSendError> {
        self.part.commit_first(count);
        self.sender.take_turn().await
    }
}

/// While there is a chunk the sender is borrowed, since this is not empty: a call that would wait for the
/// chunk's end, as `into_buffer` does, is a compile error.
impl<T: Element> Drop for Chunk<'_, T> {
    fn drop(&mut self) {
        self.sender.position = self.part.range().start;
    }
}

impl<T: Element> Deref for Chunk<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.part
    }
}

impl<T: Element> DerefMut for Chunk<'_, T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.part
    }
}

impl<T: Element> fmt::Debug for Chunk<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chunk").field("range", &self.range()).finish_non_exhaustive()
    }
}
