//! [`ClusterConfig`]: the settings of a cluster to be joined.

use super::JoinError;
use super::launch::{Environment, Launcher, Meet, Place, ssh};
use crate::launch::LaunchError;
use crate::registry::{Registry, Signature};
use chunkcomm::{CREDENTIAL_FILE_VARIABLE, Credential, Node, NodeBuilder, host};
use std::ffi::{OsStr, OsString};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Default time for all nodes to be ready: 30 s. The error names late nodes.
const READY_WITHIN_DEFAULT: Duration = Duration::from_secs(30);

/// Least number of copies that a program starts by default, this process included.
const COPIES_MIN: usize = 2;

/// The environment variable that sets `ready_within`, in milliseconds.
const READY_VARIABLE: &str = "CHUNKCOMM_READY_MS";

/// Settings of a cluster to join, the same on every node.
///
/// Each setter takes the settings by value and returns them.
#[derive(Clone, Debug)]
#[must_use]
pub struct ClusterConfig {
    pub(super) nodes: Option<u32>,
    pub(super) hosts: Option<PathBuf>,
    pub(super) credential: Option<Credential>,
    pub(super) ready_within: Option<Duration>,
    pub(super) rejoin_window: Duration,
    pub(super) registry: Option<Arc<Registry>>,
    /// Name of the program, among whose nodes registries are compared.
    pub(super) program: String,
    pub(super) node: NodeBuilder,
    /// Versions of the cluster's layer, for tests; `None`: those that this release speaks.
    pub(super) versions: Option<RangeInclusive<u16>>,
    pub(super) environment: Environment,
    pub(super) arguments: Vec<OsString>,
}

impl Default for ClusterConfig {
    fn default() -> ClusterConfig {
        ClusterConfig::new()
    }
}

impl ClusterConfig {
    /// Returns the default settings, with the environment and the arguments of this process.
    ///
    /// Copies are started with the same arguments.
    pub fn new() -> ClusterConfig {
        ClusterConfig {
            nodes: None,
            hosts: None,
            credential: None,
            ready_within: None,
            rejoin_window: Duration::ZERO,
            registry: None,
            program: program_name(),
            node: Node::builder(),
            versions: None,
            environment: Environment::of_this_process(),
            arguments: std::env::args_os().skip(1).collect(),
        }
    }

    /// Sets the number of nodes, this one included.
    ///
    /// A launcher that started the nodes must have started the same number. The default is the
    /// launcher's number, or the slots of the hosts file. Without either it is the number of
    /// processors, at least 2.
    pub fn nodes(mut self, nodes: u32) -> ClusterConfig {
        self.nodes = Some(nodes);
        self
    }

    /// Starts the nodes over ssh on the hosts of this file, unless a launcher started this process.
    pub fn hosts(mut self, path: impl Into<PathBuf>) -> ClusterConfig {
        self.hosts = Some(path.into());
        self
    }

    /// Sets the secret by which the nodes know each other.
    ///
    /// The default is the secret in the file that `CHUNKCOMM_CREDENTIAL_FILE` names. Without that
    /// file, a cluster on one machine makes a fresh secret, and so does every cluster of a hosts
    /// file. Other clusters on several machines need one.
    pub fn credential(mut self, credential: Credential) -> ClusterConfig {
        self.credential = Some(credential);
        self
    }

    /// Sets the time within which all nodes must be ready; the error names the nodes that are late.
    ///
    /// The default is the value of `CHUNKCOMM_READY_MS`, or else 30 s.
    pub fn ready_within(mut self, within: Duration) -> ClusterConfig {
        self.ready_within = Some(within);
        self
    }

    /// Sets how long nodes keep their links and wait for a new manager after the loss of theirs.
    ///
    /// With the default of 0 they end with an error.
    ///
    /// Use it where rank 0 is started again at the same address and the other nodes are left alone:
    /// `mpiexec -disable-auto-cleanup`, `srun --kill-on-bad-exit=0 --no-kill`. Set the address with
    /// `CHUNKCOMM_MANAGER`, also under a launcher: a launcher's own address is valid for one job
    /// only.
    ///
    /// Workers of a farm (`chunkcomm-farm`) wait as long for another farmer, whatever its rank.
    ///
    /// With a window, a rank 0 of size 1 begins up to 3 s later. It may succeed a manager whose
    /// cluster had grown, so it waits for that manager's members.
    pub fn rejoin_window(mut self, window: Duration) -> ClusterConfig {
        self.rejoin_window = window;
        self
    }

    /// Sets the functions and processes that nodes run for each other.
    ///
    /// A node is refused if its registry differs from that of another node of the same program, in
    /// names or types; the error names both sides. Nodes of different programs are not compared, and
    /// neither is a node without a registry. A process that its node does not have, or has with
    /// another input, is an error of the process. Processes given to [`node`](Self::node) run instead
    /// of these.
    ///
    /// Nothing else in the programs needs to agree: channels and services compare their types when
    /// they are opened. So the nodes of a running cluster can be replaced one by one with another
    /// version of the program.
    pub fn registry(mut self, registry: &Registry) -> ClusterConfig {
        self.registry = Some(Arc::new(registry.clone()));
        self
    }

