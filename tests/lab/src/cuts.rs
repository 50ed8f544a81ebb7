//! A saturated stream whose connection is cut again and again.

use std::sync::Arc;
use std::time::Duration;

use chunkcomm_bench::failure::Failure;
use chunkcomm_bench::harness::machine::now_ns;
use chunkcomm_bench::harness::slices::name_of;
use chunkcomm_bench::options::values;
use chunkcomm_bench::stats::percentile_us;
use chunkcomm_bench::table::Row;
use chunkcomm_proto::random::Random;
use chunkcomm_testkit::proxy::{Conducts, Cut, Direction, Proxy, Wire};
use clap::{Args, ValueEnum};

use super::checks::{longest_ns, next_message_ns};
use super::protocol::LinkCounts;
use super::{Lab, Pair, Promises, Stream};

/// Bytes of a connection's opening each way, about: a cut below this falls into the opening.
const OPENING_BYTES: u64 = 320;

/// Number of cuts of which one, on average, is followed by a cut in the opening of the next
/// connection, and so on.
const OPENING_CUT_ONCE_IN: u64 = 4;

/// Most bytes of the stream before a cut that waits for a byte: some packets.
const FORTH_BYTES: u64 = 256 * 1024;

/// Most bytes against the stream before a cut: only acknowledgements and credit pass there.
const AGAINST_BYTES: u64 = 128;

/// Longest wait of a cut for its byte: 200 ms.
const FUSE: Duration = Duration::from_millis(200);

/// Fault of the connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum How {
    /// Reset, close and half-open by turns.
    Mixed,
    /// Both sides are reset.
    Reset,
    /// Both directions end.
    Close,
    /// Only the side that dialled is reset.
    HalfOpen,
    /// One direction becomes a blackhole.
    OneWay,
    /// Both directions become blackholes.
    Blackhole,
    /// Both directions stand still until another connection carries the stream; then they continue.
    Stall,
}

impl How {
    /// Whether the nodes must notice the fault by themselves.
    fn is_silent(self) -> bool {
        matches!(self, Self::OneWay | Self::Blackhole | Self::Stall)
    }
}

/// Direction of the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Flow {
    /// From the node that dialled.
    Forth,
    /// To the node that dialled.
    Back,
    /// Both at once.
    Both,
}

impl Flow {
    fn directions(self) -> &'static [Direction] {
        match self {
            Self::Forth => &[Direction::Forth],
            Self::Back => &[Direction::Back],
            Self::Both => &[Direction::Forth, Direction::Back],
        }
    }
}

/// Plan of the scenario.
#[derive(Debug, Clone, Copy, Args)]
pub struct Plan {
    /// Number of cuts of the connection
    #[arg(long, value_name = "N", default_value = "1000", value_parser = values::times)]
    pub cuts: usize,
    /// Mean time for which a connection carries data before it is cut
    #[arg(long, value_name = "DUR", default_value = "20ms", value_parser = values::some_time)]
    pub every: Duration,
    /// Fault of the connection; one-way, blackhole and stall take seconds each to be noticed
    #[arg(long, value_enum, default_value_t = How::Mixed)]
    pub how: How,
    /// Added time of each byte from node to node; a resume takes it several times
    #[arg(long, value_name = "DUR", default_value = "0s", value_parser = values::duration)]
    pub delay: Duration,
    /// Direction of the stream, as the node that dialled sees it
    #[arg(long = "direction", value_name = "DIRECTION", value_enum, default_value_t = Flow::Forth)]
    pub flow: Flow,
    /// Encoded bytes of a message, at least 8
    #[arg(long = "size", value_name = "B", default_value = "16", value_parser = values::message_bytes)]
    pub bytes: usize,
    /// Longest time of a resume beyond the backoff (99th percentile)
    #[arg(long, value_name = "DUR", default_value = "50ms", value_parser = values::duration)]
    pub resume_max: Duration,
}

/// Runs the scenario.
///
/// # Errors
/// If a process cannot be started or ends.
pub async fn run(
    lab: &mut Lab,
    plan: &Plan,
    promises: &mut Promises,
    row: &mut Row,
) -> Result<(), Failure> {
    row.set("how", name_of(plan.how))
        .set("direction", name_of(plan.flow))
        .set("delay_us", plan.delay.as_secs_f64() * 1e6)
        .set("payload_bytes", plan.bytes);
    let directions = plan.flow.directions();
    let mut pair = lab.pair_apart(plan.delay).await?;
    pair.begin(directions, plan.bytes).await?;
    let limit = lab.dead + lab.late_max;
    let mut cutting = Cutting { lab, plan, pair: &mut pair };
    let carried_on = cutting.run().await;
    promises.hold(carried_on, || {
        format!("no connection carried messages again within {} s", limit.as_secs())
    });
    let streams = pair.end(directions, promises).await?.unwrap_or_default();
    for stream in &streams {
        promises.exactly_once(stream);
    }
    figures(plan, &pair.proxy.wires(), &streams, promises, row);
    Ok(())
}

