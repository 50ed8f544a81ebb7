//! Every schedule, executed in memory and compared with a sequential computation.

use std::collections::{BTreeMap, VecDeque};

use proptest::prelude::*;

use super::*;

/// Operands that have been combined, each a rank and an element: concatenation shows order and number.
type Element = Vec<(usize, usize)>;
pub(super) type Blocks = Vec<Option<Vec<Element>>>;

/// A call, its data and the order of events.
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub(super) hosts: Vec<u32>,
    pub(super) len: usize,
    pub(super) root: usize,
    pub(super) commutative: bool,
    pub(super) seed: u64,
}

pub(super) fn cases() -> impl Strategy<Value = Case> {
    let placed = |size: usize| {
        let hosts = prop_oneof![
            Just(vec![0; size]),
            (1..=size).prop_map(move |each| (0..size).map(|rank| (rank / each) as u32).collect()),
            prop::collection::vec(0..8_u32, size),
        ];
        let len = prop_oneof![Just(0), Just(1), Just(size), 0..2 * size + 3];
        (hosts, len, 0..size, any::<bool>(), any::<u64>())
    };
    let sizes = prop_oneof![1..=9_usize, 1..=64_usize];
    sizes.prop_flat_map(placed).prop_map(|(hosts, len, root, commutative, seed)| Case {
        hosts,
        len,
        root,
        commutative,
        seed,
    })
}

impl Case {
    pub(super) fn size(&self) -> usize {
        self.hosts.len()
    }

    pub(super) fn kinds(&self) -> [Kind; 11] {
        let root = self.root;
        [
            Kind::Barrier,
            Kind::Broadcast { root },
            Kind::Reduce { root },
            Kind::AllReduce,
            Kind::ReduceScatter,
            Kind::Gather { root },
            Kind::Scatter { root },
            Kind::AllGather,
            Kind::AllToAll,
            Kind::Scan,
            Kind::ExclusiveScan,
        ]
    }

    /// Returns each call and each of its algorithms.
    pub(super) fn calls(&self) -> impl Iterator<Item = (Kind, Algorithm)> {
        let all = self.kinds().into_iter();
        let all = all.flat_map(|kind| kind.algorithms().iter().map(move |by| (kind, *by)));
        all.filter(|(kind, by)| kind.takes(*by, self.commutative))
    }

    pub(super) fn steps(&self, kind: Kind, by: Algorithm) -> Vec<Vec<Step>> {
        let world = World::new(&self.hosts);
        let of = |rank| {
            let mut out = vec![Step::default()];
            assert!(steps(kind, by, &world, self.commutative, rank, &mut out));
            out
        };
        (0..self.size()).map(of).collect()
    }

    /// Returns a rank's input of a call; blocks of other sizes where each rank has its own.
    pub(super) fn input(&self, kind: Kind, rank: usize) -> Blocks {
        let size = self.size();
        let block = |block: usize| {
            let elements = match kind {
                Kind::Gather { .. } | Kind::AllGather if block != rank => return None,
                Kind::Scatter { root } | Kind::Broadcast { root } if rank != root => return None,
                Kind::Gather { .. } | Kind::AllGather | Kind::AllToAll => {
                    0..(rank * 7 + block * 3 + self.len) % 5
                }
                _ => bounds(self.len, size, block),
            };
            Some(elements.map(|element| vec![(rank, element)]).collect())
        };
        (0..size).map(block).collect()
    }

    /// Returns what the executor sets before the first step.
    pub(super) fn first_result(&self, kind: Kind, rank: usize) -> Blocks {
        let input = self.input(kind, rank);
        match kind {
            Kind::Scatter { .. } | Kind::AllToAll => {
                let own = |(block, it)| if block == rank { it } else { None };
                input.into_iter().enumerate().map(own).collect()
            }
            _ => input,
        }
    }

