//! `chunkperf bandwidth`: large messages one way.

use clap::{Args, ValueEnum};

use super::{Verdict, set_ratio};
use crate::baseline::raw::RawStream;
use crate::failure::Failure;
use crate::harness::near::Bench;
use crate::harness::protocol::{NodeKind, PolicyKind};
use crate::harness::slices::{self, Contender, Outcome, Plan, Slice, Slices, name_of};
use crate::options::{Common, Shorter, values};
use crate::ours::bandwidth::{BandwidthKind, Near};
use crate::pair;
use crate::peers::against::{self, Opponent, Pairing, Told};
use crate::peers::{Discipline, PeersDir, Task};
use crate::table::Row;

/// Options of `chunkperf bandwidth`.
#[derive(Debug, Args)]
pub struct BandwidthArgs {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    shorter: Shorter,
    /// Bytes of a message, at least 8
    #[arg(long, value_name = "B", default_value = "64MiB", value_parser = values::message_bytes)]
    size: usize,
    /// Messages of all counted slices [default: as many as take two seconds]
    #[arg(long, value_name = "N", value_parser = values::count)]
    repeat: Option<u64>,
    /// Baseline that is measured in the same run, and whose ratio is printed
    #[arg(long, value_name = "BASELINE",
          value_parser = against::parser::<Against>(Discipline::Bandwidth))]
    against: Option<Opponent<Against>>,
    #[command(flatten)]
    peers: PeersDir,
    /// Slices of each side, at least 10 [default: 10, and 50 against session-off]
    #[arg(long, value_name = "N", value_parser = values::slices)]
    slices: Option<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Against {
    /// The same bytes over plain sockets, from one reused buffer and into one.
    Raw,
    /// Ours without its session.
    SessionOff,
}

/// Runs the command.
///
/// # Errors
/// If the options do not go together, or the measurement fails.
pub fn run(args: &BandwidthArgs) -> Result<Verdict, Failure> {
    match args.against {
        Some(Opponent::Own(Against::Raw)) => args.common.needs_sockets("raw")?,
        Some(Opponent::Rival(rival)) => rival.check(&args.common)?,
        _ => {}
    }
    let setting = args.common.setting_with(args.shorter)?;
    let plan = Plan::cut(args.repeat, 1, args.against.is_some(), args.slices())?;
    let mut bench = pair::start(&setting)?;
    let (bytes, node) = (args.size, setting.node(PolicyKind::Chunked));
    let kind = BandwidthKind { bytes, fresh: false, node };
    let task = Task { discipline: Discipline::Bandwidth, bytes, in_flight: 1, first_try: 1 };
    let pairing = Pairing::new(args.against, task, &args.peers, plan);
    let near = |bench: &mut Bench, kind| -> Result<Box<dyn Contender>, Failure> {
        Ok(Box::new(Near::open(bench, kind)?))
    };
    let own = |bench: &mut Bench, own| match own {
        Against::Raw => Ok(Box::new(RawStream::open(bench, bytes)?) as Box<dyn Contender>),
        Against::SessionOff => {
            near(bench, BandwidthKind { node: NodeKind { session: false, ..node }, ..kind })
        }
    };
    let (outcome, told) = pairing.run(&mut bench, |bench| near(bench, kind), own)?;
    let mut fresh = near(&mut bench, BandwidthKind { fresh: true, ..kind })?;
    let plan = Plan::new(args.repeat, 1, false)?;
    let fresh = slices::run(&mut bench, &mut *fresh, None, &plan)?;
    args.row(&outcome, &fresh, &told).print(args.common.json);
    Ok(Verdict::Fine)
}

impl BandwidthArgs {
    fn slices(&self) -> Slices {
        Slices {
            given: self.slices,
            fine: self.against == Some(Opponent::Own(Against::SessionOff)),
        }
    }

    fn row(&self, outcome: &Outcome, fresh: &Outcome, told: &Told) -> Row {
        let bytes_per_second =
            |outcome: &Outcome| outcome.messages() as f64 * self.size as f64 / outcome.seconds();
        let mut row = self.common.row("bandwidth");
        row.set("payload_bytes", self.size)
            .set("bytes_per_second", bytes_per_second(outcome))
            .set("fresh_bytes_per_second", bytes_per_second(fresh))
            .set("repeat", outcome.messages())
            .set("session", name_of(self.common.session));
        self.shorter.set(&mut row);
        if let Some(against) = self.against {
            set_ratio(&mut row, &against.name(), outcome.ratio(Slice::rate));
            row.set("baseline_bytes_per_second", outcome.baseline_rate() * self.size as f64);
        }
        told.set(&mut row);
        row
    }
}
