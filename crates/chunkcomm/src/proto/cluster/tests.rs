//! The two machines against each other: words in any interleaving, deaths, later
//! comers and new managers at any moment.

use super::manager::{Line, Manager, Phase};
use super::membership::{Change, End, Membership, Standing};
use super::{Death, Down, Member, Mismatch, NodeId, Ready, Refusal, Signature, Up};
use crate::proto::Time;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

fn ready(rank: impl Into<Option<u32>>, size: u32, incarnation: u128) -> Ready {
    Ready {
        rank: rank.into(),
        size: Some(size),
        incarnation,
        host: "here".to_owned(),
        pid: incarnation as u32,
        addresses: vec![format!("memory:{incarnation}")],
        functions: None,
        again: None,
    }
}

/// Functions from names to the fingerprint of their input.
fn functions(of: &[(&str, u64)]) -> Vec<Signature> {
    let one = |&(name, hash): &(&str, u64)| Signature {
        name: name.to_owned(),
        hashes: vec![hash, 1],
        types: format!("T{hash} -> T1"),
    };
    of.iter().map(one).collect()
}

fn said(manager: &mut Manager) -> Vec<(u64, Down)> {
    std::iter::from_fn(|| manager.poll_transmit()).map(|(line, down)| (line.0, down)).collect()
}

/// A manager with `size` members on the lines of their ranks.
fn running(size: u32) -> Manager {
    let mut manager = Manager::new(77, size, SECOND, Time(0));
    for rank in 0..size {
        manager.handle_message(
            Line(rank.into()),
            Up::Ready(ready(rank, size, 100 + u128::from(rank))),
        );
    }
    assert_eq!(*manager.phase(), Phase::Running);
    said(&mut manager);
    manager
}

#[test]
fn everybody_is_told_the_addresses_once_all_are_there() {
    let mut manager = Manager::new(77, 3, SECOND, Time(0));
    for rank in [2, 0] {
        manager
            .handle_message(Line(rank), Up::Ready(ready(rank as u32, 3, 100 + u128::from(rank))));
        assert_eq!(said(&mut manager), []);
    }
    manager.handle_message(Line(1), Up::Ready(ready(1, 3, 101)));
    let told = said(&mut manager);
    assert_eq!(told.iter().map(|(line, _)| *line).collect::<Vec<_>>(), [0, 1, 2]);
    for (rank, down) in told {
        let Down::TaskIds(ids) = down else { panic!("{down:?}") };
        assert_eq!((u64::from(ids.rank), ids.size, ids.manager), (rank, 3, 77));
        let addresses: Vec<_> = ids.members.iter().map(|it| it.addresses[0].as_str()).collect();
        assert_eq!(addresses, ["memory:100", "memory:101", "memory:102"]);
    }
}

#[test]
fn who_is_not_ready_in_time_is_named() {
    let mut manager = Manager::new(77, 4, Duration::from_millis(1500), Time(0));
    manager.handle_message(Line(2), Up::Ready(ready(2, 4, 1)));
    let until = manager.poll_timeout().unwrap();
    manager.handle_timeout(Time(until.0 - 1));
    assert_eq!(said(&mut manager), []);
    manager.handle_timeout(until);
    let why = Refusal::Missing { ranks: vec![0, 1, 3], waited_ms: 1500 };
    assert_eq!(why.to_string(), "not ready within 1500 ms: ranks 0, 1, 3");
    assert_eq!(said(&mut manager), [(2, Down::Refused(why.clone()))]);
    assert_eq!((manager.phase(), manager.poll_timeout()), (&Phase::Failed(why.clone()), None));
    manager.handle_message(Line(9), Up::Ready(ready(0, 4, 2)));
    assert_eq!(said(&mut manager), [(9, Down::Refused(why))]);
}

