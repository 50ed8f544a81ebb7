//! Distributed arrays that groups exchange in virtual time.

use crate::virtual_cluster::on_each;
use chunkcomm::host;
use chunkcomm_array::{Array, Layout, Transfer};
use chunkcomm_cluster::Cluster;
use chunkcomm_group::{Element, Group, Pair};
use chunkcomm_simulation::{Random, each_seed};
use std::ops::Range;
use std::time::Duration;

/// Longest time of a transfer's calls: more is a hang.
const LIMIT: Duration = Duration::from_secs(60);

/// Value of an element that no transfer may change or carry.
pub(crate) const ELSEWHERE: u64 = 7 << 40;

/// Waits for `future`, which ends in time.
pub(crate) async fn in_time<F: Future>(future: F) -> F::Output {
    host::timeout(LIMIT, future).await.expect("a call hangs")
}

pub(crate) fn layout(text: &str, shape: &[usize]) -> Layout {
    Layout::parse(text, shape).unwrap()
}

/// A transfer: both layouts, and where their regions begin.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) from: Layout,
    pub(crate) from_start: Vec<usize>,
    pub(crate) to: Layout,
    pub(crate) to_start: Vec<usize>,
}

impl Case {
    pub(crate) fn new(from: &Layout, to: &Layout) -> Case {
        let none = vec![0; from.shape().len()];
        Case { from: from.clone(), from_start: none.clone(), to: to.clone(), to_start: none }
    }

    /// The value of an element of the transfer: its number in the sender's array, in logical order.
    fn value(&self, index: &[usize], round: u64) -> u64 {
        let shape = self.from.global_shape();
        let places = index.iter().zip(&shape);
        round << 32 | places.fold(0, |value, (at, extent)| value * *extent as u64 + *at as u64)
    }

    /// A sender's storage: the values of what it owns.
    pub(crate) fn sent(&self, rank: usize, round: u64) -> Vec<u64> {
        let of = |offset| match self.from.global(rank, offset) {
            Some(index) if self.from.local(rank, &index) == Some(offset) => {
                self.value(&index, round)
            }
            _ => ELSEWHERE + 1,
        };
        (0..self.from.local_len(rank)).map(of).collect()
    }

    /// The value that comes to a place of a receiver's storage.
    pub(crate) fn comes(&self, rank: usize, offset: usize, round: u64) -> Option<u64> {
        if offset >= self.to.local_len(rank) {
            return None;
        }
        let index = self.to.global(rank, offset)?;
        let shape = self.to.shape();
        let mut at_sender = Vec::new();
        for (dim, at) in index.iter().enumerate() {
            let at = at.checked_sub(self.to_start[dim]).filter(|at| *at < shape[dim])?;
            at_sender.push(at + self.from_start[dim]);
        }
        Some(self.value(&at_sender, round))
    }

    /// Compares a receiver's storage with what it must be.
    #[track_caller]
    pub(crate) fn check(&self, rank: usize, round: u64, before: &[u64], got: &[u64]) {
        assert_eq!(got.len(), before.len());
        for (offset, (before, got)) in before.iter().zip(got).enumerate() {
            let expected = self.comes(rank, offset, round).unwrap_or(*before);
            assert_eq!(*got, expected, "rank {rank}, offset {offset}, round {round}: {self:?}");
        }
    }
}

/// Parts the founders: the first `senders` ranks and the rest meet. Returns whether this one is among the first.
pub(crate) async fn halves(cluster: &Cluster, rank: usize, senders: usize) -> (bool, Group, Pair) {
    let mut all = Group::world(cluster).await.unwrap();
    let sends = rank < senders;
    let mut part = all.split(Some(u32::from(!sends)), 0).await.unwrap().unwrap();
    let pair = part.meet("halves").await.unwrap();
    (sends, part, pair)
}

/// Returns an array of this group's ranks with this rank's storage.
pub(crate) fn array<T: Element>(group: &Group, layout: &Layout, storage: Vec<T>) -> Array<T> {
    Array::from_local(group, layout, storage).unwrap()
}

/// The way in which both ends use a transfer.
#[derive(Clone, Debug)]
pub(crate) struct Use {
    pub(crate) settings: Transfer,
    pub(crate) rounds: u64,
    /// Seed of the order of slabs and of futures that are dropped; in order, and none, without.
    pub(crate) seed: Option<u64>,
}

impl Use {
    pub(crate) fn of(settings: Transfer) -> Use {
        Use { settings, rounds: 3, seed: None }
    }

    fn random(&self, salt: u64) -> Option<Random> {
        self.seed.map(|seed| Random::fork(seed, salt))
    }
}

