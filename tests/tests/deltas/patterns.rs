//! Patterns of nodes against a sequential computation, and their ends.

use std::time::Duration;

use chunkcomm::Node;
use chunkcomm_coupled::patterns::{
    Arrays, Chain, Compute, Pattern, PatternError, Run, Transfer, compare, run_head, run_middle,
    run_tail, sequential, serve,
};
use chunkcomm_testkit::limited;

use super::{Outcome, link, node};

/// None, one, one more than a page, and one that no increment divides.
const LENGTHS: [usize; 4] = [0, 1, 1025, 10_001];

/// Whole buffers and increments of an odd size, of pages, and of more than all.
const TRANSFERS: [Transfer; 6] = [
    Transfer::Whole,
    Transfer::Overlapped,
    Transfer::Delta(100),
    Transfer::Delta(4099),
    Transfer::Delta(8192),
    Transfer::Delta(1 << 20),
];

const WAIT: Compute = Compute::Wait(Duration::from_millis(2));

/// Returns runs of every computation, length and transfer.
fn runs(pattern: Pattern) -> Vec<Run> {
    let mut runs = Vec::new();
    for compute in Compute::ALL.into_iter().chain([WAIT]) {
        for elements in LENGTHS {
            for transfer in TRANSFERS {
                let number = runs.len() as u64;
                let independent = u32::from(transfer == Transfer::Overlapped);
                let run = Run::new(pattern, compute, elements);
                runs.push(Run { number, transfer, independent, ..run });
            }
        }
    }
    runs
}

/// Starts a node for each index but 0, each in a task that serves the head.
async fn followers(head: &Node, count: usize) -> Vec<tokio::task::JoinHandle<Result<(), String>>> {
    let mut tasks = Vec::new();
    for index in 1..count {
        let node = node(&format!("n{index}")).await;
        let peer = link(&node, head).await;
        tasks.push(tokio::spawn(async move {
            let served = serve(&node, &peer, index).await.map_err(|error| error.to_string());
            node.close(Duration::from_secs(5)).await.map_err(|error| error.to_string())?;
            served
        }));
    }
    tasks
}

/// Runs everything through `nodes` nodes that are led by the first.
async fn all_verified(nodes: usize, runs: &[Run]) -> Outcome {
    let head = node("n0").await;
    let followers = followers(&head, nodes).await;
    let mut chain = limited(Chain::gather(&head, nodes)).await?;
    assert_eq!(chain.nodes(), nodes);
    for run in runs {
        let outcome = limited(chain.run(run)).await;
        let outcome = outcome.map_err(|error| format!("{nodes} nodes, {run:?}: {error}"))?;
        assert_eq!(outcome.difference, None, "{nodes} nodes, {run:?}");
    }
    limited(chain.end()).await?;
    for follower in followers {
        limited(follower).await??;
    }
    Ok(())
}

