//! One dimension of a layout: which coordinate of the grid has which indices.

use std::ops::Range;

use super::held::Held;

/// How the indices of one dimension are distributed over the ranks along one axis of the grid.
///
/// Eight indices over three ranks:
///
/// ```text
///                      0 1 2 3 4 5 6 7
/// Block                0 0 0 1 1 1 2 2
/// Cyclic(1)            0 1 2 0 1 2 0 1
/// Cyclic(2)            0 0 1 1 2 2 0 0
/// Blocks([1, 5, 2])    0 1 1 1 1 1 2 2
/// Whole                all three ranks have all
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Distribution {
    /// Every rank has all indices (`*`). Over more than one rank the dimension is replicated.
    Whole,
    /// Blocks of `ceil(n / p)` indices, as in HPF: the last ranks may have less, or nothing.
    Block,
    /// Blocks of that many indices are dealt out in turn. `cyclic` in the notation is `Cyclic(1)`.
    Cyclic(usize),
    /// A block of a length of its own for each rank; some may be 0.
    Blocks(Vec<usize>),
}

/// One dimension, in the order of the transfer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Dim {
    /// Number of indices of the whole array.
    pub(super) extent: usize,
    /// Those which a transfer carries.
    pub(super) window: Range<usize>,
    pub(super) distribution: Distribution,
    /// Where the blocks of `Blocks` begin; else empty.
    starts: Vec<usize>,
    /// Number of the axis of the grid.
    pub(super) axis: usize,
    /// Width of the margin on each side.
    pub(super) margin: usize,
}

/// The indices of a coordinate, in those of the whole array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// All of a range.
    Interval(Range<usize>),
    /// Blocks that begin at `first + i * period`, up to the end of the array.
    Cycle { first: usize, block: usize, period: usize },
}

impl Dim {
    /// Returns a dimension without margin, of which all is carried.
    pub(super) fn new(extent: usize, distribution: Distribution, axis: usize) -> Dim {
        let starts = match &distribution {
            Distribution::Blocks(lengths) => starts_of(lengths),
            Distribution::Whole | Distribution::Block | Distribution::Cyclic(_) => Vec::new(),
        };
        Dim { extent, window: 0..extent, distribution, starts, axis, margin: 0 }
    }

    /// Returns what a coordinate owns, of `ranks` along the axis.
    pub(super) fn part(&self, ranks: usize, coordinate: usize) -> Part {
        let extent = self.extent;
        match &self.distribution {
            Distribution::Whole => Part::Interval(0..extent),
            Distribution::Block => nth_block(extent.div_ceil(ranks), coordinate, extent),
            Distribution::Blocks(lengths) => {
                let start = self.starts[coordinate];
                Part::Interval(start..start + lengths[coordinate])
            }
            Distribution::Cyclic(_) if ranks == 1 => Part::Interval(0..extent),
            Distribution::Cyclic(block) => {
                let block = (*block).min(extent);
                match block.checked_mul(ranks) {
                    Some(period) if period < extent => {
                        Part::Cycle { first: coordinate * block, block, period }
                    }
                    // Nobody has a second block.
                    _ => nth_block(block, coordinate, extent),
                }
            }
        }
    }

    /// Returns the lowest coordinate that owns an index.
    pub(super) fn coordinate_of(&self, ranks: usize, index: usize) -> usize {
        match &self.distribution {
            Distribution::Whole => 0,
            Distribution::Block => index / self.extent.div_ceil(ranks),
            Distribution::Cyclic(block) => index / block % ranks,
            // Empty blocks begin where the next one does: the last one is meant.
            Distribution::Blocks(_) => self.starts.partition_point(|&start| start <= index) - 1,
        }
    }

    /// Returns the number of indices in the storage of a coordinate, margins included.
    pub(super) fn stored_count(&self, ranks: usize, coordinate: usize) -> usize {
        match self.part(ranks, coordinate).count(self.extent) {
            0 => 0,
            owned => owned + 2 * self.margin,
        }
    }

