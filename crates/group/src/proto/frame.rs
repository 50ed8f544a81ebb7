//! The bytes between the two sides of a delta, after the opening.
//!
//! The sender's direction is a row of frames, each a header and its payload:
//!
//! ```text
//! offset  0     4      8       16      24
//!         kind  round  offset  length  payload ...
//!         u32   u32    u64     u64
//! ```
//!
//! | kind | payload | meaning |
//! |---|---|---|
//! | increment | the buffer's bytes from `offset` on | they are committed; none in each round of an empty buffer |
//! | end | none | the round ends behind `length` bytes, and no round follows |
//! | correction | later bytes from `offset` on | they take the place of committed ones at the end of the round |
//! | broken | the [`Loss`] | nothing more comes |
//!
//! The receiver's direction is a row of [`Reply`] messages. All numbers are little-endian.

use bytes::Buf;
use chunkcomm_proto::loss::{LOSS_BYTES_MAX, Loss};

use super::fault::DeltaFault;
use super::opening::Opening;

/// Number of bytes of a frame's header.
pub(crate) const HEADER_BYTES: usize = 24;

/// Most bytes of a correction: 64 KiB, for which the receiver has memory apart.
pub const CORRECTION_BYTES_MAX: usize = 64 * 1024;

/// Most bytes of the loss that tells why a sender ends.
pub(crate) const CAUSE_BYTES_MAX: usize = LOSS_BYTES_MAX + 1;

const INCREMENT: u32 = 1;
const BROKEN: u32 = 2;
const END: u32 = 3;
const CORRECTION: u32 = 4;

const REFUSED: u8 = 1;
const LANDED: u8 = 2;
const READY: u8 = 3;
const FAULT: u8 = 4;

/// Header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Header {
    /// Bytes of the buffer in round `round`, from byte `offset` on.
    Increment { round: u32, offset: u64, bytes: u64 },
    /// Round `round` ends behind `bytes` bytes, which were sent; no round follows.
    End { round: u32, bytes: u64 },
    /// Later bytes of the buffer in round `round`, from byte `offset` on.
    Correction { round: u32, offset: u64, bytes: u64 },
    /// The cause of the sender's end, of this length.
    Broken { bytes: usize },
}

impl Header {
    /// Returns the bytes of the header.
    pub(crate) fn encode(self) -> [u8; HEADER_BYTES] {
        let (kind, round, offset, bytes) = match self {
            Self::Increment { round, offset, bytes } => (INCREMENT, round, offset, bytes),
            Self::End { round, bytes } => (END, round, 0, bytes),
            Self::Correction { round, offset, bytes } => (CORRECTION, round, offset, bytes),
            Self::Broken { bytes } => (BROKEN, 0, 0, bytes as u64),
        };
        let mut header = [0; HEADER_BYTES];
        header[..4].copy_from_slice(&kind.to_le_bytes());
        header[4..8].copy_from_slice(&round.to_le_bytes());
        header[8..16].copy_from_slice(&offset.to_le_bytes());
        header[16..].copy_from_slice(&bytes.to_le_bytes());
        header
    }

    /// Reads a header.
    pub(crate) fn decode(header: &[u8; HEADER_BYTES]) -> Result<Self, DeltaFault> {
        let mut fields = &header[..];
        let (kind, round) = (fields.get_u32_le(), fields.get_u32_le());
        let (offset, bytes) = (fields.get_u64_le(), fields.get_u64_le());
        match kind {
            INCREMENT => Ok(Self::Increment { round, offset, bytes }),
            END => Ok(Self::End { round, bytes }),
            CORRECTION => Ok(Self::Correction { round, offset, bytes }),
            BROKEN => match usize::try_from(bytes) {
                Ok(bytes) if bytes <= CAUSE_BYTES_MAX => Ok(Self::Broken { bytes }),
                _ => Err(DeltaFault::Cause),
            },
            kind => Err(DeltaFault::Kind { kind }),
        }
    }
}

/// Message of the receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// The shapes differ; the receiver has room for this one.
    Refused(Opening),
    /// Every byte of this round is in the receiver's buffer.
    Landed(u32),
    /// The receiver has a buffer for this round; every round before has landed.
    Ready(u32),
    /// A frame was wrong, or the transfer failed at the receiver, for this reason.
    Fault(Loss),
}

