//! Groups in virtual time under load, and their ends.

use crate::virtual_cluster::on_each;
use chunkcomm::BytesSender;
use chunkcomm::host::{self, Instant};
use chunkcomm_cluster::Cluster;
use chunkcomm_group::{Algorithm, Group, GroupError, Op, Parts};
use chunkcomm_pipeline::{DeltaEnd, DeltaSendError, Flow, GroupDeltas};
use std::time::Duration;

async fn world(cluster: &Cluster) -> Group {
    Group::world(cluster).await.unwrap()
}

/// Rank 0 makes all calls at once, the others one after another: each message of a call stands behind those
/// of many later ones.
#[test]
fn a_rank_far_ahead_keeps_no_call_from_its_end() {
    const CALLS: usize = 2500;
    on_each(1, 4, &[], |rank, cluster| async move {
        let mut group = world(&cluster).await;
        group.set_algorithm(Algorithm::Ring);
        let mut ahead = Vec::new();
        for call in 0..CALLS {
            let mine = vec![(call * 10 + rank) as u32; 1000];
            let gathered = group.all_gather(mine);
            if rank == 0 {
                ahead.push(gathered);
            } else {
                let all = gathered.await.unwrap().result;
                assert_eq!(all.part(3)[999], (call * 10 + 3) as u32);
            }
        }
        for gathered in ahead {
            gathered.await.unwrap();
        }
    });
}

#[test]
fn a_root_far_ahead_waits_for_the_rank_that_takes_nothing() {
    on_each(3, 2, &[], |rank, cluster| async move {
        let mut group = world(&cluster).await;
        if rank == 1 {
            host::sleep(Duration::from_secs(20)).await;
        }
        let since = Instant::now();
        for call in 0..1000_u32 {
            let broadcast = group.broadcast(0, vec![call; 10_000]);
            if rank == 0 && call == 999 {
                // More than the memory of both ranks for words.
                host::sleep(Duration::from_secs(1)).await;
                let report = group.explain().to_string();
                assert!(report.contains("waits for rank 1"), "{report}");
            }
            if rank == 0 && call > 500 {
                drop(broadcast);
            } else if rank == 0 {
                tokio::select! {
                    biased;
                    _ = broadcast => {}
                    () = host::sleep(Duration::from_millis(10)) => {}
                }
            } else {
                assert_eq!(broadcast.await.unwrap(), vec![call; 10_000]);
            }
        }
        group.barrier().await.unwrap();
        assert!(rank == 1 || since.elapsed() > Duration::from_secs(19));
    });
}

#[test]
fn a_group_whose_channels_have_no_room_breaks_by_their_names() {
    on_each(7, 2, &[], |rank, cluster| async move {
        let channels = fill(&cluster, rank, 512).await;
        let mut group = world(&cluster).await;
        let error = group.barrier().await.unwrap_err();
        let GroupError::Lost { rank: of, loss } = error.cause else { panic!("{error}") };
        let why = loss.to_string();
        assert_eq!(of, rank);
        let ends = format!(
            "/{0} to rank {0} has not opened for 10s: the peer has no room for one more channel",
            1 - rank
        );
        assert!(why.starts_with("its channel ") && why.ends_with(&ends), "{why}");
        // With room the group says its last words.
        drop((group, channels));
        host::sleep(Duration::from_secs(5)).await;
    });
}

#[test]
fn a_call_whose_transfers_have_no_room_breaks_its_group_by_their_names() {
    for kind in 0..3 {
        on_each(11, 2, &[], move |rank, cluster| async move {
            let mut group = world(&cluster).await;
            group.set_algorithm(Algorithm::Ring);
            group.barrier().await.unwrap();
            let channels = fill(&cluster, rank, 512).await;
            // Both have filled their sides.
            group.barrier().await.unwrap();
            let (data, flow) = (vec![1_u64; 20_000], Flow::default());
            let cause = match kind {
                0 => group.all_reduce(data, Op::sum()).await.unwrap_err().cause,
                // It waits for the other's transfers while it opens its own.
                1 => {
                    group.all_reduce_delta(data, Op::sum(), flow).await.map(drop).unwrap_err().cause
                }
                _ => match group.broadcast_delta(0, data, flow).await {
                    Ok(DeltaEnd::Sender(mut sender)) => {
                        sender.part(..).unwrap().commit();
                        match sender.finish().await {
                            Err(DeltaSendError::Collective(loss)) => {
                                loss.cause::<GroupError>().unwrap().clone()
                            }
                            other => panic!("{other:?}"),
                        }
                    }
                    other => other.map(drop).unwrap_err().cause,
                },
            };
            let GroupError::Lost { rank: of, loss } = cause else { panic!("{cause}") };
            let why = loss.to_string();
            let (of, to) = (of as u32, 1 - of as u32);
            let named = why.starts_with("channel \"") && why.contains(&format!("/{of}-{to}"));
            let why_not = "has not opened for 10s: the peer has no room for one more channel";
            assert!(named && why.ends_with(why_not), "{why}");
            drop((group, channels));
            host::sleep(Duration::from_secs(5)).await;
        });
    }
}

