//! Programs that come later and take whole arrays, or give them.
//!
//! ```text
//!   ArrayPort        the group's face        port
//!   Visit            one visitor             visit
//!   Desk             rank 0: who waits       desk
//!   Visitor          the program that comes  visitor
//! ```
//!
//! ```text
//!   visitor                          rank 0                     every rank
//!      -- what it wants ---------->  waits at the desk
//!                                    visits ------------------> the same visits
//!      <-- layout, members --------  send, receive -----------> agree on layout and type
//!      <======================================================  its own elements
//!      -- the end of the channel ->
//! ```
//!
//! No call of the group waits for a visitor that takes: what it gets is packed, and leaves in the background. One
//! that gives is waited for; what it gave is put into its place when every rank has all of it, or not at all.

mod desk;
mod error;
mod port;
mod visit;
mod visitor;

use std::future::poll_fn;

use chunkcomm::{Loss, LossKind};
use chunkcomm_cluster::Cluster;
use chunkcomm_cluster::cluster::NodeId;
use chunkcomm_cluster::roster::{Event, Roster};
use chunkcomm_group::Shape;

pub use error::AttachError;
pub use port::ArrayPort;
pub use visit::Visit;
pub use visitor::Visitor;

use crate::layout::Layout;
use crate::layout::error::LayoutError;

/// The wish of a visitor: its place in the cluster, the type of its elements, and the shape of the array that it
/// gives; without a shape it takes one.
type Ask = (NodeId, ElementWords, Option<Vec<u64>>);

/// An element type: its name, its size in bytes, whether its bytes are those of a big-endian machine.
type ElementWords = (String, u32, bool);

/// The word of rank 0 to a visitor: how it is served, and `Ok(None)` when what it gave has landed; or the reason
/// why it is not served, none when the port is closed.
type Word = Result<Option<Served>, Option<String>>;

/// How a visitor is served: the group's layout as numbers, the members by rank, the number of the transfer.
type Served = (Vec<u64>, Vec<NodeId>, u64);

fn words_of(element: &Shape) -> ElementWords {
    (element.element.clone(), element.element_bytes, element.big_endian)
}

/// Returns the name under which rank 0 is found.
fn key(name: &str) -> String {
    format!("array/port/{name}")
}

/// Returns the layout of a visitor, which has all of the array in C's order.
fn whole(shape: &[usize]) -> Result<Layout, LayoutError> {
    let builder = Layout::builder(shape);
    shape.iter().fold(builder, |builder, _| builder.whole()).build()
}

/// Waits until a member is gone, and returns how.
async fn departed(cluster: &Cluster, member: NodeId) -> Loss {
    let mut roster = Roster::new(cluster, [member].into());
    match poll_fn(|context| roster.poll_event(context)).await {
        Event::Left(_, loss) | Event::Lost(_, loss) => loss,
        _ => Loss::new(LossKind::Left, "the cluster has ended"),
    }
}
