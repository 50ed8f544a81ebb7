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

pub mod tally;
pub mod text;

use chunkcomm_cluster::{NodeBuilderExt, NodeExt};
use std::error::Error;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use chunkcomm::{Node, SendError, Sender};
use chunkcomm_cluster::cluster::{Cluster, End};
use chunkcomm_cluster::process::ProcessError;
use chunkcomm_cluster::{Arriving, Process, ReceivingPort, Registry, SendingPort};
use clap::Parser;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::cluster_options::{ClusterOptions, cause_first};
use crate::command_line::{numbers, parse, write_out};
use crate::program::{on_a_thread, run_program};
use tally::{Sequential, Tally, most_frequent};
use text::{TextError, Wrong};

const END_DEADLINE: Duration = Duration::from_secs(30);

type Failure = Box<dyn Error>;

/// A word and its number of occurrences.
type Count = (String, u64);

/// The lines to a counting process, and the counts from it.
type Ends = (ReceivingPort<String>, SendingPort<Count>);

#[derive(Parser)]
#[command(
    name = "wordcount",
    about = "Counts the words of text files on the nodes of a cluster; rank 0 has the files"
)]
pub(crate) struct Options {
    #[command(flatten)]
    cluster: ClusterOptions,

    /// Text files and folders; of a folder all files below it, except hidden ones and links
    #[arg(required_unless_present = "explain_launch", value_name = "PATH")]
    paths: Vec<PathBuf>,

    /// Number of most frequent words to print
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = numbers::<usize>(0..=1_000_000))]
    top: usize,

    /// Skip the comparison with a sequential count, which takes longer than all else
    #[arg(long)]
    no_check: bool,
}

/// Runs the whole program.
#[must_use]
pub fn run() -> ExitCode {
    let options = parse::<Options>();
    run_program("wordcount", work(&options))
}

async fn work(options: &Options) -> Result<(), Failure> {
    let mut registry = Registry::new();
    let counting = registry.process("wordcount.count", |_, ends| count(ends));
    let node = Node::builder().processes(&registry);
    let joined = options.cluster.join_with(|config| config.registry(&registry).node(node));
    let Some(cluster) = joined.await? else { return Ok(()) };
    if cluster.rank() > 0 {
        // The counting processes run beside this wait.
        return match cluster.finished().await {
            End::Finished { .. } => Ok(cluster.end(END_DEADLINE).await?),
            end => Err(end.to_string().into()),
        };
    }
    let done = cause_first(&cluster, lead(&cluster, &counting, options).await).await;
    cluster.finish();
    let ended = cluster.end(END_DEADLINE).await;
    // An earlier error is the cause of how the cluster ended.
    done?;
    Ok(ended?)
}

