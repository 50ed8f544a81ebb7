//! The format of a packet: a header, then records until its body ends.
//!
//! ```text
//! header, 24 bytes    body u32 | flags u8 | lane u8 | 0 u16 | sequence u64 | ack u64
//! record, 16 bytes    kind u8 | flags u8 | aux u16 | channel u32 | value u64
//!   run        value = bytes u32, messages u32; then the messages
//!   fragment   value = the message's bytes, aux 0; then u32 bytes, u32 0, then them
//!   open       value = fingerprint, aux = name bytes, flags = lane and kind; the name
//!   end        value = messages of the channel in all: the sender is done
//!   terminate  the receiver is gone
//!   credit     value = bytes that the channel may send in all
//!   open credit  value = bytes of initial windows that may be opened in all
//!   refuse     value = reason, aux = text bytes; the text
//!   describe   aux = text bytes; the sender's type, asked for by a refusal
//!   bye        the session ends cleanly
//! ```
//!
//! All numbers are little-endian. A packet without runs, fragments, opens and
//! ends carries no sequence (0): it may be repeated, since it holds totals.
//! Messages in a run are described in [`super::message`]. The run is not looked
//! into here: its receiver finds the messages when it takes them.

use super::limits::{CHANNEL_NAME_BYTES_MAX, TEXT_BYTES_MAX};

/// Bytes of a packet's header.
pub const HEADER_BYTES: usize = 24;
/// Bytes of a record's header.
pub const RECORD_BYTES: usize = 16;
/// Bytes in front of a fragment's payload.
pub const FRAGMENT_HEAD_BYTES: usize = RECORD_BYTES + 8;

/// The sender waits for an acknowledgement: answer at once.
pub const FLAG_ACK_NOW: u8 = 1;

/// How a channel stands against the others of its link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Hash)]
#[non_exhaustive]
pub enum Lane {
    /// Leaves before bulk channels; for single values and calls.
    Express,
    /// The default.
    #[default]
    Bulk,
}

/// What the messages of a channel are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ChannelKind {
    /// Values of a type, encoded.
    Typed,
    /// The user's own bytes.
    Bytes,
}

/// Why an `open` was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
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
    /// All packets up to this number have arrived at the sender of this packet.
    pub ack: u64,
}

impl Header {
    /// The bytes of this header.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0..4].copy_from_slice(&self.body_bytes.to_le_bytes());
        bytes[4] = self.flags;
        bytes[8..16].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.ack.to_le_bytes());
        bytes
    }

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

const OPEN_EXPRESS: u8 = 1;
const OPEN_BYTES: u8 = 2;

/// Appends records to a packet's body.
pub trait AppendRecords {
    /// The header of a run; its messages follow.
    fn run(&mut self, channel: u32, bytes: u32, messages: u32);
    /// The head of a fragment of a message; `bytes` of it follow.
    fn fragment(&mut self, channel: u32, message_bytes: u64, bytes: u32);
    /// A channel begins.
    fn open(&mut self, channel: u32, lane: Lane, kind: ChannelKind, fingerprint: u64, name: &str);
    /// A channel's sender is done after so many messages.
    fn end(&mut self, channel: u32, messages: u64);
    /// A channel's receiver is gone.
    fn terminate(&mut self, channel: u32);
    /// A channel may send so many bytes in all.
    fn credit(&mut self, channel: u32, total: u64);
    /// Initial windows of so many bytes in all may be opened.
    fn open_credit(&mut self, total: u64);
    /// An open is refused.
    fn refuse(&mut self, channel: u32, refusal: Refusal, text: &str);
    /// The type of a refused channel's sender.
    fn describe(&mut self, channel: u32, text: &str);
    /// The session ends cleanly.
    fn bye(&mut self);
}

impl AppendRecords for Vec<u8> {
    fn run(&mut self, channel: u32, bytes: u32, messages: u32) {
        record(self, KIND_RUN, 0, 0, channel, u64::from(bytes) | (u64::from(messages) << 32));
    }

    fn fragment(&mut self, channel: u32, message_bytes: u64, bytes: u32) {
        record(self, KIND_FRAGMENT, 0, 0, channel, message_bytes);
        self.extend_from_slice(&u64::from(bytes).to_le_bytes());
    }

