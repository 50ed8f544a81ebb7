//! Farms whose tasks take too long.

use std::time::Duration;

use chunkcomm_farm::settings::{TaskTimeout, WorkersAs};
use chunkcomm_farm::{TaskError, WorkerEnd};
use chunkcomm_testkit::proc::wait_until_gone;
use tokio::time::timeout;

use crate::farm::{DEADLINE, builder, pids};

/// A time that no other task of these tests needs.
const TIMEOUT: Duration = Duration::from_secs(2);
const HOUR_MS: u64 = 3_600_000;

#[tokio::test]
async fn a_task_that_does_not_end_fails_alone() {
    for workers_as in [WorkersAs::Process, WorkersAs::Thread] {
        let (builder, functions) = builder();
        let limit = TaskTimeout { timeout: TIMEOUT, grace: Duration::from_millis(10) };
        let builder = builder.workers_as(workers_as).task_timeout(limit);
        let mut farm = builder.start().await.unwrap();
        let before = pids(&farm);
        // Short ones before, so that the long one shares its assignment.
        let mut tasks = vec![0; 200];
        tasks[150] = HOUR_MS;
        let outcome = farm.run_to_end(&functions.sleep, tasks).await.unwrap();
        for (index, result) in outcome.results.iter().enumerate() {
            match result {
                Ok(_) => assert_ne!(index, 150),
                Err(error) => {
                    assert!(matches!(error, TaskError::TimedOut { index: 150, .. }), "{error}");
                    assert!(error.to_string().ends_with("in 2.01 s"), "{error}");
                }
            }
        }
        assert_eq!(outcome.stats.tasks, 200);
        let late = outcome.stats.workers.iter().find(|worker| worker.timed_out == 1).unwrap();
        if workers_as == WorkersAs::Process {
            let end = late.lost.as_ref().and_then(|it| it.cause());
            assert!(matches!(end, Some(WorkerEnd::Stuck { task: 150 })), "{:?}", late.lost);
            // Its process ends, and another takes its place.
            wait_until_gone(&[late.worker.pid.unwrap()]);
        } else {
            assert!(late.lost.is_none());
        }
        let outcome = farm.run(&functions.square, 0..100).await.unwrap();
        assert_eq!(outcome.results[99], 99 * 99);
        if workers_as == WorkersAs::Process {
            // A copy of the task at the other worker may have come to its end too.
            assert!((1..3).contains(&(pids(&farm).len() - before.len())), "{:?}", farm.workers());
        }
        farm.finish(DEADLINE).await.unwrap();
    }
}

/// Each worker is ended, one after the other, and no other is left meanwhile.
#[tokio::test]
async fn late_tasks_at_every_worker_do_not_end_the_farm() {
    for count in [1, 2] {
        let (builder, functions) = builder();
        let (time, grace) = (Duration::from_millis(200), Duration::from_millis(10));
        let limit = TaskTimeout { timeout: time, grace };
        let builder = builder.workers(count).grain(1).task_timeout(limit);
        let mut farm = builder.start().await.unwrap();
        let tasks = [HOUR_MS, HOUR_MS, 0, 0, HOUR_MS, 0];
        let run = farm.run_to_end(&functions.sleep, tasks);
        let outcome = timeout(DEADLINE, run).await.unwrap().unwrap();
        let failed: Vec<bool> = outcome.results.iter().map(Result::is_err).collect();
        assert_eq!(failed, tasks.map(|ms| ms > 0));
        let next = timeout(DEADLINE, farm.run(&functions.double, 0..100)).await.unwrap();
        assert_eq!(next.unwrap().results[99], 198);
        farm.finish(DEADLINE).await.unwrap();
    }
}

/// The tasks are tiny at first, as those that run beside the worker's packets.
#[tokio::test]
async fn a_task_of_a_tiny_function_is_asked_to_end_too() {
    for workers_as in [WorkersAs::Process, WorkersAs::Thread] {
        let (builder, functions) = builder();
        let mut farm = builder.workers(1).workers_as(workers_as).start().await.unwrap();
        farm.run(&functions.waits, [false; 1000]).await.unwrap();
        let waits = farm.run(&functions.waits, [true; 3]);
        assert!(timeout(Duration::from_millis(100), waits).await.is_err());
        let next = timeout(DEADLINE, farm.run(&functions.double, [4])).await.unwrap();
        assert_eq!(next.unwrap().results, [8]);
        farm.finish(DEADLINE).await.unwrap();
    }
}

#[tokio::test]
async fn a_result_that_comes_within_the_grace_counts() {
    let (builder, functions) = builder();
    let limit = TaskTimeout { timeout: Duration::from_millis(50), grace: DEADLINE };
    let builder = builder.task_timeout(limit);
    let mut farm = builder.grain(1).start().await.unwrap();
    let outcome = farm.run(&functions.patient, [(); 3]).await.unwrap();
    let indices: Vec<u64> = outcome.results.into_iter().map(|(index, _)| index).collect();
    assert_eq!(indices, [0, 1, 2]);
    assert!(outcome.stats.workers.iter().all(|worker| worker.timed_out == 0));
    farm.finish(DEADLINE).await.unwrap();
}

/// Without a time-out the tasks of a dropped run are told by the next run.
#[tokio::test]
async fn tasks_of_a_dropped_run_are_asked_to_end() {
    let (builder, functions) = builder();
    let mut farm = builder.workers(1).start().await.unwrap();
    let dropped = timeout(Duration::from_millis(100), farm.run(&functions.patient, [(); 5])).await;
    assert!(dropped.is_err());
    let next = timeout(DEADLINE, farm.run(&functions.double, [4])).await.unwrap();
    assert_eq!(next.unwrap().results, [8]);
    // The last task of this one ends with the farm.
    let dropped = timeout(Duration::from_millis(100), farm.run(&functions.patient, [()])).await;
    assert!(dropped.is_err());
    farm.finish(DEADLINE).await.unwrap();
}
