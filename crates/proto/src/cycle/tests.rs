use super::*;
use crate::random::Random;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Waits by the number of their channel: from, to.
type Edges = BTreeMap<u32, (usize, usize)>;

/// Nodes that tell each other of their waits, in steps of a tenth of a second.
struct Mesh {
    boards: Vec<Board>,
    /// Time within the second when each node looks.
    phases: Vec<u64>,
    edges: Edges,
    positions: BTreeMap<u32, u64>,
    on_the_way: VecDeque<(Time, usize, usize, Told)>,
    random: Random,
    now: Time,
    /// The waits at each step so far, with their positions.
    history: Vec<BTreeSet<(u32, u64)>>,
    told_most: usize,
}

const STEP: Duration = Duration::from_millis(100);

impl Mesh {
    fn new(nodes: usize, seed: u64) -> Mesh {
        let mut random = Random::new(seed);
        Mesh {
            boards: (0..nodes).map(|it| Board::new(it as u64, &format!("n{it}"))).collect(),
            phases: (0..nodes).map(|_| random.below(10)).collect(),
            edges: Edges::new(),
            positions: BTreeMap::new(),
            on_the_way: VecDeque::new(),
            random,
            now: Time(0),
            history: Vec::new(),
            told_most: 0,
        }
    }

    fn set(&mut self, channel: u32, edge: Option<(usize, usize)>) {
        *self.positions.entry(channel).or_default() += 1;
        self.edges.remove(&channel);
        if let Some(edge) = edge {
            self.edges.insert(channel, edge);
        }
    }

    /// Lets all nodes look whose time it is, and hear the words sent a while ago.
    fn step(&mut self) {
        let step = self.history.len() as u64;
        self.now = self.now.after(STEP);
        let position = |channel: &u32| self.positions[channel];
        self.history.push(self.edges.keys().map(|it| (*it, position(it))).collect());
        while let Some((at, ..)) = self.on_the_way.front()
            && *at <= self.now
            && let Some((_, from, to, told)) = self.on_the_way.pop_front()
        {
            let channel = hops(&told.chain).last().unwrap().channel;
            if self.edges.get(&channel) == Some(&(from, to)) {
                let before = self.boards[to].cycles(self.now).len();
                let said = self.boards[to].heard(told, self.now);
                let after = self.boards[to].cycles(self.now);
                assert_eq!(after.len(), before + usize::from(said.is_some()));
                assert!(said.is_none_or(|it| after.contains(&it)));
            }
        }
        for node in 0..self.boards.len() {
            if self.phases[node] == step % 10 {
                self.look(node);
            }
        }
    }

    fn look(&mut self, node: usize) {
        for peer in 0..self.boards.len() {
            let ours = self.edges.iter().filter(|it| *it.1 == (node, peer));
            let blocked = ours.map(|it| {
                let position = self.positions[it.0];
                Blocked { channel: *it.0, position, name: "c" }
            });
            let told = self.boards[node].look(peer as u64, peer as u64, blocked, self.now);
            self.told_most = self.told_most.max(told.len());
            let at = self.now.after(STEP * self.random.below(3) as u32);
            self.on_the_way.extend(told.into_iter().map(|it| (at, node, peer, it)));
        }
        self.on_the_way.make_contiguous().sort_by_key(|it| it.0);
    }

    /// Checks that each confirmed cycle was there as a whole at some step.
    fn check_sound(&self) {
        for board in &self.boards {
            for cycle in board.cycles.iter().filter(|it| it.confirmed) {
                let waits: Vec<_> =
                    hops(&cycle.told.chain).map(|it| (it.channel, it.position)).collect();
                let whole = |then: &BTreeSet<_>| waits.iter().all(|it| then.contains(it));
                assert!(self.history.iter().any(whole), "{}", in_words(&cycle.told.chain));
            }
        }
    }

    /// Whether `node` can be reached from itself, through others.
    fn is_in_cycle(&self, node: usize) -> bool {
        let mut reached = BTreeSet::new();
        let mut from = vec![node];
        while let Some(at) = from.pop() {
            for (_, to) in self.edges.values().filter(|it| it.0 == at && it.0 != it.1) {
                if reached.insert(*to) {
                    from.push(*to);
                }
            }
        }
        reached.contains(&node)
    }

    fn check_complete(&mut self) {
        for node in 0..self.boards.len() {
            let named = self.boards[node].cycles(self.now);
            assert_eq!(!named.is_empty(), self.is_in_cycle(node), "n{node}: {named:?}");
        }
    }

    fn run(&mut self, steps: usize) {
        for _ in 0..steps {
            self.step();
            self.check_sound();
        }
    }
}

