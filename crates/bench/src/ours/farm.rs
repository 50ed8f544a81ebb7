//! A farm of tasks that compute a set number of iterations and answer a number.

mod queue;

use std::any::Any;
use std::thread;
use std::time::{Duration, Instant};

use chunkcomm::{Address, host};
use chunkcomm_cluster::registry::Function;
use chunkcomm_cluster::{Cluster, Registry};
use chunkcomm_farm::settings::{
    Fsync, Grain, Messaging, Model, Prefetch, Runtime as FarmRuntime, Tree, WorkersAs,
};
use chunkcomm_farm::{Farm, serve_if_started, serve_in};
use chunkcomm_testkit::{Scratch, free_path};
use tokio::runtime::Runtime;

use crate::failure::{Doing, Failure};
use crate::harness::machine;
use crate::harness::protocol::{RuntimeKind, Transport};
use crate::harness::work::{Work, answer, exponential, iterate};
use crate::message::{Long, Message, Record, Short, Word};
use crate::with_message_of;

pub use queue::{Queue, bytes_of_queue};

/// Environment variable with the computation of a task, for worker processes: they are copies of
/// this program. The farmer alone finds the iterations, before there are workers.
const WORK_VARIABLE: &str = "CHUNKPERF_WORK_ITERATIONS";

/// Time for the workers to end in good order: 5 s.
pub(crate) const FINISH_DEADLINE: Duration = Duration::from_secs(5);

/// Tasks, workers and settings of the farm.
#[derive(Debug, Clone)]
pub struct FarmKind {
    /// Encoded bytes of a task.
    pub task_bytes: usize,
    /// Computation of each task.
    pub work: Work,
    /// Number of workers, in model A the farmer's own among them.
    pub workers: usize,
    /// Kind of the workers: processes or threads.
    pub workers_as: WorkersAs,
    /// Model of the farm: whether the farmer's node works too.
    pub model: Model,
    /// Number of assignments that a worker holds.
    pub prefetch: Prefetch,
    /// Number of tasks an assignment.
    pub grain: Grain,
    /// Sub-farmers of a farm in a cluster.
    pub tree: Tree,
    /// Runtime that drives the nodes.
    pub runtime: FarmRuntime,
    /// Address on which the farmer listens.
    pub listen: Address,
    /// Whether the farmer keeps a journal, and when it is permanent.
    pub journal: Option<Fsync>,
}

impl FarmKind {
    /// Returns a farm of one process with measured settings, for tasks of 16 bytes.
    ///
    /// # Errors
    /// If there is no address of the transport.
    pub fn of(work: Work, runtime: RuntimeKind, transport: Transport) -> Result<Self, Failure> {
        Ok(Self {
            task_bytes: 16,
            work,
            workers: 1,
            workers_as: WorkersAs::Process,
            model: Model::B,
            prefetch: Prefetch::Auto,
            grain: Grain::Auto,
            tree: Tree::Off,
            runtime: runtime_of(runtime),
            listen: farmer_address(transport)?,
            journal: None,
        })
    }
}

/// A farm with its workers, ready to run.
pub trait Ready {
    /// Farms `tasks` tasks out and verifies the results; returns the seconds from the first
    /// assignment to the last result.
    ///
    /// # Errors
    /// If a worker is lost, or a result is wrong.
    fn run(&mut self, runtime: &Runtime, tasks: u64) -> Result<f64, Failure>;

    /// Stops the worker processes, which spin if they poll busily, or lets them continue.
    fn hold(&self, held: bool);

    /// Ends the workers in good order.
    ///
    /// # Errors
    /// If a worker ended otherwise.
    fn finish(self: Box<Self>, runtime: &Runtime) -> Result<(), Failure>;
}

/// Serves as a worker and ends the process, in a worker's process; returns at once in all others.
pub fn serve_if_worker() {
    let work = std::env::var(WORK_VARIABLE).ok().and_then(|text| Work::from_text(&text));
    let functions = Functions::new(work.unwrap_or(Work::Iterations(0)));
    serve_if_started(&functions.registry);
}

/// Returns the farm's name of a runtime.
pub fn runtime_of(kind: RuntimeKind) -> FarmRuntime {
    match kind {
        RuntimeKind::Ambient => FarmRuntime::Ambient,
        RuntimeKind::IoThread => FarmRuntime::IoThread,
        RuntimeKind::BusyPoll => FarmRuntime::BusyPoll,
    }
}

