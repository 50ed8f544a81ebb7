//! `chunkperf delta`: a buffer sent while it is computed, against the whole buffer.

pub(crate) mod collective;
mod runs;
#[cfg(feature = "virtual")]
pub(crate) mod world;

use std::time::Duration;

use chunkcomm_coupled::patterns::{self, Compute, Run, Transfer, auto_delta_bytes};
use clap::{Args, ValueEnum};

use self::collective::FlowArgs;
use self::runs::{Opposite, Runs};
use super::{Verdict, set_ratio};
use crate::baseline::relay::{Relay, RelayKind};
use crate::failure::{Doing, Failure};
use crate::harness::flows::FlowPattern;
use crate::harness::protocol::PolicyKind;
use crate::harness::slices::{Outcome, Plan, Side, Slice, alternate, median_of, name_of};
use crate::lan::LanArgs;
use crate::options::Common;
use crate::options::computing::{Computing, computing};
use crate::options::values::{self, Auto};
use crate::ours::bandwidth::{BandwidthKind, Near};
use crate::ours::chain::Head;
use crate::pair;
use crate::stats::median;
use crate::table::Row;

/// Most nodes: more on one machine would measure its scheduler.
const NODES_MAX: usize = 256;

/// Most arrays of independent computing: more are a typing error.
const INDEPENDENT_MAX: u64 = 1000;

/// Bytes of an element of the array.
const ELEMENT_BYTES: usize = size_of::<f32>();

