//! Clusters in virtual time: one program on each host.

use chunkcomm_cluster::{Cluster, ClusterConfig};
use chunkcomm_simulation::{HostId, LinkSpec, Network, run};
use std::time::Duration;

/// Longest time that a cluster waits for its end.
const DEADLINE: Duration = Duration::from_secs(60);

/// A network of this many hosts at a switch.
pub(crate) fn switched(seed: u64, count: usize, spec: LinkSpec) -> (Network, Vec<HostId>) {
    let mut network = Network::new(seed);
    let add = |index| network.add_host(&format!("host-{index}"));
    let hosts: Vec<HostId> = (0..count).map(add).collect();
    network.switch(&hosts, spec);
    (network, hosts)
}

pub(crate) async fn join() -> Cluster {
    Cluster::join(ClusterConfig::new()).await.unwrap()
}

/// Runs `program` on each of this many hosts at a switch, with its rank and its cluster, which ends
/// after it. The program of each host of `deaths` is killed at its time.
pub(crate) fn on_each<F>(
    seed: u64,
    count: usize,
    deaths: &[(usize, Duration)],
    program: impl Fn(usize, Cluster) -> F + Clone + Send + 'static,
) where
    F: Future<Output = ()> + Send + 'static,
{
    on_each_of(switched(seed, count, LinkSpec::default()), deaths, program);
}

/// As [`on_each`], on the hosts of this network.
pub(crate) fn on_each_of<F>(
    (network, hosts): (Network, Vec<HostId>),
    deaths: &[(usize, Duration)],
    program: impl Fn(usize, Cluster) -> F + Clone + Send + 'static,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let all_live = deaths.is_empty();
    run(network, async |simulation| {
        let members = simulation.launch(&hosts, |rank| {
            let program = program.clone();
            async move {
                let cluster = join().await;
                program(rank, cluster.clone()).await;
                // An error names the nodes that died.
                let ended = cluster.end(DEADLINE).await;
                assert!(ended.is_ok() || !all_live, "{rank}: {ended:?}");
            }
        });
        for &(rank, at) in deaths {
            simulation.sleep(at - simulation.now()).await;
            simulation.kill(hosts[rank]);
        }
        for (rank, member) in members.into_iter().enumerate() {
            let is_dead = deaths.iter().any(|&(dead, _)| dead == rank);
            assert_eq!(member.await.is_err(), is_dead, "{rank}");
        }
    });
}