    /// Asserts what a rank has in the end, in the order of ranks unless that is free.
    pub(super) fn assert_result(&self, kind: Kind, by: Algorithm, rank: usize, got: Blocks) {
        let size = self.size();
        let combined = |block: usize, ranks: Range<usize>| {
            let of = |element| ranks.clone().map(|rank| (rank, element)).collect();
            Some(bounds(self.len, size, block).map(of).collect::<Vec<Element>>())
        };
        for (block, mut got) in got.into_iter().enumerate() {
            let wanted = match kind {
                Kind::Barrier => continue,
                Kind::Reduce { root } | Kind::Gather { root } if root != rank => continue,
                Kind::ReduceScatter | Kind::Scatter { .. } if block != rank => continue,
                Kind::Broadcast { root } | Kind::Scatter { root } => {
                    self.input(kind, root)[block].clone()
                }
                Kind::Reduce { .. } | Kind::AllReduce | Kind::ReduceScatter => {
                    combined(block, 0..size)
                }
                Kind::Gather { .. } | Kind::AllGather => self.input(kind, block)[block].clone(),
                Kind::AllToAll => self.input(kind, block)[rank].clone(),
                Kind::Scan => combined(block, 0..rank + 1),
                Kind::ExclusiveScan if rank == 0 => None,
                Kind::ExclusiveScan => combined(block, 0..rank),
            };
            if self.commutative && kind.combines() {
                got.iter_mut().flatten().for_each(|element| element.sort_unstable());
            }
            assert_eq!(got, wanted, "{kind:?} by {by}, block {block} of rank {rank}");
        }
    }
}

/// One rank, between two of its steps or in one.
struct Executor {
    steps: VecDeque<Step>,
    input: Blocks,
    result: Blocks,
    /// Memory that an exclusive scan sends.
    running: Option<Blocks>,
    /// Ranks that it has heard of.
    heard: u64,
}

/// Blocks on their way, and the ranks that their sender had heard of.
type Message = (Vec<Option<Vec<Element>>>, u64);

impl Executor {
    /// Takes the next half of a step; false while it waits.
    fn turn(
        &mut self,
        rank: usize,
        ways: &mut BTreeMap<(usize, usize), VecDeque<Message>>,
    ) -> bool {
        let Some(step) = self.steps.front_mut() else { return false };
        let running = self.running.as_mut();
        if let Some(SendStep { to, blocks, of }) = step.send.take() {
            let memory = if of == Of::Input { &self.input } else { &self.result };
            let sent = running.as_deref().unwrap_or(memory)[blocks].to_vec();
            ways.entry((rank, to)).or_default().push_back((sent, self.heard));
        } else if let Some(ReceiveStep { from, blocks, take }) = step.receive.clone() {
            let way = ways.get_mut(&(from, rank));
            let Some((received, heard)) = way.and_then(VecDeque::pop_front) else { return false };
            assert_eq!(received.len(), blocks.len());
            self.heard |= heard;
            for (block, received) in blocks.zip(received) {
                if let Some(running) = &mut self.running {
                    running[block] = combine(received.clone(), running[block].take());
                }
                let own = self.result[block].take();
                self.result[block] = match take {
                    Take::Place => received,
                    Take::Before if own.is_none() => received,
                    Take::Before => combine(received, own),
                    Take::After => combine(own, received),
                };
            }
            step.receive = None;
        }
        if step.receive.is_none() {
            self.steps.pop_front();
        }
        true
    }
}

pub(super) fn combine(
    lower: Option<Vec<Element>>,
    upper: Option<Vec<Element>>,
) -> Option<Vec<Element>> {
    let (lower, upper) = (lower.expect("an operand"), upper.expect("an operand"));
    assert_eq!(lower.len(), upper.len());
    Some(lower.into_iter().zip(upper).map(|(lower, upper)| [lower, upper].concat()).collect())
}

/// Returns a number below `count` that follows from the seed.
pub(super) fn below(seed: &mut u64, count: usize) -> usize {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*seed >> 33) as usize % count
}

