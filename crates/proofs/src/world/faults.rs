//! The planned faults, and their effects.

use super::connections::{Connection, NEVER, PORT};
use super::dialling::Talk;
use super::{Event, World};
use crate::plan::{FAULTS_MIN, Fault, STATE_NAMES, Way, When, silence};
use chunkcomm_proto::Time;
use chunkcomm_proto::endpoint::SessionEnd;
use chunkcomm_proto::resume::{Kind, Resume};
use chunkcomm_simulation::HostId;
use std::time::Duration;

/// Faults in a seed at most.
const FAULTS_MAX: usize = 200;

/// Time after which an impostor hangs up.
const GHOST_MAX: Duration = Duration::from_secs(3);

/// Time until a node comes back that was not to, if the seed goes on with it.
const BACK: Duration = Duration::from_secs(20);

impl World<'_> {
    /// Lets a fault come, unless it waits for the state that it is to meet.
    pub(super) fn fault_due(&mut self, index: usize) {
        if index != self.next_fault {
            return;
        }
        let planned = self.plan.faults[index];
        let until = *self.fault_until.get_or_insert(self.now.after(planned.patience));
        if self.now < until && !self.meets(planned.when) {
            let wait = match planned.when {
                When::Linked => Duration::from_millis(10),
                _ => Duration::from_nanos(until.0 - self.now.0),
            };
            return self.after(wait, Event::Fault { index });
        }
        self.fault_until = None;
        self.next_fault += 1;
        self.last_fault = self.last_fault.max(self.now.after(planned.fault.time()));
        let before = self.counts.met;
        self.fault(index, planned.fault);
        if planned.is_repeated() {
            self.counts.met = before;
        }
        if self.next_fault == self.plan.faults.len()
            && self.counts.met < FAULTS_MIN
            && self.next_fault < FAULTS_MAX
        {
            self.plan.plan_another(&mut self.random);
        }
        if let Some(next) = self.plan.faults.get(self.next_fault) {
            self.after(next.gap, Event::Fault { index: self.next_fault });
        }
    }

    fn meets(&self, when: When) -> bool {
        match when {
            When::Any => true,
            When::Linked => {
                let pair = self.plan.faults[self.next_fault].fault.pair();
                [0, 1].iter().all(|side| {
                    let end = pair.and_then(|pair| self.end_of(pair, *side));
                    end.is_some_and(|end| self.ends[end].connection.is_some())
                })
            }
            When::State { pair, side, state } => {
                let end = self.end_of(pair, side);
                end.is_some_and(|end| self.state_of(end, pair, side) == state)
            }
        }
    }

    /// Lets the next fault come, if this look of an end shows the state that it waits for.
    pub(super) fn look_for_fault(&mut self, id: usize) {
        if self.fault_until.is_none() {
            return;
        }
        let index = self.next_fault;
        let When::State { pair, side, .. } = self.plan.faults[index].when else { return };
        let here = self.ends[id].side == side && self.pair_of(id) == pair;
        if here && self.meets(self.plan.faults[index].when) {
            self.at(self.now, Event::Fault { index });
        }
    }

    fn fault(&mut self, index: usize, fault: Fault) {
        self.note(10, [index as u64, 0], || format!("fault: {fault:?}"));
        self.count_fault(fault);
        match fault {
            Fault::Cut { pair } => self.cut_pair(pair),
            Fault::Hold { pair, way, time } => self.hold(pair, way, time),
            Fault::Sever { pair, way } => self.sever(pair, way),
            Fault::Pause { node, time } => self.pause(node, time),
            Fault::Jump { node, by } => {
                self.nodes[node].ahead += by.as_nanos() as u64;
                let ends = self.ends.iter_mut().filter(|end| end.node == node);
                ends.for_each(|end| end.quiet.stops += 1);
            }
            Fault::Crash { node, silent, back } => self.crash(node, silent, back),
            Fault::Late { pair, time } => {
                let until = self.now.after(time);
                self.pairs[pair].late_until = self.pairs[pair].late_until.max(until);
                self.unhealthy(pair, until.after(Duration::from_secs(4)));
            }
            Fault::Stale { pair } => self.ghost(pair, Kind::Again),
            Fault::Copy { pair } => self.ghost(pair, Kind::New),
            Fault::Slow { pair, side, time } => {
                if let Some(end) = self.end_of(pair, side) {
                    self.ends[end].stopped_until = self.now.after(time);
                }
            }
            Fault::Wrong { pair, side, how } => {
                if let Some(end) = self.end_of(pair, side) {
                    self.ends[end].departs = Some(how);
                }
            }
        }
    }

    /// Returns the end of a pair's current session at a side.
    fn end_of(&self, pair: usize, side: usize) -> Option<usize> {
        let session = self.pairs[pair].session?;
        self.sessions[session].ends[side].filter(|end| self.ends[*end].over.is_none())
    }

    /// Counts the states in which the fault finds the ends that it is about.
    fn count_fault(&mut self, fault: Fault) {
        let mut met = false;
        for pair in 0..self.plan.pairs.len() {
            let nodes = self.plan.pairs[pair].nodes;
            let sides = match fault {
                Fault::Cut { pair: it }
                | Fault::Hold { pair: it, .. }
                | Fault::Sever { pair: it, .. }
                | Fault::Late { pair: it, .. }
                | Fault::Stale { pair: it }
                | Fault::Copy { pair: it }
                    if it == pair =>
                {
                    [true, true]
                }
                Fault::Slow { pair: it, side, .. } | Fault::Wrong { pair: it, side, .. }
                    if it == pair =>
                {
                    [side == 0, side == 1]
                }
                Fault::Pause { node, .. }
                | Fault::Jump { node, .. }
                | Fault::Crash { node, .. } => nodes.map(|it| it == node),
                _ => [false; 2],
            };
            for side in (0..2).filter(|side| sides[*side]) {
                met |= self.count_state(fault, pair, side);
            }
        }
        self.counts.met += u64::from(met);
    }

    fn count_state(&mut self, fault: Fault, pair: usize, side: usize) -> bool {
        let Some(end) = self.end_of(pair, side) else { return false };
        let state = self.state_of(end, pair, side);
        self.counts.faults[fault.index()][state] += 1;
        true
    }

    fn state_of(&self, end: usize, pair: usize, side: usize) -> usize {
        if self.ends[end].connection.is_some() {
            return self.ends[end].state();
        }
        let talks = |it: &Connection| {
            let talk = it.talks[side];
            let talks = matches!(
                talk,
                Talk::Hello { .. } | Talk::Answer { .. } | Talk::Handed { .. } | Talk::Word { .. }
            );
            talks && it.pair == pair
        };
        if self.connections.iter().any(talks) { STATE_NAMES.len() } else { self.ends[end].state() }
    }

    /// Notes that nothing is to be expected of a pair before `until`.
    fn unhealthy(&mut self, pair: usize, until: Time) {
        let state = &mut self.pairs[pair];
        state.healthy_from = state.healthy_from.max(until);
    }

    fn pairs_of(&self, node: usize) -> Vec<usize> {
        let pairs = 0..self.plan.pairs.len();
        pairs.filter(|pair| self.plan.pairs[*pair].nodes.contains(&node)).collect()
    }

    pub(super) fn cut_pair(&mut self, pair: usize) {
        let mut last = self.now;
        for connection in self.connections_of(pair) {
            let mut waits = [NEVER; 2];
            for side in [0, 1] {
                let end = self.end_at(connection, side);
                match self.random.below(3) {
                    0 => self.network.lose(self.now, end, 0),
                    _ => self.lose_some(connection, side),
                }
                let wait = match self.random.below(10) {
                    0 => {
                        waits[side] = self.not_told(pair, side, Duration::ZERO);
                        continue;
                    }
                    1 => self.random.below(2_000_000_000),
                    2 | 3 => 0,
                    _ => self.random.below(5_000_000),
                };
                waits[side] = Duration::from_nanos(wait);
                last = last.max(self.now.after(waits[side]));
            }
            self.connections[connection].cut = true;
            self.network.cut(self.now, self.end_at(connection, 0), waits[0], waits[1]);
        }
        self.unhealthy(pair, last);
    }

    fn hold(&mut self, pair: usize, way: Way, time: Duration) {
        let until = self.now.after(time);
        for side in way.sides() {
            let held = &mut self.pairs[pair].held_until[*side];
            *held = (*held).max(until);
            let [from, to] = self.way(pair, *side);
            self.network.partition(self.now, from, to);
            self.at(until, Event::Heal { pair, side: *side });
        }
        self.unhealthy(pair, until);
    }

    /// Ends a hold of the way to a side, unless another hold lasts longer.
    pub(super) fn heal(&mut self, pair: usize, side: usize) {
        if self.now >= self.pairs[pair].held_until[side] {
            let [from, to] = self.way(pair, side);
            self.network.heal(self.now, from, to);
        }
    }

    /// Returns the hosts at the start and at the end of the way to a side of a pair.
    fn way(&self, pair: usize, side: usize) -> [HostId; 2] {
        let nodes = self.plan.pairs[pair].nodes;
        [nodes[1 - side], nodes[side]].map(|node| self.nodes[node].host)
    }

    fn sever(&mut self, pair: usize, way: Way) {
        for connection in self.connections_of(pair) {
            for side in way.sides() {
                self.network.stall(self.now, self.end_at(connection, *side), NEVER);
                self.connections[connection].severed[*side] = true;
            }
            self.unanswered(connection);
        }
        self.unhealthy(pair, self.now);
    }

    /// Lets the dialler's system give up a connection on which nobody answers.
    fn unanswered(&mut self, connection: usize) {
        let keep_alive = silence().keep_alive();
        let pair = self.connections[connection].pair;
        let wait = self.not_told(pair, 0, keep_alive.timeout - keep_alive.idle);
        if wait < NEVER {
            self.after(wait, Event::GiveUp { connection, side: 0 });
        }
    }

    /// Returns the time until a side notices by itself that its connection is gone; `NEVER` if its
    /// system does not ask. The dialler's system asks before long, but not before `from`. The last
    /// question may just have passed, and bytes written meanwhile put the next one off.
    fn not_told(&mut self, pair: usize, side: usize, from: Duration) -> Duration {
        if side == 1 || !self.plan.pairs[pair].asks {
            return NEVER;
        }
        let keep_alive = silence().keep_alive();
        let last = match self.random.below(4) {
            0 => keep_alive.learns_within(),
            _ => from + keep_alive.idle + keep_alive.interval,
        };
        let times = [from, last].map(|it| it.as_nanos());
        Duration::from_nanos(self.random.range(times[0] as u64, times[1] as u64))
    }

    fn pause(&mut self, node: usize, time: Duration) {
        let until = self.now.after(time);
        let before = self.nodes[node].stopped_until.max(self.now);
        if until <= before {
            return;
        }
        self.nodes[node].stopped_until = until;
        let more = Duration::from_nanos(until.0 - before.0);
        for end in self.ends.iter_mut().filter(|end| end.node == node) {
            end.quiet.stopped += more;
            end.quiet.stops += 1;
        }
        for pair in self.pairs_of(node) {
            self.unhealthy(pair, until);
        }
    }

    fn crash(&mut self, node: usize, silent: bool, back: Option<Duration>) {
        if !self.nodes[node].up {
            return;
        }
        for id in 0..self.ends.len() {
            if self.ends[id].node == node {
                self.finish(id, SessionEnd::GivenUp);
            }
        }
        self.nodes[node].up = false;
        self.nodes[node].silent = silent;
        for dialling in 0..self.dialling.len() {
            let pair = self.sessions[dialling].pair;
            if self.plan.pairs[pair].nodes[0] == node {
                self.dialling[dialling].generation += 1;
            }
        }
        self.connections_go(node, silent);
        let back = back.or_else(|| self.is_short().then_some(BACK));
        let until = back.map_or(Time(u64::MAX), |back| self.now.after(back));
        if back.is_some() {
            self.last_fault = self.last_fault.max(until);
            self.at(until, Event::Restart { node });
        }
        for pair in self.pairs_of(node) {
            self.unhealthy(pair, until);
        }
    }

    /// Ends the connections of a node's process with it.
    fn connections_go(&mut self, node: usize, silent: bool) {
        let host = self.nodes[node].host;
        if silent {
            self.network.crash(self.now, host);
        } else {
            self.network.unlisten(host, PORT);
        }
        for connection in 0..self.connections.len() {
            for side in [0, 1] {
                let it = &self.connections[connection];
                let there = side == 0 || it.accepted;
                if !there || it.closed[side] || self.node_at(connection, side) != node {
                    continue;
                }
                if silent {
                    self.connections[connection].closed[side] = true;
                    self.connections[connection].talks[side] = Talk::Over;
                    self.unanswered(connection);
                } else {
                    self.hang_up(connection, side);
                }
            }
        }
    }

    pub(super) fn restart(&mut self, node: usize) {
        let incarnation = u128::from(self.random.next_u64());
        let it = &mut self.nodes[node];
        it.incarnation = incarnation;
        it.up = true;
        if std::mem::take(&mut it.silent) {
            self.network.restart(self.now, it.host);
        }
        let host = it.host;
        self.network.listen(host, PORT).expect("the one before is gone");
        for pair in self.pairs_of(node) {
            if self.plan.pairs[pair].nodes[0] == node {
                self.at(self.now, Event::Begin { pair });
            }
        }
    }

    /// Dials a connection that pretends to be the dialler's.
    fn ghost(&mut self, pair: usize, kind: Kind) {
        let Some(session) = self.pairs[pair].session else { return };
        let Some(end) = self.end_of(pair, 0) else { return };
        if self.end_of(pair, 1).is_none() {
            return;
        }
        let end = &self.ends[end];
        let (last, received) = (end.endpoint.attempt(), end.said);
        let attempt = self.random.range(1, u64::from(last) + 1) as u32;
        let word = Resume {
            kind,
            session: self.sessions[session].number,
            attempt,
            received,
            addressee: 0,
        };
        let incarnation = self.sessions[session].incarnations[0];
        let connection = self.call(pair, Talk::GhostCalls { incarnation, word });
        self.after(GHOST_MAX, Event::Timeout { connection, side: 0 });
    }
}
