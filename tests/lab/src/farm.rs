//! A farm whose worker processes are killed, or stopped for a while.
//!
//! Run follows run while the faults happen. All runs take their tasks from one range, whose results
//! one thread has computed before.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use chunkcomm::Loss;
use chunkcomm_bench::failure::{Doing, Failure};
use chunkcomm_bench::harness::machine;
use chunkcomm_bench::options::values;
use chunkcomm_bench::ours::farm::runtime_of;
use chunkcomm_bench::table::Row;
use chunkcomm_cluster::Registry;
use chunkcomm_cluster::registry::Function;
use chunkcomm_farm::settings::{Messaging, WorkersAs};
use chunkcomm_farm::{Farm, RunError, RunStats, WorkerName};
use chunkcomm_proto::random::{Random, mix};
use clap::Args;
use tokio::task::JoinSet;

use super::{Lab, Promises};

/// Number of worker processes: with one dead and one stopped, a third goes on.
const WORKERS: usize = 3;

/// The shortest run has this part of all tasks: ends of runs, where workers get the tasks of others,
/// come often.
const SHORTEST: u64 = 10;

/// Deaths of which a task is set aside: more than there are, since no task is to blame.
pub(super) const DEATHS_MAX: u32 = 1_000_000;

/// Shortest and longest time of a stop: up to many times the silence after which tasks are copied.
const STOP_MS: (u64, u64) = (20, 1000);

/// Name of the function in the registry.
const FUNCTION: &str = "lab-farm";

/// Numbers and times of the faults.
#[derive(Debug, Clone, Copy, Args)]
pub struct Plan {
    /// Number of workers that are killed; each is replaced
    #[arg(long, value_name = "N", default_value = "20", value_parser = values::times)]
    pub kills: usize,
    /// Number of workers that are stopped, each for up to a second
    #[arg(long, value_name = "N", default_value = "5", value_parser = values::times)]
    pub stops: usize,
    /// Mean time between two faults
    #[arg(long, value_name = "DUR", default_value = "100ms", value_parser = values::some_time)]
    pub every: Duration,
    /// Number of different tasks, of 50 us to 5 ms each; a run has a tenth of them to all
    #[arg(long, value_name = "N", default_value = "1000", value_parser = values::count)]
    pub tasks: u64,
}

/// Registers the function of the tasks, which returns its result and the worker's process.
pub fn register(registry: &mut Registry) -> Function<u64, (u64, u32)> {
    registry.register(FUNCTION, |task: u64| (compute(task), std::process::id()))
}

/// Computes a task. Most tasks take some 100 us, the shortest 50 us, the longest 5 ms, on a core
/// that does 600 iterations a microsecond.
pub(super) fn compute(task: u64) -> u64 {
    let mut random = Random::new(task);
    let iterations = random.range(30_000, 94_000) << random.below(6);
    let mut state = mix(task) | 1;
    for _ in 0..iterations {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
    }
    state
}

/// Kills and stops workers while they run tasks. Every result comes once and is right, and the farm
/// has all its workers afterwards.
///
/// # Errors
/// If the farm does not start.
pub async fn run(
    lab: &mut Lab,
    plan: &Plan,
    promises: &mut Promises,
    row: &mut Row,
) -> Result<(), Failure> {
    let due: Vec<u64> = (0..plan.tasks).map(compute).collect();
    let mut registry = Registry::new();
    let function = register(&mut registry);
    let builder = Farm::builder(registry)
        .workers(WORKERS)
        .workers_as(WorkersAs::Process)
        .messaging(Messaging { runtime: runtime_of(lab.place.runtime), ..Messaging::default() })
        .deaths_max(DEATHS_MAX);
    let mut farm = builder.start().await.doing("starting the farm")?;
    let started = Instant::now();
    let workers = Arc::new(Mutex::new(Workers::default()));
    let random = Random::new(lab.random.next_u64());
    let faults = tokio::spawn(disturb(*plan, random, Arc::clone(&workers)));
    let mut runs = Runs { due, function, sums: Sums::default(), present: WORKERS };
    let mut goes_on = true;
    while goes_on && !faults.is_finished() {
        goes_on = runs.one(&mut farm, lab, &workers, promises).await;
    }
    // Without a fault the farm gets whole, as soon as the last new workers have come.
    let whole_by = Instant::now() + lab.ended();
    while goes_on {
        goes_on = runs.one(&mut farm, lab, &workers, promises).await;
        if runs.present == WORKERS || Instant::now() > whole_by {
            break;
        }
    }
    faults.abort();
    let seconds = started.elapsed().as_secs_f64();
    promises.hold(runs.present == WORKERS, || {
        format!("{} of {WORKERS} workers are there in the end", runs.present)
    });
    row.set("workers_started", farm.workers().len());
    let finished = if goes_on { farm.finish(lab.ended()).await } else { Ok(()) };
    let workers = lock(&workers);
    if let Err(error) = finished {
        // One that was killed before it was ready is in no run's report.
        for (worker, loss) in error.workers {
            only_killed(&worker, &loss, &workers, promises);
        }
    }
    workers.report(row);
    runs.sums.report(seconds, promises, row);
    Ok(())
}

