//! Decoder of packets and records, from bytes that were cut anywhere.

use super::{
    ADDRESS_BYTES, BACKLOG_BYTES, ChannelKind, FLAG_ACK_NOW, FLAG_ELSEWHERE, FRAGMENT_HEAD_BYTES,
    HEADER_BYTES, Header, Item, KIND_BYE, KIND_CONSUMED, KIND_CREDIT, KIND_DESCRIBE, KIND_END,
    KIND_FRAGMENT, KIND_GONE, KIND_MEMORY, KIND_OPEN, KIND_OPEN_CREDIT, KIND_READS, KIND_REFUSE,
    KIND_RUN, KIND_SETTLED, KIND_TERMINATE, KIND_WAIT, Lane, OPEN_BACKLOG, OPEN_BYTES,
    OPEN_EXPRESS, OPEN_STREAM, Opening, RECORD_BYTES, Refusal, SETTLED_LAST, STREAM_BYTES,
    STREAM_NUMBER_MAX, StreamStart, WORD_BYTES, u32_at, u64_at,
};
use crate::cycle::is_chain;
use crate::error::ProtocolError;
use crate::limits::{CHANNEL_NAME_BYTES_MAX, FRAGMENT_BYTES_MAX, TEXT_BYTES_MAX};

/// Finds packets and records in the bytes of a connection, however these were cut.
///
/// Order of calls: [`Decoder::next`] until it returns `None`; then keep the bytes from `at` on,
/// append more, and go on with `at` 0. Bytes of a fragment may instead be read past the
/// decoder: [`Decoder::fragment_left`] returns their number, and [`Decoder::skip_fragment`]
/// notes that they were read. Those of a fragment that is elsewhere are always read so:
/// [`Decoder::elsewhere`] says where they are.
#[derive(Debug, Clone)]
pub struct Decoder {
    body_bytes_max: u32,
    packet: Option<Header>,
    /// Whether the packet's fragment is elsewhere.
    is_elsewhere: bool,
    /// Address of the next byte of such a fragment.
    address: u64,
    body_left: u32,
    fragment_channel: u32,
    fragment_left: u32,
    /// Bytes of the current body to skip: handled on an earlier connection, or not to be
    /// handled at all.
    skip_left: u32,
    /// Packet in which the last connection broke off.
    broken_off: Option<BrokenOff>,
    /// Number up to which packets were received on earlier connections.
    received: u64,
    duplicates: u64,
}

/// A numbered packet of which one part was handled.
#[derive(Debug, Clone, Copy)]
struct BrokenOff {
    header: Header,
    body_left: u32,
    fragment_left: u32,
}

impl Decoder {
    /// Creates a decoder for packets of at most `packet_bytes_max` bytes before the fragment
    /// that may end one.
    #[must_use]
    pub fn new(packet_bytes_max: usize) -> Decoder {
        let bytes = packet_bytes_max + FRAGMENT_HEAD_BYTES + FRAGMENT_BYTES_MAX;
        Decoder {
            body_bytes_max: u32::try_from(bytes).unwrap_or(u32::MAX),
            packet: None,
            is_elsewhere: false,
            address: 0,
            body_left: 0,
            fragment_channel: 0,
            fragment_left: 0,
            skip_left: 0,
            broken_off: None,
            received: 0,
            duplicates: 0,
        }
    }

    /// Notes that the connection is gone, with the bytes that were not handled yet. Packets up
    /// to `received` were handled as a whole. On the next connection the peer begins at the
    /// start of a packet. Of the packet that broke off, the part already handled is skipped.
    pub fn cut(&mut self, received: u64) {
        self.received = received;
        if let Some(header) = self.packet.take()
            && header.sequence > received
            && self.broken_off.is_none()
        {
            let (body_left, fragment_left) = (self.body_left, self.fragment_left);
            self.broken_off = Some(BrokenOff { header, body_left, fragment_left });
        }
        self.body_left = 0;
        self.fragment_left = 0;
        self.skip_left = 0;
    }

    /// Returns the number of packets that came again as a whole and were skipped.
    #[must_use]
    pub fn duplicates(&self) -> u64 {
        self.duplicates
    }

