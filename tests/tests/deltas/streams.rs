//! Streams whose length is not known before they end: rounds over one window, the last of them short.

use chunkcomm_pipeline::{
    DeltaReceiver, DeltaRecvError, DeltaSendError, DeltaSender, Increment, PartError,
};
use chunkcomm_testkit::limited;

use super::{Outcome, Pair, commit, compute, link, node, values};

const WINDOW: usize = 1000;

/// Sends `length` elements and ends the stream.
async fn send(sender: &mut DeltaSender<u32>, length: usize) -> Result<(), DeltaSendError> {
    let mut sent = 0;
    while sent < length {
        let start = sender.position();
        let Some(mut chunk) = sender.next(300.min(length - sent))? else {
            assert_eq!(start, WINDOW);
            sender.start().await?;
            continue;
        };
        compute(1, sent, &mut chunk);
        sent += chunk.len();
        chunk.commit().await?;
    }
    sender.end().await
}

/// Takes all elements of a stream.
async fn take(receiver: &mut DeltaReceiver<u32>) -> Result<Vec<u32>, DeltaRecvError> {
    let mut all = Vec::new();
    loop {
        while let Some(elements) = receiver.next().await? {
            all.extend_from_slice(elements);
        }
        let round = receiver.finish().await?.len();
        assert!(all.ends_with(&receiver.landed()[..round]));
        if !receiver.start().await? {
            assert!(!receiver.start().await?, "it stays over");
            return Ok(all);
        }
        assert_eq!(round, WINDOW, "only the last round is short");
    }
}

