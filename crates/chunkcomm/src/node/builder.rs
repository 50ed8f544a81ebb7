//! [`NodeBuilder`]: the settings of a node, their defaults and what is allowed.

use super::accepting::AcceptTable;
use super::admission::Admission;
#[cfg(feature = "tls")]
use super::admission::UserTls;
use super::listening::accept_loop;
use super::{Node, NodeShared};
use crate::credential::Credential;
use crate::driver::buffers::Buffers;
use crate::driver::{clock, entropy};
use crate::error::NodeError;
use crate::launch::portable_only;
use crate::proto::flush::Policy;
use crate::proto::hello::{Hello, NAME_BYTES_MAX, Name};
use crate::proto::limits::{
    AGE_BOUND_MS_DEFAULT, DEAD_MS_DEFAULT, INLINE_BYTES_MAX, MESSAGE_BYTES_DEFAULT,
    OPEN_CREDIT_DIVISOR, PACKET_BYTES_DEFAULT, PACKET_BYTES_LARGEST, PACKET_BYTES_MIN,
    PROBE_MS_DEFAULT, RESEND_BYTES_DEFAULT, RESEND_BYTES_MIN, SUSPECT_MS_DEFAULT,
    WINDOW_BYTES_INITIAL, WINDOW_BYTES_LINK_DEFAULT,
};
use crate::proto::liveness::Silence;
use crate::transport::Home;
use crate::transport::spin::{Spinner, spin};
use crate::{Address, transport};
use std::fmt::Display;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::thread;
use std::time::Duration;
use tokio::runtime::{Builder, Handle, RuntimeFlavor};
use tokio::sync::oneshot;

/// The environment variable that sets the age bound in milliseconds.
pub const AGE_BOUND_VARIABLE: &str = "CHUNKCOMM_AGE_BOUND_MS";

/// The environment variable that names the credential's file.
pub const CREDENTIAL_FILE_VARIABLE: &str = "CHUNKCOMM_CREDENTIAL_FILE";

/// What a node is built with.
#[derive(Debug, Clone)]
pub(super) struct Settings {
    pub(super) name: String,
    pub(super) cluster: String,
    pub(super) policy: Policy,
    pub(super) packet_bytes_max: usize,
    pub(super) age_bound: Duration,
    pub(super) message_bytes_max: u64,
    pub(super) window_bytes_max: u64,
    pub(super) session: bool,
    pub(super) resend_bytes_max: usize,
    pub(super) silence: Silence,
}

/// Settings of a node to be built; see [`Node::builder`].
#[derive(Debug, Clone)]
#[must_use]
pub struct NodeBuilder {
    settings: Settings,
    age_bound_set: bool,
    listen: Vec<Address>,
    io_thread: bool,
    busy_poll: bool,
    insecure: bool,
    credential: Option<CredentialFrom>,
    #[cfg(feature = "tls")]
    user_tls: Option<UserTls>,
}

/// Where a credential comes from.
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
                cluster: "default".to_owned(),
                policy: Policy::default(),
                packet_bytes_max: PACKET_BYTES_DEFAULT,
                age_bound: Duration::from_millis(AGE_BOUND_MS_DEFAULT),
                message_bytes_max: MESSAGE_BYTES_DEFAULT,
                window_bytes_max: WINDOW_BYTES_LINK_DEFAULT,
                resend_bytes_max: RESEND_BYTES_DEFAULT,
                silence: Silence {
                    probe: Duration::from_millis(PROBE_MS_DEFAULT),
                    suspect: Duration::from_millis(SUSPECT_MS_DEFAULT),
                    dead: Duration::from_millis(DEAD_MS_DEFAULT),
                },
                session: true,
            },
            age_bound_set: false,
            listen: Vec::new(),
            io_thread: false,
            busy_poll: false,
            insecure: false,
            credential: None,
            #[cfg(feature = "tls")]
            user_tls: None,
        }
    }
}

impl NodeBuilder {
    /// What peers call this node, at most 32 bytes; by default a name from its
    /// random incarnation.
    pub fn name(mut self, name: impl Into<String>) -> NodeBuilder {
        self.settings.name = name.into();
        self
    }

    /// The cluster's name, at most 32 bytes, `default` by default. Nodes of other
    /// clusters are refused.
    pub fn cluster(mut self, cluster: impl Into<String>) -> NodeBuilder {
        self.settings.cluster = cluster.into();
        self
    }

