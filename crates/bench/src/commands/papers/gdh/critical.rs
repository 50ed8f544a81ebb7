//! A program with a critical path: values that need each other one after the other, and tasks that need them
//! (section 2).
//!
//! ```text
//! value 0 ─▶ value 1 ─▶ ... ─▶ value 39        each computed by the first task that needs it
//!    │          │                 │
//!  tasks      tasks             tasks          in three orders, which the path does not have
//! ```

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use chunkcomm::host;
use chunkcomm_cluster::{Cluster, Registry};
use chunkcomm_farm::settings::VirtualWorkers;
use chunkcomm_farm::{Farm, RegistryExt, TaskContext, serve_in};

use super::{AUTO, Begun, FIGURE_2, FOUR, HOSTS, Setup, in_world};
use crate::commands::papers::{Found, Scene};
use crate::failure::{Doing, Failure};
use crate::ours::farm::FINISH_DEADLINE;
use crate::table::{Row, column};

/// Values of the path. *Assumed.*
const VALUES: u64 = 40;

/// Time of a value, and of a task besides. *Assumed.*
const EACH: Duration = Duration::from_secs(2);

/// Tasks. *Assumed*: half as much work for each computer as on the path.
const TASKS: u64 = 300;

/// Difference of times that counts as none.
const NEAR: f64 = 0.1;

/// Delay of a value that is there, as a part of [`EACH`], that counts as none.
const AT_ONCE: f64 = 0.05;

/// Order in which the tasks need the values.
#[derive(Debug, Clone, Copy)]
enum Order {
    Ascending,
    Descending,
    Mixed,
}

impl Order {
    fn value_of(self, task: u64, tasks: u64) -> u64 {
        match self {
            Self::Ascending => task * VALUES / tasks,
            Self::Descending => (tasks - 1 - task) * VALUES / tasks,
            Self::Mixed => task * 37 % VALUES,
        }
    }
}

/// An event at a task.
#[derive(Debug, Clone, Copy)]
enum Event {
    /// It asked for this value, and got it.
    Had { value: u64, task: u64, asked_ns: u64, got_ns: u64 },
    /// It computed this value.
    Computed { value: u64, task: u64, end_ns: u64 },
}

#[derive(Debug, Clone, Default)]
struct Log(Arc<Mutex<Vec<Event>>>);

impl Log {
    fn add(&self, event: Event) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(event);
    }
}

/// Runs the program in its three orders, without a setting and with numbers of begun tasks set by hand.
pub(super) fn critical(scene: &Scene<'_>, found: &mut Found) -> Result<(), Failure> {
    let tasks = scene.sized(TASKS, 40);
    // On the path, and as long as the last task takes.
    let path = EACH.as_secs_f64() * (VALUES + 1) as f64;
    let virtually = |each| Begun::Virtual(VirtualWorkers::Fixed(each));
    let ways = [AUTO, Begun::Threads(1), FOUR, Begun::Threads(8), virtually(4)];
    let (mut rows, mut judged, mut alone) = (Vec::new(), Vec::new(), Vec::new());
    let mut loss = 0.0_f64;
    for order in [Order::Ascending, Order::Descending, Order::Mixed] {
        let mut all = Vec::new();
        for begun in ways {
            let log = Log::default();
            let seconds = run(order, begun, tasks, &log)?;
            let (kind, each) = begun.words();
            let mut row = Row::default();
            row.set("order", format!("{order:?}").to_lowercase()).set("begun_as", kind);
            row.set("each", each).set("seconds", seconds).set("of_path", seconds / path);
            let found = judge(&log.0.lock().unwrap_or_else(PoisonError::into_inner));
            row.set("late", found.late);
            rows.push(row);
            judged.push((begun, found));
            all.push(seconds);
        }
        let by_hand = all[1..].iter().copied().fold(f64::INFINITY, f64::min);
        loss = loss.max(all[0] / by_hand);
        alone.push(all[0]);
    }
    let columns = [
        column("order", "order", 0),
        column("begun_as", "begun as", 0),
        column("each", "each", 0),
        column("seconds", "seconds", 0),
        column("of_path", "of the path", 0),
        column("late", "longest late value, s", 0),
    ];
    found.table("critical paths", &columns, rows);
    let [least, most] =
        [f64::min, f64::max].map(|of| alone.iter().copied().reduce(of).unwrap_or(f64::NAN));
    let ours = format!("{:.2} to {:.2} paths", least / path, most / path);
    found.verdict("critical-paths", most < (1.0 + NEAR) * path, ours);
    let ours = format!("{loss:.2} of set by hand");
    found.verdict("no-intervention", loss < 1.0 + NEAR, ours);
    let count = judged.len() * VALUES as usize;
    let values = judged.iter().map(|(_, it)| it.computed).sum::<usize>();
    let is_once = judged.iter().all(|(_, it)| it.computed == VALUES as usize);
    found.verdict("computed-once", is_once, format!("{values} of {count}"));
    // Tasks of one thread wait for each other as well, so threads tell.
    let of_threads = judged.iter().filter(|(begun, _)| *begun == FOUR);
    let late = of_threads.map(|(_, it)| it.late).fold(0.0, f64::max);
    let ours = format!("at most {:.0} ms longer", late * 1e3);
    found.verdict("blocks-while-computed", late < AT_ONCE * EACH.as_secs_f64(), ours);
    let first = judged.iter().map(|(_, it)| it.by_first).sum::<usize>();
    found.verdict("first-who-needs", first == values, format!("{first} of {values}"));
    Ok(())
}

