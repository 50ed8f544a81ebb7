//! Runs that only some workers of a farm get.

use std::time::Duration;

use chunkcomm::host::{sleep, timeout};
use chunkcomm_cluster::Cluster;
use chunkcomm_farm::settings::{Prefetch, Tree};
use chunkcomm_farm::{Farm, FunctionExt as _, RunError, RunStats, WorkerEnd, WorkerName};
use chunkcomm_simulation::each_seed;

use crate::farm::{DEADLINE, builder};
use crate::farm_waits::{farm_of, resting};

fn rank(worker: &WorkerName) -> u32 {
    worker.member.as_ref().expect("it is a node").id.rank
}

fn odd(worker: &WorkerName) -> bool {
    rank(worker) % 2 == 1
}

/// Ranks of the workers that ran tasks.
fn worked(stats: &RunStats) -> Vec<u32> {
    let workers = stats.workers.iter().filter(|worker| worker.tasks > 0);
    workers.map(|worker| rank(&worker.worker)).collect()
}

fn on_virtual_nodes<F, P>(seed: u64, nodes: usize, program: P)
where
    F: Future<Output = ()> + Send + 'static,
    P: Fn(Cluster) -> F + Clone + Send + 'static,
{
    farm_of(seed, nodes, || resting().0, program);
}

/// Tasks of 5 to 65 ms. The long ones come last, so that those with nothing to do would get some.
fn unequal() -> Vec<(u64, u64, u32)> {
    (0..60).map(|at| (5 + at, 0, 1)).collect()
}

#[test]
fn only_chosen_nodes_work_and_then_all_again() {
    each_seed(0..4, |seed| {
        on_virtual_nodes(seed, 5, async |cluster| {
            let (registry, rest) = resting();
            let mut farm = Farm::builder(registry).start_in(&cluster).await.unwrap();
            let stats = farm.run(rest.only_on(odd), unequal()).await.unwrap().stats;
            assert_eq!((worked(&stats), stats.tasks), (vec![1, 3], 60));
            for worker in stats.workers.iter().filter(|worker| !odd(&worker.worker)) {
                let waited = worker.waited_for_farmer + worker.waited_for_wire;
                assert_eq!((worker.answers, waited), (0, Duration::ZERO));
            }
            let even = |worker: &WorkerName| !odd(worker);
            let stats = farm.run(rest.only_on(even), unequal()).await.unwrap().stats;
            assert_eq!(worked(&stats), [2, 4]);
            let stats = farm.run(&rest, unequal()).await.unwrap().stats;
            assert_eq!(worked(&stats), [1, 2, 3, 4]);
            farm.finish(DEADLINE).await.unwrap();
        });
    });
}

/// All nodes hold tasks of a run that is dropped. Those that are not chosen give them up, and are there in
/// the run after.
#[test]
fn a_node_that_is_not_chosen_drops_what_a_dropped_run_has_left() {
    on_virtual_nodes(1, 4, async |cluster| {
        let (registry, rest) = resting();
        let mut farm =
            Farm::builder(registry).prefetch(Prefetch::Fixed(4)).start_in(&cluster).await.unwrap();
        let dropped = timeout(Duration::from_millis(50), farm.run(&rest, vec![(30, 0, 1); 100]));
        assert!(dropped.await.is_err());
        let first = |worker: &WorkerName| rank(worker) == 1;
        let stats = farm.run(rest.only_on(first), vec![(10, 0, 1); 20]).await.unwrap().stats;
        assert_eq!(worked(&stats), [1]);
        sleep(Duration::from_millis(200)).await;
        let stats = farm.run(&rest, vec![(10, 0, 1); 20]).await.unwrap().stats;
        assert_eq!(worked(&stats), [1, 2, 3]);
        assert!(stats.workers.iter().all(|worker| worker.lost.is_none()), "{stats:?}");
        farm.finish(DEADLINE).await.unwrap();
    });
}

/// Ranks 1 and 3 are sub-farmers.
#[test]
fn a_sub_farmer_is_chosen_with_all_below_it() {
    on_virtual_nodes(2, 5, async |cluster| {
        let (registry, rest) = resting();
        let builder = Farm::builder(registry).tree(Tree::FanOut(2));
        let mut farm = builder.start_in(&cluster).await.unwrap();
        let second = |worker: &WorkerName| rank(worker) == 3;
        let stats = farm.run(rest.only_on(second), vec![(10, 0, 1); 40]).await.unwrap().stats;
        assert_eq!(worked(&stats), [3]);
        // The two of its group share the 400 ms.
        assert!(stats.elapsed < Duration::from_millis(250), "{:?}", stats.elapsed);
        farm.finish(DEADLINE).await.unwrap();
    });
}

#[tokio::test]
async fn a_run_without_a_chosen_worker_ends_and_the_farm_goes_on() {
    let (builder, functions) = builder();
    let mut farm = builder.deaths_max(1).start().await.unwrap();
    let none = farm.run(functions.double.only_on(|_| false), 0..10).await.unwrap_err();
    assert!(matches!(none, RunError::NotChosen { there: 2, unanswered: 0, .. }), "{none}");
    // The chosen one dies of a task, which is set aside. The process in its place is another worker.
    let first = |worker: &WorkerName| worker.index == 0;
    let left = farm.run_to_end(functions.exit.only_on(first), [3, 3]).await.unwrap_err();
    let RunError::NotChosen { there: 1 | 2, .. } = left else { panic!("{left}") };
    let outcome = farm.run(&functions.double, 0..10).await.unwrap();
    assert_eq!(outcome.results[9], 18);
    let end = outcome.stats.workers[0].lost.as_ref().and_then(|loss| loss.cause());
    assert!(matches!(end, Some(WorkerEnd::Exited(_))), "{:?}", outcome.stats);
    farm.finish(DEADLINE).await.unwrap();
}

#[tokio::test]
async fn a_worker_that_comes_during_the_run_is_chosen_too() {
    let (builder, functions) = builder();
    let mut farm = builder.deaths_max(1).start().await.unwrap();
    let not_first = |worker: &WorkerName| worker.index > 0;
    let tasks = [3, 3, 3];
    let run = timeout(DEADLINE, farm.run_to_end(functions.exit.only_on(not_first), tasks));
    let outcome = run.await.expect("processes replace those that end").unwrap();
    assert!(outcome.results.iter().all(Result::is_err));
    let stats = outcome.stats;
    assert!(stats.workers[0].lost.is_none(), "{stats:?}");
    assert!(stats.workers.iter().filter(|worker| worker.lost.is_some()).count() >= 3);
    farm.finish(DEADLINE).await.unwrap();
}
