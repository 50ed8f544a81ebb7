//! A chain of nodes that each filter a large array and pass it on: whole buffers against deltas. The
//! nodes are those of a cluster, in the order of their ranks; started by hand, 3 on this machine.
//!
//! With whole buffers a node starts when the one before it has finished; with deltas it starts
//! with the first increment. The last node compares every element with a sequential computation.
//! Each process keeps to one processor.

mod options;
mod report;

use std::error::Error;
use std::process::ExitCode;

use chunkcomm::Node;
use chunkcomm_cluster::Cluster;
use chunkcomm_cluster::cluster::End;
use chunkcomm_coupled::patterns::{
    Chain, Pattern, Run, Transfer, auto_delta_bytes, pin, sequential, serve_in,
};
use chunkcomm_examples::cluster_options::{end_led, end_served, first_death};
use chunkcomm_examples::command_line::{parse_with, write_out};
use chunkcomm_examples::program::{run_program, timed_on_a_thread};

use options::{Delta, Options};
use report::Measured;

/// Number of nodes that the program starts by default.
const NODES: u32 = 3;

type Failure = Box<dyn Error>;

fn main() -> ExitCode {
    let options = parse_with(Options::check);
    run_program("cascade", &options.cluster, || work(options))
}

async fn work(options: &'static Options) -> Result<(), Failure> {
    let config = options.cluster.config_of_nodes(NODES)?;
    let Some(cluster) = options.cluster.join(config).await? else { return Ok(()) };
    // Pinned only now: copies started by a pinned process would share its processor.
    pin(cluster.rank() as usize);
    if cluster.rank() > 0 {
        return follow(&cluster).await;
    }
    let done = lead(&cluster, options).await;
    end_led(&cluster, done).await
}

async fn follow(cluster: &Cluster) -> Result<(), Failure> {
    let served = tokio::select! {
        biased;
        served = serve_in(cluster) => served.map_err(Failure::from),
        // The cluster was finished before the chain was built.
        _ = cluster.finished() => Ok(()),
    };
    match (served, cluster.ended()) {
        // The end of the cluster is the cause of any other error.
        (Err(_), Some(end)) if !matches!(end, End::Finished { .. }) => Err(end.to_string().into()),
        (Err(error), _) => Err(error),
        (Ok(()), _) => end_served(cluster).await,
    }
}

async fn lead(cluster: &Cluster, options: &Options) -> Result<(), Failure> {
    let nodes = cluster.size() as usize;
    if nodes < 2 {
        return Err("a chain of 1 node: at least 2 are needed".into());
    }
    let measured = tokio::select! {
        // A death is checked first: it is the cause of the errors that follow.
        biased;
        death = first_death(cluster) => return Err(death.to_string().into()),
        measured = measure(cluster.node(), nodes, options) => measured?,
    };
    Ok(write_out(&measured.report(nodes, options))?)
}

async fn measure(node: &Node, nodes: usize, options: &Options) -> Result<Measured, Failure> {
    let elements = options.size / size_of::<f32>();
    let compute = options.compute;
    let alone = move || drop(std::hint::black_box(sequential(compute, nodes, elements)));
    let ((), sequential) = timed_on_a_thread(alone).await?;
    let delta_bytes = match options.delta {
        Delta::Bytes(bytes) => bytes,
        Delta::Auto => auto_delta_bytes(options.compute, nodes, options.size),
    };
    let mut measured = Measured { delta_bytes, sequential, whole: Vec::new(), delta: Vec::new() };
    let mut chain = Chain::gather(node, nodes).await?;
    for repeat in 0..=options.repeats {
        for (kind, transfer) in [(0, Transfer::Whole), (1, Transfer::Delta(delta_bytes))] {
            let number = 2 * repeat + kind;
            let run = Run::new(Pattern::Cascade, options.compute, elements);
            let run = Run { number, transfer, ..run };
            let outcome = chain.run(&run).await?;
            if let Some(difference) = outcome.difference {
                return Err(format!("run {number} gave a wrong result: {difference}").into());
            }
            // The first run of each kind maps the memory and opens the window of the connections.
            if repeat > 0 {
                let times = if kind == 0 { &mut measured.whole } else { &mut measured.delta };
                times.push(outcome.elapsed);
            }
        }
    }
    chain.end().await?;
    Ok(measured)
}
