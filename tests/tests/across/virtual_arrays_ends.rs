//! Ends of array transfers that are dropped, and ranks that die, in virtual time.

use crate::virtual_arrays::{Case, Use, array, halves, in_time, layout, receive, send};
use crate::virtual_cluster::on_each;
use chunkcomm::host::{self, Instant};
use chunkcomm_array::{
    Array, ArrayError, ArrayPort, ArrayReceiver, ArraySender, Layout, Side, Transfer, Visitor,
};
use chunkcomm_cluster::Cluster;
use chunkcomm_group::{Group, Pair};
use chunkcomm_simulation::{Random, each_seed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// End of a rank.
type Fates = Arc<Mutex<Vec<(usize, Result<(), ArrayError>)>>>;

/// Time in which a program that has seen an error still holds its end.
const HELD: Duration = Duration::from_secs(90);

/// Time between two rounds of a sender.
const PAUSE: Duration = Duration::from_millis(50);

fn ones(group: &Group, layout: &Layout) -> Array<u64> {
    array(group, layout, vec![1; layout.local_len(group.rank())])
}

/// Sends rounds until there is an error.
async fn sends(
    array: Array<u64>,
    pair: &mut Pair,
    settings: Transfer,
    rounds: u32,
) -> Result<Option<ArraySender<u64>>, (Option<ArraySender<u64>>, ArrayError)> {
    let opened = array.sender_with(pair, settings).await;
    let mut sender = opened.map_err(|error| (None, error.cause))?;
    for round in 0..rounds {
        let moved = async {
            if round > 0 {
                host::sleep(PAUSE).await;
                sender.start().await?;
            }
            sender.commit_all()?;
            if round + 1 == rounds { sender.finish().await } else { Ok(()) }
        };
        if let Err(error) = moved.await {
            return Err((Some(sender), error));
        }
    }
    Ok(Some(sender))
}

/// Receives rounds until there is an error.
async fn receives(
    array: Array<u64>,
    pair: &mut Pair,
    settings: Transfer,
    rounds: u32,
) -> Result<Option<ArrayReceiver<u64>>, (Option<ArrayReceiver<u64>>, ArrayError)> {
    let accepted = array.receiver_with(pair, settings).await;
    let mut receiver = accepted.map_err(|error| (None, error.cause))?;
    for round in 0..rounds {
        let moved = async {
            if round > 0 {
                receiver.start().await?;
            }
            receiver.finish().await.map(drop)
        };
        if let Err(error) = moved.await {
            return Err((Some(receiver), error));
        }
    }
    Ok(Some(receiver))
}

/// Transfers between two groups while a rank dies; every other one ends in time, and holds its end meanwhile.
fn dies(
    seed: u64,
    case: &Case,
    settings: &Transfer,
    rounds: u32,
    (dead, at): (usize, Duration),
) -> Vec<(usize, Result<(), ArrayError>)> {
    let fates = Fates::default();
    let all = Arc::clone(&fates);
    let (case, settings) = (case.clone(), settings.clone());
    let (senders, size) = (case.from.ranks(), case.from.ranks() + case.to.ranks());
    on_each(seed, size, &[(dead, at)], move |rank, cluster| {
        let (case, settings, fates) = (case.clone(), settings.clone(), Arc::clone(&all));
        async move {
            let Some((low, group, mut pair)) = halves_or_death(&cluster, rank, senders).await
            else {
                return;
            };
            let fate = in_time(async {
                if low {
                    let fate = sends(ones(&group, &case.from), &mut pair, settings, rounds).await;
                    fate.map(|end| (end, None)).map_err(|(end, error)| ((end, None), error))
                } else {
                    let fate = receives(ones(&group, &case.to), &mut pair, settings, rounds).await;
                    fate.map(|end| (None, end)).map_err(|(end, error)| ((None, end), error))
                }
            });
            let (ends, fate) = match fate.await {
                Ok(ends) => (ends, Ok(())),
                Err((ends, error)) => (ends, Err(error)),
            };
            fates.lock().unwrap().push((rank, fate));
            host::sleep(HELD).await;
            drop(ends);
        }
    });
    let mut fates = std::mem::take(&mut *fates.lock().unwrap());
    fates.sort_unstable_by_key(|(rank, _)| *rank);
    fates
}

/// As `halves`; nothing when a rank died before.
async fn halves_or_death(
    cluster: &Cluster,
    rank: usize,
    senders: usize,
) -> Option<(bool, Group, Pair)> {
    let mut all = Group::world(cluster).await.ok()?;
    let sends = rank < senders;
    let mut part = all.split(Some(u32::from(!sends)), 0).await.ok()??;
    let pair = in_time(part.meet("halves")).await.ok()?;
    Some((sends, part, pair))
}

/// Each sender has elements for two receivers, each receiver from two senders: a chain of all.
fn chain(ranks: usize) -> Case {
    let extent = ranks * 4;
    let mut lengths = vec![4; ranks];
    (lengths[0], lengths[ranks - 1]) = (2, 6);
    let to = Layout::builder(&[extent]).blocks(&lengths).build().unwrap();
    Case::new(&layout(&format!("(block)@{ranks}"), &[extent]), &to)
}

#[test]
fn every_rank_of_128_hears_of_a_death_and_nobody_hangs() {
    let fates = dies(1, &chain(64), &Transfer::default(), 1_000, (37, Duration::from_secs(5)));
    assert_eq!(fates.len(), 127, "{fates:?}");
    for (rank, fate) in fates {
        let Err(ArrayError::Peer { side, rank: named, loss, .. }) = &fate else {
            panic!("{rank}: {fate:?}")
        };
        let why = format!("{loss:?}");
        // Its neighbours name it, the others hear it from them.
        let is_near = (*side, *named) == (Side::Sender, 37) && why.contains("nothing was heard");
        assert!(is_near || why.starts_with("rank 37 of the sending group"), "{rank}: {fate:?}");
    }
}

/// Moments spread over the opening and the first rounds.
#[test]
fn a_death_at_any_moment_lets_nobody_hang() {
    let mut heard = 0;
    each_seed(0..16, |seed| {
        let mut random = Random::new(seed);
        let at = Duration::from_micros(15_000 + 1700 * seed + random.below(1700));
        let settings = Transfer::default().depth(1 + random.below(2) as usize);
        let case = match random.below(3) {
            0 => chain(4),
            1 => Case::new(&layout("(block)@3", &[5000]), &layout("(cyclic)@5", &[5000])),
            _ => Case::new(&layout("(block)@4", &[40_000]), &layout("(block)@4", &[40_000])),
        };
        let fates = dies(seed, &case, &settings, 60, (random.below(8) as usize, at));
        heard += fates.iter().filter(|(_, fate)| fate.is_err()).count();
    });
    assert!(heard > 40, "only {heard} errors");
}

/// Exchanges in rings while a rank dies.
#[test]
fn a_death_ends_exchanges_everywhere() {
    let mut heard = 0;
    each_seed(0..24, |seed| {
        let at = Duration::from_micros(12_000 + 900 * seed);
        let fates = Fates::default();
        let all = Arc::clone(&fates);
        on_each(seed, 6, &[(2, at)], move |rank, cluster| {
            let fates = Arc::clone(&all);
            async move {
                let Ok(group) = Group::world(&cluster).await else { return };
                let extent = if seed % 2 == 0 { 60 } else { 600_000 };
                let mut halo = Array::<u64>::zeros(&group, "(block)", [extent]).unwrap();
                let error = loop {
                    if let Err(error) = in_time(halo.halo(extent / 12)).await {
                        break error;
                    }
                };
                fates.lock().unwrap().push((rank, Err(error)));
                host::sleep(HELD).await;
                drop(halo);
            }
        });
        heard += fates.lock().unwrap().len();
    });
    assert!(heard > 60, "only {heard} errors");
}

#[test]
fn what_had_landed_is_said() {
    let case =
        Case::new(&layout("(block,*)@1x1", &[100, 1000]), &layout("(*,*)@1x1", &[100, 1000]));
    let fates = Fates::default();
    let all = Arc::clone(&fates);
    on_each(1, 2, &[(0, Duration::from_secs(5))], move |rank, cluster| {
        let (case, fates) = (case.clone(), Arc::clone(&all));
        async move {
            let (low, group, mut pair) = halves(&cluster, rank, 1).await;
            let settings = Transfer::default().slab_rows(10);
            if low {
                let sent = array(&group, &case.from, case.sent(0, 0));
                let sender = sent.sender(&mut pair).await.unwrap();
                sender.slab(0..50).unwrap().commit();
                host::sleep(HELD).await;
            }
            let before = vec![0_u64; 100_000];
            let accepted = array(&group, &case.to, before).receiver_with(&mut pair, settings).await;
            let mut receiver = accepted.unwrap();
            let mut rows = 0;
            let error = loop {
                match in_time(receiver.next_slab()).await {
                    Ok(slab) => rows += slab.unwrap().0.len(),
                    Err(error) => break error,
                }
            };
            assert!((30..=50).contains(&rows), "{rows}");
            assert!(receiver.wait(0..30).await.is_ok());
            let failed = receiver.into_array().await.unwrap_err();
            assert_eq!(failed.cause.to_string(), error.to_string());
            assert_eq!(failed.data.local()[..30_000], case.sent(0, 0)[..30_000]);
            fates.lock().unwrap().push((rank, Err(error)));
        }
    });
    let fates = fates.lock().unwrap();
    let (_, Err(ArrayError::Peer { side, rank, landed, elements, .. })) = &fates[0] else {
        panic!("{fates:?}")
    };
    assert_eq!((*side, *rank, *elements), (Side::Sender, 0, 100_000));
    assert!((30_000..=50_000).contains(landed), "{landed}");
}

/// The rank that drops its end, and when.
#[derive(Clone, Copy, Debug)]
enum Dropped {
    AtOnce,
    Between,
    InRound2,
    Uncommitted,
}

/// One of the ranks drops its end: each rank of the other group that needs it gets an error with it, those of
/// its own group hear of it from there.
fn drops(seed: u64, dropper: usize, how: Dropped, depth: usize) {
    let case = Case::new(&layout("(block,*)@2x1", &[8, 12]), &layout("(*,block)@1x2", &[8, 12]));
    on_each(seed, 4, &[], move |rank, cluster| {
        let case = case.clone();
        async move {
            let (low, group, mut pair) = halves(&cluster, rank, 2).await;
            let settings = Transfer::default().depth(depth).slab_rows(2);
            let rounds = match how {
                Dropped::AtOnce | Dropped::Uncommitted => 0,
                Dropped::Between | Dropped::InRound2 => 2,
            };
            let mine = rank == dropper;
            let count = if mine { rounds } else { 10 };
            let error = in_time(async {
                if low {
                    let opened = ones(&group, &case.from);
                    let opened = sends_or_drops(&mut pair, opened, &settings, count, how, mine);
                    opened.await
                } else {
                    let fate = receives(ones(&group, &case.to), &mut pair, settings, count).await;
                    if mine && matches!(how, Dropped::InRound2) {
                        let mut receiver = fate.ok().flatten().unwrap();
                        // The next round is under way.
                        let _ = host::timeout(Duration::from_millis(5), receiver.start()).await;
                        drop(receiver);
                        return None;
                    }
                    fate.err().map(|(_, error)| error)
                }
            });
            let error = error.await;
            if mine {
                assert!(error.is_none(), "{error:?}");
            } else {
                let Some(ArrayError::Peer { side, rank: named, loss, .. }) = error else {
                    panic!("{rank}: {error:?}")
                };
                let why = format!("{loss:?}");
                let side_of = if dropper < 2 { Side::Sender } else { Side::Receiver };
                if low != (dropper < 2) {
                    let is_it = (side, named) == (side_of, dropper % 2);
                    assert!(is_it || why.contains(&format!("rank {}", dropper % 2)), "{why}");
                    assert!(why.contains("dropped its end"), "{why}");
                } else {
                    let text = format!("rank {} of the {side_of} group: it dropped", dropper % 2);
                    assert!(why.contains(&text), "{rank}: {why}");
                }
            }
            // The pair is whole.
            in_time(pair.barrier()).await.unwrap();
        }
    });
}

async fn sends_or_drops(
    pair: &mut Pair,
    array: Array<u64>,
    settings: &Transfer,
    count: u32,
    how: Dropped,
    mine: bool,
) -> Option<ArrayError> {
    if count > 0 {
        let fate = sends(array, pair, settings.clone(), count).await;
        if mine && matches!(how, Dropped::InRound2) {
            let mut sender = fate.ok().flatten().unwrap();
            sender.start().await.unwrap();
            sender.slab(1..2).unwrap().commit();
            host::sleep(Duration::from_millis(5)).await;
            return None;
        }
        return fate.err().map(|(_, error)| error);
    }
    let length = array.local().len();
    let sender = array.sender_with(pair, settings.clone()).await.unwrap();
    if matches!(how, Dropped::Uncommitted) {
        sender.slab(1..2).unwrap().commit();
        assert_eq!(sender.into_array().await.local().len(), length);
    }
    None
}

#[test]
fn an_end_that_is_dropped_is_named_everywhere() {
    use Dropped::{AtOnce, Between, InRound2, Uncommitted};
    let mut seed = 0;
    for depth in [1, 2] {
        for dropper in 0..4 {
            for how in [AtOnce, Between, InRound2, Uncommitted] {
                seed += 1;
                println!("drop {seed}: rank {dropper} {how:?} depth {depth}");
                drops(seed, dropper, how, depth);
            }
        }
    }
}

/// A rank that needs nothing more ends; its peers have what they need.
#[test]
fn ends_that_have_finished_go_without_a_fault() {
    let case = Case::new(&layout("(block,*)@2x1", &[40, 30]), &layout("(*,block)@1x3", &[40, 30]));
    for depth in [1, 2] {
        let case = case.clone();
        on_each(depth as u64, 5, &[], move |rank, cluster| {
            let case = case.clone();
            async move {
                let (low, group, mut pair) = halves(&cluster, rank, 2).await;
                let usage = Use { rounds: 4, ..Use::of(Transfer::default().depth(depth)) };
                host::sleep(Duration::from_millis(rank as u64 * 7)).await;
                // The ends are dropped at different times.
                match low {
                    true => in_time(send(&group, &mut pair, &case, &usage)).await,
                    false => in_time(receive(&group, &mut pair, &case, &usage)).await,
                }
                in_time(pair.barrier()).await.unwrap();
            }
        });
    }
}

#[test]
fn an_exchange_that_is_dropped_is_named() {
    on_each(1, 4, &[], |rank, cluster| async move {
        let group = Group::world(&cluster).await.unwrap();
        let mut rows = Array::<u64>::zeros(&group, "(block,*)", [400, 400]).unwrap();
        let mut columns = Array::zeros(&group, "(*,block)", [400, 400]).unwrap();
        let error = loop {
            if rank == 1 {
                let _ = host::timeout(Duration::from_millis(2), rows.copy_to(&mut columns)).await;
                break None;
            }
            if let Err(error) = in_time(rows.copy_to(&mut columns)).await {
                break Some(error);
            }
        };
        let again = match rank {
            1 => None,
            _ => Some(in_time(rows.copy_to(&mut columns)).await.unwrap_err()),
        };
        if let Some(error) = error {
            assert!(matches!(error, ArrayError::Peer { .. }), "{error}");
            assert!(error.to_string().contains("rank 1 of the"), "{error}");
            assert_eq!(again.unwrap().to_string(), error.to_string());
        }
        if rank != 1 {
            host::sleep(Duration::from_secs(20)).await;
        }
    });
}

/// The senders' second rank comes late, or not at all.
#[test]
fn a_rank_that_does_not_come_is_named_after_a_time() {
    on_each(1, 3, &[], |rank, cluster| async move {
        let (low, group, mut pair) = halves(&cluster, rank, 2).await;
        let (from, to) = (layout("(block)@2", &[10]), layout("(*)@1", &[10]));
        pair.both().set_report_after(Duration::from_secs(2));
        if rank == 1 {
            host::sleep(Duration::from_secs(30)).await;
        }
        let since = Instant::now();
        let settings = Transfer::default().report_after(Duration::from_secs(3));
        if low {
            let sent = array(&group, &from, vec![1_u64; 5]);
            let mut sender = sent.sender_with(&mut pair, settings).await.unwrap();
            if rank == 1 {
                host::sleep(Duration::from_secs(30)).await;
            }
            sender.commit_all().unwrap();
            sender.finish().await.unwrap();
            return;
        }
        let mut storage = vec![0_u64; 10];
        storage[0] = 9;
        let accepted = array(&group, &to, storage).receiver_with(&mut pair, settings).await;
        let mut receiver = accepted.unwrap();
        assert!(since.elapsed() > Duration::from_secs(29));
        assert!(host::timeout(Duration::from_secs(20), receiver.finish()).await.is_err());
        assert_eq!(receiver.explain().waits_for().collect::<Vec<_>>(), [1]);
        let text = receiver.explain().to_string();
        assert!(text.ends_with("waits for rank 1"), "{text}");
        assert_eq!(in_time(receiver.finish()).await.unwrap(), [1; 10]);
    });
}

/// Round after round, between groups, within one, and with a program that comes later.
#[test]
fn arrays_without_elements_are_transferred() {
    on_each(1, 4, &[], |rank, cluster| async move {
        let (low, group, mut pair) = halves(&cluster, rank, 2).await;
        for (from, to, shape) in [
            ("(block)@2", "(cyclic)@2", &[0][..]),
            ("(*,block)@1x2", "(cyclic(3),*)@2x1", &[5, 0]),
            ("(block,*)@2x1 margin 1", "(blocks(0,0),block)@2x1", &[0, 7]),
            ("(block,*)@2x1 region 3..3x0..7", "(*,block)@1x2 region 5..5x0..7", &[8, 7]),
        ] {
            let layout = layout(if low { from } else { to }, shape);
            let storage = vec![3_u16; layout.local_len(pair.rank())];
            if low {
                let sent = array(&group, &layout, storage);
                let mut sender = sent.sender(&mut pair).await.unwrap();
                for _ in 0..2 {
                    sender.commit_all().unwrap();
                    in_time(sender.start()).await.unwrap();
                }
                in_time(sender.into_array()).await;
            } else {
                let received = array(&group, &layout, storage);
                let mut receiver = received.receiver(&mut pair).await.unwrap();
                for _ in 0..2 {
                    while in_time(receiver.next_slab()).await.unwrap().is_some() {}
                    in_time(receiver.start()).await.unwrap();
                }
                in_time(receiver.into_array()).await.unwrap();
            }
        }
        let mut group = Group::world(&cluster).await.unwrap();
        let mut empty = Array::<u8>::zeros(&group, "(block,*)", [0, 6]).unwrap();
        in_time(empty.halo(1)).await.unwrap();
        let port = ArrayPort::open(&mut group, "none").await.unwrap();
        let visitor = Visitor::new(&cluster, "none");
        if rank == 1 {
            let visiting = async {
                assert_eq!(visitor.take::<u8>().await.unwrap(), (vec![], vec![0, 6]));
                visitor.give::<u8>(&[0, 6], &[]).await.unwrap();
            };
            in_time(async { tokio::join!(visiting, serves(port, group, empty)) }).await;
        } else {
            in_time(serves(port, group, empty)).await;
        }
    });
}

/// Serves two visits with an array without elements.
async fn serves(mut port: ArrayPort, mut group: Group, mut array: Array<u8>) {
    let mut served = 0;
    while served < 2 {
        for visit in port.visits(&mut group).await.unwrap() {
            match visit.gives() {
                None => visit.send(&array).await.unwrap(),
                Some(_) => visit.receive(&mut array).await.unwrap(),
            }
            served += 1;
        }
        host::sleep(Duration::from_millis(10)).await;
    }
    port.close().await;
}
