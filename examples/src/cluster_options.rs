//! The command line options of programs that run as a cluster.

use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;

use chunkcomm::cluster::launch::{Launcher, PlaceError};
use chunkcomm::cluster::{Change, Death};
use chunkcomm::{Cluster, ClusterConfig};
use clap::Args;
use tokio::time::timeout;

use crate::command_line::{numbers, write_out};
use chunkcomm::with_causes;

const NODES_MAX: u64 = 4096;

/// Named at each option: a heading for what follows would be that of the program's own, too.
const GROUP: &str = "Cluster";

/// How the cluster is set up.
#[derive(Args, Clone, Debug, Default)]
pub struct ClusterOptions {
    /// Start the nodes over ssh on the hosts of this file: a line each, `host [slots=N]`
    #[arg(long, value_name = "FILE", help_heading = GROUP)]
    pub hosts: Option<PathBuf>,

    /// Number of nodes [default: the launcher's, the slots of the hosts file, or the number of
    /// processors]
    #[arg(long, value_name = "N", help_heading = GROUP, value_parser = numbers::<u32>(1..=NODES_MAX))]
    pub nodes: Option<u32>,

    /// Print what was detected of the launcher, and why, with --hosts also what would be started
    /// where and how to copy the program there, and end
    #[arg(long, help_heading = GROUP)]
    pub explain_launch: bool,
}

impl ClusterOptions {
    /// The settings that the options stand for.
    pub fn config(&self) -> ClusterConfig {
        let mut config = ClusterConfig::new();
        if let Some(hosts) = &self.hosts {
            config = config.hosts(hosts);
        }
        if let Some(nodes) = self.nodes {
            config = config.nodes(nodes);
        }
        config
    }

    /// There is to be a cluster: an option says so, or a launcher started this process. For
    /// programs that do without one else.
    ///
    /// # Errors
    /// A variable of the launcher makes no sense.
    pub fn are_of_a_cluster(&self) -> Result<bool, PlaceError> {
        let told = self.hosts.is_some() || self.nodes.is_some() || self.explain_launch;
        Ok(told || self.config().place()?.launcher() != Launcher::User)
    }

    /// Joins the cluster; `None`: the place was only to be explained, which it was.
    ///
    /// # Errors
    /// See [`Cluster::join`].
    pub async fn join(&self) -> Result<Option<Cluster>, Box<dyn Error>> {
        self.join_with(|config| config).await
    }

    /// As [`ClusterOptions::join`], with further settings of the program's own.
    ///
    /// # Errors
    /// See [`Cluster::join`].
    pub async fn join_with(
        &self,
        further: impl FnOnce(ClusterConfig) -> ClusterConfig,
    ) -> Result<Option<Cluster>, Box<dyn Error>> {
        let config = further(self.config());
        if self.explain_launch {
            write_out(&config.explain()?)?;
            return Ok(None);
        }
        join(config).await.map(Some)
    }
}

/// Joins the cluster as all programs do: asked by a signal, the node says what it waits for.
///
/// # Errors
/// See [`Cluster::join`].
async fn join(config: ClusterConfig) -> Result<Cluster, Box<dyn Error>> {
    let cluster = Cluster::join(config).await?;
    #[cfg(unix)]
    cluster.node().explain_on_sigusr1()?;
    Ok(cluster)
}

/// Returns the cause of a failure on rank 0: a death before the errors that follow from it.
pub(crate) async fn cause_first<T>(
    cluster: &Cluster,
    done: Result<T, Box<dyn Error>>,
) -> Result<T, Box<dyn Error>> {
    /// A link may break before the death of its peer is told.
    const TOLD_WITHIN: Duration = Duration::from_millis(500);
    let Err(error) = done else { return done };
    let Ok(death) = timeout(TOLD_WITHIN, first_death(cluster)).await else { return Err(error) };
    let (death, error) = (death.to_string(), with_causes(&*error));
    let known = error.starts_with(&death);
    Err(if known { error } else { format!("{death}; then: {error}") }.into())
}

/// Waits until a node of the cluster has died, or gives the first that has.
pub async fn first_death(cluster: &Cluster) -> Death {
    // Before the deaths are looked at, so that none is between the two.
    let mut changes = cluster.changes();
    if let Some(death) = cluster.deaths().into_iter().next() {
        return death;
    }
    while let Some(change) = changes.next().await {
        if let Change::Died(death) = change {
            return death;
        }
    }
    std::future::pending().await
}
