//! Groups of nodes that broadcast, reduce and exchange together (collective calls), and buffers that several nodes
//! send to and receive from (regions).
//!
//! # Groups
//!
//! A [`Group`] is an agreed list of a cluster's nodes, each with a rank. All ranks make the same calls in the
//! same order. A call takes its caller's vector and gives it back, with the result or in an error:
//!
//! ```no_run
//! use chunkcomm_cluster::{Cluster, ClusterConfig};
//! use chunkcomm_group::{Group, Op};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let cluster = Cluster::join(ClusterConfig::new().nodes(4)).await?;
//! let mut group = Group::world(&cluster).await?;
//! let mine = vec![1.0_f64, group.rank() as f64];
//! let sums = group.all_reduce(mine, Op::sum()).await?;
//! assert_eq!(sums, [4.0, 6.0]);
//! # Ok(())
//! # }
//! ```
//!
//! ```text
//! broadcast       root's data to all          gather, all_gather   parts of all to the root, to all
//! reduce          combined at the root        scatter              parts of the root, one to each
//! all_reduce      combined at all             all_to_all           a part from each to each
//! reduce_scatter  combined, a part at each    scan                 combined up to each rank
//! ```
//!
//! An [`Op`] combines; [`Parts`] are data of all ranks. The same calls exist for serde values
//! ([`broadcast_value`](Group::broadcast_value) and others). An [`Algorithm`] is chosen for each call by its
//! modelled time, or set. When a rank dies, its group's calls end with its name, and
//! [`shrink`](Group::shrink) makes a group of the others. Groups are [split](Group::split). Two of one
//! cluster [meet](Group::meet) by name as a [`Pair`], also those of different programs.
//!
//! Not for nodes that take turns as they like: use channels there. Independent tasks belong into a farm. Data that are
//! computed or used in pieces while they travel belong into a collective that flows, of `chunkcomm-pipeline`.
//!
//! # Regions
//!
//! ```text
//! part, commit ---.                               .--> wait
//! land    <- peer -+--> elements become done, ----+--> send -> peer
//! combine <- peer -'    each of them once         '--> operand of another combine
//! ```
//!
//! A [`Region`] is a buffer that lands from one node, is combined with what another sends, and goes on to a third,
//! while all of it is coming. Each transfer carries sections of it in increments. Large calls of groups are made of
//! regions, and so are the transfers of distributed arrays (`chunkcomm-array`).
//!
//! A transfer of a buffer whose elements leave as they become done is a *delta*. With one sender and no region its
//! ends are those of `chunkcomm-pipeline`.
//!
//! Without the default feature `tls` there are no credentials, as in `chunkcomm`, and rustls is not compiled.
//!
//! # Layers
//!
//! The lowest first, in reading order:
//!
//! - `proto`: pure: the state of each byte, the bytes that leave next ([`Increment`] decides how many
//!   at a time), the messages of both sides; the schedules of collective calls and their modelled times;
//! - `memory`: the buffer that is written in parts and read meanwhile; its `unsafe` is the crate's only;
//! - `trouble`: why a transfer of a collective that flows has stopped, told to the one who follows it;
//! - `pump` and `landing`: from sections of the buffer to a channel, and from a channel into sections of a
//!   buffer, combined or as it comes; [`Part`]: elements for one writer;
//! - [`Region`]: a buffer with any number of ends;
//! - `group`: [`Group`], [`Pair`]: ranks, links, and an engine that runs the calls, polled by their futures or by a task;
//! - `collective`: [`Call`], [`Op`], [`Parts`], [`Exchanged`]: small calls step by step, large ones by regions;
//! - `layer`: hidden: what `chunkcomm-pipeline` stands on.
//!
//! Elements are plain old data ([`Element`], that is `bytemuck::Pod`) and travel in the sender's byte order. Both sides
//! state length, element type and byte order; a difference is an error that names both.

// A sample that is copied compiles without these warnings. They are named, since a newer compiler may have more.
#![doc(test(attr(deny(unused_assignments, unused_imports, unused_must_use, unused_mut))))]

mod collective;
mod element;
mod error;
mod group;
mod landing;
#[doc(hidden)]
pub mod layer;
mod memory;
mod part;
mod proto;
mod pump;
mod region;
mod trouble;

pub use collective::call::Call;
pub use collective::op::{Bits, Number, Op};
pub use collective::pair::{Pair, Root};
pub use collective::parts::{Exchanged, Parts};
pub use element::Element;
pub use error::{DeltaRecvError, DeltaSendError, Mismatch, PartError};
pub use group::error::{CallDifference, CollectiveError, GroupError};
pub use group::{Group, GroupReport, WaitingCall};
pub use part::Part;
pub use proto::fault::DeltaFault;
pub use proto::increment::{AUTO_INCREMENT_BYTES_MAX, AUTO_INCREMENT_BYTES_MIN, Costs, Increment};
pub use proto::opening::Shape;
pub use proto::schedule::algorithm::{Algorithm, ParseAlgorithmError};
pub use region::{Operand, Region, RegionLanding, RegionSend};
