//! Processor farms: a farmer hands tasks to workers, takes their results, and
//! gives each worker its next task before the worker has to ask for it.
//!
//! Tasks are functions of the program itself, registered by name. Workers are
//! copies of the program as processes on this machine, threads, or the nodes of a
//! [`Cluster`](chunkcomm_cluster::Cluster) on one or many machines. Messages go
//! through [`chunkcomm`] channels, so that many tiny tasks share packets.
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
//! Rank 0 of a cluster farms with [`FarmBuilder::start_in`]; the other ranks work for it
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
//! # When a worker dies
//!
//! The run ends with an error that names the worker and how it ended. The name is the index
//! and process id, in a cluster rank and host. The farm ends too, and its other worker
//! processes are killed.
//!
//! Nothing waits for ever, and no process is left, even when the farmer is killed. Tasks are
//! not given to another worker yet: run those without a result on a new farm, as the example
//! `mishaps` does.
//!
//! A silent worker process does not count as dead: it may compute. The farm waits for a
//! stopped one (`SIGSTOP`) until it goes on. Give a run a timeout where that is too long:
//! dropping the farm then ends all of it. In a cluster a silent node counts as dead.
//!
//! # Where tasks run
//!
//! A worker reads and writes packets in one thread and computes in another, so that a long
//! task does not keep it from taking new work. For tasks of a few microseconds the way to
//! the other thread would cost more than the task. So a function whose tasks take less than
//! 20 us on average runs in the I/O loop, in slices of 50 us, until one turns out long.
//!
//! A function that is short at first and then does not return for a second therefore holds
//! up its worker's packets for that second, once. Nodes of a cluster are given up after 10 s
//! of silence, so there such a task must be shorter than that. Workers that the farm
//! started may take longer.
//!
//! # When not to use it
//!
//! Threads of one process that share memory are better served by a work-stealing
//! pool.
//!
//! Reading order: `farm` (what the user holds), `builder`, `handshake` (how workers
//! arrive), `run` (one run), `link` and `crew` below it, `serving` (the node of a
//! cluster as a worker), `worker` and `compute` on the other side, and `proto`, the
//! decisions.

mod builder;
mod compute;
mod crew;
mod error;
mod farm;
mod handshake;
mod link;
mod machine;
mod name;
mod pool;
mod proto;
mod results;
mod run;
mod serving;
mod settings;
mod stats;
mod worker;

pub use builder::FarmBuilder;
pub use error::{FinishError, Loss, RunError, StartError, TaskError};
pub use farm::Farm;
pub use machine::serve_if_started;
pub use name::WorkerName;
pub use results::Results;
pub use serving::{ServeError, serve_in, serve_threads_in};
pub use settings::{Grain, Model, Order, Prefetch, Runtime, WORKER_COUNT_MAX, WorkersAs};
pub use stats::{Mishaps, Outcome, Progress, RunStats, Traffic, WorkerStats};
