//! The farm as its user holds it.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use chunkcomm::Node;
use chunkcomm::codec::EncodeError;
use chunkcomm::host::{Instant, timeout_at};
use chunkcomm::layer::warn;
use chunkcomm_cluster::Registry;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::crew::Crew;
use crate::error::{FinishError, StartError, WorkerEnd, is_of_runtime, is_orderly};
use crate::handshake::{Met, Reception};
use crate::journal::Journal;
use crate::link::Link;
use crate::name::WorkerName;
use crate::run::Workers;
use crate::settings::Ways;
use crate::shared::Shared;
use crate::stats::Progress;

mod runs;

/// A year: stands in for a deadline that the clock cannot represent.
const FOR_EVER: Duration = Duration::from_secs(365 * 24 * 3600);

/// A farmer and its workers, ready to run tasks.
///
/// A farm has one run at a time. A process that the farm started is replaced when it dies. Nodes
/// that join the farm's cluster later work for it too. Dropping the farm kills and reaps the worker
/// processes, and ends the service of a cluster's nodes. [`finish`](Farm::finish) lets them end by
/// themselves.
#[must_use = "a farm ends when it is dropped"]
pub struct Farm {
    workers: Workers,
    ways: Ways,
    run: u32,
    registry: Arc<Registry>,
    journal: Option<Journal>,
    /// The farmer's node; last, so that the channels are dropped before it.
    node: Node,
}

impl std::fmt::Debug for Farm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Farm").field("workers", &self.workers()).finish_non_exhaustive()
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
    ) -> Result<Farm, StartError> {
        let mut reception =
            Reception::open(node.clone(), crew.farm(), registry.signatures(), ways.terms);
        let links = reception.meet_all(&mut crew, ways.start).await?;
        let workers = Workers::new(&node, links, crew, reception);
        Ok(Farm { workers, ways, run: 0, registry, journal, node })
    }

    /// Returns the names of the workers by index, lost ones included.
    #[must_use]
    pub fn workers(&self) -> &[WorkerName] {
        self.workers.crew.names()
    }

    /// Returns the farmer's node. Its [report](Node::report) has a section of the farm: tasks, workers, and what ran
    /// where in the last minute. The run gathers for it from the first report on, until none was made for 3 s.
    #[must_use]
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// Makes a value that many tasks read; each worker gets it once.
    ///
    /// The farm encodes the value once. The tasks' inputs name it ([`Shared`]). The farmer and each
    /// worker keep the value, and the farmer its encoded bytes, until all handles are dropped and a
    /// run begins.
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
        self.workers.sharing.share(value)
    }

    /// Calls a closure with the progress of the runs that follow.
    ///
    /// The closure is called when a run begins, every 100 ms, and when the run has all its results.
    /// A run that fails makes no last call. Another call of this method replaces the closure.
    ///
    /// The task that drives the run calls the closure and does nothing else meanwhile. So the
    /// closure should return at once.
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
        self.workers.watch = Some(Box::new(watch));
    }

    /// Lets the workers end by themselves, and returns as soon as all of them have ended.
    ///
    /// Processes are reaped; nodes of a cluster return from [`serve_in`](crate::serve_in). Tasks
    /// that a dropped run left behind are given up; one that runs in a worker's I/O loop is waited
    /// for. A process that has not ended after `deadline`, such as a stopped one, is killed: a warning
    /// names it, and it is no error.
    ///
    /// # Errors
    /// [`FinishError`] names the workers that ended otherwise, except those that a run has reported
    /// as lost, and threads and nodes that had not ended after `deadline`. No process is left in any
    /// case.
    ///
    /// # Cancel safety
    /// When the future is dropped, the worker processes are killed and reaped.
    pub async fn finish(mut self, deadline: Duration) -> Result<(), FinishError> {
        let now = Instant::now();
        let until = now.checked_add(deadline).unwrap_or(now + FOR_EVER);
        let Workers { links, crew, reception, .. } = &mut self.workers;
        links.iter_mut().for_each(Link::end_tasks);
        if crew.is_running() {
            // A worker that is still to come is met, and ended.
            let all_ended = poll_fn(|context| {
                while let Poll::Ready(met) = reception.poll_met(crew, context) {
                    match met {
                        Met::Ready(link) => links.push(*link),
                        Met::Placed(_) => {}
                        Met::Not(error, _) => crew.note_refused(&error),
                    }
                }
                // A worker sees the end of the tasks when its answers are taken.
                for link in links.iter_mut() {
                    if let Poll::Ready(loss) = link.poll_finish(context)
                        && is_of_runtime(&loss)
                    {
                        // Nobody asks how the processes end.
                        crew.dismiss();
                    }
                }
                while crew.poll_ended(context).is_ready() {}
                if crew.is_running() { Poll::Pending } else { Poll::Ready(()) }
            });
            let _ = timeout_at(until, all_ended).await;
        }
        reception.close();
        let nodes = links.iter_mut().filter(|link| link.name.member.is_some());
        for link in nodes.filter(|link| link.lost.is_none()) {
            let ended = timeout_at(until, poll_fn(|context| link.poll_finish(context))).await;
            crew.note(link.name.index, ended.unwrap_or_else(|_| WorkerEnd::Late(deadline).into()));
        }
        let reported = |name: &WorkerName| {
            let of = |link: &&Link| link.name.index == name.index;
            links.iter().find(of).is_some_and(|link| link.lost.is_some())
        };
        let seen = |name: &&WorkerName| !reported(name) && !crew.is_below(name);
        let mut workers = Vec::new();
        for name in crew.names().iter().filter(seen) {
            match crew.how_ended(name) {
                Some(how) if is_orderly(how) => {}
                Some(how) => workers.push((name.clone(), how.clone())),
                // It is killed with the farm, which has all that it wants of the process.
                None if name.pid.is_some() => {
                    let waited = deadline.as_secs_f64();
                    warn("farmer", &format!("{name} had not ended after {waited} s: it is killed"));
                }
                None => workers.push((name.clone(), WorkerEnd::Late(deadline).into())),
            }
        }
        if workers.is_empty() { Ok(()) } else { Err(FinishError { workers }) }
    }
}
