//! Values that one worker computes for all.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use chunkcomm::Node;
use chunkcomm::host::{self, timeout};
use chunkcomm_cluster::{Cluster, ClusterConfig, Function, Registry};
use chunkcomm_farm::settings::{Model, Tree};
use chunkcomm_farm::{Farm, RegistryExt as _, TaskContext, TaskError, WorkerEnd, serve_in};
use chunkcomm_simulation::{LinkSpec, run};
use chunkcomm_testkit::{Scratch, messages_of};

use crate::farm::{DEADLINE, builder};
use crate::farm_waits::farm_of;
use crate::virtual_cluster::switched;

const MS: Duration = Duration::from_millis(1);

/// A task of 1 ms that needs one of two values, each of which takes 100 ms; `computed` counts these. The
/// first one fails if it is told to.
fn needing(computed: &'static AtomicU32, fails: bool) -> (Registry, Function<u64, u64>) {
    let mut registry = Registry::new();
    let need = move |task: TaskContext, number: u64| async move {
        let compute = async || {
            host::spend(100 * MS);
            let before = computed.fetch_add(1, Ordering::Relaxed);
            assert!(!fails || before > 0, "the first one fails");
            vec![number % 2; 2000]
        };
        let value = task.once_for_all(&(number % 2), compute).await;
        host::spend(MS);
        number * 10 + value[1999]
    };
    let need = registry.register_async_task("need", need);
    (registry, need)
}

#[test]
fn a_value_is_computed_once_for_all_workers() {
    static COMPUTED: AtomicU32 = AtomicU32::new(0);
    for (nodes, tree) in [(4, Tree::Off), (7, Tree::FanOut(3))] {
        farm_of(
            3,
            nodes,
            || needing(&COMPUTED, false).0,
            move |cluster| async move {
                let (registry, need) = needing(&COMPUTED, false);
                let mut farm = Farm::builder(registry).tree(tree).start_in(&cluster).await.unwrap();
                for _ in 0..2 {
                    COMPUTED.store(0, Ordering::Relaxed);
                    let outcome = farm.run(&need, 0..200).await.unwrap();
                    let expected: Vec<u64> = (0..200).map(|it| it * 10 + it % 2).collect();
                    assert_eq!(outcome.results, expected);
                    assert_eq!(COMPUTED.load(Ordering::Relaxed), 2);
                    // Two workers compute at a time, or one both values.
                    let elapsed = outcome.stats.elapsed;
                    assert!((100 * MS..400 * MS).contains(&elapsed), "{elapsed:?}");
                }
                farm.finish(DEADLINE).await.unwrap();
            },
        );
    }
}

/// No thread can be blocked in virtual time.
#[test]
fn in_virtual_time_each_worker_computes_the_values_of_tasks_that_are_not_async() {
    static COMPUTED: AtomicU32 = AtomicU32::new(0);
    fn registered() -> (Registry, Function<u64, u64>) {
        let mut registry = Registry::new();
        let need = registry.register_task("need", |task, number: u64| {
            let compute = || {
                COMPUTED.fetch_add(1, Ordering::Relaxed);
                number % 2
            };
            host::spend(MS);
            task.blocking(|| ());
            *task.once_for_all_blocking(&(number % 2), compute)
        });
        (registry, need)
    }
    farm_of(
        3,
        4,
        || registered().0,
        async |cluster| {
            let (registry, need) = registered();
            let builder = Farm::builder(registry).model(Model::B);
            let mut farm = builder.start_in(&cluster).await.unwrap();
            let outcome = farm.run(&need, 0..200).await.unwrap();
            assert_eq!(outcome.results, (0..200).map(|it| it % 2).collect::<Vec<_>>());
            assert_eq!(COMPUTED.load(Ordering::Relaxed), 2 * 3);
            farm.finish(DEADLINE).await.unwrap();
        },
    );
}

