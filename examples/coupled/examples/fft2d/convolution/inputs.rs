//! The two streams that come in, images and kernels, and the convolution by its definition.

use std::ops::Range;
use std::path::Path;

use chunkcomm_examples::picture::load;

use super::options::Options;

/// Shape of images that are made when nothing else is said.
const SHAPE: [usize; 2] = [256, 256];

/// Made kernels grow up to this number of rounds, then begin anew.
const GROWS: usize = 16;

/// Rows and columns, and all shades row by row.
type Shades = ([usize; 2], Vec<f64>);

/// An element of a kernel that is not 0: its row and its column, and its weight.
pub(crate) type Point = ([usize; 2], f64);

/// One of the two streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    Images,
    Kernels,
}

/// Images and kernels of all rounds. All ranks have the same.
pub(crate) struct Inputs {
    pub(crate) shape: [usize; 2],
    /// Shades of the file's image; without it images are made.
    image: Option<Vec<f64>>,
    /// Points of the file's kernel, likewise.
    kernel: Option<Vec<Point>>,
}

impl Inputs {
    /// Reads the files that the options name.
    ///
    /// # Errors
    /// A file cannot be read, or makes no sense; the text names it.
    pub(crate) fn new(options: &Options) -> Result<Inputs, String> {
        let image = options.image.as_deref().map(shades).transpose()?;
        let shape = image.as_ref().map(|image| image.0).or(options.shape).unwrap_or(SHAPE);
        let kernel = options.kernel.as_deref().map(|file| read_kernel(file, shape)).transpose()?;
        Ok(Inputs { shape, image: image.map(|image| image.1), kernel })
    }

    /// Returns some rows of the image or the kernel of a round.
    pub(crate) fn rows(&self, stream: Stream, round: usize, rows: Range<usize>) -> Vec<f64> {
        let [_, columns] = self.shape;
        match (stream, &self.image) {
            (Stream::Images, Some(image)) => {
                image[rows.start * columns..rows.end * columns].to_vec()
            }
            (Stream::Images, None) => {
                let pixels = rows.flat_map(|row| (0..columns).map(move |column| [row, column]));
                pixels.map(|pixel| self.shade(round, pixel)).collect()
            }
            (Stream::Kernels, _) => {
                let mut elements = vec![0.0; rows.len() * columns];
                for ([row, column], weight) in self.kernel(round) {
                    if rows.contains(&row) {
                        elements[(row - rows.start) * columns + column] += weight;
                    }
                }
                elements
            }
        }
    }

    /// Returns the shade of a pixel, from 0 to 1: a square and a disc cross a field of stripes.
    fn shade(&self, round: usize, [row, column]: [usize; 2]) -> f64 {
        let side = self.shape[0].min(self.shape[1]) as f64;
        let turn = round as f64 / 32.0;
        // The way of a point that crosses this number of pictures a turn, over the edges, in sides.
        let from = |[down, along]: [f64; 2], [rows, columns]: [f64; 2]| {
            let away = |at: usize, extent: usize, start: f64, pace: f64| {
                let place = (start + pace * turn).rem_euclid(1.0) * extent as f64;
                ((at as f64 - place) / extent as f64 + 0.5).rem_euclid(1.0) - 0.5
            };
            let down = away(row, self.shape[0], down, rows) * self.shape[0] as f64;
            [down / side, away(column, self.shape[1], along, columns) * self.shape[1] as f64 / side]
        };
        let disc = from([0.3, 0.3], [0.0, 1.0]);
        let square = from([0.65, 0.7], [-1.0, -0.5]);
        if disc[0].hypot(disc[1]) < 0.18 {
            1.0
        } else if square[0].abs().max(square[1].abs()) < 0.14 {
            0.75
        } else {
            if (row / 8 + column / 8) % 4 == 0 { 0.5 } else { 0.1 }
        }
    }

    /// Returns the points of a round's kernel, whose weights have the sum 1. A point of a made one may stand
    /// there several times.
    pub(crate) fn kernel(&self, round: usize) -> Vec<Point> {
        if let Some(kernel) = &self.kernel {
            return kernel.clone();
        }
        let size = (2 + round % GROWS) as isize;
        let points: Vec<[isize; 2]> = if round.is_multiple_of(2) {
            let square = (-size..=size).flat_map(|row| (-size..=size).map(move |it| [row, it]));
            square.filter(|[row, column]| row * row + column * column <= size * size).collect()
        } else {
            (0..2 * size).map(|step| [step / 2, step]).collect() // a line, which moved down and along
        };
        let weight = 1.0 / points.len() as f64;
        points.into_iter().map(|point| (wrapped(point, self.shape), weight)).collect()
    }

