//! `chunkperf stream`: typed messages one way.

mod sweep;

use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Map, Value};

use super::{Verdict, set_ratio};
use crate::baseline::append::{Append, Slowest};
use crate::baseline::gathered::Gathered;
use crate::baseline::raw::RawStream;
use crate::failure::Failure;
use crate::harness::near::{Bench, Setting};
use crate::harness::protocol::{Api, NodeKind, Pace, PolicyKind};
use crate::harness::slices::{Contender, Outcome, Plan, Slice, Slices, name_of};
use crate::options::{Common, values};
use crate::ours::bandwidth::{self, BandwidthKind};
use crate::ours::latency::{self, EchoKind};
use crate::ours::stream::{Delivery, Logged, StreamKind, near, near_logged};
use crate::pair;
use crate::peers::against::{self, Opponent, Pairing, Told};
use crate::peers::{Discipline, PeersDir, Task};
use crate::stats::percentile_us;
use crate::table::Row;

/// Messages of the first warm-up; fewer if they are large.
const FIRST_TRY: u64 = 10_000;

/// Most bytes of the messages of the first warm-up, unless one message has more.
const FIRST_TRY_BYTES: u64 = 10 << 20;

/// Seconds of a paced run, unless the number of messages is given.
const PACED_SECONDS: u64 = 2;

/// Most round trips in a slice of the baseline `latency`.
const ROUND_TRIPS_MAX: u64 = 1_000;

/// Options of `chunkperf stream`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct StreamArgs {
    #[command(subcommand)]
    form: Option<StreamForm>,
    #[command(flatten)]
    common: Common,
    /// Encoded bytes of a message, at least 8
    #[arg(long, value_name = "B", default_value = "16", value_parser = values::message_bytes)]
    size: usize,
    /// Messages of all counted slices [default: as many as take two seconds]
    #[arg(long, value_name = "N", value_parser = values::count)]
    messages: Option<u64>,
    /// Messages a second [default: as many as go]
    #[arg(long, value_name = "R", value_parser = values::rate)]
    rate: Option<u64>,
    /// Way of keeping a rate: spinning, or sleeping until a timer of the system
    #[arg(long, value_enum, default_value_t = Pace::Spin)]
    pace: Pace,
    /// Fixed size of packets, 1 KiB to 1 MiB [default: the library chooses]
    #[arg(long, value_name = "B", value_parser = values::packet_bytes)]
    packet_bytes: Option<usize>,
    /// Policy by which a packet leaves: chunked, unbuffered or linger:DUR
    #[arg(long, default_value = "chunked", value_parser = values::policy)]
    policy: PolicyKind,
    /// Messages a call at both ends: one, or many
    #[arg(long, value_enum, default_value_t = Api::One)]
    api: Api,
    /// Delivery of messages: plain, or kept until the receiver has settled them (logged: on disk,
    /// too)
    #[arg(long, value_enum, default_value_t = Delivery::Plain)]
    delivery: Delivery,
    /// Number of further channels on the same link, which are open and carry nothing
    #[arg(long, value_name = "N", default_value = "0", value_parser = values::idle_channels)]
    idle_channels: usize,
    /// Baseline that is measured in the same run, and whose ratio is printed
    #[arg(long, value_name = "BASELINE",
          value_parser = against::parser::<Against>(Discipline::OneWay))]
    against: Option<Opponent<Against>>,
    #[command(flatten)]
    peers: PeersDir,
    /// Slices of each side, at least 10 [default: 10, and 50 against session-off, plain and
    /// alone, five on a connection]
    #[arg(long, value_name = "N", value_parser = values::slices)]
    slices: Option<usize>,
}

