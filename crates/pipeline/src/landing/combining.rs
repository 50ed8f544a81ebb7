//! A landing that combines the bytes that come with other elements, while they are in the cache.
//!
//! ```text
//! socket -> scratch --,  own is done: in the driver's callback
//!                     +--> combine(out, own, incoming) -> out is done
//! waiting chunks -----'  own became done: in a task
//! ```
//!
//! - The room that the driver gets is the scratch. After each read, the whole elements in it are combined
//!   and the scratch is empty again, as long as the elements to combine them with are done.
//! - Elements that are not yet there are waited for by a copy of the scratch, a *chunk*, and by a task that
//!   combines the chunks. Then the sender sends no more than [`UNGRANTED_BYTES_MAX`] bytes ahead: each
//!   quarter of that is granted anew, and everything once all is there.
//!
//! Scratch and chunks together are at most [`COMBINE_BYTES_MAX`] bytes, which is asserted.

use std::any::Any;
use std::collections::VecDeque;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use bytemuck::Pod;
use chunkcomm::host;
use tokio::runtime::Handle;
use tokio::sync::Notify;

use super::Origin;
use super::base::Base;
use crate::error::DeltaRecvError;
use crate::memory::{Lease, Share, share};
use crate::proto::frame::FrameFault;
use crate::proto::opening::Opening;
use crate::proto::sections::Sections;
use crate::proto::sending::UNGRANTED_BYTES_MAX;

/// Most bytes that a combining landing keeps: 256 KiB.
const COMBINE_BYTES_MAX: usize = 256 * 1024;

/// Bytes that are read before they are combined: 64 KiB, which stay in the second-level cache together
/// with as many of each side.
const SCRATCH_BYTES: usize = 64 * 1024;

const _: () = assert!(SCRATCH_BYTES + UNGRANTED_BYTES_MAX <= COMBINE_BYTES_MAX);

/// Function of the result, the elements here and those that came, all of one length.
pub(crate) type Combine<T> = dyn Fn(&mut [T], &[T], &[T]) + Send + Sync;

/// The elements with which what comes is combined.
pub(crate) struct Operand<T: Pod> {
    pub(crate) share: Share<T>,
    pub(crate) sections: Sections,
}

impl<T: Pod> Operand<T> {
    /// Returns the places of these positions, each as long as what is together there.
    fn places(&self, positions: Range<usize>) -> impl Iterator<Item = Range<usize>> {
        let mut rest = positions;
        std::iter::from_fn(move || {
            let place = self.sections.place(&rest);
            rest.start += place.len();
            (!place.is_empty()).then_some(place)
        })
    }

    /// Whether all elements at these positions are done; an error when one will never be.
    fn has(&self, positions: &Range<usize>) -> Result<bool, String> {
        let state = self.share.state();
        for place in self.places(positions.clone()) {
            if let Some(error) = state.end_of(&place) {
                return Err(error.to_string());
            }
            if !state.extents().is_done(&place) {
                let gone = "the elements to combine with are gone".to_owned();
                return if state.closing { Err(gone) } else { Ok(false) };
            }
        }
        Ok(true)
    }
}

/// The driver's half: it fills the scratch.
pub(super) struct Combiner<T: Pod> {
    combining: Arc<Combining<T>>,
    scratch: Lease<T>,
    /// Positions of the increment from the first byte of the scratch on.
    positions: Range<usize>,
    filled: usize,
}

impl<T: Pod> Combiner<T> {
    /// Begins, with a task if elements to combine with are missing.
    pub(super) fn start(
        base: Arc<Base<T>>,
        own: Operand<T>,
        combine: Box<Combine<T>>,
        opening: &Opening,
        runtime: &Handle,
    ) -> Self {
        const { assert!(size_of::<T>() <= SCRATCH_BYTES, "an element fits into the scratch") };
        let bytes = base.sections.bytes();
        let length = (SCRATCH_BYTES / size_of::<T>()).min(bytes / size_of::<T>());
        let is_ready = own.share.state().has(&own.sections);
        let queue = Queue { granted: UNGRANTED_BYTES_MAX, ..Queue::default() };
        let (queue, is_over, wake) = (Mutex::new(queue), AtomicBool::new(false), Notify::new());
        let combining = Arc::new(Combining { base, own, combine, queue, is_over, wake });
        if is_ready {
            combining.queue().granted = usize::MAX;
            combining.base.back.grant_all(opening, &combining.base.sections);
        } else {
            host::spawn_on(runtime, combining.clone().run());
        }
        Self { combining, scratch: apart(vec![T::zeroed(); length]), positions: 0..0, filled: 0 }
    }

