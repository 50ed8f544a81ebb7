//! The owner of a region: the only holder that takes its memory back.

use std::ops::Range;
use std::slice;
use std::time::Duration;

use bytemuck::Pod;
use chunkcomm::host;
use chunkcomm::host::memory::{self, Slices};

use super::Share;
use crate::proto::extents::Extents;

/// The only holder that reads elements, begins rounds, and takes the buffer back.
pub struct Owner<T: Pod> {
    pub(super) share: Share<T>,
}

impl<T: Pod> Owner<T> {
    /// Returns a handle that sends from the memory or lands in it.
    pub fn share(&self) -> &Share<T> {
        &self.share
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.share.len()
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.share.is_empty()
    }

    /// Returns the elements of `range`, if all of them are done.
    pub fn elements(&self, range: Range<usize>) -> Option<&[T]> {
        if range.start > range.end || range.end > self.len() {
            return None;
        }
        let bytes = range.start * size_of::<T>()..range.end * size_of::<T>();
        if !self.share.state().extents.is_done(&bytes) {
            return None;
        }
        let base = self.share.region.base.as_ptr();
        // SAFETY: within the allocation, aligned and initialised (1). The bytes are done, and stay so
        // while the owner is borrowed (2); they were found so under the lock (3).
        Some(unsafe { slice::from_raw_parts(base.add(range.start), range.len()) })
    }

    /// Returns the whole elements from the start that are done without a gap.
    pub fn prefix(&self) -> &[T] {
        let whole = self.share.state().extents.prefix() / size_of::<T>();
        self.elements(0..whole).expect("they are done")
    }

    /// Waits until nobody reads the memory, and puts the corrections there, if there are any.
    pub async fn correct(&mut self) {
        let mut slices = Slices::default();
        loop {
            let applied = self
                .share
                .until(|state| {
                    if !state.corrections.is_pending() {
                        return Some(None);
                    }
                    state.quiet_wanted = true;
                    // SAFETY: the owner is borrowed mutably.
                    state.is_still().then(|| Some(unsafe { self.share.region.apply(state) }))
                })
                .await;
            // A view that begins meanwhile reads earlier or later values, and ends before the next slice.
            let Some(bytes) = applied else { return };
            slices.worked(bytes).await;
        }
    }

    /// Waits until nobody sends from the memory, and begins the next round, if all is done: with `ends`
    /// the last one, without bytes.
    pub async fn reset(&mut self, ends: bool) {
        self.share
            .until(|state| {
                state.quiet_wanted = true;
                let ready = state.is_quiet() && state.extents.is_whole() && !state.extents.is_cut();
                ready.then(|| {
                    // No view is left, nothing is out, and the owner is borrowed mutably (2).
                    state.extents.reset();
                    if ends {
                        assert!(state.extents.cut(), "nothing is out, and nothing done");
                    }
                    state.corrections.reset();
                    state.round += 1;
                    state.rested = 0;
                    state.quiet_wanted = false;
                })
            })
            .await;
        self.share.region.ring(self.share.state());
    }

    /// Waits until this is the only user of the memory and returns the buffer. Cancelled, it releases
    /// the memory.
    pub async fn into_vec(mut self) -> Vec<T> {
        self.close();
        self.take().await
    }

    /// Returns the buffer as [`into_vec`](Self::into_vec) does, or after `patience` a copy, if all that is
    /// left is reads of the memory. Cancelled, it releases the memory.
    pub async fn into_vec_or_copy(mut self, patience: Duration) -> Vec<T>
    where
        T: Send,
    {
        self.close();
        if let Ok(buffer) = host::timeout(patience, self.take()).await {
            return buffer;
        }
        self.share
            .until(|state| {
                state.quiet_wanted = true;
                let is_read_only = state.extents.none_out() && state.carriers == 0;
                // From now on nothing is given out, to be written or read.
                is_read_only.then(|| state.extents = Extents::new(0))
            })
            .await;
        let region = &self.share.region;
        // SAFETY: within the allocation, aligned and initialised (1). No lease is left and none is given
        // out, so nobody writes (2). The last lease ended under the lock, which was taken since (3).
        let elements = unsafe { slice::from_raw_parts(region.base.as_ptr(), region.len) };
        memory::copied(elements).await
    }

    /// Waits until this is the only user of the memory and takes the buffer. The owner is of no use then.
    async fn take(&mut self) -> Vec<T> {
        let mut slices = Slices::default();
        loop {
            let applied = self
                .share
                .until(|state| {
                    state.quiet_wanted = true;
                    let alone = state.is_quiet() && state.carriers == 0;
                    alone.then(|| {
                        if state.corrections.is_pending() {
                            // SAFETY: nobody writes or reads, and the owner is ours.
                            return Some(unsafe { self.share.region.apply(state) });
                        }
                        // No view is left and nothing is out; from now on nothing is given out (4).
                        state.extents = Extents::new(0);
                        state.taken = true;
                        None
                    })
                })
                .await;
            let Some(bytes) = applied else { break };
            slices.worked(bytes).await;
        }
        let region = &self.share.region;
        // SAFETY: the parts are those of the vector that `share` took. `taken` was set under the lock
        // together with the state of point 4, and keeps `drop` from making it a second time.
        unsafe { Vec::from_raw_parts(region.base.as_ptr(), region.len, region.capacity) }
    }

    fn close(&mut self) {
        let mut state = self.share.state();
        state.closing = true;
        self.share.region.ring(state);
    }
}

impl<T: Pod> Drop for Owner<T> {
    fn drop(&mut self) {
        self.close();
    }
}
