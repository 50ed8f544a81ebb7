//! A timeline: when each core, each I/O thread and each wire was busy, and with what.

#[cfg(test)]
mod tests;
mod text;

use super::cores::Work;
use super::hosts::Task;
use super::io::Errand;
use super::{EndId, HostId, JobId, Network, SegmentId};
use chunkcomm_proto::Time;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A place where one thing happens at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Lane {
    /// A core of a host. A job has the first free one while it is there. With more jobs than cores
    /// the later ones have numbers from the host's cores on: all share the cores.
    Core {
        /// The host.
        host: HostId,
        /// Number of the core, from 0.
        index: u32,
    },
    /// The I/O thread of a host, which spends the costs of packets.
    Messages(HostId),
    /// The wire of a link, one way; also the way of a host to itself.
    Link {
        /// The sender.
        from: HostId,
        /// The receiver.
        to: HostId,
    },
    /// A shared medium.
    Medium(SegmentId),
    /// A switch with a limit, as a whole.
    Switch(SegmentId),
    /// The wire of a station to a switch.
    ToSwitch(SegmentId, Station),
    /// The wire of a switch to a station.
    FromSwitch(SegmentId, Station),
    /// A bridge, on the way to this segment.
    Bridge(usize, SegmentId),
}

/// A station of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Station {
    /// A host.
    Host(HostId),
    /// The bridge with this number: bridges are counted from 0 as they are added.
    Bridge(usize),
}

/// A way to be busy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Activity {
    /// A host computes a job.
    Computing(JobId),
    /// A host spends the cost of a packet that this end sends.
    Sending {
        /// The sending end.
        end: EndId,
        /// Bytes of the packet.
        bytes: usize,
    },
    /// A host spends the cost of a packet that this end receives, or of a part of a large one.
    Receiving {
        /// The receiving end.
        end: EndId,
        /// Bytes of the packet or part.
        bytes: usize,
    },
    /// A wire, switch or bridge carries a frame to this end.
    Frame {
        /// The receiving end.
        to: EndId,
        /// Bytes of the frame, or of a part of a large one.
        bytes: usize,
    },
    /// Senders contend for a medium.
    Contention,
}

/// A time for which a lane was busy with one thing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// The place.
    pub lane: Lane,
    /// The thing.
    pub activity: Activity,
    /// Its begin.
    pub begin: Time,
    /// Its end.
    pub end: Time,
    /// Time of a core that it had: less than from begin to end when others shared the cores. On
    /// wires the whole time.
    pub busy: Duration,
}

/// The time for which a lane was busy, by activities.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Busy {
    /// Time of a core spent on computing.
    pub computing: Duration,
    /// Time of a core spent on sending.
    pub sending: Duration,
    /// Time of a core spent on receiving.
    pub receiving: Duration,
    /// Time of frames.
    pub frames: Duration,
    /// Time that was lost to contention.
    pub contention: Duration,
}

/// The record of a network from [`Network::keep_timeline`] on.
///
/// It is the same for the same seed and the same calls. [`Timeline::to_trace_json`] writes it for a
/// viewer, [`Timeline::to_table`] sums it up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timeline {
    begin: Time,
    end: Time,
    /// Name and cores of each host.
    hosts: Vec<(String, u32)>,
    spans: Vec<Span>,
    spans_dropped: u64,
    busy: BTreeMap<Lane, Busy>,
}

impl Timeline {
    /// Returns the spans in the order in which they were settled: jobs and packet costs at their
    /// ends, frames when it is known when they pass. Spans that have not ended come last.
    #[must_use]
    pub fn spans(&self) -> &[Span] {
        &self.spans
    }

    /// Returns the number of spans that did not fit into the record. Busy times include them.
    #[must_use]
    pub fn spans_dropped(&self) -> u64 {
        self.spans_dropped
    }

    /// Returns the time from the beginning of the record to its end, or to the end of the last
    /// frame that is settled by then.
    #[must_use]
    pub fn duration(&self) -> Duration {
        Duration::from_nanos(self.end.0 - self.begin.0)
    }

    /// Returns the busy time of each lane that was ever busy.
    pub fn busy(&self) -> impl Iterator<Item = (Lane, Busy)> {
        self.busy.iter().map(|(lane, busy)| (*lane, *busy))
    }

    fn add(&mut self, span: Span, spans_max: usize) {
        if span.begin == span.end {
            return;
        }
        self.end = self.end.max(span.end);
        self.busy.entry(span.lane).or_default().add(&span);
        if self.spans.len() < spans_max {
            self.spans.push(span);
        } else {
            self.spans_dropped += 1;
        }
    }
}

impl Busy {
    fn add(&mut self, span: &Span) {
        *match span.activity {
            Activity::Computing(_) => &mut self.computing,
            Activity::Sending { .. } => &mut self.sending,
            Activity::Receiving { .. } => &mut self.receiving,
            Activity::Frame { .. } => &mut self.frames,
            Activity::Contention => &mut self.contention,
        } += span.busy;
    }

