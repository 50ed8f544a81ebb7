//! Manager's side of a cluster.

mod agreeing;
mod deaths;
mod naming;
mod seating;

use super::{Death, Down, Member, NAME_BYTES_MAX, NodeId, Ready, Refusal, Up};
use crate::proto::signature::Signature;
use agreeing::Agreements;
use chunkcomm_proto::Time;
use chunkcomm_proto::loss::{Loss, LossKind};
use chunkcomm_proto::sorted::{SortedMap, SortedSet};
use naming::{Claims, Providers};
use std::collections::VecDeque;
use std::time::Duration;

/// Channel of a node to the manager, numbered by the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Line(pub u64);

/// State of the manager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The manager waits until all ranks are there.
    Gathering,
    /// The cluster runs.
    Running,
    /// All members were asked to stop.
    Finished {
        /// The member that asked for it; `None` when all were done.
        by: Option<NodeId>,
    },
    /// The cluster did not start.
    Failed(Refusal),
}

struct Seat {
    member: Member,
    line: Line,
    /// Program of a node with functions.
    program: Option<String>,
    /// Last barrier that the member passed.
    passed: u64,
    /// Later barrier at which the member waits.
    at: Option<u64>,
    done: bool,
    /// Whether it was a member of an earlier manager.
    again: bool,
    /// Names that it brought along, until the cluster starts.
    claims: Claims,
}

/// The system manager: keeps the members, and reports to them.
///
/// Order of calls: `handle_*` as things happen, then [`Manager::poll_transmit`] until it returns
/// nothing; [`Manager::handle_timeout`] when [`Manager::poll_timeout`] has come. A line that got
/// `Refused` is of no further use.
pub struct Manager {
    incarnation: u128,
    size: u32,
    began: Time,
    ready_by: Time,
    /// End of the wait for members of an earlier manager.
    alone_until: Option<Time>,
    /// Functions of each program, as its first node with functions has them; every other such node
    /// must have the same. `None`: they are not compared.
    functions: SortedMap<String, Option<Vec<Signature>>>,
    /// Program of rank 0.
    program: Option<String>,
    phase: Phase,
    /// Nodes that started the cluster, by rank; empty before the start.
    founders: Vec<NodeId>,
    seats: SortedMap<u32, Seat>,
    lines: SortedMap<Line, u32>,
    /// Nodes that want the next free rank before all others are there.
    early: Vec<(Line, Ready)>,
    names: SortedMap<String, Providers>,
    deaths: VecDeque<Death>,
    /// Members that died since the last barrier was passed.
    died: Vec<NodeId>,
    /// The last barrier that was passed.
    barrier: u64,
    /// Dead members that this barrier named.
    named: Vec<NodeId>,
    /// Whether members of an earlier manager have announced themselves.
    again: bool,
    /// Members that the announcing ones knew.
    known: SortedSet<NodeId>,
    /// Ids of `deaths`.
    dead: SortedSet<NodeId>,
    /// Dead members that no barrier has named yet, by the barrier that will name them.
    unnamed: SortedMap<u64, Vec<NodeId>>,
    /// Ranks that have heard that the cluster does not start.
    told: SortedSet<u32>,
    agreements: Agreements,
    transmits: VecDeque<(Line, Down)>,
}

impl Manager {
    /// Returns a manager that waits for ranks 0 to `size` - 1 until `ready_within` from `now`.
    ///
    /// Its incarnation distinguishes it from earlier managers.
    #[must_use]
    pub fn new(incarnation: u128, size: u32, ready_within: Duration, now: Time) -> Manager {
        Manager {
            incarnation,
            size,
            began: now,
            ready_by: now.after(ready_within),
            alone_until: None,
            functions: SortedMap::new(),
            program: None,
            phase: Phase::Gathering,
            founders: Vec::new(),
            seats: SortedMap::new(),
            lines: SortedMap::new(),
            early: Vec::new(),
            names: SortedMap::new(),
            deaths: VecDeque::new(),
            died: Vec::new(),
            barrier: 0,
            named: Vec::new(),
            again: false,
            known: SortedSet::new(),
            dead: SortedSet::new(),
            unnamed: SortedMap::new(),
            told: SortedSet::new(),
            agreements: Agreements::default(),
            transmits: VecDeque::new(),
        }
    }

    /// Makes a manager that may succeed another, of which only members can tell it.
    ///
    /// If it expects no other rank, it waits for `wait` for members that know the earlier manager.
    #[must_use]
    pub fn succeeding(self, wait: Duration) -> Manager {
        let alone_until = (!wait.is_zero()).then(|| self.began.after(wait));
        Manager { alone_until, ..self }
    }

