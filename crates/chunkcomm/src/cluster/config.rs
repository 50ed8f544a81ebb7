//! [`ClusterConfig`]: the settings of a cluster to be joined.

use super::JoinError;
use super::launch::{Environment, Launcher, Meet, Place, PlaceError, ssh};
use crate::credential::Credential;
use crate::proto::cluster::Signature;
use crate::registry::FunctionPrint;
use crate::{CREDENTIAL_FILE_VARIABLE, Node, NodeBuilder, Registry};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Who is not ready in this time is named.
const READY_WITHIN_DEFAULT: Duration = Duration::from_secs(30);

/// Least number of copies, itself counted, that a program starts when nobody says a number.
const COPIES_MIN: usize = 2;

/// The environment variable that sets `ready_within`, in milliseconds.
const READY_VARIABLE: &str = "CHUNKCOMM_READY_MS";

/// Settings of a cluster to be joined, the same on every node; by value, one after the
/// other.
#[derive(Clone, Debug)]
#[must_use]
pub struct ClusterConfig {
    pub(super) nodes: Option<u32>,
    pub(super) hosts: Option<PathBuf>,
    pub(super) credential: Option<Credential>,
    pub(super) ready_within: Option<Duration>,
    pub(super) rejoin_window: Duration,
    pub(super) functions: Option<Vec<Signature>>,
    pub(super) node: NodeBuilder,
    pub(super) environment: Environment,
    pub(super) arguments: Vec<OsString>,
}

impl Default for ClusterConfig {
    fn default() -> ClusterConfig {
        ClusterConfig::new()
    }
}

impl ClusterConfig {
    /// The environment and the command line of this process; copies are started with
    /// the same arguments.
    pub fn new() -> ClusterConfig {
        ClusterConfig {
            nodes: None,
            hosts: None,
            credential: None,
            ready_within: None,
            rejoin_window: Duration::ZERO,
            functions: None,
            node: Node::builder(),
            environment: Environment::of_this_process(),
            arguments: std::env::args_os().skip(1).collect(),
        }
    }

    /// So many nodes, this one counted. Where a launcher started them, it must be the
    /// same number. By default the launcher's number or the slots of the hosts file;
    /// without either, the number of processors, at least 2.
    pub fn nodes(mut self, nodes: u32) -> ClusterConfig {
        self.nodes = Some(nodes);
        self
    }

    /// Starts the nodes over ssh on the hosts of this file, unless a launcher started
    /// this process.
    pub fn hosts(mut self, path: impl Into<PathBuf>) -> ClusterConfig {
        self.hosts = Some(path.into());
        self
    }

    /// What the nodes know each other by; by default the one in the file that
    /// `CHUNKCOMM_CREDENTIAL_FILE` names. Without any, a cluster on one machine makes a
    /// fresh one for itself, as a hosts file always does; several machines need one.
    pub fn credential(mut self, credential: Credential) -> ClusterConfig {
        self.credential = Some(credential);
        self
    }

    /// All nodes must be ready in this time, 30 s by default or what
    /// `CHUNKCOMM_READY_MS` says; those who are not are named.
    pub fn ready_within(mut self, within: Duration) -> ClusterConfig {
        self.ready_within = Some(within);
        self
    }

    /// When the manager is gone, nodes keep their links and wait so long for a new one;
    /// 0 by default: they end with an error. Of use where something starts rank 0 again
    /// at the same address, which our own variables give (`CHUNKCOMM_MANAGER`; also under
    /// a launcher, whose own address is of that job alone), and does not stop the others:
    /// `mpiexec -disable-auto-cleanup`, `srun --kill-on-bad-exit=0 --no-kill`.
    ///
    /// A rank 0 of size 1, which waits for nobody else, so begins up to 3 s later: it may be
    /// another one's successor in a cluster that grew, whose members tell it so.
    pub fn rejoin_window(mut self, window: Duration) -> ClusterConfig {
        self.rejoin_window = window;
        self
    }

    /// The functions and processes that nodes run for each other. Who has others than rank 0, or with
    /// other types, is refused when it announces itself, and the error names both sides.
    /// A node without a registry is not compared.
    ///
    /// Nothing else of a program must agree: channels and services compare their types
    /// where they are opened, so that nodes of several versions of a program can be
    /// exchanged one after the other in a running cluster.
    pub fn registry(mut self, registry: &Registry) -> ClusterConfig {
        let functions = registry.prints().into_iter().map(function);
        let processes = registry.processes.prints().map(process);
        self.functions = Some(functions.chain(processes).collect());
        self
    }

