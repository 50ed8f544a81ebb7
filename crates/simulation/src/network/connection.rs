//! A connection: two ends, each with its bytes to send and its received ones.

use super::arrived::Arrived;
use super::ways::Way;
use super::{HostId, Read};
use bytes::BufMut;
use chunkcomm_proto::Time;
use chunkcomm_proto::random::mix;
use std::collections::VecDeque;
use std::ops::Deref;

/// An item that travels from one end to the other.
#[derive(Debug, Clone, Copy)]
pub(super) enum Item {
    /// A dialler asks for a connection.
    Dial,
    /// The connection is open.
    Agree,
    /// The port has no listener.
    Refuse,
    /// The next bytes of the stream.
    Bytes(Frame),
    /// Nothing more is written.
    End,
    /// The connection is gone.
    Reset,
    /// The peer's reader has taken this many bytes in all.
    Consumed(u64),
}

/// The next bytes of a stream, all of one packet.
#[derive(Debug, Clone, Copy)]
pub(super) struct Frame {
    pub(super) bytes: usize,
    pub(super) ends_packet: bool,
}

impl Frame {
    /// Splits off the first bytes, at most this many; returns them, and the rest if there is one.
    pub(super) fn split(self, most: usize) -> (Frame, Option<Frame>) {
        if self.bytes <= most {
            return (self, None);
        }
        let part = Frame { bytes: most, ends_packet: false };
        (part, Some(Frame { bytes: self.bytes - most, ..self }))
    }
}

/// Whether an end is still in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Life {
    /// The connection is not open yet at this end.
    Opening,
    Open,
    /// Its user let go of the end; written bytes are still sent.
    Left,
    /// Nothing leaves the end any more, and nothing reaches it.
    Gone,
}

/// The rest of one write on its way to the wire.
#[derive(Debug)]
struct Packet {
    bytes: usize,
    begun: bool,
}

/// One end of a connection.
#[derive(Debug)]
pub(super) struct End {
    pub(super) host: HostId,
    pub(super) port: u16,
    pub(super) life: Life,
    pub(super) broken: bool,
    pub(super) way: Way,

    /// Bytes written here and not read by the peer. Frames hold none of them: a frame's bytes
    /// arrive in order, up to some byte, or not at all.
    stream: VecDeque<u8>,
    packets: VecDeque<Packet>,
    /// The last packets of these, which the host's I/O thread has not handled.
    packets_held: usize,
    /// Bytes taken from the writer that have not left.
    waiting_bytes: usize,
    sent_bytes: u64,
    consumed_by_peer: u64,
    pub(super) finishing: bool,
    pub(super) finished: bool,
    wants_room: bool,
    /// The end stands in its interface's queue, or the interface works on it.
    pub(super) queued: bool,

    pub(super) arrived: Arrived,
    unread_bytes: usize,
    consumed: u64,
    reported: u64,
    pub(super) ended: bool,

    /// Time before which nothing more arrives here.
    pub(super) last_arrival: Time,
    /// Items that arrived, but are held by a partition or a stall.
    pub(super) held: VecDeque<Item>,
    pub(super) stalled_until: Time,
    /// Bytes sent to this end that still arrive, if not all do.
    arrives_still: Option<usize>,
}

/// Two ends: the dialler's, then the acceptor's.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) ends: [End; 2],
    /// Whether the connection was cut: nothing more enters it.
    pub(super) severed: bool,
}

impl End {
    pub(super) fn new(host: HostId, port: u16, way: Way) -> End {
        End {
            host,
            port,
            life: Life::Opening,
            broken: false,
            way,
            stream: VecDeque::new(),
            packets: VecDeque::new(),
            packets_held: 0,
            waiting_bytes: 0,
            sent_bytes: 0,
            consumed_by_peer: 0,
            finishing: false,
            finished: false,
            wants_room: false,
            queued: false,
            arrived: Arrived::default(),
            unread_bytes: 0,
            consumed: 0,
            reported: 0,
            ended: false,
            last_arrival: Time(0),
            held: VecDeque::new(),
            stalled_until: Time(0),
            arrives_still: None,
        }
    }

    /// Returns how many bytes a writer may hand over; notes that it waits when these are fewer than
    /// `wanted`.
    pub(super) fn take_room(&mut self, wanted: usize) -> usize {
        let room = self.way.spec.queue_bytes - self.waiting_bytes;
        if self.life != Life::Open || (self.wants_room && room < self.wakeful_room()) {
            self.wants_room = true;
            return 0;
        }
        self.wants_room = wanted > room;
        room.min(wanted)
    }

