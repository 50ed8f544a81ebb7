//! The files with image, kernel and result of a round.

use std::path::Path;

use chunkcomm::with_causes;
use chunkcomm_array::{Layout, Npy};
use chunkcomm_examples::picture::{Pixel, save};

use super::inputs::{Inputs, Stream};
use super::options::Options;

/// Columns between two pictures.
const GAP: usize = 4;

const WHITE: Pixel = [255; 3];

/// Writes image, kernel and result of the last round to the files that the options name.
///
/// # Errors
/// A file cannot be written; the text names it.
pub(crate) fn write(options: &Options, inputs: &Inputs, result: &[f64]) -> Result<(), String> {
    let shape = inputs.shape;
    let [image, kernel] = [Stream::Images, Stream::Kernels]
        .map(|stream| inputs.rows(stream, options.images - 1, 0..shape[0]));
    let three = [&image[..], &kernel, result];
    picture(&options.output, shape, three)?;
    options.npy.as_ref().map_or(Ok(()), |file| npy(file, shape, three))
}

/// Saves image, kernel and result side by side. The kernel has its origin in the middle, and its largest
/// weight is white.
fn picture(
    path: &Path,
    shape @ [rows, columns]: [usize; 2],
    [image, kernel, result]: [&[f64]; 3],
) -> Result<(), String> {
    let largest = kernel.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
    let middle = shape.map(|extent| extent / 2);
    let width = 3 * columns + 2 * GAP;
    let mut pixels = vec![WHITE; rows * width];
    for row in 0..rows {
        for column in 0..columns {
            let at = row * columns + column;
            let [from_row, from_column] = [(row, 0), (column, 1)]
                .map(|(it, axis)| (it + shape[axis] - middle[axis]) % shape[axis]);
            let weight = kernel[from_row * columns + from_column] / largest;
            for (index, shade) in [image[at], weight, result[at]].into_iter().enumerate() {
                let shade = (255.0 * shade.clamp(0.0, 1.0)).round() as u8;
                pixels[row * width + index * (columns + GAP) + column] = [shade; 3];
            }
        }
    }
    save((width as u32, rows as u32), &pixels, path)
}

/// Writes image, kernel and result as one array of three. The kernel's origin is its first element.
fn npy(path: &Path, [rows, columns]: [usize; 2], three: [&[f64]; 3]) -> Result<(), String> {
    let shape = [3, rows, columns];
    let layout = Layout::builder(&shape).whole().whole().whole().build();
    let layout = layout.map_err(|error| error.to_string())?;
    let written = Npy::create::<f64>(path, &shape)
        .and_then(|mut file| file.write_local(&layout, 0, &three.concat()));
    written.map_err(|error| with_causes(&error))
}
