//! Sets a farm up and starts it.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use chunkcomm::host::Instant;
use chunkcomm::{Address, ConnectError, Node, host};
use chunkcomm_cluster::cluster::launch::Environment;
use chunkcomm_cluster::launch::Launcher;
use chunkcomm_cluster::{Cluster, Registry};
use chunkcomm_proto::sorted::SortedSet;

use crate::crew::Crew;
use crate::error::StartError;
use crate::farm::Farm;
use crate::journal::Journal;
use crate::proto::wire::Terms;
use crate::serving::{THREADS_MAX, share_of_cores};
use crate::settings::times::START_DEADLINE;
use crate::settings::{
    FARM_NAME, Grain, JournalOptions, Messaging, Model, NodeSettings, Prefetch, TaskTimeout, Tree,
    VIRTUAL_WORKERS_MAX, VirtualWorkers, WORKER_COUNT_MAX, Ways, WorkersAs,
};
use crate::worker::Farmer;

/// Allowed numbers of workers, as an error's text names them.
const WORKERS: &str = "1 to 1024";

/// Allowed numbers of virtual workers, as an error's text names them.
const VIRTUAL_WORKERS: &str = "1 to 1024";

/// Default number of workers that may die of a task before the task is set aside.
const DEATHS_MAX: u32 = 3;

/// Time before the end of a batch job at which a farm's time is over.
const JOB_RESERVE: Duration = Duration::from_secs(30);

type Adjust = Box<dyn FnOnce(Launcher) -> Launcher + Send>;

/// Settings of a farm. [`start`](FarmBuilder::start) ends the chain with workers on this machine,
/// [`start_in`](FarmBuilder::start_in) with the nodes of a cluster.
///
/// Every setting has a default; grain and prefetch are measured. `start` and `start_in` refuse
/// values outside the allowed range.
///
/// ```no_run
/// # async fn example(registry: chunkcomm_cluster::Registry) -> Result<(), Box<dyn std::error::Error>> {
/// use chunkcomm_farm::Farm;
/// use std::time::Duration;
///
/// let builder = Farm::builder(registry).workers(8).task_timeout(Duration::from_secs(60));
/// let farm = builder.start().await?;
/// # Ok(())
/// # }
/// ```
#[must_use]
pub struct FarmBuilder {
    registry: Registry,
    workers: Option<usize>,
    workers_as: WorkersAs,
    model: Model,
    ways: Ways,
    tree: Tree,
    messaging: Messaging,
    explains: bool,
    launcher: Option<Adjust>,
    journal: Option<(PathBuf, JournalOptions)>,
    name: String,
    nodes: Option<SortedSet<u32>>,
    walltime: Option<Duration>,
}

impl fmt::Debug for FarmBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FarmBuilder")
            .field("workers", &self.workers)
            .field("workers_as", &self.workers_as)
            .field("model", &self.model)
            .field("terms", &self.ways.terms)
            .finish_non_exhaustive()
    }
}

impl Farm {
    /// Begins to set up a farm whose tasks are functions of this registry.
    ///
    /// Several farms with the same functions get a clone of the registry each.
    pub fn builder(registry: Registry) -> FarmBuilder {
        let terms = Terms {
            prefetch: None,
            grain: Grain::default(),
            deaths_max: DEATHS_MAX,
            limit: None,
            virtual_workers: None,
        };
        FarmBuilder {
            registry,
            workers: None,
            workers_as: WorkersAs::default(),
            model: Model::default(),
            ways: Ways { terms, start: START_DEADLINE, end: None, spans_max: 0 },
            tree: Tree::default(),
            messaging: Messaging::default(),
            explains: false,
            launcher: None,
            journal: None,
            name: FARM_NAME.to_owned(),
            nodes: None,
            walltime: None,
        }
    }
}

