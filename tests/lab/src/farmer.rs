//! A farmer that is killed and started again with its journal.

use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use chunkcomm_bench::failure::{Doing, Failure};
use chunkcomm_bench::harness::{machine, runtime};
use chunkcomm_bench::options::values;
use chunkcomm_bench::table::Row;
use chunkcomm_cluster::Registry;
use chunkcomm_farm::Farm;
use chunkcomm_farm::settings::Fsync;
use chunkcomm_proto::random::mix;
use chunkcomm_testkit::Scratch;
use clap::Args;

use super::farm::{compute, register};
use super::{Lab, Promises};

/// Name of the hidden command of a farmer.
pub const FARMER_COMMAND: &str = "farm-out";

const WORKERS: usize = 2;

/// Most runs beyond one a kill: where runs are shorter than `every`, few farmers are killed.
const RUNS_MAX: u64 = 100;

/// Time for the workers to end in good order: 5 s.
const FINISH_DEADLINE: Duration = Duration::from_secs(5);

/// Number and times of the kills.
#[derive(Debug, Clone, Copy, Args)]
pub struct Plan {
    /// Number of farmers that are killed
    #[arg(long, value_name = "N", default_value = "10", value_parser = values::times)]
    pub kills: usize,
    /// Mean time from a farmer's start to its death
    #[arg(long, value_name = "DUR", default_value = "300ms", value_parser = values::some_time)]
    pub every: Duration,
    /// Tasks of a run, of 50 us to 5 ms each
    #[arg(long, value_name = "N", default_value = "2000", value_parser = values::count)]
    pub tasks: u64,
}

/// Farms the tasks out, with a journal; prints a digest of all results and the number of those from
/// the journal.
///
/// # Errors
/// If the farm fails.
pub fn farm_out(journal: &Path, tasks: u64) -> Result<(), Failure> {
    let runtime = runtime::start(1)?;
    runtime.block_on(async {
        let mut registry = Registry::new();
        let function = register(&mut registry);
        let builder = Farm::builder(registry).workers(WORKERS);
        let builder = builder.journal(journal, Fsync::Never);
        let mut farm = builder.start().await.doing("starting the farm")?;
        let outcome = farm.run(&function, 0..tasks).await.doing("farming")?;
        farm.finish(FINISH_DEADLINE).await.doing("ending the farm")?;
        let digest = digest(outcome.results.iter().map(|&(value, _)| value));
        println!("{digest} {}", outcome.stats.recalled);
        Ok(())
    })
}

fn digest(results: impl IntoIterator<Item = u64>) -> u64 {
    results.into_iter().fold(0, |digest, value| mix(digest ^ value))
}

/// Kills farmers; the last one of each run ends by itself. Its results are those of one thread.
///
/// # Errors
/// If a farmer does not start.
pub async fn run(
    lab: &mut Lab,
    plan: &Plan,
    promises: &mut Promises,
    row: &mut Row,
) -> Result<(), Failure> {
    let due = digest((0..plan.tasks).map(compute));
    let journal = Scratch::new("farmer");
    let (mut kills, mut runs, mut recalled, mut wrong) = (0, 0_u64, 0, 0);
    loop {
        let mut farmer = farmer(&journal, plan.tasks)?;
        if kills < plan.kills {
            tokio::time::sleep(lab.about(plan.every)).await;
            farmer.kill().doing("killing a farmer")?;
        }
        let output = farmer.wait_with_output().doing("waiting for a farmer")?;
        if output.status.code().is_none() {
            kills += 1;
            continue;
        }
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let numbers = text.trim().split_once(' ');
        let told =
            numbers.and_then(|(one, two)| Some((one.parse().ok()?, two.parse::<u64>().ok()?)));
        promises.hold(told.is_some(), || format!("a farmer ended and printed {text:?}"));
        runs += 1;
        recalled += told.map_or(0, |(_, recalled)| recalled);
        wrong += u64::from(told.is_none_or(|(digest, _): (u64, u64)| digest != due));
        if kills >= plan.kills || told.is_none() {
            break;
        }
        if runs > kills as u64 + RUNS_MAX {
            promises.hold(false, || "runs end before their farmers are killed".to_owned());
            break;
        }
        // No farmer may have made it.
        let _ = std::fs::remove_file(&journal);
    }
    promises.hold(wrong == 0, || format!("{wrong} of {runs} runs have other results"));
    row.set("kills", kills)
        .set("runs", runs)
        .set("tasks", plan.tasks * runs)
        .set("recalled", recalled)
        .set("wrong", wrong);
    Ok(())
}

fn farmer(journal: &Path, tasks: u64) -> Result<Child, Failure> {
    let mut command = machine::this_program()?;
    command.arg(FARMER_COMMAND).arg(journal).arg(tasks.to_string());
    command.stdout(Stdio::piped()).spawn().doing("starting a farmer")
}