#[derive(Debug, Subcommand)]
enum StreamForm {
    /// The library without a setting against fixed packet sizes and lingers, over sizes and rates
    Sweep(sweep::SweepArgs),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Against {
    /// Messages copied into a 64 KiB buffer by hand.
    HandBatched,
    /// One write a message.
    Unbatched,
    /// The same bytes without messages, from one reused buffer.
    Raw,
    /// Ours: half a round trip, against the median delivery.
    Latency,
    /// Ours without its session.
    SessionOff,
    /// Ours, with no message settled.
    Plain,
    /// Ours without idle channels.
    Alone,
    /// The slower, slice by slice, of two: the bytes of our log appended to a file with as many
    /// calls of fsync, and ours with no message settled.
    AppendOrPlain,
    /// Ours: a channel of bytes, from and into reused memory.
    Bandwidth,
}

/// Runs the command.
///
/// # Errors
/// If the options do not go together, or the measurement fails.
pub fn run(args: &StreamArgs) -> Result<Verdict, Failure> {
    if let Some(StreamForm::Sweep(args)) = &args.form {
        return sweep::run(args);
    }
    args.check()?;
    let setting = args.common.setting()?;
    let plan = Plan::cut(args.total(), args.first_try(), args.against.is_some(), args.slices())?;
    let mut bench = pair::start(&setting)?;
    let pairing = Pairing::new(args.against, args.task(), &args.peers, plan);
    let pairing = Pairing { fine: args.is_fine(), ..pairing };
    let (kind, logged) = (args.kind(args.node(&setting)), Logged::default());
    let ours = |bench: &mut Bench| near_logged(bench, kind, &logged);
    let own = |bench: &mut Bench, own| args.baseline(bench, own, kind, &logged);
    let (outcome, told) = pairing.run(&mut bench, ours, own)?;
    args.row(&outcome, &told).print(args.common.json);
    Ok(Verdict::Fine)
}

impl StreamArgs {
    /// Whether the ratio is to show a difference of a twentieth.
    fn is_fine(&self) -> bool {
        matches!(
            self.against,
            Some(Opponent::Own(Against::SessionOff | Against::Plain | Against::Alone))
        )
    }

    fn slices(&self) -> Slices {
        Slices { given: self.slices, fine: self.is_fine() }
    }

    fn check(&self) -> Result<(), Failure> {
        match self.against {
            Some(Opponent::Own(
                own @ (Against::HandBatched | Against::Unbatched | Against::Raw),
            )) => {
                self.common.needs_sockets(&name_of(own))?;
            }
            Some(Opponent::Rival(rival)) => rival.check(&self.common)?,
            _ => {}
        }
        let own = match self.against {
            Some(Opponent::Own(own)) => Some(own),
            _ => None,
        };
        if let Some(against) = self.against
            && self.rate.is_some()
            && !(own == Some(Against::Latency) || self.is_fine())
        {
            return Err(Failure::Refused(format!(
                "--rate paces ours only: --against {} is not allowed with it, only latency, \
                 session-off, plain and alone",
                against.name()
            )));
        }
        if own == Some(Against::AppendOrPlain) && self.delivery != Delivery::Logged {
            return Err(Failure::Refused(
                "--against append-or-plain is for a log: only --delivery logged is allowed with it"
                    .to_owned(),
            ));
        }
        if own == Some(Against::Alone) && self.idle_channels == 0 {
            return Err(Failure::Refused(
                "--against alone is for idle channels: only --idle-channels above 0 is allowed \
                 with it"
                    .to_owned(),
            ));
        }
        if self.rate.is_some() && self.api == Api::Many {
            return Err(Failure::Refused(
                "--rate paces single messages: only --api one is allowed with it".to_owned(),
            ));
        }
        Ok(())
    }

    fn total(&self) -> Option<u64> {
        self.messages.or_else(|| self.rate.map(|rate| rate.saturating_mul(PACED_SECONDS)))
    }

    fn first_try(&self) -> u64 {
        (FIRST_TRY_BYTES / self.size as u64).clamp(1, FIRST_TRY)
    }

    fn task(&self) -> Task {
        let (discipline, bytes) = (Discipline::OneWay, self.size);
        Task { discipline, bytes, in_flight: 1, first_try: self.first_try() }
    }

    fn node(&self, setting: &Setting) -> NodeKind {
        // The link has the same memory without its idle channels.
        let channels = (self.idle_channels > 0).then_some(self.idle_channels);
        NodeKind { packet_bytes: self.packet_bytes, channels, ..setting.node(self.policy) }
    }

    fn kind(&self, node: NodeKind) -> StreamKind {
        StreamKind {
            bytes: self.size,
            api: self.api,
            rate: self.rate,
            pace: self.pace,
            delivery: self.delivery,
            idle: self.idle_channels,
            node,
        }
    }

