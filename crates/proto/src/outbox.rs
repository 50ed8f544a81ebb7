//! From staged channels to packets: the choice of channels, and how much of each.
//!
//! The order is decided when a packet is filled, not when a message was staged. Express
//! channels go before bulk ones, but now and then a packet begins with bulk. Within a lane,
//! channels share by the bytes that they got ([`shares`](super::tuning::shares)). A turn is at
//! most a share of the packet, and the system's own channels go before the others.
//!
//! Credit is spent here: a channel without credit leaves its turn until more comes. Its
//! producer waits when its ring is full.

mod channel;
mod deciding;
mod filling;
mod lanes;
mod longs;

pub use channel::{Blocked, ChannelCounters, ChannelState, OpenSpec};
pub use lanes::Filled;

use super::ids::IdMap;
use super::limits::WINDOW_BYTES_INITIAL;
use super::packet::Lane;
use super::session::Carried;
use super::tuning::flush::Gathering;
use super::tuning::shares::{Queue, Shares};
use super::tuning::sharing::{Sharing, Turns};
use super::tuning::without::Without;
use super::{Time, packet};
use bytes::Bytes;
use channel::Channel;
use longs::Longs;
use std::collections::VecDeque;

/// The messages that a channel has staged: whole ones with their prefixes, cut once where the
/// ring wraps.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    /// The first bytes.
    pub front: &'a [u8],
    /// The bytes after them.
    pub back: &'a [u8],
    /// Number of messages in both, marks of large ones included.
    pub messages: u32,
    /// Whether marks of large messages may be among them.
    pub large: bool,
}

/// Bytes that lie beside a channel's ring, with a mark in it.
#[derive(Debug, Clone)]
pub enum Beside {
    /// A large message, which leaves in fragments.
    Large(Bytes),
    /// Messages, each behind its prefix, that other channels share, and their number. Staged only where
    /// packets may have [`PACKET_BYTES_DEFAULT`](super::limits::PACKET_BYTES_DEFAULT), and without a message
    /// above [`INLINE_BYTES_MAX`](super::limits::INLINE_BYTES_MAX).
    Run(Bytes, u32),
}

/// The rings of the channels, as the outbox sees them.
pub trait Staged {
    /// Returns the messages that `channel` has staged.
    fn view(&mut self, channel: u32) -> View<'_>;
    /// Removes the first `bytes` with their `messages`, which were taken. Called with zeros
    /// when the channel was found empty.
    fn consume(&mut self, channel: u32, bytes: usize, messages: u32);
    /// Takes the bytes whose mark is next, and the mark, which counts their messages.
    fn take_beside(&mut self, channel: u32) -> Beside;
    /// Takes a channel in which more was staged than was consumed; `None` when there is none left.
    fn restaged(&mut self) -> Option<u32> {
        None
    }
    /// Returns how many messages of its stream the receiver of the peer's `channel` has settled;
    /// `None` if it tells of each. If `ask`, it is to tell when it next settles more.
    fn settled(&mut self, _channel: u32, _ask: bool) -> Option<u64> {
        None
    }
}

/// The sending side of a link. Order of calls: [`Outbox::open`],
/// [`Outbox::staged`], [`Outbox::urgent`], [`Outbox::end`] and the like as they
/// happen; [`Outbox::decide`] and, when a packet is to leave, [`Outbox::fill`].
#[derive(Debug)]
pub struct Outbox {
    channels: IdMap<Channel>,
    express: Queue,
    bulk: Queue,
    /// Opens that wait for credit.
    unopened: VecDeque<u32>,
    /// Number of channels that have something staged and no credit for it.
    blocked: usize,
    /// Number of channels whose end was not put in a packet.
    unended: usize,
    open_credit: u64,
    next_channel: u32,
    shares: Shares,
    gathering: Gathering,
    packet_room: usize,
    closing: bool,
    credit_waits: u64,
    /// Messages and ends in the packet that was filled last.
    carried: Vec<Carried>,
    /// Channels with bytes in that packet, until its writes are counted.
    turns: Vec<u32>,
    longs: Longs,
    pending_bytes: usize,
    /// Bytes that bulk may put in the next packet.
    bulk_room: usize,
    latest: Turns,
}

