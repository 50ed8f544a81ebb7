//! A timeline as text: trace events for a viewer, and a table.

use super::{Activity, Busy, Lane, Station, Timeline};
use crate::network::HostId;
use chunkcomm_proto::Time;
use chunkcomm_proto::trace::{Micros, TraceEvents};
use std::collections::BTreeMap;
use std::fmt::{Display, Write};
use std::time::Duration;

/// The process of the viewer under which all wires stand; a host has its number plus 1.
const WIRES: u32 = 0;

/// Trace events.
impl Timeline {
    /// Returns the timeline as JSON in the Trace Event Format of Chrome, which Perfetto
    /// (<https://ui.perfetto.dev>) and `chrome://tracing` show. Each host is a process with a lane
    /// for each core and for its I/O thread; the wires are another. Between two jobs a core is
    /// shown as waiting. Times are microseconds since the
    /// beginning of the model.
    #[must_use]
    pub fn to_trace_json(&self) -> String {
        let threads = self.threads();
        let mut events = TraceEvents::new();
        events.name_process(WIRES, "wires");
        for (number, (name, _)) in (1..).zip(&self.hosts) {
            events.name_process(number, name);
        }
        for (lane, (process, thread)) in &threads {
            events.name_thread(*process, *thread, &self.short_name(*lane));
        }
        // A core that has computed waits until it computes again.
        let mut computed: BTreeMap<Lane, Time> = BTreeMap::new();
        for span in &self.spans {
            let at = threads[&span.lane];
            let (begin, end) = (span.begin.0, span.end.0);
            if let Lane::Core { .. } = span.lane {
                let since = computed.insert(span.lane, span.end).unwrap_or(self.begin);
                if since < span.begin {
                    events.span(at, since.0, begin - since.0, "waiting", &[]);
                }
            }
            let (name, packet) = match span.activity {
                Activity::Computing(job) => {
                    let (job, busy) = (job.number(), Micros(span.busy.as_nanos() as u64));
                    let details: [(_, &dyn Display); 2] = [("job", &job), ("core_us", &busy)];
                    events.span(at, begin, end - begin, "computing", &details);
                    continue;
                }
                Activity::Sending { end, bytes } => ("sending", Some((end, bytes))),
                Activity::Receiving { end, bytes } => ("receiving", Some((end, bytes))),
                Activity::Frame { to, bytes } => ("wire", Some((to, bytes))),
                Activity::Contention => ("contention", None),
            };
            let (connection, bytes) = packet.map_or((0, 0), |(to, bytes)| (to.connection(), bytes));
            let details: [(_, &dyn Display); 2] = [("connection", &connection), ("bytes", &bytes)];
            let details = if packet.is_some() { &details[..] } else { &[] };
            events.span(at, begin, end - begin, name, details);
        }
        if self.spans_dropped > 0 {
            let missing = format!("{} spans are missing: there is no room", self.spans_dropped);
            events.note(WIRES, self.end.0, &missing);
        }
        events.finish()
    }

    /// Returns the process and the number of each lane that was ever busy.
    fn threads(&self) -> BTreeMap<Lane, (u32, usize)> {
        // The I/O thread stands above the cores, and wires in the order of their kinds.
        let mut wires = 0;
        let number = |lane: &Lane| match *lane {
            Lane::Messages(host) => (host.number() + 1, 0),
            Lane::Core { host, index } => (host.number() + 1, index as usize + 1),
            _ => {
                wires += 1;
                (WIRES, wires)
            }
        };
        self.busy.keys().copied().zip(self.busy.keys().map(number)).collect()
    }

    /// Returns the name of a lane within its host.
    fn short_name(&self, lane: Lane) -> String {
        match lane {
            Lane::Core { host, index } => {
                let cores = self.hosts[host.index()].1;
                match index.checked_sub(cores) {
                    None => format!("core {index}"),
                    Some(beyond) => format!("sharing {beyond}"),
                }
            }
            Lane::Messages(_) => "I/O".to_owned(),
            Lane::Link { from, to } => format!("{} -> {}", self.name(from), self.name(to)),
            Lane::Medium(segment) => format!("medium {}", segment.index()),
            Lane::Switch(segment) => format!("switch {}", segment.index()),
            Lane::ToSwitch(segment, station) => {
                format!("{} -> switch {}", self.station(station), segment.index())
            }
            Lane::FromSwitch(segment, station) => {
                format!("switch {} -> {}", segment.index(), self.station(station))
            }
            Lane::Bridge(bridge, segment) => {
                format!("bridge {bridge} -> segment {}", segment.index())
            }
        }
    }

    fn station(&self, station: Station) -> String {
        match station {
            Station::Host(host) => self.name(host).to_owned(),
            Station::Bridge(bridge) => format!("bridge {bridge}"),
        }
    }

    fn name(&self, host: HostId) -> &str {
        &self.hosts[host.index()].0
    }
}

/// The table.
impl Timeline {
    /// Returns a table of the shares of time: of the cores of each host for computing, sending and
    /// receiving, and of each wire for frames and contention. A host that did nothing has a row of
    /// zeros; a wire that carried nothing has none.
    #[must_use]
    pub fn to_table(&self) -> String {
        let mut rows =
            vec![["host", "cores", "computing", "sending", "receiving", "busy"].map(String::from)];
        let mut hosts = vec![Busy::default(); self.hosts.len()];
        for (lane, busy) in self.busy() {
            if let Lane::Core { host, .. } | Lane::Messages(host) = lane {
                hosts[host.index()] = hosts[host.index()].and(busy);
            }
        }
        for ((name, cores), busy) in self.hosts.iter().zip(hosts) {
            let shares = [busy.computing, busy.sending, busy.receiving, busy.sum()];
            let [computing, sending, receiving, all] = shares.map(|time| self.share(time, *cores));
            rows.push([name.clone(), cores.to_string(), computing, sending, receiving, all]);
        }
        let mut text = aligned(&rows);
        let mut rows = vec![["wire", "frames", "contention", "busy"].map(String::from)];
        for (lane, busy) in self.busy() {
            if !matches!(lane, Lane::Core { .. } | Lane::Messages(_)) {
                let shares = [busy.frames, busy.contention, busy.sum()];
                let [frames, contention, all] = shares.map(|time| self.share(time, 1));
                rows.push([self.short_name(lane), frames, contention, all]);
            }
        }
        text.push('\n');
        text.push_str(&aligned(&rows));
        if self.spans_dropped > 0 {
            let dropped = self.spans_dropped;
            let _ =
                writeln!(text, "\n{dropped} spans are not in the timeline; the table has them.");
        }
        text
    }

    /// Returns a time as a share of the whole time of this many cores or wires.
    fn share(&self, time: Duration, count: u32) -> String {
        let whole = self.duration().as_nanos() * u128::from(count);
        let permille = (time.as_nanos() * 1_000 + whole / 2).checked_div(whole).unwrap_or(0);
        format!("{}.{} %", permille / 10, permille % 10)
    }
}

/// Aligns the first column to the left and the others to the right.
fn aligned<const N: usize>(rows: &[[String; N]]) -> String {
    let width =
        |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; N] = std::array::from_fn(width);
    let mut text = String::new();
    for row in rows {
        let _ = write!(text, "{:<width$}", row[0], width = widths[0]);
        for (cell, width) in row.iter().zip(widths).skip(1) {
            let _ = write!(text, "  {cell:>width$}");
        }
        text.push('\n');
    }
    text
}
