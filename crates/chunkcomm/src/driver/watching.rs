//! Whether to look again at once for what arrives, instead of sleeping until it is there.
//!
//! To sleep and to be woken from another core takes tens of microseconds, and the one who
//! wakes pays for it too. While a peer sends as fast as it can, what it sends next is there
//! sooner than that. So after a read of much the driver goes on looking for about as long as a
//! sleep would take at least, and sleeps then: at worst that costs twice what the better of
//! both had cost (competitive spinning: A. Karlin, K. Li, M. Manasse and S. Owicki, "Empirical
//! studies of competitive spinning for a shared-memory multiprocessor", 1991). Where looking
//! was in vain it is left out, twice as often each time: at the pace of a peer that is slower
//! than that, or has no core of its own, the driver sleeps as ever. Between two looks the other
//! tasks of the runtime run.

/// A read of so many bytes shows a peer that has much to send.
const MUCH_BYTES: usize = 16 * 1024;

/// Looks after a read of much: each is a system call that finds nothing, half a microsecond
/// or so.
pub(super) const LOOKS_MAX: u32 = 64;

/// Sleeps without a look before after the first that was in vain, and at most: looks that are
/// always in vain then take a microsecond of each sleep.
const SLEEPS: [u32; 2] = [4, 32];

/// Reads of much without a message of ours between them: the peer alone is talking.
const ALONE_READS: u32 = 8;

/// The watch on one connection.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// The last read brought much, and nobody has looked since.
    much: bool,
    /// Looks that are left of those that began.
    looks: u32,
    /// Sleeps until the next look, and how many there will be after one in vain.
    sleeps: u32,
    sleeps_next: u32,
    /// Reads of much since a message of ours was written.
    alone: u32,
}

impl Watch {
    /// The system is to be asked.
    #[inline]
    pub(super) fn is_on(&self) -> bool {
        self.looks > 0
    }

    /// So many bytes were read.
    #[inline]
    pub(super) fn heard(&mut self, bytes: usize) {
        let much = bytes >= MUCH_BYTES;
        self.alone = self.alone.saturating_add(u32::from(much));
        self.much = much && self.alone < ALONE_READS;
        if self.is_on() {
            self.looks = 0;
            self.sleeps_next /= 2;
        }
    }

    /// Messages were written.
    #[inline]
    pub(super) fn told(&mut self) {
        self.alone = 0;
    }

    /// There is nothing to do: look again, or sleep?
    #[inline]
    pub(super) fn goes_on(&mut self) -> bool {
        if self.is_on() {
            self.looks -= 1;
            if self.looks == 0 {
                self.sleeps_next = (2 * self.sleeps_next).clamp(SLEEPS[0], SLEEPS[1]);
                self.sleeps = self.sleeps_next;
            }
        } else if std::mem::take(&mut self.much) {
            if self.sleeps == 0 {
                self.looks = LOOKS_MAX;
            } else {
                self.sleeps -= 1;
            }
        }
        self.is_on()
    }

    /// There is something else to do first: what is left of the looks begins anew.
    #[inline]
    pub(super) fn pause(&mut self) {
        if self.is_on() {
            (self.much, self.looks) = (true, 0);
        }
    }

    /// There is no connection.
    pub(super) fn stop(&mut self) {
        (self.much, self.looks) = (false, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nothing comes: looks until the driver sleeps.
    fn looks(watch: &mut Watch) -> u32 {
        (0..).find(|_| !watch.goes_on()).unwrap()
    }

    #[test]
    fn a_read_of_much_is_followed_by_looks_and_a_small_one_by_sleep() {
        let mut watch = Watch::default();
        assert_eq!(looks(&mut watch), 0);
        watch.heard(MUCH_BYTES - 1);
        assert_eq!(looks(&mut watch), 0);
        watch.heard(MUCH_BYTES);
        assert_eq!(looks(&mut watch), LOOKS_MAX);
        assert_eq!(looks(&mut watch), 0, "once after each read");
    }

    #[test]
    fn as_long_as_something_comes_it_looks_each_time() {
        let mut watch = Watch::default();
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
        let mut watch = Watch::default();
        let mut in_vain = |gaps: u32| {
            let each = (0..gaps).map(|_| {
                watch.told();
                watch.heard(MUCH_BYTES);
                looks(&mut watch)
            });
            each.filter(|looks| *looks > 0).count()
        };
        // 4 + 8 + 16 sleeps between, then 32 each time.
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
        let mut watch = Watch::default();
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
        let mut watch = Watch::default();
        watch.pause();
        assert_eq!(looks(&mut watch), 0);
        watch.heard(MUCH_BYTES);
        assert!(watch.goes_on());
        watch.pause();
        assert!(!watch.is_on());
        assert_eq!(looks(&mut watch), LOOKS_MAX, "not in vain so far");
    }

    #[test]
    fn nothing_is_looked_for_without_a_connection() {
        let mut watch = Watch::default();
        watch.heard(MUCH_BYTES);
        assert!(watch.goes_on());
        watch.stop();
        assert!(!watch.is_on() && !watch.goes_on());
    }
}