/// A worker below each of the two sub-farmers computes both values, since the farmer does not take them.
#[test]
fn a_value_too_large_for_the_farmer_is_kept_by_each_sub_farmer() {
    static COMPUTED: AtomicU32 = AtomicU32::new(0);
    let (network, hosts) = switched(6, 7, LinkSpec::default());
    run(network, async |simulation| {
        let members = simulation.launch(&hosts, async |rank| {
            let bytes_max = if rank == 0 { 10_000 } else { 32 << 20 };
            let node = Node::builder().limits(messages_of(bytes_max));
            let cluster = Cluster::join(ClusterConfig::new().node(node)).await.unwrap();
            let (registry, need) = needing(&COMPUTED, false);
            if rank == 0 {
                let builder = Farm::builder(registry).model(Model::B).tree(Tree::FanOut(3));
                let mut farm = builder.start_in(&cluster).await.unwrap();
                let outcome = farm.run(&need, 0..200).await.unwrap();
                let expected: Vec<u64> = (0..200).map(|it| it * 10 + it % 2).collect();
                assert_eq!(outcome.results, expected);
                assert_eq!(outcome.stats.workers.len(), 2);
                assert_eq!(COMPUTED.load(Ordering::Relaxed), 4);
                farm.finish(DEADLINE).await.unwrap();
            } else {
                serve_in(&cluster, &registry).threads(1).await.unwrap();
            }
            cluster.end(DEADLINE).await.unwrap();
        });
        for member in members {
            member.await.unwrap();
        }
    });
}

#[test]
fn another_computes_when_a_task_fails() {
    static COMPUTED: AtomicU32 = AtomicU32::new(0);
    farm_of(
        4,
        4,
        || needing(&COMPUTED, true).0,
        async |cluster| {
            let (registry, need) = needing(&COMPUTED, true);
            let mut farm = Farm::builder(registry).start_in(&cluster).await.unwrap();
            let outcome = farm.run_to_end(&need, 0..60).await.unwrap();
            let failed: Vec<_> =
                outcome.results.iter().filter_map(|it| it.as_ref().err()).collect();
            assert!(matches!(failed[..], [TaskError::Failed { .. }]), "{failed:?}");
            assert!(failed[0].to_string().contains("the first one fails"));
            assert_eq!(COMPUTED.load(Ordering::Relaxed), 3);
            farm.finish(DEADLINE).await.unwrap();
        },
    );
}

/// The process that computes first ends.
#[tokio::test]
async fn another_computes_when_a_worker_dies() {
    for is_async in [true, false] {
        let (builder, functions) = builder();
        let function = if is_async { functions.common } else { functions.common_blocking };
        let file = Scratch::new("once");
        let mut farm = builder.start().await.unwrap();
        let tasks = vec![file.to_str().unwrap().to_owned(); 30];
        let run = timeout(DEADLINE, farm.run(&function, tasks));
        let outcome = run.await.expect("another one computes").unwrap();
        // One process has computed it for all.
        let first = outcome.results[0];
        assert!(
            outcome.results.iter().all(|&pid| pid == first && pid > 0),
            "{:?}",
            outcome.results
        );
        let lost = |it: &chunkcomm_farm::WorkerStats| {
            let end = it.lost.as_ref().and_then(|loss| loss.cause());
            matches!(end, Some(WorkerEnd::Exited(_)))
        };
        assert_eq!(outcome.stats.workers.iter().filter(|it| lost(it)).count(), 1);
        farm.finish(DEADLINE).await.unwrap();
    }
}

/// A task that needs a value, which takes this number of seconds.
fn waiting() -> (Registry, Function<u64, u64>) {
    let mut registry = Registry::new();
    let wait = |task: TaskContext, seconds: u64| async move {
        let compute = async || {
            host::sleep(Duration::from_secs(seconds)).await;
            seconds
        };
        *task.once_for_all(&"value", compute).await
    };
    let wait = registry.register_async_task("wait", wait);
    (registry, wait)
}

/// All tasks of the first run wait for its value, when the run is dropped.
#[test]
fn tasks_of_a_dropped_run_wait_no_longer() {
    farm_of(
        5,
        3,
        || waiting().0,
        async |cluster| {
            let (registry, wait) = waiting();
            let mut farm = Farm::builder(registry).start_in(&cluster).await.unwrap();
            let dropped = farm.run(&wait, vec![3600; 20]);
            assert!(timeout(500 * MS, dropped).await.is_err());
            assert_eq!(farm.run(&wait, vec![1; 20]).await.unwrap().results, [1; 20]);
            farm.finish(DEADLINE).await.unwrap();
        },
    );
}
