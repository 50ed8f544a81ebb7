//! A cluster of copies of this program that starts and ends, and does nothing in between.

use std::time::{Duration, Instant};

use chunkcomm_cluster::{Cluster, ClusterConfig};
use tokio::runtime::{Builder, Runtime};

use crate::failure::{Doing, Failure};

/// Argument that makes a process a node of the cluster.
const NODE_COMMAND: &str = "cluster-node";

/// Time after which a node that has not ended is killed: 60 s.
const END_DEADLINE: Duration = Duration::from_secs(60);

/// Serves as a node and ends the process, in a node's process; returns at once in all others.
///
/// A copy that a farm started is a node of another kind: this comes before the copy looks for its
/// place.
pub fn serve_if_node() {
    if std::env::args_os().nth(1).is_none_or(|argument| argument != NODE_COMMAND) {
        return;
    }
    let ended = runtime().and_then(|runtime| runtime.block_on(once(ClusterConfig::new())));
    if let Err(failure) = &ended {
        eprintln!("chunkperf {NODE_COMMAND}: {failure}");
    }
    std::process::exit(i32::from(ended.is_err()));
}

/// Seconds until all nodes were there, and from then on until all had ended.
#[derive(Debug, Clone, Copy)]
pub struct Times {
    /// Seconds.
    pub start: f64,
    /// Seconds.
    pub end: f64,
}

/// Starts and ends a cluster of `nodes` processes, this one counted.
///
/// # Errors
/// If a process does not start, or ends otherwise than in order.
pub fn start_and_end(nodes: u32) -> Result<Times, Failure> {
    runtime()?.block_on(once(ClusterConfig::new().nodes(nodes).arguments([NODE_COMMAND])))
}

fn runtime() -> Result<Runtime, Failure> {
    Builder::new_current_thread().enable_all().build().doing("starting the runtime")
}

async fn once(config: ClusterConfig) -> Result<Times, Failure> {
    let began = Instant::now();
    let cluster = Cluster::join(config).await.doing("starting the cluster")?;
    let start = began.elapsed().as_secs_f64();
    cluster.end(END_DEADLINE).await.doing("ending the cluster")?;
    Ok(Times { start, end: began.elapsed().as_secs_f64() - start })
}
