//! The command line options of programs with a farm.

use std::fs;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

use chunkcomm::host;
use chunkcomm_farm::settings::{
    Fsync, Grain, Model, Prefetch, Tree, VirtualWorkers, WORKER_COUNT_MAX, WorkersAs,
};
use chunkcomm_farm::{FarmBuilder, RunStats};
use clap::{Args, ValueEnum};

/// Most spans of a timeline: 64 MB.
const SPANS_MAX: usize = 1_000_000;

/// Options that set up the farm.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Farm")]
pub struct FarmOptions {
    /// Number of workers, without a cluster [default: the number of processors]
    #[arg(long, value_name = "N", value_parser = parse_workers)]
    pub workers: Option<NonZeroUsize>,

    /// Kind of the workers, without a cluster [default: process]
    #[arg(long, value_enum)]
    pub workers_as: Option<WorkersAsOption>,

    /// Whether the farmer works too (a), only farms (b), or works where nobody else does (auto)
    #[arg(long, value_enum, ignore_case = true, default_value_t)]
    pub model: ModelOption,

    /// Assignments that a worker holds: 1 (no prefetch), 2 (double buffering), .., or auto
    #[arg(long, value_name = "K", value_parser = parse_prefetch, default_value = "auto")]
    pub prefetch: PrefetchOption,

    /// Tasks in an assignment, or auto
    #[arg(long, value_name = "G", default_value_t)]
    pub grain: Grain,

    /// Sub-farmers between the farmer and the nodes of a cluster: auto (with more than 100 nodes), off,
    /// hosts (one for each host), or the number of nodes that have one
    #[arg(long, value_name = "N", default_value_t)]
    pub tree: Tree,

    /// Tasks that a thread of a worker has begun at a time, if they wait, or auto
    #[arg(long, value_name = "N", default_value_t)]
    pub virtual_workers: VirtualWorkers,

    /// File that keeps accepted results: started again with it, the program goes on where it was
    #[arg(long, value_name = "FILE")]
    pub journal: Option<PathBuf>,

    /// Write to this file when each worker had which tasks, for Perfetto or Chrome
    #[arg(long, value_name = "FILE")]
    pub timeline: Option<PathBuf>,

    /// Longest time of a task in seconds; one that takes longer fails [default: none]
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    pub task_timeout: Option<Duration>,

    /// Seconds after which the program must be over; it ends before, with what was begun [default: that
    /// of Slurm's job less 30 s, or none]
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    pub walltime: Option<Duration>,
}

/// See [`WorkersAs`].
#[derive(ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WorkersAsOption {
    /// Copies of this program
    #[default]
    Process,
    /// Threads of this process
    Thread,
}

/// See [`Model`].
#[derive(ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ModelOption {
    /// One of the workers is the farmer's own
    A,
    /// The farmer only farms
    B,
    /// B; in a cluster without another node A
    #[default]
    Auto,
}

/// See [`Prefetch`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrefetchOption(
    /// The setting.
    pub Prefetch,
);

fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| *seconds > 0.0);
    let time = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    time.ok_or_else(|| "allowed are numbers of seconds above 0".into())
}

fn parse_workers(text: &str) -> Result<NonZeroUsize, String> {
    match text.parse::<NonZeroUsize>() {
        Ok(count) if count.get() <= WORKER_COUNT_MAX => Ok(count),
        _ => Err(format!("allowed are 1 to {WORKER_COUNT_MAX}")),
    }
}

fn parse_prefetch(text: &str) -> Result<PrefetchOption, String> {
    match text.parse::<NonZeroU32>() {
        Ok(count) => Ok(PrefetchOption(Prefetch::Fixed(count.get()))),
        Err(_) if text == "auto" => Ok(PrefetchOption(Prefetch::Auto)),
        Err(_) => Err("allowed are a number from 1 on, and auto".into()),
    }
}

impl FarmOptions {
    /// Returns the number of workers, with the default filled in.
    pub fn worker_count(&self) -> usize {
        self.workers.map_or_else(host::cores, NonZeroUsize::get).min(WORKER_COUNT_MAX)
    }

    /// Whether the options give the number or the kind of the workers: not for a farm whose workers
    /// are the nodes of a cluster.
    pub fn tell_of_workers(&self) -> bool {
        self.workers.is_some() || self.workers_as.is_some()
    }

    /// Sets the farm up by the options.
    pub fn apply(&self, farm: FarmBuilder) -> FarmBuilder {
        let farm = match &self.journal {
            Some(file) => farm.journal(file, Fsync::default()),
            None => farm,
        };
        let farm = match self.task_timeout {
            Some(timeout) => farm.task_timeout(timeout),
            None => farm,
        };
        let farm = match self.walltime {
            Some(walltime) => farm.walltime(walltime),
            None => farm,
        };
        let farm = farm.keep_timeline(if self.timeline.is_some() { SPANS_MAX } else { 0 });
        farm.workers(self.worker_count())
            .workers_as(match self.workers_as.unwrap_or_default() {
                WorkersAsOption::Process => WorkersAs::Process,
                WorkersAsOption::Thread => WorkersAs::Thread,
            })
            .model(match self.model {
                ModelOption::A => Model::A,
                ModelOption::B => Model::B,
                ModelOption::Auto => Model::Auto,
            })
            .prefetch(self.prefetch.0)
            .grain(self.grain)
            .tree(self.tree)
            .virtual_workers(self.virtual_workers)
    }

    /// Writes the timeline of a run, if it is asked for.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write_timeline(&self, stats: &RunStats) -> Result<(), String> {
        match self.timeline.as_ref().zip(stats.to_trace_json()) {
            Some((path, json)) => {
                fs::write(path, json).map_err(|it| format!("{}: {it}", path.display()))
            }
            None => Ok(()),
        }
    }

    /// Returns a line for a report of `count` workers; `are_nodes`: they are nodes of a cluster.
    pub fn describe(&self, count: usize, are_nodes: bool) -> String {
        let kind = match self.workers_as.unwrap_or_default() {
            _ if are_nodes => "node",
            WorkersAsOption::Process => "process",
            WorkersAsOption::Thread => "thread",
        };
        let model = match self.model {
            ModelOption::A => "a (the first worker is a thread of the farmer's process)",
            ModelOption::B => "b",
            ModelOption::Auto => "auto",
        };
        let prefetch = match self.prefetch.0 {
            Prefetch::Fixed(count) => count.to_string(),
            Prefetch::Auto => "auto".into(),
        };
        let grain = self.grain;
        format!("{count} x {kind}, prefetch {prefetch}, grain {grain}, model {model}")
    }
}
