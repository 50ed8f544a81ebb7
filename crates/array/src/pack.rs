//! From the elements of a rank to the bytes of a piece, and back.
//!
//! ```text
//!   sender's storage --pack--> bytes of a tile --unpack--> receiver's storage
//!                    in the sender's memory order   in the receiver's
//! ```
//!
//! Each side looks at its own storage alone: what is apart at the other end may be one run here. A storage is
//! walked by axes ([`axis`]), the innermost one by a kernel made for its spacing ([`kernels`]).

mod axis;
mod kernels;
#[cfg(test)]
mod tests;

use std::ops::Range;

use bytemuck::{cast_slice, pod_collect_to_vec, try_cast_slice, try_cast_slice_mut};
use chunkcomm_group::Element;

use self::axis::Axis;
use crate::plan::meeting::Meeting;
use crate::plan::runs::Run;

/// Elements that travel together: those at a box of positions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tile<'a> {
    /// Indices that the two ranks have in common, in each logical dimension.
    pub(crate) meetings: &'a [Meeting],
    /// Positions of the tile in each logical dimension.
    pub(crate) ranges: &'a [Range<usize>],
    /// Where the sender has the elements.
    pub(crate) sender: Storage<'a>,
    /// Where the receiver wants them.
    pub(crate) receiver: Storage<'a>,
}

/// How a rank stores its part of an array.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Storage<'a> {
    /// Memory order: logical dimensions from the slowest to the fastest.
    pub(crate) order: &'a [usize],
    /// Distance of neighbours in each logical dimension, in elements.
    pub(crate) strides: &'a [usize],
}

/// A receiver's storage in slabs: some consecutive rows each.
///
/// A *row* is what belongs to one index of the slowest dimension of the memory order.
pub(crate) trait Rows<T> {
    /// Calls `work` once with the slab that has `row`: the slab's first row, and its elements, which are whole
    /// rows. `work` returns how many elements it has put there.
    fn slab(&mut self, row: usize, work: &mut dyn FnMut(usize, &mut [T]) -> usize);
}

/// All rows are one slab.
impl<T> Rows<T> for [T] {
    fn slab(&mut self, _row: usize, work: &mut dyn FnMut(usize, &mut [T]) -> usize) {
        work(0, self);
    }
}

/// Writes the elements of a tile, in the sender's memory order, to `out`, which is as long as they are.
///
/// `source` is the sender's storage from its element `first` on; it has the whole tile.
pub(crate) fn pack<T: Element>(tile: &Tile<'_>, source: &[T], first: usize, out: &mut [u8]) {
    let Some((base, axes)) = tile.at_sender() else { return };
    let (axes, source): (Vec<&Axis>, _) = (axes.iter().collect(), &source[base - first..]);
    if let Ok(out) = try_cast_slice_mut(out) {
        return kernels::copy::<T, true>(&axes, source, out);
    }
    let mut aligned = vec![T::zeroed(); out.len() / size_of::<T>()];
    kernels::copy::<T, true>(&axes, source, &mut aligned);
    out.copy_from_slice(cast_slice(&aligned));
}

/// Puts the bytes of a tile into the receiver's storage.
///
/// # Panics
///
/// If `payload` has another length than the elements of the tile.
pub(crate) fn unpack<T: Element>(
    tile: &Tile<'_>,
    payload: &[u8],
    rows: &mut (impl Rows<T> + ?Sized),
) {
    let elements: usize = tile.ranges.iter().map(Range::len).product();
    assert_eq!(payload.len(), elements * size_of::<T>(), "the bytes are those of the tile");
    if elements == 0 {
        return;
    }
    // A short message may lie in a buffer of a link, at any byte; a longer one has memory of its own.
    let aligned: Vec<T>;
    let stream = match try_cast_slice(payload) {
        Ok(stream) => stream,
        Err(_) => {
            aligned = pod_collect_to_vec(payload);
            &aligned
        }
    };
    let streams = tile.streams();
    let Storage { order, strides } = tile.receiver;
    let slowest = order[0];
    let (mut base, mut inner) = (0, Vec::new());
    for &dimension in &order[1..] {
        base += tile.axis(dimension, strides, |run| run.at_receiver, &streams, &mut inner);
    }
    let (meeting, mut left) = (&tile.meetings[slowest], tile.ranges[slowest].clone());
    let (row_elements, elements_a_position) = (strides[slowest], elements / left.len());
    while let Some(run) = meeting.runs(left.clone()).next() {
        rows.slab(run.at_receiver, &mut |first_row, slab: &mut [T]| {
            let part = before_row(meeting, &left, first_row + slab.len() / row_elements);
            let passed = (left.start - tile.ranges[slowest].start) * streams[slowest];
            let rows =
                Axis::of(meeting, &part, |run| run.at_receiver, row_elements, streams[slowest]);
            let base = base + rows.base - first_row * row_elements;
            left.start = part.end;
            axis::with_outermost(rows, &inner, |axes| {
                kernels::copy::<T, false>(axes, &stream[passed..], &mut slab[base..]);
            });
            part.len() * elements_a_position
        });
    }
}

/// Returns which elements of the sender's storage a tile is, if they are one run there.
///
/// Such a tile leaves without being packed.
pub(crate) fn contiguous(tile: &Tile<'_>) -> Option<Range<usize>> {
    let (base, axes) = tile.at_sender()?;
    match &axes[..] {
        [] => Some(base..base + 1),
        [axis] if axis.is_contiguous() => Some(base..base + axis.count),
        _ => None,
    }
}

/// Returns the first of some positions, as far as their rows are before `end`.
fn before_row(meeting: &Meeting, positions: &Range<usize>, end: usize) -> Range<usize> {
    let mut count = 0;
    for run in meeting.runs(positions.clone()) {
        let length = run.length.min(end.saturating_sub(run.at_receiver));
        count += length;
        if length < run.length {
            break;
        }
    }
    assert!(count > 0, "the slab has the row that was asked for");
    positions.start..positions.start + count
}

impl Tile<'_> {
    /// Returns the distance of neighbours of each logical dimension in the stream, in elements.
    fn streams(&self) -> [usize; 6] {
        let mut streams = [0; 6];
        let mut distance = 1;
        for &dimension in self.sender.order.iter().rev() {
            streams[dimension] = distance;
            distance *= self.ranges[dimension].len();
        }
        streams
    }

    /// Returns the sender's element that is first, and its axes from the slowest to the fastest; nothing of an
    /// empty tile.
    fn at_sender(&self) -> Option<(usize, Vec<Axis>)> {
        if self.ranges.iter().any(Range::is_empty) {
            return None;
        }
        let Storage { order, strides } = self.sender;
        let streams = self.streams();
        let (mut base, mut axes) = (0, Vec::with_capacity(order.len()));
        for &dimension in order {
            base += self.axis(dimension, strides, |run| run.at_sender, &streams, &mut axes);
        }
        Some((base, axes))
    }

    /// Adds the axis of a dimension behind those of slower ones, and returns the offset of its first element.
    fn axis(
        &self,
        dimension: usize,
        strides: &[usize],
        place: fn(&Run) -> usize,
        streams: &[usize; 6],
        axes: &mut Vec<Axis>,
    ) -> usize {
        let axis = Axis::of(
            &self.meetings[dimension],
            &self.ranges[dimension],
            place,
            strides[dimension],
            streams[dimension],
        );
        let base = axis.base;
        axis::push(axes, axis);
        base
    }
}