/// They wait behind others, which open one after the other.
#[test]
fn a_call_whose_transfers_wait_for_their_turn_to_open_goes_on() {
    on_each(12, 2, &[], |rank, cluster| async move {
        let mut group = world(&cluster).await;
        group.set_algorithm(Algorithm::Ring);
        group.barrier().await.unwrap();
        let channels = fill(&cluster, rank, 520).await;
        group.barrier().await.unwrap();
        let since = Instant::now();
        host::spawn(async move {
            for channel in channels {
                host::sleep(Duration::from_secs(4)).await;
                drop(channel);
            }
        });
        let sum = group.all_reduce(vec![1_u64; 20_000], Op::sum()).await.unwrap();
        assert_eq!(sum, [2; 20_000]);
        assert!(since.elapsed() > Duration::from_secs(30), "{:?}", since.elapsed());
        group.barrier().await.unwrap();
    });
}

/// Opens channels; some wait for room from 512 on, since those of the cluster are there.
async fn fill(cluster: &Cluster, rank: usize, count: usize) -> Vec<BytesSender> {
    let peer = cluster.peer(1 - rank as u32).await.unwrap();
    let mut channels = Vec::new();
    for number in 0..count {
        let node = cluster.node().clone();
        host::spawn(async move {
            let (_, mut receiver) = node.accept_bytes(&*format!("{number}")).await.unwrap();
            while let Ok(Some(_)) = receiver.recv().await {}
        });
        let mut sender = cluster.node().open_bytes(&peer, &*format!("{number}")).await.unwrap();
        sender.send_slice(b"open").await.unwrap();
        channels.push(sender);
    }
    channels
}

#[test]
fn large_values_travel_in_calls() {
    on_each(4, 3, &[], |rank, cluster| async move {
        let mut group = world(&cluster).await;
        let given = (rank == 1).then(|| "word ".repeat(100_000));
        let word = group.broadcast_value(1, given).await.unwrap();
        assert_eq!(word.len(), 500_000);
        let words = group.all_gather_values(word[..10_000 * (rank + 1)].to_owned()).await.unwrap();
        assert_eq!(words.iter().map(String::len).collect::<Vec<_>>(), [10_000, 20_000, 30_000]);
    });
}

#[test]
fn data_come_back_from_calls_that_make_no_sense() {
    on_each(5, 2, &[], |rank, cluster| async move {
        let mut group = world(&cluster).await;
        let mine = vec![rank as u64; 20_000];
        let error = group.broadcast(7, mine.clone()).await.unwrap_err();
        assert_eq!(error.data, mine, "{error}");
        let (mut group, _) = group.shrink().await.unwrap();
        let error = group.reduce(7, mine.clone(), Op::sum()).await.unwrap_err();
        assert_eq!(error.data, mine, "{error}");
        let (mut group, _) = group.shrink().await.unwrap();
        let parts = Parts { data: mine, counts: vec![1, 2] };
        let error = group.reduce_scatter(parts.clone(), Op::sum()).await.unwrap_err();
        assert_eq!(error.data.input, parts, "{error}");
    });
}

#[test]
fn operators_that_differ_in_their_order_are_told_apart() {
    on_each(6, 2, &[], |rank, cluster| async move {
        let mut group = world(&cluster).await;
        let op = Op::named("or", |a: &u64, b: &u64| a | b);
        let op = if rank == 0 { op.commutative() } else { op };
        let error = group.all_reduce(vec![1_u64; 100_000], op).await.unwrap_err();
        assert_eq!(error.data, [1; 100_000]);
        let GroupError::Differs(difference) = error.cause else { panic!("{error}") };
        assert!(difference.calls[1].contains("not commutative"), "{difference}");
    });
}

/// The other group never comes.
#[test]
fn a_meeting_ends_with_a_death_in_its_group() {
    on_each(7, 3, &[(2, Duration::from_secs(2))], |_, cluster| async move {
        let mut group = world(&cluster).await;
        let error = group.meet("nobody").await.err().unwrap();
        assert_eq!(error.death().map(|(rank, _)| rank), Some(2), "{error}");
    });
}

#[test]
fn a_death_in_a_large_call_is_the_error_of_all_and_gives_the_data_back() {
    for moment in 0..4 {
        let at = Duration::from_millis(40 + 11 * moment);
        on_each(moment, 4, &[(1, at)], |rank, cluster| async move {
            let mut group = world(&cluster).await;
            let mine = vec![rank as u64; 1 << 18];
            let error = loop {
                match group.all_reduce(mine.clone(), Op::sum()).await {
                    Ok(sums) => assert_eq!(sums[1 << 17], 6),
                    Err(error) => break error,
                }
            };
            assert_eq!(error.data, mine);
            assert_eq!(error.cause.death().map(|(rank, _)| rank), Some(1), "{error}");
            let (mut group, _) = group.shrink().await.unwrap();
            assert_eq!(group.all_reduce(mine, Op::sum()).await.unwrap()[7], 5);
        });
    }
}
