//! [`NodeBuilder`]: the settings of a node and their defaults. [`checks`] has the allowed
//! values, [`building`] builds the node.

mod building;
mod checks;
mod experiment;
mod limits;

#[cfg(feature = "tls")]
use super::admission::UserTls;
use super::layers::LayerSettings;
use super::warnings::Aloud;
use crate::Address;
use crate::credential::Credential;
use crate::proto::limits::CONNECT_MS_DEFAULT;
use crate::proto::liveness::Silence;
use crate::proto::tuning::constants::AGE_BOUND_MS_DEFAULT;
use crate::proto::tuning::flush::Policy;
pub(super) use checks::setting;
pub use experiment::Experiment;
pub use limits::Limits;
use std::path::PathBuf;
#[cfg(feature = "tls")]
use std::sync::Arc;
use std::time::Duration;

/// The environment variable that sets the age bound in milliseconds.
pub const AGE_BOUND_VARIABLE: &str = "CHUNKCOMM_AGE_BOUND_MS";

/// The environment variable that names the credential's file.
pub const CREDENTIAL_FILE_VARIABLE: &str = "CHUNKCOMM_CREDENTIAL_FILE";

/// The environment variable that forbids Unix sockets between nodes of one host with `off`.
pub const SAME_HOST_VARIABLE: &str = "CHUNKCOMM_SAME_HOST";

/// The environment variable that forbids to read large messages from memory of peers with `off`.
pub const ONE_COPY_VARIABLE: &str = "CHUNKCOMM_ONE_COPY";

/// Settings that a node keeps.
#[derive(Debug, Clone)]
pub(super) struct Settings {
    pub(super) name: String,
    pub(super) sole_name: bool,
    pub(super) cluster: String,
    pub(super) policy: Policy,
    pub(super) age_bound: Duration,
    pub(super) limits: Limits,
    pub(super) silence: Silence,
    pub(super) connect_deadline: Duration,
    pub(super) aloud: Aloud,
    pub(super) experiment: Experiment,
}

/// Settings of a node to be built; see [`Node::builder`](super::Node::builder).
#[derive(Debug, Clone)]
#[must_use]
pub struct NodeBuilder {
    settings: Settings,
    age_bound_set: bool,
    listen: Vec<Address>,
    io_thread: bool,
    busy_poll: bool,
    same_host: bool,
    one_copy: bool,
    insecure: bool,
    credential: Option<CredentialFrom>,
    layers: LayerSettings,
    #[cfg(feature = "tls")]
    user_tls: Option<UserTls>,
}

/// Source of a credential.
#[derive(Debug, Clone)]
enum CredentialFrom {
    Given(Credential),
    File(PathBuf),
}

impl Default for NodeBuilder {
    fn default() -> NodeBuilder {
        NodeBuilder {
            settings: Settings {
                name: String::new(),
                sole_name: false,
                cluster: "default".to_owned(),
                policy: Policy::default(),
                age_bound: Duration::from_millis(AGE_BOUND_MS_DEFAULT),
                limits: Limits::default(),
                silence: Silence::default(),
                connect_deadline: Duration::from_millis(CONNECT_MS_DEFAULT),
                aloud: Aloud::All,
                experiment: Experiment::default(),
            },
            age_bound_set: false,
            listen: Vec::new(),
            io_thread: false,
            busy_poll: false,
            same_host: true,
            one_copy: true,
            insecure: false,
            credential: None,
            layers: LayerSettings::default(),
            #[cfg(feature = "tls")]
            user_tls: None,
        }
    }
}

impl NodeBuilder {
    /// Sets the node's name for its peers, at most 32 bytes; by default `node-` and the beginning of
    /// its random incarnation, as in `node-05cf1d2a`.
    pub fn name(mut self, name: impl Into<String>) -> NodeBuilder {
        self.settings.name = name.into();
        self
    }

    /// Declares that no other node has this node's [`name`](Self::name) at the same time. By default
    /// several may have it. A node without a name is not concerned. Ranks of a cluster have it set,
    /// unless the program names them.
    ///
    /// A peer then knows a successor: when a node with the same name and this setting comes, the
    /// predecessor's session ends at once if it is cut off. Otherwise that session takes messages
    /// until it is dead ([`silence`](Self::silence)), since the predecessor may come back. If two
    /// such nodes live all the same, the older one loses its session when its connection breaks.
    pub fn sole_name(mut self) -> NodeBuilder {
        self.settings.sole_name = true;
        self
    }

    /// Sets the cluster's name, at most 32 bytes, `default` by default. Nodes of other
    /// clusters are refused.
    pub fn cluster(mut self, cluster: impl Into<String>) -> NodeBuilder {
        self.settings.cluster = cluster.into();
        self
    }

