//! `chunkperf cluster`: times in which a cluster of processes on this machine starts and ends.

use clap::Args;

use super::Verdict;
use crate::failure::Failure;
use crate::lan::LanArgs;
use crate::options::{Common, values};
use crate::ours::cluster::{Times, start_and_end};
use crate::stats::median;

/// Options of `chunkperf cluster`.
#[derive(Debug, Args)]
#[command(after_help = "The nodes meet at Unix sockets with a fresh credential, as the copies of \
    any program do: --transport, --runtime, --threads and --session do not count.")]
pub struct ClusterArgs {
    #[command(flatten)]
    common: Common,
    /// Processes, this one counted
    #[arg(long, value_name = "N", default_value = "16", value_parser = values::nodes)]
    nodes: u32,
    #[command(flatten)]
    lan: LanArgs,
    /// Number of starts and ends; medians count
    #[arg(long, value_name = "N", default_value = "9", value_parser = values::count)]
    repeat: u64,
}

/// Runs the command.
///
/// # Errors
/// If a process does not start, or ends otherwise than in order.
pub fn run(args: &ClusterArgs) -> Result<Verdict, Failure> {
    args.common.needs_this_host("cluster")?;
    args.lan.check(&args.common)?;
    #[cfg(feature = "virtual")]
    if let Some(spec) = args.lan.spec() {
        return args.run_virtually(spec);
    }
    args.common.switch_off()?;
    let times = (0..args.repeat).map(|_| start_and_end(args.nodes));
    let times = times.collect::<Result<Vec<Times>, Failure>>()?;
    let median_of = |one: fn(&Times) -> f64| median(&times.iter().map(one).collect::<Vec<_>>());
    let mut row = args.common.row("cluster");
    row.set("transport", "unix")
        .set("runtime", "ambient:1")
        .set("nodes", args.nodes)
        .set("repeat", args.repeat)
        .set("start_seconds", median_of(|it| it.start))
        .set("end_seconds", median_of(|it| it.end))
        .set("seconds", median_of(|it| it.start + it.end))
        .print(args.common.json);
    Ok(Verdict::Fine)
}

impl ClusterArgs {
    /// Starts and ends a cluster of virtual hosts, once: a second time takes as long.
    #[cfg(feature = "virtual")]
    fn run_virtually(&self, spec: &str) -> Result<Verdict, Failure> {
        let nodes = self.nodes as usize;
        let ran = crate::lan::run(&self.lan, spec, nodes, |_cluster| async { Ok(()) })?;
        let start = ran.joined_seconds;
        let mut row = self.common.row("cluster");
        row.set("nodes", self.nodes)
            .set("repeat", 1)
            .set("start_seconds", start)
            .set("end_seconds", ran.report.time.as_secs_f64() - start)
            .set("seconds", ran.report.time.as_secs_f64());
        ran.print(row, &self.lan, self.common.json);
        Ok(Verdict::Fine)
    }
}
