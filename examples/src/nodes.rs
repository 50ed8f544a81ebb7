//! Lists the nodes of a cluster: rank, host, process, launcher, and from rank 0 the round trip and
//! the bandwidth to each.
//!
//! Round trip: the median of urgent messages of 8 bytes, one after the other. Bandwidth: messages
//! of 1 MiB until the other side reports that it has all the bytes.

use std::error::Error;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use chunkcomm::{BytesReceiver, Node, Peer, Receiver};
use chunkcomm_cluster::cluster::{Change, Changes, Cluster, Death, End, Member};
use clap::Parser;
use serde::{Deserialize, Serialize};

use crate::cluster_options::ClusterOptions;
use crate::command_line::{numbers, parse, write_out};
use crate::program::run_program;

const END_DEADLINE: Duration = Duration::from_secs(30);
const MESSAGE_BYTES: usize = 1 << 20;

const PING: &str = "nodes.ping";
const PONG: &str = "nodes.pong";
const BULK: &str = "nodes.bulk";

type Failure = Box<dyn Error>;

#[derive(Parser)]
#[command(name = "nodes", about = "Prints the nodes of a cluster and how far they are from rank 0")]
pub(crate) struct Options {
    #[command(flatten)]
    cluster: ClusterOptions,

    /// Round trips to each node
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = numbers::<u32>(1..=1_000_000))]
    round_trips: u32,

    /// Mebibytes sent to each node
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = numbers::<u32>(1..=65_536))]
    mebibytes: u32,

    /// Seconds that the other nodes wait for another rank 0 when theirs is gone; one that is started
    /// by hand with the same variables prints the table again
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = numbers::<u64>(0..=86_400))]
    rejoin: u64,
}

/// Message from a node to rank 0.
#[derive(Serialize, Deserialize)]
enum Answer {
    /// The first answer: the launcher that started the node.
    Launcher(String),
    Pong(u64),
    /// Number of bytes that came.
    Received(u64),
}

/// Runs the whole program.
#[must_use]
pub fn run() -> ExitCode {
    let options = parse::<Options>();
    run_program("nodes", work(&options))
}

async fn work(options: &Options) -> Result<(), Failure> {
    let window = Duration::from_secs(options.rejoin);
    let joined = options.cluster.join_with(|config| config.rejoin_window(window));
    let Some(cluster) = joined.await? else { return Ok(()) };
    let done = match cluster.rank() {
        0 => {
            // The death of the node being measured also shows in its channels; other deaths show only here.
            let changes = cluster.changes();
            let members = cluster.members();
            tokio::select! {
                biased;
                led = lead(&cluster, &members, options) => led,
                death = death_of(&members, changes) => Err(death.to_string().into()),
            }
        }
        _ => serve(&cluster, options.rejoin > 0).await,
    };
    if cluster.rank() == 0 && done.is_ok() {
        // A node that came too late for the table still waits to be asked.
        cluster.finish();
    }
    match (done, cluster.ended()) {
        (Ok(()), _) => Ok(cluster.end(END_DEADLINE).await?),
        // The end of the cluster is the cause of any other error.
        (Err(_), Some(end)) => Err(end.to_string().into()),
        (Err(error), None) => Err(error),
    }
}

/// Serves as a node other than rank 0: answers rank 0 once, if asked. With `again` the node also
/// answers the next rank 0.
async fn serve(cluster: &Cluster, again: bool) -> Result<(), Failure> {
    let node = cluster.node();
    loop {
        let served = tokio::select! {
            // The answers come first, since the end may arrive with the last message of rank 0.
            biased;
            served = answer(node, cluster.place().launcher().to_string()) => served,
            end = cluster.finished() => return match end {
                End::Finished { .. } => Ok(()),
                end => Err(end.to_string().into()),
            },
        };
        match served {
            Err(error) if again && cluster.ended().is_none() => {
                eprintln!("rank {}: {error}; another rank 0 is waited for", cluster.rank());
            }
            served => return served,
        }
    }
}

async fn answer(node: &Node, launcher: String) -> Result<(), Failure> {
    let (peer, mut pings) = node.accept::<u64>(PING).await?;
    let mut answers = node.open::<Answer>(&peer, PONG).await?;
    answers.send_now(&Answer::Launcher(launcher)).await?;
    while let Some(number) = pings.recv().await? {
        answers.send_now(&Answer::Pong(number)).await?;
    }
    let (_, bulk) = node.accept_bytes(BULK).await?;
    let bytes = count(bulk).await?;
    answers.send_now(&Answer::Received(bytes)).await?;
    Ok(())
}

