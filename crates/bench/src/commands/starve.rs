//! `chunkperf starve`: deliveries to a runtime whose other workers compute.

use std::time::Duration;

use clap::{Args, ValueEnum};

use super::{Verdict, set_ratio};
use crate::baseline::woken;
use crate::failure::Failure;
use crate::harness::machine::now_ns;
use crate::harness::protocol::{PolicyKind, RuntimeKind};
use crate::harness::slices::{self, Outcome, Plan, Side, Slice, name_of};
use crate::options::{Common, values};
use crate::ours::starve::{StarveKind, start};
use crate::stats::percentile_us;
use crate::table::Row;

/// Options of `chunkperf starve`.
#[derive(Debug, Args)]
pub struct StarveArgs {
    #[command(flatten)]
    common: Common,
    /// Encoded bytes of a delivery, at least 8
    #[arg(long, value_name = "B", default_value = "16", value_parser = values::message_bytes)]
    size: usize,
    /// Deliveries of all counted slices, one a millisecond
    #[arg(long, value_name = "N", default_value = "10000", value_parser = values::count)]
    messages: u64,
    /// Tasks that compute, fewer than there are workers
    #[arg(long, value_name = "N", default_value = "0", value_parser = values::computing)]
    computing: usize,
    /// Time that each task computes before it sends a result and looks for the next order
    #[arg(long, value_name = "DUR", default_value = "1s", value_parser = values::some_time)]
    work: Duration,
    /// Baseline that is measured in the same run, beside the same tasks; the ratio is that of p99
    #[arg(long, value_enum, value_name = "BASELINE")]
    against: Option<Against>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Against {
    /// A bare thread that an eventfd wakes.
    Eventfd,
    /// Two bare threads over TCP.
    Threads,
}

/// Runs the command.
///
/// # Errors
/// If the options do not go together, or the measurement fails.
pub fn run(args: &StarveArgs) -> Result<Verdict, Failure> {
    args.common.needs_this_host("starve")?;
    args.check()?;
    let setting = args.common.setting()?;
    let plan = Plan::new(Some(args.messages), 1, args.against.is_some())?;
    let kind = StarveKind {
        bytes: args.size,
        computing: args.computing,
        work: args.work,
        node: setting.node(PolicyKind::Chunked),
    };
    let mut ours = start(kind, &setting.place("127.0.0.1"))?;
    let sides = Side::against(args.against.is_some());
    let outcome = slices::alternate(&plan, sides, |side, count| {
        let started_ns = now_ns();
        let samples_ns = match side {
            Side::Baseline => match args.against {
                Some(Against::Threads) => woken::over_tcp(args.size, count.messages)?,
                _ => woken::by_eventfd(count.messages)?,
            },
            _ => ours.deliveries(count.messages)?,
        };
        let seconds = (now_ns() - started_ns) as f64 / 1e9;
        Ok(Slice { messages: count.messages, seconds, cpu_ns: 0, samples_ns })
    })?;
    args.row(&outcome).print(args.common.json);
    Ok(Verdict::Fine)
}

impl StarveArgs {
    /// Checks that a worker is left for the node's link, unless an I/O thread drives the link.
    fn check(&self) -> Result<(), Failure> {
        let threads = self.common.threads;
        if self.computing < threads || self.common.runtime == RuntimeKind::IoThread {
            return Ok(());
        }
        Err(Failure::Refused(format!(
            "--computing {} leaves none of the workers free: with --threads {threads} at most \
             --computing {} is allowed",
            self.computing,
            threads - 1
        )))
    }

    fn row(&self, outcome: &Outcome) -> Row {
        let samples = outcome.samples_ns();
        let mut row = self.common.row("starve");
        row.set("payload_bytes", self.size)
            .set("iterations", samples.len())
            .set("p50_us", percentile_us(&samples, 50))
            .set("p99_us", percentile_us(&samples, 99))
            .set("computing", self.computing)
            .set("work_ms", self.work.as_secs_f64() * 1e3)
            .set("session", name_of(self.common.session));
        if let Some(against) = self.against {
            let p99_us = percentile_us(&samples, 99);
            let samples = outcome.baseline_samples_ns();
            let baseline_p99_us = percentile_us(&samples, 99);
            set_ratio(&mut row, &name_of(against), outcome.ratio(Slice::p99_us));
            row.set("baseline_p50_us", percentile_us(&samples, 50))
                .set("baseline_p99_us", baseline_p99_us)
                .set("p99_ratio", p99_us / baseline_p99_us);
        }
        row
    }
}
