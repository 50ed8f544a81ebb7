//! `chunkperf collective`: calls of a group of processes, or of virtual hosts.

#[cfg(feature = "virtual")]
mod compared;
#[cfg(feature = "virtual")]
pub(crate) mod formulas;
#[cfg(feature = "virtual")]
pub(super) mod world;

use chunkcomm_group::Algorithm;
use clap::{Args, ValueEnum};

use super::Verdict;
use super::counts::CountsOfSides;
use super::opposite::{Opposite, Told, fastest, seconds_a_call, set_times};
use crate::baseline::mpi_calls::{CALLS, Compiled, Form};
use crate::failure::Failure;
use crate::harness::calls::{CallKind, ELEMENT_BYTES, Operation};
use crate::harness::machine;
use crate::harness::protocol::{RuntimeKind, Transport};
use crate::harness::ranks::Ranks;
use crate::harness::slices::{
    Outcome, Plan, Side, Slice, Slices, alternate, beside, name_of, unless_it_may,
};
use crate::lan::LanArgs;
use crate::options::{Common, Shorter, values};
use crate::ours::collective::OursKind;
use crate::ranks::{SideKind, Work, start};
use crate::table::Row;

/// Most ranks: more on one machine would measure its scheduler.
const RANKS_MAX: u64 = 64;

/// Vectors up to this size are called many times a run, which is timed as a whole: 4 KiB.
const TOGETHER_BYTES_MAX: usize = 4096;

/// Number of slices of each side.
const SLICES: usize = 12;

/// Calls of the first warm-up.
const FIRST_CALLS: u64 = 3;

