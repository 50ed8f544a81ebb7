//! From staged channels to packets: which channels, how much of each.
//!
//! What goes first is decided when a packet is filled, not when a message was
//! staged. Express channels go before bulk ones, but one packet in
//! [`BULK_FIRST_EVERY`] begins with bulk; within a lane channels take turns, each
//! with at most its share of the packet. Credit is spent here: a channel whose
//! credit is used up leaves its turn until more comes, and its producer waits
//! when its ring is full.

mod filling;

use super::flush::{FlushCounts, FlushReason, Gathering, Pending, Policy, Verdict};
use super::ids::IdMap;
use super::limits::WINDOW_BYTES_INITIAL;
use super::packet::{ChannelKind, Lane, RECORD_BYTES};
use super::planted;
use super::session::{Carried, Session};
use super::{Time, packet};
use bytes::Bytes;
use filling::{Put, Putting};
use std::collections::VecDeque;

/// One packet in so many begins with the bulk lane while both lanes wait.
pub const BULK_FIRST_EVERY: u64 = 16;

/// A channel's share of a packet is at least this, so that many channels do not
/// cut packets into crumbs.
const SHARE_BYTES_MIN: usize = 2 * 1024;

/// What a channel has staged: whole messages with their prefixes, cut once
/// where the ring wraps.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    /// The first bytes.
    pub front: &'a [u8],
    /// The bytes after them.
    pub back: &'a [u8],
    /// Number of messages in both, marks of large ones included.
    pub messages: u32,
    /// There may be marks of large messages among them.
    pub large: bool,
}

/// The rings of the channels, as the outbox sees them.
pub trait Staged {
    /// What `channel` has staged.
    fn view(&mut self, channel: u32) -> View<'_>;
    /// The first `bytes` with `messages` of it were taken. Called with zeros when
    /// the channel was found empty.
    fn consume(&mut self, channel: u32, bytes: usize, messages: u32);
    /// The large message whose mark was just consumed.
    fn take_large(&mut self, channel: u32) -> Bytes;
}

/// How a channel begins.
#[derive(Debug, Clone)]
pub struct OpenSpec {
    /// Its lane.
    pub lane: Lane,
    /// Typed values or bytes.
    pub kind: ChannelKind,
    /// Of the type.
    pub fingerprint: u64,
    /// At most 255 bytes.
    pub name: String,
}

/// Counters of a channel; a plain value.
#[derive(Debug, Clone, Copy, Default)]
pub struct ChannelCounters {
    /// Bytes of its messages on the wire, their prefixes included.
    pub bytes: u64,
    /// Packets with messages of it.
    pub packets: u64,
    /// Writes that these packets took.
    pub writes: u64,
    /// Most of its messages in one packet.
    pub messages_per_packet_max: u64,
    /// Sum over these packets of how long its oldest message waited.
    pub queueing_us_total: u64,
    /// Longest of these.
    pub queueing_us_max: u64,
    /// Waits for credit.
    pub credit_waits: u64,
    /// These packets by the reason why they left.
    pub flushes: FlushCounts,
}

/// What keeps a channel from sending.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Blocked {
    /// Nothing.
    #[default]
    No,
    /// Its credit is used up.
    Credit,
    /// Its open waits for credit.
    Open,
}

/// How a channel stands.
#[derive(Debug, Clone, Copy, Default)]
pub struct ChannelState {
    /// What keeps it from sending.
    pub blocked: Blocked,
    /// Bytes that it may still send.
    pub credit_bytes: u64,
    /// When the oldest message that is staged was.
    pub oldest: Time,
}

#[derive(Debug)]
struct Channel {
    counters: ChannelCounters,
    spec: OpenSpec,
    opened: bool,
    /// There was open credit for it.
    admitted: bool,
    credit: u64,
    sent_bytes: u64,
    sent_messages: u64,
    large: Option<Large>,
    /// In a lane's queue.
    queued: bool,
    /// Staged, but without credit for it.
    blocked: bool,
    oldest: Time,
    urgent_until: u64,
    explicit_until: u64,
    /// A message waits for room behind this many.
    fit_until: u64,
    end: Option<u64>,
    /// It ends when nothing is staged any more.
    end_when_drained: bool,
    /// Its end was put in a packet.
    ended: bool,
    /// The packet that it had a turn in last, and the messages and bytes that it
    /// had sent before.
    turn: u64,
    before: (u64, u64),
}

