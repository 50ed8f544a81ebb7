//! The format of a packet: a header, then records until its body ends.
//!
//! ```text
//! header, 24 bytes    body u32 | flags u8 | lane u8 | 0 u16 | sequence u64 | ack u64
//! record, 16 bytes    kind u8 | flags u8 | aux u16 | channel u32 | value u64
//!   run        value = bytes u32, messages u32; then the messages
//!   fragment   value = the message's bytes, aux 0; then u32 bytes, u32 0, then them;
//!              in a packet with `FLAG_ELSEWHERE`, which it ends, their address u64 in their place
//!   open       value = fingerprint, aux = name bytes, flags = lane, kind, stream, backlog;
//!              of a stream 32 bytes: id u128, first u64, sent before u64;
//!              with a backlog its bytes u64; the name
//!   end        value = messages of the channel in all: the sender is done
//!   terminate  the receiver is gone, or wants no more
//!   credit     value = bytes that the channel may send in all
//!   open credit  value = bytes of initial windows that may be opened in all
//!   refuse     value = reason, aux = text bytes; the text
//!   describe   aux = text bytes; the sender's type, asked for by a refusal
//!   bye        the session ends cleanly
//!   gone       the session was given up; in a packet without number
//!   wait       value = number, aux = chain bytes; a chain of waits ([`super::cycle`])
//!   settled    value = messages of the stream that its receiver has settled in all,
//!              flags = 1: its last word
//!   consumed   value = bytes of a channel with a backlog that its receiver has consumed in all
//!   memory     value = address of a word of 16 bytes in the sender's memory; then the word
//!   reads      the sender has read that word: fragments may be left where they are
//! ```
//!
//! All numbers are little-endian. A packet without runs, fragments, opens and ends carries no
//! sequence (0): it may be repeated, since it holds totals. A numbered packet that was lost
//! with its connection comes again, byte for byte, and then with all its bytes. Messages in a run are described in
//! [`super::message`]. The decoder does not look into a run: its receiver finds the messages
//! when it takes them.

mod append;
mod decoder;

pub use append::AppendRecords;
pub use decoder::{Decoder, Elsewhere};

use bytes::Bytes;

/// Bytes of a packet's header.
pub const HEADER_BYTES: usize = 24;
/// Bytes of a record's header.
pub const RECORD_BYTES: usize = 16;
/// Bytes in front of a fragment's payload.
pub const FRAGMENT_HEAD_BYTES: usize = RECORD_BYTES + 8;

/// Flag of a packet whose sender waits for an acknowledgement: answer at once.
pub const FLAG_ACK_NOW: u8 = 1;

/// Flag of a packet whose last bytes, a fragment's, do not follow: the receiver reads them from the sender's
/// memory before it acknowledges the packet. The size of the body counts them, and not their address.
pub const FLAG_ELSEWHERE: u8 = 2;

/// Place of the flags in a header.
pub(crate) const HEADER_FLAGS_AT: usize = 4;

/// Bytes of the address that stands in the place of a fragment.
pub const ADDRESS_BYTES: usize = 8;
/// Bytes of the word by which an end knows the other's memory.
pub const WORD_BYTES: usize = 16;

/// Rank of a channel among those of its link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Hash)]
#[non_exhaustive]
pub enum Lane {
    /// Leaves before bulk channels; for single values and calls.
    Express,
    /// The default.
    #[default]
    Bulk,
}

/// Form of a channel's messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ChannelKind {
    /// Values of a type, encoded.
    Typed,
    /// The user's own bytes.
    Bytes,
}

/// Bytes of a [`StreamStart`] in an open.
pub const STREAM_BYTES: usize = 32;

/// Bytes of a backlog in an open.
pub const BACKLOG_BYTES: usize = 8;

/// Largest number of a stream's message: all sums of two stay below `u64::MAX`.
pub const STREAM_NUMBER_MAX: u64 = u64::MAX / 4;

/// The part of a stream that a channel carries. A stream's messages are numbered from 0 and may
/// need several channels, one after the other; its receiver settles them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct StreamStart {
    /// The stream's random number, the same on each of its channels.
    pub id: u128,
    /// Number of the channel's first message.
    pub first: u64,
    /// Messages below this number may have left on an earlier channel.
    pub sent_before: u64,
}

/// Reason why an `open` was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// The two ends name different types; the text describes the receiver's.
    TypeMismatch,
    /// Too many opens wait to be accepted.
    NotAccepted,
    /// One end is typed and the other takes bytes.
    KindMismatch,
}

/// A packet's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Header {
    /// Bytes after the header.
    pub body_bytes: u32,
    /// See `FLAG_*`.
    pub flags: u8,
    /// Number of the packet, from 1; 0 for one that carries only totals.
    pub sequence: u64,
    /// Number up to which all packets have arrived at the sender of this packet.
    pub ack: u64,
}

/// A packet as it is written. Its bytes never change once it has its header.
#[derive(Debug, Default)]
pub struct Packet {
    /// Header and records.
    pub head: Vec<u8>,
    /// The packet's last bytes, not copied.
    pub tail: Option<Bytes>,
    /// Whether the tail is a fragment.
    pub is_fragment: bool,
}

impl Packet {
    /// Returns the bytes of head and tail.
    #[must_use]
    #[inline]
    pub fn bytes(&self) -> usize {
        self.head.len() + self.tail.as_ref().map_or(0, Bytes::len)
    }
}