impl FarmBuilder {
    /// Takes the settings that are there; those that are left out stay as they are.
    #[cfg(feature = "settings")]
    pub fn settings(mut self, settings: &crate::settings::FarmSettings) -> FarmBuilder {
        if let Some(name) = &settings.name {
            self = self.name(name);
        }
        if let Some(count) = settings.workers {
            self = self.workers(count);
        }
        if let Some(held) = settings.prefetch {
            self = self.prefetch(Prefetch::Fixed(held));
        }
        if let Some(virtual_workers) = settings.virtual_workers {
            self = self.virtual_workers(virtual_workers);
        }
        if let Some(timeout) = settings.task_timeout {
            self = self.task_timeout(timeout);
        }
        if let Some(path) = &settings.journal {
            self = self.journal(path, JournalOptions::default());
        }
        if let Some(bytes) = settings.message_bytes_max {
            self.messaging.message_bytes_max = Some(usize::try_from(bytes).unwrap_or(usize::MAX));
        }
        self.ways.terms.grain = settings.grain.unwrap_or(self.ways.terms.grain);
        self.ways.terms.deaths_max = settings.deaths_max.unwrap_or(self.ways.terms.deaths_max);
        self.ways.start = settings.start_deadline.unwrap_or(self.ways.start);
        self.workers_as = settings.workers_as.unwrap_or(self.workers_as);
        self.model = settings.model.unwrap_or(self.model);
        self.tree = settings.tree.unwrap_or(self.tree);
        self.walltime = settings.walltime.or(self.walltime);
        self
    }

    /// Sets the number of workers: 1 to [`WORKER_COUNT_MAX`], by default one a processor.
    ///
    /// In model A the farmer's own worker counts.
    pub fn workers(mut self, count: usize) -> FarmBuilder {
        self.workers = Some(count);
        self
    }

    /// Makes the workers processes (the default) or threads.
    pub fn workers_as(mut self, workers_as: WorkersAs) -> FarmBuilder {
        self.workers_as = workers_as;
        self
    }

    /// Sets whether the farmer's node works too; [`Model::Auto`] by default.
    pub fn model(mut self, model: Model) -> FarmBuilder {
        self.model = model;
        self
    }

    /// Sets the number of assignments that a worker holds; measured by default.
    ///
    /// A larger number hides a longer way to the worker. At the end of a run, workers without tasks
    /// get tasks that others have not begun.
    pub fn prefetch(mut self, prefetch: Prefetch) -> FarmBuilder {
        self.ways.terms.prefetch = prefetch.fixed();
        self
    }

    /// Sets the number of tasks in an assignment; measured by default.
    ///
    /// A larger number costs less a task and balances less well.
    pub fn grain(mut self, tasks: impl Into<Grain>) -> FarmBuilder {
        self.ways.terms.grain = tasks.into();
        self
    }

    /// Sets whether sub-farmers stand between the farmer and the nodes of a cluster.
    ///
    /// By default they do with more than 100 nodes. [`Tree`] says when sub-farmers pay. The setting
    /// is for [`start_in`](FarmBuilder::start_in); workers that the farm starts have no
    /// sub-farmers.
    pub fn tree(mut self, tree: Tree) -> FarmBuilder {
        self.tree = tree;
        self
    }

    /// Bounds the number of tasks that a worker has begun and not finished, for each of its
    /// threads.
    ///
    /// The default is as many as keep the threads busy, up to 16. A larger number makes up for
    /// longer waits. It costs memory, and a thread for each task that
    /// [blocks](crate::TaskContext::blocking) its own. A begun task is not moved to a worker
    /// without work. If its worker dies, another worker begins it again.
    pub fn virtual_workers(mut self, virtual_workers: VirtualWorkers) -> FarmBuilder {
        self.ways.terms.virtual_workers = virtual_workers.fixed();
        self
    }

