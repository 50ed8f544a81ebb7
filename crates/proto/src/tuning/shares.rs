//! Parts of the lanes and channels in a packet, and the order of turns within a lane.
//!
//! While both lanes wait, one packet in [`BULK_FIRST_EVERY`] begins with bulk, and bulk has a part
//! of the link as large when its [pace](super::pace) leaves it no room. Within a lane a channel's
//! turn is at most its share of the packet.
//!
//! The order within a lane is deficit round robin (M. Shreedhar and G. Varghese, "Efficient Fair Queueing using Deficit
//! Round Robin", 1995) with two changes. A turn may be overdrawn, by a fragment at most, since
//! a packet ends with a fragment of any size; the channel owes the overdrawn bytes. And rounds
//! are not walked through but counted, in bytes, as the start tags of start-time fair queueing
//! are (P. Goyal, H. Vin, H. Cheng, 1996). Each channel has the round that it has come to, and
//! the one in the least round goes next. So a channel that owes a fragment costs nothing while
//! the others catch up.
//!
//! Channels of the system are ahead of the others. A system channel that has something begins
//! up to [`SYSTEM_AHEAD_BYTES`] before the round that is served. So it is next, whatever the others
//! have and whatever it sent just before. The bytes that it takes count as others' do: they use
//! up its lead, which grows again as far as the others go on. So it never holds the others up
//! by more than the lead, though one of its messages may be as large as the input of a process.
//!
//! Bound, which a test checks: two channels that both had something all the time got amounts
//! that differ by at most two turns, `2 (share + fragment)`, and by [`SYSTEM_AHEAD_BYTES`] where one
//! of them is the system's.

use super::constants::{BULK_FIRST_EVERY, ROOM_BYTES_MIN, SHARE_BYTES_MIN, SYSTEM_AHEAD_BYTES};
use super::without::{Controller, Without};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Parts of the lanes and channels in a packet. Order of calls: [`Shares::begin`] for each packet;
/// for each lane [`Shares::channel`], then [`Shares::express_took`] or [`Shares::bulk_took`].
#[derive(Debug)]
pub(crate) struct Shares {
    packets: u64,
    /// Bytes that express put in packets since the last ones of bulk.
    express_bytes: usize,
    /// Whether turns are of equal number instead of equal bytes.
    by_turns: bool,
}

impl Shares {
    pub(crate) fn new(without: Without) -> Shares {
        Shares { packets: 0, express_bytes: 0, by_turns: without.has(Controller::Shares) }
    }

    /// Begins a packet; returns whether it begins with bulk.
    #[inline]
    pub(crate) fn begin(&mut self) -> bool {
        self.packets += 1;
        self.packets.is_multiple_of(BULK_FIRST_EVERY) && !self.by_turns
    }

    /// Returns the number of packets so far.
    #[inline]
    pub(crate) fn packets(&self) -> u64 {
        self.packets
    }

    /// Returns the room of bulk in a packet with room for `packet_room`, where `paced` bytes may
    /// leave. Bulk keeps its part of the link also when only express is on its way.
    #[inline]
    pub(crate) fn bulk_room(&self, paced: usize, packet_room: usize) -> usize {
        if self.by_turns {
            return paced;
        }
        let part = (self.express_bytes / (BULK_FIRST_EVERY as usize - 1)).min(packet_room);
        paced.max(if part >= ROOM_BYTES_MIN.min(packet_room) { part } else { 0 })
    }

    /// Returns the most bytes of a channel's turn, where `channels` share `room`. It is the same
    /// for all channels, whichever is first.
    #[inline]
    pub(crate) fn channel(&self, room: usize, channels: usize) -> usize {
        let channels = if self.by_turns { 1 } else { channels.max(1) };
        (room / channels).max(SHARE_BYTES_MIN)
    }

    /// Notes that express put `bytes` in the packet.
    #[inline]
    pub(crate) fn express_took(&mut self, bytes: usize) {
        self.express_bytes = self.express_bytes.saturating_add(bytes);
    }

    /// Notes that bulk put `bytes` in the packet.
    #[inline]
    pub(crate) fn bulk_took(&mut self, bytes: usize) {
        if bytes > 0 {
            self.express_bytes = 0;
        }
    }

    /// Returns the empty queue of a lane.
    pub(crate) fn queue(&self) -> Queue {
        Queue {
            heap: BinaryHeap::new(),
            round: SYSTEM_AHEAD_BYTES,
            latest: SYSTEM_AHEAD_BYTES,
            urgent: 0,
            by_turns: self.by_turns,
        }
    }
}

/// Channels of a lane that have something.
#[derive(Debug)]
pub(crate) struct Queue {
    /// Round in bytes, then the channel's number.
    heap: BinaryHeap<Reverse<(u64, u32)>>,
    /// Furthest round of the turns that were served; at least [`SYSTEM_AHEAD_BYTES`], so that a
    /// channel ahead has a round to be in.
    round: u64,
    /// Furthest round of all.
    latest: u64,
    /// Number of the channels with an urgent message.
    pub(crate) urgent: usize,
    /// Whether a turn counts as one, whatever its bytes.
    by_turns: bool,
}

