//! A delta between two processes: rank 0 sends an array while computing it, rank 1 uses each part
//! as it lands.
//!
//! ```text
//! cargo run --release --example increments
//! ```

use std::error::Error;
use std::time::Duration;

use chunkcomm_cluster::{Cluster, ClusterConfig};
use chunkcomm_pipeline::{DeltaReceiver, DeltaSender, Increment};

const COUNT: usize = 1 << 20;
/// Number of elements that are computed before they may leave.
const CHUNK: usize = 4096;
const DEADLINE: Duration = Duration::from_secs(30);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let cluster = Cluster::join(ClusterConfig::new().nodes(2)).await?;
    let (node, buffer) = (cluster.node(), vec![0.0_f64; COUNT]);
    if cluster.rank() == 0 {
        let (peer, increment) = (cluster.peer(1).await?, Increment::default());
        let mut output = DeltaSender::open(node, &peer, "roots", buffer, increment).await?;
        while let Some(mut chunk) = output.next(CHUNK)? {
            for (index, element) in chunk.range().zip(chunk.iter_mut()) {
                *element = (index as f64).sqrt();
            }
            chunk.commit().await?;
        }
        output.finish().await?;
    } else {
        let mut input = DeltaReceiver::accept(node, "roots", buffer).await?;
        let (mut sum, mut parts) = (0.0, 0);
        while let Some(part) = input.next().await? {
            sum += part.iter().sum::<f64>();
            parts += 1;
        }
        let is_root = |(index, root): (usize, &f64)| *root == (index as f64).sqrt();
        assert!(input.finish().await?.iter().enumerate().all(is_root));
        println!("{COUNT} roots came in {parts} parts, their sum is {sum:.1}");
    }
    Ok(cluster.end(DEADLINE).await?)
}