/// Executes a call with its ranks in turns by the seed, and returns what each has heard and got.
fn execute(case: &Case, kind: Kind, by: Algorithm) -> Vec<(u64, Blocks)> {
    let mut ranks: Vec<Executor> = (case.steps(kind, by).into_iter().enumerate())
        .map(|(rank, steps)| {
            let input = case.input(kind, rank);
            let exclusive = kind == Kind::ExclusiveScan;
            let result = case.first_result(kind, rank);
            let (running, result) =
                if exclusive { (Some(result), vec![None; case.size()]) } else { (None, result) };
            Executor { steps: steps.into(), input, result, running, heard: 1 << rank }
        })
        .collect();
    let (mut ways, mut seed) = (BTreeMap::new(), case.seed);
    while ranks.iter().any(|rank| !rank.steps.is_empty()) {
        let first = below(&mut seed, ranks.len());
        let any = (first..ranks.len()).chain(0..first);
        let moved = any.into_iter().find(|rank| ranks[*rank].turn(*rank, &mut ways));
        assert!(moved.is_some(), "{kind:?} by {by}: all ranks wait");
    }
    assert!(ways.values().all(VecDeque::is_empty), "{kind:?} by {by}: messages are left");
    ranks.into_iter().map(|rank| (rank.heard, rank.result)).collect()
}

/// Returns the sends of a call between ranks of different hosts.
fn crossing(case: &Case, kind: Kind, by: Algorithm) -> usize {
    let steps = case.steps(kind, by).into_iter().enumerate();
    let sends = steps.flat_map(|(rank, steps)| {
        steps.into_iter().filter_map(move |step| step.send.map(|send| (rank, send.to)))
    });
    sends.filter(|(from, to)| case.hosts[*from] != case.hosts[*to]).count()
}

proptest! {
    // Long ones: each case executes all calls.
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn every_call_has_the_sequential_result(case in cases()) {
        for (kind, by) in case.calls() {
            let ranks = execute(&case, kind, by);
            if kind == Kind::AllReduce {
                prop_assert!(ranks.iter().all(|rank| rank.1 == ranks[0].1), "{kind:?} by {by}");
            }
            for (rank, (heard, result)) in ranks.into_iter().enumerate() {
                let all = u64::MAX >> (64 - case.size());
                prop_assert!(kind != Kind::Barrier || heard == all, "{by}: rank {rank}");
                case.assert_result(kind, by, rank, result);
            }
        }
    }
}

proptest! {
    #[test]
    fn doubling_sends_few_messages(case in cases()) {
        let rounds = case.size().next_power_of_two().ilog2() as usize;
        for kind in [Kind::AllReduce, Kind::Barrier, Kind::AllGather, Kind::Scan] {
            for steps in case.steps(kind, Algorithm::Doubling) {
                let sends = steps.iter().filter(|step| step.send.is_some()).count();
                prop_assert!(sends <= rounds + usize::from(kind != Kind::Scan), "{kind:?}: {sends}");
                prop_assert!(steps.len() <= rounds + 1);
            }
        }
        for steps in case.steps(Kind::Barrier, Algorithm::Dissemination) {
            prop_assert_eq!(steps.len(), rounds);
        }
    }

    #[test]
    fn a_tree_crosses_hosts_once_a_host(case in cases()) {
        let root = case.root;
        let mut hosts = case.hosts.clone();
        hosts.sort_unstable();
        hosts.dedup();
        let case = Case { commutative: true, ..case };
        for kind in [Kind::Broadcast { root }, Kind::Reduce { root }] {
            for by in [Algorithm::Chain, Algorithm::Binomial, Algorithm::Binary] {
                prop_assert_eq!(crossing(&case, kind, by), hosts.len() - 1, "{:?} by {}", kind, by);
            }
        }
        prop_assert_eq!(crossing(&case, Kind::AllReduce, Algorithm::Chains), 2 * (hosts.len() - 1));
    }

    #[test]
    fn blocks_divide_the_elements_evenly(len in 0..10_000_usize, size in 1..100_usize) {
        let blocks: Vec<_> = (0..size).map(|block| bounds(len, size, block)).collect();
        prop_assert_eq!((blocks[0].start, blocks[size - 1].end), (0, len));
        prop_assert!(blocks.windows(2).all(|pair| pair[0].end == pair[1].start));
        prop_assert!(blocks.iter().all(|block| (len / size..=len.div_ceil(size)).contains(&block.len())));
    }
}

