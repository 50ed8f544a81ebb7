//! Chains of deltas in virtual time while hosts die, links are cut and networks part, by seed.

use chunkcomm::{Node, Peer, host, with_causes};
use chunkcomm_pipeline::{DeltaReceiver, DeltaRecvError, DeltaSendError, DeltaSender, Increment};
use chunkcomm_simulation::{HostId, LinkSpec, Network, Random, Simulation, each_seed, run};
use std::ops::Range;
use std::time::Duration;

use super::virtual_faults::cut_or_part;

/// Time in which a node gets its last messages to peers, of which one may be dead.
const END: Duration = Duration::from_secs(60);

/// One chain: rank 0 computes, each other rank takes, and all but the last pass on.
#[derive(Clone, Copy, Debug)]
struct Plan {
    seed: u64,
    ranks: usize,
    len: usize,
    rounds: u32,
    parts: usize,
    increment: Increment,
}

impl Plan {
    fn of(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let lengths = [0, 1, 1025, 5003, 40_961];
        let increment = match random.below(4) {
            0 => Increment::default(),
            1 => Increment::Fixed(1),
            _ => Increment::Fixed(1 + random.below(30_000) as usize),
        };
        let len = lengths[random.below(5) as usize];
        let rounds = 1 + random.below(3) as u32;
        Self {
            seed,
            ranks: 2 + random.below(4) as usize,
            len,
            rounds,
            parts: 1 + random.below(12) as usize,
            increment,
        }
    }
}

fn value(round: u32, index: usize) -> u32 {
    (index as u32).wrapping_add(round << 20).wrapping_mul(2_654_435_761)
}

fn values(round: u32, range: Range<usize>) -> impl Iterator<Item = u32> {
    range.map(move |index| value(round, index))
}

/// Commits the parts of each round in an order of the seed, at times of the seed.
async fn send(node: &Node, to: &Peer, plan: Plan) -> Result<(), DeltaSendError> {
    let mut random = Random::new(plan.seed);
    let buffer = vec![0_u32; plan.len];
    let mut sender = DeltaSender::open(node, to, "chain", buffer, plan.increment).await?;
    for round in 1..=plan.rounds {
        let mut parts = sender.parts(plan.parts).unwrap();
        while !parts.is_empty() {
            let mut part = parts.swap_remove(random.below(parts.len() as u64) as usize);
            let start = part.range().start;
            for (index, element) in (start..).zip(&mut *part) {
                *element = value(round, index);
            }
            let half = random.below(part.len() as u64 + 1) as usize;
            part.commit_first(half);
            host::sleep(Duration::from_micros(random.below(3_000))).await;
            part.commit();
        }
        if round < plan.rounds { sender.start().await? } else { sender.finish().await? }
    }
    Ok(())
}

/// Takes each round as it lands and passes it on. After an error, each element that landed is right.
async fn take(node: &Node, next: Option<Peer>, plan: Plan) -> Result<(), DeltaRecvError> {
    let Plan { seed, len, .. } = plan;
    let mut receiver = DeltaReceiver::accept(node, "chain", vec![7_u32; len]).await?;
    let mut forward = None;
    if let Some(next) = next {
        // The next rank may be dead.
        forward = receiver.forward(node, &next, "chain").await.ok();
    }
    for round in 1..=plan.rounds {
        let mut seen = 0;
        let ended = loop {
            match receiver.next_any().await {
                Ok(Some((range, elements))) => {
                    seen += range.len();
                    assert!(elements.iter().copied().eq(values(round, range)), "seed {seed}");
                }
                Ok(None) => break None,
                Err(error) => break Some(error),
            }
        };
        let passed = match &mut forward {
            Some(forward) => forward.finish().await,
            None => Ok(()),
        };
        if let Some(error) = ended {
            assert!(forward.is_none() || passed.is_err(), "seed {seed}, {}", node.name());
            let landed = |index: &usize| match receiver.try_range(*index..*index + 1) {
                Ok(Some(element)) => element == [value(round, *index)],
                Ok(None) => panic!("seed {seed}: more is to come after the end"),
                Err(_) => false,
            };
            assert_eq!((0..len).filter(landed).count(), seen, "seed {seed}, {}", node.name());
            return Err(error);
        }
        assert_eq!(seen, len, "seed {seed}, {}", node.name());
        let all = receiver.finish().await?;
        assert!(all.iter().copied().eq(values(round, 0..len)), "seed {seed}, {}", node.name());
        if round < plan.rounds {
            assert!(receiver.start().await?);
        }
    }
    Ok(())
}

