//! Farms whose tasks wait: in virtual time, and with processes.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use chunkcomm::host::{self, Instant};
use chunkcomm_cluster::{Cluster, Function, Registry};
use chunkcomm_farm::settings::{TaskTimeout, Tree, VirtualWorkers, WorkersAs};
use chunkcomm_farm::{Farm, FarmBuilder, Outcome, RegistryExt as _, TaskError, serve_in};
use chunkcomm_simulation::{LinkSpec, each_seed};

use crate::farm::{DEADLINE, builder, kill, pids};
use crate::virtual_cluster::{on_each_of, switched};

const MS: Duration = Duration::from_millis(1);

/// Time that a task computes and waits, in milliseconds, some times.
pub(crate) type Times = (u64, u64, u32);

pub(crate) type Resting = Function<Times, (u64, u64)>;

/// A function that computes and waits in turns; returns the index of its task and the milliseconds
/// that passed.
pub(crate) fn resting() -> (Registry, Resting) {
    let (registry, rest, _) = functions();
    (registry, rest)
}

/// Number of values that [`functions`] computed.
static COMPUTED: AtomicU32 = AtomicU32::new(0);

/// The function of [`resting`], and one whose tasks need a value that takes 100 ms.
fn functions() -> (Registry, Resting, Function<u64, u64>) {
    let mut registry = Registry::new();
    let rest = |task: chunkcomm_farm::TaskContext, (computes, waits, turns): Times| async move {
        let begun = Instant::now();
        for _ in 0..turns {
            host::spend(Duration::from_millis(computes));
            if waits > 0 {
                host::sleep(Duration::from_millis(waits)).await;
            }
        }
        (task.index(), begun.elapsed().as_millis() as u64)
    };
    let rest = registry.register_async_task("rest", rest);
    let need = registry.register_async_task("need", |task, number: u64| async move {
        let compute = async || {
            COMPUTED.fetch_add(1, Ordering::Relaxed);
            host::spend(100 * MS);
            number / 2 % 2
        };
        let value = task.once(&(number / 2 % 2), compute).await;
        host::spend(MS);
        number * 10 + *value
    });
    (registry, rest, need)
}

/// Runs a program on rank 0 of a virtual cluster whose other nodes work, each on one thread.
fn farm_on<F, P>(seed: u64, nodes: usize, program: P)
where
    F: Future<Output = ()> + Send + 'static,
    P: Fn(Cluster) -> F + Clone + Send + 'static,
{
    farm_of(seed, nodes, || resting().0, program);
}

/// As [`farm_on`], with functions of another registry.
pub(crate) fn farm_of<F, P>(seed: u64, nodes: usize, registry: fn() -> Registry, program: P)
where
    F: Future<Output = ()> + Send + 'static,
    P: Fn(Cluster) -> F + Clone + Send + 'static,
{
    farm_with_deaths(seed, nodes, LinkSpec::default(), &[], registry, program);
}

/// As [`farm_of`], on a network of such links. The program of each host of `deaths` is killed at its time.
pub(crate) fn farm_with_deaths<F, P>(
    seed: u64,
    nodes: usize,
    links: LinkSpec,
    deaths: &[(usize, Duration)],
    registry: fn() -> Registry,
    program: P,
) where
    F: Future<Output = ()> + Send + 'static,
    P: Fn(Cluster) -> F + Clone + Send + 'static,
{
    on_each_of(switched(seed, nodes, links), deaths, move |rank, cluster| {
        let program = program.clone();
        async move {
            if rank == 0 {
                program(cluster.clone()).await;
                cluster.provide("done").await.unwrap();
            } else {
                let registry = registry();
                while cluster.providers("done").is_empty() {
                    tokio::select! {
                        biased;
                        served = serve_in(&cluster, &registry).threads(1) => served.unwrap(),
                        done = cluster.provider("done") => drop(done.unwrap()),
                    }
                }
            }
        }
    });
}

