//! Layouts: which rank has which elements of an array, and where.

mod builder;
mod dim;
pub(crate) mod error;
pub(crate) mod held;
mod notation;
pub(crate) mod parts;
mod picture;
mod places;
mod reshaped;
#[cfg(test)]
mod tests;
mod words;

pub use builder::LayoutBuilder;
use dim::Dim;
pub use dim::Distribution;
use error::LayoutError;
use held::Held;

/// Largest number of dimensions of an array.
pub(crate) const DIMS_MAX: usize = 6;

/// The distribution of an array over the ranks of a group: who has which elements, and where in its storage.
///
/// The ranks form a grid with an axis for each dimension, numbered with the last axis
/// fastest. Each dimension is distributed along its axis, as a [`Distribution`] says. A 4 x 6 array as
/// `(block,cyclic)@2x3`, with the rank that owns each element:
///
/// ```text
/// 0 1 2 0 1 2
/// 0 1 2 0 1 2
/// 3 4 5 3 4 5
/// 3 4 5 3 4 5
/// ```
///
/// A rank stores its part as one array of its own, with the shape [`local_shape`](Layout::local_shape), in C's
/// order: the last dimension is contiguous. [`permuted`](Layout::permuted) gives every other order,
/// [`margin`](Layout::margin) room for elements of the neighbours, [`region`](Layout::region) a part of the
/// array for transfers.
///
/// Coming from HPF or ScaLAPACK: `local_shape` is `numroc`, [`owner`](Layout::owner) `indxg2p`,
/// [`local`](Layout::local) `indxg2l`, [`global`](Layout::global) `indxl2g`; all count from 0.
///
/// ```
/// # use chunkcomm_array::{Layout, LayoutError};
/// let layout = Layout::builder(&[4, 6]).block(2).cyclic(1, 3).build()?;
/// assert_eq!(layout.ranks(), 6);
/// assert_eq!(layout.local_shape(5), [2, 2]);
/// assert_eq!(layout.owner(&[2, 5]), 5);
/// assert_eq!(layout.local(5, &[2, 5]), Some(1));
/// assert_eq!(layout.global(5, 1), Some(vec![2, 5]));
/// # Ok::<(), LayoutError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    /// In the order of the transfer.
    dims: Vec<Dim>,
    /// Number of ranks along each axis.
    grid: Vec<usize>,
    /// Dimensions from the slowest to the fastest one of the storage: `dims[memory[i]].axis` is `i`.
    memory: Vec<usize>,
}

impl Layout {
    /// Begins a layout of an array of that shape. With an extent of 0, nobody has an element.
    pub fn builder(shape: &[usize]) -> LayoutBuilder {
        LayoutBuilder::new(shape)
    }

    /// Returns the number of ranks of the grid.
    pub fn ranks(&self) -> usize {
        self.grid.iter().product()
    }

    /// Returns the shape of what a transfer carries: that of the region, if there is one, else of the array.
    pub fn shape(&self) -> Vec<usize> {
        self.dims.iter().map(|dim| dim.window.len()).collect()
    }

    /// Returns the shape of the whole array.
    pub fn global_shape(&self) -> Vec<usize> {
        self.dims.iter().map(|dim| dim.extent).collect()
    }

    /// Returns the shape of a rank's storage, margins included; ScaLAPACK's `numroc`.
    ///
    /// A rank that owns no index in a dimension has extent 0 there. A region changes nothing.
    ///
    /// # Panics
    ///
    /// If the grid has no such rank.
    #[doc(alias = "numroc")]
    pub fn local_shape(&self, rank: usize) -> Vec<usize> {
        let coordinates = self.coordinates(rank);
        let counts = self.dims.iter().zip(coordinates);
        counts.map(|(dim, at)| dim.stored_count(self.grid[dim.axis], at)).collect()
    }

    /// Returns the number of elements of a rank's storage, margins included.
    ///
    /// # Panics
    ///
    /// If the grid has no such rank.
    pub fn local_len(&self, rank: usize) -> usize {
        self.local_shape(rank).iter().product()
    }

    /// Returns the distance, in elements, of neighbours along each dimension in a rank's storage.
    ///
    /// # Panics
    ///
    /// If the grid has no such rank.
    pub fn strides(&self, rank: usize) -> Vec<usize> {
        let shape = self.local_shape(rank);
        let mut strides = vec![1; shape.len()];
        let mut stride = 1;
        for &dim in self.memory.iter().rev() {
            strides[dim] = stride;
            stride *= shape[dim];
        }
        strides
    }

    /// Returns how each dimension is distributed.
    pub fn distributions(&self) -> Vec<Distribution> {
        self.dims.iter().map(|dim| dim.distribution.clone()).collect()
    }

    /// Returns the number of ranks along the axis of each dimension.
    pub fn grid(&self) -> Vec<usize> {
        (0..self.dims.len()).map(|dim| self.grid_extent(dim)).collect()
    }

    /// Returns the coordinates of a rank in the grid, for each dimension in the order of the transfer.
    pub(crate) fn coordinates(&self, rank: usize) -> Vec<usize> {
        let ranks = self.ranks();
        assert!(rank < ranks, "rank {rank} of a layout of {ranks} ranks");
        let mut rest = rank;
        let mut coordinates = vec![0; self.dims.len()];
        for (&dim, ranks) in self.memory.iter().zip(&self.grid).rev() {
            coordinates[dim] = rest % ranks;
            rest /= ranks;
        }
        coordinates
    }

    /// Returns the rank at coordinates in the order of [`coordinates`](Layout::coordinates).
    pub(crate) fn rank_of(&self, coordinates: &[usize]) -> usize {
        let axes = self.memory.iter().zip(&self.grid);
        axes.fold(0, |rank, (&dim, ranks)| rank * ranks + coordinates[dim])
    }

    /// Returns the number of ranks along the axis of a dimension.
    pub(crate) fn grid_extent(&self, dim: usize) -> usize {
        self.grid[self.dims[dim].axis]
    }

    /// Whether each rank has the same coordinates in both.
    pub(crate) fn has_grid_of(&self, other: &Layout) -> bool {
        self.grid == other.grid && self.memory == other.memory
    }

    /// Returns how many coordinates of a dimension have the same indices.
    pub(crate) fn replicas(&self, dim: usize) -> usize {
        match self.dims[dim].distribution {
            Distribution::Whole => self.grid_extent(dim),
            Distribution::Block | Distribution::Cyclic(_) | Distribution::Blocks(_) => 1,
        }
    }

    /// Returns the indices of a dimension that a coordinate owns.
    pub(crate) fn owned(&self, dim: usize, coordinate: usize) -> Held {
        self.dims[dim].owned(self.grid_extent(dim), coordinate)
    }

    /// Returns the indices of a dimension that a coordinate stores: what it owns and, of its margins, what lies
    /// within the array.
    pub(crate) fn stored(&self, dim: usize, coordinate: usize) -> Held {
        self.dims[dim].stored(self.grid_extent(dim), coordinate)
    }

    /// Returns the dimensions from the slowest to the fastest one of the storage.
    pub(crate) fn memory(&self) -> &[usize] {
        &self.memory
    }
}
