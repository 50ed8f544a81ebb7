//! [`ProcessContext`]: what a process knows of where it runs.

use crate::cluster::Cluster;
use crate::node::{Node, Peer};
use std::fmt;
use tokio::sync::watch;

/// Where a process runs and who asked for it.
#[derive(Clone)]
pub struct ProcessContext {
    pub(super) node: Node,
    pub(super) creator: Peer,
    pub(super) stopped: watch::Receiver<bool>,
}

impl fmt::Debug for ProcessContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProcessContext")
            .field("node", &self.node)
            .field("creator", &self.creator.name())
            .finish_non_exhaustive()
    }
}

impl ProcessContext {
    /// The node that runs it: makes channel ends, connects, asks for other processes.
    #[must_use]
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// The node that asked for it.
    #[must_use]
    pub fn creator(&self) -> &Peer {
        &self.creator
    }

    /// The cluster that the node is a member of, if it is of one and that has not ended.
    #[must_use]
    pub fn cluster(&self) -> Option<Cluster> {
        let cluster = self.node.moving().cluster().borrow().clone();
        cluster?.upgrade()
    }

    /// The creator dropped the handle or is gone. A process that waits is ended then; one that
    /// computes for long looks here.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        *self.stopped.borrow()
    }
}