#[derive(Debug)]
struct Large {
    bytes: Bytes,
    offset: usize,
}

impl Channel {
    /// True at its first turn in `packet`.
    fn begins(&mut self, packet: u64) -> bool {
        let begins = self.turn != packet;
        if begins {
            self.turn = packet;
            self.before = (self.sent_messages, self.sent_bytes);
        }
        begins
    }

    /// Counts its turns in a packet; false when they put nothing in.
    fn count(&mut self, now: Time) -> bool {
        let counters = &mut self.counters;
        let (messages, bytes) =
            (self.sent_messages - self.before.0, self.sent_bytes - self.before.1);
        if bytes == 0 {
            return false;
        }
        let waited = now.micros_since(self.oldest);
        counters.bytes += bytes;
        counters.packets += 1;
        counters.messages_per_packet_max = counters.messages_per_packet_max.max(messages);
        counters.queueing_us_total += waited;
        counters.queueing_us_max = counters.queueing_us_max.max(waited);
        true
    }
}

/// What filling a packet came to.
#[derive(Debug, Default)]
pub struct Filled {
    /// When it was filled.
    pub at: Time,
    /// Bytes that end the packet, without copy.
    pub tail: Option<Bytes>,
    /// Messages that were completed in it.
    pub messages: u32,
    /// Something did not fit.
    pub fit: bool,
    /// Things noted in the session for it.
    pub entries: u32,
    /// When the oldest message in it was staged.
    pub oldest: Option<Time>,
}

/// The sending side of a link. Order of calls: [`Outbox::open`],
/// [`Outbox::staged`], [`Outbox::urgent`], [`Outbox::end`] and the like as they
/// happen; [`Outbox::decide`] and, when a packet is to leave, [`Outbox::fill`].
#[derive(Debug)]
pub struct Outbox {
    channels: IdMap<Channel>,
    express: VecDeque<u32>,
    bulk: VecDeque<u32>,
    /// Opens that wait for credit.
    unopened: VecDeque<u32>,
    open_credit: u64,
    next_channel: u32,
    packets: u64,
    gathering: Gathering,
    packet_room: usize,
    closing: bool,
    credit_waits: u64,
    /// What the packet that was filled last carries.
    carried: Vec<Carried>,
    /// The channels with bytes in it, until its writes are counted.
    turns: Vec<u32>,
    pending_bytes: usize,
}

impl Outbox {
    /// Nothing to send. `packet_room` is what a packet holds behind its header;
    /// the peer allows `open_credit` bytes of initial windows.
    #[must_use]
    pub fn new(gathering: Gathering, packet_room: usize, open_credit: u64) -> Outbox {
        Outbox {
            channels: IdMap::default(),
            express: VecDeque::new(),
            bulk: VecDeque::new(),
            unopened: VecDeque::new(),
            open_credit,
            next_channel: 1,
            packets: 0,
            gathering,
            packet_room,
            closing: false,
            credit_waits: 0,
            carried: Vec::new(),
            turns: Vec::new(),
            pending_bytes: 0,
        }
    }

    /// How often a channel had to wait for credit.
    #[must_use]
    pub fn credit_waits(&self) -> u64 {
        self.credit_waits
    }

    /// Begins a channel; its `Open` travels with its first data.
    pub fn open(&mut self, spec: OpenSpec, now: Time) -> u32 {
        let id = self.next_channel;
        self.next_channel += 1;
        let channel = Channel {
            counters: ChannelCounters::default(),
            spec,
            opened: false,
            admitted: false,
            credit: 0,
            sent_bytes: 0,
            sent_messages: 0,
            large: None,
            queued: false,
            blocked: false,
            oldest: now,
            urgent_until: 0,
            explicit_until: 0,
            fit_until: 0,
            end: None,
            end_when_drained: false,
            ended: false,
            turn: 0,
            before: (0, 0),
        };
        self.channels.insert(id, channel);
        self.unopened.push_back(id);
        self.admit_opens();
        id
    }