struct Cutting<'a> {
    lab: &'a mut Lab,
    plan: &'a Plan,
    pair: &'a mut Pair,
}

impl Cutting<'_> {
    /// Cuts as often as planned; returns false when the stream did not continue after a cut.
    async fn run(&mut self) -> bool {
        loop {
            // Also after the last cut: the stream is to end on a connection that works.
            let Some(wire) = self.carrying().await else { return false };
            // The bytes that stood still arrive at a session that has continued without them.
            if self.plan.how == How::Stall {
                self.pair.proxy.wires().iter().for_each(|wire| wire.release());
            }
            let left = self.plan.cuts.saturating_sub(struck(&self.pair.proxy));
            if left == 0 {
                return true;
            }
            tokio::time::sleep(self.lab.about(self.plan.every)).await;
            self.arm_openings(left - 1);
            self.strike(&wire).await;
        }
    }

    /// Waits for a connection that carries the stream.
    async fn carrying(&self) -> Option<Arc<Wire>> {
        let directions = self.plan.flow.directions();
        let proxy = &self.pair.proxy;
        let carries = |wire: &Arc<Wire>| {
            let is_whole = wire.is_live() && wire.struck().is_none();
            is_whole && directions.iter().all(|&way| wire.lane(way).carrying().is_some())
        };
        let found = |proxy: &Proxy| proxy.newest().filter(carries);
        // A dial under way may still wait for its backoff when the session is given up.
        let limit = self.lab.dead + self.lab.late_max;
        proxy.wait_until(limit, |proxy| found(proxy).is_some()).await;
        found(proxy)
    }

    /// Lets some of the next connections be cut while they open.
    fn arm_openings(&mut self, left: usize) {
        let random = &mut self.lab.random;
        if self.plan.how.is_silent() {
            // With a silent fault the measured resume is the one after that fault.
            return;
        }
        let mut armed = Vec::new();
        while armed.len() < left && random.one_in(OPENING_CUT_ONCE_IN) {
            let way = random.pick(&[Direction::Forth, Direction::Back]);
            let how = cut(self.plan.how, random).unwrap_or(Cut::Reset);
            armed.push(Conducts::cut_at(way, random.below(OPENING_BYTES), how));
        }
        self.pair.proxy.arm_next(armed);
    }

    /// Applies the planned fault to a connection.
    async fn strike(&mut self, wire: &Arc<Wire>) {
        let random = &mut self.lab.random;
        let Some(how) = cut(self.plan.how, random) else {
            match self.plan.how {
                How::OneWay => wire.swallow(&[random.pick(&[Direction::Forth, Direction::Back])]),
                How::Stall => wire.stall(),
                _ => wire.swallow(&[Direction::Forth, Direction::Back]),
            }
            return;
        };
        match random.below(4) {
            0 => wire.cut(how),
            1 => {
                let against = match self.plan.flow {
                    Flow::Forth => Direction::Back,
                    Flow::Back | Flow::Both => Direction::Forth,
                };
                wire.cut_after(against, random.below(AGAINST_BYTES), how);
            }
            _ => {
                let along = random.pick(self.plan.flow.directions());
                wire.cut_after(along, random.below(FORTH_BYTES), how);
            }
        }
        let is_over = |_: &Proxy| !wire.is_live();
        if !self.pair.proxy.wait_until(FUSE, is_over).await {
            wire.cut(how);
            // A task of this thread carries the cut out.
            self.pair.proxy.wait_until(self.lab.late_max, is_over).await;
        }
    }
}

fn cut(how: How, random: &mut Random) -> Option<Cut> {
    match how {
        How::Mixed => Some(random.pick(&[Cut::Reset, Cut::Close, Cut::HalfOpen])),
        How::Reset => Some(Cut::Reset),
        How::Close => Some(Cut::Close),
        How::HalfOpen => Some(Cut::HalfOpen),
        How::OneWay | How::Blackhole | How::Stall => None,
    }
}

fn struck(proxy: &Proxy) -> usize {
    proxy.wires().iter().filter(|wire| wire.struck().is_some()).count()
}

/// Nanoseconds of each resume, whole and in two parts: backoff and beyond.
#[derive(Debug, Default)]
struct Resumes {
    whole: Vec<u64>,
    backoff: Vec<u64>,
    beyond: Vec<u64>,
    /// Nanoseconds of the parts of `beyond`: until the hello of each side has passed, until the
    /// stream has, until the message is taken.
    parts: Vec<[u64; 3]>,
}

