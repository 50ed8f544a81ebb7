//! States of a region's parts for the engine of signals, as the handler and the tracker share them.
//!
//! Writes, a state an increment:
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
//! The reading side is in `pages`.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use super::pages::Pages;
use super::sys::bell::Bell;
use super::sys::signal::{abort, yield_now};
use super::sys::{Access, Region};

const CLEAN: u8 = 0;
const OPENING: u8 = 1;
const OPEN: u8 = 2;
const SEALING: u8 = 3;
const SEALED: u8 = 4;
const SENT: u8 = 5;

/// End of the list of touched increments.
const NONE: u32 = u32::MAX;

/// Handles the faults of one region.
pub(crate) enum Guard {
    Writes(Writes),
    Reads(Arc<Pages>),
}

impl Guard {
    /// Handles the fault at `address` of the region; returns whether the access is to be retried. Called in
    /// a signal handler.
    pub(crate) fn on_fault(&self, address: usize) -> bool {
        match self {
            Self::Writes(writes) => writes.on_fault(address),
            Self::Reads(pages) => pages.on_fault(address),
        }
    }
}

/// The states of the increments of a region that is written.
pub(crate) struct Writes {
    region: Arc<Region>,
    increment_bytes: usize,
    states: Box<[AtomicU8]>,
    /// The touched increments that the tracker has not taken: a list through `next` from `newest`.
    newest: AtomicU32,
    next: Box<[AtomicU32]>,
    bell: Arc<Bell>,
}

impl Writes {
    pub(crate) fn new(region: Arc<Region>, increment_bytes: usize, bell: Arc<Bell>) -> Self {
        let count = region.map_bytes().div_ceil(increment_bytes);
        let states = (0..count).map(|_| AtomicU8::new(OPEN)).collect();
        let next = (0..count).map(|_| AtomicU32::new(NONE)).collect();
        Self { region, increment_bytes, states, newest: AtomicU32::new(NONE), next, bell }
    }

    /// Protects all increments. Nobody may write meanwhile.
    pub(crate) fn arm(&self) -> io::Result<()> {
        self.newest.store(NONE, Ordering::SeqCst);
        for state in &self.states {
            state.store(CLEAN, Ordering::SeqCst);
        }
        self.region.protect(0..self.region.map_bytes(), Access::Read)
    }

    /// Opens all pages; faults that come are retried.
    pub(crate) fn disarm(&self) -> io::Result<()> {
        self.region.protect(0..self.region.map_bytes(), Access::Write)
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

    /// Protects increment `index` again; returns false when a fault holds it.
    pub(crate) fn seal(&self, index: usize) -> io::Result<bool> {
        if !self.change(index, OPEN, SEALING) {
            return Ok(false);
        }
        let protected = self.region.protect(self.bytes(index), Access::Read);
        let state = if protected.is_ok() { SEALED } else { OPEN };
        self.states[index].store(state, Ordering::SeqCst);
        protected.map(|()| true)
    }

    /// Ends the reading of a sealed increment; returns false when it was touched meanwhile.
    pub(crate) fn sent(&self, index: usize) -> bool {
        self.change(index, SEALED, SENT)
    }

    fn bytes(&self, index: usize) -> Range<usize> {
        let start = index * self.increment_bytes;
        start..(start + self.increment_bytes).min(self.region.map_bytes())
    }

    fn change(&self, index: usize, from: u8, to: u8) -> bool {
        let state = &self.states[index];
        state.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    fn on_fault(&self, address: usize) -> bool {
        let index = (address - self.region.addresses().start) / self.increment_bytes;
        let before = self.states[index].load(Ordering::SeqCst);
        if matches!(before, OPENING | SEALING) || !self.change(index, before, OPENING) {
            yield_now();
            return true;
        }
        if self.region.protect(self.bytes(index), Access::Write).is_err() {
            abort(&[
                "a page of a tracked buffer cannot be opened: too many mappings (vm.max_map_count)\n",
            ]);
        }
        self.states[index].store(OPEN, Ordering::SeqCst);
        if before != OPEN {
            self.push(index as u32);
            self.bell.ring();
        }
        true
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
