//! Memory that is written in disjoint parts while others already read what is done.
//!
//! Fenced, as the system calls of tracked buffers are. A sender computes into the memory while the link sends from
//! it; a receiver reads from it while the link lands bytes in it. Neither copies.
//!
//! ```text
//! 0                                                        len
//! |=== done ===|-- out --|.. free ..|-- out --|=== done ===|
//!   Owner: &     Lease: &mut          Lease: &mut  View: &
//! ```
//!
//! # Soundness
//!
//! 1. *Validity.* The memory is that of a `Vec<T>`: allocated for `T`, aligned for `T`, all `len`
//!    elements initialised. `T: Pod` has no padding, no invalid bit pattern, no interior
//!    mutability and nothing to drop, so a `&[T]`, a `&mut [T]`, a `&[u8]` and a `&mut [u8]` over any
//!    part of it are valid whatever bytes were written, elements that were written half included.
//! 2. *No aliasing.* [`Region`] keeps a raw pointer and never makes a reference to the whole. The
//!    [`Ledger`] under its lock says of each byte that it is free, out or done, one of the three. Bytes
//!    behind the end of a round that was cut are none of them: nobody gets them before `into_vec`.
//!    - A mutable reference comes from a [`Lease`] only, borrows it mutably, and covers bytes that the
//!      ledger has out for this lease alone: `Ledger::take` refuses bytes that are out or done. A lease
//!      gives bytes up (`commit`, `advance`, `drop`) by value or through `&mut self`, so that no
//!      reference to them is left.
//!    - A shared reference covers bytes that are done. Bytes leave that state only in
//!      [`Owner::reset`] and [`Owner::into_vec`], and change in [`Owner::correct`] and `into_vec` alone.
//!      References of [`Owner::elements`] borrow the owner, of which there is one and which all three
//!      take by `&mut` or by value. Each [`View`] is counted under the lock, and all three wait until
//!      the count is zero.
//! 3. *No data race.* A byte becomes done under the lock, after it was written by the thread that
//!    has the lease. A shared reference is made after the lock was taken and the byte found done. A
//!    byte becomes free again under the lock, too, before a lease takes it. Moving a lease to another
//!    thread synchronises by itself. No state is outside the lock, so a checker of memory orders would try
//!    the orders of critical sections alone, which the tests of the ledger try with random steps.
//! 4. *Lifetime.* Every reference borrows a holder, or is a `Bytes` that owns one, and a holder
//!    has a count in the `Arc`. The `Vec` is made again when the last is dropped, or once by
//!    `Owner::into_vec`: then nothing is out, no view is left, the owner is gone, and the ledger has
//!    become one of no bytes, which gives nothing out.
//! 5. *Threads.* `T: Pod` can be made from bytes by safe code on any thread and has no interior
//!    mutability, so nothing ties a value or a reference to its thread; with 2 and 3 [`Region`]
//!    may be sent to and shared with other threads.

#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::ops::Range;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytemuck::Pod;
use bytes::Bytes;
use chunkcomm::host::Instant;
use tokio::sync::watch;

use crate::error::DeltaRecvError;
use crate::proto::corrections::Corrections;
use crate::proto::ledger::{Cursor, Ledger, Taken};

/// State of a region, under its lock.
pub(crate) struct State {
    ledger: Ledger,
    /// Number of [`View`]s.
    views: usize,
    /// Number of the round, from 1.
    pub(crate) round: u32,
    /// The owner is gone: there is no further round.
    pub(crate) closing: bool,
    /// The vector was taken back.
    taken: bool,
    /// Later values of bytes that are done.
    pub(crate) corrections: Corrections,
    /// Corrections may follow: the last element does not leave before them.
    pub(crate) withheld: bool,
    /// Reason why nothing more lands.
    pub(crate) end: Option<DeltaRecvError>,
    /// Number of tasks that send from the memory, and of those that are done with this round.
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
    pub(crate) fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Whether nobody writes, and nobody sends or will send from what is done.
    fn is_quiet(&self) -> bool {
        self.is_still() && self.rested == self.carriers
    }

    /// Returns the number of done bytes that do not leave yet: those of the last element.
    fn kept<T>(&self) -> usize {
        let kept = self.withheld && self.ledger.is_whole();
        if kept { self.ledger.len().min(size_of::<T>()) } else { 0 }
    }

    /// Whether nobody writes and nobody reads, the owner's references apart.
    fn is_still(&self) -> bool {
        self.views == 0 && self.ledger.none_out()
    }

