//! The pieces in which the elements of a pair of ranks travel.

use crate::layout::DIMS_MAX;
use std::ops::{Deref, Range};

/// Bytes of a tile that are aimed at: 128 KiB, an eighth to a half of an L2 cache, so that a tile is packed, sent
/// and unpacked from there. Smaller ones cost more calls, larger ones the overlap of packing and sending.
const TILE_BYTES: usize = 128 << 10;

/// Bytes that lie together at the receiver, if the sender's order is another one: 1 KiB, so that a tile of numbers is
/// about a square. With two cache lines a tile touches 8 times as many pages, and took 1.4 times as long.
const LINE_BYTES: usize = 1024;

/// The same where that makes few blocks, which leave when their rows are written: two cache lines.
const LINE_BYTES_MIN: usize = 128;

/// Blocks of a pair that are aimed at where a line of the receiver crosses the sender's rows.
const BLOCKS_MIN: usize = 8;

/// The pieces in which the elements of a pair travel: boxes of positions, all but the last ones alike.
///
/// A tile has at most twice `TILE_BYTES`, unless a single element is larger. Tiles are numbered in the sender's
/// memory order; those with the same positions in its slowest dimension are a *block*:
///
/// ```text
///   slowest |  0  1  2   block 0         tile = block * block_tiles + rest
///           v  3  4  5   block 1
///              6  7  8   block 2
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tiles {
    /// Positions of a tile, in each dimension.
    sizes: Vec<usize>,
    /// Number of tiles, in each dimension.
    counts: Vec<usize>,
    /// Number of positions, in each dimension.
    totals: Vec<usize>,
    /// The sender's dimensions, from the slowest to the fastest one.
    order: Vec<usize>,
}

/// The positions of a tile: a range in each dimension.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TileRanges {
    ranges: [Range<usize>; DIMS_MAX],
    dims: usize,
}

impl Tiles {
    /// Cuts positions into tiles; both ends do so alike.
    ///
    /// First the receiver's fastest dimension grows to a line, that it writes whole ones. Then the sender's grow,
    /// from the fastest one on, until a tile is full.
    pub(crate) fn new(
        totals: Vec<usize>,
        sender_order: &[usize],
        receiver_order: &[usize],
        element_bytes: usize,
    ) -> Tiles {
        let elements_of = |bytes: usize| (bytes / element_bytes.max(1)).max(1);
        let mut sizes = vec![1; totals.len()];
        if let Some(&fastest) = receiver_order.last() {
            let mut line = elements_of(LINE_BYTES);
            if sender_order.first() == Some(&fastest) {
                line = line.min(elements_of(LINE_BYTES_MIN).max(totals[fastest] / BLOCKS_MIN));
            }
            sizes[fastest] = line.min(totals[fastest]);
        }
        let tile = elements_of(TILE_BYTES);
        for &dim in sender_order.iter().rev() {
            let others: usize = sizes.iter().product::<usize>() / sizes[dim];
            let room = tile / others;
            if room <= sizes[dim] {
                break;
            }
            sizes[dim] = even_size(totals[dim], room);
        }
        let counts = totals.iter().zip(&sizes).map(|(total, size)| total.div_ceil(*size)).collect();
        Tiles { sizes, counts, totals, order: sender_order.to_vec() }
    }

    /// Returns the number of tiles.
    pub(crate) fn len(&self) -> usize {
        self.counts.iter().product()
    }

    /// Returns the positions of a tile.
    pub(crate) fn ranges(&self, index: usize) -> TileRanges {
        debug_assert!(index < self.len(), "tile {index} of {}", self.len());
        let mut ranges = TileRanges { ranges: Default::default(), dims: self.totals.len() };
        let mut rest = index;
        for &dim in self.order.iter().rev() {
            ranges.ranges[dim] = self.range(dim, rest % self.counts[dim]);
            rest /= self.counts[dim];
        }
        ranges
    }

    /// Returns the number of elements of a tile.
    pub(crate) fn elements(&self, index: usize) -> usize {
        self.ranges(index).iter().map(Range::len).product()
    }

    /// Returns the number of elements of the largest tile.
    pub(crate) fn elements_max(&self) -> usize {
        self.sizes.iter().product()
    }

    /// Returns the number of blocks: of tiles along the sender's slowest dimension.
    pub(crate) fn blocks(&self) -> usize {
        self.order.first().map_or(1, |&slowest| self.counts[slowest])
    }

    /// Returns the number of tiles of a block, which follow each other.
    pub(crate) fn block_tiles(&self) -> usize {
        self.len() / self.blocks()
    }

    /// Returns the positions of a block in the sender's slowest dimension.
    pub(crate) fn block_rows(&self, block: usize) -> Range<usize> {
        self.order.first().map_or(0..1, |&slowest| self.range(slowest, block))
    }

