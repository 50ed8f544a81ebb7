//! The command line options of programs that run as a cluster.

use std::error::Error;
use std::path::PathBuf;
use std::pin::Pin;
use std::time::Duration;

use chunkcomm::host::{self, timeout};
use chunkcomm::with_causes;
use chunkcomm_cluster::cluster::launch::Launcher;
use chunkcomm_cluster::cluster::{Change, Changes, Death, End, NodeId};
use chunkcomm_cluster::launch::LaunchError;
use chunkcomm_cluster::{Cluster, ClusterConfig};
use clap::Args;

use crate::command_line::{numbers, write_out};
use crate::lan::{LanOptions, Refused};
use crate::page;

const NODES_MAX: u64 = 4096;

/// Time that the nodes of a cluster have to end.
pub const END_DEADLINE: Duration = Duration::from_secs(30);

/// Heading in the help, named at each option: set once, it would also cover a program's own options.
pub(crate) const GROUP: &str = "Cluster";

/// Options that set up the cluster.
#[derive(Args, Clone, Debug, Default)]
pub struct ClusterOptions {
    /// Start the nodes over ssh on the hosts of this file, which has a line each: `host [slots=N]`
    #[arg(long, value_name = "FILE", help_heading = GROUP)]
    pub hosts: Option<PathBuf>,

    /// Number of nodes [default: the launcher's, the slots of the hosts file, the hosts of a virtual
    /// LAN, or the number of processors]
    #[arg(long, value_name = "N", help_heading = GROUP, value_parser = numbers::<u32>(1..=NODES_MAX))]
    pub nodes: Option<u32>,

    /// Print the detected launcher and the reasons, then end; with --hosts also what would be
    /// started on each host, and how to copy the program there
    #[arg(long, help_heading = GROUP)]
    pub explain_launch: bool,

    /// Serve a live page of the run, at 127.0.0.1:0 or this address of loopback; needs the feature `page`
    #[arg(long, value_name = "ADDRESS", help_heading = GROUP, num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "127.0.0.1:0")]
    pub(crate) page: Option<String>,

    #[command(flatten)]
    pub(crate) lan: LanOptions,
}

impl ClusterOptions {
    /// Returns the settings that the options stand for.
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

    /// Returns the settings that the options stand for, with this number of nodes where neither an
    /// option nor a launcher says how many.
    ///
    /// # Errors
    /// A variable of the launcher makes no sense.
    pub fn config_of_nodes(&self, nodes: u32) -> Result<ClusterConfig, LaunchError> {
        let mut told = self.clone();
        told.explain_launch = false;
        let is_told = told.are_of_a_cluster()?;
        Ok(if is_told { self.config() } else { self.config().nodes(nodes) })
    }

    /// Whether there is to be a cluster: an option says so, or a launcher started this process. For
    /// programs that also run without one.
    ///
    /// # Errors
    /// A variable of the launcher makes no sense.
    pub fn are_of_a_cluster(&self) -> Result<bool, LaunchError> {
        let told = self.hosts.is_some() || self.nodes.is_some() || self.explain_launch;
        let told = told || self.lan.spec().is_some();
        Ok(told || self.config().place()?.launcher() != Launcher::User)
    }

    /// Refuses a virtual LAN, for a program that cannot run on one.
    ///
    /// # Errors
    /// The options are of a virtual LAN; the text says why there can be none.
    pub fn needs_the_real_lan(&self, why: &str) -> Result<(), String> {
        let is_real = self.lan.spec().is_none() && self.lan.trace.is_none();
        if is_real { Ok(()) } else { Err(format!("{why}: allowed is --lan real, without --trace")) }
    }

    /// Refuses options that do not go with the network.
    pub(crate) fn check_lan(&self) -> Result<(), Refused> {
        let refuse = |why: &str| Err(Refused(why.to_owned()));
        match self.lan.spec() {
            None if self.lan.trace.is_some() => {
                refuse("--trace writes virtual times: allowed with --lan virtual:NAME")
            }
            Some(_) if self.hosts.is_some() || self.explain_launch => {
                refuse("--hosts and --explain-launch are for real hosts: allowed with --lan real")
            }
            _ => Ok(()),
        }
    }

