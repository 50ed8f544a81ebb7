//! Values that many tasks read.

use std::sync::Arc;
use std::time::Duration;

use chunkcomm_farm::settings::WorkersAs;
use chunkcomm_farm::{RunError, TaskError};
use tokio::time::timeout;

use crate::farm::{DEADLINE, builder, kill, pids};

/// Numbers that take several messages.
fn numbers() -> Arc<Vec<u64>> {
    Arc::new((0..50_000).map(|number| number * number).collect())
}

#[tokio::test]
async fn a_value_travels_once_to_each_worker() {
    for workers_as in [WorkersAs::Process, WorkersAs::Thread] {
        let (builder, functions) = builder();
        let mut farm = builder.workers_as(workers_as).grain(10).start().await.unwrap();
        let squares = farm.share(numbers()).unwrap();
        let tasks = |count: u64| (0..count).map(|at| (squares.clone(), at));
        let first = farm.run(&functions.pick, tasks(1000)).await.unwrap();
        assert!(first.results.iter().zip(0..).all(|(&result, at)| result == at * at));
        let bytes = first.stats.traffic.packet_bytes_sent;
        assert!(bytes > 2 * 400_000, "both have it: {bytes}");
        let again = farm.run(&functions.pick, tasks(1000)).await.unwrap();
        assert_eq!(again.results, first.results);
        let bytes = again.stats.traffic.packet_bytes_sent;
        assert!(bytes < 400_000, "nobody gets it again: {bytes}");
        farm.finish(DEADLINE).await.unwrap();
    }
}

#[tokio::test]
async fn workers_that_come_later_get_the_values_too() {
    let (builder, functions) = builder();
    let mut farm = builder.start().await.unwrap();
    let squares = farm.share(numbers()).unwrap();
    for victim in pids(&farm) {
        kill(victim);
        let tasks = (0..20_000).map(|at| (squares.clone(), at));
        let outcome = timeout(DEADLINE, farm.run(&functions.pick, tasks)).await.unwrap().unwrap();
        assert_eq!(outcome.results.iter().max(), Some(&(19_999 * 19_999)));
    }
    farm.finish(DEADLINE).await.unwrap();
}

#[tokio::test]
async fn a_value_is_forgotten_with_its_handles() {
    let (builder, functions) = builder();
    let mut farm = builder.workers(1).workers_as(WorkersAs::Thread).start().await.unwrap();
    let squares = farm.share(numbers()).unwrap();
    // A task that outlives the handle, as one in a file would.
    let mut bytes = Vec::new();
    chunkcomm::codec::encode_into_vec(&(squares.clone(), 3u64), &mut bytes).unwrap();
    let late = || chunkcomm::codec::decode(&bytes).unwrap();
    assert_eq!(farm.run(&functions.pick, [late()]).await.unwrap().results, [9]);
    drop(squares);
    let error = farm.run(&functions.pick, [late()]).await.unwrap_err();
    let RunError::Task(TaskError::Failed { text, .. }) = &error else { panic!("{error}") };
    assert!(text.ends_with("is not here: its handles were dropped"), "{text}");
    // Another of the same content is sent anew.
    let squares = farm.share(numbers()).unwrap();
    assert_eq!(farm.run(&functions.pick, [(squares.clone(), 5)]).await.unwrap().results, [25]);
    farm.finish(Duration::from_secs(10)).await.unwrap();
}
