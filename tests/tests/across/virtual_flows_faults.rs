//! Collectives that flow while ranks die and links are cut, at moments spread over the collective.

use crate::virtual_cluster::{join, switched};
use crate::virtual_faults::cut_or_part;
use crate::virtual_flows::{ALL, IN_TIME, Plan, Stop, What};
use chunkcomm::host::{self, Instant};
use chunkcomm_cluster::Cluster;
use chunkcomm_group::{Group, GroupError, Increment, Op};
use chunkcomm_simulation::{HostId, LinkSpec, Random, Simulation, each_seed, run};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Time in which the cluster reports a death, and in which it has been heard of by all.
const REPORTED_WITHIN: Duration = Duration::from_secs(45);

const SIZE: usize = 5;

fn now() -> Duration {
    Duration::from_nanos(Instant::now().time().0)
}

/// The outcome of a collective at a rank, and the times of its begin and end.
type Outcome = (Result<(), Stop>, Duration, Duration);

/// Runs `program` at each rank while `disturb` acts; returns what the survivors return.
fn on_all<R, F, D>(
    seed: u64,
    size: usize,
    disturb: D,
    program: impl Fn(usize, Cluster) -> F + Clone + Send + 'static,
) -> Vec<Option<R>>
where
    R: Send + 'static,
    F: Future<Output = R> + Send + 'static,
    D: AsyncFnOnce(&Simulation, &[HostId]),
{
    let (network, hosts) = switched(seed, size, LinkSpec::default());
    run(network, async |simulation| {
        let members = simulation.launch(&hosts, |rank| {
            let program = program.clone();
            async move {
                let cluster = join().await;
                let returned = program(rank, cluster.clone()).await;
                // An error names the nodes that died.
                let _ = cluster.end(IN_TIME).await;
                returned
            }
        });
        disturb(&simulation, &hosts).await;
        let mut all = Vec::new();
        for member in members {
            all.push(match member.await {
                Ok(returned) => Some(returned),
                Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                Err(_) => None,
            });
        }
        all
    })
}

async fn timed(group: &mut Group, plan: &Plan) -> Outcome {
    let began = now();
    let ran = host::timeout(2 * IN_TIME, plan.run(group)).await;
    let ran = ran.unwrap_or_else(|_| panic!("{plan:?} hangs at rank {}", group.rank()));
    (ran, began, now())
}

/// Returns the time from the moment when all have their group to that when all have their results.
fn span(plan: &Plan) -> (Duration, Duration) {
    let plan = *plan;
    let all = on_all(
        plan.seed,
        plan.size,
        async |_: &Simulation, _: &[HostId]| {},
        move |_, cluster| async move {
            let mut group = Group::world(&cluster).await.unwrap();
            let outcome = timed(&mut group, &plan).await;
            group.barrier().await.unwrap();
            outcome
        },
    );
    let (mut begin, mut end) = (Duration::ZERO, Duration::ZERO);
    for (ran, began, ended) in all.into_iter().flatten() {
        ran.unwrap_or_else(|stop| panic!("{plan:?}: {stop:?}"));
        (begin, end) = (begin.max(began), end.max(ended));
    }
    (begin, end)
}

/// Number of ranks whose call has failed, and of those whose ends have.
#[derive(Default, Debug)]
struct Told {
    calls: usize,
    ends: usize,
}

/// Runs the collective while a rank dies; the others hear of it and go on without it.
fn dies(plan: &Plan, victim: usize, at: Duration, crashes: bool, told: &mut Told) {
    let heard = Arc::new(Mutex::new(std::mem::take(told)));
    let (plan, all) = (*plan, Arc::clone(&heard));
    let disturb = async |simulation: &Simulation, hosts: &[HostId]| {
        simulation.sleep(at.saturating_sub(simulation.now())).await;
        if crashes { simulation.crash(hosts[victim]) } else { simulation.kill(hosts[victim]) }
    };
    let note = format!("{plan:?}: {victim} dies after {at:?}");
    let left = on_all(plan.seed, plan.size, disturb, move |rank, cluster| {
        let (all, note) = (Arc::clone(&all), note.clone());
        async move {
            let mut group = Group::world(&cluster).await.unwrap();
            let (ran, _, ended) = timed(&mut group, &plan).await;
            if let Err(stop) = ran {
                let is_call = matches!(stop, Stop::Call(_));
                {
                    let mut told = all.lock().unwrap();
                    *if is_call { &mut told.calls } else { &mut told.ends } += 1;
                }
                is_named(&stop.cause(), victim, &format!("{note}, at {rank}"));
                assert!(ended <= at + REPORTED_WITHIN, "{note}, at {rank}: {ended:?}");
            }
            host::sleep((at + REPORTED_WITHIN).saturating_sub(now())).await;
            let error = host::timeout(IN_TIME, group.barrier()).await.unwrap().unwrap_err();
            is_named(&error.cause, victim, &note);
            let shrunk = host::timeout(IN_TIME, group.shrink()).await.unwrap();
            if victim == 0 {
                // The manager's death is the end of the cluster.
                assert!(matches!(shrunk, Err(GroupError::Agree(_))), "{note}");
                return;
            }
            let (mut smaller, _) = shrunk.unwrap();
            assert_eq!(smaller.size(), plan.size - 1, "{note}");
            let summed = smaller.all_reduce(vec![1_u64], Op::sum()).await.unwrap();
            assert_eq!(summed, [plan.size as u64 - 1]);
            let plan = Plan { size: plan.size - 1, root: plan.root % (plan.size - 1), ..plan };
            timed(&mut smaller, &plan).await.0.unwrap();
            smaller.barrier().await.unwrap();
        }
    });
    assert!(left[victim].is_none());
    assert_eq!(left.iter().flatten().count(), plan.size - 1);
    *told = std::mem::take(&mut heard.lock().unwrap());
}