    fn and(self, other: Busy) -> Busy {
        Busy {
            computing: self.computing + other.computing,
            sending: self.sending + other.sending,
            receiving: self.receiving + other.receiving,
            frames: self.frames + other.frames,
            contention: self.contention + other.contention,
        }
    }

    fn sum(self) -> Duration {
        self.computing + self.sending + self.receiving + self.frames + self.contention
    }
}

/// A timeline in the making.
#[derive(Debug)]
pub(super) struct Recorder {
    timeline: Timeline,
    spans_max: usize,
    /// Jobs that are there: their lanes, activities and begins.
    open: BTreeMap<(HostId, Task), (Lane, Activity, Time)>,
    free: BTreeMap<HostId, Lanes>,
}

/// The lanes of a host's jobs.
#[derive(Debug, Default)]
struct Lanes {
    free: BTreeSet<u32>,
    /// Number of lanes that were ever used.
    count: u32,
}

impl Lanes {
    fn take(&mut self) -> u32 {
        self.free.pop_first().unwrap_or_else(|| {
            self.count += 1;
            self.count - 1
        })
    }
}

impl Recorder {
    /// Notes that a wire, switch or bridge is busy for a time that is settled.
    pub(super) fn add(&mut self, lane: Lane, activity: Activity, begin: Time, end: Time) {
        let busy = Duration::from_nanos(end.0 - begin.0);
        self.timeline.add(Span { lane, activity, begin, end, busy }, self.spans_max);
    }

    fn begin(&mut self, host: HostId, task: Task, activity: Activity, now: Time) {
        let lane = match task {
            Task::Messages => Lane::Messages(host),
            Task::Compute(_) => {
                Lane::Core { host, index: self.free.entry(host).or_default().take() }
            }
        };
        self.open.insert((host, task), (lane, activity, now));
    }

    fn end(&mut self, host: HostId, task: Task, busy: Duration, now: Time) {
        let Some((lane, activity, begin)) = self.open.remove(&(host, task)) else { return };
        if let Lane::Core { host, index } = lane {
            self.free.entry(host).or_default().free.insert(index);
        }
        let span = Span { lane, activity, begin, end: now, busy };
        self.timeline.add(span, self.spans_max);
    }
}

/// The timeline.
impl Network {
    /// Keeps a timeline from now on: the busy times of all lanes, and the first `spans_max` spans. A
    /// span takes about 100 bytes. A job that is there already is not recorded. The packet costs of
    /// links ([`LinkSpec::cost_per_packet`](super::LinkSpec::cost_per_packet)) hold no lane.
    pub fn keep_timeline(&mut self, spans_max: usize) {
        let timeline = Timeline {
            begin: self.now,
            end: self.now,
            hosts: Vec::new(),
            spans: Vec::new(),
            spans_dropped: 0,
            busy: BTreeMap::new(),
        };
        let (open, free) = (BTreeMap::new(), BTreeMap::new());
        self.recorder = Some(Box::new(Recorder { timeline, spans_max, open, free }));
    }

    /// Returns the timeline up to the last call or event; `None` when none is kept. Spans that have
    /// not ended end there. It is a copy, and the record goes on.
    #[must_use]
    pub fn timeline(&self) -> Option<Timeline> {
        let recorder = self.recorder.as_ref()?;
        let mut timeline = recorder.timeline.clone();
        let name_and_cores = |host: &super::Host| (host.name.clone(), host.spec.cores);
        timeline.hosts = self.hosts.iter().map(name_and_cores).collect();
        timeline.end = timeline.end.max(self.now);
        for ((host, task), (lane, activity, begin)) in &recorder.open {
            let (lane, activity, begin) = (*lane, *activity, *begin);
            let this = &self.hosts[host.index()];
            let done = this.cores.done(self.now, *task).unwrap_or_default();
            let busy = done.time_at(this.spec.speed_permille);
            timeline.add(Span { lane, activity, begin, end: self.now, busy }, recorder.spans_max);
        }
        Some(timeline)
    }

    /// Notes that a task of a host begins.
    pub(super) fn note_begin(&mut self, host: HostId, task: Task, activity: Activity) {
        if let Some(recorder) = &mut self.recorder {
            recorder.begin(host, task, activity, self.now);
        }
    }

    /// Notes that a task of a host is over, after this work.
    pub(super) fn note_end(&mut self, host: HostId, task: Task, done: Work) {
        if let Some(recorder) = &mut self.recorder {
            let speed = self.hosts[host.index()].spec.speed_permille;
            recorder.end(host, task, done.time_at(speed), self.now);
        }
    }
}

impl Activity {
    pub(super) fn of(errand: &Errand) -> Activity {
        match *errand {
            Errand::Send { end, bytes } => Activity::Sending { end, bytes },
            Errand::Receive { end, bytes, .. } => Activity::Receiving { end, bytes },
        }
    }
}
