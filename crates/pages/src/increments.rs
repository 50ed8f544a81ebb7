//! States of the increments of a region that is written, as the handler of faults and the tracker share
//! them, for the engine of signals.
//!
//! ```text
//!            fault           tracker            read
//!   Clean ---------> Open ------------> Sealed ------> Sent
//!                     ^                    |            |
//!                     '------ fault -------'--- fault --'
//! ```
//!
//! Between two states an increment is held by one of the two sides (`OPENING`, `SEALING`), so that a
//! change of state and its `mprotect` are one step for the other. A fault that meets an increment held
//! is retried by the processor.
//!
//! Without system calls and locks: `orders/` tries the orders in which the two sides may meet.

use super::atomics::{AtomicU8, AtomicU32, Ordering};

const CLEAN: u8 = 0;
const OPENING: u8 = 1;
const OPEN: u8 = 2;
const SEALING: u8 = 3;
const SEALED: u8 = 4;
const SENT: u8 = 5;

/// End of the list of touched increments.
const NONE: u32 = u32::MAX;

/// Outcome of a fault; the access is retried after each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The other side holds the increment.
    Held,
    /// Another fault has opened the increment.
    Opened,
    /// The increment is open and in the list of those that were touched.
    Touched,
}

/// The states of the increments, and the list of those that were touched.
pub(crate) struct Increments {
    states: Box<[AtomicU8]>,
    /// The touched increments that the tracker has not taken: a list through `next` from `newest`.
    newest: AtomicU32,
    next: Box<[AtomicU32]>,
}

impl Increments {
    /// Begins with `count` increments, all of them open.
    pub(crate) fn new(count: usize) -> Self {
        let states = (0..count).map(|_| AtomicU8::new(OPEN)).collect();
        let next = (0..count).map(|_| AtomicU32::new(NONE)).collect();
        Self { states, newest: AtomicU32::new(NONE), next }
    }

    /// Makes all increments clean. Nobody may write meanwhile.
    pub(crate) fn reset(&self) {
        self.newest.store(NONE, Ordering::SeqCst);
        for state in &self.states {
            state.store(CLEAN, Ordering::SeqCst);
        }
    }

    /// Puts the increments that were touched since the last call into `touched`, in the order of their
    /// faults.
    pub(crate) fn take_touched(&self, touched: &mut Vec<usize>) {
        let first = touched.len();
        let mut index = self.newest.swap(NONE, Ordering::SeqCst);
        while index != NONE {
            touched.push(index as usize);
            index = self.next[index as usize].load(Ordering::SeqCst);
        }
        touched[first..].reverse();
    }

    /// Seals increment `index`, which `protect` protects; returns false when a fault holds it.
    pub(crate) fn seal<E>(
        &self,
        index: usize,
        protect: impl FnOnce() -> Result<(), E>,
    ) -> Result<bool, E> {
        if !self.change(index, OPEN, SEALING) {
            return Ok(false);
        }
        let protected = protect();
        let state = if protected.is_ok() { SEALED } else { OPEN };
        self.states[index].store(state, Ordering::SeqCst);
        protected.map(|()| true)
    }

    /// Ends the reading of a sealed increment; returns false when it was touched meanwhile.
    pub(crate) fn sent(&self, index: usize) -> bool {
        self.change(index, SEALED, SENT)
    }

    /// Handles a fault in increment `index`, which `open` makes writable.
    pub(crate) fn fault(&self, index: usize, open: impl FnOnce()) -> Fault {
        let before = self.states[index].load(Ordering::SeqCst);
        if matches!(before, OPENING | SEALING) || !self.change(index, before, OPENING) {
            return Fault::Held;
        }
        open();
        self.states[index].store(OPEN, Ordering::SeqCst);
        if before == OPEN {
            return Fault::Opened;
        }
        self.push(index as u32);
        Fault::Touched
    }

    fn change(&self, index: usize, from: u8, to: u8) -> bool {
        let state = &self.states[index];
        state.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// Adds an increment to the list. It is in no list: it left the last one before it was sealed.
    fn push(&self, index: u32) {
        let mut newest = self.newest.load(Ordering::SeqCst);
        loop {
            self.next[index as usize].store(newest, Ordering::SeqCst);
            let (order, failed) = (Ordering::SeqCst, Ordering::SeqCst);
            match self.newest.compare_exchange_weak(newest, index, order, failed) {
                Ok(_) => return,
                Err(other) => newest = other,
            }
        }
    }
}
