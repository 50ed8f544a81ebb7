//! Renders the Mandelbrot set with a farm: the picture of the LAN farm study
//! (section 4): 800 x 600 pixels, at most 256 steps each, tasks of 800 pixels.

pub mod colours;
pub mod options;
mod report;
pub mod view;

use std::error::Error;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use chunkcomm::Registry;
use chunkcomm_farm::{Farm, RunStats, serve_if_started};
use indicatif::{ProgressBar, ProgressStyle};

use crate::command_line::{parse, write_out};
use options::Options;
use view::{Steps, View};

/// How long the workers have to end once all is done.
const FINISH_DEADLINE: Duration = Duration::from_secs(10);

/// A sequential rendering that takes longer than this is not repeated.
const REPEATED_BELOW: Duration = Duration::from_secs(1);

/// The whole program: in a copy that a farm started the worker, else the farmer.
#[must_use]
pub fn run() -> ExitCode {
    let mut registry = Registry::new();
    let render = registry.register("render", view::render);
    serve_if_started(&registry);

    let options = parse::<Options>();
    match farm_out(&options, registry, &render) {
        Ok(same) => ExitCode::from(u8::from(!same)),
        Err(error) => {
            eprintln!("mandelbrot: {}", report::with_sources(error.as_ref()));
            ExitCode::FAILURE
        }
    }
}

type Render = chunkcomm::registry::Function<view::Tile, Steps>;

/// Renders twice, by itself and with the farm, writes the picture and the report;
/// false when the two pictures differ and that was asked for.
fn farm_out(
    options: &Options,
    registry: Registry,
    render: &Render,
) -> Result<bool, Box<dyn Error>> {
    let (sequential, sequential_time) = render_alone(options.view());

    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (steps, stats) = runtime.block_on(async {
        let farm = options.farm.apply(Farm::builder(registry));
        #[cfg(unix)]
        let farm = farm.explain_on_sigusr1();
        let mut farm = farm.start().await?;
        let rendered = render_with(&mut farm, options, render).await?;
        farm.finish(FINISH_DEADLINE).await?;
        Ok::<_, Box<dyn Error>>(rendered)
    })?;
    colours::save(&options.view(), &steps, &options.output)
        .map_err(|error| format!("{}: {error}", options.output.display()))?;

    let mut report = report::of(options, sequential_time, &stats);
    let mut different = 0;
    if options.sequential_check {
        different = steps.iter().zip(&sequential).filter(|(one, other)| one != other).count();
        let told = format!("{different} pixels differ from the sequential picture");
        report.row("check", told);
    }
    write_out(report.text())?;
    Ok(different == 0)
}

/// The picture without a farm, and its time: the better of two where it is short, since the first
/// pays for cold memory and a slow clock, which would pass for a speed-up of the farm.
fn render_alone(view: View) -> (Steps, Duration) {
    let timed = || {
        let begun = Instant::now();
        let steps = view.render();
        (steps, begun.elapsed())
    };
    let (steps, first) = timed();
    let again = (first < REPEATED_BELOW).then(|| timed().1);
    (steps, again.map_or(first, |again| again.min(first)))
}

async fn render_with(
    farm: &mut Farm,
    options: &Options,
    render: &Render,
) -> Result<(Steps, RunStats), Box<dyn Error>> {
    let view = options.view();
    let mut steps = vec![0; view.width as usize * view.height as usize];
    let tile_pixels = view.width as usize * options.rows as usize;
    let tiles = view.tiles(options.rows);
    let progress = progress_bar(tiles.len(), options.no_progress);
    let stats = farm
        .run_as_completed(render, tiles, |index, tile: Steps| {
            let at = index as usize * tile_pixels;
            steps[at..at + tile.len()].copy_from_slice(&tile);
            progress.inc(1);
        })
        .await?;
    progress.finish_and_clear();
    Ok((steps, stats))
}

/// On stderr, and only when that is a terminal.
fn progress_bar(tasks: usize, hidden: bool) -> ProgressBar {
    if hidden {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} tasks, {per_sec}, {eta} left")
        .expect("the template is well formed");
    ProgressBar::new(tasks as u64).with_style(style)
}
