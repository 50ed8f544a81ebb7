//! Several farms in a cluster, farms that are left alone, and those whose time is over, in virtual time.

use chunkcomm::host;
use chunkcomm_cluster::{Cluster, ClusterConfig, Registry};
use chunkcomm_farm::settings::{Fsync, Grain, Model, Prefetch, Tree};
use chunkcomm_farm::{Farm, FarmBuilder, RunError, RunStats, StartError, WorkerStats, serve_in};
use chunkcomm_simulation::{HostId, HostSpec, LinkSpec, Network, each_seed, run};
use chunkcomm_testkit::Scratch;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::virtual_cluster::{join, on_each, switched};

const MS: Duration = Duration::from_millis(1);
const DEADLINE: Duration = Duration::from_secs(60);

/// A registry with a function that takes a millisecond and adds this number.
fn adding(number: u64) -> (Registry, chunkcomm_cluster::Function<u64, u64>) {
    let mut registry = Registry::new();
    let function = registry.register("add", move |to: u64| {
        host::spend(MS);
        to + number
    });
    (registry, function)
}

/// Ranks 0 and 1 farm, rank 0 twice; ranks 2 to 5 work for each. A farm that ends is followed by
/// another one of its name on another rank.
#[test]
fn several_farms_share_the_nodes_of_a_cluster() {
    async fn farm(cluster: &Cluster, name: &str, number: u64, tree: Tree) {
        let (registry, add) = adding(number);
        let builder = Farm::builder(registry).name(name).nodes(2..6).tree(tree);
        let mut farm = builder.start_in(cluster).await.unwrap();
        let outcome = farm.run(&add, 0..200).await.unwrap();
        assert_eq!(outcome.results, (number..200 + number).collect::<Vec<_>>(), "{name}");
        assert_eq!(outcome.stats.workers.iter().map(|it| it.tasks).sum::<u64>(), 200);
        farm.finish(DEADLINE).await.unwrap();
    }
    each_seed(0..10, |seed| {
        on_each(seed, 6, &[], |rank, cluster| async move {
            match rank {
                0 => {
                    let first = farm(&cluster, "a", 1, Tree::FanOut(2));
                    let second = farm(&cluster, "b", 2, Tree::FanOut(2));
                    tokio::join!(first, second);
                    cluster.provide("done").await.unwrap();
                }
                1 => {
                    farm(&cluster, "c", 3, Tree::Off).await;
                    cluster.provider("done").await.unwrap();
                    farm(&cluster, "a", 1, Tree::Off).await;
                }
                _ => {
                    let (registries, rounds) = ([1, 2, 3].map(|it| adding(it).0), [2, 1, 1]);
                    let serve = async |at: usize| {
                        for _ in 0..rounds[at] {
                            let serving = serve_in(&cluster, &registries[at]);
                            serving.farm(["a", "b", "c"][at]).threads(1).await.unwrap();
                        }
                    };
                    tokio::join!(serve(0), serve(1), serve(2));
                }
            }
        });
    });
}

#[test]
fn a_name_has_one_farm() {
    on_each(1, 3, &[], |rank, cluster| async move {
        let (registry, _) = adding(rank as u64);
        if rank == 2 {
            let barriers = async {
                cluster.barrier().await.unwrap();
                cluster.barrier().await.unwrap();
            };
            let (served, ()) = tokio::join!(serve_in(&cluster, &registry), barriers);
            served.unwrap();
        } else if rank == 0 {
            let farm = Farm::builder(registry.clone()).nodes([2]).start_in(&cluster).await;
            cluster.barrier().await.unwrap();
            let same = Farm::builder(registry).nodes([2]).start_in(&cluster).await;
            let told = same.unwrap_err().to_string();
            assert_eq!(
                told,
                "rank 0 has a farm named \"default\", a second one needs another name"
            );
            cluster.barrier().await.unwrap();
            drop(farm.unwrap());
        } else {
            cluster.barrier().await.unwrap();
            let absent = Farm::builder(registry.clone()).nodes([7]).start_in(&cluster).await;
            let told = absent.unwrap_err().to_string();
            assert_eq!(told, "a farm with nodes 0: allowed is ranks of other present nodes");
            let error = Farm::builder(registry).nodes([2]).start_in(&cluster).await.unwrap_err();
            assert!(matches!(error, StartError::Taken { rank: 0, .. }), "{error}");
            cluster.barrier().await.unwrap();
        }
    });
}

