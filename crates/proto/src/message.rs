//! Messages in a run: each is its length and its bytes. The length is one byte up to
//! [`SHORT_MAX`], else a tag and a fixed-width number. A 16-byte message thus costs one byte
//! more.

/// Longest message with a prefix of one byte, its length.
pub const SHORT_MAX: usize = 0xF9;
const TAG_U16: u8 = 0xFA;
const TAG_U32: u8 = 0xFB;
/// Bytes of the longest prefix.
pub const PREFIX_BYTES_MAX: usize = 5;
/// Mark in a ring, not on the wire: the next large message comes here.
pub const TAG_LARGE: u8 = 0xFF;

/// Returns the bytes of the prefix of a message of `length` bytes.
#[inline]
#[must_use]
pub fn prefix_bytes(length: usize) -> usize {
    if length <= SHORT_MAX {
        1
    } else if length <= u16::MAX as usize {
        3
    } else {
        5
    }
}

/// Writes the prefix of a message of `length` bytes at the start of `out`, which
/// has room for [`prefix_bytes`].
#[inline]
pub fn write_prefix(length: usize, out: &mut [u8]) {
    match prefix_bytes(length) {
        1 => out[0] = length as u8,
        3 => {
            out[0] = TAG_U16;
            out[1..3].copy_from_slice(&(length as u16).to_le_bytes());
        }
        _ => {
            out[0] = TAG_U32;
            out[1..5].copy_from_slice(&(length as u32).to_le_bytes());
        }
    }
}

/// The prefix at the start of some bytes of a run or ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prefix {
    /// A message: the sizes of its prefix and of its bytes.
    Message {
        /// Bytes of the prefix.
        prefix: usize,
        /// Bytes of the message behind it.
        length: usize,
    },
    /// The next large message of the channel stands here (rings only).
    Large,
    /// The bytes end within a prefix.
    Short,
    /// No prefix begins like this.
    Wrong,
}

/// Reads the prefix at the start of `bytes`.
#[inline(always)]
#[must_use]
pub fn read_prefix(bytes: &[u8]) -> Prefix {
    match bytes {
        [] => Prefix::Short,
        [short, ..] if usize::from(*short) <= SHORT_MAX => {
            Prefix::Message { prefix: 1, length: usize::from(*short) }
        }
        rest => read_long_prefix(rest),
    }
}

#[cold]
fn read_long_prefix(bytes: &[u8]) -> Prefix {
    match bytes {
        [TAG_U16, a, b, ..] => {
            Prefix::Message { prefix: 3, length: usize::from(u16::from_le_bytes([*a, *b])) }
        }
        [TAG_U32, a, b, c, d, ..] => {
            Prefix::Message { prefix: 5, length: u32::from_le_bytes([*a, *b, *c, *d]) as usize }
        }
        [TAG_U16 | TAG_U32, ..] => Prefix::Short,
        [TAG_LARGE, ..] => Prefix::Large,
        _ => Prefix::Wrong,
    }
}

/// Returns the range in `run` of the message that begins at `at`; `None` when the bytes lie
/// about their lengths.
#[inline(always)]
#[must_use]
pub fn next_in_run(run: &[u8], at: usize) -> Option<std::ops::Range<usize>> {
    match read_prefix(run.get(at..)?) {
        Prefix::Message { prefix, length } => {
            let start = at + prefix;
            let end = start.checked_add(length)?;
            (end <= run.len()).then_some(start..end)
        }
        _ => None,
    }
}

/// Distance that a walk over staged messages went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Walk {
    /// Bytes of whole messages, prefixes included.
    pub bytes: usize,
    /// Number of those messages.
    pub messages: u32,
    /// Whether the walk stopped in front of a large message's mark.
    pub at_large: bool,
}

/// Returns the bytes of the prefix and of the message at the start of `front` then `back`,
/// unless the message is a large one.
#[must_use]
pub fn first(front: &[u8], back: &[u8]) -> Option<(usize, usize)> {
    let mut head = [0; PREFIX_BYTES_MAX];
    let seen = copy_from(front, back, 0, &mut head);
    match read_prefix(&head[..seen]) {
        Prefix::Message { prefix, length } => Some((prefix, length)),
        _ => None,
    }
}

