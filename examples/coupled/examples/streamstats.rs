//! A file of any length through three nodes of this machine: rank 0 reads it, rank 1 smooths its bytes,
//! rank 2 counts them and compares with a sequential computation.
//!
//! ```text
//! cargo run --release --example streamstats -- FILE
//! ```
//!
//! Without a file it reads its own program. Each node holds a window or two of the file, however long it
//! is: a window is a round of a delta, and the next one begins when it has landed.

use std::error::Error;
use std::fs::{File, read_to_string};
use std::io::{BufReader, Read};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use chunkcomm::with_causes;
use chunkcomm_cluster::{Cluster, ClusterConfig};
use chunkcomm_pipeline::{DeltaReceiver, DeltaSender, Increment};

const WINDOW_BYTES: usize = 256 * 1024;
const DEADLINE: Duration = Duration::from_secs(30);

type Failure = Box<dyn Error>;

/// Smooths bytes one after the other: each result is a quarter of the byte and three of the one before.
#[derive(Default)]
struct Smoother(u16);

impl Smoother {
    fn smooth(&mut self, byte: u8) -> u8 {
        self.0 = (3 * self.0 + u16::from(byte) * 4) / 4;
        (self.0 / 4) as u8
    }
}

/// Counts of the smoothed bytes, and a number that depends on their order.
#[derive(Default, PartialEq)]
struct Statistics {
    bytes: u64,
    sum: u64,
    largest: u8,
    order: u64,
}

impl Statistics {
    fn add(&mut self, byte: u8) {
        self.bytes += 1;
        self.sum += u64::from(byte);
        self.largest = self.largest.max(byte);
        self.order = (self.order ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("streamstats: {}", with_causes(&*error));
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<(), Failure> {
    let given = std::env::args_os().nth(1).map(PathBuf::from);
    let path = given.map_or_else(std::env::current_exe, Ok)?;
    let cluster = Cluster::join(ClusterConfig::new().nodes(3)).await?;
    match cluster.rank() {
        0 => read(&cluster, File::open(path)?).await?,
        1 => smooth(&cluster).await?,
        _ => count(&cluster, File::open(path)?).await?,
    }
    println!("rank {}: {} of memory at most", cluster.rank(), peak_memory());
    Ok(cluster.end(DEADLINE).await?)
}

async fn open(cluster: &Cluster, rank: u32, name: &str) -> Result<DeltaSender<u8>, Failure> {
    let (next, window) = (cluster.peer(rank).await?, vec![0; WINDOW_BYTES]);
    Ok(DeltaSender::open(cluster.node(), &next, name, window, Increment::default()).await?)
}

async fn accept(cluster: &Cluster, name: &str) -> Result<DeltaReceiver<u8>, Failure> {
    Ok(DeltaReceiver::accept(cluster.node(), name, vec![0; WINDOW_BYTES]).await?)
}

async fn read(cluster: &Cluster, mut file: File) -> Result<(), Failure> {
    let mut output = open(cluster, 1, "bytes").await?;
    loop {
        let Some(mut rest) = output.next(WINDOW_BYTES)? else {
            output.start().await?;
            continue;
        };
        let count = file.read(&mut rest)?;
        if count == 0 {
            break;
        }
        rest.commit_first(count).await?;
    }
    Ok(output.end().await?)
}

async fn smooth(cluster: &Cluster) -> Result<(), Failure> {
    let mut input = accept(cluster, "bytes").await?;
    let mut output = open(cluster, 2, "smoothed").await?;
    let mut smoother = Smoother::default();
    loop {
        while let Some(bytes) = input.next().await? {
            let mut chunk = output.next(bytes.len())?.ok_or("more came than a window")?;
            for (smoothed, byte) in chunk.iter_mut().zip(bytes) {
                *smoothed = smoother.smooth(*byte);
            }
            chunk.commit().await?;
        }
        if !input.start().await? {
            return Ok(output.end().await?);
        }
        output.start().await?;
    }
}

async fn count(cluster: &Cluster, file: File) -> Result<(), Failure> {
    let mut input = accept(cluster, "smoothed").await?;
    let mut found = Statistics::default();
    loop {
        while let Some(bytes) = input.next().await? {
            bytes.iter().for_each(|byte| found.add(*byte));
        }
        if !input.start().await? {
            break;
        }
    }
    let (mut smoother, mut expected) = (Smoother::default(), Statistics::default());
    for byte in BufReader::new(file).bytes() {
        expected.add(smoother.smooth(byte?));
    }
    if found != expected {
        return Err(format!("{} of {} bytes came right", found.bytes, expected.bytes).into());
    }
    let Statistics { bytes, sum, largest, .. } = found;
    let mean = sum as f64 / bytes.max(1) as f64;
    println!("{bytes} bytes in windows of {WINDOW_BYTES}: mean {mean:.3}, largest {largest}");
    println!("the same as the sequential result");
    Ok(())
}

/// Returns the most memory that this process has held, where the system says so.
fn peak_memory() -> String {
    let status = read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    peak.map_or_else(|| "an unknown amount".to_owned(), |peak| peak.trim().to_owned())
}