#[test]
fn ranks_that_disagree_about_the_size_are_named_to_everybody() {
    let mut manager = Manager::new(77, 3, SECOND, Time(0));
    manager.handle_message(Line(0), Up::Ready(ready(0, 3, 1)));
    manager.handle_message(Line(5), Up::Ready(ready(1, 4, 2)));
    let why = Refusal::Size { rank: Some(1), theirs: 4, ours: 3 };
    let text = "rank 1 was told that the cluster has 4 nodes, rank 0 that it has 3";
    assert_eq!(why.to_string(), text);
    assert_eq!(said(&mut manager), [5, 0].map(|line| (line, Down::Refused(why.clone()))));
    // A cluster that runs is not concerned.
    let mut manager = running(2);
    manager.handle_message(Line(5), Up::Ready(ready(1, 3, 9)));
    let why = Refusal::Size { rank: Some(1), theirs: 3, ours: 2 };
    assert_eq!(said(&mut manager), [(5, Down::Refused(why))]);
    assert_eq!(*manager.phase(), Phase::Running);
}

#[test]
fn other_functions_are_named_on_both_sides() {
    let ours = functions(&[("sort", 1), ("merge", 2)]);
    for (theirs, text) in [
        (
            &[("sort", 3), ("merge", 2)][..],
            "function \"sort\" is T3 -> T1 on rank 1, and T1 -> T1 on rank 0",
        ),
        (&[("sort", 1)], "rank 0 has function \"merge\" (T2 -> T1), which rank 1 lacks"),
        (
            &[("count", 9), ("sort", 1), ("merge", 2)],
            "rank 1 has function \"count\" (T9 -> T1), which rank 0 lacks",
        ),
        (
            &[("sort", 1), ("merge", 2), ("zip", 9)],
            "rank 1 has function \"zip\" (T9 -> T1), which rank 0 lacks",
        ),
    ] {
        let theirs = functions(theirs);
        let mismatch = Mismatch::find(&ours, &theirs).unwrap();
        let why = Refusal::Functions { rank: Some(1), mismatch: Box::new(mismatch) };
        assert_eq!(why.to_string(), text);
        // At the start nobody waits for it in vain.
        let with = |rank, functions: &[Signature]| Ready {
            functions: Some(functions.to_vec()),
            ..ready(rank, 2, 10 + u128::from(rank))
        };
        let manager = || Manager::new(77, 2, SECOND, Time(0)).comparing(Some(ours.clone()));
        let mut starting = manager();
        starting.handle_message(Line(0), Up::Ready(with(0, &ours)));
        starting.handle_message(Line(1), Up::Ready(with(1, &theirs)));
        assert_eq!(said(&mut starting), [1, 0].map(|line| (line, Down::Refused(why.clone()))));
        // Later only that one is concerned.
        let mut running = manager();
        running.handle_message(Line(0), Up::Ready(with(0, &ours)));
        let mut other_order = ours.clone();
        other_order.reverse();
        running.handle_message(Line(1), Up::Ready(with(1, &other_order)));
        assert_eq!(*running.phase(), Phase::Running);
        running.handle_message(Line(1), Up::Leave);
        said(&mut running);
        running.handle_message(Line(2), Up::Ready(with(1, &theirs)));
        assert_eq!(said(&mut running), [(2, Down::Refused(why))]);
        // Who runs none is not compared.
        running.handle_message(Line(3), Up::Ready(ready(1, 2, 30)));
        assert_eq!(running.members().count(), 2);
    }
}

#[test]
fn a_rank_is_had_by_one() {
    let mut manager = running(2);
    manager.handle_message(Line(5), Up::Ready(ready(1, 2, 9)));
    let told = said(&mut manager);
    let [(5, Down::Refused(Refusal::Taken(member)))] = &told[..] else { panic!("{told:?}") };
    assert_eq!(member.id, NodeId { rank: 1, incarnation: 101 });
    manager.handle_message(Line(6), Up::Ready(ready(7, 2, 9)));
    assert_eq!(said(&mut manager), [(6, Down::Refused(Refusal::Rank { rank: 7, size: 2 }))]);
    // Once it is dead another one takes it, and everybody is told of both.
    manager.handle_lost(Line(1), "silent");
    let death = Death { id: NodeId { rank: 1, incarnation: 101 }, why: "silent".to_owned() };
    assert_eq!(said(&mut manager), [(0, Down::Died(death.clone()))]);
    manager.handle_message(Line(7), Up::Ready(ready(1, 2, 9)));
    let told = said(&mut manager);
    let [(0, Down::Joined(joined)), (7, Down::TaskIds(ids))] = &told[..] else {
        panic!("{told:?}")
    };
    assert_eq!(joined.id, NodeId { rank: 1, incarnation: 9 });
    assert_eq!((&ids.deaths, ids.members.len()), (&vec![death], 2));
}

