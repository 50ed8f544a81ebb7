//! Members and managers in any interleaving.

use super::*;
use crate::proto::cluster::agreement::Proposed;

/// Event in the world below.
#[derive(Clone, Debug)]
enum Act {
    /// The oldest word of a line, up or down, arrives.
    Arrive(usize),
    Barrier(usize),
    /// A member proposes under a name, among all that it knows, or among some of them.
    Propose(usize, u8, bool),
    /// A member proposes to meet under a name.
    Meet(usize, u8),
    /// A member waits for no other any more.
    MeetNobody(usize),
    /// Callers of a member are gone without their outcomes.
    Abandon(usize),
    Provide(usize, u8),
    /// A member asks to provide a name alone.
    ProvideSole(usize, u8),
    /// The callers of a member are gone that wait for a name alone.
    GiveUp(usize),
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
        4 => (any::<usize>(), 0..3_u8, any::<bool>())
            .prop_map(|(who, name, all)| Act::Propose(who, name, all)),
        3 => (any::<usize>(), 10..12_u8).prop_map(|(who, name)| Act::Meet(who, name)),
        1 => any::<usize>().prop_map(Act::MeetNobody),
        1 => any::<usize>().prop_map(Act::Abandon),
        2 => (any::<usize>(), 0..4_u8).prop_map(|(who, name)| Act::Provide(who, name)),
        2 => (any::<usize>(), 0..4_u8).prop_map(|(who, name)| Act::ProvideSole(who, name)),
        1 => any::<usize>().prop_map(Act::GiveUp),
        1 => (any::<usize>(), 0..4_u8).prop_map(|(who, name)| Act::Withdraw(who, name)),
        1 => any::<usize>().prop_map(Act::Leave),
        1 => any::<usize>().prop_map(Act::Die),
        1 => Just(Act::Come),
        1 => Just(Act::NewManager),
    ]
}

/// Events in which decisions and managers come often.
fn decisive() -> impl Strategy<Value = Act> {
    prop_oneof![
        20 => any::<usize>().prop_map(Act::Arrive),
        3 => any::<usize>().prop_map(|who| Act::Propose(who, 0, true)),
        3 => any::<usize>().prop_map(|who| Act::Meet(who, 10)),
        1 => any::<usize>().prop_map(Act::MeetNobody),
        1 => Just(Act::NewManager),
    ]
}

struct Body {
    member: Membership,
    line: Line,
    up: VecDeque<Up>,
    down: VecDeque<Down>,
    /// Last barrier that the member came to.
    entered: u64,
    /// Whether the last word announced a node that comes: this member, or another.
    somebody_came: bool,
    proposed: BTreeMap<u64, Proposing>,
    /// Names that it asked to provide alone, by question, and whether it does.
    sole: BTreeMap<u64, (u8, bool)>,
}

/// Proposal of a member.
struct Proposing {
    name: u8,
    /// None: a meeting.
    among: Vec<NodeId>,
    /// Whether a meeting is given up.
    is_over: bool,
    /// Values that it had; the last one may come too late.
    values: Vec<u8>,
    /// Whether a caller waits for the outcome.
    waits: bool,
    decided: bool,
}

