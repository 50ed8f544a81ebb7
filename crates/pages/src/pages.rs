//! States of the pages of a region that is read, for all engines.
//!
//! ```text
//!          filler            filler
//!   Away ---------> Filling ---------> There
//!     |
//!     '--- deadline or end ---> Given
//! ```
//!
//! A page leaves `Away` once. So the bytes of a page that a reader was given without data are not
//! written afterwards, and no reader sees a byte change.
//!
//! `orders/` tries the orders in which filler, readers and their guard may meet.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::atomics::{AtomicBool, AtomicU8, AtomicU32, Ordering, yield_now};
use super::settings::Missing;
use super::sys::abort;
use super::sys::bell::Bell;
use super::sys::{Access, Region, page_bytes};

const AWAY: u8 = 0;
const FILLING: u8 = 1;
const THERE: u8 = 2;
const GIVEN: u8 = 3;

/// Reason why a page does not come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Never {
    Late,
    Ended,
}

/// The states of the pages of one region.
pub(crate) struct Pages {
    region: Arc<Region>,
    states: Box<[AtomicU8]>,
    /// Set when no further page comes.
    over: AtomicBool,
    /// Set when a page was given without its data.
    gave: AtomicBool,
    /// Set when a page was given because its deadline had passed.
    late: AtomicBool,
    /// Set when a wait ended at its deadline.
    waited_in_vain: AtomicBool,
    /// Rings for each arrival.
    bell: Bell,
    stalls: AtomicU32,
    deadline: Duration,
    missing: Missing,
}

impl Pages {
    pub(crate) fn new(
        region: Arc<Region>,
        deadline: Duration,
        missing: Missing,
    ) -> io::Result<Self> {
        let count = region.map_bytes() / page_bytes();
        Ok(Self {
            region,
            states: (0..count).map(|_| AtomicU8::new(AWAY)).collect(),
            over: AtomicBool::new(false),
            gave: AtomicBool::new(false),
            late: AtomicBool::new(false),
            waited_in_vain: AtomicBool::new(false),
            bell: Bell::new()?,
            stalls: AtomicU32::new(0),
            deadline,
            missing,
        })
    }

    /// Begins another run. Nobody may read meanwhile.
    pub(crate) fn reset(&self) {
        for flag in [&self.over, &self.gave, &self.late, &self.waited_in_vain] {
            flag.store(false, Ordering::SeqCst);
        }
        self.stalls.store(0, Ordering::SeqCst);
        for state in &self.states {
            state.store(AWAY, Ordering::SeqCst);
        }
        self.bell.reset();
    }

    /// Claims the pages from `pages.start` on for filling: all of them, or fewer, up to one that was given.
    pub(crate) fn claim(&self, pages: Range<usize>) -> Range<usize> {
        let taken = pages.clone().take_while(|page| self.change(*page, AWAY, FILLING)).count();
        pages.start..pages.start + taken
    }

    /// Reports that claimed pages are readable.
    pub(crate) fn opened(&self, pages: Range<usize>) {
        for state in &self.states[pages] {
            state.store(THERE, Ordering::SeqCst);
        }
        self.bell.ring();
    }

    /// Lets all that waits, and will, meet the end: no further page comes.
    pub(crate) fn end(&self) {
        self.over.store(true, Ordering::SeqCst);
        self.bell.ring();
    }

    pub(crate) fn bell(&self) -> &Bell {
        &self.bell
    }

    pub(crate) fn deadline(&self) -> Duration {
        self.deadline
    }

    /// Counts a fault that has to wait.
    pub(crate) fn stall(&self) {
        self.stalls.fetch_add(1, Ordering::SeqCst);
    }

    /// Returns the number of faults that had to wait.
    pub(crate) fn stalls(&self) -> u32 {
        self.stalls.load(Ordering::SeqCst)
    }

