//! Farms whose workers are the nodes of a cluster: rank 0 is here, the others are processes that
//! only this test starts.

use std::process::{Command, Stdio};
use std::time::Duration;

use super::nodes::free_address;
use chunkcomm::Node;
use chunkcomm_cluster::cluster::Death;
use chunkcomm_cluster::{Cluster, ClusterConfig};
use chunkcomm_farm::settings::{Model, Prefetch};
use chunkcomm_farm::{Farm, FarmBuilder, RunError, StartError, TaskError, serve_in};
use chunkcomm_testkit::{blocking, proc, until_some};
use chunkcomm_tests::farm_tasks::{
    FEWER, FORGETS, Functions, OTHER_TYPES, OTHER_VERSION, registry,
};
use rustix::process::Signal;

/// Longest time that a step may take; none takes longer on a machine that is alive.
pub(super) const DEADLINE: Duration = Duration::from_secs(60);

/// The nodes other than rank 0, in the order of their ranks.
pub(super) struct Others(pub(super) Vec<proc::Program>);

impl Others {
    pub(super) fn pids(&self) -> Vec<u32> {
        self.0.iter().map(|other| other.0.id()).collect()
    }

    /// Waits until all end by themselves, with this status and `told` in their standard error.
    pub(super) fn end(&mut self, status: i32, told: &str) {
        for other in &mut self.0 {
            let ended = blocking::until_some("a node does not end", || other.0.try_wait().unwrap());
            let mut said = String::new();
            let mut stderr = other.0.stderr.take().unwrap();
            std::io::Read::read_to_string(&mut stderr, &mut said).unwrap();
            assert_eq!(ended.code(), Some(status), "{said}");
            assert!(said.contains(told), "{told:?} is not in {said:?}");
        }
    }

    /// Ends the cluster; all end well.
    pub(super) async fn end_with(mut self, cluster: Cluster) {
        cluster.finish();
        cluster.end(DEADLINE).await.unwrap();
        self.end(0, "");
    }
}

/// Starts a cluster of `size` nodes; the others also get these variables.
pub(super) async fn cluster(size: u32, variables: &[(&str, &str)]) -> (Cluster, Others) {
    let manager = free_address();
    let place = |rank: u32| {
        let (rank, size) = (rank.to_string(), size.to_string());
        let manager = manager.clone();
        [("CHUNKCOMM_RANK", rank), ("CHUNKCOMM_SIZE", size), ("CHUNKCOMM_MANAGER", manager)]
    };
    let start = |rank| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_farm-program"));
        command.arg("serve").envs(place(rank)).envs(variables.iter().copied());
        proc::Program(command.stderr(Stdio::piped()).spawn().unwrap())
    };
    let others = Others((1..size).map(start).collect());
    let config = ClusterConfig::new().environment(place(0).into_iter().collect());
    (Cluster::join(config).await.unwrap(), others)
}

pub(super) fn builder() -> (FarmBuilder, Functions) {
    let (registry, functions) = registry();
    (Farm::builder(registry), functions)
}

#[tokio::test]
async fn results_are_those_of_the_tasks_and_every_node_works() {
    let (cluster, others) = cluster(3, &[]).await;
    // The same nodes serve one farm after the other.
    for (model, workers) in [(Model::B, 2), (Model::A, 3)] {
        for (prefetch, grain) in [(Prefetch::Fixed(1), 1), (Prefetch::Auto, 7)] {
            let (builder, functions) = builder();
            let builder = builder.model(model).prefetch(prefetch).grain(grain);
            let mut farm = builder.start_in(&cluster).await.unwrap();
            let outcome = farm.run(&functions.double, 0..100).await.unwrap();
            let expected: Vec<u64> = (0..100).map(|number| number * 2).collect();
            assert_eq!(outcome.results, expected, "{model:?} {prefetch:?} {grain}");
            // Each node has an assignment before any answer can be there.
            let worked = farm.run(&functions.sleep, vec![20; 40]).await.unwrap();
            let mut pids: Vec<u32> = worked.results;
            pids.sort_unstable();
            pids.dedup();
            let mut expected = others.pids();
            expected.extend((model == Model::A).then(std::process::id));
            expected.sort_unstable();
            assert_eq!(pids, expected, "{model:?}");
            let names: Vec<String> = farm.workers().iter().map(ToString::to_string).collect();
            assert_eq!(names.len(), workers);
            let name = names.last().unwrap();
            let start = format!("worker {} (rank 2, process {} on ", workers - 1, others.pids()[1]);
            assert!(name.starts_with(&start), "{name}");
            farm.finish(DEADLINE).await.unwrap();
        }
    }
    others.end_with(cluster).await;
}