    /// Whether somebody waits for as many bytes as are done.
    fn is_awaited(&self) -> bool {
        self.sleepers > 0 || self.ledger.done_bytes() >= self.ring_from
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
    bell: watch::Sender<()>,
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

    /// Puts the corrections into the memory, whose state the caller has locked.
    ///
    /// # Safety
    /// Nobody writes or reads the memory, and no reference of the owner exists.
    unsafe fn apply(&self, state: &mut State) {
        assert!(state.is_still());
        let len = self.len * size_of::<T>();
        for (offset, bytes) in state.corrections.apply() {
            assert!(offset + bytes.len() <= len, "corrections are within the memory");
            // SAFETY: within the allocation (1), whose bytes no reference covers: no lease and no view
            // exists (2), and the caller says the same of the owner's. The lock orders this with
            // all that was before and will be (3).
            unsafe {
                let first = self.base.as_ptr().cast::<u8>().add(*offset);
                ptr::copy_nonoverlapping(bytes.as_ptr(), first, bytes.len());
            }
        }
    }

    /// Tells all who wait that the state has changed.
    fn ring(&self, mut state: MutexGuard<'_, State>) {
        state.ring_from = usize::MAX;
        let sleepers = state.sleepers > 0;
        drop(state);
        if sleepers {
            self.sleep.notify_all();
        }
        self.bell.send_replace(());
    }
}

impl<T: Pod> Drop for Region<T> {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        if !state.taken {
            // SAFETY: the parts are those of the vector that `share` took and nobody has taken back;
            // this is the last holder (4).
            drop(unsafe { Vec::from_raw_parts(self.base.as_ptr(), self.len, self.capacity) });
        }
    }
}

/// Makes the memory of `buffer` one that is written in parts, all of it free.
pub(crate) fn share<T: Pod>(buffer: Vec<T>) -> Owner<T> {
    const { assert!(size_of::<T>() > 0, "the elements of a delta have a size") };
    let mut buffer = std::mem::ManuallyDrop::new(buffer);
    // A `Vec` holds at most `isize::MAX` bytes, so this cannot overflow.
    let ledger = Ledger::new(buffer.len() * size_of::<T>());
    let state = State {
        ledger,
        views: 0,
        round: 1,
        closing: false,
        taken: false,
        corrections: Corrections::default(),
        withheld: false,
        end: None,
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
        bell: watch::Sender::new(()),
        owns: PhantomData,
    };
    Owner { share: Share { region: Arc::new(region) } }
}

/// The only holder that reads elements, begins rounds, and takes the buffer back.
pub(crate) struct Owner<T: Pod> {
    share: Share<T>,
}

impl<T: Pod> Owner<T> {
    /// Returns a handle that sends from the memory or lands in it.
    pub(crate) fn share(&self) -> &Share<T> {
        &self.share
    }

    /// Returns the number of elements.
    pub(crate) fn len(&self) -> usize {
        self.share.len()
    }

    /// Returns the elements of `range`, if all of them are done.
    pub(crate) fn elements(&self, range: Range<usize>) -> Option<&[T]> {
        if range.start > range.end || range.end > self.len() {
            return None;
        }
        let bytes = range.start * size_of::<T>()..range.end * size_of::<T>();
        if !self.share.state().ledger.is_done(&bytes) {
            return None;
        }
        let base = self.share.region.base.as_ptr();
        // SAFETY: within the allocation, aligned and initialised (1). The bytes are done, and stay so
        // while the owner is borrowed (2); they were found so under the lock (3).
        Some(unsafe { slice::from_raw_parts(base.add(range.start), range.len()) })
    }

    /// Returns the whole elements from the start that are done without a gap.
    pub(crate) fn prefix(&self) -> &[T] {
        let whole = self.share.state().ledger.prefix() / size_of::<T>();
        self.elements(0..whole).expect("they are done")
    }

    /// Waits until nobody reads the memory, and puts the corrections there, if there are any.
    pub(crate) async fn correct(&mut self) {
        self.share
            .until(|state| {
                if !state.corrections.is_pending() {
                    return Some(());
                }
                state.quiet_wanted = true;
                // SAFETY: the owner is borrowed mutably.
                state.is_still().then(|| unsafe { self.share.region.apply(state) })
            })
            .await;
    }

