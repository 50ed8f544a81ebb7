//! A chain of nodes that each filter a large array and pass it on: whole buffers against deltas. The
//! nodes are those of a cluster, in the order of their ranks; started by hand, 3 on this machine.
//!
//! With whole buffers a node starts when the one before it has finished; with deltas it starts
//! with the first increment. The last node compares every element with a sequential computation.
//! Each process keeps to one processor.

use std::error::Error;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use chunkcomm::Node;
use chunkcomm_cluster::cluster::End;
use chunkcomm_cluster::{Cluster, ClusterConfig};
use chunkcomm_pipeline::patterns::{
    Chain, Compute, Run, auto_delta_bytes, pin, sequential, serve_in,
};
use clap::Parser;

use crate::cluster_options::{ClusterOptions, cause_first, first_death};
use crate::command_line::{numbers, parse_with, ratio, write_out};
use crate::program::{on_a_thread, run_program};

const SIZE_BYTES_MAX: usize = 4 << 30;
/// Number of nodes that the program starts by default.
const NODES: u32 = 3;
const REPEATS_MAX: u64 = 1000;
const END_DEADLINE: Duration = Duration::from_secs(30);

type Failure = Box<dyn Error>;

#[derive(Parser)]
#[command(
    name = "cascade",
    about = "A chain of nodes filters an array: whole buffers against deltas; 3 nodes on this \
             machine if nothing else is said"
)]
pub(crate) struct Options {
    #[command(flatten)]
    cluster: ClusterOptions,

    /// Bytes of the array, 4 a number, such as 4MiB
    #[arg(long, value_name = "BYTES", default_value = "4MiB", value_parser = parse_size)]
    size: usize,
    /// Bytes of an increment, or auto: computed from measured costs
    #[arg(long, value_name = "BYTES|auto", default_value = "auto", value_parser = parse_delta)]
    delta: Delta,
    /// Work of every node on every element: empty, random or trig
    #[arg(long, default_value = "trig")]
    compute: Compute,
    /// Timed runs of each kind, after an untimed one of each
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = numbers::<u64>(1..=REPEATS_MAX))]
    repeats: u64,
}

#[derive(Clone, Copy)]
enum Delta {
    Auto,
    Bytes(usize),
}

fn parse_bytes(text: &str) -> Option<usize> {
    let digits = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let shift = match &text[digits..] {
        "" | "B" => 0,
        "KiB" => 10,
        "MiB" => 20,
        "GiB" => 30,
        _ => return None,
    };
    text[..digits].parse::<usize>().ok()?.checked_mul(1 << shift)
}

fn parse_size(text: &str) -> Result<usize, String> {
    parse_bytes(text)
        .filter(|bytes| (4..=SIZE_BYTES_MAX).contains(bytes) && bytes % 4 == 0)
        .ok_or_else(|| "allowed are 4 to 4GiB in steps of 4, in B, KiB, MiB or GiB".to_owned())
}

fn parse_delta(text: &str) -> Result<Delta, String> {
    if text == "auto" {
        return Ok(Delta::Auto);
    }
    parse_bytes(text)
        .filter(|bytes| (4..=SIZE_BYTES_MAX).contains(bytes))
        .map(Delta::Bytes)
        .ok_or_else(|| "allowed are auto and 4 to 4GiB, in B, KiB, MiB or GiB".to_owned())
}

/// Runs the whole program: rank 0 is the first node of the chain.
#[must_use]
pub fn run() -> ExitCode {
    let options = parse_with(Options::check);
    run_program("cascade", work(&options))
}

impl Options {
    /// Checks whether options that are each right go together.
    pub(crate) fn check(&self) -> Result<(), String> {
        match self.cluster.nodes {
            Some(1) => Err("--nodes 1 is no chain: allowed are 2 and more".to_owned()),
            _ => Ok(()),
        }
    }
}

async fn work(options: &Options) -> Result<(), Failure> {
    let is_told = ClusterOptions { explain_launch: false, ..options.cluster.clone() };
    let is_told = is_told.are_of_a_cluster()?;
    let settings = |config: ClusterConfig| if is_told { config } else { config.nodes(NODES) };
    let Some(cluster) = options.cluster.join_with(settings).await? else { return Ok(()) };
    // Pinned only now: copies started by a pinned process would share its processor.
    pin(cluster.rank() as usize);
    if cluster.rank() > 0 {
        return follow(&cluster).await;
    }
    let done = cause_first(&cluster, lead(&cluster, options).await).await;
    cluster.finish();
    let ended = cluster.end(END_DEADLINE).await;
    // An earlier error is the cause of how the cluster ended.
    done?;
    Ok(ended?)
}

