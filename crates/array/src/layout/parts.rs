//! Layouts made of a layout, and the parts of a rank's storage, for arrays that hold both.

use std::ops::Range;

use super::dim::{Dim, Part};
use super::{Distribution, Layout, LayoutError};

/// Reason why the margins at the edges have no elements on the opposite ones.
#[derive(Debug)]
pub(crate) enum WrapFault {
    /// The part at an edge is narrower than the margin.
    Narrow {
        /// The dimension.
        dim: usize,
    },
    /// The storages of all ranks cannot be addressed.
    Layout(LayoutError),
}

impl From<LayoutError> for WrapFault {
    fn from(error: LayoutError) -> WrapFault {
        WrapFault::Layout(error)
    }
}

impl Layout {
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

    /// Returns the width of the margin on each side of a dimension.
    #[cfg(feature = "ndarray")]
    pub(crate) fn margin_of(&self, dim: usize) -> usize {
        self.dims[dim].margin
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

    /// Returns, for each margin at an edge of the array, the layouts of the elements on the opposite edge and of the
    /// margin, as parts of the storages of all ranks; or the dimension in which the last part is narrower than the
    /// margin. A later one takes what the earlier ones have brought.
    pub(crate) fn wraps(&self) -> Result<Vec<(Layout, Layout)>, WrapFault> {
        // All storages behind each other are one array without margins.
        let stored: Vec<Vec<usize>> = (0..self.dims.len())
            .map(|number| {
                let ranks = self.grid_extent(number);
                (0..ranks).map(|at| self.dims[number].stored_count(ranks, at)).collect()
            })
            .collect();
        let extent = |number: usize| match self.dims[number].distribution {
            Distribution::Whole => stored[number][0],
            _ => stored[number].iter().sum(),
        };
        let shape: Vec<usize> = self.memory.iter().map(|number| extent(*number)).collect();
        let builder =
            self.memory.iter().fold(Layout::builder(&shape), |builder, number| {
                match self.dims[*number].distribution {
                    Distribution::Whole => builder.replicated(self.grid_extent(*number)),
                    _ => builder.blocks(&stored[*number]),
                }
            });
        let axes: Vec<usize> = self.dims.iter().map(|dim| dim.axis).collect();
        let all = builder.build()?.permuted(&axes)?;
        let mut wraps = Vec::new();
        for (number, Dim { margin, .. }) in
            self.dims.iter().enumerate().filter(|it| it.1.margin > 0)
        {
            let (margin, extent) = (*margin, extent(number));
            let mut parts = stored[number].iter().filter(|part| **part > 0);
            let (first, last) = (parts.clone().next(), parts.next_back());
            let Some((first, last)) = first.zip(last) else { continue };
            if first.min(last) - 2 * margin < margin {
                return Err(WrapFault::Narrow { dim: number });
            }
            let within = |range: Range<usize>| {
                let mut ranges: Vec<_> =
                    (0..self.dims.len()).map(|it| 0..all.dims[it].extent).collect();
                ranges[number] = range;
                all.clone().region(&ranges)
            };
            wraps.push((within(extent - 2 * margin..extent - margin)?, within(0..margin)?));
            wraps.push((within(margin..2 * margin)?, within(extent - margin..extent)?));
        }
        Ok(wraps)
    }
}
