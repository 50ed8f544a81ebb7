//! Solves Poisson's equation on three coupled blocks, as the multiblock program of Foster, Kohr, Krishnaiyer and
//! Choudhary ("Double Standards: Bringing Task Parallelism to HPF via the Message Passing Interface", 1996).
//!
//! ```text
//! cargo run --release --example multiblock -- --output multiblock.png --check
//! mpiexec.hydra -n 9 target/release/examples/multiblock --ranks 4,1,4
//! target/release/examples/multiblock --tolerance 1e-10 --npy solution.npy
//! python3 examples/coupled/examples/multiblock/compare.py solution.npy    # with numpy and scipy
//! ```
//!
//! Three groups of ranks have a block each. They relax it by red-black over-relaxation, all at once:
//!
//! ```text
//! between the ranks of a block   rows of the margins          Array::halo
//! between two blocks             columns where they touch     ArraySender, ArrayReceiver
//! of all ranks                   the residual                 all_reduce
//! ```
//!
//! Half of the points have no neighbour among themselves. So the order in which they are relaxed, and the number
//! of ranks, change no bit of the result. With `--data-parallel` all ranks compute the blocks in turn.

mod check;
mod concurrent;
mod control;
mod data_parallel;
mod options;
mod part;
mod problem;
mod report;
mod solve;
mod steered;
mod view;

use std::error::Error;
use std::process::ExitCode;

use chunkcomm_array::{Layout, Npy};
use chunkcomm_cluster::Cluster;
use chunkcomm_examples::cluster_options::{cause_first, end_led, end_served, with_all_founders};
use chunkcomm_examples::command_line::{parse_with, write_out};
use chunkcomm_examples::picture::save;
use chunkcomm_examples::program::{on_a_thread, run_program};
use chunkcomm_group::Group;

use options::Options;
use solve::{Solved, solve};
use steered::unless_of_viewers;

type Failure = Box<dyn Error>;

fn main() -> ExitCode {
    let options = parse_with(Options::check);
    run_program("multiblock", &options.cluster(), || async {
        unless_of_viewers(work(options).await)
    })
}

async fn work(options: &'static Options) -> Result<(), Failure> {
    let cluster = options.cluster();
    let config = cluster.config_of_nodes(options.nodes())?;
    let Some(cluster) = cluster.join(config).await? else { return Ok(()) };
    if cluster.rank() == 0 {
        let done = lead(&cluster, options).await;
        return end_led(&cluster, done).await;
    }
    // A wrong number of nodes is told by rank 0.
    if options.spread(cluster.size() as usize).is_ok() {
        let done = cause_first(&cluster, run(&cluster, options).await).await;
        if cluster.ended().is_none() {
            done?;
        }
    }
    end_served(&cluster).await
}

/// Solves with all ranks.
async fn run(cluster: &Cluster, options: &Options) -> Result<Solved, Failure> {
    let mut world = Group::world(cluster).await?;
    let spread = options.spread(world.size())?;
    solve(&mut world, options, &spread).await
}

/// Solves as rank 0, and writes picture and report.
async fn lead(cluster: &Cluster, options: &'static Options) -> Result<(), Failure> {
    options.check_files()?;
    let solved = with_all_founders(cluster, run(cluster, options)).await?;
    // On another thread, so that this one goes on sending signs of life to the other nodes.
    let written = on_a_thread(move || write(options, &solved).map(|()| solved)).await?;
    let solved = written.map_err(|error| -> Failure { error })?;
    let checked = match options.check {
        true => Some(checked(options, &solved).await?),
        false => None,
    };
    let groups = options.groups(cluster.size() as usize);
    let text = if options.json { report::json } else { report::table };
    Ok(write_out(&text(options, &groups, &solved, checked))?)
}

/// Writes the files that the options name.
fn write(options: &Options, solved: &Solved) -> Result<(), Box<dyn Error + Send + Sync>> {
    let geometry = options.geometry();
    let (rows, columns) = (geometry.side, geometry.width());
    let (size, pixels) = view::draw(&solved.values, columns, &solved.residuals);
    save(size, &pixels, &options.output)?;
    if let Some(path) = &options.npy {
        let whole = Layout::parse("(*,*)", &[rows, columns])?;
        Npy::create::<f64>(path, &[rows, columns])?.write_local(&whole, 0, &solved.values)?;
    }
    Ok(())
}

/// Compares with the computation of one process; returns the number of values.
async fn checked(options: &'static Options, solved: &Solved) -> Result<usize, Failure> {
    let (sources, sweeps) = (solved.sources.clone(), solved.sweeps);
    let alone = move || check::alone(options.geometry(), &sources, sweeps);
    let expected = on_a_thread(alone).await?;
    let mut differ = 0;
    for (found, expected) in solved.values.iter().zip(&expected) {
        differ += usize::from(found.to_bits() != expected.to_bits());
    }
    if differ > 0 {
        return Err(format!("{differ} values differ from those of one process").into());
    }
    Ok(expected.iter().filter(|value| value.is_finite()).count())
}