async fn outcome(
    cluster: &Cluster,
    set: impl FnOnce(FarmBuilder) -> FarmBuilder,
    tasks: Vec<Times>,
) -> Outcome<(u64, u64)> {
    let (registry, rest) = resting();
    let mut farm = set(Farm::builder(registry)).start_in(cluster).await.unwrap();
    let count = tasks.len() as u64;
    let outcome = farm.run(&rest, tasks).await.unwrap();
    let indices = outcome.results.iter().map(|&(index, _)| index);
    assert_eq!(indices.collect::<Vec<_>>(), (0..count).collect::<Vec<_>>());
    assert_eq!(outcome.stats.tasks, count);
    farm.finish(DEADLINE).await.unwrap();
    outcome
}

/// Tasks of 1 ms that wait for 9 ms: 10 of them at a time keep a thread busy.
#[test]
fn waits_of_tasks_overlap_as_far_as_there_are_virtual_workers() {
    farm_on(1, 2, async |cluster| {
        let elapsed = async |virtual_workers| {
            let set = |builder: FarmBuilder| builder.virtual_workers(virtual_workers);
            let stats = outcome(&cluster, set, vec![(1, 9, 1); 400]).await.stats;
            (stats.elapsed, stats.workers[0].virtual_workers)
        };
        for (each, least) in [(1, 4000), (2, 2000), (5, 800), (20, 400)] {
            let (elapsed, told) = elapsed(VirtualWorkers::Fixed(each)).await;
            let (least, most) = (least * MS, (least + least / 4) * MS);
            assert!((least..most).contains(&elapsed), "{each}: {elapsed:?}");
            assert_eq!(told, if each > 1 { each } else { 0 });
        }
        let (elapsed, told) = elapsed(VirtualWorkers::Auto).await;
        assert!((400 * MS..500 * MS).contains(&elapsed), "{elapsed:?}");
        assert!((8..=16).contains(&told), "{told}");
    });
}

#[tokio::test]
async fn processes_have_threads_for_tasks_that_block() {
    for (virtual_workers, allowed) in [
        (VirtualWorkers::Auto, 2..=16),
        (VirtualWorkers::Fixed(3), 3..=3),
        (VirtualWorkers::Fixed(1), 0..=0),
    ] {
        let (builder, functions) = builder();
        let mut farm = builder.workers(2).virtual_workers(virtual_workers).start().await.unwrap();
        let Outcome { results, stats, .. } =
            farm.run(&functions.square_blocking, 0..100).await.unwrap();
        assert_eq!(results, (0..100).map(|number| number * number).collect::<Vec<_>>());
        for worker in &stats.workers {
            assert!(allowed.contains(&worker.virtual_workers), "{virtual_workers:?}: {stats:?}");
        }
        farm.finish(DEADLINE).await.unwrap();
    }
}

#[test]
fn tasks_that_do_not_wait_have_no_virtual_workers() {
    farm_on(2, 3, async |cluster| {
        let stats = outcome(&cluster, |builder| builder, vec![(5, 0, 1); 100]).await.stats;
        assert!(stats.workers.iter().all(|worker| worker.virtual_workers == 0), "{stats:?}");
        assert!((250 * MS..270 * MS).contains(&stats.elapsed), "{:?}", stats.elapsed);
    });
}

/// A wait begins after the work before it, and each turn goes on where it stood.
#[test]
fn a_task_computes_and_waits_in_turns() {
    farm_on(3, 2, async |cluster| {
        let alone = outcome(&cluster, |builder| builder, vec![(10, 5, 4)]).await;
        assert_eq!(alone.results, [(0, 60)]);
        // While one waits the other computes.
        let stats = outcome(&cluster, |builder| builder, vec![(10, 5, 4); 2]).await.stats;
        assert!((80 * MS..100 * MS).contains(&stats.elapsed), "{:?}", stats.elapsed);
    });
}

