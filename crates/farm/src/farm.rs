//! The farm as its user holds it.

use std::collections::BTreeSet;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use chunkcomm::Node;
use chunkcomm::codec::EncodeError;
use chunkcomm::host::{Instant, timeout_at};
use chunkcomm_cluster::Registry;
use chunkcomm_cluster::registry::Function;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::account::Plan;
use crate::chosen::RunOf;
use crate::crew::Crew;
use crate::error::{FinishError, Loss, RunError, StartError, TaskError};
use crate::functions::{DivideAndConquer, MapReduce};
use crate::handshake::{Met, Reception};
use crate::journal::Journal;
use crate::link::Link;
use crate::name::WorkerName;
use crate::pool::pool;
use crate::proto::record::RunHead;
use crate::results::{Results, Waiting};
use crate::run::{Run, Watch, Workers};
use crate::settings::Ways;
use crate::shared::{Shared, Sharing};
use crate::stats::{Outcome, Progress, Reduced, RunStats};
use crate::tasks::{Groups, Listed, Sink, Source, Tasks};

/// A year: stands in for a deadline that the clock cannot represent.
const FOR_EVER: Duration = Duration::from_secs(365 * 24 * 3600);

/// A farmer and its workers, ready to run tasks.
///
/// A farm has one run at a time. A worker that dies is replaced if the farm started its process, and
/// nodes that join the farm's cluster later work for it too. Dropping the farm kills and reaps
/// the worker processes, and ends the service of a cluster's nodes;
/// [`finish`](Farm::finish) lets them end by themselves.
#[must_use = "a farm ends when it is dropped"]
pub struct Farm {
    links: Vec<Link>,
    crew: Crew,
    reception: Reception,
    ways: Ways,
    run: u32,
    lost: Option<RunError>,
    registry: Arc<Registry>,
    journal: Option<Journal>,
    sharing: Sharing,
    /// Whether the last run has left tasks at the workers.
    unfinished: bool,
    /// Called with the progress of runs.
    watch: Option<Watch>,
    /// The farmer's node; last, so that the channels are dropped before it.
    _node: Node,
}

impl std::fmt::Debug for Farm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Farm").field("workers", &self.crew.names()).finish_non_exhaustive()
    }
}

impl Farm {
    /// Waits until all workers are ready.
    pub(crate) async fn open(
        node: Node,
        registry: Arc<Registry>,
        mut crew: Crew,
        ways: Ways,
        journal: Option<Journal>,
        deadline: Duration,
    ) -> Result<Farm, StartError> {
        let mut reception =
            Reception::open(node.clone(), crew.farm(), registry.fingerprints(), ways);
        let links = reception.meet_all(&mut crew, deadline).await?;
        Ok(Farm {
            links,
            crew,
            reception,
            ways,
            run: 0,
            lost: None,
            registry,
            journal,
            sharing: Sharing::default(),
            unfinished: false,
            watch: None,
            _node: node,
        })
    }

    /// Returns the names of the workers, by index, also of those that are lost.
    #[must_use]
    pub fn workers(&self) -> &[WorkerName] {
        self.crew.names()
    }

    /// Makes a value that many tasks read: it is encoded once, and sent once to each worker. The
    /// tasks' inputs name it ([`Shared`]).
    ///
    /// The farmer and each worker keep the value, and the farmer its encoded bytes, until all
    /// handles are dropped and a run begins.
    ///
    /// ```no_run
    /// # async fn example(registry: chunkcomm_cluster::Registry) -> Result<(), Box<dyn std::error::Error>> {
    /// # let mut registry = registry;
    /// use chunkcomm_farm::{Farm, Shared};
    /// use std::sync::Arc;
    ///
    /// let find = registry.register("find", |(words, text): (Shared<Vec<String>>, String)| {
    ///     words.get().iter().filter(|word| text.contains(*word)).count()
    /// });
    /// let mut farm = Farm::builder(registry).start().await?;
    /// let words = farm.share(Arc::new(vec!["farm".to_owned(), "field".to_owned()]))?;
    /// let texts = ["a field".to_owned(), "a sea".to_owned()];
    /// let counts = farm.run(&find, texts.map(|text| (words.clone(), text))).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The value cannot be encoded.
    pub fn share<T>(&mut self, value: Arc<T>) -> Result<Shared<T>, EncodeError>
    where
        T: Serialize + DeserializeOwned + Send + Sync + 'static,
    {
        self.sharing.share(value)
    }