impl Outbox {
    /// Creates an outbox with nothing to send. A packet holds `packet_room` bytes behind its
    /// header; the peer allows `open_credit` bytes of initial windows.
    #[must_use]
    pub fn new(
        gathering: Gathering,
        packet_room: usize,
        open_credit: u64,
        without: Without,
    ) -> Outbox {
        let shares = Shares::new(without);
        Outbox {
            channels: IdMap::default(),
            express: shares.queue(),
            bulk: shares.queue(),
            unopened: VecDeque::new(),
            blocked: 0,
            unended: 0,
            open_credit,
            next_channel: 1,
            shares,
            gathering,
            packet_room,
            closing: false,
            credit_waits: 0,
            carried: Vec::new(),
            turns: Vec::new(),
            longs: Longs::default(),
            pending_bytes: 0,
            bulk_room: usize::MAX,
            latest: Turns::default(),
        }
    }

    /// Returns the number of times that a channel had to wait for credit.
    #[must_use]
    pub fn credit_waits(&self) -> u64 {
        self.credit_waits
    }

    /// Begins a channel and returns its number; its `Open` travels with its first data.
    pub fn open(&mut self, spec: OpenSpec, now: Time) -> u32 {
        let id = self.next_channel;
        self.next_channel += 1;
        if spec.system {
            self.unopened.push_front(id);
        } else {
            self.unopened.push_back(id);
        }
        self.channels.insert(id, Channel::new(spec, now));
        self.unended += 1;
        self.admit_opens();
        id
    }

    /// Notes that the peer allows initial windows of `total` bytes since the session began.
    pub fn handle_open_credit(&mut self, total: u64, opened_before: u64) {
        self.open_credit = self.open_credit.max(total.saturating_sub(opened_before));
        self.admit_opens();
    }

    /// Returns the bytes of initial windows that are still free; for tests of the invariant.
    #[must_use]
    pub fn open_credit(&self) -> u64 {
        self.open_credit
    }

    /// Returns the number of channels whose open waits for credit.
    #[must_use]
    #[inline]
    pub fn unopened(&self) -> usize {
        self.unopened.len()
    }

    fn admit_opens(&mut self) {
        while self.open_credit >= WINDOW_BYTES_INITIAL {
            let Some(id) = self.unopened.pop_front() else { return };
            let Some(channel) = self.channels.get_mut(id) else { continue };
            self.open_credit -= WINDOW_BYTES_INITIAL;
            channel.admitted = true;
            channel.credit = channel.credit.max(WINDOW_BYTES_INITIAL);
            channel.set_blocked(false, &mut self.blocked);
            self.enqueue(id);
        }
    }

    /// Queues the channel if it may send. Nothing follows an end: messages that a stream's log
    /// stores after it leave over another channel.
    #[inline]
    fn enqueue(&mut self, id: u32) {
        let Some(channel) = self.channels.get_mut(id) else { return };
        if !channel.queued && !channel.blocked && channel.admitted && !channel.ended {
            channel.enter(id, queue(&mut self.express, &mut self.bulk, channel.spec.lane));
        }
    }

    /// Notes that `channel` staged something at `at`, where there was nothing.
    #[inline]
    pub fn staged(&mut self, channel: u32, at: Time) {
        if let Some(entry) = self.channels.get_mut(channel) {
            // A channel that was queued for its open alone has nothing older.
            entry.oldest = if entry.queued { entry.oldest.min(at) } else { at };
            self.enqueue(channel);
        }
    }

    /// As `staged`, with the writer woken for `bytes`, behind everything that was runnable.
    #[inline]
    pub fn woken_for(&mut self, channel: u32, at: Time, bytes: usize) {
        self.gathering.woken_for(bytes);
        self.staged(channel, at);
    }

