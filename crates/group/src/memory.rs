//! Memory that is written in disjoint parts while others already read what is done.
//!
//! A sender computes into the memory while the link sends from
//! it; a receiver reads from it while the link lands bytes in it. Neither copies.
//!
//! ```text
//! 0                                                        len
//! |=== done ===|-- out --|.. free ..|-- out --|=== done ===|
//!   Owner: &     Lease: &mut          Lease: &mut  View: &
//! ```
//!
//! The region, its state and what every holder may do are here; the owner is in `owner`, leases, views and the
//! marks of tasks that use the memory are in `holders`.
//!
//! # Soundness
//!
//! 1. *Validity.* The memory is that of a `Vec<T>`: allocated for `T`, aligned for `T`, all `len`
//!    elements initialised. `T: Pod` has no padding, no invalid bit pattern, no interior
//!    mutability and nothing to drop, so a `&[T]`, a `&mut [T]`, a `&[u8]` and a `&mut [u8]` over any
//!    part of it are valid whatever bytes were written, elements that were written half included.
//! 2. *No aliasing.* [`Region`] keeps a raw pointer and never makes a reference to the whole. The
//!    [`Extents`] under its lock say of each byte that it is free, out or done, one of the three. Bytes
//!    behind the end of a round that was cut are none of them: nobody gets them before `into_vec`.
//!    - A mutable reference comes from a [`Lease`] only, borrows it mutably, and covers bytes that the
//!      extents have out for this lease alone: `Extents::take` refuses bytes that are out or done. A lease
//!      gives bytes up (`commit`, `advance`, `drop`), or to another lease (`split_off`, `join`), by value or
//!      through `&mut self`, so that no reference to them is left.
//!    - A shared reference covers bytes that are done. Bytes leave that state only in
//!      [`Owner::reset`] and [`Owner::into_vec`], and change in [`Owner::correct`] and `into_vec` alone.
//!      References of [`Owner::elements`] borrow the owner. All three need the only owner exclusively, so
//!      none of its references is alive. Each [`View`] is counted under the lock, and all three wait until
//!      the count is zero. [`Owner::into_vec_or_copy`] reads the whole after the extents became one of no
//!      bytes while nothing was out: from then on nobody writes, and views only read.
//! 3. *No data race.* A byte becomes done under the lock, after it was written by the thread that
//!    has the lease. A shared reference is made after the lock was taken and the byte found done. A
//!    byte becomes free again under the lock, too, before a lease takes it. Moving a lease to another
//!    thread synchronises by itself. No state is outside the lock, so a checker of memory orders would try
//!    the orders of critical sections alone, which the tests of the extents try with random steps.
//! 4. *Lifetime.* Every reference borrows a holder, or is a `Bytes` that owns one, and a holder
//!    has a count in the `Arc`. The `Vec` is made again when the last is dropped, or once by
//!    `Owner::into_vec`: then nothing is out, no view is left, the owner is gone, and the extents
//!    become one of no bytes, which gives nothing out. The copy of `into_vec_or_copy` leaves the `Vec` to the
//!    last holder.
//! 5. *Threads.* `T: Pod` can be made from bytes by safe code on any thread and has no interior
//!    mutability, so nothing ties a value or a reference to its thread; with 2 and 3 [`Region`]
//!    may be sent to and shared with other threads.

#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::ops::Range;
use std::ptr::{self, NonNull};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytemuck::Pod;
use bytes::Bytes;
use chunkcomm::host::Instant;
use chunkcomm::host::memory::{self, Piecewise};

use crate::error::DeltaRecvError;
use crate::proto::corrections::Corrections;
use crate::proto::extents::{Cursor, Extents, Taken};
use crate::proto::frame::CORRECTION_BYTES_MAX;
use crate::proto::sections::Sections;
use chunkcomm::layer::Bell;
use lost::Lost;

mod holders;
mod lost;
mod owner;

pub(crate) use chunkcomm::layer::Hearer;
pub use holders::Lease;
pub(crate) use holders::{Carrier, View};
pub use owner::Owner;

/// Corrections that are put into the memory before others run.
const CORRECTIONS_OF_SLICE: usize = memory::SLICE_BYTES / CORRECTION_BYTES_MAX;

/// State of a region, under its lock.
pub struct State {
    extents: Extents,
    /// Number of [`View`]s.
    views: usize,
    /// Number of the round, from 1.
    pub round: u32,
    /// The owner is gone: there is no further round.
    pub closing: bool,
    /// The vector was taken back.
    taken: bool,
    /// Later values of bytes that are done.
    pub corrections: Corrections,
    /// Corrections may follow: the last element does not leave before them.
    pub withheld: bool,
    /// Reason why nothing more lands.
    pub end: Option<DeltaRecvError>,
    lost: Lost,
    /// Number of tasks that send or combine from the memory, and of those that are done with this round.
    carriers: usize,
    rested: usize,
    /// Number of threads that sleep until something changes.
    sleepers: usize,
    /// Number of done bytes of which the tasks that wait want to hear; `usize::MAX` when none waits.
    ring_from: usize,
    /// The owner waits until nobody uses the memory.
    quiet_wanted: bool,
}

