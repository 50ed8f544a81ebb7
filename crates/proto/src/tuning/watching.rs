//! The decision whether to look again at once for arriving bytes, or to sleep until they come.
//!
//! To sleep and to be woken from another core takes tens of microseconds, and the waker pays for it
//! too. While a peer sends as fast as it can, its next bytes arrive sooner than that. So after a
//! large read the driver looks on for about as long as a sleep takes at least, and then sleeps. At
//! worst that costs twice as much as the better of both (competitive spinning: A. Karlin, K. Li, M.
//! Manasse and S. Owicki, "Empirical studies of competitive spinning for a shared-memory
//! multiprocessor", 1991). After looks in vain the driver sleeps some times without looking, twice
//! as often each time. So it sleeps as ever with a peer that is slower, or has no core of its own.
//! Between two looks the other tasks of the runtime run.

use super::constants::{ALONE_READS, LOOKS_MAX, MUCH_BYTES, SLEEPS};
use super::without::{Controller, Without};

/// The watch on one connection.
#[derive(Debug)]
pub struct Watch {
    /// Number of looks after a large read; 0 when the driver always sleeps.
    looks_max: u32,
    /// The last read was a large one, and no look came since.
    much: bool,
    /// Remaining looks of those that began.
    looks: u32,
    /// Sleeps until the next look, and the number of sleeps after the last looks in vain.
    sleeps: u32,
    sleeps_next: u32,
    /// Large reads since a message of ours was written.
    alone: u32,
}

impl Watch {
    /// Creates the watch on a connection that has read nothing.
    #[must_use]
    pub fn new(without: Without) -> Watch {
        let looks_max = if without.has(Controller::Watching) { 0 } else { LOOKS_MAX };
        Watch { looks_max, much: false, looks: 0, sleeps: 0, sleeps_next: 0, alone: 0 }
    }

    /// Whether the system is to be asked.
    #[must_use]
    #[inline]
    pub fn is_on(&self) -> bool {
        self.looks > 0
    }

    /// Whether [`Watch::goes_on`] would change nothing and return false.
    #[must_use]
    #[inline]
    pub fn sleeps(&self) -> bool {
        !self.much && !self.is_on()
    }

    /// Notes a read of `bytes`.
    #[inline]
    pub fn heard(&mut self, bytes: usize) {
        let much = bytes >= MUCH_BYTES;
        self.alone = self.alone.saturating_add(u32::from(much));
        self.much = much && self.alone < ALONE_READS;
        if self.is_on() {
            self.looks = 0;
            self.sleeps_next /= 2;
        }
    }

    /// Notes that messages were written.
    #[inline]
    pub fn told(&mut self) {
        self.alone = 0;
    }

    /// Returns whether to look again rather than sleep, when there is nothing to do.
    #[inline]
    pub fn goes_on(&mut self) -> bool {
        if self.is_on() {
            self.looks -= 1;
            if self.looks == 0 {
                self.sleeps_next = (2 * self.sleeps_next).clamp(SLEEPS[0], SLEEPS[1]);
                self.sleeps = self.sleeps_next;
            }
        } else if std::mem::take(&mut self.much) {
            if self.sleeps == 0 {
                self.looks = self.looks_max;
            } else {
                self.sleeps -= 1;
            }
        }
        self.is_on()
    }

    /// Stops looking, since there is something else to do first; the looks then begin anew.
    #[inline]
    pub fn pause(&mut self) {
        if self.is_on() {
            (self.much, self.looks) = (true, 0);
        }
    }

    /// Stops looking, since there is no connection.
    pub fn stop(&mut self) {
        (self.much, self.looks) = (false, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts the looks until the driver sleeps, while nothing comes.
    fn looks(watch: &mut Watch) -> u32 {
        (0..).find(|_| !watch.goes_on()).unwrap()
    }

    #[test]
    fn a_read_of_much_is_followed_by_looks_and_a_small_one_by_sleep() {
        let mut watch = Watch::new(Without::default());
        assert_eq!(looks(&mut watch), 0);
        watch.heard(MUCH_BYTES - 1);
        assert_eq!(looks(&mut watch), 0);
        watch.heard(MUCH_BYTES);
        assert_eq!(looks(&mut watch), LOOKS_MAX);
        assert_eq!(looks(&mut watch), 0, "once after each read");
    }

    #[test]
    fn as_long_as_something_comes_it_looks_each_time() {
        let mut watch = Watch::new(Without::default());
        for _ in 0..10_000 {
            watch.told();
            watch.heard(MUCH_BYTES);
            assert!(watch.goes_on() && watch.is_on());
        }
        watch.heard(1);
        assert!(!watch.is_on());
    }

    #[test]
    fn looks_in_vain_get_rare_and_soon_frequent_again() {
        let mut watch = Watch::new(Without::default());
        let mut in_vain = |gaps: u32| {
            let each = (0..gaps).map(|_| {
                watch.told();
                watch.heard(MUCH_BYTES);
                looks(&mut watch)
            });
            each.filter(|looks| *looks > 0).count()
        };
        // 4 + 8 + 16 sleeps between the looks, then 32 each time.
        assert_eq!(in_vain(4 + 28 + 100 * 33), 104);
        let mut gaps = 0;
        while watch.sleeps_next > 0 {
            watch.told();
            watch.heard(MUCH_BYTES);
            watch.goes_on();
            gaps += 1;
        }
        assert!(gaps < 32 + 20, "{gaps} gaps");
    }

    #[test]
    fn who_only_takes_what_comes_sleeps() {
        let mut watch = Watch::new(Without::default());
        let mut reads = |count: u32| {
            let each = (0..count).map(|_| {
                watch.heard(MUCH_BYTES);
                watch.goes_on()
            });
            each.filter(|looks| *looks).count()
        };
        assert_eq!(reads(1000), ALONE_READS as usize - 1);
        watch.heard(MUCH_BYTES);
        watch.told();
        watch.heard(MUCH_BYTES);
        assert!(watch.goes_on(), "a conversation again");
    }

    #[test]
    fn what_is_to_be_written_comes_before_the_looks() {
        let mut watch = Watch::new(Without::default());
        watch.pause();
        assert_eq!(looks(&mut watch), 0);
        watch.heard(MUCH_BYTES);
        assert!(watch.goes_on());
        watch.pause();
        assert!(!watch.is_on());
        assert_eq!(looks(&mut watch), LOOKS_MAX, "not in vain so far");
    }

    #[test]
    fn without_the_controller_the_driver_sleeps() {
        let mut watch = Watch::new("watching".parse().unwrap());
        watch.heard(MUCH_BYTES);
        assert!(!watch.goes_on());
    }

    #[test]
    fn nothing_is_looked_for_without_a_connection() {
        let mut watch = Watch::new(Without::default());
        watch.heard(MUCH_BYTES);
        assert!(watch.goes_on());
        watch.stop();
        assert!(!watch.is_on() && !watch.goes_on());
    }
}