    fn open(&mut self, channel: u32, lane: Lane, kind: ChannelKind, fingerprint: u64, name: &str) {
        let express = if lane == Lane::Express { OPEN_EXPRESS } else { 0 };
        let bytes = if kind == ChannelKind::Bytes { OPEN_BYTES } else { 0 };
        record(self, KIND_OPEN, express | bytes, name.len() as u16, channel, fingerprint);
        self.extend_from_slice(name.as_bytes());
    }

    fn end(&mut self, channel: u32, messages: u64) {
        record(self, KIND_END, 0, 0, channel, messages);
    }

    fn terminate(&mut self, channel: u32) {
        record(self, KIND_TERMINATE, 0, 0, channel, 0);
    }

    fn credit(&mut self, channel: u32, total: u64) {
        record(self, KIND_CREDIT, 0, 0, channel, total);
    }

    fn open_credit(&mut self, total: u64) {
        record(self, KIND_OPEN_CREDIT, 0, 0, 0, total);
    }

    fn refuse(&mut self, channel: u32, refusal: Refusal, text: &str) {
        let reason = match refusal {
            Refusal::TypeMismatch => 1,
            Refusal::NotAccepted => 2,
            Refusal::KindMismatch => 3,
        };
        let text = cut(text, TEXT_BYTES_MAX);
        record(self, KIND_REFUSE, 0, text.len() as u16, channel, reason);
        self.extend_from_slice(text.as_bytes());
    }

    fn describe(&mut self, channel: u32, text: &str) {
        let text = cut(text, TEXT_BYTES_MAX);
        record(self, KIND_DESCRIBE, 0, text.len() as u16, channel, 0);
        self.extend_from_slice(text.as_bytes());
    }

    fn bye(&mut self) {
        record(self, KIND_BYE, 0, 0, 0, 0);
    }
}

fn record(out: &mut Vec<u8>, kind: u8, flags: u8, aux: u16, channel: u32, value: u64) {
    let mut bytes = [0; RECORD_BYTES];
    bytes[0] = kind;
    bytes[1] = flags;
    bytes[2..4].copy_from_slice(&aux.to_le_bytes());
    bytes[4..8].copy_from_slice(&channel.to_le_bytes());
    bytes[8..16].copy_from_slice(&value.to_le_bytes());
    out.extend_from_slice(&bytes);
}

/// `text` cut at a character so that it has at most `bytes_max` bytes.
#[must_use]
pub fn cut(text: &str, bytes_max: usize) -> &str {
    let mut end = text.len().min(bytes_max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or("")
}

/// What a decoder found next. Slices lie in the bytes that it was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Item<'a> {
    /// A packet begins.
    Packet(Header),
    /// A packet's last record was the one before.
    PacketEnd {
        /// Its number; 0 for one without.
        sequence: u64,
        /// The peer asked for an acknowledgement at once.
        ack_now: bool,
    },
    /// Consecutive small messages of one channel.
    Run {
        /// The peer's number of the channel.
        channel: u32,
        /// How many messages the sender says these are.
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
    /// A channel begins.
    Open {
        /// The peer's number of the channel, new.
        channel: u32,
        /// Its lane.
        lane: Lane,
        /// Typed values or bytes.
        kind: ChannelKind,
        /// Of the sender's type.
        fingerprint: u64,
        /// Its name.
        name: &'a str,
    },
    /// A channel's sender is done.
    End {
        /// The peer's number of the channel.
        channel: u32,
        /// Its messages in all.
        messages: u64,
    },
    /// The receiver of our channel is gone.
    Terminate {
        /// Our number of the channel.
        channel: u32,
    },
    /// Our channel may send this much in all.
    Credit {
        /// Our number of the channel.
        channel: u32,
        /// Bytes since the channel began.
        total: u64,
    },
    /// Initial windows of this much in all may be opened.
    OpenCredit {
        /// Bytes since the session began.
        total: u64,
    },
    /// Our open was refused.
    Refuse {
        /// Our number of the channel.
        channel: u32,
        /// Why.
        refusal: Refusal,
        /// The receiver's type, or empty.
        text: &'a str,
    },
    /// The type of a channel that we refused.
    Describe {
        /// The peer's number of the channel.
        channel: u32,
        /// Its sender's type.
        text: &'a str,
    },
    /// The peer ends the session cleanly.
    Bye,
}

/// What is wrong with a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum WireError {
    /// The body is longer than was agreed.
    PacketTooLarge {
        /// As declared.
        bytes: u32,
        /// As agreed.
        bytes_max: u32,
    },
    /// A record does not end within its packet.
    RecordPassesPacket,
    /// No record begins with this byte.
    UnknownRecord(u8),
    /// A name or text that is not UTF-8 or longer than allowed.
    BadText,
    /// A refusal with an unknown reason.
    BadReason,
    /// A fragment without bytes, or longer than its message.
    BadFragment,
}

