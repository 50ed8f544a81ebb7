//! The runs of a farm.

use chunkcomm_cluster::registry::{Function, Travels};

use super::Farm;
use crate::account::Plan;
use crate::chosen::RunOf;
use crate::error::{RunError, TaskError};
use crate::functions::{DivideAndConquer, MapReduce};
use crate::pool::pool;
use crate::problem::Divisions;
use crate::proto::record::RunHead;
use crate::results::{Results, Waiting};
use crate::run::Run;
use crate::stats::{Outcome, Reduced, RunStats};
use crate::tasks::{Groups, Listed, Sink, Source, Tasks};

impl Farm {
    /// Runs a function on every task and returns the results in the order of the tasks.
    ///
    /// The run takes a task from the iterator only when a worker has room. A task may run more than
    /// once, when a worker dies or falls silent; one result of each task is taken.
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
    /// When the future is dropped, no further task is handed out. Workers may still run the tasks
    /// that they hold, at most prefetch times grain a worker. The next run may begin at once. It
    /// drops the tasks that have not begun, and the results of those that have.
    pub async fn run<'f, I: Travels, O: Travels>(
        &mut self,
        function: impl Into<RunOf<'f, Function<I, O>>>,
        tasks: impl IntoIterator<Item = I>,
    ) -> Result<Outcome<O>, RunError> {
        let tasks = Listed::new(tasks);
        let mut results = Vec::with_capacity(tasks.left().unwrap_or_default() as usize);
        let sink = only_results(|_, result| results.push(result));
        let mut run = self.begin(function.into(), tasks, sink)?;
        run.account.plan.stops = true;
        run.account.plan.collects = true;
        let stats = run.drive().await?;
        Ok(Outcome { results, stats })
    }

    /// Runs as [`run`](Farm::run), but goes on when a task fails.
    ///
    /// The task's error stands in the place of its result.
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
    pub async fn run_to_end<'f, I: Travels, O: Travels>(
        &mut self,
        function: impl Into<RunOf<'f, Function<I, O>>>,
        tasks: impl IntoIterator<Item = I>,
    ) -> Result<Outcome<Result<O, TaskError>>, RunError> {
        let tasks = Listed::new(tasks);
        let mut results = Vec::with_capacity(tasks.left().unwrap_or_default() as usize);
        let sink = |_, result| results.push(result);
        let mut run = self.begin(function.into(), tasks, sink)?;
        run.account.plan.collects = true;
        let stats = run.drive().await?;
        Ok(Outcome { results, stats })
    }

    /// Runs a function on every task and returns a stream of the results, each with its task's
    /// index.
    ///
    /// Results come in the order of the tasks, or [as they come](Results::as_completed). The tasks
    /// are those of an iterator or of a stream, which may be endless and slow. The run goes on
    /// while its results are taken. A task that fails does not end it.
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
    /// See [`RunError`]: only those of the beginning of a run. Later errors come with the results.
    pub fn stream<'f, I: Travels, O: Travels, T: Tasks<Kind, Task = I>, Kind>(
        &mut self,
        function: impl Into<RunOf<'f, Function<I, O>>>,
        tasks: T,
    ) -> Result<Results<'_, O, T::Source>, RunError> {
        let run = self.begin(function.into(), tasks.into_source(), Waiting::new())?;
        Ok(Results::new(run))
    }

    /// Runs tasks that create tasks, a *workpool*, and passes each result to `each` as it comes.
    ///
    /// The function returns a result and further tasks, which are run in turn, the newest first.
    /// The farmer takes further tasks only with an accepted result. So a task that ran twice adds
    /// its further tasks once. The run is over when no task is left.
    ///
    /// # Errors
    /// As [`run`](Farm::run); `each` was called for the results accepted so far.
    ///
    /// # Cancel safety
    /// As [`run`](Farm::run).
    pub async fn run_pool<'f, I: Travels, O: Travels>(
        &mut self,
        function: impl Into<RunOf<'f, Function<I, (O, Vec<I>)>>>,
        tasks: impl IntoIterator<Item = I>,
        mut each: impl FnMut(O),
    ) -> Result<RunStats, RunError> {
        let tasks = tasks.into_iter().map(|task| (task, ())).collect();
        let (tasks, sink) = pool(tasks, |(), (result, children): (O, Vec<I>)| {
            each(result);
            children.into_iter().map(|task| (task, ())).collect()
        });
        self.drive(function.into(), tasks, sink).await
    }

    /// Maps every input and reduces the results to one, in the order of the inputs.
    ///
    /// The value is `None` if there are no inputs. Each task is a group of neighbouring inputs.
    /// Workers reduce the results of a group, sub-farmers those of neighbouring groups, the farmer
    /// the remaining few. With a [journal](crate::FarmBuilder::journal) sub-farmers do not reduce.
    ///
    /// A group has a 4096th of the inputs, rounded down, from 1 to 1024. It has 16 if the number of
    /// inputs is not known.
    ///
    /// # Errors
    /// As [`run`](Farm::run); the index of a task is that of the first input of its group.
    ///
    /// # Cancel safety
    /// As [`run`](Farm::run).
    pub async fn map_reduce<'f, I: Travels, O: Travels>(
        &mut self,
        function: impl Into<RunOf<'f, MapReduce<I, O>>>,
        inputs: impl IntoIterator<Item = I>,
    ) -> Result<Reduced<O>, RunError> {
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
        run.account.plan.stops = true;
        run.let_reduce();
        let stats = run.drive().await.map_err(|error| error.in_groups_of(size))?;
        Ok(Reduced { value, stats })
    }

    /// Solves a problem: workers divide it into parts until these are small, and solve those.
    ///
    /// The farmer puts the solutions together. It takes the parts of a problem only with an
    /// accepted result, as in [`run_pool`](Farm::run_pool). The newest part is solved first, so
    /// that few parts wait. If the closure that puts solutions together panics, this call panics.
    ///
    /// # Errors
    /// As [`run`](Farm::run).
    ///
    /// # Cancel safety
    /// As [`run`](Farm::run).
    pub async fn divide_and_conquer<'f, I: Travels, O: Travels>(
        &mut self,
        function: impl Into<RunOf<'f, DivideAndConquer<I, O>>>,
        problem: I,
    ) -> Result<Reduced<O>, RunError> {
        let RunOf { function, choice } = function.into();
        let mut divisions = Divisions::new(&*function.conquer);
        let each = |place, divided| divisions.take(place, divided);
        let (tasks, sink) = pool(vec![(problem, None)], each);
        let divides = RunOf { function: &function.function, choice };
        let stats = self.drive(divides, tasks, sink).await?;
        Ok(Reduced { value: divisions.solution, stats })
    }

    /// Runs tasks whose results are wanted as they come; ends at the first failure.
    async fn drive<I: Travels, O: Travels, T: Source<Task = I>, S: Sink<O>>(
        &mut self,
        function: RunOf<'_, Function<I, O>>,
        tasks: T,
        sink: S,
    ) -> Result<RunStats, RunError> {
        let mut run = self.begin(function, tasks, sink)?;
        run.hand_on_at_once();
        run.account.plan.stops = true;
        run.drive().await
    }

    /// Begins a run whose results come in the order of the tasks, and that goes on when a task
    /// fails.
    fn begin<I: Travels, O: Travels, T: Source<Task = I>, S: Sink<O>>(
        &mut self,
        RunOf { function, choice }: RunOf<'_, Function<I, O>>,
        tasks: T,
        sink: S,
    ) -> Result<Run<'_, O, T, S>, RunError> {
        if let Some(lost) = &self.workers.lost {
            return Err(lost.clone());
        }
        let function_id = self.function_id(function)?;
        self.run = self.run.wrapping_add(1).max(1);
        let handed = self.workers.reception.handed();
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
        let Farm { workers, journal, .. } = self;
        let forgotten = workers.sharing.sweep();
        workers.links.iter_mut().for_each(|link| link.tell(&forgotten));
        workers.choice = choice;
        Ok(Run::new(workers, plan, function.name(), tasks, sink, journal.as_mut()))
    }

    /// Returns the function's index in the registry, by which the workers know it.
    fn function_id<I: Travels, O: Travels>(
        &self,
        function: &Function<I, O>,
    ) -> Result<u32, RunError> {
        let found = self.registry.entries().position(|entry| entry.is(function));
        let not_registered = || RunError::NotRegistered { function: function.name().to_owned() };
        found.and_then(|at| u32::try_from(at).ok()).ok_or_else(not_registered)
    }
}

/// Wraps `each` for results alone; a run that uses it ends at the first error.
fn only_results<O>(mut each: impl FnMut(u64, O)) -> impl FnMut(u64, Result<O, TaskError>) {
    move |index, result| {
        if let Ok(result) = result {
            each(index, result);
        }
    }
}
