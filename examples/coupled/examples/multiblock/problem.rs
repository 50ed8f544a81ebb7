//! The problem: three blocks, a source and a sink, and who has which rows.

use std::ops::Range;

use chunkcomm_array::{Array, ArrayError};
use chunkcomm_examples::groups::shares;
use chunkcomm_group::Group;

/// Sides of a block that another one may touch.
pub(crate) const WEST: usize = 0;
pub(crate) const EAST: usize = 1;

/// Radius of source and sink, in sides of the left block.
const RADIUS: f64 = 0.125;

/// Three square blocks in a row, of these sides, the middle one at half the height of the others:
///
/// ```text
/// ┌────────┐    ┌────────┐
/// │        ├────┤        │
/// │  left  │    │ right  │
/// │        ├────┤        │
/// └────────┘    └────────┘
/// ```
///
/// Points of two blocks are neighbours where the blocks touch. Beyond the outer boundary all is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    /// Rows, and columns, of the left block and of the right one; the middle one has half of them.
    pub(crate) side: usize,
}

/// A block, and where it is in the array of the whole geometry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) side: usize,
    pub(crate) top: usize,
    pub(crate) left: usize,
    /// Number of rows of the blocks before this one.
    pub(crate) rows_before: usize,
    /// Rows that touch another block, in the west and in the east.
    pub(crate) touches: [Range<usize>; 2],
}

impl Geometry {
    /// Returns the blocks from left to right.
    pub(crate) fn blocks(self) -> [Block; 3] {
        let (side, middle) = (self.side, self.side / 2);
        let top = (side - middle) / 2;
        let seam = top..top + middle;
        let block =
            |side, top, left, rows_before, touches| Block { side, top, left, rows_before, touches };
        [
            block(side, 0, 0, 0, [0..0, seam.clone()]),
            block(middle, top, side, side, [0..middle, 0..middle]),
            block(side, 0, side + middle, side + middle, [seam, 0..0]),
        ]
    }

    /// Returns the number of columns of all blocks, which is that of their rows, too.
    pub(crate) fn width(self) -> usize {
        2 * self.side + self.side / 2
    }

    /// Returns the factor of over-relaxation that is best for a square of this side.
    pub(crate) fn omega(self) -> f64 {
        2.0 / (1.0 + (std::f64::consts::PI / self.side as f64).sin())
    }
}

impl Block {
    /// Returns the array of its values, by rows; all are 0.
    pub(crate) fn array(&self, group: &Group) -> Result<Array<f64>, ArrayError> {
        Array::zeros(group, "(block,*) margin 1x0", [self.side; 2])
    }

    /// Returns a column, of which the part that touches another block travels.
    pub(crate) fn strip(&self, side: usize, group: &Group) -> Result<Array<f64>, ArrayError> {
        let Range { start, end } = &self.touches[side];
        Array::zeros(group, format!("(block) region {start}..{end}").as_str(), [self.side])
    }

    /// Returns the rows of a rank in both.
    pub(crate) fn rows(&self, rank: usize, ranks: usize) -> Range<usize> {
        let each = self.side.div_ceil(ranks);
        let at = |rank: usize| (rank * each).min(self.side);
        at(rank)..at(rank + 1)
    }
}

/// The source that drives the solution. It may change between two sweeps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Parameters {
    /// Column of the source's centre, in sides of the left block; the sink is its mirror image.
    pub(crate) x: f64,
    /// Row of both centres, likewise.
    pub(crate) y: f64,
    /// Density of the source.
    pub(crate) strength: f64,
}

impl Parameters {
    /// Returns what flows in at a point of the geometry, by the square of the distance of two points.
    pub(crate) fn inflow(&self, Geometry { side }: Geometry, row: usize, column: usize) -> f64 {
        let unit = side as f64;
        let (x, y) = ((column as f64 + 0.5) / unit, (row as f64 + 0.5) / unit);
        let width = Geometry { side }.width() as f64 / unit;
        let is_within = |centre: f64| (x - centre).hypot(y - self.y) < RADIUS;
        let density = f64::from(i8::from(is_within(self.x)) - i8::from(is_within(width - self.x)));
        density * self.strength / (unit * unit)
    }
}

/// The ranks of the world that have each block, from left to right. All have all in the data-parallel form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Spread([Range<usize>; 3]);

impl Spread {
    /// Gives each block this number of ranks of its own.
    pub(crate) fn concurrent([left, middle, right]: [usize; 3]) -> Spread {
        let ends = [left, left + middle, left + middle + right];
        Spread([0..ends[0], ends[0]..ends[1], ends[1]..ends[2]])
    }

    /// Gives all blocks to all ranks.
    pub(crate) fn data_parallel(ranks: usize) -> Spread {
        Spread([0..ranks, 0..ranks, 0..ranks])
    }

    /// Returns the number of ranks of each block when `ranks` are shared in proportion to their points.
    pub(crate) fn in_proportion(geometry: Geometry, ranks: usize) -> [usize; 3] {
        shares(ranks, geometry.blocks().map(|block| block.side * block.side))
    }

    /// Returns the block that a rank of the world has first.
    pub(crate) fn block_of(&self, rank: usize) -> usize {
        self.0.iter().position(|ranks| ranks.contains(&rank)).unwrap_or_default()
    }

    /// Returns the rows that a rank of the world has of each block.
    pub(crate) fn rows(&self, geometry: Geometry, rank: usize) -> [Range<usize>; 3] {
        let blocks = geometry.blocks();
        std::array::from_fn(|index| match &self.0[index] {
            ranks if ranks.contains(&rank) => blocks[index].rows(rank - ranks.start, ranks.len()),
            _ => 0..0,
        })
    }
}

/// Brings the values of all ranks, one behind the other, into the array of the whole geometry, which has NaN
/// outside of the blocks.
pub(crate) fn assembled(
    geometry: Geometry,
    spread: &Spread,
    ranks: usize,
    of_ranks: &[f64],
) -> Vec<f64> {
    let width = geometry.width();
    let mut whole = vec![f64::NAN; geometry.side * width];
    let mut rest = of_ranks;
    for rank in 0..ranks {
        for (block, rows) in geometry.blocks().iter().zip(spread.rows(geometry, rank)) {
            for row in rows {
                let at = (block.top + row) * width + block.left;
                let (values, behind) = rest.split_at(block.side);
                whole[at..at + block.side].copy_from_slice(values);
                rest = behind;
            }
        }
    }
    whole
}

#[cfg(test)]
mod tests {
    use super::*;
    use chunkcomm_array::Layout;

    #[test]
    fn blocks_share_the_ranks_in_proportion_of_their_points() {
        let shares = [3, 4, 5, 9, 18, 36].map(|ranks| {
            let shares = Spread::in_proportion(Geometry { side: 192 }, ranks);
            assert_eq!(shares.iter().sum::<usize>(), ranks);
            shares
        });
        let expected = [[1, 1, 1], [2, 1, 1], [2, 1, 2], [4, 1, 4], [8, 2, 8], [16, 4, 16]];
        assert_eq!(shares, expected);
    }

    #[test]
    fn each_row_of_a_block_is_of_one_rank_as_its_layout_says() {
        for (side, ranks) in [(192, 4), (7, 3), (5, 4), (3, 7)] {
            let block = &Geometry { side }.blocks()[0];
            let layout = Layout::over("(block,*)", &[side; 2], ranks).expect("a layout");
            for rank in 0..ranks {
                for row in block.rows(rank, ranks) {
                    assert_eq!(layout.owner(&[row, 0]), rank, "row {row} of {side}, {ranks} ranks");
                }
            }
        }
    }
}
