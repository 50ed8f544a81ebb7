//! Layouts with margins, regions and other orders of dimensions.

use std::ops::Range;

use super::builder::check_size;
use super::{DIMS_MAX, Distribution, Layout, LayoutError};

impl Layout {
    /// Makes the storage of each rank wider by `width` elements on each side of every dimension.
    ///
    /// A margin (*halo*, *ghost cells*) has room for elements that other ranks own. It is there also at the
    /// edges of the array, where nothing belongs into it. A receiver gets the elements of its margins, a sender
    /// sends only what it owns. A margin may be wider than the neighbour's part.
    ///
    /// ```
    /// # use chunkcomm_array::{Layout, LayoutError};
    /// let layout = Layout::builder(&[8, 8]).block(2).whole().build()?.margins(&[1, 0])?;
    /// assert_eq!(layout.local_shape(1), [6, 8]);
    /// assert_eq!(layout.global(1, 0), Some(vec![3, 0])); // in the margin: rank 0 owns it
    /// assert_eq!(layout.local(1, &[4, 0]), Some(8));
    /// # Ok::<(), LayoutError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`LayoutError`] if a dimension is cyclic, or the storage could not be addressed.
    pub fn margin(self, width: usize) -> Result<Layout, LayoutError> {
        let widths = [width; DIMS_MAX];
        let dims = self.dims.len();
        self.margins(&widths[..dims])
    }

    /// Makes the storage wider, as [`margin`](Layout::margin) does, by a width for each dimension.
    ///
    /// It replaces the margins that there were.
    ///
    /// # Errors
    ///
    /// As `margin`; or there are more or fewer widths than dimensions.
    pub fn margins(mut self, widths: &[usize]) -> Result<Layout, LayoutError> {
        self.check_count("margins", widths.len())?;
        for (number, (dim, &width)) in self.dims.iter_mut().zip(widths).enumerate() {
            if width > 0 && matches!(dim.distribution, Distribution::Cyclic(_)) {
                return Err(LayoutError::CyclicMargin { dim: number, width });
            }
            dim.margin = width;
        }
        let each =
            self.dims.iter().map(|dim| dim.extent.saturating_add(dim.margin.saturating_mul(2)));
        check_size(each.collect())?;
        Ok(self)
    }

    /// Restricts transfers to a box of the array.
    ///
    /// Storage and owners stay as they are. [`shape`](Layout::shape) becomes that of the box, which
    /// the other side's shape has to match. The ranges of a second region count from the start of the first.
    ///
    /// ```
    /// # use chunkcomm_array::{Layout, LayoutError};
    /// let inner = Layout::builder(&[8, 8]).block(2).block(2).build()?.region(&[1..7, 2..4])?;
    /// assert_eq!(inner.shape(), [6, 2]);
    /// assert_eq!(inner.local_shape(0), [4, 4]);
    /// # Ok::<(), LayoutError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`LayoutError`] if a range is not within the array, or there are more or fewer than dimensions.
    pub fn region(mut self, ranges: &[Range<usize>]) -> Result<Layout, LayoutError> {
        self.check_count("ranges", ranges.len())?;
        for (number, (dim, range)) in self.dims.iter_mut().zip(ranges).enumerate() {
            let (Range { start, end }, extent) = (range.clone(), dim.window.len());
            if start > end || end > extent {
                return Err(LayoutError::Region { dim: number, start, end, extent });
            }
            let before = dim.window.start;
            dim.window = before + start..before + end;
        }
        Ok(self)
    }

    /// Takes the dimensions in another order: dimension `i` becomes what was dimension `axes[i]`, as in NumPy's
    /// `transpose`.
    ///
    /// Storage and ranks stay as they are, so this is a view. An array in Fortran's order is a layout of
    /// the reversed shape with its dimensions reversed; its grid is in Fortran's order, too:
    ///
    /// ```
    /// # use chunkcomm_array::{Layout, LayoutError};
    /// // ScaLAPACK's 100 x 80 matrix with MB = 4, NB = 8, on a 2 x 3 grid of processes in column-major order.
    /// let matrix = Layout::builder(&[80, 100]).cyclic(8, 3).cyclic(4, 2).build()?.permuted(&[1, 0])?;
    /// assert_eq!(matrix.shape(), [100, 80]);
    /// assert_eq!(matrix.local_shape(1), [48, 32]);
    /// assert_eq!(matrix.strides(1), [1, 48]);
    /// assert_eq!(matrix.owner(&[4, 0]), 1);
    /// # Ok::<(), LayoutError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`LayoutError`] unless each dimension is named once.
    pub fn permuted(mut self, axes: &[usize]) -> Result<Layout, LayoutError> {
        self.check_count("axes", axes.len())?;
        let mut places = vec![None; axes.len()];
        for (place, &axis) in axes.iter().enumerate() {
            match places.get_mut(axis) {
                Some(free @ None) => *free = Some(place),
                _ => return Err(LayoutError::Axes { axes: axes.to_vec() }),
            }
        }
        self.dims = axes.iter().map(|&axis| self.dims[axis].clone()).collect();
        self.memory = self.memory.iter().filter_map(|&dim| places[dim]).collect();
        Ok(self)
    }

    fn check_count(&self, what: &'static str, given: usize) -> Result<(), LayoutError> {
        let dims = self.dims.len();
        let is_right = given == dims;
        is_right.then_some(()).ok_or(LayoutError::Count { what, given, dims })
    }
}