/// Calls until a future of the call is not dropped before its end.
macro_rules! insist {
    ($random:expr, $call:expr) => {
        loop {
            let wait = match &mut $random {
                Some(random) => Duration::from_micros(random.pick(&[0, 0, 50, 2_000, 1_000_000])),
                None => LIMIT,
            };
            let called = async { $call };
            if let Ok(outcome) = host::timeout(wait, called).await {
                break outcome;
            }
        }
    };
}

/// Sends all rounds.
pub(crate) async fn send(group: &Group, pair: &mut Pair, case: &Case, usage: &Use) {
    let rank = pair.rank();
    let mut random = usage.random(rank as u64);
    let storage = vec![ELSEWHERE + 2; case.from.local_len(rank)];
    let sending = array(group, &case.from, storage).sender_with(pair, usage.settings.clone());
    let mut sender = sending.await.unwrap();
    for round in 0..usage.rounds {
        if round > 0 {
            insist!(random, sender.start().await).unwrap();
        }
        let values = case.sent(rank, round);
        let (_, length) = sender.rows();
        let mut slabs = Vec::new();
        while let Some(mut slab) = sender.next_slab() {
            let rows = slab.rows();
            slab.copy_from_slice(&values[rows.start * length..rows.end * length]);
            slabs.push(slab);
            let Some(random) = &mut random else {
                sender.commit(slabs.pop().unwrap()).await.unwrap();
                continue;
            };
            if random.one_in(3) {
                let slab = slabs.swap_remove(random.below(slabs.len() as u64) as usize);
                sender.commit(slab).await.unwrap();
            }
            if random.one_in(20) {
                host::sleep(Duration::from_millis(random.below(3))).await;
            }
        }
        while let (Some(random), false) = (&mut random, slabs.is_empty()) {
            let slab = slabs.swap_remove(random.below(slabs.len() as u64) as usize);
            let elsewhere = host::spawn(async move { slab.commit() });
            if random.one_in(2) {
                elsewhere.await.unwrap();
            }
        }
        // Those that are elsewhere.
        host::sleep(Duration::from_micros(10)).await;
    }
    insist!(random, sender.finish().await).unwrap();
    assert_eq!(sender.explain().waits_for().count(), 0);
    let expected = case.sent(rank, usage.rounds - 1);
    if random.is_some_and(|mut random| random.one_in(2)) {
        assert_eq!(sender.into_array().await.into_local(), expected);
    }
}

/// Receives all rounds and checks them.
pub(crate) async fn receive(group: &Group, pair: &mut Pair, case: &Case, usage: &Use) {
    let rank = pair.rank();
    let mut random = usage.random(1000 + rank as u64);
    let before = vec![ELSEWHERE; case.to.local_len(rank)];
    let settings = usage.settings.clone();
    let receiving = array(group, &case.to, before.clone()).receiver_with(pair, settings);
    let mut receiver = receiving.await.unwrap();
    for round in 0..usage.rounds {
        if round > 0 {
            insist!(random, receiver.start().await).unwrap();
        }
        let (count, length) = receiver.rows();
        let by_slab = random.as_mut().is_none_or(|random| random.one_in(2));
        if by_slab {
            let mut seen = vec![false; count];
            loop {
                let slab = insist!(random, {
                    let slab = receiver.next_slab().await.unwrap();
                    slab.map(|(rows, elements)| (rows, elements.to_vec()))
                });
                let Some((rows, elements)) = slab else { break };
                for (at, got) in elements.iter().enumerate() {
                    let offset = rows.start * length + at;
                    let expected = case.comes(rank, offset, round).unwrap_or(ELSEWHERE);
                    assert_eq!(*got, expected, "rank {rank}, offset {offset}: {case:?}");
                }
                assert!(!seen[rows.clone()].contains(&true), "{rows:?} twice");
                seen[rows].fill(true);
            }
            assert!(!seen.contains(&false), "{seen:?}");
        } else if let (Some(random), true) = (&mut random, count > 0) {
            let row = random.below(count as u64) as usize;
            let elements = receiver.wait(row..row + 1).await.unwrap();
            let expected = case.comes(rank, row * length, round).unwrap_or(ELSEWHERE);
            assert_eq!(elements[0], expected);
        }
        let got = insist!(random, receiver.finish().await.map(<[u64]>::to_vec)).unwrap();
        case.check(rank, round, &before, &got);
        if let Some(random) = &mut random {
            host::sleep(Duration::from_millis(random.below(3))).await;
        }
    }
    let last = receiver.into_array().await.unwrap();
    case.check(rank, usage.rounds - 1, &before, &last.local());
}

