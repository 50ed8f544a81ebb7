//! Admission of nodes: their announcements, and the start.

use super::{Claims, Line, Manager, Phase, Seat, is_name, next_of};
use crate::proto::cluster::{
    Before, DEATHS_MAX, Death, Down, MEMBER_COUNT_MAX, Member, NodeId, Ready, Refusal, TaskIds,
};

use crate::proto::signature::Difference;
use chunkcomm_proto::sorted::SortedSet;

impl Manager {
    pub(super) fn handle_ready(&mut self, line: Line, ready: Ready) {
        let fault = match &self.phase {
            Phase::Finished { .. } => Some(Refusal::Over),
            // A node that comes too late for the start gets the reason of its failure.
            Phase::Failed(why) => {
                self.told.extend(ready.rank);
                Some(why.clone())
            }
            Phase::Gathering | Phase::Running => self.misfit(&ready),
        };
        match fault {
            // The nodes that wait for the start would wait in vain.
            Some(fault) if self.phase == Phase::Gathering && is_of_the_start(&fault) => {
                self.transmits.push_back((line, Down::Refused(fault.clone())));
                self.fail(fault);
            }
            Some(fault) => self.transmits.push_back((line, Down::Refused(fault))),
            None if self.phase == Phase::Gathering && ready.rank.is_none() => {
                self.early.push((line, ready));
            }
            None => self.seat(line, ready),
        }
    }

    fn misfit(&self, ready: &Ready) -> Option<Refusal> {
        if let Some(theirs) = ready.size.filter(|theirs| *theirs != self.size) {
            return Some(Refusal::Size { rank: ready.rank, theirs, ours: self.size });
        }
        if let Some(refusal) = self.other_functions(ready) {
            return Some(refusal);
        }
        // A late member would act by one decision, and the others by another.
        let is_late = self.phase == Phase::Running;
        let mut heard = ready.again.iter().flat_map(|before| &before.decisions);
        if let Some(other) = heard.find(|it| is_late && self.agreements.contradicts(it)) {
            return Some(Refusal::Decided { name: other.name.clone() });
        }
        let Some(rank) = ready.rank else {
            let there = self.seats.len() + self.early.len();
            // The search for free ranks begins at the size.
            let full = there + self.size as usize >= MEMBER_COUNT_MAX as usize;
            return full.then_some(Refusal::Full);
        };
        if let Some(seat) = self.seats.get(&rank) {
            let same = seat.member.id.incarnation == ready.incarnation;
            return (!same).then(|| Refusal::Taken(Box::new(seat.member.clone())));
        }
        // A higher rank was given to a node that came later.
        let of_the_start = rank < self.size;
        let later = ready.again.is_some() || self.phase == Phase::Running && ready.size.is_none();
        let fits = of_the_start || later && rank < MEMBER_COUNT_MAX;
        (!fits).then_some(Refusal::Rank { rank, size: self.size })
    }

    /// Returns the refusal of a node whose functions are not those of another node of its program.
    fn other_functions(&self, ready: &Ready) -> Option<Refusal> {
        let ours = self.functions.get(&ready.program)?.as_ref()?;
        let theirs = ready.functions.as_ref()?;
        let difference = Box::new(Difference::find(ours, theirs)?);
        let program = Some(&ready.program);
        let mut seats = self.seats.iter().filter(|(_, seat)| seat.program.as_ref() == program);
        // Rank 0 may not have announced itself yet.
        let other = if self.program.as_ref() == program { 0 } else { *seats.next()?.0 };
        Some(Refusal::Functions { rank: ready.rank, other, difference })
    }

    /// Forgets the functions of a program that no node runs any more, so that another version of it
    /// may come.
    pub(super) fn forget_program(&mut self, program: Option<&str>) {
        let runs = self.seats.values().any(|seat| seat.program.as_deref() == program);
        if let Some(program) = program.filter(|_| !runs && self.program.as_deref() != program) {
            self.functions.remove(program);
        }
    }

    /// Returns the lowest free rank above those of the start.
    fn free_rank(&self) -> u32 {
        let mut rank = self.size;
        for taken in self.seats.keys_from(&self.size).copied() {
            if taken != rank {
                break;
            }
            rank += 1;
        }
        rank
    }

    /// Gives `ready` its seat: a free one, or its own if it lost its line.
    fn seat(&mut self, line: Line, ready: Ready) {
        let rank = ready.rank.unwrap_or_else(|| self.free_rank());
        let id = NodeId { rank, incarnation: ready.incarnation };
        let Ready { name, host, pid, addresses, program, functions, again, .. } = ready;
        let program = functions.map(|functions| {
            self.functions.get_or_insert(program.clone(), Some(functions));
            program
        });
        let (again, mut before) = (again.is_some(), again.unwrap_or_default());
        let mut claims = Claims::of(&mut before);
        let name = name.filter(|name| is_name(name));
        let member = Member { id, host, pid, addresses, name };
        let known = self.seats.remove(&rank);
        if let Some(known) = &known {
            self.lines.remove(&known.line);
        }
        let running = self.phase == Phase::Running;
        if running && known.is_none() {
            self.tell_all(&Down::Joined(member.clone()));
        }
        self.agreements.join(id, &before.open);
        if again {
            self.learn(&before);
            self.learn_decisions(id, &before.decisions);
        }
        let passed = if again { before.passed } else { self.barrier };
        let at = before.at.filter(|at| next_of(passed) == Some(*at));
        let done = before.done;
        // Before the start all claims wait for those of the others.
        let waiting = if running { Claims::default() } else { std::mem::take(&mut claims) };
        let seat = Seat { member, line, program, passed, at, done, again, claims: waiting };
        self.seats.insert(rank, seat);
        self.revive(id);
        self.lines.insert(line, rank);
        if running {
            // These are the first words to the member, even before its own names.
            self.welcome(rank);
            self.catch_up();
            self.take_up_names(rank, claims);
            self.settle();
            self.pass_barrier();
            self.finish_if_all_done();
        } else {
            self.start_if_all_there();
        }
    }

