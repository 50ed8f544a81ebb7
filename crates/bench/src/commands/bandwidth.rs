//! `chunkperf bandwidth`: large messages one way.

use clap::{Args, ValueEnum};

use super::{Verdict, set_ratio};
use crate::baseline::raw::RawStream;
use crate::failure::Failure;
use crate::harness::near::{Bench, Setting};
use crate::harness::protocol::{NodeKind, PolicyKind};
use crate::harness::slices::{self, Contender, Outcome, Plan, Slice, Slices, name_of};
use crate::options::{Common, values};
use crate::ours::bandwidth::{BandwidthKind, Near};
use crate::pair;
use crate::peers::against::{self, Rival, Told};
use crate::peers::{Discipline, PeersDir, Task};
use crate::table::Row;

/// Options of `chunkperf bandwidth`.
#[derive(Debug, Args)]
pub struct BandwidthArgs {
    #[command(flatten)]
    common: Common,
    /// Bytes of a message, at least 8
    #[arg(long, value_name = "B", default_value = "64MiB", value_parser = values::message_bytes)]
    size: usize,
    /// Messages of all counted slices [default: as many as take two seconds]
    #[arg(long, value_name = "N", value_parser = values::count)]
    repeat: Option<u64>,
    /// Baseline that is measured in the same run, and whose ratio is printed
    #[arg(long, value_name = "BASELINE",
          value_parser = against::parser(Discipline::Bandwidth, Against::Rival))]
    against: Option<Against>,
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
    /// Another system.
    #[value(skip)]
    Rival(Rival),
}

impl Against {
    fn name(self) -> String {
        if let Self::Rival(rival) = self { rival.name() } else { name_of(self) }
    }
}

/// Runs the command.
///
/// # Errors
/// If the options do not go together, or the measurement fails.
pub fn run(args: &BandwidthArgs) -> Result<Verdict, Failure> {
    if args.against == Some(Against::Raw) {
        args.common.needs_sockets("raw")?;
    }
    if let Some(Against::Rival(rival)) = args.against {
        rival.check(&args.common)?;
    }
    let setting = args.common.setting()?;
    let plan = Plan::cut(args.repeat, 1, args.against.is_some(), args.slices())?;
    let mut bench = pair::start(&setting)?;
    let node = setting.node(PolicyKind::Chunked);
    let kind = BandwidthKind { bytes: args.size, fresh: false, node };
    let mut ours = Near::open(&mut bench, kind)?;
    let (outcome, told) = args.beside(&mut bench, &setting, &mut ours, &plan)?;
    drop(ours);
    let mut fresh = Near::open(&mut bench, BandwidthKind { fresh: true, ..kind })?;
    let plan = Plan::new(args.repeat, 1, false)?;
    let fresh = slices::run(&mut bench, &mut fresh, None, &plan)?;
    args.row(&outcome, &fresh, told.as_ref()).print(args.common.json);
    Ok(Verdict::Fine)
}

impl BandwidthArgs {
    fn slices(&self) -> Slices {
        Slices { given: self.slices, fine: self.against == Some(Against::SessionOff) }
    }

    /// Measures ours with its baseline, if it has one.
    fn beside(
        &self,
        bench: &mut Bench,
        setting: &Setting,
        ours: &mut Near,
        plan: &Plan,
    ) -> Result<(Outcome, Option<Told>), Failure> {
        let mut baseline: Option<Box<dyn Contender>> = match self.against {
            None => None,
            Some(Against::Raw) => Some(Box::new(RawStream::open(bench, self.size)?)),
            Some(Against::SessionOff) => {
                let node = NodeKind { session: false, ..setting.node(PolicyKind::Chunked) };
                let kind = BandwidthKind { bytes: self.size, fresh: false, node };
                Some(Box::new(Near::open(bench, kind)?))
            }
            Some(Against::Rival(rival)) => {
                let discipline = Discipline::Bandwidth;
                let task = Task { discipline, bytes: self.size, in_flight: 1, first_try: 1 };
                let beside = (false, &self.peers);
                let (outcome, told) = against::run(bench, ours, plan, rival, &task, beside)?;
                return Ok((outcome, Some(told)));
            }
        };
        Ok((slices::run(bench, ours, baseline.as_mut(), plan)?, None))
    }

    fn row(&self, outcome: &Outcome, fresh: &Outcome, told: Option<&Told>) -> Row {
        let bytes_per_second =
            |outcome: &Outcome| outcome.messages() as f64 * self.size as f64 / outcome.seconds();
        let mut row = self.common.row("bandwidth");
        row.set("payload_bytes", self.size)
            .set("bytes_per_second", bytes_per_second(outcome))
            .set("fresh_bytes_per_second", bytes_per_second(fresh))
            .set("repeat", outcome.messages())
            .set("session", name_of(self.common.session));
        if let Some(against) = self.against {
            set_ratio(&mut row, &against.name(), outcome.ratio(Slice::rate));
            row.set("baseline_bytes_per_second", outcome.baseline_rate() * self.size as f64);
        }
        if let Some(told) = told {
            told.set(&mut row);
        }
        row
    }
}
