//! Every flow, executed in memory by the data alone.

use proptest::prelude::*;

use super::super::tests::{Blocks, Case, below, cases, combine};
use super::*;

impl Case {
    fn flows(&self, kind: Kind, by: Algorithm) -> Option<Vec<Flow>> {
        let world = World::new(&self.hosts);
        (0..self.size()).map(|rank| flow(kind, by, &world, self.commutative, rank)).collect()
    }
}

/// A rank, with what each receive has made so far.
struct Executor {
    flow: Flow,
    input: Blocks,
    made: Vec<Blocks>,
}

impl Executor {
    /// Returns where the last of these receives that makes the block in such a memory stands.
    fn maker(&self, among: usize, block: usize, memory: Option<Memory>) -> Option<usize> {
        self.flow.receives[..among].iter().rposition(|receive| {
            let such = memory.is_none_or(|memory| memory == receive.into);
            such && receive.blocks.iter().any(|blocks| blocks.contains(&block))
        })
    }

    fn stands(&self, memory: Memory, block: usize) -> Blocks {
        let block = match memory {
            Memory::Input => self.input[block].clone(),
            _ => {
                let maker = self.maker(self.flow.receives.len(), block, Some(memory));
                self.made[maker.expect("a receive makes what is sent")][block].clone()
            }
        };
        vec![block]
    }

    /// Takes a block if the operand for it is there.
    fn take(&mut self, index: usize, block: usize, received: Blocks) -> bool {
        let combines = self.flow.receives[index].combine;
        let own = match self.maker(index, block, None) {
            Some(maker) => &self.made[maker][block],
            None => &self.input[block],
        };
        let received = received.into_iter().next().unwrap();
        let made = match combines {
            None => received,
            Some(_) if own.is_none() => return false,
            Some(Side::Before) => combine(received, own.clone()),
            Some(Side::After) => combine(own.clone(), received),
        };
        assert_eq!(self.made[index][block].replace(made.unwrap()), None, "a block came twice");
        true
    }

    fn result(&self, first: &Blocks) -> Blocks {
        let all = self.flow.receives.len();
        let of = |block| match self.maker(all, block, Some(Memory::Result)) {
            Some(maker) => self.made[maker][block].clone(),
            None => first[block].clone(),
        };
        (0..self.input.len()).map(of).collect()
    }
}

/// A block that is still to be sent: from a rank's memory to a receive at another.
#[derive(Debug)]
struct Transit {
    from: (usize, Memory, usize),
    to: (usize, usize, usize),
}

/// Pairs the sends with the receives, block by block.
fn transits(flows: &[Flow]) -> Vec<Transit> {
    let mut transits = Vec::new();
    let mut receives = 0;
    for (from, flow) in flows.iter().enumerate() {
        receives += flow.receives.len();
        let mut counts = BTreeMap::new();
        for send in &flow.sends {
            let count = counts.entry(send.to).or_insert(0);
            let mut there = flows[send.to].receives.iter().enumerate();
            let mut there = there.by_ref().filter(|(_, receive)| receive.from == from);
            let (index, receive) = there.nth(*count).expect("a receive for each send");
            *count += 1;
            let blocks = |ranges: &[Range<usize>]| ranges.iter().cloned().flatten().collect();
            let (ours, theirs): (Vec<_>, Vec<_>) = (blocks(&send.blocks), blocks(&receive.blocks));
            assert_eq!(ours.len(), theirs.len());
            transits.extend(ours.into_iter().zip(theirs).map(|(ours, theirs)| Transit {
                from: (from, send.of, ours),
                to: (send.to, index, theirs),
            }));
        }
    }
    let sends: usize = flows.iter().map(|flow| flow.sends.len()).sum();
    assert_eq!(sends, receives, "a send for each receive");
    transits
}

