//! Convolves a stream of images with a stream of kernels by two-dimensional FFTs: the convolution of Foster,
//! Kohr, Krishnaiyer and Choudhary ("Double Standards: Bringing Task Parallelism to HPF via the Message Passing
//! Interface", 1996, section 6, figures 9 and 10).
//!
//! ```text
//! images  ─▶ FFT ─┐
//!                 ├─▶ multiplication ─▶ inverse FFT ─▶ results
//! kernels ─▶ FFT ─┘
//! ```
//!
//! Each of the four blocks has a group of nodes, which is data-parallel within: rows are transformed, the array
//! is transposed in place, its columns are transformed. While a block works at an image, those behind it have
//! the images before. Spectra stay transposed, which saves a second transposition at either end. With
//! `--data-parallel` one group takes the four steps in turn.
//!
//! ```text
//! cargo run --release --example convolution -- --shape 96x250 --check
//! mpiexec.hydra -n 7 target/release/examples/convolution --ranks 2,2,1,2 --image photo.png
//! target/release/examples/convolution --npy three.npy && python3 examples/coupled/examples/fft2d/compare_convolution.py three.npy
//! ```

#[path = "convolution/convolve.rs"]
mod convolve;
#[path = "convolution/inputs.rs"]
mod inputs;
#[path = "convolution/options.rs"]
mod options;
#[path = "convolution/rank.rs"]
mod rank;
#[path = "convolution/table.rs"]
mod table;
#[path = "convolution/transform.rs"]
mod transform;
#[path = "convolution/view.rs"]
mod view;

use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;

use chunkcomm_cluster::Cluster;
use chunkcomm_examples::cluster_options::{end_led, end_served, with_all_founders};
use chunkcomm_examples::command_line::{parse_with, write_out};
use chunkcomm_examples::groups::group_of;
use chunkcomm_examples::program::{on_a_thread, run_program};
use chunkcomm_group::{Group, Op};

use convolve::{Convolution, Results};
use inputs::Inputs;
use options::Options;
use table::Table;

/// Largest difference from a convolution by definition. Shades are from 0 to 1, and so are results.
const TOLERANCE: f64 = 1e-12;

type Failure = Box<dyn Error>;

fn main() -> ExitCode {
    let options = parse_with(Options::check);
    run_program("convolution", &options.of_cluster(), || work(options))
}

async fn work(options: &'static Options) -> Result<(), Failure> {
    // Before there is a cluster: what is wrong with a file is said once, by the only process.
    let inputs = Arc::new(Inputs::new(options)?);
    let Some(cluster) = options.cluster.join(options.config()?).await? else { return Ok(()) };
    if cluster.rank() == 0 {
        let done = lead(&cluster, options, inputs).await;
        return end_led(&cluster, done).await;
    }
    if !options.data_parallel && options.groups(&cluster).is_err() {
        return end_served(&cluster).await; // rank 0 says why
    }
    match (run(&cluster, options, inputs).await, cluster.ended()) {
        (Err(error), None) => Err(error),
        // The end of the cluster is the cause of any error.
        _ => end_served(&cluster).await,
    }
}

/// Convolves as one of the ranks. Returns the whole results at rank 0.
async fn run(
    cluster: &Cluster,
    options: &'static Options,
    inputs: Arc<Inputs>,
) -> Result<Results, Failure> {
    let results;
    let mut convolution = Convolution { options, inputs, world: Group::world(cluster).await? };
    if options.data_parallel {
        let mut group = convolution.world.duplicate().await?;
        results = convolution.data_parallel(&mut group).await?;
    } else {
        let block = group_of(options.groups(cluster)?, convolution.world.rank());
        let group = convolution.world.split(Some(block as u32), 0).await?;
        let mut group = group.expect("each rank has a block");
        results = convolution.pipelined(&mut group, block).await?;
    }
    // The times of the slowest rank, and the largest difference, which follows them.
    let mut largest = results.seconds;
    largest.resize(options.images, 0.0);
    largest.push(results.difference);
    let mut seconds = convolution.world.reduce(0, largest, Op::max()).await?;
    let parts = convolution.world.gather(0, results.last).await?.result;
    let difference = seconds.pop().expect("it was pushed");
    Ok(Results { seconds, difference, last: parts.map_or(Vec::new(), |parts| parts.data) })
}

/// Convolves as rank 0, writes the files, and reports.
async fn lead(
    cluster: &Cluster,
    options: &'static Options,
    inputs: Arc<Inputs>,
) -> Result<(), Failure> {
    options.check_files()?;
    let groups = match options.data_parallel {
        true => vec![cluster.size() as usize],
        false => options.groups(cluster)?.to_vec(),
    };
    let run = run(cluster, options, Arc::clone(&inputs));
    let results = with_all_founders(cluster, run).await?;
    let (difference, seconds) = (results.difference, results.seconds);
    let shape = inputs.shape;
    let written = on_a_thread(move || view::write(options, &inputs, &results.last));
    written.await??;
    if options.check && (difference.is_nan() || difference > TOLERANCE) {
        let differ = "the results differ from convolutions by their definition";
        return Err(format!("{differ} by {difference:e}: allowed is {TOLERANCE:e}").into());
    }
    let table = Table { options, groups, shape, seconds, difference };
    Ok(write_out(&if options.json { table.json() } else { table.report() })?)
}