    /// Begins an increment.
    pub(super) fn begin(&mut self, positions: Range<usize>) {
        assert!(self.filled == 0, "increments are whole elements");
        self.positions = positions;
    }

    /// Returns the place for the next bytes.
    pub(super) fn room(&mut self) -> &mut [u8] {
        if self.combining.is_over() {
            return &mut [];
        }
        let end = self.scratch.range().len().min(self.positions.len());
        &mut self.scratch.bytes_mut()[self.filled..end]
    }

    /// Takes in `bytes` bytes; returns whether the increment is complete.
    pub(super) fn advance(&mut self, bytes: usize) -> Result<bool, DeltaRecvError> {
        self.filled += bytes;
        let whole = self.filled - self.filled % size_of::<T>();
        let first = self.positions.start..self.positions.start + whole;
        if whole == 0 {
            return Ok(false);
        }
        let is_full = whole == self.positions.len() || whole == self.scratch.range().len();
        let elements = &self.scratch.elements()[..whole / size_of::<T>()];
        if self.combining.has(&first)? {
            self.combining.combine(first, elements, false)?;
        } else if is_full {
            self.combining.keep(Chunk { positions: first, elements: apart(elements.to_vec()) })?;
        } else {
            return Ok(false);
        }
        // Part of an element may be left.
        self.scratch.bytes_mut().copy_within(whole..self.filled, 0);
        self.filled -= whole;
        self.positions.start += whole;
        Ok(self.positions.is_empty())
    }

    /// Returns the number of bytes that were combined.
    pub(super) fn landed(&self) -> usize {
        self.combining.queue().landed
    }

    /// Whether all bytes were combined, though the last may not be done yet.
    pub(super) fn has_all(&self) -> bool {
        let all = self.combining.base.sections.bytes();
        all > 0 && self.combining.queue().taken == all
    }

    /// Ends the task.
    pub(super) fn stop(&self) {
        self.combining.stop();
    }
}

/// Elements that came before those with which they are combined.
struct Chunk<T: Pod> {
    positions: Range<usize>,
    elements: Lease<T>,
}

/// Makes `elements` a memory of its own, which may go to another thread.
fn apart<T: Pod>(elements: Vec<T>) -> Lease<T> {
    let bytes = elements.len() * size_of::<T>();
    share(elements).share().lease(0..bytes).expect("all of it is free")
}

struct Queue<T: Pod> {
    waiting: VecDeque<Chunk<T>>,
    /// Bytes of the chunks that are not combined.
    waiting_bytes: usize,
    /// Bytes that the sender may send in all.
    granted: usize,
    /// Bytes that were combined, and those of them that are done.
    taken: usize,
    landed: usize,
}

impl<T: Pod> Default for Queue<T> {
    fn default() -> Self {
        Self { waiting: VecDeque::new(), waiting_bytes: 0, granted: 0, taken: 0, landed: 0 }
    }
}

/// State that the driver and the task share.
struct Combining<T: Pod> {
    base: Arc<Base<T>>,
    own: Operand<T>,
    combine: Box<Combine<T>>,
    queue: Mutex<Queue<T>>,
    is_over: AtomicBool,
    /// Wakes the task.
    wake: Notify,
}

impl<T: Pod> Combining<T> {
    fn queue(&self) -> MutexGuard<'_, Queue<T>> {
        self.queue.lock().expect("no holder of the lock panics")
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    fn stop(&self) {
        self.is_over.store(true, Ordering::Release);
        self.wake.notify_one();
    }

    fn error(&self, cause: String) -> DeltaRecvError {
        let Origin { peer, channel } = self.base.origin.clone();
        DeltaRecvError::Combine { peer, channel, cause }
    }

    fn has(&self, positions: &Range<usize>) -> Result<bool, DeltaRecvError> {
        self.own.has(positions).map_err(|cause| self.error(cause))
    }

