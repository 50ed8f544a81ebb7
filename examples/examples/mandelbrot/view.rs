//! The picture: its part of the plane, and the steps of each of its points.

use std::time::Duration;

use chunkcomm::host;
use serde::{Deserialize, Serialize};

/// A rectangle of the complex plane.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Region {
    /// Least real part.
    pub(crate) left: f64,
    /// Greatest real part.
    pub(crate) right: f64,
    /// Least imaginary part.
    pub(crate) bottom: f64,
    /// Greatest imaginary part.
    pub(crate) top: f64,
}

/// A picture to render.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct View {
    /// Number of pixels in a row.
    pub(crate) width: u32,
    /// Number of rows.
    pub(crate) height: u32,
    /// Part of the plane that fills the picture.
    pub(crate) region: Region,
    /// Number of steps after which a point counts as one of the set.
    pub(crate) iterations: u16,
}

/// Some rows of a view: a task of the farm.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Tile {
    /// The whole picture.
    pub(crate) view: View,
    /// First row to render, from the top.
    pub(crate) first_row: u32,
    /// Number of rows to render.
    pub(crate) rows: u32,
}

/// Steps of every pixel, row by row from the top: the number that its point took to leave the
/// circle of radius 2, or `iterations` where it did not.
pub(crate) type Steps = Vec<u16>;

impl View {
    /// Returns the tasks of the picture, `rows` rows each; the last may have fewer.
    pub(crate) fn tiles(self, rows: u32) -> impl ExactSizeIterator<Item = Tile> {
        let count = self.height.div_ceil(rows);
        (0..count).map(move |at| {
            let first_row = at * rows;
            Tile { view: self, first_row, rows: rows.min(self.height - first_row) }
        })
    }

    /// Returns the number of pixels.
    pub(crate) fn pixels(self) -> usize {
        self.width as usize * self.height as usize
    }

    /// Returns the picture as one task.
    pub(crate) fn whole(self) -> Tile {
        Tile { view: self, first_row: 0, rows: self.height }
    }
}

/// Work of a step and of a pixel on a virtual host. Measured once: 480,000 pixels of 256 steps each
/// take 0.37 s (`mandelbrot --region=-0.1,0.1,-0.1,0.1`), and those of 1 step 1.3 ms
/// (`mandelbrot --region=10,11,10,11`).
pub(crate) const STEP_NANOS: u64 = 3;

/// Computes the pixels of a tile: the function that the farm runs. Reports the fraction that is done after
/// each row. A step takes this many nanoseconds on a virtual host.
pub(crate) fn render(tile: Tile, step_nanos: u64, report: impl Fn(f64)) -> Steps {
    let Tile { view, first_row, rows } = tile;
    let Region { left, right, bottom, top } = view.region;
    let (across, down) =
        ((right - left) / f64::from(view.width), (top - bottom) / f64::from(view.height));
    let mut steps = Vec::with_capacity(view.width as usize * rows as usize);
    for row in first_row..first_row + rows {
        // A pixel stands for the point at its centre.
        let y = top - (f64::from(row) + 0.5) * down;
        steps.extend((0..view.width).map(|column| {
            let x = left + (f64::from(column) + 0.5) * across;
            escape_steps(x, y, view.iterations)
        }));
        report(f64::from(row + 1 - first_row) / f64::from(rows));
    }
    if host::is_virtual() {
        let all: u64 = steps.iter().map(|&steps| u64::from(steps)).sum();
        host::spend(Duration::from_nanos(step_nanos * (all + steps.len() as u64)));
    }
    steps
}

/// Returns the steps of z := z² + c, from 0, until |z| > 2; at most `most`.
fn escape_steps(x: f64, y: f64, most: u16) -> u16 {
    let (mut real, mut imaginary) = (0.0, 0.0);
    for step in 0..most {
        let (real_squared, imaginary_squared) = (real * real, imaginary * imaginary);
        if real_squared + imaginary_squared > 4.0 {
            return step;
        }
        imaginary = 2.0 * real * imaginary + y;
        real = real_squared - imaginary_squared + x;
    }
    most
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view() -> View {
        let region = Region { left: -2.25, right: 0.75, bottom: -1.125, top: 1.125 };
        View { width: 41, height: 31, region, iterations: 100 }
    }

    #[test]
    fn tiles_of_any_height_make_the_picture() {
        let whole = render(view().whole(), STEP_NANOS, |_| ());
        assert_eq!(whole.len(), 41 * 31);
        for rows in [1, 2, 7, 30, 31, 100] {
            let tiles = view().tiles(rows);
            assert_eq!(tiles.len() as u32, 31u32.div_ceil(rows));
            assert_eq!(
                tiles.flat_map(|tile| render(tile, STEP_NANOS, |_| ())).collect::<Vec<_>>(),
                whole,
                "{rows} rows a tile"
            );
        }
    }

    #[test]
    fn known_points() {
        for (x, y) in [(0.0, 0.0), (-1.0, 0.0), (-2.0, 0.0), (0.25, 0.0), (0.0, 1.0)] {
            assert_eq!(escape_steps(x, y, 1_000), 1_000, "({x}, {y}) is in the set");
        }
        // 0, 1, 2, 5: the third is the first beyond 2.
        assert_eq!(escape_steps(1.0, 0.0, 1_000), 3);
        assert_eq!(escape_steps(3.0, 0.0, 1_000), 1);
    }

    #[test]
    fn the_default_picture_is_symmetric() {
        let (view, steps) = (view(), render(view().whole(), STEP_NANOS, |_| ()));
        let rows: Vec<_> = steps.chunks(view.width as usize).collect();
        assert!(rows.iter().eq(rows.iter().rev()));
    }
}