/// Runs a transfer from the ranks of one range to those of another one, which may have ranks in common.
pub(crate) fn between(
    seed: u64,
    (senders, receivers): (Range<usize>, Range<usize>),
    case: &Case,
    usage: &Use,
) {
    let (case, usage) = (case.clone(), usage.clone());
    let size = senders.end.max(receivers.end);
    on_each(seed, size, &[], move |rank, cluster| {
        let (case, usage) = (case.clone(), usage.clone());
        let (sends, receives) = (senders.contains(&rank), receivers.contains(&rank));
        async move {
            let mut all = Group::world(&cluster).await.unwrap();
            let mut low = all.split(sends.then_some(0), 0).await.unwrap();
            let mut high = all.split(receives.then_some(0), 0).await.unwrap();
            let low = async {
                let Some(group) = &mut low else { return };
                let mut pair = group.meet("both").await.unwrap();
                send(group, &mut pair, &case, &usage).await;
                pair.barrier().await.unwrap();
            };
            let high = async {
                let Some(group) = &mut high else { return };
                let mut pair = group.meet("both").await.unwrap();
                receive(group, &mut pair, &case, &usage).await;
                pair.barrier().await.unwrap();
            };
            in_time(async { tokio::join!(low, high) }).await;
        }
    });
}

/// Transfers an array between the first ranks and the others, three rounds of it.
fn transfers(seed: u64, from: &Layout, to: &Layout, settings: &Transfer) {
    let (senders, size) = (from.ranks(), from.ranks() + to.ranks());
    let groups = (0..senders, senders..size);
    between(seed, groups, &Case::new(from, to), &Use::of(settings.clone()));
}

/// Cuts `extent` into this many lengths, some of them 0.
fn lengths(random: &mut Random, extent: usize, count: usize) -> Vec<usize> {
    let mut cuts: Vec<usize> =
        (1..count).map(|_| random.below(extent as u64 + 1) as usize).collect();
    cuts.extend([0, extent]);
    cuts.sort_unstable();
    cuts.windows(2).map(|two| two[1] - two[0]).collect()
}

/// A layout of these ranks of an array whose region has this shape, and where the region begins.
pub(crate) fn random_layout(
    random: &mut Random,
    shape: &[usize],
    ranks: usize,
    with_region: bool,
) -> (Layout, Vec<usize>) {
    let dims = shape.len();
    let mut start = vec![0; dims];
    let mut extents = shape.to_vec();
    if with_region {
        for dim in 0..dims {
            start[dim] = random.below(4) as usize;
            extents[dim] += start[dim] + random.below(4) as usize;
        }
    }
    // Memory's dimension `axes[i]` is the logical one `i`.
    let mut axes: Vec<usize> = (0..dims).collect();
    if random.one_in(2) {
        for at in (1..dims).rev() {
            axes.swap(at, random.below(at as u64 + 1) as usize);
        }
    }
    let mut in_memory = vec![0; dims];
    for (logical, axis) in axes.iter().enumerate() {
        in_memory[*axis] = extents[logical];
    }
    let mut grid = vec![1; dims];
    let mut rest = ranks;
    for prime in [2, 3, 5, 7] {
        while rest.is_multiple_of(prime) {
            grid[random.below(dims as u64) as usize] *= prime;
            rest /= prime;
        }
    }
    grid[0] *= rest;
    let mut builder = Layout::builder(&in_memory);
    let mut may_have_margin = Vec::new();
    for (extent, ranks) in in_memory.iter().zip(&grid) {
        let kind = random.below(if *ranks > 1 { 6 } else { 4 });
        may_have_margin.push(kind != 1 && kind != 5);
        builder = match kind {
            0 => builder.block(*ranks),
            1 | 5 => builder.cyclic(1 + random.below(*extent as u64 + 2) as usize, *ranks),
            2 => builder.blocks(&lengths(random, *extent, *ranks)),
            _ => builder.replicated(*ranks),
        };
    }
    let mut layout = builder.build().unwrap();
    if random.one_in(2) {
        let width = |may: bool| if may { random.below(3) as usize } else { 0 };
        let widths: Vec<usize> = may_have_margin.into_iter().map(width).collect();
        layout = layout.margins(&widths).unwrap();
    }
    layout = layout.permuted(&axes).unwrap();
    if with_region {
        let ranges: Vec<_> = start.iter().zip(shape).map(|(at, count)| *at..at + count).collect();
        layout = layout.region(&ranges).unwrap();
    }
    (layout, start)
}

