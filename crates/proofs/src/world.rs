//! The heap of events, and their delivery.

mod applications;
mod checks;
mod connections;
mod dialling;
mod driver;
mod faults;

use super::coverage::Coverage;
use super::end::{End, over_index};
use super::plan::{FAULTS_MIN, MESSAGES_MIN, Plan, Wiring};
use chunkcomm_proto::Time;
use chunkcomm_proto::endpoint::SessionEnd;
use chunkcomm_proto::random::Random;
use chunkcomm_simulation::{HostId, Network};
use connections::{Connection, PORT};
use dialling::Dialling;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

/// Time in nanoseconds at which the clocks of nodes begin.
const EPOCH: u64 = 1_000_000_000;

/// Time after the last fault and the last session's beginning until everything is over.
const PATIENCE: Duration = Duration::from_secs(100);

/// Events of a seed at most.
const EVENTS_MAX: u64 = 3_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A connection is there at its acceptor.
    Accepted {
        connection: usize,
    },
    /// A connection is there at its dialler.
    Connected {
        connection: usize,
    },
    /// A connection was refused.
    Refused {
        connection: usize,
    },
    /// Bytes arrived at a side, or the connection is broken.
    Hear {
        connection: usize,
        side: usize,
    },
    /// A side that had no room to write has some.
    Room {
        connection: usize,
        side: usize,
    },
    /// The system of a side gives a connection up.
    GiveUp {
        connection: usize,
        side: usize,
    },
    /// A hold of the way to a side of a pair is over.
    Heal {
        pair: usize,
        side: usize,
    },
    /// A dialler has waited long enough.
    Dial {
        session: usize,
        generation: u32,
    },
    /// An attempt took too long.
    Timeout {
        connection: usize,
        side: usize,
    },
    /// A connection is handed to its driver.
    Adopt {
        connection: usize,
        side: usize,
    },
    /// A driver looks.
    Wake {
        end: usize,
    },
    Produce {
        end: usize,
        channel: u32,
    },
    Take {
        end: usize,
        channel: u32,
    },
    Fault {
        index: usize,
    },
    Cut {
        pair: usize,
    },
    Restart {
        node: usize,
    },
    /// A node begins a session anew.
    Begin {
        pair: usize,
    },
}

/// A node.
#[derive(Debug, Clone)]
struct Node {
    host: HostId,
    incarnation: u128,
    up: bool,
    /// Whether it went without notice: nobody answers.
    silent: bool,
    stopped_until: Time,
    /// Nanoseconds that its clock shows beyond the time that passed.
    ahead: u64,
}

/// A session.
#[derive(Debug)]
struct Session {
    pair: usize,
    number: u64,
    incarnations: [u128; 2],
    ends: [Option<usize>; 2],
    /// Whether it is the first session of its pair.
    first: bool,
}

/// State of a pair, besides its plan.
#[derive(Debug, Clone, Copy, Default)]
struct PairState {
    session: Option<usize>,
    begun: u32,
    /// Time from which nothing is in the way between the two.
    healthy_from: Time,
    /// Time, by side, before which nothing gets through to it.
    held_until: [Time; 2],
    late_until: Time,
}

/// Adds the hosts of the nodes to the network, joined, each listening.
fn hosts(network: &mut Network, plan: &Plan) -> Vec<HostId> {
    let hosts: Vec<HostId> =
        (0..plan.nodes).map(|node| network.add_host(&format!("node {node}"))).collect();
    match plan.wiring {
        Wiring::Links => {
            for pair in &plan.pairs {
                let [one, other] = pair.nodes.map(|node| hosts[node]);
                network.link(one, other, pair.spec);
            }
        }
        Wiring::Medium => {
            network.shared_medium(&hosts, plan.pairs[0].spec);
        }
        Wiring::Switch => {
            network.switch(&hosts, plan.pairs[0].spec);
        }
    }
    for host in &hosts {
        network.listen(*host, PORT).expect("nobody else is there");
    }
    hosts
}

