//! A chain of node processes that each filter a large array and pass it on: whole buffers against
//! deltas.
//!
//! With whole buffers a node starts when the one before it has finished; with deltas it starts
//! with the first increment. The last node compares every element with a sequential computation.
//! Each process keeps to one processor.

use std::error::Error;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use chunkcomm::launch::{self, ChildPlace, Children, Launcher};
use chunkcomm::{Address, Node};
use chunkcomm_pipeline::patterns::{Chain, Compute, Run, auto_delta_bytes, pin, sequential, serve};
use clap::Parser;

use crate::command_line::{numbers, parse, write_out};

const SIZE_BYTES_MAX: usize = 4 << 30;
const NODES_MAX: u64 = 64;
const REPEATS_MAX: u64 = 1000;
const CLOSE_DEADLINE: Duration = Duration::from_secs(5);

type Failure = Box<dyn Error>;

#[derive(Parser)]
#[command(
    name = "cascade",
    about = "A chain of processes filters an array: whole buffers against deltas"
)]
struct Options {
    /// Bytes of the array, 4 a number, such as 4MiB
    #[arg(long, value_name = "BYTES", default_value = "4MiB", value_parser = parse_size)]
    size: usize,
    /// Processes in the chain, this one counted
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = numbers::<u64>(2..=NODES_MAX))]
    nodes: u64,
    /// Bytes of an increment, or auto: computed from measured costs
    #[arg(long, value_name = "BYTES|auto", default_value = "auto", value_parser = parse_delta)]
    delta: Delta,
    /// What every node computes on every element: empty, random or trig
    #[arg(long, default_value = "trig")]
    compute: Compute,
    /// Timed runs of each kind; one of each goes before them
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = numbers::<u64>(1..=REPEATS_MAX))]
    repeats: u64,
}

#[derive(Clone, Copy)]
enum Delta {
    Auto,
    Bytes(usize),
}

fn parse_bytes(text: &str) -> Option<usize> {
    let digits = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let shift = match &text[digits..] {
        "" | "B" => 0,
        "KiB" => 10,
        "MiB" => 20,
        "GiB" => 30,
        _ => return None,
    };
    text[..digits].parse::<usize>().ok()?.checked_mul(1 << shift)
}

fn parse_size(text: &str) -> Result<usize, String> {
    parse_bytes(text)
        .filter(|bytes| (4..=SIZE_BYTES_MAX).contains(bytes) && bytes % 4 == 0)
        .ok_or_else(|| "allowed are 4 to 4GiB in steps of 4, in B, KiB, MiB or GiB".to_owned())
}

fn parse_delta(text: &str) -> Result<Delta, String> {
    if text == "auto" {
        return Ok(Delta::Auto);
    }
    parse_bytes(text)
        .filter(|bytes| (4..=SIZE_BYTES_MAX).contains(bytes))
        .map(Delta::Bytes)
        .ok_or_else(|| "allowed are auto and 4 to 4GiB, in B, KiB, MiB or GiB".to_owned())
}

/// The whole program: in a copy that the first node started a node of the chain, else the first.
#[must_use]
pub fn run() -> ExitCode {
    let outcome = match launch::child() {
        Some(place) => block_on(follow(place)),
        None => {
            let options = parse::<Options>();
            block_on(lead(options))
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cascade: {error}");
            ExitCode::FAILURE
        }
    }
}

fn block_on(what: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(what)
}

async fn node(index: usize) -> Result<Node, Failure> {
    let address: Address = "tcp://127.0.0.1:0".parse()?;
    let node = Node::builder().name(format!("node-{index}")).listen(address).build().await?;
    #[cfg(unix)]
    node.explain_on_sigusr1()?;
    Ok(node)
}

/// The life of a started copy.
async fn follow(place: ChildPlace) -> Result<(), Failure> {
    let index = place.index + 1;
    pin(index);
    let node = node(index).await?;
    let head = node.connect(&place.parent).await?;
    let served = serve(&node, &head, index).await;
    // What was said last is to arrive before the process is gone.
    node.close(CLOSE_DEADLINE).await?;
    Ok(served?)
}

