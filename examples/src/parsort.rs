//! Sorts numbers by processes on other nodes: the sorting program of J. Berthold, "Dynamic Chunking
//! in Eden" (sections 2.2 and 4.2).
//!
//! One process, the *caller*, deals the numbers to *workers*, which sort them, and merges the parts
//! that come back. There are three ways to send the numbers (`ways`): one by one, which is what one
//! writes first; and two in chunks by hand. Each is done by nodes that gather messages and by nodes
//! that send each at once ([`by_policy`](crate::by_policy)). The result is compared with a
//! sequential sort.

mod options;
mod table;
mod ways;

use chunkcomm_cluster::NodeExt;
use std::error::Error;
use std::process::ExitCode;

use chunkcomm_cluster::process::Failure;
use chunkcomm_cluster::{Cluster, Process, ReceivingPort, Registry, SendingPort};
use serde::{Deserialize, Serialize};

use crate::by_policy::{Seats, Team};
use crate::command_line::{parse_with, write_out};
use crate::program::{on_a_thread, run_program};
pub(crate) use options::Options;
use table::Row;
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
    numbers: ReceivingPort<i64>,
    /// One outcome for each sorting: the ways in order, round by round.
    outcomes: SendingPort<Outcome>,
}

/// Digest of numbers in any order: their count, sum, and sum of squares. Other numbers hardly ever
/// have the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Digest([u64; 3]);

impl Digest {
    fn of(numbers: &[i64]) -> Digest {
        let add = |[count, sum, squares]: [u64; 3], number: &i64| {
            let number = number.cast_unsigned();
            let square = number.wrapping_mul(number);
            [count + 1, sum.wrapping_add(number), squares.wrapping_add(square)]
        };
        Digest(numbers.iter().fold([0; 3], add))
    }

    /// Checks that these numbers have this digest.
    fn check(self, numbers: &[i64]) -> Result<(), Failure> {
        if Digest::of(numbers) == self {
            return Ok(());
        }
        Err(Failure::new("other numbers came than were read"))
    }
}

/// Outcome of one sorting.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Outcome {
    seconds: f64,
    /// Whether the result equals that of another sort.
    right: bool,
    /// Numbers of messages and packets that the caller sent.
    messages: u64,
    packets: u64,
}

/// Runs the whole program.
#[must_use]
pub fn run() -> ExitCode {
    let options = parse_with(Options::check);
    run_program("parsort", work(&options))
}

async fn work(options: &Options) -> Result<(), Box<dyn Error>> {
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
    let (input, to_caller) = cluster.node().receiving_port()?;
    let (outcomes, mut told) = cluster.node().sending_port()?;
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
    let unsorted = numbers.clone();
    let sorted = move || {
        let mut sorted = unsorted;
        sorted.sort_unstable();
        sorted
    };
    let expected = on_a_thread(sorted).await.map_err(|error| Failure::new(error.to_string()))?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_numbers_than_were_read_are_refused() {
        let read = [3, -1, 7, 7, 0, i64::MIN];
        let digest = Digest::of(&read);
        let mut other_order = read;
        other_order.reverse();
        assert!(digest.check(&other_order).is_ok());
        let others: [&[i64]; 5] = [
            &[],
            &read[1..],
            &[3, -1, 7, 7, 0, i64::MIN, 0],
            &[3, -1, 7, 7, 1, i64::MIN],
            // Other numbers of the same sum.
            &[4, -2, 7, 7, 0, i64::MIN],
        ];
        for numbers in others {
            assert!(digest.check(numbers).is_err(), "{numbers:?}");
        }
    }
}
