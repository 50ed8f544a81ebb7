//! Colours for numbers of steps.

use std::f32::consts::TAU;
use std::path::Path;

use chunkcomm_examples::picture::{self, Pixel};

use super::view::View;

/// Returns the colour, red, green and blue, of a point that left after `steps` of `most` steps;
/// points that did not leave are black.
///
/// Each channel is a cosine over the square root of the share, which spreads the many points
/// that leave early. The colours go from deep blue outside, through white and amber, to dark
/// red at the edge of the set.
fn colour(steps: u16, most: u16) -> Pixel {
    if steps >= most {
        return [0; 3];
    }
    let share = (f32::from(steps) / f32::from(most)).sqrt();
    [0.02, 0.12, 0.25].map(|phase| {
        let level = 0.5 - 0.5 * (TAU * (share + phase)).cos();
        // The product is between 0 and 255 by its form; the cast cuts off the fraction.
        (level * 255.0) as u8
    })
}

/// Writes the picture as a PNG file; `steps` has one number a pixel.
///
/// # Errors
/// When the file cannot be written.
pub(crate) fn save(view: &View, steps: &[u16], path: &Path) -> Result<(), String> {
    let pixels: Vec<_> = steps.iter().map(|&steps| colour(steps, view.iterations)).collect();
    picture::save((view.width, view.height), &pixels, path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn the_set_is_black_and_nothing_else_is() {
        assert_eq!(colour(256, 256), [0; 3]);
        assert!((0..256).all(|steps| colour(steps, 256) != [0; 3]));
    }

    #[test]
    fn neighbouring_steps_differ() {
        let colours: HashSet<_> = (0..256).map(|steps| colour(steps, 256)).collect();
        assert!(colours.len() > 200, "{} colours of 256", colours.len());
    }
}