impl Queue {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.heap.len()
    }

    /// Returns the channels in no order.
    #[inline]
    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> {
        self.heap.iter().map(|Reverse((_, id))| *id)
    }

    /// Queues `id`, which has come to `round` and has something; returns its round now. The
    /// channel keeps its debt and has no claim to bytes that it left to others, except `ahead`.
    #[inline]
    pub(crate) fn push(&mut self, id: u32, round: u64, ahead: u64) -> u64 {
        let ahead = if self.by_turns { 0 } else { ahead };
        let round = round.max(self.round - ahead);
        self.heap.push(Reverse((round, id)));
        round
    }

    /// Takes the channel whose turn it is; it leaves until it is pushed again.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<u32> {
        let Reverse((round, id)) = self.heap.pop()?;
        self.round = self.round.max(round);
        Some(id)
    }

    /// Notes that the turn that began in `round` took `bytes`; returns the channel's round now.
    #[inline]
    pub(crate) fn took(&mut self, round: u64, bytes: u64) -> u64 {
        let round = if self.by_turns { self.latest + 1 } else { round + bytes };
        self.latest = self.latest.max(round);
        round
    }

    /// Notes that a packet was filled. When no channel has anything left, all debts are
    /// forgotten.
    #[inline]
    pub(crate) fn filled(&mut self) {
        if self.heap.is_empty() {
            self.round = self.latest;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_owes_is_passed_over_until_the_others_caught_up() {
        let mut queue = Shares::new(Without::default()).queue();
        let mut turns = [0, 0];
        let mut rounds = [0, 1].map(|id| queue.push(id, 0, 0));
        for _ in 0..900 {
            let id = queue.pop().unwrap();
            turns[id as usize] += 1;
            let round = rounds[id as usize];
            rounds[id as usize] = queue.took(round, [800, 100][id as usize]);
            queue.push(id, rounds[id as usize], 0);
        }
        assert_eq!(turns, [100, 800]);
    }

    #[test]
    fn who_was_away_claims_nothing_and_still_owes() {
        let mut queue = Shares::new(Without::default()).queue();
        let first = queue.push(1, 0, 0);
        queue.pop();
        let second = queue.took(first, 1000);
        queue.push(1, second, 0);
        queue.pop();
        let third = queue.took(second, 500);
        assert_eq!(queue.push(2, 0, 0), second, "as if it had had its part");
        assert_eq!(queue.push(1, third, 0), third);
        assert_eq!((queue.pop(), queue.pop()), (Some(2), Some(1)));
    }

    #[test]
    fn who_is_ahead_is_next_until_it_used_that_up() {
        let mut queue = Shares::new(Without::default()).queue();
        let (mut user, mut system) = (queue.push(1, 0, 0), queue.push(2, 0, SYSTEM_AHEAD_BYTES));
        let mut turns = Vec::new();
        for _ in 0..80 {
            let id = queue.pop().unwrap();
            turns.push(id);
            if id == 1 {
                user = queue.took(user, 4096);
                user = queue.push(1, user, 0);
            } else {
                system = queue.took(system, 4096);
                system = queue.push(2, system, SYSTEM_AHEAD_BYTES);
            }
        }
        let ahead = (SYSTEM_AHEAD_BYTES / 4096) as usize;
        assert_eq!(turns[..ahead], vec![2; ahead]);
        // Then in turn: no channel is left out.
        let users = turns[ahead..].iter().filter(|id| **id == 1).count();
        assert_eq!(users, (80 - ahead) / 2);
    }

    #[test]
    fn without_the_controller_turns_are_equal_in_number() {
        let shares = Shares::new("shares".parse().unwrap());
        let mut queue = shares.queue();
        let mut rounds = [1, 2].map(|id| queue.push(id, 0, SYSTEM_AHEAD_BYTES));
        let mut turns = [0, 0];
        for _ in 0..100 {
            let id = queue.pop().unwrap() as usize - 1;
            turns[id] += 1;
            rounds[id] = queue.took(rounds[id], [10, 10_000][id]);
            queue.push(id as u32 + 1, rounds[id], SYSTEM_AHEAD_BYTES);
        }
        assert_eq!(turns, [50, 50]);
        assert_eq!((shares.channel(64_000, 8), shares.bulk_room(0, 64_000)), (64_000, 0));
    }

    #[test]
    fn a_lane_that_was_empty_forgets_what_is_owed() {
        let mut queue = Shares::new(Without::default()).queue();
        let round = queue.push(1, 0, 0);
        queue.pop();
        let round = queue.took(round, 1 << 18);
        queue.filled();
        assert_eq!(queue.push(2, 0, 0), round);
        assert_eq!(queue.push(1, round, 0), round);
    }
}