/// Findings in the events of a run.
struct Judged {
    /// Computations.
    computed: usize,
    /// Computations by the task that asked first.
    by_first: usize,
    /// Longest wait for a value that was there, in seconds.
    late: f64,
}

fn judge(events: &[Event]) -> Judged {
    let (mut first, mut made) = (BTreeMap::new(), BTreeMap::new());
    let mut computed = 0;
    for event in events {
        match *event {
            Event::Had { value, asked_ns, .. } => {
                let first: &mut u64 = first.entry(value).or_insert(asked_ns);
                *first = asked_ns.min(*first);
            }
            Event::Computed { value, task, end_ns } => {
                computed += 1;
                made.insert(value, (task, end_ns));
            }
        }
    }
    let (mut by_first, mut late_ns) = (0, 0);
    for event in events {
        let Event::Had { value, task, asked_ns, got_ns } = *event else { continue };
        let (by, end_ns) = made[&value];
        by_first += usize::from(by == task && asked_ns == first[&value]);
        late_ns = late_ns.max(got_ns.saturating_sub(asked_ns.max(end_ns)));
    }
    Judged { computed, by_first, late: late_ns as f64 / 1e9 }
}

/// Runs the program on equal computers and returns its seconds.
fn run(order: Order, begun: Begun, tasks: u64, log: &Log) -> Result<f64, Failure> {
    let world = Setup { is_unequal: false, ..FIGURE_2 }.world();
    let log = log.clone();
    let program = move |cluster: Cluster| {
        let log = log.clone();
        async move { farm(&cluster, order, begun, tasks, log).await }
    };
    Ok(in_world(&world, HOSTS + 1, program)?[0])
}

async fn farm(
    cluster: &Cluster,
    order: Order,
    begun: Begun,
    tasks: u64,
    log: Log,
) -> Result<f64, Failure> {
    let mut registry = Registry::new();
    let function = registry.register_async_task("needs", move |context, task: u64| {
        let log = log.clone();
        async move {
            let value = value_of(context, order.value_of(task, tasks), log).await;
            host::spend(EACH);
            value
        }
    });
    let (threads, workers) = begun.settings();
    if cluster.rank() > 0 {
        let served = serve_in(cluster, &registry).threads(threads as usize).await;
        served.doing("serving the farm")?;
        return Ok(0.0);
    }
    let builder = Farm::builder(registry).virtual_workers(workers);
    let mut farm = builder.start_in(cluster).await.doing("starting the farm")?;
    let outcome = farm.run(&function, 0..tasks).await.doing("farming")?;
    farm.finish(FINISH_DEADLINE).await.doing("ending the farm")?;
    Ok(outcome.stats.elapsed.as_secs_f64())
}

/// Returns a value, which needs the one before it.
fn value_of(
    context: TaskContext,
    value: u64,
    log: Log,
) -> Pin<Box<dyn Future<Output = u64> + Send>> {
    Box::pin(async move {
        let (task, asked_ns) = (context.index(), host::Instant::now().time().0);
        let compute = async || {
            let before = match value.checked_sub(1) {
                Some(before) => value_of(context.clone(), before, log.clone()).await,
                None => 0,
            };
            host::spend(EACH);
            host::after_work().await;
            log.add(Event::Computed { value, task, end_ns: host::Instant::now().time().0 });
            before + value
        };
        let had = *context.once_for_all::<u64, _>(&value, compute).await;
        let got_ns = host::Instant::now().time().0;
        log.add(Event::Had { value, task, asked_ns, got_ns });
        had
    })
}