    /// The peer allows initial windows of `total` bytes since the session began.
    pub fn handle_open_credit(&mut self, total: u64, opened_before: u64) {
        self.open_credit = self.open_credit.max(total.saturating_sub(opened_before));
        self.admit_opens();
    }

    /// Bytes of initial windows that are still free; for tests of the invariant.
    #[must_use]
    pub fn open_credit(&self) -> u64 {
        self.open_credit
    }

    /// Channels whose open waits for credit.
    #[must_use]
    pub fn unopened(&self) -> usize {
        self.unopened.len()
    }

    fn admit_opens(&mut self) {
        while self.open_credit >= WINDOW_BYTES_INITIAL {
            let Some(id) = self.unopened.pop_front() else { return };
            let Some(channel) = self.channels.get_mut(&id) else { continue };
            self.open_credit -= WINDOW_BYTES_INITIAL;
            channel.admitted = true;
            channel.credit = channel.credit.max(WINDOW_BYTES_INITIAL);
            channel.blocked = false;
            self.enqueue(id);
        }
    }

    fn enqueue(&mut self, id: u32) {
        let Some(channel) = self.channels.get_mut(&id) else { return };
        if !channel.queued && !channel.blocked && channel.admitted {
            channel.queued = true;
            match channel.spec.lane {
                Lane::Express => self.express.push_back(id),
                Lane::Bulk => self.bulk.push_back(id),
            }
        }
    }

    /// `channel` staged something where there was nothing, at `at`.
    pub fn staged(&mut self, channel: u32, at: Time) {
        if let Some(entry) = self.channels.get_mut(&channel) {
            // Queued for its open alone, it has nothing older.
            entry.oldest = if entry.queued { entry.oldest.min(at) } else { at };
            self.enqueue(channel);
        }
    }

    /// As `staged`; the writer was woken for `bytes` of it, behind everything that
    /// was runnable.
    pub fn woken_for(&mut self, channel: u32, at: Time, bytes: usize) {
        self.gathering.woken_for(bytes);
        self.staged(channel, at);
    }

    /// A message waits for room behind the messages of `channel` up to number
    /// `until`.
    pub fn no_room(&mut self, channel: u32, until: u64, at: Time) {
        if let Some(entry) = self.channels.get_mut(&channel) {
            entry.fit_until = entry.fit_until.max(until);
        }
        self.staged(channel, at);
    }

    /// The messages of `channel` up to number `until` are to leave at once.
    pub fn urgent(&mut self, channel: u32, until: u64, at: Time) {
        if let Some(entry) = self.channels.get_mut(&channel) {
            entry.urgent_until = entry.urgent_until.max(until);
        }
        self.staged(channel, at);
    }

    /// The caller asked for the messages of `channel` up to number `until`.
    pub fn explicit(&mut self, channel: u32, until: u64, at: Time) {
        if let Some(entry) = self.channels.get_mut(&channel) {
            entry.explicit_until = entry.explicit_until.max(until);
        }
        self.staged(channel, at);
    }

    /// `channel`, if its end was not sent yet: what ends it at both sides may
    /// cross, and an end is sent once.
    fn open_channel(&mut self, channel: u32) -> Option<&mut Channel> {
        self.channels.get_mut(&channel).filter(|entry| !entry.ended)
    }

    /// `channel` ends after `messages` in all.
    pub fn end(&mut self, channel: u32, messages: u64, at: Time) {
        if let Some(entry) = self.open_channel(channel) {
            // One that was terminated ends with what was sent.
            entry.end.get_or_insert(messages);
            self.staged(channel, at);
        }
    }

    /// `channel` ends after what is staged now.
    pub fn end_when_drained(&mut self, channel: u32, at: Time) {
        if let Some(entry) = self.open_channel(channel) {
            entry.end_when_drained = true;
            self.staged(channel, at);
        }
    }

    /// `channel` was refused or its end is known to have arrived.
    pub fn remove(&mut self, channel: u32) {
        self.channels.remove(&channel);
        self.express.retain(|id| *id != channel);
        self.bulk.retain(|id| *id != channel);
        self.unopened.retain(|id| *id != channel);
    }

