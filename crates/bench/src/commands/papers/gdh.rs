//! L. Collins, M. Gross, P. A. Whitlock, "Improving Performance of Distributed Haskell in Mosix Clusters" (2005):
//! several processes on each of 15 unequal computers, since a process that waits for the value of another
//! leaves its processor idle.
//!
//! A process is a thread of a worker here, or a *virtual worker*, and a value that others wait for a timer, or a
//! value that the farm computes once. The paper does not have its program's waits: *assumed* are waits that
//! make up a fifth of a task's time.

mod critical;

use std::fmt::Write as _;
use std::time::Duration;

use chunkcomm::host;
use chunkcomm_cluster::registry::Function;
use chunkcomm_cluster::{Cluster, Registry};
use chunkcomm_farm::settings::VirtualWorkers;
use chunkcomm_farm::{Farm, serve_in};
use chunkcomm_simulation::WorldSpec;

use super::{Curves, Found, Means, Run, Scene};
use crate::failure::{Doing, Failure};
use crate::fit::{Line, Point};
use crate::harness::work::exponential;
use crate::lan::{LanArgs, run_world};
use crate::ours::farm::FINISH_DEADLINE;
use crate::table::{Row, column};

pub(super) const RUNS: &[Run] = &[
    Run { name: "arguments", means: Means::Virtual, run: arguments },
    Run { name: "processes", means: Means::Virtual, run: processes },
    Run { name: "scheduling", means: Means::Virtual, run: scheduling },
    Run { name: "critical", means: Means::Virtual, run: critical::critical },
];

/// Computers that work; the farmer has one more, where the paper's has a part of one.
const HOSTS: usize = 15;

/// Times in which a task computes and then waits. The paper has no number.
const TURNS: u64 = 4;

/// Tasks that a processor has begun at a time. The paper's figure 2 goes up to 60 processes, 4 a processor.
const EACH: [u32; 7] = [1, 2, 3, 4, 6, 8, 16];

/// Mean time that a task computes in a turn on the reference machine. *Assumed.*
const COMPUTES: Duration = Duration::from_secs(2);

/// Mean time that it waits then. *Assumed*: a quarter of the former.
const WAITS: Duration = Duration::from_millis(500);

/// Tasks of a run of figure 2. *Assumed.*
const TASKS: u64 = 1500;

/// Times that the paper's run takes as long as ours. *Fitted* to the minutes of figure 2.
const LARGER: f64 = 4.25;

/// Longest serial part of a program; it is half of a shorter one. *Fitted* to both ends of the line of figure 1.
const SERIAL: Duration = Duration::from_secs(240);

/// Loss against the best number of begun tasks that counts as a rise.
const RISES: f64 = 1.02;

/// Loss against the best number of begun tasks that `auto` may have.
const AUTO_LOSS: f64 = 1.03;

/// Part of the minutes of figure 2 by which ours may be beyond its axis.
const CLOSE: f64 = 0.05;

/// Difference at which a fitted figure counts as the paper's.
const NEAR: f64 = 0.25;

/// Tasks that a processor has begun at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Begun {
    /// Threads that have a task each, as the paper's processes.
    Threads(u32),
    /// Virtual workers of one thread.
    Virtual(VirtualWorkers),
    /// One, from an equal share of all tasks that is fixed at the start.
    Locked,
}

const ONE: Begun = Begun::Threads(1);
const FOUR: Begun = Begun::Threads(4);
const AUTO: Begun = Begun::Virtual(VirtualWorkers::Auto);

/// One farm.
#[derive(Debug, Clone, Copy)]
struct Setup {
    begun: Begun,
    tasks: u64,
    /// Work of the farmer before the tasks.
    serial: Duration,
    has_waits: bool,
    /// Whether messages cost anything.
    has_costs: bool,
    /// Whether the computers are unequal, a third of them with foreign load. *Assumed*: speeds and loads.
    is_unequal: bool,
}

/// Figures of a farm.
#[derive(Debug, Clone, Copy, Default)]
struct Done {
    seconds: f64,
    /// Most tasks that a worker had begun.
    told: u32,
    /// Workers that had a task.
    used: usize,
    /// Sum of all results.
    answer: u64,
}

/// Figure 2's farm.
const FIGURE_2: Setup = Setup {
    begun: ONE,
    tasks: TASKS,
    serial: Duration::ZERO,
    has_waits: true,
    has_costs: true,
    is_unequal: true,
};

