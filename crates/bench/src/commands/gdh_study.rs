//! `chunkperf gdh-study`: run time against the number of tasks that a processor has begun at a time, as
//! figure 2 of L. Collins, M. Gross, P. A. Whitlock, "Improving Performance of Distributed Haskell in
//! Mosix Clusters".
//!
//! The paper starts several processes on each of 15 unequal computers, since a process that waits for
//! the value of another leaves its processor idle. From 15 to some 40 processes the run time falls, to
//! five sixths; beyond a *balance point* it rises again. The paper does not have its program's waits:
//! *assumed* are waits that make up a fifth of a task's time, which allow that gain. The waits are
//! timers here, and the tasks independent.

use std::fmt::Write as _;
use std::time::Duration;

use chunkcomm::host;
use chunkcomm_cluster::registry::Function;
use chunkcomm_cluster::{Cluster, Registry};
use chunkcomm_farm::settings::VirtualWorkers;
use chunkcomm_farm::{Farm, serve_in};
use chunkcomm_simulation::WorldSpec;
use clap::Args;

use super::Verdict;
use crate::failure::{Doing, Failure};
use crate::harness::work::exponential;
use crate::lan::{LanArgs, run_world};
use crate::options::Common;
use crate::options::values;
use crate::ours::farm::FINISH_DEADLINE;
use crate::table::{Cells, Row, significant, write_out};

/// Computers that work; the farmer has one more, where the paper's has a part of one.
const HOSTS: usize = 15;

/// Times in which a task computes and then waits. The paper has no number.
const TURNS: u64 = 4;

/// Tasks that a processor has begun at a time: the paper goes up to 60 processes, 4 a processor.
const EACH: [u32; 7] = [1, 2, 3, 4, 6, 8, 16];

/// Mean time that a task computes in a turn on the reference machine. *Assumed.*
const COMPUTES: Duration = Duration::from_secs(2);

/// Mean time that it waits then. *Assumed*: a quarter of the former.
const WAITS: Duration = Duration::from_millis(500);

/// Loss against the best number of virtual workers that counts as a rise.
const RISES: f64 = 1.02;

/// Loss against the best number of virtual workers that `auto` may have.
const AUTO_LOSS: f64 = 1.03;

/// Options of `chunkperf gdh-study`.
#[derive(Debug, Args)]
pub struct GdhStudyArgs {
    #[command(flatten)]
    common: Common,
    /// Tasks of a run
    #[arg(long, value_name = "N", default_value = "1500", value_parser = values::count)]
    tasks: u64,
}

/// Tasks that a processor has begun at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Begun {
    /// Threads that have a task each, as the paper's processes.
    Threads(u32),
    /// Virtual workers of one thread.
    Virtual(VirtualWorkers),
}

/// Runs the command.
///
/// # Errors
/// If a farm fails.
pub fn run(args: &GdhStudyArgs) -> Result<Verdict, Failure> {
    args.common.check_virtual()?;
    let mut runs = EACH.map(|each| Begun::Virtual(VirtualWorkers::Fixed(each))).to_vec();
    runs.push(Begun::Virtual(VirtualWorkers::Auto));
    runs.extend(EACH[1..].iter().map(|&each| Begun::Threads(each)));
    let heading = ["begun as", "each", "most told", "seconds", "share of one"];
    let heading = heading.map(str::to_owned).to_vec();
    let mut cells = Cells::new(heading, runs.len(), args.common.json);
    let mut done = Vec::new();
    for begun in runs {
        let world = WorldSpec::from_toml(&world()).doing("reading the world of the study")?;
        let lan = LanArgs { lan: String::new(), trace: None, check: false };
        let tasks = args.tasks;
        let program = move |cluster| async move { farm(&cluster, begun, tasks).await };
        let (seconds, told) = run_world(&lan, &world, HOSTS + 1, program)?.results[0];
        done.push((begun, seconds));
        let share = seconds / done[0].1;
        let (kind, each) = begun.words();
        let line = vec![
            kind.to_owned(),
            each.map_or_else(|| "auto".to_owned(), |each| each.to_string()),
            told.to_string(),
            significant(seconds),
            significant(share),
        ];
        cells.add(line, || args.row(begun, seconds, told, share));
    }
    cells.write(false);
    for (claim, holds) in claims(&done) {
        if args.common.json {
            let mut row = Row::default();
            row.set("bench", "gdh-study").set("claim", claim).set("holds", holds).print(true);
        } else {
            let holds = if holds { "holds" } else { "DOES NOT HOLD" };
            write_out(&format!("{holds}: {claim}\n"));
        }
    }
    Ok(Verdict::Fine)
}

