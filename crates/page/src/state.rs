//! The form of what is shown: of a node, as members send it to each other, and of everything, as browsers get it.

use chunkcomm::report::{Report, Section};
use serde::{Deserialize, Serialize};

/// Version of the form. A browser's page has the version of its server.
pub(crate) const VERSION: u16 = 1;

/// A node at one moment, as a member sends it.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct NodeState {
    pub(crate) version: u16,
    /// Number of gatherings so far; 0 while the node has never gathered.
    pub(crate) gathered: u64,
    pub(crate) node: String,
    pub(crate) links: Vec<LinkState>,
    pub(crate) links_left_out: u64,
    pub(crate) channels: Vec<ChannelState>,
    pub(crate) channels_left_out: u64,
    pub(crate) waits: Vec<WaitState>,
    pub(crate) warnings: Vec<WarningState>,
    pub(crate) refusals: Vec<String>,
    pub(crate) report: Report,
    /// The text of `explain`, cut.
    pub(crate) explain: String,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct LinkState {
    pub(crate) peer: String,
    pub(crate) state: String,
    pub(crate) is_well: bool,
    pub(crate) way: String,
    pub(crate) silence_us: u64,
    pub(crate) round_trip_us: Option<u64>,
    pub(crate) kept_bytes: u64,
    pub(crate) waits_for: Option<String>,
    pub(crate) trouble: Option<String>,
    pub(crate) counts: Counts,
    /// Counts of each flush reason.
    pub(crate) flushes: Vec<(String, u64)>,
    /// Rates over the last second.
    pub(crate) rates: Option<Rates>,
}

/// Counts of a session.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct Counts {
    pub(crate) messages_sent: u64,
    pub(crate) messages_received: u64,
    pub(crate) packets_sent: u64,
    pub(crate) message_packets_sent: u64,
    pub(crate) packets_received: u64,
    pub(crate) bytes_sent: u64,
    pub(crate) bytes_received: u64,
    pub(crate) writes: u64,
    pub(crate) reads: u64,
    pub(crate) credit_waits: u64,
    pub(crate) resumes: u64,
    pub(crate) packets_resent: u64,
    pub(crate) cycles: u64,
    pub(crate) queueing_delay_us: u64,
}

/// Rates a second.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct Rates {
    pub(crate) messages_sent: f64,
    pub(crate) messages_received: f64,
    pub(crate) bytes_sent: f64,
    pub(crate) bytes_received: f64,
    /// Messages a packet with messages, in this time.
    pub(crate) messages_per_packet: f64,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct ChannelState {
    pub(crate) peer: String,
    pub(crate) channel: String,
    pub(crate) is_sending: bool,
    /// Messages that are staged, of a sending channel.
    pub(crate) staged: u64,
    pub(crate) sent: u64,
    pub(crate) unacknowledged: u64,
    pub(crate) credit_bytes: u64,
    /// Bytes that nobody has taken, of a receiving channel.
    pub(crate) unread_bytes: u64,
    pub(crate) is_awaited: bool,
    pub(crate) waits_for: Option<String>,
    pub(crate) oldest_us: Option<u64>,
}

/// Something waits.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct WaitState {
    pub(crate) what: String,
    /// Time of the wait, where it is known.
    pub(crate) for_us: Option<u64>,
    /// Whether nodes wait for each other in a ring.
    pub(crate) is_cycle: bool,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct WarningState {
    pub(crate) node: String,
    pub(crate) text: String,
    pub(crate) age_us: u64,
}

/// Everything, as a browser gets it.
#[derive(Debug, Serialize)]
pub(crate) struct Shown<'a> {
    pub(crate) version: u16,
    pub(crate) title: &'a str,
    /// The time, in milliseconds since 1970.
    pub(crate) at_ms: u64,
    pub(crate) started_ms: u64,
    /// Whether the program has ended, and this is its last state.
    pub(crate) ended: bool,
    /// Key of the node that serves the page.
    pub(crate) here: &'a str,
    /// Key of the node in `node`.
    pub(crate) selected: &'a str,
    pub(crate) is_cluster: bool,
    pub(crate) members: &'a [MemberState],
    pub(crate) members_left_out: u64,
    pub(crate) events: Vec<EventState>,
    /// Waits of all nodes.
    pub(crate) waits: Vec<(&'a str, &'a WaitState)>,
    /// Warnings of all nodes.
    pub(crate) warnings: Vec<(&'a str, &'a WarningState)>,
    /// Sections of all nodes.
    pub(crate) sections: Vec<(&'a str, &'a Section)>,
    pub(crate) sections_left_out: u64,
    /// The selected node, without its sections; `None` while it has not reported.
    pub(crate) node: Option<NodeDetail<'a>>,
}

#[derive(Debug, Serialize)]
pub(crate) struct NodeDetail<'a> {
    pub(crate) node: &'a str,
    /// Age of the report, in milliseconds.
    pub(crate) age_ms: u64,
    pub(crate) gathered: u64,
    pub(crate) links: &'a [LinkState],
    pub(crate) links_left_out: u64,
    pub(crate) channels: &'a [ChannelState],
    pub(crate) channels_left_out: u64,
    pub(crate) refusals: &'a [String],
    pub(crate) explain: &'a str,
}

/// A tile of the grid.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct MemberState {
    pub(crate) key: String,
    pub(crate) name: String,
    pub(crate) host: String,
    pub(crate) pid: Option<u32>,
    pub(crate) standing: Standing,
    /// Since when, in milliseconds since 1970; 0 if that is not known.
    pub(crate) since_ms: u64,
    pub(crate) why: String,
    /// Whether the node reports, so that it can be selected.
    pub(crate) reports: bool,
    /// Age of its last report, in milliseconds.
    pub(crate) age_ms: Option<u64>,
    /// Messages a second that it sends and receives.
    pub(crate) messages: Option<f64>,
    pub(crate) bytes: Option<f64>,
    pub(crate) waits: usize,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Standing {
    #[default]
    Here,
    CutOff,
    Left,
    Gone,
}

/// Something that happened.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct EventState {
    pub(crate) at_ms: u64,
    /// `came`, `cut off`, `back`, `left`, `gone` or `note`.
    pub(crate) kind: &'static str,
    pub(crate) who: String,
    pub(crate) text: String,
}
