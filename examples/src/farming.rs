//! Frame of a program with a farm. The workers are processes or threads that the farmer starts here; in
//! a cluster they are its nodes.

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use chunkcomm::host;
use chunkcomm_cluster::cluster::Death;
use chunkcomm_cluster::{Cluster, Registry};
use chunkcomm_farm::{Farm, serve_in};
use clap::CommandFactory;
use clap::error::ErrorKind;

use crate::cluster_options::{ClusterOptions, end_led, end_served, first_death};
use crate::farm_options::FarmOptions;
use crate::page;
use crate::picture::check_output;
use crate::program::timed_on_a_thread;
use crate::progress::Bar;

/// Time that the workers have to end once all is done.
pub const FINISH_DEADLINE: Duration = Duration::from_secs(10);

/// Time of a sequential computation above which it is not repeated.
const REPEATED_BELOW: Duration = Duration::from_secs(1);

type Failure = Box<dyn Error>;

/// Checks whether options that are each right go together, in a cluster or without one. The picture
/// is to be written to `output`.
///
/// # Errors
/// An error as for a wrong command line.
pub fn check<P: CommandFactory>(
    farm: &FarmOptions,
    output: &Path,
    in_a_cluster: bool,
) -> Result<(), clap::Error> {
    let error = |kind, text: &str| Err(P::command().error(kind, text));
    if in_a_cluster && farm.tell_of_workers() {
        let text = "the other nodes of a cluster are the workers: --workers and --workers-as \
                    are allowed without one";
        return error(ErrorKind::ArgumentConflict, text);
    }
    // In a cluster the picture is written on the machine of rank 0.
    match check_output(output) {
        Err(text) if !in_a_cluster => error(ErrorKind::ValueValidation, &text),
        _ => Ok(()),
    }
}

/// Runs `farm_out`, without a cluster or as rank 0 of one; its other ranks work for it. Returns the
/// exit status: 1 when `farm_out` returns false.
///
/// # Errors
/// `farm_out` or the cluster failed.
pub async fn work(
    cluster: &ClusterOptions,
    registry: &Registry,
    in_a_cluster: bool,
    farm_out: impl AsyncFnOnce(Option<&Cluster>) -> Result<bool, Failure>,
) -> Result<ExitCode, Failure> {
    let done = if in_a_cluster {
        work_in_cluster(cluster, registry, farm_out).await
    } else {
        farm_out(None).await
    };
    Ok(ExitCode::from(u8::from(!done?)))
}

async fn work_in_cluster(
    options: &ClusterOptions,
    registry: &Registry,
    farm_out: impl AsyncFnOnce(Option<&Cluster>) -> Result<bool, Failure>,
) -> Result<bool, Failure> {
    let config = options.config().registry(registry);
    let Some(cluster) = options.join(config).await? else { return Ok(true) };
    if cluster.rank() > 0 {
        serve_in(&cluster, registry).await?;
        return end_served(&cluster).await.map(|()| true);
    }
    let done = farm_out(Some(&cluster)).await;
    end_led(&cluster, done).await
}

/// Starts the farm of these options, or of the cluster's nodes.
///
/// # Errors
/// See [`FarmBuilder::start`](chunkcomm_farm::FarmBuilder::start). The page that is asked for cannot be served.
pub async fn start(
    options: &FarmOptions,
    registry: Registry,
    cluster: Option<&Cluster>,
) -> Result<Farm, Failure> {
    let farm = options.apply(Farm::builder(registry));
    #[cfg(unix)]
    let farm = farm.explain_on_sigusr1();
    match cluster {
        None => {
            let farm = farm.start().await?;
            page::show(farm.node())?;
            Ok(farm)
        }
        Some(cluster) => Ok(farm.start_in(cluster).await?),
    }
}

/// Computes without a farm and returns the time: the better of two where it is short. The first
/// computation pays for cold memory and a slow clock, which would pass for a speed-up of the farm.
/// The computation reports the fraction that is done, which a bar shows, unless it is `hidden`.
///
/// # Errors
/// The thread could not be started, or a node of the cluster died.
pub async fn alone<T: Send + 'static>(
    cluster: Option<&Cluster>,
    hidden: bool,
    compute: impl Fn(&dyn Fn(f64)) -> T + Clone + Send + 'static,
) -> Result<(T, Duration), Failure> {
    let bar = Bar::on_terminal(hidden).map(Arc::new);
    let compute = move || {
        compute(&|done| {
            if let Some(bar) = &bar {
                bar.draw_fraction("sequential", done);
            }
        })
    };
    let timed = async {
        let (value, first) = timed_on_a_thread(compute.clone()).await?;
        if first >= REPEATED_BELOW || host::is_virtual() {
            return Ok((value, first));
        }
        let (_, again) = timed_on_a_thread(compute).await?;
        Ok((value, first.min(again)))
    };
    tokio::select! {
        biased;
        computed = timed => computed,
        death = first_death_in(cluster) => Err(death.to_string().into()),
    }
}

async fn first_death_in(cluster: Option<&Cluster>) -> Death {
    match cluster {
        Some(cluster) => first_death(cluster).await,
        None => std::future::pending().await,
    }
}
