//! `chunkperf farm`: tasks from a farmer to workers and their results back.

mod queue;
mod sweep;
#[cfg(feature = "virtual")]
mod tree;

use std::time::Duration;

use chunkcomm_farm::settings::{Fsync, Grain, Model, Prefetch, Tree, WORKER_COUNT_MAX, WorkersAs};
use clap::{Args, Subcommand, ValueEnum};

use super::{Verdict, set_ratio};
use crate::baseline::hand_farm::{HandFarm, HandFarmKind};
use crate::baseline::mpich::MpichFarm;
use crate::failure::Failure;
use crate::harness::machine;
use crate::harness::near::Bench;
use crate::harness::protocol::{RuntimeKind, Transport};
use crate::harness::slices::{
    Contender, Outcome, Plan, Side, Slice, alternate, beside, name_of, unless_it_may,
};
use crate::harness::work::{Work, iterations_of};
use crate::lan::LanArgs;
use crate::options::Common;
use crate::options::values::{self, Auto};
#[cfg(feature = "virtual")]
use crate::ours::farm::farm_in;
use crate::ours::farm::{
    FarmKind, Ready, farmer_address, run_on_threads, run_sequentially, runtime_of, start,
};
use crate::pair;
use crate::stats::Ratio;
use crate::table::Row;

/// Prefetch of a baseline if ours chooses its own.
const BASELINE_PREFETCH: usize = 64;

/// Most bytes of an assignment: it is one message, and this is the default limit of a node.
const ASSIGNMENT_BYTES_MAX: u64 = 32 << 20;

/// Bytes of an assignment beside its tasks, and of a task beside its own bytes: an upper bound of
/// both.
const HEADER_BYTES: u64 = 64;

/// Options of `chunkperf farm`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct FarmArgs {
    #[command(subcommand)]
    form: Option<FarmForm>,
    #[command(flatten)]
    common: Common,
    /// Tasks of all counted slices
    #[arg(long, value_name = "N", default_value = "100000", value_parser = values::count)]
    tasks: u64,
    /// Time that each task computes on a core of its own: a number of iterations, found at the start
    #[arg(long, value_name = "DUR", default_value = "0us", value_parser = values::duration)]
    work: Duration,
    /// Encoded bytes of a task, at least 8; a result has 8
    #[arg(long, value_name = "B", default_value = "16", value_parser = values::message_bytes)]
    task_bytes: usize,
    /// Number of workers, in model a the farmer's own among them
    #[arg(long, value_name = "N", default_value = "1", value_parser = values::count)]
    workers: u64,
    /// Processes, pinned one a core, or threads
    #[arg(long, value_enum, default_value_t = As::Process)]
    workers_as: As,
    /// Whether the farmer's node also works (a) or not (b)
    #[arg(long, value_enum, default_value_t = ModelKind::B)]
    model: ModelKind,
    /// Assignments that a worker holds, including the one at work; auto measures
    #[arg(long, value_name = "K|auto", default_value = "auto", value_parser = values::auto_count)]
    prefetch: Auto<u64>,
    /// Tasks an assignment; auto measures
    #[arg(long, value_name = "G|auto", default_value_t)]
    grain: Grain,
    /// Sub-farmers on a virtual LAN: auto, off, hosts, or the number of nodes that have one
    #[arg(long, value_name = "N", default_value_t)]
    tree: Tree,
    /// Whether the farmer keeps a journal, and when its results are permanent
    #[arg(long, value_enum, default_value_t = JournalKind::Off)]
    journal: JournalKind,
    #[command(flatten)]
    lan: LanArgs,
    /// Baseline that is measured in the same run, and whose ratio is printed
    #[arg(long, value_enum, value_name = "BASELINE")]
    against: Option<Against>,
}

