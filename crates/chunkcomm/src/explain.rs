//! A report of a node's links and channels, and of their waits, for people to read when something
//! does not go on. Text of a peer in it is escaped, so that no peer forges a line.

use crate::error::Quoted;
use crate::proto::plain::Plain;
use crate::stats::PeerStats;
use std::fmt;
use std::time::Duration;

/// A node and its links, at one moment. Made by [`Node::explain`](crate::Node::explain).
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Explanation {
    /// The node's name.
    pub node: String,
    /// Its links.
    pub links: Vec<LinkReport>,
    /// Nodes that wait for each other in a ring, this one among them; see
    /// [`Node::explain`](crate::Node::explain).
    pub cycles: Vec<String>,
    /// The last connections that were refused, oldest first.
    pub refusals: Vec<String>,
    /// Waits besides those of links and channels, the oldest first: for peers to be connected, for
    /// channels to be opened here, for a cluster's barriers and end.
    pub waits: Vec<WaitReport>,
    /// Lines of the layers above: calls without an answer, channel ends that move, processes.
    pub layers: Vec<String>,
}

/// A wait, and its duration so far.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct WaitReport {
    /// The awaited thing.
    pub what: String,
    /// Duration of the wait so far.
    pub since: Duration,
}

/// A warning to people about a node of this process. Made by [`Node::warnings`](crate::Node::warnings).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Warning {
    /// Name of the node, or of the part of the program.
    pub node: String,
    /// The warning, at most 1,000 bytes, in one line.
    pub text: String,
    /// Time since then.
    pub age: Duration,
}

/// A link, at one moment.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct LinkReport {
    /// The peer's name.
    pub peer: String,
    /// The link's state: `connected`, `silent`, `cut off`, `closing`, or that its driver does not
    /// run.
    pub state: String,
    /// Number of the connection within the session.
    pub attempt: u32,
    /// Way of that connection.
    pub way: Way,
    /// Whether large messages of the peer are read from its memory.
    pub one_copy: OneCopy,
    /// Time since the peer was last heard.
    pub silence: Duration,
    /// Number of the last packet sent.
    pub sent: u64,
    /// Number of the last packet that the peer acknowledged.
    pub acknowledged: u64,
    /// Number of the last packet received as a whole.
    pub received: u64,
    /// Bytes of packets that are kept until they are acknowledged.
    pub kept_bytes: usize,
    /// The thing that the link as a whole waits for, if any.
    pub waits_for: Option<String>,
    /// The last trouble with the link's connection.
    pub trouble: Option<String>,
    /// Counts of the session.
    pub stats: PeerStats,
    /// Shortest round trip of a packet and its acknowledgement of late; measured where bulk is on its way.
    pub round_trip: Option<Duration>,
    /// The channels that send to the peer.
    pub sending: Vec<SendingReport>,
    /// The channels that receive from the peer.
    pub receiving: Vec<ReceivingReport>,
}

/// How a connection carries its bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Way {
    /// A Unix socket, memory or a simulated network, as the address says.
    #[default]
    Other,
    /// TCP.
    Tcp {
        /// The reason why it is not a Unix socket, as text to show. The dialler knows it, and the other end only
        /// its own.
        why: &'static str,
    },
    /// A Unix socket that replaced TCP, because both nodes are on one host; see
    /// [`NodeBuilder::same_host`](crate::NodeBuilder::same_host).
    SameHost,
}

/// Whether this end reads large messages from the peer's memory, which copies them once; see
/// [`NodeBuilder::one_copy`](crate::NodeBuilder::one_copy).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OneCopy {
    /// Not: the connection is no Unix socket between nodes with a credential, or a setting forbids it.
    #[default]
    Off,
    /// Yes.
    Reads {
        /// Number of bytes read so far.
        bytes: u64,
    },
    /// The system did not let it; the connection carries them.
    Refused {
        /// The system's reason, as text to show.
        why: String,
    },
}

