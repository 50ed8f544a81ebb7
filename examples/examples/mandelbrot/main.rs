//! Renders the Mandelbrot set with a farm. By default it is the picture of the LAN farm study
//! (section 4): 800 x 600 pixels, at most 256 steps each, tasks of 800 pixels.
//!
//! ```text
//! cargo run --release --example mandelbrot -- --help
//! mpiexec.hydra -n 4 target/release/examples/mandelbrot
//! ```
//!
//! The workers are processes or threads that the farmer starts here; in a cluster they are its nodes.

mod colours;
mod options;
mod picture_options;
mod view;

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use chunkcomm::host;
use chunkcomm_cluster::{Cluster, Function, Registry};
use chunkcomm_examples::command_line::{parse, write_out};
use chunkcomm_examples::farm_report::Report;
use chunkcomm_examples::farming::{FINISH_DEADLINE, alone, start, work};
use chunkcomm_examples::picture::check_output;
use chunkcomm_examples::program::{failed, on_a_thread, run_program};
use chunkcomm_examples::progress::show_progress;
use chunkcomm_farm::{Farm, RegistryExt as _, RunError, RunStats, serve_if_started};

use options::Options;
use view::{STEP_NANOS, Steps, Tile};

type Failure = Box<dyn Error>;

#[derive(Clone)]
struct Program {
    options: &'static Options,
    registry: Registry,
    render: Function<Tile, Steps>,
    /// Waits for some milliseconds before that.
    render_after: Function<(u32, Tile), Steps>,
}

fn main() -> ExitCode {
    let mut registry = Registry::new();
    let render = registry.register_task("render", |task, tile| {
        view::render(tile, STEP_NANOS, |fraction| task.progress(fraction))
    });
    let render_after =
        registry.register_async_task("render-after", |task, (wait, tile)| async move {
            host::sleep(Duration::from_millis(u64::from(wait))).await;
            view::render(tile, STEP_NANOS, |fraction| task.progress(fraction))
        });
    serve_if_started(&registry); // a worker process that the farm started goes no further

    let options = parse::<Options>();
    let in_a_cluster = match options.cluster.are_of_a_cluster() {
        Ok(is_told) => is_told,
        Err(error) => return failed("mandelbrot", &error),
    };
    options.check(in_a_cluster).unwrap_or_else(|error| error.exit());
    let program = Program { options, registry, render, render_after };
    run_program("mandelbrot", &options.cluster, || program.clone().work(in_a_cluster))
}

impl Program {
    /// Returns the exit status: 1 when the two pictures differ and the check was asked for.
    async fn work(self, in_a_cluster: bool) -> Result<ExitCode, Failure> {
        let farm_out = async |cluster: Option<&Cluster>| self.farm_out(cluster).await;
        work(&self.options.cluster, &self.registry, in_a_cluster, farm_out).await
    }

    /// Renders alone, unless it is not to, and with the farm; writes the picture and the report. Returns
    /// false when the two pictures differ and the check was asked for.
    async fn farm_out(&self, cluster: Option<&Cluster>) -> Result<bool, Failure> {
        let options = self.options;
        check_output(&options.output)?;
        let view = options.picture.view();
        let sequential = match options.no_sequential {
            true => None,
            false => Some(self.render_alone(cluster).await?),
        };

        let mut farm = start(&options.farm, self.registry.clone(), cluster).await?;
        let (steps, stats) = self.render_with(&mut farm).await?;
        farm.finish(FINISH_DEADLINE).await?;
        options.farm.write_timeline(&stats)?;
        let output = options.output.clone();
        let save = move || (colours::save(&view, &steps, &output), steps);
        let (saved, steps) = on_a_thread(save).await?;
        saved?;

        let mut report = Report::default();
        let (width, height, iterations) = (view.width, view.height, view.iterations);
        report.row("picture", format_args!("{width} x {height} pixels, {iterations} iterations"));
        let time = sequential.as_ref().map(|(_, time)| *time);
        report.run(&options.farm, cluster.is_some(), time, &stats);
        report.row("written", options.output.display());
        let to_compare = sequential.filter(|_| options.sequential_check);
        let different = to_compare.map_or(0, |(alone, _)| report.check(&steps, &alone));
        write_out(report.text())?;
        Ok(different == 0)
    }

    async fn render_alone(&self, cluster: Option<&Cluster>) -> Result<(Steps, Duration), Failure> {
        let whole = self.options.picture.view().whole();
        let render = move |report: &dyn Fn(f64)| view::render(whole, STEP_NANOS, report);
        alone(cluster, self.options.no_progress, render).await
    }

    async fn render_with(&self, farm: &mut Farm) -> Result<(Steps, RunStats), RunError> {
        let (view, rows) = (self.options.picture.view(), self.options.picture.rows);
        let mut steps = vec![0; view.pixels()];
        let tile_pixels = view.width as usize * rows as usize;
        let tiles = view.tiles(rows);
        show_progress(farm, self.options.no_progress);
        let place = |index, tile: Steps| {
            let at = index as usize * tile_pixels;
            steps[at..at + tile.len()].copy_from_slice(&tile);
        };
        let stats = match self.options.wait {
            0 => farm.stream(&self.render, tiles)?.as_completed().for_each(place).await?,
            wait => {
                let tiles = tiles.map(|tile| (wait, tile));
                let results = farm.stream(&self.render_after, tiles)?.as_completed();
                results.for_each(place).await?
            }
        };
        Ok((steps, stats))
    }
}