impl std::fmt::Display for WireError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            WireError::PacketTooLarge { bytes, bytes_max } => {
                write!(f, "a packet declares {bytes} bytes where at most {bytes_max} were agreed")
            }
            WireError::RecordPassesPacket => f.write_str("a record passes the end of its packet"),
            WireError::UnknownRecord(kind) => write!(f, "a record of unknown kind {kind}"),
            WireError::BadText => f.write_str("a name or text is too long or not UTF-8"),
            WireError::BadReason => f.write_str("a refusal of unknown reason"),
            WireError::BadFragment => f.write_str("a fragment is empty or longer than its message"),
        }
    }
}

impl std::error::Error for WireError {}

/// Finds packets and records in the bytes of a connection, however these were
/// cut. Order of calls: [`Decoder::next`] until it answers `None`; then keep
/// the bytes from `at` on, append more, and go on with `at` 0. Bytes of a
/// fragment may instead be read past the decoder: [`Decoder::fragment_left`]
/// says how many, [`Decoder::skip_fragment`] that they were.
#[derive(Debug)]
pub struct Decoder {
    body_bytes_max: u32,
    packet: Option<Header>,
    body_left: u32,
    fragment_channel: u32,
    fragment_left: u32,
}

impl Decoder {
    /// A decoder for packets of at most `packet_bytes_max` bytes before the
    /// fragment that may end one.
    #[must_use]
    pub fn new(packet_bytes_max: usize) -> Decoder {
        let bytes = packet_bytes_max + FRAGMENT_HEAD_BYTES + super::limits::FRAGMENT_BYTES_MAX;
        Decoder {
            body_bytes_max: u32::try_from(bytes).unwrap_or(u32::MAX),
            packet: None,
            body_left: 0,
            fragment_channel: 0,
            fragment_left: 0,
        }
    }

    /// Channel and number of the bytes that the fragment at hand still lacks.
    #[must_use]
    pub fn fragment_left(&self) -> Option<(u32, u32)> {
        (self.fragment_left > 0).then_some((self.fragment_channel, self.fragment_left))
    }

    /// `bytes` of the fragment at hand were read elsewhere; at most those that
    /// it lacked.
    pub fn skip_fragment(&mut self, bytes: u32) {
        let bytes = bytes.min(self.fragment_left);
        self.fragment_left -= bytes;
        self.body_left = self.body_left.saturating_sub(bytes);
    }

    /// Bytes that are needed from the start of the rest on before `next` can
    /// say more; for choosing a buffer.
    #[must_use]
    pub fn wants(&self, rest: &[u8]) -> usize {
        if self.fragment_left > 0 {
            return 1;
        }
        match self.packet {
            None => HEADER_BYTES,
            Some(_) => record_bytes(rest).unwrap_or(RECORD_BYTES),
        }
    }

