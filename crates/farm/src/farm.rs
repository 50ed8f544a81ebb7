//! The farm as its user holds it.

use std::sync::Arc;
use std::time::Duration;

use chunkcomm::Node;
use chunkcomm::host::{Instant, timeout_at};
use chunkcomm_cluster::Registry;
use chunkcomm_cluster::registry::Function;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::builder::FarmBuilder;
use crate::crew::Crew;
use crate::error::{FinishError, Loss, RunError};
use crate::link::Link;
use crate::name::WorkerName;
use crate::proto::depth::MeasuredDepth;
use crate::proto::schedule::Schedule;
use crate::run::{Delivery, Plan, Run};
use crate::settings::Prefetch;
use crate::stats::{Outcome, RunStats, Traffic};

/// Time to wait for the cause of a broken link. The farmer sees the break before the
/// end of the process that caused it, and the cause is the better report.
const CAUSE_WAIT: Duration = Duration::from_secs(2);

/// A year: stands in for a deadline that the clock cannot represent.
const FOR_EVER: Duration = Duration::from_secs(365 * 24 * 3600);

/// A farmer and its workers, ready to run tasks.
///
/// A farm has one run at a time, always with the same workers. Dropping it kills and reaps
/// the worker processes, and ends the service of a cluster's nodes;
/// [`finish`](Farm::finish) lets them end by themselves.
#[must_use = "a farm ends when it is dropped"]
pub struct Farm {
    links: Vec<Link>,
    crew: Crew,
    prefetch: Prefetch,
    grain: u32,
    run: u32,
    lost: Option<RunError>,
    registry: Arc<Registry>,
    /// The farmer's node; last, so that the channels are dropped before it.
    _node: Node,
}

impl std::fmt::Debug for Farm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Farm").field("workers", &self.crew.names()).finish_non_exhaustive()
    }
}

impl Farm {
    /// Begins to set up a farm whose tasks are functions of this registry. Give each farm a
    /// clone where several use the same functions.
    pub fn builder(registry: Registry) -> FarmBuilder {
        FarmBuilder::new(registry)
    }

    pub(crate) fn new(
        node: Node,
        registry: Arc<Registry>,
        crew: Crew,
        links: Vec<Link>,
        prefetch: Prefetch,
        grain: u32,
    ) -> Farm {
        Farm { links, crew, prefetch, grain, run: 0, lost: None, registry, _node: node }
    }

    /// Returns the names of the workers, by index.
    #[must_use]
    pub fn workers(&self) -> &[WorkerName] {
        self.crew.names()
    }

    /// Runs a function on every task and returns the results in the order of the tasks.
    ///
    /// Takes a task from the iterator when a worker has room, not before.
    /// Every task is run at most once; on success, exactly once.
    ///
    /// # Errors
    /// See [`RunError`]: the run ends at the first task that fails, or when a worker
    /// is lost.
    ///
    /// # Cancel safety
    /// When the future is dropped, no further task is handed out. Tasks that workers
    /// hold already (at most prefetch times grain a worker) may still be run. The next
    /// run, which may begin at once, drops their results.
    pub async fn run<I, O>(
        &mut self,
        function: &Function<I, O>,
        tasks: impl IntoIterator<Item = I>,
    ) -> Result<Outcome<O>, RunError>
    where
        I: Serialize + DeserializeOwned + 'static,
        O: Serialize + DeserializeOwned + 'static,
    {
        let tasks = tasks.into_iter();
        let mut results = Vec::with_capacity(tasks.size_hint().0);
        let stats = self.run_in_order(function, tasks, |_, result| results.push(result)).await?;
        Ok(Outcome { results, stats })
    }

    /// Runs a function on every task and passes each result to `each` with its task's
    /// index, as soon as this result and all before it are there.
    ///
    /// Results that are ahead of a slow task are held until then.
    ///
    /// # Errors
    /// As [`run`](Farm::run); `each` was called for a prefix of the tasks.
    ///
    /// # Cancel safety
    /// As [`run`](Farm::run).
    pub async fn run_in_order<I, O>(
        &mut self,
        function: &Function<I, O>,
        tasks: impl IntoIterator<Item = I>,
        each: impl FnMut(u64, O),
    ) -> Result<RunStats, RunError>
    where
        I: Serialize + DeserializeOwned + 'static,
        O: Serialize + DeserializeOwned + 'static,
    {
        self.drive(function, tasks.into_iter(), each, Delivery::in_order()).await
    }

    /// Runs a function on every task and passes each result to `each` with its task's
    /// index as it comes: for progress, and for results in any order.
    ///
    /// # Errors
    /// As [`run`](Farm::run); `each` was called for the results accepted so far.
    ///
    /// # Cancel safety
    /// As [`run`](Farm::run).
    pub async fn run_as_completed<I, O>(
        &mut self,
        function: &Function<I, O>,
        tasks: impl IntoIterator<Item = I>,
        each: impl FnMut(u64, O),
    ) -> Result<RunStats, RunError>
    where
        I: Serialize + DeserializeOwned + 'static,
        O: Serialize + DeserializeOwned + 'static,
    {
        self.drive(function, tasks.into_iter(), each, Delivery::as_completed()).await
    }

