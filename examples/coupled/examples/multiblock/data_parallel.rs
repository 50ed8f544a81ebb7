//! The data-parallel form: one group of all ranks computes each block in turn.

use chunkcomm_array::{Array, ArrayError};
use chunkcomm_examples::groups::Costs;
use chunkcomm_group::Group;

use super::Failure;
use super::part::Part;
use super::problem::{EAST, Geometry, WEST};

/// Columns that go from block to block: from which side of which block, to which side of which.
const SEAMS: [[(usize, usize); 2]; 4] = [
    [(1, WEST), (0, EAST)],
    [(0, EAST), (1, WEST)],
    [(2, WEST), (1, EAST)],
    [(1, EAST), (2, WEST)],
];

/// A rank's parts of all blocks.
pub(crate) struct DataParallel {
    pub(crate) parts: Vec<Part>,
    /// Two columns each: the rows of the two blocks are spread otherwise.
    seams: Vec<[Array<f64>; 2]>,
}

impl DataParallel {
    /// Makes the arrays of all ranks.
    pub(crate) fn new(world: &Group, geometry: Geometry) -> Result<DataParallel, ArrayError> {
        let (blocks, mut parts, mut seams) = (geometry.blocks(), Vec::new(), Vec::new());
        for block in &blocks {
            parts.push(Part::new(world, block)?);
        }
        for [from, to] in SEAMS {
            let [from, to] = [from, to].map(|(block, side)| blocks[block].strip(side, world));
            seams.push([from?, to?]);
        }
        Ok(DataParallel { parts, seams })
    }

    /// Relaxes the points of one colour.
    pub(crate) async fn half_sweep(
        &mut self,
        (colour, omega): (usize, f64),
        costs: Costs,
        squares: &mut [f64],
    ) -> Result<(), Failure> {
        for block in 0..self.parts.len() {
            let mut values = 0;
            for ([from, to], [outgoing, incoming]) in SEAMS.iter().zip(&mut self.seams) {
                if to.0 == block {
                    self.parts[from.0].read(from.1, &mut outgoing.local_mut());
                    outgoing.copy_to(incoming).await?;
                    self.parts[block].write(to.1, &incoming.local());
                    let packed = self.parts[from.0].touching(from.1).len();
                    values += packed + self.parts[block].touching(to.1).len();
                }
            }
            let part = &mut self.parts[block];
            part.exchange().await?;
            part.spend(costs, values).await;
            part.relax(colour, omega, squares);
        }
        Ok(())
    }
}
