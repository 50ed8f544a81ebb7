//! Options of the picture, which both programs have.

use chunkcomm_examples::command_line::numbers;
use chunkcomm_examples::picture::SIDE_MAX;
use clap::Args;

use super::view::{Region, View};

/// Most steps of a pixel, which has 16 bits for them.
const ITERATIONS_MAX: u64 = u16::MAX as u64;

/// The picture to render, and its tasks.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct PictureOptions {
    /// Pixels of the picture
    #[arg(long, value_name = "WIDTHxHEIGHT", value_parser = parse_size, default_value = "800x600")]
    pub(crate) size: (u32, u32),

    /// Part of the complex plane that fills the picture
    #[arg(
        long,
        value_name = "LEFT,RIGHT,BOTTOM,TOP",
        value_parser = parse_region,
        default_value = "-2.25,0.75,-1.125,1.125"
    )]
    pub(crate) region: Region,

    /// Steps after which a point counts as one of the set
    #[arg(long, value_name = "N", value_parser = numbers::<u16>(1..=ITERATIONS_MAX), default_value_t = 256)]
    pub(crate) iterations: u16,

    /// Rows of the picture in a task
    #[arg(long, value_name = "N", value_parser = numbers::<u32>(1..=SIDE_MAX.into()), default_value_t = 1)]
    pub(crate) rows: u32,
}

impl PictureOptions {
    /// Returns the picture to render.
    pub(crate) fn view(&self) -> View {
        let (width, height) = self.size;
        View { width, height, region: self.region, iterations: self.iterations }
    }
}

fn parse_size(text: &str) -> Result<(u32, u32), String> {
    let side = |side: &str| side.parse().ok().filter(|pixels| (1..=SIDE_MAX).contains(pixels));
    text.split_once('x')
        .and_then(|(width, height)| Some((side(width)?, side(height)?)))
        .ok_or_else(|| format!("allowed is WIDTHxHEIGHT with 1 to {SIDE_MAX} pixels each"))
}

fn parse_region(text: &str) -> Result<Region, String> {
    let numbers: Vec<f64> =
        text.split(',').filter_map(|number| number.trim().parse().ok()).collect();
    match numbers[..] {
        [left, right, bottom, top]
            if text.split(',').count() == 4
                && numbers.iter().all(|number| number.is_finite())
                && left < right
                && bottom < top =>
        {
            Ok(Region { left, right, bottom, top })
        }
        _ => Err("allowed is LEFT,RIGHT,BOTTOM,TOP with LEFT < RIGHT and BOTTOM < TOP".into()),
    }
}