    async fn drive<I, O>(
        &mut self,
        function: &Function<I, O>,
        tasks: impl Iterator<Item = I>,
        each: impl FnMut(u64, O),
        delivery: Delivery<O>,
    ) -> Result<RunStats, RunError>
    where
        I: Serialize + DeserializeOwned + 'static,
        O: Serialize + DeserializeOwned + 'static,
    {
        if let Some(lost) = &self.lost {
            return Err(lost.clone());
        }
        let id = self.function_id(function)?;
        self.run = self.run.wrapping_add(1);
        let (schedule, depths) = self.schedule();
        let plan = Plan { run: self.run, function: id, grain: self.grain, schedule, depths };
        let before = self.traffic();
        let started = Instant::now();
        let tasks = tasks.fuse();
        let run = Run::new(&mut self.links, &mut self.crew, plan, function, tasks, each, delivery);
        match run.drive().await {
            Ok(workers) => Ok(RunStats {
                tasks: workers.iter().map(|worker| worker.tasks).sum(),
                elapsed: started.elapsed(),
                workers,
                traffic: self.traffic().with(&before, u64::saturating_sub),
            }),
            Err(RunError::Lost { worker, unanswered, loss }) => {
                Err(self.give_up(worker, unanswered, loss).await)
            }
            Err(error) => Err(error),
        }
    }

    /// Returns the function's index in the registry, by which the workers know it.
    fn function_id<I: DeserializeOwned, O: DeserializeOwned>(
        &self,
        function: &Function<I, O>,
    ) -> Result<u32, RunError> {
        let found = self.registry.entries().position(|entry| entry.is(function));
        let not_registered = || RunError::NotRegistered { function: function.name().to_owned() };
        found.and_then(|at| u32::try_from(at).ok()).ok_or_else(not_registered)
    }

    fn schedule(&self) -> (Schedule, Option<Vec<MeasuredDepth>>) {
        let mut schedule = Schedule::new(self.links.len());
        let measured: Vec<_> =
            self.links.iter().map(|link| MeasuredDepth::new(link.round_trip_ns)).collect();
        for (worker, link) in self.links.iter().enumerate() {
            let depth = match self.prefetch {
                Prefetch::Fixed(depth) => depth,
                Prefetch::Auto => measured[worker].depth(),
            };
            schedule.handle_joined(worker, depth);
            if link.is_stalled() {
                // An assignment of a cancelled run still waits.
                schedule.handle_stalled(worker);
            }
        }
        (schedule, (self.prefetch == Prefetch::Auto).then_some(measured))
    }

    fn traffic(&self) -> Traffic {
        let each = self.links.iter().map(|link| Traffic::of(&link.peer().stats()));
        each.fold(Traffic::default(), |sum, one| sum.with(&one, u64::saturating_add))
    }

    /// Gives the farm up with its lost worker: finds the cause and ends the other workers.
    async fn give_up(&mut self, worker: WorkerName, unanswered: u32, mut loss: Loss) -> RunError {
        let deadline = Instant::now() + CAUSE_WAIT;
        while !loss.is_a_cause() {
            if let Some(cause) = self.crew.how_ended(&worker) {
                loss = cause.clone();
            } else if timeout_at(deadline, self.crew.ended()).await.is_err() {
                break;
            }
        }
        self.crew.note(worker.index, loss.clone());
        self.crew.dismiss();
        self.links.iter_mut().for_each(Link::end_tasks);
        let error = RunError::Lost { worker, unanswered, loss };
        self.lost = Some(error.clone());
        error
    }

    /// Lets the workers end by themselves and returns as soon as all of them have. Processes
    /// are reaped; nodes of a cluster have ended [`serve_in`](crate::serve_in). Tasks that a
    /// dropped run left behind are given up. A task that runs in a worker's I/O loop is waited
    /// for. A process that is still there after `deadline` is killed.
    ///
    /// # Errors
    /// [`FinishError`] names the workers that ended otherwise; the worker that a run lost comes
    /// first. No process is left in any case.
    ///
    /// # Cancel safety
    /// When the future is dropped, the worker processes are killed and reaped.
    pub async fn finish(mut self, deadline: Duration) -> Result<(), FinishError> {
        let now = Instant::now();
        let until = now.checked_add(deadline).unwrap_or(now + FOR_EVER);
        self.links.iter_mut().for_each(Link::end_tasks);
        while self.crew.is_running() && timeout_at(until, self.crew.ended()).await.is_ok() {}
        let lost = match &self.lost {
            Some(RunError::Lost { worker, .. }) => Some(worker.index),
            _ => None,
        };
        let nodes = self.links.iter_mut().filter(|link| link.name.member.is_some());
        for link in nodes.filter(|link| Some(link.name.index) != lost) {
            let ended = timeout_at(until, link.answers_end()).await;
            let how = ended.unwrap_or(Err(Loss::Late(deadline))).err().unwrap_or(Loss::Closed);
            self.crew.note(link.name.index, how);
        }
        let how = |name: &WorkerName| {
            let how = self.crew.how_ended(name).cloned().unwrap_or(Loss::Late(deadline));
            (Some(name.index) == lost || !how.is_orderly()).then(|| (name.clone(), how))
        };
        let mut workers: Vec<_> = self.crew.names().iter().filter_map(how).collect();
        workers.sort_by_key(|(name, _)| Some(name.index) != lost);
        if workers.is_empty() { Ok(()) } else { Err(FinishError { workers }) }
    }
}
