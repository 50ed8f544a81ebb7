//! Fractions of tasks that are done, on their way to the farmer.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use chunkcomm::host::{self, Instant, timeout};
use chunkcomm_cluster::{Function, Registry};
use chunkcomm_farm::settings::{Tree, VirtualWorkers, WorkersAs};
use chunkcomm_farm::{Farm, Progress, RegistryExt as _};

use crate::farm::DEADLINE;
use crate::farm_waits::farm_of;

/// A task of this number of steps, each 50 ms long, reports the fraction after each.
fn stepping() -> (Registry, Function<u32, ()>) {
    let mut registry = Registry::new();
    let step = registry.register_async_task("step", |task, steps: u32| async move {
        for step in 1..=steps {
            host::sleep(Duration::from_millis(50)).await;
            task.progress(f64::from(step) / f64::from(steps));
        }
    });
    (registry, step)
}

/// Runs 12 tasks of 60 steps on two threads below this number of farmers; returns the progress that was
/// told, with its times, and the number of messages from the workers.
fn told(nodes: usize, tree: Tree) -> (Vec<(Duration, Progress)>, u64) {
    let all = Arc::new(Mutex::new((Vec::new(), 0)));
    let of_run = Arc::clone(&all);
    farm_of(
        7,
        nodes,
        || stepping().0,
        move |cluster| {
            let all = Arc::clone(&of_run);
            async move {
                let (registry, step) = stepping();
                let builder = Farm::builder(registry).tree(tree).grain(1);
                let builder = builder.virtual_workers(VirtualWorkers::Fixed(2));
                let mut farm = builder.start_in(&cluster).await.unwrap();
                let (told, begun) = (Arc::clone(&all), Instant::now());
                farm.on_progress(move |progress| {
                    told.lock().unwrap().0.push((begun.elapsed(), *progress));
                });
                let stats = farm.run(&step, vec![60; 12]).await.unwrap().stats;
                all.lock().unwrap().1 = stats.traffic.messages_received;
                farm.finish(DEADLINE).await.unwrap();
            }
        },
    );
    let mut all = all.lock().unwrap();
    (std::mem::take(&mut all.0), all.1)
}

#[test]
fn the_farmer_hears_of_fractions_at_a_bounded_rate_in_a_tree_too() {
    for (nodes, tree, workers) in [(4, Tree::Off, 3), (5, Tree::FanOut(2), 2)] {
        let (told, messages) = told(nodes, tree);
        let (first, last) = (told[0].1, told.last().unwrap());
        assert_eq!((first.done(), first.total()), (0.0, Some(12)));
        assert_eq!((last.1.done(), last.1.total(), last.1.underway), (12.0, Some(12), 0.0));
        for pair in told.windows(2) {
            let ((before, earlier), (now, later)) = (pair[0], pair[1]);
            assert!(earlier.done() <= later.done(), "{earlier:?} {later:?}");
            assert!(later.underway <= later.unanswered as f64, "{later:?}");
            let shortest = if now == last.0 { 0 } else { 100 };
            assert!(now - before >= Duration::from_millis(shortest), "{before:?} {now:?}");
        }
        // Half of the tasks run for 3 s before any is done.
        let early = told.iter().filter(|(at, _)| *at < Duration::from_secs(3));
        let early: Vec<f64> = early.map(|(_, progress)| progress.done()).collect();
        assert!(early.iter().any(|&done| done > 1.0 && done < 5.0), "{early:?}");
        assert!(early.last().is_some_and(|&done| done > 2.0), "{early:?}");
        // 720 steps are reported in fewer words: five a second from each worker, at both ends of the time, too.
        // Others are answers, and the number of virtual workers.
        let most = last.0.as_millis() as u64 / 200 * workers + 12 + 2 * workers;
        assert!(messages <= most, "{messages} of {most}");
    }
}

/// Tasks of a function that is not async, on threads: each waits until the farmer has heard of it.
#[tokio::test]
async fn a_running_task_is_heard_before_it_ends() {
    static HEARD: AtomicBool = AtomicBool::new(false);
    let mut registry = Registry::new();
    let wait = registry.register_task("wait", |task, ()| {
        for step in 0..=500 {
            task.progress(f64::from(step) / 1000.0);
        }
        while !HEARD.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    let builder = Farm::builder(registry).workers(2).workers_as(WorkersAs::Thread);
    let mut farm = builder.start().await.unwrap();
    farm.on_progress(|progress| {
        if progress.underway == 1.0 {
            HEARD.store(true, Ordering::Relaxed);
        }
    });
    let run = timeout(DEADLINE, farm.run(&wait, vec![(); 2]));
    run.await.expect("the farmer hears of both").unwrap();
    farm.finish(DEADLINE).await.unwrap();
}