/// Runs the plan while `disturb` acts; returns the outcome of each rank, the error in words.
fn chain<D: AsyncFnOnce(&Simulation, &[HostId])>(
    plan: Plan,
    disturb: D,
) -> Vec<Option<Result<(), String>>> {
    let mut network = Network::new(plan.seed);
    let add = |rank: usize| network.add_host(&format!("host-{rank}"));
    let hosts: Vec<HostId> = (0..plan.ranks).map(add).collect();
    let jitter = Duration::from_micros(100);
    network.switch(&hosts, LinkSpec { jitter, ..LinkSpec::default() });
    run(network, async |simulation| {
        let mut nodes = Vec::new();
        for (rank, host) in hosts.iter().enumerate() {
            let builder = Node::builder().name(format!("rank-{rank}"));
            let node = builder.listen(simulation.address(*host, 0)).build();
            nodes.push(simulation.on(*host, node).await.unwrap());
        }
        let mut members = Vec::new();
        for (rank, host) in hosts.iter().enumerate() {
            let (node, mut next) = (nodes[rank].clone(), None);
            if let Some(to) = nodes.get(rank + 1) {
                let to = to.addresses()[0].clone();
                next = Some(simulation.on(*host, node.connect(&to)).await.unwrap());
            }
            members.push(simulation.spawn_on(*host, async move {
                let outcome = match (rank, next) {
                    (0, Some(next)) => {
                        send(&node, &next, plan).await.map_err(|error| with_causes(&error))
                    }
                    (_, next) => take(&node, next, plan).await.map_err(|error| with_causes(&error)),
                };
                let _ = node.close(END).await;
                outcome
            }));
        }
        drop(nodes);
        disturb(&simulation, &hosts).await;
        let mut outcomes = Vec::new();
        for member in members {
            outcomes.push(match member.await {
                Ok(outcome) => Some(outcome),
                Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                Err(_) => None,
            });
        }
        outcomes
    })
}

/// Faults that no session dies of.
async fn cut_and_part(simulation: &Simulation, hosts: &[HostId], random: &mut Random) {
    for _ in 0..random.below(8) {
        simulation.sleep(Duration::from_micros(random.below(5_000))).await;
        cut_or_part(simulation, hosts, random).await;
    }
}

#[test]
fn chains_survive_cuts_and_partitions() {
    each_seed(0..40, |seed| {
        let (plan, mut random) = (Plan::of(seed), Random::new(seed + 1));
        let outcomes = chain(plan, async |simulation: &Simulation, hosts: &[HostId]| {
            cut_and_part(simulation, hosts, &mut random).await;
        });
        assert!(outcomes.iter().all(|it| *it == Some(Ok(()))), "{plan:?}: {outcomes:?}");
    });
}

/// The ranks before a dead one have all rounds. Those behind it have them, or an error with its name.
#[test]
fn a_death_is_told_by_name_down_the_chain() {
    let mut poisoned = 0;
    each_seed(0..60, |seed| {
        let (plan, mut random) = (Plan::of(seed), Random::new(seed + 2));
        let victim = random.below(plan.ranks as u64) as usize;
        let outcomes = chain(plan, async |simulation: &Simulation, hosts: &[HostId]| {
            simulation.sleep(Duration::from_micros(random.below(30_000))).await;
            if random.one_in(2) {
                cut_and_part(simulation, hosts, &mut random).await;
            }
            match random.one_in(2) {
                true => simulation.kill(hosts[victim]),
                false => simulation.crash(hosts[victim]),
            }
        });
        for (rank, outcome) in outcomes.iter().enumerate() {
            let note = format!("{plan:?}, {victim} dies: {rank} of {outcomes:?}");
            match outcome {
                None | Some(Ok(())) => {}
                Some(Err(words)) if rank > victim || (rank == 0 && victim == 1) => {
                    assert!(words.contains(&format!("rank-{victim}")), "{note}");
                    poisoned += 1;
                }
                Some(Err(_)) => panic!("{note}"),
            }
        }
    });
    println!("{poisoned} ranks were told of a death");
}
