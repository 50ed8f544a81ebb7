//! `chunkperf redistribute`: a matrix from one layout to another, between two groups of processes or
//! within one.

mod packing;
pub(crate) mod ping_pong;
#[cfg(feature = "virtual")]
pub(crate) mod world;

use std::time::Instant;

use chunkcomm_array::{Layout, plan_of};
use clap::{Args, ValueEnum};

use super::Verdict;
use super::counts::CountsOfSides;
use super::opposite::{Opposite, Told, fastest, seconds_a_call, set_times};
use crate::baseline::mpi_calls::{ALL_TO_ALL, Compiled, Form, SCALAPACK, Source};
use crate::failure::{Doing, Failure};
use crate::harness::calls::{CallKind, Operation};
use crate::harness::machine;
use crate::harness::protocol::{OnOff, Transport};
use crate::harness::ranks::Ranks;
use crate::harness::slices::{
    Outcome, Plan, Side, Slice, Slices, alternate, beside, name_of, unless_it_may,
};
use crate::harness::transfers::{ELEMENT_BYTES, Transfer, TransferKind, blocks};
use crate::lan::LanArgs;
use crate::options::{Common, Shorter, values};
use crate::ours::arrays::ArraysKind;
use crate::ours::collective::OursKind;
use crate::ranks::{SideKind, TransferSide, Work, start};
use crate::stats::median;
use crate::table::Row;

/// Most ranks: more on one machine would measure its scheduler.
const RANKS_MAX: usize = 64;

/// Packing on the SP2, in nanoseconds a byte: 58 MB/s.
pub(crate) const SP2_PACKING_NS: f64 = 1e3 / 58.0;

/// Copies of the Fortran interface there: 106 MB/s.
const SP2_COPIES_NS: f64 = 1e3 / 106.0;

/// Plans of which the median is taken.
const PLANS: usize = 1001;

/// Number of slices of each side.
const SLICES: usize = 12;

/// Transfers of the first warm-up.
const FIRST_TRANSFERS: u64 = 2;

/// Barriers of which the mean is taken.
const BARRIERS: u64 = 2000;

/// Time of opening a transfer beside its barriers: 100 us.
const EXTRA_SECONDS: f64 = 100e-6;