    /// Returns the positions of one dimension in a tile that is the `number`th one there.
    fn range(&self, dim: usize, number: usize) -> Range<usize> {
        let start = number * self.sizes[dim];
        start..(start + self.sizes[dim]).min(self.totals[dim])
    }
}

impl Deref for TileRanges {
    type Target = [Range<usize>];

    fn deref(&self) -> &[Range<usize>] {
        &self.ranges[..self.dims]
    }
}

/// Returns the size of equal parts of `total` that is nearest to `aim`: less than twice as much.
fn even_size(total: usize, aim: usize) -> usize {
    let count = total / aim + usize::from(total % aim > aim / 2);
    total.div_ceil(count.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn orders(dims: usize) -> impl Strategy<Value = Vec<usize>> {
        Just((0..dims).collect::<Vec<_>>()).prop_shuffle()
    }

    /// Totals, both orders, bytes of an element: small tiles of few elements, or large ones.
    fn cases() -> impl Strategy<Value = (Vec<usize>, Vec<usize>, Vec<usize>, usize)> {
        (1..=DIMS_MAX).prop_flat_map(|dims| {
            let most = [0usize, 20000, 300, 40, 12, 8, 6][dims];
            let totals = prop::collection::vec(1..=most, dims);
            let bytes = prop_oneof![1..17usize, 1000..5000usize, 30_000..200_000usize];
            (totals, orders(dims), orders(dims), bytes)
        })
    }

    proptest! {
        #[test]
        fn every_position_is_in_one_tile((totals, sender, receiver, bytes) in cases()) {
            let tiles = Tiles::new(totals.clone(), &sender, &receiver, bytes);
            let mut seen = vec![false; totals.iter().product()];
            for index in 0..tiles.len() {
                let ranges = tiles.ranges(index);
                let elements: usize = ranges.iter().map(Range::len).product();
                prop_assert_eq!(elements, tiles.elements(index));
                prop_assert!(elements == 1 || elements * bytes <= 2 * TILE_BYTES, "{} bytes", elements * bytes);
                for element in 0..elements {
                    let mut rest = element;
                    let place = ranges.iter().zip(&totals).fold(0, |place, (range, total)| {
                        let at = range.start + rest % range.len();
                        rest /= range.len();
                        place * total + at
                    });
                    prop_assert!(!std::mem::replace(&mut seen[place], true), "twice");
                }
            }
            prop_assert!(seen.iter().all(|seen| *seen));
        }

        #[test]
        fn blocks_follow_the_senders_slowest_dimension((totals, sender, receiver, bytes) in cases()) {
            let tiles = Tiles::new(totals.clone(), &sender, &receiver, bytes);
            prop_assert_eq!(tiles.len(), tiles.blocks() * tiles.block_tiles());
            let mut end = 0;
            for block in 0..tiles.blocks() {
                let rows = tiles.block_rows(block);
                prop_assert_eq!(rows.start, end);
                end = rows.end;
                let first = block * tiles.block_tiles();
                for index in first..first + tiles.block_tiles() {
                    prop_assert_eq!(&tiles.ranges(index)[sender[0]], &rows);
                }
            }
            prop_assert_eq!(end, totals[sender[0]]);
            // Within a block, the first positions follow the sender's order.
            let starts = |index| -> Vec<usize> {
                let ranges = tiles.ranges(index);
                sender.iter().map(|&dim| ranges[dim].start).collect()
            };
            prop_assert!((1..tiles.len()).all(|index| starts(index - 1) < starts(index)));
        }

        #[test]
        fn parts_are_even(total in 1..1000usize, aim in 1..100usize) {
            let size = even_size(total, aim);
            prop_assert!(size <= total && size < 2 * aim.max(2) && (size == total || size * 2 >= aim));
        }
    }

    #[test]
    fn sizes_of_tiles() {
        // Rows to rows: whole rows. Transposed: lines of the receiver, as long as the sender's rows allow.
        let tiles = Tiles::new(vec![1024, 1024], &[0, 1], &[0, 1], 8);
        assert_eq!(tiles.sizes, [16, 1024]);
        let tiles = Tiles::new(vec![1024, 1024], &[0, 1], &[1, 0], 8);
        assert_eq!(tiles.sizes, [128, 128]);
        let tiles = Tiles::new(vec![256, 1024], &[0, 1], &[1, 0], 8);
        assert_eq!((&tiles.sizes[..], tiles.blocks()), (&[32, 512][..], 8));
        let tiles = Tiles::new(vec![3, 5], &[0, 1], &[1, 0], 200 << 10);
        assert_eq!((&tiles.sizes[..], tiles.len()), (&[1, 1][..], 15));
    }
}
