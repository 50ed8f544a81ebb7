//! Counts the words of text files on other nodes: rank 0 streams each line to one of the counting
//! processes, in turn, and merges their counts.
//!
//! ```text
//!   files -> a thread that reads -> lines, one message each -> counting processes, one a node
//!                                                                        |
//!   report <- merged by rank 0 <----- words with their counts, one message each
//! ```
//!
//! Lines and counts are sent one by one; the library gathers them in packets.

mod options;
mod report;
mod sending;
mod tally;
mod text;

use chunkcomm_cluster::NodeExt;
use std::error::Error;
use std::process::ExitCode;

use chunkcomm::Sender;
use chunkcomm::host::{self, Instant};
use chunkcomm_cluster::process::ProcessError;
use chunkcomm_cluster::{
    Arriving, Cluster, Process, Registry, TravellingReceiver, TravellingSender,
};
use chunkcomm_examples::cluster_options::{end_led, end_served};
use chunkcomm_examples::command_line::{parse, write_out};
use chunkcomm_examples::program::run_program;
use chunkcomm_examples::thread::Thread;
use tokio::task::JoinSet;

use options::Options;
use sending::send;
use tally::{COUNT_NANOS, Tally, line_nanos};

type Failure = Box<dyn Error>;

/// A word and its number of occurrences.
type Count = (String, u64);
/// The lines to a counting process, and the counts from it.
type Ends = (TravellingReceiver<String>, TravellingSender<Count>);

fn main() -> ExitCode {
    let options = parse::<Options>();
    run_program("wordcount", &options.cluster, || work(options))
}

async fn work(options: &'static Options) -> Result<(), Failure> {
    let mut registry = Registry::new();
    let counting = registry.process("wordcount.count", |_, ends| count(ends));
    let config = options.cluster.config().registry(&registry);
    let Some(cluster) = options.cluster.join(config).await? else { return Ok(()) };
    if cluster.rank() > 0 {
        // The counting processes run beside this wait.
        return end_served(&cluster).await;
    }
    end_led(&cluster, lead(&cluster, &counting, options).await).await
}

/// Runs the process of a counting node.
async fn count((lines, counts): Ends) -> Result<(), chunkcomm_cluster::process::Failure> {
    let mut lines = lines.connect().await?;
    let (mut tally, thread) = (Tally::default(), Thread::default());
    while let Some(line) = lines.recv().await? {
        thread.work(|| line_nanos(&line)).await;
        tally::add(&mut tally, &line);
    }
    let mut counts = counts.connect().await?;
    for count in tally {
        thread.work(|| COUNT_NANOS).await;
        counts.send(&count).await?;
    }
    Ok(())
}

/// The counting processes as rank 0 sees them.
struct Counting {
    lines: Vec<Sender<String>>,
    counts: Vec<Arriving<Count>>,
    /// Ends of the processes; dropping this ends the processes.
    ends: JoinSet<Result<(), ProcessError>>,
}

/// Starts one process a node; on this node only when there is no other.
async fn start(cluster: &Cluster, counting: &Process<Ends>) -> Result<Counting, Failure> {
    let members = cluster.members();
    let ranks = members.iter().map(|member| member.id.rank);
    let mut all = Counting { lines: Vec::new(), counts: Vec::new(), ends: JoinSet::new() };
    let mut departing = Vec::new();
    for rank in ranks.filter(|&rank| members.len() == 1 || rank != cluster.rank()) {
        let (lines, lines_here) = cluster.node().travelling_receiver()?;
        let (counts, counts_here) = cluster.node().travelling_sender()?;
        let process = cluster.instantiate(rank, counting, (lines, counts)).await?;
        all.ends.spawn(host::here(process));
        departing.push(lines_here);
        all.counts.push(counts_here);
    }
    for lines in departing {
        all.lines.push(lines.connect().await?);
    }
    Ok(all)
}

async fn lead(
    cluster: &Cluster,
    counting: &Process<Ends>,
    options: &Options,
) -> Result<(), Failure> {
    let files = text::files(&options.paths)?;
    let begun = Instant::now();
    let Counting { lines, counts, mut ends } = start(cluster, counting).await?;
    let nodes = lines.len();
    let counted = async {
        let sent = send(files.clone(), lines).await?;
        let (mut tally, thread) = (Tally::default(), Thread::default());
        for mut counts in counts {
            while let Some((word, times)) = counts.recv().await? {
                thread.work(|| COUNT_NANOS).await;
                *tally.entry(word).or_default() += times;
            }
        }
        Ok((sent, tally))
    };
    let ended = async {
        while let Some(end) = ends.join_next().await {
            end??;
        }
        Ok::<_, Failure>(())
    };
    let ((sent, tally), ()) = tokio::try_join!(counted, ended)?;
    write_out(&report::text(&tally, &sent, options.top, begun.elapsed(), nodes))?;
    if !options.no_check {
        tally::check(files, sent.lines, &tally).await?;
    }
    Ok(())
}
