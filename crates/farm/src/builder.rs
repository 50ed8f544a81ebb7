//! Sets a farm up and starts it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use chunkcomm::launch::Launcher;
use chunkcomm::{Address, Cluster, Node, Policy, Registry};

use crate::crew::Crew;
use crate::error::StartError;
use crate::farm::Farm;
use crate::serving::FARMER;
use crate::settings::{Model, NodeSettings, Prefetch, Runtime, WorkersAs};
use crate::welcome::welcome;
use crate::worker::Farmer;

/// More workers than this are not started by one farmer.
pub const WORKER_COUNT_MAX: usize = 1024;

/// The same for people.
const WORKERS: &str = "1 to 1024";

/// Workers that do not report within this time are a mistake of the program.
const START_DEADLINE: Duration = Duration::from_secs(30);

type Adjust = Box<dyn FnOnce(Launcher) -> Launcher + Send>;

/// How many workers of each kind.
struct Sizes {
    /// The farmer's own.
    own: usize,
    threads: usize,
    processes: usize,
}

/// Settings of a farm: by value, one after the other, then
/// [`start`](FarmBuilder::start).
pub struct FarmBuilder {
    registry: Registry,
    workers: Option<usize>,
    workers_as: WorkersAs,
    model: Model,
    prefetch: Prefetch,
    grain: u32,
    node: NodeSettings,
    explains: bool,
    listen: Option<Address>,
    start_deadline: Duration,
    launcher: Option<Adjust>,
}

impl fmt::Debug for FarmBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FarmBuilder")
            .field("workers", &self.workers)
            .field("workers_as", &self.workers_as)
            .field("model", &self.model)
            .field("prefetch", &self.prefetch)
            .field("grain", &self.grain)
            .finish_non_exhaustive()
    }
}

impl FarmBuilder {
    pub(crate) fn new(registry: Registry) -> FarmBuilder {
        FarmBuilder {
            registry,
            workers: None,
            workers_as: WorkersAs::default(),
            model: Model::default(),
            prefetch: Prefetch::default(),
            grain: 1,
            node: NodeSettings::default(),
            explains: false,
            listen: None,
            start_deadline: START_DEADLINE,
            launcher: None,
        }
    }

    /// How many workers, in model A the farmer's own among them: 1 to
    /// [`WORKER_COUNT_MAX`]. By default one a processor.
    #[must_use]
    pub fn workers(mut self, count: usize) -> FarmBuilder {
        self.workers = Some(count);
        self
    }

    /// Processes (the default) or threads.
    #[must_use]
    pub fn workers_as(mut self, workers_as: WorkersAs) -> FarmBuilder {
        self.workers_as = workers_as;
        self
    }

    /// Whether the farmer's node works too; by default it does not (model B).
    #[must_use]
    pub fn model(mut self, model: Model) -> FarmBuilder {
        self.model = model;
        self
    }

    /// How many assignments a worker holds; by default 2, double buffering. A
    /// larger number hides a longer way to the worker, and leaves more work with
    /// a slow worker at the end of a run.
    #[must_use]
    pub fn prefetch(mut self, prefetch: Prefetch) -> FarmBuilder {
        self.prefetch = prefetch;
        self
    }

    /// How many tasks are an assignment; 1 by default, at least 1. A larger
    /// number costs less a task and balances less well.
    #[must_use]
    pub fn grain(mut self, tasks: u32) -> FarmBuilder {
        self.grain = tasks;
        self
    }

    /// Where the nodes move their bytes; on the ambient runtime by default.
    #[must_use]
    pub fn runtime(mut self, runtime: Runtime) -> FarmBuilder {
        self.node.runtime = runtime;
        self
    }

    /// How the nodes gather messages; [`Policy::Chunked`] by default.
    #[must_use]
    pub fn policy(mut self, policy: Policy) -> FarmBuilder {
        self.node.policy = policy;
        self
    }

    /// The largest message, so the largest assignment and the largest answer, in
    /// bytes. The default is chunkcomm's.
    #[must_use]
    pub fn message_bytes_max(mut self, bytes: usize) -> FarmBuilder {
        self.node.message_bytes_max = Some(bytes);
        self
    }

    /// Where the farmer listens for its workers (the farmer's own excepted). By
    /// default a free port of the loopback interface for processes, memory for
    /// threads.
    #[must_use]
    pub fn listen(mut self, address: Address) -> FarmBuilder {
        self.listen = Some(address);
        self
    }

    /// How long the workers have to report; 30 s by default.
    #[must_use]
    pub fn start_deadline(mut self, deadline: Duration) -> FarmBuilder {
        self.start_deadline = deadline;
        self
    }

    /// Lets the farmer's process print [`Node::explain`] of the farmer's node to
    /// stderr whenever it gets the signal `SIGUSR1`, which then does not end it any
    /// more. Worker processes do so in any case.
    #[cfg(unix)]
    #[must_use]
    pub fn explain_on_sigusr1(mut self) -> FarmBuilder {
        self.explains = true;
        self
    }

    /// Adjusts the launcher of the worker processes: their arguments,
    /// environment, processors, or another program.
    #[must_use]
    pub fn launcher(
        mut self,
        adjust: impl FnOnce(Launcher) -> Launcher + Send + 'static,
    ) -> FarmBuilder {
        self.launcher = Some(Box::new(adjust));
        self
    }