/// Runs the program serially and in parallel with arguments for seconds to hours.
fn arguments(scene: &Scene<'_>, found: &mut Found) -> Result<(), Failure> {
    let count = scene.numbers("argument-sets")[0] as u64;
    let [low, high, _, minutes] = [0, 1, 2, 3].map(|at| scene.numbers("line")[at]);
    let last_task = Duration::from_secs_f64(minutes * 60.0);
    let (mut rows, mut points, mut used) = (Vec::new(), Vec::new(), Vec::new());
    let (mut equal, mut faster) = (0, 0);
    for set in scene.sized(1..=count, 4..=4) {
        let time = last_task.mul_f64((set as f64 / count as f64).powi(2));
        let serial = SERIAL.min(time / 2);
        let tasks = (time - serial).as_secs_f64() / (COMPUTES.as_secs_f64() * TURNS as f64);
        let tasks = (tasks.round() as u64).max(1);
        let setup = Setup { begun: AUTO, tasks, serial, ..FIGURE_2 };
        let (alone, done) = (setup.run_alone()?, setup.run()?);
        equal += u64::from(alone.answer == done.answer);
        let speed_up = alone.seconds / done.seconds;
        faster += u64::from(speed_up > 1.0);
        points.push((alone.seconds / 60.0, speed_up));
        used.push(done.used);
        let mut row = Row::default();
        row.set("serial", alone.seconds / 60.0).set("parallel", done.seconds / 60.0);
        row.set("speed_up", speed_up).set("used", done.used).set("tasks", tasks);
        rows.push(row);
    }
    let columns = [
        column("tasks", "tasks", 0),
        column("serial", "serial, minutes", 0),
        column("parallel", "parallel, minutes", 0),
        column("speed_up", "speed-up", 0),
        column("used", "computers used", 0),
    ];
    found.table("arguments", &columns, rows);
    let sets = points.len();
    found.verdict("same-answers", equal == sets as u64, format!("{equal} of {sets}"));
    found.verdict("parallel-is-faster", faster == sets as u64, format!("{faster} of {sets}"));
    // Of the shortest and of the longest quarter.
    let quarter = sets.div_ceil(4);
    let mean = |part: &[usize]| part.iter().sum::<usize>() as f64 / part.len() as f64;
    let [short, long] = [mean(&used[..quarter]), mean(&used[sets - quarter..])];
    let ours = format!("{short:.1}, {long:.1} computers");
    found.verdict("short-less-distributed", short < long, ours);
    let means: Vec<f64> = points
        .chunks(quarter)
        .map(|part| part.iter().map(|it| it.1).sum::<f64>() / part.len() as f64)
        .collect();
    let told = means.iter().map(|mean| format!("{mean:.1}")).collect::<Vec<_>>().join(", ");
    found.verdict("longer-gains-more", means.windows(2).all(|two| two[0] < two[1]), told);
    let fitted: Vec<Point> = points.iter().map(|&(x, y)| Point::new(x, y)).collect();
    if let Some(line) = Line::through(&fitted) {
        let [first, last] = [line.at(0.0), line.at(minutes)];
        // Within the paper's axis, and no point farther from the line than a part of that.
        let is_within =
            |speed_up: &f64| (low * (1.0 - NEAR)..=high * (1.0 + NEAR)).contains(speed_up);
        let off = points.iter().map(|(x, y)| (line.at(*x) - y).abs()).fold(0.0, f64::max);
        let holds = [first, last].iter().all(is_within) && off <= NEAR * high;
        found.verdict("line", holds, format!("{first:.1} to {last:.1}, at most {off:.1} off"));
        let ends = [0.0, minutes];
        found.curves(Curves {
            name: "arguments",
            title: "Figure 1: speed-up over serial time".to_owned(),
            x: ("serial minutes", false),
            y: ("speed-up", false),
            lines: vec![
                ("ours".to_owned(), points),
                ("its line".to_owned(), ends.iter().map(|&at| (at, line.at(at))).collect()),
            ],
        });
    }
    Ok(())
}

