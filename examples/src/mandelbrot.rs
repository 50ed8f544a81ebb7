//! Renders the Mandelbrot set with a farm. By default it is the picture of the LAN farm study
//! (section 4): 800 x 600 pixels, at most 256 steps each, tasks of 800 pixels.
//!
//! The workers are processes or threads that the farmer starts here; in a cluster they are its nodes.

pub mod colours;
pub mod options;
mod report;
pub mod view;

use std::error::Error;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use chunkcomm_cluster::cluster::{Death, End};
use chunkcomm_cluster::{Cluster, Registry};
use chunkcomm_farm::{Farm, Model, RunStats, StartError, serve_if_started, serve_in};
use indicatif::{ProgressBar, ProgressStyle};

use crate::cluster_options::{cause_first, first_death};
use crate::command_line::{parse, write_out};
use crate::program::{failed, on_a_thread};
use options::Options;
use view::{Steps, View};

/// Time that the workers have to end once all is done.
const FINISH_DEADLINE: Duration = Duration::from_secs(10);

/// Time of a sequential rendering above which it is not repeated.
const REPEATED_BELOW: Duration = Duration::from_secs(1);

/// Time that the nodes of a cluster have to end.
const END_DEADLINE: Duration = Duration::from_secs(30);

/// Runs the whole program: the worker in a copy that a farm started, otherwise the farmer or a node
/// of a cluster.
#[must_use]
pub fn run() -> ExitCode {
    let mut registry = Registry::new();
    let render = registry.register("render", view::render);
    serve_if_started(&registry);

    let options = parse::<Options>();
    match work(&options, registry, &render) {
        Ok(same) => ExitCode::from(u8::from(!same)),
        Err(error) => failed("mandelbrot", &*error),
    }
}

type Render = chunkcomm_cluster::registry::Function<view::Tile, Steps>;

/// Returns false when the two pictures differ and the check was asked for.
fn work(options: &Options, registry: Registry, render: &Render) -> Result<bool, Box<dyn Error>> {
    let in_a_cluster = options.cluster.are_of_a_cluster()?;
    options.check(in_a_cluster).unwrap_or_else(|error| error.exit());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    if in_a_cluster {
        runtime.block_on(work_in_cluster(options, registry, render))
    } else {
        runtime.block_on(farm_out(options, None, registry, render))
    }
}

/// Works in a cluster: rank 0 is the farmer, the others are its workers.
async fn work_in_cluster(
    options: &Options,
    registry: Registry,
    render: &Render,
) -> Result<bool, Box<dyn Error>> {
    let joined = options.cluster.join_with(|config| config.registry(&registry)).await?;
    let Some(cluster) = joined else { return Ok(true) };
    if cluster.rank() > 0 {
        serve_in(&cluster, &registry).await?;
        return match cluster.finished().await {
            End::Finished { .. } => Ok(cluster.end(END_DEADLINE).await.map(|()| true)?),
            end => Err(end.to_string().into()),
        };
    }
    let done = farm_out(options, Some(&cluster), registry, render).await;
    let done = cause_first(&cluster, done).await;
    cluster.finish();
    let ended = cluster.end(END_DEADLINE).await;
    // An earlier error is the cause of how the cluster ended.
    let same = done?;
    ended?;
    Ok(same)
}

/// Renders twice, alone and with the farm, and writes the picture and the report; returns
/// false when the two pictures differ and the check was asked for.
async fn farm_out(
    options: &Options,
    cluster: Option<&Cluster>,
    registry: Registry,
    render: &Render,
) -> Result<bool, Box<dyn Error>> {
    options.check_output()?;
    let view = options.view();
    let (sequential, sequential_time) = tokio::select! {
        rendered = on_a_thread(move || render_alone(view)) => rendered?,
        death = first_death_in(cluster) => return Err(death.to_string().into()),
    };

    let mut farm = start(options, cluster, registry).await?;
    let (steps, stats) = render_with(&mut farm, options, render).await?;
    farm.finish(FINISH_DEADLINE).await?;
    let output = options.output.clone();
    let save = move || (colours::save(&view, &steps, &output), steps);
    let (saved, steps) = on_a_thread(save).await?;
    saved.map_err(|error| format!("{}: {error}", options.output.display()))?;

    let mut report = report::of(options, cluster.is_some(), sequential_time, &stats);
    let mut different = 0;
    if options.sequential_check {
        different = steps.iter().zip(&sequential).filter(|(one, other)| one != other).count();
        let told = format!("{different} pixels differ from the sequential picture");
        report.row("check", told);
    }
    write_out(report.text())?;
    Ok(different == 0)
}

async fn start(
    options: &Options,
    cluster: Option<&Cluster>,
    registry: Registry,
) -> Result<Farm, StartError> {
    let farm = options.farm.apply(Farm::builder(registry));
    #[cfg(unix)]
    let farm = farm.explain_on_sigusr1();
    match cluster {
        None => farm.start().await,
        // Without other nodes only the farmer can work.
        Some(cluster) if cluster.size() == 1 => farm.model(Model::A).start_in(cluster).await,
        Some(cluster) => farm.start_in(cluster).await,
    }
}

async fn first_death_in(cluster: Option<&Cluster>) -> Death {
    match cluster {
        Some(cluster) => first_death(cluster).await,
        None => std::future::pending().await,
    }
}

/// Renders the picture without a farm and returns its time: the better of two where it is short. The
/// first rendering pays for cold memory and a slow clock, which would pass for a speed-up of the farm.
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

/// Returns a progress bar on stderr, shown only when that is a terminal.
fn progress_bar(tasks: usize, hidden: bool) -> ProgressBar {
    if hidden {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} tasks, {per_sec}, {eta} left")
        .expect("the template is well formed");
    ProgressBar::new(tasks as u64).with_style(style)
}
