//! `chunkperf latency`: round trips of one message.

use std::cell::RefCell;

use clap::{Args, ValueEnum};

use super::{Verdict, set_ratio};
use crate::baseline::mpich::MpichEcho;
use crate::baseline::raw::RawEcho;
use crate::failure::Failure;
use crate::harness::near::Bench;
use crate::harness::protocol::{LaneKind, NodeKind, PolicyKind, RuntimeKind, Transport};
use crate::harness::slices::{Contender, Outcome, Plan, Slice, name_of};
use crate::harness::spinner::Spinners;
use crate::options::{Common, Shorter, values};
use crate::ours::latency::{EchoKind, near};
use crate::pair;
use crate::peers::against::{self, Opponent, Pairing, Rival, Told};
use crate::peers::{Discipline, PeersDir, Task};
use crate::stats::percentile_us;
use crate::table::Row;

/// Options of `chunkperf latency`.
#[derive(Debug, Args)]
pub struct LatencyArgs {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    shorter: Shorter,
    /// Encoded bytes of a message, at least 8
    #[arg(long, value_name = "B", default_value = "16", value_parser = values::message_bytes)]
    size: usize,
    /// Round trips of all counted slices
    #[arg(long, value_name = "N", default_value = "20000", value_parser = values::count)]
    iterations: u64,
    /// Load beside the round trips: none, a bulk transfer on another channel, or cores that never
    /// halt
    #[arg(long, value_enum, default_value_t = LoadKind::Idle)]
    load: LoadKind,
    /// Bytes of a message of the bulk transfer
    #[arg(long, value_name = "B", default_value = "1GiB", value_parser = values::message_bytes)]
    load_bytes: usize,
    /// Lane of the messages
    #[arg(long, value_enum, default_value_t = LaneKind::Bulk)]
    lane: LaneKind,
    /// Baseline that is measured in the same run, and whose ratio is printed
    #[arg(long, value_name = "BASELINE",
          value_parser = against::parser::<Against>(Discipline::RoundTrip))]
    against: Option<Opponent<Against>>,
    #[command(flatten)]
    peers: PeersDir,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum LoadKind {
    /// No load.
    Idle,
    /// A bulk transfer from near to far end.
    Bulk,
    /// A thread at idle priority spins on each core, also beside the baseline: no core halts.
    Spinner,
}

/// Round trips of the first slice in which the speed of another system is found.
const FIRST_TRY: u64 = 50;

/// Longest median round trip in plain sockets on a core that does not halt, in microseconds.
const AWAKE_US_MAX: f64 = 20.0;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Against {
    /// Plain sockets: sleeping in epoll, or spinning in it with --runtime busy-poll.
    Raw,
    /// MPICH over TCP, which spins: a program of its own, compiled by mpicc.
    Mpich,
    /// Our round trips without a load.
    LoadIdle,
    /// Ours without its session.
    SessionOff,
}

/// Runs the command.
///
/// # Errors
/// If the options do not go together, or the measurement fails.
pub fn run(args: &LatencyArgs) -> Result<Verdict, Failure> {
    args.check()?;
    let setting = args.common.setting_with(args.shorter)?;
    let plan = Plan::new(Some(args.iterations), 1, args.against.is_some())?;
    let mut bench = pair::start(&setting)?;
    let kind = args.kind(setting.node(PolicyKind::Chunked));
    // MPICH's ranks may hang: ours has its row all the same.
    let may_fail = args.against == Some(Opponent::Own(Against::Mpich));
    let pairing = Pairing::new(args.against, args.task(), &args.peers, plan);
    let pairing = Pairing { may_fail, spinning: args.spins(), ..pairing };
    // They start when the sides of this program are open.
    let spinners = RefCell::new(None);
    let spin = || -> Result<(), Failure> {
        if args.load == LoadKind::Spinner {
            spinners.replace(Some(Spinners::start()?));
        }
        Ok(())
    };
    let has_own = matches!(args.against, Some(Opponent::Own(_)));
    let ours = |bench: &mut Bench| {
        let side = near(bench, kind)?;
        if !has_own {
            spin()?;
        }
        Ok(side)
    };
    let own = |bench: &mut Bench, own| {
        let side = args.baseline(bench, own, kind)?;
        spin()?;
        Ok(side)
    };
    let (outcome, told) = pairing.run(&mut bench, ours, own)?;
    args.row(&outcome, &told).print(args.common.json);
    Ok(Verdict::Fine)
}

