//! `chunkperf farm tree`: the number of workers from which sub-farmers pay, beside the formula.
//!
//! The formula: one farmer feeds `time of a task / farmer's cost of a task` workers, with one task an
//! assignment. The cost is measured with four times as many workers, where only the farmer counts.

use std::time::Duration;

use chunkcomm::with_causes;
use chunkcomm_farm::settings::{Grain, Prefetch, Tree};
use chunkcomm_simulation::load;
use clap::Args;

use crate::commands::Verdict;
use crate::failure::Failure;
use crate::harness::protocol::Transport;
use crate::harness::work::Work;
use crate::lan::{self, LanArgs};
use crate::options::Common;
use crate::options::values;
use crate::ours::farm::{FarmKind, farm_in};
use crate::table::Row;

/// Tasks of each worker in a run.
const TASKS: u64 = 200;

/// Workers of the runs in shares of the formula's, in hundredths: from below the first crossing that is
/// plausible to above the last.
const FROM: u64 = 60;
const TO: u64 = 180;
const STEP: u64 = 5;

/// Loss of one farmer against the tree from which the tree is better: below, the two take turns.
const BETTER: f64 = 1.02;

/// Options of `chunkperf farm tree`.
#[derive(Debug, Args)]
pub(super) struct TreeArgs {
    #[command(flatten)]
    common: Common,
    /// World of the hosts: a preset's name or a file's path
    #[arg(long, value_name = "NAME|FILE", default_value = "lan-1g", value_parser = world)]
    world: String,
    /// Time of a task; may be given several times
    #[arg(long, value_name = "DUR", default_values = ["500us", "1ms"], value_parser = values::some_time)]
    work: Vec<Duration>,
}

/// Parses a world, which is there.
fn world(text: &str) -> Result<String, String> {
    let loaded = load(text).map(|_| text.to_owned());
    loaded.map_err(|error| format!("allowed are presets and files: {}", with_causes(&error)))
}

/// Runs the command.
///
/// # Errors
/// If a farm fails.
pub(super) fn run(args: &TreeArgs) -> Result<Verdict, Failure> {
    args.common.check_virtual()?;
    for &work in &args.work {
        args.row(work)?.print(args.common.json);
    }
    Ok(Verdict::Fine)
}

impl TreeArgs {
    fn row(&self, work: Duration) -> Result<Row, Failure> {
        // Twice, since the first number of workers is a guess.
        let mut farmer = Duration::from_micros(50);
        for _ in 0..2 {
            let workers = (4.0 * formula(work, farmer)) as u64;
            let seconds = self.seconds(work, workers, Tree::Off)?;
            farmer = Duration::from_secs_f64(seconds / (workers * TASKS) as f64);
        }
        let formula = formula(work, farmer);
        let mut found = None;
        for share in (FROM..=TO).step_by(STEP as usize) {
            let workers = ((formula * share as f64 / 100.0).round() as u64).max(2);
            let size = u32::try_from(workers.isqrt()).unwrap_or(u32::MAX).max(2);
            let one = self.seconds(work, workers, Tree::Off)?;
            let tree = self.seconds(work, workers, Tree::FanOut(size))?;
            if one > BETTER * tree {
                found = Some((workers, one / tree));
                break;
            }
        }
        let mut row = self.common.row("farm-tree");
        row.set("world", self.world.as_str())
            .set("work_us", work.as_secs_f64() * 1e6)
            .set("farmer_us", farmer.as_secs_f64() * 1e6)
            .set("formula_workers", formula)
            .set("workers", found.map(|(workers, _)| workers))
            .set("gain", found.map(|(_, gain)| gain))
            .set("ratio", found.map(|(workers, _)| workers as f64 / formula));
        Ok(row)
    }

    fn seconds(&self, work: Duration, workers: u64, tree: Tree) -> Result<f64, Failure> {
        let kind = FarmKind {
            workers: workers as usize,
            prefetch: Prefetch::Fixed(2),
            grain: Grain::Fixed(1),
            tree,
            ..FarmKind::of(Work::Virtual(work), self.common.runtime, Transport::Tcp)?
        };
        let args = LanArgs { lan: String::new(), trace: None, check: false };
        let tasks = workers * TASKS;
        let ran = lan::run(&args, &self.world, workers as usize + 1, move |cluster| {
            let kind = kind.clone();
            async move { farm_in(&cluster, &kind, tasks).await }
        })?;
        Ok(ran.results[0])
    }
}

/// Returns the number of workers that one farmer feeds.
fn formula(work: Duration, farmer: Duration) -> f64 {
    work.as_secs_f64() / farmer.as_secs_f64()
}