    /// Sets the number of workers that may die while they run the same task; at least 1, by default
    /// 3.
    ///
    /// The task is then set aside as [`TaskError::SetAside`](crate::TaskError::SetAside).
    ///
    /// The farmer cannot tell which of its tasks killed a worker. A task that two dying workers
    /// held is run next by a worker that holds nothing else. So a task held with others may cost up
    /// to 3 workers even with a number below 3. Deaths of another cause count too. Choose a larger
    /// number where workers are often killed in the middle of long tasks.
    ///
    /// Under a [`tree`](FarmBuilder::tree) each sub-farmer counts the deaths of its workers, and
    /// the farmer those of sub-farmers. A task that kills both may cost up to the square of this
    /// number.
    pub fn deaths_max(mut self, workers: u32) -> FarmBuilder {
        self.ways.terms.deaths_max = workers;
        self
    }

    /// Sets the longest time that an attempt at a task may run; none by default.
    ///
    /// After the time-out [`TaskContext::is_cancelled`](crate::TaskContext::is_cancelled) is true
    /// for the task. After the [grace](TaskTimeout::grace) as well, the task has failed with
    /// [`TaskError::TimedOut`](crate::TaskError::TimedOut). A plain duration has a grace of 1 s.
    ///
    /// A process that the farm started is then replaced; its other tasks go to other workers. A
    /// thread of a node or of the farmer's process cannot be ended: it goes on, and another thread
    /// takes its place. A node stops its service when it has 64 such threads, or twice its other
    /// threads if that is more.
    ///
    /// The farmer also watches the workers, since a task may stop its process. A worker with tasks
    /// counts as dead when it answers nothing for time-out, grace and 3 s. Its process is replaced,
    /// or the service of its node ends. When [`deaths_max`](FarmBuilder::deaths_max) workers have
    /// died of a task in this way, the task has failed with `TimedOut`. Tasks of a silent worker
    /// are copied only while it answers questions. A stop of farmer and workers together costs no
    /// task any time.
    ///
    /// Without a time-out no worker is ended. After 10 s of silence a warning and
    /// [`Node::explain`](chunkcomm::Node::explain) name the worker.
    ///
    /// Workers check their tasks every quarter of the shorter of time-out and grace, from 1 to 100
    /// ms. With a time-out, tiny tasks run in a thread of their own, which costs some microseconds
    /// a slice.
    pub fn task_timeout(mut self, timeout: impl Into<TaskTimeout>) -> FarmBuilder {
        self.ways.terms.limit = Some(timeout.into());
        self
    }

    /// Keeps accepted results in this file, for a program that is started again; no journal by
    /// default.
    ///
    /// The file is made if it does not exist. A program that is started again with the file goes on
    /// where the farmer died. It must make the same runs in the same order, each with the same
    /// function. A task whose input is in the journal gets the stored result, whatever its index;
    /// tasks with equal inputs get one each. [`recalled`](crate::RunStats::recalled) counts these
    /// tasks.
    ///
    /// | run | in the journal |
    /// |---|---|
    /// | [`run_pool`](crate::Farm::run_pool) | a task's further tasks, as part of its result |
    /// | [`map_reduce`](crate::Farm::map_reduce) | a result for each group of inputs, so sub-farmers do not reduce; another number of inputs makes other groups, which run again |
    /// | any, with a task that failed or was set aside | nothing for that task, which runs again |
    ///
    /// The farm appends to the file and never removes it: remove it when the results are safe
    /// elsewhere. The start reads the whole file.
    ///
    /// - The file has the encoded results, and 13 bytes a task beside them (17 if the result has 255
    ///   bytes or more).
    /// - The farmer has some 80 bytes of memory for each stored result, and 16 bytes for each task from
    ///   the first one without a result on.
    ///
    /// # Damage
    ///
    /// In a journal, as in the log of a redelivering sender ([`chunkcomm::Redelivery::log`]),
    /// each record marks how much of its file was permanent when it was written. Opening goes by the
    /// marks:
    ///
    /// - Damage before the last mark is refused
    ///   ([`JournalError::Damaged`](crate::JournalError::Damaged)), and nothing is changed.
    /// - A record behind it that is not whole was being written. It is cut off with all that follows,
    ///   and a warning says so.
    /// - A journal may skip a damaged record and compute its results again
    ///   ([`skip_damaged_records`](JournalOptions::skip_damaged_records)).
    /// - A log that was never synced refuses damage that whole records follow.
    pub fn journal(
        mut self,
        path: impl Into<PathBuf>,
        options: impl Into<JournalOptions>,
    ) -> FarmBuilder {
        self.journal = Some((path.into(), options.into()));
        self
    }