    /// Calls a closure with the progress of the runs that follow: when a run begins, every 100 ms, and when
    /// it has all its results; a run that fails makes no last call. Another call replaces the closure.
    ///
    /// It is called by the task that drives the run, which does nothing else meanwhile: the closure should
    /// return at once.
    ///
    /// ```no_run
    /// # async fn example(farm: &mut chunkcomm_farm::Farm) {
    /// farm.on_progress(|progress| {
    ///     if let Some(total) = progress.total() {
    ///         eprint!("\r{:.1} of {total} tasks", progress.done());
    ///     }
    /// });
    /// # }
    /// ```
    pub fn on_progress(&mut self, watch: impl FnMut(&Progress) + Send + Sync + 'static) {
        self.watch = Some(Box::new(watch));
    }

    /// Runs a function on every task and returns the results in the order of the tasks.
    ///
    /// Takes a task from the iterator when a worker has room, not before. A task may be run more
    /// than once, when a worker dies or falls silent; one result of each is taken.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use chunkcomm_cluster::Registry;
    /// use chunkcomm_farm::{Farm, settings::WorkersAs};
    ///
    /// let mut registry = Registry::new();
    /// let square = registry.register("square", |number: u64| number * number);
    /// let mut farm = Farm::builder(registry).workers_as(WorkersAs::Thread).start().await?;
    /// let outcome = farm.run(&square, 0..100).await?;
    /// assert_eq!(outcome.results[12], 144);
    /// assert_eq!(outcome.stats.tasks, 100);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// See [`RunError`]: the run ends at the first task that fails, or when no worker is left.
    ///
    /// # Cancel safety
    /// When the future is dropped, no further task is handed out. Tasks that workers
    /// hold already (at most prefetch times grain a worker) may still be run. The next
    /// run may begin at once: it drops the tasks that have not begun, and the results of those that have.
    pub async fn run<'f, I, O>(
        &mut self,
        function: impl Into<RunOf<'f, Function<I, O>>>,
        tasks: impl IntoIterator<Item = I>,
    ) -> Result<Outcome<O>, RunError>
    where
        I: Serialize + DeserializeOwned + 'static,
        O: Serialize + DeserializeOwned + 'static,
    {
        let tasks = Listed::new(tasks);
        let mut results = Vec::with_capacity(tasks.left().unwrap_or_default() as usize);
        let sink = only_results(|_, result| results.push(result));
        let mut run = self.begin(function.into(), tasks, sink)?;
        run.stop_at_failure();
        run.collect();
        let stats = run.drive().await?;
        Ok(Outcome { results, stats })
    }

    /// As [`run`](Farm::run), but a task that fails does not end the run: its error stands in the
    /// place of its result.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use chunkcomm_cluster::Registry;
    /// use chunkcomm_farm::{Farm, settings::WorkersAs};
    ///
    /// let mut registry = Registry::new();
    /// let inverse = registry.register("inverse", |number: u32| 100 / number);
    /// let mut farm = Farm::builder(registry).workers_as(WorkersAs::Thread).start().await?;
    /// let outcome = farm.run_to_end(&inverse, [4, 0, 5]).await?;
    /// assert_eq!(outcome.results[2].as_ref().ok(), Some(&20));
    /// assert_eq!(outcome.results[1].as_ref().unwrap_err().index(), 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// See [`RunError`].
    ///
    /// # Cancel safety
    /// As [`run`](Farm::run).
    pub async fn run_to_end<'f, I, O>(
        &mut self,
        function: impl Into<RunOf<'f, Function<I, O>>>,
        tasks: impl IntoIterator<Item = I>,
    ) -> Result<Outcome<Result<O, TaskError>>, RunError>
    where
        I: Serialize + DeserializeOwned + 'static,
        O: Serialize + DeserializeOwned + 'static,
    {
        let tasks = Listed::new(tasks);
        let mut results = Vec::with_capacity(tasks.left().unwrap_or_default() as usize);
        let sink = |_, result| results.push(result);
        let mut run = self.begin(function.into(), tasks, sink)?;
        run.collect();
        let stats = run.drive().await?;
        Ok(Outcome { results, stats })
    }

    /// Runs a function on every task and returns a stream of the results, each with its task's index: in
    /// the order of the tasks, or [as they come](Results::as_completed). The tasks are those of an iterator
    /// or of a stream, which may be endless and slow.
    ///
    /// The run goes on while its results are taken. A task that fails does not end it.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use chunkcomm_cluster::Registry;
    /// use chunkcomm_farm::{Farm, RunError, settings::WorkersAs};
    ///
    /// let mut registry = Registry::new();
    /// let inverse = registry.register("inverse", |number: u32| 100 / number);
    /// let mut farm = Farm::builder(registry).workers_as(WorkersAs::Thread).start().await?;
    /// let mut results = farm.stream(&inverse, 0..10)?;
    /// let (mut sum, mut failed) = (0, Vec::new());
    /// loop {
    ///     match results.next().await {
    ///         Ok(Some((_index, inverse))) => sum += inverse,
    ///         Ok(None) => break,
    ///         Err(RunError::Task(error)) => failed.push(error.index()),
    ///         Err(error) => return Err(error.into()),
    ///     }
    /// }
    /// assert_eq!((sum, failed), (281, vec![0]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// See [`RunError`]: here those of the beginning. Others come with the results.
    pub fn stream<'f, I, O, T, Kind>(
        &mut self,
        function: impl Into<RunOf<'f, Function<I, O>>>,
        tasks: T,
    ) -> Result<Results<'_, I, O, T::Source>, RunError>
    where
        I: Serialize + DeserializeOwned + 'static,
        O: Serialize + DeserializeOwned + 'static,
        T: Tasks<Kind, Task = I>,
    {
        let run = self.begin(function.into(), tasks.into_source(), Waiting::new())?;
        Ok(Results::new(run))
    }

    /// Runs tasks that create tasks, a *workpool*: the function returns a result and further tasks,
    /// which are run in turn, the newest first. Passes each result to `each` as it comes.
    ///
    /// The farmer takes a task's further tasks with its accepted result: a task that ran twice has its
    /// further tasks once. The run is over when no task is left.
    ///
    /// # Errors
    /// As [`run`](Farm::run); `each` was called for the results accepted so far.
    ///
    /// # Cancel safety
    /// As [`run`](Farm::run).
    pub async fn run_pool<'f, I, O>(
        &mut self,
        function: impl Into<RunOf<'f, Function<I, (O, Vec<I>)>>>,
        tasks: impl IntoIterator<Item = I>,
        each: impl FnMut(O),
    ) -> Result<RunStats, RunError>
    where
        I: Serialize + DeserializeOwned + 'static,
        O: Serialize + DeserializeOwned + 'static,
    {
        let (tasks, sink) = pool(tasks, each);
        self.drive(function.into(), tasks, sink).await
    }

    /// Maps every input and reduces the results to one, in the order of the inputs; `None` if there are
    /// no inputs. Each task is a group of neighbouring inputs. Workers reduce the results of a group,
    /// sub-farmers those of neighbouring groups, and the farmer the few that are left. With a
    /// [journal](crate::FarmBuilder::journal) sub-farmers do not reduce.
    ///
    /// If the number of inputs is known, a group has a 4096th of them, rounded down, from 1 to 1024.
    /// Else it has 16.
    ///
    /// # Errors
    /// As [`run`](Farm::run); the index of a task is that of the first input of its group.
    ///
    /// # Cancel safety
    /// As [`run`](Farm::run).
    pub async fn map_reduce<'f, I, O>(
        &mut self,
        function: impl Into<RunOf<'f, MapReduce<I, O>>>,
        inputs: impl IntoIterator<Item = I>,
    ) -> Result<Reduced<O>, RunError>
    where
        I: Serialize + DeserializeOwned + 'static,
        O: Serialize + DeserializeOwned + 'static,
    {
        let RunOf { function, choice } = function.into();
        let groups = Groups::new(inputs);
        let size = groups.size();
        let mut value = None;
        let each = |_, part: Option<O>| {
            value = match (value.take(), part) {
                (Some(value), Some(part)) => Some((function.reduce)(value, part)),
                (value, part) => part.or(value),
            };
        };
        let maps = RunOf { function: &function.function, choice };
        let mut run = self.begin(maps, groups, only_results(each))?;
        run.stop_at_failure();
        run.let_reduce();
        let stats = run.drive().await.map_err(|error| error.in_groups_of(size))?;
        Ok(Reduced { value, stats })
    }

    /// Solves a problem: workers divide it and its parts until they are small, and solve those; the
    /// solutions are put together here.
    ///
    /// The parts of a problem are taken with its accepted result, as in [`run_pool`](Farm::run_pool).
    /// The newest part is solved first, so that few parts wait. If the closure that puts solutions
    /// together panics, this call panics.
    ///
    /// # Errors
    /// As [`run`](Farm::run).
    ///
    /// # Cancel safety
    /// As [`run`](Farm::run).
    pub async fn divide_and_conquer<'f, I, O>(
        &mut self,
        function: impl Into<RunOf<'f, DivideAndConquer<I, O>>>,
        problem: I,
    ) -> Result<Reduced<O>, RunError>
    where
        I: Serialize + DeserializeOwned + 'static,
        O: Serialize + DeserializeOwned + 'static,
    {
        let RunOf { function, choice } = function.into();
        let (tasks, sink, solution) = crate::problem::problem(problem, &*function.conquer);
        let divides = RunOf { function: &function.function, choice };
        let stats = self.drive(divides, tasks, sink).await?;
        Ok(Reduced { value: solution.get(), stats })
    }

    /// Runs tasks whose results are wanted as they come, until one fails.
    async fn drive<I, O, T: Source<Task = I>, S: Sink<O>>(
        &mut self,
        function: RunOf<'_, Function<I, O>>,
        tasks: T,
        sink: S,
    ) -> Result<RunStats, RunError>
    where
        I: Serialize + DeserializeOwned + 'static,
        O: Serialize + DeserializeOwned + 'static,
    {
        let mut run = self.begin(function, tasks, sink)?;
        run.hand_on_at_once();
        run.stop_at_failure();
        run.drive().await
    }

    /// Begins a run in the order of the tasks that goes on when a task fails.
    fn begin<I, O, T: Source<Task = I>, S: Sink<O>>(
        &mut self,
        RunOf { function, choice }: RunOf<'_, Function<I, O>>,
        tasks: T,
        sink: S,
    ) -> Result<Run<'_, I, O, T, S>, RunError>
    where
        I: Serialize + DeserializeOwned + 'static,
        O: Serialize + DeserializeOwned + 'static,
    {
        if let Some(lost) = &self.lost {
            return Err(lost.clone());
        }
        let function_id = self.function_id(function)?;
        self.run = self.run.wrapping_add(1).max(1);
        let handed = self.reception.handed();
        if let Some(journal) = &mut self.journal {
            let entry = self.registry.lookup(function.name()).expect("it has an index");
            let types = (entry.input().hash, entry.output().hash);
            let name = function.name().to_owned();
            journal.begin(&RunHead { run: self.run, types, function: name })?;
            if !handed.is_empty() {
                journal.take_over(handed)?;
            }
        }
        let plan = Plan::new(self.run, function_id, self.ways);
        let forgotten = self.sharing.sweep();
        self.links.iter_mut().for_each(|link| link.tell(&forgotten));
        let Farm { links, crew, reception, lost, journal, sharing, unfinished, watch, .. } = self;
        let watch = watch.as_mut();
        let workers = Workers { links, crew, reception, sharing, lost, unfinished, choice, watch };
        Ok(Run::new(workers, plan, function.name(), tasks, sink, journal.as_mut()))
    }

    /// Returns the function's index in the registry, by which the workers know it.
    fn function_id<I, O>(&self, function: &Function<I, O>) -> Result<u32, RunError>
    where
        I: Serialize + DeserializeOwned,
        O: Serialize + DeserializeOwned,
    {
        let found = self.registry.entries().position(|entry| entry.is(function));
        let not_registered = || RunError::NotRegistered { function: function.name().to_owned() };
        found.and_then(|at| u32::try_from(at).ok()).ok_or_else(not_registered)
    }

    /// Lets the workers end by themselves and returns as soon as all of them have. Processes
    /// are reaped; nodes of a cluster have ended [`serve_in`](crate::serve_in). Tasks that a
    /// dropped run left behind are given up. A task that runs in a worker's I/O loop is waited
    /// for. A process that is still there after `deadline` is killed.
    ///
    /// # Errors
    /// [`FinishError`] names the workers that ended otherwise, but for those that a run has reported
    /// as lost. No process is left in any case.
    ///
    /// # Cancel safety
    /// When the future is dropped, the worker processes are killed and reaped.
    pub async fn finish(mut self, deadline: Duration) -> Result<(), FinishError> {
        let now = Instant::now();
        let until = now.checked_add(deadline).unwrap_or(now + FOR_EVER);
        self.links.iter_mut().for_each(Link::end_tasks);
        if self.crew.is_running() {
            // One that is still to come is met, and ended.
            let Farm { links, crew, reception, .. } = &mut self;
            let mut drained = BTreeSet::new();
            let all_ended = poll_fn(|context| {
                while let Poll::Ready(met) = reception.poll_met(crew, context) {
                    match met {
                        Met::Ready(mut link) => {
                            link.end_tasks();
                            links.push(link);
                        }
                        Met::Placed(_) => {}
                        Met::Not(error, _) => crew.note_refused(&error),
                    }
                }
                // A worker sees the end of the tasks when its answers are taken.
                for (at, link) in links.iter_mut().enumerate() {
                    while !drained.contains(&at) {
                        match link.poll_answer(context, |_| ()) {
                            Poll::Ready(Ok(())) => {}
                            Poll::Ready(Err(loss)) => {
                                drained.insert(at);
                                if loss.is_of_runtime() {
                                    // Nobody hears how the processes end.
                                    crew.dismiss();
                                }
                            }
                            Poll::Pending => break,
                        }
                    }
                }
                while crew.poll_ended(context).is_ready() {}
                if crew.is_running() { Poll::Pending } else { Poll::Ready(()) }
            });
            let _ = timeout_at(until, all_ended).await;
        }
        self.reception.close();
        let nodes = self.links.iter_mut().filter(|link| link.name.member.is_some());
        for link in nodes.filter(|link| link.lost.is_none()) {
            let ended = timeout_at(until, link.answers_end()).await;
            let how = ended.unwrap_or(Err(Loss::Late(deadline))).err().unwrap_or(Loss::Closed);
            self.crew.note(link.name.index, how);
        }
        let reported = |name: &WorkerName| {
            let of = |link: &&Link| link.name.index == name.index;
            self.links.iter().find(of).is_some_and(|link| link.lost.is_some())
        };
        let how = |name: &WorkerName| {
            let how = self.crew.how_ended(name).cloned().unwrap_or(Loss::Late(deadline));
            (!how.is_orderly()).then(|| (name.clone(), how))
        };
        let seen = |name: &&WorkerName| !reported(name) && !self.crew.is_below(name);
        let names = self.crew.names().iter().filter(seen);
        let workers: Vec<_> = names.filter_map(how).collect();
        if workers.is_empty() { Ok(()) } else { Err(FinishError { workers }) }
    }
}

/// Hands results on; where it is used, the run ends at the first error.
fn only_results<O>(mut each: impl FnMut(u64, O)) -> impl FnMut(u64, Result<O, TaskError>) {
    move |index, result| {
        if let Ok(result) = result {
            each(index, result);
        }
    }
}