/// A sending channel, at one moment.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct SendingReport {
    /// The channel's name.
    pub channel: String,
    /// Number of messages accepted and not yet put in packets.
    pub staged: u64,
    /// Number of messages put in packets.
    pub sent: u64,
    /// Number of these messages that are acknowledged.
    pub acknowledged: u64,
    /// Bytes that the channel may still send.
    pub credit_bytes: u64,
    /// The thing that the channel waits for, if any.
    pub waits_for: Option<String>,
    /// Time for which the oldest staged message has waited.
    pub oldest: Option<Duration>,
}

/// A receiving channel, at one moment.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct ReceivingReport {
    /// The channel's name.
    pub channel: String,
    /// Bytes that arrived and were not taken.
    pub unread_bytes: usize,
    /// Whether a task waits for the next message.
    pub awaited: bool,
}

impl Explanation {
    /// Whether no link and no sending channel waits for its peer: not for credit or room, and not
    /// for an acknowledgement that a task waits for. Receivers that wait for a message, calls in
    /// flight and the node's other waits do not count.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.links.iter().all(|link| {
            link.waits_for.is_none() && link.sending.iter().all(|it| it.waits_for.is_none())
        })
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "node {}: {} links", Plain(&self.node), self.links.len())?;
        for link in &self.links {
            link.fmt(f)?;
        }
        for cycle in &self.cycles {
            writeln!(f, "  cycle: {}", Plain(cycle))?;
        }
        for refusal in &self.refusals {
            writeln!(f, "  refused: {}", Plain(refusal))?;
        }
        for WaitReport { what, since } in &self.waits {
            writeln!(f, "  waits for {}, since {} ms", Plain(what), since.as_millis())?;
        }
        for line in &self.layers {
            writeln!(f, "  {}", Plain(line))?;
        }
        Ok(())
    }
}

impl fmt::Display for LinkReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let peer = Plain(&self.peer);
        write!(f, "  {peer}: {}, connection {}", self.state, self.attempt)?;
        match self.way {
            Way::Other => {}
            Way::Tcp { why } => write!(f, " over TCP ({why})")?,
            Way::SameHost => write!(f, " over the Unix socket of its host")?,
        }
        match &self.one_copy {
            OneCopy::Off => {}
            OneCopy::Reads { bytes } => write!(f, ", {bytes} bytes read from its memory")?,
            OneCopy::Refused { why } => write!(f, ", its memory not read ({})", Plain(why))?,
        }
        write!(f, ", heard {} ms ago", self.silence.as_millis())?;
        write!(f, ", sent {} (acknowledged {})", self.sent, self.acknowledged)?;
        writeln!(f, ", received {}, {} bytes kept", self.received, self.kept_bytes)?;
        if let Some(waits_for) = &self.waits_for {
            writeln!(f, "    waits for {}", Plain(waits_for))?;
        }
        if let Some(trouble) = &self.trouble {
            writeln!(f, "    last trouble: {}", Plain(trouble))?;
        }
        for channel in &self.sending {
            channel.fmt(f)?;
        }
        for channel in &self.receiving {
            channel.fmt(f)?;
        }
        Ok(())
    }
}

impl fmt::Display for SendingReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "    to {}: {} staged", Quoted(&self.channel), self.staged)?;
        write!(f, ", {} sent ({} acknowledged)", self.sent, self.acknowledged)?;
        write!(f, ", credit {} bytes", self.credit_bytes)?;
        if let Some(waits_for) = &self.waits_for {
            write!(f, "; waits for {waits_for}")?;
        }
        match self.oldest {
            Some(oldest) => writeln!(f, ", the oldest since {} ms", oldest.as_millis()),
            None => writeln!(f),
        }
    }
}

impl fmt::Display for ReceivingReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "    from {}: {} bytes unread", Quoted(&self.channel), self.unread_bytes)?;
        match (self.awaited, self.unread_bytes) {
            (true, _) => writeln!(f, "; somebody waits for the next message"),
            (false, 0) => writeln!(f),
            (false, _) => writeln!(f, "; nobody takes them"),
        }
    }
}