/// 4 hosts of 4 ranks, in rows or scattered.
fn four_hosts(root: usize, commutative: bool, scattered: bool) -> Case {
    let host = |rank: u32| if scattered { rank * 7 % 16 / 4 } else { rank / 4 };
    Case { hosts: (0..16).map(host).collect(), len: 5, root, commutative, seed: 1 }
}

#[test]
fn three_edges_cross_four_hosts_of_four() {
    for root in 0..16 {
        for by in [Algorithm::Binomial, Algorithm::Binary] {
            for (commutative, scattered) in [(true, false), (true, true), (false, false)] {
                let case = four_hosts(root, commutative, scattered);
                assert_eq!(crossing(&case, Kind::Broadcast { root }, by), 3, "{root} by {by}");
                assert_eq!(crossing(&case, Kind::Reduce { root }, by), 3, "{root} by {by}");
            }
        }
    }
    // The order of ranks is kept there, at the cost of edges.
    let case = four_hosts(0, false, true);
    assert!(crossing(&case, Kind::Reduce { root: 0 }, Algorithm::Binomial) > 3);
}

/// Returns the edges from the root to the rank farthest from it.
fn depth(case: &Case, by: Algorithm) -> usize {
    let steps = case.steps(Kind::Broadcast { root: case.root }, by);
    let parent =
        |rank: usize| steps[rank].iter().find_map(|step| Some(step.receive.as_ref()?.from));
    let depth = |rank| std::iter::successors(Some(rank), |rank| parent(*rank)).count() - 1;
    (0..case.size()).map(depth).max().unwrap()
}

#[test]
fn trees_are_as_low_as_they_can_be() {
    for size in 1..=64_usize {
        for root in [0, size / 3, size - 1] {
            let case = Case { hosts: vec![0; size], len: 1, root, commutative: true, seed: 1 };
            assert_eq!(depth(&case, Algorithm::Chain), size - 1);
            assert_eq!(depth(&case, Algorithm::Binary), size.ilog2() as usize, "{size}, {root}");
            let rounds = size.next_power_of_two().ilog2() as usize;
            let steps = case.steps(Kind::Broadcast { root }, Algorithm::Binomial);
            assert!(steps.iter().all(|steps| steps.len() <= rounds), "{size}, {root}");
        }
    }
}

#[test]
fn an_ordered_chain_is_the_fold_from_rank_0() {
    for root in [0, 2, 5] {
        let case =
            Case { hosts: vec![0, 1, 2, 0, 1, 2], len: 1, root, commutative: false, seed: 1 };
        for kind in [Kind::Reduce { root }, Kind::AllReduce, Kind::ReduceScatter, Kind::Scan] {
            let by = if kind == Kind::AllReduce { Algorithm::Chains } else { Algorithm::Chain };
            for (rank, steps) in case.steps(kind, by).iter().enumerate() {
                for step in steps.iter().filter_map(|step| step.receive.as_ref()) {
                    let folds = step.take == Take::Before && step.from + 1 == rank;
                    assert!(folds || step.take == Take::Place, "{kind:?}: {step:?}");
                }
            }
        }
    }
}

#[test]
fn what_a_call_does_not_have_is_refused() {
    let world = World::new(&[0, 0]);
    let mut out = Vec::new();
    let mut has = |kind, by, commutative| steps(kind, by, &world, commutative, 0, &mut out);
    assert!(has(Kind::AllReduce, Algorithm::Ring, true));
    assert!(!has(Kind::AllReduce, Algorithm::Ring, false));
    assert!(!has(Kind::ReduceScatter, Algorithm::Ring, false));
    assert!(has(Kind::AllGather, Algorithm::Ring, false));
    assert!(!has(Kind::Barrier, Algorithm::Auto, true));
    assert!(!has(Kind::AllToAll, Algorithm::Binomial, true));
}

#[test]
fn steps_fit_the_memory_that_is_there() {
    let world = World::new(&[0; 13]);
    let mut out = Vec::with_capacity(8);
    let memory = out.as_ptr();
    for rank in 0..13 {
        assert!(steps(Kind::AllReduce, Algorithm::Doubling, &world, false, rank, &mut out));
        assert_eq!((out.as_ptr(), out.capacity()), (memory, 8));
    }
}