    /// Joins the cluster with these settings; with `--explain-launch` prints the explanation instead
    /// and returns `None`. At the signal `SIGUSR1` the node then prints what it waits for.
    ///
    /// # Errors
    /// See [`Cluster::join`].
    pub fn join(&self, config: ClusterConfig) -> Joining {
        let explain = self.explain_launch;
        Box::pin(async move {
            if explain {
                write_out(&config.explain()?)?;
                return Ok(None);
            }
            let cluster = Cluster::join(config).await?;
            #[cfg(unix)]
            cluster.node().explain_on_sigusr1()?;
            page::show(cluster.node())?;
            Ok(Some(cluster))
        })
    }
}

/// The future of [`ClusterOptions::join`], on the heap: its code is compiled with this library, not
/// once more with each program.
pub type Joining = Pin<Box<dyn Future<Output = Result<Option<Cluster>, Box<dyn Error>>>>>;

/// Ends the cluster as rank 0, whose work is done. An error of the work is the cause of how the
/// cluster ended, so it is the one that is returned.
///
/// # Errors
/// The work failed, or the cluster does not end.
pub async fn end_led<T>(
    cluster: &Cluster,
    done: Result<T, Box<dyn Error>>,
) -> Result<T, Box<dyn Error>> {
    let done = cause_first(cluster, done).await;
    cluster.finish();
    let ended = cluster.end(END_DEADLINE).await;
    let value = done?;
    ended?;
    Ok(value)
}

/// Waits as another node until the cluster is finished, and ends.
///
/// # Errors
/// The cluster ended otherwise.
pub async fn end_served(cluster: &Cluster) -> Result<(), Box<dyn Error>> {
    match cluster.finished().await {
        End::Finished { .. } => Ok(cluster.end(END_DEADLINE).await?),
        end => Err(end.to_string().into()),
    }
}

/// Runs work of rank 0 that needs all founders of the cluster; 2 s after the death of one the work is given up.
///
/// Calls of a group end by themselves when one of its ranks dies. A group that waits for another to meet does not hear
/// of the death of that one's ranks.
///
/// # Errors
/// That of the work, or the death.
pub async fn with_all_founders<T>(
    cluster: &Cluster,
    work: impl Future<Output = Result<T, Box<dyn Error>>>,
) -> Result<T, Box<dyn Error>> {
    /// Time in which calls end after a death that the cluster reports: 1 s, and as much again for a busy machine.
    const ENDS_WITHIN: Duration = Duration::from_secs(2);
    let given_up = async {
        let founders = cluster.founders();
        let death = first_death_of(|id| founders.contains(&id), cluster).await;
        host::sleep(ENDS_WITHIN).await;
        death
    };
    tokio::select! {
        // The error of the work says more.
        biased;
        done = work => done,
        death = given_up => Err(death.to_string().into()),
    }
}

/// Returns the cause of a failure on rank 0: a death before the errors that follow from it.
///
/// # Errors
/// The error of `done`, or the death that caused it.
pub async fn cause_first<T>(
    cluster: &Cluster,
    done: Result<T, Box<dyn Error>>,
) -> Result<T, Box<dyn Error>> {
    /// Time to wait for a death: a link may break before the death of its peer is reported.
    const TOLD_WITHIN: Duration = Duration::from_millis(500);
    let Err(error) = done else { return done };
    let Ok(death) = timeout(TOLD_WITHIN, first_death(cluster)).await else { return Err(error) };
    let (death, error) = (death.to_string(), with_causes(&*error));
    let known = error.starts_with(&death);
    Err(if known { error } else { format!("{death}; then: {error}") }.into())
}

/// Waits until a node of the cluster has died; returns the first death.
pub async fn first_death(cluster: &Cluster) -> Death {
    first_death_of(|_| true, cluster).await
}

/// Waits until a node of the cluster that `is_meant` has died; returns the first such death.
async fn first_death_of(is_meant: impl Fn(NodeId) -> bool, cluster: &Cluster) -> Death {
    // Subscribed before the deaths are read, so that none falls between the two.
    let changes = cluster.changes();
    if let Some(death) = cluster.deaths().into_iter().find(|death| is_meant(death.id)) {
        return death;
    }
    death_of(is_meant, changes).await
}

/// Waits until a node that `is_meant` has died.
pub async fn death_of(is_meant: impl Fn(NodeId) -> bool, mut changes: Changes) -> Death {
    while let Some(change) = changes.next().await {
        if let Change::Died(death) = change
            && is_meant(death.id)
        {
            return death;
        }
    }
    std::future::pending().await
}