/// Options of `chunkperf delta`.
#[derive(Debug, Args)]
pub struct DeltaArgs {
    #[command(flatten)]
    common: Common,
    /// Two nodes, a chain of them, or a ring, in which each computes on an array of its own and on
    /// the result of the one before. In reduce and all-reduce each computes an array, in broadcast the
    /// root, and the others on what they get
    #[arg(long, value_enum, default_value_t = Pattern::Pair)]
    pattern: Pattern,
    /// Nodes, the first counted [default: 2 for pair, 3 for cascade and ring, else 4]
    #[arg(long, value_name = "N", value_parser = values::count)]
    nodes: Option<u64>,
    /// Bytes of the array, whole elements of 4
    #[arg(long, value_name = "B", default_value = "4MiB", value_parser = values::bytes)]
    bytes: usize,
    /// Bytes of an increment; auto computes them from measured costs
    #[arg(long, value_name = "B|auto", default_value = "auto", value_parser = values::auto_bytes)]
    delta: Auto<usize>,
    /// Computation of every node on every element: empty, random (a filter and a pseudo-random
    /// number), trig (a filter, a sine and a cosine), or wait:DUR, which sleeps for that time an array;
    /// 5ns is a wait of as much a byte
    #[arg(long, value_name = "NAME", default_value = "trig", value_parser = computing)]
    compute: Computing,
    #[command(flatten)]
    flow: FlowArgs,
    /// Arrays on which every node that sends computes besides, for itself. A third way is measured
    /// then: whole buffers, sent while that computes
    #[arg(long, value_name = "N", value_parser = values::count)]
    independent: Option<u64>,
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
    /// A ring of nodes.
    Ring,
    /// A sum at the root.
    Reduce,
    /// From the root to all.
    Broadcast,
    /// A sum at all nodes.
    AllReduce,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Against {
    /// Ours: as many bytes as one large message, without a computation; the ratio is that of rates.
    Bandwidth,
    /// Ours: the same deltas from one node to the next; the ratio is that of times.
    Hop,
    /// The array through a chain of as many threads joined by bare TCP sockets, which wait as the
    /// nodes do and compute nothing else; the ratio is that of times.
    Sockets,
    /// Ours: a collective is called when all is computed; the ratio is that of rates.
    Calls,
}

/// Figures of the runs.
struct Measured {
    delta_bytes: usize,
    whole_seconds: f64,
    /// Of the non-blocking way, with its speed-up over the whole buffer.
    overlap: Option<(f64, f64)>,
    delta_seconds: f64,
    speedup: f64,
    processors: Option<Processors>,
}

/// Processor time of all nodes.
struct Processors {
    /// Seconds of a run with the whole buffer.
    whole_seconds: f64,
    /// Seconds of a run in deltas.
    delta_seconds: f64,
    /// Microseconds of an increment at each of its two sides: what the deltas take more.
    increment_us: f64,
}

/// Runs the command.
///
/// # Errors
/// If the options do not go together, or the measurement fails.
pub fn run(args: &DeltaArgs) -> Result<Verdict, Failure> {
    let nodes = args.nodes()?;
    if let Some(pattern) = args.pattern.collective() {
        return collective::run(args, pattern, nodes);
    }
    #[cfg(feature = "virtual")]
    if let Some(spec) = args.lan.spec() {
        return args.run_virtually(spec, nodes);
    }
    let setting = args.common.setting()?;
    let plan = Plan::new(args.repeat, 1, args.against.is_some())?;
    let mut bench = pair::start_many(&setting, nodes - 1)?;
    let node = setting.node(PolicyKind::Chunked);
    let (run, delta_bytes) = (args.kind(), args.delta_bytes(nodes));
    let mut runs = Runs::new(Head::open(&mut bench, nodes, node)?, run.clone());
    let mut opposite = match args.against {
        Some(Against::Bandwidth) => {
            let kind = BandwidthKind { bytes: args.bytes, fresh: false, node };
            Some(Opposite::Other(Box::new(Near::open(&mut bench, kind)?)))
        }
        Some(Against::Hop) => {
            Some(Opposite::Hop(Box::new(Runs::new(Head::open(&mut bench, 2, node)?, run))))
        }
        Some(Against::Sockets) => {
            let wait = match args.compute() {
                Compute::Wait(wait) => wait,
                _ => Duration::ZERO,
            };
            let kind = RelayKind { nodes, bytes: args.bytes, increment_bytes: delta_bytes, wait };
            Some(Opposite::Other(Box::new(Relay::open(kind)?)))
        }
        // Refused: no collective.
        Some(Against::Calls) | None => None,
    };
    let delta = Transfer::Delta(delta_bytes);
    let overlapped = args.independent.map(|_| Transfer::Overlapped);
    for transfer in [Transfer::Whole, delta].into_iter().chain(overlapped) {
        runs.verify(&bench, transfer)?;
    }
    let mut against_whole = |ours| {
        alternate(&plan, Side::against(true), |side, count| match side {
            Side::Baseline => runs.slice(&mut bench, Transfer::Whole, count.messages),
            _ => runs.slice(&mut bench, ours, count.messages),
        })
    };
    let pairs = against_whole(delta)?;
    let overlap = overlapped.map(against_whole).transpose()?;
    let against = match &mut opposite {
        Some(opposite) => Some(alternate(&plan, Side::against(true), |side, count| match side {
            Side::Baseline => opposite.slice(&mut bench, delta, count.messages),
            _ => runs.slice(&mut bench, delta, count.messages),
        })?),
        None => None,
    };
    bench.runtime.block_on(runs.head.chain.end()).doing("ending the chain")?;
    let measured = args.measured(nodes, delta_bytes, &pairs, overlap.as_ref());
    let mut row = args.row(nodes, &measured);
    if let (Some(baseline), Some(outcome)) = (args.against, &against) {
        let ratio = match baseline {
            Against::Bandwidth => outcome.ratio(Slice::rate),
            _ => outcome.ratio(|slice| 1.0 / slice.rate()),
        };
        set_ratio(&mut row, &name_of(baseline), ratio);
        row.set("baseline_bytes_per_second", outcome.baseline_rate() * args.bytes as f64);
    }
    row.print(args.common.json);
    Ok(Verdict::Fine)
}

impl Pattern {
    /// Returns the pattern as one of a group, if it is one.
    fn collective(self) -> Option<FlowPattern> {
        match self {
            Self::Pair | Self::Cascade | Self::Ring => None,
            Self::Reduce => Some(FlowPattern::Reduce),
            Self::Broadcast => Some(FlowPattern::Broadcast),
            Self::AllReduce => Some(FlowPattern::AllReduce),
        }
    }
}

impl DeltaArgs {
    fn compute(&self) -> Compute {
        self.compute.of(self.bytes)
    }

