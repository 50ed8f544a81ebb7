//! Whole nodes on a simulated network: times, faults, repeatability, size.

#![allow(clippy::unwrap_used)]

mod crowd;
mod cycles;
mod faults;
mod formula;
mod lanes;

use chunkcomm::simulation::{HostId, Simulation};
use chunkcomm::{Node, Peer};

/// A node on `host`, listening at a port that the network chooses.
async fn node(simulation: &Simulation, host: HostId, name: &str) -> Node {
    let address = simulation.address(host, 0);
    Node::builder().name(name).listen(address).build().await.unwrap()
}

/// The peer that `from` reaches `to` as.
async fn connect(from: &Node, to: &Node) -> Peer {
    from.connect(&to.addresses()[0]).await.unwrap()
}