    /// Learns from a member of an earlier manager.
    fn learn(&mut self, before: &Before) {
        self.again = true;
        self.known.extend(before.members.iter().copied());
        if self.founders.is_empty() {
            self.founders.clone_from(&before.founders);
        }
        for death in &before.deaths {
            let lives = self.seats.get(&death.id.rank).is_some_and(|it| it.member.id == death.id);
            if !lives && !self.dead.contains(&death.id) {
                self.remember(death.clone());
            }
        }
        if self.phase == Phase::Running {
            if before.passed > self.barrier {
                self.barrier = before.passed;
                self.named.clear();
            }
            if before.passed == self.barrier {
                add_unknown(&mut self.died, &before.unnamed);
            }
        } else if let Some(next) = next_of(before.passed) {
            self.barrier = self.barrier.max(before.passed);
            add_unknown(self.unnamed.get_or_insert(next, Vec::new()), &before.unnamed);
        }
    }

    /// Starts the cluster, if it has not started and is complete.
    pub(super) fn start_if_all_there(&mut self) {
        let alone = self.alone_until.is_some() && self.size == 1 && !self.again;
        if self.missing().is_empty() && !alone {
            self.start();
        }
    }

    /// Starts the cluster.
    pub(super) fn start(&mut self) {
        let before = self.transmits.len();
        self.take_up_all_names();
        let about_names = self.transmits.split_off(before);
        self.phase = Phase::Running;
        if self.again {
            self.bury_the_lost();
            self.take_up_the_barriers();
        }
        if self.founders.is_empty() {
            self.founders = self.members().map(|member| member.id).collect();
        }
        for rank in self.ranks() {
            self.welcome(rank);
        }
        self.transmits.extend(about_names);
        self.catch_up();
        self.settle();
        for (line, ready) in std::mem::take(&mut self.early) {
            self.handle_ready(line, ready);
        }
        self.pass_barrier();
        self.finish_if_all_done();
    }

    /// Returns the missing ranks of the start. After another manager: missing ranks of members that
    /// a node knew and that no node knows to be dead.
    pub(super) fn missing(&self) -> Vec<u32> {
        let is_free = |rank: &u32| !self.seats.contains_key(rank);
        if self.again {
            return self.lost().into_iter().map(|id| id.rank).filter(is_free).collect();
        }
        (0..self.size).filter(is_free).collect()
    }

    /// Returns the members of an earlier manager that are not there and not known to be dead.
    fn lost(&self) -> Vec<NodeId> {
        let is_here =
            |id: &NodeId| self.seats.get(&id.rank).is_some_and(|seat| seat.member.id == *id);
        let is_lost = |id: &&NodeId| !is_here(id) && !self.dead.contains(id);
        self.known.iter().filter(is_lost).copied().collect()
    }

    /// Notes the death of an earlier manager's members that did not come back, or whose rank
    /// another node has.
    fn bury_the_lost(&mut self) {
        for id in self.lost() {
            let loss = "it did not announce itself to the new manager".into();
            self.note_death(Death { id, loss });
        }
    }

    /// Continues the barriers of the earlier manager's members. A new member counts as having
    /// passed every barrier that a member passed. The barrier that was to name a death still does.
    fn take_up_the_barriers(&mut self) {
        for seat in self.seats.values_mut().filter(|seat| !seat.again) {
            seat.passed = self.barrier;
        }
        for (number, unnamed) in std::mem::take(&mut self.unnamed) {
            if number <= self.barrier {
                add_unknown(&mut self.named, &unnamed);
            } else {
                add_unknown(&mut self.died, &unnamed);
            }
        }
    }

    fn welcome(&mut self, rank: u32) {
        let line = self.seats[&rank].line;
        let names = self.names.iter();
        let names = names.flat_map(|(name, by)| by.ids().map(|id| (name.clone(), id)));
        let task_ids = TaskIds {
            manager: self.incarnation,
            rank,
            size: self.size,
            members: self.members().cloned().collect(),
            names: names.collect(),
            deaths: self.deaths.iter().cloned().collect(),
            barrier: self.seats[&rank].passed,
            founders: self.founders.clone(),
        };
        self.transmits.push_back((line, Down::TaskIds(task_ids)));
    }
}

/// Adds deaths that are not in the list. With more than [`DEATHS_MAX`] deaths, barriers do not name
/// all.
fn add_unknown(to: &mut Vec<NodeId>, more: &[NodeId]) {
    let known: SortedSet<NodeId> = to.iter().copied().collect();
    to.extend(more.iter().filter(|id| !known.contains(id)));
    to.truncate(DEATHS_MAX);
}

/// Whether the fault belongs to a rank of the start, whose place no other node will take.
fn is_of_the_start(fault: &Refusal) -> bool {
    matches!(fault, Refusal::Size { rank: Some(_), .. } | Refusal::Functions { rank: Some(_), .. })
}
