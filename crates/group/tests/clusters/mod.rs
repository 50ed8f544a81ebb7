//! Clusters within one process, on loopback.

use std::time::Duration;

use chunkcomm_cluster::{Cluster, ClusterConfig};
use chunkcomm_testkit::{free_port, limited};

const LONG: Duration = Duration::from_secs(60);

pub(crate) async fn join_all(size: u32) -> Vec<Cluster> {
    let manager = format!("127.0.0.1:{}", free_port());
    let join = |rank: u32| {
        let variables = [
            ("CHUNKCOMM_MANAGER", manager.clone()),
            ("CHUNKCOMM_RANK", rank.to_string()),
            ("CHUNKCOMM_SIZE", size.to_string()),
        ];
        let config = ClusterConfig::new().environment(variables.into_iter().collect());
        tokio::spawn(Cluster::join(config.ready_within(LONG)))
    };
    let mut clusters = Vec::new();
    for joining in (0..size).map(join).collect::<Vec<_>>() {
        clusters.push(limited(joining).await.unwrap().unwrap());
    }
    clusters
}

pub(crate) async fn end_all(clusters: &[Cluster]) {
    let end = |cluster: &Cluster| {
        let cluster = cluster.clone();
        tokio::spawn(async move { cluster.end(LONG).await })
    };
    for ending in clusters.iter().map(end).collect::<Vec<_>>() {
        limited(ending).await.unwrap().unwrap();
    }
}
