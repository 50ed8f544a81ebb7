//! Nodes that wait for each other in a ring learn of it.

use super::{connect, node};
use bytes::Bytes;
use chunkcomm::host::{self, JoinHandle};
use chunkcomm::{BytesReceiver, Node, Peer};
use chunkcomm_simulation::{LinkSpec, Network, Simulation};
use std::time::Duration;

/// Messages of a sender, more than windows and rings take.
const MESSAGES: u32 = 30_000;

/// Nodes `a`, `b`, ... of which some send to others, which take nothing for now.
struct Ring {
    simulation: Simulation,
    nodes: Vec<Node>,
    /// Both ends of each link.
    peers: Vec<Peer>,
    receivers: Vec<BytesReceiver>,
    senders: Vec<JoinHandle<()>>,
}

impl Ring {
    async fn send(&mut self, from: usize, to: usize, channel: &str) {
        let peer = connect(&self.nodes[from], &self.nodes[to]).await;
        let mut sender = self.nodes[from].open_bytes(&peer, channel).await.unwrap();
        let (back, receiver) = self.nodes[to].accept_bytes(channel).await.unwrap();
        self.peers.extend([peer, back]);
        self.receivers.push(receiver);
        self.senders.push(host::spawn(async move {
            for number in 0..MESSAGES {
                sender.send_slice(&number.to_le_bytes()).await.unwrap();
            }
            sender.close(Duration::from_secs(60)).await.unwrap();
        }));
    }

    async fn cycles(&self) -> Vec<Vec<String>> {
        let mut all = Vec::new();
        for node in &self.nodes {
            let explanation = node.explain().await;
            let text = explanation.to_string();
            assert!(explanation.cycles.iter().all(|it| text.contains(&format!("cycle: {it}"))));
            all.push(explanation.cycles);
        }
        all
    }

    /// Receives on all channels until all messages came.
    async fn receive_all(&mut self) {
        let receiving = self.receivers.drain(..).map(|mut receiver| {
            host::spawn(async move {
                for number in 0..MESSAGES {
                    let message = receiver.recv().await.unwrap().unwrap();
                    assert_eq!(message, Bytes::copy_from_slice(&number.to_le_bytes()));
                }
                assert!(receiver.recv().await.unwrap().is_none());
            })
        });
        for task in receiving.collect::<Vec<_>>().into_iter().chain(self.senders.drain(..)) {
            task.await.unwrap();
        }
    }
}

fn on_nodes<T>(count: usize, program: impl AsyncFnOnce(Ring) -> T) -> T {
    let mut network = Network::new(11);
    let hosts: Vec<_> = (0..count).map(|it| network.add_host(["a", "b", "c", "d"][it])).collect();
    for (index, host) in hosts.iter().enumerate() {
        for other in &hosts[..index] {
            network.link(*host, *other, LinkSpec::ETHERNET_1G);
        }
    }
    chunkcomm_simulation::run(network, async |simulation| {
        let mut nodes = Vec::new();
        for (index, host) in hosts.iter().enumerate() {
            nodes.push(node(&simulation, *host, ["a", "b", "c", "d"][index]).await);
        }
        let (peers, receivers, senders) = (Vec::new(), Vec::new(), Vec::new());
        program(Ring { simulation, nodes, peers, receivers, senders }).await
    })
}

#[test]
fn two_nodes_in_a_cycle_report_it_until_they_receive() {
    on_nodes(2, async |mut ring| {
        ring.send(0, 1, "x").await;
        ring.send(1, 0, "y").await;
        ring.simulation.sleep(Duration::from_millis(1_500)).await;
        assert_eq!(ring.cycles().await, [[""; 0]; 2], "too early to tell");
        ring.simulation.sleep(Duration::from_millis(8_500)).await;
        let (a, b) = ("a waits for b on channel \"x\"", "b waits for a on channel \"y\"");
        let both = [vec![format!("{a}, {b}")], vec![format!("{b}, {a}")]];
        assert_eq!(ring.cycles().await, both);
        ring.simulation.sleep(Duration::from_secs(20)).await;
        assert_eq!(ring.cycles().await, both);
        let counted: u64 = ring.peers.iter().map(|it| it.stats().cycles).sum();
        assert_eq!(counted, 2, "once a node");
        ring.receive_all().await;
        ring.simulation.sleep(Duration::from_secs(5)).await;
        assert_eq!(ring.cycles().await, [[""; 0]; 2]);
    });
}

#[test]
fn three_nodes_in_a_ring_and_one_that_waits_for_them() {
    on_nodes(4, async |mut ring| {
        ring.send(0, 1, "x").await;
        ring.send(1, 2, "y").await;
        ring.send(2, 0, "z").await;
        ring.send(3, 0, "tail").await;
        ring.simulation.sleep(Duration::from_secs(15)).await;
        let [x, y, z] = [
            "a waits for b on channel \"x\"",
            "b waits for c on channel \"y\"",
            "c waits for a on channel \"z\"",
        ];
        let of = |waits: [&str; 3]| vec![waits.join(", ")];
        let expected = [of([x, y, z]), of([y, z, x]), of([z, x, y]), vec![]];
        assert_eq!(ring.cycles().await, expected);
        ring.receive_all().await;
    });
}

#[test]
fn a_chain_is_no_cycle() {
    on_nodes(3, async |mut ring| {
        ring.send(0, 1, "x").await;
        ring.send(1, 2, "y").await;
        ring.simulation.sleep(Duration::from_secs(15)).await;
        assert!(!ring.nodes[0].explain().await.is_quiet());
        assert_eq!(ring.cycles().await, [[""; 0]; 3]);
        ring.receive_all().await;
    });
}

#[test]
fn a_node_that_receives_while_it_sends_is_in_no_cycle() {
    on_nodes(2, async |mut ring| {
        ring.send(0, 1, "x").await;
        ring.send(1, 0, "y").await;
        let mut receiver = ring.receivers.remove(0);
        let receiving = host::spawn(async move {
            for _ in 0..MESSAGES {
                receiver.recv().await.unwrap().unwrap();
            }
            assert!(receiver.recv().await.unwrap().is_none());
        });
        ring.simulation.sleep(Duration::from_secs(15)).await;
        assert!(!ring.nodes[1].explain().await.is_quiet());
        assert_eq!(ring.cycles().await, [[""; 0]; 2]);
        receiving.await.unwrap();
        ring.receive_all().await;
    });
}
