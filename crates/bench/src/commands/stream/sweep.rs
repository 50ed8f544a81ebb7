//! `chunkperf stream sweep`: the library without a setting against fixed settings, over sizes and rates.
//!
//! A *cell* is a size of messages and a rate. In its *heats* all fixed settings run in turn, and
//! the best is found. In its *final* the best and the library without a setting alternate, on fresh
//! connections. Only these pairs are reported: the best of many noisy figures looks better than it
//! is, but not when it is measured once more. A final that misses its target continues, up to ten
//! times as long, and all of its pairs count: p99 of a slice moves by a quarter from one to the
//! next.
//!
//! The best is one setting. At saturation it has the highest rate. Below, where the program sets
//! the rate, it has the least product of p99 delivery and processor time a message. A setting that
//! doubles the one to halve the other is no better. One that waits a millisecond to save a tenth of
//! the processor is worse.
//!
//! A rate is kept by a timer on which the program sleeps, so that the processor time is the cost of
//! the messages. Rates near or above a size's saturation are left out, and the row says so.

mod duel;
mod grid;

use clap::Args;

use self::duel::{Duel, Lengths};
use self::grid::{Cell, Fixed, Rate};
use super::{policy_name, set_ours};
use crate::commands::Verdict;
use crate::failure::Failure;
use crate::harness::protocol::PolicyKind;
use crate::harness::slices::name_of;
use crate::options::{Common, values};
use crate::pair;
use crate::stats::percentile_us;
use crate::table::{Column, Form, Row, Table, column, write_out};

/// Largest rate of a size, as a part of its saturation: 0.7. Nearer to it queues grow with every
/// hiccup of the machine, and p99 would measure these.
const REACHABLE: f64 = 0.7;

/// Columns for people: ours, then the best fixed setting, and ours over it.
const COLUMNS: [Column; 14] = [
    column("payload_bytes", "bytes", 6),
    column("rate", "rate (-: max)", 13),
    column("saturation_messages_per_second", "max", 10),
    column("messages_per_second", "messages/s", 10),
    column("messages_per_packet", "a packet", 8),
    column("delivery_p99_us", "p99 us", 6),
    column("cpu_us_per_message", "cpu us", 7),
    column("best_policy", "best fixed", 13),
    column("best_packet_bytes", "packets of", 10),
    column("rate_ratio", "rate x", 6),
    column("p99_ratio", "p99 x", 6),
    column("cpu_ratio", "cpu x", 6),
    column("met", "met", 3),
    column("skipped", "left out", 3),
];

/// Options of `chunkperf stream sweep`.
#[derive(Debug, Args)]
pub(super) struct SweepArgs {
    #[command(flatten)]
    common: Common,
    /// Encoded bytes of a message, at least 8
    #[arg(long, value_name = "B,..", value_delimiter = ',', default_value = "8,64,512,4KiB,64KiB",
          value_parser = values::message_bytes)]
    sizes: Vec<usize>,
    /// Messages a second; max is as many as go
    #[arg(long, value_name = "R,..", value_delimiter = ',', default_value = "1000,10000,100000,1000000,max",
          value_parser = grid::rate)]
    rates: Vec<Rate>,
    /// Tiny runs: only shows that everything runs; figures mean nothing and no target is missed
    #[arg(long)]
    quick: bool,
}

/// Runs the command.
///
/// # Errors
/// If the options do not go together, or the measurement fails.
pub(super) fn run(args: &SweepArgs) -> Result<Verdict, Failure> {
    args.common.needs_this_host("stream sweep")?;
    let setting = args.common.setting()?;
    let lengths = if args.quick { Lengths::QUICK } else { Lengths::USUAL };
    if args.quick && !args.common.json {
        write_out("tiny runs: the figures mean nothing\n");
    }
    let mut table = Table::new(&COLUMNS, Form::of(args.common.json));
    let mut verdict = Verdict::Fine;
    for &bytes in &args.sizes {
        // A size has processes of its own, so that the nodes of the size before are gone.
        let mut bench = pair::start(&setting)?;
        let most = duel::saturation(&mut bench, &setting, bytes, &lengths)?;
        for &rate in &args.rates {
            let cell = Cell { bytes, rate };
            let too_much = rate.per_second().is_some_and(|rate| rate as f64 > REACHABLE * most);
            let duel = if too_much {
                None
            } else {
                Some(duel::run(&mut bench, &setting, cell, &lengths)?)
            };
            if duel.as_ref().is_some_and(|duel| !duel.is_met(rate)) && !args.quick {
                verdict = Verdict::Missed;
            }
            table.add(args.row(cell, most, duel.as_ref()));
        }
    }
    Ok(verdict)
}

impl SweepArgs {
    fn row(&self, cell: Cell, most: f64, duel: Option<&Duel>) -> Row {
        let mut row = self.common.row("sweep");
        row.set("policy", policy_name(PolicyKind::Chunked))
            .set("payload_bytes", cell.bytes)
            .set("rate", cell.rate.per_second())
            .set("session", name_of(self.common.session))
            .set("saturation_messages_per_second", most)
            .set("skipped", duel.is_none());
        for key in KEYS {
            row.set(key, None::<f64>);
        }
        if let Some(duel) = duel {
            set_ours(&mut row, cell.bytes, &duel.outcome);
            set_best(&mut row, duel);
            row.set("met", duel.is_met(cell.rate));
        }
        row
    }
}

/// Keys that are null in the row of a cell that was left out.
const KEYS: [&str; 26] = [
    "messages",
    "seconds",
    "messages_per_second",
    "bytes_per_second",
    "packets",
    "messages_per_packet",
    "writes",
    "flushes",
    "cpu_us_per_message",
    "delivery_p50_us",
    "delivery_p99_us",
    "best_policy",
    "best_packet_bytes",
    "best_messages_per_second",
    "best_cpu_us_per_message",
    "best_delivery_p99_us",
    "rate_ratio",
    "rate_ratio_low",
    "rate_ratio_high",
    "p99_ratio",
    "p99_ratio_low",
    "p99_ratio_high",
    "cpu_ratio",
    "cpu_ratio_low",
    "cpu_ratio_high",
    "met",
];

fn set_best(row: &mut Row, duel: &Duel) {
    let outcome = &duel.outcome;
    row.set("best_policy", policy_name(duel.best.policy()))
        .set("best_packet_bytes", duel.best.packet_bytes)
        .set("best_messages_per_second", outcome.baseline_rate())
        .set("best_cpu_us_per_message", outcome.baseline_cpu_us_per_message())
        .set("best_delivery_p99_us", percentile_us(&outcome.baseline_samples_ns(), 99));
    let [rate, p99, cpu] = duel.ratios();
    row.set("rate_ratio", rate.median)
        .set("rate_ratio_low", rate.low)
        .set("rate_ratio_high", rate.high)
        .set("p99_ratio", p99.median)
        .set("p99_ratio_low", p99.low)
        .set("p99_ratio_high", p99.high)
        .set("cpu_ratio", cpu.median)
        .set("cpu_ratio_low", cpu.low)
        .set("cpu_ratio_high", cpu.high);
}
