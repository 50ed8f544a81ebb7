//! The hosts' interfaces, the wires behind them, and the segments that the wires make up.

use super::bridges::{Relay, Room, Traveller};
use super::connection::Frame;
use super::timeline::{Lane, Station};
use super::ways::{Leg, Way};
use super::{BridgeSpec, EndId, HostId, LinkSpec};
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
    slot_time: Duration::ZERO,
    total_bytes_per_second: u64::MAX,
};

/// A shared medium or a switch of a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentId(u32);

impl SegmentId {
    pub(super) fn index(self) -> usize {
        self.0 as usize
    }
}

/// The part of a host or of a bridge that puts frames on a wire, one after another.
#[derive(Debug)]
pub(super) struct Interface {
    pub(super) wire: usize,
    /// Ends with something to send, in turns.
    pub(super) queue: VecDeque<EndId>,
    /// Of a bridge: frames and news that it passes on, in order.
    pub(super) passing: VecDeque<Traveller>,
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
    /// The host spends the cost of a packet.
    Preparing(Turn),
    /// The wire is taken by another interface.
    Waiting(Turn),
    /// A frame is being put on the wire, part by part.
    OnWire(Cargo),
}

/// The next sender of an interface.
#[derive(Debug, Clone, Copy)]
pub(super) enum Turn {
    /// An end of its host, with the room that was taken for its frame in the bridges of its way.
    Own(EndId, Option<Room>),
    /// The first frame that its bridge passes on.
    Passing,
}

/// A frame on a wire.
#[derive(Debug, Clone, Copy)]
pub(super) enum Cargo {
    /// A frame of an end, or a part of one, and what follows of it.
    Own(EndId, Frame, Option<Frame>, Option<Room>),
    Passing(Traveller),
}

impl Cargo {
    pub(super) fn receiver_and_bytes(&self) -> (EndId, usize) {
        match self {
            Cargo::Own(end, frame, ..) => (end.peer(), frame.bytes),
            Cargo::Passing(traveller) => (traveller.to, traveller.bytes()),
        }
    }
}

/// A wire that carries one frame at a time.
#[derive(Debug)]
pub(super) struct Wire {
    pub(super) lane: Lane,
    pub(super) busy: bool,
    /// Interfaces that wait, in the order in which they came.
    pub(super) waiting: VecDeque<usize>,
    /// Time of a slot in which senders contend for the wire; 0 when they take turns.
    pub(super) slot_nanos: u64,
}

/// The wire of a switch to a station, or a switch as a whole.
#[derive(Debug)]
struct Port {
    lane: Lane,
    free_at: Time,
}

/// A host's or a bridge's place on a segment.
#[derive(Debug, Clone, Copy)]
pub(super) struct Attachment {
    pub(super) segment: usize,
    pub(super) interface: usize,
    /// On a switch: the port to the attached.
    pub(super) port: Option<usize>,
}

/// A shared medium or a switch.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) spec: LinkSpec,
    kind: Kind,
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    /// All stations share this wire.
    Medium(usize),
    /// All frames pass this port, when the switch as a whole has a limit.
    Switch(Option<usize>),
}

impl Segment {
    /// Returns the port that all frames of a switch pass, if it has a limit.
    pub(super) fn fabric(&self) -> Option<usize> {
        match self.kind {
            Kind::Medium(_) => None,
            Kind::Switch(fabric) => fabric,
        }
    }
}