    /// Returns the run that the options describe, with the whole buffer.
    fn kind(&self) -> Run {
        let pattern = match self.pattern {
            Pattern::Ring => patterns::Pattern::Ring,
            _ => patterns::Pattern::Cascade,
        };
        let independent = self.independent.unwrap_or(0) as u32;
        Run { independent, ..Run::new(pattern, self.compute(), self.bytes / ELEMENT_BYTES) }
    }

    /// Returns the bytes of an increment.
    fn delta_bytes(&self, nodes: usize) -> usize {
        match self.delta {
            Auto::Auto => auto_delta_bytes(self.compute(), nodes, self.bytes),
            Auto::Fixed(bytes) => bytes,
        }
    }

    /// Runs each way on a virtual LAN once: a second run takes as long.
    #[cfg(feature = "virtual")]
    fn run_virtually(&self, spec: &str, nodes: usize) -> Result<Verdict, Failure> {
        use self::world::{Way, timed};

        if let Some(against @ (Against::Bandwidth | Against::Sockets)) = self.against {
            return Err(Failure::Refused(format!(
                "--against {}: allowed with --lan real",
                name_of(against)
            )));
        }
        let mut ways = vec![Way::Whole, Way::Delta(self.delta)];
        ways.extend(self.independent.map(|_| Way::Overlapped));
        let world = crate::lan::load(spec)?;
        let ran = timed(&self.lan, &world, nodes, &self.kind(), &ways)?;
        let (whole, delta) = (ran.results[0][0].seconds, ran.results[0][1].seconds);
        let delta_bytes = ran.results[0][1].delta_bytes;
        let overlap = ran.results[0].get(2).map(|timed| timed.seconds);
        let measured = Measured {
            delta_bytes,
            whole_seconds: whole,
            overlap: overlap.map(|seconds| (seconds, whole / seconds)),
            delta_seconds: delta,
            speedup: whole / delta,
            processors: None,
        };
        let mut row = self.row(nodes, &measured);
        if self.against == Some(Against::Hop) {
            let way = [Way::Delta(Auto::Fixed(delta_bytes))];
            let hop = timed(&self.lan, &world, 2, &self.kind(), &way)?.results[0][0].seconds;
            row.set("baseline", name_of(Against::Hop))
                .set("ratio", delta / hop)
                .set("baseline_bytes_per_second", self.bytes as f64 / hop);
        }
        ran.print(row, &self.lan, self.common.json);
        Ok(Verdict::Fine)
    }

    fn nodes(&self) -> Result<usize, Failure> {
        self.common.needs_this_host("delta")?;
        self.lan.check(&self.common)?;
        let (usual, most) = match self.pattern {
            Pattern::Pair => (2, 2),
            Pattern::Cascade | Pattern::Ring => (3, NODES_MAX as u64),
            _ => (4, NODES_MAX as u64),
        };
        let nodes = self.nodes.unwrap_or(usual);
        if !(2..=most).contains(&nodes) {
            return Err(Failure::Refused(format!(
                "--nodes {nodes}: a {} has 2 to {most} nodes",
                name_of(self.pattern)
            )));
        }
        if self.against == Some(Against::Sockets) && self.pattern == Pattern::Ring {
            return Err(Failure::Refused(
                "--against sockets is a chain: allowed with pair and cascade".to_owned(),
            ));
        }
        self.check_collective(nodes as usize)?;
        if self.bytes == 0 || !self.bytes.is_multiple_of(ELEMENT_BYTES) {
            return Err(Failure::Refused(format!(
                "--bytes {}: allowed are multiples of {ELEMENT_BYTES} above 0",
                self.bytes
            )));
        }
        if self.independent.is_some_and(|count| count > INDEPENDENT_MAX) {
            return Err(Failure::Refused(format!(
                "--independent: allowed are 1 to {INDEPENDENT_MAX}"
            )));
        }
        if self.against == Some(Against::Bandwidth) && nodes != 2 {
            return Err(Failure::Refused(
                "--against bandwidth compares one hop: allowed with 2 nodes".to_owned(),
            ));
        }
        if self.against == Some(Against::Bandwidth)
            && self.bytes < crate::message::MESSAGE_BYTES_MIN
        {
            return Err(Failure::Refused(format!(
                "--against bandwidth sends messages of at least {} bytes",
                crate::message::MESSAGE_BYTES_MIN
            )));
        }
        Ok(nodes as usize)
    }

