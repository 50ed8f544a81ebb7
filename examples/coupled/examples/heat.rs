//! Heat spreads over a plate whose parts lie at the nodes of a cluster; beyond its edges it is cold.
//!
//! ```text
//! cargo run --release --example heat
//! mpiexec.hydra -n 4 target/release/examples/heat --steps 2000 --files .
//! ```
//!
//! Each step needs a row and a column of the neighbours' parts: the margins of the array.

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

use chunkcomm::host::Instant;
use chunkcomm_array::{Array, Layout};
use chunkcomm_cluster::Cluster;
use chunkcomm_examples::cluster_options::{ClusterOptions, end_led, end_served};
use chunkcomm_examples::command_line::{numbers, parse_with, write_out};
use chunkcomm_examples::farm_report::Report;
use chunkcomm_examples::groups::shape;
use chunkcomm_examples::picture::{Pixel, check_output, save};
use chunkcomm_examples::program::run_program;
use chunkcomm_examples::progress::Bar;
use chunkcomm_group::Group;
use clap::Parser;

type Failure = Box<dyn Error>;

/// Steps between two files, and two looks at the progress.
const STEPS_A_FILE: usize = 100;

/// Computes how heat spreads from two hot spots of a plate, with the nodes of a cluster; 4 on this machine if nothing
/// else is said.
#[derive(Parser)]
#[command(name = "heat", version)]
struct Options {
    /// Rows and columns of the plate
    #[arg(long, value_name = "ROWSxCOLUMNS", default_value = "400x600", value_parser = shape)]
    shape: [usize; 2],

    /// Steps in time
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = numbers::<usize>(1..=1_000_000))]
    steps: usize,

    /// File to draw the last step into, as PNG
    #[arg(long, value_name = "PATH", default_value = "heat.png")]
    output: PathBuf,

    /// Folder for every hundredth step, as heat-000100.npy; all machines share it
    #[arg(long, value_name = "FOLDER")]
    files: Option<PathBuf>,

    /// Compute in one process too and compare; exit status 1 if an element differs
    #[arg(long)]
    check: bool,

    /// Show no progress
    #[arg(long)]
    no_progress: bool,

    /// See [`ClusterOptions`].
    #[command(flatten)]
    cluster: ClusterOptions,
}

impl Options {
    fn check(&self) -> Result<(), String> {
        // In a cluster the picture is written on the machine of rank 0.
        if self.cluster.are_of_a_cluster().is_ok_and(|it| !it) {
            check_output(&self.output)
        } else {
            Ok(())
        }
    }
}

fn main() -> ExitCode {
    let options = parse_with(Options::check);
    run_program("heat", &options.cluster, || work(options))
}

async fn work(options: &'static Options) -> Result<(), Failure> {
    let config = options.cluster.config_of_nodes(4)?;
    let Some(cluster) = options.cluster.join(config).await? else { return Ok(()) };
    if cluster.rank() == 0 {
        let done = lead(&cluster, options).await;
        return end_led(&cluster, done).await;
    }
    match (spread(&cluster, options).await, cluster.ended()) {
        (Err(error), None) => Err(error),
        // The end of the cluster is the cause of any error.
        _ => end_served(&cluster).await,
    }
}

/// Computes this rank's part of all steps. Returns the last one at rank 0.
async fn spread(cluster: &Cluster, options: &Options) -> Result<Option<Vec<f64>>, Failure> {
    let group = Group::world(cluster).await?;
    let layout = Layout::over("(block,block) margin 1", &options.shape, group.size())?;
    let mut plate = Array::from_fn(&group, &layout, |at| hot(options.shape, [at[0], at[1]]))?;
    let bar = Bar::on_terminal(options.no_progress || group.rank() > 0);
    for step in 1..=options.steps {
        plate.halo(1).await?;
        let mut local = plate.local_mut();
        let columns = local.shape()[1];
        let next = stepped(&local, columns);
        local.copy_from_slice(&next);
        if step % STEPS_A_FILE == 0 {
            if let Some(folder) = &options.files {
                plate.write_npy(folder.join(format!("heat-{step:06}.npy"))).await?;
            }
            if let Some(bar) = &bar {
                bar.draw_fraction("heat", step as f64 / options.steps as f64);
            }
        }
    }
    Ok(plate.gather(0).await?)
}

/// Returns the elements of the next step; those at the edges of the storage stay.
fn stepped(now: &[f64], columns: usize) -> Vec<f64> {
    let mut next = now.to_vec();
    let rows = now.len() / columns.max(1);
    for row in 1..rows.saturating_sub(1) {
        for at in row * columns + 1..(row + 1) * columns - 1 {
            let around = now[at - columns] + now[at + columns] + now[at - 1] + now[at + 1];
            next[at] = now[at] + 0.2 * (around - 4.0 * now[at]);
        }
    }
    next
}

/// The first step: a hot spot at a third of the plate, and a hotter one at two thirds.
fn hot(shape: [usize; 2], at: [usize; 2]) -> f64 {
    let spot = |part: f64, heat: f64| {
        let away = |dim: usize| (at[dim] as f64 + 0.5) / shape[dim] as f64 - part;
        if away(0).hypot(away(1)) < 0.12 { heat } else { 0.0 }
    };
    spot(1.0 / 3.0, 0.6) + spot(2.0 / 3.0, 1.0)
}

async fn lead(cluster: &Cluster, options: &Options) -> Result<(), Failure> {
    check_output(&options.output)?;
    let began = Instant::now();
    let plate = spread(cluster, options).await?.ok_or("rank 0 has the plate")?;
    let [rows, columns] = options.shape;
    let mut report = Report::default();
    report.row("plate", format!("{rows} x {columns}, {} steps", options.steps));
    report.row("time", format!("{:.3} s", began.elapsed().as_secs_f64()));
    report.row("heat", format!("{:.6}", plate.iter().sum::<f64>()));
    let pixels: Vec<Pixel> = plate.iter().map(|heat| colour(*heat)).collect();
    save((columns as u32, rows as u32), &pixels, &options.output)?;
    report.row("picture", options.output.display());
    let mut differ = 0;
    if options.check {
        let width = columns + 2;
        let mut alone = vec![0.0; (rows + 2) * width];
        let at = |row: usize, column: usize| (row + 1) * width + column + 1;
        let each = (0..rows).flat_map(|row| (0..columns).map(move |column| [row, column]));
        each.clone()
            .for_each(|[row, column]| alone[at(row, column)] = hot(options.shape, [row, column]));
        for _ in 0..options.steps {
            alone = stepped(&alone, width);
        }
        let expected = each.map(|[row, column]| alone[at(row, column)]);
        differ = plate.iter().zip(expected).filter(|(one, other)| **one != *other).count();
        report.row("check", format!("{differ} elements differ from those of one process"));
    }
    write_out(report.text())?;
    if differ > 0 { Err("the plate is another than that of one process".into()) } else { Ok(()) }
}

/// From black over red and yellow to white.
fn colour(heat: f64) -> Pixel {
    [0.0, 1.0, 2.0].map(|from| ((3.0 * heat.clamp(0.0, 1.0) - from).clamp(0.0, 1.0) * 255.0) as u8)
}