    /// Sets the program of rank 0 and its functions; every node of that program with functions must
    /// have the same. `None`: they are not compared.
    #[must_use]
    pub fn comparing(mut self, program: &str, functions: Option<Vec<Signature>>) -> Manager {
        self.functions.insert(program.to_owned(), functions);
        self.program = Some(program.to_owned());
        self
    }

    /// Returns the manager's state.
    #[must_use]
    pub fn phase(&self) -> &Phase {
        &self.phase
    }

    /// Returns the present members, by rank.
    pub fn members(&self) -> impl Iterator<Item = &Member> {
        self.seats.values().map(|seat| &seat.member)
    }

    /// Returns the number of nodes that may still come, and hear why the cluster did not start.
    ///
    /// These are the ranks that have not heard the reason and are not to blame.
    #[must_use]
    pub fn untold(&self) -> usize {
        let Phase::Failed(why) = &self.phase else { return 0 };
        let blamed = why.ranks();
        let heard = |rank: &u32| self.told.contains(rank) || blamed.contains(rank);
        (0..self.size).filter(|rank| !heard(rank)).count()
    }

    /// Returns the next message, and its line.
    pub fn poll_transmit(&mut self) -> Option<(Line, Down)> {
        self.transmits.pop_front()
    }

    /// Returns the time for the next [`Manager::handle_timeout`].
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Time> {
        let next = self.alone_until.map_or(self.ready_by, |until| until.min(self.ready_by));
        (self.phase == Phase::Gathering).then_some(next)
    }

    /// Handles the passing of time.
    ///
    /// When the time for the start is over, absent ranks are missing, and the cluster does not
    /// start. If members of an earlier manager announced themselves, the missing ones are dead and
    /// the cluster goes on.
    pub fn handle_timeout(&mut self, now: Time) {
        if self.phase != Phase::Gathering {
            return;
        }
        if self.alone_until.is_some_and(|until| now >= until) {
            self.alone_until = None;
            self.start_if_all_there();
        }
        if self.phase != Phase::Gathering || now < self.ready_by {
            return self.check();
        }
        if self.again {
            self.start();
        } else {
            let waited_ms = now.micros_since(self.began) / 1000;
            self.fail(Refusal::Missing { ranks: self.missing(), waited_ms });
        }
        self.check();
    }

    /// Handles a message on `line`.
    pub fn handle_message(&mut self, line: Line, message: Up) {
        let seated = self.lines.get(&line).copied();
        match (message, seated) {
            (Up::Ready(ready), None) => self.handle_ready(line, ready),
            (Up::Ready(_), Some(rank)) => {
                self.transmits.push_back((line, Down::Refused(Refusal::Twice)));
                self.remove_dead(rank, Loss::new(LossKind::Refused, "it announced itself twice"));
            }
            // A word that a node sent before it knew of a cluster is ignored.
            (_, Some(_)) if self.phase == Phase::Gathering => {}
            (message, Some(rank)) => self.handle_word(rank, message),
            // The node lost its rank by its death, or was refused.
            (_, None) => {}
        }
        self.check();
    }

    /// Handles the loss of a line: its member is dead, unless it left before.
    pub fn handle_lost(&mut self, line: Line, loss: impl Into<Loss>) {
        self.early.retain(|(early, _)| *early != line);
        if let Some(&rank) = self.lines.get(&line) {
            self.remove_dead(rank, loss.into());
        }
        self.check();
    }

    /// Handles the end of a rank's process, as reported by its parent.
    pub fn handle_exit(&mut self, rank: u32, loss: impl Into<Loss>) {
        if self.seats.contains_key(&rank) {
            self.remove_dead(rank, loss.into());
        } else if self.phase == Phase::Gathering && !self.again {
            self.fail(Refusal::DiedEarly { rank, loss: loss.into() });
        }
        self.check();
    }

    fn handle_word(&mut self, rank: u32, message: Up) {
        let seat = self.seats.get_mut(&rank).expect("a line that is known has its seat");
        let id = seat.member.id;
        match message {
            Up::Ready(_) => unreachable!("handled by the caller"),
            Up::Barrier(number) => {
                seat.at = Some(number).filter(|number| next_of(seat.passed) == Some(*number));
                self.pass_barrier();
            }
            Up::Provide(name) => self.provide(rank, name),
            Up::Withdraw(name) => self.withdraw(id, &name),
            Up::Finish => self.finish(Some(id)),
            Up::Done => {
                seat.done = true;
                self.decide_all();
                self.finish_if_all_done();
            }
            Up::Leave => {
                self.remove(rank);
                self.tell_all(&Down::Left(id));
                self.pass_barrier();
                self.decide_all();
                self.finish_if_all_done();
            }
            Up::Agree(proposal) => self.propose(rank, proposal),
            Up::Heard(number) => self.handle_heard(id, number),
            Up::ProvideSole { number, name } => self.provide_sole(rank, number, &name),
        }
    }