    /// The receiver of `channel` is gone: what is staged is dropped, the end is
    /// sent. Says whether the channel was known.
    pub fn terminate(&mut self, channel: u32, at: Time) -> bool {
        let known = self.channels.contains_key(&channel);
        let Some(entry) = self.open_channel(channel) else { return known };
        entry.large = None;
        entry.end = Some(entry.sent_messages);
        entry.blocked = false;
        entry.credit = entry.credit.max(entry.sent_bytes + 1);
        self.staged(channel, at);
        true
    }

    /// Everything that is staged leaves; nothing more will come.
    pub fn close(&mut self) {
        self.closing = true;
    }

    /// `channel` may send `total` bytes since it began.
    pub fn handle_credit(&mut self, channel: u32, total: u64) {
        if let Some(entry) = self.channels.get_mut(&channel) {
            entry.credit = entry.credit.max(total);
            if planted::is!(CreditAsDelta) {
                entry.credit += total;
            }
            entry.blocked = false;
            if entry.admitted {
                self.enqueue(channel);
            }
        }
    }

    /// Messages of `channel` that were put in packets so far.
    #[must_use]
    pub fn sent_messages(&self, channel: u32) -> u64 {
        self.channels.get(&channel).map_or(0, |entry| entry.sent_messages)
    }

    /// A large message of `channel` is on its way in fragments.
    #[must_use]
    pub fn in_fragments(&self, channel: u32) -> bool {
        self.channels.get(&channel).is_some_and(|entry| entry.large.is_some())
    }

    /// The packet that was filled last left for `reason`.
    pub fn count_flush(&mut self, reason: FlushReason) {
        let mut last = None;
        for carried in &self.carried {
            // A channel's entries follow each other.
            if last.replace(carried.channel) != Some(carried.channel)
                && let Some(channel) = self.channels.get_mut(&carried.channel)
            {
                channel.counters.flushes.add(reason);
            }
        }
    }

    /// The packet that was filled last took so many writes.
    pub fn count_writes(&mut self, writes: u64) {
        for channel in self.turns.drain(..) {
            if let Some(channel) = self.channels.get_mut(&channel) {
                channel.counters.writes += writes;
            }
        }
    }

    /// How `channel` stands.
    #[must_use]
    pub fn state(&self, channel: u32) -> ChannelState {
        let Some(entry) = self.channels.get(&channel) else { return ChannelState::default() };
        ChannelState {
            blocked: match (entry.admitted, entry.blocked) {
                (false, _) => Blocked::Open,
                (true, true) => Blocked::Credit,
                (true, false) => Blocked::No,
            },
            credit_bytes: entry.credit.saturating_sub(entry.sent_bytes),
            oldest: entry.oldest,
        }
    }

    /// The counters of `channel`, while it lasts.
    #[must_use]
    pub fn counters(&self, channel: u32) -> Option<ChannelCounters> {
        self.channels.get(&channel).map(|entry| entry.counters)
    }

    /// What the packet that was filled last carries.
    #[must_use]
    pub fn carried(&self) -> &[Carried] {
        &self.carried
    }

