//! Sorts numbers by processes on other nodes: the sorting program of J. Berthold, "Dynamic Chunking
//! in Eden" (sections 2.2 and 4.2).
//!
//! One process, the *caller*, deals the numbers to *workers*, which sort them, and merges the parts
//! that come back. There are three ways to send the numbers (`ways`): one by one, which is what one
//! writes first; and two in chunks by hand. Each is done by nodes that gather messages and by nodes
//! that send each at once ([`by_policy`](chunkcomm_coupled::by_policy)). The result is compared with a
//! sequential sort.

mod digest;
mod options;
mod sorting;
mod table;
mod ways;

use chunkcomm_cluster::NodeExt;
use std::error::Error;
use std::process::ExitCode;

use chunkcomm_cluster::process::Failure;
use chunkcomm_cluster::{Cluster, Process, Registry, TravellingReceiver, TravellingSender};
use chunkcomm_coupled::by_policy::{Seats, Team};
use chunkcomm_examples::command_line::{parse_with, write_out};
use chunkcomm_examples::program::run_program;
use serde::{Deserialize, Serialize};

use digest::Digest;
use options::Options;
use table::{Outcome, Row};
use ways::{Way, Workers};

/// Job of a caller.
#[derive(Serialize, Deserialize)]
struct Job {
    /// Rank of each worker.
    workers: Vec<u32>,
    ways: Vec<Way>,
    /// Number of times that all ways are run.
    rounds: u32,
    /// Digest of the numbers as they were read.
    digest: Digest,
    numbers: TravellingReceiver<i64>,
    /// One outcome for each sorting: the ways in order, round by round.
    outcomes: TravellingSender<Outcome>,
}

fn main() -> ExitCode {
    let options = parse_with(Options::check);
    run_program("parsort", options.teams.cluster(), || work(options))
}

async fn work(options: &'static Options) -> Result<(), Box<dyn Error>> {
    let mut registry = Registry::new();
    let workers = Workers::register(&mut registry);
    let caller = registry.process("parsort.call", move |context, job: Job| {
        let workers = workers.clone();
        async move {
            let cluster = context.cluster().ok_or_else(|| Failure::new("the cluster has ended"))?;
            call(&cluster, &workers, job).await
        }
    });
    let lead =
        async |cluster: &Cluster, teams: &[Team]| lead(cluster, teams, &caller, options).await;
    options.teams.run(1 + options.workers, Seats::Any, &registry, lead).await
}

/// Leads as rank 0: has the callers sort everything, and prints their times.
async fn lead(
    cluster: &Cluster,
    teams: &[Team],
    caller: &Process<Job>,
    options: &Options,
) -> Result<(), Box<dyn Error>> {
    let numbers = options.numbers()?;
    let ways = options.ways();
    let mut rows = Vec::new();
    // The slower policy comes first, as the table reads.
    for team in teams.iter().rev() {
        let outcomes = ask(cluster, team, caller, options, &numbers).await?;
        for (index, way) in ways.iter().enumerate() {
            let outcomes: Vec<Outcome> =
                outcomes.iter().skip(index).step_by(ways.len()).cloned().collect();
            let policy = team.policy();
            if outcomes.len() != options.repeat as usize || outcomes.iter().any(|it| !it.right) {
                return Err(format!("{way}, {policy}: the numbers are not sorted").into());
            }
            rows.push(Row::new(*way, policy, outcomes));
        }
    }
    let alone = teams.iter().any(Team::is_alone);
    write_out(&table::text(numbers.len(), options.workers, alone, &rows))?;
    Ok(())
}

/// Asks the caller of a team to sort in all ways.
async fn ask(
    cluster: &Cluster,
    team: &Team,
    caller: &Process<Job>,
    options: &Options,
    numbers: &[i64],
) -> Result<Vec<Outcome>, Box<dyn Error>> {
    let (input, to_caller) = cluster.node().travelling_receiver()?;
    let (outcomes, mut told) = cluster.node().travelling_sender()?;
    let workers = team.helpers.iter().copied().cycle().take(options.workers as usize).collect();
    let (ways, rounds) = (options.ways(), options.repeat);
    let digest = Digest::of(numbers);
    let job = Job { workers, ways, rounds, digest, numbers: input, outcomes };
    let process = cluster.instantiate(team.caller, caller, job).await?;
    let sending = async {
        let mut to_caller = to_caller.connect().await?;
        to_caller.send_all(numbers).await?;
        Ok::<_, Box<dyn Error>>(())
    };
    let taking = async {
        let mut all = Vec::new();
        while let Some(outcome) = told.recv().await? {
            all.push(outcome);
        }
        Ok::<_, Box<dyn Error>>(all)
    };
    let (sent, taken) = tokio::join!(sending, taking);
    // The process knows why it failed, so its error comes first.
    process.await?;
    sent?;
    taken
}

/// Runs the process of a caller.
async fn call(cluster: &Cluster, workers: &Workers, job: Job) -> Result<(), Failure> {
    let mut outcomes = job.outcomes.connect().await?;
    let mut from = job.numbers.connect().await?.into_receiver().await?;
    let mut numbers = Vec::new();
    while from.recv_many(&mut numbers, usize::MAX).await? > 0 {}
    job.digest.check(&numbers)?;
    let expected = sorting::sorted(numbers.clone()).await?;
    let numbers = numbers.into();
    for _ in 0..job.rounds {
        for &way in &job.ways {
            let sorting = ways::Sorting { cluster, workers, ranks: &job.workers, way };
            let outcome = sorting.timed(&numbers, &expected).await?;
            outcomes.send_now(&outcome).await?;
        }
    }
    Ok(())
}