/// The worker processes, as the faults see them.
#[derive(Debug, Default)]
struct Workers {
    /// Those that were not killed, by their ids.
    living: BTreeSet<u32>,
    stopped: BTreeSet<u32>,
    killed: BTreeSet<u32>,
    kills: usize,
    stops: usize,
}

impl Workers {
    /// Takes the farm's workers that are new.
    fn meet(&mut self, pids: impl IntoIterator<Item = u32>) {
        let killed = &self.killed;
        self.living.extend(pids.into_iter().filter(|pid| !killed.contains(pid)));
    }

    fn kill(&mut self, pid: u32) {
        machine::kill(pid);
        self.living.remove(&pid);
        self.stopped.remove(&pid);
        self.killed.insert(pid);
        self.kills += 1;
    }

    fn stop(&mut self, pid: u32) {
        machine::hold(pid, true);
        self.stopped.insert(pid);
        self.stops += 1;
    }

    /// Lets a stopped worker continue, if it was not killed meanwhile.
    fn go_on(&mut self, pid: u32) {
        if self.stopped.remove(&pid) {
            machine::hold(pid, false);
        }
    }

    fn report(&self, row: &mut Row) {
        row.set("kills", self.kills).set("stops", self.stops);
    }
}

fn lock(workers: &Mutex<Workers>) -> MutexGuard<'_, Workers> {
    workers.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Does all faults, each to a random worker that lives; returns when none is stopped any more.
async fn disturb(plan: Plan, mut random: Random, workers: Arc<Mutex<Workers>>) {
    let mut stops = JoinSet::new();
    let (mut kills_left, mut stops_left) = (plan.kills as u64, plan.stops as u64);
    while kills_left + stops_left > 0 {
        let wait_ns = random.below(2 * plan.every.as_nanos() as u64 + 1);
        tokio::time::sleep(Duration::from_nanos(wait_ns)).await;
        let is_kill = random.below(kills_left + stops_left) < kills_left;
        let stop = Duration::from_millis(random.range(STOP_MS.0, STOP_MS.1));
        let mut known = lock(&workers);
        let may = |pid: &u32| is_kill || !known.stopped.contains(pid);
        let able: Vec<u32> = known.living.iter().copied().filter(may).collect();
        if able.is_empty() {
            // The next ones are known when the next run begins.
            continue;
        }
        let pid = random.pick(&able);
        if is_kill {
            known.kill(pid);
            kills_left -= 1;
        } else {
            known.stop(pid);
            stops_left -= 1;
            let workers = Arc::clone(&workers);
            stops.spawn(async move {
                tokio::time::sleep(stop).await;
                lock(&workers).go_on(pid);
            });
        }
    }
    while stops.join_next().await.is_some() {}
}

/// The runs of the farm, one after the other.
struct Runs {
    /// Right results.
    due: Vec<u64>,
    function: Function<u64, (u64, u32)>,
    sums: Sums,
    /// Number of workers that were there at the end of the last run.
    present: usize,
}

