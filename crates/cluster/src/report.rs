//! Reports of a node's calls, channel ends and processes, for people and tests.

use std::fmt;

/// Calls without an answer, to one service at one peer.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct CallsReport {
    /// The service.
    pub service: String,
    /// Name of the peer; `None` while the way to it is being opened.
    pub peer: Option<String>,
    /// Number of calls.
    pub in_flight: usize,
}

/// Numbers of moving channel ends and of processes of a node, at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MovingReport {
    /// Number of ends made here whose far ends are not connected yet.
    pub ends_waiting: usize,
    /// Number of ends sent from here whose fate is not known yet.
    pub ends_sent: usize,
    /// Number of processes that run here for others.
    pub processes_running: usize,
    /// Number of processes that run elsewhere for this node.
    pub processes_asked: usize,
}

impl fmt::Display for CallsReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CallsReport { service, peer, in_flight } = self;
        let peer = peer.as_deref().unwrap_or("a peer that is being reached");
        write!(f, "{in_flight} calls of {service:?} wait for an answer of {peer}")
    }
}

impl fmt::Display for MovingReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "ends: {} wait for their far end, {} sent and not heard of; processes: {} run here, \
             {} elsewhere",
            self.ends_waiting, self.ends_sent, self.processes_running, self.processes_asked
        )
    }
}

impl MovingReport {
    /// Returns the report in one line; `None` when all counts are 0.
    pub(crate) fn line(&self) -> Option<String> {
        (*self != MovingReport::default()).then(|| self.to_string())
    }
}
