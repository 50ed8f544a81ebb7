//! Farms with sub-farmers: rank 0 is here, the other nodes are processes.

use std::sync::Arc;
use std::time::Duration;

use super::farm_cluster::{DEADLINE, Others, builder, cluster};
use chunkcomm_cluster::Cluster;
use chunkcomm_cluster::cluster::Death;
use chunkcomm_farm::settings::{TaskTimeout, Tree};
use chunkcomm_farm::{Farm, RunError, StartError, TaskError};
use chunkcomm_testkit::{blocking, proc};
use chunkcomm_tests::farm_tasks::Functions;
use rustix::process::Signal;

#[tokio::test]
async fn results_pass_through_sub_farmers() {
    let (cluster, others) = cluster(6, &[]).await;
    let (builder, functions) = builder();
    let mut farm = builder.tree(Tree::FanOut(3)).start_in(&cluster).await.unwrap();
    let outcome = farm.run(&functions.double, 0..1000).await.unwrap();
    let expected: Vec<u64> = (0..1000).map(|number| number * 2).collect();
    assert_eq!(outcome.results, expected);
    let worked = farm.run(&functions.sleep, vec![20; 60]).await.unwrap();
    let mut pids: Vec<u32> = worked.results;
    pids.sort_unstable();
    pids.dedup();
    let mut expected = others.pids();
    expected.sort_unstable();
    assert_eq!(pids, expected);
    // A row for each sub-farmer.
    assert_eq!(worked.stats.workers.len(), 2);
    assert_eq!(worked.stats.tasks, 60);
    farm.finish(DEADLINE).await.unwrap();
    others.end_with(cluster).await;
}

/// Ranks 1 and 4 are sub-farmers; 2 and 3, and 5 and 6, are below them.
async fn tree_of_six() -> (Cluster, Others, Farm, Functions) {
    let (cluster, others) = cluster(7, &[]).await;
    let (builder, functions) = builder();
    let builder = builder.tree(Tree::FanOut(3)).deaths_max(1000);
    let farm = builder.start_in(&cluster).await.unwrap();
    (cluster, others, farm, functions)
}

/// Ends the farm in good order, and the cluster.
async fn end(cluster: Cluster, mut others: Others, farm: Farm) {
    farm.finish(DEADLINE).await.unwrap();
    cluster.finish();
    // An error names the messages that a dead node did not get.
    let _ = cluster.end(DEADLINE).await;
    for other in &mut others.0 {
        blocking::until_some("a node does not end", || other.0.try_wait().unwrap());
    }
}

/// Squares of 2 ms; kills these nodes when a fifth is done.
async fn squares_while_dying(
    farm: &mut Farm,
    functions: &Functions,
    pids: &[u32],
) -> chunkcomm_farm::RunStats {
    const TASKS: u64 = 1500;
    let mut squares = vec![0; TASKS as usize];
    let mut done = 0;
    let results = farm.stream(&functions.square, 0..TASKS).unwrap().as_completed();
    let run = results.for_each(|index, square| {
        squares[index as usize] = square;
        done += 1;
        if done == TASKS / 5 {
            pids.iter().for_each(|&pid| proc::signal(pid, Signal::KILL));
        }
    });
    let stats = tokio::time::timeout(DEADLINE, run).await.expect("a death is noticed").unwrap();
    assert!((0..TASKS).all(|number| squares[number as usize] == number * number));
    assert_eq!(done, TASKS);
    stats
}

#[tokio::test]
async fn the_death_of_a_sub_farmer_loses_no_task_and_those_below_it_go_on() {
    let (cluster, others, mut farm, functions) = tree_of_six().await;
    let pids = others.pids();
    let stats = squares_while_dying(&mut farm, &functions, &pids[..1]).await;
    let lost = stats.workers[0].lost.as_ref();
    assert!(lost.is_some_and(|loss| loss.cause::<Death>().is_some()), "{lost:?}");
    assert!(stats.mishaps.reissued > 0);
    // All that live work.
    let worked = farm.run(&functions.sleep, vec![20; 100]).await.unwrap();
    let mut worked = worked.results;
    worked.sort_unstable();
    worked.dedup();
    let mut expected = pids[1..].to_vec();
    expected.sort_unstable();
    assert_eq!(worked, expected);
    end(cluster, others, farm).await;
}

#[tokio::test]
async fn all_sub_farmers_may_die() {
    let (cluster, others, mut farm, functions) = tree_of_six().await;
    let pids = others.pids();
    squares_while_dying(&mut farm, &functions, &[pids[0], pids[3]]).await;
    end(cluster, others, farm).await;
}