    /// Keeps a chunk until it can be combined.
    fn keep(&self, chunk: Chunk<T>) -> Result<(), DeltaRecvError> {
        let mut queue = self.queue();
        let bytes = chunk.positions.len();
        if queue.waiting_bytes + bytes > UNGRANTED_BYTES_MAX {
            let waiting = queue.waiting_bytes;
            return Err(self.base.frame(FrameFault::Ungranted { waiting }));
        }
        queue.waiting_bytes += bytes;
        assert!(queue.waiting_bytes + SCRATCH_BYTES <= COMBINE_BYTES_MAX);
        queue.waiting.push_back(chunk);
        drop(queue);
        self.wake.notify_one();
        Ok(())
    }

    /// Combines elements whose counterparts are done, and makes the result done.
    fn combine(
        &self,
        positions: Range<usize>,
        incoming: &[T],
        waited: bool,
    ) -> Result<(), DeltaRecvError> {
        let (mut rest, mut incoming) = (positions, incoming);
        while !rest.is_empty() {
            let place = self.base.sections.place(&rest);
            let own = self.own.sections.place(&(rest.start..rest.start + place.len()));
            let bytes = own.len();
            let out = self.base.lease(place.start..place.start + bytes);
            let mut out = out.map_err(|fault| self.base.frame(fault))?;
            let Some(own) = self.own.share.view(own) else {
                return Err(self.error("the elements to combine with are gone".to_owned()));
            };
            let (now, later) = incoming.split_at(bytes / size_of::<T>());
            let combined = catch_unwind(AssertUnwindSafe(|| {
                (self.combine)(out.elements_mut(), bytemuck::cast_slice(&own), now);
            }));
            combined.map_err(|panic| self.error(text_of(&*panic)))?;
            drop(own);
            self.count(out, waited);
            rest.start += bytes;
            incoming = later;
        }
        Ok(())
    }

    /// Makes what was combined done, and lets the sender send more, or know that all has landed.
    fn count(&self, out: Lease<T>, waited: bool) {
        let (bytes, all) = (out.range().len(), self.base.sections.bytes());
        {
            let mut queue = self.queue();
            queue.taken += bytes;
            assert!(queue.taken <= all, "each byte is combined once");
            queue.waiting_bytes -= if waited { bytes } else { 0 };
            let next = queue.taken + UNGRANTED_BYTES_MAX;
            if queue.taken == all {
                // Whoever sees the last byte may leave, and then nothing more is said.
                self.base.back.say_round(true, 1);
            } else if queue.granted < all && next - queue.granted >= UNGRANTED_BYTES_MAX / 4 {
                queue.granted = next;
                self.base.back.grant(next);
            }
        }
        out.commit();
        let mut queue = self.queue();
        queue.landed += bytes;
        if queue.landed == all {
            drop(queue);
            self.base.done();
            self.stop();
        }
    }

    /// Combines what waits, until all is combined or the landing has ended.
    async fn run(self: Arc<Self>) {
        let mut bell = self.own.share.bell();
        while !self.is_over() {
            bell.mark_unchanged();
            let done_bytes = self.own.share.state().extents().done_bytes();
            if let Err(error) = self.turn() {
                self.base.refuse(&error);
                self.base.over(error);
                return self.stop();
            }
            if self.is_over() || self.own.share.ring_from(done_bytes + 1) {
                continue;
            }
            tokio::select! {
                biased;
                // The bell is in the memory and lives as long as this holder.
                _ = bell.changed() => {}
                () = self.wake.notified() => {}
            }
        }
    }

    /// Combines the chunks whose counterparts are done.
    fn turn(&self) -> Result<(), DeltaRecvError> {
        let all = self.base.sections.bytes();
        let is_ready = self.has(&(0..all))?;
        if is_ready && self.queue().granted < all {
            self.queue().granted = all;
            self.base.back.grant(all);
        }
        while let Some(chunk) = self.next_ready()? {
            self.combine(chunk.positions, chunk.elements.elements(), true)?;
        }
        Ok(())
    }

    fn next_ready(&self) -> Result<Option<Chunk<T>>, DeltaRecvError> {
        let mut queue = self.queue();
        for index in 0..queue.waiting.len() {
            if self.has(&queue.waiting[index].positions)? {
                return Ok(queue.waiting.remove(index));
            }
        }
        Ok(None)
    }
}

/// Returns the text of a panic.
fn text_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.map_or_else(|| "panicked".to_owned(), |text| format!("panicked: {text}"))
}