/// Members with lines of their own to one manager. A word on a line arrives at an act of
/// [`Act::Arrive`].
struct World {
    manager: Manager,
    bodies: Vec<Body>,
    next: u64,
    size: u32,
    now: Time,
    /// Result of each barrier, by manager and number.
    passed: BTreeMap<(u64, u64), Vec<NodeId>>,
    managers: u64,
    /// The decision that was made of each proposal, and the members that have heard it.
    decided: BTreeMap<(NodeId, u64), (Decision, BTreeSet<NodeId>)>,
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
            decided: BTreeMap::new(),
        };
        for rank in 0..size {
            world.come(Some(rank));
        }
        world
    }

    fn come(&mut self, rank: Option<u32>) {
        self.next += 1;
        let size = rank.map(|_| self.size);
        // Some members have a name, and some of these the same.
        let name = ["", "one", "two"][self.next as usize % 3];
        let name = Some(name.to_owned()).filter(|name| !name.is_empty());
        let ready = Ready { size, name, ..ready(rank, 0, self.next.into()) };
        let mut member = Membership::new(ready, SECOND);
        member.announce();
        let line = Line(self.next);
        let (up, down) = (VecDeque::new(), VecDeque::new());
        let proposed = BTreeMap::new();
        let (entered, somebody_came, sole) = (0, false, BTreeMap::new());
        let body = Body { member, line, up, down, entered, somebody_came, proposed, sole };
        self.bodies.push(body);
        self.pump();
    }

    /// Puts all waiting words on their lines.
    fn pump(&mut self) {
        for body in &mut self.bodies {
            body.up.extend(std::iter::from_fn(|| body.member.poll_transmit()));
        }
        while let Some((line, down)) = self.manager.poll_transmit() {
            // Words to the dead are lost.
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
            let somebody_came = matches!(down, Down::TaskIds(_) | Down::Joined(_));
            let came = std::mem::replace(&mut body.somebody_came, somebody_came);
            body.member.handle_message(down).unwrap();
            if let Some((number, died)) = released {
                // When two members come together, the barrier that one has passed counts as passed
                // by both.
                assert!(number <= body.entered || came, "{number} is passed before all came");
                body.member.leave_barrier(number);
                let known = self.passed.entry((self.managers, number)).or_insert(died.clone());
                assert_eq!(*known, died, "all hear the same of barrier {number}");
            }
            if let Some(id) = self.bodies[which / 2].member.id() {
                self.check_founders(which / 2, id);
                self.take_outcomes(which / 2);
                self.take_names(which / 2);
            }
        }
        self.pump();
    }

    /// Takes the answers about names. A member that gets a name is the only one that has it.
    fn take_names(&mut self, which: usize) {
        let Body { member, sole, .. } = &mut self.bodies[which];
        let mut granted = Vec::new();
        sole.retain(|number, (name, has)| match member.sole(*number) {
            Asked::Open => true,
            Asked::Withdrawn => false,
            Asked::Answered(NameAnswer::Granted) => {
                granted.extend((!std::mem::replace(has, true)).then_some(*name));
                true
            }
            Asked::Answered(why) => {
                assert!(matches!(why, NameAnswer::Held(_)), "{why:?}");
                member.leave_sole(*number);
                false
            }
        });
        for name in granted {
            assert!(!self.others_have(which, name), "two have {name}");
        }
    }

    /// Whether a member other than this one has the name alone. Not those that the manager does not
    /// know, or not any more, nor those to which it is on its way that another has the name.
    fn others_have(&self, which: usize, name: u8) -> bool {
        let known: BTreeSet<NodeId> = self.manager.members().map(|it| it.id).collect();
        let others = self.bodies.iter().enumerate().filter(|(at, _)| *at != which);
        others.map(|(_, body)| body).any(|body| {
            let lost = |question: u64| {
                let is_it = |down: &Down| {
                    matches!(down, Down::Sole { number, answer }
                    if *number == question && *answer != NameAnswer::Granted)
                };
                body.down.iter().any(is_it)
            };
            let known = body.member.id().is_some_and(|id| known.contains(&id));
            let mut has = body.sole.iter().filter(|(_, (its, has))| *has && *its == name);
            known && has.any(|(question, _)| !lost(*question))
        })
    }

    fn provide_sole(&mut self, who: usize, name: u8) {
        let Body { member, sole, .. } = &mut self.bodies[who];
        if let Some(number) = member.provide_sole(&name.to_string()) {
            sole.insert(number, (name, false));
        }
    }

    /// Drops the callers that wait for a name.
    fn give_up(&mut self, who: usize) {
        let Body { member, sole, .. } = &mut self.bodies[who];
        sole.retain(|number, (_, has)| {
            if !*has {
                member.leave_sole(*number);
            }
            *has
        });
    }

    /// Checks that all know the same founders: the first nodes of the first ranks.
    fn check_founders(&mut self, which: usize, id: NodeId) {
        let told = self.bodies[which].member.founders();
        let of_the_start = |rank| NodeId { rank, incarnation: u128::from(rank) + 1 };
        assert_eq!(told, (0..self.size).map(of_the_start).collect::<Vec<_>>(), "{id:?}");
    }

    /// Takes what was decided, and checks that everybody hears the same of a proposal.
    fn take_outcomes(&mut self, which: usize) {
        self.forget_the_decisions_of_the_dead();
        let Body { member, proposed, .. } = &mut self.bodies[which];
        let id = member.id().expect("it hears of agreements");
        proposed.retain(|number, asked| {
            let Some(outcome) = member.agreement(*number).cloned() else { return true };
            asked.decided = true;
            if asked.waits {
                member.leave_agreement(*number, true);
            }
            let decision = match outcome {
                Ok(decision) => decision,
                Err(Objection::Differs { .. }) => return false,
                Err(why) => panic!("{why}"),
            };
            let mut all: Vec<NodeId> = decision.values.iter().map(|it| it.by).collect();
            all.extend(&decision.gone);
            all.sort_unstable();
            if asked.among.is_empty() {
                assert!(all.len() == 2 || all.len() == 1 && asked.is_over, "{all:?}");
            } else {
                assert_eq!(all, asked.among);
            }
            let is_ours = |it: &&Proposed| (it.by, it.number) == (id, *number);
            let ours = decision.values.iter().find(is_ours).expect("it was there");
            assert!(asked.values.contains(&ours.value[0]));
            for it in &decision.values {
                let new = || (decision.clone(), BTreeSet::new());
                let (known, by) = self.decided.entry((it.by, it.number)).or_insert_with(new);
                assert_eq!(*known, decision, "all hear the same");
                by.insert(id);
            }
            !asked.waits
        });
    }

    /// A decision is lost when all that have heard it die, and then the manager.
    fn forget_the_decisions_of_the_dead(&mut self) {
        let living: BTreeSet<_> = self.bodies.iter().filter_map(|it| it.member.id()).collect();
        self.decided.retain(|_, (_, by)| !by.is_disjoint(&living));
    }

    fn propose(&mut self, who: usize, name: u8, all: bool) {
        self.next += 1;
        let value = self.next as u8;
        let Body { member, .. } = &mut self.bodies[who];
        let Some(id) = member.id() else { return };
        let of = |it: &NodeId| all || *it == id || it.rank % 2 == u32::from(name % 2);
        let members = member.members().values().map(|it| it.id);
        let among: Vec<NodeId> = members.filter(of).collect();
        let number = member.propose(&name.to_string(), &among, &[value]).unwrap();
        self.note_proposal(who, number, name, among, value);
    }

    fn meet(&mut self, who: usize, name: u8) {
        self.next += 1;
        let value = self.next as u8;
        let Body { member, .. } = &mut self.bodies[who];
        if member.id().is_some() {
            let number = member.meet(&name.to_string(), &[value]).unwrap();
            self.note_proposal(who, number, name, Vec::new(), value);
        }
    }

    fn note_proposal(&mut self, who: usize, number: u64, name: u8, among: Vec<NodeId>, value: u8) {
        let Body { member, proposed, .. } = &mut self.bodies[who];
        let asked = proposed.entry(number).or_insert_with(|| Proposing {
            name,
            among,
            is_over: false,
            values: Vec::new(),
            waits: false,
            decided: false,
        });
        asked.values.push(value);
        if std::mem::replace(&mut asked.waits, true) {
            // One of two callers is gone.
            member.leave_agreement(number, false);
        }
        self.take_outcomes(who);
    }

    /// Checks that at rest nobody waits for members that have proposed, or are gone.
    fn check_agreements(&mut self) {
        self.forget_the_decisions_of_the_dead();
        let living = |id: &NodeId| self.bodies.iter().find(|it| it.member.id() == Some(*id));
        for body in &self.bodies {
            let id = body.member.id().expect("a member");
            for (number, asked) in body.proposed.iter().filter(|(_, it)| !it.decided) {
                assert!(!self.decided.contains_key(&(id, *number)), "{id:?} has not heard");
                let same = |it: &Proposing| {
                    !it.decided && it.name == asked.name && it.among == asked.among
                };
                let mut there = asked.among.iter().filter_map(living);
                let missing = there.any(|other| !other.proposed.values().any(same));
                let all = self.bodies.iter().flat_map(|it| it.proposed.values());
                let is_met = asked.is_over || all.filter(|it| same(it)).count() > 1;
                let waits = if asked.among.is_empty() { !is_met } else { missing };
                assert!(waits, "{id:?} waits for nobody");
            }
            for it in body.member.heard() {
                let is_here = |id: &NodeId| living(id).is_some();
                assert!(!it.is_whole(is_here), "{id:?} keeps what all have heard");
            }
        }
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
            Act::Propose(who, name, all) => self.propose(pick(*who), *name, *all),
            Act::Meet(who, name) => self.meet(pick(*who), *name),
            Act::MeetNobody(who) => {
                let Body { member, proposed, .. } = &mut self.bodies[pick(*who)];
                let meets = |it: &Proposing| it.among.is_empty() && !it.decided;
                for (number, asked) in proposed.iter_mut().filter(|(_, it)| meets(it)) {
                    asked.is_over = true;
                    member.meet_nobody(*number);
                }
            }
            Act::Abandon(who) => {
                let Body { member, proposed, .. } = &mut self.bodies[pick(*who)];
                proposed.retain(|number, asked| {
                    let meets = asked.among.is_empty() && !asked.decided;
                    match std::mem::take(&mut asked.waits) {
                        true if meets => member.leave_meeting(*number),
                        true => member.leave_agreement(*number, false),
                        false => {}
                    }
                    !meets
                });
            }
            Act::Provide(who, name) => self.bodies[pick(*who)].member.provide(&name.to_string()),
            Act::ProvideSole(who, name) => self.provide_sole(pick(*who), *name),
            Act::GiveUp(who) => self.give_up(pick(*who)),
            Act::Withdraw(who, name) => {
                let Body { member, sole, .. } = &mut self.bodies[pick(*who)];
                member.withdraw(&name.to_string());
                sole.retain(|_, it| it.0 != *name);
            }
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
        // A node that was no member yet ends with the manager.
        self.bodies.retain_mut(|body| body.member.handle_manager_lost("it died", Time(0)));
        for body in &mut self.bodies {
            self.next += 1;
            body.line = Line(self.next);
            (body.up, body.down) = Default::default();
            body.member.announce();
        }
    }

    /// Lets everything arrive, and the time for the start pass.
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

    /// Removes displaced members. The new manager may have given a member's rank away, if no other
    /// member had heard of it when the old manager died. That member ends.
    fn remove_the_displaced(&mut self) {
        self.bodies.retain(|body| match body.member.end() {
            Some(End::Refused(Refusal::Taken(_))) => false,
            None => true,
            end => panic!("{end:?}"),
        });
    }

    /// Checks that each death is reported once, of a member that existed and does not live.
    fn check_deaths(&self) {
        let alive: BTreeSet<NodeId> =
            self.bodies.iter().filter_map(|body| body.member.id()).collect();
        for body in &self.bodies {
            let mut told = BTreeSet::new();
            for Death { id, .. } in body.member.deaths() {
                assert!((1..=u128::from(self.next)).contains(&id.incarnation), "{id:?}");
                assert!(!alive.contains(id), "{id:?} lives");
                assert!(told.insert(*id), "{id:?} twice");
            }
        }
    }

    /// Checks that at rest all pass the next barrier when all come to it.
    fn pass_a_barrier(&mut self) {
        for body in &mut self.bodies {
            if body.member.barrier(body.entered).is_some() {
                body.member.leave_barrier(body.entered);
            }
            body.entered = body.member.enter_barrier();
        }
        self.settle();
        for body in &self.bodies {
            assert_eq!(body.member.waits_at(), None, "{:?}", body.member.id());
        }
    }

    /// Checks that at rest all members have the same view.
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
                let mut its = body.sole.values().filter(|it| it.0.to_string() == name);
                assert!(its.all(|it| it.1 && providers.len() == 1), "{name}: {providers:?}");
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
        acts.iter().for_each(|act| world.act(act));
        world.settle();
        if *world.manager.phase() == Phase::Running {
            world.remove_the_displaced();
        }
        world.check_views();
        world.check_deaths();
        if *world.manager.phase() == Phase::Running {
            world.check_agreements();
        }
        if *world.manager.phase() == Phase::Running {
            world.pass_a_barrier();
        }
    }

    /// The others hear of a decision that one member has heard, also from another manager.
    #[test]
    fn decisions_outlive_their_managers(
        size in 2..4_u32,
        acts in prop::collection::vec(decisive(), 0..200),
    ) {
        let mut world = World::new(size);
        world.settle();
        acts.iter().for_each(|act| world.act(act));
        world.settle();
        world.check_views();
        world.check_agreements();
    }

    /// Once a cluster has started, another manager takes it up, whichever node dies.
    #[test]
    fn a_new_manager_takes_up_what_is_left(
        size in 1..5_u32,
        acts in prop::collection::vec(act(), 0..120),
    ) {
        let mut world = World::new(size);
        world.settle();
        for act in &acts {
            world.act(act);
            let phase = world.manager.phase();
            prop_assert!(!matches!(phase, Phase::Failed(_)), "{phase:?}");
        }
        world.settle();
        world.bodies.retain(|body| body.member.end().is_none());
        let phase = world.manager.phase();
        prop_assert!(*phase == Phase::Running || world.bodies.is_empty(), "{phase:?}");
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