    /// Returns the channel of the current fragment and the number of bytes that it still lacks.
    #[must_use]
    #[inline]
    pub fn fragment_left(&self) -> Option<(u32, u32)> {
        let at_hand = self.fragment_left > 0 && self.skip_left == 0 && !self.is_elsewhere;
        at_hand.then_some((self.fragment_channel, self.fragment_left))
    }

    /// Returns the part of the current fragment that is to be read elsewhere, if it is there.
    #[must_use]
    #[inline]
    pub fn elsewhere(&self) -> Option<Elsewhere> {
        let (channel, address, bytes) = (self.fragment_channel, self.address, self.fragment_left);
        (self.is_elsewhere && bytes > 0).then_some(Elsewhere { channel, address, bytes })
    }

    /// Notes that `bytes` of the current fragment were read elsewhere; at most as many as it
    /// lacked.
    pub fn skip_fragment(&mut self, bytes: u32) {
        let bytes = bytes.min(self.fragment_left);
        self.fragment_left -= bytes;
        self.body_left = self.body_left.saturating_sub(bytes);
        self.address = self.address.wrapping_add(u64::from(bytes));
    }

    /// Returns the bytes, from the start of `rest` on, that `next` needs for its next item; for
    /// choosing a buffer.
    #[must_use]
    #[inline]
    pub fn wants(&self, rest: &[u8]) -> usize {
        if self.fragment_left > 0 || self.skip_left > 0 {
            return 1;
        }
        match self.packet {
            None => HEADER_BYTES,
            Some(_) => self.record_bytes(rest).unwrap_or(RECORD_BYTES),
        }
    }

    /// Returns the next item in `input` from `at` on and moves `at` behind it; `None` when more
    /// bytes are needed, or those of [`Decoder::elsewhere`].
    ///
    /// # Errors
    ///
    /// The peer's bytes are no packet. The connection is of no use any more.
    #[inline]
    pub fn next<'a>(
        &mut self,
        input: &'a [u8],
        at: &mut usize,
    ) -> Result<Option<Item<'a>>, ProtocolError> {
        if self.skip_left > 0 && !self.skip(input, at) {
            return Ok(None);
        }
        let rest = input.get(*at..).unwrap_or(&[]);
        if self.fragment_left > 0 {
            if self.is_elsewhere {
                return Ok(None);
            }
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

    #[inline]
    fn header<'a>(
        &mut self,
        rest: &[u8],
        at: &mut usize,
    ) -> Result<Option<Item<'a>>, ProtocolError> {
        let Some(header) = rest.get(..HEADER_BYTES).and_then(Header::decode) else {
            return Ok(None);
        };
        if header.body_bytes > self.body_bytes_max {
            return Err(ProtocolError::PacketTooLarge {
                bytes: header.body_bytes,
                bytes_max: self.body_bytes_max,
            });
        }
        *at += HEADER_BYTES;
        self.is_elsewhere = header.flags & FLAG_ELSEWHERE != 0;
        if self.is_elsewhere && (self.came_before(&header) || self.broken_off.is_some()) {
            return Err(ProtocolError::ElsewhereAgain { sequence: header.sequence });
        }
        let header = Header { flags: header.flags & !FLAG_ELSEWHERE, ..header };
        self.packet = Some(header);
        self.body_left = header.body_bytes;
        if self.came_before(&header) {
            return Ok(Some(self.repeated(header)));
        }
        if let Some(broken_off) = self.broken_off.filter(|_| header.sequence != 0) {
            self.go_on(header, broken_off)?;
        }
        Ok(Some(Item::Packet(header)))
    }

    #[cold]
    #[inline(never)]
    fn repeated<'a>(&mut self, header: Header) -> Item<'a> {
        self.duplicates += 1;
        self.packet = None;
        self.skip_left = std::mem::take(&mut self.body_left);
        Item::Repeated(header)
    }

    /// Whether the packet was received as a whole on an earlier connection.
    #[inline]
    fn came_before(&self, header: &Header) -> bool {
        header.sequence != 0 && header.sequence <= self.received
    }

    /// Goes on where the last connection broke off.
    #[cold]
    #[inline(never)]
    fn go_on(&mut self, header: Header, broken_off: BrokenOff) -> Result<(), ProtocolError> {
        if header != broken_off.header {
            return Err(ProtocolError::OtherPacket { sequence: header.sequence });
        }
        self.broken_off = None;
        self.skip_left = header.body_bytes - broken_off.body_left;
        self.body_left = broken_off.body_left;
        self.fragment_left = broken_off.fragment_left;
        Ok(())
    }

    /// Skips bytes that are not to be handled; true when all are skipped.
    #[cold]
    #[inline(never)]
    fn skip(&mut self, input: &[u8], at: &mut usize) -> bool {
        let there = input.len().saturating_sub(*at);
        let bytes = there.min(self.skip_left as usize);
        *at += bytes;
        self.skip_left -= bytes as u32;
        self.skip_left == 0
    }

    #[inline(never)]
    fn fragment_bytes<'a>(&mut self, rest: &'a [u8], at: &mut usize) -> Option<Item<'a>> {
        let bytes = rest.get(..rest.len().min(self.fragment_left as usize))?;
        if bytes.is_empty() {
            return None;
        }
        *at += bytes.len();
        self.skip_fragment(bytes.len() as u32);
        Some(Item::FragmentBytes { channel: self.fragment_channel, bytes })
    }

    #[inline]
    fn record<'a>(
        &mut self,
        rest: &'a [u8],
        at: &mut usize,
    ) -> Result<Option<Item<'a>>, ProtocolError> {
        if (self.body_left as usize) < RECORD_BYTES {
            return Err(ProtocolError::RecordPassesPacket);
        }
        let Some(needed) = record_bytes(rest) else { return Ok(None) };
        if needed > self.body_left as usize {
            return Err(ProtocolError::RecordPassesPacket);
        }
        let Some(bytes) = rest.get(..needed) else { return Ok(None) };
        let item = match bytes[0] {
            KIND_RUN => parse_run(bytes),
            KIND_FRAGMENT if self.is_elsewhere => {
                let Some(address) = u64_at(rest, needed) else { return Ok(None) };
                self.address = address;
                *at += ADDRESS_BYTES;
                parse(bytes)?
            }
            _ => parse(bytes)?,
        };
        *at += needed;
        self.body_left -= needed as u32;
        if let Item::Fragment { channel, message_bytes, bytes } = item {
            if bytes == 0 || u64::from(bytes) > message_bytes {
                return Err(ProtocolError::BadFragment);
            }
            if bytes > self.body_left || self.is_elsewhere && bytes != self.body_left {
                return Err(ProtocolError::RecordPassesPacket);
            }
            self.fragment_channel = channel;
            self.fragment_left = bytes;
        }
        Ok(Some(item))
    }

    /// As the function of that name, with the address of a fragment that is elsewhere.
    #[inline]
    fn record_bytes(&self, rest: &[u8]) -> Option<usize> {
        let address = self.is_elsewhere && rest.first() == Some(&KIND_FRAGMENT);
        Some(record_bytes(rest)? + if address { ADDRESS_BYTES } else { 0 })
    }
}

