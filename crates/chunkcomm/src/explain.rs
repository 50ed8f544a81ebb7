//! What everybody waits for: a report of a node's links and channels that people
//! read when something does not go on.

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
    /// Channel ends and processes.
    pub moving: MovingReport,
    /// What is waited for besides links and channels, the oldest wait first: peers to be
    /// connected, channels to be opened here, a cluster's barriers and end.
    pub waits: Vec<WaitReport>,
    /// Calls that this node made and that have no answer yet.
    pub calls: Vec<CallsReport>,
}

/// Something that is waited for.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct WaitReport {
    /// What.
    pub what: String,
    /// For how long.
    pub since: Duration,
}

/// Calls without an answer, to one service at one peer.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct CallsReport {
    /// The service.
    pub service: String,
    /// The peer's name; none while the way to it is opened.
    pub peer: Option<String>,
    /// So many.
    pub in_flight: usize,
}

/// Channel ends that move and processes of a node, at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MovingReport {
    /// Ends made here whose far ends were not connected yet.
    pub ends_waiting: usize,
    /// Ends sent from here of which nobody said what became of them.
    pub ends_sent: usize,
    /// Processes that run here for others.
    pub processes_running: usize,
    /// Processes that run elsewhere for this node, which has their handles.
    pub processes_asked: usize,
}

/// A link, at one moment.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct LinkReport {
    /// The peer's name.
    pub peer: String,
    /// How it is: `connected`, `silent`, `cut off`, `closing`, or that its driver
    /// does not run.
    pub state: String,
    /// The number of the connection within the session.
    pub attempt: u32,
    /// Time since the peer was heard last.
    pub silence: Duration,
    /// Last packet sent, last one that the peer acknowledged.
    pub sent: u64,
    /// See `sent`.
    pub acknowledged: u64,
    /// Last packet received as a whole.
    pub received: u64,
    /// Bytes of packets that are kept until they are acknowledged.
    pub kept_bytes: usize,
    /// What the link as a whole waits for, if anything.
    pub waits_for: Option<String>,
    /// What went wrong last with its connection.
    pub trouble: Option<String>,
    /// The channels that send to the peer.
    pub sending: Vec<SendingReport>,
    /// The channels that receive from the peer.
    pub receiving: Vec<ReceivingReport>,
}

/// A channel that sends, at one moment.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct SendingReport {
    /// Its name.
    pub channel: String,
    /// Messages accepted and not put in packets.
    pub staged: u64,
    /// Messages put in packets, and those that are acknowledged.
    pub sent: u64,
    /// See `sent`.
    pub acknowledged: u64,
    /// Bytes that it may still send.
    pub credit_bytes: u64,
    /// What it waits for, if anything.
    pub waits_for: Option<String>,
    /// How long the oldest message that is staged has waited.
    pub oldest: Option<Duration>,
}

/// A channel that receives, at one moment.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct ReceivingReport {
    /// Its name.
    pub channel: String,
    /// Bytes that came and were not taken.
    pub unread_bytes: usize,
    /// Somebody waits for the next message.
    pub awaited: bool,
}

impl Explanation {
    /// No link waits for its peer, and no channel that sends: not for credit or room, and
    /// not for an acknowledgement that somebody waits for. Receivers that wait for a message,
    /// calls in flight and the node's other waits do not count.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.links.iter().all(|link| {
            link.waits_for.is_none() && link.sending.iter().all(|it| it.waits_for.is_none())
        })
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "node {}: {} links", self.node, self.links.len())?;
        for link in &self.links {
            link.fmt(f)?;
        }
        for cycle in &self.cycles {
            writeln!(f, "  cycle: {cycle}")?;
        }
        for refusal in &self.refusals {
            writeln!(f, "  refused: {refusal}")?;
        }
        for WaitReport { what, since } in &self.waits {
            writeln!(f, "  waits for {what}, since {} ms", since.as_millis())?;
        }
        for CallsReport { service, peer, in_flight } in &self.calls {
            let peer = peer.as_deref().unwrap_or("a peer that is being reached");
            writeln!(f, "  {in_flight} calls of {service:?} wait for an answer of {peer}")?;
        }
        self.moving.fmt(f)
    }
}

/// Nothing, when there is nothing of this.
impl fmt::Display for MovingReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == MovingReport::default() {
            return Ok(());
        }
        writeln!(
            f,
            "  ends: {} wait for their far end, {} sent and not heard of; processes: {} run here, \
             {} elsewhere",
            self.ends_waiting, self.ends_sent, self.processes_running, self.processes_asked
        )
    }
}

impl fmt::Display for LinkReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "  {}: {}, connection {}", self.peer, self.state, self.attempt)?;
        write!(f, ", heard {} ms ago", self.silence.as_millis())?;
        write!(f, ", sent {} (acknowledged {})", self.sent, self.acknowledged)?;
        writeln!(f, ", received {}, {} bytes kept", self.received, self.kept_bytes)?;
        if let Some(waits_for) = &self.waits_for {
            writeln!(f, "    waits for {waits_for}")?;
        }
        if let Some(trouble) = &self.trouble {
            writeln!(f, "    last trouble: {trouble}")?;
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
        write!(f, "    to {:?}: {} staged", self.channel, self.staged)?;
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
        write!(f, "    from {:?}: {} bytes unread", self.channel, self.unread_bytes)?;
        match (self.awaited, self.unread_bytes) {
            (true, _) => writeln!(f, "; somebody waits for the next message"),
            (false, 0) => writeln!(f),
            (false, _) => writeln!(f, "; nobody takes them"),
        }
    }
}