impl LatencyArgs {
    fn check(&self) -> Result<(), Failure> {
        if self.against == Some(Opponent::Own(Against::Raw)) {
            self.common.needs_sockets("raw")?;
        }
        if self.load == LoadKind::Spinner && self.against == Some(Opponent::Own(Against::LoadIdle))
        {
            return Err(Failure::Refused(
                "--load spinner is beside both: it allows --against raw, mpich or session-off, or \
                 another system, not load-idle"
                    .to_owned(),
            ));
        }
        let is_tcp = self.common.transport == Transport::Tcp && self.common.connect.is_none();
        let spins = match self.against {
            Some(Opponent::Rival(Rival::System(system))) => system.spins(),
            own => own == Some(Opponent::Own(Against::Mpich)),
        };
        match self.against {
            Some(against) if spins && !(is_tcp && self.spins()) => Err(Failure::Refused(format!(
                "--against {} is allowed with --runtime busy-poll and --transport tcp, without \
                     --connect: it spins over TCP on this host",
                against.name()
            ))),
            Some(Opponent::Rival(rival)) => rival.check(&self.common),
            _ => Ok(()),
        }
    }

    fn spins(&self) -> bool {
        self.common.runtime == RuntimeKind::BusyPoll
    }

    fn task(&self) -> Task {
        let (discipline, bytes) = (Discipline::RoundTrip, self.size);
        Task { discipline, bytes, in_flight: 1, first_try: FIRST_TRY }
    }

    fn kind(&self, node: NodeKind) -> EchoKind {
        let load = (self.load == LoadKind::Bulk).then_some(self.load_bytes);
        EchoKind { bytes: self.size, load, lane: self.lane, count_max: u64::MAX, node }
    }

    fn baseline(
        &self,
        bench: &mut Bench,
        own: Against,
        kind: EchoKind,
    ) -> Result<Box<dyn Contender>, Failure> {
        Ok(match own {
            Against::Raw => Box::new(RawEcho::open(bench, self.size, self.spins())?),
            Against::Mpich => Box::new(MpichEcho::open(bench, self.size)?),
            Against::LoadIdle => near(bench, EchoKind { load: None, ..kind })?,
            Against::SessionOff => {
                let node = NodeKind { session: false, ..kind.node };
                near(bench, EchoKind { node, ..kind })?
            }
        })
    }

    fn row(&self, outcome: &Outcome, told: &Told) -> Row {
        let samples = outcome.samples_ns();
        let mut row = self.common.row("latency");
        row.set("payload_bytes", self.size)
            .set("iterations", samples.len())
            .set("p50_us", percentile_us(&samples, 50))
            .set("p99_us", percentile_us(&samples, 99))
            .set("load", name_of(self.load))
            .set("load_bytes", (self.load == LoadKind::Bulk).then_some(self.load_bytes))
            .set("lane", name_of(self.lane))
            .set("session", name_of(self.common.session));
        self.shorter.set(&mut row);
        if let Some(against) = self.against {
            let p99_us = percentile_us(&samples, 99);
            let samples = outcome.baseline_samples_ns();
            let baseline_p50_us = percentile_us(&samples, 50);
            let baseline_p99_us = percentile_us(&samples, 99);
            set_ratio(&mut row, &against.name(), outcome.ratio(Slice::p50_us));
            row.set("baseline_p50_us", baseline_p50_us)
                .set("baseline_p99_us", baseline_p99_us)
                .set("p99_ratio", p99_us / baseline_p99_us);
            told.set(&mut row);
            if let Some(reason) = told.reason.clone().or_else(|| self.halts(baseline_p50_us)) {
                row.set("ratio", None::<f64>).set("reason", reason);
            }
        }
        row
    }

    /// Returns the reason why the ratio beside a spinner means nothing, if it does not.
    fn halts(&self, baseline_p50_us: f64) -> Option<String> {
        let halts = self.load == LoadKind::Spinner && baseline_p50_us > AWAKE_US_MAX;
        halts.then(|| {
            format!(
                "the baseline takes {baseline_p50_us:.1} us, above {AWAKE_US_MAX} us: \
                     the host takes the cores away all the same"
            )
        })
    }
}