/// Some tasks are long: what others have not begun goes to the workers that have nothing.
#[test]
fn unequal_tasks_are_evened_out_among_workers_and_sub_farmers() {
    each_seed(0..6, |seed| {
        farm_on(seed, 5, move |cluster| async move {
            let tree = if seed % 2 == 0 { Tree::FanOut(2) } else { Tree::Off };
            let tasks = (0..300).map(|at| (1 + at % 7, 10 + at * seed % 50, 1 + (at % 3) as u32));
            let tasks: Vec<Times> = tasks.collect();
            let work: u64 = tasks.iter().map(|&(work, _, turns)| work * u64::from(turns)).sum();
            let stats = outcome(&cluster, |builder| builder.tree(tree), tasks).await.stats;
            let most = work as u32 * MS / 4 * 3 / 2 + 150 * MS;
            assert!(stats.elapsed < most, "{:?} of {most:?}", stats.elapsed);
        });
    });
}

#[test]
fn a_task_that_waits_too_long_fails_alone() {
    farm_on(4, 3, async |cluster| {
        let (registry, rest) = resting();
        let limit = TaskTimeout { timeout: 500 * MS, grace: 100 * MS };
        let builder = Farm::builder(registry).task_timeout(limit);
        let mut farm = builder.start_in(&cluster).await.unwrap();
        let hour = (0, 3_600_000, 1);
        let tasks: Vec<Times> =
            (0..60).map(|at| if at % 20 == 7 { hour } else { (1, 5, 1) }).collect();
        let outcome = farm.run_to_end(&rest, tasks).await.unwrap();
        let failed = outcome.results.iter().enumerate().filter_map(|(at, result)| {
            let error = result.as_ref().err()?;
            assert!(matches!(error, TaskError::TimedOut { .. }), "{error}");
            Some(at)
        });
        assert_eq!(failed.collect::<Vec<_>>(), [7, 27, 47]);
        assert!(outcome.stats.elapsed < 2000 * MS, "{:?}", outcome.stats.elapsed);
        assert_eq!(outcome.stats.workers.iter().map(|it| it.timed_out).sum::<u64>(), 3);
        farm.finish(DEADLINE).await.unwrap();
    });
}

#[test]
fn tasks_of_a_dropped_run_make_room_for_the_next() {
    farm_on(5, 2, async |cluster| {
        let (registry, rest) = resting();
        let builder = Farm::builder(registry).virtual_workers(VirtualWorkers::Fixed(4));
        let mut farm = builder.start_in(&cluster).await.unwrap();
        for _ in 0..3 {
            let dropped = farm.run(&rest, vec![(0, 3_600_000, 1); 10]);
            assert!(host::timeout(50 * MS, dropped).await.is_err());
        }
        let outcome = farm.run(&rest, vec![(0, 10, 1); 40]).await.unwrap();
        assert!(outcome.stats.elapsed < 150 * MS, "{:?}", outcome.stats.elapsed);
        farm.finish(DEADLINE).await.unwrap();
    });
}

/// Each node that is killed has begun 10 tasks, which wait. Its death is told 10 s later.
#[test]
fn tasks_that_a_killed_node_has_begun_are_run_by_others() {
    each_seed(0..10, |seed| {
        let at = Duration::from_millis(2_500 + 130 * seed);
        let deaths = [(1, at), (3, 2 * at)];
        farm_with_deaths(
            seed,
            5,
            LinkSpec::default(),
            &deaths,
            || resting().0,
            |cluster| async move {
                let set = |builder: FarmBuilder| {
                    builder.virtual_workers(VirtualWorkers::Fixed(10)).tree(Tree::Off)
                };
                let stats = outcome(&cluster, set, vec![(1, 999, 1); 600]).await.stats;
                assert_eq!(stats.workers.iter().filter(|it| it.lost.is_some()).count(), 2);
                assert!(stats.mishaps.reissued >= 20, "{:?}", stats.mishaps);
                // Four nodes do 40 tasks a second. One after the other, the 22 would take 10 s more.
                let elapsed = stats.elapsed;
                assert!(elapsed < Duration::from_secs(30), "{elapsed:?}");
            },
        );
    });
}

