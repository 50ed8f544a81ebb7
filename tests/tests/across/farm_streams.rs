//! Farms whose tasks come over time: streams, and tasks that create tasks.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use super::farm::{DEADLINE, builder, pids};
use chunkcomm_farm::settings::{Grain, Prefetch};
use chunkcomm_farm::{RunError, TaskError};
use chunkcomm_testkit::proc;
use futures_core::Stream;
use rustix::process::Signal;
use tokio::sync::mpsc::{Receiver, channel};
use tokio::time::timeout;

/// The tasks that are sent through a channel.
pub(crate) struct Sent(pub(crate) Receiver<u64>);

impl Stream for Sent {
    type Item = u64;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<u64>> {
        self.0.poll_recv(context)
    }
}

#[tokio::test]
async fn a_stream_gives_each_result_when_it_is_there() {
    let (builder, functions) = builder();
    let mut farm = builder.start().await.unwrap();
    let (tasks, sent) = channel(1);
    let mut results = farm.stream(&functions.double, Sent(sent)).unwrap();
    // Slow: the next task is sent when the result before is there.
    for number in 0..20 {
        tasks.send(number).await.unwrap();
        let next = timeout(DEADLINE, results.next()).await.unwrap().unwrap().unwrap();
        assert_eq!(next, (number, number * 2));
        assert_eq!(results.progress().given, number + 1);
        assert_eq!((results.progress().unanswered, results.progress().left), (0, None));
    }
    let quiet = timeout(Duration::from_millis(50), results.next()).await;
    assert!(quiet.is_err(), "there is no task");
    drop(tasks);
    assert!(results.next().await.unwrap().is_none());
    assert_eq!(results.stats().unwrap().tasks, 20);
    farm.finish(DEADLINE).await.unwrap();
}

#[tokio::test]
async fn a_stream_has_its_errors_in_place_and_both_orders() {
    let (builder, functions) = builder();
    let mut farm = builder.start().await.unwrap();
    for as_completed in [false, true] {
        let (tasks, sent) = channel(1_000);
        (0..1_000).for_each(|number| tasks.try_send(number).unwrap());
        drop(tasks);
        let results = farm.stream(&functions.unlucky, Sent(sent)).unwrap();
        let mut results = if as_completed { results.as_completed() } else { results };
        let mut seen = Vec::new();
        loop {
            match results.next().await {
                Ok(Some((index, number))) => {
                    assert_eq!(number, index);
                    seen.push(index);
                }
                Ok(None) => break,
                Err(RunError::Task(TaskError::Failed { index: 13, .. })) => seen.push(13),
                Err(error) => panic!("{error}"),
            }
        }
        if as_completed {
            seen.sort_unstable();
        }
        assert_eq!(seen, (0..1_000).collect::<Vec<_>>());
    }
    // A dropped stream is a cancelled run.
    let (tasks, sent) = channel(10);
    tasks.try_send(60_000).unwrap();
    let mut results = farm.stream(&functions.sleep, Sent(sent)).unwrap();
    assert!(timeout(Duration::from_millis(50), results.next()).await.is_err());
    drop(results);
    let outcome = timeout(DEADLINE, farm.run(&functions.double, 0..10)).await.unwrap().unwrap();
    assert_eq!(outcome.results[9], 18);
}

#[tokio::test]
async fn tasks_create_tasks_until_none_is_left() {
    for (prefetch, grain) in [
        (Prefetch::Auto, Grain::Auto),
        (Prefetch::Fixed(1), Grain::Fixed(1)),
        (Prefetch::Fixed(3), Grain::Fixed(7)),
    ] {
        let (builder, functions) = builder();
        let mut farm = builder.prefetch(prefetch).grain(grain).start().await.unwrap();
        let mut ones = 0;
        let each = |number: u64| ones += u64::from(number == 1);
        let stats = farm.run_pool(&functions.halves, [1_000, 24], each).await.unwrap();
        assert_eq!((ones, stats.tasks), (1_024, 2 * 1_024 - 2));
        let stats = farm.run_pool(&functions.halves, [], |_| panic!("no task")).await.unwrap();
        assert_eq!(stats.tasks, 0);
        farm.finish(DEADLINE).await.unwrap();
    }
}

/// A task that is run twice has its children once.
#[tokio::test]
async fn tasks_create_tasks_though_workers_die() {
    let (builder, functions) = builder();
    let mut farm = builder.workers(3).deaths_max(100).start().await.unwrap();
    let victims = pids(&farm);
    let (mut ones, mut results) = (0, 0);
    let stats = farm.run_pool(&functions.halves, [40_000], |number| {
        ones += u64::from(number == 1);
        results += 1;
        if results % 10_000 == 0
            && let Some(&pid) = victims.get(results / 10_000 - 1)
        {
            proc::signal(pid, Signal::KILL);
        }
    });
    stats.await.unwrap();
    assert_eq!((ones, results), (40_000, 79_999));
    farm.finish(DEADLINE).await.unwrap();
}