/// Runs farms with several tasks begun a processor.
fn processes(scene: &Scene<'_>, found: &mut Found) -> Result<(), Failure> {
    let base = Setup { tasks: scene.sized(TASKS, 45), ..FIGURE_2 };
    let each = scene.sized(&EACH[..], &[1, 2, 4][..]);
    let mut rows = Vec::new();
    // Three runs in virtual time are the same.
    let mut of = |name: &str, setup: Setup| {
        let done = setup.run()?;
        let minutes = 3.0 * LARGER * done.seconds / 60.0;
        let (kind, each) = setup.begun.words();
        let mut row = Row::default();
        row.set("world", name).set("begun_as", kind).set("each", each);
        row.set("most_told", done.told).set("minutes", minutes);
        rows.push(row);
        Ok::<f64, Failure>(minutes)
    };
    let threads = |count: &u32| Setup { begun: Begun::Threads(*count), ..base };
    let workers =
        |count: &u32| Setup { begun: Begun::Virtual(VirtualWorkers::Fixed(*count)), ..base };
    let processes: Vec<f64> =
        each.iter().map(|it| of("as there", threads(it))).collect::<Result<_, _>>()?;
    let virtually: Vec<f64> =
        each.iter().map(|it| of("as there", workers(it))).collect::<Result<_, _>>()?;
    let auto = of("as there", Setup { begun: AUTO, ..base })?;
    let mut without = Vec::new();
    for count in &each[..3] {
        without.push(of("no waits", Setup { has_waits: false, ..threads(count) })?);
    }
    let best_of = |all: &[f64]| {
        let best = all.iter().enumerate().min_by(|one, other| one.1.total_cmp(other.1));
        best.map_or((0, f64::NAN), |(at, minutes)| (at, *minutes))
    };
    let (at, best) = best_of(&processes);
    let (at_virtual, best_virtual) = best_of(&virtually);
    let last = each.len() - 1;
    let free = |setup: Setup| Setup { has_costs: false, ..setup };
    let mut rise_of = |setup: &dyn Fn(&u32) -> Setup, at: usize| {
        let best = of("free messages", free(setup(&each[at])))?;
        Ok::<f64, Failure>(of("free messages", free(setup(&each[last])))? / best - 1.0)
    };
    let free_rises = [rise_of(&threads, at)?, rise_of(&workers, at_virtual)?];
    let columns = [
        column("world", "world", 0),
        column("begun_as", "begun as", 0),
        column("each", "each", 0),
        column("most_told", "most begun", 0),
        column("minutes", "three runs, minutes", 0),
    ];
    found.table("processes", &columns, rows);
    let to_points = |minutes: &[f64]| {
        each.iter().zip(minutes).map(|(each, it)| (f64::from(*each) * HOSTS as f64, *it)).collect()
    };
    found.curves(Curves {
        name: "processes",
        title: "Figure 2: three runs over the number of processes".to_owned(),
        x: ("processes", false),
        y: ("minutes", false),
        lines: vec![
            ("processes".to_owned(), to_points(&processes)),
            ("virtual workers".to_owned(), to_points(&virtually)),
        ],
    });
    let [low, high] = [2, 3].map(|at| scene.numbers("range")[at]);
    let within = processes.iter().zip(each).filter(|(_, each)| **each <= 4);
    let within: Vec<f64> = within.map(|(minutes, _)| *minutes).collect();
    let [least, most] =
        [f64::min, f64::max].map(|of| within.iter().copied().reduce(of).unwrap_or(f64::NAN));
    let holds = low <= least * (1.0 + CLOSE) && most <= high * (1.0 + CLOSE);
    found.verdict("range", holds, format!("{least:.0} to {most:.0} minutes"));
    let ours =
        format!("{:.2} times; without waits {:.2}", best / processes[0], without[1] / without[0]);
    found.verdict("several-are-best", at > 0 && at_virtual > 0, ours);
    // The equilibrium: the first number from which the best one gains no more than counts as a rise.
    let balance = processes.iter().position(|it| *it < RISES * best).unwrap_or(last);
    let falls = processes[..=balance].windows(2).all(|two| two[1] < two[0]);
    let ours = format!("until {} processes", each[balance] as usize * HOSTS);
    found.verdict("falls-to-balance", balance > 0 && balance < last && falls, ours);
    let rises = [processes[last] / best, virtually[last] / best_virtual].map(|it| it - 1.0);
    let told = |rises: [f64; 2]| rises.map(|it| format!("{:.1} %", it * 100.0)).join(", ");
    let ours = format!("to 240: {}", told(rises));
    found.verdict("rises-beyond", rises.iter().all(|rise| *rise > RISES - 1.0), ours);
    let holds = (0..2).all(|at| rises[at] > RISES - 1.0 && free_rises[at] < rises[at] / 2.0);
    found.verdict("rise-is-overhead", holds, format!("without overhead {}", told(free_rises)));
    let loss = auto / best_virtual;
    found.verdict("automatic", loss < AUTO_LOSS, format!("auto: {loss:.3} of best"));
    found.figure("gdh_best_share", best / processes[0]);
    Ok(())
}