#[test]
fn later_comers_get_the_lowest_free_rank_behind_the_first() {
    let mut manager = running(2);
    let mut come = |line: u64| {
        let later = Ready { size: None, ..ready(None, 0, u128::from(line)) };
        manager.handle_message(Line(line), Up::Ready(later));
        let told = said(&mut manager);
        let (_, Down::TaskIds(ids)) = told.last().unwrap() else { panic!("{told:?}") };
        assert_eq!(told.len(), ids.members.len(), "everybody is told");
        ids.rank
    };
    assert_eq!([come(10), come(11), come(12)], [2, 3, 4]);
    manager.handle_message(Line(11), Up::Leave);
    let told = said(&mut manager);
    let left = Down::Left(NodeId { rank: 3, incarnation: 11 });
    assert_eq!(told, [0, 1, 10, 12].map(|line| (line, left.clone())));
    let later = Ready { size: None, ..ready(None, 0, 13) };
    manager.handle_message(Line(13), Up::Ready(later));
    let told = said(&mut manager);
    let (13, Down::TaskIds(ids)) = told.last().unwrap() else { panic!("{told:?}") };
    assert_eq!(ids.rank, 3);
}

#[test]
fn a_death_before_the_start_ends_it() {
    for by_exit in [false, true] {
        let mut manager = Manager::new(77, 2, SECOND, Time(0));
        manager.handle_message(Line(0), Up::Ready(ready(0, 2, 1)));
        let why = if by_exit {
            manager.handle_exit(1, "status 1");
            Refusal::DiedEarly { rank: 1, why: "status 1".to_owned() }
        } else {
            manager.handle_lost(Line(0), "silent");
            Refusal::DiedEarly { rank: 0, why: "silent".to_owned() }
        };
        assert_eq!(*manager.phase(), Phase::Failed(why.clone()));
        let told = if by_exit { vec![(0, Down::Refused(why))] } else { vec![] };
        assert_eq!(said(&mut manager), told);
    }
}

#[test]
fn a_barrier_waits_for_all_and_names_the_dead() {
    let mut manager = running(3);
    for line in [2, 0] {
        manager.handle_message(Line(line), Up::Barrier(1));
        assert_eq!(said(&mut manager), []);
    }
    manager.handle_message(Line(1), Up::Barrier(1));
    let released = Down::Released { number: 1, died: vec![] };
    assert_eq!(said(&mut manager), [0, 1, 2].map(|line| (line, released.clone())));
    manager.handle_message(Line(2), Up::Barrier(2));
    manager.handle_message(Line(0), Up::Barrier(9));
    manager.handle_message(Line(0), Up::Barrier(2));
    manager.handle_lost(Line(1), "silent");
    let id = NodeId { rank: 1, incarnation: 101 };
    let died = Down::Died(Death { id, why: "silent".to_owned() });
    let released = Down::Released { number: 2, died: vec![id] };
    let told = [died, released].map(|down| [0, 2].map(|line| (line, down.clone())));
    assert_eq!(said(&mut manager), told.concat());
    // The next one is passed by those who are left.
    for line in [0, 2] {
        manager.handle_message(Line(line), Up::Barrier(3));
    }
    assert_eq!(said(&mut manager).len(), 2);
}

#[test]
fn all_stop_when_one_asks_or_everybody_is_done() {
    let mut manager = running(2);
    manager.handle_message(Line(1), Up::Finish);
    let by = Some(NodeId { rank: 1, incarnation: 101 });
    assert_eq!(said(&mut manager), [0, 1].map(|line| (line, Down::Finish { by })));
    manager.handle_lost(Line(1), "bye");
    assert_eq!((said(&mut manager), manager.members().count()), (vec![], 1));
    manager.handle_message(Line(9), Up::Ready(ready(1, 2, 2)));
    assert_eq!(said(&mut manager), [(9, Down::Refused(Refusal::Over))]);
    let mut manager = running(3);
    manager.handle_message(Line(1), Up::Done);
    manager.handle_message(Line(0), Up::Done);
    assert_eq!(said(&mut manager), []);
    // Whoever is gone has no more to do either.
    manager.handle_lost(Line(2), "silent");
    let told = said(&mut manager);
    assert_eq!(told[2..], [0, 1].map(|line| (line, Down::Finish { by: None })));
}

