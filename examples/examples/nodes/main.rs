//! Lists the nodes of a cluster: rank, host, process, launcher, and from rank 0 the round trip and
//! the bandwidth to each.
//!
//! Round trip: the median of urgent messages of 8 bytes, one after the other. Bandwidth: messages
//! of 1 MiB until the other side reports that it has all the bytes.

mod options;
mod table;

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use chunkcomm::{Node, Peer, host::Instant};
use chunkcomm_cluster::Cluster;
use chunkcomm_cluster::cluster::{End, Member};
use chunkcomm_examples::cluster_options::{END_DEADLINE, death_of};
use chunkcomm_examples::command_line::{parse, write_out};
use chunkcomm_examples::program::run_program;

use options::Options;
use table::{Answer, Row};

/// Names of the channels: numbers to a node, its [`Answer`]s, and the bytes that it counts.
const PING: &str = "nodes.ping";
const PONG: &str = "nodes.pong";
const BULK: &str = "nodes.bulk";

type Failure = Box<dyn Error>;

fn main() -> ExitCode {
    let options = parse::<Options>();
    run_program("nodes", &options.cluster, || work(options))
}

async fn work(options: &'static Options) -> Result<(), Failure> {
    let config = options.cluster.config().rejoin_window(Duration::from_secs(options.rejoin));
    let Some(cluster) = options.cluster.join(config).await? else { return Ok(()) };
    let done = match cluster.rank() {
        0 => {
            // The death of the node being measured also shows in its channels, others only here.
            let (changes, members) = (cluster.changes(), cluster.members());
            let is_member = |id| members.iter().any(|member| member.id == id);
            tokio::select! {
                biased;
                led = lead(&cluster, &members, options) => led,
                death = death_of(is_member, changes) => Err(death.to_string().into()),
            }
        }
        _ => serve(&cluster, options.rejoin > 0).await,
    };
    match (done, cluster.ended()) {
        (Ok(()), _) => Ok(cluster.end(END_DEADLINE).await?),
        // The end of the cluster is the cause of any other error.
        (Err(_), Some(end)) => Err(end.to_string().into()),
        (Err(error), None) => Err(error),
    }
}

/// Serves as a node other than rank 0: answers rank 0, if asked, and waits for the end. Rank 0 may
/// ask the others for long. With `again` the node also answers the next rank 0.
async fn serve(cluster: &Cluster, again: bool) -> Result<(), Failure> {
    loop {
        let served = tokio::select! {
            // The answers come first, since the end may arrive with the last message of rank 0.
            biased;
            served = answer(cluster) => served,
            end = cluster.finished() => return match end {
                End::Finished { .. } => Ok(()),
                end => Err(end.to_string().into()),
            },
        };
        match served {
            Ok(()) => {}
            Err(error) if again && cluster.ended().is_none() => {
                eprintln!("rank {}: {error}; another rank 0 is waited for", cluster.rank());
            }
            Err(error) => return Err(error),
        }
    }
}

async fn answer(cluster: &Cluster) -> Result<(), Failure> {
    let node = cluster.node();
    let (peer, mut pings) = node.accept::<u64>(PING).await?;
    let mut answers = node.open::<Answer>(&peer, PONG).await?;
    answers.send_now(&Answer::Launcher(cluster.place().launcher().to_string())).await?;
    while let Some(number) = pings.recv().await? {
        answers.send_now(&Answer::Pong(number)).await?;
    }
    let (_, mut bulk) = node.accept_bytes(BULK).await?;
    let mut bytes = 0;
    while let Some(message) = bulk.recv().await? {
        bytes += message.len() as u64;
    }
    Ok(answers.send_now(&Answer::Received(bytes)).await?)
}

/// Leads as rank 0: measures one node after the other and prints the table.
async fn lead(cluster: &Cluster, members: &[Member], options: &Options) -> Result<(), Failure> {
    let mut rows = Vec::new();
    for member in members.iter().cloned() {
        rows.push(if member.id == cluster.id() {
            Row { member, launcher: cluster.place().launcher().to_string(), measured: None }
        } else {
            let peer = cluster.peer(member.id.rank).await?;
            measure(cluster.node(), &peer, member, options).await?
        });
    }
    write_out(&table::text(&rows))?;
    cluster.finish(); // all others wait to be asked, also those that came too late for the table
    Ok(())
}

async fn measure(node: &Node, peer: &Peer, member: Member, told: &Options) -> Result<Row, Failure> {
    let mut pings = node.open::<u64>(peer, PING).await?;
    pings.flush().await?;
    // No channel reports an open that never comes; the end of the link does.
    let (_, mut answers) = tokio::select! {
        biased;
        accepted = node.accept::<Answer>(PONG) => accepted?,
        lost = peer.closed() => return Err(lost.into()),
    };
    let Some(Answer::Launcher(launcher)) = answers.recv().await? else {
        return Err("a node does not say what started it".into());
    };
    let mut trips = Vec::with_capacity(told.round_trips as usize);
    for number in 0..u64::from(told.round_trips) {
        let begun = Instant::now();
        pings.send_now(&number).await?;
        match answers.recv().await? {
            Some(Answer::Pong(back)) if back == number => trips.push(begun.elapsed()),
            _ => return Err("a node answers something else than it was asked".into()),
        }
    }
    drop(pings);
    let (message, begun) = (vec![7; 1 << 20], Instant::now());
    let mut bulk = node.open_bytes(peer, BULK).await?;
    for _ in 0..told.mebibytes {
        bulk.send_slice(&message).await?;
    }
    drop(bulk);
    let Some(Answer::Received(bytes)) = answers.recv().await? else {
        return Err("a node does not say how much came".into());
    };
    let (sent, elapsed) = (u64::from(told.mebibytes) << 20, begun.elapsed());
    if bytes != sent {
        return Err(format!("of {sent} bytes {bytes} came to {}", peer.name()).into());
    }
    Ok(Row::new(member, launcher, trips, bytes as f64 / elapsed.as_secs_f64()))
}
