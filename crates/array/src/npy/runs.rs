//! Pure: the elements that a rank owns, in the order of a file.

use std::ops::Range;

use crate::layout::Layout;
use crate::layout::held::Held;

/// Elements that are neighbours in the file, and equally far from each other in the storage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// Index of the first element in the file.
    pub(super) file: usize,
    /// Index of the first element in the storage.
    pub(super) storage: usize,
    /// Distance of neighbours in the storage.
    pub(super) stride: usize,
    /// Number of elements.
    pub(super) count: usize,
}

impl Run {
    /// Index of the element behind the last one in the file.
    fn end(&self) -> usize {
        self.file + self.count
    }

    /// Whether the run is one piece of the storage, too.
    pub(super) fn is_contiguous(&self) -> bool {
        self.stride == 1 || self.count == 1
    }

    /// Makes the run longer by the one behind it, if both together are one piece in file and storage.
    fn takes(&mut self, next: &Run) -> bool {
        let touch = self.end() == next.file && self.storage + self.count == next.storage;
        let is_one = touch && self.is_contiguous() && next.is_contiguous();
        if is_one {
            (self.stride, self.count) = (1, self.count + next.count);
        }
        is_one
    }
}

/// Elements that one access to the file reads or writes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Access {
    /// Most elements between two runs of one access.
    pub(super) gap: usize,
    /// Most elements of an access that is no single piece of the storage.
    pub(super) most: usize,
}

/// The runs of an access, in the order of the file.
#[derive(Debug)]
pub(super) struct Batch<'a>(&'a [Run]);

impl Batch<'_> {
    /// Returns the runs.
    pub(super) fn runs(&self) -> &[Run] {
        self.0
    }

    /// Returns the elements of the file from the first run to the last one.
    pub(super) fn span(&self) -> Range<usize> {
        match self.0 {
            [] => 0..0,
            [first, ..] => first.file..self.0[self.0.len() - 1].end(),
        }
    }

    /// Returns the place in the storage, where that is a single piece.
    pub(super) fn piece(&self) -> Option<Range<usize>> {
        match self.0 {
            [run] if run.is_contiguous() => Some(run.storage..run.storage + run.count),
            _ => None,
        }
    }
}

