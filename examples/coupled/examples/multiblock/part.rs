//! The rows of a block that a rank has, and how they are relaxed.

use std::ops::Range;

use chunkcomm_array::{Array, ArrayError};
use chunkcomm_examples::groups::Costs;
use chunkcomm_group::Group;

use super::problem::{Block, EAST, Geometry, Parameters, WEST};

/// Floating point operations that a sweep takes for a point.
const OPERATIONS: f64 = 8.0;

/// The rows of a block that a rank of its group has.
pub(crate) struct Part {
    pub(crate) block: Block,
    pub(crate) rows: Range<usize>,
    /// Has the rows of the neighbours above and below in the margins.
    pub(crate) array: Array<f64>,
    inflow: Vec<f64>,
    /// Values of another block beside the first column and beside the last, or 0.
    beside: [Vec<f64>; 2],
}

impl Part {
    /// Makes the part of this rank; all values are 0.
    pub(crate) fn new(group: &Group, block: &Block) -> Result<Part, ArrayError> {
        let (array, rows) = (block.array(group)?, block.rows(group.rank(), group.size()));
        let (inflow, beside) = (vec![0.0; rows.len() * block.side], vec![0.0; rows.len()]);
        let beside = [beside.clone(), beside];
        Ok(Part { block: block.clone(), rows, array, inflow, beside })
    }

    /// Takes the source and the sink.
    pub(crate) fn set(&mut self, geometry: Geometry, parameters: &Parameters) {
        let Block { side, top, left, .. } = self.block;
        for (row, inflow) in self.rows.clone().zip(self.inflow.chunks_mut(side)) {
            for (column, inflow) in inflow.iter_mut().enumerate() {
                *inflow = parameters.inflow(geometry, top + row, left + column);
            }
        }
    }

    /// Brings the margins up to date.
    pub(crate) async fn exchange(&mut self) -> Result<(), ArrayError> {
        self.array.halo(1).await
    }

    /// Relaxes the points of one colour, and adds the squares of their residuals to those of their rows.
    pub(crate) fn relax(&mut self, colour: usize, omega: f64, squares: &mut [f64]) {
        let Block { side, top, left, rows_before, .. } = self.block;
        let mut values = self.array.local_mut();
        for (index, row) in self.rows.clone().enumerate() {
            let square = &mut squares[rows_before + row];
            for column in ((top + row + left + colour) % 2..side).step_by(2) {
                let at = (index + 1) * side + column;
                let west = if column > 0 { values[at - 1] } else { self.beside[WEST][index] };
                let east =
                    if column + 1 < side { values[at + 1] } else { self.beside[EAST][index] };
                let around = (values[at - side] + values[at + side]) + (west + east);
                let residual = around + self.inflow[index * side + column] - 4.0 * values[at];
                values[at] += omega / 4.0 * residual;
                *square += residual * residual;
            }
        }
    }

    /// Lets the declared time of a relaxation pass, and of the exchange before it.
    pub(crate) async fn spend(&self, costs: Costs, further_values: usize) {
        let (Range { start, end }, side) = (&self.rows, self.block.side);
        let neighbours = usize::from(*start > 0) + usize::from(*end < side);
        // A row goes to each neighbour, and one comes.
        let values = if start < end { 2 * neighbours * side } else { 0 };
        let flops = OPERATIONS * ((end - start) * side / 2) as f64;
        costs.pass(flops, (values + further_values) * size_of::<f64>()).await;
    }

    /// Returns the rank's rows that touch another block, counted from the first of them.
    pub(crate) fn touching(&self, side: usize) -> Range<usize> {
        let (Range { start, end }, touches) = (&self.rows, &self.block.touches[side]);
        let at = |row: usize| row.clamp(*start, *end) - start;
        at(touches.start)..at(touches.end)
    }

    /// Copies the column at a side of the block; `strip` has an element for each row of this rank.
    pub(crate) fn read(&self, side: usize, strip: &mut [f64]) {
        let width = self.block.side;
        let column = if side == WEST { 0 } else { width - 1 };
        let values = self.values().iter().skip(column).step_by(width);
        strip.iter_mut().zip(values).for_each(|(to, value)| *to = *value);
    }

    /// Takes the values of another block at a side of this one.
    pub(crate) fn write(&mut self, side: usize, strip: &[f64]) {
        let touching = self.touching(side);
        self.beside[side][touching.clone()].copy_from_slice(&strip[touching]);
    }

    /// Returns the values of the rank's rows, without margins.
    pub(crate) fn values(&self) -> &[f64] {
        let (values, side) = (self.array.local().elements(), self.block.side);
        if self.rows.is_empty() { &[] } else { &values[side..values.len() - side] }
    }
}
