//! The heap of steps to come.

use super::EndId;
use super::connection::Item;
use chunkcomm_proto::Time;
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// A step that happens by itself.
#[derive(Debug, Clone, Copy)]
pub(super) enum Step {
    /// The interface's host has spent the cost of a packet.
    Prepared(usize),
    /// The interface's frame is on the wire.
    Sent(usize),
    /// Something arrives at an end.
    Arrive(EndId, Item),
    /// Held items at an end may go on.
    Resume(EndId),
    /// A cut is noticed at an end.
    Break(EndId),
}

/// Steps in the order of their times; those of the same time, in the order in which they were made.
/// So a run does not depend on how the heap is built.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    heap: BinaryHeap<Reverse<Scheduled>>,
    made: u64,
}

#[derive(Debug)]
struct Scheduled {
    at: Time,
    number: u64,
    step: Step,
}

impl Schedule {
    pub(super) fn push(&mut self, at: Time, step: Step) {
        self.made += 1;
        self.heap.push(Reverse(Scheduled { at, number: self.made, step }));
    }

    pub(super) fn next_time(&self) -> Option<Time> {
        self.heap.peek().map(|Reverse(next)| next.at)
    }

    pub(super) fn pop(&mut self) -> Option<(Time, Step)> {
        self.heap.pop().map(|Reverse(next)| (next.at, next.step))
    }

    /// Takes the next step that is not later than `now`.
    pub(super) fn pop_until(&mut self, now: Time) -> Option<(Time, Step)> {
        self.next_time().filter(|next| *next <= now).and_then(|_| self.pop())
    }
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Scheduled) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Scheduled {}

impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Scheduled) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Scheduled {
    fn cmp(&self, other: &Scheduled) -> Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}
