//! Two nodes in one process, linked, or two members of a cluster.

use chunkcomm::{Address, Experiment, Node, NodeBuilder, Peer};
use chunkcomm_cluster::cluster::launch::Environment;
use chunkcomm_cluster::{Cluster, ClusterConfig, Registry};

use crate::Outcome;

/// Fixed size of a full packet, 64 KiB: a tuned one would depend on the time.
const PACKET_BYTES: usize = 64 << 10;

/// Two nodes with one link between them.
pub(crate) struct Pair {
    pub(crate) near: Node,
    pub(crate) far: Node,
    /// The far node, as the near one sees it.
    pub(crate) to_far: Peer,
    pub(crate) address: Address,
}

fn builder() -> NodeBuilder {
    let experiment = Experiment { packet_bytes_max: Some(PACKET_BYTES), ..Experiment::default() };
    Node::builder().quiet().experiment(experiment)
}

/// Links two nodes; the far one listens at `address`.
pub(crate) async fn pair(address: &str) -> Outcome<Pair> {
    let far = builder().name("far").listen(address.parse()?).build().await?;
    let near = builder().name("near").build().await?;
    let address = far.addresses().first().cloned().ok_or("the far node has no address")?;
    let to_far = near.connect(&address).await?;
    Ok(Pair { near, far, to_far, address })
}

/// Returns the two members of a cluster over loopback TCP.
pub(crate) async fn members(registry: &Registry) -> Outcome<[Cluster; 2]> {
    // The port is free again when the listener is dropped.
    let manager = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
    let member = |rank: &str| {
        let variables = [
            ("CHUNKCOMM_RANK", rank.to_owned()),
            ("CHUNKCOMM_SIZE", "2".to_owned()),
            ("CHUNKCOMM_MANAGER", manager.clone()),
        ];
        let environment: Environment = variables.into_iter().collect();
        let config = ClusterConfig::new().environment(environment);
        Cluster::join(config.node(builder()).registry(registry))
    };
    let (first, second) = tokio::try_join!(member("0"), member("1"))?;
    Ok([first, second])
}
