//! The holders of parts of a region: leases to write, views to read, and the mark of a task that uses it.

use std::ops::Range;
use std::slice;
use std::sync::Arc;

use bytemuck::Pod;

use super::Share;

/// Bytes that this holder alone writes. Dropped, those not committed are free again.
pub struct Lease<T: Pod> {
    pub(super) share: Share<T>,
    pub(super) range: Range<usize>,
}

impl<T: Pod> Lease<T> {
    /// Returns the range of the bytes.
    pub fn range(&self) -> Range<usize> {
        self.range.clone()
    }

    /// Returns the elements, the range being one of whole elements.
    ///
    /// # Panics
    /// When it is not.
    pub(crate) fn elements(&self) -> &[T] {
        bytemuck::cast_slice(self.bytes())
    }

    /// Returns the elements to write them, the range being one of whole elements.
    ///
    /// # Panics
    /// When it is not.
    pub fn elements_mut(&mut self) -> &mut [T] {
        bytemuck::cast_slice_mut(self.bytes_mut())
    }

    /// Returns the bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: within the allocation and initialised (1); out for this lease (2).
        unsafe {
            slice::from_raw_parts(self.share.region.first(self.range.start), self.range.len())
        }
    }

    /// Returns the bytes to write them.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: within the allocation and initialised (1); out for this lease, which is borrowed
        // mutably (2).
        unsafe {
            slice::from_raw_parts_mut(self.share.region.first(self.range.start), self.range.len())
        }
    }

    /// Makes the bytes done.
    pub fn commit(mut self) {
        let bytes = self.range.len();
        self.advance(bytes);
    }

    /// Makes the first `bytes` bytes done; the lease goes on with the rest.
    ///
    /// # Panics
    /// When the lease has fewer.
    pub(crate) fn advance(&mut self, bytes: usize) {
        assert!(bytes <= self.range.len(), "{bytes} of {:?} are committed", self.range);
        let done = self.range.start..self.range.start + bytes;
        self.range.start = done.end;
        let mut state = self.share.state();
        state.extents.commit(done);
        if state.is_awaited() {
            self.share.region.ring(state);
        }
    }

    /// Parts the lease in two, the second of which begins behind `bytes` bytes.
    ///
    /// # Panics
    /// When the lease has fewer.
    pub(crate) fn split_off(&mut self, bytes: usize) -> Self {
        assert!(bytes <= self.range.len(), "{:?} is parted behind {bytes}", self.range);
        let middle = self.range.start + bytes;
        let rest = middle..self.range.end;
        self.range.end = middle;
        Self { share: self.share.clone(), range: rest }
    }

    /// Takes over the bytes of `next`, or gives it back where they are not those behind this lease.
    pub(crate) fn join(&mut self, mut next: Self) -> Option<Self> {
        let touches = Arc::ptr_eq(&self.share.region, &next.share.region)
            && self.range.end == next.range.start;
        if !touches {
            return Some(next);
        }
        // The other has no bytes left to give back.
        self.range.end = next.range.end;
        next.range.start = next.range.end;
        None
    }
}

impl<T: Pod> Drop for Lease<T> {
    fn drop(&mut self) {
        if !self.range.is_empty() {
            let range = self.range.clone();
            self.share.change(|state| state.extents.release(&range));
        }
    }
}

/// A share in the memory and a range of it that is done, to read it. It also stands behind a `Bytes`.
pub struct View<T: Pod> {
    pub(super) share: Share<T>,
    pub(super) range: Range<usize>,
}

impl<T: Pod> View<T> {
    /// Returns the elements, the range being one of whole elements.
    ///
    /// # Panics
    /// When it is not.
    pub fn elements(&self) -> &[T] {
        bytemuck::cast_slice(self.as_ref())
    }
}

impl<T: Pod> AsRef<[u8]> for View<T> {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the range was found done under the lock, which counted this view (2, 3); within the
        // allocation and initialised (1).
        unsafe {
            slice::from_raw_parts(self.share.region.first(self.range.start), self.range.len())
        }
    }
}

impl<T: Pod> Drop for View<T> {
    fn drop(&mut self) {
        let mut state = self.share.state();
        state.views -= 1;
        if state.views == 0 && state.quiet_wanted {
            self.share.region.ring(state);
        }
    }
}

/// The mark of a task that sends or combines from the memory: no round begins before it is done with the last.
pub struct Carrier<T: Pod> {
    pub(super) share: Share<T>,
    /// The last round that it is done with; 0 for none.
    pub(super) rested_in: u32,
}

impl<T: Pod> Carrier<T> {
    /// Returns the memory.
    pub(crate) fn share(&self) -> &Share<T> {
        &self.share
    }

    /// Whether this task is done with the round.
    pub(crate) fn has_rested(&self) -> bool {
        self.rested_in == self.share.state().round
    }

    /// Says that this task is done with the round.
    pub fn rest(&mut self) {
        let rested_in = &mut self.rested_in;
        self.share.change(|state| {
            if *rested_in != state.round {
                *rested_in = state.round;
                state.rested += 1;
            }
        });
    }
}

impl<T: Pod> Drop for Carrier<T> {
    fn drop(&mut self) {
        let rested_in = self.rested_in;
        self.share.change(|state| {
            state.carriers -= 1;
            state.rested -= usize::from(rested_in == state.round);
        });
    }
}
