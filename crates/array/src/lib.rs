//! Arrays that are distributed over the nodes of a group, and their transfer between groups, whatever the
//! layouts.
//!
//! A simulation has its field by blocks of rows. The program that draws it, or transforms it, or writes it to
//! disk wants columns, on other nodes and on another number of them. Each side says in a line how its array is laid
//! out. From the two [`Layout`]s follows who sends which elements to whom. Each rank computes its own part
//! alone, packs while it sends, and keeps the plan for the next time. The idea is that of Foster, Kohr,
//! Krishnaiyer and Choudhary, "Double Standards: Bringing Task Parallelism to HPF via the Message Passing Interface".
//!
//! ```text
//! (block,*)@4x1                                           (*,block)@1x2
//! 000000   rank 0: next_slab, commit ──┐   ┌──▶ rank 0: next_slab   000111
//! 111111   rank 1                    ──┼───┤                        000111
//! 222222   rank 2                    ──┼───┴──▶ rank 1              000111
//! 333333   rank 3                    ──┘                            000111
//! ```
//!
//! Not for one contiguous buffer between two nodes: that is a delta of `chunkcomm-pipeline`. Not for single
//! elements of other ranks, for sparse arrays, or for a few KiB that travel once: a collective call costs less
//! there than the opening of a transfer.
//!
//! # Layouts
//!
//! A layout says how each dimension is distributed along its axis of a grid of ranks, in HPF's notation:
//!
//! ```
//! use chunkcomm_array::Layout;
//!
//! let layout = Layout::parse("(block,cyclic(2))@2x2", &[4, 8])?;
//! assert_eq!(layout.picture(), "\
//! (block,cyclic(2))@2x2 of 4 x 8
//! columns 0..8
//! 0:  0 0 1 1 0 0 1 1
//! 1:  0 0 1 1 0 0 1 1
//! 2:  2 2 3 3 2 2 3 3
//! 3:  2 2 3 3 2 2 3 3
//! ");
//! assert_eq!(layout.local_shape(3), [2, 4]); // a rank's storage
//! assert_eq!(layout.owner(&[2, 3]), 3);
//! # Ok::<(), chunkcomm_array::LayoutError>(())
//! ```
//!
//! # Arrays of a group
//!
//! An [`Array`] has layout and storage in one value. Its methods change the layout, bring margins up to date, reduce,
//! read and write NumPy's files:
//!
//! ```no_run
//! use chunkcomm_array::{Array, ArrayError};
//! use chunkcomm_group::Group;
//!
//! async fn transform(group: &mut Group) -> Result<f64, ArrayError> {
//!     let mut rows = Array::<f64>::read_npy(group, "(block,*)", "in.npy").await?;
//!     let mut columns = rows.to("(*,block)").await?;
//!     columns.map_inplace(|element| *element *= 2.0);
//!     columns.write_npy("out.npy").await?;
//!     columns.sum().await
//! }
//! ```
//!
//! # Transfers
//!
//! Two groups [meet](chunkcomm_group::Group::meet) as a [`Pair`](chunkcomm_group::Pair). All ranks of one
//! [`send`](Array::send) an array, all of the other [`receive`](Array::receive) it. An array that is computed while
//! it travels goes by an [`ArraySender`] and an [`ArrayReceiver`]:
//!
//! ```no_run
//! use chunkcomm_array::{Array, ArrayError};
//! use chunkcomm_group::Pair;
//!
//! async fn simulate(field: Array<f64>, pair: &mut Pair) -> Result<(), ArrayError> {
//!     let mut sender = field.sender(pair).await?;
//!     for step in 1..=100 {
//!         while let Some(mut slab) = sender.next_slab() {
//!             slab.fill(f64::from(step));
//!             sender.commit(slab).await?; // leaves while the next slab is computed
//!         }
//!         if step < 100 {
//!             sender.start().await?; // the same plan, channels and memory
//!         }
//!     }
//!     sender.finish().await
//! }
//!
//! async fn draw(columns: Array<f64>, pair: &mut Pair) -> Result<(), ArrayError> {
//!     let mut receiver = columns.receiver(pair).await?;
//!     for step in 1..=100 {
//!         while let Some((rows, elements)) = receiver.next_slab().await? {
//!             println!("step {step}, rows {rows:?}: {} elements", elements.len());
//!         }
//!         if step < 100 {
//!             receiver.start().await?;
//!         }
//!     }
//!     Ok(())
//! }
//! ```
//!
//! Elements are plain old data ([`Element`](chunkcomm_group::Element), that is `bytemuck::Pod`) and travel in
//! the sender's byte order. Ranks that state other shapes, types or layouts than the rest all get an error with both
//! statements.
//!
//! With the feature `ndarray`, views of a rank's part are those of that crate (0.17), margins in or out.
//! Without the default feature `tls` there are no credentials, as in `chunkcomm`, and rustls is not compiled.
//!
//! # Layers
//!
//! Each stands on those above it, in reading order:
//!
//! - `layout`: pure: which rank has which elements, and where;
//! - `plan`: pure: what two ranks exchange, in closed form, and in which pieces;
//! - `pack`: pure: from the elements of a rank to the bytes of a piece, and back;
//! - `ends`: agreement, and the task of a peer: within a group, or between two;
//! - `npy`: [`Npy`]: NumPy's files, of which each rank reads and writes what it owns;
//! - `array`: [`Array`], [`ArraySender`], [`ArrayReceiver`]: layout and storage in one value, and slabs of it;
//! - `attach`: [`ArrayPort`], [`Visitor`]: programs that come later and take whole arrays, or give them.

// A sample that is copied compiles without these warnings. They are named, since a newer compiler may have more.
#![doc(test(attr(deny(unused_assignments, unused_imports, unused_must_use, unused_mut))))]

mod array;
mod attach;
mod ends;
mod layout;
mod npy;
mod pack;
mod plan;

pub use array::receiver::ArrayReceiver;
pub use array::sender::ArraySender;
pub use array::slab::Slab;
pub use array::{Array, IntoLayout, Local};
pub use attach::{ArrayPort, AttachError, Visit, Visitor};
pub use ends::error::{ArrayError, StatementDifference};
pub use ends::report::{ArrayReport, PeerReport, Timings};
pub use ends::settings::Transfer;
#[doc(hidden)]
pub use ends::way::packing_of;
pub use layout::error::LayoutError;
pub use layout::{Distribution, Layout, LayoutBuilder};
pub use npy::{Npy, NpyElement, NpyError, NpyHeader, NpyHeaderError, NpyType};
pub use plan::Side;

/// Computes a rank's plan, for benches alone: numbers of peers, of families and of steps.
///
/// A dimension's families count once for each peer.
#[doc(hidden)]
pub fn plan_of(from: &Layout, to: &Layout, is_sender: bool, rank: usize) -> (usize, u64, u64) {
    let side = if is_sender { Side::Sender } else { Side::Receiver };
    let plan = plan::Plan::of(from, to, side, rank);
    let families =
        plan.peers.iter().flat_map(|peer| &peer.meetings).map(plan::meeting::Meeting::families);
    (plan.peers.len(), families.sum::<usize>() as u64, plan.steps)
}