/// Returns an address on which a farmer can be reached by this transport.
///
/// # Errors
/// If there is none.
pub fn farmer_address(transport: Transport) -> Result<Address, Failure> {
    Ok(match transport {
        Transport::Tcp | Transport::Tls => "127.0.0.1:0".parse().doing("naming an address")?,
        Transport::Unix => Address::Unix(free_path("socket")),
        Transport::Memory => Address::Memory(format!("chunkperf-{}", std::process::id())),
    })
}

/// Starts the workers.
///
/// # Errors
/// If they do not start.
pub fn start(runtime: &Runtime, kind: &FarmKind) -> Result<Box<dyn Ready>, Failure> {
    let functions = Functions::new(kind.work);
    let journal = kind.journal.map(|fsync| (Scratch::new("farm-journal"), fsync));
    let farm = open(runtime, kind, &functions, journal.as_ref())?;
    let (bytes, _journal) = (kind.task_bytes, journal.map(|(file, _)| file));
    with_message_of!(bytes, M => {
        Ok(Box::new(Started::<M> { farm, function: functions.of(), bytes, _journal }))
    })
}

fn open(
    runtime: &Runtime,
    kind: &FarmKind,
    functions: &Functions,
    journal: Option<&(Scratch, Fsync)>,
) -> Result<Farm, Failure> {
    let mut cores = machine::cores();
    let pinned = kind.workers_as == WorkersAs::Process;
    // Children may be pinned only to the cores that their parent may use at that moment.
    machine::unpin();
    let builder = Farm::builder(functions.registry.clone())
        .workers(kind.workers)
        .workers_as(kind.workers_as)
        .model(kind.model)
        .prefetch(kind.prefetch)
        .grain(kind.grain)
        .messaging(Messaging {
            runtime: kind.runtime,
            listen: Some(kind.listen.clone()),
            ..Messaging::default()
        });
    let work = kind.work;
    let builder = builder.launcher(move |launcher| {
        let launcher = match work.to_text() {
            Some(text) => launcher.env(WORK_VARIABLE, text),
            None => launcher,
        };
        if !cores.is_empty() {
            // The first core is the farmer's.
            cores.rotate_left(1);
        }
        launcher.cpus(cores)
    });
    let builder = match journal {
        Some((file, fsync)) => builder.journal(&**file, *fsync),
        None => builder,
    };
    let farm = runtime.block_on(builder.start()).doing("starting the farm")?;
    if pinned {
        machine::pin(0);
    }
    Ok(farm)
}

/// Functions of every copy of the program, one for each type of task.
struct Functions {
    registry: Registry,
    /// A `Function<M, u64>` for each type of message, and one for pools.
    handles: Vec<Box<dyn Any + Send + Sync>>,
}

impl Functions {
    fn new(work: Work) -> Self {
        let mut functions = Self { registry: Registry::new(), handles: Vec::new() };
        functions.register::<Word>("spin-word", work);
        functions.register::<Short>("spin-short", work);
        functions.register::<Record>("spin-record", work);
        functions.register::<Long>("spin-long", work);
        functions
    }

    fn register<M: Message>(&mut self, name: &str, work: Work) {
        let function = self.registry.register(name, move |task: M| perform(&task, work));
        self.handles.push(Box::new(function));
        let pool = move |task: M| (perform(&task, work), Vec::<M>::new());
        let pool = self.registry.register(&format!("{name}-in-pool"), pool);
        self.handles.push(Box::new(pool));
    }

    /// Returns the function from messages to numbers, or that of a pool.
    fn of<M: Message, O: 'static>(&self) -> Function<M, O> {
        let found = self.handles.iter().find_map(|handle| handle.downcast_ref());
        Function::clone(found.expect("every type of message is registered"))
    }
}

/// Returns the answer to a task; one whose check byte is wrong gets an answer that no task has.
fn perform<M: Message>(task: &M, work: Work) -> u64 {
    let sequence = task.sequence();
    match work {
        Work::Iterations(iterations) => iterate(iterations),
        Work::Exponential(mean) => iterate(exponential(mean, sequence)),
        Work::Virtual(time) => host::spend(time),
    }
    if task.is_stamped(sequence) { answer(sequence) } else { !answer(sequence) }
}

/// Performs `tasks` tasks of the farm one after the other, on this thread; returns the seconds.
///
/// # Errors
/// If a result is wrong.
pub fn run_sequentially(kind: &FarmKind, tasks: u64) -> Result<f64, Failure> {
    let started = Instant::now();
    let wrong = perform_all(kind, 0..tasks);
    right_in(started, wrong)
}