/// Returns the number of marks of large messages in `front` then `back`, which are whole messages.
#[must_use]
pub fn marks(mut front: &[u8], mut back: &[u8]) -> usize {
    let mut marks = 0;
    loop {
        let walk = walk(front, back, usize::MAX, u32::MAX);
        if !walk.at_large {
            return marks;
        }
        marks += 1;
        let passed = walk.bytes + 1;
        back = &back[passed.saturating_sub(front.len())..];
        front = front.get(passed..).unwrap_or(&[]);
    }
}

/// Walks over whole messages in `front` then `back` (one stretch that may be cut anywhere).
/// Stops before `bytes_max` or `messages_max` would be passed.
#[must_use]
pub fn walk(front: &[u8], back: &[u8], bytes_max: usize, messages_max: u32) -> Walk {
    let total = front.len() + back.len();
    let mut walk = walk_short(&front[..front.len().min(bytes_max)], messages_max);
    while walk.bytes < total && walk.messages < messages_max {
        let mut head = [0u8; 5];
        let seen = copy_from(front, back, walk.bytes, &mut head);
        match read_prefix(&head[..seen]) {
            Prefix::Message { prefix, length } => {
                let end = walk.bytes + prefix + length;
                if end > bytes_max || end > total {
                    break;
                }
                walk.bytes = end;
                walk.messages += 1;
            }
            Prefix::Large => {
                walk.at_large = true;
                break;
            }
            Prefix::Short | Prefix::Wrong => break,
        }
    }
    walk
}

/// Walks over the short messages at the start of `run` that lie in it as a whole.
fn walk_short(run: &[u8], messages_max: u32) -> Walk {
    let mut walk = Walk::default();
    while walk.messages < messages_max {
        let Some(&length) = run.get(walk.bytes) else { break };
        let end = walk.bytes + 1 + usize::from(length);
        if usize::from(length) > SHORT_MAX || end > run.len() {
            break;
        }
        walk.bytes = end;
        walk.messages += 1;
    }
    walk
}

/// Copies from position `at` of `front` then `back` into `out`; returns the number of bytes.
fn copy_from(front: &[u8], back: &[u8], at: usize, out: &mut [u8]) -> usize {
    let mut copied = 0;
    for byte in front.iter().chain(back).skip(at).take(out.len()) {
        out[copied] = *byte;
        copied += 1;
    }
    copied
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn run_of(lengths: &[usize]) -> Vec<u8> {
        let mut run = Vec::new();
        for (index, length) in lengths.iter().enumerate() {
            let start = run.len();
            run.resize(start + prefix_bytes(*length) + length, index as u8);
            write_prefix(*length, &mut run[start..]);
        }
        run
    }

    proptest! {
        #[test]
        fn a_run_reads_back_what_was_written(
            lengths in prop::collection::vec(prop_oneof![0usize..300, 65_000usize..66_000], 0..20),
        ) {
            let run = run_of(&lengths);
            let mut at = 0;
            for (index, length) in lengths.iter().enumerate() {
                let range = next_in_run(&run, at).unwrap();
                prop_assert_eq!(range.len(), *length);
                prop_assert!(run[range.clone()].iter().all(|byte| *byte == index as u8));
                at = range.end;
            }
            prop_assert_eq!(at, run.len());
        }

        #[test]
        fn a_walk_finds_the_same_borders_wherever_the_ring_wraps(
            lengths in prop::collection::vec(0usize..400, 1..40),
            cut in 0usize..1000, bytes_max in 0usize..12_000, messages_max in 0u32..50,
        ) {
            let run = run_of(&lengths);
            let cut = cut.min(run.len());
            let walked = walk(&run[..cut], &run[cut..], bytes_max, messages_max);
            let mut expected = Walk::default();
            for length in &lengths {
                let end = expected.bytes + prefix_bytes(*length) + length;
                if end > bytes_max || expected.messages == messages_max { break; }
                expected.bytes = end;
                expected.messages += 1;
            }
            prop_assert_eq!(walked, expected);
        }

        #[test]
        fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..64), at in 0usize..80) {
            let _ = next_in_run(&bytes, at);
            let _ = walk(&bytes, &[], 1000, 10);
        }
    }
}
