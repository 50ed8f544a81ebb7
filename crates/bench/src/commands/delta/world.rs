//! Runs of a chain whose nodes are hosts of a virtual LAN.

use chunkcomm_cluster::Cluster;
use chunkcomm_coupled::patterns::{Chain, Run, Transfer, auto_delta_bytes, serve_in};
use chunkcomm_simulation::WorldSpec;

use crate::failure::{Doing, Failure};
use crate::lan::{LanArgs, Ran};
use crate::options::values::Auto;

/// How the bytes leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// The whole buffer.
    Whole,
    /// The whole buffer, while the node computes independently.
    Overlapped,
    /// Increments of this many bytes.
    Delta(Auto<usize>),
}

/// One run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timed {
    /// Bytes of an increment; 0 of a whole buffer.
    pub(crate) delta_bytes: usize,
    /// Virtual seconds.
    pub(crate) seconds: f64,
}

/// Runs each of the ways once; the results are those of the first node.
///
/// # Errors
/// If a program fails, or a result is wrong.
pub(crate) fn timed(
    lan: &LanArgs,
    world: &WorldSpec,
    nodes: usize,
    run: &Run,
    ways: &[Way],
) -> Result<Ran<Vec<Timed>>, Failure> {
    let (run, ways) = (run.clone(), ways.to_vec());
    crate::lan::run_world(lan, world, nodes, move |cluster| {
        let (run, ways) = (run.clone(), ways.clone());
        async move { lead_or_serve(&cluster, nodes, run, ways).await }
    })
}

async fn lead_or_serve(
    cluster: &Cluster,
    nodes: usize,
    run: Run,
    ways: Vec<Way>,
) -> Result<Vec<Timed>, Failure> {
    if cluster.rank() > 0 {
        serve_in(cluster).await.doing("serving the chain")?;
        return Ok(Vec::new());
    }
    let mut chain = Chain::gather(cluster.node(), nodes).await.doing("gathering the chain")?;
    let mut all = Vec::new();
    for (number, way) in (0..).zip(ways) {
        let delta_bytes = match way {
            Way::Whole | Way::Overlapped => 0,
            Way::Delta(Auto::Fixed(bytes)) => bytes,
            Way::Delta(Auto::Auto) => auto_delta_bytes(run.compute, nodes, run.bytes()),
        };
        let transfer = match way {
            Way::Whole => Transfer::Whole,
            Way::Overlapped => Transfer::Overlapped,
            Way::Delta(_) => Transfer::Delta(delta_bytes),
        };
        let run = Run { number, transfer, ..run.clone() };
        let outcome = chain.run(&run).await.doing("running a chain")?;
        if let Some(difference) = outcome.difference {
            return Err(Failure::broken("verifying the array", difference));
        }
        all.push(Timed { delta_bytes, seconds: outcome.elapsed.as_secs_f64() });
    }
    chain.end().await.doing("ending the chain")?;
    Ok(all)
}
