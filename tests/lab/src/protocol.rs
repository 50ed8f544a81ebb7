//! Requests of the lab and replies of its node processes, one JSON object a line.

use chunkcomm::stats::PeerStats;
use chunkcomm_bench::harness::protocol::{Place, Usage};
use serde::{Deserialize, Serialize};

/// Request of the lab to a node process. Each request has one reply.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Request {
    /// The first request: place and settings of the process.
    Setup {
        /// Place and settings, as for the far ends of measurements.
        place: Place,
        /// Silence after which a session is given up for dead, in milliseconds.
        dead_ms: u64,
        /// Seed of the bytes of all messages.
        seed: u64,
    },
    /// Build a node that listens.
    Listen,
    /// Build nodes that dial, one link each.
    Dial {
        /// Number of links.
        count: usize,
        /// Address to dial.
        address: String,
    },
    /// Accept the links of `count` peers that dial.
    Meet {
        /// Number of links.
        count: usize,
    },
    /// Begin to send or to receive.
    Start(Work),
    /// Close the channels of senders without end.
    Stop,
    /// Wait for all work that was started.
    Collect,
    /// Send one number over each link and wait until it is acknowledged.
    Round {
        /// The number.
        number: u64,
    },
    /// Usage of the process.
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
    /// Accepts a channel and verifies its messages until it ends.
    Consume {
        /// The channel.
        channel: String,
        /// Encoded bytes of a message.
        bytes: usize,
        /// Messages a second; with `None` as many as come.
        rate: Option<u64>,
        /// Whether the times without a message are noted: their list grows.
        silences: bool,
    },
    /// Accepts the rounds' channels of `links` links and verifies their numbers.
    ConsumeRounds {
        /// Number of links.
        links: usize,
    },
}

/// Reply of a node process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Reply {
    /// The process runs.
    Ready {
        /// Number of files that the process may open.
        files: u64,
    },
    /// A node listens.
    Listening {
        /// Its address.
        address: String,
    },
    /// The request was carried out.
    Done,
    /// The work has ended.
    Collected(Collected),
    /// A round is over.
    Rounded {
        /// Times when each link's number was acknowledged, on the host's clock, in nanoseconds.
        acknowledged_ns: Vec<u64>,
        /// Errors of the other links, at most three.
        failures: Vec<String>,
    },
    /// Usage of the process.
    Usage {
        /// Memory and switches.
        usage: Usage,
        /// Messages taken so far, by work in the order of its start.
        taken: Vec<u64>,
    },
    /// The request failed, with this reason.
    Failed(String),
}

/// Outcome of a process's work.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Collected {
    /// Outcomes of each work, in the order of its start.
    pub outcomes: Vec<Outcome>,
    /// Panics in any thread of the process.
    pub panics: u64,
}

/// Outcome of one end of a channel.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Outcome {
    /// Number of messages that `send` accepted, or that were taken and found right.
    pub messages: u64,
    /// Fault of the message after these.
    pub fault: Option<Fault>,
    /// Error that ended the channel, if it did not end as its sender wished.
    pub error: Option<Ended>,
    /// Times without a message, noted by a receiver.
    pub silences: Vec<Silence>,
    /// Time when the first message was accepted or taken, in nanoseconds.
    pub began_ns: u64,
    /// Time when the last message was, or when the error came, in nanoseconds.
    pub ended_ns: u64,
    /// Counts of the link's end.
    pub link: LinkCounts,
}

/// Counts of one end of a link.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct LinkCounts {
    /// Lost connections after which the session continued.
    pub resumes: u64,
    /// Packets sent again.
    pub packets_resent: u64,
    /// Packets that came again.
    pub packets_duplicate: u64,
}

impl LinkCounts {
    /// Returns the counts of a peer's statistics.
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
    /// Text of the error.
    pub text: String,
    /// Name of the peer, as the link reports it.
    pub peer: String,
    /// Accepted and acknowledged messages, if the error has them.
    pub account: Option<(u64, u64)>,
}

/// Fault of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fault {
    /// Messages before it did not come.
    Missing {
        /// The number that was due.
        due: u64,
        /// The number that came.
        came: u64,
    },
    /// The message has come before, or belongs before others that came.
    Again {
        /// The number that was due.
        due: u64,
        /// The number that came.
        came: u64,
    },
    /// The message is not the one that was sent.
    Wrong {
        /// The number that was due.
        due: u64,
    },
    /// The library could not decode the message, and reported so.
    Undecodable {
        /// The number that was due.
        due: u64,
    },
}

/// A time without a message, on the host's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Silence {
    /// Time of the last message before the silence, in nanoseconds.
    pub from_ns: u64,
    /// Time of the first message after the silence, in nanoseconds.
    pub to_ns: u64,
}

impl Outcome {
    /// Returns the seconds from the first message to the end.
    pub fn seconds(&self) -> f64 {
        self.ended_ns.saturating_sub(self.began_ns) as f64 / 1e9
    }
}