impl Begun {
    /// Returns the kind and the number; no number where the farm finds it.
    fn words(self) -> (&'static str, Option<u32>) {
        match self {
            Begun::Threads(each) => ("threads", Some(each)),
            Begun::Virtual(VirtualWorkers::Fixed(each)) => ("virtual", Some(each)),
            Begun::Virtual(VirtualWorkers::Auto) => ("virtual", None),
        }
    }
}

impl GdhStudyArgs {
    fn row(&self, begun: Begun, seconds: f64, told: u32, share: f64) -> Row {
        let (kind, each) = begun.words();
        let mut row = Row::default();
        row.set("bench", "gdh-study")
            .set("transport", "virtual")
            .set("runtime", "virtual")
            .set("tasks", self.tasks)
            .set("begun_as", kind)
            .set("each", each)
            .set("most_told", told)
            .set("seconds", seconds)
            .set("share_of_one", share);
        row
    }
}

/// Sentences of the paper about its figure, and whether they hold for ours.
fn claims(done: &[(Begun, f64)]) -> [(&'static str, bool); 3] {
    let of = |begun| done.iter().find(|(it, _)| *it == begun).map_or(f64::NAN, |it| it.1);
    let fixed = |each| of(Begun::Virtual(VirtualWorkers::Fixed(each)));
    let best = EACH.map(fixed).into_iter().fold(f64::INFINITY, f64::min);
    let threads = |each| of(Begun::Threads(each));
    [
        ("more than one task a processor is faster", fixed(2) < fixed(1) && threads(2) < fixed(1)),
        ("beyond a balance point the run time rises", fixed(16) > RISES * best),
        (
            "auto is as good as the best number",
            of(Begun::Virtual(VirtualWorkers::Auto)) < best * AUTO_LOSS,
        ),
    ]
}

/// Returns the world: 15 unequal computers on a switch, a third of them with foreign load, and the
/// farmer's. *Assumed*: speeds and loads, of which the paper only says that they are unequal.
fn world() -> String {
    let mut text = "[[segments]]\nname = \"lan\"\nkind = \"switch\"\nlatency = \"60us\"\n\
         bytes_per_second = 11866059\ncost_per_packet = \"0s\"\nframe_bytes = 1460\n\
         queue_bytes = 262144\nwindow_bytes = 262144\n"
        .to_owned();
    for host in 0..=HOSTS {
        let speed = [1000, 1300, 700, 1000, 550][host % 5];
        let letter = char::from(b'a' + host as u8);
        // Writing into a string does not fail.
        let _ = write!(
            text,
            "[[hosts]]\nname = \"pc-{letter}\"\nsegments = [\"lan\"]\nspeed_permille = {speed}\n\
             send_cost_per_packet = \"20us\"\nreceive_cost_per_packet = \"40us\"\n"
        );
        if host % 3 == 1 {
            text.push_str("foreign = { jobs = 1, mean_on = \"60s\", mean_off = \"120s\" }\n");
        }
    }
    text
}

/// Registers the function of a task: its work and its waits follow from its number.
fn function(registry: &mut Registry) -> Function<u64, u64> {
    let time = |mean: Duration, number: u64| {
        let mean_ns = u64::try_from(mean.as_nanos()).unwrap_or(u64::MAX);
        Duration::from_nanos(exponential(mean_ns, number))
    };
    registry.register_async("wait", move |task: u64| async move {
        for turn in 0..TURNS {
            let number = (task * TURNS + turn) * 2;
            host::spend(time(COMPUTES, number));
            host::sleep(time(WAITS, number + 1)).await;
        }
        task
    })
}

/// Runs the farmer on rank 0 and workers on the others; returns the seconds and the most virtual
/// workers of a worker, nothing at a worker.
async fn farm(cluster: &Cluster, begun: Begun, tasks: u64) -> Result<(f64, u32), Failure> {
    let mut registry = Registry::new();
    let wait = function(&mut registry);
    let (threads, virtual_workers) = match begun {
        Begun::Threads(each) => (each, VirtualWorkers::Fixed(1)),
        Begun::Virtual(workers) => (1, workers),
    };
    if cluster.rank() > 0 {
        let served = serve_in(cluster, &registry).threads(threads as usize).await;
        served.doing("serving the farm")?;
        return Ok((0.0, 0));
    }
    let builder = Farm::builder(registry).virtual_workers(virtual_workers);
    let mut farm = builder.start_in(cluster).await.doing("starting the farm")?;
    let outcome = farm.run(&wait, 0..tasks).await.doing("farming")?;
    farm.finish(FINISH_DEADLINE).await.doing("ending the farm")?;
    let told = outcome.stats.workers.iter().map(|worker| worker.virtual_workers).max();
    Ok((outcome.stats.elapsed.as_secs_f64(), told.unwrap_or_default()))
}
