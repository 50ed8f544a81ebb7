//! The network model: hosts, the wires that join them, and connections between them, as one heap of
//! events in nanoseconds. It is pure: time, calls and bytes go in, events come out. Two runs with
//! the same seed and the same calls are the same. Whole programs run on it, or the machines of
//! sessions alone.
//!
//! Reading order: this file (wires, connections, events), [`hosts`], [`cores`] and [`load`] (what
//! hosts compute), [`spec`] (properties of a link), [`wires`] (interfaces, wires, segments),
//! [`contention`], [`ways`] and [`bridges`] (from segment to segment), [`connection`] (the ends'
//! buffers), [`calls`] (a host's calls on connections), [`io`] and [`arrived`] (the costs of
//! packets), [`flow`] (the travel of a frame), [`faults`], [`world`] (descriptions); beside
//! them [`schedule`], [`trace`], [`timeline`].

mod arrived;
mod bridges;
mod calls;
mod connection;
mod contention;
mod cores;
mod faults;
mod flow;
mod hosts;
mod io;
mod load;
mod schedule;
mod spec;
#[cfg(test)]
mod tests;
mod timeline;
mod trace;
mod ways;
mod wires;
mod world;

pub use chunkcomm_proto::random::Random;
pub use hosts::{HostSpec, JobId};
pub use load::ForeignLoad;
pub use spec::{BridgeSpec, LinkSpec};
pub use timeline::{Activity, Busy, Lane, Span, Station, Timeline};
pub use trace::{Arrival, Delivery};
pub use wires::SegmentId;
pub(crate) use world::preset_names;
pub use world::{BridgeBetween, HostGroup, SegmentKind, SegmentSpec, WorldError, WorldSpec};

use chunkcomm_proto::Time;
use connection::{Connection, End};
use hosts::Host;
use schedule::{Schedule, Step};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;
use timeline::Recorder;
use trace::Trace;
use wires::Wires;

/// First port that the network chooses itself.
const FIRST_CHOSEN_PORT: u16 = 49152;

/// A host of a [`Network`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostId(u32);

impl HostId {
    /// Returns the host with this number.
    pub(crate) fn of_number(number: u32) -> HostId {
        HostId(number)
    }

    /// Returns the host's number in its network.
    pub(crate) fn number(self) -> u32 {
        self.0
    }

    fn index(self) -> usize {
        self.0 as usize
    }
}

/// One end of a connection. No number is given twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EndId {
    connection: u32,
    accepted: bool,
}

impl EndId {
    /// Returns the connection's other end.
    #[must_use]
    pub fn peer(self) -> EndId {
        EndId { connection: self.connection, accepted: !self.accepted }
    }

    /// Returns the connection's number: connections are counted from 0 as they are dialled.
    #[must_use]
    pub fn connection(self) -> usize {
        self.connection as usize
    }

    /// Whether this is the end of the host that was dialled.
    #[must_use]
    pub fn is_accepted(self) -> bool {
        self.accepted
    }
}

/// An event at a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A host dialled a port with a listener: `end` is the new connection.
    Incoming {
        /// The host that listens.
        host: HostId,
        /// The port that was dialled.
        port: u16,
        /// The accepted end.
        end: EndId,
    },
    /// The dialled connection is open.
    Connected(EndId),
    /// The dialled port has no listener; the end is gone.
    Refused(EndId),
    /// An end without bytes to read got some, or its last byte was read and the peer writes nothing
    /// more. Reported once until everything is read.
    Readable(EndId),
    /// A write that took only a part would take more.
    Writable(EndId),
    /// The connection is broken: writes fail. Reads fail too, once they have returned the bytes
    /// that had arrived.
    Broken(EndId),
    /// A job of [`Network::compute`] is done.
    Computed(JobId),
}

/// Outcome of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Read {
    /// This many bytes were read.
    Bytes(usize),
    /// Nothing yet.
    Nothing,
    /// The peer writes nothing more.
    End,
}

/// Why a call on a network fails.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NetworkError {
    /// Neither link nor segments join the two hosts.
    #[error("no link or segments join the two hosts")]
    NoWay,
    /// The port has a listener already, or no port is left.
    #[error("the port is taken")]
    PortTaken,
    /// The connection is broken, or this end was let go.
    #[error("the connection is broken")]
    Broken,
    /// This end was finished, and writes nothing more.
    #[error("the end was said to write nothing more")]
    Finished,
}