/// A shape of few elements.
pub(crate) fn random_shape(random: &mut Random) -> Vec<usize> {
    let dims = random.pick(&[1, 2, 2, 2, 3, 3, 4, 6]);
    let extents_max = [0, 3000, 60, 14, 8, 0, 4][dims];
    (0..dims).map(|_| 1 + random.below(extents_max) as usize).collect()
}

fn random_use(random: &mut Random) -> Use {
    let mut settings = Transfer::default().depth(random.pick(&[1, 1, 2]));
    if random.one_in(2) {
        settings = settings.slab_rows(1 + random.below(9) as usize);
    }
    if random.one_in(5) {
        settings = settings.overlap(false);
    }
    let seed = (!random.one_in(4)).then(|| random.next_u64());
    Use { settings, rounds: 3, seed }
}

#[test]
fn rows_become_columns() {
    let shape = [40, 24];
    let (from, to) = (layout("(block,*)@3x1", &shape), layout("(*,block)@1x2", &shape));
    transfers(1, &from, &to, &Transfer::default().slab_rows(3));
    transfers(2, &from, &to, &Transfer::default().depth(2));
    transfers(3, &from, &to, &Transfer::default().overlap(false));
}

#[test]
fn cycles_and_transposition_go_from_any_layout_to_any() {
    let shape = [67, 45];
    let one = layout("(cyclic(3),cyclic)@2x2", &shape);
    let other = layout("(block,cyclic(4))@2x1", &[45, 67]).permuted(&[1, 0]).unwrap();
    transfers(4, &one, &other, &Transfer::default().slab_rows(5));
    transfers(5, &other, &one, &Transfer::default().slab_rows(4));
}

#[test]
fn random_transfers_bring_what_every_element_must_be() {
    each_seed(0..24, |seed| {
        let mut random = Random::new(seed);
        let shape = random_shape(&mut random);
        let [senders, receivers] = [(); 2].map(|()| random.pick(&[1, 1, 2, 3, 4, 4, 6, 7]));
        let with_region = random.one_in(3);
        let (from, from_start) = random_layout(&mut random, &shape, senders, with_region);
        let (to, to_start) = random_layout(&mut random, &shape, receivers, with_region);
        let case = Case { from, from_start, to, to_start };
        // Disjoint, overlapping, one within the other, equal.
        let first = random.pick(&[senders, senders / 2, 0]);
        let groups = (0..senders, first..first + receivers);
        let usage = random_use(&mut random);
        println!("seed {seed}: {groups:?}, {} to {}, {usage:?}", case.from, case.to);
        between(seed, groups, &case, &usage);
    });
}

/// The statements have more numbers than take part in one call.
#[test]
fn layouts_with_long_lists_are_stated() {
    let blocks: Vec<usize> = (0..90).map(|at| at % 3).collect();
    let extent = blocks.iter().sum();
    let many = Layout::builder(&[extent]).blocks(&blocks).build().unwrap();
    let one = layout("(*)@1", &[extent]);
    let usage = Use { rounds: 1, ..Use::of(Transfer::default()) };
    between(1, (0..90, 90..91), &Case::new(&many, &one), &usage);
    between(2, (0..1, 0..90), &Case::new(&one, &many), &usage);
    between(3, (0..90, 0..90), &Case::new(&many, &many), &usage);
}

#[test]
fn many_threads_commit_slabs() {
    let shape = [64, 50];
    let case = Case::new(&layout("(*,*)@1x1", &shape), &layout("(cyclic,block)@2x1", &shape));
    on_each(1, 3, &[], move |rank, cluster| {
        let case = case.clone();
        async move {
            let (sends, group, mut pair) = halves(&cluster, rank, 1).await;
            if !sends {
                let usage = Use::of(Transfer::default().depth(2));
                return receive(&group, &mut pair, &case, &usage).await;
            }
            let settings = Transfer::default().slab_rows(3);
            let storage = vec![0; 64 * 50];
            let sending = array(&group, &case.from, storage).sender_with(&mut pair, settings);
            let mut sender = sending.await.unwrap();
            for round in 0..3 {
                if round > 0 {
                    sender.start().await.unwrap();
                }
                let values = &case.sent(0, round);
                std::thread::scope(|scope| {
                    while let Some(mut slab) = sender.next_slab() {
                        scope.spawn(move || {
                            let rows = slab.rows();
                            slab.copy_from_slice(&values[rows.start * 50..rows.end * 50]);
                            slab.commit();
                        });
                    }
                });
            }
            sender.finish().await.unwrap();
        }
    });
}