    /// Listens here too. Without any address the node only connects.
    pub fn listen(mut self, address: Address) -> NodeBuilder {
        self.listen.push(address);
        self
    }

    /// When packets leave; [`Policy::Chunked`] by default.
    pub fn policy(mut self, policy: Policy) -> NodeBuilder {
        self.settings.policy = policy;
        self
    }

    /// Size of a full packet in bytes, header included: 1 KiB to 1 MiB, 64 KiB by
    /// default. A larger one saves system calls and delays small messages of
    /// other channels.
    pub fn packet_bytes_max(mut self, bytes: usize) -> NodeBuilder {
        self.settings.packet_bytes_max = bytes;
        self
    }

    /// Longest wait of a packet's oldest message while the runtime runs, 1 ms by
    /// default or what `CHUNKCOMM_AGE_BOUND_MS` says; tokio's timers step one
    /// millisecond.
    pub fn age_bound(mut self, bound: Duration) -> NodeBuilder {
        self.settings.age_bound = bound;
        self.age_bound_set = true;
        self
    }

    /// Largest message in encoded bytes that this node takes, 32 MiB by default:
    /// also what a link may spend on one large message beside its windows.
    pub fn message_bytes_max(mut self, bytes: usize) -> NodeBuilder {
        self.settings.message_bytes_max = bytes as u64;
        self
    }

    /// Memory in bytes that all channels of one link together may hold at this
    /// end as receivers, 16 MiB by default. Half of it is set aside for the
    /// first 16 KiB of each channel.
    pub fn window_bytes_max(mut self, bytes: usize) -> NodeBuilder {
        self.settings.window_bytes_max = bytes as u64;
        self
    }

    /// Drives the links on a thread of their own, for programs whose tasks
    /// compute without yielding. Costs a wake-up of that thread a message that
    /// finds it asleep. Needs no runtime around.
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

    /// How long a peer may be silent while something waits for it: until it is
    /// asked for a sign of life, until its connection is given up and dialled
    /// anew, and until its session is dead. A lost connection may take the last of
    /// these to come back. 1 s, 3 s and 10 s by default; a peer that nothing waits
    /// for is asked every 30 s.
    pub fn liveness(mut self, probe: Duration, suspect: Duration, dead: Duration) -> NodeBuilder {
        self.settings.silence = Silence { probe, suspect, dead };
        self
    }

    /// About how many bytes a link keeps of what its peer has not acknowledged, to
    /// send them again after a lost connection; with so many `send` waits. 4 MiB
    /// by default, at least 1.25 MiB.
    pub fn resend_bytes_max(mut self, bytes: usize) -> NodeBuilder {
        self.settings.resend_bytes_max = bytes;
        self
    }

    /// Admits only peers that have this credential, and encrypts what is said over
    /// TCP. Unix sockets are for one user and carry proofs only; memory needs
    /// nothing. Costs a round trip and about a millisecond of computing a
    /// connection. Needs the feature `tls`, which is on by default.
    pub fn credential(mut self, credential: Credential) -> NodeBuilder {
        self.credential = Some(CredentialFrom::Given(credential));
        self
    }

    /// As [`NodeBuilder::credential`], from a file that `chunkcomm-credential new`
    /// made. If neither is called, the file that `CHUNKCOMM_CREDENTIAL_FILE` names
    /// is taken, if it names one.
    pub fn credential_file(mut self, path: impl Into<PathBuf>) -> NodeBuilder {
        self.credential = Some(CredentialFrom::File(path.into()));
        self
    }

    /// Admits peers over TCP by TLS with these configurations instead of the
    /// credential's identity: for those who have a PKI. With a credential, its
    /// proofs come first.
    ///
    /// `server_name` is whom a certificate must name when this node dials; `None`:
    /// the host that is dialled. Both ends must show a certificate and speak TLS
    /// 1.3. The configurations decide what certificates are taken; their protocol
    /// names (ALPN), tickets, resumption and early data are not used.
    ///
    /// Without a credential a stranger can make the node parse its certificates
    /// and costs up to 64 KiB for five seconds instead of 4 KiB; Unix sockets are
    /// then protected by their file's mode alone.
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

    /// Allows to listen where other machines can connect without a credential or
    /// TLS of the user's: anybody who can reach the address may join.
    pub fn insecure_bind_beyond_loopback(mut self) -> NodeBuilder {
        self.insecure = true;
        self
    }

