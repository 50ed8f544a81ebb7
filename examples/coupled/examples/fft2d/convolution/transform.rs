//! A two-dimensional FFT by all ranks of a group.

use std::ops::Range;

use chunkcomm_array::{ArrayError, ArrayExchange, Layout, LayoutError};
use chunkcomm_examples::groups::Costs;
use chunkcomm_group::Group;
use rustfft::FftDirection;

use super::options::Options;
use chunkcomm_coupled::fourier::{Number, Rows, ZERO};

/// Transforms arrays one by one. The result stays transposed: a second transposition is saved, since the way
/// back begins with the dimension that this one ends with.
///
/// ```text
/// rows of the array ─ take ─▶ exchange's storage ─ transpose ─▶ ─ give ─▶ rows of the transposed array
///                     FFT                        all to all     FFT
/// ```
pub(crate) struct Transform {
    exchange: ArrayExchange<Number>,
    /// This rank's rows of the array that comes in, and of the transposed one.
    pub(crate) parts: [Range<usize>; 2],
    /// Number of elements of a row of each.
    lengths: [usize; 2],
    along: [Rows; 2],
    /// Bytes of this rank's part before and behind the transposition. Elements that stay are packed as well, since they change
    /// their places.
    moved: [usize; 2],
    costs: Costs,
}

impl Transform {
    /// Opens a transform of arrays of this shape, which is not scaled. All ranks of the group open it.
    ///
    /// # Errors
    /// As [`ArrayExchange::open`].
    pub(crate) async fn open(
        group: &mut Group,
        shape @ [rows, columns]: [usize; 2],
        direction: FftDirection,
        options: &Options,
    ) -> Result<Transform, Box<dyn std::error::Error>> {
        let (rank, ranks) = (group.rank(), group.size());
        let (from, to) = (by_rows(shape, ranks)?, by_rows([columns, rows], ranks)?);
        let parts = [&from, &to].map(|layout| own_rows(layout, rank));
        let [before, after] = [&from, &to].map(|layout| layout.local_len(rank));
        let storage = vec![ZERO; before.max(after)];
        let to = to.permuted(&[1, 0])?;
        Ok(Transform {
            exchange: ArrayExchange::open(group, &from, &to, storage).await?,
            parts,
            lengths: [columns, rows],
            along: [columns, rows].map(|length| Rows::new(length, direction, options.costs.flop)),
            moved: [before, after].map(|elements| elements * size_of::<Number>()),
            costs: options.costs,
        })
    }

    /// Takes rows of this rank's part, from `first` on, and transforms each.
    pub(crate) async fn take(&mut self, first: usize, rows: &[Number]) {
        let start = first * self.lengths[0];
        let place = &mut self.exchange.storage_mut()[start..start + rows.len()];
        place.copy_from_slice(rows);
        self.along[0].transform(place).await;
    }

    /// Transposes the array, all of whose rows were taken.
    ///
    /// # Errors
    /// As [`ArrayExchange::run`].
    pub(crate) async fn transpose(&mut self) -> Result<(), ArrayError> {
        let [before, after] = self.moved;
        self.costs.pass(0.0, before).await;
        self.exchange.run().await?;
        self.costs.pass(0.0, after).await;
        Ok(())
    }

    /// Transforms rows of this rank's part of the transposed array into `to`; 0 is the first of the part.
    pub(crate) async fn give(&mut self, rows: Range<usize>, to: &mut [Number]) {
        let elements = rows.start * self.lengths[1]..rows.end * self.lengths[1];
        self.along[1].transform_into(&self.exchange.storage()[elements], to).await;
    }
}

/// Returns the layout of an array whose rows are shared among these ranks.
pub(crate) fn by_rows(shape: [usize; 2], ranks: usize) -> Result<Layout, LayoutError> {
    Layout::builder(&shape).block(ranks).whole().build()
}

/// Returns the rows of this rank's part.
fn own_rows(layout: &Layout, rank: usize) -> Range<usize> {
    let first = layout.global(rank, 0).map_or(0, |index| index[0]);
    first..first + layout.local_shape(rank)[0]
}