    /// Lets all members pass the next barrier when all have come to it.
    fn pass_barrier(&mut self) {
        let Some(next) = next_of(self.barrier) else { return };
        let all_came = self.seats.values().all(|seat| seat.at == Some(next));
        if self.phase == Phase::Running && all_came && !self.seats.is_empty() {
            self.barrier = next;
            self.named = std::mem::take(&mut self.died);
            self.catch_up();
        }
    }

    /// Lets all members pass the last barrier that one of them has passed. After a change of
    /// managers that is news to some.
    fn catch_up(&mut self) {
        let number = self.barrier;
        for seat in self.seats.values_mut().filter(|seat| seat.passed < number) {
            seat.passed = number;
            seat.at = seat.at.filter(|at| *at > number);
            let released = Down::Released { number, died: self.named.clone() };
            self.transmits.push_back((seat.line, released));
        }
    }

    fn finish_if_all_done(&mut self) {
        if self.phase == Phase::Running && self.seats.values().all(|seat| seat.done) {
            self.finish(None);
        }
    }

    fn finish(&mut self, by: Option<NodeId>) {
        if self.phase == Phase::Running {
            self.tell_all(&Down::Finish { by });
            self.phase = Phase::Finished { by };
        }
    }

    /// Ends a cluster that does not start; all present nodes get the reason.
    fn fail(&mut self, why: Refusal) {
        if self.phase == Phase::Gathering {
            let early = std::mem::take(&mut self.early).into_iter().map(|(line, _)| line);
            let lines: Vec<Line> = self.lines.keys().copied().chain(early).collect();
            for line in lines {
                self.transmits.push_back((line, Down::Refused(why.clone())));
            }
            self.told.extend(self.seats.keys().copied());
            self.phase = Phase::Failed(why);
        }
    }

    fn remove_dead(&mut self, rank: u32, loss: Loss) {
        let Some(seat) = self.remove(rank) else { return };
        let loss = loss.into_death();
        match self.phase {
            Phase::Gathering if self.again => {
                self.note_death(Death { id: seat.member.id, loss });
                self.start_if_all_there();
            }
            Phase::Gathering => self.fail(Refusal::DiedEarly { rank, loss }),
            Phase::Running => {
                let death = Death { id: seat.member.id, loss };
                self.tell_all(&Down::Died(death.clone()));
                self.note_death(death);
                self.pass_barrier();
                self.decide_all();
                self.finish_if_all_done();
            }
            // All members go after that.
            Phase::Finished { .. } | Phase::Failed(_) => {}
        }
    }

    fn remove(&mut self, rank: u32) -> Option<Seat> {
        let seat = self.seats.remove(&rank)?;
        self.lines.remove(&seat.line);
        // Others learn of the withdrawn names from the end of the member.
        self.names.retain(|_, providers| !providers.remove(seat.member.id));
        self.agreements.leave(seat.member.id);
        self.forget_program(seat.program.as_deref());
        Some(seat)
    }

    fn ranks(&self) -> Vec<u32> {
        self.seats.keys().copied().collect()
    }

    fn tell_all(&mut self, what: &Down) {
        let lines = self.seats.values().map(|seat| (seat.line, what.clone()));
        self.transmits.extend(lines);
    }

    /// Checks the invariants, which hold after every call.
    fn check(&self) {
        assert_eq!(self.seats.len(), self.lines.len(), "a line for each seat");
        for (rank, seat) in self.seats.iter() {
            assert_eq!(self.lines.get(&seat.line), Some(rank), "the line of its seat");
            assert!(seat.passed <= self.barrier, "no barrier is passed alone");
            let runs = self.phase == Phase::Running;
            assert!(!runs || seat.passed == self.barrier, "all pass a barrier together");
            assert!(!self.dead.contains(&seat.member.id), "the dead have no seat");
            assert!(seat.at.is_none_or(|at| at > seat.passed), "waits at a later one");
        }
        assert!(self.names.values().all(Providers::is_sound), "one provides a sole name");
        assert!(self.agreements.is_sound(self.seats.len()), "somebody waits for each agreement");
        assert!(
            self.phase == Phase::Gathering || self.early.is_empty(),
            "nobody waits for a start"
        );
    }
}

pub(super) fn is_name(name: &str) -> bool {
    (1..=NAME_BYTES_MAX).contains(&name.len())
}

/// Returns the barrier after this one, the only one that members come to.
fn next_of(passed: u64) -> Option<u64> {
    passed.checked_add(1)
}
