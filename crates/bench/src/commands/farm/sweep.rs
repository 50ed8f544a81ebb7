//! `chunkperf farm sweep`: a farm with measured prefetch and grain against the best fixed ones, over
//! lengths of tasks.
//!
//! For each length:
//!
//! 1. *Count*: the tasks of a run of 0.2 s, at least 100, by the farm with measured settings.
//! 2. *Heats*: each fixed setting runs alone. One that is slow at the start is left out early.
//! 3. *Semi-final*: the best few run in turns.
//! 4. *Final*: the best of them and the measured settings run in turns, on fresh workers.
//!
//! Only the final is reported, as in `stream sweep`: the best of many noisy figures looks better than it is.

mod heats;

use std::fmt;
use std::time::Duration;

use clap::Args;

use self::heats::{Fixed, Lengths, final_of, heats};
use crate::commands::{Verdict, set_ratio};
use crate::failure::Failure;
use crate::harness::near::Bench;
use crate::harness::protocol::Transport;
use crate::harness::slices::{Outcome, Slice};
use crate::harness::work::{Work, iterations_of};
use crate::options::{Common, values};
use crate::ours::farm::FarmKind;
use crate::pair;
use crate::table::{Column, Form, Row, Table, column, write_out};

/// Least rate, as a part of the best fixed setting's.
const RATIO_MIN: f64 = 0.95;

/// Prefix of a length that is a mean.
const MIX: &str = "mix:";

/// Columns for people.
const COLUMNS: [Column; 9] = [
    column("work", "task", 8),
    column("tasks_per_second", "auto, tasks/s", 12),
    column("best_prefetch", "best: prefetch", 14),
    column("best_grain", "grain", 5),
    column("baseline_tasks_per_second", "tasks/s", 12),
    column("ratio", "ratio", 6),
    column("ratio_low", "low", 6),
    column("ratio_high", "high", 6),
    column("met", "met", 3),
];

/// Options of `chunkperf farm sweep`.
#[derive(Debug, Args)]
pub(super) struct SweepArgs {
    #[command(flatten)]
    common: Common,
    /// Lengths of the tasks; mix:DUR is a mix with this mean, exponentially distributed
    #[arg(long, value_name = "DUR|mix:DUR,..", value_delimiter = ',',
          default_value = "1us,10us,100us,1ms,10ms,mix:1ms", value_parser = length)]
    works: Vec<Length>,
    /// Number of worker processes
    #[arg(long, value_name = "N", default_value = "2", value_parser = values::threads)]
    workers: usize,
    /// Tiny runs: only shows that everything runs; figures mean nothing and no target is missed
    #[arg(long)]
    quick: bool,
}

/// Length of the tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Length {
    mean: Duration,
    is_mix: bool,
}

impl fmt::Display for Length {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefix = if self.is_mix { MIX } else { "" };
        // A letter that every terminal has.
        let mean = format!("{:?}", self.mean).replace('\u{b5}', "u");
        write!(f, "{prefix}{mean}")
    }
}

/// Parses the length of tasks: a duration, or the mean of a mix.
fn length(text: &str) -> Result<Length, String> {
    let mean = text.strip_prefix(MIX);
    let parsed = values::some_time(mean.unwrap_or(text));
    let parsed = parsed.map_err(|why| format!("{why}, and mix:DUR for a mix of lengths"))?;
    Ok(Length { mean: parsed, is_mix: mean.is_some() })
}

/// Runs the command.
///
/// # Errors
/// If the options do not go together, or the measurement fails.
pub(super) fn run(args: &SweepArgs) -> Result<Verdict, Failure> {
    args.check()?;
    let setting = args.common.setting()?;
    let lengths = if args.quick { Lengths::QUICK } else { Lengths::USUAL };
    let mut bench = pair::start_many(&setting, 0)?;
    let mut verdict = Verdict::Fine;
    if args.quick && !args.common.json {
        write_out("tiny runs: the figures mean nothing\n");
    }
    let mut table = Table::new(&COLUMNS, Form::of(args.common.json));
    for &work in &args.works {
        let duel = args.duel(&mut bench, work, &lengths)?;
        if !duel.is_met() && !args.quick {
            verdict = Verdict::Missed;
        }
        table.add(args.row(&duel));
    }
    Ok(verdict)
}

/// The final of a length.
struct Duel {
    work: Length,
    /// The best of the fixed settings, and their number.
    best: Fixed,
    tried: usize,
    /// The farm with measured settings, and the best fixed one as the baseline.
    outcome: Outcome,
}

impl Duel {
    fn ratio(&self) -> crate::stats::Ratio {
        self.outcome.ratio(Slice::rate)
    }

    fn is_met(&self) -> bool {
        self.ratio().median >= RATIO_MIN
    }
}

impl SweepArgs {
    fn check(&self) -> Result<(), Failure> {
        self.common.needs_this_host("farm sweep")?;
        let refuse = |why: &str| Err(Failure::Refused(why.to_owned()));
        self.common.needs_session("farm sweep")?;
        if self.common.transport == Transport::Memory {
            return refuse(
                "--transport memory reaches threads: the workers are processes, tcp, tls and unix \
                 are allowed",
            );
        }
        Ok(())
    }

    fn duel(&self, bench: &mut Bench, work: Length, lengths: &Lengths) -> Result<Duel, Failure> {
        let iterations = iterations_of(work.mean);
        let kind = self.kind(match work.is_mix {
            true => Work::Exponential(iterations),
            false => Work::Iterations(iterations),
        })?;
        let tasks = heats::tasks_of_run(bench, &kind, work.mean, lengths)?;
        let fixed = Fixed::all(tasks, self.workers, lengths);
        let best = heats(bench, &kind, tasks, &fixed, lengths)?;
        let outcome = final_of(bench, &kind, tasks, best, lengths)?;
        Ok(Duel { work, best, tried: fixed.len(), outcome })
    }

    /// Returns the farm with measured settings.
    fn kind(&self, work: Work) -> Result<FarmKind, Failure> {
        let kind = FarmKind::of(work, self.common.runtime, self.common.transport)?;
        Ok(FarmKind { workers: self.workers, ..kind })
    }

    fn row(&self, duel: &Duel) -> Row {
        let Duel { work, best, tried, outcome } = duel;
        let (tasks, seconds) = (outcome.messages(), outcome.seconds());
        let mut row = self.common.row("farm-sweep");
        row.set("work", work.to_string())
            .set("work_us", work.mean.as_secs_f64() * 1e6)
            .set("workers", self.workers)
            .set("tasks", tasks)
            .set("seconds", seconds)
            .set("tasks_per_second", tasks as f64 / seconds)
            .set("settings", *tried)
            .set("best_prefetch", best.prefetch)
            .set("best_grain", best.grain);
        set_ratio(&mut row, "best-fixed", duel.ratio());
        row.set("baseline_tasks_per_second", outcome.baseline_rate()).set("met", duel.is_met());
        row
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_durations_or_mixes() {
        let of = |millis, is_mix| Length { mean: Duration::from_millis(millis), is_mix };
        assert_eq!(length("10ms"), Ok(of(10, false)));
        assert_eq!(length("mix:1ms"), Ok(of(1, true)));
        for wrong in ["mix:", "mix:0s", "0s", "exp:1ms"] {
            assert!(length(wrong).is_err_and(|why| why.contains("mix:DUR")), "{wrong}");
        }
        assert_eq!(of(1, true).to_string(), "mix:1ms");
        assert_eq!(length("10us").unwrap().to_string(), "10us");
    }
}