    /// Notes that a message waits for room behind the messages of `channel` up to number
    /// `until`.
    pub fn no_room(&mut self, channel: u32, until: u64, at: Time) {
        if let Some(entry) = self.channels.get_mut(channel) {
            entry.fit_until = entry.fit_until.max(until);
        }
        self.staged(channel, at);
    }

    /// Makes the messages of `channel` up to number `until` leave at once.
    pub fn urgent(&mut self, channel: u32, until: u64, at: Time) {
        if let Some(entry) = self.channels.get_mut(channel) {
            let before = entry.is_urgent();
            entry.urgent_until = entry.urgent_until.max(until);
            if entry.queued && !before && entry.is_urgent() {
                queue(&mut self.express, &mut self.bulk, entry.spec.lane).urgent += 1;
            }
        }
        self.staged(channel, at);
    }

    /// Notes that the caller asked for the messages of `channel` up to number `until`.
    pub fn explicit(&mut self, channel: u32, until: u64, at: Time) {
        if let Some(entry) = self.channels.get_mut(channel) {
            entry.explicit_until = entry.explicit_until.max(until);
        }
        self.staged(channel, at);
    }

    /// Returns `channel`, if its end was not sent yet. The two sides may end it at once, but an
    /// end is sent only once.
    fn open_channel(&mut self, channel: u32) -> Option<&mut Channel> {
        self.channels.get_mut(channel).filter(|entry| !entry.ended)
    }

    /// Ends `channel` after `messages` in all.
    pub fn end(&mut self, channel: u32, messages: u64, at: Time) {
        if let Some(entry) = self.open_channel(channel) {
            // A terminated channel ends with the messages that were sent.
            entry.end.get_or_insert(messages);
            self.staged(channel, at);
        }
    }

    /// Ends `channel` after everything that is staged now.
    pub fn end_when_drained(&mut self, channel: u32, at: Time) {
        if let Some(entry) = self.open_channel(channel) {
            // A channel whose end is known ends there.
            entry.end_when_drained = entry.end.is_none();
            self.staged(channel, at);
        }
    }

    /// Removes `channel`, whose end is known to have arrived. It waits for nothing and is in no
    /// queue.
    pub fn remove(&mut self, channel: u32) {
        let removed = self.channels.remove(channel);
        debug_assert!(removed.is_none_or(|entry| entry.ended && !entry.queued && !entry.blocked));
    }

    /// Notes that the receiver of `channel` is gone: drops staged messages and sends the end.
    /// Returns whether the channel was known.
    pub fn terminate(&mut self, channel: u32, at: Time) -> bool {
        self.longs.gone(channel);
        let Some(entry) = self.channels.get_mut(channel) else { return false };
        if entry.ended {
            return true;
        }
        entry.large = None;
        entry.end = Some(entry.sent_messages);
        entry.end_when_drained = false;
        entry.set_blocked(false, &mut self.blocked);
        entry.credit = entry.credit.max(entry.sent_bytes + 1);
        self.staged(channel, at);
        true
    }

    /// Makes everything that is staged leave, and ends every channel after it.
    pub fn close(&mut self, at: Time) {
        self.closing = true;
        let mut channels: Vec<u32> = self.channels.keys().collect();
        channels.sort_unstable();
        for channel in channels {
            self.end_when_drained(channel, at);
        }
    }

    /// Notes that `channel` may send `total` bytes since it began.
    pub fn handle_credit(&mut self, channel: u32, total: u64) {
        self.longs.granted(channel, total);
        if let Some(entry) = self.channels.get_mut(channel) {
            entry.credit = entry.credit.max(total);
            entry.set_blocked(false, &mut self.blocked);
            if entry.admitted {
                self.enqueue(channel);
            }
        }
    }

