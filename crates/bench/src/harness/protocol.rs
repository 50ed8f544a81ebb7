//! What near and far end say to each other, one JSON object a line.

use std::time::Duration;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// First word of a control connection: a stranger is turned away by it.
pub const GREETING: &str = "chunkperf-1";

/// How the two ends reach each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
pub enum Transport {
    /// TCP, over loopback between processes of one machine.
    Tcp,
    /// TCP with a credential that is made for the run: proofs and TLS. Baselines use plain TCP.
    Tls,
    /// A Unix socket.
    Unix,
    /// An in-memory pipe between two threads of one process.
    Memory,
}

/// Which runtime drives the library.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
pub enum RuntimeKind {
    /// The program's own tokio runtime.
    Ambient,
    /// A thread of the node's own.
    IoThread,
    /// The program's own runtime, polled without sleeping.
    BusyPoll,
}

/// A switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
pub enum OnOff {
    /// Enabled.
    On,
    /// Disabled.
    Off,
}

/// One message a call, or many.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
pub enum Api {
    /// `send` and `recv`.
    One,
    /// `send_all` and `recv_many`.
    Many,
}

/// The lane of the measured channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
pub enum LaneKind {
    /// The library's default.
    Bulk,
    /// Overtakes bulk.
    Express,
}

/// When a packet leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum PolicyKind {
    /// The library's default: dynamic chunking.
    Chunked,
    /// Every message its own packet and its own write.
    Unbuffered,
    /// A packet waits this long for company.
    Linger(Duration),
}

/// How a sender that keeps a rate waits for its next message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
pub enum Pace {
    /// It yields until the clock says so: exact, and its core is always busy.
    Spin,
    /// It sleeps on a timer of the system, and sends what came due meanwhile.
    Sleep,
}

/// Where and how an end of ours runs; both ends alike.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// How the ends reach each other.
    pub transport: Transport,
    /// Which runtime drives the library.
    pub runtime: RuntimeKind,
    /// Workers of the tokio runtime; 1 is its current-thread flavour.
    pub threads: usize,
    /// The address that the far end listens on, without port.
    pub host: String,
    /// The far end's core.
    pub core: usize,
}

/// How a node of ours is built.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeKind {
    /// Whether the session is kept (sequence, acknowledgements).
    pub session: bool,
    /// When its packets leave.
    pub policy: PolicyKind,
    /// The fixed size of its packets; none where the library is left to choose.
    pub packet_bytes: Option<usize>,
}

/// One measured connection: what the far end opens.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum End {
    /// Ours: takes typed messages one way.
    Stream {
        /// Encoded bytes of a message.
        bytes: usize,
        /// One a call or many.
        api: Api,
        /// The node.
        node: NodeKind,
    },
    /// Ours: sends every message back, and takes a bulk load beside if asked.
    Echo {
        /// Encoded bytes of a message.
        bytes: usize,
        /// Whether a second channel carries bulk at the same time, in messages of so many
        /// bytes.
        load: Option<usize>,
        /// The lane of the echoed messages.
        lane: LaneKind,
        /// The node.
        node: NodeKind,
    },
    /// Ours: takes large raw messages.
    Bandwidth {
        /// Bytes of a message.
        bytes: usize,
        /// A new buffer for each, or one that is used again.
        fresh: bool,
        /// The node.
        node: NodeKind,
    },
    /// Ours: a service.
    Calls {
        /// Encoded bytes of a request, and of an answer.
        bytes: usize,
        /// The node.
        node: NodeKind,
    },
    /// Ours: a node that many others dial.
    Links {
        /// How many.
        count: usize,
        /// The node.
        node: NodeKind,
    },
    /// Ours: a node of a chain over deltas.
    ChainNode {
        /// The address of the chain's first node.
        head: String,
        /// Its place in the chain, from 1.
        index: usize,
        /// The node.
        node: NodeKind,
    },
    /// Baseline: one-way bytes into one reused buffer.
    RawStream {
        /// Bytes that carry one stamp.
        bytes: usize,
    },
    /// Baseline: every message back at once.
    RawEcho {
        /// Bytes of a message.
        bytes: usize,
        /// Spinning instead of sleeping.
        spin: bool,
    },
    /// Baseline: whatever came is sent back in one write.
    RawCalls {
        /// Bytes of a message.
        bytes: usize,
        /// Spinning instead of sleeping.
        spin: bool,
    },
    /// Baseline: a service by tarpc.
    Tarpc {
        /// Encoded bytes of a request, and of an answer.
        bytes: usize,
    },
    /// Baseline: length-prefixed messages; both hand-batched and one write a message.
    Framed {
        /// Bytes of a message without its prefix.
        bytes: usize,
    },
    /// Baseline: a worker of a farm over a blocking socket.
    HandWorker {
        /// Bytes of a task.
        task_bytes: usize,
        /// How long each task computes, in nanoseconds.
        work_ns: u64,
    },
}

/// One slice of a run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Order {
    /// Number of the first message.
    pub first: u64,
    /// How many messages.
    pub messages: u64,
    /// The time of every so-many-th number is noted; 0 for none.
    pub mark_every: u64,
}

/// What the near end asks for.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Request {
    /// First: who is asking, and where the far end is to run.
    Setup {
        /// [`GREETING`].
        greeting: String,
        /// Where and how.
        place: Place,
    },
    /// Open an end; answered by `Opened`, then `Ready` when the connection is there.
    Open(End),
    /// Run a slice at an end; answered by `Started`, then `Finished`.
    Slice {
        /// Index of the end, in the order of opening.
        end: usize,
        /// What to run.
        order: Order,
    },
    /// Tell what the process uses; answered by `Usage`.
    Usage,
}

/// What the far end answers.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Reply {
    /// The far end runs.
    Greeting {
        /// Tells whether both ends read one clock.
        boot_id: Option<String>,
    },
    /// An end listens at this address.
    Opened {
        /// In the notation of its kind.
        address: String,
    },
    /// The connection of the end that was opened last is there.
    Ready,
    /// A slice is about to be received.
    Started,
    /// A slice was received and verified.
    Finished(Report),
    /// What the process uses.
    Usage(Usage),
    /// What was asked for went wrong.
    Failed(String),
}

/// The far end's account of a slice.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Report {
    /// When the last message was verified, on the far end's clock.
    pub finished_ns: u64,
    /// Processor time the far process used for it.
    pub cpu_ns: u64,
    /// When the marked messages were taken, on the far end's clock.
    pub marks_ns: Vec<u64>,
}

/// What a process uses.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Usage {
    /// Resident bytes, where the system tells.
    pub resident_bytes: Option<u64>,
    /// Switches of all threads so far, where the system tells.
    pub switches: Option<u64>,
}
