//! [`ProcessContext`]: the node and the creator of a process.

use chunkcomm::{Node, Peer};
use std::fmt;
use tokio::sync::watch;

/// Context of a process: the node that runs it, and its creator.
#[derive(Clone)]
pub struct ProcessContext {
    pub(crate) node: Node,
    pub(crate) creator: Peer,
    pub(crate) stopped: watch::Receiver<bool>,
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
    /// Returns the node that runs the process. It makes channel ends, connects, and asks for other
    /// processes.
    #[must_use]
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// Returns the node that asked for the process.
    #[must_use]
    pub fn creator(&self) -> &Peer {
        &self.creator
    }

    /// Whether the process should end: the creator dropped the handle or is gone. A waiting process
    /// is ended then; a process that computes for long looks here.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        *self.stopped.borrow()
    }
}
