//! The arrays of the stream, and what becomes of the last transform: comparison, picture, files.

use std::ops::Range;
use std::path::Path;

use chunkcomm_array::{Layout, Npy};
use chunkcomm_examples::picture::{Pixel, save};

use super::definition::by_definition;
use chunkcomm_coupled::fourier::{Number, ZERO};

/// Largest difference to the sum by definition, as a part of the largest magnitude.
pub(crate) const TOLERANCE: f64 = 1e-12;

/// A stream of arrays: each is an aperture, a disc that is wider from array to array, with some noise.
#[derive(Clone, Copy)]
pub(crate) struct Stream {
    pub(crate) shape: [usize; 2],
    pub(crate) seed: u64,
}

impl Stream {
    /// Writes rows of an array, from its row `first` on.
    pub(crate) fn fill(&self, array: usize, first: usize, elements: &mut [Number]) {
        let [height, width] = self.shape.map(|extent| extent as i64);
        let radius = 2 + (height.min(width) / 16) * (1 + array as i64 % 4);
        for (row, elements) in (first as i64..).zip(elements.chunks_mut(self.shape[1])) {
            let mut random = self.seed ^ ((array as u64) << 32 | row as u64);
            for (column, element) in (0..).zip(elements) {
                // Twice the distances from the middle.
                let (down, right) = (2 * row - height, 2 * column - width);
                let inside = down * down + right * right < 4 * radius * radius;
                random =
                    random.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
                let noise = (random >> 40) as f64 * 1e-10;
                *element = Number::new(f64::from(u8::from(inside)) + noise, noise / 2.0);
            }
        }
    }

    /// Returns an array as a whole.
    pub(crate) fn array(&self, array: usize) -> Vec<Number> {
        let mut elements = vec![ZERO; self.shape[0] * self.shape[1]];
        self.fill(array, 0, &mut elements);
        elements
    }
}

/// Compares columns of an array's transform, one behind the other, with the sums that define them. Returns the largest
/// difference, and the largest magnitude.
pub(crate) fn compare(
    stream: Stream,
    array: usize,
    columns: Range<usize>,
    found: &[Number],
) -> [f64; 2] {
    let expected = by_definition(&stream.array(array), stream.shape, columns);
    let apart = expected.iter().zip(found).map(|(a, b)| (a - b).norm());
    // A difference that is no number counts as the largest.
    let apart = apart.map(|it| if it.is_nan() { f64::INFINITY } else { it });
    [apart.fold(0.0, f64::max), expected.iter().map(|it| it.norm()).fold(0.0, f64::max)]
}

/// Writes the last array and its transform into files of a folder, for NumPy.
///
/// # Errors
/// A file cannot be written; the text names it.
pub(crate) fn write_npy(
    folder: &Path,
    array: &[Number],
    transformed: &[Number],
    shape: [usize; 2],
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let whole = Layout::parse("(*,*)", &shape)?;
    for (name, elements) in [("input.npy", array), ("transform.npy", transformed)] {
        let mut file = Npy::create::<[f64; 2]>(folder.join(name), &shape)?;
        file.write_local(&whole, 0, bytemuck::cast_slice::<Number, [f64; 2]>(elements))?;
    }
    Ok(())
}

/// Draws the logarithms of the magnitudes, frequency 0 in the middle.
///
/// # Errors
/// The file cannot be written; the text names it.
pub(crate) fn draw(
    file: &Path,
    transformed: &[Number],
    [rows, columns]: [usize; 2],
) -> Result<(), String> {
    let logarithm = |number: &Number| number.norm().max(1e-300).ln();
    let highest = transformed.iter().map(logarithm).fold(f64::NEG_INFINITY, f64::max);
    let pixel = |at: usize| -> Pixel {
        let [row, column] = [at / columns + rows.div_ceil(2), at % columns + columns.div_ceil(2)];
        let number = &transformed[row % rows * columns + column % columns];
        // Ten natural logarithms below the highest is black.
        let bright = (25.5 * (10.0 + logarithm(number) - highest)).clamp(0.0, 255.0) as u8;
        [bright, bright, (bright / 2).saturating_add(bright / 4)]
    };
    let pixels: Vec<Pixel> = (0..rows * columns).map(pixel).collect();
    save((columns as u32, rows as u32), &pixels, file)
}
