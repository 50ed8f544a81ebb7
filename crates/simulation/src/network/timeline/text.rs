//! A timeline as text: trace events for a viewer, and a table.

use super::{Activity, Busy, Lane, Station, Timeline};
use crate::network::{EndId, HostId};
use chunkcomm_proto::Time;
use std::collections::BTreeMap;
use std::fmt::{self, Write};
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
        let mut text = String::new();
        self.write_trace(&mut text).expect("a string takes everything");
        text
    }

    fn write_trace(&self, to: &mut String) -> fmt::Result {
        to.push_str("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n");
        let threads = self.threads();
        let mut events = Events { to, first: true };
        events.name("process_name", WIRES, 0, "wires")?;
        for (number, (name, _)) in (1..).zip(&self.hosts) {
            events.name("process_name", number, 0, name)?;
        }
        for (lane, (process, thread)) in &threads {
            events.name("thread_name", *process, *thread, &self.short_name(*lane))?;
        }
        // A core that has computed waits until it computes again.
        let mut computed: BTreeMap<Lane, Time> = BTreeMap::new();
        for span in &self.spans {
            let (process, thread) = threads[&span.lane];
            if let Lane::Core { .. } = span.lane {
                let since = computed.insert(span.lane, span.end).unwrap_or(self.begin);
                if since < span.begin {
                    let (begin, lasts) = (Micros(since.0), Micros(span.begin.0 - since.0));
                    let start = events.begin()?;
                    write!(start, "\"ph\":\"X\",\"pid\":{process},\"tid\":{thread},")?;
                    write!(start, "\"ts\":{begin},\"dur\":{lasts},\"name\":\"waiting\"}}")?;
                }
            }
            let (begin, lasts) = (Micros(span.begin.0), Micros(span.end.0 - span.begin.0));
            let start = events.begin()?;
            write!(start, "\"ph\":\"X\",\"pid\":{process},\"tid\":{thread},")?;
            write!(start, "\"ts\":{begin},\"dur\":{lasts},{}}}", Event(&span.activity, span.busy))?;
        }
        if self.spans_dropped > 0 {
            let missing = format!("{} spans are missing: there is no room", self.spans_dropped);
            let start = events.begin()?;
            write!(start, "\"ph\":\"i\",\"s\":\"g\",\"pid\":{WIRES},\"tid\":0,")?;
            write!(start, "\"ts\":{},\"name\":{}}}", Micros(self.end.0), Quoted(&missing))?;
        }
        to.push_str("\n]}\n");
        Ok(())
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

/// The list of events.
struct Events<'a> {
    to: &'a mut String,
    first: bool,
}

impl Events<'_> {
    /// Begins one more event.
    fn begin(&mut self) -> Result<&mut String, fmt::Error> {
        self.to.push_str(if std::mem::take(&mut self.first) { "{" } else { ",\n{" });
        Ok(self.to)
    }

    fn name(&mut self, kind: &str, process: u32, thread: usize, name: &str) -> fmt::Result {
        let start = self.begin()?;
        write!(start, "\"ph\":\"M\",\"pid\":{process},\"tid\":{thread},\"name\":\"{kind}\",")?;
        write!(start, "\"args\":{{\"name\":{}}}}}", Quoted(name))
    }
}

/// Nanoseconds, written as microseconds.
struct Micros(u64);

impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03}", self.0 / 1_000, self.0 % 1_000)
    }
}

/// A string of JSON.
struct Quoted<'a>(&'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for c in self.0.chars() {
            match c {
                '"' | '\\' => write!(f, "\\{c}")?,
                c if c < ' ' => write!(f, "\\u{:04x}", u32::from(c))?,
                c => f.write_char(c)?,
            }
        }
        f.write_char('"')
    }
}

/// The name and the details of an activity.
struct Event<'a>(&'a Activity, Duration);

impl fmt::Display for Event<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = |f: &mut fmt::Formatter<'_>, name: &str, end: &EndId, bytes: usize| {
            let connection = end.connection();
            let args = format_args!("{{\"connection\":{connection},\"bytes\":{bytes}}}");
            write!(f, "\"name\":\"{name}\",\"args\":{args}")
        };
        match self.0 {
            Activity::Computing(job) => {
                let (job, busy) = (job.number(), Micros(self.1.as_nanos() as u64));
                let args = format_args!("{{\"job\":{job},\"core_us\":{busy}}}");
                write!(f, "\"name\":\"computing\",\"args\":{args}")
            }
            Activity::Sending { end, bytes: count } => bytes(f, "sending", end, *count),
            Activity::Receiving { end, bytes: count } => bytes(f, "receiving", end, *count),
            Activity::Frame { to, bytes: count } => bytes(f, "wire", to, *count),
            Activity::Contention => f.write_str("\"name\":\"contention\""),
        }
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