/// Runs farms with fixed shares, and with tasks on demand, on unequal and on equal computers.
fn scheduling(scene: &Scene<'_>, found: &mut Found) -> Result<(), Failure> {
    let tasks = scene.sized(1500, 45);
    let (mut rows, mut all) = (Vec::new(), Vec::new());
    for is_unequal in [true, false] {
        for (name, begun) in
            [("locked", Begun::Locked), ("one", ONE), ("four", FOUR), ("auto", AUTO)]
        {
            let done = Setup { begun, tasks, is_unequal, ..FIGURE_2 }.run()?;
            let mut row = Row::default();
            row.set("computers", if is_unequal { "unequal" } else { "equal" });
            row.set("begun", name).set("seconds", done.seconds);
            rows.push(row);
            all.push(done.seconds);
        }
    }
    let columns = [
        column("computers", "computers", 0),
        column("begun", "begun", 0),
        column("seconds", "seconds", 0),
    ];
    found.table("scheduling", &columns, rows);
    let [locked, one, four, auto] = [all[0], all[1], all[2], all[3]];
    let holds = four < one && auto < one && four < locked;
    let ours = format!("{:.2} of locked, {:.2} of one on demand", four / locked, four / one);
    found.verdict("contention-beats-micromanaging", holds, ours);
    let [unequal, equal] = [locked / four, all[4] / all[6]];
    let ours = format!("gains {unequal:.2}, equal {equal:.2}");
    found.verdict("heterogeneous", unequal > equal, ours);
    Ok(())
}

impl Begun {
    /// Returns the threads of a worker, and the virtual workers of a thread.
    fn settings(self) -> (u32, VirtualWorkers) {
        match self {
            Begun::Threads(each) => (each, VirtualWorkers::Fixed(1)),
            Begun::Virtual(workers) => (1, workers),
            Begun::Locked => (1, VirtualWorkers::Fixed(1)),
        }
    }

    /// Returns the kind and the number; no number where the farm finds it.
    fn words(self) -> (&'static str, Option<u32>) {
        match self {
            Begun::Threads(each) => ("threads", Some(each)),
            Begun::Virtual(VirtualWorkers::Fixed(each)) => ("virtual", Some(each)),
            Begun::Virtual(VirtualWorkers::Auto) => ("virtual", None),
            Begun::Locked => ("locked", Some(1)),
        }
    }
}

impl Setup {
    fn run(self) -> Result<Done, Failure> {
        let program = move |cluster| async move { self.farm(&cluster).await };
        Ok(in_world(&self.world(), HOSTS + 1, program)?[0])
    }

    /// Runs all tasks one after the other, as the sequential program: nothing waits.
    fn run_alone(self) -> Result<Done, Failure> {
        let program = move |_| async move {
            let begun = host::Instant::now();
            host::compute(self.serial, || ()).await;
            let mut answer = 0_u64;
            for task in 0..self.tasks {
                let work = (0..TURNS).map(|turn| Self::drawn(COMPUTES, task, turn, 0)).sum();
                answer = answer.wrapping_add(host::compute(work, move || factor(task)).await);
            }
            Ok(Done { seconds: begun.elapsed().as_secs_f64(), answer, ..Done::default() })
        };
        Ok(in_world(&self.world(), 1, program)?[0])
    }

