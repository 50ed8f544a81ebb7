//! Two processes and one channel: rank 0 sends numbers, rank 1 adds them up.
//!
//! ```text
//! cargo run --release --example hello
//! ```

use std::error::Error;
use std::time::Duration;

use chunkcomm_cluster::{Cluster, ClusterConfig};

const COUNT: u64 = 1_000_000;
const DEADLINE: Duration = Duration::from_secs(30);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    // Starts a copy of this program as rank 1. Under a launcher there is a copy already.
    let cluster = Cluster::join(ClusterConfig::new().nodes(2)).await?;
    if cluster.rank() == 0 {
        let peer = cluster.peer(1).await?;
        let mut sender = cluster.node().open::<u64>(&peer, "numbers").await?;
        for number in 1..=COUNT {
            sender.send(&number).await?; // one by one, gathered in packets
        }
        let packets = peer.stats().message_packets_sent;
        sender.close(DEADLINE).await?; // returns when rank 1 has all of them
        println!("{COUNT} numbers sent in {packets} packets");
    } else {
        let (_, mut receiver) = cluster.node().accept::<u64>("numbers").await?;
        let mut sum = 0;
        while let Some(number) = receiver.recv().await? {
            sum += number;
        }
        assert_eq!(sum, COUNT * (COUNT + 1) / 2);
        println!("their sum is {sum}");
    }
    Ok(cluster.end(DEADLINE).await?)
}
