//! The layer of clusters on a node: the version of its words, and the cluster of the node.

use super::WeakCluster;
use crate::sync::locked;
use chunkcomm::Node;
use chunkcomm::layer::{Hooks, Layer, Site};
use std::sync::Mutex;

/// The layer of one node: the cluster that the node is a member of.
#[derive(Default)]
pub(super) struct ClusterLayer(Mutex<Option<WeakCluster>>);

impl Layer for ClusterLayer {
    type Settings = ();

    const NAME: &'static str = "chunkcomm.cluster";

    /// While the oldest is not raised, a new version may
    ///
    /// - add words, at the end of their enum. They are only sent to a peer that speaks the version
    ///   ([`Layer::version`]), and a peer does well without them;
    /// - change the form of a word, if both forms are written and read, by the link's version.
    const VERSIONS: (u16, u16) = (1, 1);

    /// Lines have names of the program's kind, which each member accepts.
    const NAMES: &'static [&'static str] = &[];

    fn start((): (), _site: Site) -> ClusterLayer {
        ClusterLayer::default()
    }
}

impl Hooks for ClusterLayer {}

/// Returns the cluster of a node, if it is a member of one that has not ended.
pub(super) fn cluster_of(node: &Node) -> Option<super::Cluster> {
    let cluster = locked(&ClusterLayer::of(node).0).clone();
    cluster?.upgrade()
}

/// As [`cluster_of`]; starts no layer.
pub(super) fn started_cluster_of(node: &Node) -> Option<super::Cluster> {
    let cluster = locked(&ClusterLayer::started(node)?.0).clone();
    cluster?.upgrade()
}

/// Notes that the node is a member of this cluster.
pub(super) fn set_cluster(node: &Node, cluster: WeakCluster) {
    *locked(&ClusterLayer::of(node).0) = Some(cluster);
}
