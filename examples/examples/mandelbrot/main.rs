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
mod farm_options;
mod options;
mod progress;
mod report;
mod view;

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use chunkcomm_cluster::cluster::Death;
use chunkcomm_cluster::{Cluster, Function, Registry};
use chunkcomm_examples::cluster_options::{end_led, end_served, first_death};
use chunkcomm_examples::command_line::{parse, write_out};
use chunkcomm_examples::program::{failed, on_a_thread, run_program};
use chunkcomm_farm::{Farm, Model, RunError, RunStats, StartError, serve_if_started, serve_in};

use options::Options;
use progress::Progress;
use view::{Steps, Tile, render, render_alone};

/// Time that the workers have to end once all is done.
const FINISH_DEADLINE: Duration = Duration::from_secs(10);

type Failure = Box<dyn Error>;

#[derive(Clone)]
struct Program {
    options: &'static Options,
    registry: Registry,
    render: Function<Tile, Steps>,
}

fn main() -> ExitCode {
    let mut registry = Registry::new();
    let render = registry.register("render", render);
    serve_if_started(&registry); // a worker process that the farm started goes no further

    let options = parse::<Options>();
    let in_a_cluster = match options.cluster.are_of_a_cluster() {
        Ok(is_told) => is_told,
        Err(error) => return failed("mandelbrot", &error),
    };
    options.check(in_a_cluster).unwrap_or_else(|error| error.exit());
    let program = Program { options, registry, render };
    run_program("mandelbrot", &options.cluster, || program.clone().work(in_a_cluster))
}

impl Program {
    /// Returns the exit status: 1 when the two pictures differ and the check was asked for.
    async fn work(self, in_a_cluster: bool) -> Result<ExitCode, Failure> {
        let done =
            if in_a_cluster { self.work_in_cluster().await } else { self.farm_out(None).await };
        Ok(ExitCode::from(u8::from(!done?)))
    }

    /// Works in a cluster: rank 0 is the farmer, the others are its workers.
    async fn work_in_cluster(&self) -> Result<bool, Failure> {
        let config = self.options.cluster.config().registry(&self.registry);
        let Some(cluster) = self.options.cluster.join(config).await? else { return Ok(true) };
        if cluster.rank() > 0 {
            serve_in(&cluster, &self.registry).await?;
            return end_served(&cluster).await.map(|()| true);
        }
        let done = self.farm_out(Some(&cluster)).await;
        end_led(&cluster, done).await
    }

    /// Renders twice, alone and with the farm, and writes the picture and the report; returns
    /// false when the two pictures differ and the check was asked for.
    async fn farm_out(&self, cluster: Option<&Cluster>) -> Result<bool, Failure> {
        let options = self.options;
        options.check_output()?;
        let view = options.view();
        let (sequential, sequential_time) = tokio::select! {
            biased;
            rendered = render_alone(view) => rendered?,
            death = first_death_in(cluster) => return Err(death.to_string().into()),
        };

        let mut farm = self.start(cluster).await?;
        let (steps, stats) = self.render_with(&mut farm).await?;
        farm.finish(FINISH_DEADLINE).await?;
        let output = options.output.clone();
        let save = move || (colours::save(&view, &steps, &output), steps);
        let (saved, steps) = on_a_thread(save).await?;
        saved.map_err(|error| format!("{}: {error}", options.output.display()))?;

        let mut report = report::of(options, cluster.is_some(), sequential_time, &stats);
        let different = report.check(options, &steps, &sequential);
        write_out(report.text())?;
        Ok(different == 0)
    }

    async fn start(&self, cluster: Option<&Cluster>) -> Result<Farm, StartError> {
        let farm = self.options.farm.apply(Farm::builder(self.registry.clone()));
        #[cfg(unix)]
        let farm = farm.explain_on_sigusr1();
        match cluster {
            None => farm.start().await,
            // Without other nodes only the farmer can work.
            Some(cluster) if cluster.size() == 1 => farm.model(Model::A).start_in(cluster).await,
            Some(cluster) => farm.start_in(cluster).await,
        }
    }

    async fn render_with(&self, farm: &mut Farm) -> Result<(Steps, RunStats), RunError> {
        let (view, rows) = (self.options.view(), self.options.rows);
        let mut steps = vec![0; view.pixels()];
        let tile_pixels = view.width as usize * rows as usize;
        let tiles = view.tiles(rows);
        let mut progress = Progress::new(tiles.len(), self.options.no_progress);
        let place = |index, tile: Steps| {
            let at = index as usize * tile_pixels;
            steps[at..at + tile.len()].copy_from_slice(&tile);
            progress.advance();
        };
        let stats = farm.run_as_completed(&self.render, tiles, place).await?;
        Ok((steps, stats))
    }
}

async fn first_death_in(cluster: Option<&Cluster>) -> Death {
    match cluster {
        Some(cluster) => first_death(cluster).await,
        None => std::future::pending().await,
    }
}