/// Options of `chunkperf redistribute`.
#[derive(Debug, Args)]
#[command(
    after_help = "The grids decide the number of ranks; each is a process, pinned to core RANK modulo \
    cores, the receivers behind the senders. Elements are f64, and every side looks at all that it \
    received, outside of the measured time. Time of a transfer: latest end minus earliest start, after \
    all ranks have met. `plan_seconds` is the time of making plans that are kept, `messages` the number \
    of pairs of processes that exchange elements, null with replicas. The ratio is that of transfers a second, time_ratio \
    that of times. Against kept: `extra_barriers` is what opening takes above 100 us, in barriers of the \
    same ranks. Steps of --ping-pong are the largest of all ranks; `transfer_us` has waits for peers in it."
)]
pub struct RedistributeArgs {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    shorter: Shorter,
    /// Rows and columns of the matrix
    #[arg(long, value_name = "RxC", default_value = "4096x4096", value_parser = values::shape)]
    shape: [usize; 2],
    /// The senders' layout with its grid
    #[arg(long, value_name = "SPEC", default_value = "(block,*)@2x1", value_parser = values::layout)]
    from: String,
    /// The receivers' layout with its grid
    #[arg(long, value_name = "SPEC", default_value = "(*,block)@1x2", value_parser = values::layout)]
    to: String,
    /// The ranks of both layouts are the same processes
    #[arg(long)]
    within: bool,
    /// The receivers get the transposed matrix; their layout is that of its rows and columns
    #[arg(long)]
    transposed: bool,
    /// Transfers in all counted slices [default: as many as take some seconds]
    #[arg(long, value_name = "N", value_parser = values::count)]
    repeat: Option<u64>,
    /// Ours has two arrays of one group, and copies one to the other
    #[arg(long, requires = "within")]
    copy: bool,
    /// Ours writes the senders' array as an .npy file into the temporary folder
    #[arg(long, requires = "within", conflicts_with = "copy")]
    npy: bool,
    /// Whether ours opens the transfer anew each time, or once
    #[arg(long, value_enum, value_name = "PLAN", default_value_t = PlanKind::Kept)]
    plan: PlanKind,
    /// Whether ours packs while it sends
    #[arg(long, value_enum, value_name = "ON|OFF", default_value_t = OnOff::On)]
    overlap: OnOff,
    #[command(flatten)]
    lan: LanArgs,
    /// Nanoseconds of packing a byte, and of unpacking it, on virtual hosts [default: 0, on sp2 17.24]
    #[arg(long, value_name = "NS", value_parser = values::nanoseconds)]
    packing: Option<f64>,
    /// Nanoseconds of a byte of the copies that an interface makes at both ends, on virtual hosts
    /// [default: 0, on sp2 9.43]
    #[arg(long, value_name = "NS", value_parser = values::nanoseconds)]
    copies: Option<f64>,
    /// Only the plans of rank 0, as a sender and as a receiver, in microseconds: the median of 1001
    #[arg(long)]
    plan_only: bool,
    /// Only packing and unpacking what rank 0 sends to rank 0, against loops by hand in this process
    #[arg(long)]
    pack_only: bool,
    /// One way of a transfer there and back, by steps, over sizes, numbers of ranks and plans
    #[arg(long)]
    ping_pong: bool,
    /// Most rows of a matrix there and back
    #[arg(long, value_name = "N", default_value = "1024", value_parser = values::count)]
    rows_max: u64,
    /// Most ranks of a group there and back
    #[arg(long, value_name = "N", default_value = "4", value_parser = values::count)]
    group_max: u64,
    /// Adds the cost of a transfer, summed over the ranks, with the barrier, the filling and the check around it:
    /// processor time, context switches and page faults of both sides; of this library also packets, writes,
    /// reads and waits for credit
    #[arg(long, conflicts_with = "side")]
    counts: bool,
    /// Baseline that is measured in the place of ours
    #[arg(long, value_enum, value_name = "BASELINE")]
    side: Option<Against>,
    /// Baseline that is measured in the same run, and whose ratio is printed
    #[arg(long, value_enum, value_name = "BASELINE")]
    against: Option<Against>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum PlanKind {
    /// Opened anew for each transfer.
    Fresh,
    /// Opened once, started again.
    Kept,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Against {
    /// Packed, sent over bare sockets and unpacked by hand.
    Hand,
    /// The same bytes over bare sockets from and into one reused buffer: nothing is packed.
    Raw,
    /// Open MPI over TCP: `MPI_Alltoallw` with subarray types.
    Openmpi,
    /// `pdgemr2d` of ScaLAPACK over Open MPI or MPICH, the faster one.
    Scalapack,
    /// Ours with a kept plan, for `--plan fresh`.
    Kept,
    /// Ours without overlap, on a virtual LAN.
    OverlapOff,
    /// An array in blocks of rows, for `--npy`.
    Blocks,
}

/// Runs the command.
///
/// # Errors
/// If the options do not go together, or the measurement fails.
pub fn run(args: &RedistributeArgs) -> Result<Verdict, Failure> {
    if args.plan_only {
        return args.plan_only();
    }
    if args.pack_only {
        return packing::run(args);
    }
    if args.ping_pong {
        return ping_pong::run(args);
    }
    #[cfg(feature = "virtual")]
    if let Some(spec) = args.lan.spec() {
        return args.run_virtually(spec);
    }
    let transfer = args.transfer()?;
    if args.packing.is_some() || args.copies.is_some() || args.against == Some(Against::OverlapOff)
    {
        let why = "--packing, --copies, --against overlap-off: allowed with --lan virtual:NAME";
        return Err(Failure::Refused(why.to_owned()));
    }
    args.common.setting_with(args.shorter)?;
    let slices = Slices { given: Some(SLICES), fine: false };
    let plan = Plan::cut(args.repeat, FIRST_TRANSFERS, args.against.is_some(), slices)?;
    let opposite = args.against.map(|it| args.opposite(it, &transfer)).transpose();
    let opposite = unless_it_may(args.is_mpi(), opposite)?;
    let told = opposite.as_ref().ok().and_then(Option::as_ref).map(Opposite::told);
    let mut ours = args.ours(&transfer)?;
    let plan_seconds = ours.run(1, 1)?;
    // Ranks of an MPI may hang: ours has its row all the same.
    let mut counts = CountsOfSides::new(args.counts);
    let (outcome, opposite, reason) = beside(args.is_mpi(), opposite, |opposite| {
        measure(&plan, &mut ours, opposite, &mut counts)
    })?;
    let mut row = args.row(&transfer, &outcome, plan_seconds, told, reason);
    args.shorter.set(&mut row);
    counts.set(&mut row);
    if args.against == Some(Against::Kept) {
        drop((ours, opposite));
        args.set_extra(&mut row, &outcome, transfer.ranks())?;
    }
    row.print(args.common.json);
    Ok(Verdict::Fine)
}

/// Runs `count` transfers as one slice.
fn slice(ranks: &mut Ranks, count: u64) -> Result<Slice, Failure> {
    Ok(Slice::timed(count, ranks.run(count, 1)?))
}

fn measure(
    plan: &Plan,
    ours: &mut Ranks,
    mut opposite: Option<&mut Opposite>,
    counts: &mut CountsOfSides,
) -> Result<Outcome, Failure> {
    let sides = Side::against(opposite.is_some());
    alternate(plan, sides, |side, count| {
        let ranks = match (side, &mut opposite) {
            (Side::Baseline, Some(opposite)) => &mut opposite.ranks,
            _ => &mut *ours,
        };
        counts.of(side, ranks, |ranks| slice(ranks, count.messages))
    })
}

impl RedistributeArgs {
    /// Refuses what processes of this machine do not do.
    fn check_processes(&self) -> Result<(), Failure> {
        self.common.needs_this_host("redistribute")?;
        self.common.needs_session("redistribute")?;
        if matches!(self.common.transport, Transport::Tcp | Transport::Tls) {
            return Ok(());
        }
        Err(Failure::Refused(format!(
            "--transport {}: the ranks are processes that meet over TCP, tcp and tls are allowed",
            name_of(self.common.transport)
        )))
    }

    fn transfer(&self) -> Result<Transfer, Failure> {
        let refuse = |why: String| Err(Failure::Refused(why));
        self.check_processes()?;
        let (from, to) = (self.from.clone(), self.to.clone());
        let (shape, within, transposed) = (self.shape, self.within, self.transposed);
        let kind = TransferKind { shape, from, to, within, transposed, there_and_back: false };
        let transfer = kind.parse()?;
        let [senders, receivers] = [transfer.from.ranks(), transfer.to.ranks()];
        if within && senders != receivers {
            return refuse(format!(
                "--within: allowed are grids of as many ranks, not {senders} and {receivers}"
            ));
        }
        if transfer.ranks() > RANKS_MAX {
            return refuse(format!("the grids: allowed are 1 to {RANKS_MAX} ranks in all"));
        }
        for side in [self.against, self.side].into_iter().flatten() {
            side.check(&transfer)?;
        }
        if self.side == Some(Against::Blocks) || self.against == Some(Against::Blocks) && !self.npy
        {
            return refuse("blocks: allowed is --npy --against blocks, without --side".to_owned());
        }
        let fresh = self.plan == PlanKind::Fresh && self.side.is_none() && !self.copy;
        if self.side == Some(Against::Kept) || self.against == Some(Against::Kept) && !fresh {
            return refuse(
                "kept: allowed is --plan fresh --against kept, without --side".to_owned(),
            );
        }
        if (self.copy || self.npy) && self.plan == PlanKind::Fresh {
            return refuse("--copy, --npy: allowed with --plan kept".to_owned());
        }
        Ok(transfer)
    }

    fn is_mpi(&self) -> bool {
        matches!(self.against, Some(Against::Openmpi | Against::Scalapack))
    }

    /// Measures the plans of rank 0 here: the longer of both.
    fn plan_only(&self) -> Result<Verdict, Failure> {
        let layout = |text: &str| Layout::parse(text, &self.shape).doing("understanding a layout");
        let (from, to) = (layout(&self.from)?, layout(&self.to)?);
        let [sending, receiving] = [true, false].map(|is_sender| {
            let timed = |_| {
                let began = Instant::now();
                std::hint::black_box(plan_of(&from, &to, is_sender, 0));
                began.elapsed().as_secs_f64()
            };
            median(&(0..PLANS).map(timed).collect::<Vec<_>>())
        });
        let (peers, families, steps) = plan_of(&from, &to, true, 0);
        let [rows, columns] = self.shape;
        self.common
            .row("redistribute")
            .set("shape", format!("{rows}x{columns}"))
            .set("from", self.from.as_str())
            .set("to", self.to.as_str())
            .set("messages", peers)
            .set("families", families)
            .set("steps", steps)
            .set("plan_seconds", sending.max(receiving))
            .set("plan_us", sending.max(receiving) * 1e6)
            .print(self.common.json);
        Ok(Verdict::Fine)
    }

    /// Starts the ranks of the measured side.
    fn ours(&self, transfer: &Transfer) -> Result<Ranks, Failure> {
        match self.side {
            Some(side) => side.start(transfer).map(|side| side.ranks),
            None => self.start_ours(transfer, self.plan),
        }
    }

    fn kind(&self, plan: PlanKind) -> ArraysKind {
        let is_sp2 = self.lan.spec() == Some("sp2");
        let of_sp2 = |nanos: f64| if is_sp2 { nanos } else { 0.0 };
        ArraysKind {
            runtime: self.common.runtime,
            threads: self.common.threads,
            fresh: plan == PlanKind::Fresh,
            overlap: self.overlap == OnOff::On,
            copies: self.copy,
            npy: self.npy,
            packing_ns: self.packing.unwrap_or_else(|| of_sp2(SP2_PACKING_NS)),
            copies_ns: self.copies.unwrap_or_else(|| of_sp2(SP2_COPIES_NS)),
        }
    }

    /// Runs one transfer on a virtual LAN, and one without overlap where that is asked for.
    #[cfg(feature = "virtual")]
    fn run_virtually(&self, spec: &str) -> Result<Verdict, Failure> {
        let transfer = self.transfer()?;
        if self.counts {
            return Err(Failure::Refused("--counts: allowed with --lan real".to_owned()));
        }
        if !matches!(self.against, None | Some(Against::OverlapOff)) || self.side.is_some() {
            let why = "--against, --side: allowed with a virtual LAN is --against overlap-off";
            return Err(Failure::Refused(why.to_owned()));
        }
        let kind = self.kind(self.plan);
        let without = ArraysKind { overlap: false, ..kind };
        let kinds = if self.against.is_some() { vec![kind, without] } else { vec![kind] };
        let (times, ran) = world::timed(&self.lan, spec, &transfer, &kinds)?;
        let (seconds, steps_ns) = times[0];
        let mut row = self.row_of(&transfer, seconds);
        row.set("packing_ns", kind.packing_ns).set("copies_ns", kind.copies_ns);
        ping_pong::set_steps(&mut row, steps_ns);
        if let Some((baseline, _)) = times.get(1) {
            row.set("baseline", "overlap-off")
                .set("ratio", baseline / seconds)
                .set("baseline_seconds", *baseline);
        }
        ran.print(row, &self.lan, self.common.json);
        Ok(Verdict::Fine)
    }

    fn start_ours(&self, transfer: &Transfer, plan: PlanKind) -> Result<Ranks, Failure> {
        let ours = self.kind(plan);
        start(&Work::Transfer { side: TransferSide::Ours(ours), kind: transfer.kind.clone() })
    }

    /// Starts the baseline's ranks, and lets them make their plans.
    fn opposite(&self, against: Against, transfer: &Transfer) -> Result<Opposite, Failure> {
        let mut opposite = match against {
            Against::Kept | Against::Blocks => {
                let mut kind = transfer.kind.clone();
                if against == Against::Blocks {
                    kind.from = format!("(block,*)@{}x1", transfer.ranks());
                    kind.to = kind.from.clone();
                }
                let ranks = self.start_ours(&kind.parse()?, PlanKind::Kept)?;
                Opposite { ranks, name: name_of(against), request: None }
            }
            _ => against.start(transfer)?,
        };
        opposite.ranks.run(1, 1)?;
        Ok(opposite)
    }

    /// Adds what opening a transfer costs, in barriers of the same ranks.
    fn set_extra(&self, row: &mut Row, outcome: &Outcome, ranks: usize) -> Result<(), Failure> {
        let kind = CallKind { operation: Operation::Barrier, bytes: 0, ranks };
        let (runtime, threads) = (self.common.runtime, self.common.threads);
        let ours = OursKind { runtime, threads, algorithm: "auto".to_owned() };
        let mut calling = start(&Work::Call { side: SideKind::Ours(ours), kind })?;
        calling.run(1, BARRIERS / 10)?;
        let barrier_seconds = calling.run(1, BARRIERS)? / BARRIERS as f64;
        let extras: Vec<f64> = outcome
            .ours
            .iter()
            .zip(&outcome.baseline)
            .map(|(fresh, kept)| 1.0 / fresh.rate() - 1.0 / kept.rate())
            .collect();
        let extra_seconds = median(&extras);
        row.set("barrier_us", barrier_seconds * 1e6)
            .set("extra_us", extra_seconds * 1e6)
            .set("extra_barriers", (extra_seconds - EXTRA_SECONDS) / barrier_seconds);
        Ok(())
    }

    /// Returns the row; `missing` is the reason why there is no baseline although one was asked for.
    fn row(
        &self,
        transfer: &Transfer,
        outcome: &Outcome,
        plan_seconds: f64,
        told: Option<Told>,
        missing: Option<String>,
    ) -> Row {
        let seconds = seconds_a_call(&outcome.ours);
        let mut row = self.row_of(transfer, seconds);
        let plan_seconds = (self.plan == PlanKind::Kept).then_some(plan_seconds);
        row.set("plan_seconds", plan_seconds).set("transfers", outcome.messages());
        let Some(against) = self.against else { return row };
        set_times(&mut row, &name_of(against), outcome, told, missing);
        let bytes = transfer.elements() * ELEMENT_BYTES;
        let baseline = seconds_a_call(&outcome.baseline);
        row.set("baseline_bytes_per_second", bytes as f64 / baseline);
        row
    }

    /// Returns what every row says.
    fn row_of(&self, transfer: &Transfer, seconds: f64) -> Row {
        let bytes = transfer.elements() * ELEMENT_BYTES;
        let [rows, columns] = self.shape;
        let mut row = self.common.row("redistribute");
        row.set("shape", format!("{rows}x{columns}"))
            .set("from", self.from.as_str())
            .set("to", self.to.as_str())
            .set("within", self.within)
            .set("transposed", self.transposed)
            .set("plan", name_of(self.plan))
            .set("overlap", name_of(self.overlap))
            .set("copy", self.copy)
            .set("npy", self.npy)
            .set("side", self.side.map(name_of))
            .set("ranks", transfer.ranks())
            .set("bytes", bytes)
            .set("seconds", seconds)
            .set("bytes_per_second", bytes as f64 / seconds)
            .set("plan_seconds", None::<f64>)
            .set("messages", (!transfer.has_replicas()).then(|| transfer.messages()));
        row
    }
}

impl Against {
    /// Refuses transfers that the baseline does not do.
    fn check(self, transfer: &Transfer) -> Result<(), Failure> {
        let refuse = |why: &str| Err(Failure::Refused(format!("{}: {why}", name_of(self))));
        if !matches!(self, Self::Kept | Self::OverlapOff | Self::Blocks) && transfer.has_replicas()
        {
            return refuse("allowed are layouts in which each element has one owner");
        }
        if matches!(self, Self::Hand | Self::Raw | Self::Kept | Self::OverlapOff | Self::Blocks) {
            return Ok(());
        }
        if transfer.kind.transposed {
            return refuse("allowed are transfers without --transposed");
        }
        let (Some(from), Some(to)) = (blocks(&transfer.from), blocks(&transfer.to)) else {
            return refuse("allowed are block, cyclic and *, not blocks of several lengths");
        };
        let is_one_block = |blocks: &[usize], grid: Vec<usize>| {
            let dims = blocks.iter().zip(&transfer.kind.shape).zip(grid);
            dims.into_iter().all(|((block, extent), ranks)| block * ranks >= *extent)
        };
        let subarrays =
            is_one_block(&from, transfer.from.grid()) && is_one_block(&to, transfer.to.grid());
        if self == Self::Openmpi && !subarrays {
            return refuse("its types are subarrays: allowed are block and *");
        }
        Ok(())
    }

    /// Starts the baseline's ranks; of several forms of an MPI those of the fastest.
    fn start(self, transfer: &Transfer) -> Result<Opposite, Failure> {
        let of_side = |side| {
            let ranks = start(&Work::Transfer { side, kind: transfer.kind.clone() })?;
            Ok(Opposite { ranks, name: name_of(self), request: None })
        };
        match self {
            Self::Hand => of_side(TransferSide::Hand),
            Self::Raw => of_side(TransferSide::Raw),
            Self::Kept | Self::OverlapOff | Self::Blocks => {
                Err(Failure::broken("starting ranks", "ours has settings"))
            }
            Self::Openmpi => of_mpi(&ALL_TO_ALL, &Form::open_mpi(), transfer),
            Self::Scalapack => {
                let mut forms = vec![Form::open_mpi()[0]];
                // Ranks of MPICH that wait keep their core.
                if transfer.ranks() <= machine::core_count() {
                    forms.push(Form::mpich(false)[0]);
                }
                let opposite = of_mpi(&SCALAPACK, &forms, transfer)?;
                Ok(Opposite { name: format!("scalapack-{}", opposite.name), ..opposite })
            }
        }
    }
}

/// Starts the ranks of a program of an MPI; of several forms those of the fastest.
fn of_mpi(
    source: &'static Source,
    forms: &[Form],
    transfer: &Transfer,
) -> Result<Opposite, Failure> {
    let mut arguments = transfer.kind.shape.map(|extent| extent.to_string()).to_vec();
    arguments.push(transfer.first_receiver().to_string());
    for layout in [&transfer.from, &transfer.to] {
        let blocks = blocks(layout).unwrap_or_default();
        let dims = blocks.iter().zip(layout.grid());
        arguments.extend(dims.flat_map(|(block, ranks)| [block.to_string(), ranks.to_string()]));
    }
    let mut compiled = Compiled::of(source);
    let start = |form| compiled.start(form, transfer.ranks(), &arguments);
    fastest(forms, FIRST_TRANSFERS, start, slice)
}
