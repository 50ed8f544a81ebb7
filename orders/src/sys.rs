//! The system as `pages` uses it, in a model: nothing is protected, and a wait is one of loom's.

use std::io;
use std::ops::Range;

pub(crate) fn page_bytes() -> usize {
    1
}

pub(crate) enum Access {
    Read,
}

/// Pages of one byte each, whose values are the tests' own.
pub(crate) struct Region {
    pub(crate) pages: usize,
}

impl Region {
    pub(crate) fn map_bytes(&self) -> usize {
        self.pages
    }

    pub(crate) fn addresses(&self) -> Range<usize> {
        0..self.pages
    }

    pub(crate) fn protect(&self, _: Range<usize>, _: Access) -> io::Result<()> {
        Ok(())
    }
}

pub(crate) mod bell {
    use std::io;
    use std::time::Duration;

    use loom::sync::{Condvar, Mutex};

    /// The kernel compares the number and sleeps in one step, as the lock does here.
    pub(crate) struct Bell {
        rings: Mutex<u32>,
        rung: Condvar,
    }

    impl Bell {
        pub(crate) fn new() -> io::Result<Self> {
            Ok(Self { rings: Mutex::new(0), rung: Condvar::new() })
        }

        pub(crate) fn rings(&self) -> u32 {
            *self.rings.lock().unwrap()
        }

        pub(crate) fn ring(&self) {
            *self.rings.lock().unwrap() += 1;
            self.rung.notify_all();
        }

        /// Without a time-out: a ring that is missed is a wait without an end, which loom reports.
        pub(crate) fn wait(&self, seen: u32, _: Option<Duration>) {
            let mut rings = self.rings.lock().unwrap();
            while *rings == seen {
                rings = self.rung.wait(rings).unwrap();
            }
        }

        pub(crate) fn reset(&self) {}
    }
}

pub(crate) mod signal {
    pub(crate) fn abort(words: &[&str]) -> ! {
        panic!("{}", words.concat())
    }
}
