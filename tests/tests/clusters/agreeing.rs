//! Agreements of nodes.

use crate::joining::{LONG, cluster, config, end_all};
use chunkcomm_cluster::cluster::{AgreeError, Agreed, Cluster, End, NodeId};
use chunkcomm_testkit::{limited, on_both, on_one_thread, until};
use std::future::{pending, poll_fn, ready};
use std::task::Poll;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::timeout;

fn agree(
    node: &Cluster,
    name: &str,
    among: &[NodeId],
    value: &str,
) -> JoinHandle<Result<Agreed, AgreeError>> {
    let (node, name, among, value) =
        (node.clone(), name.to_owned(), among.to_vec(), value.as_bytes().to_vec());
    tokio::spawn(async move { node.agree(&name, &among, &value).await })
}

async fn texts(agreeing: JoinHandle<Result<Agreed, AgreeError>>) -> (Vec<String>, Vec<u32>) {
    let Agreed { values, gone } = limited(agreeing).await.unwrap().unwrap();
    let text =
        |(id, value): &(NodeId, Vec<u8>)| format!("{} {}", id.rank, String::from_utf8_lossy(value));
    (values.iter().map(text).collect(), gone.iter().map(|id| id.rank).collect())
}

/// Proposes, and drops the future, which the last one to propose may find ready at once.
async fn propose_only(node: &Cluster, name: &str, among: &[NodeId], value: &str) {
    let mut agreeing = Box::pin(node.agree(name, among, value.as_bytes()));
    poll_fn(|context| Poll::Ready(agreeing.as_mut().poll(context).is_ready())).await;
}

fn ids(nodes: &[Cluster]) -> Vec<NodeId> {
    nodes.iter().map(Cluster::id).collect()
}

#[test]
fn nodes_agree_whatever_dies_among_them() {
    on_both(|| async {
        let (mut nodes, _) = cluster(4, |config| config).await;
        let all = ids(&nodes);
        // Another agreement of the same name, a part of the nodes, an abandoned call.
        for round in 0..3 {
            let value = format!("in {round}");
            let agreeing: Vec<_> =
                nodes.iter().map(|node| agree(node, "x", &all, &value)).collect();
            let expected: Vec<String> = (0..4).map(|rank| format!("{rank} {value}")).collect();
            for one in agreeing {
                assert_eq!(texts(one).await, (expected.clone(), vec![]));
            }
        }
        let (first, third) = (agree(&nodes[0], "x", &[all[2], all[0]], "a"), &nodes[2]);
        propose_only(third, "x", &[all[0], all[2]], "b").await;
        assert_eq!(texts(first).await.0, ["0 a", "2 b"]);
        let again = agree(third, "x", &[all[0], all[2]], "c");
        assert_eq!(texts(again).await.0, ["0 a", "2 b"]);
        // Two nodes die, and the manager has heard the proposal of the first: another word of that node has
        // been answered. Only the second death lets it decide.
        let agreeing = [0, 3].map(|rank| agree(&nodes[rank], "y", &all, "y"));
        propose_only(&nodes[1], "y", &all, "y").await;
        limited(nodes[1].provide("a word")).await.unwrap();
        drop(nodes.remove(1));
        limited(until(|| nodes[0].deaths().iter().any(|death| death.id == all[1]))).await;
        drop(nodes.remove(1));
        for one in agreeing {
            assert_eq!(texts(one).await, (vec!["0 y".to_owned(), "3 y".to_owned()], vec![1, 2]));
        }
        end_all(&nodes).await;
    });
}

#[test]
fn proposals_that_do_not_fit_say_why() {
    on_one_thread(async {
        let (nodes, _) = cluster(2, |config| config).await;
        let all = ids(&nodes);
        let error = nodes[0].agree("x", &all[1..], b"").await.unwrap_err();
        let text = "no agreement on \"x\": this node is not among the members that are to agree";
        assert_eq!(error.to_string(), text);
        let error = nodes[0].agree("x", &all, &[0; 1025]).await.unwrap_err();
        let text = "no agreement on \"x\": a value has at most 1024 bytes, and this one 1025";
        assert_eq!(error.to_string(), text);
        propose_only(&nodes[0], "x", &all, "").await;
        let error = limited(nodes[0].agree("x", &all[..1], b"")).await.unwrap_err();
        let text = "no agreement on \"x\": this node names 1 members, and rank 0 has named 2, not \
                    the same ones";
        assert_eq!(error.to_string(), text);
        assert_eq!(texts(agree(&nodes[1], "x", &all, "1")).await.0, ["0 ", "1 1"]);
        nodes[0].finish();
        limited(nodes[1].finished()).await;
        let error = limited(nodes[1].agree("x", &all, b"")).await.unwrap_err();
        let AgreeError::Ended(End::Finished { .. }) = error else { panic!("{error}") };
        end_all(&nodes).await;
    });
}

#[test]
fn calls_meet_two_by_two_as_they_come() {
    on_both(|| async {
        let (nodes, _) = cluster(3, |config| config).await;
        let meet = |rank: usize, value: &str| {
            let (node, value) = (nodes[rank].clone(), value.to_owned());
            tokio::spawn(async move { node.meet("x", value.as_bytes(), pending()).await })
        };
        let other = |(id, value): (NodeId, Vec<u8>)| (id.rank, String::from_utf8(value).unwrap());
        let (first, second) = (meet(1, "a"), meet(2, "b"));
        assert_eq!(limited(first).await.unwrap().unwrap().map(other), Some((2, "b".to_owned())));
        assert_eq!(limited(second).await.unwrap().unwrap().map(other), Some((1, "a".to_owned())));
        // Nobody comes; a dropped call is met no more; two of one node meet each other.
        assert_eq!(limited(nodes[0].meet("x", b"", ready(()))).await.unwrap(), None);
        assert!(
            timeout(Duration::from_millis(1), nodes[0].meet("x", b"", pending())).await.is_err()
        );
        let (third, fourth) = (meet(1, "c"), meet(1, "d"));
        assert_eq!(limited(third).await.unwrap().unwrap().map(other), Some((1, "d".to_owned())));
        assert_eq!(limited(fourth).await.unwrap().unwrap().map(other), Some((1, "c".to_owned())));
        end_all(&nodes).await;
    });
}

#[test]
fn an_agreement_outlives_its_manager() {
    on_one_thread(async {
        let (mut nodes, port) = cluster(3, |config| config.rejoin_window(LONG)).await;
        let all = ids(&nodes);
        let waiting = agree(&nodes[2], "x", &all, "2");
        // The manager has heard the proposal: it is asked for another word by the same node.
        limited(nodes[2].provide("a word")).await.unwrap();
        drop(nodes.remove(0));
        while std::net::TcpListener::bind(("127.0.0.1", port)).is_err() {
            tokio::task::yield_now().await;
        }
        let back = config(Some(0), 3, port).rejoin_window(LONG);
        let back = limited(Cluster::join(back)).await.unwrap();
        let agreeing = agree(&nodes[0], "x", &all, "1");
        let expected = (vec!["1 1".to_owned(), "2 2".to_owned()], vec![0]);
        for one in [waiting, agreeing] {
            assert_eq!(texts(one).await, expected);
        }
        nodes.push(back);
        end_all(&nodes).await;
    });
}