/// A node below a sub-farmer stops to serve, which only the sub-farmer knows, and this one dies.
#[test]
fn a_run_does_not_wait_for_ever_for_a_node_that_left() {
    on_each(1, 3, &[(1, 600 * MS)], |rank, cluster| async move {
        let (registry, add) = adding(1);
        match rank {
            0 => {
                let builder = Farm::builder(registry).tree(Tree::FanOut(2)).deaths_max(1000);
                let mut farm = builder.start_in(&cluster).await.unwrap();
                let error = farm.run(&add, 0..60_000).await.unwrap_err();
                assert!(matches!(error, RunError::Lost { .. }), "{error}");
            }
            2 => {
                let served =
                    host::timeout(300 * MS, serve_in(&cluster, &registry).into_future()).await;
                assert!(served.is_err(), "{served:?}");
                cluster.finished().await;
            }
            _ => serve_in(&cluster, &registry).await.unwrap(),
        }
    });
}

/// Runs 3000 tasks that take this long on a farm of three nodes with these settings, whose job ends at
/// this time, if any. Returns the outcome, when it came, and the number of results that were passed on.
fn within_time(
    task: Duration,
    job_ends: Option<u64>,
    set: impl FnOnce(FarmBuilder) -> FarmBuilder + Send + 'static,
) -> (Result<RunStats, RunError>, Duration, u64) {
    let (network, hosts) = switched(1, 4, LinkSpec::default());
    let mut set = Some(set);
    run(network, async move |simulation| {
        let mut members = simulation.launch(&hosts, |rank| {
            let set = (rank == 0).then(|| set.take().unwrap());
            async move {
                let cluster = join().await;
                let mut registry = Registry::new();
                let wait = registry.register("wait", move |to: u64| {
                    host::spend(task);
                    to
                });
                let Some(set) = set else {
                    serve_in(&cluster, &registry).await.unwrap();
                    return None;
                };
                let builder = set(Farm::builder(registry).tree(Tree::Off));
                let mut farm = builder.start_in(&cluster).await.unwrap();
                let mut count = 0;
                let ended = match farm.stream(&wait, 0..3000) {
                    Ok(results) => results.for_each(|_, _| count += 1).await,
                    Err(error) => Err(error),
                };
                let (at, again) = (host::unix_time(), farm.run(&wait, 0..1).await);
                assert_eq!(again.is_ok(), ended.is_ok());
                Some((ended, at, count))
            }
        });
        let manager = simulation.address(hosts[0], 17700).to_string();
        let mut variables = vec![
            ("CHUNKCOMM_RANK", "0".to_owned()),
            ("CHUNKCOMM_SIZE", hosts.len().to_string()),
            ("CHUNKCOMM_MANAGER", manager),
        ];
        variables.extend(job_ends.map(|end| ("SLURM_JOB_END_TIME", end.to_string())));
        simulation.set_variables(hosts[0], variables);
        members.swap_remove(0).await.unwrap().unwrap()
    })
}

#[test]
fn a_run_ends_before_the_time_is_over_with_all_that_was_begun() {
    let second = Duration::from_secs(1);
    let (ended, at, count) = within_time(20 * MS, None, move |farm| farm.walltime(second));
    let RunError::OutOfTime { given, unanswered } = ended.unwrap_err() else { panic!() };
    assert_eq!((given, unanswered), (count, 0));
    // Three workers with one thread each; the last 0.2 s are for what they hold.
    assert!((100..150).contains(&given), "{given}");
    assert!(at < second, "{at:?}");
    // A task that takes longer than the time is not waited for.
    let (ended, at, count) = within_time(second, None, move |farm| farm.walltime(second));
    let told = ended.unwrap_err().to_string();
    assert_eq!(told, "the time of the farm was over after 0 tasks, 6 more had begun");
    assert_eq!(count, 0);
    assert!(at > 9 * second / 10 && at < 11 * second / 10, "{at:?}");
    // The last task may be done just then.
    let (ended, ..) = within_time(MS, None, move |farm| farm.walltime(2 * second));
    assert_eq!(ended.unwrap().tasks, 3000);
}