/// Runs the process of a counting node.
async fn count((lines, counts): Ends) -> Result<(), chunkcomm_cluster::process::Failure> {
    let mut lines = lines.connect().await?;
    let mut tally = Tally::new();
    while let Some(line) = lines.recv().await? {
        tally::add(&mut tally, &line);
    }
    let mut counts = counts.connect().await?;
    for count in tally {
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
    let mut ranks: Vec<u32> = cluster.members().iter().map(|member| member.id.rank).collect();
    if ranks.len() > 1 {
        ranks.retain(|&rank| rank != cluster.rank());
    }
    let mut all = Counting { lines: Vec::new(), counts: Vec::new(), ends: JoinSet::new() };
    let mut departing = Vec::new();
    for rank in ranks {
        let (lines, lines_here) = cluster.node().receiving_port()?;
        let (counts, counts_here) = cluster.node().sending_port()?;
        all.ends.spawn(cluster.instantiate(rank, counting, (lines, counts)).await?);
        departing.push(lines_here);
        all.counts.push(counts_here);
    }
    for lines in departing {
        all.lines.push(lines.connect().await?);
    }
    Ok(all)
}

/// Numbers of lines and packets sent, and the wrong lines.
#[derive(Default)]
struct Sent {
    lines: u64,
    packets: u64,
    wrong: Vec<Wrong>,
}

async fn lead(
    cluster: &Cluster,
    counting: &Process<Ends>,
    options: &Options,
) -> Result<(), Failure> {
    let files = text::files(&options.paths)?;
    let begun = Instant::now();
    let Counting { lines, counts, ends } = start(cluster, counting).await?;
    let nodes = lines.len();
    let counted = async {
        let sent = send(files.clone(), lines).await?;
        Ok((sent, merge(counts).await?))
    };
    let ((sent, tally), ()) = tokio::try_join!(counted, all_done(ends))?;
    let seconds = begun.elapsed().as_secs_f64();
    for wrong in &sent.wrong {
        eprintln!("wordcount: {wrong}");
    }
    write_out(&report(&tally, &sent, options.top))?;
    let (lines, packets) = (sent.lines, sent.packets);
    let in_a_packet = if packets == 0 { 0.0 } else { lines as f64 / packets as f64 };
    write_out(&format!(
        "{seconds:.3} s, counted on {nodes} nodes; {packets} packets, {in_a_packet:.1} lines a packet\n"
    ))?;
    if !options.no_check {
        // On a thread, since it takes as long as all nodes together and the links must go on.
        let sequential = on_a_thread(move || Sequential::count(&files)).await??;
        sequential.compare(lines, &tally)?;
        write_out("a sequential program counts the same\n")?;
    }
    Ok(())
}

/// Waits until all processes have ended; fails when one failed.
async fn all_done(mut ends: JoinSet<Result<(), ProcessError>>) -> Result<(), Failure> {
    while let Some(end) = ends.join_next().await {
        end??;
    }
    Ok(())
}

/// Sends each line of the files to one of `to`, in turn, and ends the streams. Reading blocks, so a
/// thread does it. When a process has failed meanwhile, the thread is not waited for.
async fn send(files: Vec<PathBuf>, mut to: Vec<Sender<String>>) -> Result<Sent, Failure> {
    let (done, outcome) = oneshot::channel();
    std::thread::Builder::new().name("wordcount-reads".to_owned()).spawn(move || {
        let read = read(&files, &mut to);
        // A failed send means that the program is about to end.
        let _ = done.send(read.map(|sent| (sent, to)));
    })?;
    let (mut sent, to) = outcome.await.map_err(|_| "the thread that reads has panicked")??;
    for mut lines in to {
        lines.sync().await?;
        sent.packets += lines.stats().packets;
    }
    Ok(sent)
}

/// Error of reading or sending the lines.
#[derive(Debug)]
enum ReadError {
    Text(TextError),
    Send(SendError),
}

impl From<TextError> for ReadError {
    fn from(error: TextError) -> ReadError {
        ReadError::Text(error)
    }
}

impl From<ReadError> for Failure {
    fn from(error: ReadError) -> Failure {
        match error {
            ReadError::Text(error) => error.into(),
            ReadError::Send(error) => error.into(),
        }
    }
}

fn read(files: &[PathBuf], to: &mut [Sender<String>]) -> Result<Sent, ReadError> {
    let mut sent = Sent::default();
    let mut turn = (0..to.len()).cycle();
    for path in files {
        let (lines, wrong) = text::lines(path, |line| {
            let next = turn.next().unwrap_or(0);
            to[next].blocking_send(&line.to_owned()).map_err(ReadError::Send)
        })?;
        sent.lines += lines;
        sent.wrong.extend(wrong);
    }
    Ok(sent)
}

async fn merge(counts: Vec<Arriving<Count>>) -> Result<Tally, Failure> {
    let mut tally = Tally::new();
    for mut counts in counts {
        while let Some((word, times)) = counts.recv().await? {
            *tally.entry(word).or_default() += times;
        }
    }
    Ok(tally)
}

fn report(tally: &Tally, sent: &Sent, top: usize) -> String {
    let mut text = String::new();
    for (word, times) in most_frequent(tally, top) {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{times:8}  {word}");
    }
    let (words, lines) = (tally.values().sum::<u64>(), sent.lines);
    let _ = writeln!(text, "{lines} lines, {words} words, {} different", tally.len());
    text
}