#[tokio::test]
async fn a_task_that_panics_names_the_node_and_the_farm_goes_on() {
    let (cluster, others) = cluster(2, &[]).await;
    let (builder, functions) = builder();
    let mut farm = builder.grain(4).start_in(&cluster).await.unwrap();
    let error = farm.run(&functions.unlucky, 0..1_000).await.unwrap_err();
    let told = error.to_string();
    assert!(matches!(error, RunError::Task(TaskError::Failed { index: 13, .. })), "{told}");
    assert!(told.contains("rank 1"), "{told}");
    assert_eq!(farm.run(&functions.double, 0..50).await.unwrap().results[49], 98);
    // Dropping the farm ends the nodes' service as finishing it does.
    drop(farm);
    others.end_with(cluster).await;
}

/// Returns the numbers of accepted and acknowledged messages of the farmer's way of the duplex to a
/// peer.
async fn tasks_to(peer: &str, node: &Node) -> (u64, u64) {
    let links = node.explain().await.links;
    let link = links.into_iter().find(|link| link.peer == peer).unwrap();
    let tasks = link.sending.into_iter().find(|it| it.channel == "chunkcomm-farm.default").unwrap();
    (tasks.staged + tasks.sent, tasks.acknowledged)
}

#[tokio::test]
async fn the_tasks_of_a_killed_node_are_run_by_others() {
    let (cluster, mut others) = cluster(4, &[]).await;
    let (builder, functions) = builder();
    let mut farm = builder.start_in(&cluster).await.unwrap();
    let (pid, name) = (others.pids()[1], farm.workers()[1].clone());
    let node = cluster.node().clone();
    let (before, _) = tasks_to("rank-2", &node).await;
    let killer = tokio::spawn(async move {
        let given = || async { tasks_to("rank-2", &node).await.1 > before };
        until_some(|| async { given().await.then_some(()) }).await;
        proc::signal(pid, Signal::KILL);
    });
    let ended = tokio::time::timeout(DEADLINE, farm.run(&functions.sleep, [20; 300])).await;
    let outcome = ended.expect("a death is noticed").unwrap();
    killer.await.unwrap();
    assert_eq!(outcome.results.len(), 300);
    let lost = &outcome.stats.workers[1];
    assert_eq!(lost.worker, name);
    let death = lost.lost.as_ref().and_then(|loss| loss.cause::<Death>());
    let death = death.unwrap_or_else(|| panic!("{:?}", lost.lost));
    assert_eq!(death.id.rank, 2);
    assert!(outcome.stats.mishaps.reissued > 0);
    farm.finish(DEADLINE).await.unwrap();
    others.0.remove(1);
    others.end_with(cluster).await;
}

#[tokio::test]
async fn a_farm_whose_nodes_are_all_gone_names_the_last() {
    let (cluster, others) = cluster(2, &[]).await;
    let (builder, functions) = builder();
    let mut farm = builder.start_in(&cluster).await.unwrap();
    let pid = others.pids()[0];
    let tasks = (0..2).inspect(|_| proc::signal(pid, Signal::KILL)).map(|_| 3_600_000);
    let ended = tokio::time::timeout(DEADLINE, farm.run(&functions.sleep, tasks)).await;
    let error = ended.expect("a death is noticed").unwrap_err();
    let told = error.to_string();
    assert!(told.starts_with("no worker is left and "), "{told}");
    assert!(told.contains(&format!("worker 0 (rank 1, process {pid} on ")), "{told}");
    let again = farm.run(&functions.double, [1]).await.unwrap_err();
    assert_eq!(again.to_string(), told);
    drop(farm);
    cluster.finish();
    // Its error names the messages that the dead node did not get.
    let _ = cluster.end(DEADLINE).await;
}