chunkcomm_proto::debug_with_causes!(NetworkError);

/// A network of hosts.
///
/// Order of calls:
///
/// 1. Hosts, and the links that join them.
/// 2. Calls at times that never go back ([`Network::listen`], [`Network::dial`],
///    [`Network::write`], [`Network::read`], ..., and faults), between them
///    [`Network::next_event`], or [`Network::poll_event`] up to a time.
///
/// A call at a time first lets everything before it happen; the events wait to be fetched.
///
/// ```
/// use chunkcomm::host::Time;
/// use chunkcomm_simulation::{Event, LinkSpec, Network, Read};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut network = Network::new(7);
/// let (left, right) = (network.add_host("left"), network.add_host("right"));
/// network.link(left, right, LinkSpec::ETHERNET_1G);
/// network.listen(right, 80)?;
/// let dialled = network.dial(Time(0), left, right, 80)?;
/// let mut buffer = [0; 16];
/// while let Some((now, event)) = network.next_event() {
///     match event {
///         Event::Connected(end) => assert_eq!(network.write(now, end, b"hello")?, 5),
///         Event::Readable(end) => {
///             assert_eq!(end, dialled.peer());
///             assert_eq!(network.read(now, end, &mut buffer)?, Read::Bytes(5));
///         }
///         _ => {}
///     }
/// }
/// assert_eq!(&buffer[..5], b"hello");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Network {
    seed: u64,
    steps: u64,
    /// The work of a call of each function, by its name.
    work: BTreeMap<String, Duration>,
    now: Time,
    scheduled: Schedule,
    ready: VecDeque<(Time, Event)>,
    hosts: Vec<Host>,
    wires: Wires,
    connections: Vec<Option<Box<Connection>>>,
    listening: BTreeSet<(HostId, u16)>,
    blocked: BTreeSet<(HostId, HostId)>,
    random: Random,
    trace: Trace,
    recorder: Option<Box<Recorder>>,
}

/// The wires that join hosts.
impl Network {
    /// Makes a network without hosts. Everything left to chance follows from `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Network {
        Network {
            seed,
            steps: 0,
            work: BTreeMap::new(),
            now: Time(0),
            scheduled: Schedule::default(),
            ready: VecDeque::new(),
            hosts: Vec::new(),
            wires: Wires::default(),
            connections: Vec::new(),
            listening: BTreeSet::new(),
            blocked: BTreeSet::new(),
            random: Random::new(seed),
            trace: Trace::default(),
            recorder: None,
        }
    }

    /// Returns the seed that the network was made with.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Joins two hosts in both directions; each direction has a wire of its own. Existing
    /// connections keep their ways.
    ///
    /// # Panics
    ///
    /// Nothing could pass: the rate or a size is 0, or a size is 4 GiB or more.
    pub fn link(&mut self, a: HostId, b: HostId, spec: LinkSpec) {
        spec.check();
        self.wires.link(a, b, spec);
    }

    /// Joins hosts by one wire that carries one frame of any sender at a time, as the first
    /// Ethernet did. Hosts take turns; with [`LinkSpec::slot_time`] they lose the mean time of
    /// collisions before a frame when several want to send.
    ///
    /// # Panics
    ///
    /// As [`Network::link`].
    pub fn shared_medium(&mut self, hosts: &[HostId], spec: LinkSpec) -> SegmentId {
        spec.check();
        self.wires.shared_medium(hosts, spec)
    }

    /// Joins hosts by a switch: each has a wire to it and one from it. A frame goes on while it
    /// arrives; while the wire to its receiver is taken, or the whole switch is
    /// ([`LinkSpec::total_bytes_per_second`]), it waits.
    ///
    /// # Panics
    ///
    /// As [`Network::link`].
    pub fn switch(&mut self, hosts: &[HostId], spec: LinkSpec) -> SegmentId {
        spec.check();
        self.wires.switch(hosts, spec)
    }

    /// Joins two segments by a bridge or router: hosts of one reach those of the other. Two hosts
    /// with neither a link nor a common segment take the way over the fewest bridges; of several,
    /// the one whose bridges were added first. Existing connections keep their ways.
    ///
    /// # Panics
    ///
    /// Nothing could pass: the rate or the queue is 0. The segments are one.
    pub fn bridge(&mut self, a: SegmentId, b: SegmentId, spec: BridgeSpec) {
        spec.check();
        assert!(a != b, "a bridge joins two segments");
        self.wires.bridge(a, b, spec);
    }
}