/// Each worker computes a value once in a run, and has other tasks meanwhile.
#[test]
fn tasks_wait_for_a_value_that_another_computes() {
    farm_on(6, 3, async |cluster| {
        let (registry, _, need) = functions();
        let mut farm = Farm::builder(registry).start_in(&cluster).await.unwrap();
        for round in 1..=2 {
            let outcome = farm.run(&need, 0..40).await.unwrap();
            let expected: Vec<u64> = (0..40).map(|number| number * 10 + number / 2 % 2).collect();
            assert_eq!(outcome.results, expected);
            assert_eq!(COMPUTED.load(Ordering::Relaxed), round * 4);
            let elapsed = outcome.stats.elapsed;
            assert!((200 * MS..250 * MS).contains(&elapsed), "{elapsed:?}");
        }
        farm.finish(DEADLINE).await.unwrap();
    });
}

#[tokio::test]
async fn tasks_wait_in_processes_and_threads_too() {
    for workers_as in [WorkersAs::Process, WorkersAs::Thread] {
        let (builder, functions) = builder();
        let limit = TaskTimeout { timeout: Duration::from_secs(2), grace: 10 * MS };
        let builder = builder.workers_as(workers_as).task_timeout(limit);
        let mut farm = builder.start().await.unwrap();
        let mut tasks = vec![Some(20); 100];
        tasks[30] = None;
        let outcome = farm.run_to_end(&functions.rest, tasks).await.unwrap();
        for (index, result) in outcome.results.iter().enumerate() {
            assert_eq!(result.is_err(), index == 30, "{index}: {result:?}");
        }
        let is_here = |pid: &u32| *pid == std::process::id();
        let mut pids = outcome.results.iter().flatten();
        assert!(pids.all(|pid| is_here(pid) == (workers_as == WorkersAs::Thread)));
        assert!(outcome.stats.workers.iter().all(|it| it.tasks > 0), "{:?}", outcome.stats);
        // The task was waiting, so that its process has no thread to be rid of.
        assert!(outcome.stats.workers.iter().all(|it| it.lost.is_none()), "{:?}", outcome.stats);
        assert!(outcome.stats.workers.iter().any(|it| it.virtual_workers > 1));
        // The next function does not wait.
        let stats = farm.run(&functions.double, 0..1000).await.unwrap().stats;
        assert!(stats.workers.iter().all(|it| it.virtual_workers == 0));
        farm.finish(DEADLINE).await.unwrap();
    }
}

/// Each process that is killed has begun 8 tasks, which wait.
#[tokio::test]
async fn tasks_that_a_killed_process_has_begun_are_run_by_others() {
    const TASKS: usize = 600;
    let (builder, functions) = builder();
    let builder = builder.workers(3).virtual_workers(VirtualWorkers::Fixed(8));
    let mut farm = builder.start().await.unwrap();
    let mut victims = pids(&farm).into_iter().take(2);
    let mut results = vec![Vec::new(); TASKS];
    let mut done = 0;
    let tasks = farm.stream(&functions.square_later, 0..TASKS as u64).unwrap().as_completed();
    let run = tasks.for_each(|index, square| {
        results[index as usize].push(square);
        done += 1;
        if done % 200 == 0 {
            victims.next().into_iter().for_each(kill);
        }
    });
    let stats = tokio::time::timeout(DEADLINE, run).await.expect("a death is noticed").unwrap();
    assert!((0..TASKS as u64).zip(&results).all(|(number, got)| *got == [number * number]));
    assert_eq!(stats.tasks, TASKS as u64);
    assert_eq!(stats.workers.iter().filter(|it| it.lost.is_some()).count(), 2, "{stats:?}");
    assert!(stats.mishaps.reissued >= 8, "{:?}", stats.mishaps);
    farm.finish(DEADLINE).await.unwrap();
}
