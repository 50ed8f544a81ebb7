//! One call of a numeric crate, overlapped with the transfer of what it computes: rank 0 lets `rustfft`
//! transform a signal of many frames into a buffer, and rank 1 looks for each frame's loudest frequency
//! while the later frames are still computed. Neither function knows that its slice is tracked.
//!
//! ```text
//! cargo run --release --example tracked
//! ```

use std::error::Error;
use std::f64::consts::TAU;
use std::time::Duration;

use chunkcomm_cluster::{Cluster, ClusterConfig};
use chunkcomm_pipeline::tracked::{Awaiting, TrackedInput, TrackedOutput, Tracking};
use chunkcomm_pipeline::{DeltaReceiver, DeltaSender, Increment};
use num_complex::Complex32;
use rustfft::FftPlanner;
use tokio::task::block_in_place;

/// Number of samples of a frame, and of frequencies of its spectrum.
const FRAME: usize = 2048;
const FRAMES: usize = 512;
const DEADLINE: Duration = Duration::from_secs(30);

/// Returns the frequency of the one tone in a frame.
fn tone_of(frame: usize) -> usize {
    1 + frame * 37 % (FRAME / 2 - 1)
}

fn signal() -> Vec<Complex32> {
    let sample = |index: usize| {
        let turns = (index % FRAME * tone_of(index / FRAME)) as f64 / FRAME as f64;
        Complex32::new((TAU * turns).cos() as f32, 0.0)
    };
    (0..FRAME * FRAMES).map(sample).collect()
}

/// Returns the loudest frequency of each frame.
fn loudest(spectra: &[Complex32]) -> Vec<usize> {
    let loudest = |spectrum: &[Complex32]| {
        let half = spectrum[..FRAME / 2].iter().enumerate();
        let loudest = half.max_by(|a, b| a.1.norm_sqr().total_cmp(&b.1.norm_sqr()));
        loudest.expect("a frame has frequencies").0
    };
    spectra.chunks(FRAME).map(loudest).collect()
}

// Two threads: ordinary code blocks one, the other moves the elements.
#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<(), Box<dyn Error>> {
    let cluster = Cluster::join(ClusterConfig::new().nodes(2)).await?;
    let (node, buffer) = (cluster.node(), vec![Complex32::ZERO; FRAME * FRAMES]);
    if cluster.rank() == 0 {
        let peer = cluster.peer(1).await?;
        let mut sender =
            DeltaSender::open(node, &peer, "spectra", buffer, Increment::default()).await?;
        let mut output = TrackedOutput::new(sender.len(), Tracking::default())?;
        let fft = FftPlanner::new().plan_fft_forward(FRAME);
        let mut signal = signal();
        let mut scratch = vec![Complex32::ZERO; fft.get_outofplace_scratch_len()];
        let transform = |spectra: &mut [Complex32]| {
            fft.process_outofplace_with_scratch(&mut signal, spectra, &mut scratch);
        };
        let ((), sent) = block_in_place(|| sender.tracked_send(&mut output, transform))?;
        sender.finish().await?;
        println!(
            "{} of {} elements had left before the transform returned (engine {})",
            sent.before_return,
            sender.len(),
            output.engine()
        );
    } else {
        let mut receiver = DeltaReceiver::accept(node, "spectra", buffer).await?;
        let mut input = TrackedInput::new(receiver.len(), Awaiting::default())?;
        let (tones, received) =
            block_in_place(|| receiver.tracked_recv(&mut input, |spectra, _| loudest(spectra)))?;
        assert!(tones.iter().copied().eq((0..FRAMES).map(tone_of)), "each frame has its tone");
        println!(
            "{FRAMES} tones are found; the search waited {} times (engine {})",
            received.stalls,
            input.engine()
        );
    }
    Ok(cluster.end(DEADLINE).await?)
}