/// Options of `chunkperf collective`.
#[derive(Debug, Args)]
#[command(
    after_help = "Each rank is a process, pinned to core RANK modulo cores, on both sides. Time \
    of a call: latest end minus earliest start. The ratio is that of calls a second, time_ratio that of \
    times. Above 4 KiB each call begins when all ranks have met."
)]
pub struct CollectiveArgs {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    shorter: Shorter,
    /// Operation; its root is rank 0, its sum one of f64
    #[arg(long, value_enum, value_name = "NAME", default_value_t = Operation::AllReduce)]
    op: Operation,
    /// Bytes of each rank's vector, whole elements of 8; a barrier has none
    #[arg(long, value_name = "B", default_value = "1MiB", value_parser = values::bytes)]
    size: usize,
    /// Number of ranks
    #[arg(long, value_name = "N", default_value = "4", value_parser = values::count)]
    ranks: u64,
    /// Way in which the calls travel among the ranks; auto is the one of the least modelled time
    #[arg(long, value_name = "NAME|auto", default_value = "auto", value_parser = values::algorithm)]
    algorithm: Algorithm,
    #[command(flatten)]
    lan: LanArgs,
    #[cfg(feature = "virtual")]
    #[command(flatten)]
    compared: compared::ComparedArgs,
    /// Calls of ours in all counted slices [default: as many as take some seconds]
    #[arg(long, value_name = "N", value_parser = values::count)]
    repeat: Option<u64>,
    /// Adds the cost of a call, summed over the ranks, with the barrier, the filling and the check around it:
    /// processor time, context switches and page faults of both sides; of this library also packets, writes,
    /// reads and waits for credit
    #[arg(long)]
    counts: bool,
    /// Baseline that is measured in the same run, and whose ratio is printed
    #[arg(long, value_enum, value_name = "BASELINE")]
    against: Option<Against>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Against {
    /// Bare sockets in as many processes: chains, rings and pairs.
    Relay,
    /// MPICH over TCP, compiled by mpicc; its fastest way of calling.
    Mpich,
    /// Open MPI over TCP with its own settings; its fastest way of calling.
    Openmpi,
    /// Open MPI with its pipelines `adapt`.
    OpenmpiAdapt,
    /// Open MPI with pipelines of 512 KiB.
    #[value(name = "openmpi-512k")]
    Openmpi512k,
    /// The fastest of all these MPIs.
    Mpi,
    /// A dissemination over epoll: barrier, or an all-reduce of 8 bytes.
    Dissemination,
}

/// Runs the command.
///
/// # Errors
/// If the options do not go together, or the measurement fails.
pub fn run(args: &CollectiveArgs) -> Result<Verdict, Failure> {
    #[cfg(feature = "virtual")]
    if args.compared.is_wanted() {
        return compared::run(args);
    }
    let kind = args.kind()?;
    #[cfg(feature = "virtual")]
    if let Some(spec) = args.lan.spec() {
        return args.run_virtually(spec, kind);
    }
    let setting = args.common.setting_with(args.shorter)?;
    let slices = Slices { given: Some(SLICES), fine: false };
    let plan = Plan::cut(args.repeat, FIRST_CALLS, args.against.is_some(), slices)?;
    let opposite = unless_it_may(args.is_mpi(), args.opposite(kind))?;
    let told = opposite.as_ref().ok().and_then(Option::as_ref).map(Opposite::told);
    let (runtime, threads) = (setting.runtime, setting.threads);
    let ours = OursKind { runtime, threads, algorithm: args.algorithm.to_string() };
    let mut ours = start(&Work::Call { side: SideKind::Ours(ours), kind })?;
    // Ranks of an MPI may hang: ours has its row all the same.
    let mut counts = CountsOfSides::new(args.counts);
    let (outcome, _, reason) = beside(args.is_mpi(), opposite, |opposite| {
        ours.hold(false);
        args.measure(&plan, kind, &mut ours, opposite, &mut counts)
    })?;
    let mut row = args.row(kind, &outcome, told, reason);
    args.shorter.set(&mut row);
    counts.set(&mut row);
    row.print(args.common.json);
    Ok(Verdict::Fine)
}

/// Runs `count` calls as one slice.
fn slice(ranks: &mut Ranks, kind: CallKind, count: u64) -> Result<Slice, Failure> {
    let together = kind.bytes <= TOGETHER_BYTES_MAX;
    let (runs, calls) = if together { (1, count.max(2)) } else { (count, 1) };
    Ok(Slice::timed(runs * calls, ranks.run(runs, calls)?))
}

impl CollectiveArgs {
    fn kind(&self) -> Result<CallKind, Failure> {
        let refuse = |why: String| Err(Failure::Refused(why));
        self.common.needs_this_host("collective")?;
        self.lan.check(&self.common)?;
        self.common.needs_session("collective")?;
        if !(1..=RANKS_MAX).contains(&self.ranks) {
            return refuse(format!("--ranks: allowed are 1 to {RANKS_MAX}"));
        }
        let (ranks, operation) = (self.ranks as usize, self.op);
        let bytes = if operation == Operation::Barrier { 0 } else { self.size };
        let unit = ELEMENT_BYTES * if operation == Operation::AllToAll { ranks } else { 1 };
        if operation != Operation::Barrier && (bytes == 0 || !bytes.is_multiple_of(unit)) {
            return refuse(format!("--size {bytes}: allowed are multiples of {unit} above 0"));
        }
        let sleeps_only = matches!(self.common.transport, Transport::Tcp | Transport::Tls);
        if !sleeps_only {
            return refuse(format!(
                "--transport {}: the ranks are processes that meet over TCP, tcp and tls are allowed",
                name_of(self.common.transport)
            ));
        }
        if self.against == Some(Against::Dissemination) {
            let small = operation == Operation::AllReduce && bytes == ELEMENT_BYTES;
            if !(operation == Operation::Barrier || small && ranks.is_power_of_two()) {
                return refuse(
                    "--against dissemination: allowed with --op barrier, and with --op all-reduce \
                     --size 8 for a power of two ranks"
                        .to_owned(),
                );
            }
        }
        Ok(CallKind { operation, bytes, ranks })
    }