/// Events.
impl Network {
    /// Returns the earliest time at which the next event may be due: [`Network::poll_event`] may
    /// find none then.
    #[must_use]
    pub fn next_time(&self) -> Option<Time> {
        match self.ready.front() {
            Some((at, _)) => Some(*at),
            None => self.scheduled.next_time(),
        }
    }

    /// Returns the next event, however late it is.
    pub fn next_event(&mut self) -> Option<(Time, Event)> {
        while self.ready.is_empty() {
            let (at, step) = self.scheduled.pop()?;
            self.step(at, step);
        }
        self.ready.pop_front()
    }

    /// Returns the next event that is not later than `limit`, and lets nothing after it happen:
    /// calls may follow at its time.
    pub fn next_event_by(&mut self, limit: Time) -> Option<(Time, Event)> {
        while self.ready.is_empty() {
            let (at, step) = self.scheduled.pop_until(limit)?;
            self.step(at, step);
        }
        self.ready.front().filter(|(at, _)| *at <= limit)?;
        self.ready.pop_front()
    }

    /// Moves the time to `now`; returns the next event up to then.
    pub fn poll_event(&mut self, now: Time) -> Option<(Time, Event)> {
        self.advance(now);
        self.ready.pop_front()
    }

    /// Returns the time of the last call or event.
    #[must_use]
    pub fn now(&self) -> Time {
        self.now
    }

    /// Sets the work of one call of the function with this name: the time that it takes on the
    /// reference machine. The functions of farms and others that are registered by a name take it,
    /// beside what they declare by `chunkcomm::host::spend`. [`WorldSpec::build`] sets that of the
    /// world.
    pub fn set_work(&mut self, function: &str, work: Duration) {
        self.work.insert(function.to_owned(), work);
    }

    /// Returns the work of one call of a function, if it is set.
    #[must_use]
    pub fn work_of(&self, function: &str) -> Option<Duration> {
        self.work.get(function).copied()
    }

    /// Returns the number of steps that happened: a frame is put on a wire, or arrives, a job is done.
    /// By them the speed of a simulation is measured.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Returns a digest of all deliveries: where, when, how much.
    #[must_use]
    pub fn digest(&self) -> u64 {
        self.trace.digest()
    }

    /// Keeps deliveries from now on, for [`Network::deliveries`].
    pub fn keep_deliveries(&mut self) {
        self.trace.keep();
    }

    /// Returns the deliveries that were kept.
    #[must_use]
    pub fn deliveries(&self) -> &[Delivery] {
        self.trace.kept()
    }

    /// Lets everything happen up to `now`.
    fn advance(&mut self, now: Time) {
        assert!(now >= self.now, "time went back from {:?} to {now:?}", self.now);
        while let Some((at, step)) = self.scheduled.pop_until(now) {
            self.step(at, step);
        }
        self.now = now;
    }

    fn step(&mut self, at: Time, step: Step) {
        self.now = at;
        self.steps += 1;
        match step {
            Step::Prepared(interface) => self.handle_prepared(interface),
            Step::Sent(interface) => self.handle_sent(interface),
            Step::Reach(traveller) => self.handle_reached(traveller),
            Step::PassOn(traveller) => self.handle_pass_on(traveller),
            Step::Arrive(end, item) => self.handle_arrival(end, item),
            Step::Resume(end) => self.handle_resume(end),
            Step::Break(end) => self.handle_break(end),
            Step::Cores(host) => self.handle_cores(host),
        }
    }

    fn tell(&mut self, event: Event) {
        self.ready.push_back((self.now, event));
    }

    fn end_ref(&self, end: EndId) -> Option<&End> {
        let connection = self.connections.get(end.connection as usize)?.as_ref()?;
        Some(&connection.ends[usize::from(end.accepted)])
    }

    fn end_mut(&mut self, end: EndId) -> Option<&mut End> {
        let connection = self.connections.get_mut(end.connection as usize)?.as_mut()?;
        Some(&mut connection.ends[usize::from(end.accepted)])
    }
}