    fn baseline(
        &self,
        bench: &mut Bench,
        own: Against,
        kind: StreamKind,
        logged: &Logged,
    ) -> Result<Box<dyn Contender>, Failure> {
        let StreamKind { bytes, node, .. } = kind;
        let plain = StreamKind { delivery: Delivery::Plain, ..kind };
        Ok(match own {
            Against::HandBatched => Box::new(Gathered::open(bench, bytes, true)?),
            Against::Unbatched => Box::new(Gathered::open(bench, bytes, false)?),
            Against::Raw => Box::new(RawStream::open(bench, bytes)?),
            Against::SessionOff => {
                near(bench, StreamKind { node: NodeKind { session: false, ..node }, ..kind })?
            }
            Against::Plain => near(bench, plain)?,
            Against::Alone => near(bench, StreamKind { idle: 0, ..kind })?,
            Against::AppendOrPlain => {
                let append = Append::open(prefixed(bytes), logged)?;
                Box::new(Slowest(vec![near(bench, plain)?, Box::new(append)]))
            }
            Against::Bandwidth => {
                Box::new(bandwidth::Near::open(bench, BandwidthKind { bytes, fresh: false, node })?)
            }
            Against::Latency => {
                let echo = EchoKind { count_max: ROUND_TRIPS_MAX, ..EchoKind::of(bytes, node) };
                latency::near(bench, echo)?
            }
        })
    }

    fn row(&self, outcome: &Outcome, told: &Told) -> Row {
        let mut row = self.common.row("stream");
        row.set("policy", policy_name(self.policy)).set("payload_bytes", self.size);
        set_ours(&mut row, self.size, outcome);
        row.set("api", name_of(self.api))
            .set("rate", self.rate)
            .set("idle_channels", self.idle_channels)
            .set("delivery", name_of(self.delivery))
            .set("session", name_of(self.common.session));
        if let Some(against) = self.against {
            self.set_baseline(&mut row, against, outcome);
        }
        told.set(&mut row);
        row
    }

    fn set_baseline(&self, row: &mut Row, against: Opponent<Against>, outcome: &Outcome) {
        let name = against.name();
        if against == Opponent::Own(Against::Latency) {
            // A delivery goes one way, a round trip goes two.
            let half_us = |slice: &Slice| slice.p50_us() / 2.0;
            let delivery: Vec<f64> = outcome.ours.iter().map(Slice::p50_us).collect();
            let halves: Vec<f64> = outcome.baseline.iter().map(half_us).collect();
            set_ratio(row, &name, crate::stats::Ratio::of_pairs(&delivery, &halves));
            let p50_us = percentile_us(&outcome.baseline_samples_ns(), 50);
            row.set("baseline_delivery_p50_us", p50_us / 2.0).set("baseline_p50_us", p50_us);
        } else {
            set_ratio(row, &name, outcome.ratio(Slice::rate));
            let rate = outcome.baseline_rate();
            // Programs of their own do not tell their processor time.
            let cpu_us = Some(outcome.baseline_cpu_us_per_message()).filter(|us| *us > 0.0);
            row.set("baseline_messages_per_second", rate)
                .set("baseline_cpu_us_per_message", cpu_us);
            if against == Opponent::Own(Against::Bandwidth) {
                row.set("baseline_bytes_per_second", rate * self.size as f64);
            }
        }
    }
}

/// Sets our figures over the counted slices, of messages of `bytes`.
fn set_ours(row: &mut Row, bytes: usize, outcome: &Outcome) {
    let messages = outcome.messages();
    let rate = messages as f64 / outcome.seconds();
    row.set("messages", messages)
        .set("seconds", outcome.seconds())
        .set("messages_per_second", rate)
        .set("bytes_per_second", rate * bytes as f64);
    if let Some(stats) = &outcome.stats {
        let counts = stats.flushes.iter();
        let flushes: Map<_, _> =
            counts.map(|(reason, count)| (reason.name().to_owned(), Value::from(count))).collect();
        row.set("packets", stats.packets_sent)
            .set("messages_per_packet", stats.messages_sent as f64 / stats.packets_sent as f64)
            .set("writes", stats.writes)
            .set("flushes", Value::Object(flushes));
    }
    let samples = outcome.samples_ns();
    row.set("cpu_us_per_message", outcome.cpu_us() / messages as f64)
        .set("delivery_p50_us", percentile_us(&samples, 50))
        .set("delivery_p99_us", percentile_us(&samples, 99));
}

/// Returns the bytes that a message of `bytes` has in a log.
fn prefixed(bytes: usize) -> usize {
    bytes + chunkcomm::proto::message::prefix_bytes(bytes)
}

fn policy_name(policy: PolicyKind) -> String {
    match policy {
        PolicyKind::Chunked => "chunked".to_owned(),
        PolicyKind::Unbuffered => "unbuffered".to_owned(),
        PolicyKind::Linger(time) => format!("linger:{}us", time.as_secs_f64() * 1e6),
    }
}
