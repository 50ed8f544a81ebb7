//! Standing requests: rounds on one channel, in the same memory.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

use chunkcomm_pipeline::{DeltaReceiver, DeltaRecvError, DeltaSender, Increment};
use chunkcomm_testkit::limited;

use super::{Outcome, Pair, commit, compute, link, node, values};

fn is_pending(future: impl Future) -> bool {
    pin!(future).poll(&mut Context::from_waker(Waker::noop())).is_pending()
}

/// Sends rounds `from..=to`, the first of which has begun.
async fn send(sender: &mut DeltaSender<u32>, to: u32, chunk: usize) -> Outcome {
    loop {
        let round = sender.round();
        while let Some(mut chunk) = sender.next(chunk)? {
            compute(round, chunk.range().start, &mut chunk);
            chunk.commit().await?;
        }
        if round == to {
            return Ok(sender.finish().await?);
        }
        sender.start().await?;
    }
}

async fn receive(receiver: &mut DeltaReceiver<u32>, to: u32) -> Outcome {
    loop {
        let (round, mut seen) = (receiver.round(), Vec::new());
        while let Some(part) = receiver.next().await? {
            seen.extend_from_slice(part);
        }
        assert!(seen == values(round, 0..receiver.len()), "round {round}");
        if round == to {
            return Ok(());
        }
        receiver.start().await?;
    }
}

#[tokio::test]
async fn rounds_follow_each_other_in_the_same_memory() -> Outcome {
    for (len, increment) in [
        (0, Increment::default()),
        (1, Increment::default()),
        (1025, Increment::Fixed(4100)),
        (50_003, Increment::Fixed(9000)),
        (50_003, Increment::default()),
    ] {
        let pair = Pair::new().await;
        let (mut sender, mut receiver) = pair.delta(len, increment).await;
        let both = async { tokio::join!(send(&mut sender, 20, 777), receive(&mut receiver, 20)) };
        let (sent, received) = limited(both).await;
        sent.and(received).map_err(|error| format!("{len}, {increment:?}: {error}"))?;
        assert!(limited(receiver.into_buffer()).await? == values(20, 0..len));
        assert!(limited(sender.into_buffer()).await == values(20, 0..len));
    }
    Ok(())
}

/// Starts rounds until the stream is over; returns the number of the last one.
async fn until_over(mut receiver: DeltaReceiver<u32>) -> Result<u32, DeltaRecvError> {
    while receiver.start().await? {}
    Ok(receiver.round())
}

