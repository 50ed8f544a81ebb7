//! The engine of signals: the faults of a region, and its protection.
//!
//! The states of its increments are in `increments`, those of its pages when it is read in `pages`.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use super::increments::{Fault, Increments};
use super::pages::Pages;
use super::sys::bell::Bell;
use super::sys::{Access, Region};
use super::sys::{abort, yield_now};

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

/// The increments of a region that is written.
pub(crate) struct Writes {
    region: Arc<Region>,
    increment_bytes: usize,
    increments: Increments,
    bell: Arc<Bell>,
}

impl Writes {
    pub(crate) fn new(region: Arc<Region>, increment_bytes: usize, bell: Arc<Bell>) -> Self {
        let increments = Increments::new(region.map_bytes().div_ceil(increment_bytes));
        Self { region, increment_bytes, increments, bell }
    }

    /// Protects all increments. Nobody may write meanwhile.
    pub(crate) fn arm(&self) -> io::Result<()> {
        self.increments.reset();
        self.region.protect(0..self.region.map_bytes(), Access::Read)
    }

    /// Opens all pages; faults that come are retried.
    pub(crate) fn disarm(&self) -> io::Result<()> {
        self.region.protect(0..self.region.map_bytes(), Access::Write)
    }

    /// Puts the increments that were touched since the last call into `touched`, in the order of their
    /// faults.
    pub(crate) fn take_touched(&self, touched: &mut Vec<usize>) {
        self.increments.take_touched(touched);
    }

    /// Protects increment `index` again; returns false when a fault holds it.
    pub(crate) fn seal(&self, index: usize) -> io::Result<bool> {
        self.increments.seal(index, || self.region.protect(self.bytes(index), Access::Read))
    }

    /// Ends the reading of a sealed increment; returns false when it was touched meanwhile.
    pub(crate) fn sent(&self, index: usize) -> bool {
        self.increments.sent(index)
    }

    fn bytes(&self, index: usize) -> Range<usize> {
        let start = index * self.increment_bytes;
        start..(start + self.increment_bytes).min(self.region.map_bytes())
    }

    fn on_fault(&self, address: usize) -> bool {
        let index = (address - self.region.addresses().start) / self.increment_bytes;
        let fault = self.increments.fault(index, || {
            if self.region.protect(self.bytes(index), Access::Write).is_err() {
                abort(&[
                    "a page of a tracked buffer cannot be opened: too many mappings (vm.max_map_count)\n",
                ]);
            }
        });
        match fault {
            Fault::Held => yield_now(),
            Fault::Opened => {}
            Fault::Touched => self.bell.ring(),
        }
        true
    }
}