    /// Returns rows of the convolution of a round by its definition, the sum over the points of the kernel:
    /// `result[i, j] = sum of kernel[k, l] image[i - k, j - l]`, where indices wrap around.
    pub(crate) fn convolved(&self, round: usize, rows: Range<usize>) -> Vec<f64> {
        let [height, width] = self.shape;
        let image = self.rows(Stream::Images, round, 0..height);
        let mut result = vec![0.0; rows.len() * width];
        for ([down, along], weight) in self.kernel(round) {
            for (row, sums) in rows.clone().zip(result.chunks_mut(width)) {
                let row = (row + height - down) % height * width;
                // The image's row, moved along.
                let (before, after) = image[row..row + width].split_at(width - along);
                let moved = after.iter().chain(before);
                sums.iter_mut().zip(moved).for_each(|(sum, shade)| *sum += weight * shade);
            }
        }
        result
    }
}

/// Returns the index of a point around the origin.
fn wrapped(point: [isize; 2], shape: [usize; 2]) -> [usize; 2] {
    [0, 1].map(|axis| point[axis].rem_euclid(shape[axis] as isize) as usize)
}

/// Reads a PNG file in shades of grey, from 0 to 1.
fn shades(file: &Path) -> Result<Shades, String> {
    let ((width, height), pixels) = load(file)?;
    let shade = |pixel: [u8; 3]| pixel.iter().map(|it| f64::from(*it)).sum::<f64>() / (3.0 * 255.0);
    Ok(([height as usize, width as usize], pixels.into_iter().map(shade).collect()))
}

/// Reads a kernel for images of this shape.
fn read_kernel(file: &Path, shape: [usize; 2]) -> Result<Vec<Point>, String> {
    let (own @ [height, width], shades) = shades(file)?;
    let name = file.display();
    if height > shape[0] || width > shape[1] {
        let [rows, columns] = shape;
        return Err(format!(
            "--kernel {name} has {height} rows and {width} columns: allowed are {rows} and {columns}, those of \
             the images"
        ));
    }
    let sum: f64 = shades.iter().sum();
    if sum == 0.0 {
        return Err(format!("--kernel {name} is black: allowed is a picture with light"));
    }
    let middle = own.map(|extent| (extent / 2) as isize);
    let point = |(at, shade): (usize, f64)| {
        let [row, column] = [(at / width) as isize, (at % width) as isize];
        (wrapped([row - middle[0], column - middle[1]], shape), shade / sum)
    };
    let lit = shades.into_iter().enumerate().filter(|(_, shade)| *shade > 0.0);
    Ok(lit.map(point).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(shape: [usize; 2]) -> Inputs {
        Inputs { shape, image: None, kernel: None }
    }

    #[test]
    fn a_convolution_is_the_sum_that_defines_it() {
        for shape @ [height, width] in [[7, 5], [1, 1], [12, 31]] {
            let inputs = made(shape);
            for round in 0..2 * GROWS {
                let image = inputs.rows(Stream::Images, round, 0..height);
                let kernel = inputs.rows(Stream::Kernels, round, 0..height);
                assert!((kernel.iter().sum::<f64>() - 1.0).abs() < 1e-12, "{round}");
                let result = inputs.convolved(round, 0..height);
                for (at, found) in result.iter().enumerate() {
                    let sum = (0..height * width).map(|point| {
                        let row = (at / width + height - point / width) % height;
                        let column = (at % width + width - point % width) % width;
                        kernel[point] * image[row * width + column]
                    });
                    let expected: f64 = sum.sum();
                    assert!((found - expected).abs() < 1e-12, "{shape:?}, {round}: {at}");
                }
            }
        }
    }

    #[test]
    fn rows_are_those_of_the_whole() {
        let inputs = made([9, 6]);
        for stream in [Stream::Images, Stream::Kernels] {
            let whole = inputs.rows(stream, 3, 0..9);
            assert_eq!(inputs.rows(stream, 3, 4..7), whole[24..42]);
            assert!(inputs.rows(stream, 4, 0..9) != whole, "each round has another");
        }
        assert_eq!(inputs.convolved(3, 4..7), inputs.convolved(3, 0..9)[24..42]);
    }
}