#[test]
fn names_are_bounded() {
    let mut manager = running(1);
    for name in ["", &"n".repeat(256)] {
        manager.handle_message(Line(0), Up::Provide(name.to_owned()));
        assert_eq!(said(&mut manager), [(0, Down::NameRefused(name.to_owned()))]);
    }
    for number in 0..=super::NAMES_A_MEMBER_MAX {
        manager.handle_message(Line(0), Up::Provide(number.to_string()));
    }
    let told = said(&mut manager);
    assert_eq!(told.last().unwrap(), &(0, Down::NameRefused("1024".to_owned())));
}

#[test]
fn a_member_ends_with_its_manager_unless_it_may_wait() {
    for window in [Duration::ZERO, SECOND] {
        let mut member = Membership::new(ready(0, 1, 5), window);
        member.announce();
        let mut manager = Manager::new(77, 1, SECOND, Time(0));
        manager.handle_message(Line(0), member.poll_transmit().unwrap());
        member.handle_message(manager.poll_transmit().unwrap().1).unwrap();
        assert_eq!(member.id(), Some(NodeId { rank: 0, incarnation: 5 }));
        let waits = member.handle_manager_lost("silent", Time(7));
        assert_eq!(waits, !window.is_zero());
        if waits {
            // Attempts that fail do not win time.
            member.announce();
            assert!(member.handle_manager_lost("silent again", Time(9)));
            assert_eq!(member.poll_timeout(), Some(Time(7).after(SECOND)));
            member.handle_timeout(Time(7).after(SECOND));
        }
        let End::ManagerLost { why } = member.end().unwrap() else { panic!() };
        assert!(why.starts_with("silent"), "{why}");
    }
}

#[test]
fn a_manager_that_speaks_out_of_turn_is_an_error() {
    let mut member = Membership::new(ready(0, 1, 5), SECOND);
    member.announce();
    assert!(member.handle_message(Down::Finish { by: None }).is_err());
    let mut manager = Manager::new(77, 1, SECOND, Time(0));
    manager.handle_message(Line(0), Up::Ready(ready(0, 1, 6)));
    assert!(member.handle_message(manager.poll_transmit().unwrap().1).is_err());
}

/// What may happen in the world below.
#[derive(Clone, Debug)]
enum Act {
    /// The oldest word of a line, up or down, arrives.
    Arrive(usize),
    Barrier(usize),
    Provide(usize, u8),
    Withdraw(usize, u8),
    Leave(usize),
    Die(usize),
    Come,
    /// The manager dies; its members announce themselves to another.
    NewManager,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        20 => any::<usize>().prop_map(Act::Arrive),
        4 => any::<usize>().prop_map(Act::Barrier),
        2 => (any::<usize>(), 0..4_u8).prop_map(|(who, name)| Act::Provide(who, name)),
        1 => (any::<usize>(), 0..4_u8).prop_map(|(who, name)| Act::Withdraw(who, name)),
        1 => any::<usize>().prop_map(Act::Leave),
        1 => any::<usize>().prop_map(Act::Die),
        1 => Just(Act::Come),
        1 => Just(Act::NewManager),
    ]
}

struct Body {
    member: Membership,
    line: Line,
    up: VecDeque<Up>,
    down: VecDeque<Down>,
    /// Barriers that it came to.
    entered: u64,
    passed: u64,
}

/// Members with lines of their own to one manager; what is on a line arrives when
/// an act says so.
struct World {
    manager: Manager,
    bodies: Vec<Body>,
    next: u64,
    size: u32,
    now: Time,
    /// How each barrier was passed, by manager.
    passed: BTreeMap<(u64, u64), Vec<NodeId>>,
    managers: u64,
}

impl World {
    fn new(size: u32) -> World {
        let manager = Manager::new(1000, size, SECOND, Time(0));
        let mut world = World {
            manager,
            bodies: Vec::new(),
            next: 0,
            size,
            now: Time(0),
            passed: BTreeMap::new(),
            managers: 1,
        };
        for rank in 0..size {
            world.come(Some(rank));
        }
        world
    }

