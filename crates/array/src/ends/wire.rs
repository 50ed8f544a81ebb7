//! The messages between two ranks of a transfer.
//!
//! ```text
//! sender to receiver                                 receiver to sender
//! offset  0      4      8          16    64          offset  0      4
//!         kind   round  tile       0     elements            kind   round
//!         u32    u32    u64                                  u32    u32
//! ```
//!
//! All numbers are little-endian, elements are in the sender's byte order, which both sides have stated. The
//! elements of a tile that lie together at the sender come as a message of their own behind the head (`APART`).
//! A side that cannot go on says so (`FAILED`): the number of elements that have landed, as u64; the rank that is
//! lost, as a byte (0: the one that says so; of the group that sends: 1, of the other: 2) and u32; and the [`Loss`].

use bytes::Buf;
use chunkcomm::Loss;
use chunkcomm::proto::loss::LOSS_BYTES_MAX;

use super::shared::Fault;
use crate::plan::Side;

/// Length of a message's head: 64, a line of the cache.
///
/// So elements lie to lines in a message as in a storage that is allocated alike. With a head of 16 bytes copies
/// between the two took 1.3 times as long.
pub(super) const HEAD_BYTES: usize = 64;

const TILE: u32 = 1;
const TILE_APART: u32 = 2;
const LANDED: u32 = 3;
const FAILED: u32 = 4;

/// Length of the longest message without elements.
pub(super) const WORD_BYTES_MAX: usize = 16 + 5 + 1 + LOSS_BYTES_MAX;

/// A message, in either direction.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Message<'a> {
    /// Elements of a tile.
    Tile { round: u32, tile: u64, elements: &'a [u8] },
    /// The next message has the elements of a tile.
    Apart { round: u32, tile: u64 },
    /// All elements of the round have landed.
    Landed { round: u32 },
    /// The other side cannot go on.
    Failed { landed: u64, fault: Fault },
}

impl Message<'_> {
    /// Reads a message; `None` when it is none.
    pub(super) fn decode(mut bytes: &[u8]) -> Option<Message<'_>> {
        if bytes.len() < 8 {
            return None;
        }
        let (kind, round) = (bytes.get_u32_le(), bytes.get_u32_le());
        match kind {
            TILE | TILE_APART if bytes.len() >= HEAD_BYTES - 8 => {
                let tile = bytes.get_u64_le();
                bytes.advance(HEAD_BYTES - 16);
                Some(match kind {
                    TILE => Message::Tile { round, tile, elements: bytes },
                    _ => Message::Apart { round, tile },
                })
            }
            LANDED => Some(Message::Landed { round }),
            FAILED if bytes.len() >= 13 => {
                let (landed, side, rank) = (bytes.get_u64_le(), bytes.get_u8(), bytes.get_u32_le());
                let of = match side {
                    0 => None,
                    1 => Some((Side::Sender, rank as usize)),
                    2 => Some((Side::Receiver, rank as usize)),
                    _ => return None,
                };
                let loss = Loss::from_bytes(bytes)?;
                Some(Message::Failed { landed, fault: Fault { loss, of } })
            }
            _ => None,
        }
    }
}

/// Returns the head of a tile whose elements follow, in the same message or apart.
pub(super) fn head(round: u32, tile: u64, is_apart: bool) -> [u8; HEAD_BYTES] {
    let mut head = [0; HEAD_BYTES];
    head[..8].copy_from_slice(&kind(if is_apart { TILE_APART } else { TILE }, round));
    head[8..16].copy_from_slice(&tile.to_le_bytes());
    head
}

/// Returns the word that a round has landed.
pub(super) fn landed(round: u32) -> [u8; 8] {
    kind(LANDED, round)
}

fn kind(kind: u32, round: u32) -> [u8; 8] {
    (u64::from(kind) | u64::from(round) << 32).to_le_bytes()
}

/// Returns the word of a side that cannot go on, where `landed` elements of its round have landed.
pub(super) fn failed(landed: u64, fault: &Fault) -> Vec<u8> {
    let (side, rank) = match fault.of {
        None => (0, 0),
        Some((Side::Sender, rank)) => (1, rank as u32),
        Some((Side::Receiver, rank)) => (2, rank as u32),
    };
    let mut word = kind(FAILED, 0).to_vec();
    word.extend_from_slice(&landed.to_le_bytes());
    word.push(side);
    word.extend_from_slice(&rank.to_le_bytes());
    word.extend_from_slice(&fault.loss.to_bytes());
    word
}

#[cfg(test)]
mod tests {
    use super::*;
    use chunkcomm::LossKind;

    #[test]
    fn messages_are_read_as_they_were_written() {
        let mut tile = head(7, 1 << 40, false).to_vec();
        tile.extend_from_slice(b"abc");
        let expected = Message::Tile { round: 7, tile: 1 << 40, elements: b"abc" };
        assert_eq!(Message::decode(&tile), Some(expected));
        let apart = head(1, 2, true);
        assert_eq!(Message::decode(&apart), Some(Message::Apart { round: 1, tile: 2 }));
        assert_eq!(Message::decode(&landed(9)), Some(Message::Landed { round: 9 }));
        for of in [None, Some((Side::Sender, 3)), Some((Side::Receiver, 0))] {
            let fault = Fault { loss: Loss::new(LossKind::Silent, "\u{e4}".repeat(512)), of };
            let word = failed(5, &fault);
            assert_eq!(word.len(), WORD_BYTES_MAX);
            assert_eq!(Message::decode(&word), Some(Message::Failed { landed: 5, fault }));
        }
    }

    #[test]
    fn other_bytes_are_no_message() {
        for bytes in [&b""[..], &[1; 7], &[0; 16], &[1, 0, 0, 0, 0, 0, 0, 0, 0], &[9; 40]] {
            assert_eq!(Message::decode(bytes), None, "{bytes:?}");
        }
    }
}
