//! Processor farms: a farmer hands tasks to workers and takes their results.
//!
//! A worker gets its next task before it has to ask for it. Tasks are functions of the program
//! itself, registered by name. A worker is a copy of the program as a process on this machine, a
//! thread, or a node of a [`Cluster`](chunkcomm_cluster::Cluster). Many tiny tasks share a message,
//! and messages share packets. The farm measures how many tasks make an *assignment*
//! ([`Grain::Auto`](settings::Grain::Auto)) and how many assignments a worker holds
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
//! A farm of more than 100 nodes has *sub-farmers*: nodes that farm for a group each
//! ([`FarmBuilder::tree`]).
//!
//! # When a worker dies
//!
//! The tasks of a dead worker go to the other workers, and the run goes on. The farmer keeps the
//! encoded input of each task until it has the result. A process that the farm started is replaced
//! by another. Nodes that join the cluster later and call [`serve_in`] become workers too.
//!
//! | what happens | the run |
//! |---|---|
//! | a task panics | [`Farm::run`] ends with [`RunError::Task`]; [`Farm::run_to_end`] and [`Results::next`] go on, with an error in the place of the result |
//! | a worker dies | other workers run its tasks; its [`WorkerStats::lost`] tells the cause |
//! | a task does not end in time ([`FarmBuilder::task_timeout`]) | the task has failed with [`TaskError::TimedOut`]; a process that the farm started is replaced |
//! | three workers die of one task | the task has failed with [`TaskError::SetAside`], which has its input ([`FarmBuilder::deaths_max`]) |
//! | a worker is silent at the end of a run | a worker without tasks gets a copy of the silent one's tasks |
//! | the time that the farm has is nearly over ([`FarmBuilder::walltime`]) | ends with [`RunError::OutOfTime`] when the tasks at work are done, or when the time is over |
//! | no [chosen](FunctionExt::only_on) worker is left, and none is to come | ends with [`RunError::NotChosen`] |
//! | no worker is left, and none is to come | ends with [`RunError::Lost`], and so does each later run |
//! | the farmer dies | goes on when the program is started again with its journal ([`FarmBuilder::journal`]); else it is lost. No worker process is left; nodes of a cluster with a rejoin window wait for the next farmer ([`serve_in`]) |
//!
//! A task may therefore run more than once, even if no worker dies. The farmer takes one of its
//! results. So a function may change files or databases only in ways that bear repetition.
//! [`Mishaps`] counts the tasks that were given out again, moved or copied.
//!
//! The farmer cannot tell which of its tasks killed a worker: all of them go to other workers. A
//! task that two dying workers held is then run by a worker that holds nothing else. So the other
//! tasks of the dead workers still get their results.
//!
//! A silent worker process does not count as dead: it may compute. A farm whose only worker is
//! stopped (`SIGSTOP`) waits until that worker goes on. A node of a cluster counts as dead after 10
//! s of silence.
//!
//! # What it does not do
//!
//! - It does not try a task again that panicked.
//! - It does not start with more than 1024 workers.
//!
//! # Where tasks run
//!
//! A worker reads and writes packets in one thread and computes in others. So it takes new work
//! during a long task. A worker that is a process or a thread has one computing thread. A node of a
//! cluster has one for each core of its share of the host's cores ([`serve_in`],
//! [`Serving::threads`]).
//!
//! Handing a task of a few microseconds to another thread costs more than the task. So a worker
//! with one computing thread runs short tasks in its I/O loop, in slices of 50 us. A function's
//! tasks are short if they take less than 20 us on average, until one of them turns out long. With
//! a [`task_timeout`](FarmBuilder::task_timeout) no task runs in the I/O loop.
//!
//! The first long task of such a function holds up its worker's packets until it ends. A cluster
//! gives a node up after 10 s of silence, so that task must be shorter there. At a worker that the
//! farm started it may take longer.
//!
//! # Tasks that wait
//!
//! The thread of a task of an async function runs other tasks while that one waits
//! ([`RegistryExt::register_async_task`]). Any task may also declare that it blocks its thread
//! ([`TaskContext::blocking`]); another thread then runs other tasks. A *virtual worker* is a
//! worker's place for one begun task. A worker has as many of them as keep its threads busy, by
//! default up to 16 a thread ([`FarmBuilder::virtual_workers`]).
//!
//! # When not to use it
//!
//! Threads of one process that share memory are better served by a work-stealing pool. Tasks that
//! wait for several other tasks of the same run need a scheduler with dependencies; here tasks may only
//! create tasks ([`Farm::run_pool`], [`Farm::divide_and_conquer`]).
//!
//! Without the default feature `tls` there are no credentials, as in `chunkcomm`, and rustls is not
//! compiled.
//!
//! # Reading order
//!
//! - `farm`: the farm as its user holds it. `builder` and [`settings`] set up a farm, `chosen` one
//!   run.
//! - `handshake`: the arrival of workers, also in the middle of a run. `crew` starts and replaces
//!   workers and hears how they ended; `link` is the duplex to one.
//! - `run`: one run, with a task's way through the files; it moves messages. `account` asks `proto` what to do, and hands the results
//!   on. `tasks` has a run's source and sink. `results` is a run as a stream, `pool` a run of tasks
//!   that create tasks.
//! - `journal`: the accepted results in a file, for a farmer that is started again.
//! - `serving`, `machine`: a node of a cluster, or a process, as a worker. `subfarm`: a node that
//!   is both worker and farmer.
//! - `functions`: functions that see their task, map and reduce, divide and conquer. `problem`: a
//!   run that divides a problem.
//! - `remains`: the tasks and results of a worker whose farmer is gone.
//! - `shared`: values that many tasks read. `once`: values that a task computes for others.
//!   `values`: both, at a worker. `needs`: a worker's questions for values that another worker may
//!   have.
//! - `worker`, `compute`: the worker's I/O loop, and its threads. `pieces`: the tasks that wait for
//!   the threads. `context`: the running task, as its function sees it.
//! - `proto`: the decisions. `ledger` knows which worker holds which tasks, `tree` which node works
//!   below which. `pace` sets how much a worker holds, `home` whether the farmer's node works too.

// A sample that is copied compiles without these warnings. They are named, since a newer compiler may have more.
#![doc(test(attr(deny(unused_assignments, unused_imports, unused_must_use, unused_mut))))]

mod account;
mod board;
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
mod worker;

pub use builder::FarmBuilder;
pub use chosen::{FunctionExt, RunOf};
pub use context::TaskContext;
pub use error::{FinishError, RunError, ServeError, StartError, TaskError, Unreplaced, WorkerEnd};
pub use farm::Farm;
pub use functions::{DivideAndConquer, Divided, MapReduce, RegistryExt};
pub use journal::JournalError;
pub use machine::serve_if_started;
pub use name::WorkerName;
pub use results::Results;
pub use serving::{Serving, serve_in};
pub use shared::Shared;
pub use stats::{Mishaps, Outcome, Progress, Reduced, RunStats, TaskSpan, Timeline, WorkerStats};
pub use tasks::Tasks;