#[test]
fn a_run_ends_before_its_job_does() {
    let ended_at = |ends| {
        let (ended, at, _) = within_time(100 * MS, Some(ends), |farm| farm);
        assert!(matches!(ended, Err(RunError::OutOfTime { .. })), "{ended:?}");
        at
    };
    let in_time = ended_at(60);
    assert!(in_time > Duration::from_secs(28) && in_time < Duration::from_secs(30), "{in_time:?}");
    // There is no time left from the beginning.
    assert!(ended_at(20) < Duration::from_secs(1));
    // A time that is set comes before that of the job.
    let (ended, ..) = within_time(MS, Some(20), |farm| farm.walltime(Duration::MAX));
    assert_eq!(ended.unwrap().tasks, 3000);
}

/// The next farm goes on from the journal of the one whose time was over.
#[test]
fn the_next_farm_does_what_is_left() {
    let journal = Scratch::new("walltime");
    let mut done = 0;
    for turn in 0.. {
        let file = journal.to_path_buf();
        let (ended, ..) = within_time(10 * MS, None, move |farm| {
            farm.walltime(Duration::from_secs(4)).journal(file, Fsync::default())
        });
        match ended {
            Ok(stats) => {
                assert_eq!((stats.recalled, stats.tasks), (done, 3000 - done));
                assert!(turn > 1);
                break;
            }
            Err(RunError::OutOfTime { given, unanswered: 0 }) => {
                assert!(given > done + 500, "{given}");
                done = given;
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// Results wait for others up to 100 ms, to be sent with them.
#[test]
fn the_results_that_a_worker_has_when_its_node_closes_are_not_computed_again() {
    const TASKS: u64 = 400;
    each_seed(0..5, |seed| {
        let (network, hosts) = switched(seed, 3, LinkSpec::default());
        let calls = Arc::new(AtomicU32::new(0));
        run(network, async |simulation| {
            let members = simulation.launch(&hosts, |rank| {
                let calls = calls.clone();
                async move {
                    let cluster = join().await;
                    let mut registry = Registry::new();
                    let same = registry.register("same", move |number: u64| {
                        host::spend(10 * MS);
                        calls.fetch_add(1, Ordering::Relaxed);
                        number
                    });
                    if rank == 0 {
                        let builder = Farm::builder(registry).nodes(1..3).tree(Tree::Off);
                        let mut farm = builder.grain(50).start_in(&cluster).await.unwrap();
                        let outcome = farm.run(&same, 0..TASKS).await.unwrap();
                        assert_eq!(outcome.results, (0..TASKS).collect::<Vec<_>>());
                        let _ = farm.finish(DEADLINE).await;
                    } else {
                        let serving = serve_in(&cluster, &registry).threads(1);
                        let closing = async {
                            host::sleep((1000 + 13 * seed as u32) * MS).await;
                            if rank == 1 {
                                cluster.node().close(DEADLINE).await.unwrap();
                            }
                        };
                        let _ = tokio::join!(serving.into_future(), closing);
                    }
                    // An error names the node that closed.
                    let _ = cluster.end(DEADLINE).await;
                }
            });
            for member in members {
                member.await.unwrap();
            }
        });
        // One task was at work.
        let calls = u64::from(calls.load(Ordering::Relaxed));
        assert!((TASKS..=TASKS + 1).contains(&calls), "{calls} calls");
    });
}

/// Counts the calls of each task of a run of 40 tasks, each of which takes a second. The farmer is rank
/// `FARMER`, and is killed after `killed`; another one starts in its place at the time of `back`.
fn with_farmers(
    seed: u64,
    farmer: usize,
    (killed, back): (Duration, Duration),
) -> (RunStats, Vec<u64>, Vec<u32>) {
    const TASKS: u64 = 40;
    let (network, hosts) = switched(seed, 4, LinkSpec::default());
    let journal = Scratch::new("handover");
    let calls = Arc::new(Mutex::new(vec![0; TASKS as usize]));
    let done = run(network, async |simulation| {
        let program = |rank| {
            let (journal, calls) = (journal.to_path_buf(), calls.clone());
            async move {
                let config = ClusterConfig::new().rejoin_window(Duration::from_secs(60));
                let cluster = Cluster::join(config).await.unwrap();
                let mut registry = Registry::new();
                let square = registry.register("square", move |number: u64| {
                    host::spend(1000 * MS);
                    calls.lock().unwrap()[number as usize] += 1;
                    number * number
                });
                if rank == farmer {
                    let builder = Farm::builder(registry).tree(Tree::Off);
                    let builder = builder.nodes((0..4).filter(|&at| at != rank as u32));
                    let builder = builder.journal(journal, Fsync::EverySecond).grain(2);
                    let mut farm = builder.start_in(&cluster).await.unwrap();
                    let outcome = farm.run(&square, 0..TASKS).await.unwrap();
                    farm.finish(DEADLINE).await.unwrap();
                    let _ = cluster.end(DEADLINE).await;
                    return Some(outcome);
                }
                serve_in(&cluster, &registry).threads(1).await.unwrap();
                // Answers that the killed farmer may not have got are the farm's to give again.
                cluster.end(DEADLINE).await.unwrap();
                None
            }
        };
        let members = simulation.launch(&hosts, program);
        host::sleep(killed).await;
        simulation.kill(hosts[farmer]);
        host::sleep(back - killed).await;
        let outcome = simulation.spawn_on(hosts[farmer], program(farmer)).await.unwrap().unwrap();
        for (rank, member) in members.into_iter().enumerate() {
            assert_eq!(member.await.is_ok(), rank != farmer, "{rank}");
        }
        outcome
    });
    let calls = calls.lock().unwrap().clone();
    (done.stats, done.results, calls)
}

/// Workers that have lost their farmer finish what they hold, and hand it to the next one.
#[test]
fn workers_hand_over_what_they_finished_without_a_farmer() {
    let second = Duration::from_secs(1);
    let squares: Vec<u64> = (0..40).map(|number| number * number).collect();
    for farmer in [1, 0] {
        // No task is at work when the next farmer comes.
        let (stats, results, calls) =
            with_farmers(1, farmer, (4 * second + second / 2, 30 * second));
        assert_eq!(results, squares);
        assert_eq!(calls, [1; 40], "a task was run again");
        assert!(stats.recalled > 12, "{}", stats.recalled);
    }
    each_seed(0..10, |seed| {
        let killed = Duration::from_millis(1500 + 700 * seed);
        let back = killed + Duration::from_millis(12_000 + 100 * seed);
        let (_, results, _) = with_farmers(seed, 1, (killed, back));
        assert_eq!(results, squares);
    });
}

#[test]
fn a_worker_whose_farmer_does_not_come_back_names_it() {
    let (network, hosts) = switched(1, 3, LinkSpec::default());
    run(network, async |simulation| {
        let members = simulation.launch(&hosts, |rank| async move {
            let config = ClusterConfig::new().rejoin_window(20_000 * MS);
            let cluster = Cluster::join(config).await.unwrap();
            let (registry, add) = adding(1);
            if rank == 1 {
                let mut farm = Farm::builder(registry).start_in(&cluster).await.unwrap();
                let _ = farm.run(&add, 0..1_000_000).await;
                unreachable!("it is killed");
            }
            let error = serve_in(&cluster, &registry).await.unwrap_err();
            (error.to_string(), host::unix_time())
        });
        host::sleep(1000 * MS).await;
        simulation.kill(hosts[1]);
        for (rank, member) in members.into_iter().enumerate().filter(|(rank, _)| *rank != 1) {
            let (error, at) = member.await.unwrap();
            assert!(error.contains("rank-1"), "{rank}: {error}");
            // The loss is told 10 s after the last word; then comes the window.
            let window = 30_000 * MS..33_000 * MS;
            assert!(window.contains(&at), "{at:?}");
        }
    });
}

/// A sub-farmer that leaves and comes again between two runs, before the farmer has seen that it left,
/// has its place: the nodes that come later are below it. The farmer knows of the workers that a
/// sub-farmer has lost.
#[test]
fn a_sub_farmer_that_comes_again_has_its_place() {
    on_each(1, 6, &[(3, 4_000 * MS)], |rank, cluster| async move {
        let mut registry = Registry::new();
        let wait = registry.register("wait", |_: u64| host::spend(5 * MS));
        match rank {
            0 => {
                let builder = Farm::builder(registry).tree(Tree::FanOut(3)).nodes(1..4);
                let mut farm = builder.start_in(&cluster).await.unwrap();
                farm.run(&wait, 0..300).await.unwrap();
                host::sleep(1_000 * MS).await;
                let stats = farm.run(&wait, 0..20_000).await.unwrap().stats;
                let there = stats.workers.iter().filter(|it| it.lost.is_none());
                let there: Vec<(usize, u64)> =
                    there.map(|it| (it.worker.index, it.lost_below)).collect();
                assert_eq!(there, [(0, 0), (1, 1)], "{:?}", stats.workers);
                farm.finish(DEADLINE).await.unwrap();
            }
            1 => {
                let serve = || serve_in(&cluster, &registry).threads(1).into_future();
                assert!(host::timeout(800 * MS, serve()).await.is_err());
                serve().await.unwrap();
            }
            _ => {
                if rank > 3 {
                    host::sleep(2_000 * MS).await;
                }
                serve_in(&cluster, &registry).threads(1).await.unwrap();
            }
        }
    });
}

/// A start that fails leaves nodes on their way to a sub-farmer. In the next farm that one has the same
/// part: it must not have them before the farmer knows of them.
#[test]
fn a_start_that_fails_leaves_all_nodes_to_the_next_farm() {
    on_each(1, 6, &[], |rank, cluster| async move {
        let (registry, add) = adding(1);
        if rank > 0 {
            loop {
                tokio::select! {
                    biased;
                    _ = cluster.finished() => return,
                    served = serve_in(&cluster, &registry).threads(1).into_future() => served.unwrap(),
                }
            }
        }
        // Nodes are at different points of the start then.
        for us in (0..2_000).step_by(20) {
            let builder = Farm::builder(adding(1).0).tree(Tree::FanOut(3));
            let builder = builder.start_deadline(Duration::from_micros(us));
            if let Err(error) = builder.start_in(&cluster).await {
                assert!(matches!(error, StartError::Late { .. }), "{error}");
            }
            let builder = Farm::builder(adding(1).0).tree(Tree::FanOut(3));
            let mut farm = builder.start_in(&cluster).await.unwrap();
            assert_eq!(farm.run(&add, [4]).await.unwrap().results, [5]);
            farm.finish(DEADLINE).await.unwrap();
        }
        cluster.finish();
    });
}

/// Tasks of a cancelled run that wait at workers are not begun when the next run has begun, though it
/// has nothing for these workers.
#[test]
fn waiting_tasks_of_a_cancelled_run_are_dropped() {
    for tree in [Tree::Off, Tree::FanOut(3)] {
        let begun = Arc::new(AtomicU32::new(0));
        let count = begun.clone();
        on_each(1, 4, &[], move |rank, cluster| {
            let count = count.clone();
            async move {
                let mut registry = Registry::new();
                let wait = registry.register("wait", move |ms: u32| {
                    count.fetch_add(1, Ordering::Relaxed);
                    host::spend(ms * MS);
                });
                if rank == 0 {
                    let builder = Farm::builder(registry).tree(tree);
                    let mut farm = builder.start_in(&cluster).await.unwrap();
                    let cancelled = farm.run(&wait, vec![1_000; 100]);
                    assert!(host::timeout(500 * MS, cancelled).await.is_err());
                    farm.run(&wait, [3_000]).await.unwrap();
                    farm.finish(DEADLINE).await.unwrap();
                } else {
                    serve_in(&cluster, &registry).threads(1).await.unwrap();
                }
            }
        });
        // Those that ran at the three workers, and that of the second run.
        assert_eq!(begun.load(Ordering::Relaxed), 3 + 1, "{tree:?}");
    }
}

/// Time of an assignment and its answer to a worker 10 ms away. A message takes 5 us of each host.
const FAR: Duration = Duration::from_micros(20_010);

const SPANS_MAX: usize = 3;

/// Runs tasks of these numbers of milliseconds on workers 10 ms away, which hold one each; returns
/// the statistics of the workers and the time of the run.
fn run_far_away(tasks: &'static [u64], workers: usize, threads: usize) -> RunStats {
    let mut network = Network::new(1);
    let hosts: Vec<HostId> =
        (0..=workers).map(|at| network.add_host(&format!("host-{at}"))).collect();
    let far = LinkSpec { latency: 10 * MS, bytes_per_second: u64::MAX, ..LinkSpec::default() };
    hosts[1..].iter().for_each(|&host| network.link(hosts[0], host, far));
    run(network, async |simulation| {
        let members = simulation.launch(&hosts, move |rank| async move {
            let cluster = join().await;
            let mut registry = Registry::new();
            let spend = registry.register("spend", |ms: u64| host::spend(ms as u32 * MS));
            let mut stats = None;
            if rank == 0 {
                let builder = Farm::builder(registry).grain(Grain::Fixed(1));
                let builder = builder.prefetch(Prefetch::Fixed(1)).keep_timeline(SPANS_MAX);
                let mut farm = builder.start_in(&cluster).await.unwrap();
                stats = Some(farm.run(&spend, tasks.iter().copied()).await.unwrap().stats);
                farm.finish(DEADLINE).await.unwrap();
            } else {
                serve_in(&cluster, &registry).threads(threads).await.unwrap();
            }
            cluster.end(DEADLINE).await.unwrap();
            stats
        });
        let mut stats = None;
        for member in members {
            stats = stats.or(member.await.unwrap());
        }
        stats.unwrap()
    })
}

/// A span ends when its answer has come; the spans beyond the most are counted.
#[test]
fn a_timeline_has_the_time_of_each_task() {
    let stats = run_far_away(&[100, 300, 50, 1, 1], 1, 1);
    let timeline = stats.timeline.as_ref().unwrap();
    let spans: Vec<_> = timeline
        .spans
        .iter()
        .map(|it| (it.first, it.thread, it.begin, it.end - it.begin))
        .collect();
    let begin = |task: u32, before: Duration| before + (task + 1) * FAR;
    let expected = [
        (0, 0, begin(0, Duration::ZERO), 100 * MS),
        (1, 0, begin(1, 100 * MS), 300 * MS),
        (2, 0, begin(2, 400 * MS), 50 * MS),
    ];
    assert_eq!((&spans[..], timeline.spans_dropped), (&expected[..], 2));
    let json = stats.to_trace_json().unwrap();
    assert!(json.contains("\"name\":\"task 1\",\"args\":{\"tasks\":1}"), "{json}");
    assert!(json.contains("2 answers are missing"), "{json}");
}

#[test]
fn waits_are_told_by_their_cause() {
    let waits = |tasks, workers, threads| -> Vec<[Duration; 3]> {
        let stats = run_far_away(tasks, workers, threads);
        let of = |it: &WorkerStats| [it.busy, it.waited_for_farmer, it.waited_for_wire];
        stats.workers.iter().map(of).collect()
    };
    // Without prefetch every task waits for its messages.
    let none = Duration::ZERO;
    assert_eq!(waits(&[100; 5], 1, 1), [[500 * MS, none, 5 * FAR]]);
    // At the end the farmer has nothing for the first worker, as for a second thread.
    let expected = [[100 * MS, 200 * MS, FAR], [300 * MS, none, FAR]];
    assert_eq!(waits(&[100, 300], 2, 1), expected);
    let (second, wire) = (2 * FAR + 400 * MS, 2 * FAR);
    assert_eq!(waits(&[100, 300], 1, 2), [[400 * MS, second, wire]]);
}

/// Runs 300 tasks of 10 ms on this number of hosts with four cores; returns the numbers of threads of the
/// workers, and the time.
fn on_hosts_of_four_cores(count: usize, model: Model) -> (Vec<u32>, Duration) {
    let mut network = Network::new(1);
    let spec = HostSpec { cores: 4, ..HostSpec::default() };
    let add = |index| network.add_host_of(&format!("host-{index}"), spec);
    let hosts: Vec<HostId> = (0..count).map(add).collect();
    network.switch(&hosts, LinkSpec::default());
    run(network, async |simulation| {
        let mut members = simulation.launch(&hosts, |rank| async move {
            let cluster = join().await;
            let mut registry = Registry::new();
            let spend = registry.register("spend", |()| host::spend(10 * MS));
            if rank > 0 {
                serve_in(&cluster, &registry).await.unwrap();
                return None;
            }
            let builder = Farm::builder(registry).model(model);
            let mut farm = builder.start_in(&cluster).await.unwrap();
            Some(farm.run(&spend, [(); 300]).await.unwrap().stats)
        });
        let stats = members.swap_remove(0).await.unwrap().unwrap();
        (stats.workers.iter().map(|it| it.threads).collect(), stats.elapsed)
    })
}

#[test]
fn a_farmer_that_works_does_so_on_all_its_cores() {
    let (threads, elapsed) = on_hosts_of_four_cores(3, Model::Auto);
    assert_eq!(threads, [4, 4]);
    assert!(elapsed < 400 * MS, "{elapsed:?}");
    let (threads, elapsed) = on_hosts_of_four_cores(3, Model::A);
    assert_eq!(threads, [4, 4, 4]);
    assert!(elapsed < 270 * MS, "{elapsed:?}");
    let (threads, elapsed) = on_hosts_of_four_cores(1, Model::Auto);
    assert_eq!(threads, [4]);
    assert!(elapsed < 770 * MS, "{elapsed:?}");
}

/// A sub-farmer dies as the farm ends. Those below it hear of the death when there is no farm any more.
#[test]
fn nodes_without_their_sub_farmer_hear_that_the_farm_has_ended() {
    on_each(1, 7, &[(1, 999 * MS)], |rank, cluster| async move {
        let (registry, add) = adding(1);
        if rank == 0 {
            let builder = Farm::builder(registry).tree(Tree::FanOut(3));
            let mut farm = builder.start_in(&cluster).await.unwrap();
            farm.run(&add, 0..100).await.unwrap();
            host::sleep(1_000 * MS - host::unix_time()).await;
            farm.finish(DEADLINE).await.unwrap();
        } else {
            serve_in(&cluster, &registry).threads(1).await.unwrap();
            // The death is told after 10 s.
            assert!(host::unix_time() < 12_000 * MS, "{rank}: {:?}", host::unix_time());
        }
    });
}

/// The tasks of a dead sub-farmer are given out as others are, not one by one.
#[test]
fn the_death_of_a_sub_farmer_does_not_hold_up_the_farm() {
    each_seed(0..5, |seed| {
        let death = [(1, Duration::from_millis(5_000 + 70 * seed))];
        on_each(seed, 7, &death, |rank, cluster| async move {
            let mut registry = Registry::new();
            let wait = registry.register("wait", |_: u64| host::spend(2_000 * MS));
            if rank > 0 {
                return serve_in(&cluster, &registry).threads(4).await.unwrap();
            }
            let mut farm =
                Farm::builder(registry).tree(Tree::FanOut(3)).start_in(&cluster).await.unwrap();
            let stats = farm.run(&wait, 0..300).await.unwrap().stats;
            assert!(stats.mishaps.reissued > 10, "{:?}", stats.mishaps);
            // 600 s of work on 6 nodes, of which 3 are missed for 10 s and one from then on. One by one
            // the tasks took 8 s more.
            assert!(stats.elapsed < 132_000 * MS, "{:?}", stats.elapsed);
            farm.finish(DEADLINE).await.unwrap();
        });
    });
}