    fn measured(
        &self,
        nodes: usize,
        delta_bytes: usize,
        pairs: &Outcome,
        overlap: Option<&Outcome>,
    ) -> Measured {
        let cpu_us = |slices: &[Slice]| median_of(slices, Slice::cpu_us_per_message);
        let (whole_us, delta_us) = (cpu_us(&pairs.baseline), cpu_us(&pairs.ours));
        let more = pairs.ours.iter().zip(&pairs.baseline);
        let more: Vec<f64> = more
            .map(|(ours, whole)| ours.cpu_us_per_message() - whole.cpu_us_per_message())
            .collect();
        let hops = if self.pattern == Pattern::Ring { nodes } else { nodes - 1 };
        let increments = self.bytes.div_ceil(delta_bytes) - 1;
        let processors = Processors {
            whole_seconds: whole_us / 1e6,
            delta_seconds: delta_us / 1e6,
            increment_us: median(&more) / (2 * hops * increments) as f64,
        };
        Measured {
            delta_bytes,
            whole_seconds: median_seconds(&pairs.baseline),
            overlap: overlap
                .map(|outcome| (median_seconds(&outcome.ours), outcome.ratio(Slice::rate).median)),
            delta_seconds: median_seconds(&pairs.ours),
            speedup: pairs.ratio(Slice::rate).median,
            processors: Some(processors),
        }
    }

    /// Returns the time that waits alone take in deltas: `c m + (p-1) c d` for `p` nodes, `m` bytes,
    /// increments of `d` bytes, and `c` seconds a byte; in a ring twice `c m`.
    fn ideal_seconds(&self, nodes: usize, delta_bytes: usize) -> Option<f64> {
        let Compute::Wait(time) = self.compute() else { return None };
        let share = delta_bytes.min(self.bytes) as f64 / self.bytes as f64;
        let times = match self.pattern {
            Pattern::Pair | Pattern::Cascade => 1.0 + (nodes - 1) as f64 * share,
            Pattern::Ring => 2.0,
            _ => return None,
        };
        // With independent computing any node may be the last.
        self.independent.is_none().then_some(time.as_secs_f64() * times)
    }

    fn row(&self, nodes: usize, measured: &Measured) -> Row {
        let Measured { delta_bytes, whole_seconds, overlap, delta_seconds, .. } = *measured;
        let ideal_seconds = self.ideal_seconds(nodes, delta_bytes);
        let processors = measured.processors.as_ref();
        let mut row = self.common.row("delta");
        row.set("pattern", name_of(self.pattern))
            .set("nodes", nodes)
            .set("bytes", self.bytes)
            .set("delta_bytes", delta_bytes)
            .set("whole_seconds", whole_seconds)
            .set("overlap_seconds", overlap.map(|(seconds, _)| seconds))
            .set("delta_seconds", delta_seconds)
            .set("speedup", measured.speedup)
            .set("overlap_speedup", overlap.map(|(_, speedup)| speedup))
            .set("bytes_per_second", self.bytes as f64 / delta_seconds)
            .set("ideal_seconds", ideal_seconds)
            .set("ideal_ratio", ideal_seconds.map(|ideal| delta_seconds / ideal))
            .set("whole_cpu_seconds", processors.map(|it| it.whole_seconds))
            .set("delta_cpu_seconds", processors.map(|it| it.delta_seconds))
            .set("increment_cpu_us", processors.map(|it| it.increment_us))
            .set("compute", self.compute().to_string())
            .set("independent", self.independent)
            .set("lan", self.lan.lan.as_str())
            .set("session", name_of(self.common.session));
        row
    }
}

/// Returns the median time of one run, in seconds.
fn median_seconds(slices: &[Slice]) -> f64 {
    median_of(slices, |slice| 1.0 / slice.rate())
}