/// Fault of bytes that are no reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReplyFault {
    /// The first byte names no kind of reply, or there is no byte.
    Kind,
    /// The receiver's statement is not readable.
    Opening(DeltaFault),
    /// The number of the round has not four bytes.
    Round,
    /// The cause is too long.
    Cause,
}

/// Returns the bytes of a [`Reply`] that names a round.
pub(crate) fn encode_round(landed: bool, round: u32) -> [u8; 5] {
    let [a, b, c, d] = round.to_le_bytes();
    [if landed { LANDED } else { READY }, a, b, c, d]
}

impl Reply {
    /// Returns the bytes of the reply.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let (kind, body) = match self {
            Self::Landed(round) => return encode_round(true, *round).to_vec(),
            Self::Ready(round) => return encode_round(false, *round).to_vec(),
            Self::Refused(opening) => (REFUSED, opening.encode()),
            Self::Fault(loss) => (FAULT, loss.to_bytes()),
        };
        [&[kind], &body[..]].concat()
    }

    /// Reads the reply in `bytes`.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, ReplyFault> {
        let (kind, body) = bytes.split_first().ok_or(ReplyFault::Kind)?;
        let round = || body.try_into().map(u32::from_le_bytes).map_err(|_| ReplyFault::Round);
        match *kind {
            REFUSED => Opening::decode(body).map(Self::Refused).map_err(ReplyFault::Opening),
            LANDED => round().map(Self::Landed),
            READY => round().map(Self::Ready),
            FAULT => Loss::from_bytes(body).map(Self::Fault).ok_or(ReplyFault::Cause),
            _ => Err(ReplyFault::Kind),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::opening::Shape;
    use super::*;

    #[test]
    fn faults_of_replies_are_told_apart() {
        assert_eq!(Reply::decode(&[]), Err(ReplyFault::Kind));
        assert_eq!(Reply::decode(&[77, 1, 2]), Err(ReplyFault::Kind));
        assert_eq!(Reply::decode(&[LANDED, 0]), Err(ReplyFault::Round));
        assert_eq!(Reply::decode(&[READY, 7, 0, 0, 0]), Ok(Reply::Ready(7)));
        let short = DeltaFault::Length { bytes: 0 };
        assert_eq!(Reply::decode(&[REFUSED]), Err(ReplyFault::Opening(short)));
        assert_eq!(Reply::decode(&[FAULT]), Err(ReplyFault::Cause));
        let long = [vec![FAULT], vec![b'x'; CAUSE_BYTES_MAX + 1]].concat();
        assert_eq!(Reply::decode(&long), Err(ReplyFault::Cause));
    }

    proptest! {
        #[test]
        fn replies_go_there_and_back(
            cause in "\\PC{0,256}", length in 0_usize..1000, round: u32,
        ) {
            let shape = Shape::of::<u16>(length);
            let opening = Opening { shape, increment_bytes: 2 };
            for reply in [
                Reply::Fault(cause.as_str().into()),
                Reply::Refused(opening),
                Reply::Landed(round),
                Reply::Ready(round),
            ] {
                prop_assert_eq!(Reply::decode(&reply.encode()), Ok(reply));
            }
        }

        #[test]
        fn headers_go_there_and_back(
            round: u32, offset: u64, bytes: u64, cause in 0..=CAUSE_BYTES_MAX,
        ) {
            for header in [
                Header::Increment { round, offset, bytes },
                Header::End { round, bytes },
                Header::Correction { round, offset, bytes },
                Header::Broken { bytes: cause },
            ] {
                prop_assert_eq!(Header::decode(&header.encode()), Ok(header));
            }
        }

        #[test]
        fn any_bytes_are_a_header_or_a_fault(header: [u8; HEADER_BYTES], kind in 0_u8..6) {
            let mut bytes = header;
            bytes[..4].copy_from_slice(&[kind, 0, 0, 0]);
            match Header::decode(&bytes) {
                Ok(Header::Increment { .. }) => prop_assert_eq!(kind, 1),
                Ok(Header::Broken { .. }) | Err(DeltaFault::Cause) => prop_assert_eq!(kind, 2),
                Ok(Header::End { .. }) => prop_assert_eq!(kind, 3),
                Ok(Header::Correction { .. }) => prop_assert_eq!(kind, 4),
                Err(_) => prop_assert!(!(1..=4).contains(&kind)),
            }
        }
    }
}