    /// Room from which on a waiting writer is woken: a third, as with sockets. A write for every
    /// frame that left would be a packet each.
    fn wakeful_room(&self) -> usize {
        self.way.spec.queue_bytes.div_ceil(3)
    }

    /// Adds one packet of the first `bytes` of `parts`.
    pub(super) fn push_packet<B: Deref<Target = [u8]>>(&mut self, parts: &[B], bytes: usize) {
        self.waiting_bytes += bytes;
        debug_assert!(self.waiting_bytes <= self.way.spec.queue_bytes);
        let mut left = bytes;
        for part in parts {
            let count = part.len().min(left);
            self.stream.extend(&part[..count]);
            left -= count;
        }
        self.packets.push_back(Packet { bytes, begun: false });
    }

    /// Returns the window's free bytes: bytes on the way or unread at the peer never exceed its
    /// window.
    fn window_left(&self) -> usize {
        let outstanding = self.sent_bytes - self.consumed_by_peer;
        self.way.spec.window_bytes - outstanding as usize
    }

    pub(super) fn has_frame(&self) -> bool {
        self.packets.len() > self.packets_held && self.window_left() > 0
    }

    /// Holds the packet that was just written until the I/O thread has handled it.
    pub(super) fn hold_last_packet(&mut self) {
        self.packets_held += 1;
    }

    pub(super) fn has_held_packet(&self) -> bool {
        self.packets_held > 0
    }

    /// Lets the first held packet go to the interface.
    pub(super) fn release_packet(&mut self) {
        self.packets_held = self.packets_held.saturating_sub(1);
    }

    /// Whether the next frame begins a packet, whose cost is due.
    pub(super) fn begins_packet(&self) -> bool {
        self.packets.front().is_some_and(|packet| !packet.begun)
    }

    /// Returns the bytes of the next frame; 0 when there is none.
    pub(super) fn next_frame_bytes(&self) -> usize {
        let packet = self.packets.front().filter(|_| self.has_frame());
        let most = self.window_left().min(self.way.spec.frame_bytes);
        packet.map_or(0, |packet| most.min(packet.bytes))
    }

    /// Takes the next frame, if there is one, of at most `most` bytes.
    pub(super) fn take_frame(&mut self, most: usize) -> Option<Frame> {
        let bytes = self.next_frame_bytes().min(most);
        if bytes == 0 {
            return None;
        }
        let packet = self.packets.front_mut()?;
        packet.begun = true;
        packet.bytes -= bytes;
        let ends_packet = packet.bytes == 0;
        if ends_packet {
            self.packets.pop_front();
        }
        self.sent_bytes += bytes as u64;
        Some(Frame { bytes, ends_packet })
    }

    /// Notes that a frame left. Returns true when a writer waits for room and there is enough.
    pub(super) fn frame_left(&mut self, bytes: usize) -> bool {
        // Bytes that were cleared meanwhile no longer count.
        self.waiting_bytes = self.waiting_bytes.saturating_sub(bytes);
        self.room_for_waiting()
    }

    /// Returns true, once, when a writer waits for room and there is enough.
    pub(super) fn room_for_waiting(&mut self) -> bool {
        let room = self.way.spec.queue_bytes - self.waiting_bytes;
        let tell = self.wants_room && self.life == Life::Open && room >= self.wakeful_room();
        self.wants_room &= !tell;
        tell
    }

    /// Whether everything written is on the wire.
    pub(super) fn all_left(&self) -> bool {
        self.waiting_bytes == 0
    }

    pub(super) fn has_in_flight(&self) -> bool {
        self.sent_bytes > self.consumed_by_peer
    }

    /// Notes that the peer's reader has taken `total` bytes.
    pub(super) fn peer_consumed(&mut self, total: u64) {
        self.consumed_by_peer = self.consumed_by_peer.max(total);
        debug_assert!(self.consumed_by_peer <= self.sent_bytes);
    }

    /// Returns a digest of this many written bytes, behind the first `skip` that are not read.
    pub(super) fn content(&self, skip: usize, bytes: usize) -> u64 {
        let (front, back) = self.stream.as_slices();
        let end = (skip + bytes).min(self.stream.len());
        let part = |slice: &[u8], at: usize| {
            let from = skip.clamp(at, at + slice.len()) - at;
            let to = end.clamp(at, at + slice.len()) - at;
            (from, to)
        };
        let (first, second) = (part(front, 0), part(back, front.len()));
        let mut digest = bytes as u64;
        let bytes = front[first.0..first.1].iter().chain(&back[second.0..second.1]);
        let mut word = 0_u64;
        for (at, byte) in (1_usize..).zip(bytes) {
            word = word << 8 | u64::from(*byte);
            if at % 8 == 0 {
                digest = mix(digest ^ word);
            }
        }
        mix(digest ^ word)
    }