    /// The next item in `input` from `at` on, which moves behind it; `None`
    /// when more bytes are needed.
    ///
    /// # Errors
    ///
    /// What the peer sent is no packet. The connection is of no use any more.
    pub fn next<'a>(
        &mut self,
        input: &'a [u8],
        at: &mut usize,
    ) -> Result<Option<Item<'a>>, WireError> {
        let rest = input.get(*at..).unwrap_or(&[]);
        if self.fragment_left > 0 {
            return Ok(self.fragment_bytes(rest, at));
        }
        let Some(header) = self.packet else {
            return self.header(rest, at);
        };
        if self.body_left == 0 {
            self.packet = None;
            let ack_now = header.flags & FLAG_ACK_NOW != 0;
            return Ok(Some(Item::PacketEnd { sequence: header.sequence, ack_now }));
        }
        self.record(rest, at)
    }

    fn header<'a>(&mut self, rest: &[u8], at: &mut usize) -> Result<Option<Item<'a>>, WireError> {
        let Some(header) = rest.get(..HEADER_BYTES).and_then(Header::decode) else {
            return Ok(None);
        };
        if header.body_bytes > self.body_bytes_max {
            return Err(WireError::PacketTooLarge {
                bytes: header.body_bytes,
                bytes_max: self.body_bytes_max,
            });
        }
        *at += HEADER_BYTES;
        self.packet = Some(header);
        self.body_left = header.body_bytes;
        Ok(Some(Item::Packet(header)))
    }

    fn fragment_bytes<'a>(&mut self, rest: &'a [u8], at: &mut usize) -> Option<Item<'a>> {
        let bytes = rest.get(..rest.len().min(self.fragment_left as usize))?;
        if bytes.is_empty() {
            return None;
        }
        *at += bytes.len();
        self.skip_fragment(bytes.len() as u32);
        Some(Item::FragmentBytes { channel: self.fragment_channel, bytes })
    }

    fn record<'a>(
        &mut self,
        rest: &'a [u8],
        at: &mut usize,
    ) -> Result<Option<Item<'a>>, WireError> {
        if (self.body_left as usize) < RECORD_BYTES {
            return Err(WireError::RecordPassesPacket);
        }
        let Some(needed) = record_bytes(rest) else { return Ok(None) };
        if needed > self.body_left as usize {
            return Err(WireError::RecordPassesPacket);
        }
        let Some(bytes) = rest.get(..needed) else { return Ok(None) };
        let item = parse(bytes)?;
        *at += needed;
        self.body_left -= needed as u32;
        if let Item::Fragment { channel, message_bytes, bytes } = item {
            if bytes == 0 || u64::from(bytes) > message_bytes {
                return Err(WireError::BadFragment);
            }
            if bytes > self.body_left {
                return Err(WireError::RecordPassesPacket);
            }
            self.fragment_channel = channel;
            self.fragment_left = bytes;
        }
        Ok(Some(item))
    }
}

/// Bytes of the record at the start of `rest`, without a fragment's payload;
/// `None` when its header is not there.
fn record_bytes(rest: &[u8]) -> Option<usize> {
    let kind = *rest.first()?;
    let aux = usize::from(u16_at(rest, 2)?);
    let value = u64_at(rest, 8)?;
    Some(match kind {
        KIND_RUN => RECORD_BYTES + (value & u64::from(u32::MAX)) as usize,
        KIND_FRAGMENT => FRAGMENT_HEAD_BYTES,
        KIND_OPEN | KIND_REFUSE | KIND_DESCRIBE => RECORD_BYTES + aux,
        _ => RECORD_BYTES,
    })
}

fn parse(bytes: &[u8]) -> Result<Item<'_>, WireError> {
    let wrong = WireError::RecordPassesPacket;
    let kind = *bytes.first().ok_or(wrong)?;
    let flags = *bytes.get(1).ok_or(wrong)?;
    let channel = u32_at(bytes, 4).ok_or(wrong)?;
    let value = u64_at(bytes, 8).ok_or(wrong)?;
    let tail = bytes.get(RECORD_BYTES..).ok_or(wrong)?;
    Ok(match kind {
        KIND_RUN => Item::Run { channel, messages: (value >> 32) as u32, bytes: tail },
        KIND_FRAGMENT => {
            let bytes = u32_at(tail, 0).ok_or(wrong)?;
            Item::Fragment { channel, message_bytes: value, bytes }
        }
        KIND_OPEN => Item::Open {
            channel,
            lane: if flags & OPEN_EXPRESS == 0 { Lane::Bulk } else { Lane::Express },
            kind: if flags & OPEN_BYTES == 0 { ChannelKind::Typed } else { ChannelKind::Bytes },
            fingerprint: value,
            name: text(tail, CHANNEL_NAME_BYTES_MAX)?,
        },
        KIND_END => Item::End { channel, messages: value },
        KIND_TERMINATE => Item::Terminate { channel },
        KIND_CREDIT => Item::Credit { channel, total: value },
        KIND_OPEN_CREDIT => Item::OpenCredit { total: value },
        KIND_REFUSE => {
            let refusal = match value {
                1 => Refusal::TypeMismatch,
                2 => Refusal::NotAccepted,
                3 => Refusal::KindMismatch,
                _ => return Err(WireError::BadReason),
            };
            Item::Refuse { channel, refusal, text: text(tail, TEXT_BYTES_MAX)? }
        }
        KIND_DESCRIBE => Item::Describe { channel, text: text(tail, TEXT_BYTES_MAX)? },
        KIND_BYE => Item::Bye,
        other => return Err(WireError::UnknownRecord(other)),
    })
}

fn text(bytes: &[u8], bytes_max: usize) -> Result<&str, WireError> {
    if bytes.len() > bytes_max {
        return Err(WireError::BadText);
    }
    std::str::from_utf8(bytes).map_err(|_| WireError::BadText)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests;
