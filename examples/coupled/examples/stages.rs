//! A delta through three nodes of this machine: rank 0 produces samples, rank 1 smooths them as
//! they land and also forwards them as they are, rank 2 consumes both and compares them with a
//! sequential computation.
//!
//! ```text
//! cargo run --release --example stages
//! ```
//!
//! Nothing waits for a whole buffer: all three work at the same time.

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use chunkcomm::with_causes;
use chunkcomm_cluster::{Cluster, ClusterConfig};
use chunkcomm_pipeline::{DeltaReceiver, DeltaSender, Increment};

/// Samples in the buffer: 8 MiB.
const SAMPLES: usize = 1 << 21;
/// Number of samples that are computed before they may leave.
const CHUNK: usize = 4096;
/// Samples that are smoothed to one.
const WINDOW: usize = 8;
const DEADLINE: Duration = Duration::from_secs(30);

type Failure = Box<dyn Error>;

fn sample(index: usize) -> f32 {
    (index as f32 * 1e-3).sin() + (index % 7) as f32 * 0.1
}

/// Returns the mean of the sample at this index and those before it.
fn smooth(samples: &[f32], index: usize) -> f32 {
    let window = &samples[index.saturating_sub(WINDOW - 1)..=index];
    window.iter().sum::<f32>() / window.len() as f32
}

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("stages: {}", with_causes(&*error));
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<(), Failure> {
    let cluster = Cluster::join(ClusterConfig::new().nodes(3)).await?;
    match cluster.rank() {
        0 => produce(&cluster).await?,
        1 => transform(&cluster).await?,
        _ => consume(&cluster).await?,
    }
    Ok(cluster.end(DEADLINE).await?)
}

async fn produce(cluster: &Cluster) -> Result<(), Failure> {
    let next = cluster.peer(1).await?;
    let buffer = vec![0.0_f32; SAMPLES];
    let increment = Increment::default();
    let mut output = DeltaSender::open(cluster.node(), &next, "samples", buffer, increment).await?;
    while let Some(mut chunk) = output.next(CHUNK)? {
        for (index, element) in chunk.range().zip(chunk.iter_mut()) {
            *element = sample(index);
        }
        chunk.commit().await?;
    }
    Ok(output.finish().await?)
}

async fn transform(cluster: &Cluster) -> Result<(), Failure> {
    let (node, next) = (cluster.node(), cluster.peer(2).await?);
    let mut input = DeltaReceiver::accept(node, "samples", vec![0.0_f32; SAMPLES]).await?;
    let mut forward = input.forward(node, &next, "forwarded").await?;
    let buffer = vec![0.0_f32; SAMPLES];
    let mut output =
        DeltaSender::open(node, &next, "smoothed", buffer, Increment::default()).await?;
    while let Some(part) = input.next().await? {
        let count = part.len();
        let samples = input.landed();
        let mut chunk = output.next(count)?.ok_or("more samples came than were stated")?;
        for (index, element) in chunk.range().zip(chunk.iter_mut()) {
            *element = smooth(samples, index);
        }
        chunk.commit().await?;
    }
    output.finish().await?;
    Ok(forward.finish().await?)
}

async fn consume(cluster: &Cluster) -> Result<(), Failure> {
    let node = cluster.node();
    let (forwarded, smoothed) = tokio::join!(
        DeltaReceiver::accept(node, "forwarded", vec![0.0_f32; SAMPLES]),
        DeltaReceiver::accept(node, "smoothed", vec![0.0_f32; SAMPLES]),
    );
    let (mut forwarded, mut smoothed) = (forwarded?, smoothed?);
    let mut parts = 0;
    let mut peak = 0.0_f32;
    while let Some(part) = smoothed.next().await? {
        parts += 1;
        peak = part.iter().copied().fold(peak, f32::max);
    }
    let expected: Vec<f32> = (0..SAMPLES).map(sample).collect();
    compare("forwarded", forwarded.finish().await?, |index| expected[index])?;
    compare("smoothed", smoothed.finish().await?, |index| smooth(&expected, index))?;
    println!("{SAMPLES} samples, smoothed in {parts} parts, peak {peak:.3}");
    println!("both buffers equal the sequential ones, element by element");
    Ok(())
}

/// Compares bit by bit, since both did the same operations in the same order.
fn compare(name: &str, found: &[f32], expected: impl Fn(usize) -> f32) -> Result<(), String> {
    let differs = |(index, found): &(usize, &f32)| found.to_bits() != expected(*index).to_bits();
    match found.iter().enumerate().find(differs) {
        None => Ok(()),
        Some((index, found)) => {
            Err(format!("{name}: element {index} is {found}, sequential {}", expected(index)))
        }
    }
}
