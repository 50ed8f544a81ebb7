//! Layouts, dimension by dimension.

use super::dim::Dim;
use super::{DIMS_MAX, Distribution, Layout, LayoutError};

/// Describes a layout dimension by dimension, from the first one on.
///
/// ```
/// # use chunkcomm_array::Layout;
/// let layout = Layout::builder(&[100, 80]).block(2).cyclic(4, 3).build()?;
/// assert_eq!(layout, Layout::parse("(block,cyclic(4))@2x3", &[100, 80])?);
/// # Ok::<(), chunkcomm_array::LayoutError>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until `build`"]
pub struct LayoutBuilder {
    shape: Vec<usize>,
    dims: Vec<(Distribution, usize)>,
}

impl LayoutBuilder {
    pub(super) fn new(shape: &[usize]) -> LayoutBuilder {
        LayoutBuilder { shape: shape.to_vec(), dims: Vec::new() }
    }

    /// Distributes the next dimension in equal blocks over `ranks` ranks.
    pub fn block(self, ranks: usize) -> LayoutBuilder {
        self.dimension(Distribution::Block, ranks)
    }

    /// Deals out blocks of `block` indices of the next dimension to `ranks` ranks in turn.
    pub fn cyclic(self, block: usize, ranks: usize) -> LayoutBuilder {
        self.dimension(Distribution::Cyclic(block), ranks)
    }

    /// Distributes the next dimension over as many ranks as there are lengths.
    pub fn blocks(self, lengths: &[usize]) -> LayoutBuilder {
        self.dimension(Distribution::Blocks(lengths.to_vec()), lengths.len())
    }

    /// Leaves the next dimension whole, over one rank.
    pub fn whole(self) -> LayoutBuilder {
        self.replicated(1)
    }

    /// Gives all of the next dimension to each of `ranks` ranks.
    pub fn replicated(self, ranks: usize) -> LayoutBuilder {
        self.dimension(Distribution::Whole, ranks)
    }

    /// Distributes the next dimension in any way over `ranks` ranks.
    pub fn dimension(mut self, distribution: Distribution, ranks: usize) -> LayoutBuilder {
        self.dims.push((distribution, ranks));
        self
    }

    /// Returns the layout.
    ///
    /// # Errors
    ///
    /// [`LayoutError`] names the first thing that cannot be: more than six dimensions, a grid without ranks, blocks
    /// that do not make up the array.
    pub fn build(self) -> Result<Layout, LayoutError> {
        let dims = self.shape.len();
        if dims == 0 || dims > DIMS_MAX {
            return Err(LayoutError::Dims { dims });
        }
        if self.dims.len() != dims {
            return Err(LayoutError::OtherDims { layout: self.dims.len(), array: dims });
        }
        let grid: Vec<usize> = self.dims.iter().map(|(_, ranks)| *ranks).collect();
        check_grid(&grid)?;
        check_size(self.shape.clone())?;
        let distributions = self.dims.into_iter().map(|(distribution, _)| distribution);
        let mut built = Vec::with_capacity(dims);
        for (dim, distribution) in distributions.enumerate() {
            check_distribution(dim, &distribution, self.shape[dim], grid[dim])?;
            built.push(Dim::new(self.shape[dim], distribution, dim));
        }
        Ok(Layout { dims: built, grid, memory: (0..dims).collect() })
    }
}

/// Checks that the elements, of up to 16 bytes each, can be addressed; in an array without elements, the others of
/// its extents.
pub(super) fn check_size(shape: Vec<usize>) -> Result<(), LayoutError> {
    let elements_max = isize::MAX.unsigned_abs() / 16;
    let mut extents = shape.iter().map(|extent| *extent.max(&1));
    match extents.try_fold(1_usize, usize::checked_mul) {
        Some(elements) if elements <= elements_max => Ok(()),
        _ => Err(LayoutError::TooLarge { shape }),
    }
}

fn check_grid(grid: &[usize]) -> Result<(), LayoutError> {
    if let Some(dim) = grid.iter().position(|&ranks| ranks == 0) {
        return Err(LayoutError::ZeroGrid { dim });
    }
    let ranks = grid.iter().try_fold(1_usize, |product, &ranks| product.checked_mul(ranks));
    match ranks.map(u32::try_from) {
        Some(Ok(_)) => Ok(()),
        _ => Err(LayoutError::TooManyRanks { grid: grid.to_vec() }),
    }
}

fn check_distribution(
    dim: usize,
    distribution: &Distribution,
    extent: usize,
    ranks: usize,
) -> Result<(), LayoutError> {
    match distribution {
        Distribution::Cyclic(0) => Err(LayoutError::ZeroCycle { dim }),
        Distribution::Blocks(lengths) if lengths.len() != ranks => {
            Err(LayoutError::BlockCount { dim, blocks: lengths.len(), ranks })
        }
        Distribution::Blocks(lengths) => {
            let sum = lengths.iter().fold(0_usize, |sum, &length| sum.saturating_add(length));
            let is_all = sum == extent;
            is_all.then_some(()).ok_or(LayoutError::BlockSum { dim, sum, extent })
        }
        Distribution::Whole | Distribution::Block | Distribution::Cyclic(_) => Ok(()),
    }
}