impl Header {
    /// Returns the bytes of this header.
    #[must_use]
    #[inline]
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0..4].copy_from_slice(&self.body_bytes.to_le_bytes());
        bytes[4] = self.flags;
        bytes[8..16].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.ack.to_le_bytes());
        bytes
    }

    #[inline]
    fn decode(bytes: &[u8]) -> Option<Header> {
        Some(Header {
            body_bytes: u32_at(bytes, 0)?,
            flags: *bytes.get(4)?,
            sequence: u64_at(bytes, 8)?,
            ack: u64_at(bytes, 16)?,
        })
    }
}

const KIND_RUN: u8 = 1;
const KIND_FRAGMENT: u8 = 2;
const KIND_OPEN: u8 = 3;
const KIND_END: u8 = 4;
const KIND_TERMINATE: u8 = 5;
const KIND_CREDIT: u8 = 6;
const KIND_OPEN_CREDIT: u8 = 7;
const KIND_REFUSE: u8 = 8;
const KIND_DESCRIBE: u8 = 9;
const KIND_BYE: u8 = 10;
const KIND_GONE: u8 = 11;
const KIND_WAIT: u8 = 12;
const KIND_SETTLED: u8 = 13;
const KIND_CONSUMED: u8 = 14;
const KIND_MEMORY: u8 = 15;
const KIND_READS: u8 = 16;

const OPEN_EXPRESS: u8 = 1;
const OPEN_BYTES: u8 = 2;
const OPEN_STREAM: u8 = 4;
const OPEN_BACKLOG: u8 = 8;

const SETTLED_LAST: u8 = 1;

/// A channel that begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opening<'a> {
    /// The channel's number, new.
    pub channel: u32,
    /// The channel's lane.
    pub lane: Lane,
    /// Typed values or bytes.
    pub kind: ChannelKind,
    /// Fingerprint of the sender's type.
    pub fingerprint: u64,
    /// The channel's part of a stream, if its receiver settles.
    pub stream: Option<StreamStart>,
    /// Most bytes that are accepted and not consumed, if that is bounded.
    pub backlog: Option<u64>,
    /// The channel's name.
    pub name: &'a str,
}

/// The decoder's next find. Slices lie in the decoder's input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item<'a> {
    /// A packet begins.
    Packet(Header),
    /// A packet that came as a whole on an earlier connection begins; its content is skipped.
    Repeated(Header),
    /// The packet ends behind its last record.
    PacketEnd {
        /// The packet's number; 0 for one without.
        sequence: u64,
        /// Whether the peer asked for an acknowledgement at once.
        ack_now: bool,
    },
    /// Consecutive small messages of one channel.
    Run {
        /// The peer's number of the channel.
        channel: u32,
        /// Number of messages, as the sender declares.
        messages: u32,
        /// Prefixes and messages.
        bytes: &'a [u8],
    },
    /// A fragment begins; `FragmentBytes` follow until all are there.
    Fragment {
        /// The peer's number of the channel.
        channel: u32,
        /// Bytes of the whole message.
        message_bytes: u64,
        /// Bytes of this fragment.
        bytes: u32,
    },
    /// The next bytes of the fragment that began last.
    FragmentBytes {
        /// The peer's number of the channel.
        channel: u32,
        /// At least one byte.
        bytes: &'a [u8],
    },
    /// A channel begins. Boxed: an item of every packet is then small.
    Open(Box<Opening<'a>>),
    /// A channel's sender is done.
    End {
        /// The peer's number of the channel.
        channel: u32,
        /// Messages of the channel in all.
        messages: u64,
    },
    /// The receiver of our channel is gone.
    Terminate {
        /// Our number of the channel.
        channel: u32,
    },
    /// Our channel may send `total` bytes in all.
    Credit {
        /// Our number of the channel.
        channel: u32,
        /// Bytes since the channel began.
        total: u64,
    },
    /// We may open initial windows of `total` bytes in all.
    OpenCredit {
        /// Bytes since the session began.
        total: u64,
    },
    /// Our open was refused.
    Refuse {
        /// Our number of the channel.
        channel: u32,
        /// The reason.
        refusal: Refusal,
        /// Description of the receiver's type, or empty.
        text: &'a str,
    },
    /// The type of a channel that we refused.
    Describe {
        /// The peer's number of the channel.
        channel: u32,
        /// Description of the sender's type.
        text: &'a str,
    },
    /// The peer ends the session cleanly.
    Bye,
    /// The peer gave the session up.
    Gone,
    /// The peer waits for us, and others wait for the peer.
    Wait {
        /// Number of the word, counted where the chain begins.
        number: u64,
        /// The chain, well formed.
        chain: &'a [u8],
    },
    /// The receiver of our channel has settled messages.
    Settled {
        /// Our number of the channel.
        channel: u32,
        /// Messages of the stream in all.
        total: u64,
        /// Whether the receiver is gone.
        last: bool,
    },
    /// The receiver of our channel with a backlog has consumed bytes.
    Consumed {
        /// Our number of the channel.
        channel: u32,
        /// Bytes since the channel began.
        total: u64,
    },
    /// The peer has a word in its memory.
    Memory {
        /// The word's address there.
        address: u64,
        /// The word.
        word: u128,
    },
    /// The peer has read our word.
    Reads,
}

impl Item<'_> {
    /// Whether the item belongs in a packet with a number.
    pub(super) fn is_numbered(&self) -> bool {
        let totals = matches!(
            self,
            Item::Credit { .. }
                | Item::OpenCredit { .. }
                | Item::Gone
                | Item::Wait { .. }
                | Item::Settled { .. }
                | Item::Consumed { .. }
                | Item::Memory { .. }
                | Item::Reads
        );
        let frame = matches!(self, Item::Packet(_) | Item::Repeated(_) | Item::PacketEnd { .. });
        !totals && !frame
    }
}

#[inline]
fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[inline]
fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests;