    /// Adds an address to listen at. Without any address the node only connects.
    pub fn listen(mut self, address: Address) -> NodeBuilder {
        self.listen.push(address);
        self
    }

    /// Sets the policy by which packets leave; [`Policy::Chunked`] by default.
    pub fn policy(mut self, policy: Policy) -> NodeBuilder {
        self.settings.policy = policy;
        self
    }

    /// Sets the longest wait of a packet's oldest message while the runtime runs. The default
    /// is the value of `CHUNKCOMM_AGE_BOUND_MS`, else 1 ms. tokio's timers step one
    /// millisecond.
    pub fn age_bound(mut self, bound: Duration) -> NodeBuilder {
        self.settings.age_bound = bound;
        self.age_bound_set = true;
        self
    }

    /// Sets the limits of the node's memory and sessions; see [`Limits`] for the defaults.
    pub fn limits(mut self, limits: Limits) -> NodeBuilder {
        self.settings.limits = limits;
        self
    }

    /// Drives the links on a thread of their own, for programs whose tasks
    /// compute without yielding. Each message that finds the thread asleep costs one
    /// wake-up. Needs no runtime around. The end of the node waits up to 100 ms for the
    /// thread, so that accepted messages leave before `main` returns; up to 1 s longer where no
    /// processor is free for the thread.
    ///
    /// Without `io_thread`, the runtime on which the node is built drives the links:
    ///
    /// | the node's runtime | its links are served |
    /// |---|---|
    /// | of one thread | while it is polled: no task may compute for long |
    /// | of several | while a worker is free, but for the case below |
    /// | `io_thread` | always |
    ///
    /// The case: a task computes on a worker that tokio woke for a timer or another socket.
    /// Meanwhile the runtime looks at no socket, even if other workers are free. Peers give
    /// up a node that is silent for the time `dead` of [`silence`](Self::silence).
    pub fn io_thread(mut self) -> NodeBuilder {
        self.io_thread = true;
        self
    }

    /// Keeps a core busy looking for messages, which saves the wake-up of a
    /// sleeping thread. Needs `io_thread`, or a runtime of one thread.
    pub fn busy_poll(mut self) -> NodeBuilder {
        self.busy_poll = true;
        self
    }

    /// Sets how long a peer may be silent while something waits for it; see [`Silence`] for the
    /// defaults. A peer that nothing waits for is asked every 30 s.
    ///
    /// Allowed are `10 ms <= probe < suspect <= dead`. Keep `probe` above 40 ms: an acknowledgement
    /// may take that long, and the node would ask after each message that nothing answers.
    ///
    /// A node does not answer while it encodes or decodes a message on the thread of its links. So
    /// `suspect` and `dead` are longer by 1 s for each 32 MiB above 32 MiB of the larger of:
    ///
    /// - [`Limits::message_bytes_max`] of this node;
    /// - the largest message that was sent to the peer and that its receiver has not taken.
    ///
    /// Nothing that the peer says about itself makes them longer. A node that gets longer messages
    /// from others needs an [`io_thread`](Self::io_thread).
    ///
    /// ```
    /// use chunkcomm::{Node, Silence};
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let patient = Silence { dead: Duration::from_secs(60), ..Silence::default() };
    /// let node = Node::builder().silence(patient).build().await?;
    /// # let _ = node;
    /// # Ok(())
    /// # }
    /// ```
    pub fn silence(mut self, silence: Silence) -> NodeBuilder {
        self.settings.silence = silence;
        self
    }

    /// Sets the time for which [`Node::connect`](super::Node::connect) tries to reach a peer, and
    /// `open` after the session's end: 10 s by default. With `Duration::ZERO` they try once.
    pub fn connect_deadline(mut self, deadline: Duration) -> NodeBuilder {
        self.settings.connect_deadline = deadline;
        self
    }

    /// Allows a session with a node of the same host to move from TCP to a Unix socket; true by
    /// default. Nothing is encrypted there, and a lone message takes about a quarter less time than in
    /// TLS over TCP.
    ///
    /// Both nodes must allow it, run as one user on Linux in one network namespace, and have the
    /// [`credential`](Self::credential), without [`tls_config`](Self::tls_config). Each connection is made
    /// over TCP first, and moves when both ends have proved themselves again on the Unix socket.
    /// Otherwise it stays with TCP; [`Peer::way`](crate::Peer::way) says why.
    ///
    /// Forbid it where the bytes have to pass a proxy between nodes of one host: the proxy would see
    /// only the beginning of each connection. An accepted session over a Unix socket has no
    /// [`address`](crate::Peer::address). The variables `CHUNKCOMM_SAME_HOST=off` and
    /// `CHUNKCOMM_PORTABLE=1` forbid it as well.
    pub fn same_host(mut self, allowed: bool) -> NodeBuilder {
        self.same_host = allowed;
        self
    }