    /// Leaves out acknowledgements, to measure what they cost: `sync` and `close`
    /// then say no more than that everything was put in packets. Both ends must
    /// agree.
    pub fn session_off_for_measuring(mut self) -> NodeBuilder {
        self.settings.session = false;
        self
    }

    /// Builds the node: listens and starts to accept.
    ///
    /// # Errors
    ///
    /// A setting is impossible, an address is taken or not allowed, or there is
    /// no runtime.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it returns, there is no node.
    pub async fn build(mut self) -> Result<Node, NodeError> {
        self.read_environment()?;
        let admission = self.admission()?;
        self.check(&admission)?;
        let io_thread = if self.io_thread { Some(IoThread::start()?) } else { None };
        let runtime = match &io_thread {
            Some(thread) => thread.handle.clone(),
            None => Handle::try_current().map_err(|_| NodeError::NoRuntime)?,
        };
        let one_thread = runtime.runtime_flavor() == RuntimeFlavor::CurrentThread;
        if self.busy_poll && !one_thread {
            return Err(setting("busy_poll", "on", "with io_thread or a runtime of one thread"));
        }
        // Asked here: the task below is nobody's program.
        let home = Home::of(&self.listen);
        let built = self.build_on(runtime.clone(), one_thread, io_thread, home, admission);
        let task = runtime.spawn(built);
        task.await.map_err(|_| NodeError::NoRuntime)?
    }

    async fn build_on(
        self,
        runtime: Handle,
        one_thread: bool,
        io_thread: Option<IoThread>,
        home: Home,
        admission: Admission,
    ) -> Result<Node, NodeError> {
        let mut listeners = Vec::new();
        for address in &self.listen {
            let listener = transport::listen(address).await.map_err(|error| NodeError::Listen {
                address: address.clone(),
                error: Arc::new(error),
            })?;
            listeners.push(listener);
        }
        let hello = self.hello()?;
        let system = |error| NodeError::System(Arc::new(error));
        let spinner = self.busy_poll.then(|| Spinner::new(portable_only())).transpose();
        let spinner = spinner.map_err(system)?;
        let addresses = listeners.iter().map(|listener| listener.address()).collect();
        let shared = Arc::new_cyclic(|node: &Weak<NodeShared>| {
            let tasks: Vec<_> = listeners
                .into_iter()
                .map(|listener| runtime.spawn(accept_loop(listener, node.clone())).abort_handle())
                .collect();
            if let Some(spinner) = &spinner {
                runtime.spawn(spin(Arc::downgrade(spinner)));
            }
            let table = Arc::new(AcceptTable::default());
            if let Some(thread) = &io_thread {
                thread.watch(&table);
            }
            NodeShared {
                settings: self.settings,
                hello,
                admission,
                runtime,
                one_thread,
                table,
                buffers: Arc::new(Buffers::default()),
                addresses,
                home,
                tasks,
                spinner: Mutex::new(spinner),
                local: tokio::sync::Mutex::new(None),
                _io_thread: io_thread,
            }
        });
        Ok(Node { shared })
    }

    fn read_environment(&mut self) -> Result<(), NodeError> {
        if self.age_bound_set {
            return Ok(());
        }
        let Ok(text) = std::env::var(AGE_BOUND_VARIABLE) else { return Ok(()) };
        let bound = text.parse::<u64>().ok().filter(|ms| (1..=60_000).contains(ms));
        let bound = bound.ok_or_else(|| {
            setting(AGE_BOUND_VARIABLE, &text, "a whole number of milliseconds from 1 to 60000")
        })?;
        self.settings.age_bound = Duration::from_millis(bound);
        Ok(())
    }

    fn admission(&self) -> Result<Admission, NodeError> {
        let from = self.credential.clone().or_else(|| {
            std::env::var_os(CREDENTIAL_FILE_VARIABLE).map(|path| CredentialFrom::File(path.into()))
        });
        let credential = match from {
            None => None,
            Some(CredentialFrom::Given(credential)) => Some(credential),
            Some(CredentialFrom::File(path)) => {
                Some(Credential::load(path).map_err(NodeError::Credential)?)
            }
        };
        Admission::new(
            credential.as_ref(),
            #[cfg(feature = "tls")]
            self.user_tls.as_ref(),
        )
    }