proptest! {
    #[test]
    fn nodes_in_a_cycle_say_so_and_others_do_not(
        nodes in 2usize..8,
        edges in prop::collection::vec((0usize..8, 0usize..8), 1..14),
        removed in 0usize..14,
        seed in any::<u64>(),
    ) {
        let mut mesh = Mesh::new(nodes, seed);
        for (channel, (from, to)) in edges.iter().enumerate() {
            mesh.set(channel as u32, Some((from % nodes, to % nodes)));
        }
        mesh.run(10 * (4 * nodes + 4));
        mesh.check_complete();
        // One of the nodes receives.
        mesh.set((removed % edges.len()) as u32, None);
        mesh.run(10 * (4 * nodes + 8));
        mesh.check_complete();
    }

    #[test]
    fn waits_that_were_never_there_together_are_no_cycle(
        nodes in 2usize..5, changes in 1u64..30, seed in any::<u64>(),
    ) {
        let mut mesh = Mesh::new(nodes, seed);
        for _ in 0..300 {
            if mesh.random.below(changes) == 0 {
                let from = mesh.random.below(nodes as u64) as usize;
                let to = mesh.random.below(nodes as u64) as usize;
                let there = mesh.random.below(2) == 0;
                let channel = (from * nodes + to) as u32;
                mesh.set(channel, there.then_some((from, to)));
            }
            mesh.step();
            mesh.check_sound();
        }
    }

    #[test]
    fn whatever_is_heard_takes_little(
        chains in prop::collection::vec((0u64..40, 0u64..40, any::<u64>(), any::<u32>()), 0..200),
    ) {
        let mut mesh = Mesh::new(2, 1);
        mesh.set(0, Some((0, 1)));
        mesh.run(20);
        for (origin, last, number, channel) in chains {
            let mut chain = Vec::new();
            for node in [origin, last] {
                let names = ("somebody", "something");
                Hop { node, channel, position: 0, node_name: names.0, channel_name: names.1 }
                    .append_to(&mut chain);
            }
            let _ = mesh.boards[0].heard(Told { number, chain }, mesh.now);
            prop_assert!(mesh.boards[0].heard.len() <= CHAINS_MAX);
            prop_assert!(mesh.boards[0].cycles.len() <= CYCLES_MAX);
        }
        mesh.run(20);
        prop_assert!(mesh.told_most <= CHANNELS_MAX * (1 + CHAINS_MAX));
    }
}

#[test]
fn a_cycle_is_named_and_gone_when_one_receives() {
    let mut mesh = Mesh::new(3, 7);
    for node in 0..3 {
        mesh.set(node, Some((node as usize, (node as usize + 1) % 3)));
    }
    mesh.run(100);
    let named = mesh.boards[1].cycles(mesh.now);
    let [first, second, third] = ["n1 waits for n2", "n2 waits for n0", "n0 waits for n1"]
        .map(|it| format!("{it} on channel \"c\""));
    assert_eq!(named, [[first, second, third].join(", ")]);
    mesh.set(2, None);
    // The node's own wait is over at its next look; the waits of others are not confirmed.
    mesh.run(11);
    assert!(mesh.boards[2].cycles(mesh.now).is_empty());
    mesh.run(80);
    assert!(mesh.boards.iter_mut().all(|it| it.cycles(mesh.now).is_empty()));
}

#[test]
fn a_ring_of_the_longest_chain_is_found_and_one_that_is_longer_is_not() {
    for (nodes, found) in [(HOPS_MAX, true), (HOPS_MAX + 1, false)] {
        let mut mesh = Mesh::new(nodes, 3);
        for node in 0..nodes {
            mesh.set(node as u32, Some((node, (node + 1) % nodes)));
        }
        mesh.run(10 * (3 * nodes + 4));
        assert!(mesh.boards.iter_mut().all(|it| it.cycles(mesh.now).is_empty() != found));
    }
}

#[test]
fn who_waits_for_itself_or_for_a_moment_is_not_reported() {
    let mut mesh = Mesh::new(2, 5);
    mesh.set(0, Some((0, 0)));
    mesh.set(1, Some((0, 1)));
    mesh.set(2, Some((1, 0)));
    for _ in 0..30 {
        mesh.run(9);
        // A byte was sent: the next wait is another one.
        mesh.set(1, Some((0, 1)));
    }
    assert!(mesh.boards.iter_mut().all(|it| it.cycles(mesh.now).is_empty()));
}

/// Words of the last node come back by a different way each time.
#[test]
fn a_node_in_two_cycles_says_so_without_a_pause() {
    for seed in 0..20 {
        let mut mesh = Mesh::new(5, seed);
        let edges = [(0, 1), (0, 2), (1, 3), (2, 3), (3, 4), (4, 0), (3, 0)];
        for (channel, edge) in edges.into_iter().enumerate() {
            mesh.set(channel as u32, Some(edge));
        }
        mesh.run(240);
        for _ in 0..400 {
            mesh.step();
            for node in 0..5 {
                let named = mesh.boards[node].cycles(mesh.now);
                assert!(!named.is_empty(), "seed {seed}, n{node}, {:?}", mesh.now);
            }
        }
    }
}
