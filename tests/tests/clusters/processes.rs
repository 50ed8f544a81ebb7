//! Processes at the nodes of a cluster.

use crate::joining::{cluster, end_all};
use chunkcomm_cluster::cluster::{ClusterConfig, Death};
use chunkcomm_cluster::process::ProcessError;
use chunkcomm_cluster::{NodeExt, Process, Registry, TravellingSender, ValueWriter};
use chunkcomm_testkit::{limited, on_both, on_one_thread};
use std::sync::{Arc, OnceLock};

pub(crate) struct Programs {
    pub(crate) registry: Registry,
    pub(crate) rank: Process<ValueWriter<u32>>,
    pass: Process<(Vec<u32>, TravellingSender<u32>)>,
    wait: Process<ValueWriter<u32>>,
}

pub(crate) fn programs() -> Programs {
    let mut registry = Registry::new();
    let rank = registry.process("rank", |context, writer: ValueWriter<u32>| async move {
        let cluster = context.cluster().ok_or_else(no_cluster)?;
        writer.write(&cluster.rank()).await?;
        Ok(())
    });
    // Sends its rank and asks the next node to do the same, by a handle to itself.
    let own = Arc::new(OnceLock::<Process<(Vec<u32>, TravellingSender<u32>)>>::new());
    let itself = Arc::clone(&own);
    let pass = registry.process("pass", move |context, (mut ranks, out): (Vec<u32>, _)| {
        let itself = itself.clone();
        async move {
            let cluster = context.cluster().ok_or_else(no_cluster)?;
            let out: TravellingSender<u32> = out;
            let Some(next) = ranks.pop() else {
                let mut out = out.connect().await?;
                out.send(&cluster.rank()).await?;
                return Ok(());
            };
            let process = itself.get().expect("set before the node was built");
            cluster.instantiate(next, process, (ranks, out)).await?.await?;
            Ok(())
        }
    });
    own.set(pass.clone()).expect("only here");
    let wait = registry.process("wait", |_, writer: ValueWriter<u32>| async move {
        std::future::pending::<()>().await;
        writer.write(&0).await?;
        Ok(())
    });
    Programs { registry, rank, pass, wait }
}

fn no_cluster() -> chunkcomm_cluster::process::Failure {
    chunkcomm_cluster::process::Failure::new("the cluster has ended")
}

fn with(programs: &Programs) -> impl Fn(ClusterConfig) -> ClusterConfig {
    let registry = programs.registry.clone();
    move |config| config.registry(&registry)
}

#[test]
fn every_node_can_ask_every_node() {
    on_both(|| async {
        let programs = programs();
        let (nodes, _) = cluster(3, with(&programs)).await;
        for from in &nodes {
            for to in &nodes {
                let (writer, value) = from.node().value().unwrap();
                let process = from.instantiate(to.rank(), &programs.rank, writer).await.unwrap();
                assert_eq!(limited(value.get()).await.unwrap(), &to.rank());
                limited(process).await.unwrap();
            }
            let mut chosen = Vec::new();
            for _ in 0..4 {
                let (writer, value) = from.node().value().unwrap();
                let asked = from.instantiate_somewhere(&programs.rank, writer).await.unwrap();
                chosen.push(*limited(value.get()).await.unwrap());
                limited(asked).await.unwrap();
            }
            assert_eq!(chosen[..2], chosen[2..], "in turn");
            assert!(!chosen.contains(&from.rank()) && chosen[0] != chosen[1], "{chosen:?}");
        }
        end_all(&nodes).await;
    });
}

#[test]
fn an_end_passes_through_processes_on_all_nodes() {
    on_both(|| async {
        let programs = programs();
        let (nodes, _) = cluster(4, with(&programs)).await;
        let (out, mut from) = nodes[0].node().travelling_sender().unwrap();
        let input = (vec![3, 0, 2], out);
        let process = nodes[0].instantiate(1, &programs.pass, input).await.unwrap();
        assert_eq!(limited(from.recv()).await.unwrap(), Some(3));
        assert_eq!(limited(from.recv()).await.unwrap(), None);
        limited(process).await.unwrap();
        end_all(&nodes).await;
    });
}

#[test]
fn a_member_that_dies_is_named_by_its_rank() {
    on_one_thread(async {
        let programs = programs();
        let (mut nodes, _) = cluster(3, with(&programs)).await;
        let (writer, value) = nodes[1].node().value().unwrap();
        let process = nodes[1].instantiate(2, &programs.wait, writer).await.unwrap();
        drop(nodes.remove(2));
        let error = limited(process).await.unwrap_err();
        let ProcessError::Lost { .. } = &error else { panic!("{error}") };
        assert!(error.to_string().contains("rank-2"), "{error}");
        let error = limited(value.get()).await.unwrap_err();
        assert!(error.to_string().contains("rank-2"), "{error}");
        limited(async {
            while nodes[1].member(2).is_some() {
                tokio::task::yield_now().await;
            }
        })
        .await;
        let (writer, _value) = nodes[1].node().value().unwrap();
        let error = nodes[1].instantiate(2, &programs.wait, writer).await.unwrap_err();
        let ProcessError::Unreachable(loss) = &error else { panic!("{error}") };
        assert!(loss.cause::<Death>().is_some(), "{error}");
        end_all(&nodes).await;
    });
}
