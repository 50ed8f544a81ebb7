//! Clusters in virtual time: one program on each host.

use chunkcomm::layer::Link;
use chunkcomm::{channel, host};
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

/// All dial all when the barrier lets them go.
#[test]
fn ranks_that_all_talk_have_one_session_a_pair() {
    const SIZE: u32 = 4;
    for seed in 0..20 {
        on_each(seed, SIZE as usize, &[], move |rank, cluster| async move {
            cluster.barrier().await.unwrap();
            let others = (0..SIZE).filter(|to| *to != cluster.rank());
            let talking: Vec<_> = others
                .map(|to| {
                    let cluster = cluster.clone();
                    host::spawn(async move {
                        let (node, peer) = (cluster.node(), cluster.peer(to).await.unwrap());
                        let mut sender = node.open::<u32>(&peer, "talk").await.unwrap();
                        sender.send(&cluster.rank()).await.unwrap();
                        let from_it = channel("talk").from_peer(&peer);
                        let (from, mut words) = node.accept::<u32>(from_it).await.unwrap();
                        assert_eq!(words.recv().await.unwrap(), Some(to));
                        sender.close(DEADLINE).await.unwrap();
                        from == peer && from == cluster.peer(to).await.unwrap()
                    })
                })
                .collect();
            for talked in talking {
                assert!(talked.await.unwrap(), "seed {seed}: two sessions of rank {rank}");
            }
            cluster.barrier().await.unwrap();
            let own = cluster.id().incarnation;
            let links = Link::all_of(cluster.node());
            let count = links.iter().filter(|link| link.incarnation() != own).count();
            assert_eq!(count, SIZE as usize - 1, "seed {seed}: the sessions of rank {rank}");
            // Nobody ends before all have counted.
            cluster.barrier().await.unwrap();
        });
    }
}
