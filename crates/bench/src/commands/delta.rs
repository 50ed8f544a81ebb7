//! `chunkperf delta`: a buffer sent while it is computed, against the whole buffer.

use std::time::Duration;

#[cfg(feature = "virtual")]
use chunkcomm_cluster::Cluster;
#[cfg(feature = "virtual")]
use chunkcomm_pipeline::patterns::{Chain, serve_in};
use chunkcomm_pipeline::patterns::{Compute, Run, auto_delta_bytes};
use clap::{Args, ValueEnum};

use super::{Verdict, set_ratio};
use crate::cli::Common;
use crate::cli::values::{self, Auto};
use crate::failure::{Doing, Failure};
use crate::harness::near::Bench;
use crate::harness::protocol::PolicyKind;
use crate::harness::slices::{Contender, Outcome, Plan, Side, Slice, alternate, name_of};
use crate::lan::LanArgs;
use crate::ours::bandwidth::{BandwidthKind, Near};
use crate::ours::chain::Head;
use crate::stats::median;
use crate::table::Row;

/// Most nodes: more on one machine would measure its scheduler.
const NODES_MAX: usize = 256;

/// Bytes of an element of the array.
const ELEMENT_BYTES: usize = size_of::<f32>();

/// Options of `chunkperf delta`.
#[derive(Debug, Args)]
pub struct DeltaArgs {
    #[command(flatten)]
    common: Common,
    /// Two nodes, or a chain of them
    #[arg(long, value_enum, default_value_t = Pattern::Pair)]
    pattern: Pattern,
    /// Nodes, the first counted [default: 2 for pair, 3 for cascade]
    #[arg(long, value_name = "N", value_parser = values::count)]
    nodes: Option<u64>,
    /// Bytes of the array, whole elements of 4
    #[arg(long, value_name = "B", default_value = "4MiB", value_parser = values::bytes)]
    bytes: usize,
    /// Bytes of an increment; auto computes them from measured costs
    #[arg(long, value_name = "B|auto", default_value = "auto", value_parser = values::auto_bytes)]
    delta: Auto<usize>,
    /// Computation of every node on every element
    #[arg(long, value_enum, default_value_t = ComputeKind::Trig)]
    compute: ComputeKind,
    #[command(flatten)]
    lan: LanArgs,
    /// Runs of each kind, whole and in deltas [default: as many as take some seconds]
    #[arg(long, value_name = "N", value_parser = values::count)]
    repeat: Option<u64>,
    /// Baseline that is measured in the same run, and whose ratio is printed
    #[arg(long, value_enum, value_name = "BASELINE")]
    against: Option<Against>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Pattern {
    /// Two nodes.
    Pair,
    /// A chain of nodes.
    Cascade,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ComputeKind {
    /// No computation.
    Empty,
    /// A filter and a pseudo-random number an element.
    Random,
    /// A filter, a sine and a cosine an element.
    Trig,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Against {
    /// Ours: as many bytes as one large message, without a computation.
    Bandwidth,
}

/// Runs the command.
///
/// # Errors
/// If the options do not go together, or the measurement fails.
pub fn run(args: &DeltaArgs) -> Result<Verdict, Failure> {
    let nodes = args.nodes()?;
    #[cfg(feature = "virtual")]
    if let Some(spec) = args.lan.spec() {
        return args.run_virtually(spec, nodes);
    }
    let setting = args.common.setting()?;
    let plan = Plan::new(args.repeat, 1, args.against.is_some())?;
    let mut bench = Bench::start_many(&setting, nodes - 1)?;
    let node = setting.node(PolicyKind::Chunked);
    let mut runs = Runs::new(args, Head::open(&mut bench, nodes, node)?, nodes);
    let mut bandwidth = match args.against {
        Some(Against::Bandwidth) => {
            let kind = BandwidthKind { bytes: args.bytes, fresh: false, node };
            Some(Near::open(&mut bench, kind)?)
        }
        None => None,
    };
    runs.verify(&bench)?;
    let both = Side::against(true);
    let pairs = alternate(&plan, both, |side, count| match side {
        Side::Baseline => runs.slice(&bench, Transfer::Whole, count.messages),
        _ => runs.slice(&bench, Transfer::Delta, count.messages),
    })?;
    let against = match &mut bandwidth {
        Some(bandwidth) => Some(alternate(&plan, both, |side, count| match side {
            Side::Baseline => bandwidth.slice(&mut bench, count.messages),
            _ => runs.slice(&bench, Transfer::Delta, count.messages),
        })?),
        None => None,
    };
    let delta_bytes = runs.delta_bytes;
    bench.runtime.block_on(runs.head.chain.end()).doing("ending the chain")?;
    args.row(nodes, delta_bytes, &pairs, against.as_ref()).print(args.common.json);
    Ok(Verdict::Fine)
}

/// Transfer of the array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Transfer {
    /// As a whole, computed before it is sent.
    Whole,
    /// Increment by increment, while it is computed.
    Delta,
}

/// The runs of one chain.
struct Runs {
    head: Head,
    elements: usize,
    compute: Compute,
    delta_bytes: usize,
    number: u64,
}

impl Runs {
    fn new(args: &DeltaArgs, head: Head, nodes: usize) -> Self {
        let (compute, delta_bytes) = (args.compute.compute(), args.delta_bytes(nodes));
        Self { head, elements: args.bytes / ELEMENT_BYTES, compute, delta_bytes, number: 0 }
    }

    fn once(
        &mut self,
        bench: &Bench,
        transfer: Transfer,
        verify: bool,
    ) -> Result<Duration, Failure> {
        self.number += 1;
        let run = Run {
            number: self.number,
            elements: self.elements,
            compute: self.compute,
            delta_bytes: (transfer == Transfer::Delta).then_some(self.delta_bytes),
            verify,
        };
        let outcome = bench.runtime.block_on(self.head.chain.run(&run)).doing("running a chain")?;
        match outcome.difference {
            None => Ok(outcome.elapsed),
            Some(difference) => Err(Failure::broken("verifying the array", difference)),
        }
    }

    /// Runs both transfers once and compares the results with an array computed in one piece; not
    /// counted.
    fn verify(&mut self, bench: &Bench) -> Result<(), Failure> {
        self.once(bench, Transfer::Whole, true)?;
        self.once(bench, Transfer::Delta, true)?;
        Ok(())
    }

    fn slice(&mut self, bench: &Bench, transfer: Transfer, count: u64) -> Result<Slice, Failure> {
        let mut seconds = 0.0;
        for _ in 0..count {
            seconds += self.once(bench, transfer, false)?.as_secs_f64();
        }
        Ok(Slice { messages: count, seconds, cpu_ns: 0, samples_ns: Vec::new() })
    }
}

impl ComputeKind {
    fn compute(self) -> Compute {
        match self {
            ComputeKind::Empty => Compute::Empty,
            ComputeKind::Random => Compute::Random,
            ComputeKind::Trig => Compute::Trig,
        }
    }
}

impl DeltaArgs {
    /// Returns the bytes of an increment.
    fn delta_bytes(&self, nodes: usize) -> usize {
        match self.delta {
            Auto::Auto => auto_delta_bytes(self.compute.compute(), nodes, self.bytes),
            Auto::Fixed(bytes) => bytes,
        }
    }

    /// Runs whole and in deltas on a virtual LAN, each once: a second run takes as long.
    #[cfg(feature = "virtual")]
    fn run_virtually(&self, spec: &str, nodes: usize) -> Result<Verdict, Failure> {
        if self.against.is_some() {
            return Err(Failure::Refused("--against: allowed with --lan real".to_owned()));
        }
        let run = Run {
            number: 0,
            elements: self.bytes / ELEMENT_BYTES,
            compute: self.compute.compute(),
            delta_bytes: None,
            verify: true,
        };
        let args = (self.delta, self.bytes, run.compute);
        let ran = crate::lan::run(&self.lan, spec, nodes, move |cluster| {
            let run = run.clone();
            async move {
                let delta_bytes = match args {
                    (Auto::Auto, bytes, compute) => auto_delta_bytes(compute, nodes, bytes),
                    (Auto::Fixed(bytes), ..) => bytes,
                };
                both(&cluster, nodes, run, delta_bytes).await
            }
        })?;
        let (whole, delta, delta_bytes) = ran.results[0];
        ran.print(
            self.row_of(nodes, delta_bytes, whole, delta, whole / delta),
            &self.lan,
            self.common.json,
        );
        Ok(Verdict::Fine)
    }

    fn nodes(&self) -> Result<usize, Failure> {
        self.common.needs_this_host("delta")?;
        self.lan.check(&self.common)?;
        let usual = match self.pattern {
            Pattern::Pair => 2,
            Pattern::Cascade => 3,
        };
        let nodes = self.nodes.unwrap_or(usual);
        let allowed = match self.pattern {
            Pattern::Pair => 2..=2,
            Pattern::Cascade => 2..=NODES_MAX as u64,
        };
        if !allowed.contains(&nodes) {
            return Err(Failure::Refused(format!(
                "--nodes {nodes}: a {} has {} to {} nodes",
                name_of(self.pattern),
                allowed.start(),
                allowed.end()
            )));
        }
        if self.bytes == 0 || !self.bytes.is_multiple_of(ELEMENT_BYTES) {
            return Err(Failure::Refused(format!(
                "--bytes {}: allowed are multiples of {ELEMENT_BYTES} above 0",
                self.bytes
            )));
        }
        if self.against.is_some() && nodes != 2 {
            return Err(Failure::Refused(
                "--against bandwidth compares one hop: allowed with 2 nodes".to_owned(),
            ));
        }
        if self.against.is_some() && self.bytes < crate::message::MESSAGE_BYTES_MIN {
            return Err(Failure::Refused(format!(
                "--against bandwidth sends messages of at least {} bytes",
                crate::message::MESSAGE_BYTES_MIN
            )));
        }
        Ok(nodes as usize)
    }

    fn row(
        &self,
        nodes: usize,
        delta_bytes: usize,
        pairs: &Outcome,
        against: Option<&Outcome>,
    ) -> Row {
        let (whole, delta) = (median_seconds(&pairs.baseline), median_seconds(&pairs.ours));
        let speedup = pairs.ratio(Slice::rate).median;
        let mut row = self.row_of(nodes, delta_bytes, whole, delta, speedup);
        if let (Some(baseline), Some(outcome)) = (self.against, against) {
            set_ratio(&mut row, &name_of(baseline), outcome.ratio(Slice::rate));
            row.set("baseline_bytes_per_second", outcome.baseline_rate() * self.bytes as f64);
        }
        row
    }

    fn row_of(
        &self,
        nodes: usize,
        delta_bytes: usize,
        whole_seconds: f64,
        delta_seconds: f64,
        speedup: f64,
    ) -> Row {
        let mut row = self.common.row("delta");
        row.set("pattern", name_of(self.pattern))
            .set("nodes", nodes)
            .set("bytes", self.bytes)
            .set("delta_bytes", delta_bytes)
            .set("whole_seconds", whole_seconds)
            .set("delta_seconds", delta_seconds)
            .set("speedup", speedup)
            .set("bytes_per_second", self.bytes as f64 / delta_seconds)
            .set("compute", name_of(self.compute))
            .set("lan", self.lan.lan.as_str())
            .set("session", name_of(self.common.session));
        row
    }
}

/// Runs both transfers through a chain of the cluster's nodes, and verifies the results. Returns the
/// seconds of the whole buffer, those in deltas, and the bytes of an increment; zeros at all nodes
/// but the first.
#[cfg(feature = "virtual")]
async fn both(
    cluster: &Cluster,
    nodes: usize,
    run: Run,
    delta_bytes: usize,
) -> Result<(f64, f64, usize), Failure> {
    if cluster.rank() > 0 {
        serve_in(cluster).await.doing("serving the chain")?;
        return Ok((0.0, 0.0, 0));
    }
    let mut chain = Chain::gather(cluster.node(), nodes).await.doing("gathering the chain")?;
    let mut seconds = [0.0; 2];
    for (number, delta_bytes) in [None, Some(delta_bytes)].into_iter().enumerate() {
        let run = Run { number: number as u64, delta_bytes, ..run.clone() };
        let outcome = chain.run(&run).await.doing("running a chain")?;
        if let Some(difference) = outcome.difference {
            return Err(Failure::broken("verifying the array", difference));
        }
        seconds[number] = outcome.elapsed.as_secs_f64();
    }
    chain.end().await.doing("ending the chain")?;
    Ok((seconds[0], seconds[1], delta_bytes))
}

/// Returns the median time of one run, in seconds.
fn median_seconds(slices: &[Slice]) -> f64 {
    let each: Vec<f64> = slices.iter().map(|slice| 1.0 / slice.rate()).collect();
    median(&each)
}
