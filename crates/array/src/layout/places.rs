//! From an element of the array to its rank and place there, and back.

use std::ops::Range;

use super::dim::{Dim, Part};
use super::{Distribution, Layout, LayoutError};

impl Layout {
    /// Returns the lowest rank that owns an element; ScaLAPACK's `indxg2p`.
    ///
    /// `index` is that of the whole array, also if there is a region. Of a replicated dimension the first
    /// replica is named.
    ///
    /// # Panics
    ///
    /// If the array has no such element.
    #[doc(alias = "indxg2p")]
    pub fn owner(&self, index: &[usize]) -> usize {
        let shape = self.global_shape();
        assert!(self.has(index), "element {index:?} of an array of shape {shape:?}");
        let each = self.dims.iter().zip(index);
        let coordinates: Vec<usize> =
            each.map(|(dim, &index)| dim.coordinate_of(self.grid[dim.axis], index)).collect();
        self.rank_of(&coordinates)
    }

    /// Returns the place, in the storage of a rank, of an element that it owns; ScaLAPACK's `indxg2l`.
    ///
    /// `index` is that of the whole array. `None`: the rank does not own it, though a margin may have it.
    ///
    /// # Panics
    ///
    /// If the grid has no such rank.
    #[doc(alias = "indxg2l")]
    pub fn local(&self, rank: usize, index: &[usize]) -> Option<usize> {
        let coordinates = self.coordinates(rank);
        if !self.has(index) {
            return None;
        }
        let strides = self.strides(rank);
        let mut offset = 0;
        for (number, dim) in self.dims.iter().enumerate() {
            let part = dim.part(self.grid[dim.axis], coordinates[number]);
            offset += (part.local_of(index[number])? + dim.margin) * strides[number];
        }
        Some(offset)
    }

    /// Returns the index, in the whole array, of an element of a rank's storage; ScaLAPACK's `indxl2g`.
    ///
    /// An element of a margin has the index of its owner's. `None`: the storage ends before, or this is
    /// in a margin outside of the array.
    ///
    /// # Panics
    ///
    /// If the grid has no such rank.
    #[doc(alias = "indxl2g")]
    pub fn global(&self, rank: usize, offset: usize) -> Option<Vec<usize>> {
        let (shape, coordinates) = (self.local_shape(rank), self.coordinates(rank));
        if offset >= shape.iter().product() {
            return None;
        }
        let mut rest = offset;
        let mut index = vec![0; shape.len()];
        for &number in self.memory.iter().rev() {
            let dim = &self.dims[number];
            let part = dim.part(self.grid[dim.axis], coordinates[number]);
            index[number] = part.global_of(rest % shape[number], dim.margin, dim.extent)?;
            rest /= shape[number];
        }
        Some(index)
    }

    /// Returns the elements of a rank's storage that it owns, in contiguous runs by their place.
    pub(crate) fn owned_runs(&self, rank: usize) -> impl Iterator<Item = Range<usize>> + use<> {
        let shape = self.local_shape(rank);
        let (mut run, mut start, mut stride) = (1, 0, 1);
        // Number and distance of the runs along each slower dimension, the fastest first.
        let mut slower: Vec<(usize, usize)> = Vec::new();
        let mut is_contiguous = true;
        for &number in self.memory.iter().rev() {
            let margin = self.dims[number].margin;
            let owned = shape[number].saturating_sub(2 * margin);
            if is_contiguous {
                run = owned * stride;
            } else {
                slower.push((owned, stride));
            }
            is_contiguous &= margin == 0;
            start += margin * stride;
            stride *= shape[number];
        }
        let runs = slower.iter().map(|it| it.0).product::<usize>() * usize::from(run > 0);
        (0..runs).map(move |mut number| {
            let mut at = start;
            for (count, stride) in &slower {
                at += number % count * stride;
                number /= count;
            }
            at..at + run
        })
    }

    /// Returns, for each place along a dimension of a rank's storage, the index in the whole array if the rank owns
    /// it.
    pub(crate) fn indices(&self, rank: usize, number: usize) -> Vec<Option<usize>> {
        let (dim, stored) = (&self.dims[number], self.local_shape(rank)[number]);
        let part = dim.part(self.grid[dim.axis], self.coordinates(rank)[number]);
        let owned = dim.margin..stored.saturating_sub(dim.margin);
        let index = |place: usize| match owned.contains(&place) {
            true => part.global_of(place, dim.margin, dim.extent),
            false => None,
        };
        (0..stored).map(index).collect()
    }

    /// Returns the layout with margins of at least this width along each distributed dimension; none if it has them.
    pub(crate) fn widened(&self, width: usize) -> Result<Option<Layout>, LayoutError> {
        let wide = |dim: &Dim| match dim.distribution {
            Distribution::Whole => dim.margin,
            _ => dim.margin.max(width),
        };
        let widths: Vec<usize> = self.dims.iter().map(wide).collect();
        let is_wide = self.dims.iter().zip(&widths).all(|(dim, width)| dim.margin == *width);
        if is_wide { Ok(None) } else { self.clone().margins(&widths).map(Some) }
    }

    /// Returns the layout in which one rank of these has the whole array.
    pub(crate) fn at_one(&self, root: usize, ranks: usize) -> Result<Layout, LayoutError> {
        let shape = self.global_shape();
        let mut lengths = vec![0; ranks];
        lengths[root] = shape[0];
        let rest =
            (1..shape.len()).fold(Layout::builder(&shape).blocks(&lengths), |it, _| it.whole());
        rest.build()
    }

    /// Returns the layout in which these ranks have blocks of the first dimension.
    pub(crate) fn in_blocks(&self, ranks: usize) -> Result<Layout, LayoutError> {
        let shape = self.global_shape();
        (1..shape.len()).fold(Layout::builder(&shape).block(ranks), |it, _| it.whole()).build()
    }

    /// Returns the largest number of neighbours along the last dimension that a rank owns.
    pub(crate) fn run(&self) -> usize {
        let Some((dim, number)) = self.dims.last().zip(self.dims.len().checked_sub(1)) else {
            return 0;
        };
        match (dim.part(self.grid_extent(number), 0), &dim.distribution) {
            (Part::Cycle { block, .. }, _) => block,
            (Part::Interval(_), Distribution::Blocks(lengths)) => {
                lengths.iter().copied().max().unwrap_or(0)
            }
            (Part::Interval(range), _) => range.len(),
        }
    }

    /// Returns the places of a rank's own elements.
    pub(crate) fn elements(&self, rank: usize) -> impl Iterator<Item = usize> + use<> {
        self.owned_runs(rank).flatten()
    }

    /// Whether no rank before this one owns the same elements.
    pub(crate) fn is_first_replica(&self, rank: usize) -> bool {
        let mut coordinates = self.coordinates(rank).into_iter().enumerate();
        coordinates.all(|(dim, coordinate)| coordinate == 0 || self.replicas(dim) == 1)
    }

    /// Returns the first dimension in which two layouts of arrays of as many dimensions differ.
    pub(crate) fn first_difference(&self, other: &Layout) -> Option<usize> {
        let same = |dim: usize| {
            self.dims[dim] == other.dims[dim] && self.grid_extent(dim) == other.grid_extent(dim)
        };
        (self.dims.len() == other.dims.len())
            .then(|| (0..self.dims.len()).find(|dim| !same(*dim)))?
    }

    fn has(&self, index: &[usize]) -> bool {
        let mut each = self.dims.iter().zip(index);
        index.len() == self.dims.len() && each.all(|(dim, &index)| index < dim.extent)
    }
}