    fn come(&mut self, rank: Option<u32>) {
        self.next += 1;
        let size = rank.map(|_| self.size);
        let ready = Ready { size, ..ready(rank, 0, self.next.into()) };
        let mut member = Membership::new(ready, SECOND);
        member.announce();
        let line = Line(self.next);
        let (up, down) = (VecDeque::new(), VecDeque::new());
        self.bodies.push(Body { member, line, up, down, entered: 0, passed: 0 });
        self.pump();
    }

    /// Words go on their lines.
    fn pump(&mut self) {
        for body in &mut self.bodies {
            body.up.extend(std::iter::from_fn(|| body.member.poll_transmit()));
        }
        while let Some((line, down)) = self.manager.poll_transmit() {
            // What is said to the dead is lost.
            if let Some(body) = self.bodies.iter_mut().find(|body| body.line == line) {
                body.down.push_back(down);
            }
        }
    }

    fn arrive(&mut self, which: usize) {
        let body = &mut self.bodies[which / 2];
        if which.is_multiple_of(2) {
            let Some(up) = body.up.pop_front() else { return };
            let line = body.line;
            self.manager.handle_message(line, up);
        } else if let Some(down) = body.down.pop_front() {
            let released = match &down {
                Down::Released { number, died } => Some((*number, died.clone())),
                _ => None,
            };
            body.member.handle_message(down).unwrap();
            if let Some((number, died)) = released {
                body.passed = number;
                body.member.leave_barrier(number);
                let known = self.passed.entry((self.managers, number)).or_insert(died.clone());
                assert_eq!(*known, died, "all hear the same of barrier {number}");
            }
        }
        self.pump();
    }

    fn act(&mut self, act: &Act) {
        let count = self.bodies.len();
        let pick = |number: usize| number % count.max(1);
        match act {
            _ if count == 0 => {}
            Act::Arrive(which) => self.arrive(which % (2 * count)),
            Act::Barrier(who) => {
                let body = &mut self.bodies[pick(*who)];
                if body.member.id().is_some() {
                    body.entered = body.member.enter_barrier();
                }
            }
            Act::Provide(who, name) => self.bodies[pick(*who)].member.provide(&name.to_string()),
            Act::Withdraw(who, name) => self.bodies[pick(*who)].member.withdraw(&name.to_string()),
            Act::Leave(who) => {
                let body = &mut self.bodies[pick(*who)];
                if *body.member.standing() == Standing::Member {
                    body.member.leave();
                    let mut body = self.bodies.remove(pick(*who));
                    body.up.extend(std::iter::from_fn(|| body.member.poll_transmit()));
                    for up in body.up {
                        self.manager.handle_message(body.line, up);
                    }
                }
            }
            Act::Die(who) => {
                let body = self.bodies.remove(pick(*who));
                self.manager.handle_lost(body.line, "it died");
            }
            Act::Come => self.come(None),
            Act::NewManager => self.new_manager(),
        }
        self.pump();
    }

    fn new_manager(&mut self) {
        if *self.manager.phase() != Phase::Running {
            return;
        }
        self.managers += 1;
        self.manager = Manager::new(1000 + u128::from(self.managers), self.size, SECOND, self.now);
        // Who was no member yet is told that there is no manager any more.
        self.bodies.retain_mut(|body| body.member.handle_manager_lost("it died", Time(0)));
        for body in &mut self.bodies {
            self.next += 1;
            body.line = Line(self.next);
            (body.up, body.down) = Default::default();
            body.member.announce();
        }
    }

    /// Everything arrives, everybody is there who will be.
    fn settle(&mut self) {
        self.pump();
        self.now = self.now.after(2 * SECOND);
        loop {
            let words = |body: &Body| body.up.len() + body.down.len();
            while self.bodies.iter().map(words).sum::<usize>() > 0 {
                for which in 0..2 * self.bodies.len() {
                    self.arrive(which);
                }
            }
            if self.manager.poll_timeout().is_none() {
                return;
            }
            self.manager.handle_timeout(self.now);
            self.pump();
        }
    }

