//! The picture: the steps of its points, how often each number of steps occurs, and the shades that follow.

use std::ops::Range;
use std::time::Duration;

use chunkcomm::host;
use chunkcomm_examples::picture::Pixel;

/// Number of different steps of a point; the last bin is for the points of the set.
pub(crate) const BINS: usize = 256;

/// Points by number of steps.
pub(crate) type Counts = [u32; BINS];

/// Rows of the picture's file that show the histogram.
const HISTOGRAM_ROWS: usize = 100;

/// Time that a step takes on the reference machine, in ns.
const STEP_NANOS: u64 = 3;

/// Sides of a picture of the Mandelbrot set.
#[derive(Clone, Copy)]
pub(crate) struct View {
    pub(crate) width: usize,
    pub(crate) height: usize,
}

impl View {
    /// Returns the rows of a rank within these. They take turns, so that all have as much to do.
    pub(crate) fn rows(
        self,
        rank: usize,
        ranks: usize,
        within: Range<usize>,
    ) -> impl ExactSizeIterator<Item = usize> + Send + 'static {
        let first = within.start + (rank + ranks - within.start % ranks) % ranks;
        let end = within.end.min(self.height);
        let count = end.saturating_sub(first).div_ceil(ranks);
        (0..count).map(move |index| first + index * ranks)
    }

    /// Computes the steps of the pixels of these rows and counts them.
    pub(crate) fn compute(
        self,
        rows: impl Iterator<Item = usize>,
        steps: &mut [u8],
        counts: &mut [u32],
    ) {
        counts.fill(0);
        let mut all = 0;
        for (row, steps) in rows.zip(steps.chunks_mut(self.width)) {
            for (column, steps) in steps.iter_mut().enumerate() {
                *steps = self.steps(column, row);
                counts[usize::from(*steps)] += 1;
                all += u64::from(*steps) + 1;
            }
        }
        host::spend(Duration::from_nanos(all * STEP_NANOS));
    }

    /// Returns the number of steps after which the point of a pixel leaves the circle of radius 2.
    fn steps(self, column: usize, row: usize) -> u8 {
        let part = |index: usize, count: usize| (index as f64 + 0.5) / count as f64;
        let (a, b) = (3.0 * part(column, self.width) - 2.2, 2.4 * part(row, self.height) - 1.2);
        let (mut x, mut y) = (0.0, 0.0);
        for steps in 0..u8::MAX {
            if x * x + y * y > 4.0 {
                return steps;
            }
            (x, y) = (x * x - y * y + a, 2.0 * x * y + b);
        }
        u8::MAX
    }

    /// Brings the pixels of the ranks, one behind the other, into the order of rows.
    pub(crate) fn by_row(self, of_ranks: &[u8], pixels_of: &[usize]) -> Vec<u8> {
        let mut by_row = vec![0; of_ranks.len()];
        let mut next = of_ranks.chunks(self.width);
        for rank in 0..pixels_of.len() {
            for row in self.rows(rank, pixels_of.len(), 0..self.height) {
                let pixels = next.next().expect("each rank has its rows");
                by_row[row * self.width..(row + 1) * self.width].copy_from_slice(pixels);
            }
        }
        by_row
    }

    /// Computes all in this process.
    pub(crate) fn alone(self) -> (Vec<u8>, Counts) {
        let (mut steps, mut counts) = (vec![0; self.width * self.height], [0; BINS]);
        self.compute(0..self.height, &mut steps, &mut counts);
        (steps, counts)
    }

    /// Draws the picture, and below it the logarithm of each bin; returns the sides, too.
    pub(crate) fn draw(self, steps: &[u8], counts: &Counts) -> ((u32, u32), Vec<Pixel>) {
        let (mut shades, mut fewer) = ([0; BINS], 0);
        let outside = u64::from(counts[..BINS - 1].iter().sum::<u32>());
        for (shade, count) in shades.iter_mut().zip(&counts[..BINS - 1]) {
            *shade = (255 * fewer / outside.max(1)) as u8;
            fewer += u64::from(*count);
        }
        let mut pixels: Vec<Pixel> =
            steps.iter().map(|steps| [shades[usize::from(*steps)]; 3]).collect();
        let logarithm = |count: &u32| f64::from(count + 1).log2();
        let highest = counts.iter().map(logarithm).fold(1.0, f64::max);
        for row in 0..HISTOGRAM_ROWS {
            let above = (HISTOGRAM_ROWS - row) as f64 / HISTOGRAM_ROWS as f64 * highest;
            pixels.extend((0..self.width).map(|column| {
                let bin = column * BINS / self.width;
                if logarithm(&counts[bin]) >= above { [230, 160, 40] } else { [30; 3] }
            }));
        }
        ((self.width as u32, (self.height + HISTOGRAM_ROWS) as u32), pixels)
    }
}

/// Adds the counts of bands; `first` is the index of the first one among those of all bands.
pub(crate) fn add(counts: &mut Counts, first: usize, fresh: &[u32]) {
    for (index, count) in (first..).zip(fresh) {
        counts[index % BINS] += count;
    }
}