    /// Keeps a timeline of each run, for [`RunStats::timeline`](crate::RunStats::timeline); none by
    /// default.
    ///
    /// The timeline has a span of 64 bytes for each answer of a worker, and at most `spans_max`
    /// spans. It costs the workers nothing.
    pub fn keep_timeline(mut self, spans_max: usize) -> FarmBuilder {
        self.ways.spans_max = spans_max;
        self
    }

    /// Sets how farmer and workers send messages.
    pub fn messaging(mut self, messaging: Messaging) -> FarmBuilder {
        self.messaging = messaging;
        self
    }

    /// Sets the time within which the workers must report; 30 s by default.
    ///
    /// A run that has lost all its workers waits as long for new ones. These are processes in the
    /// place of dead ones, and nodes that have lost their sub-farmer.
    pub fn start_deadline(mut self, deadline: Duration) -> FarmBuilder {
        self.ways.start = deadline;
        self
    }

    /// Lets the farmer's process print [`Node::explain`] of its node to stderr at each `SIGUSR1`.
    ///
    /// The signal then does not end the process. Worker processes always print theirs.
    #[cfg(unix)]
    pub fn explain_on_sigusr1(mut self) -> FarmBuilder {
        self.explains = true;
        self
    }

    /// Adjusts how worker processes are started, replacements included.
    ///
    /// The launcher sets their arguments, environment and processors, or another program. By
    /// default they get the arguments of this process; [`Launcher::args`] replaces them.
    pub fn launcher(
        mut self,
        adjust: impl FnOnce(Launcher) -> Launcher + Send + 'static,
    ) -> FarmBuilder {
        self.launcher = Some(Box::new(adjust));
        self
    }

    /// Sets the time from this call until the farm's processes may be ended, for instance by a
    /// batch system.
    ///
    /// The default is the end of Slurm's job, less 30 s, where Slurm tells it
    /// (`SLURM_JOB_END_TIME`), and otherwise none.
    ///
    /// Runs end before that time, with [`RunError::OutOfTime`]. The farmer stops giving out tasks
    /// when the time left is 1.25 times the longest wait for an answer so far, plus 0.1 s. It then
    /// takes the results of the tasks at work. With a [journal](FarmBuilder::journal) the next farm
    /// goes on from there. Leave time for what the program does afterwards.
    ///
    /// [`RunError::OutOfTime`]: crate::RunError::OutOfTime
    pub fn walltime(mut self, walltime: Duration) -> FarmBuilder {
        self.walltime = Some(walltime);
        self
    }

    /// Names the farm, where a cluster has several at a time.
    ///
    /// Nodes become workers of the farm that [`Serving::farm`](crate::Serving::farm) names.
    pub fn name(mut self, name: impl Into<String>) -> FarmBuilder {
        self.name = name.into();
        self
    }

    /// Sets the ranks that the farm waits for when it [starts in](FarmBuilder::start_in) a cluster.
    ///
    /// The default is all other present nodes. Nodes of other ranks that come later are taken too.
    pub fn nodes(mut self, ranks: impl IntoIterator<Item = u32>) -> FarmBuilder {
        self.nodes = Some(ranks.into_iter().collect());
        self
    }