/// The whole simulation of one seed.
pub(super) struct World<'a> {
    seed: u64,
    plan: Plan,
    pub(super) now: Time,
    random: Random,
    network: Network,
    connections: Vec<Connection>,
    nodes: Vec<Node>,
    pairs: Vec<PairState>,
    sessions: Vec<Session>,
    dialling: Vec<Dialling>,
    ends: Vec<End>,
    counts: Coverage,
    pub(super) violation: Option<String>,
    pub(super) hash: u64,
    /// Time when the last of the faults that came is over.
    last_fault: Time,
    /// When the last session was begun.
    last_begun: Time,
    next_fault: usize,
    /// Time until which the next fault waits for the state that it is to meet.
    fault_until: Option<Time>,
    heap: BinaryHeap<Reverse<(Time, u64, Event)>>,
    pushed: u64,
    trace: Option<&'a mut dyn FnMut(String)>,
}

impl<'a> World<'a> {
    pub(super) fn new(seed: u64, trace: Option<&'a mut dyn FnMut(String)>) -> World<'a> {
        let plan = Plan::of(seed);
        let mut random = Random::fork(seed, 2);
        let mut network = Network::new(random.next_u64());
        let node = |host| Node {
            host,
            incarnation: u128::from(random.next_u64()),
            up: true,
            silent: false,
            stopped_until: Time(0),
            ahead: EPOCH,
        };
        let nodes = hosts(&mut network, &plan).into_iter().map(node).collect();
        let mut world = World {
            seed,
            now: Time(0),
            random,
            network,
            connections: Vec::new(),
            nodes,
            pairs: vec![PairState::default(); plan.pairs.len()],
            sessions: Vec::new(),
            dialling: Vec::new(),
            ends: Vec::new(),
            counts: Coverage { seeds: 1, ..Coverage::default() },
            violation: None,
            hash: seed,
            last_fault: Time(0),
            last_begun: Time(0),
            next_fault: 0,
            fault_until: None,
            heap: BinaryHeap::new(),
            pushed: 0,
            trace,
            plan,
        };
        world.counts.wirings[world.plan.wiring as usize] = 1;
        for pair in 0..world.plan.pairs.len() {
            world.at(Time(0), Event::Begin { pair });
        }
        let first = world.plan.faults[0].gap;
        world.after(first, Event::Fault { index: 0 });
        world
    }

    fn at(&mut self, time: Time, event: Event) {
        self.pushed += 1;
        self.heap.push(Reverse((time.max(self.now), self.pushed, event)));
    }

    fn after(&mut self, wait: Duration, event: Event) {
        self.at(self.now.after(wait), event);
    }

    /// Returns the time that the clock of `node` shows.
    fn local(&self, node: usize) -> Time {
        Time(self.now.0 + self.nodes[node].ahead)
    }

    /// Notes a violation; only the first is kept.
    fn violate(&mut self, what: &str) {
        if self.violation.is_none() {
            self.violation = Some(format!("at {} ns: {what}", self.now.0));
        }
    }

    fn note(&mut self, tag: u64, numbers: [u64; 2], text: impl FnOnce() -> String) {
        for part in [self.now.0, tag, numbers[0], numbers[1]] {
            self.hash = (self.hash ^ part).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23);
        }
        if let Some(trace) = &mut self.trace {
            trace(format!("{:>16} {}", self.now.0, text()));
        }
    }

    pub(super) fn run(&mut self) {
        while let Some((time, event)) = self.next_event() {
            self.now = time;
            self.counts.events += 1;
            if self.counts.events > EVENTS_MAX {
                return self.violate("it does not come to rest");
            }
            self.event(event);
            if self.violation.is_some() {
                return;
            }
        }
        self.check_over();
        let digest = self.network.digest();
        self.note(12, [digest, 0], || format!("the network's digest is {digest:016x}"));
    }

    /// Returns the next event; ours come before the network's at the same time. `None` when all is
    /// over.
    fn next_event(&mut self) -> Option<(Time, Event)> {
        let last = self.last_fault.max(self.last_begun);
        let end = last.max(Time(0).after(2 * self.plan.work)).after(PATIENCE);
        let ours = self.heap.peek().map_or(end, |Reverse((time, ..))| end.min(*time));
        if let Some((time, event)) = self.network.next_event_by(Time(ours.0.saturating_sub(1))) {
            // A call may have brought the event forth already: then it happens now.
            return Some((time.max(self.now), self.translated(event)));
        }
        let Reverse((time, _, event)) = self.heap.pop()?;
        (time <= end).then_some((time, event))
    }

