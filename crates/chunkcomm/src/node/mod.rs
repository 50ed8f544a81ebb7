//! [`Node`]: one member of a cluster, with its links; [`Peer`]: another one.
//!
//! Reading order:
//!
//! - this file, [`peer`], [`builder`] with [`io_thread`];
//! - [`connecting`], [`listening`] (connections that come) with [`slots`] (their places);
//! - [`hello`] (from a connection to a link), [`admission`] (proofs and TLS of peers),
//!   [`resume`] (the session of a connection), [`same_host`] (a Unix socket in the place of TCP),
//!   [`starting`] (a session's driver);
//! - [`channels`] with [`duplexes`] and [`accepting`] (the node's table), [`held`] (opens that wait for an
//!   `accept`) and [`fingerprint`] (types);
//! - [`redelivering`] and [`streams`] (senders that outlive their peer);
//! - [`layers`] (what other crates add to a node);
//! - [`links`] and [`events`] (changes of the links), [`whom`] (a peer across its sessions);
//! - [`explaining`] with [`waits`], and [`unaccepted`] (names that may be misspelt);
//! - [`closing`] with [`owed`] (messages of layers that are not staged) and [`losses`] (messages that may not
//!   have arrived);
//! - [`warnings`] (of losses and of unaccepted channels).

pub(crate) mod accepting;
mod admission;
mod builder;
mod channels;
mod closing;
mod connecting;
pub(crate) mod duplexes;
mod events;
mod explaining;
pub(crate) mod fingerprint;
mod held;
mod hello;
mod io_thread;
pub(crate) mod layers;
mod links;
mod listening;
mod losses;
mod only;
pub(crate) mod owed;
mod peer;
mod redelivering;
mod resume;
mod same_host;
mod slots;
mod starting;
mod streams;
mod unaccepted;
pub(crate) mod waits;
pub(crate) mod warnings;
pub(crate) mod whom;

pub use builder::{
    AGE_BOUND_VARIABLE, CREDENTIAL_FILE_VARIABLE, Experiment, Limits, NodeBuilder,
    ONE_COPY_VARIABLE, SAME_HOST_VARIABLE,
};
pub use events::{LinkEvent, LinkEvents};
pub use peer::Peer;
pub use redelivering::Redelivery;

use crate::Address;
use crate::driver::buffers::Buffers;
use crate::driver::cycles::SharedBoard;
use crate::driver::mail::LinkShared;
use crate::driver::wakers::locked;
use crate::error::Loss;
use crate::proto::sorted::SortedSet;
use crate::transport::Home;
use crate::transport::spin::Spinner;
use accepting::AcceptTable;
use admission::Admission;
use builder::Settings;
use hello::OwnHello;
use io_thread::IoThread;
use layers::Layers;
use owed::Debts;
use same_host::SameHost;
use std::fmt;
use std::sync::{Arc, Mutex};
use tokio::runtime::Handle;
use tokio::sync::watch;
use waits::Waits;

/// One member of a cluster: listens, connects, opens and accepts channels.
///
/// A node is a value; a program may have several. Clones are the same node.
/// When the last clone and everything that belongs to it (peers, senders,
/// receivers) is dropped, its links send the accepted messages and end.
///
/// The runtime on which the node is built serves its links, or a thread of
/// [`NodeBuilder::io_thread`]. That method's text says how a computing task holds links up.
#[derive(Clone)]
pub struct Node {
    pub(crate) shared: Arc<NodeShared>,
}

/// The state that the clones of a node, its peers and channels share.
pub(crate) struct NodeShared {
    settings: Settings,
    own: OwnHello,
    admission: Admission,
    same_host: SameHost,
    runtime: Handle,
    one_thread: bool,
    table: Arc<AcceptTable>,
    buffers: Arc<Buffers>,
    /// Lasting waits of this node and its peers, to find cycles.
    board: SharedBoard,
    addresses: Vec<Address>,
    home: Home,
    /// Has a receiver for each address at which the node listens.
    taken: watch::Sender<()>,
    tasks: Mutex<Vec<tokio::task::AbortHandle>>,
    /// The spinner of a node that polls busily, until it closes.
    spinner: Mutex<Option<Arc<Spinner>>>,
    local: tokio::sync::Mutex<Option<Arc<LinkShared>>>,
    layers: Arc<Layers>,
    waits: Arc<Waits>,
    debts: Arc<Debts>,
    /// The names under which the node publishes values.
    published: Mutex<SortedSet<String>>,
    /// Ends the thread of `io_thread` when it is dropped.
    io_thread: Option<IoThread>,
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node")
            .field("name", &self.name())
            .field("addresses", &self.shared.addresses)
            .finish_non_exhaustive()
    }
}

impl Node {
    /// Returns the default settings of a node to be built.
    pub fn builder() -> NodeBuilder {
        NodeBuilder::default()
    }

    /// Returns the addresses where the node listens, with the ports that the system chose.
    #[must_use]
    pub fn addresses(&self) -> Vec<Address> {
        self.shared.addresses.clone()
    }

    /// Returns the node's name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.shared.own.hello.node.as_str()
    }

    /// Returns the random number that this node drew when it was built.
    #[must_use]
    pub fn incarnation(&self) -> u128 {
        self.shared.own.hello.incarnation
    }

    /// Ends all sessions with the peer of this incarnation, as [`Peer::declare_dead`] does
    /// with one.
    pub fn declare_dead(&self, incarnation: u128, why: impl Into<Loss>) {
        let why = why.into();
        for link in self.shared.table.links() {
            if link.peer.incarnation == incarnation {
                self.peer(link).declare_dead(why.clone());
            }
        }
    }

    /// Returns the reasons of the last refused connections, and those for which the system let none be
    /// accepted, oldest first.
    #[must_use]
    pub fn refusals(&self) -> Vec<String> {
        self.shared.table.refusals()
    }

    /// Returns a reference that does not keep the node alive.
    #[must_use]
    pub fn downgrade(&self) -> layers::WeakNode {
        layers::WeakNode(Arc::downgrade(&self.shared))
    }

    /// Returns the layers that stand on this node.
    pub(crate) fn layers(&self) -> &Arc<Layers> {
        &self.shared.layers
    }

    /// Returns the waits that no link knows of.
    pub(crate) fn waits(&self) -> &Arc<Waits> {
        &self.shared.waits
    }

    /// Returns what layers still have to stage.
    pub(crate) fn debts(&self) -> &Arc<Debts> {
        &self.shared.debts
    }

    /// Returns the table of channels that peers open, of links and losses.
    pub(crate) fn table(&self) -> &Arc<AcceptTable> {
        &self.shared.table
    }

    /// Takes a name for a value that is published; false if it is taken.
    pub(crate) fn claim(&self, name: &str) -> bool {
        locked(&self.shared.published).insert(name.to_owned())
    }

    /// Gives the name back.
    pub(crate) fn give_up_name(&self, name: &str) {
        locked(&self.shared.published).remove(name);
    }

    /// Warns people.
    pub(crate) fn warn_of(&self, what: &str) {
        self.shared.table.say(what);
    }

    /// Returns the runtime that drives the links.
    #[must_use]
    pub fn runtime(&self) -> &Handle {
        &self.shared.runtime
    }

    /// Whether the node was closed.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.table().is_closed()
    }

    /// Returns the peer at the other end of this link.
    pub(crate) fn peer(&self, link: Arc<LinkShared>) -> Peer {
        Peer { link, node: Arc::clone(&self.shared) }
    }
}
