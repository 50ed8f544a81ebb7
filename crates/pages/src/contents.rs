//! Looks at contents, pure: whether an increment is as it left, and whether one waits for its outermost bytes.

/// Bytes at an end of a buffer that are compared with those before the run: a page, or the increment if it is
/// shorter.
const EDGE_BYTES_MAX: usize = 4096;

/// Outermost bytes that a large copy writes last: the shortest vector register.
const OUTERMOST_BYTES: usize = 16;

/// The ends of a buffer before a run.
///
/// A large copy stores its first vector, 16 to 64 bytes, when all others are written; one that goes down, its
/// last (`memmove` of glibc 2.36). So an increment at an end of the buffer waits while its outermost bytes are
/// as they were and others are not. Code that writes each element once in order has changed them.
#[derive(Debug)]
pub(crate) struct Edges {
    first: Vec<u8>,
    last: Vec<u8>,
}

impl Edges {
    /// Notes the ends of `buffer`, whose increments have `increment_bytes`.
    pub(crate) fn of(buffer: &[u8], increment_bytes: usize) -> Self {
        let count = buffer.len().div_ceil(increment_bytes);
        let last_bytes = buffer.len() - count.saturating_sub(1) * increment_bytes;
        let first = &buffer[..increment_bytes.min(EDGE_BYTES_MAX).min(buffer.len())];
        let last = &buffer[buffer.len() - last_bytes.min(EDGE_BYTES_MAX)..];
        Self { first: first.to_vec(), last: last.to_vec() }
    }

    /// Whether the first increment, which `now` begins with, waits for its outermost bytes.
    pub(crate) fn first_waits(&self, now: &[u8]) -> bool {
        let now = &now[..self.first.len()];
        let outermost = now.len().min(OUTERMOST_BYTES);
        now[..outermost] == self.first[..outermost] && *now != self.first
    }

    /// Whether the last increment, which `now` ends with, waits for its outermost bytes.
    pub(crate) fn last_waits(&self, now: &[u8]) -> bool {
        let now = &now[now.len() - self.last.len()..];
        let inner = now.len().saturating_sub(OUTERMOST_BYTES);
        now[inner..] == self.last[inner..] && *now != self.last
    }
}

/// Words that are hashed at a time, in lanes: a product takes some cycles.
const LANES: usize = 4;

/// An odd number with bits at random places: the fraction of the golden ratio.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// Returns a hash of 64 bits, for contents that nobody chose to collide.
pub(crate) fn hash(bytes: &[u8]) -> u64 {
    let mut lanes: [u64; LANES] = [1, 2, 3, 4];
    let mut take = |words: &[[u8; 8]; LANES]| {
        for (lane, word) in lanes.iter_mut().zip(words) {
            *lane = folded(*lane ^ u64::from_le_bytes(*word));
        }
    };
    let (words, rest) = bytes.as_chunks::<8>();
    let (blocks, words) = words.as_chunks::<LANES>();
    blocks.iter().for_each(&mut take);
    let mut last = [[0; 8]; LANES];
    last[..words.len()].copy_from_slice(words);
    take(&last);
    let mut last = [[0; 8]; LANES];
    last[0][..rest.len()].copy_from_slice(rest);
    take(&last);
    lanes.into_iter().fold(bytes.len() as u64, |hash, lane| folded(hash ^ lane))
}

/// Returns the two halves of a product as one word, to which each bit of `word` counts (as `wyhash` does, by
/// Wang Yi).
fn folded(word: u64) -> u64 {
    let product = u128::from(word) * u128::from(FACTOR);
    (product >> 64) as u64 ^ product as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const INCREMENT_BYTES: usize = 2 * EDGE_BYTES_MAX;

    #[test]
    fn an_increment_waits_while_only_its_outermost_bytes_are_as_they_were() {
        let mut buffer = vec![7; 3 * INCREMENT_BYTES - 100];
        let edges = Edges::of(&buffer, INCREMENT_BYTES);
        assert!(!edges.first_waits(&buffer) && !edges.last_waits(&buffer), "nothing is written");
        let len = buffer.len();
        buffer[64..len - 64].fill(8);
        assert!(edges.first_waits(&buffer) && edges.last_waits(&buffer));
        buffer[15] = 8;
        assert!(!edges.first_waits(&buffer) && edges.last_waits(&buffer));
        buffer[len - 16] = 8;
        assert!(!edges.last_waits(&buffer));
    }

    #[test]
    fn short_buffers_have_ends_too() {
        for len in [0, 1, 15, 16, 17, 100] {
            let mut buffer = vec![0; len];
            let edges = Edges::of(&buffer, INCREMENT_BYTES);
            buffer.fill(1);
            assert!(!edges.first_waits(&buffer) && !edges.last_waits(&buffer), "{len} bytes");
        }
        let edges = Edges::of(&[0; 20], INCREMENT_BYTES);
        let mut buffer = [0; 20];
        buffer[17] = 1;
        assert!(edges.first_waits(&buffer) && !edges.last_waits(&buffer));
    }

    #[test]
    fn every_byte_and_the_length_count_in_a_hash() {
        for len in [0, 1, 7, 8, 31, 32, 33, 63, 64, 100] {
            let bytes: Vec<u8> = (0..len).collect();
            let mut hashes = vec![hash(&bytes), hash(&[&bytes[..], &[0]].concat())];
            for index in 0..bytes.len() {
                for bit in 0..8 {
                    let mut other = bytes.clone();
                    other[index] ^= 1 << bit;
                    hashes.push(hash(&other));
                }
            }
            let count = hashes.len();
            hashes.sort_unstable();
            hashes.dedup();
            assert_eq!(hashes.len(), count, "{len} bytes");
        }
    }
}