    fn check_passing(&self) {
        for body in &self.bodies {
            for other in &self.bodies {
                // Who came later has not entered those before.
                let there = other.member.barrier(body.passed).is_some() || other.entered == 0;
                assert!(
                    there || other.entered >= body.passed,
                    "{:?} passed {} before {:?} came",
                    body.member.id(),
                    body.passed,
                    other.member.id()
                );
            }
        }
    }

    /// A member whose coming no other had heard of when the manager died may find its
    /// rank given away by the new one, and ends.
    fn remove_the_displaced(&mut self) {
        self.bodies.retain(|body| match body.member.end() {
            Some(End::Refused(Refusal::Taken(_))) => false,
            None => true,
            end => panic!("{end:?}"),
        });
    }

    /// At rest all know the same.
    fn check_views(&self) {
        if *self.manager.phase() != Phase::Running {
            return;
        }
        let members: Vec<Member> = self.manager.members().cloned().collect();
        let ids: BTreeSet<NodeId> = members.iter().map(|member| member.id).collect();
        let alive: BTreeSet<NodeId> =
            self.bodies.iter().filter_map(|body| body.member.id()).collect();
        assert_eq!(ids, alive, "the manager knows the living");
        let mut entered = true;
        for body in &self.bodies {
            assert_eq!(*body.member.standing(), Standing::Member);
            let view: Vec<Member> = body.member.members().values().cloned().collect();
            assert_eq!(view, members);
            for name in 0..4_u8 {
                let name = name.to_string();
                let providers: Vec<NodeId> = body.member.providers(&name).collect();
                let first: Vec<NodeId> = self.bodies[0].member.providers(&name).collect();
                assert_eq!(providers, first, "{name}");
                let own = providers.contains(&body.member.id().unwrap());
                assert_eq!(own, body.member.provides(&name), "{name}");
                assert!(providers.iter().all(|id| ids.contains(id)));
            }
            entered &= body.member.waits_at().is_some();
        }
        assert!(!entered || self.bodies.is_empty(), "all wait at a barrier, and nobody passes");
    }
}

proptest! {
    #[test]
    fn members_and_manager_agree(
        size in 1..5_u32,
        acts in prop::collection::vec(act(), 0..120),
    ) {
        let mut world = World::new(size);
        for act in &acts {
            world.act(act);
            world.check_passing();
        }
        world.settle();
        if *world.manager.phase() == Phase::Running {
            world.remove_the_displaced();
        }
        world.check_passing();
        world.check_views();
    }

    #[test]
    fn changes_add_up_to_the_members(
        size in 1..4_u32,
        acts in prop::collection::vec(act(), 0..80),
    ) {
        let mut world = World::new(size);
        acts.iter().for_each(|act| world.act(act));
        world.settle();
        for body in world.bodies.iter().filter(|body| body.member.end().is_none()) {
            let (mut seen, mut next) = (BTreeMap::new(), 0);
            while let Some((change, after)) = body.member.change(next) {
                next = after;
                match change {
                    Change::Joined(member) => drop(seen.insert(member.id, member)),
                    Change::Left(id) | Change::Died(Death { id, .. }) => drop(seen.remove(&id)),
                    _ => {}
                }
            }
            let members = body.member.members().values();
            let members: BTreeMap<_, _> = members.map(|it| (it.id, it.clone())).collect();
            prop_assert_eq!(seen, members);
        }
    }

    #[test]
    fn a_stop_reaches_everybody(
        size in 1..5_u32,
        acts in prop::collection::vec(act(), 0..60),
        who in any::<usize>(),
        asks in any::<bool>(),
    ) {
        let mut world = World::new(size);
        acts.iter().for_each(|act| world.act(act));
        world.settle();
        if *world.manager.phase() == Phase::Running && !world.bodies.is_empty() {
            world.remove_the_displaced();
            let count = world.bodies.len();
            if asks {
                world.bodies[who % count].member.finish();
            } else {
                world.bodies.iter_mut().for_each(|body| body.member.done());
            }
            world.new_manager();
            world.settle();
            for body in &world.bodies {
                let end = body.member.end();
                prop_assert!(matches!(end, Some(End::Finished { .. })), "{end:?}");
            }
        }
    }
}