impl State {
    /// Returns the state of each byte.
    pub fn extents(&self) -> &Extents {
        &self.extents
    }

    /// Whether all bytes of these sections are done.
    pub(crate) fn has(&self, sections: &Sections) -> bool {
        sections.places().all(|place| self.extents.is_done(place))
    }

    /// Whether nobody writes, and nobody sends or will send from what is done.
    fn is_quiet(&self) -> bool {
        self.is_still() && self.rested == self.carriers
    }

    /// Returns the number of done bytes that do not leave yet: those of the last element.
    fn kept<T>(&self) -> usize {
        let kept = self.withheld && self.extents.is_whole();
        if kept { self.extents.bytes().min(size_of::<T>()) } else { 0 }
    }

    /// Whether nobody writes and nobody reads, the owner's references apart.
    fn is_still(&self) -> bool {
        self.views == 0 && self.extents.none_out()
    }

    /// Whether somebody waits for as many bytes as are done.
    fn is_awaited(&self) -> bool {
        self.sleepers > 0 || self.extents.done_bytes() >= self.ring_from
    }
}

struct Region<T: Pod> {
    base: NonNull<T>,
    len: usize,
    capacity: usize,
    state: Mutex<State>,
    /// Wakes sleeping threads.
    sleep: Condvar,
    /// Wakes waiting tasks.
    bell: Bell,
    owns: PhantomData<T>,
}

// SAFETY: points 2, 3 and 5 of the module's argument.
unsafe impl<T: Pod> Send for Region<T> {}
// SAFETY: the same.
unsafe impl<T: Pod> Sync for Region<T> {}

impl<T: Pod> Region<T> {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder of the lock panics")
    }

    /// Returns the address of the byte at `offset`, aligned for an element that begins there.
    fn first(&self, offset: usize) -> *mut u8 {
        self.base.as_ptr().cast::<u8>().wrapping_add(offset)
    }

    /// Puts the next corrections into the memory, whose state the caller has locked, and returns their bytes:
    /// those of a slice at most, so that nobody waits long for the lock.
    ///
    /// # Safety
    /// Nobody writes or reads the memory, and no reference of the owner exists.
    unsafe fn apply(&self, state: &mut State) -> usize {
        assert!(state.is_still());
        let (len, mut applied) = (self.len * size_of::<T>(), 0);
        for (offset, bytes) in state.corrections.apply(CORRECTIONS_OF_SLICE) {
            assert!(offset + bytes.len() <= len, "corrections are within the memory");
            // SAFETY: within the allocation (1), whose bytes no reference covers: no lease and no view
            // exists (2), and the caller says the same of the owner's. The lock orders this with
            // all that was before and will be (3).
            unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), self.first(*offset), bytes.len()) };
            applied += bytes.len();
        }
        applied
    }

    /// Tells all who wait that the state has changed.
    fn ring(&self, mut state: MutexGuard<'_, State>) {
        state.ring_from = usize::MAX;
        let sleepers = state.sleepers > 0;
        drop(state);
        if sleepers {
            self.sleep.notify_all();
        }
        self.bell.ring();
    }
}

impl<T: Pod> Drop for Region<T> {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        if !state.taken {
            // SAFETY: the parts are those of the vector that `share` took and nobody has taken back;
            // this is the last holder (4).
            let buffer =
                unsafe { Vec::from_raw_parts(self.base.as_ptr(), self.len, self.capacity) };
            // The last holder may be the driver of a link.
            memory::free(self.capacity * size_of::<T>(), Freed(Piecewise(buffer)));
        }
    }
}

