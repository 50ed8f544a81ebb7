//! Sends items to a process on another node that sends them back: the system test of J. Berthold,
//! "Dynamic Chunking in Eden" (section 4.2, figure 5).
//!
//! An item is a list of words of 32 bits. The time runs from the first item sent to the last one that
//! came back; the process has started before. Each item that comes back is compared with the one
//! sent. Nodes that gather messages and nodes that send each at once take turns
//! ([`by_policy`](chunkcomm_coupled::by_policy)), so that other load on the machines affects both.

mod item;
mod options;
mod table;

use chunkcomm_cluster::NodeExt;
use std::error::Error;
use std::process::ExitCode;

use chunkcomm::host::Instant;
use chunkcomm_cluster::process::Failure;
use chunkcomm_cluster::{
    Cluster, Process, Registry, TravellingReceiver, TravellingSender, ValueWriter,
};
use chunkcomm_coupled::by_policy::{Seats, Team};
use chunkcomm_examples::command_line::{parse_with, write_out};
use chunkcomm_examples::program::run_program;
use chunkcomm_examples::thread::Thread;
use serde::{Deserialize, Serialize};

use item::{Item, item, item_nanos};
use options::Options;
use table::{Outcome, Row};

type Ends = (TravellingReceiver<Item>, TravellingSender<Item>);

/// Job of a caller.
#[derive(Serialize, Deserialize)]
struct Job {
    /// Rank of the node that sends back.
    helper: u32,
    items: u32,
    words: u32,
    outcome: ValueWriter<Outcome>,
}

fn main() -> ExitCode {
    let options = parse_with(Options::check);
    run_program("echo", options.teams.cluster(), || work(options))
}

async fn work(options: &'static Options) -> Result<(), Box<dyn Error>> {
    let mut registry = Registry::new();
    let echo = registry.process("echo", |_, (items, back): Ends| async move {
        // Both ends are connected before the first item comes.
        let (mut items, mut back) = (items.connect().await?, back.connect().await?);
        let thread = Thread::default();
        while let Some(item) = items.recv().await? {
            thread.work(|| 2 * item_nanos(&item)).await;
            back.send(&item).await?;
        }
        Ok(())
    });
    let caller = registry.process("echo.call", move |context, job: Job| {
        let echo = echo.clone();
        async move {
            let cluster = context.cluster().ok_or_else(|| Failure::new("the cluster has ended"))?;
            let outcome = call(&cluster, &echo, &job).await?;
            Ok(job.outcome.write(&outcome).await?)
        }
    });
    let lead =
        async |cluster: &Cluster, teams: &[Team]| lead(cluster, teams, &caller, options).await;
    options.teams.run(2, Seats::OneEach, &registry, lead).await
}

/// Leads as rank 0: has the callers take turns, size by size, and prints their times.
async fn lead(
    cluster: &Cluster,
    teams: &[Team],
    caller: &Process<Job>,
    options: &Options,
) -> Result<(), Box<dyn Error>> {
    let mut rows = Vec::new();
    for &words in &options.words {
        let mut row = Row::new(words);
        // One untimed round first makes the links and the memory ready.
        for round in 0..=options.repeat {
            for team in teams {
                let outcome = ask(cluster, team, caller, options.items, words).await?;
                if round > 0 {
                    row.add(team.gathers, outcome);
                }
            }
        }
        rows.push(row);
    }
    let alone = teams.iter().any(Team::is_alone);
    write_out(&table::text(options.items, alone, options.gain, &rows))?;
    Ok(())
}

async fn ask(
    cluster: &Cluster,
    team: &Team,
    caller: &Process<Job>,
    items: u32,
    words: u32,
) -> Result<Outcome, Box<dyn Error>> {
    let (writer, outcome) = cluster.node().value()?;
    let helper = *team.helpers.first().unwrap_or(&team.caller);
    let job = Job { helper, items, words, outcome: writer };
    cluster.instantiate(team.caller, caller, job).await?.await?;
    Ok(outcome.get().await?.clone())
}

/// Runs the process of a caller: sends and takes back at the same time.
async fn call(cluster: &Cluster, echo: &Process<Ends>, job: &Job) -> Result<Outcome, Failure> {
    let items: Vec<Item> = (0..job.items).map(|index| item(index, job.words)).collect();
    let (input, to_echo) = cluster.node().travelling_receiver()?;
    let (output, mut back) = cluster.node().travelling_sender()?;
    let process = cluster.instantiate(job.helper, echo, (input, output)).await?;
    let mut to_echo = to_echo.connect().await?;
    let peer = cluster.peer(job.helper).await?;
    let packets_before = peer.stats().message_packets_sent;
    let (begun, thread) = (Instant::now(), Thread::default());
    let sending = async {
        for item in &items {
            thread.work(|| item_nanos(item)).await;
            to_echo.send(item).await?;
        }
        drop(to_echo);
        Ok::<_, Failure>(())
    };
    let taking = async {
        for (index, item) in items.iter().enumerate() {
            match back.recv().await? {
                Some(same) if same == *item => thread.work(|| item_nanos(item)).await,
                Some(_) => return Err(Failure::new(format!("item {index} came back changed"))),
                None => return Err(Failure::new(format!("only {index} items came back"))),
            }
        }
        Ok(begun.elapsed().as_secs_f64())
    };
    let ((), seconds) = tokio::try_join!(sending, taking)?;
    if back.recv().await?.is_some() {
        return Err(Failure::new("more came back than was sent"));
    }
    process.await?;
    Ok(Outcome { seconds, packets: peer.stats().message_packets_sent - packets_before })
}
