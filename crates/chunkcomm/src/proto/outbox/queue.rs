//! Whose turn it is within a lane.
//!
//! Deficit round robin (M. Shreedhar and G. Varghese, "Efficient Fair Queueing
//! using Deficit Round Robin", 1995) with two changes. A turn may be overdrawn, by
//! a fragment at most, since a packet ends with a fragment of any size; what was
//! overdrawn is owed. And rounds are not walked through but counted, in bytes, as
//! the start tags of start-time fair queueing are (P. Goyal, H. Vin, H. Cheng,
//! 1996): each channel has the round that it has come to, the one in the least
//! round goes next, so that a channel that owes a fragment costs nothing while the
//! others catch up.
//!
//! Bound, which a test holds the outbox to: what two channels got that both had
//! something all the time differs by at most two turns, `2 (share + fragment)`.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The channels of a lane that have something.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// Round in bytes, then the channel's number.
    heap: BinaryHeap<Reverse<(u64, u32)>>,
    /// The round of the turn that was served last.
    round: u64,
    /// The furthest round of all.
    latest: u64,
}

impl Queue {
    pub(super) fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.heap.len()
    }

    /// In no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = u32> {
        self.heap.iter().map(|Reverse((_, id))| *id)
    }

    /// `id`, which has come to `round`, has something. It keeps what it owes and has
    /// no claim to what it left to others. Says in which round it is.
    pub(super) fn push(&mut self, id: u32, round: u64) -> u64 {
        let round = round.max(self.round);
        self.heap.push(Reverse((round, id)));
        round
    }

    /// Whose turn it is; it leaves until it is pushed again.
    pub(super) fn pop(&mut self) -> Option<u32> {
        let Reverse((round, id)) = self.heap.pop()?;
        self.round = round;
        Some(id)
    }

    /// The turn that began in `round` took `bytes`. Says in which round that
    /// channel is now.
    pub(super) fn took(&mut self, round: u64, bytes: u64) -> u64 {
        let round = round + bytes;
        self.latest = self.latest.max(round);
        round
    }

    /// A packet was filled. When nobody has anything left, nobody owes anybody.
    pub(super) fn filled(&mut self) {
        if self.heap.is_empty() {
            self.round = self.latest;
        }
    }

    pub(super) fn remove(&mut self, id: u32) {
        self.heap.retain(|Reverse((_, other))| *other != id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_owes_is_passed_over_until_the_others_caught_up() {
        let mut queue = Queue::default();
        let mut rounds = [0, 0];
        let mut turns = [0, 0];
        for id in [0, 1] {
            queue.push(id, 0);
        }
        for _ in 0..900 {
            let id = queue.pop().unwrap();
            turns[id as usize] += 1;
            let round = rounds[id as usize];
            rounds[id as usize] = queue.took(round, [800, 100][id as usize]);
            queue.push(id, rounds[id as usize]);
        }
        assert_eq!(turns, [100, 800]);
    }

    #[test]
    fn who_was_away_claims_nothing_and_still_owes() {
        let mut queue = Queue::default();
        assert_eq!(queue.push(1, 0), 0);
        queue.pop();
        let round = queue.took(0, 1000);
        queue.push(1, round);
        queue.pop();
        queue.took(1000, 500);
        assert_eq!(queue.push(2, 0), 1000, "as if it had had its part");
        assert_eq!(queue.push(1, 1500), 1500);
        assert_eq!((queue.pop(), queue.pop()), (Some(2), Some(1)));
    }

    #[test]
    fn a_lane_that_was_empty_forgets_what_is_owed() {
        let mut queue = Queue::default();
        queue.push(1, 0);
        queue.pop();
        let round = queue.took(0, 1 << 18);
        queue.filled();
        assert_eq!(queue.push(2, 0), round);
        assert_eq!(queue.push(1, round), round);
    }
}