    fn event(&mut self, event: Event) {
        let Some(node) = self.node_of(event) else { return };
        if let Some(node) = node {
            if !self.nodes[node].up {
                return;
            }
            let until = self.nodes[node].stopped_until;
            if until > self.now {
                // Events for a stopped process keep their order.
                return self.at(until, event);
            }
        }
        match event {
            Event::Accepted { connection } => self.accepted(connection),
            Event::Connected { connection } => self.connected(connection),
            Event::Refused { connection } => self.failed(connection),
            Event::GiveUp { connection, side } => {
                self.network.give_up(self.now, self.end_at(connection, side));
            }
            Event::Heal { pair, side } => self.heal(pair, side),
            Event::Hear { connection, side } => self.hear(connection, side),
            Event::Room { connection, side } => self.has_room(connection, side),
            Event::Dial { session, generation } => self.dial(session, generation),
            Event::Timeout { connection, side } => self.timeout(connection, side),
            Event::Adopt { connection, side } => self.adopt(connection, side),
            Event::Wake { end } => self.woken(end),
            Event::Produce { end, channel } => self.produce(end, channel),
            Event::Take { end, channel } => self.take(end, channel),
            Event::Fault { index } => self.fault_due(index),
            Event::Cut { pair } => self.cut_pair(pair),
            Event::Restart { node } => self.restart(node),
            Event::Begin { pair } => self.begin(pair),
        }
    }

    /// Returns the node whose process an event needs, or `Some(None)` when it needs no process.
    /// `None` when the event is for nobody.
    fn node_of(&self, event: Event) -> Option<Option<usize>> {
        let by_side = |connection: usize, side: usize| self.node_at(connection, side);
        Some(Some(match event {
            Event::GiveUp { .. }
            | Event::Heal { .. }
            | Event::Fault { .. }
            | Event::Cut { .. }
            | Event::Restart { .. } => return Some(None),
            Event::Connected { connection } | Event::Refused { connection } => {
                by_side(connection, 0)
            }
            Event::Timeout { connection, side }
            | Event::Adopt { connection, side }
            | Event::Hear { connection, side }
            | Event::Room { connection, side } => by_side(connection, side),
            Event::Accepted { connection } => by_side(connection, 1),
            Event::Dial { session, .. } => self.plan.pairs[self.sessions[session].pair].nodes[0],
            Event::Begin { pair } => self.plan.pairs[pair].nodes[0],
            Event::Wake { end } | Event::Produce { end, .. } | Event::Take { end, .. } => {
                if self.ends[end].over.is_some() {
                    return None;
                }
                self.ends[end].node
            }
        }))
    }

    /// Returns the other end of the same session.
    fn other(&self, end: usize) -> Option<usize> {
        let end = &self.ends[end];
        self.sessions[end.session].ends[1 - end.side]
    }

    fn pair_of(&self, end: usize) -> usize {
        self.sessions[self.ends[end].session].pair
    }

    /// Returns the number of messages that arrived.
    fn arrived(&self) -> u64 {
        let inboxes = self.ends.iter().flat_map(|end| &end.inboxes);
        inboxes.map(|inbox| inbox.arrivals.arrived).sum()
    }

    /// Whether the seed had too few faults that found an end, and whether too few messages arrived.
    fn is_short_of(&self) -> [bool; 2] {
        [self.counts.met < FAULTS_MIN, self.arrived() < MESSAGES_MIN]
    }

    /// Whether the seed needs another session.
    fn is_short(&self) -> bool {
        self.is_short_of().contains(&true)
    }

    /// Returns the counts of what the run met.
    pub(super) fn coverage(&self) -> Coverage {
        let mut counts = self.counts.clone();
        for end in &self.ends {
            let counters = end.endpoint.link.counters();
            counts.packets += counters.packets_sent;
            counts.again += counters.packets_resent;
            counts.duplicates += end.decoder.duplicates();
            counts.resumes += counters.resumes;
            if let Some(over) = end.over {
                counts.over[over_index(over)] += 1;
            }
        }
        counts.sessions = self.sessions.len() as u64;
        for session in &self.sessions {
            let ends = session.ends.iter().flatten().map(|end| &self.ends[*end]);
            let protocol = |end: &End| matches!(end.over, Some(SessionEnd::Protocol(_)));
            let [departed, found_out] =
                ends.fold([false; 2], |[a, b], end| [a | end.departed, b | protocol(end)]);
            counts.departures += u64::from(departed);
            counts.found_out += u64::from(departed && found_out);
        }
        counts.messages = self.arrived();
        counts.short_of = self.is_short_of().map(u64::from);
        counts
    }
}
