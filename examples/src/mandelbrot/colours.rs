//! Colours for numbers of steps.

use std::f32::consts::TAU;
use std::path::Path;

use image::{ImageResult, Rgb, RgbImage};

use super::view::View;

/// Returns the colour of a point that left after `steps` of `most` steps; points that did
/// not leave are black.
///
/// Each channel is a cosine over the square root of the share, which spreads the many points
/// that leave early. The colours go from deep blue outside, through white and amber, to dark
/// red at the edge of the set.
#[must_use]
pub fn colour(steps: u16, most: u16) -> Rgb<u8> {
    if steps >= most {
        return Rgb([0, 0, 0]);
    }
    let share = (f32::from(steps) / f32::from(most)).sqrt();
    let channel = |phase: f32| {
        let level = 0.5 - 0.5 * (TAU * (share + phase)).cos();
        // The product is between 0 and 255 by its form; the cast cuts off the fraction.
        (level * 255.0) as u8
    };
    Rgb([channel(0.02), channel(0.12), channel(0.25)])
}

/// Returns the picture in colours.
///
/// # Panics
/// When `steps` does not have one number a pixel.
#[must_use]
pub fn paint(view: &View, steps: &[u16]) -> RgbImage {
    let bytes = steps.iter().flat_map(|&steps| colour(steps, view.iterations).0).collect();
    RgbImage::from_raw(view.width, view.height, bytes)
        .filter(|_| steps.len() == view.width as usize * view.height as usize)
        .expect("there is one number of steps a pixel")
}

/// Writes the picture as a PNG file.
///
/// # Errors
/// When the file cannot be written.
pub fn save(view: &View, steps: &[u16], path: &Path) -> ImageResult<()> {
    paint(view, steps).save_with_format(path, image::ImageFormat::Png)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn the_set_is_black_and_nothing_else_is() {
        assert_eq!(colour(256, 256), Rgb([0, 0, 0]));
        assert!((0..256).all(|steps| colour(steps, 256) != Rgb([0, 0, 0])));
    }

    #[test]
    fn neighbouring_steps_differ() {
        let colours: HashSet<_> = (0..256).map(|steps| colour(steps, 256)).collect();
        assert!(colours.len() > 200, "{} colours of 256", colours.len());
    }
}
