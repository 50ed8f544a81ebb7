//! The hosts' interfaces, the wires behind them, and the ways between hosts.

use super::connection::Frame;
use super::{EndId, HostId, LinkSpec};
use chunkcomm_proto::Time;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// The way from a host to itself: no wire, only a little time.
const LOOPBACK: LinkSpec = LinkSpec {
    latency: Duration::from_micros(10),
    jitter: Duration::ZERO,
    bytes_per_second: u64::MAX,
    cost_per_packet: Duration::ZERO,
    frame_bytes: 64 * 1024,
    queue_bytes: 256 * 1024,
    window_bytes: 1024 * 1024,
};

/// The way of bytes from one end to the other.
#[derive(Debug, Clone, Copy)]
pub(super) struct Way {
    pub(super) interface: usize,
    /// Behind a switch: the port of the receiving host.
    pub(super) port: Option<usize>,
    pub(super) spec: LinkSpec,
}

/// The part of a host that puts frames on a wire, one after another.
#[derive(Debug)]
pub(super) struct Interface {
    pub(super) wire: usize,
    /// Ends with something to send, in turns.
    pub(super) queue: VecDeque<EndId>,
    pub(super) state: Sending,
}

/// The state of an interface.
///
/// ```text
/// Idle -> Preparing -> Waiting -> OnWire -> Idle
///     (cost)      (wire taken)   (bytes)
/// ```
#[derive(Debug)]
pub(super) enum Sending {
    Idle,
    /// The host spends the cost of a packet of this end.
    Preparing(EndId),
    /// The wire is taken by another interface.
    Waiting(EndId),
    /// The frame is being put on the wire.
    OnWire(EndId, Frame),
}

/// A wire that carries one frame at a time.
#[derive(Debug, Default)]
pub(super) struct Wire {
    pub(super) busy: bool,
    /// Interfaces that wait, in the order in which they came.
    pub(super) waiting: VecDeque<usize>,
}

/// A host's place on a medium or a switch.
#[derive(Debug, Clone, Copy)]
struct Attachment {
    medium: usize,
    interface: usize,
    port: Option<usize>,
}

/// The wiring of a network.
#[derive(Debug, Default)]
pub(super) struct Wires {
    pub(super) interfaces: Vec<Interface>,
    pub(super) wires: Vec<Wire>,
    /// Times at which the ports of switches are free again.
    pub(super) ports: Vec<Time>,
    links: BTreeMap<(HostId, HostId), Way>,
    media: Vec<LinkSpec>,
    attachments: Vec<Vec<Attachment>>,
}

impl Wires {
    /// Adds a host, which reaches itself.
    pub(super) fn add_host(&mut self, host: HostId) {
        self.attachments.push(Vec::new());
        self.add_direction(host, host, LOOPBACK);
    }

    pub(super) fn link(&mut self, a: HostId, b: HostId, spec: LinkSpec) {
        self.add_direction(a, b, spec);
        self.add_direction(b, a, spec);
    }

    fn add_direction(&mut self, from: HostId, to: HostId, spec: LinkSpec) {
        let wire = self.add_wire();
        let interface = self.add_interface(wire);
        self.links.insert((from, to), Way { interface, port: None, spec });
    }

    pub(super) fn shared_medium(&mut self, hosts: &[HostId], spec: LinkSpec) {
        let medium = self.media.len();
        self.media.push(spec);
        let wire = self.add_wire();
        for host in hosts {
            let interface = self.add_interface(wire);
            self.attachments[host.index()].push(Attachment { medium, interface, port: None });
        }
    }

    pub(super) fn switch(&mut self, hosts: &[HostId], spec: LinkSpec) {
        let medium = self.media.len();
        self.media.push(spec);
        for host in hosts {
            let wire = self.add_wire();
            let interface = self.add_interface(wire);
            let port = Some(self.ports.len());
            self.ports.push(Time(0));
            self.attachments[host.index()].push(Attachment { medium, interface, port });
        }
    }

    fn add_wire(&mut self) -> usize {
        self.wires.push(Wire::default());
        self.wires.len() - 1
    }

    fn add_interface(&mut self, wire: usize) -> usize {
        self.interfaces.push(Interface { wire, queue: VecDeque::new(), state: Sending::Idle });
        self.interfaces.len() - 1
    }

    /// Returns the way between two hosts: their link, else the first medium or switch that both are
    /// attached to. Both directions are of one kind.
    pub(super) fn way(&self, from: HostId, to: HostId) -> Option<Way> {
        if let Some(way) = self.links.get(&(from, to)) {
            return Some(*way);
        }
        // Attachments are in the order in which the media were added.
        let theirs = &self.attachments[to.index()];
        self.attachments[from.index()].iter().find_map(|ours| {
            let there = theirs.iter().find(|there| there.medium == ours.medium)?;
            let spec = self.media[ours.medium];
            Some(Way { interface: ours.interface, port: there.port, spec })
        })
    }
}