#[derive(Debug, Subcommand)]
enum FarmForm {
    /// Memory of a farmer in which many tasks wait
    Queue(queue::QueueArgs),
    /// A farm without a setting against fixed prefetch and grain, over lengths of tasks
    Sweep(sweep::SweepArgs),
    /// The number of workers from which sub-farmers pay, in virtual time
    #[cfg(feature = "virtual")]
    Tree(tree::TreeArgs),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum As {
    /// Copies of this program.
    Process,
    /// Threads of this process.
    Thread,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ModelKind {
    /// The first worker is the farmer's own.
    A,
    /// The farmer only farms.
    B,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum JournalKind {
    /// There is none.
    Off,
    /// Never made permanent.
    None,
    /// Permanent after a second at most.
    Batched,
    /// Permanent before a result counts.
    Sync,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Against {
    /// The same farm without a journal.
    Plain,
    /// A farmer over blocking sockets that answers all results it finds in one write.
    HandFarm,
    /// MPICH over TCP, which spins: a program of its own, compiled by mpicc.
    Mpich,
}

/// Runs the command.
///
/// # Errors
/// If the options do not go together, or the measurement fails.
pub fn run(args: &FarmArgs) -> Result<Verdict, Failure> {
    match &args.form {
        None => args.run(),
        Some(FarmForm::Queue(args)) => queue::run(args),
        Some(FarmForm::Sweep(args)) => sweep::run(args),
        #[cfg(feature = "virtual")]
        Some(FarmForm::Tree(args)) => tree::run(args),
    }
}

/// Runs ours; with `held` its workers stand still before and after. Workers that poll busily would
/// take the core from the other sides.
fn run_ours(ours: &mut dyn Ready, bench: &Bench, held: bool, tasks: u64) -> Result<f64, Failure> {
    if held {
        ours.hold(false);
    }
    let seconds = ours.run(&bench.runtime, tasks)?;
    if held {
        ours.hold(true);
    }
    Ok(seconds)
}

/// A farm of ours as the baseline.
struct PlainFarm(Box<dyn Ready>);

impl Contender for PlainFarm {
    fn slice(&mut self, bench: &mut Bench, count: u64) -> Result<Slice, Failure> {
        Ok(Slice::timed(count, self.0.run(&bench.runtime, count)?))
    }
}

/// Times of the counted tasks.
struct Times {
    tasks: u64,
    /// Iterations of a task; `None` on a virtual LAN.
    work_iterations: Option<u64>,
    seconds: f64,
    /// Cores that the workers had.
    cores: f64,
    /// Seconds of the same tasks on one core without a farm; `None` without work.
    sequential_seconds: Option<f64>,
    /// Sequential seconds by farm seconds, the median of the pairs; NaN without work.
    speedup: f64,
    /// The same by the seconds of threads without a farm; `None` on a virtual LAN.
    threads_speedup: Option<f64>,
    /// Seconds of threads without a farm by farm seconds; `None` on a virtual LAN.
    threads_ratio: Option<f64>,
}

impl FarmArgs {
    /// Measures the farm of the options.
    fn run(&self) -> Result<Verdict, Failure> {
        self.check()?;
        #[cfg(feature = "virtual")]
        if let Some(spec) = self.lan.spec() {
            return self.run_virtually(spec);
        }
        let setting = self.common.setting()?;
        let plan = Plan::new(Some(self.tasks), 1, self.against.is_some())?;
        let work_iterations = iterations_of(self.work);
        let mut bench = pair::start_many(&setting, self.hand_processes())?;
        // MPICH's ranks may hang: ours has its row all the same.
        let may_fail = self.against == Some(Against::Mpich);
        let baseline = unless_it_may(may_fail, self.baseline(&mut bench, work_iterations))?;
        let kind = self.kind(Work::Iterations(work_iterations))?;
        let mut ours = start(&bench.runtime, &kind)?;
        let (outcome, _, reason) = beside(may_fail, baseline, |baseline| {
            ours.hold(false);
            self.measure(plan, &mut bench, &mut *ours, baseline, &kind)
        })?;
        ours.hold(false);
        ours.finish(&bench.runtime)?;
        self.row(&outcome, work_iterations, reason).print(self.common.json);
        Ok(Verdict::Fine)
    }

    /// Runs the sides in turns. Tasks without work have no sequential time worth its name.
    fn measure(
        &self,
        mut plan: Plan,
        bench: &mut Bench,
        ours: &mut dyn Ready,
        mut baseline: Option<&mut Box<dyn Contender>>,
        kind: &FarmKind,
    ) -> Result<Outcome, Failure> {
        let mut sides = Side::against(baseline.is_some()).to_vec();
        if !self.work.is_zero() {
            sides.extend([Side::Sequential, Side::Threads]);
        }
        if sides.len() == 1 {
            // Without a side to pair with, all tasks are one run, as a user's are.
            plan.slices = 1;
        }
        let held = self.common.runtime == RuntimeKind::BusyPoll && sides.len() > 1;
        alternate(&plan, &sides, |side, count| {
            let tasks = count.messages;
            let seconds = match (side, &mut baseline) {
                (Side::Baseline, Some(baseline)) => return baseline.slice(bench, tasks),
                (Side::Sequential, _) => run_sequentially(kind, tasks)?,
                (Side::Threads, _) => run_on_threads(kind, tasks, self.cores())?,
                _ => run_ours(ours, bench, held, tasks)?,
            };
            Ok(Slice::timed(tasks, seconds))
        })
    }

    /// Number of cores that the workers have.
    fn cores(&self) -> usize {
        (self.workers as usize).min(machine::core_count())
    }

    fn check(&self) -> Result<(), Failure> {
        let refuse = |why: &str| Err(Failure::Refused(why.to_owned()));
        self.common.needs_this_host("farm")?;
        self.lan.check(&self.common)?;
        if self.workers > WORKER_COUNT_MAX as u64 {
            return refuse(&format!("--workers: allowed are 1 to {WORKER_COUNT_MAX}"));
        }
        let task_bytes = (self.task_bytes as u64).saturating_add(HEADER_BYTES);
        let grain = if let Grain::Fixed(tasks) = self.grain { tasks } else { 1 };
        let assignment_bytes = task_bytes.saturating_mul(grain.into());
        if assignment_bytes.saturating_add(HEADER_BYTES) > ASSIGNMENT_BYTES_MAX {
            let each = ASSIGNMENT_BYTES_MAX / u64::from(grain);
            return refuse(&format!(
                "--task-bytes {} with --grain {grain}: an assignment is a message of at most {} MiB, \
                 allowed are less than {each} bytes a task",
                self.task_bytes,
                ASSIGNMENT_BYTES_MAX >> 20,
            ));
        }
        self.common.needs_session("farm")?;
        if self.common.transport == Transport::Memory && self.workers_as == As::Process {
            return refuse(
                "--transport memory reaches threads: processes are reached by tcp and unix, \
                 --workers-as thread is allowed with memory",
            );
        }
        self.check_against()
    }

    fn check_against(&self) -> Result<(), Failure> {
        let Some(against) = self.against else { return Ok(()) };
        let is_tcp = self.common.transport == Transport::Tcp;
        let spins = self.common.runtime == RuntimeKind::BusyPoll;
        let processes = self.workers_as == As::Process;
        if against == Against::Mpich && !(is_tcp && spins && processes) {
            return Err(Failure::Refused(
                "--against mpich is allowed with --runtime busy-poll, --transport tcp and \
                 --workers-as process: its processes spin over TCP"
                    .to_owned(),
            ));
        }
        if against == Against::Plain {
            let keeps = self.journal != JournalKind::Off;
            let refused = "--against plain is allowed with a --journal: it is the farm without one";
            return if keeps { Ok(()) } else { Err(Failure::Refused(refused.to_owned())) };
        }
        let name = name_of(against);
        if self.model == ModelKind::A {
            return Err(Failure::Refused(format!(
                "--against {name}: its farmer only farms, --model b is allowed"
            )));
        }
        self.common.needs_sockets(&name)
    }

    /// Runs on a virtual LAN: the farmer on rank 0 of a cluster, the workers on the others.
    #[cfg(feature = "virtual")]
    fn run_virtually(&self, spec: &str) -> Result<Verdict, Failure> {
        if self.journal != JournalKind::Off {
            return Err(Failure::Refused("--journal: allowed with --lan real".to_owned()));
        }
        if self.against.is_some() {
            return Err(Failure::Refused("--against: allowed with --lan real".to_owned()));
        }
        let (kind, tasks) = (self.kind(Work::Virtual(self.work))?, self.tasks);
        let hosts = self.workers as usize + usize::from(self.model == ModelKind::B);
        let ran = crate::lan::run(&self.lan, spec, hosts, move |cluster| {
            let kind = kind.clone();
            async move { farm_in(&cluster, &kind, tasks).await }
        })?;
        let work_seconds = self.work.as_secs_f64() * tasks as f64;
        let sequential_seconds = (!self.work.is_zero()).then_some(work_seconds);
        let seconds = ran.results[0];
        let mut row = self.row_of(&Times {
            tasks,
            work_iterations: None,
            seconds,
            cores: self.workers as f64,
            sequential_seconds,
            speedup: sequential_seconds.map_or(f64::NAN, |sequential| sequential / seconds),
            threads_speedup: None,
            threads_ratio: None,
        });
        row.set("workers_as", "host");
        ran.print(row, &self.lan, self.common.json);
        Ok(Verdict::Fine)
    }

    fn kind(&self, work: Work) -> Result<FarmKind, Failure> {
        Ok(FarmKind {
            task_bytes: self.task_bytes,
            work,
            workers: self.workers as usize,
            workers_as: match self.workers_as {
                As::Process => WorkersAs::Process,
                As::Thread => WorkersAs::Thread,
            },
            model: match self.model {
                ModelKind::A => Model::A,
                ModelKind::B => Model::B,
            },
            prefetch: match self.prefetch {
                Auto::Auto => Prefetch::Auto,
                Auto::Fixed(depth) => Prefetch::Fixed(u32::try_from(depth).unwrap_or(u32::MAX)),
            },
            grain: self.grain,
            tree: self.tree,
            runtime: runtime_of(self.common.runtime),
            listen: farmer_address(self.common.transport)?,
            journal: match self.journal {
                JournalKind::Off => None,
                JournalKind::None => Some(Fsync::Never),
                JournalKind::Batched => Some(Fsync::EverySecond),
                JournalKind::Sync => Some(Fsync::Always),
            },
        })
    }

    /// Returns the far ends that the farm by hand needs.
    fn hand_processes(&self) -> usize {
        let by_hand = self.against == Some(Against::HandFarm);
        if by_hand && self.workers_as == As::Process { self.workers as usize } else { 0 }
    }

    fn baseline(
        &self,
        bench: &mut Bench,
        work_iterations: u64,
    ) -> Result<Option<Box<dyn Contender>>, Failure> {
        let Some(against) = self.against else { return Ok(None) };
        if self.workers_as == As::Thread {
            machine::unpin();
        }
        Ok(Some(match against {
            Against::Plain => {
                let kind = self.kind(Work::Iterations(work_iterations))?;
                let plain = FarmKind { journal: None, ..kind };
                Box::new(PlainFarm(start(&bench.runtime, &plain)?))
            }
            Against::HandFarm => Box::new(HandFarm::open(bench, self.hand_kind(work_iterations))?),
            Against::Mpich => {
                Box::new(MpichFarm::open(self.hand_kind(work_iterations), self.work)?)
            }
        }))
    }

    fn hand_kind(&self, work_iterations: u64) -> HandFarmKind {
        HandFarmKind {
            task_bytes: self.task_bytes,
            work_iterations,
            prefetch: match self.prefetch {
                Auto::Auto => BASELINE_PREFETCH,
                Auto::Fixed(depth) => usize::try_from(depth).unwrap_or(usize::MAX),
            },
            workers: self.workers as usize,
            threads: self.workers_as == As::Thread,
        }
    }

    /// Returns the row; `missing` is the reason why there is no baseline although one was asked
    /// for.
    fn row(&self, outcome: &Outcome, work_iterations: u64, missing: Option<String>) -> Row {
        let all = |slices: &[Slice]| slices.iter().map(|slice| slice.seconds).collect::<Vec<_>>();
        let (sequential, threads) = (all(&outcome.sequential), all(&outcome.threads));
        let mut row = self.row_of(&Times {
            tasks: outcome.messages(),
            work_iterations: Some(work_iterations),
            seconds: outcome.seconds(),
            cores: self.cores() as f64,
            sequential_seconds: (!sequential.is_empty()).then(|| sequential.iter().sum()),
            speedup: Ratio::of_pairs(&sequential, &all(&outcome.ours)).median,
            threads_speedup: Some(Ratio::of_pairs(&sequential, &threads).median),
            threads_ratio: Some(Ratio::of_pairs(&threads, &all(&outcome.ours)).median),
        });
        if let Some(against) = self.against {
            set_ratio(&mut row, &name_of(against), outcome.ratio(Slice::rate));
            row.set("baseline_tasks_per_second", outcome.baseline_rate());
            if let Some(reason) = missing {
                row.set("reason", reason);
            }
        }
        row
    }

    fn row_of(&self, times: &Times) -> Row {
        let Times { tasks, seconds, cores, sequential_seconds, .. } = *times;
        let overhead_seconds = seconds * cores - sequential_seconds.unwrap_or_default();
        let prefetch = match self.prefetch {
            Auto::Auto => "auto".to_owned(),
            Auto::Fixed(depth) => depth.to_string(),
        };
        let mut row = self.common.row("farm");
        row.set("tasks", tasks)
            .set("seconds", seconds)
            .set("tasks_per_second", tasks as f64 / seconds)
            .set("overhead_us_per_task", overhead_seconds * 1e6 / tasks as f64)
            .set("efficiency", times.speedup / cores)
            .set("threads_efficiency", times.threads_speedup.map(|speedup| speedup / cores))
            .set("threads_ratio", times.threads_ratio)
            .set("sequential_seconds", sequential_seconds)
            .set("work_us", self.work.as_secs_f64() * 1e6)
            .set("work_iterations", times.work_iterations)
            .set("task_bytes", self.task_bytes)
            .set("workers", self.workers)
            .set("workers_as", name_of(self.workers_as))
            .set("model", name_of(self.model))
            .set("prefetch", prefetch)
            .set("grain", self.grain.to_string())
            .set("tree", self.tree.to_string())
            .set("journal", name_of(self.journal))
            .set("lan", self.lan.lan.as_str());
        row
    }
}