/// Without an element to wait for, neither side goes ahead of the other.
#[tokio::test]
async fn each_round_of_an_empty_buffer_begins_and_ends_at_both_ends() -> Outcome {
    let pair = Pair::new().await;
    let (mut sender, mut receiver) = pair.delta(0, Increment::default()).await;
    let last = node("last").await;
    let to_last = link(&pair.right, &last).await;
    let _forward = receiver.forward(&pair.right, &to_last, "f").await?;
    let mut end = limited(DeltaReceiver::accept(&last, "f", Vec::<u32>::new())).await?;
    for round in 1..20 {
        assert_eq!((sender.round(), receiver.round(), end.round()), (round, round, round));
        limited(sender.finish()).await?;
        assert_eq!(limited(receiver.next()).await?, None);
        assert_eq!(limited(end.next_any()).await?, None);
        let started = async { tokio::join!(receiver.start(), end.start()) };
        assert!(matches!(limited(started).await, (Ok(true), Ok(true))));
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert!(is_pending(receiver.finish()), "the sender has not begun round {round}");
        assert!(is_pending(receiver.next()) && is_pending(end.start()));
        limited(sender.start()).await?;
    }
    // The round is whole, so that the stream ends with one more.
    let started = async { tokio::join!(sender.end(), until_over(receiver), until_over(end)) };
    let (ended, middle, last) = limited(started).await;
    ended?;
    assert_eq!((sender.round(), middle?, last?), (21, 21, 21));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_that_pauses_stops_the_sender_and_ends_nothing() -> Outcome {
    let pair = Pair::new().await;
    let (mut sender, mut receiver) = pair.delta(10_000, Increment::default()).await;
    let first = async { tokio::join!(send(&mut sender, 1, 1000), receive(&mut receiver, 1)) };
    let (sent, received) = limited(first).await;
    sent.and(received)?;
    limited(sender.start()).await?;
    commit(2, &mut sender, 10_000).await?;
    // A delta that is opened later comes through; the paused one keeps what it showed.
    let other =
        DeltaSender::<u8>::open(&pair.left, &pair.peer, "2", Vec::new(), Increment::default());
    let mut other = other.await?;
    let empty = limited(DeltaReceiver::accept(&pair.right, "2", Vec::<u8>::new())).await?;
    limited(other.finish()).await?;
    limited(empty.into_buffer()).await?;
    assert!(is_pending(sender.finish()));
    assert_eq!(limited(receiver.finish()).await?, values(1, 0..10_000));
    limited(receiver.start()).await?;
    assert_eq!(limited(receiver.finish()).await?, values(2, 0..10_000));
    limited(sender.finish()).await?;
    Ok(())
}

#[tokio::test]
async fn forwards_go_through_the_rounds() -> Outcome {
    let nodes = [node("n0").await, node("n1").await, node("n2").await, node("n3").await];
    let to_1 = link(&nodes[0], &nodes[1]).await;
    let to_2 = link(&nodes[1], &nodes[2]).await;
    let to_3 = link(&nodes[1], &nodes[3]).await;
    let (len, increment) = (20_001, Increment::default());
    let mut sender = DeltaSender::open(&nodes[0], &to_1, "f", vec![0; len], increment).await?;
    let mut middle = limited(DeltaReceiver::accept(&nodes[1], "f", vec![0; len])).await?;
    let mut forward = middle.forward(&nodes[1], &to_2, "f").await?;
    let _other = middle.forward(&nodes[1], &to_3, "f").await?;
    let mut ends = [
        limited(DeltaReceiver::accept(&nodes[2], "f", vec![0; len])).await?,
        limited(DeltaReceiver::accept(&nodes[3], "f", vec![0; len])).await?,
    ];
    let [left, right] = &mut ends;
    let forwarded = async {
        for _ in 0..5 {
            forward.finish().await?;
        }
        Ok::<(), Box<dyn std::error::Error>>(())
    };
    let (a, b, c, d, e) = limited(async {
        tokio::join!(
            send(&mut sender, 5, 3000),
            receive(&mut middle, 5),
            receive(left, 5),
            receive(right, 5),
            forwarded,
        )
    })
    .await;
    a.and(b).and(c).and(d).and(e)?;
    assert!(limited(middle.into_buffer()).await? == values(5, 0..len));
    Ok(())
}

#[tokio::test]
async fn a_round_does_not_begin_before_the_last_is_done() -> Outcome {
    let pair = Pair::new().await;
    let (mut sender, mut receiver) = pair.delta(100, Increment::default()).await;
    let kept = sender.part(0..10)?;
    assert!(limited(sender.start()).await.is_err(), "most is missing");
    assert!(is_pending(receiver.start()));
    drop(kept);
    assert_eq!((sender.round(), receiver.round()), (1, 1));
    let both = async { tokio::join!(send(&mut sender, 2, 33), receive(&mut receiver, 2)) };
    let (sent, received) = limited(both).await;
    sent.and(received)
}

/// The last node begins the round when the first is gone.
#[tokio::test]
async fn a_forward_waits_for_a_node_that_begins_its_round_late() -> Outcome {
    let nodes = [node("n0").await, node("n1").await, node("n2").await];
    let (to_1, to_2) = (link(&nodes[0], &nodes[1]).await, link(&nodes[1], &nodes[2]).await);
    let len = 1000;
    let increment = Increment::default();
    let mut sender = DeltaSender::open(&nodes[0], &to_1, "f", vec![0; len], increment).await?;
    let mut middle = limited(DeltaReceiver::accept(&nodes[1], "f", vec![0; len])).await?;
    let mut forward = middle.forward(&nodes[1], &to_2, "f").await?;
    let mut end = limited(DeltaReceiver::accept(&nodes[2], "f", vec![0; len])).await?;
    commit(1, &mut sender, len).await?;
    limited(sender.finish()).await?;
    limited(end.finish()).await?;
    let (one, two) = limited(async { tokio::join!(sender.start(), middle.start()) }).await;
    one.and(two.map_err(|error| panic!("{error}")))?;
    commit(2, &mut sender, len).await?;
    limited(sender.finish()).await?;
    assert_eq!(limited(middle.finish()).await?, values(2, 0..len));
    drop(sender);
    tokio::time::sleep(Duration::from_millis(50)).await;
    limited(end.start()).await?;
    assert_eq!(limited(end.finish()).await?, values(2, 0..len));
    limited(forward.finish()).await?;
    Ok(())
}

#[tokio::test]
async fn committed_elements_of_a_later_round_are_sent_when_the_sender_is_dropped() -> Outcome {
    let pair = Pair::new().await;
    let (mut sender, mut receiver) = pair.delta(1000, Increment::default()).await;
    commit(1, &mut sender, 1000).await?;
    limited(sender.finish()).await?;
    limited(receiver.finish()).await?;
    limited(sender.start()).await?;
    commit(2, &mut sender, 1000).await?;
    drop(sender);
    tokio::time::sleep(Duration::from_millis(50)).await;
    limited(receiver.start()).await?;
    assert_eq!(limited(receiver.finish()).await?, values(2, 0..1000));
    Ok(())
}