fn is_named(cause: &GroupError, victim: usize, note: &str) {
    match (cause, cause.death()) {
        (_, Some((rank, death))) => {
            assert_eq!((rank, death.id.rank as usize), (victim, victim), "{note}");
        }
        (GroupError::Ended(_), _) if victim == 0 => {}
        (other, _) => panic!("{note}: {other:?}"),
    }
}

fn plan(seed: u64, what: What, depth: usize) -> Plan {
    let plan = Plan::of(seed, what, depth, SIZE);
    Plan { length: 9001, rounds: 3, increment: Increment::Fixed(7000), ..plan }
}

/// A death of a rank at each of these moments, in turn of a rank by seed.
fn at_each_moment(whats: &[What], moments: u32, victim: Option<usize>) {
    let mut told = Told::default();
    for (number, what) in (0..).zip(whats.iter().copied()) {
        for depth in [1, 2] {
            let plan = plan(number * 2 + depth as u64, what, depth);
            let (begin, end) = span(&plan);
            for moment in 0..moments {
                let mut random = Random::new(u64::from(moment) + plan.seed);
                let at = begin + (end - begin) * moment / moments;
                let by_seed = 1 + random.below(SIZE as u64 - 1) as usize;
                let crashes = random.one_in(4);
                dies(&plan, victim.unwrap_or(by_seed), at, crashes, &mut told);
            }
        }
    }
    println!("{told:?}");
    // Some have their ends when they hear of it, others not yet.
    assert!(told.calls > 0 && told.ends as u32 > moments, "{told:?}");
}

#[test]
fn a_death_at_any_moment_of_a_broadcast_is_named_and_survived() {
    at_each_moment(&ALL[..3], 12, None);
}

#[test]
fn a_death_at_any_moment_of_a_reduction_is_named_and_survived() {
    at_each_moment(&ALL[3..6], 12, None);
}

#[test]
fn a_death_at_any_moment_at_all_ranks_and_of_a_gathering_is_named_and_survived() {
    at_each_moment(&ALL[6..], 12, None);
}

#[test]
fn the_death_of_the_manager_ends_every_end() {
    at_each_moment(&ALL, 3, Some(0));
}

/// Sessions go on over another connection.
#[test]
fn a_cut_at_any_moment_changes_no_result() {
    const MOMENTS: u32 = 5;
    let mut cuts = 0;
    for (number, what) in (0..).zip(ALL) {
        for depth in [1, 2] {
            let plan = plan(100 + number * 2 + depth as u64, what, depth);
            let (begin, end) = span(&plan);
            for moment in 0..MOMENTS {
                let at = begin + (end - begin) * moment / MOMENTS;
                let host = (moment as usize + number as usize) % SIZE;
                let cut = async |simulation: &Simulation, hosts: &[HostId]| {
                    simulation.sleep(at.saturating_sub(simulation.now())).await;
                    simulation.with(|network, now| {
                        for end in network.ends_of(hosts[host]) {
                            network.cut(now, end, Duration::ZERO, Duration::from_millis(3));
                            cuts += 1;
                        }
                    });
                };
                let all = on_all(plan.seed, SIZE, cut, move |_, cluster| async move {
                    let mut group = Group::world(&cluster).await.unwrap();
                    let ran = timed(&mut group, &plan).await.0;
                    group.barrier().await.unwrap();
                    ran
                });
                for ran in all {
                    let ran = ran.unwrap();
                    ran.unwrap_or_else(|stop| panic!("{plan:?}, {host} after {at:?}: {stop:?}"));
                }
            }
        }
    }
    assert!(cuts > 2 * 16 * MOMENTS, "{cuts} connections were cut");
}

#[test]
fn cuts_and_partitions_by_seed_change_no_result() {
    each_seed(0..24, |seed| {
        let mut random = Random::new(seed);
        let depth = 1 + random.below(2) as usize;
        let size = 2 + random.below(6) as usize;
        let plan = Plan::of(seed, ALL[seed as usize % 8], depth, size);
        let plan = Plan { length: plan.length.max(5003), rounds: 4, ..plan };
        let disturb = async |simulation: &Simulation, hosts: &[HostId]| {
            simulation.sleep(Duration::from_micros(5000 + random.below(20_000))).await;
            for _ in 0..1 + random.below(6) {
                cut_or_part(simulation, hosts, &mut random).await;
                simulation.sleep(Duration::from_micros(random.below(4000))).await;
            }
        };
        let all = on_all(seed, size, disturb, move |_, cluster| async move {
            let mut group = Group::world(&cluster).await.unwrap();
            let ran = timed(&mut group, &plan).await.0;
            group.barrier().await.unwrap();
            ran
        });
        for ran in all {
            ran.unwrap().unwrap_or_else(|stop| panic!("{plan:?}: {stop:?}"));
        }
    });
}