    fn check(&self, admission: &Admission) -> Result<(), NodeError> {
        let settings = &self.settings;
        let packet = settings.packet_bytes_max;
        if !(PACKET_BYTES_MIN..=PACKET_BYTES_LARGEST).contains(&packet) {
            let allowed = format!("{PACKET_BYTES_MIN} to {PACKET_BYTES_LARGEST}");
            return Err(setting("packet_bytes_max", packet, allowed));
        }
        if settings.message_bytes_max < INLINE_BYTES_MAX as u64 {
            let allowed = format!("at least {INLINE_BYTES_MAX}");
            return Err(setting("message_bytes_max", settings.message_bytes_max, allowed));
        }
        let window_min = OPEN_CREDIT_DIVISOR * WINDOW_BYTES_INITIAL;
        if settings.window_bytes_max < window_min {
            let allowed = format!("at least {window_min}");
            return Err(setting("window_bytes_max", settings.window_bytes_max, allowed));
        }
        if settings.resend_bytes_max < RESEND_BYTES_MIN {
            let allowed = format!("at least {RESEND_BYTES_MIN}");
            return Err(setting("resend_bytes_max", settings.resend_bytes_max, allowed));
        }
        let Silence { probe, suspect, dead } = settings.silence;
        if probe < Duration::from_millis(10) || suspect < probe || dead < suspect {
            let value = format!("{probe:?}, {suspect:?}, {dead:?}");
            return Err(setting("liveness", value, "10 ms <= probe <= suspect <= dead"));
        }
        for (name, value) in [("name", &settings.name), ("cluster", &settings.cluster)] {
            if value.len() > NAME_BYTES_MAX {
                let allowed = format!("at most {NAME_BYTES_MAX} bytes");
                return Err(setting(name, value, allowed));
            }
        }
        for address in &self.listen {
            if !self.insecure && !admission.protects() && !address.is_loopback_only() {
                return Err(NodeError::BeyondLoopback { address: address.clone() });
            }
        }
        Ok(())
    }

    fn hello(&self) -> Result<Hello, NodeError> {
        let mut random = [0; 16];
        entropy::fill(&mut random)
            .map_err(|error| NodeError::System(Arc::new(io::Error::other(error))))?;
        let settings = &self.settings;
        let mut hello = Hello::new(
            Name::truncated(&settings.cluster),
            Name::truncated(&settings.name),
            u128::from_le_bytes(random),
        );
        // Larger packets than we build ourselves are taken up to the default.
        hello.packet_bytes_max = settings.packet_bytes_max.max(PACKET_BYTES_DEFAULT) as u32;
        hello.message_bytes_max = settings.message_bytes_max;
        hello.open_credit = settings.window_bytes_max / OPEN_CREDIT_DIVISOR;
        hello.initial_window = WINDOW_BYTES_INITIAL as u32;
        Ok(hello)
    }
}

fn setting(name: &'static str, value: impl Display, allowed: impl Into<String>) -> NodeError {
    NodeError::Setting { name, value: value.to_string(), allowed: allowed.into() }
}

/// The thread of `io_thread`: a runtime of its own that ends after the node,
/// once its links have ended.
pub(super) struct IoThread {
    handle: Handle,
    table: Arc<OnceLock<Arc<AcceptTable>>>,
    end: Option<oneshot::Sender<()>>,
}

/// The thread waits so long for its links to end.
const IO_THREAD_LINGER: Duration = Duration::from_secs(5);

impl IoThread {
    fn start() -> Result<IoThread, NodeError> {
        let system = |error| NodeError::System(Arc::new(error));
        let runtime = Builder::new_current_thread().enable_all().build().map_err(system)?;
        let handle = runtime.handle().clone();
        let table = Arc::new(OnceLock::<Arc<AcceptTable>>::new());
        let (end, ended) = oneshot::channel();
        let watched = Arc::clone(&table);
        thread::Builder::new()
            .name("chunkcomm-io".to_owned())
            .spawn(move || {
                runtime.block_on(async move {
                    let _ = ended.await;
                    if let Some(table) = watched.get() {
                        let here = Handle::current();
                        let _ = clock::within(&here, IO_THREAD_LINGER, table.all_ended()).await;
                    }
                });
            })
            .map_err(system)?;
        Ok(IoThread { handle, table, end: Some(end) })
    }

    fn watch(&self, table: &Arc<AcceptTable>) {
        let _ = self.table.set(Arc::clone(table));
    }
}

impl Drop for IoThread {
    fn drop(&mut self) {
        if let Some(end) = self.end.take() {
            let _ = end.send(());
        }
    }
}