async fn lead(options: Options) -> Result<(), Failure> {
    let node = node(0).await?;
    let address = node.addresses().first().cloned().ok_or("the node listens nowhere")?;
    let nodes = options.nodes as usize;
    // Dropped on every way out, which leaves no process behind.
    let mut children = Launcher::new(address).spawn(nodes - 1)?;
    pin(0);
    let measured = tokio::select! {
        measured = measure(&node, nodes, &options) => measured?,
        failed = first_failure(&mut children) => return Err(failed.into()),
    };
    write_out(&measured.report(&options))?;
    while let Some(exit) = children.exited().await {
        if !exit.status.is_some_and(|status| status.success()) {
            return Err(exit.to_string().into());
        }
    }
    Ok(())
}

/// Ends with the first child that ends otherwise than well; the others may have ended well.
async fn first_failure(children: &mut Children) -> String {
    loop {
        match children.exited().await {
            Some(exit) if exit.status.is_some_and(|status| status.success()) => {}
            Some(exit) => return exit.to_string(),
            None => std::future::pending().await,
        }
    }
}

struct Measured {
    delta_bytes: usize,
    sequential: Duration,
    whole: Vec<Duration>,
    delta: Vec<Duration>,
}

async fn measure(node: &Node, nodes: usize, options: &Options) -> Result<Measured, Failure> {
    let elements = options.size / size_of::<f32>();
    let start = Instant::now();
    std::hint::black_box(sequential(options.compute, nodes, elements));
    let sequential = start.elapsed();
    let delta_bytes = match options.delta {
        Delta::Bytes(bytes) => bytes,
        Delta::Auto => auto_delta_bytes(options.compute, nodes, options.size),
    };
    let mut measured = Measured { delta_bytes, sequential, whole: Vec::new(), delta: Vec::new() };
    let mut chain = Chain::gather(node, nodes).await?;
    for repeat in 0..=options.repeats {
        for (kind, delta_bytes) in [(0, None), (1, Some(delta_bytes))] {
            let number = 2 * repeat + kind;
            let run = Run { number, elements, compute: options.compute, delta_bytes, verify: true };
            let outcome = chain.run(&run).await?;
            if let Some(difference) = outcome.difference {
                return Err(format!("run {number} gave a wrong result: {difference}").into());
            }
            // The first of each maps the memory and opens the window of the connections.
            if repeat > 0 {
                let times = if kind == 0 { &mut measured.whole } else { &mut measured.delta };
                times.push(outcome.elapsed);
            }
        }
    }
    chain.end().await?;
    Ok(measured)
}

impl Measured {
    fn report(&self, options: &Options) -> String {
        let elements = options.size / size_of::<f32>();
        let mut lines = vec![
            format!(
                "{} nodes, {elements} numbers ({} bytes), compute {}, increments of {} bytes",
                options.nodes, options.size, options.compute, self.delta_bytes
            ),
            format!("{:<16} {:>12} {:>12} {:>10}", "", "median ms", "fastest ms", "speed-up"),
        ];
        let sequential = [self.sequential];
        let rows = [
            ("one process", &sequential[..]),
            ("whole buffers", &self.whole),
            ("deltas", &self.delta),
        ];
        for (name, times) in rows {
            let speedup = median_ms(&self.whole) / median_ms(times);
            let (median, fastest) =
                (median_ms(times), times.iter().min().map_or(f64::NAN, |time| ms(*time)));
            lines.push(format!("{name:<16} {median:>12.3} {fastest:>12.3} {speedup:>10.2}"));
        }
        let results = 2 * (options.repeats + 1);
        lines.push(format!("all {results} results equal the sequential one, element by element"));
        lines.push(String::new());
        lines.join("\n")
    }
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn median_ms(times: &[Duration]) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    let (low, high) = (sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2]);
    (ms(low) + ms(high)) / 2.0
}