    /// Notes arrived bytes; returns true when there were none to read before.
    pub(super) fn receive(&mut self, bytes: usize) -> bool {
        let first = self.unread_bytes == 0;
        self.unread_bytes += bytes;
        first
    }

    pub(super) fn has_unread(&self) -> bool {
        self.unread_bytes > 0
    }

    pub(super) fn unread_bytes(&self) -> usize {
        self.unread_bytes
    }

    /// Returns the number of bytes that `peer` sent and that are not here yet.
    pub(super) fn missing_of(&self, peer: &End) -> usize {
        let arrived = self.consumed + (self.unread_bytes + self.arrived.bytes()) as u64;
        (peer.sent_bytes - arrived) as usize
    }

    /// Lets only the next `kept` bytes arrive here from now on.
    pub(super) fn lose(&mut self, kept: usize) {
        let left = self.arrives_still.map_or(kept, |left| left.min(kept));
        self.arrives_still = Some(left);
    }

    /// Whether bytes to this end are lost. Then the peer's end and its reports of read bytes do not
    /// arrive either.
    pub(super) fn has_loss(&self) -> bool {
        self.arrives_still.is_some()
    }

    /// Returns how many of these bytes arrive.
    pub(super) fn before_loss(&mut self, bytes: usize) -> usize {
        let Some(left) = &mut self.arrives_still else { return bytes };
        let bytes = bytes.min(*left);
        *left -= bytes;
        bytes
    }

    /// Reads at most `most` of the bytes that arrived from `peer`.
    fn read(&mut self, peer: &mut End, most: usize, to: &mut impl BufMut) -> Read {
        let count = most.min(self.unread_bytes);
        let (front, back) = peer.stream.as_slices();
        let first = count.min(front.len());
        to.put_slice(&front[..first]);
        to.put_slice(&back[..count - first]);
        peer.stream.drain(..count);
        self.unread_bytes -= count;
        self.consumed += count as u64;
        match count {
            0 if self.unread_bytes == 0 && self.ended => Read::End,
            0 => Read::Nothing,
            count => Read::Bytes(count),
        }
    }

    /// Returns the total to report to the peer's sender, once a quarter of the window was read
    /// since the last report. So the sender never waits for less than that.
    pub(super) fn take_report(&mut self) -> Option<u64> {
        if self.consumed - self.reported < self.report_step() {
            return None;
        }
        self.reported = self.consumed;
        Some(self.consumed)
    }

    /// Returns the bytes that are reported at once: a quarter of the window.
    pub(super) fn report_step(&self) -> u64 {
        (self.way.spec.window_bytes as u64).div_ceil(4)
    }

    /// Forgets the bytes to send that are not on the wire.
    pub(super) fn clear_sending(&mut self) {
        let queued: usize = self.packets.iter().map(|packet| packet.bytes).sum();
        self.stream.truncate(self.stream.len() - queued);
        self.packets.clear();
        self.packets_held = 0;
        self.waiting_bytes = 0;
    }

    /// Makes the end as if it had never been.
    pub(super) fn vanish(&mut self) {
        self.life = Life::Gone;
        self.clear_sending();
        self.unread_bytes = 0;
        self.arrived = Arrived::default();
        self.held.clear();
    }

    /// Whether nothing will come from this end or reach it any more.
    fn is_over(&self) -> bool {
        match self.life {
            Life::Gone => true,
            Life::Left => self.broken || (self.finished && self.ended),
            Life::Opening | Life::Open => false,
        }
    }
}

impl Connection {
    /// Reads at one of the ends.
    pub(super) fn read(&mut self, accepted: bool, most: usize, to: &mut impl BufMut) -> Read {
        let [dialled, other] = &mut self.ends;
        match accepted {
            false => dialled.read(other, most, to),
            true => other.read(dialled, most, to),
        }
    }

    /// Whether neither end needs the connection any more.
    pub(super) fn is_over(&self) -> bool {
        let [one, other] = &self.ends;
        let nobody_hears = |a: &End, b: &End| a.life == Life::Left && b.life == Life::Gone;
        (one.is_over() && other.is_over()) || nobody_hears(one, other) || nobody_hears(other, one)
    }
}
