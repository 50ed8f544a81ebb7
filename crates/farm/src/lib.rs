//! Processor farms: a farmer hands tasks to workers, takes their results, and
//! gives each worker its next task before the worker has to ask for it.
//!
//! Tasks are functions of the program itself, registered by name. Workers are
//! copies of the program as processes on this machine, threads, or the nodes of a
//! [`Cluster`](chunkcomm_cluster::Cluster) on one or many machines. Many tiny tasks
//! share a message, and messages share packets. The farm measures how many tasks go
//! together ([`Grain::Auto`](settings::Grain::Auto)) and how many such assignments a worker holds
//! ([`Prefetch::Auto`](settings::Prefetch::Auto)).
//!
//! ```no_run
//! use chunkcomm_cluster::Registry;
//! use chunkcomm_farm::{Farm, serve_if_started};
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let mut registry = Registry::new();
//!     let square = registry.register("square", |number: u64| number * number);
//!     serve_if_started(&registry); // a worker process goes no further
//!
//!     let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
//!     runtime.block_on(async {
//!         let mut farm = Farm::builder(registry).workers(2).start().await?;
//!         let outcome = farm.run(&square, 0..1000).await?;
//!         assert_eq!(outcome.results[12], 144);
//!         println!("{:.0} tasks/s", outcome.stats.tasks_per_second());
//!         Ok(())
//!     })
//! }
//! ```
//!
//! # On many machines
//!
//! One node of a cluster farms with [`FarmBuilder::start_in`]; the others work for it
//! with [`serve_in`]:
//!
//! ```no_run
//! use chunkcomm_cluster::{Cluster, ClusterConfig, Registry};
//! use chunkcomm_farm::{Farm, serve_in};
//! use std::time::Duration;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut registry = Registry::new();
//! let square = registry.register("square", |number: u64| number * number);
//! let cluster = Cluster::join(ClusterConfig::new().registry(&registry)).await?;
//! if cluster.rank() == 0 {
//!     let mut farm = Farm::builder(registry).start_in(&cluster).await?;
//!     assert_eq!(farm.run(&square, 0..1000).await?.results[12], 144);
//!     farm.finish(Duration::from_secs(10)).await?;
//! } else {
//!     serve_in(&cluster, &registry).await?;
//! }
//! cluster.end(Duration::from_secs(10)).await?;
//! # Ok(())
//! # }
//! ```
//!
//! With more than 100 nodes some of them are sub-farmers, each of which farms for a group
//! ([`FarmBuilder::tree`]).
//!
//! # When a worker dies
//!
//! Its tasks go to the other workers, and the run goes on. The farmer keeps the encoded input
//! of each task until it has a result. A process that the farm started is replaced by another.
//! Nodes that join the cluster later, and call [`serve_in`], work too.
//!
//! | what happens | the run |
//! |---|---|
//! | a task panics | [`Farm::run`] ends with [`RunError::Task`]; [`Farm::run_to_end`] and [`Results::next`] go on, with an error in the place of the result |
//! | a worker dies | other workers run its tasks; its [`WorkerStats::lost`] tells the cause |
//! | a task does not end in time ([`FarmBuilder::task_timeout`]) | the task has failed with [`TaskError::TimedOut`]; a process that the farm started is replaced |
//! | three workers die of one task | the task has failed with [`TaskError::SetAside`], which has its input ([`FarmBuilder::deaths_max`]) |
//! | a worker is silent at the end of a run | a worker without tasks gets a copy of what the silent one holds |
//! | the time that the farm has is nearly over ([`FarmBuilder::walltime`]) | ends with [`RunError::OutOfTime`] when the tasks at work are done, or when the time is over |
//! | no [chosen](FunctionExt::only_on) worker is left, and none is to come | ends with [`RunError::NotChosen`] |
//! | no worker is left, and none is to come | ends with [`RunError::Lost`], and so does each later run |
//! | the farmer dies | goes on when the program is started again with its journal ([`FarmBuilder::journal`]); else it is lost. No worker process is left; nodes of a cluster with a rejoin window wait for the next farmer ([`serve_in`]) |
//!
//! A task may therefore run more than once, even if nobody dies. One of its results is taken.
//! So a function may change files or databases only in ways that bear repetition. [`Mishaps`]
//! has the numbers of tasks that were given out again, moved and copied.
//!
//! Nobody knows which of its tasks killed a worker. They all go to others. A task that two dying
//! workers held is then run by a worker that holds nothing else. So the neighbours of a task that
//! kills get their results.
//!
//! A silent worker process does not count as dead: it may compute. Without another worker the
//! farm waits for a stopped one (`SIGSTOP`) until it goes on. In a cluster a node counts as dead
//! after 10 s of silence.
//!
//! # What it does not do
//!
//! - It does not try a task again that panicked.
//! - It does not start with more than 1024 workers.
//!
//! # Where tasks run
//!
//! A worker reads and writes packets in one thread and computes in others, so that a long
//! task does not keep it from taking new work. A worker that is a process or a thread has one
//! thread that computes. A node of a cluster has one for each core that is its share of the
//! host's ([`serve_in`], [`Serving::threads`]).
//!
//! For tasks of a few microseconds the way to the other thread would cost more than the task.
//! So a worker with one such thread runs functions whose tasks take less than 20 us on average
//! in its I/O loop, in slices of 50 us, until one turns out long. With a
//! [`task_timeout`](FarmBuilder::task_timeout) it does not.
//!
//! A function that is short at first and then does not return for a second therefore holds
//! up its worker's packets for that second, once. Nodes of a cluster are given up after 10 s
//! of silence, so there such a task must be shorter than that. Workers that the farm
//! started may take longer.
//!
//! # Tasks that wait
//!
//! While a task of an async function waits ([`RegistryExt::register_async_task`]) its thread runs
//! others. A task may also say that it blocks its thread ([`TaskContext::blocking`]). Then another thread
//! runs others. A *virtual worker* is a worker's place for one task that was begun. A worker has as many
//! as keep its threads busy, by default up to 16 a thread ([`FarmBuilder::virtual_workers`]).
//!
//! # When not to use it
//!
//! Threads of one process that share memory are better served by a work-stealing pool. Tasks that
//! wait for several other tasks of the same run need a scheduler with dependencies; here tasks may only
//! create tasks ([`Farm::run_pool`], [`Farm::divide_and_conquer`]).
//!
//! # Reading order
//!
//! - `farm`: what the user holds. `builder` and [`settings`] set it up; `chosen` one run.
//! - `handshake`: how workers arrive, also in the middle of a run. `crew` starts and replaces
//!   them and hears how they ended; `link` is the way to one.
//! - `run`: one run, with a task's way through the files. It moves messages; `account` asks `proto`
//!   what to do, and hands the results on. `tasks` has the two ends, a source and a sink; `results` is a run as a stream, `pool` one
//!   of tasks that create tasks.
//! - `journal`: the accepted results in a file, for a farmer that is started again.
//! - `serving`, `machine`: a node of a cluster, or a process, as a worker; `subfarm` a node that is both
//!   worker and farmer.
//! - `functions`: functions that see their task, map and reduce, divide and conquer; `problem` is one
//!   that is divided.
//! - `remains`: what a worker holds when its farmer is gone.
//! - `shared`: values that many tasks read; `once`: those that a task computes for others;
//!   `values`: both at a worker; `needs`: the worker's side of those that another worker may have.
//! - `worker`, `compute`: the worker's I/O loop, and its threads; `pieces` is what waits for them.
//!   `context` is the task that a thread runs, as its function sees it.
//! - `proto`: the decisions. `ledger` knows who holds which tasks, `tree` who works below whom, `pace` how
//!   much a worker holds, `home` whether the farmer's node works, too.

mod account;
mod builder;
mod chosen;
mod compute;
mod context;
mod crew;
mod error;
mod farm;
mod functions;
mod handshake;
mod journal;
mod link;
mod machine;
mod name;
mod needs;
mod once;
mod pieces;
mod pool;
mod problem;
mod proto;
mod remains;
mod results;
mod run;
mod serving;
pub mod settings;
mod shared;
mod stats;
mod subfarm;
mod tasks;
mod threads;
mod values;
mod warning;
mod worker;

pub use builder::FarmBuilder;
pub use chosen::{FunctionExt, RunOf};
pub use context::TaskContext;
pub use error::{FinishError, Loss, RunError, ServeError, StartError, TaskError, Unreplaced};
pub use farm::Farm;
pub use functions::{DivideAndConquer, Divided, MapReduce, RegistryExt};
pub use journal::{JournalCause, JournalError};
pub use machine::serve_if_started;
pub use name::WorkerName;
pub use results::Results;
pub use serving::{Serving, serve_in};
pub use shared::Shared;
pub use stats::{Mishaps, Outcome, Progress, Reduced, RunStats, TaskSpan, Timeline, WorkerStats};
pub use tasks::Tasks;
