//! The heap of steps to come.

use super::bridges::Traveller;
use super::connection::Item;
use super::{EndId, HostId};
use chunkcomm_proto::Time;
use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

/// A step that happens by itself.
#[derive(Debug, Clone, Copy)]
pub(super) enum Step {
    /// The interface's host has spent the cost of a packet.
    Prepared(usize),
    /// The interface's frame is on the wire.
    Sent(usize),
    /// Something reaches a bridge.
    Reach(Traveller),
    /// A bridge has taken something in.
    PassOn(Traveller),
    /// Something arrives at an end.
    Arrive(EndId, Item),
    /// Held items at an end may go on.
    Resume(EndId),
    /// A cut is noticed at an end.
    Break(EndId),
    /// The host's alarm: a job is done, or its foreign load changes.
    Cores(HostId),
}

/// Steps in the order of their times; those of the same time, in the order in which they were made.
/// So a run does not depend on how the heap is built.
///
/// A step of the heap happens. An alarm, of which a host has one, can be set anew or cleared.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    heap: BinaryHeap<Reverse<Scheduled>>,
    alarms: BTreeSet<(Time, u64, HostId)>,
    alarm_of: BTreeMap<HostId, (Time, u64)>,
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

    /// Sets the host's alarm to `at`, or clears it.
    pub(super) fn set_alarm(&mut self, host: HostId, at: Option<Time>) {
        let before = self.alarm_of.get(&host).copied();
        if before.map(|(before, _)| before) == at {
            return;
        }
        if let Some((before, number)) = before {
            self.alarms.remove(&(before, number, host));
            self.alarm_of.remove(&host);
        }
        if let Some(at) = at {
            self.made += 1;
            self.alarms.insert((at, self.made, host));
            self.alarm_of.insert(host, (at, self.made));
        }
    }

    pub(super) fn next_time(&self) -> Option<Time> {
        let step = self.heap.peek().map(|Reverse(next)| next.at);
        let alarm = self.alarms.first().map(|(at, ..)| *at);
        step.into_iter().chain(alarm).min()
    }

    pub(super) fn pop(&mut self) -> Option<(Time, Step)> {
        let step = self.heap.peek().map(|Reverse(next)| (next.at, next.number));
        match self.alarms.first() {
            Some(&(at, number, host)) if step.is_none_or(|step| (at, number) < step) => {
                self.set_alarm(host, None);
                Some((at, Step::Cores(host)))
            }
            _ => self.heap.pop().map(|Reverse(next)| (next.at, next.step)),
        }
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