    /// Whether the page's data is there.
    pub(crate) fn is_there(&self, page: usize) -> bool {
        self.states[page].load(Ordering::SeqCst) == THERE
    }

    /// Whether the page was given without its data.
    pub(crate) fn is_given(&self, page: usize) -> bool {
        self.states[page].load(Ordering::SeqCst) == GIVEN
    }

    /// Takes back the claim of pages that could not be filled.
    pub(crate) fn unclaim(&self, pages: Range<usize>) {
        for page in pages {
            self.change(page, FILLING, AWAY);
        }
    }

    /// Whether no further page comes.
    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    /// Returns the reason of a page that was given without its data, if there is one.
    pub(crate) fn gave(&self) -> Option<Never> {
        // The reason is known before the page is given.
        let gave = self.gave.load(Ordering::SeqCst);
        let late = self.late.load(Ordering::SeqCst);
        gave.then_some(if late { Never::Late } else { Never::Ended })
    }

    /// Notes that a wait ended at its deadline.
    pub(crate) fn wait_in_vain(&self) {
        self.waited_in_vain.store(true, Ordering::SeqCst);
    }

    /// Whether a wait ended at its deadline.
    pub(crate) fn waited_in_vain(&self) -> bool {
        self.waited_in_vain.load(Ordering::SeqCst)
    }

    /// Gives up a page for which a reader waits in a fault: ends the process, or returns whether the page
    /// is to be opened without its data. False means that its data came at the last moment.
    pub(crate) fn give_up(&self, page: usize, never: Never) -> bool {
        if self.missing == Missing::Abort && !self.is_there(page) {
            let why = match never {
                Never::Late => "its deadline has passed",
                Never::Ended => "no more is filled",
            };
            abort(&["a page of a tracked buffer is read and does not come: ", why, "\n"]);
        }
        let given = self.change(page, AWAY, GIVEN) || self.is_given(page);
        if given {
            self.late.fetch_or(never == Never::Late, Ordering::SeqCst);
            self.gave.store(true, Ordering::SeqCst);
            self.end();
        }
        given
    }

    /// Gives up all pages that are away, and waits until none is being filled: nothing more is written.
    pub(crate) fn give_up_all(&self) {
        self.gave.store(true, Ordering::SeqCst);
        let give = |state: &AtomicU8| {
            state.compare_exchange(AWAY, GIVEN, Ordering::SeqCst, Ordering::SeqCst)
        };
        for state in &self.states {
            while give(state) == Err(FILLING) {
                yield_now();
            }
        }
        self.end();
    }

    /// Waits until the data of all `pages` is there.
    pub(crate) fn wait(&self, pages: Range<usize>, deadline: Duration) -> Result<(), Never> {
        let started = Instant::now();
        for page in pages {
            loop {
                let rings = self.bell.rings();
                // Read before the page, since all pages come before the end is known.
                let over = self.is_over();
                let left = deadline.saturating_sub(started.elapsed());
                if self.is_there(page) {
                    break;
                }
                if over {
                    return Err(Never::Ended);
                }
                if left.is_zero() {
                    return Err(Never::Late);
                }
                self.bell.wait(rings, Some(left));
            }
        }
        Ok(())
    }

    /// Handles a read of a protected page, in a signal handler.
    pub(crate) fn on_fault(&self, address: usize) -> bool {
        let page = (address - self.region.addresses().start) / page_bytes();
        if !self.is_there(page) {
            self.stall();
        }
        if let Err(why) = self.wait(page..page + 1, self.deadline)
            && self.give_up(page, why)
        {
            let start = page * page_bytes();
            if self.region.protect(start..start + page_bytes(), Access::Read).is_err() {
                abort(&[
                    "a page of a tracked buffer cannot be opened: too many mappings (vm.max_map_count)\n",
                ]);
            }
        }
        true
    }

    fn change(&self, page: usize, from: u8, to: u8) -> bool {
        let state = &self.states[page];
        state.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }
}
