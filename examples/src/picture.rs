//! Pictures as PNG files.

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Seek, Write};
use std::path::Path;

use png::{BitDepth, ColorType, Decoder, DecodingError, Encoder, EncodingError, Transformations};

use crate::command_line::can_be_a_file;

/// Longest side of a picture, in pixels.
pub const SIDE_MAX: u32 = 16_384;

/// Red, green and blue of a pixel.
pub type Pixel = [u8; 3];

/// Writes a picture as a PNG file: its sides, and its pixels row by row from the top.
///
/// # Errors
/// The file cannot be written; the text begins with its name.
pub fn save(size: (u32, u32), pixels: &[Pixel], path: &Path) -> Result<(), String> {
    let file = File::create(path).map_err(EncodingError::from);
    let written = file.and_then(|file| write(size, pixels, BufWriter::new(file)));
    written.map_err(|error| format!("{}: {error}", path.display()))
}

/// Returns a picture as the bytes of a PNG file: its sides, and its pixels row by row from the top.
///
/// # Errors
/// There are more or fewer pixels than the sides say.
pub fn encode(size: (u32, u32), pixels: &[Pixel]) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    write(size, pixels, &mut bytes).map_err(|error| error.to_string())?;
    Ok(bytes)
}

fn write(
    (width, height): (u32, u32),
    pixels: &[Pixel],
    file: impl Write,
) -> Result<(), EncodingError> {
    let mut file = Encoder::new(file, width, height);
    file.set_color(ColorType::Rgb);
    file.set_depth(BitDepth::Eight);
    let mut image = file.write_header()?;
    image.write_image_data(pixels.as_flattened())?;
    image.finish()
}

/// Reads a PNG file: its sides, and its pixels row by row from the top. Shades of grey become pixels of
/// three equal values; what is transparent is not.
///
/// # Errors
/// The file cannot be read, or has more than [`SIDE_MAX`] pixels a side; the text begins with its name.
pub fn load(path: &Path) -> Result<((u32, u32), Vec<Pixel>), String> {
    let file = File::open(path).map_err(|error| error.to_string());
    let loaded = file.and_then(|file| decode(BufReader::new(file)));
    loaded.map_err(|error| format!("{}: {error}", path.display()))
}

/// Reads a picture as [`load`] does, from the bytes of a PNG file.
///
/// # Errors
/// As [`load`], without a name.
pub fn decode(file: impl BufRead + Seek) -> Result<((u32, u32), Vec<Pixel>), String> {
    let text = |error: DecodingError| error.to_string();
    let mut decoder = Decoder::new(file);
    decoder.set_transformations(Transformations::normalize_to_color8());
    let mut reader = decoder.read_info().map_err(text)?;
    let size = reader.info().size();
    let bytes = reader.output_buffer_size().filter(|_| size.0.max(size.1) <= SIDE_MAX);
    let mut bytes = vec![0; bytes.ok_or("the picture is too large")?];
    let frame = reader.next_frame(&mut bytes).map_err(text)?;
    bytes.truncate(frame.buffer_size());
    let pixels = bytes.chunks_exact(frame.color_type.samples());
    let pixel = |samples: &[u8]| match *samples {
        [red, green, blue, ..] => [red, green, blue],
        [grey, ..] => [grey; 3],
        [] => [0; 3],
    };
    Ok((size, pixels.map(pixel).collect()))
}

/// Checks the place of the picture's file, before anything is computed.
///
/// # Errors
/// A text that says what is allowed.
pub fn check_output(path: &Path) -> Result<(), String> {
    if can_be_a_file(path) {
        return Ok(());
    }
    Err(format!("--output {}: allowed is a file in a folder that exists", path.display()))
}
