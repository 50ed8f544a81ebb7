//! Errors of layouts.

use super::DIMS_MAX;

/// Why a layout cannot be.
///
/// Dimensions and axes of the grid count from 0.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LayoutError {
    /// The array has no dimension, or too many.
    #[error("an array has 1 to {DIMS_MAX} dimensions, not {dims}")]
    #[non_exhaustive]
    Dims {
        /// Number of dimensions of the shape.
        dims: usize,
    },
    /// The array has more elements than can be addressed.
    #[error("an array of {shape:?} elements, margins included, is too large to be addressed")]
    #[non_exhaustive]
    TooLarge {
        /// Extents of the array, with the margins on both sides.
        shape: Vec<usize>,
    },
    /// The layout distributes another number of dimensions than the array has.
    #[error("the layout has {layout} dimensions, the array {array}")]
    #[non_exhaustive]
    OtherDims {
        /// Number of dimensions of the layout.
        layout: usize,
        /// Number of dimensions of the array.
        array: usize,
    },
    /// The grid has another number of axes than the layout has dimensions.
    #[error("the grid of ranks has {axes} axes, the layout {dims} dimensions")]
    #[non_exhaustive]
    GridAxes {
        /// Number of axes of the grid.
        axes: usize,
        /// Number of dimensions of the layout.
        dims: usize,
    },
    /// An axis of the grid has no ranks.
    #[error("the grid of ranks has extent 0 in dimension {dim}")]
    #[non_exhaustive]
    ZeroGrid {
        /// The dimension.
        dim: usize,
    },
    /// The grid has more ranks than a group can have.
    #[error("a grid of {grid:?} has more than {} ranks", u32::MAX)]
    #[non_exhaustive]
    TooManyRanks {
        /// Extents of the grid.
        grid: Vec<usize>,
    },
    /// The ranks make no grid with these axes and the distributed dimensions.
    #[error("{ranks} ranks make no grid with the axes {grid:?} of blocks of given lengths")]
    #[non_exhaustive]
    NoGrid {
        /// The axes that blocks of given lengths have; 1 for the others.
        grid: Vec<usize>,
        /// Number of ranks.
        ranks: usize,
    },
    /// The blocks of a cyclic dimension have no elements.
    #[error("dimension {dim} is cyclic(0): a block has at least 1 element")]
    #[non_exhaustive]
    ZeroCycle {
        /// The dimension.
        dim: usize,
    },
    /// The list of blocks has another length than the grid has ranks there.
    #[error("dimension {dim} has {blocks} blocks over {ranks} ranks")]
    #[non_exhaustive]
    BlockCount {
        /// The dimension.
        dim: usize,
        /// Number of blocks.
        blocks: usize,
        /// Extent of the grid.
        ranks: usize,
    },
    /// The blocks of a list do not make up the array.
    #[error("the blocks of dimension {dim} have {sum} elements, the array {extent}")]
    #[non_exhaustive]
    BlockSum {
        /// The dimension.
        dim: usize,
        /// Sum of the blocks, which stops at `usize::MAX`.
        sum: usize,
        /// Extent of the array.
        extent: usize,
    },
    /// The notation of a layout cannot be read.
    #[error("position {position} of the layout: expected {expected}, found {found:?}")]
    #[non_exhaustive]
    Notation {
        /// Where, in bytes from 0.
        position: usize,
        /// The text that may stand there.
        expected: &'static str,
        /// The text that stands there; empty at the end.
        found: String,
    },
    /// A cyclic dimension cannot have a margin.
    #[error("dimension {dim} is cyclic, so it has no margin of {width}")]
    #[non_exhaustive]
    CyclicMargin {
        /// The dimension.
        dim: usize,
        /// Width of the margin.
        width: usize,
    },
    /// Margins, ranges or axes are given for another number of dimensions.
    #[error("{given} {what} for {dims} dimensions")]
    #[non_exhaustive]
    Count {
        /// The things given: `margins`, `ranges` or `axes`.
        what: &'static str,
        /// Number of those given.
        given: usize,
        /// Number of dimensions.
        dims: usize,
    },
    /// A region is not within the array, or ends before it begins.
    #[error("the region {start}..{end} of dimension {dim} is not within 0..{extent}")]
    #[non_exhaustive]
    Region {
        /// The dimension.
        dim: usize,
        /// First index of the region.
        start: usize,
        /// Index behind the last one.
        end: usize,
        /// Number of indices that there are.
        extent: usize,
    },
    /// The axes of a permutation do not name each dimension once.
    #[error("the axes {axes:?} do not name each dimension once")]
    #[non_exhaustive]
    Axes {
        /// The axes.
        axes: Vec<usize>,
    },
    /// The bytes of a peer do not describe a layout.
    #[error("word {position} of {words} does not belong to a layout")]
    #[non_exhaustive]
    Words {
        /// Number of the word, from 0.
        position: usize,
        /// Number of all words.
        words: usize,
    },
}