impl Runs {
    /// Farms some of the tasks out; returns whether the farm can go on.
    async fn one(
        &mut self,
        farm: &mut Farm,
        lab: &mut Lab,
        workers: &Mutex<Workers>,
        promises: &mut Promises,
    ) -> bool {
        lock(workers).meet(farm.workers().iter().filter_map(|name| name.pid));
        let tasks = self.due.len() as u64;
        let count = lab.random.range(tasks.div_ceil(SHORTEST), tasks + 1);
        let first = lab.random.below(tasks - count + 1);
        let in_order = lab.random.one_in(2);
        let mut tally = Tally::new(&self.due[first as usize..(first + count) as usize]);
        let each = |index: u64, (value, pid): (u64, u32)| {
            // A worker that answers is there, also one that has come since the run began.
            lock(workers).meet([pid]);
            tally.take(index, value);
        };
        let (function, tasks) = (&self.function, first..first + count);
        let run = async {
            let results = farm.stream(function, tasks)?;
            let results = if in_order { results } else { results.as_completed() };
            results.for_each(each).await
        };
        let ended = tokio::time::timeout(lab.ended(), run).await;
        self.sums.runs += 1;
        self.sums.wrong += tally.wrong();
        match ended {
            Ok(Ok(stats)) => {
                self.sums.add(&stats);
                self.present = stats.workers.iter().filter(|it| it.lost.is_none()).count();
                let known = lock(workers);
                for one in &stats.workers {
                    if let Some(loss) = &one.lost {
                        only_killed(&one.worker, loss, &known, promises);
                    }
                }
                true
            }
            Ok(Err(error)) => {
                promises.hold(false, || failed(&error));
                false
            }
            Err(_) => {
                let limit = lab.ended().as_secs();
                promises.hold(false, || format!("a run has not ended after {limit} s"));
                false
            }
        }
    }
}

fn failed(error: &RunError) -> String {
    format!("a run failed: {}", chunkcomm::with_causes(error))
}

/// Checks that a lost worker is one that was killed.
fn only_killed(worker: &WorkerName, loss: &Loss, known: &Workers, promises: &mut Promises) {
    let killed = worker.pid.is_some_and(|pid| known.killed.contains(&pid));
    promises.hold(killed, || format!("{worker} was not killed, but {loss}"));
}

/// Results of one run.
struct Tally<'a> {
    due: &'a [u64],
    taken: Vec<u32>,
    differing: u64,
}

impl Tally<'_> {
    fn new(due: &[u64]) -> Tally<'_> {
        Tally { due, taken: vec![0; due.len()], differing: 0 }
    }

    fn take(&mut self, index: u64, value: u64) {
        match self.due.get(index as usize) {
            Some(&due) => {
                self.taken[index as usize] += 1;
                self.differing += u64::from(value != due);
            }
            None => self.differing += 1,
        }
    }

    /// Returns the number of results that differ, are missing or came twice.
    fn wrong(&self) -> u64 {
        self.differing + self.taken.iter().filter(|&&times| times != 1).count() as u64
    }
}

/// Sums over all runs.
#[derive(Debug, Default)]
struct Sums {
    runs: u64,
    tasks: u64,
    reissued: u64,
    returned: u64,
    copied: u64,
    dropped: u64,
    wrong: u64,
}

impl Sums {
    fn add(&mut self, stats: &RunStats) {
        self.tasks += stats.tasks;
        self.reissued += stats.mishaps.reissued;
        self.returned += stats.mishaps.returned;
        self.copied += stats.mishaps.copied;
        self.dropped += stats.mishaps.dropped;
    }

    fn report(&self, seconds: f64, promises: &mut Promises, row: &mut Row) {
        promises.hold(self.wrong == 0, || format!("{} results were wrong", self.wrong));
        row.set("runs", self.runs)
            .set("tasks", self.tasks)
            .set("reissued", self.reissued)
            .set("returned", self.returned)
            .set("copied", self.copied)
            .set("dropped", self.dropped)
            .set("seconds", seconds)
            .set("wrong", self.wrong);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_that_differ_come_twice_or_not_at_all_are_wrong() {
        let due = [5, 6, 7, 8];
        let mut tally = Tally::new(&due);
        assert_eq!(tally.wrong(), 4);
        due.iter().enumerate().for_each(|(index, &value)| tally.take(index as u64, value));
        assert_eq!(tally.wrong(), 0);
        tally.take(2, 7);
        assert_eq!(tally.wrong(), 1);
        tally.take(4, 7);
        assert_eq!(tally.wrong(), 2);
        let mut tally = Tally::new(&due[..1]);
        tally.take(0, 6);
        assert_eq!(tally.wrong(), 1);
    }

    #[test]
    fn a_worker_that_was_killed_is_no_longer_met() {
        // No process has this number.
        let pid = i32::MAX as u32;
        let mut workers = Workers::default();
        workers.meet([pid]);
        workers.stop(pid);
        workers.kill(pid);
        workers.meet([pid]);
        assert!(workers.living.is_empty() && workers.stopped.is_empty());
        assert_eq!((workers.kills, workers.stops), (1, 1));
    }
}