/// A part of a fragment, in the memory of the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Elsewhere {
    /// The peer's number of the channel.
    pub channel: u32,
    /// Address of the first byte.
    pub address: u64,
    /// Number of bytes, at least one.
    pub bytes: u32,
}

/// Returns the bytes of the record at the start of `rest`, without a fragment's payload; `None`
/// when its header is not there.
#[inline]
fn record_bytes(rest: &[u8]) -> Option<usize> {
    let kind = *rest.first()?;
    let aux = usize::from(u16_at(rest, 2)?);
    let value = u64_at(rest, 8)?;
    Some(match kind {
        KIND_RUN => RECORD_BYTES + (value & u64::from(u32::MAX)) as usize,
        KIND_FRAGMENT => FRAGMENT_HEAD_BYTES,
        KIND_OPEN => RECORD_BYTES + open_extra(*rest.get(1)?).iter().sum::<usize>() + aux,
        KIND_REFUSE | KIND_DESCRIBE | KIND_WAIT => RECORD_BYTES + aux,
        KIND_MEMORY => RECORD_BYTES + WORD_BYTES,
        _ => RECORD_BYTES,
    })
}

/// Returns the bytes of the stream and of the backlog in an open with these flags.
fn open_extra(flags: u8) -> [usize; 2] {
    let bytes_of = |flag, bytes| if flags & flag == 0 { 0 } else { bytes };
    [bytes_of(OPEN_STREAM, STREAM_BYTES), bytes_of(OPEN_BACKLOG, BACKLOG_BYTES)]
}

