//! What the lab and its node processes say to each other, one JSON object a line.

use chunkcomm::PeerStats;
use serde::{Deserialize, Serialize};

use crate::harness::protocol::{Place, Usage};

/// What the lab asks a node process for. Each request has one reply.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Request {
    /// First: where and how the process runs.
    Setup {
        /// As for the far ends of measurements.
        place: Place,
        /// A session is given up for dead after so many milliseconds.
        dead_ms: u64,
        /// Seed of the bytes of all messages.
        seed: u64,
    },
    /// Build a node that listens.
    Listen,
    /// Build nodes that dial, each one link.
    Dial {
        /// How many.
        count: usize,
        /// Whom.
        address: String,
    },
    /// Take the links of so many peers that dial.
    Meet {
        /// How many.
        count: usize,
    },
    /// Begin to send or to receive.
    Start(Work),
    /// Whoever sends without end closes its channel.
    Stop,
    /// Wait for all work that was started.
    Collect,
    /// Send one number over each link and wait until it is acknowledged.
    Round {
        /// The number.
        number: u64,
    },
    /// What the process uses.
    Usage,
}

/// One end of a channel.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Work {
    /// Opens a channel over the first link and sends until stopped.
    Produce {
        /// The channel.
        channel: String,
        /// Encoded bytes of a message.
        bytes: usize,
    },
    /// Accepts a channel and verifies what comes until it ends.
    Consume {
        /// The channel.
        channel: String,
        /// Encoded bytes of a message.
        bytes: usize,
        /// Messages a second; none for as many as come.
        rate: Option<u64>,
        /// Note the times without a message: their list grows.
        silences: bool,
    },
    /// Accepts the rounds' channels of so many links and verifies their numbers.
    ConsumeRounds {
        /// How many.
        links: usize,
    },
}

/// What a node process answers.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Reply {
    /// It runs.
    Ready {
        /// Files that it may open.
        files: u64,
    },
    /// A node listens.
    Listening {
        /// Where.
        address: String,
    },
    /// Done.
    Done,
    /// The work has ended.
    Collected(Collected),
    /// A round is over.
    Rounded {
        /// When each link's number was acknowledged, on the host's clock.
        acknowledged_ns: Vec<u64>,
        /// What the other links said.
        failures: Vec<String>,
    },
    /// What the process uses.
    Usage {
        /// Memory and switches.
        usage: Usage,
        /// Messages taken so far, by work in the order of its start.
        taken: Vec<u64>,
    },
    /// What was asked for went wrong.
    Failed(String),
}

/// How the work of a process went.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Collected {
    /// In the order of its start.
    pub outcomes: Vec<Outcome>,
    /// Panics in any thread of the process.
    pub panics: u64,
}

/// How one end of a channel went.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Outcome {
    /// Messages that `send` accepted, or that were taken and found right.
    pub messages: u64,
    /// What was wrong with the message after these.
    pub fault: Option<Fault>,
    /// How the channel ended if not as its sender wished.
    pub error: Option<Ended>,
    /// Times without a message, of a receiver.
    pub silences: Vec<Silence>,
    /// When the first message was accepted or taken.
    pub began_ns: u64,
    /// When the last was, or when the error came.
    pub ended_ns: u64,
    /// What the link's end counted.
    pub link: LinkCounts,
}

/// What one end of a link counted.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct LinkCounts {
    /// Lost connections after which the session went on.
    pub resumes: u64,
    /// Packets sent again.
    pub packets_resent: u64,
    /// Packets that came again.
    pub packets_duplicate: u64,
}

impl LinkCounts {
    /// Of a peer's statistics.
    pub fn of(stats: &PeerStats) -> Self {
        Self {
            resumes: stats.resumes,
            packets_resent: stats.packets_resent,
            packets_duplicate: stats.packets_duplicate,
        }
    }
}

/// An error of a sender or receiver.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Ended {
    /// Its text.
    pub text: String,
    /// The peer's name, as the link says it.
    pub peer: String,
    /// Accepted and acknowledged messages, where the error says so.
    pub account: Option<(u64, u64)>,
}

/// What was wrong with a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fault {
    /// Messages before it did not come.
    Missing {
        /// The number that was due.
        due: u64,
        /// The number that came.
        came: u64,
    },
    /// It has come before, or belongs before others that came.
    Again {
        /// The number that was due.
        due: u64,
        /// The number that came.
        came: u64,
    },
    /// It is not what was sent.
    Wrong {
        /// The number that was due.
        due: u64,
    },
    /// The library could not decode it, and said so.
    Undecodable {
        /// The number that was due.
        due: u64,
    },
}

/// A time without a message, on the host's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Silence {
    /// The last message before it.
    pub from_ns: u64,
    /// The first after it.
    pub to_ns: u64,
}

impl Outcome {
    /// From the first message to the end.
    pub fn seconds(&self) -> f64 {
        self.ended_ns.saturating_sub(self.began_ns) as f64 / 1e9
    }
}