    /// Returns the indices of the transfer that a coordinate owns, and where they are stored.
    pub(super) fn owned(&self, ranks: usize, coordinate: usize) -> Held {
        match self.part(ranks, coordinate) {
            Part::Interval(range) => self.held_interval(range.clone(), &range),
            Part::Cycle { first, block, period } => self.held_cycle(first, block, period),
        }
    }

    /// Returns the indices of the transfer that a coordinate stores, those in its margins included.
    pub(super) fn stored(&self, ranks: usize, coordinate: usize) -> Held {
        match self.part(ranks, coordinate) {
            Part::Interval(range) if !range.is_empty() => {
                let start = range.start.saturating_sub(self.margin);
                self.held_interval(start..range.end + self.margin, &range)
            }
            Part::Interval(range) => self.held_interval(range.clone(), &range),
            Part::Cycle { first, block, period } => self.held_cycle(first, block, period),
        }
    }

    /// Returns `range`, which is stored by the owner of `owned`, in indices of the transfer, and cut to it.
    fn held_interval(&self, range: Range<usize>, owned: &Range<usize>) -> Held {
        let first = signed(range.start) - signed(self.window.start);
        let end = signed(range.end) - signed(self.window.start);
        let local = signed(range.start) - signed(owned.start) + signed(self.margin);
        let bounds = first.max(0)..end.min(signed(self.window.len()));
        let bounds = if bounds.is_empty() { 0..0 } else { bounds };
        Held { first, block: (end - first).max(1), period: i64::MAX, bounds, local }
    }

    /// Returns the blocks of a cycle in indices of the transfer, from the first one that reaches into it.
    fn held_cycle(&self, first: usize, block: usize, period: usize) -> Held {
        let before = self.window.start.checked_sub(first + block).map_or(0, |gap| gap / period + 1);
        let first = signed(first + before * period) - signed(self.window.start);
        let extent = signed(self.window.len());
        let bounds = if first < extent { 0..extent } else { 0..0 };
        let local = signed(before * block);
        Held { first, block: signed(block), period: signed(period), bounds, local }
    }
}

impl Part {
    /// Returns the number of indices, of an array of that extent.
    pub(super) fn count(&self, extent: usize) -> usize {
        match self {
            Part::Interval(range) => range.len(),
            Part::Cycle { first, block, period } => {
                let rest = (extent % period).saturating_sub(*first).min(*block);
                extent / period * block + rest
            }
        }
    }

    /// Returns the number of owned indices before this one, if it is owned.
    pub(super) fn local_of(&self, index: usize) -> Option<usize> {
        match self {
            Part::Interval(range) => range.contains(&index).then(|| index - range.start),
            Part::Cycle { first, block, period } => {
                let offset = (index % period).checked_sub(*first)?;
                (offset < *block).then(|| index / period * block + offset)
            }
        }
    }

    /// Returns the index at a place of the storage, of which `margin` come before what is owned; `None` if it
    /// is not in an array of that extent.
    pub(super) fn global_of(&self, place: usize, margin: usize, extent: usize) -> Option<usize> {
        let index = match self {
            Part::Interval(range) => (range.start + place).checked_sub(margin)?,
            Part::Cycle { first, block, period } => place / block * period + first + place % block,
        };
        (index < extent).then_some(index)
    }
}

/// Returns the block of that number, cut to the array.
fn nth_block(block: usize, number: usize, extent: usize) -> Part {
    let start = block.saturating_mul(number).min(extent);
    Part::Interval(start..start.saturating_add(block).min(extent))
}

fn starts_of(lengths: &[usize]) -> Vec<usize> {
    let before = lengths.iter().scan(0, |next: &mut usize, &length| {
        let start = *next;
        *next = start.saturating_add(length);
        Some(start)
    });
    before.collect()
}

/// Extents of layouts are far below the largest `i64`.
fn signed(index: usize) -> i64 {
    i64::try_from(index).expect("an index of an array that can be addressed")
}