    /// Starts the workers, and returns when all are connected and have the farmer's functions.
    ///
    /// In a simulation all workers are tasks of the farmer's host.
    ///
    /// # Errors
    /// See [`StartError`]. After an error no worker process is left.
    ///
    /// # Cancel safety
    /// When the future is dropped, the workers that it started end.
    pub async fn start(self) -> Result<Farm, StartError> {
        self.check()?;
        let count = self.workers.unwrap_or_else(|| host::cores().min(WORKER_COUNT_MAX));
        check_workers(count)?;
        let own = self.model.works(false);
        let others = count - usize::from(own);
        let journal = self.open_journal()?;
        let own_address = memory_address();
        let mut builder = self.messaging.node().node().name("farmer");
        if others > 0 {
            builder = builder.listen(self.address());
        }
        if own {
            builder = builder.listen(own_address.clone());
        }
        let node = builder.build().await.map_err(StartError::Node)?;
        #[cfg(unix)]
        if self.explains {
            node.explain_on_sigusr1().map_err(StartError::Signal)?;
        }
        let ways = Ways { end: self.end(), ..self.ways };
        let (settings, kept) = (self.messaging.node(), node.clone());
        let registry = Arc::new(self.registry.clone());
        let crew = self.hire((own, others), &node, &own_address, &registry)?;
        let error = match Farm::open(node, registry, crew, ways, journal).await {
            Err(error) if error.unexplained().is_some() => error,
            opened => return opened,
        };
        let listens = kept.addresses().into_iter().find(|address| *address != own_address);
        let listens = listens.expect("processes were to report there");
        Err(error.explained_by(attempt(&listens, settings).await))
    }

    /// Starts a farm on this node of a cluster; the other present nodes are its workers.
    ///
    /// Each of them must call [`serve_in`](crate::serve_in). Nodes that join the cluster later, and
    /// call it, become workers too. In model A the farmer's own worker comes first. A cluster may
    /// have several farms at a time, on one node or several, if each has a
    /// [name](FarmBuilder::name).
    ///
    /// The cluster determines the workers and where they meet. Each node sets for itself how it
    /// sends ([`ClusterConfig::node`](chunkcomm_cluster::ClusterConfig::node)). So `workers`,
    /// `workers_as`, `launcher` and `messaging` of this builder have no effect.
    ///
    /// # Errors
    /// See [`StartError`]: there is no worker, or another farm has the name. Or a worker has other
    /// functions, or does not call [`serve_in`](crate::serve_in) in time. Workers that had arrived
    /// return from that call; the others wait for the next farm.
    ///
    /// # Cancel safety
    /// When the future is dropped, workers that had arrived return; the others wait.
    pub async fn start_in(self, cluster: &Cluster) -> Result<Farm, StartError> {
        self.check()?;
        let registry = Arc::new(self.registry.clone());
        let mut crew = Crew::new(&self.name, None, self.messaging.node(), &registry)?;
        // The crew watches before the members are read, so that no death falls between the two.
        crew.watch(cluster);
        let mut members = cluster.members();
        members.retain(|member| member.id != cluster.id());
        if let Some(ranks) = &self.nodes {
            members.retain(|member| ranks.contains(&member.id.rank));
            allowed(
                "nodes",
                members.len() as u64,
                "ranks of other present nodes",
                members.len() == ranks.len(),
            )?;
        }
        let own = self.model.works(members.is_empty());
        let count = members.len() + usize::from(own);
        check_workers(count)?;
        let journal = self.open_journal()?;
        let (node, ways) = (cluster.node().clone(), Ways { end: self.end(), ..self.ways });
        #[cfg(unix)]
        if self.explains {
            node.explain_on_sigusr1().map_err(StartError::Signal)?;
        }
        crew.announce(cluster).await?;
        let threads = share_of_cores(cluster).clamp(1, THREADS_MAX) as u32;
        if own {
            crew.hire_thread(Farmer::Here(node.clone()), threads)?;
        } else if self.model == Model::Auto {
            crew.keep_in_reserve(node.clone(), threads);
        }
        let rule = self.tree.rule(members.len());
        crew.hire_members(members, rule);
        Farm::open(node, registry, crew, ways, journal).await
    }

    /// Returns the kind of the workers. A simulation has no processes: all are tasks of a host.
    fn kind(&self) -> WorkersAs {
        if host::is_virtual() { WorkersAs::Thread } else { self.workers_as }
    }

