//! chunkcomm inside a service: rank 0 takes events over HTTP and ships each to rank 1, the
//! collector, which writes them.
//!
//! ```text
//!   POST /events -> Service::ship -> channel "telemetry.events" -> collect -> a file or stdout
//!   GET /metrics -> counters of requests, channel and link      -> how many, at the end
//! ```
//!
//! An end loses no event that was answered with 202. It begins with SIGTERM or ctrl-c at the service,
//! or with one of these at the collector, which then asks the cluster to stop. The service then
//!
//! 1. takes no more connections and finishes the requests that have begun,
//! 2. takes the channel from the requests that are not finished in time,
//! 3. closes the channel, which waits until the collector's inbox has everything,
//! 4. hears from the collector how many events are written, and compares.

mod collector;
mod demo;
mod event;
mod http;
mod metrics;
mod options;
mod serving;

use std::error::Error;
use std::future::Future;
use std::pin::pin;
use std::process::ExitCode;
use std::time::Duration;

use chunkcomm_cluster::cluster::{Cluster, End};
use chunkcomm_examples::command_line::parse_with;
use chunkcomm_examples::program::{run_program_on_threads, stop_signal};

use collector::{Output, collect};
use event::Event;
use options::Options;

const END_DEADLINE: Duration = Duration::from_secs(30);
const NODES: u32 = 2;

/// Name of the channel of the events, from the service to the collector.
const EVENTS: &str = "telemetry.events";
/// Name of the channel of the number of written events, from the collector at the end.
const COLLECTED: &str = "telemetry.collected";

type Failure = Box<dyn Error>;

fn main() -> ExitCode {
    let options = parse_with(Options::check);
    run_program_on_threads("telemetry", work(options))
}

async fn work(options: &'static Options) -> Result<(), Failure> {
    // Taken first, so that a signal in between is not lost.
    let asked = stop_signal()?;
    let config = options.cluster.config().nodes(NODES);
    let Some(cluster) = options.cluster.join(config).await? else { return Ok(()) };
    let done = match (cluster.size(), cluster.rank()) {
        (NODES, 0) => serving::serve(&cluster, options, asked).await,
        (NODES, _) => write_events(&cluster, options, asked).await,
        (size, _) => Err(format!("{NODES} nodes are needed, there are {size}").into()),
    };
    let fatal = cluster.ended().filter(|end| !matches!(end, End::Finished { .. }));
    if let (Err(_), Some(end)) = (&done, fatal) {
        // The end of the cluster is the cause of any other error.
        return Err(end.to_string().into());
    }
    cluster.finish();
    let ended = cluster.end(END_DEADLINE).await;
    done?;
    Ok(ended?)
}

/// Runs the collector. When it is asked to end, it ends the whole cluster: the service ends the stream.
async fn write_events(
    cluster: &Cluster,
    options: &Options,
    asked: impl Future<Output = ()>,
) -> Result<(), Failure> {
    let mut output = match (&options.events, options.demo) {
        (Some(path), _) => Output::file(path)?,
        (None, Some(_)) => Output::nowhere(),
        (None, None) => Output::standard(),
    };
    let node = cluster.node();
    let (service, mut events) = tokio::select! {
        accepted = node.accept::<Event>(EVENTS) => accepted?,
        // The service could not begin.
        _ = cluster.finished() => return Ok(()),
    };
    let count = {
        let mut collecting = pin!(collect(&mut events, &mut output));
        tokio::select! {
            count = &mut collecting => count?,
            () = asked => {
                cluster.finish();
                collecting.await?
            }
        }
    };
    let mut collected = node.open::<u64>(&service, COLLECTED).await?;
    collected.send_now(&count).await?;
    Ok(collected.close(END_DEADLINE).await?)
}