    /// The settings of the node. Its cluster, addresses and credential are set by the cluster.
    /// A name that it is given is known to all members ([`Cluster::member_named`]); without
    /// one it is called by its rank, as `rank-3`, in messages for people alone.
    ///
    /// [`Cluster::member_named`]: super::Cluster::member_named
    pub fn node(mut self, node: NodeBuilder) -> ClusterConfig {
        self.node = node;
        self
    }

    /// These variables instead of those of this process.
    pub fn environment(mut self, environment: Environment) -> ClusterConfig {
        self.environment = environment;
        self
    }

    /// Copies are started with these arguments instead of those of this process.
    pub fn arguments<A: Into<OsString>>(
        mut self,
        arguments: impl IntoIterator<Item = A>,
    ) -> ClusterConfig {
        self.arguments = arguments.into_iter().map(Into::into).collect();
        self
    }

    /// Where this process finds itself.
    ///
    /// # Errors
    /// A variable makes no sense.
    pub fn place(&self) -> Result<Place, PlaceError> {
        Place::detect(&self.environment)
    }

    /// Explains to people what was detected and why, and what
    /// [`Cluster::join`](super::Cluster::join) does then.
    ///
    /// With a hosts file it adds what would be started where, and the commands that copy the
    /// program there.
    ///
    /// # Errors
    /// A variable makes no sense, or the hosts file or the number of nodes cannot be used.
    pub fn explain(&self) -> Result<String, JoinError> {
        let place = self.place()?;
        self.ready_time()?;
        self.check_nodes(&place)?;
        Ok(match (&place.meet, &self.hosts) {
            (Meet::Start, Some(hosts)) => place.explain_with_hosts() + &ssh::explain(self, hosts)?,
            (Meet::Start, None) => place.explain() + &format!("nodes       {}\n", self.copies()),
            (_, Some(hosts)) => {
                let by = place.launcher();
                let path = hosts.display();
                place.explain()
                    + &format!("hosts file  {path} is not read: {by} started the nodes\n")
            }
            (_, None) => place.explain(),
        })
    }

    /// Returns the number of nodes of a process that starts copies of itself, this one counted.
    pub(super) fn copies(&self) -> u32 {
        let processors = || std::thread::available_parallelism().map_or(1, usize::from);
        self.nodes.unwrap_or_else(|| processors().max(COPIES_MIN) as u32)
    }

    /// Checks that the number of nodes asked for is the number that a launcher started.
    pub(super) fn check_nodes(&self, place: &Place) -> Result<(), JoinError> {
        let by = place.launcher();
        match (self.nodes, place.size()) {
            // Copies and nodes over ssh have the command line of the one who starts them.
            _ if matches!(by, Launcher::Copy | Launcher::Ssh) => Ok(()),
            (Some(asked), Some(started)) if asked != started => {
                Err(JoinError::Nodes { asked, started, by: by.to_string() })
            }
            _ => Ok(()),
        }
    }

    pub(super) fn ready_time(&self) -> Result<Duration, PlaceError> {
        if let Some(within) = self.ready_within {
            return Ok(within);
        }
        let Some(text) = self.environment.get(READY_VARIABLE) else {
            return Ok(READY_WITHIN_DEFAULT);
        };
        let number = text.parse().ok().filter(|ms| (1..=86_400_000).contains(ms));
        number.map(Duration::from_millis).ok_or_else(|| PlaceError {
            variable: READY_VARIABLE.to_owned(),
            value: Some(text.to_owned()),
            why: "a whole number of milliseconds from 1 to 86400000 is needed".to_owned(),
        })
    }

    /// The credential that was given, if one was.
    pub(super) fn given_credential(&self) -> Result<Option<Credential>, JoinError> {
        match (&self.credential, self.environment.get(CREDENTIAL_FILE_VARIABLE)) {
            (Some(given), _) => Ok(Some(given.clone())),
            (None, Some(path)) => Credential::load(path).map(Some).map_err(JoinError::Credential),
            (None, None) => Ok(None),
        }
    }
}

fn function(print: FunctionPrint) -> Signature {
    Signature {
        hashes: vec![print.input.hash, print.output.hash],
        types: format!("{} -> {}", print.input.text, print.output.text),
        name: print.name,
    }
}

fn process(print: FunctionPrint) -> Signature {
    let types = format!("of {}", print.input.text);
    Signature { hashes: vec![print.input.hash], types, name: print.name }
}