/// The wiring of a network.
#[derive(Debug, Default)]
pub(super) struct Wires {
    pub(super) interfaces: Vec<Interface>,
    pub(super) wires: Vec<Wire>,
    ports: Vec<Port>,
    pub(super) links: BTreeMap<(HostId, HostId), Way>,
    pub(super) segments: Vec<Segment>,
    /// The places of each host, in the order of the segments.
    pub(super) attachments: Vec<Vec<Attachment>>,
    /// The places of each bridge.
    pub(super) bridges: Vec<[Attachment; 2]>,
    /// Two of each bridge: from its first place to its second, and back.
    pub(super) relays: Vec<Relay>,
    pub(super) ways: super::ways::Known,
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
        let wire = self.add_wire(Lane::Link { from, to }, 0);
        let interface = self.add_interface(wire);
        let leg = Leg { interface, fabric: None, port: None, spec };
        self.links.insert((from, to), Way { leg, spec, route: None });
    }

    pub(super) fn shared_medium(&mut self, hosts: &[HostId], spec: LinkSpec) -> SegmentId {
        let slot_nanos = u64::try_from(spec.slot_time.as_nanos()).unwrap_or(u64::MAX);
        let wire = self.add_wire(Lane::Medium(self.next_segment()), slot_nanos);
        self.add_segment(hosts, Segment { spec, kind: Kind::Medium(wire) })
    }

    pub(super) fn switch(&mut self, hosts: &[HostId], spec: LinkSpec) -> SegmentId {
        let lane = Lane::Switch(self.next_segment());
        let fabric = (spec.total_bytes_per_second < u64::MAX).then(|| self.add_port(lane));
        self.add_segment(hosts, Segment { spec, kind: Kind::Switch(fabric) })
    }

    fn add_segment(&mut self, hosts: &[HostId], segment: Segment) -> SegmentId {
        let id = self.next_segment();
        self.segments.push(segment);
        for host in hosts {
            let place = self.attach(id, Station::Host(*host));
            self.attachments[host.index()].push(place);
        }
        self.ways.forget();
        id
    }

    pub(super) fn bridge(&mut self, a: SegmentId, b: SegmentId, spec: BridgeSpec) {
        let number = self.bridges.len();
        let places = [a, b].map(|segment| self.attach(segment, Station::Bridge(number)));
        self.bridges.push(places);
        let [one, other] = [(a, places[0]), (b, places[1])].map(|(segment, place)| {
            Relay::new(spec, place.interface, Lane::Bridge(number, segment))
        });
        self.relays.extend([other, one]);
        self.ways.forget();
    }

    fn next_segment(&self) -> SegmentId {
        SegmentId(u32::try_from(self.segments.len()).expect("fewer than 4 Gi segments"))
    }

    fn attach(&mut self, segment: SegmentId, station: Station) -> Attachment {
        let (wire, port) = match self.segments[segment.index()].kind {
            Kind::Medium(wire) => (wire, None),
            Kind::Switch(_) => {
                let wire = self.add_wire(Lane::ToSwitch(segment, station), 0);
                (wire, Some(self.add_port(Lane::FromSwitch(segment, station))))
            }
        };
        Attachment { segment: segment.index(), interface: self.add_interface(wire), port }
    }

    fn add_wire(&mut self, lane: Lane, slot_nanos: u64) -> usize {
        self.wires.push(Wire { lane, busy: false, waiting: VecDeque::new(), slot_nanos });
        self.wires.len() - 1
    }

    fn add_port(&mut self, lane: Lane) -> usize {
        self.ports.push(Port { lane, free_at: Time(0) });
        self.ports.len() - 1
    }

    fn add_interface(&mut self, wire: usize) -> usize {
        let (queue, passing) = (VecDeque::new(), VecDeque::new());
        self.interfaces.push(Interface { wire, queue, passing, state: Sending::Idle });
        self.interfaces.len() - 1
    }

    /// Takes a turn for a frame in the switch of a leg; returns when the last byte, due at `at`,
    /// arrives. The frame goes on while it arrives, so it needs a port from the time of its first
    /// byte. `note` is told when it holds which port.
    pub(super) fn through(
        &mut self,
        leg: &Leg,
        at: Time,
        bytes: usize,
        mut note: impl FnMut(Lane, Time, Time),
    ) -> Time {
        let nanos = leg.spec.wire_nanos(bytes);
        let mut at = at;
        if let Some(fabric) = leg.fabric {
            let port = &mut self.ports[fabric];
            let begins = Time(at.0.saturating_sub(nanos)).max(port.free_at);
            port.free_at = after_nanos(begins, leg.spec.total_nanos(bytes));
            note(port.lane, begins, port.free_at);
            at = at.max(port.free_at);
        }
        if let Some(port) = leg.port {
            let port = &mut self.ports[port];
            at = at.max(after_nanos(port.free_at, nanos));
            port.free_at = at;
            note(port.lane, Time(at.0 - nanos), at);
        }
        at
    }
}

pub(super) fn after_nanos(time: Time, nanos: u64) -> Time {
    time.after(Duration::from_nanos(nanos))
}