    /// Returns the number of messages of `channel` that were put in packets so far.
    #[must_use]
    pub fn sent_messages(&self, channel: u32) -> u64 {
        self.channels.get(channel).map_or(0, |entry| entry.sent_messages)
    }

    /// Returns the size of the largest message that the peer has not taken, of those that are sent
    /// and above the default limit, in bytes; 0 when there is none. `None` when these messages are
    /// those of the last call.
    #[inline]
    pub fn poll_largest_untaken(&mut self) -> Option<u64> {
        self.longs.poll_largest()
    }

    /// Returns the number of messages of `channel` that were taken from its ring and are not sent: one in
    /// fragments, or the rest of a run.
    #[must_use]
    pub fn unsent_messages(&self, channel: u32) -> u64 {
        let large = self.channels.get(channel).and_then(|entry| entry.large.as_ref());
        large.map_or(0, |large| u64::from(large.run.unwrap_or(1)))
    }

    /// Returns the messages and ends in the packet that was filled last.
    #[must_use]
    #[inline]
    pub fn carried(&self) -> &[Carried] {
        &self.carried
    }

    /// Whether nothing is queued to be sent.
    #[must_use]
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.express.is_empty() && self.bulk.is_empty()
    }

    /// Whether every channel has ended and its end was put in a packet. Then channels that
    /// waited for credit have nothing left either.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.unended == 0
    }

    /// Returns the number of channels, ended ones included until their end is acknowledged.
    #[must_use]
    pub fn channels(&self) -> usize {
        self.channels.len()
    }

    /// Returns the bytes that waited at the last [`Outbox::decide`], as far as it counted them: a
    /// full packet.
    #[must_use]
    #[inline]
    pub fn pending_bytes(&self) -> usize {
        self.pending_bytes
    }

    /// Whether a channel has something staged and no credit for it.
    #[must_use]
    #[inline]
    pub fn waits_for_credit(&self) -> bool {
        !self.unopened.is_empty() || self.blocked > 0
    }

    /// Lets bulk put `bytes` in the next packet, more only as its part beside express.
    #[inline]
    pub fn set_bulk_room(&mut self, bytes: usize) {
        self.bulk_room = bytes;
    }

    /// Sets the bytes that a packet holds behind its header from now on.
    #[inline]
    pub fn set_packet_room(&mut self, bytes: usize) {
        self.packet_room = bytes;
    }

    /// Returns how the channels share the link.
    #[must_use]
    #[inline]
    pub fn sharing(&self, now: Time) -> Sharing {
        self.latest.sharing(now)
    }

    /// Whether something of the bulk lane waits, and only because it has no room.
    #[must_use]
    #[inline]
    pub fn bulk_waits(&self) -> bool {
        !self.bulk.is_empty() && self.bulk_room() == 0
    }

    #[inline]
    fn bulk_room(&self) -> usize {
        self.shares.bulk_room(self.bulk_room, self.packet_room)
    }

    /// Whether the counts are those of a walk over all channels; for checks.
    fn counts_agree(&self) -> bool {
        let count = |is: fn(&Channel) -> bool| self.channels.values().filter(|it| is(it)).count();
        let urgent = self.express.urgent + self.bulk.urgent;
        self.blocked == count(|it| it.blocked)
            && self.unended == count(|it| !it.ended)
            && self.express.len() + self.bulk.len() == count(|it| it.queued)
            && urgent == count(|it| it.queued && it.is_urgent())
    }
}

/// Returns the queue of `lane`.
#[inline]
fn queue<'a>(express: &'a mut Queue, bulk: &'a mut Queue, lane: Lane) -> &'a mut Queue {
    match lane {
        Lane::Express => express,
        Lane::Bulk => bulk,
    }
}

/// Returns the bytes that a packet of `packet_bytes_max` holds behind its header.
#[must_use]
#[inline]
pub fn packet_room(packet_bytes_max: usize) -> usize {
    packet_bytes_max - packet::HEADER_BYTES
}

#[cfg(test)]
pub(super) mod tests;