async fn count(mut bulk: BytesReceiver) -> Result<u64, Failure> {
    let mut bytes = 0;
    while let Some(message) = bulk.recv().await? {
        bytes += message.len() as u64;
    }
    Ok(bytes)
}

/// Row of the table: a node and its measurements.
struct Row {
    member: Member,
    launcher: String,
    /// Round trip and bytes a second; `None` for rank 0 itself.
    measured: Option<(Duration, f64)>,
}

/// Waits until one of these members has died.
async fn death_of(members: &[Member], mut changes: Changes) -> Death {
    while let Some(change) = changes.next().await {
        if let Change::Died(death) = change
            && members.iter().any(|member| member.id == death.id)
        {
            return death;
        }
    }
    std::future::pending().await
}

async fn lead(cluster: &Cluster, members: &[Member], options: &Options) -> Result<(), Failure> {
    let mut rows = Vec::new();
    for member in members.iter().cloned() {
        if member.id == cluster.id() {
            let launcher = cluster.place().launcher().to_string();
            rows.push(Row { member, launcher, measured: None });
            continue;
        }
        let peer = cluster.peer(member.id.rank).await?;
        rows.push(measure(cluster.node(), &peer, member, options).await?);
    }
    write_out(&table(&rows))?;
    Ok(())
}

async fn measure(
    node: &Node,
    peer: &Peer,
    member: Member,
    options: &Options,
) -> Result<Row, Failure> {
    let mut pings = node.open::<u64>(peer, PING).await?;
    pings.flush().await?;
    // No channel reports an open that never comes; the end of the link does.
    let (_, mut answers) = tokio::select! {
        accepted = node.accept::<Answer>(PONG) => accepted?,
        lost = peer.closed() => return Err(lost.into()),
    };
    let Some(Answer::Launcher(launcher)) = answers.recv().await? else {
        return Err("a node does not say what started it".into());
    };
    let mut times = Vec::with_capacity(options.round_trips as usize);
    for number in 0..u64::from(options.round_trips) {
        let begun = Instant::now();
        pings.send_now(&number).await?;
        match answers.recv().await? {
            Some(Answer::Pong(back)) if back == number => times.push(begun.elapsed()),
            _ => return Err("a node answers something else than it was asked".into()),
        }
    }
    drop(pings);
    times.sort_unstable();
    let rate = bandwidth(node, peer, &mut answers, options.mebibytes).await?;
    Ok(Row { member, launcher, measured: Some((times[times.len() / 2], rate)) })
}

/// Returns the bandwidth in bytes a second.
async fn bandwidth(
    node: &Node,
    peer: &Peer,
    answers: &mut Receiver<Answer>,
    mebibytes: u32,
) -> Result<f64, Failure> {
    let message = vec![7; MESSAGE_BYTES];
    let begun = Instant::now();
    let mut bulk = node.open_bytes(peer, BULK).await?;
    for _ in 0..mebibytes {
        bulk.send_slice(&message).await?;
    }
    drop(bulk);
    let sent = u64::from(mebibytes) * MESSAGE_BYTES as u64;
    match answers.recv().await? {
        Some(Answer::Received(bytes)) if bytes == sent => {
            Ok(bytes as f64 / begun.elapsed().as_secs_f64())
        }
        Some(Answer::Received(bytes)) => {
            Err(format!("of {sent} bytes {bytes} came to {}", peer.name()).into())
        }
        _ => Err("a node does not say how much came".into()),
    }
}

fn table(rows: &[Row]) -> String {
    let mut cells = vec![
        ["rank", "host", "process", "launcher", "at", "round trip", "bandwidth"].map(str::to_owned),
    ];
    for Row { member, launcher, measured } in rows {
        let (trip, rate) = match measured {
            Some((trip, rate)) => {
                (format!("{:.1} us", trip.as_secs_f64() * 1e6), format!("{:.0} MB/s", rate / 1e6))
            }
            None => ("-".to_owned(), "-".to_owned()),
        };
        let Member { id, host, pid, addresses, .. } = member;
        let at = addresses.first().cloned().unwrap_or_default();
        let (rank, pid) = (id.rank.to_string(), pid.to_string());
        cells.push([rank, host.clone(), pid, launcher.clone(), at, trip, rate]);
    }
    let widths: [usize; 7] = std::array::from_fn(|column| {
        cells.iter().map(|row| row[column].chars().count()).max().unwrap_or(0)
    });
    let mut text = String::new();
    for row in &cells {
        let padded = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        text += padded.collect::<Vec<_>>().join("  ").trim_end();
        text += "\n";
    }
    text
}
