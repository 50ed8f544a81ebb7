//! Names that one node of a cluster provides, and the wait for the answer of that node.

use chunkcomm_cluster::Cluster;
use chunkcomm_cluster::cluster::{NameError, NodeId};

/// A name that this node alone provides, until this is dropped.
pub(super) struct Sole {
    cluster: Cluster,
    name: String,
}

impl Sole {
    /// As [`Cluster::provide_sole`].
    pub(super) async fn provide(cluster: &Cluster, name: &str) -> Result<Sole, NameError> {
        cluster.provide_sole(name).await?;
        Ok(Sole { cluster: cluster.clone(), name: name.to_owned() })
    }

    /// Waits until another node has got the name, because this one was taken for dead.
    pub(super) async fn lost(&self) -> String {
        withdrawn(&self.cluster, &self.name, self.cluster.id()).await
    }
}

impl Drop for Sole {
    fn drop(&mut self) {
        self.cluster.withdraw(&self.name);
    }
}

/// Waits until `provider` provides the name no longer; returns the reason. At the end of the cluster
/// the provider may still answer, until a node closes.
pub(super) async fn withdrawn(cluster: &Cluster, name: &str, provider: NodeId) -> String {
    cluster.withdrawn(name, provider).await;
    if cluster.ended().is_some() && cluster.providers(name).contains(&provider) {
        return std::future::pending().await;
    }
    let deaths = cluster.deaths();
    let death = deaths.iter().find(|it| it.id == provider);
    death.map_or_else(|| format!("{provider} provides it no longer"), ToString::to_string)
}
