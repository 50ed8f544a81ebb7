//! The place where a crate that stands on this one registers with a node.
//!
//! A *layer* is what a node offers beyond channels: calls, processes, clusters
//! (`chunkcomm-cluster`), or your own. This module is for those who write one. A program needs
//! nothing of it.
//!
//! ```text
//!     layer          Layer::start, Hooks              chunkcomm-cluster, or yours
//!     ----------------------------------------------------------------------------
//!     this module    Layer::of | Link, RawSender, RawReceiver, Expected | Wait
//!     ----------------------------------------------------------------------------
//!     chunkcomm      nodes, channels, links
//! ```
//!
//! | a layer | by |
//! |---|---|
//! | is started with the node, with settings of its own | [`Layer::settings`] |
//! | is started when the program first uses it | [`Layer::of`] |
//! | agrees with its peer on a version of its words | [`Layer::VERSIONS`], [`Layer::version`] |
//! | takes channels with reserved names | [`Layer::NAMES`], [`Hooks::opened`], [`Expected`] |
//! | adds lines to the node's explanation | [`Hooks::explain`], [`Wait`] |
//! | adds typed values to the node's report | [`Hooks::report`], [`Reports`], [`add_reports`] |
//! | judges which losses the node reports | [`Hooks::reports_loss`] |
//! | warns people, where no call can return an error | [`warn`] |
//! | stages its last messages before the links close | [`Owed`] |
//! | learns that nobody drives the node any more | [`Hooks::runtime_gone`] |
//! | has messages whose content belongs to their link | [`needs_link`], [`arriving`] |
//! | wakes its tasks in one order, so that a simulation is the same each time | [`Bell`] |
//! | stands below, in the place of the system | [`world`] |
//!
//! # Reserved names
//!
//! Names that begin with a zero byte are reserved for layers. A layer lists the beginnings of its
//! names in [`Layer::NAMES`]. A channel goes to the layer that lists its beginning. Without such a
//! layer it is refused at once, so that the peer does not wait.
//!
//! A name may have a label for people between two zero bytes (`"\0the channel of a travelling end\0..."`).
//! Errors and reports show the label, and behind a label that ends with a space the rest of the name
//! too. Names that begin with `"\0duplex/"` are the node's own: the second channel of a duplex has one.
//!
//! A layer holds the node by [`WeakNode`]. Otherwise the node would never end.

mod bell;
mod ends;
mod settings;
pub mod world;

pub use crate::channel::blocking::block_on;
pub use crate::channel::context::{arriving, arriving_by, needs_link};
pub use crate::channel::tx::{Tx as RawSender, Waiting};
pub use crate::descriptors::with_limit;
pub use crate::driver::events::Opened;
pub use crate::driver::inbox::Outcome;
pub use crate::driver::mail::Link;
pub use crate::driver::staging::Staged;
pub use crate::driver::taking::{Next, RxEnd as RawReceiver};
pub use crate::driver::waking::share_last_woken;
pub use crate::node::fingerprint::Fingerprint;
pub use crate::node::layers::{Answer, Hooks, Layer, Reports, Site, WeakNode, add_reports};
pub use crate::node::owed::Owed;
pub use crate::node::waits::Wait;
pub use crate::node::warnings::warn;
pub use bell::{Bell, Hearer};
pub use ends::{Expected, Watch, WordSender, Written};
pub use settings::{given_name, quiet_but_for_accept, system_channel};
