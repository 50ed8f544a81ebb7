//! Axes: the places of a tile's positions in one storage, a dimension or several joined ones each.

use std::ops::Range;

use crate::plan::meeting::Meeting;
use crate::plan::runs::Run;

/// Positions of a tile in a storage, ascending.
///
/// Places are counted from the first one, `base`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Axis {
    /// Offset of the first position in the storage, in elements.
    pub(super) base: usize,
    /// Number of positions.
    pub(super) count: usize,
    /// Distance of neighbours in the stream, in elements.
    pub(super) stream: usize,
    /// Distance of neighbours of a piece in the storage, in elements.
    pub(super) unit: usize,
    /// All positions, ascending; a single piece if they are evenly apart.
    pub(super) pieces: Vec<Piece>,
}

/// Positions that are evenly apart in a storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    /// The first one, counted from the start of the axis.
    pub(super) position: usize,
    /// Its place, in elements from that of the first position.
    pub(super) offset: usize,
    /// Number of positions.
    pub(super) length: usize,
}

impl Axis {
    /// Returns the axis of some positions of a dimension, at least one, whose neighbours are `unit` elements
    /// apart in the storage that `place` looks at.
    pub(super) fn of(
        meeting: &Meeting,
        positions: &Range<usize>,
        place: fn(&Run) -> usize,
        unit: usize,
        stream: usize,
    ) -> Axis {
        let mut runs = meeting.runs(positions.clone());
        let first = runs.next().expect("an axis has positions");
        let begin = place(&first);
        let (base, count) = (begin * unit, positions.len());
        let even = |unit| {
            let pieces = vec![Piece { position: 0, offset: 0, length: count }];
            Axis { base, count, stream, unit, pieces }
        };
        if first.length == count {
            return even(unit);
        }
        if let (1, 1, Some(second)) = (first.length, meeting.window, runs.clone().next()) {
            return even((place(&second) - begin) * unit);
        }
        let mut pieces = vec![Piece { position: 0, offset: 0, length: first.length }];
        let mut position = first.length;
        for run in runs {
            let offset = (place(&run) - begin) * unit;
            match pieces.last_mut() {
                Some(last) if last.offset + last.length * unit == offset => {
                    last.length += run.length;
                }
                _ => pieces.push(Piece { position, offset, length: run.length }),
            }
            position += run.length;
        }
        let step = pieces.get(1).map_or(unit, |second| second.offset);
        let is_at_step = |it: &Piece| it.length == 1 && it.offset == it.position * step;
        if pieces.len() == 1 || pieces.iter().all(is_at_step) {
            return even(step);
        }
        Axis { base, count, stream, unit, pieces }
    }

    /// Tells whether all positions are one run of elements.
    pub(super) fn is_contiguous(&self) -> bool {
        self.unit == 1 && self.pieces.len() == 1
    }

    /// Calls `visit` with the places in the stream and in the storage of all positions.
    #[inline]
    pub(super) fn each(&self, mut visit: impl FnMut(usize, usize)) {
        for &Piece { position, offset, length } in &self.pieces {
            for number in 0..length {
                visit((position + number) * self.stream, offset + number * self.unit);
            }
        }
    }

    /// Returns this axis and the next faster one as one, if positions of the two are evenly apart together, both
    /// in the stream and in the storage.
    fn joined(&self, faster: &Axis) -> Option<Axis> {
        let is_even = self.stream == faster.stream * faster.count
            && faster.pieces.len() == 1
            && self.unit == faster.unit * faster.count;
        let wider = |piece: &Piece| Piece {
            position: piece.position * faster.count,
            offset: piece.offset,
            length: piece.length * faster.count,
        };
        is_even.then(|| Axis {
            base: self.base + faster.base,
            count: self.count * faster.count,
            stream: faster.stream,
            unit: faster.unit,
            pieces: self.pieces.iter().map(wider).collect(),
        })
    }
}

/// Adds an axis that is faster than those so far; one of a single position is left out.
pub(super) fn push(axes: &mut Vec<Axis>, axis: Axis) {
    if axis.count == 1 {
        return;
    }
    match axes.last().and_then(|last| last.joined(&axis)) {
        Some(joined) => {
            axes.pop();
            axes.push(joined);
        }
        None => axes.push(axis),
    }
}

/// Calls `work` with some axes behind a slower one.
pub(super) fn with_outermost(outermost: Axis, axes: &[Axis], work: impl FnOnce(&[&Axis])) {
    if outermost.count == 1 {
        return work(&axes.iter().collect::<Vec<_>>());
    }
    let joined = axes.first().and_then(|axis| outermost.joined(axis));
    let (first, rest) = match joined {
        Some(joined) => (joined, &axes[1..]),
        None => (outermost, axes),
    };
    let mut all = Vec::with_capacity(axes.len() + 1);
    all.push(&first);
    all.extend(rest);
    work(&all);
}

/// Calls `visit` with the places in the stream and in the storage of all positions of axes, the last one fastest.
#[inline]
pub(super) fn walk(
    axes: &[&Axis],
    stream: usize,
    offset: usize,
    visit: &mut impl FnMut(usize, usize),
) {
    match axes {
        [] => visit(stream, offset),
        [axis] => axis.each(|s, o| visit(stream + s, offset + o)),
        [axis, faster @ ..] => axis.each(|s, o| walk(faster, stream + s, offset + o, visit)),
    }
}
