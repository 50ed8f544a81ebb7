//! The place where a crate that stands on this one registers with a node.
//!
//! A *layer* is what a node offers beyond channels: calls, processes, clusters
//! (`chunkcomm-cluster`), or your own. This module is for those who write one. A program needs
//! nothing of it.
//!
//! ```text
//!     layer          Layer::start, Hooks              chunkcomm-cluster, or yours
//!     ----------------------------------------------------------------------------
//!     this module    of, settings | Link, RawSender, RawReceiver, Expected | Wait
//!     ----------------------------------------------------------------------------
//!     chunkcomm      nodes, channels, links
//! ```
//!
//! | a layer | by |
//! |---|---|
//! | is started with the node, with settings of its own | [`settings`] |
//! | is started when the program first uses it | [`of`] |
//! | takes channels with reserved names | [`Layer::NAMES`], [`Hooks::opened`], [`Expected`] |
//! | adds lines to the node's report | [`Hooks::explain`], [`waits_for`] |
//! | judges which losses the node reports | [`Hooks::reports_loss`] |
//! | learns that nobody drives the node any more | [`Hooks::runtime_gone`] |
//! | has messages whose content belongs to their link | [`needs_link`], [`arriving`] |
//!
//! # Reserved names
//!
//! Names that begin with a zero byte are reserved for layers. A channel of such a name goes to the
//! layer that has its beginning in [`Layer::NAMES`]; where none has, it is refused at once. So a
//! peer without the layer costs no wait. A name may have a label for people between two zero
//! bytes (`"\0the channel of a port\0..."`): errors show the label.
//!
//! A layer holds the node by [`WeakNode`]. Otherwise the node would never end.

mod context;
mod ends;
mod installed;

pub use crate::channel::Turn;
pub use crate::channel::blocking::block_on;
pub use crate::channel::tx::{Tx as RawSender, Waiting};
pub use crate::driver::events::Opened;
pub use crate::driver::inbox::Outcome;
pub use crate::driver::staging::Staged;
pub use crate::driver::taking::{Next, RxEnd as RawReceiver};
pub use crate::driver::waking::share_last_woken;
pub use crate::driver::{clock, entropy};
pub use crate::node::fingerprint::{Fingerprint, described};
pub use crate::node::waits::Wait;
pub use crate::proto::packet::ChannelKind;
pub(crate) use context::finds_needs;
pub use context::{arriving, arriving_by, needs_link};
pub use ends::{
    Expected, Link, Watch, WordSender, open_raw, raw_sender, receiver_of, system_channel,
};
pub(crate) use installed::{LayerSettings, Layers};
pub use installed::{given_name, is_closed, links, of, peers, runtime, settings, waits_for};

use crate::node::{Node, NodeShared};
use std::fmt;
use std::sync::Weak;
use tokio::runtime::Handle;

/// What a layer is told when it starts.
#[derive(Debug, Clone)]
pub struct Site {
    /// The node. While [`Layer::start`] runs it may not be there yet.
    pub node: WeakNode,
    /// The node's name for its peers.
    pub name: String,
    /// The runtime that drives the node's links.
    pub runtime: Handle,
    /// The runtime of the program: the one in which the node was built, or in which the layer was
    /// first used.
    pub own: Handle,
}

/// A layer, as a node starts it.
pub trait Layer: Hooks + Sized {
    /// Settings of the layer, which a program makes before the node is built.
    type Settings: Default + Clone + Send + Sync + 'static;

    /// Beginnings of the names of the layer's channels. Each begins with a zero byte.
    const NAMES: &'static [&'static str];

    /// Starts the layer of a node.
    fn start(settings: Self::Settings, site: Site) -> Self;
}

/// What a node asks of its layers. Called on the threads of links: none of it may wait.
pub trait Hooks: Send + Sync + 'static {
    /// Takes a channel that a peer opened under one of the layer's names.
    fn opened(&self, opened: Opened) -> Answer;

    /// Returns whether the node reports that messages of a channel of the layer may not have
    /// arrived. `unknown`: those of them that were not acknowledged. By default the layer has
    /// errors of its own.
    fn reports_loss(&self, channel: &str, unknown: u64) -> bool {
        let _ = (channel, unknown);
        false
    }

    /// Returns lines for [`Node::explain`], without a line end.
    fn explain(&self) -> Vec<String> {
        Vec::new()
    }

    /// Ends the waits of the layer: the runtime that drove the node is gone.
    fn runtime_gone(&self) {}
}

/// What becomes of a channel that a peer opened.
#[derive(Debug)]
pub enum Answer {
    /// The layer has it.
    Taken,
    /// An [`Expected`] of its name takes it; where nobody expects the name, it is refused.
    Expected(Box<Opened>),
    /// It is refused.
    Refused(Box<Opened>),
}

/// A node that is not kept alive.
#[derive(Clone)]
pub struct WeakNode(pub(crate) Weak<NodeShared>);

impl WeakNode {
    /// Returns the node, unless everything that belongs to it is dropped.
    #[must_use]
    pub fn upgrade(&self) -> Option<Node> {
        self.0.upgrade().map(|shared| Node { shared })
    }
}

impl fmt::Debug for WeakNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WeakNode").finish_non_exhaustive()
    }
}