    /// Runs calls on a virtual LAN, the closed form beside them.
    #[cfg(feature = "virtual")]
    fn run_virtually(&self, spec: &str, kind: CallKind) -> Result<Verdict, Failure> {
        if self.against.is_some() || self.counts {
            return Err(Failure::Refused(
                "--against, --counts: allowed with --lan real".to_owned(),
            ));
        }
        let (seconds, ran) = world::timed(&self.lan, spec, kind, &[self.algorithm])?;
        let spec = crate::lan::load(spec)?;
        let costs = formulas::Costs::of(&spec);
        let form = costs.and_then(|costs| costs.seconds(kind, self.algorithm));
        let mut row = self.row_of(kind, seconds[0]);
        row.set("form_seconds", form).set("form_ratio", form.map(|form| seconds[0] / form));
        ran.print(row, &self.lan, self.common.json);
        Ok(Verdict::Fine)
    }

    fn is_mpi(&self) -> bool {
        !matches!(self.against, None | Some(Against::Relay | Against::Dissemination))
    }

    fn spins(&self) -> bool {
        self.common.runtime == RuntimeKind::BusyPoll
    }

    /// Starts the baseline's ranks; of several forms of an MPI those of the fastest.
    fn opposite(&self, kind: CallKind) -> Result<Option<Opposite>, Failure> {
        let Some(against) = self.against else { return Ok(None) };
        let shares_cores = kind.ranks > machine::core_count();
        let of_side = |side| {
            let ranks = start(&Work::Call { side, kind })?;
            Ok(Some(Opposite { ranks, name: name_of(against), request: None }))
        };
        let forms = match against {
            Against::Relay => return of_side(SideKind::Relay),
            Against::Dissemination => {
                return of_side(SideKind::Dissemination { spin: self.spins() });
            }
            Against::Mpich => Form::mpich(shares_cores),
            Against::Openmpi => Form::open_mpi(),
            Against::OpenmpiAdapt => vec![Form::adapt()],
            Against::Openmpi512k => vec![Form::segments()],
            Against::Mpi => {
                let mut all = [Form::mpich(shares_cores), Form::open_mpi()].concat();
                if kind.bytes > TOGETHER_BYTES_MAX {
                    all.extend([Form::adapt(), Form::segments()]);
                }
                all
            }
        };
        let arguments = [name_of(kind.operation), kind.bytes.to_string()];
        let mut compiled = Compiled::of(&CALLS);
        let start = |form| compiled.start(form, kind.ranks, &arguments);
        fastest(&forms, FIRST_CALLS, start, |ranks, count| slice(ranks, kind, count)).map(Some)
    }

    fn measure(
        &self,
        plan: &Plan,
        kind: CallKind,
        ours: &mut Ranks,
        mut opposite: Option<&mut Opposite>,
        counts: &mut CountsOfSides,
    ) -> Result<Outcome, Failure> {
        let sides = Side::against(opposite.is_some());
        let held = self.spins() && sides.len() > 1;
        let mut counted =
            |side, ranks: &mut _, calls| counts.of(side, ranks, |ranks| slice(ranks, kind, calls));
        alternate(plan, sides, |side, count| match (side, &mut opposite) {
            (Side::Baseline, Some(opposite)) => {
                if held {
                    ours.hold(true);
                }
                let slice = counted(side, &mut opposite.ranks, count.messages);
                ours.hold(false);
                slice
            }
            _ => counted(side, ours, count.messages),
        })
    }

    /// Returns the row of calls that take this time.
    fn row_of(&self, kind: CallKind, seconds: f64) -> Row {
        let mut row = self.common.row("collective");
        row.set("op", name_of(kind.operation))
            .set("algorithm", self.algorithm.name())
            .set("ranks", kind.ranks)
            .set("payload_bytes", kind.bytes)
            .set("segments", None::<u64>)
            .set("seconds", seconds)
            .set("bytes_per_second", (kind.bytes > 0).then(|| kind.bytes as f64 / seconds))
            .set("lan", self.lan.lan.as_str());
        row
    }

    /// Returns the row; `missing` is the reason why there is no baseline although one was asked for.
    fn row(
        &self,
        kind: CallKind,
        outcome: &Outcome,
        told: Option<Told>,
        missing: Option<String>,
    ) -> Row {
        let mut row = self.row_of(kind, seconds_a_call(&outcome.ours));
        row.set("calls", outcome.messages());
        let Some(against) = self.against else { return row };
        set_times(&mut row, &name_of(against), outcome, told, missing);
        row
    }
}
