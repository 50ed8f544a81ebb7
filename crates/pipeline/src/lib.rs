//! Large buffers that are sent while they are computed and used while they arrive (delta send-recv), between two nodes
//! and in the collective calls of groups.
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
//!     let landed = input.landed();
//!     let mut chunk = output.next(count)?.expect("as long as the input");
//!     for (index, element) in chunk.range().zip(chunk.iter_mut()) {
//!         *element = 0.5 * (landed[index] + landed[index.saturating_sub(1)]);
//!     }
//!     chunk.commit().await?;
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
//! A buffer with ends at several peers, by sections, is a [`Region`](chunkcomm_group::Region).
//!
//! # Collectives that flow
//!
//! [`GroupDeltas`] adds these calls to a [`Group`](chunkcomm_group::Group) of nodes. The operand of such a call is a
//! [`DeltaSender`], its result a [`DeltaReceiver`]. An element is combined, and goes on, as soon as it is committed, so
//! computing overlaps with reducing and broadcasting:
//!
//! ```no_run
//! use chunkcomm_group::{Group, Op};
//! use chunkcomm_pipeline::{AllReduceEnds, Flow, GroupDeltas};
//!
//! # async fn example(group: &mut Group) -> Result<(), Box<dyn std::error::Error>> {
//! let memory = vec![0.0_f64; 1 << 20];
//! let call = group.all_reduce_delta(memory, Op::sum(), Flow::default());
//! let AllReduceEnds { operand: mut mine, result: mut sums } = call.await?;
//! for step in 1..=100 {
//!     while let Some(mut chunk) = mine.next(4096)? {
//!         chunk.fill(f64::from(step)); // compute
//!         chunk.commit().await?;
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
//! | [`broadcast_delta`](GroupDeltas::broadcast_delta) | root | the others | chain, binary, binomial |
//! | [`reduce_delta`](GroupDeltas::reduce_delta) | all | root | chain, binary, binomial |
//! | [`all_reduce_delta`](GroupDeltas::all_reduce_delta) | all | all | chains |
//! | [`gather_delta`](GroupDeltas::gather_delta) | all | root | direct |
//!
//! [`Auto`](chunkcomm_group::Algorithm::Auto) chooses among these, also where an algorithm is set that does not flow: in a ring each rank begins with
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
//! [`GroupError::Lost`]: chunkcomm_group::GroupError::Lost
//!
//! Without the default feature `tls` there are no credentials, as in `chunkcomm`, and rustls is not compiled.
//!
//! # Layers
//!
//! `chunkcomm-group` has the memory, the tasks that carry it, and the schedules of collectives. Here stand, each on those
//! above it, in reading order:
//!
//! - `turns`: when a computing task yields;
//! - [`DeltaSender`], [`Chunk`], [`DeltaReceiver`], [`Forward`]: the ends of a delta;
//! - [`GroupDeltas`], [`Flow`]: collectives that take and give them;
//! - `tracked` (feature): the same ends for code that takes a plain slice, by page protection (Linux).
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
    AUTO_INCREMENT_BYTES_MAX, AUTO_INCREMENT_BYTES_MIN, Costs, DeltaFault, DeltaRecvError,
    DeltaSendError, Element, Increment, Mismatch, Part, PartError, Shape,
};
pub use flow::{AllReduceEnds, DeltaEnd, Flow, GatherEnds, GroupDeltas, ReduceEnds};
pub use recv::{DeltaReceiver, Forward, Landed};
pub use send::{Chunk, DeltaSender};
