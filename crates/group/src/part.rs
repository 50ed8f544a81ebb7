//! Parts of a buffer, for threads that compute them in any order.

use std::fmt;
use std::ops::{Bound, Deref, DerefMut, Range, RangeBounds};

use crate::Element;
use crate::error::PartError;
use crate::memory::{Lease, Share};
use crate::proto::extents::Taken;

/// Some elements of a [region](crate::Region), or of the buffer of a delta's sender, for one writer.
///
/// May be sent to another thread. [`commit`](Self::commit) puts the elements on their way; parts are
/// committed in any order, and those that touch leave together. Committed elements cannot be written
/// any more:
///
/// ```compile_fail,E0382
/// fn rewrite(mut part: chunkcomm_group::Part<u8>) {
///     part.commit();
///     part[0] = 1;
/// }
/// ```
///
/// ```compile_fail,E0505
/// fn keep(mut part: chunkcomm_group::Part<u8>) {
///     let first = &mut part[0];
///     part.commit();
///     *first = 1;
/// }
/// ```
///
/// After a drop without a commit the elements may be handed out again. While a part exists, `into_buffer` and the next
/// round wait.
#[must_use = "a part that is not committed is not sent"]
pub struct Part<T: Element> {
    lease: Lease<T>,
}

impl<T: Element> Part<T> {
    fn new(lease: Lease<T>) -> Self {
        Self { lease }
    }

    /// Returns the indices of the elements in the buffer.
    #[must_use]
    pub fn range(&self) -> Range<usize> {
        let bytes = self.lease.range();
        bytes.start / size_of::<T>()..bytes.end / size_of::<T>()
    }

    /// Puts the elements on their way; never waits.
    ///
    /// The sender tells whether the transfer still goes on. After its drop nothing more is sent.
    pub fn commit(self) {
        self.lease.commit();
    }

    /// Puts the first `count` elements on their way; the part goes on with the rest.
    ///
    /// # Panics
    /// When the part has fewer.
    pub fn commit_first(&mut self, count: usize) {
        assert!(count <= self.len(), "{count} of {} elements are committed", self.len());
        self.lease.advance(count * size_of::<T>());
    }

    /// Keeps the first `count` elements and returns a part with the rest.
    ///
    /// # Panics
    /// When the part has fewer.
    pub fn split_off(&mut self, count: usize) -> Self {
        assert!(count <= self.len(), "{} elements are parted behind {count}", self.len());
        Self::new(self.lease.split_off(count * size_of::<T>()))
    }
}

impl<T: Element> Deref for Part<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        self.lease.elements()
    }
}

impl<T: Element> DerefMut for Part<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        self.lease.elements_mut()
    }
}

impl<T: Element> fmt::Debug for Part<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Part").field("range", &self.range()).finish_non_exhaustive()
    }
}

/// Takes the elements of `range` to write them.
///
/// # Errors
/// When some are out or committed, or outside.
pub fn part_of<T: Element>(
    share: &Share<T>,
    range: &impl RangeBounds<usize>,
) -> Result<Part<T>, PartError> {
    // Fewer than `len` behind the end of a stream.
    let length = share.state().extents().bytes() / size_of::<T>();
    let asked = indices(range, share.len());
    if asked.start > asked.end || asked.end > length {
        return Err(PartError::Range { asked, length });
    }
    let elements =
        |bytes: Range<usize>| bytes.start / size_of::<T>()..bytes.end.div_ceil(size_of::<T>());
    let bytes = asked.start * size_of::<T>()..asked.end * size_of::<T>();
    share.lease(bytes).map(Part::new).map_err(|taken| match taken {
        Taken::Outside => PartError::Range { asked, length },
        Taken::Out(bytes) => PartError::Out { asked, taken: elements(bytes) },
        Taken::Done(bytes) => PartError::Committed { asked, taken: elements(bytes) },
    })
}

/// Takes the first free elements at or behind `start`, at most `count`, to write them; `None` when none is free.
pub fn free_part<T: Element>(share: &Share<T>, start: usize, count: usize) -> Option<Part<T>> {
    let (start, bytes) = (start * size_of::<T>(), count.saturating_mul(size_of::<T>()));
    share.lease_free(start, bytes).map(Part::new)
}

/// Returns the indices of `range` in `length` elements, which may be none of them.
pub fn indices(range: &impl RangeBounds<usize>, length: usize) -> Range<usize> {
    let start = match range.start_bound() {
        Bound::Included(start) => *start,
        Bound::Excluded(start) => start.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(end) => end.saturating_add(1),
        Bound::Excluded(end) => *end,
        Bound::Unbounded => length,
    };
    start..end
}
