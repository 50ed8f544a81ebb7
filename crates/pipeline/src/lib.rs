//! Large buffers that are sent while they are computed and used while they arrive (delta
//! send-recv), and groups of nodes that broadcast, reduce and exchange together (collective calls).
//!
//! # Deltas
//!
//! A program that computes an array, sends it, and lets the next node compute on it uses one
//! node at a time. Here the same loop hands out the buffer in chunks and commits each. A committed
//! chunk travels while the next one is computed, and the receiver works on the elements that have
//! landed. In a chain of nodes that each compute on all elements, all nodes compute at once.
//! The idea is that of Bao, Ding, Gao and Archambault, "Delta Send-Recv".
//!
//! Not for small messages: below some ten pages the increments cost more than the overlap gains.
//! Use a channel of [`chunkcomm`] there.
//!
//! ```no_run
//! use chunkcomm_pipeline::{DeltaReceiver, DeltaSender, Increment};
//!
//! # async fn example(node: &chunkcomm::Node, next: &chunkcomm::Peer)
//! # -> Result<(), Box<dyn std::error::Error>> {
//! // A node in the middle of a chain: a filter that looks back one element.
//! const LEN: usize = 1 << 20;
//! let mut input = DeltaReceiver::accept(node, "in", vec![0.0_f32; LEN]).await?;
//! let increment = Increment::default();
//! let mut output = DeltaSender::open(node, next, "out", vec![0.0_f32; LEN], increment).await?;
//! while let Some(part) = input.next().await? {
//!     let count = part.len();
//!     let start = output.position();
//!     let landed = input.landed();
//!     let chunk = output.next(count).expect("as long as the input");
//!     for (index, element) in (start..).zip(chunk) {
//!         *element = 0.5 * (landed[index] + landed[index.saturating_sub(1)]);
//!     }
//!     output.commit().await?;
//! }
//! output.finish().await?;
//! # Ok(())
//! # }
//! ```
//!
//! ## Any order, and again
//!
//! ```text
//! sender    |== sent ==|-- part --|..free..|-- part --|== sent ==|     threads commit in any order
//!                 │                                         │
//! receiver  |= landed =|.....................|............|= landed =|
//!            next()                                        next_any(), wait(range)
//! ```
//!
//! [`DeltaSender::parts`] divides the buffer into disjoint [`Part`]s, one a thread. Each increment
//! carries its place, so that the receiver can [wait](DeltaReceiver::wait) for a range, or take elements
//! as they land. Both ends [`start`](DeltaSender::start) a further round on the same channel and in the
//! same memory: that opens nothing and allocates nothing. A stream of unknown length is a series of
//! rounds; [`DeltaSender::end`] ends the last one early.
//!
//! ## Several ends
//!
//! A [`Region`] is a buffer that several peers send to and receive from, by sections: it lands from one
//! node, is combined with what another sends, and goes on to a third, while all of it is coming.
//!
//! # Groups
//!
//! A [`Group`] is an agreed list of a cluster's nodes, each with a rank. All ranks make the same calls in the
//! same order. A call takes its caller's vector and gives it back, with the result or in an error:
//!
//! ```no_run
//! use chunkcomm_cluster::{Cluster, ClusterConfig};
//! use chunkcomm_pipeline::{Group, Op};
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
//! Not for nodes that take turns as they like: use channels there. Independent tasks belong into a farm.
//!
//! ## Collectives that flow
//!
//! The operand of such a call is a [`DeltaSender`], its result a [`DeltaReceiver`]. An element is combined, and goes
//! on, as soon as it is committed, so computing overlaps with reducing and broadcasting:
//!
//! ```no_run
//! use chunkcomm_pipeline::{Flow, Group, Op};
//!
//! # async fn example(group: &mut Group) -> Result<(), Box<dyn std::error::Error>> {
//! let memory = vec![0.0_f64; 1 << 20];
//! let (mut mine, mut sums) = group.all_reduce_delta(memory, Op::sum(), Flow::default()).await?;
//! for step in 1..=100 {
//!     while let Some(chunk) = mine.next(4096) {
//!         chunk.fill(f64::from(step)); // compute
//!         mine.commit().await?;
//!     }
//!     while let Some(done) = sums.next().await? {
//!         println!("{}", done[0]); // use: the rest is on its way
//!     }
//!     if step < 100 {
//!         mine.start().await?;
//!         sums.start().await?;
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! | call | operand | result | algorithms that flow |
//! |---|---|---|---|
//! | [`broadcast_delta`](Group::broadcast_delta) | root | the others | chain, binary, binomial |
//! | [`reduce_delta`](Group::reduce_delta) | all | root | chain, binary, binomial |
//! | [`all_reduce_delta`](Group::all_reduce_delta) | all | all | chains |
//! | [`gather_delta`](Group::gather_delta) | all | root | direct |
//!
//! `Auto` chooses among these, also where an algorithm is set that does not flow: in a ring each rank begins with
//! another block, and doubling combines whole vectors.
//!
//! - *Rounds*: the call sets all up once. Both kinds of ends [`start`](DeltaSender::start) further rounds, which open
//!   and allocate nothing. All ranks go through the same rounds, a rank's two ends together: its sender's round is not
//!   finished before its receiver has started it.
//! - *Calls*: other calls of the group may be made meanwhile. A collective counts as finished when it has given its
//!   ends, and goes on when the group is dropped.
//! - *Drop*: a receiver that is dropped takes part to the end of its round, as does a sender with all elements
//!   committed. Then the collective has ended in order at this rank, whatever its other end does, and the group works
//!   on. A rank whose round needs one that has ended learns it by [`GroupError::Lost`], which names the next rank on the
//!   way there, a second later for each transfer between the two. A sender that is dropped with some elements of a
//!   round committed and some missing breaks the group, with [`GroupError::Lost`] at all ranks.
//! - *Deaths* break the group. Waits at the ends fail with [`DeltaSendError::Collective`] and
//!   [`DeltaRecvError::Collective`]; elements that are done stay readable.
//! - *Ends* are those of deltas but for this: `peer` is `None`; the root of a broadcast alone can
//!   [`end`](DeltaSender::end) a stream; of two rounds under way `into_buffer` gives the memory of the current one,
//!   and elements not written again are those of two rounds before.
//!
//! Without the default feature `tls` there are no credentials, as in `chunkcomm`, and rustls is not compiled.
//!
//! # Layers
//!
//! Each stands on those above it, in reading order:
//!
//! - `proto`: pure: the state of each byte, the bytes that leave next ([`Increment`] decides how many
//!   at a time), the messages of both sides; the schedules of collective calls and their modelled times;
//! - `memory`: the buffer that is written in parts and read meanwhile; its `unsafe` is the crate's only;
//! - `trouble`: why a transfer of a flowing collective has stopped, told to the one who follows it;
//! - `pump` and `landing`: from sections of the buffer to a channel, and from a channel into sections of a
//!   buffer, combined or as it comes; `turns`: when a computing task yields;
//! - [`DeltaSender`], [`Part`], [`DeltaReceiver`], [`Forward`], [`Region`]: the user's interface to deltas;
//! - `group`: [`Group`], [`Pair`]: ranks, links, and a standing task that runs the calls;
//! - `collective`: [`Call`], [`Op`], [`Parts`]: small calls step by step, large ones by regions; [`Flow`]: calls
//!   that take and give deltas;
//! - `tracked` (feature): the same for code that takes a plain slice, by page protection (Linux).
//!
//! Elements are plain old data ([`Element`], that is `bytemuck::Pod`) and travel in the sender's byte order. Both sides
//! state length, element type and byte order; a difference is an error that names both.

// A sample that is copied compiles without these warnings. They are named, since a newer compiler may have more.
#![doc(test(attr(deny(unused_assignments, unused_imports, unused_must_use, unused_mut))))]
// Names the feature of each item that needs one; the compiler of docs.rs can.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod flow;
mod recv;
mod send;
#[cfg(feature = "tracked")]
pub mod tracked;
mod turns;

pub use chunkcomm_group::{
    AUTO_INCREMENT_BYTES_MAX, AUTO_INCREMENT_BYTES_MIN, Costs, DeltaRecvError, DeltaSendError,
    Element, FrameFault, Increment, Mismatch, OpeningFault, Part, PartError, Shape,
};
pub use flow::{DeltaEnd, Flow, GatherEnds, GroupDeltas, ReduceEnds};
pub use recv::{DeltaReceiver, Forward, Landed};
pub use send::DeltaSender;