/// Runs on several threads: the link of the dropped cluster ends while this thread waits.
#[tokio::test(flavor = "multi_thread")]
async fn nodes_whose_farmer_is_gone_end_and_name_rank_0() {
    let (cluster, mut others) = cluster(3, &[]).await;
    let (builder, functions) = builder();
    let mut farm = builder.start_in(&cluster).await.unwrap();
    let run = farm.run(&functions.sleep, [3_600_000; 2]);
    assert!(tokio::time::timeout(Duration::from_millis(200), run).await.is_err());
    // Dropped as if the process were gone: no end is announced.
    drop((farm, cluster));
    others.end(1, "rank 0");
}

#[tokio::test]
async fn registries_that_differ_are_refused_by_both_sides() {
    for (told, theirs) in [
        (OTHER_TYPES, "has \"repeat\": Job{number: u32, text: str} -> str"),
        (FEWER, "has no function of that name"),
    ] {
        let (cluster, mut others) = cluster(2, &[(told, "1")]).await;
        let error = builder().0.start_in(&cluster).await.unwrap_err();
        assert!(matches!(error, StartError::Differs { .. }), "{error}");
        let text = error.to_string();
        let ours = "the farmer registered \"repeat\": Job{number: u64, text: str} -> str, worker 0 (rank 1, ";
        assert!(text.starts_with(ours), "{text}");
        assert!(text.ends_with(theirs), "{text}");
        others.end(1, "the farmer registered \"repeat\": Job{number: u64, text: str} -> str");
    }
}

#[tokio::test]
async fn nodes_that_do_not_serve_or_speak_otherwise_are_named() {
    let (one, others) = cluster(2, &[(FORGETS, "1")]).await;
    let late = builder().0.start_deadline(Duration::from_millis(300)).start_in(&one).await;
    let text = late.unwrap_err().to_string();
    assert!(text.starts_with("not ready after 0.3 s: worker 0 (rank 1, process "), "{text}");
    others.end_with(one).await;

    let (two, others) = cluster(2, &[(OTHER_VERSION, "1")]).await;
    let error = builder().0.start_in(&two).await.unwrap_err();
    let text = error.to_string();
    let StartError::Versions { ours, theirs: (265, 267), .. } = error else { panic!("{text}") };
    let ranges = format!("this program {} to {}", ours.0, ours.1);
    assert!(text.contains("versions 265 to 267") && text.ends_with(&ranges), "{text}");
    assert!(text.starts_with("worker 0 (rank 1, process "), "{text}");
    drop(others);
}

#[tokio::test]
async fn a_farm_needs_a_node_to_work() {
    let (alone, _) = cluster(1, &[]).await;
    let error = builder().0.model(Model::B).start_in(&alone).await.unwrap_err();
    assert_eq!(error.to_string(), "a farm with workers 0: allowed is 1 to 1024");
    let (builder, functions) = builder();
    let mut farm = builder.model(Model::A).start_in(&alone).await.unwrap();
    assert_eq!(farm.run(&functions.double, [21]).await.unwrap().results, [42]);
    farm.finish(DEADLINE).await.unwrap();
}

/// The cluster is finished before there was a farm.
#[tokio::test]
async fn a_finished_cluster_ends_the_wait_for_a_farm() {
    let (cluster, mut others) = cluster(2, &[]).await;
    cluster.finish();
    cluster.end(DEADLINE).await.unwrap();
    let served = serve_in(&cluster, &registry().0).await;
    assert!(served.is_ok(), "{served:?}");
    others.end(0, "");
}
