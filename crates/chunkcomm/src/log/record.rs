//! The bytes of a log's segments. All numbers are little-endian.
//!
//! ```text
//! head    magic 8 | checksum 4 | name 2 | stream 16 | first 8 | fingerprint 8 | the channel's name
//! record  checksum of its head 4 | messages 4 | settled 8 | synced 8 | large 4 |
//!         bytes behind its head 8 | their checksum 4 |
//!         length of each large message 8 | staged bytes | large messages
//! ```
//!
//! The checksum of a head covers all bytes of the head behind it. `synced` is the number of bytes
//! of the segment that were permanent when the record was written; 0 where nothing is synced.

use super::Identity;
use bytes::{Buf, Bytes};
use crc32fast::Hasher;

const MAGIC: &[u8; 8] = b"chunklg1";
const HEAD_BYTES: usize = 46;
const RECORD_BYTES: usize = 40;

/// The head of a segment.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) identity: Identity,
    pub(super) stream: u128,
    /// Number of the segment's first message.
    pub(super) first: u64,
}

impl Head {
    pub(super) fn encode(&self) -> Vec<u8> {
        let Identity { channel, fingerprint } = &self.identity;
        let mut rest = Vec::with_capacity(HEAD_BYTES + channel.len());
        rest.extend((channel.len() as u16).to_le_bytes());
        rest.extend(self.stream.to_le_bytes());
        rest.extend(self.first.to_le_bytes());
        rest.extend(fingerprint.to_le_bytes());
        rest.extend(channel.as_bytes());
        let checksum = crc32fast::hash(&rest).to_le_bytes();
        [MAGIC.as_slice(), &checksum, &rest].concat()
    }

    /// Returns the head and its length in bytes.
    pub(super) fn decode(bytes: &[u8]) -> Option<(Head, usize)> {
        let mut rest = bytes.strip_prefix(MAGIC)?;
        let checksum = rest.try_get_u32_le().ok()?;
        let name_bytes = usize::from(rest.first_chunk().copied().map(u16::from_le_bytes)?);
        let bytes = HEAD_BYTES + name_bytes;
        let mut rest = rest.get(..bytes - MAGIC.len() - 4)?;
        if crc32fast::hash(rest) != checksum {
            return None;
        }
        rest.advance(2);
        let (stream, first) = (rest.get_u128_le(), rest.get_u64_le());
        let fingerprint = rest.get_u64_le();
        let channel = std::str::from_utf8(rest).ok()?.to_owned();
        Some((Head { identity: Identity { channel, fingerprint }, stream, first }, bytes))
    }
}

/// Returns whether `bytes` can be the written part of an unfinished head.
pub(super) fn is_part_of_head(bytes: &[u8], identity: &Identity) -> bool {
    bytes.len() < HEAD_BYTES + identity.channel.len() || bytes.iter().all(|byte| *byte == 0)
}

/// Writes the head of a record into `out`, as its only content; the staged bytes and the large
/// messages are to follow. Returns the length of the record in bytes.
pub(super) fn write(
    out: &mut Vec<u8>,
    (front, back, messages): (&[u8], &[u8], u32),
    large: &[Bytes],
    (settled, synced): (u64, u64),
) -> usize {
    let large_bytes: usize = large.iter().map(|large| 8 + large.len()).sum();
    let bytes = front.len() + back.len() + large_bytes;
    out.clear();
    out.extend([0; 4]);
    out.extend(messages.to_le_bytes());
    out.extend(settled.to_le_bytes());
    out.extend(synced.to_le_bytes());
    out.extend((large.len() as u32).to_le_bytes());
    out.extend((bytes as u64).to_le_bytes());
    out.extend([0; 4]);
    large.iter().for_each(|large| out.extend((large.len() as u64).to_le_bytes()));
    let mut checksum = Hasher::new();
    checksum.update(&out[RECORD_BYTES..]);
    checksum.update(front);
    checksum.update(back);
    large.iter().for_each(|large| checksum.update(large));
    out[RECORD_BYTES - 4..RECORD_BYTES].copy_from_slice(&checksum.finalize().to_le_bytes());
    let checksum = crc32fast::hash(&out[4..RECORD_BYTES]);
    out[..4].copy_from_slice(&checksum.to_le_bytes());
    RECORD_BYTES + bytes
}

/// A record that was read.
pub(super) struct Record {
    pub(super) messages: u32,
    pub(super) settled: u64,
    pub(super) staged: Bytes,
    pub(super) large: Vec<Bytes>,
}

/// The head of a record.
struct RecordHead {
    messages: u32,
    settled: u64,
    synced: u64,
    large: u32,
    bytes: u64,
    checksum: u32,
}

impl RecordHead {
    /// Returns the head at the start of `bytes`, if there is one.
    fn decode(bytes: &[u8]) -> Option<RecordHead> {
        let (mut checksum, mut rest) = bytes.get(..RECORD_BYTES)?.split_at(4);
        (checksum.get_u32_le() == crc32fast::hash(rest)).then(|| RecordHead {
            messages: rest.get_u32_le(),
            settled: rest.get_u64_le(),
            synced: rest.get_u64_le(),
            large: rest.get_u32_le(),
            bytes: rest.get_u64_le(),
            checksum: rest.get_u32_le(),
        })
    }
}

/// Takes the record at the start of `bytes`; `None` where no whole record is.
pub(super) fn read(bytes: &mut Bytes) -> Option<Record> {
    let head = RecordHead::decode(bytes)?;
    let end = usize::try_from(head.bytes).ok()?.checked_add(RECORD_BYTES)?;
    let mut rest = bytes.get(RECORD_BYTES..end).map(|rest| bytes.slice_ref(rest))?;
    if crc32fast::hash(&rest) != head.checksum {
        return None;
    }
    let lengths: Vec<u64> = (0..head.large).map_while(|_| rest.try_get_u64_le().ok()).collect();
    let mut large = Vec::with_capacity(lengths.len());
    for length in lengths.iter().rev() {
        let at = rest.len().checked_sub(usize::try_from(*length).ok()?)?;
        large.push(rest.split_off(at));
    }
    large.reverse();
    bytes.advance(end);
    Some(Record { messages: head.messages, settled: head.settled, staged: rest, large })
}

/// Returns whether the broken bytes at `offset` can be records that were being written when the
/// process or the machine stopped. They can if every record in `behind`, the bytes from there on,
/// says that bytes up to `offset` at most were permanent. A record written without syncing (0)
/// rules this out.
pub(super) fn was_being_written(behind: &[u8], offset: u64) -> bool {
    let heads = (1..behind.len()).filter_map(|at| RecordHead::decode(&behind[at..]));
    heads.into_iter().all(|head| (1..=offset).contains(&head.synced))
}
