//! One call of a numeric crate, overlapped with the transfer of what it computes: rank 0 lets `rustfft`
//! transform a signal of many frames into a buffer, and rank 1 looks for each frame's loudest frequency
//! while the later frames are still computed. Neither function knows that its slice is tracked:
//! both are those of a library (`src/signals.rs`) without chunkcomm.
//!
//! ```text
//! cargo run --release --example tracked
//! ```

use std::error::Error;
use std::time::Duration;

use chunkcomm_cluster::{Cluster, ClusterConfig};
use chunkcomm_coupled::signals::{FRAME, loudest, signal, tone_of, transform};
use chunkcomm_pipeline::tracked::{Awaiting, TrackedInput, TrackedOutput, Tracking};
use chunkcomm_pipeline::{DeltaReceiver, DeltaSender, Increment};
use num_complex::Complex32;
use tokio::task::block_in_place;

const FRAMES: usize = 512;
const DEADLINE: Duration = Duration::from_secs(30);

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
        let mut signal = signal(FRAMES);
        let transform = |spectra: &mut [_]| transform(&mut signal, spectra);
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