impl Resumes {
    /// Returns the resumes of all cuts after which the next connection carried the stream. For a
    /// connection cut in its opening, its own cut counts.
    fn of(wires: &[Arc<Wire>], direction: Direction, stream: &Stream) -> Self {
        let mut resumes = Self::default();
        for pair in wires.windows(2) {
            let (wire, next) = (&pair[0], &pair[1]);
            let (Some(cut), Some(carrying)) = (wire.struck(), next.lane(direction).carrying())
            else {
                continue;
            };
            let hello = next.forth.began().max(next.back.began()).unwrap_or(carrying);
            let [cut_ns, dialled_ns, hello_ns, carrying_ns] = [cut, next.dialled, hello, carrying]
                .map(|at| now_ns().saturating_sub(at.elapsed().as_nanos() as u64));
            let message_ns = next_message_ns(&stream.taken.silences, carrying_ns);
            resumes.whole.push(message_ns.saturating_sub(cut_ns));
            resumes.backoff.push(dialled_ns.saturating_sub(cut_ns));
            resumes.beyond.push(message_ns.saturating_sub(dialled_ns));
            let times = [dialled_ns, hello_ns, carrying_ns, message_ns];
            resumes.parts.push([0, 1, 2].map(|at| times[at + 1].saturating_sub(times[at])));
        }
        resumes
    }

    fn add(&mut self, other: Self) {
        self.whole.extend(other.whole);
        self.backoff.extend(other.backoff);
        self.beyond.extend(other.beyond);
        self.parts.extend(other.parts);
    }

    /// Returns the parts of the slowest resume, in microseconds.
    fn slowest_us(&self) -> Option<[f64; 3]> {
        let slowest = (0..self.beyond.len()).max_by_key(|&at| self.beyond[at])?;
        Some(self.parts[slowest].map(|ns| ns as f64 / 1e3))
    }
}

fn figures(
    plan: &Plan,
    wires: &[Arc<Wire>],
    streams: &[Stream],
    promises: &mut Promises,
    row: &mut Row,
) {
    let mut resumes = Resumes::default();
    for (&direction, stream) in plan.flow.directions().iter().zip(streams) {
        resumes.add(Resumes::of(wires, direction, stream));
    }
    let messages: u64 = streams.iter().map(|stream| stream.taken.messages).sum();
    let seconds = streams.iter().map(|stream| stream.taken.seconds()).fold(0.0, f64::max);
    let cuts = wires.iter().filter(|wire| wire.struck().is_some());
    let carried =
        |wire: &&Arc<Wire>| wire.forth.carrying().is_some() || wire.back.carrying().is_some();
    let in_openings = cuts.clone().filter(|wire| !carried(wire)).count();
    // The larger of the two ends' counts; all streams share one link.
    let ends = || streams.iter().flat_map(|stream| [&stream.sent.link, &stream.taken.link]);
    let counted = |of: &dyn Fn(&LinkCounts) -> u64| ends().map(of).max();
    let longest = streams.iter().map(|stream| longest_ns(&stream.taken.silences)).max();
    row.set("messages", messages)
        .set("seconds", seconds)
        .set("messages_per_second", messages as f64 / seconds)
        .set("connections", wires.len())
        .set("cuts", cuts.count())
        .set("cuts_in_openings", in_openings)
        .set("resumes", counted(&|link| link.resumes))
        .set("packets_resent", counted(&|link| link.packets_resent))
        .set("packets_duplicate", counted(&|link| link.packets_duplicate))
        .set("resume_p50_us", percentile_us(&resumes.whole, 50))
        .set("resume_p99_us", percentile_us(&resumes.whole, 99))
        .set("resume_max_us", percentile_us(&resumes.whole, 100))
        .set("backoff_p50_us", percentile_us(&resumes.backoff, 50))
        .set("backoff_p99_us", percentile_us(&resumes.backoff, 99))
        .set("beyond_backoff_p50_us", percentile_us(&resumes.beyond, 50))
        .set("beyond_backoff_p99_us", percentile_us(&resumes.beyond, 99))
        .set("beyond_backoff_max_us", percentile_us(&resumes.beyond, 100))
        .set("slowest_hello_us", resumes.slowest_us().map(|[hello, ..]| hello))
        .set("slowest_stream_us", resumes.slowest_us().map(|[_, stream, _]| stream))
        .set("slowest_message_us", resumes.slowest_us().map(|[.., message]| message))
        .set("longest_gap_us", longest.map(|ns| ns as f64 / 1e3));
    if !resumes.beyond.is_empty() {
        let p99_us = percentile_us(&resumes.beyond, 99);
        let max_us = plan.resume_max.as_secs_f64() * 1e6;
        promises.hold(p99_us <= max_us, || {
            format!("resumes take {p99_us} us beyond the backoff (p99), more than {max_us} us")
        });
    }
}
