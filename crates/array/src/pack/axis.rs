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
    pub(super) spacing: Spacing,
}

/// Distances of an axis' positions in a storage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Spacing {
    /// Each is this number of elements from the last one.
    Even(usize),
    /// Within pieces they are `unit` elements apart.
    Pieces { unit: usize, pieces: Vec<Piece> },
}

/// Positions that follow each other in a storage.
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
        let axis = |spacing| Axis { base, count, stream, spacing };
        if first.length == count {
            return axis(Spacing::Even(unit));
        }
        if let (1, 1, Some(second)) = (first.length, meeting.window, runs.clone().next()) {
            return axis(Spacing::Even((place(&second) - begin) * unit));
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
        axis(spacing_of(unit, pieces))
    }

    /// Tells whether all positions are one run of elements.
    pub(super) fn is_contiguous(&self) -> bool {
        self.spacing == Spacing::Even(1)
    }

    /// Calls `visit` with the places in the stream and in the storage of all positions.
    #[inline]
    pub(super) fn each(&self, mut visit: impl FnMut(usize, usize)) {
        match &self.spacing {
            Spacing::Even(step) => {
                for position in 0..self.count {
                    visit(position * self.stream, position * step);
                }
            }
            Spacing::Pieces { unit, pieces } => {
                for piece in pieces {
                    for number in 0..piece.length {
                        visit(
                            (piece.position + number) * self.stream,
                            piece.offset + number * unit,
                        );
                    }
                }
            }
        }
    }

    /// Returns this axis and the next faster one as one, if positions of the two are evenly apart together, both
    /// in the stream and in the storage.
    fn joined(&self, faster: &Axis) -> Option<Axis> {
        let Spacing::Even(step) = faster.spacing else { return None };
        let row = step * faster.count;
        let spacing = match &self.spacing {
            _ if self.stream != faster.stream * faster.count => return None,
            Spacing::Even(distance) if *distance == row => Spacing::Even(step),
            Spacing::Pieces { unit, pieces } if *unit == row => {
                let wider = |piece: &Piece| Piece {
                    position: piece.position * faster.count,
                    offset: piece.offset,
                    length: piece.length * faster.count,
                };
                Spacing::Pieces { unit: step, pieces: pieces.iter().map(wider).collect() }
            }
            _ => return None,
        };
        Some(Axis {
            base: self.base + faster.base,
            count: self.count * faster.count,
            stream: faster.stream,
            spacing,
        })
    }
}

/// Returns the spacing of pieces, which may be single positions evenly apart.
fn spacing_of(unit: usize, pieces: Vec<Piece>) -> Spacing {
    let [first, second, ..] = &pieces[..] else { return Spacing::Even(unit) };
    let step = second.offset - first.offset;
    let is_even = pieces.iter().all(|piece| piece.length == 1)
        && pieces.iter().all(|piece| piece.offset == piece.position * step);
    if is_even { Spacing::Even(step) } else { Spacing::Pieces { unit, pieces } }
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