#[tokio::test]
async fn a_ring_computes_on_what_came_from_the_node_before() -> Outcome {
    for nodes in [2, 3] {
        all_verified(nodes, &runs(Pattern::Ring)).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_cascade_computes_what_one_node_would() -> Outcome {
    all_verified(4, &runs(Pattern::Cascade)).await
}

#[tokio::test]
async fn a_wait_takes_its_time_at_each_node_that_is_whole() -> Outcome {
    let head = node("n0").await;
    let _followers = followers(&head, 3).await;
    let mut chain = limited(Chain::gather(&head, 3)).await?;
    let run = Run::new(Pattern::Cascade, Compute::Wait(Duration::from_millis(30)), 1000);
    assert!(limited(chain.run(&run)).await?.elapsed >= Duration::from_millis(90));
    for (number, transfer) in (1..).zip([Transfer::Whole, Transfer::Delta(400)]) {
        let ring = Run { number, transfer, pattern: Pattern::Ring, ..run.clone() };
        let elapsed = limited(chain.run(&ring)).await?.elapsed;
        assert!(elapsed >= Duration::from_millis(60), "a node waits for one array after the other");
    }
    limited(chain.end()).await?;
    Ok(())
}

/// Runs of a kind in turns with those of others, and of more kinds than stand.
#[tokio::test]
async fn further_runs_of_a_kind_are_verified_too() -> Outcome {
    for pattern in [Pattern::Cascade, Pattern::Ring] {
        let mut repeated = Vec::new();
        for compute in [Compute::Empty, Compute::Random] {
            for round in 0..4 {
                for transfer in &TRANSFERS[..if round == 3 { 4 } else { 3 }] {
                    let number = repeated.len() as u64;
                    let run = Run::new(pattern, compute, 10_001);
                    repeated.push(Run { number, transfer: *transfer, ..run });
                }
            }
        }
        all_verified(3, &repeated).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_further_run_of_a_kind_opens_no_channel() -> Outcome {
    let nodes = [node("n0").await, node("n1").await, node("n2").await];
    let to_1 = link(&nodes[0], &nodes[1]).await;
    let to_2 = link(&nodes[1], &nodes[2]).await;
    let mut arrays = [Arrays::default(), Arrays::default(), Arrays::default()];
    let (empty, random) = (Compute::Empty, Compute::Random);
    let computes = [empty, random, random, empty, empty, random];
    for (number, compute) in computes.into_iter().enumerate() {
        let run = Run { number: number as u64, ..Run::new(Pattern::Cascade, compute, 5000) };
        let [first, middle, last] = &mut arrays;
        for (index, arrays) in [&mut *first, &mut *middle, &mut *last].into_iter().enumerate() {
            limited(arrays.prepare(&run, index, 3)).await?;
        }
        if number == 4 {
            // The run before was of this kind, too: its elements are shown no more.
            assert!(last.result(compute).is_empty(), "{run:?}");
        }
        let parts = limited(async {
            tokio::try_join!(
                run_head(&nodes[0], &to_1, &run, first),
                run_middle(&nodes[1], &to_2, &run, middle),
                run_tail(&nodes[2], &run, last),
            )
        });
        let name = format!("chain.data.{number}");
        if number < 2 {
            parts.await?;
        } else {
            tokio::select! {
                biased;
                _ = nodes[1].accept_duplex_bytes(&name) => panic!("{run:?} opens a channel"),
                _ = nodes[2].accept_duplex_bytes(&name) => panic!("{run:?} opens a channel"),
                done = parts => drop(done?),
            }
        }
        assert_eq!(compare(last.result(compute), &sequential(compute, 3, 5000)), None);
    }
    Ok(())
}

/// The parts of the nodes without a head that orders them.
#[tokio::test]
async fn three_parts_make_a_chain() -> Outcome {
    let nodes = [node("n0").await, node("n1").await, node("n2").await];
    let to_1 = link(&nodes[0], &nodes[1]).await;
    let to_2 = link(&nodes[1], &nodes[2]).await;
    let mut arrays = [Arrays::default(), Arrays::default(), Arrays::default()];
    for run in runs(Pattern::Cascade) {
        let [first, middle, last] = &mut arrays;
        limited(first.prepare(&run, 0, 3)).await?;
        limited(middle.prepare(&run, 1, 3)).await?;
        limited(last.prepare(&run, 2, 3)).await?;
        limited(async {
            tokio::try_join!(
                run_head(&nodes[0], &to_1, &run, first),
                run_middle(&nodes[1], &to_2, &run, middle),
                run_tail(&nodes[2], &run, last),
            )
        })
        .await?;
        let expected = sequential(run.compute, 3, run.elements);
        assert_eq!(compare(last.result(run.compute), &expected), None, "{run:?}");
        assert!(last.result(run.compute) == expected, "one machine: equal to the last bit");
    }
    Ok(())
}

#[tokio::test]
async fn a_follower_that_leaves_fails_the_run_by_name() -> Outcome {
    for pattern in [Pattern::Cascade, Pattern::Ring] {
        let nodes = [node("n0").await, node("n1").await, node("n2").await];
        let follow = |index: usize| {
            let (node, first) = (nodes[index].clone(), nodes[0].clone());
            tokio::spawn(async move { serve(&node, &link(&node, &first).await, index).await })
        };
        let (stays, leaves) = (follow(1), follow(2));
        let mut chain = limited(Chain::gather(&nodes[0], 3)).await?;
        // Bytes on their way must be lost with the node: that is the point.
        let _ = nodes[2].close(Duration::ZERO).await;
        let transfer = Transfer::Delta(4096);
        let run = Run { transfer, ..Run::new(pattern, Compute::Random, 30_001) };
        let error = limited(chain.run(&run)).await.expect_err("a node is missing");
        assert!(error.to_string().contains("n2"), "{error}");
        assert!(!matches!(error, PatternError::OutOfStep { .. }), "{error:?}");
        drop(chain);
        // Both end; whether with an error depends on the event that each saw first.
        let _ = (limited(leaves).await?, limited(stays).await?);
    }
    Ok(())
}