fn execute(case: &Case, kind: Kind, flows: Vec<Flow>) -> Vec<Blocks> {
    let mut transits = transits(&flows);
    let mut ranks: Vec<Executor> = (flows.into_iter().enumerate())
        .map(|(rank, flow)| {
            let made = vec![vec![None; case.size()]; flow.receives.len()];
            Executor { input: case.input(kind, rank), flow, made }
        })
        .collect();
    let mut seed = case.seed;
    while !transits.is_empty() {
        // Those that can go, go in any order: shuffled, and tried until nothing more goes.
        for last in (1..transits.len()).rev() {
            transits.swap(last, below(&mut seed, last + 1));
        }
        let before = transits.len();
        transits.retain(|Transit { from: (from, memory, ours), to: (to, index, theirs) }| {
            let sent = ranks[*from].stands(*memory, *ours);
            sent[0].is_none() || !ranks[*to].take(*index, *theirs, sent)
        });
        assert!(transits.len() < before, "{kind:?}: nothing goes of {transits:?}");
    }
    let first = |rank| case.first_result(kind, rank);
    ranks.iter().enumerate().map(|(rank, it)| it.result(&first(rank))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn every_flow_has_the_sequential_result(case in cases()) {
        for (kind, by) in case.calls() {
            let Some(flows) = case.flows(kind, by) else { continue };
            for (rank, result) in execute(&case, kind, flows).into_iter().enumerate() {
                case.assert_result(kind, by, rank, result);
            }
        }
    }

    #[test]
    fn a_ring_has_four_transfers_to_the_next(case in cases()) {
        let case = Case { commutative: true, ..case };
        for flow in case.flows(Kind::AllReduce, Algorithm::Ring).unwrap() {
            prop_assert!(flow.sends.len() <= 4 && flow.receives.len() <= 4);
        }
        for flow in case.flows(Kind::AllGather, Algorithm::Ring).unwrap() {
            prop_assert!(flow.sends.len() <= 2 && flow.receives.len() <= 2);
        }
    }
}

fn line(size: usize, commutative: bool) -> Case {
    Case { hosts: vec![0; size], len: size, root: 0, commutative, seed: 1 }
}

#[test]
fn the_ring_of_the_picture() {
    let flow = line(4, true).flows(Kind::AllReduce, Algorithm::Ring).unwrap().remove(2);
    let blocks = |ranges: &[Range<usize>]| ranges.iter().cloned().flatten().collect();
    let receives = flow.receives.iter().map(|it| (it.into, blocks(&it.blocks)));
    let sends = flow.sends.iter().map(|it| (it.of, blocks(&it.blocks)));
    let (receives, sends): (Vec<(_, Vec<_>)>, Vec<(_, Vec<_>)>) =
        (receives.collect(), sends.collect());
    use Memory::{Input, Partial, Result};
    let wanted =
        [(Partial, vec![1]), (Partial, vec![0]), (Result, vec![3]), (Result, vec![2, 1, 0])];
    assert_eq!(receives, wanted);
    let wanted =
        [(Input, vec![2]), (Partial, vec![1]), (Partial, vec![0]), (Result, vec![3, 2, 1])];
    assert_eq!(sends, wanted);
}

#[test]
fn what_flows_and_what_does_not() {
    let case = line(5, true);
    for (kind, by) in case.calls() {
        let flows = !matches!(by, Algorithm::Doubling | Algorithm::Dissemination);
        let flows = flows && kind != Kind::ExclusiveScan;
        assert_eq!(case.flows(kind, by).is_some(), flows, "{kind:?} by {by}");
    }
    assert_eq!(line(5, false).flows(Kind::AllReduce, Algorithm::Ring), None);
    assert_eq!(case.flows(Kind::AllToAll, Algorithm::Ring), None);
    let alone = line(1, true).flows(Kind::AllReduce, Algorithm::Ring).unwrap();
    assert_eq!(alone, [Flow::default()]);
}

#[test]
fn a_chain_sends_everything_in_one_transfer() {
    for flow in line(6, false).flows(Kind::ReduceScatter, Algorithm::Chain).unwrap() {
        assert!(flow.receives.iter().all(|receive| receive.blocks.len() == 1), "{flow:?}");
        assert!(flow.sends.len() <= 5);
    }
}
