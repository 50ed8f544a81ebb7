//! `chunkperf feed`: a message to several subscribers.

use clap::{Args, ValueEnum};

use super::{Verdict, set_ratio};
use crate::baseline::nats;
use crate::failure::Failure;
use crate::harness::machine::now_ns;
use crate::harness::protocol::PolicyKind;
use crate::harness::slices::{self, Outcome, Plan, Side, Slice, name_of};
use crate::options::{Common, values};
use crate::ours::feed::{FeedKind, Way, start};
use crate::table::Row;

/// Options of `chunkperf feed`.
#[derive(Debug, Args)]
pub struct FeedArgs {
    #[command(flatten)]
    common: Common,
    /// Encoded bytes of a message, at least 8
    #[arg(long, value_name = "B", default_value = "16", value_parser = values::message_bytes)]
    size: usize,
    /// Subscribers, each with a connection of its own
    #[arg(long, value_name = "N", default_value = "8", value_parser = values::subscribers)]
    subscribers: usize,
    /// Subscribers among them that read nothing; the feed then leaves messages out for them
    #[arg(long, value_name = "N", default_value = "0", value_parser = values::stopped)]
    stopped: usize,
    /// Messages of all counted slices [default: as many as take two seconds]
    #[arg(long, value_name = "N", value_parser = values::count)]
    messages: Option<u64>,
    /// Baseline that is measured in the same run; the ratio is that of messages a second
    #[arg(long, value_enum, value_name = "BASELINE")]
    against: Option<Against>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Against {
    /// A loop over a channel to each subscriber that reads.
    Loop,
    /// The same, with the feed's backlog: a channel that keeps as much for a slow subscriber.
    LoopBacklog,
    /// A feed of the subscribers that read alone.
    Reading,
    /// NATS: the program nats-server between the two ends.
    Nats,
}

/// Runs the command.
///
/// # Errors
/// If the options do not go together, or the measurement fails.
pub fn run(args: &FeedArgs) -> Result<Verdict, Failure> {
    args.common.needs_this_host("feed")?;
    if args.stopped >= args.subscribers {
        return Err(Failure::Refused("--stopped must leave a subscriber that reads".to_owned()));
    }
    let setting = args.common.setting()?;
    let plan = Plan::new(args.messages, 1000, args.against.is_some())?;
    let way = if args.stopped > 0 { Way::Skips } else { Way::Waits };
    let ours = FeedKind {
        bytes: args.size,
        reading: args.subscribers - args.stopped,
        stopped: args.stopped,
        way,
        node: setting.node(PolicyKind::Chunked),
    };
    let place = setting.place("127.0.0.1");
    let mut baseline = match args.against {
        None => None,
        Some(Against::Loop) => {
            Some(start(FeedKind { way: Way::Loop, stopped: 0, ..ours }, &place)?)
        }
        Some(Against::Nats) => Some(nats::start(FeedKind { stopped: 0, ..ours })?),
        Some(Against::LoopBacklog) => {
            Some(start(FeedKind { way: Way::LoopBacklog, stopped: 0, ..ours }, &place)?)
        }
        Some(Against::Reading) => Some(start(FeedKind { stopped: 0, ..ours }, &place)?),
    };
    let mut ours = start(ours, &place)?;
    let sides = Side::against(baseline.is_some());
    let outcome = slices::alternate(&plan, sides, |side, count| {
        let started_ns = now_ns();
        match (side, &mut baseline) {
            (Side::Baseline, Some(baseline)) => baseline.feed(count.messages)?,
            _ => ours.feed(count.messages)?,
        }
        Ok(Slice::timed(count.messages, (now_ns() - started_ns) as f64 / 1e9))
    })?;
    args.row(&outcome).print(args.common.json);
    Ok(Verdict::Fine)
}

impl FeedArgs {
    fn row(&self, outcome: &Outcome) -> Row {
        let mut row = self.common.row("feed");
        let rate = outcome.messages() as f64 / outcome.seconds();
        let reading = (self.subscribers - self.stopped) as f64;
        row.set("payload_bytes", self.size)
            .set("subscribers", self.subscribers)
            .set("stopped", self.stopped)
            .set("deliveries_per_second", rate * reading)
            .set("session", name_of(self.common.session));
        if let Some(against) = self.against {
            set_ratio(&mut row, &name_of(against), outcome.ratio(Slice::rate));
            row.set("baseline_deliveries_per_second", outcome.baseline_rate() * reading);
        }
        row
    }
}
