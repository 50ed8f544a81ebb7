//! Requests of the near end and replies of the far end, one JSON object a line.

use std::time::Duration;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// First word of a control connection: a stranger without it is turned away.
pub const GREETING: &str = "chunkperf-1";

/// Transport between the two ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
pub enum Transport {
    /// TCP, over loopback between processes of one machine.
    Tcp,
    /// TCP with a credential made for the run: proofs and TLS. Baselines use plain TCP.
    Tls,
    /// A Unix socket.
    Unix,
    /// An in-memory pipe between two threads of one process.
    Memory,
}

/// Runtime that drives the library.
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

/// Number of messages a call: one or many.
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

/// Policy by which a packet leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum PolicyKind {
    /// The library's default: dynamic chunking.
    Chunked,
    /// Every message is its own packet and its own write.
    Unbuffered,
    /// A packet waits this long for further messages.
    Linger(Duration),
}

/// Way in which a sender that keeps a rate waits for its next message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
pub enum Pace {
    /// The sender yields until the message is due: exact, and its core is always busy.
    Spin,
    /// The sender sleeps on a timer of the system, then sends all messages that came due meanwhile.
    Sleep,
}

/// Place and settings of our ends; both ends are alike.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// How the ends reach each other.
    pub transport: Transport,
    /// Runtime that drives the library.
    pub runtime: RuntimeKind,
    /// Workers of the tokio runtime; 1 is its current-thread flavour.
    pub threads: usize,
    /// The address that the far end listens on, without port.
    pub host: String,
    /// The far end's core.
    pub core: usize,
}

/// Settings of a node of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeKind {
    /// Whether the session is kept (sequence, acknowledgements).
    pub session: bool,
    /// Policy by which its packets leave.
    pub policy: PolicyKind,
    /// Fixed size of its packets, in bytes; with `None` the library chooses.
    pub packet_bytes: Option<usize>,
    /// Number of channels that each of its links has memory for; with `None` the library's default.
    pub channels: Option<usize>,
}

/// Messages over tokio-util's `Framed`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FramedKind {
    /// Bytes of a message without its length.
    pub bytes: usize,
    /// Direction and contents of the messages.
    pub used: FramedUse,
    /// Bytes of the buffers of reads and writes at either end; with `None` the default.
    pub boundary: Option<usize>,
}

impl FramedKind {
    /// A connection that carries nothing.
    pub const IDLE: Self = Self { bytes: 0, used: FramedUse::OneWay, boundary: None };
}

/// Direction and contents of messages over `Framed`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum FramedUse {
    /// Typed messages one way.
    OneWay,
    /// Typed messages, each of them answered.
    RoundTrip,
    /// Bytes one way.
    Payload,
}

/// System of connections that are held and carry nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum HeldKind {
    /// tokio-util's `Framed`.
    Framed,
    /// A service by tarpc.
    Tarpc,
}

/// One measured connection: an end that the far end opens.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum End {
    /// Ours: takes typed messages one way.
    Stream {
        /// Encoded bytes of a message.
        bytes: usize,
        /// Number of messages a call.
        api: Api,
        /// Number of idle channels on the same link.
        idle: usize,
        /// The node.
        node: NodeKind,
    },
    /// Ours: sends every message back, and takes a bulk load on a second channel if asked.
    Echo {
        /// Encoded bytes of a message.
        bytes: usize,
        /// Bytes of a message of the bulk load on a second channel; `None` without a load.
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
        /// Whether each message gets a new buffer, instead of one that is used again.
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
        /// Number of links.
        count: usize,
        /// Whether it feeds those that subscribe.
        feeds: bool,
        /// The node.
        node: NodeKind,
    },
    /// Ours: a node of a chain over deltas.
    ChainNode {
        /// The address of the chain's first node.
        head: String,
        /// Place of the node in the chain, from 1.
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
        /// Whether the end spins instead of sleeping.
        spin: bool,
    },
    /// Baseline: all bytes that came are sent back in one write.
    RawCalls {
        /// Bytes of a message.
        bytes: usize,
        /// Whether the end spins instead of sleeping.
        spin: bool,
    },
    /// Baseline: a service by tarpc.
    Tarpc {
        /// Encoded bytes of a request, and of an answer.
        bytes: usize,
    },
    /// Baseline: messages over tokio-util's `Framed`.
    Framed(FramedKind),
    /// Baseline: connections of another system that carry nothing.
    Held(HeldKind),
    /// Baseline: length-prefixed messages; both hand-batched and one write a message.
    Gathered {
        /// Bytes of a message without its prefix.
        bytes: usize,
    },
    /// Baseline: a worker of a farm over a blocking socket.
    HandWorker {
        /// Bytes of a task.
        task_bytes: usize,
        /// Iterations that each task computes.
        work_iterations: u64,
    },
}