#[tokio::test]
async fn the_death_of_a_node_below_is_its_sub_farmers_matter() {
    let (cluster, others, mut farm, functions) = tree_of_six().await;
    let pids = others.pids();
    let stats = squares_while_dying(&mut farm, &functions, &[pids[1], pids[5]]).await;
    assert!(stats.workers.iter().all(|worker| worker.lost.is_none()));
    assert_eq!(stats.mishaps.reissued, 0, "the farmer does not see it");
    let reissued = stats.workers.iter().map(|worker| worker.mishaps_below.reissued);
    assert!(reissued.sum::<u64>() > 0, "{:?}", stats.workers);
    end(cluster, others, farm).await;
}

#[tokio::test]
async fn errors_and_shared_values_pass_through() {
    let (cluster, others, mut farm, functions) = tree_of_six().await;
    let list = farm.share(Arc::new((0..100_000u64).map(|n| n * 3).collect::<Vec<_>>())).unwrap();
    let tasks = (0..500).map(|at| (list.clone(), at));
    let picked = farm.run(&functions.pick, tasks).await.unwrap().results;
    assert!((0..500).all(|at| picked[at as usize] == at * 3));
    drop(list);
    let error = farm.run(&functions.unlucky, 0..1000).await.unwrap_err();
    assert!(matches!(error, RunError::Task(TaskError::Failed { index: 13, .. })), "{error}");
    assert!(error.to_string().contains("13 is unlucky"), "{error}");
    // The run that failed, and one that is cancelled, leave nothing behind.
    let cancelled = farm.run(&functions.sleep, vec![20; 1000]);
    assert!(tokio::time::timeout(Duration::from_millis(50), cancelled).await.is_err());
    let doubled = farm.run(&functions.double, 0..5000).await.unwrap().results;
    assert!((0..5000).all(|number| doubled[number as usize] == number * 2));
    // The attempt and the index are those of the farmer's tasks.
    let texts = farm.map_reduce(&functions.words, 0..3000).await.unwrap();
    let expected: String = (0..3000).map(|number| format!("{number} ")).collect();
    assert_eq!(texts.value, Some(expected));
    end(cluster, others, farm).await;
}

#[tokio::test]
async fn a_task_that_kills_is_set_aside_below_a_sub_farmer() {
    let (cluster, others) = cluster(7, &[]).await;
    let (builder, functions) = builder();
    let builder = builder.tree(Tree::FanOut(6)).deaths_max(1);
    let mut farm = builder.start_in(&cluster).await.unwrap();
    // It may be given to the sub-farmer's own thread, and then the farmer sees the death.
    let outcome = farm.run_to_end(&functions.exit, [7]).await.unwrap();
    let Err(error) = &outcome.results[0] else { panic!("it ends its process") };
    assert!(matches!(error, TaskError::SetAside { index: 0, deaths: 1, .. }), "{error}");
    assert_eq!(farm.run(&functions.double, [4]).await.unwrap().results, [8]);
    end(cluster, others, farm).await;
}

#[tokio::test]
async fn a_task_that_does_not_end_fails_alone_below_a_sub_farmer() {
    let (cluster, others) = cluster(5, &[]).await;
    let (builder, functions) = builder();
    let builder = builder.tree(Tree::FanOut(4));
    let limit =
        TaskTimeout { timeout: Duration::from_millis(100), grace: Duration::from_millis(100) };
    let builder = builder.task_timeout(limit).grain(1);
    let mut farm = builder.start_in(&cluster).await.unwrap();
    let sleeps = (0..40).map(|at| if at % 10 == 5 { 3000 } else { 1 });
    let outcome = farm.run_to_end(&functions.sleep, sleeps).await.unwrap();
    for (at, result) in outcome.results.iter().enumerate() {
        match result {
            Ok(_) => assert!(at % 10 != 5, "{at}"),
            Err(error) => {
                assert!(
                    matches!(error, TaskError::TimedOut { .. }) && at % 10 == 5,
                    "{at} {error}"
                );
            }
        }
    }
    farm.finish(DEADLINE).await.unwrap();
    others.end_with(cluster).await;
}

#[tokio::test]
async fn a_start_that_fails_leaves_the_nodes_for_the_next_farm() {
    let (cluster, others) = cluster(6, &[]).await;
    // Sub-farmers are at different points of their start then.
    for ms in [0, 1, 2, 4, 8, 16, 32] {
        let (builder, _) = builder();
        let builder = builder.tree(Tree::FanOut(3)).start_deadline(Duration::from_millis(ms));
        if let Err(error) = builder.start_in(&cluster).await {
            assert!(matches!(error, StartError::Late { .. }), "{error}");
        }
    }
    let (builder, functions) = builder();
    let mut farm = builder.tree(Tree::FanOut(3)).start_in(&cluster).await.unwrap();
    assert_eq!(farm.run(&functions.double, [4]).await.unwrap().results, [8]);
    farm.finish(DEADLINE).await.unwrap();
    others.end_with(cluster).await;
}
