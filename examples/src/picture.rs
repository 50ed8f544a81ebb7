//! Pictures as PNG files.

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

use png::{BitDepth, ColorType, Encoder, EncodingError};

/// Longest side of a picture, in pixels.
pub const SIDE_MAX: u32 = 16_384;

/// Red, green and blue of a pixel.
pub type Pixel = [u8; 3];

/// Writes a picture as a PNG file: its sides, and its pixels row by row from the top.
///
/// # Errors
/// The file cannot be written; the text begins with its name.
pub fn save((width, height): (u32, u32), pixels: &[Pixel], path: &Path) -> Result<(), String> {
    let write = || -> Result<(), EncodingError> {
        let mut file = Encoder::new(BufWriter::new(File::create(path)?), width, height);
        file.set_color(ColorType::Rgb);
        file.set_depth(BitDepth::Eight);
        let mut image = file.write_header()?;
        image.write_image_data(pixels.as_flattened())?;
        image.finish()
    };
    write().map_err(|error| format!("{}: {error}", path.display()))
}

/// Checks the place of the picture's file, before anything is computed.
///
/// # Errors
/// A text that says what is allowed.
pub fn check_output(path: &Path) -> Result<(), String> {
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    if path.is_dir() || path.file_name().is_none() || !folder.is_dir() {
        let path = path.display();
        return Err(format!("--output {path}: allowed is a file in a folder that exists"));
    }
    Ok(())
}
