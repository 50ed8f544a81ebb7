//! Messages as `crates/bench/src/message.rs` has them: number first, check byte last.

/// Least bytes of a message.
pub const MESSAGE_BYTES_MIN: usize = 8;

/// Number bits of a message of eight bytes: the check byte takes the others.
const NUMBER_MASK: u64 = (1 << 56) - 1;

/// Number of the message that `PEER_BREAK` corrupts: in the first slice of three or more.
const BROKEN_SEQUENCE: u64 = 2;

/// Returns the check byte of a message: every byte of its number counts.
#[inline]
pub fn check_byte(sequence: u64) -> u8 {
    (sequence.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

/// Returns the number of a message, 0 of one that is too short.
#[inline]
pub fn number_of(message: &[u8]) -> u64 {
    let number = message.first_chunk().map_or(0, |first| u64::from_le_bytes(*first));
    if message.len() == 8 { number & NUMBER_MASK } else { number }
}

/// Checks a message given as bytes; returns what is wrong with it.
#[inline]
pub fn verify(message: &[u8], bytes: usize, sequence: u64) -> Result<(), String> {
    let last = message.last().copied().unwrap_or_default();
    verify_parts(number_of(message), last, message.len(), bytes, sequence)
}

/// Checks the parts of a message; returns what is wrong with it.
#[inline]
pub fn verify_parts(
    number: u64,
    last: u8,
    length: usize,
    bytes: usize,
    sequence: u64,
) -> Result<(), String> {
    if length == bytes && number == sequence && last == check_byte(sequence) {
        return Ok(());
    }
    Err(wrong(number, length, bytes, sequence))
}

#[cold]
fn wrong(number: u64, length: usize, bytes: usize, sequence: u64) -> String {
    if length != bytes {
        return format!("message {sequence} has {length} bytes, not {bytes}");
    }
    if number != sequence {
        return format!("message {sequence} carries number {number}");
    }
    format!("message {sequence} carries a wrong check byte")
}

/// Maker of numbers and check bytes, wrong ones where `PEER_BREAK` asks for it.
#[derive(Debug, Clone, Copy)]
pub struct Stamp {
    /// Message that is corrupted; `u64::MAX` for none.
    broken: u64,
    breaks_order: bool,
}

impl Stamp {
    pub(crate) fn of_environment() -> Self {
        let word = std::env::var("PEER_BREAK").ok();
        let broken = if word.is_some() { BROKEN_SEQUENCE } else { u64::MAX };
        Self { broken, breaks_order: word.is_some_and(|word| word == "order") }
    }

    /// Returns number and check byte of a message.
    #[inline]
    pub fn of(self, sequence: u64) -> (u64, u8) {
        if sequence != self.broken {
            return (sequence, check_byte(sequence));
        }
        if self.breaks_order {
            return (sequence + 1, check_byte(sequence + 1));
        }
        (sequence, !check_byte(sequence))
    }

    /// Writes number and check byte into a message.
    ///
    /// # Panics
    /// If it is shorter than eight bytes.
    #[inline]
    pub fn write(self, message: &mut [u8], sequence: u64) {
        let (number, check) = self.of(sequence);
        message[..8].copy_from_slice(&number.to_le_bytes());
        let last = message.len() - 1;
        message[last] = check;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RIGHT: Stamp = Stamp { broken: u64::MAX, breaks_order: false };

    #[test]
    fn messages_are_verified_and_changed_ones_are_not() {
        for bytes in [8, 9, 16, 1024] {
            let mut message = vec![0; bytes];
            RIGHT.write(&mut message, 0x0012_3456_789a_bcde);
            assert_eq!(verify(&message, bytes, 0x0012_3456_789a_bcde), Ok(()));
            assert!(verify(&message, bytes, 0x0012_3456_789a_bcdf).is_err());
            assert!(verify(&message, bytes + 1, 0x0012_3456_789a_bcde).is_err());
            message[bytes - 1] ^= 1;
            assert!(verify(&message, bytes, 0x0012_3456_789a_bcde).is_err());
        }
    }

    #[test]
    fn only_the_broken_message_is_wrong() {
        for breaks_order in [false, true] {
            let stamp = Stamp { broken: BROKEN_SEQUENCE, breaks_order };
            let mut message = [0; 16];
            for sequence in 0..4 {
                stamp.write(&mut message, sequence);
                let is_right = verify(&message, 16, sequence).is_ok();
                assert_eq!(is_right, sequence != BROKEN_SEQUENCE);
            }
        }
    }
}