#[inline(always)]
fn parse_run(bytes: &[u8]) -> Item<'_> {
    let (head, run) = bytes.split_at(RECORD_BYTES);
    let channel = u32_at(head, 4).unwrap_or_default();
    let messages = u32_at(head, 12).unwrap_or_default();
    Item::Run { channel, messages, bytes: run }
}

#[inline(never)]
fn parse(bytes: &[u8]) -> Result<Item<'_>, ProtocolError> {
    let wrong = ProtocolError::RecordPassesPacket;
    let kind = *bytes.first().ok_or(wrong)?;
    let flags = *bytes.get(1).ok_or(wrong)?;
    let channel = u32_at(bytes, 4).ok_or(wrong)?;
    let value = u64_at(bytes, 8).ok_or(wrong)?;
    let tail = bytes.get(RECORD_BYTES..).ok_or(wrong)?;
    Ok(match kind {
        KIND_RUN => parse_run(bytes),
        KIND_FRAGMENT => {
            let bytes = u32_at(tail, 0).ok_or(wrong)?;
            Item::Fragment { channel, message_bytes: value, bytes }
        }
        KIND_OPEN => {
            let [stream, backlog] = open_extra(flags);
            let (stream, tail) = tail.split_at_checked(stream).ok_or(wrong)?;
            let (backlog, name) = tail.split_at_checked(backlog).ok_or(wrong)?;
            Item::Open(Box::new(Opening {
                channel,
                lane: if flags & OPEN_EXPRESS == 0 { Lane::Bulk } else { Lane::Express },
                kind: if flags & OPEN_BYTES == 0 { ChannelKind::Typed } else { ChannelKind::Bytes },
                fingerprint: value,
                stream: if stream.is_empty() { None } else { Some(parse_stream(stream)?) },
                backlog: u64_at(backlog, 0),
                name: text(name, CHANNEL_NAME_BYTES_MAX)?,
            }))
        }
        KIND_END => Item::End { channel, messages: value },
        KIND_TERMINATE => Item::Terminate { channel },
        KIND_CREDIT => Item::Credit { channel, total: value },
        KIND_OPEN_CREDIT => Item::OpenCredit { total: value },
        KIND_REFUSE => {
            let refusal = match value {
                1 => Refusal::TypeMismatch,
                2 => Refusal::NotAccepted,
                3 => Refusal::KindMismatch,
                _ => return Err(ProtocolError::BadReason),
            };
            Item::Refuse { channel, refusal, text: text(tail, TEXT_BYTES_MAX)? }
        }
        KIND_DESCRIBE => Item::Describe { channel, text: text(tail, TEXT_BYTES_MAX)? },
        KIND_BYE => Item::Bye,
        KIND_GONE => Item::Gone,
        KIND_WAIT if is_chain(tail) => Item::Wait { number: value, chain: tail },
        KIND_WAIT => return Err(ProtocolError::BadChain),
        KIND_SETTLED => Item::Settled { channel, total: value, last: flags & SETTLED_LAST != 0 },
        KIND_CONSUMED => Item::Consumed { channel, total: value },
        KIND_MEMORY => {
            let word = tail.try_into().map_err(|_| wrong)?;
            Item::Memory { address: value, word: u128::from_le_bytes(word) }
        }
        KIND_READS => Item::Reads,
        other => return Err(ProtocolError::UnknownRecord(other)),
    })
}

fn parse_stream(bytes: &[u8]) -> Result<StreamStart, ProtocolError> {
    let wrong = ProtocolError::RecordPassesPacket;
    let id = bytes.get(..16).and_then(|id| id.try_into().ok()).ok_or(wrong)?;
    let first = u64_at(bytes, 16).ok_or(wrong)?;
    let sent_before = u64_at(bytes, 24).ok_or(wrong)?;
    if first > STREAM_NUMBER_MAX || sent_before > STREAM_NUMBER_MAX {
        return Err(ProtocolError::BadStream);
    }
    Ok(StreamStart { id: u128::from_le_bytes(id), first, sent_before })
}

fn text(bytes: &[u8], bytes_max: usize) -> Result<&str, ProtocolError> {
    if bytes.len() > bytes_max {
        return Err(ProtocolError::BadText);
    }
    std::str::from_utf8(bytes).map_err(|_| ProtocolError::BadText)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}