/// Calls `carry` with all that a rank owns, one access after the other in the order of the file.
pub(super) fn each_batch<E>(
    layout: &Layout,
    rank: usize,
    fortran_order: bool,
    access: Access,
    mut carry: impl FnMut(&Batch<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let mut runs: Vec<Run> = Vec::new();
    Walk::of(layout, rank, fortran_order).each(&mut |run| {
        for run in pieces(&run, access.most) {
            let fits = run.end() - Batch(&runs).span().start <= access.most;
            let is_one = runs.len() == 1;
            if let Some(last) = runs.last_mut() {
                // A single piece of the storage may be of any length.
                if (fits || is_one) && last.takes(&run) {
                    continue;
                }
                if run.file - last.end() > access.gap || !fits {
                    carry(&Batch(&runs))?;
                    runs.clear();
                }
            }
            runs.push(run);
        }
        Ok(())
    })?;
    if runs.is_empty() { Ok(()) } else { carry(&Batch(&runs)) }
}

/// Cuts a run that is not one piece of the storage, so that none is longer than an access.
fn pieces(run: &Run, most: usize) -> impl Iterator<Item = Run> {
    let step = if run.is_contiguous() { run.count } else { most.max(1) };
    (0..run.count).step_by(step.max(1)).map(move |at| Run {
        file: run.file + at,
        storage: run.storage + at * run.stride,
        stride: run.stride,
        count: step.min(run.count - at),
    })
}

/// One dimension of a walk.
struct Way {
    held: Held,
    /// Distance of neighbours in the file, in elements.
    file: usize,
    /// Distance of neighbours in the storage, in elements.
    storage: usize,
}

/// The dimensions of an array, from the slowest to the fastest one of a file.
struct Walk(Vec<Way>);

impl Walk {
    fn of(layout: &Layout, rank: usize, fortran_order: bool) -> Walk {
        let (shape, strides) = (layout.shape(), layout.strides(rank));
        let coordinates = layout.coordinates(rank);
        let mut order: Vec<usize> = (0..shape.len()).collect();
        if fortran_order {
            order.reverse();
        }
        let mut stride = 1;
        let mut ways: Vec<Way> = Vec::new();
        for dim in order.into_iter().rev() {
            let held = layout.owned(dim, coordinates[dim]);
            ways.push(Way { held, file: stride, storage: strides[dim] });
            stride *= shape[dim];
        }
        ways.reverse();
        Walk(ways)
    }

    fn each<E>(&self, visit: &mut impl FnMut(Run) -> Result<(), E>) -> Result<(), E> {
        // Any number of rows may have no element.
        if self.0.iter().any(|way| blocks(&way.held).next().is_none()) {
            return Ok(());
        }
        walk(&self.0, 0, 0, visit)
    }
}

/// Visits the runs of the dimensions that are left, from these elements of file and storage on.
fn walk<E>(
    ways: &[Way],
    file: usize,
    storage: usize,
    visit: &mut impl FnMut(Run) -> Result<(), E>,
) -> Result<(), E> {
    let Some((way, rest)) = ways.split_first() else { return Ok(()) };
    for (indices, local) in blocks(&way.held) {
        if rest.is_empty() {
            visit(Run {
                file: file + indices.start * way.file,
                storage: storage + local * way.storage,
                stride: way.storage,
                count: indices.len(),
            })?;
            continue;
        }
        for (local, index) in (local..).zip(indices) {
            walk(rest, file + index * way.file, storage + local * way.storage, visit)?;
        }
    }
    Ok(())
}

/// Returns the indices of each block that a rank has, and the place of the first in its storage.
fn blocks(held: &Held) -> impl Iterator<Item = (Range<usize>, usize)> {
    let Held { first, block, period, bounds, local } = held.clone();
    let skipped = (bounds.start - first).max(0) / period;
    let starts = std::iter::successors(Some((skipped, first + skipped * period)), move |at| {
        Some((at.0 + 1, at.1.checked_add(period)?))
    });
    let end = bounds.end;
    starts.take_while(move |(_, start)| *start < end).filter_map(move |(number, start)| {
        let (from, to) = (start.max(bounds.start), (start + block).min(bounds.end));
        let local = local + number * block + (from - start);
        // Within bounds nothing is below 0.
        (from < to).then_some((from as usize..to as usize, local as usize))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A layout with its own distribution, margin or region in each dimension, which are numbers to choose by.
    fn layout(dims: &[(usize, usize, usize, usize)]) -> Layout {
        let shape: Vec<usize> = dims.iter().map(|dim| dim.0).collect();
        let mut builder = Layout::builder(&shape);
        for &(extent, kind, ranks, k) in dims {
            builder = match kind {
                0 => builder.whole(),
                1 => builder.block(ranks),
                2 => builder.cyclic(k, ranks),
                _ => builder.blocks(&[k.min(extent), 0, extent - k.min(extent)]),
            };
        }
        builder.build().unwrap()
    }

    fn dims() -> impl Strategy<Value = Vec<(usize, usize, usize, usize)>> {
        prop::collection::vec((0..9_usize, 0..4_usize, 1..4_usize, 1..4_usize), 1..4)
    }

    /// Indices of an array in the order of a file.
    fn indices(shape: &[usize], fortran_order: bool) -> Vec<Vec<usize>> {
        let mut all = vec![vec![]];
        let mut order: Vec<usize> = shape.to_vec();
        if fortran_order {
            order.reverse();
        }
        for extent in order {
            all = all
                .iter()
                .flat_map(|front| (0..extent).map(move |it| [&front[..], &[it]].concat()))
                .collect();
        }
        if fortran_order {
            all.iter_mut().for_each(|index| index.reverse());
        }
        all
    }

    proptest! {
        #[test]
        fn all_that_a_rank_owns_is_accessed_once_in_order(
            dims in dims(),
            fortran_order: bool,
            permuted: bool,
            cut: bool,
            gap in 0..6_usize,
            most in 1..9_usize,
        ) {
            let mut layout = layout(&dims);
            if permuted {
                let axes: Vec<usize> = (0..dims.len()).map(|axis| (axis + 1) % dims.len()).collect();
                layout = layout.permuted(&axes).unwrap();
            }
            let starts: Vec<usize> = layout.shape().iter().map(|it| if cut { it / 3 } else { 0 }).collect();
            if cut {
                let region: Vec<_> = layout.shape().iter().map(|it| it / 3..it - it / 4).collect();
                layout = layout.region(&region).unwrap();
            }
            for rank in 0..layout.ranks() {
                let mut found = Vec::new();
                each_batch(&layout, rank, fortran_order, Access { gap, most }, |batch| {
                    let span = batch.span();
                    assert!(batch.piece().is_some() || span.len() <= most, "{batch:?}");
                    let mut last = span.start;
                    for run in batch.runs() {
                        assert!(run.file >= last && run.file - last <= gap, "{batch:?}");
                        last = run.end();
                        let at = |step| (run.file + step, run.storage + step * run.stride);
                        found.extend((0..run.count).map(at));
                    }
                    Ok::<(), ()>(())
                })
                .unwrap();
                let expected: Vec<(usize, usize)> = indices(&layout.shape(), fortran_order)
                    .iter()
                    .enumerate()
                    .filter_map(|(at, index)| {
                        let index: Vec<usize> = index.iter().zip(&starts).map(|(it, start)| it + start).collect();
                        Some((at, layout.local(rank, &index)?))
                    })
                    .collect();
                prop_assert_eq!(found, expected, "rank {} of {:?}", rank, layout);
            }
        }
    }

    #[test]
    fn rows_without_elements_are_not_walked() {
        let layout = Layout::builder(&[1 << 50, 0]).whole().whole().build().unwrap();
        let none = |batch: &Batch<'_>| Err(format!("{batch:?}"));
        each_batch(&layout, 0, false, Access { gap: 0, most: 4 }, none).unwrap();
    }

    #[test]
    fn whole_rows_are_one_piece() {
        let layout = Layout::builder(&[8, 5]).block(2).whole().build().unwrap();
        let mut pieces = Vec::new();
        each_batch(&layout, 1, false, Access { gap: 0, most: 4 }, |batch| {
            pieces.push((batch.span(), batch.piece()));
            Ok::<(), ()>(())
        })
        .unwrap();
        assert_eq!(pieces, [(20..40, Some(0..20))]);
    }
}
