//! Whole nodes on a simulated network: times, faults, repeatability, size.

#![allow(clippy::unwrap_used)]

mod crowd;
mod cycles;
mod faults;
mod feeds;
mod formula;
mod lanes;
mod local;
mod long;
mod only;
mod panics;
mod ranks;
mod repeated;
mod worlds;

use chunkcomm::{Node, Peer};
use chunkcomm_simulation::{HostId, Simulation};

/// Builds a node on `host` that listens at a port which the network chooses.
async fn node(simulation: &Simulation, host: HostId, name: &str) -> Node {
    let address = simulation.address(host, 0);
    Node::builder().name(name).listen(address).build().await.unwrap()
}

/// Connects `from` to `to`.
async fn connect(from: &Node, to: &Node) -> Peer {
    from.connect(&to.addresses()[0]).await.unwrap()
}
