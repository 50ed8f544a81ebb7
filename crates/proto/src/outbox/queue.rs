//! Order of turns within a lane.
//!
//! Deficit round robin (M. Shreedhar and G. Varghese, "Efficient Fair Queueing using Deficit
//! Round Robin", 1995) with two changes. A turn may be overdrawn, by a fragment at most, since
//! a packet ends with a fragment of any size; the channel owes the overdrawn bytes. And rounds
//! are not walked through but counted, in bytes, as the start tags of start-time fair queueing
//! are (P. Goyal, H. Vin, H. Cheng, 1996). Each channel has the round that it has come to, and
//! the one in the least round goes next. So a channel that owes a fragment costs nothing while
//! the others catch up.
//!
//! Channels of the system are ahead of the others. A system channel that has something begins
//! up to [`AHEAD_BYTES`] before the round that is served. So it is next, whatever the others
//! have and whatever it sent just before. The bytes that it takes count as others' do: they use
//! up its lead, which grows again as far as the others go on. So it never holds the others up
//! by more than the lead, though one of its messages may be as large as the input of a process.
//!
//! Bound, which a test checks: two channels that both had something all the time got amounts
//! that differ by at most two turns, `2 (share + fragment)`, and by [`AHEAD_BYTES`] where one
//! of them is the system's.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Bytes that a channel of the system may get before the others that wait: 64 KiB. One packet
/// holds the messages that it sends at once, except the largest. The others would feel more than
/// that: 64 KiB take 5 ms at 100 Mbit/s.
pub(super) const AHEAD_BYTES: u64 = 64 * 1024;

/// Channels of a lane that have something.
#[derive(Debug)]
pub(super) struct Queue {
    /// Round in bytes, then the channel's number.
    heap: BinaryHeap<Reverse<(u64, u32)>>,
    /// Furthest round of the turns that were served; at least [`AHEAD_BYTES`].
    round: u64,
    /// Furthest round of all.
    latest: u64,
    /// Number of the channels with an urgent message.
    pub(super) urgent: usize,
}

impl Default for Queue {
    /// Begins at [`AHEAD_BYTES`], so that a channel ahead has a round to be in.
    fn default() -> Queue {
        Queue { heap: BinaryHeap::new(), round: AHEAD_BYTES, latest: AHEAD_BYTES, urgent: 0 }
    }
}

impl Queue {
    pub(super) fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.heap.len()
    }

    /// Returns the channels in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = u32> {
        self.heap.iter().map(|Reverse((_, id))| *id)
    }

    /// Queues `id`, which has come to `round` and has something; returns its round now. The
    /// channel keeps its debt and has no claim to bytes that it left to others, except `ahead`.
    pub(super) fn push(&mut self, id: u32, round: u64, ahead: u64) -> u64 {
        let round = round.max(self.round - ahead);
        self.heap.push(Reverse((round, id)));
        round
    }

    /// Takes the channel whose turn it is; it leaves until it is pushed again.
    pub(super) fn pop(&mut self) -> Option<u32> {
        let Reverse((round, id)) = self.heap.pop()?;
        self.round = self.round.max(round);
        Some(id)
    }

    /// Notes that the turn that began in `round` took `bytes`; returns the channel's round now.
    pub(super) fn took(&mut self, round: u64, bytes: u64) -> u64 {
        let round = round + bytes;
        self.latest = self.latest.max(round);
        round
    }

    /// Notes that a packet was filled. When no channel has anything left, all debts are
    /// forgotten.
    pub(super) fn filled(&mut self) {
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
        let mut queue = Queue::default();
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
        let mut queue = Queue::default();
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
        let mut queue = Queue::default();
        let (mut user, mut system) = (queue.push(1, 0, 0), queue.push(2, 0, AHEAD_BYTES));
        let mut turns = Vec::new();
        for _ in 0..80 {
            let id = queue.pop().unwrap();
            turns.push(id);
            if id == 1 {
                user = queue.took(user, 4096);
                user = queue.push(1, user, 0);
            } else {
                system = queue.took(system, 4096);
                system = queue.push(2, system, AHEAD_BYTES);
            }
        }
        let ahead = (AHEAD_BYTES / 4096) as usize;
        assert_eq!(turns[..ahead], vec![2; ahead]);
        // Then in turn: no channel is left out.
        let users = turns[ahead..].iter().filter(|id| **id == 1).count();
        assert_eq!(users, (80 - ahead) / 2);
    }

    #[test]
    fn a_lane_that_was_empty_forgets_what_is_owed() {
        let mut queue = Queue::default();
        let round = queue.push(1, 0, 0);
        queue.pop();
        let round = queue.took(round, 1 << 18);
        queue.filled();
        assert_eq!(queue.push(2, 0, 0), round);
        assert_eq!(queue.push(1, round, 0), round);
    }
}