    /// Nothing is queued to be sent.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.express.is_empty() && self.bulk.is_empty()
    }

    /// Every channel has ended, and its end was put in a packet: also those that
    /// wait for credit have nothing left.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.channels.values().all(|channel| channel.ended)
    }

    /// Channels that exist, ended ones until their end is acknowledged.
    #[must_use]
    pub fn channels(&self) -> usize {
        self.channels.len()
    }

    /// Bytes that waited when [`Outbox::decide`] was asked last.
    #[must_use]
    pub fn pending_bytes(&self) -> usize {
        self.pending_bytes
    }

    /// A channel has something staged and no credit for it.
    #[must_use]
    pub fn waits_for_credit(&self) -> bool {
        !self.unopened.is_empty() || self.channels.values().any(|channel| channel.blocked)
    }

    /// Should a packet leave? `None` when nothing waits.
    pub fn decide(&mut self, staged: &mut impl Staged, now: Time) -> Option<Verdict> {
        let pending = self.pending(staged)?;
        self.pending_bytes = pending.bytes;
        Some(self.gathering.decide(&pending, now))
    }

    fn pending(&self, staged: &mut impl Staged) -> Option<Pending> {
        if self.is_idle() {
            return None;
        }
        let mut pending = Pending {
            room: self.packet_room - RECORD_BYTES,
            oldest: Time(u64::MAX),
            closing: self.closing,
            ..Pending::default()
        };
        let mut any = false;
        for id in self.express.iter().chain(&self.bulk) {
            let Some(channel) = self.channels.get(id) else { continue };
            any = true;
            let view = staged.view(*id);
            let credit = channel.credit - channel.sent_bytes;
            let bytes = (view.front.len() + view.back.len()).min(credit as usize);
            pending.bytes += bytes + usize::from(!channel.opened) * RECORD_BYTES;
            pending.large |= channel.large.is_some() || view.large;
            pending.urgent |= channel.urgent_until > channel.sent_messages;
            pending.explicit |= channel.explicit_until > channel.sent_messages;
            pending.fit |= channel.fit_until > channel.sent_messages;
            pending.closing |= channel.end.is_some() || channel.end_when_drained;
            pending.oldest = pending.oldest.min(channel.oldest);
        }
        any.then_some(pending)
    }

    /// Fills `head` up to `bytes_max` in all; what it carries is noted in
    /// `session`.
    pub fn fill(
        &mut self,
        staged: &mut impl Staged,
        session: &mut Session,
        head: &mut Vec<u8>,
        bytes_max: usize,
        now: Time,
    ) -> Filled {
        self.packets += 1;
        self.carried.clear();
        self.turns.clear();
        let bulk_first = self.packets.is_multiple_of(BULK_FIRST_EVERY);
        let lanes =
            if bulk_first { [Lane::Bulk, Lane::Express] } else { [Lane::Express, Lane::Bulk] };
        let mut filled = Filled { at: now, ..Filled::default() };
        for lane in lanes {
            if self.fill_lane(lane, staged, session, head, bytes_max, &mut filled) {
                break;
            }
        }
        let channels = &mut self.channels;
        self.turns.retain(|id| channels.get_mut(id).is_some_and(|channel| channel.count(now)));
        self.gathering.left(filled.messages, now);
        filled
    }

    /// True when the packet is to be closed.
    fn fill_lane(
        &mut self,
        lane: Lane,
        staged: &mut impl Staged,
        session: &mut Session,
        head: &mut Vec<u8>,
        bytes_max: usize,
        filled: &mut Filled,
    ) -> bool {
        let queue = if lane == Lane::Express { &self.express } else { &self.bulk };
        // The same for all, whoever is first.
        let share =
            (bytes_max.saturating_sub(head.len()) / queue.len().max(1)).max(SHARE_BYTES_MIN);
        loop {
            let queue = if lane == Lane::Express { &mut self.express } else { &mut self.bulk };
            let Some(id) = queue.pop_front() else { return false };
            let Some(channel) = self.channels.get_mut(&id) else { continue };
            if channel.begins(self.packets) {
                self.turns.push(id);
            }
            let mut put = Putting {
                id,
                channel,
                staged,
                session,
                carried: &mut self.carried,
                one: self.gathering.policy() == Policy::Unbuffered,
                filled,
            };
            let outcome = put.put(head, bytes_max, share);
            let again = match outcome {
                Put::Done { more } => more && !channel.blocked,
                Put::NoRoom | Put::Tail(_) => true,
            };
            self.credit_waits += u64::from(channel.blocked);
            channel.counters.credit_waits += u64::from(channel.blocked);
            channel.queued = again;
            if again {
                let queue = if lane == Lane::Express { &mut self.express } else { &mut self.bulk };
                match outcome {
                    Put::NoRoom => queue.push_front(id),
                    _ => queue.push_back(id),
                }
            }
            match outcome {
                Put::NoRoom => {
                    filled.fit = true;
                    return true;
                }
                Put::Tail(tail) => {
                    filled.tail = Some(tail);
                    return true;
                }
                Put::Done { .. } => {}
            }
            if self.gathering.policy() == Policy::Unbuffered && filled.messages > 0 {
                return true;
            }
        }
    }
}

/// What a packet of `packet_bytes_max` holds behind its header.
#[must_use]
pub fn packet_room(packet_bytes_max: usize) -> usize {
    packet_bytes_max - packet::HEADER_BYTES
}

#[cfg(test)]
pub(super) mod tests;