/// A buffer that any thread may free.
struct Freed<T: Pod>(#[expect(dead_code, reason = "it is only dropped")] Piecewise<T>);

// SAFETY: point 5 of the module's argument.
unsafe impl<T: Pod> Send for Freed<T> {}

/// Makes the memory of `buffer` one that is written in parts, all of it free.
pub fn share<T: Pod>(buffer: Vec<T>) -> Owner<T> {
    const { assert!(size_of::<T>() > 0, "the elements of a delta have a size") };
    let mut buffer = std::mem::ManuallyDrop::new(buffer);
    // A `Vec` holds at most `isize::MAX` bytes, so this cannot overflow.
    let extents = Extents::new(buffer.len() * size_of::<T>());
    let state = State {
        extents,
        views: 0,
        round: 1,
        closing: false,
        taken: false,
        corrections: Corrections::default(),
        withheld: false,
        end: None,
        lost: Lost::default(),
        carriers: 0,
        rested: 0,
        sleepers: 0,
        ring_from: usize::MAX,
        quiet_wanted: false,
    };
    let region = Region {
        base: NonNull::new(buffer.as_mut_ptr()).expect("a vector's pointer is never null"),
        len: buffer.len(),
        capacity: buffer.capacity(),
        state: Mutex::new(state),
        sleep: Condvar::new(),
        bell: Bell::default(),
        owns: PhantomData,
    };
    Owner { share: Share { region: Arc::new(region) } }
}

/// A holder that takes leases and makes views.
pub struct Share<T: Pod> {
    region: Arc<Region<T>>,
}

impl<T: Pod> Clone for Share<T> {
    fn clone(&self) -> Self {
        Self { region: self.region.clone() }
    }
}

impl<T: Pod> Share<T> {
    /// Returns the number of elements, those behind the end of a round that was cut included.
    pub fn len(&self) -> usize {
        self.region.len
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Locks the state. Nothing that waits or calls back runs while it is held.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.region.state()
    }

    /// Returns a bell that rings at each change of the state from now on. For bytes that become done
    /// it rings only when somebody waits for as many.
    pub(crate) fn bell(&self) -> Hearer {
        self.region.bell.hearer()
    }

    /// Lets the bell ring once this many bytes may be sent; returns whether they may now.
    pub(crate) fn ring_from(&self, bytes: usize) -> bool {
        let mut state = self.state();
        state.ring_from = state.ring_from.min(bytes);
        state.extents.done_bytes() - state.kept::<T>() >= bytes
    }

    /// Changes the state and tells all who wait.
    pub fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state();
        change(&mut state);
        self.region.ring(state);
    }

    /// Says that the bytes land: an empty round waits for its end.
    pub(crate) fn land(&self) {
        self.change(|state| state.extents.land());
    }

    /// Ends an empty round that lands.
    pub(crate) fn end_empty(&self) {
        self.change(|state| assert!(state.extents.end_empty(), "the round is open"));
    }

    /// Lets the round end behind what is done, and no round follow; false, and nothing, when bytes
    /// before that are missing, or some are out.
    pub fn cut(&self) -> bool {
        let mut state = self.state();
        let cut = !state.withheld && state.extents.cut();
        self.region.ring(state);
        cut
    }

    /// Waits until `look` returns something.
    pub async fn until<R>(&self, mut look: impl FnMut(&mut State) -> Option<R>) -> R {
        let mut bell = self.bell();
        loop {
            {
                let mut state = self.state();
                if let Some(found) = look(&mut state) {
                    return found;
                }
                state.ring_from = 0;
            }
            bell.changed().await;
        }
    }

    /// Waits as [`until`](Self::until) does, the thread asleep, for `within` at most.
    pub fn until_blocking<R>(
        &self,
        within: Option<Duration>,
        mut look: impl FnMut(&mut State) -> Option<R>,
    ) -> Option<R> {
        let since = Instant::now();
        let mut state = self.state();
        loop {
            if let Some(found) = look(&mut state) {
                return Some(found);
            }
            let left = within.map(|within| within.saturating_sub(since.elapsed()));
            if left.is_some_and(|left| left.is_zero()) {
                return None;
            }
            state.sleepers += 1;
            state = match left {
                None => self.region.sleep.wait(state).expect("no holder of the lock panics"),
                Some(left) => {
                    let woken = self.region.sleep.wait_timeout(state, left);
                    woken.expect("no holder of the lock panics").0
                }
            };
            state.sleepers -= 1;
        }
    }

    /// Takes the bytes of `range` to write them.
    ///
    /// # Errors
    /// When a byte is out or done, or outside.
    pub fn lease(&self, range: Range<usize>) -> Result<Lease<T>, Taken> {
        self.state().extents.take(&range)?;
        Ok(Lease { share: self.clone(), range })
    }

    /// Takes the first free bytes at or behind `start`, at most `bytes`; `None` when none is free.
    pub fn lease_free(&self, start: usize, bytes: usize) -> Option<Lease<T>> {
        let mut state = self.state();
        let range = state.extents.free_from(start, bytes)?;
        state.extents.take(&range).expect("it is free");
        Some(Lease { share: self.clone(), range })
    }

    /// Returns the next bytes behind `cursor` that became done in round `round`, in whole elements. The
    /// last element comes behind the corrections.
    pub fn next_done(&self, cursor: &mut Cursor, round: u32) -> Option<Range<usize>> {
        let state = self.state();
        let kept = state.kept::<T>();
        (state.round == round).then(|| cursor.next_before(&state.extents, size_of::<T>(), kept))?
    }

    /// Returns the correction of round `round` with this number.
    pub(crate) fn correction(&self, index: usize, round: u32) -> Option<(usize, Bytes)> {
        let state = self.state();
        (state.round == round).then(|| state.corrections.get(index))?
    }

    /// Returns the bytes of `range` as a handle that shares the memory; `None` when one is not done.
    pub(crate) fn view(&self, range: Range<usize>) -> Option<Bytes> {
        self.read(range).map(Bytes::from_owner)
    }

    /// Returns a holder that reads the bytes of `range`, without an allocation; `None` when one is not done.
    pub fn read(&self, range: Range<usize>) -> Option<View<T>> {
        let mut state = self.state();
        if range.start > range.end || !state.extents.is_done(&range) {
            return None;
        }
        state.views += 1;
        drop(state);
        Some(View { share: self.clone(), range })
    }

    /// Notes a task that sends or combines from the memory.
    pub fn carrier(&self) -> Carrier<T> {
        self.state().carriers += 1;
        Carrier { share: self.clone(), rested_in: 0 }
    }
}

#[cfg(test)]
mod tests;