#[tokio::test]
async fn any_length_arrives_and_is_forwarded() -> Outcome {
    for length in [0, 1, WINDOW - 1, WINDOW, WINDOW + 1, 2 * WINDOW + 500, 3 * WINDOW] {
        for increment in [Increment::default(), Increment::Fixed(1600)] {
            let pair = Pair::new().await;
            let (mut sender, mut middle) = pair.delta(WINDOW, increment).await;
            let end = node("end").await;
            let mut forward =
                middle.forward(&pair.right, &link(&pair.right, &end).await, "on").await?;
            let mut last = limited(DeltaReceiver::accept(&end, "on", vec![9; WINDOW])).await?;
            let (sent, there, further) = limited(async {
                tokio::join!(send(&mut sender, length), take(&mut middle), take(&mut last))
            })
            .await;
            sent?;
            assert!(there? == values(1, 0..length), "{length}");
            assert!(further? == values(1, 0..length), "{length}");
            limited(forward.finish()).await?;
            let over = limited(async {
                while forward.finish().await.is_ok() {}
                forward.finish().await
            })
            .await;
            assert!(matches!(over, Err(DeltaSendError::Over { .. })), "{over:?}");
            assert_eq!(limited(last.into_buffer()).await?.len(), length % WINDOW, "{length}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn behind_the_end_nothing_is_waited_for() -> Outcome {
    let pair = Pair::new().await;
    let (mut sender, mut receiver) = pair.delta(WINDOW, Increment::default()).await;
    let mut part = sender.part(100..300)?;
    compute(1, 100, &mut part);
    assert!(matches!(limited(sender.end()).await, Err(DeltaSendError::Unfinished { .. })), "out");
    part.commit();
    let gap = limited(sender.end()).await.unwrap_err();
    assert!(gap.to_string().contains("200 of 1000 elements"), "{gap}");
    commit(1, &mut sender, 100).await?;
    let (ended, beyond) =
        limited(async { tokio::join!(sender.end(), receiver.wait(250..301)) }).await;
    ended?;
    let beyond = beyond.unwrap_err();
    assert!(matches!(beyond, DeltaRecvError::Range { end: 301, length: 300, .. }), "{beyond}");
    assert!(limited(receiver.wait(..)).await? == values(1, 0..300));
    assert_eq!(receiver.try_range(300..)?, Some(&[][..]));
    let mut shown = 0;
    while let Some((range, _)) = limited(receiver.next_any()).await? {
        shown += range.len();
    }
    assert_eq!(shown, 300);
    // The end stays.
    assert!(sender.next(1)?.is_none());
    limited(sender.end()).await?;
    let over = limited(sender.start()).await.unwrap_err();
    assert!(over.to_string().contains("has ended"), "{over}");
    drop(sender);
    assert!(!limited(receiver.start()).await?);
    Ok(())
}

#[tokio::test]
async fn a_sender_that_is_dropped_has_not_ended_the_stream() -> Outcome {
    let pair = Pair::new().await;
    let (mut sender, mut receiver) = pair.delta(WINDOW, Increment::default()).await;
    commit(1, &mut sender, WINDOW).await?;
    limited(sender.finish()).await?;
    drop(sender);
    assert!(limited(receiver.start()).await?);
    let error = limited(receiver.next()).await.unwrap_err();
    assert!(matches!(error, DeltaRecvError::Ended { landed_bytes: 0, .. }), "{error}");
    Ok(())
}

#[tokio::test]
async fn a_forward_that_begins_behind_the_end_has_the_shape_of_the_window() -> Outcome {
    for length in [0, 300] {
        let pair = Pair::new().await;
        let (mut sender, middle) = pair.delta(WINDOW, Increment::default()).await;
        limited(send(&mut sender, length)).await?;
        assert_eq!(limited(middle.wait(..)).await?.len(), length, "it has ended");
        let end = node("end").await;
        let to_end = link(&pair.right, &end).await;
        let mut forward = middle.forward(&pair.right, &to_end, "on").await?;
        let mut last = limited(DeltaReceiver::accept(&end, "on", vec![9; WINDOW])).await?;
        assert!(limited(take(&mut last)).await? == values(1, 0..length), "{length}");
        limited(forward.finish()).await?;
    }
    Ok(())
}

/// The receiver is dropped as soon as a thread sees the end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_sender_hears_of_the_end_from_a_receiver_that_leaves_at_once() -> Outcome {
    let pair = Pair::new().await;
    for length in 1..300 {
        let (mut sender, receiver) = pair.delta(WINDOW, Increment::default()).await;
        let reading = std::thread::spawn(move || {
            while receiver.try_range(..).unwrap().is_none() {
                std::hint::spin_loop();
            }
        });
        commit(1, &mut sender, length).await?;
        limited(sender.end()).await?;
        reading.join().unwrap();
    }
    Ok(())
}

#[tokio::test]
async fn a_receiver_that_leaves_with_a_full_window_has_the_whole_stream() -> Outcome {
    let pair = Pair::new().await;
    for length in [WINDOW - 1, WINDOW] {
        let (mut sender, receiver) = pair.delta(WINDOW, Increment::default()).await;
        let (sent, taken) =
            limited(async { tokio::join!(send(&mut sender, length), receiver.into_buffer()) })
                .await;
        assert!(taken? == values(1, 0..length));
        sent?;
        limited(sender.end()).await?;
        assert_eq!(limited(sender.into_buffer()).await.len(), WINDOW);
    }
    // The sender has begun the next round before it finds that nothing is left.
    let (mut sender, receiver) = pair.delta(WINDOW, Increment::default()).await;
    commit(1, &mut sender, WINDOW).await?;
    limited(sender.start()).await?;
    drop(limited(receiver.into_buffer()).await?);
    while !matches!(limited(sender.finish()).await, Err(DeltaSendError::Gone { .. })) {
        tokio::task::yield_now().await;
    }
    assert!(sender.next(1)?.is_some(), "the program has still to find that nothing is left");
    limited(sender.end()).await?;
    // With elements that did not land it is an error.
    sender.part(..1)?.commit();
    assert!(matches!(sender.next(1), Err(DeltaSendError::Gone { .. })));
    let gone = limited(sender.end()).await.unwrap_err();
    assert!(matches!(gone, DeltaSendError::Gone { .. }), "{gone}");
    Ok(())
}

#[tokio::test]
async fn behind_the_end_no_part_is_handed_out() -> Outcome {
    let pair = Pair::new().await;
    let (mut sender, receiver) = pair.delta(WINDOW, Increment::default()).await;
    limited(send(&mut sender, 300)).await?;
    for range in [0..WINDOW, 300..301] {
        let error = sender.part(range.clone()).unwrap_err();
        assert_eq!(error, PartError::Range { asked: range, length: 300 });
    }
    drop(receiver);
    Ok(())
}