    /// Returns the world: computers on a switch, and the farmer's.
    fn world(self) -> String {
        let mut text = "[[segments]]\nname = \"lan\"\nkind = \"switch\"\nlatency = \"60us\"\n\
             bytes_per_second = 11866059\ncost_per_packet = \"0s\"\nframe_bytes = 1460\n\
             queue_bytes = 262144\nwindow_bytes = 262144\n"
            .to_owned();
        if !self.has_costs {
            text = text.replace("60us", "0s").replace("11866059", "11866059000");
        }
        for host in 0..=HOSTS {
            let speed = if self.is_unequal { [1000, 1300, 700, 1000, 550][host % 5] } else { 1000 };
            let letter = char::from(b'a' + host as u8);
            // Writing into a string does not fail.
            let _ = write!(
                text,
                "[[hosts]]\nname = \"pc-{letter}\"\nsegments = [\"lan\"]\nspeed_permille = {speed}\n"
            );
            let costs = if self.has_costs { ["20us", "40us"] } else { ["0s", "0s"] };
            let [send, receive] = costs;
            let _ = write!(
                text,
                "send_cost_per_packet = \"{send}\"\nreceive_cost_per_packet = \"{receive}\"\n"
            );
            if self.is_unequal && host % 3 == 1 {
                text.push_str("foreign = { jobs = 1, mean_on = \"60s\", mean_off = \"120s\" }\n");
            }
        }
        text
    }

    /// Registers the function of some tasks, one after the other: work and waits follow from their numbers.
    fn function(self, registry: &mut Registry) -> Function<(u64, u64), u64> {
        registry.register_async("tasks", move |(first, end): (u64, u64)| async move {
            let mut answer = 0_u64;
            for task in first..end.min(self.tasks) {
                for turn in 0..TURNS {
                    host::spend(Self::drawn(COMPUTES, task, turn, 0));
                    if self.has_waits {
                        host::sleep(Self::drawn(WAITS, task, turn, 1)).await;
                    }
                }
                host::after_work().await;
                answer = answer.wrapping_add(factor(task));
            }
            answer
        })
    }

    /// Draws the time of a turn of a task; the same for the same numbers.
    fn drawn(mean: Duration, task: u64, turn: u64, kind: u64) -> Duration {
        let mean_ns = u64::try_from(mean.as_nanos()).unwrap_or(u64::MAX);
        Duration::from_nanos(exponential(mean_ns, (task * TURNS + turn) * 2 + kind))
    }

    /// Runs the farmer on rank 0 and workers on the others.
    async fn farm(self, cluster: &Cluster) -> Result<Done, Failure> {
        let mut registry = Registry::new();
        let task = self.function(&mut registry);
        let (threads, virtual_workers) = self.begun.settings();
        if cluster.rank() > 0 {
            let served = serve_in(cluster, &registry).threads(threads as usize).await;
            served.doing("serving the farm")?;
            return Ok(Done::default());
        }
        let builder = Farm::builder(registry).virtual_workers(virtual_workers);
        let mut farm = builder.start_in(cluster).await.doing("starting the farm")?;
        let begun = host::Instant::now();
        host::compute(self.serial, || ()).await;
        let share = if self.begun == Begun::Locked { self.tasks.div_ceil(HOSTS as u64) } else { 1 };
        let shares = (0..self.tasks).step_by(share as usize).map(|first| (first, first + share));
        let outcome = farm.run(&task, shares).await.doing("farming")?;
        let seconds = begun.elapsed().as_secs_f64();
        farm.finish(FINISH_DEADLINE).await.doing("ending the farm")?;
        let workers = &outcome.stats.workers;
        Ok(Done {
            seconds,
            told: workers.iter().map(|worker| worker.virtual_workers).max().unwrap_or_default(),
            used: workers.iter().filter(|worker| worker.tasks > 0).count(),
            answer: outcome.results.into_iter().fold(0, u64::wrapping_add),
        })
    }
}

/// Runs a program on the first hosts of a world.
fn in_world<R, F>(
    world: &str,
    hosts: usize,
    program: impl Fn(Cluster) -> F + Clone + Send + 'static,
) -> Result<Vec<R>, Failure>
where
    R: Send + 'static,
    F: Future<Output = Result<R, Failure>> + Send + 'static,
{
    let world = WorldSpec::from_toml(world).doing("reading the world of the paper")?;
    let lan = LanArgs { lan: String::new(), trace: None, check: false };
    Ok(run_world(&lan, &world, hosts, program)?.results)
}

/// Returns the answer of a task: the least factor of its number among those from 1,000,003 on.
fn factor(task: u64) -> u64 {
    let number = 1_000_003 + task;
    (2..=number.isqrt()).find(|factor| number.is_multiple_of(*factor)).unwrap_or(number)
}