    /// Returns the address at which workers other than the farmer's own must report.
    fn address(&self) -> Address {
        match (&self.messaging.listen, self.kind()) {
            (Some(address), _) => address.clone(),
            (None, WorkersAs::Process) => Address::Tcp { host: "127.0.0.1".into(), port: 0 },
            (None, WorkersAs::Thread) => memory_address(),
        }
    }

    /// Starts the workers, the farmer's own first if it has one.
    fn hire(
        self,
        (own, others): (bool, usize),
        node: &Node,
        own_address: &Address,
        registry: &Arc<Registry>,
    ) -> Result<Crew, StartError> {
        let kind = self.kind();
        let mut crew = Crew::new(FARM_NAME, None, self.messaging.node(), registry)?;
        if own {
            crew.hire_thread(Farmer::At(own_address.clone()), 1)?;
        }
        if others > 0 {
            // The bound address has the port.
            let bound = node.addresses().into_iter().find(|address| address != own_address);
            let bound = bound.expect("the node listens where it was told to");
            if kind == WorkersAs::Process {
                let adjust = self.launcher.unwrap_or_else(|| Box::new(|launcher| launcher));
                // The functions that `main` registers may depend on the arguments.
                let launcher = Launcher::new(bound).args(std::env::args_os().skip(1));
                crew.hire_processes(others, adjust(launcher))?;
            } else {
                for _ in 0..others {
                    crew.hire_thread(Farmer::At(bound.clone()), 1)?;
                }
            }
        }
        Ok(crew)
    }

    fn check(&self) -> Result<(), StartError> {
        let Terms { prefetch, grain, deaths_max, limit, virtual_workers } = self.ways.terms;
        allowed("prefetch", prefetch.unwrap_or(1).into(), "1 or more", prefetch != Some(0))?;
        allowed("grain", grain.fixed().into(), "1 or more", grain.fixed() != 0)?;
        let no_time = limit.is_some_and(|limit| limit.timeout.is_zero());
        let size = if let Tree::FanOut(size) = self.tree { size } else { 2 };
        allowed("tree", size.into(), "2 or more", size >= 2)?;
        let each = virtual_workers.unwrap_or(1);
        let is_allowed = (1..=VIRTUAL_WORKERS_MAX).contains(&each);
        allowed("virtual_workers", each.into(), VIRTUAL_WORKERS, is_allowed)?;
        allowed("task_timeout", 0, "more than 0 s", !no_time)?;
        allowed("deaths_max", deaths_max.into(), "1 or more", deaths_max > 0)
    }

    fn open_journal(&self) -> Result<Option<Journal>, StartError> {
        let open = |(path, options): &(PathBuf, _)| Journal::open(path, *options);
        self.journal.as_ref().map(open).transpose().map_err(StartError::Journal)
    }

    /// Returns the moment at which the farm's time is over.
    fn end(&self) -> Option<Instant> {
        let of_job = || {
            let left = Environment::of_this_process().job_time_left()?;
            Some(left.saturating_sub(JOB_RESERVE))
        };
        self.walltime.or_else(of_job).map(|time| Instant::now() + time)
    }
}

/// Returns the reason why a process of this machine does not reach this address, if it does not.
async fn attempt(address: &Address, settings: NodeSettings) -> Option<ConnectError> {
    let node = settings.node().build().await.ok()?;
    node.connect_within(address, Duration::ZERO).await.err()
}

fn check_workers(count: usize) -> Result<(), StartError> {
    allowed("workers", count as u64, WORKERS, (1..=WORKER_COUNT_MAX).contains(&count))
}

fn allowed(
    name: &'static str,
    value: u64,
    allowed: &'static str,
    holds: bool,
) -> Result<(), StartError> {
    if holds { Ok(()) } else { Err(StartError::Setting { name, value, allowed }) }
}

/// Returns a name in this process's memory that no other farm uses.
fn memory_address() -> Address {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    Address::Memory(format!("chunkcomm-farm-{number}"))
}
