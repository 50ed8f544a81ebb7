//! What a receiver of the lab looks at: every message, and the times between them.

use super::protocol::{Fault, Silence};
use crate::message::Message;

/// Shorter silences are the steps of the machine.
const SILENCE_NS_MIN: u64 = 200_000;

/// More silences than this are not kept, only the longest.
const SILENCES_MAX: usize = 200_000;

/// Holds every message against the one that is due, byte by byte.
#[derive(Debug)]
pub struct Checker<M> {
    due: M,
    bytes: usize,
    next: u64,
}

impl<M: Message + PartialEq> Checker<M> {
    /// For messages of so many bytes, numbered from 0.
    pub fn new(bytes: usize) -> Self {
        let mut due = M::with_size(bytes);
        due.stamp(0);
        Self { due, bytes, next: 0 }
    }

    /// Messages found right so far.
    pub fn taken(&self) -> u64 {
        self.next
    }

    /// Looks at the next message.
    ///
    /// # Errors
    /// What is wrong with it.
    #[inline]
    pub fn take(&mut self, message: &M) -> Result<(), Fault> {
        if *message != self.due {
            return Err(self.judge(message));
        }
        self.next += 1;
        self.due.stamp(self.next);
        Ok(())
    }

    #[cold]
    fn judge(&self, message: &M) -> Fault {
        let (due, came) = (self.next, message.sequence());
        // A message that was changed on its way is no witness of another number.
        let mut honest = M::with_size(self.bytes);
        honest.stamp(came);
        if *message != honest {
            return Fault::Wrong { due };
        }
        if came > due { Fault::Missing { due, came } } else { Fault::Again { due, came } }
    }
}

/// Notes the times in which nothing came.
#[derive(Debug, Default)]
pub struct Silences {
    last_ns: Option<u64>,
    noted: Vec<Silence>,
}

impl Silences {
    /// Messages came at this time.
    pub fn note(&mut self, now_ns: u64) {
        let Some(from_ns) = self.last_ns.replace(now_ns) else { return };
        if now_ns - from_ns >= SILENCE_NS_MIN && self.noted.len() < SILENCES_MAX {
            self.noted.push(Silence { from_ns, to_ns: now_ns });
        }
    }

    /// All of them, in order.
    pub fn into_noted(self) -> Vec<Silence> {
        self.noted
    }
}

/// When the next message came at or after a time: at once, unless it lies in a silence.
pub fn next_message_ns(silences: &[Silence], at_ns: u64) -> u64 {
    let after = silences.partition_point(|silence| silence.to_ns < at_ns);
    match silences.get(after) {
        Some(silence) if silence.from_ns < at_ns => silence.to_ns,
        _ => at_ns,
    }
}

/// The longest silence, in nanoseconds.
pub fn longest_ns(silences: &[Silence]) -> u64 {
    silences.iter().map(|silence| silence.to_ns - silence.from_ns).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::with_message_of;

    fn message<M: Message>(bytes: usize, sequence: u64) -> M {
        let mut message = M::with_size(bytes);
        message.stamp(sequence);
        message
    }

    #[test]
    fn lost_repeated_and_reordered_messages_are_seen() {
        fn check<M: Message + PartialEq>(bytes: usize) {
            let mut checker = Checker::<M>::new(bytes);
            for sequence in 0..5 {
                assert_eq!(checker.take(&message(bytes, sequence)), Ok(()));
            }
            assert_eq!(checker.taken(), 5);
            let missing = Fault::Missing { due: 5, came: 6 };
            assert_eq!(checker.take(&message(bytes, 6)), Err(missing));
            let again = Fault::Again { due: 5, came: 4 };
            assert_eq!(checker.take(&message(bytes, 4)), Err(again));
            assert_eq!(checker.take(&message(bytes, 5)), Ok(()));
        }
        for bytes in [8, 12, 16, 100] {
            with_message_of!(bytes, M => check::<M>(bytes));
        }
    }

    #[test]
    fn a_turned_bit_anywhere_is_seen() {
        type Record = crate::message::Record;
        let right: Record = message(16, 3);
        let mut encoded = Vec::new();
        chunkcomm::codec::encode_into_vec(&right, &mut encoded).unwrap();
        for bit in 0..128 {
            let mut turned = encoded.clone();
            turned[bit / 8] ^= 1 << (bit % 8);
            let turned: Record = chunkcomm::codec::decode(&turned).unwrap();
            let mut checker = Checker::<Record>::new(16);
            for sequence in 0..3 {
                checker.take(&message(16, sequence)).unwrap();
            }
            assert_eq!(checker.take(&turned), Err(Fault::Wrong { due: 3 }), "bit {bit}");
        }
    }

    #[test]
    fn the_message_after_a_time_ends_the_silence_around_it() {
        let mut silences = Silences::default();
        for now_ns in [0, 100_000, 5_000_000, 5_100_000, 9_000_000] {
            silences.note(now_ns);
        }
        let noted = silences.into_noted();
        assert_eq!(noted.len(), 2);
        assert_eq!(longest_ns(&noted), 4_900_000);
        let next = |at_ns| next_message_ns(&noted, at_ns);
        assert_eq!(next(50_000), 50_000);
        assert_eq!(next(200_000), 5_000_000);
        assert_eq!(next(5_050_000), 5_050_000);
        assert_eq!(next(8_999_999), 9_000_000);
        assert_eq!(next(9_100_000), 9_100_000);
    }
}
