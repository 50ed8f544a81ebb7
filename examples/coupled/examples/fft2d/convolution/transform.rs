//! A two-dimensional FFT by all ranks of a group.

use std::ops::Range;

use chunkcomm_array::{Array, ArrayError};
use chunkcomm_examples::groups::Costs;
use chunkcomm_group::Group;
use rustfft::FftDirection;

use super::options::Options;
use chunkcomm_coupled::fourier::{Number, Rows};

/// Transforms arrays one by one. The result stays transposed: a second transposition is saved, since the way
/// back begins with the dimension that this one ends with.
///
/// ```text
/// rows of the array ─ take ─▶ rows ─ transpose ─▶ columns ─ give ─▶ rows of the transposed array
///                     FFT            all to all             FFT
/// ```
pub(crate) struct Transform {
    rows: Array<Number>,
    columns: Array<Number>,
    /// This rank's rows of the array that comes in, and of the transposed one.
    pub(crate) parts: [Range<usize>; 2],
    /// Number of elements of a row of each.
    lengths: [usize; 2],
    along: [Rows; 2],
    costs: Costs,
}

impl Transform {
    /// Makes a transform of arrays of this shape, which is not scaled.
    ///
    /// # Errors
    /// As [`Array::zeros`].
    pub(crate) fn new(
        group: &Group,
        shape @ [rows, columns]: [usize; 2],
        direction: FftDirection,
        options: &Options,
    ) -> Result<Transform, ArrayError> {
        let arrays = [
            Array::zeros(group, "(block,*)", shape)?,
            Array::zeros(group, "(block,*) permuted 1,0", shape)?,
        ];
        // The dimension that is slowest in memory.
        let parts = [0, 1].map(|dim| {
            let local = arrays[dim].local();
            let first = local.index(0).map_or(0, |index| index[dim]);
            first..first + local.shape()[dim]
        });
        let [of_rows, of_columns] = arrays;
        Ok(Transform {
            rows: of_rows,
            columns: of_columns,
            parts,
            lengths: [columns, rows],
            along: [columns, rows].map(|length| Rows::new(length, direction, options.costs.flop)),
            costs: options.costs,
        })
    }

    /// Takes rows of this rank's part, from `first` on, and transforms each.
    pub(crate) async fn take(&mut self, first: usize, rows: &[Number]) {
        let start = first * self.lengths[0];
        let place = &mut self.rows.local_mut()[start..start + rows.len()];
        place.copy_from_slice(rows);
        self.along[0].transform(place).await;
    }

    /// Transposes the array, all of whose rows were taken.
    ///
    /// # Errors
    /// As [`Array::copy_to`].
    pub(crate) async fn transpose(&mut self) -> Result<(), ArrayError> {
        // Elements that stay are packed as well, since they change their places.
        self.costs.pass(0.0, size_of_val(&*self.rows.local())).await;
        self.rows.copy_to(&mut self.columns).await?;
        self.costs.pass(0.0, size_of_val(&*self.columns.local())).await;
        Ok(())
    }

    /// Transforms rows of this rank's part of the transposed array into `to`; 0 is the first of the part.
    pub(crate) async fn give(&mut self, rows: Range<usize>, to: &mut [Number]) {
        let elements = rows.start * self.lengths[1]..rows.end * self.lengths[1];
        self.along[1].transform_into(&self.columns.local()[elements], to).await;
    }
}