    /// Allows peers on this host to read large messages from this process's memory, and this node to read from
    /// theirs; true by default. They are copied once so, where a socket copies them twice.
    ///
    /// Both nodes must allow it and have the [`credential`](Self::credential), and be connected over a Unix socket
    /// ([`same_host`](Self::same_host), or a Unix address). The system (Linux, `process_vm_readv`) must allow it,
    /// which it mostly does for processes of one user: not where Yama's `ptrace_scope` is above 0, nor in many
    /// containers. Otherwise the socket carries them; [`LinkReport::one_copy`](crate::explain::LinkReport::one_copy)
    /// says why. Nobody gets rights that the system did not give before.
    ///
    /// A large message that [`flush`](crate::Sender::flush) reports as written may still be in this process alone;
    /// [`sync`](crate::Sender::sync) and `close` wait until the peer has it. The variables `CHUNKCOMM_ONE_COPY=off`
    /// and `CHUNKCOMM_PORTABLE=1` forbid it as well.
    pub fn one_copy(mut self, allowed: bool) -> NodeBuilder {
        self.one_copy = allowed;
        self
    }

    /// Admits only peers that have this credential, and encrypts TCP connections. Unix sockets,
    /// those of [`same_host`](Self::same_host) too, are open to one user: both ends prove themselves
    /// there, and nothing is encrypted. Memory addresses need neither. Each connection costs a round
    /// trip and about a millisecond of computing. Needs the feature `tls`, which is on by default.
    pub fn credential(mut self, credential: Credential) -> NodeBuilder {
        self.credential = Some(CredentialFrom::Given(credential));
        self
    }

    /// As [`NodeBuilder::credential`], from a file that `chunkcomm-credential new`
    /// made. If neither is called, `CHUNKCOMM_CREDENTIAL_FILE` names the file, if it is set.
    pub fn credential_file(mut self, path: impl Into<PathBuf>) -> NodeBuilder {
        self.credential = Some(CredentialFrom::File(path.into()));
        self
    }

    /// Admits peers over TCP by TLS with these configurations instead of the
    /// credential's identity: for users who have a PKI. With a credential, its
    /// proofs come first.
    ///
    /// When this node dials, the peer's certificate must name `server_name`; `None`: the host
    /// that is dialled. Both ends must show a certificate and speak TLS 1.3. The
    /// configurations decide which certificates are taken. Their protocol names (ALPN),
    /// tickets, resumption and early data are not used. [`Peer::certificates`](crate::Peer::certificates) are
    /// those that a peer showed; after a lost connection its session goes on by the same one alone.
    ///
    /// Without a credential a stranger can make the node parse its certificates. The stranger
    /// then costs up to 64 KiB for five seconds instead of 4 KiB. Unix sockets are then
    /// protected by their file's mode alone.
    #[cfg(feature = "tls")]
    pub fn tls_config(
        mut self,
        client: Arc<rustls::ClientConfig>,
        server: Arc<rustls::ServerConfig>,
        server_name: Option<rustls::pki_types::ServerName<'static>>,
    ) -> NodeBuilder {
        self.user_tls = Some(UserTls { client, server, server_name });
        self
    }

    /// Returns the name that the user set, if any.
    pub(crate) fn given_name(&self) -> Option<&str> {
        Some(self.settings.name.as_str()).filter(|name| !name.is_empty())
    }

    /// Returns the settings of the layers that start with the node.
    pub(crate) fn layers(&mut self) -> &mut LayerSettings {
        &mut self.layers
    }

    /// Sets what measurements and tests alone need.
    #[doc(hidden)]
    pub fn experiment(mut self, experiment: Experiment) -> NodeBuilder {
        self.settings.experiment = experiment;
        self
    }

    /// Allows the node to listen at addresses beyond loopback without a credential or TLS
    /// of the user's: anybody who can reach such an address may join.
    pub fn insecure_bind_beyond_loopback(mut self) -> NodeBuilder {
        self.insecure = true;
        self
    }

    /// Writes no warning to standard error.
    ///
    /// A node warns when it ends with messages that may not have arrived, when nobody has accepted a
    /// channel for 5 s, and when the system lets it accept no connection. It warns on `tracing`; if the program has no subscriber for
    /// that, in one line on standard error.
    pub fn quiet(mut self) -> NodeBuilder {
        self.settings.aloud = Aloud::Nothing;
        self
    }

    pub(crate) fn quiet_but_for_accept(mut self) -> NodeBuilder {
        self.settings.aloud = Aloud::AcceptErrors;
        self
    }
}