    /// Sets the name of the program; nodes of one program have the same registry.
    ///
    /// The default is the name of the program's file, without its folder; in a simulation all hosts
    /// have the same. Set it where two versions of a program with different registries are to be
    /// members of one cluster, or where files of different names are the same program.
    pub fn program(mut self, name: impl Into<String>) -> ClusterConfig {
        self.program = name.into();
        self
    }

    /// Sets the settings of the node, except its cluster, addresses and credential.
    ///
    /// All members know a name given here ([`Cluster::member_named`]). Without one, messages for
    /// people name the node by its rank, as `rank-3`.
    ///
    /// [`Cluster::member_named`]: super::Cluster::member_named
    pub fn node(mut self, node: NodeBuilder) -> ClusterConfig {
        self.node = node;
        self
    }

    /// Sets the versions of the cluster's words that the node's hello names.
    ///
    /// For tests, as a member of another release; nothing else of the words changes.
    #[doc(hidden)]
    pub fn versions(mut self, versions: RangeInclusive<u16>) -> ClusterConfig {
        self.versions = Some(versions);
        self
    }

    /// Uses these variables instead of those of this process.
    pub fn environment(mut self, environment: Environment) -> ClusterConfig {
        self.environment = environment;
        self
    }

    /// Starts copies with these arguments instead of those of this process.
    pub fn arguments<A: Into<OsString>>(
        mut self,
        arguments: impl IntoIterator<Item = A>,
    ) -> ClusterConfig {
        self.arguments = arguments.into_iter().map(Into::into).collect();
        self
    }

    /// Returns the signatures of the registry, which the nodes compare.
    pub(super) fn functions(&self) -> Option<Vec<Signature>> {
        let registry = self.registry.as_ref()?;
        Some(registry.signatures().into_iter().chain(registry.processes.signatures()).collect())
    }

    /// Finds the place of this process.
    ///
    /// # Errors
    /// [`LaunchError::Variable`]: a variable makes no sense.
    pub fn place(&self) -> Result<Place, LaunchError> {
        Place::detect(&self.environment)
    }

    /// Explains to people the detected place, the reasons, and the effect on
    /// [`Cluster::join`](super::Cluster::join).
    ///
    /// With a hosts file it adds the nodes to be started on each host, and the commands that copy
    /// the program there.
    ///
    /// # Errors
    /// - [`JoinError::Launch`]: a variable makes no sense, or the hosts file cannot be used.
    /// - [`JoinError::Nodes`]: the launcher started another number of nodes.
    /// - [`JoinError::Credential`]: the credential cannot be used.
    pub fn explain(&self) -> Result<String, JoinError> {
        let place = self.place()?;
        self.ready_time()?;
        self.check_nodes(&place)?;
        self.given_credential()?;
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

    /// Returns the number of nodes for a process that starts copies of itself, this one included.
    pub(super) fn copies(&self) -> u32 {
        self.nodes.unwrap_or_else(|| host::cores().max(COPIES_MIN) as u32)
    }

    /// Checks that the number of nodes asked for is the number that a launcher started.
    pub(super) fn check_nodes(&self, place: &Place) -> Result<(), JoinError> {
        let by = place.launcher();
        match (self.nodes, place.size()) {
            // Copies and nodes over ssh have the command line of the process that started them.
            _ if matches!(by, Launcher::Copy | Launcher::Ssh) => Ok(()),
            (Some(asked), Some(started)) if asked != started => {
                Err(JoinError::Nodes { asked, started, by: by.to_string() })
            }
            _ => Ok(()),
        }
    }

    pub(super) fn ready_time(&self) -> Result<Duration, LaunchError> {
        if let Some(within) = self.ready_within {
            return Ok(within);
        }
        let Some(text) = self.environment.get(READY_VARIABLE) else {
            return Ok(READY_WITHIN_DEFAULT);
        };
        let number = text.parse().ok().filter(|ms| (1..=86_400_000).contains(ms));
        number.map(Duration::from_millis).ok_or_else(|| LaunchError::Variable {
            variable: READY_VARIABLE.to_owned(),
            value: Some(text.to_owned()),
            why: "a whole number of milliseconds from 1 to 86400000 is needed".to_owned(),
        })
    }

    /// Returns the credential that was given, if any.
    pub(super) fn given_credential(&self) -> Result<Option<Credential>, JoinError> {
        match (&self.credential, self.environment.get(CREDENTIAL_FILE_VARIABLE)) {
            (Some(given), _) => Ok(Some(given.clone())),
            (None, Some(path)) => Credential::load(path).map(Some).map_err(JoinError::Credential),
            (None, None) => Ok(None),
        }
    }
}

/// Returns the name of this program's file, as it was when the program began.
fn program_name() -> String {
    // The name of a test program changes with each build, and the words of a simulation must not.
    let file = if host::is_virtual() { None } else { std::env::current_exe().ok() };
    let name = file.as_deref().and_then(Path::file_name).map(OsStr::to_string_lossy);
    let name = name.as_deref().unwrap_or_default();
    // So Linux calls a file that has been replaced since.
    let name = name.strip_suffix(" (deleted)").unwrap_or(name);
    name.strip_suffix(std::env::consts::EXE_SUFFIX).unwrap_or(name).to_owned()
}
