//! Two nodes that want only one session, whichever of them dials.

use super::node;
use chunkcomm::Node;
use chunkcomm::host::{self, Instant};
use chunkcomm::layer::Link;
use chunkcomm_proto::random::Random;
use chunkcomm_simulation::{HostId, LinkSpec, Network, run};
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);

/// Returns the session of `from` with `to`; dials after a wait.
async fn meets(from: Node, to: Node, wait: Duration) -> Link {
    host::sleep(wait).await;
    let met = Link::meet(&from, to.incarnation(), &to.addresses()[0]).await;
    met.unwrap().unwrap()
}

/// Sends a word over the session; returns the session over which it came.
async fn talks(from: &Node, link: &Link, to: &Node) -> Link {
    let mut sender = from.open::<u32>(&link.peer(from), "talk").await.unwrap();
    sender.send(&7).await.unwrap();
    let (back, mut receiver) = to.accept::<u32>("talk").await.unwrap();
    assert_eq!(receiver.recv().await.unwrap(), Some(7));
    Link::of(&back)
}

fn network(seed: u64) -> (Network, [HostId; 2]) {
    let mut network = Network::new(seed);
    let hosts = [network.add_host("a"), network.add_host("b")];
    network.link(hosts[0], hosts[1], LinkSpec { latency: 5 * MS, ..LinkSpec::default() });
    (network, hosts)
}

#[test]
fn nodes_that_dial_at_about_the_same_time_have_one_session() {
    let mut begun_by_larger = 0;
    for seed in 0..200 {
        let (network, hosts) = network(seed);
        begun_by_larger += run(network, async |simulation| {
            let [a, b] =
                [node(&simulation, hosts[0], "a").await, node(&simulation, hosts[1], "b").await];
            let mut random = Random::new(seed);
            let at_once = random.one_in(2);
            // Otherwise so far apart that one session is there, or about to be.
            let mut wait = || MS * if at_once { 0 } else { random.below(80) as u32 };
            let mut meeting = Vec::new();
            for _ in 0..2 {
                meeting.push(host::spawn(meets(a.clone(), b.clone(), wait())));
                meeting.push(host::spawn(meets(b.clone(), a.clone(), wait())));
            }
            let mut links = Vec::new();
            for one in meeting {
                links.push(one.await.unwrap());
            }
            assert!(links[0] == links[2] && links[1] == links[3], "seed {seed}");
            assert_eq!(talks(&a, &links[0], &b).await, links[1], "seed {seed}");
            assert_eq!(talks(&b, &links[1], &a).await, links[0], "seed {seed}");
            host::sleep(100 * MS).await;
            let counts = [Link::all_of(&a).len(), Link::all_of(&b).len()];
            assert_eq!(counts, [1, 1], "seed {seed}");
            let a_began = links[0].peer(&a).dialled().is_some();
            let larger_began = a_began != (a.incarnation() < b.incarnation());
            assert!(!at_once || !larger_began, "seed {seed}");
            u32::from(larger_began)
        });
    }
    // Alone, either node begins it.
    assert!(begun_by_larger > 20, "{begun_by_larger}");
}

#[test]
fn a_node_whose_dial_comes_to_nothing_takes_the_session_of_its_peer() {
    for seed in 0..20 {
        let (mut network, hosts) = network(seed);
        let nowhere = network.add_host("nowhere");
        for host in hosts {
            network.link(host, nowhere, LinkSpec::default());
        }
        run(network, async |simulation| {
            let mut nodes =
                [node(&simulation, hosts[0], "a").await, node(&simulation, hosts[1], "b").await];
            nodes.sort_by_key(Node::incarnation);
            let [smaller, larger] = nodes;
            // Connections to it are not answered, as behind a firewall.
            for host in hosts {
                simulation.with(|network, now| network.partition(now, host, nowhere));
            }
            let begun = Instant::now();
            let vainly = host::spawn({
                let (smaller, incarnation) = (smaller.clone(), larger.incarnation());
                let address = simulation.address(nowhere, 99);
                async move { Link::meet(&smaller, incarnation, &address).await }
            });
            host::sleep(MS).await;
            let link = meets(larger.clone(), smaller.clone(), Duration::ZERO).await;
            // It lets the other go before it, but not for ever.
            let waited = Instant::now() - begun;
            assert!(waited > 1_900 * MS && waited < 4_000 * MS, "seed {seed}: {waited:?}");
            let taken = vainly.await.unwrap().unwrap().unwrap();
            assert_eq!(talks(&smaller, &taken, &larger).await, link, "seed {seed}");
            assert_eq!(talks(&larger, &link, &smaller).await, taken, "seed {seed}");
            host::sleep(20_000 * MS).await;
            assert_eq!([Link::all_of(&smaller).len(), Link::all_of(&larger).len()], [1, 1]);
        });
    }
}