    /// Starts the workers and returns when all of them are ready: connected, and
    /// with the same functions.
    ///
    /// # Errors
    /// See [`StartError`]. No worker process is left then.
    ///
    /// # Cancel safety
    /// When the future is dropped the workers are gone: nothing is started.
    pub async fn start(self) -> Result<Farm, StartError> {
        self.check()?;
        let sizes = self.sizes()?;
        let own_address = memory_address();
        let mut builder = self.node.node().name("farmer");
        if sizes.threads + sizes.processes > 0 {
            builder = builder.listen(self.address());
        }
        if sizes.own > 0 {
            builder = builder.listen(own_address.clone());
        }
        let node = builder.build().await.map_err(StartError::Node)?;
        #[cfg(unix)]
        if self.explains {
            node.explain_on_sigusr1().map_err(StartError::Signal)?;
        }
        let (prefetch, grain, deadline) = (self.prefetch, self.grain, self.start_deadline);
        let (mut crew, registry) = self.hire(&sizes, &node, &own_address)?;
        let links = welcome(&node, &mut crew, &registry, deadline).await?;
        Ok(Farm::new(node, registry, crew, links, prefetch, grain))
    }

    /// Starts a farm on this node of a cluster, rank 0, whose workers are the other nodes
    /// that are there now: each of them calls [`serve_in`](crate::serve_in). In model A
    /// the farmer's own worker comes before them.
    ///
    /// A cluster has one farm at a time; the next one may be started when it is done.
    ///
    /// How many workers there are, what they are, where they meet, and how the nodes send
    /// follows from the cluster; what this builder was told of that does not count.
    ///
    /// # Errors
    /// See [`StartError`]: this is not rank 0, there is no worker, one of them has other
    /// functions, or does not call [`serve_in`](crate::serve_in) in time. The calls of those
    /// who had come return; others wait for the next farm.
    ///
    /// # Cancel safety
    /// When the future is dropped the same holds: nothing is started.
    pub async fn start_in(self, cluster: &Cluster) -> Result<Farm, StartError> {
        self.check()?;
        let rank = cluster.rank();
        allowed("rank", rank.into(), "0", rank == FARMER)?;
        let own = usize::from(self.model == Model::A);
        let count = cluster.members().len().saturating_sub(1) + own;
        allowed("workers", count as u64, WORKERS, (1..=WORKER_COUNT_MAX).contains(&count))?;
        let node = cluster.node().clone();
        #[cfg(unix)]
        if self.explains {
            node.explain_on_sigusr1().map_err(StartError::Signal)?;
        }
        let registry = Arc::new(self.registry);
        let mut crew = Crew::new()?;
        for _ in 0..own {
            crew.hire_thread(Farmer::Here(node.clone()), self.node, &registry)?;
        }
        crew.hire_members(cluster);
        let links = welcome(&node, &mut crew, &registry, self.start_deadline).await?;
        Ok(Farm::new(node, registry, crew, links, self.prefetch, self.grain))
    }

    /// Where the workers that are not the farmer's own are told to come.
    fn address(&self) -> Address {
        match (&self.listen, self.workers_as) {
            (Some(address), _) => address.clone(),
            (None, WorkersAs::Process) => Address::Tcp { host: "127.0.0.1".into(), port: 0 },
            (None, WorkersAs::Thread) => memory_address(),
        }
    }

    fn hire(
        self,
        sizes: &Sizes,
        node: &Node,
        own_address: &Address,
    ) -> Result<(Crew, Arc<Registry>), StartError> {
        let registry = Arc::new(self.registry);
        let mut crew = Crew::new()?;
        for _ in 0..sizes.own {
            crew.hire_thread(Farmer::At(own_address.clone()), self.node, &registry)?;
        }
        if sizes.threads + sizes.processes > 0 {
            // As it is bound, with its port.
            let bound = node.addresses().into_iter().find(|address| address != own_address);
            let bound = bound.expect("the node listens where it was told to");
            for _ in 0..sizes.threads {
                crew.hire_thread(Farmer::At(bound.clone()), self.node, &registry)?;
            }
            if sizes.processes > 0 {
                let adjust = self.launcher.unwrap_or_else(|| Box::new(|launcher| launcher));
                crew.hire_processes(sizes.processes, self.node, adjust(Launcher::new(bound)))?;
            }
        }
        Ok((crew, registry))
    }

    fn check(&self) -> Result<(), StartError> {
        let depth = match self.prefetch {
            Prefetch::Fixed(depth) => depth,
            Prefetch::Auto => 1,
        };
        allowed("prefetch", depth.into(), "1 or more", depth > 0)?;
        allowed("grain", self.grain.into(), "1 or more", self.grain > 0)
    }

    fn sizes(&self) -> Result<Sizes, StartError> {
        let count = self.workers.unwrap_or_else(|| {
            std::thread::available_parallelism().map_or(1, usize::from).min(WORKER_COUNT_MAX)
        });
        allowed("workers", count as u64, WORKERS, (1..=WORKER_COUNT_MAX).contains(&count))?;
        let own = usize::from(self.model == Model::A);
        Ok(match self.workers_as {
            WorkersAs::Thread => Sizes { own, threads: count - own, processes: 0 },
            WorkersAs::Process => Sizes { own, threads: 0, processes: count - own },
        })
    }
}

fn allowed(
    name: &'static str,
    value: u64,
    allowed: &'static str,
    holds: bool,
) -> Result<(), StartError> {
    if holds { Ok(()) } else { Err(StartError::Setting { name, value, allowed }) }
}

/// A name in this process's memory that no other farm uses.
fn memory_address() -> Address {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    Address::Memory(format!("chunkcomm-farm-{number}"))
}