async fn follow(cluster: &Cluster) -> Result<(), Failure> {
    let served = tokio::select! {
        biased;
        served = serve_in(cluster) => served.map_err(Failure::from),
        // The cluster was finished before the chain was built.
        _ = cluster.finished() => Ok(()),
    };
    match (served, cluster.ended()) {
        // The end of the cluster is the cause of any other error.
        (Err(_), Some(end)) if !matches!(end, End::Finished { .. }) => Err(end.to_string().into()),
        (Err(error), _) => Err(error),
        (Ok(()), _) => match cluster.finished().await {
            End::Finished { .. } => Ok(cluster.end(END_DEADLINE).await?),
            end => Err(end.to_string().into()),
        },
    }
}

async fn lead(cluster: &Cluster, options: &Options) -> Result<(), Failure> {
    let nodes = cluster.size() as usize;
    if nodes < 2 {
        return Err("a chain of 1 node: at least 2 are needed".into());
    }
    let measured = tokio::select! {
        // A death is checked first: it is the cause of the errors that follow.
        biased;
        death = first_death(cluster) => return Err(death.to_string().into()),
        measured = measure(cluster.node(), nodes, options) => measured?,
    };
    Ok(write_out(&measured.report(nodes, options))?)
}

struct Measured {
    delta_bytes: usize,
    sequential: Duration,
    whole: Vec<Duration>,
    delta: Vec<Duration>,
}

async fn measure(node: &Node, nodes: usize, options: &Options) -> Result<Measured, Failure> {
    let elements = options.size / size_of::<f32>();
    let compute = options.compute;
    let sequential = on_a_thread(move || {
        let start = Instant::now();
        std::hint::black_box(sequential(compute, nodes, elements));
        start.elapsed()
    });
    let sequential = sequential.await?;
    let delta_bytes = match options.delta {
        Delta::Bytes(bytes) => bytes,
        Delta::Auto => auto_delta_bytes(options.compute, nodes, options.size),
    };
    let mut measured = Measured { delta_bytes, sequential, whole: Vec::new(), delta: Vec::new() };
    let mut chain = Chain::gather(node, nodes).await?;
    for repeat in 0..=options.repeats {
        for (kind, delta_bytes) in [(0, None), (1, Some(delta_bytes))] {
            let number = 2 * repeat + kind;
            let run = Run { number, elements, compute: options.compute, delta_bytes, verify: true };
            let outcome = chain.run(&run).await?;
            if let Some(difference) = outcome.difference {
                return Err(format!("run {number} gave a wrong result: {difference}").into());
            }
            // The first run of each kind maps the memory and opens the window of the connections.
            if repeat > 0 {
                let times = if kind == 0 { &mut measured.whole } else { &mut measured.delta };
                times.push(outcome.elapsed);
            }
        }
    }
    chain.end().await?;
    Ok(measured)
}

impl Measured {
    fn report(&self, nodes: usize, options: &Options) -> String {
        let elements = options.size / size_of::<f32>();
        let mut lines = vec![
            format!(
                "{nodes} nodes, {elements} numbers ({} bytes), compute {}, increments of {} bytes",
                options.size, options.compute, self.delta_bytes
            ),
            format!("{:<16} {:>12} {:>12} {:>10}", "", "median ms", "fastest ms", "speed-up"),
        ];
        let sequential = [self.sequential];
        let rows = [
            ("one process", &sequential[..]),
            ("whole buffers", &self.whole),
            ("deltas", &self.delta),
        ];
        for (name, times) in rows {
            let speedup = ratio(median_ms(&self.whole) / median_ms(times), 2);
            let (median, fastest) =
                (median_ms(times), times.iter().min().map_or(f64::NAN, |time| ms(*time)));
            lines.push(format!("{name:<16} {median:>12.3} {fastest:>12.3} {speedup:>10}"));
        }
        let results = 2 * (options.repeats + 1);
        lines.push(format!("all {results} results equal the sequential one, element by element"));
        lines.push(String::new());
        lines.join("\n")
    }
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn median_ms(times: &[Duration]) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    let (low, high) = (sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2]);
    (ms(low) + ms(high)) / 2.0
}
