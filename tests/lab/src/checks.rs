//! Content of the lab's messages, and the receiver's checks: every byte, and the times between
//! messages.

use chunkcomm_bench::message::Message;
use chunkcomm_proto::random::Random;

use super::protocol::{Fault, Silence};

/// Shortest silence that is noted: 200 us. Shorter ones are the machine's own pauses.
const SILENCE_NS_MIN: u64 = 200_000;

/// Most silences that are kept: the first ones.
const SILENCES_MAX: usize = 200_000;

/// Bytes of a channel's messages. They follow from the lab's seed, the channel's name and the
/// message's number: neither a message nor a part of one could stand for another.
#[derive(Debug, Clone, Copy)]
pub struct Contents(u64);

impl Contents {
    /// Returns the contents of the messages of `channel`.
    pub fn of(seed: u64, channel: &str) -> Self {
        let draw = |seed, byte| Random::new(seed ^ u64::from(byte)).next_u64();
        Self(channel.bytes().fold(seed, draw))
    }

    /// Fills `message` with the contents of this number.
    pub fn fill<M: Message>(self, message: &mut M, sequence: u64) {
        // Neighbouring states of the generator would give the same numbers, shifted by one.
        let start = Random::new(self.0 ^ sequence).next_u64();
        message.fill(sequence, Random::new(start));
    }
}

/// Compares every message with the one that is due, byte by byte.
#[derive(Debug)]
pub struct Checker<M> {
    due: M,
    bytes: usize,
    contents: Contents,
    next: u64,
}

impl<M: Message + PartialEq> Checker<M> {
    /// Makes a checker of messages of `bytes` bytes, numbered from 0.
    pub fn new(bytes: usize, contents: Contents) -> Self {
        let mut due = M::with_size(bytes);
        contents.fill(&mut due, 0);
        Self { due, bytes, contents, next: 0 }
    }

    /// Returns the number of messages found right so far.
    pub fn taken(&self) -> u64 {
        self.next
    }

    /// Checks the next message.
    ///
    /// # Errors
    /// The fault of the message.
    #[inline]
    pub fn take(&mut self, message: &M) -> Result<(), Fault> {
        if *message != self.due {
            return Err(self.judge(message));
        }
        self.next += 1;
        self.contents.fill(&mut self.due, self.next);
        Ok(())
    }

    #[cold]
    fn judge(&self, message: &M) -> Fault {
        let (due, came) = (self.next, message.sequence());
        // A message that was changed on its way proves no other number.
        let mut honest = M::with_size(self.bytes);
        self.contents.fill(&mut honest, came);
        if *message != honest {
            return Fault::Wrong { due };
        }
        if came > due { Fault::Missing { due, came } } else { Fault::Again { due, came } }
    }
}

/// Notes of the times without a message.
#[derive(Debug, Default)]
pub struct Silences {
    last_ns: Option<u64>,
    noted: Vec<Silence>,
}

impl Silences {
    /// Notes that messages came at this time.
    pub fn note(&mut self, now_ns: u64) {
        let Some(from_ns) = self.last_ns.replace(now_ns) else { return };
        if now_ns - from_ns >= SILENCE_NS_MIN && self.noted.len() < SILENCES_MAX {
            self.noted.push(Silence { from_ns, to_ns: now_ns });
        }
    }

    /// Returns all noted silences, in order.
    pub fn into_noted(self) -> Vec<Silence> {
        self.noted
    }
}

/// Returns the time of the next message at or after `at_ns`: `at_ns` itself, unless it lies in a
/// silence.
pub fn next_message_ns(silences: &[Silence], at_ns: u64) -> u64 {
    let after = silences.partition_point(|silence| silence.to_ns < at_ns);
    match silences.get(after) {
        Some(silence) if silence.from_ns < at_ns => silence.to_ns,
        _ => at_ns,
    }
}

/// Returns the longest silence, in nanoseconds.
pub fn longest_ns(silences: &[Silence]) -> u64 {
    silences.iter().map(|silence| silence.to_ns - silence.from_ns).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use chunkcomm_bench::with_message_of;

    const SEED: u64 = 7;

    fn contents() -> Contents {
        Contents::of(SEED, "forth")
    }

    fn message<M: Message>(bytes: usize, sequence: u64) -> M {
        let mut message = M::with_size(bytes);
        contents().fill(&mut message, sequence);
        message
    }

    fn encoded<M: Message>(message: &M) -> Vec<u8> {
        let mut encoded = Vec::new();
        chunkcomm::codec::encode_into_vec(message, &mut encoded).unwrap();
        encoded
    }

    /// Returns a checker whose next message is number `due`.
    fn checker<M: Message + PartialEq>(bytes: usize, due: u64) -> Checker<M> {
        let mut checker = Checker::new(bytes, contents());
        for sequence in 0..due {
            checker.take(&message(bytes, sequence)).unwrap();
        }
        checker
    }

    #[test]
    fn lost_repeated_and_reordered_messages_are_seen() {
        fn check<M: Message + PartialEq>(bytes: usize) {
            let mut checker = Checker::<M>::new(bytes, contents());
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
        fn check<M: Message + PartialEq>(bytes: usize) {
            let mut checker = checker::<M>(bytes, 3);
            let mut encoded = encoded(&message::<M>(bytes, 3));
            for bit in 0..8 * bytes {
                encoded[bit / 8] ^= 1 << (bit % 8);
                // If a bit of the payload's length is turned, nothing can be decoded.
                if let Ok(turned) = chunkcomm::codec::decode::<M>(&encoded) {
                    let fault = checker.take(&turned);
                    assert_eq!(fault, Err(Fault::Wrong { due: 3 }), "bit {bit} of {bytes} bytes");
                }
                encoded[bit / 8] ^= 1 << (bit % 8);
            }
        }
        for bytes in [8, 12, 16, 100] {
            with_message_of!(bytes, M => check::<M>(bytes));
        }
    }

    /// Checks the middle of another message, of the same message further on, and of another run's.
    #[test]
    fn bytes_in_the_middle_that_belong_elsewhere_are_seen() {
        type Long = chunkcomm_bench::message::Long;
        let right = encoded(&message::<Long>(1024, 3));
        let mut other_run: Long = message(1024, 3);
        Contents::of(SEED + 1, "forth").fill(&mut other_run, 3);
        let mut other_channel: Long = message(1024, 3);
        Contents::of(SEED, "back").fill(&mut other_channel, 3);
        let elsewhere = [
            encoded(&message::<Long>(1024, 2))[500..508].to_vec(),
            right[508..516].to_vec(),
            encoded(&other_run)[500..508].to_vec(),
            encoded(&other_channel)[500..508].to_vec(),
        ];
        for middle in elsewhere {
            let mut wrong = right.clone();
            wrong[500..508].copy_from_slice(&middle);
            let wrong = chunkcomm::codec::decode::<Long>(&wrong).unwrap();
            assert_eq!(checker::<Long>(1024, 3).take(&wrong), Err(Fault::Wrong { due: 3 }));
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