/// One slice of a run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Order {
    /// Number of the first message.
    pub first: u64,
    /// Number of messages.
    pub messages: u64,
    /// Gap between two numbers whose times are noted; 0 for none.
    pub mark_every: u64,
}

/// Request of the near end.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Request {
    /// The first request: the near end's greeting, and the place of the far end.
    Setup {
        /// [`GREETING`].
        greeting: String,
        /// Place and settings of the far end.
        place: Place,
    },
    /// Open an end; answered by `Opened`, then `Ready` when the connection is made.
    Open(End),
    /// Run a slice at an end; answered by `Started`, then `Finished`.
    Slice {
        /// Index of the end, in the order of opening.
        end: usize,
        /// The slice to run.
        order: Order,
    },
    /// Report the usage of the process; answered by `Usage`.
    Usage,
    /// Report the processor time of the process; answered by `Cpu`. Costs little itself.
    Cpu,
}

/// Reply of the far end.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Reply {
    /// The far end runs.
    Greeting {
        /// Id of the host's boot, equal if both ends read one clock.
        boot_id: Option<String>,
    },
    /// An end listens at this address.
    Opened {
        /// The address, in the notation of its kind.
        address: String,
    },
    /// The connection of the end that was opened last is made.
    Ready,
    /// A slice is about to be received.
    Started,
    /// A slice was received and verified.
    Finished(Report),
    /// Usage of the process.
    Usage(Usage),
    /// Processor time of all threads since the process began, in nanoseconds.
    Cpu(u64),
    /// The request failed, with this reason.
    Failed(String),
}

/// The far end's account of a slice.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Report {
    /// Time when the last message was verified, on the far end's clock, in nanoseconds.
    pub finished_ns: u64,
    /// Processor time that the far process used for the slice, in nanoseconds.
    pub cpu_ns: u64,
    /// Times when the marked messages were taken, on the far end's clock, in nanoseconds.
    pub marks_ns: Vec<u64>,
}

/// Memory and switches of a process.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Usage {
    /// Resident bytes, if the system reports them.
    pub resident_bytes: Option<u64>,
    /// Switches of all threads since the process began, if the system reports them.
    pub switches: Option<u64>,
}

impl Usage {
    /// Returns the sum of both.
    pub fn plus(self, other: Self) -> Self {
        let sum = |one: Option<u64>, other: Option<u64>| Some(one? + other?);
        Self {
            resident_bytes: sum(self.resident_bytes, other.resident_bytes),
            switches: sum(self.switches, other.switches),
        }
    }

    /// Returns the bytes by which memory has grown since `before`.
    pub fn grown_bytes(self, before: Self) -> Option<f64> {
        Some(self.resident_bytes?.saturating_sub(before.resident_bytes?) as f64)
    }

    /// Returns the switches a second since `before`, which was taken `time` ago.
    pub fn wakeups_per_second(self, before: Self, time: Duration) -> Option<f64> {
        Some(self.switches?.saturating_sub(before.switches?) as f64 / time.as_secs_f64())
    }
}
