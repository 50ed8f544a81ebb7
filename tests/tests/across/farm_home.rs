//! Farms in virtual time, on Ethernet of 100 Mbit/s, whose tasks do not pay to be sent.

use std::sync::Mutex;
use std::time::Duration;

use chunkcomm::host::{self, Instant};
use chunkcomm_cluster::{Cluster, Function, Registry};
use chunkcomm_farm::settings::{Model, Tree};
use chunkcomm_farm::{Farm, RegistryExt as _, RunStats, WorkerStats};
use chunkcomm_simulation::LinkSpec;

use crate::farm::DEADLINE;
use crate::farm_waits::farm_with_deaths;

const US: Duration = Duration::from_micros(1);

/// The time of a task in microseconds, and data for it.
type Task = (u64, Vec<u8>);

/// The long tasks of [`what_others_are_slow_to_answer_is_not_copied_home`] in the order in which they were
/// begun, and whether at home.
static BEGUN: Mutex<Vec<(u64, bool)>> = Mutex::new(Vec::new());

/// A function that returns whether its task ran at home.
fn functions_at(home: bool) -> (Registry, Function<Task, bool>) {
    let mut registry = Registry::new();
    let work = registry.register_task("work", move |task, (us, _): Task| {
        if us >= 3_000_000 {
            BEGUN.lock().unwrap().push((task.index(), home));
        }
        host::spend(us as u32 * US);
        home
    });
    (registry, work)
}

/// Runs a program on rank 0; the two or more other nodes work.
fn farm_on<F, P>(nodes: usize, deaths: &[(usize, Duration)], program: P)
where
    F: Future<Output = ()> + Send + 'static,
    P: Fn(Cluster) -> F + Clone + Send + 'static,
{
    let away = || functions_at(false).0;
    farm_with_deaths(1, nodes, LinkSpec::ETHERNET_100M, deaths, away, program);
}

/// A task of 50 us whose data take a third of a millisecond on the wire.
fn large(_: u64) -> Task {
    (50, vec![7; 4096])
}

/// A task without data.
fn small(us: u64) -> impl Fn(u64) -> Task {
    move |_| (us, Vec::new())
}

/// Number of tasks that the farmer's own worker ran.
fn at_home(stats: &RunStats) -> u64 {
    let own = stats.workers.iter().filter(|worker| worker.worker.member.is_none());
    own.map(|worker| worker.tasks).sum()
}

#[test]
fn tasks_that_do_not_pay_to_be_sent_are_also_run_at_home() {
    farm_on(3, &[], async |cluster| {
        let mut elapsed = Vec::new();
        for model in [Model::B, Model::Auto] {
            let (registry, work) = functions_at(true);
            let mut farm = Farm::builder(registry).model(model).start_in(&cluster).await.unwrap();
            let ran = farm.run(&work, (0..2_000).map(large)).await.unwrap();
            let home = ran.results.iter().filter(|&&home| home).count() as u64;
            assert_eq!((home, home > 1_000), (at_home(&ran.stats), model == Model::Auto));
            elapsed.push(ran.stats.elapsed);
            // It is asked anew in each run.
            let pays = farm.run(&work, (0..60).map(small(20_000))).await.unwrap();
            assert_eq!(at_home(&pays.stats), 0);
            let again = farm.run(&work, (0..2_000).map(large)).await.unwrap();
            assert_eq!(at_home(&again.stats) > 1_000, model == Model::Auto);
            farm.finish(DEADLINE).await.unwrap();
        }
        assert!(elapsed[1] < elapsed[0] / 2, "{elapsed:?}");
    });
}

/// Short tasks are no reason, nor is a run of few tasks.
#[test]
fn tasks_that_pay_stay_away_from_the_farmer() {
    farm_on(3, &[], async |cluster| {
        let (registry, work) = functions_at(true);
        let mut farm = Farm::builder(registry).start_in(&cluster).await.unwrap();
        for (us, count) in [(20, 20_000), (1_000, 2_000), (200_000, 20)] {
            let ran = farm.run(&work, (0..count).map(small(us))).await.unwrap();
            assert!(!ran.results.contains(&true), "{us} us");
        }
        assert_eq!(farm.workers().len(), 2);
        farm.finish(DEADLINE).await.unwrap();
    });
}

/// They may be silent because of the task.
#[test]
fn what_others_are_slow_to_answer_is_not_copied_home() {
    farm_on(3, &[], async |cluster| {
        let (registry, work) = functions_at(true);
        let mut farm = Farm::builder(registry).start_in(&cluster).await.unwrap();
        let long = (0..9).map(|at| small(3_000_000 * (1 + at % 3))(at));
        let ran = farm.run(&work, (0..2_000).map(large).chain(long)).await.unwrap();
        assert!(at_home(&ran.stats) > 1_000 && ran.stats.mishaps.copied > 0, "{:?}", ran.stats);
        let begun = BEGUN.lock().unwrap().clone();
        let is_copy = |at: usize| begun[..at].iter().any(|&(task, _)| task == begun[at].0);
        let copied = (0..begun.len()).filter(|&at| is_copy(at) && begun[at].1).count();
        assert_eq!(copied, 0, "{begun:?}");
        farm.finish(DEADLINE).await.unwrap();
    });
}

/// The task may be to blame for the death, and would end the farmer.
#[test]
fn after_a_death_the_farmer_works_no_more() {
    without_the_farmer_after_a_death(4, 2, Tree::Off);
}

#[test]
fn after_a_death_below_a_sub_farmer_the_farmer_works_no_more() {
    without_the_farmer_after_a_death(7, 6, Tree::FanOut(3));
}

fn without_the_farmer_after_a_death(nodes: usize, dead: usize, tree: Tree) {
    const DEATH: Duration = Duration::from_secs(5);
    farm_on(nodes, &[(dead, DEATH)], move |cluster| async move {
        let begun = Instant::now();
        let (registry, work) = functions_at(true);
        let mut farm = Farm::builder(registry).tree(tree).start_in(&cluster).await.unwrap();
        let long = (0..250 * nodes as u64).map(small(100_000));
        let tasks = (0..2_000).map(large).chain(long);
        let mut seen = Vec::new();
        let each = |_, home| seen.push((begun.elapsed(), home));
        let results = farm.stream(&work, tasks).unwrap().as_completed();
        let stats = results.for_each(each).await.unwrap();
        let lost = |worker: &WorkerStats| u64::from(worker.lost.is_some()) + worker.lost_below;
        assert_eq!(stats.workers.iter().map(lost).sum::<u64>(), 1);
        let told = DEATH + Duration::from_secs(12);
        let late: Vec<bool> = seen.iter().filter(|seen| seen.0 > told).map(|seen| seen.1).collect();
        assert!(late.len() > 50 && !late.contains(&true), "{late:?}");
        let before = seen.iter().filter(|seen| seen.0 < DEATH && seen.1).count();
        assert!(before > 1_000, "{before} tasks were run at home before");
        farm.finish(DEADLINE).await.unwrap();
    });
}
