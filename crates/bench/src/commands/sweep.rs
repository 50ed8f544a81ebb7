//! `chunkperf sweep`: the library without a setting against fixed settings, over sizes and rates.
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
use serde_json::Value;

use self::duel::{Duel, Lengths};
use self::grid::{Cell, Fixed, Rate};
use super::Verdict;
use super::stream::{policy_name, set_ours};
use crate::failure::Failure;
use crate::harness::protocol::PolicyKind;
use crate::harness::slices::name_of;
use crate::options::{Common, values};
use crate::pair;
use crate::stats::percentile_us;
use crate::table::{Cells, Row, significant};

/// Largest rate of a size, as a part of its saturation: 0.7. Nearer to it queues grow with every
/// hiccup of the machine, and p99 would measure these.
const REACHABLE: f64 = 0.7;

/// Options of `chunkperf sweep`.
#[derive(Debug, Args)]
pub struct SweepArgs {
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
pub fn run(args: &SweepArgs) -> Result<Verdict, Failure> {
    args.common.needs_this_host("sweep")?;
    let setting = args.common.setting()?;
    let lengths = if args.quick { Lengths::QUICK } else { Lengths::USUAL };
    let count = args.sizes.len() * args.rates.len();
    let mut cells = Cells::new(heading(), count, args.common.json);
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
            let duel = duel.as_ref();
            cells.add(line(cell, most, duel), || args.row(cell, most, duel));
        }
    }
    cells.write(args.quick);
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

fn heading() -> Vec<String> {
    let columns = [
        "bytes",
        "rate",
        "messages/s",
        "a packet",
        "p99 us",
        "cpu us",
        "best fixed",
        "rate",
        "p99",
        "cpu",
        "met",
    ];
    columns.map(str::to_owned).to_vec()
}

/// Returns a cell's line for people: our figures, then the best fixed setting and ours over it.
fn line(cell: Cell, most: f64, duel: Option<&Duel>) -> Vec<String> {
    let mut line = vec![cell.bytes.to_string(), cell.rate.to_string()];
    let Some(duel) = duel else {
        line.push(format!("left out: {} a second at most", significant(most.round())));
        return line;
    };
    let mut ours = Row::default();
    set_ours(&mut ours, cell.bytes, &duel.outcome);
    let shown = |key: &str| ours.get(key).and_then(Value::as_f64).map_or_else(String::new, short);
    let keys =
        ["messages_per_second", "messages_per_packet", "delivery_p99_us", "cpu_us_per_message"];
    line.extend(keys.map(shown));
    line.push(duel.best.to_string());
    line.extend(duel.ratios().map(|ratio| format!("{:.2}", ratio.median)));
    line.push(if duel.is_met(cell.rate) { "yes" } else { "MISSED" }.to_owned());
    line
}

/// Returns a number with three significant digits.
fn short(number: f64) -> String {
    if number >= 100.0 { format!("{number:.0}") } else { significant((number * 1e3).round() / 1e3) }
}
