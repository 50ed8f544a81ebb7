//! Draws a picture with all nodes of a group, in shades of its histogram. The histogram is reduced while the
//! picture is computed, and is complete when the picture is.
//!
//! ```text
//! cargo run --release --example histogram -- --output picture.png --check
//! mpiexec.hydra -n 4 target/release/examples/histogram
//! ```
//!
//! Two collectives flow beside each other, band of rows after band of rows:
//!
//! ```text
//! each rank   its rows of a band ─▶ gather_delta ─▶ picture    at rank 0
//!             their counts       ─▶ reduce_delta ─▶ histogram  at rank 0
//! ```
//!
//! The shade of a pixel is the share of pixels with fewer steps. So none can be drawn before all are counted.

mod options;
mod view;

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use chunkcomm::host::{self, Instant};
use chunkcomm_cluster::Cluster;
use chunkcomm_examples::cluster_options::{end_led, end_served};
use chunkcomm_examples::command_line::{parse_with, write_out};
use chunkcomm_examples::farm_report::Report;
use chunkcomm_examples::picture::{check_output, save};
use chunkcomm_examples::program::run_program;
use chunkcomm_examples::progress::Bar;
use chunkcomm_group::{Group, Op};
use chunkcomm_pipeline::{
    DeltaReceiver, DeltaRecvError, Flow, GatherEnds, GroupDeltas, ReduceEnds,
};

use options::Options;
use view::{BINS, Counts, View, add};

/// Number of processes that the program starts by default.
const NODES: u32 = 4;

type Failure = Box<dyn Error>;

fn main() -> ExitCode {
    let options = parse_with(Options::check);
    run_program("histogram", &options.cluster, || work(options))
}

async fn work(options: &'static Options) -> Result<(), Failure> {
    let config = options.cluster.config_of_nodes(NODES)?;
    let Some(cluster) = options.cluster.join(config).await? else { return Ok(()) };
    if cluster.rank() == 0 {
        let done = lead(&cluster, options).await;
        return end_led(&cluster, done).await;
    }
    match (compute(&cluster, options).await, cluster.ended()) {
        (Err(error), None) => Err(error),
        // The end of the cluster is the cause of any error.
        _ => end_served(&cluster).await,
    }
}

/// Picture and histogram, at rank 0, and the time that they took.
struct Drawn {
    /// Steps of each pixel, row by row.
    steps: Vec<u8>,
    counts: Counts,
    last_pixel: Duration,
    histogram: Duration,
}

/// Computes this rank's rows of all bands. Returns the picture at rank 0.
async fn compute(cluster: &Cluster, options: &Options) -> Result<Option<Drawn>, Failure> {
    let mut group = Group::world(cluster).await?;
    let (rank, ranks) = (group.rank(), group.size());
    let view = View { width: options.width, height: options.height };
    let own_rows = view.rows(rank, ranks, 0..view.height).len();
    // Two calls at once, set up together.
    let pixels = group.gather_delta(0, vec![0; own_rows * view.width], Flow::default());
    let counts = vec![0; options.bands() * BINS];
    let counts = group.reduce_delta(0, counts, Op::sum(), Flow::default());
    let GatherEnds { operand: mut pixels, result: picture, counts: pixels_of } = pixels.await?;
    let ReduceEnds { operand: mut counts, result: histogram } = counts.await?;

    let began = Instant::now();
    let computing = async {
        let mut next = 0;
        for band in 0..options.bands() {
            let rows = view.rows(rank, ranks, band * options.rows..(band + 1) * options.rows);
            let first = next;
            next += rows.len() * view.width;
            let mut pixels = pixels.part(first..next)?;
            let mut counts = counts.part(band * BINS..(band + 1) * BINS)?;
            // On another thread, in the memory that is sent.
            let computing = move || {
                view.compute(rows, &mut pixels, &mut counts);
                pixels.commit();
                counts.commit();
            };
            host::compute(Duration::ZERO, computing).await;
        }
        pixels.finish().await?;
        Ok::<_, Failure>(counts.finish().await?)
    };
    let drawn = match (picture, histogram) {
        (Some(picture), Some(histogram)) => {
            let collecting = collect(picture, histogram, options, began);
            let ((), drawn) = tokio::try_join!(computing, collecting)?;
            Some(Drawn { steps: view.by_row(&drawn.steps, &pixels_of), ..drawn })
        }
        _ => {
            computing.await?;
            None
        }
    };
    Ok(drawn)
}

/// Takes in what the ranks have computed, as it comes: at rank 0, which computes too.
async fn collect(
    mut picture: DeltaReceiver<u8>,
    mut histogram: DeltaReceiver<u32>,
    options: &Options,
    began: Instant,
) -> Result<Drawn, Failure> {
    let bar = Bar::on_terminal(options.no_progress);
    let counting = async {
        let (mut counts, mut shown) = ([0; BINS], 0);
        // Counts of the bands that all ranks have computed meanwhile.
        while let Some(fresh) = histogram.next().await? {
            add(&mut counts, shown, fresh);
            shown += fresh.len();
            if let Some(bar) = &bar {
                let (done, bands) = (shown / BINS, options.bands());
                bar.draw(&format!("{done} of {bands} bands are counted"));
            }
        }
        Ok::<_, DeltaRecvError>((counts, began.elapsed()))
    };
    let landing = async {
        let steps = picture.finish().await?.to_vec();
        Ok::<_, DeltaRecvError>((steps, began.elapsed()))
    };
    let ((counts, histogram), (steps, last_pixel)) = tokio::try_join!(counting, landing)?;
    Ok(Drawn { steps, counts, last_pixel, histogram })
}

/// Computes as rank 0, and writes picture and report.
async fn lead(cluster: &Cluster, options: &Options) -> Result<(), Failure> {
    check_output(&options.output)?;
    let drawn = compute(cluster, options).await?.ok_or("rank 0 has the picture")?;
    let view = View { width: options.width, height: options.height };
    let (size, pixels) = view.draw(&drawn.steps, &drawn.counts);
    save(size, &pixels, &options.output)?;

    let mut report = Report::default();
    let (width, height, bands) = (view.width, view.height, options.bands());
    report.row("picture", format_args!("{width} x {height} pixels, {bands} bands"));
    report.row("ranks", cluster.size());
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let (last_pixel, histogram) = (ms(drawn.last_pixel), ms(drawn.histogram));
    report.row("last pixel", format_args!("after {last_pixel:.3} ms"));
    let behind = (histogram - last_pixel).abs();
    let side = if histogram < last_pixel { "before" } else { "after" };
    report.row("histogram", format_args!("complete {behind:.3} ms {side} the last pixel"));
    report.row("", format_args!("  steps     pixels"));
    for (index, counts) in drawn.counts.chunks(BINS / 8).enumerate() {
        let (first, pixels) = (index * counts.len(), counts.iter().sum::<u32>());
        report.row("", format_args!("{first:>3}-{:>3} {pixels:>10}", first + counts.len() - 1));
    }
    report.row("written", options.output.display());
    if options.check {
        let (steps, counts) = view.alone();
        if (&steps, &counts) != (&drawn.steps, &drawn.counts) {
            return Err("pixels or histogram differ from those of one process".into());
        }
        report.row("check", "pixels and histogram equal those of one process");
    }
    Ok(write_out(report.text())?)
}