/// Performs `tasks` tasks of the farm on this number of threads, in turn, each on a core of its own; returns
/// the seconds.
///
/// # Errors
/// If a result is wrong.
pub fn run_on_threads(kind: &FarmKind, tasks: u64, threads: usize) -> Result<f64, Failure> {
    let started = Instant::now();
    let wrong = thread::scope(|scope| {
        let work = |at: usize| {
            machine::pin(at);
            perform_all(kind, (at as u64..tasks).step_by(threads))
        };
        let working: Vec<_> = (0..threads).map(|at| scope.spawn(move || work(at))).collect();
        working.into_iter().map(|thread| thread.join().unwrap_or(usize::MAX)).max()
    });
    right_in(started, wrong.unwrap_or_default())
}

/// Performs these tasks; returns the number of wrong results.
fn perform_all(kind: &FarmKind, tasks: impl Iterator<Item = u64>) -> usize {
    with_message_of!(kind.task_bytes, M => {
        let right = |sequence: &u64| {
            let mut task = M::with_size(kind.task_bytes);
            task.stamp(*sequence);
            perform(&task, kind.work) == answer(*sequence)
        };
        tasks.filter(|sequence| !right(sequence)).count()
    })
}

/// Returns the seconds since `started`, if no result was wrong.
fn right_in(started: Instant, wrong: usize) -> Result<f64, Failure> {
    if wrong > 0 {
        return Err(Failure::broken(
            "working without a farm",
            format!("{wrong} results are wrong"),
        ));
    }
    Ok(started.elapsed().as_secs_f64())
}

/// Farms `tasks` tasks of `bytes` bytes out and verifies the results; returns the seconds from the
/// first assignment to the last result.
async fn farm_out<M: Message>(
    farm: &mut Farm,
    function: &Function<M, u64>,
    bytes: usize,
    tasks: u64,
) -> Result<f64, Failure> {
    let mut answered = vec![false; tasks as usize];
    let mut wrong = 0;
    let given = (0..tasks).map(|sequence| {
        let mut task = M::with_size(bytes);
        task.stamp(sequence);
        task
    });
    let take = |index: u64, value: u64| {
        let slot = &mut answered[index as usize];
        wrong += u64::from(*slot || value != answer(index));
        *slot = true;
    };
    let started = host::Instant::now();
    let results = farm.stream(function, given).doing("farming")?.as_completed();
    let stats = results.for_each(take).await;
    let seconds = started.elapsed().as_secs_f64();
    stats.doing("farming")?;
    if wrong > 0 || answered.contains(&false) {
        return Err(Failure::broken("farming", format!("{wrong} results are wrong")));
    }
    Ok(seconds)
}

/// Farms `tasks` tasks out in a cluster, from rank 0 to the others; returns the seconds of the run,
/// 0 at the others.
///
/// # Errors
/// If a worker is lost, or a result is wrong.
pub async fn farm_in(cluster: &Cluster, kind: &FarmKind, tasks: u64) -> Result<f64, Failure> {
    let functions = Functions::new(kind.work);
    if cluster.rank() > 0 {
        serve_in(cluster, &functions.registry).threads(1).await.doing("serving the farm")?;
        return Ok(0.0);
    }
    let builder = Farm::builder(functions.registry.clone())
        .model(kind.model)
        .prefetch(kind.prefetch)
        .grain(kind.grain)
        .tree(kind.tree);
    let mut farm = builder.start_in(cluster).await.doing("starting the farm")?;
    let bytes = kind.task_bytes;
    let seconds = with_message_of!(bytes, M => {
        let function = functions.of::<M, u64>();
        farm_out(&mut farm, &function, bytes, tasks).await?
    });
    farm.finish(FINISH_DEADLINE).await.doing("ending the farm")?;
    Ok(seconds)
}

struct Started<M: Message> {
    farm: Farm,
    function: Function<M, u64>,
    bytes: usize,
    _journal: Option<Scratch>,
}

impl<M: Message> Ready for Started<M> {
    fn run(&mut self, runtime: &Runtime, tasks: u64) -> Result<f64, Failure> {
        runtime.block_on(farm_out(&mut self.farm, &self.function, self.bytes, tasks))
    }

    fn hold(&self, held: bool) {
        for worker in self.farm.workers() {
            if let Some(pid) = worker.pid {
                machine::hold(pid, held);
            }
        }
    }

    fn finish(self: Box<Self>, runtime: &Runtime) -> Result<(), Failure> {
        runtime.block_on(self.farm.finish(FINISH_DEADLINE)).doing("ending the farm")
    }
}