    /// Waits until nobody sends from the memory, and begins the next round, if all is done: with `ends`
    /// the last one, without bytes.
    pub(crate) async fn reset(&mut self, ends: bool) {
        self.share
            .until(|state| {
                state.quiet_wanted = true;
                let ready = state.is_quiet() && state.ledger.is_whole() && !state.ledger.is_cut();
                ready.then(|| {
                    // No view is left, nothing is out, and the owner is borrowed mutably (2).
                    state.ledger.reset();
                    if ends {
                        assert!(state.ledger.cut(), "nothing is out, and nothing done");
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
    pub(crate) async fn into_vec(mut self) -> Vec<T> {
        self.close();
        self.share
            .until(|state| {
                state.quiet_wanted = true;
                let alone = state.is_quiet() && state.carriers == 0;
                alone.then(|| {
                    // SAFETY: nobody writes or reads, and the owner is ours.
                    unsafe { self.share.region.apply(state) };
                    // No view is left and nothing is out; from now on nothing is given out (4).
                    state.ledger = Ledger::new(0);
                    state.taken = true;
                })
            })
            .await;
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

/// A holder that takes leases and makes views.
pub(crate) struct Share<T: Pod> {
    region: Arc<Region<T>>,
}

impl<T: Pod> Clone for Share<T> {
    fn clone(&self) -> Self {
        Self { region: self.region.clone() }
    }
}

impl<T: Pod> Share<T> {
    /// Returns the number of elements, those behind the end of a round that was cut included.
    pub(crate) fn len(&self) -> usize {
        self.region.len
    }

    /// Locks the state. Nothing that waits or calls back runs while it is held.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.region.state()
    }

    /// Returns a bell that rings at each change of the state from now on. For bytes that become done
    /// it rings only when somebody waits for as many.
    pub(crate) fn bell(&self) -> watch::Receiver<()> {
        self.region.bell.subscribe()
    }

    /// Lets the bell ring once this many bytes may be sent; returns whether they may now.
    pub(crate) fn ring_from(&self, bytes: usize) -> bool {
        let mut state = self.state();
        state.ring_from = state.ring_from.min(bytes);
        state.ledger.done_bytes() - state.kept::<T>() >= bytes
    }

    /// Changes the state and tells all who wait.
    pub(crate) fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state();
        change(&mut state);
        self.region.ring(state);
    }

    /// Says that the bytes land: an empty round waits for its end.
    pub(crate) fn land(&self) {
        self.change(|state| state.ledger.land());
    }

    /// Ends an empty round that lands.
    pub(crate) fn end_empty(&self) {
        self.change(|state| assert!(state.ledger.end_empty(), "the round is open"));
    }

    /// Lets the round end behind what is done, and no round follow; false, and nothing, when bytes
    /// before that are missing, or some are out.
    pub(crate) fn cut(&self) -> bool {
        let mut state = self.state();
        let cut = !state.withheld && state.ledger.cut();
        self.region.ring(state);
        cut
    }

    /// Waits until `look` returns something.
    pub(crate) async fn until<R>(&self, mut look: impl FnMut(&mut State) -> Option<R>) -> R {
        let mut bell = self.bell();
        loop {
            {
                let mut state = self.state();
                if let Some(found) = look(&mut state) {
                    return found;
                }
                state.ring_from = 0;
            }
            // The bell is in the region and lives as long as this holder.
            let _ = bell.changed().await;
        }
    }

    /// Waits as [`until`](Self::until) does, the thread asleep, for `within` at most.
    pub(crate) fn until_blocking<R>(
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
    pub(crate) fn lease(&self, range: Range<usize>) -> Result<Lease<T>, Taken> {
        self.state().ledger.take(&range)?;
        Ok(Lease { share: self.clone(), range })
    }

    /// Takes the first free bytes at or behind `start`, at most `bytes`; `None` when none is free.
    pub(crate) fn lease_free(&self, start: usize, bytes: usize) -> Option<Lease<T>> {
        let mut state = self.state();
        let range = state.ledger.free_from(start, bytes)?;
        state.ledger.take(&range).expect("it is free");
        Some(Lease { share: self.clone(), range })
    }

    /// Returns the next bytes behind `cursor` that became done in round `round`, in whole elements. The
    /// last element comes behind the corrections.
    pub(crate) fn next_done(&self, cursor: &mut Cursor, round: u32) -> Option<Range<usize>> {
        let state = self.state();
        let kept = state.kept::<T>();
        (state.round == round).then(|| cursor.next_before(&state.ledger, size_of::<T>(), kept))?
    }

    /// Returns the correction of round `round` with this number.
    pub(crate) fn correction(&self, index: usize, round: u32) -> Option<(usize, Bytes)> {
        let state = self.state();
        (state.round == round).then(|| state.corrections.get(index))?
    }

    /// Returns the bytes of `range` as a handle that shares the memory; `None` when one is not done.
    pub(crate) fn view(&self, range: Range<usize>) -> Option<Bytes> {
        let mut state = self.state();
        if range.start > range.end || !state.ledger.is_done(&range) {
            return None;
        }
        state.views += 1;
        drop(state);
        Some(Bytes::from_owner(View { share: self.clone(), range }))
    }

    /// Notes a task that sends from the memory.
    pub(crate) fn carrier(&self) -> Carrier<T> {
        self.state().carriers += 1;
        Carrier { share: self.clone(), rested_in: 0 }
    }
}

/// The mark of a task that sends from the memory: no round begins before it is done with the last.
pub(crate) struct Carrier<T: Pod> {
    share: Share<T>,
    /// The last round that it is done with; 0 for none.
    rested_in: u32,
}

impl<T: Pod> Carrier<T> {
    /// Returns the memory.
    pub(crate) fn share(&self) -> &Share<T> {
        &self.share
    }

    /// Says that this task is done with the round.
    pub(crate) fn rest(&mut self) {
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

/// Bytes that this holder alone writes. Dropped, those not committed are free again.
pub(crate) struct Lease<T: Pod> {
    share: Share<T>,
    range: Range<usize>,
}

impl<T: Pod> Lease<T> {
    /// Returns the range of the bytes.
    pub(crate) fn range(&self) -> Range<usize> {
        self.range.clone()
    }

    /// Returns the elements, the range being one of whole elements.
    ///
    /// # Panics
    /// When it is not.
    pub(crate) fn elements(&self) -> &[T] {
        // An empty slice of bytes need not be aligned.
        if self.range.is_empty() { &[] } else { bytemuck::cast_slice(self.bytes()) }
    }

    /// Returns the elements to write them, the range being one of whole elements.
    ///
    /// # Panics
    /// When it is not.
    pub(crate) fn elements_mut(&mut self) -> &mut [T] {
        if self.range.is_empty() { &mut [] } else { bytemuck::cast_slice_mut(self.bytes_mut()) }
    }

    /// Adds up to `bytes` bytes behind this lease, those that are free; returns their number.
    pub(crate) fn extend(&mut self, bytes: usize) -> usize {
        let end = self.range.end;
        let mut state = self.share.state();
        let fresh = state.ledger.free_from(end, bytes).filter(|fresh| fresh.start == end);
        let Some(fresh) = fresh else { return 0 };
        state.ledger.take(&fresh).expect("it is free");
        self.range.end = fresh.end;
        fresh.len()
    }

    /// Returns the bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        if self.range.is_empty() {
            return &[];
        }
        // SAFETY: within the allocation and initialised (1); out for this lease (2).
        unsafe { slice::from_raw_parts(self.first(), self.range.len()) }
    }

    /// Returns the bytes to write them.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        if self.range.is_empty() {
            return &mut [];
        }
        // SAFETY: within the allocation and initialised (1); out for this lease, which is borrowed
        // mutably (2).
        unsafe { slice::from_raw_parts_mut(self.first(), self.range.len()) }
    }

    fn first(&self) -> *mut u8 {
        // SAFETY: the range is not empty and within the allocation, since the ledger has it out.
        unsafe { self.share.region.base.as_ptr().cast::<u8>().add(self.range.start) }
    }

    /// Makes the bytes done.
    pub(crate) fn commit(mut self) {
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
        state.ledger.commit(done);
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
}

impl<T: Pod> Drop for Lease<T> {
    fn drop(&mut self) {
        if !self.range.is_empty() {
            let range = self.range.clone();
            self.share.change(|state| state.ledger.release(&range));
        }
    }
}

/// Owner behind a `Bytes`: a share in the memory and a range of it that is done.
struct View<T: Pod> {
    share: Share<T>,
    range: Range<usize>,
}

impl<T: Pod> AsRef<[u8]> for View<T> {
    fn as_ref(&self) -> &[u8] {
        if self.range.is_empty() {
            return &[];
        }
        // SAFETY: the range was found done under the lock, which counted this view (2, 3); within the
        // allocation and initialised (1).
        unsafe {
            let first = self.share.region.base.as_ptr().cast::<u8>().add(self.range.start);
            slice::from_raw_parts(first, self.range.len())
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

#[cfg(test)]
mod tests;
