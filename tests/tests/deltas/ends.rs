//! Ends of a delta before its last byte: deaths, drops and wrong bytes.

use std::time::Duration;

use chunkcomm_pipeline::{
    DeltaReceiver, DeltaRecvError, DeltaSendError, DeltaSender, Increment, Part,
};
use chunkcomm_testkit::limited;
use chunkcomm_testkit::random::seeded;

use super::{Outcome, Pair, commit, compute, link, node, values};

#[tokio::test]
async fn a_dead_sender_poisons_exactly_what_is_missing_down_the_chain() -> Outcome {
    let nodes = [node("n0").await, node("n1").await, node("n2").await];
    let to_1 = link(&nodes[0], &nodes[1]).await;
    let to_2 = link(&nodes[1], &nodes[2]).await;
    let len = 10_000;
    let increment = Increment::Fixed(4000);
    let sender = DeltaSender::open(&nodes[0], &to_1, "f", vec![0; len], increment).await?;
    let middle = limited(DeltaReceiver::accept(&nodes[1], "f", vec![0; len])).await?;
    let _forward = middle.forward(&nodes[1], &to_2, "f").await?;
    let mut end = limited(DeltaReceiver::accept(&nodes[2], "f", vec![0; len])).await?;
    let there = [1000..3000, 7000..9000];
    for range in there.clone() {
        let mut part = sender.part(range.clone())?;
        compute(1, range.start, &mut part);
        part.commit();
        limited(end.wait(range)).await?;
    }
    let missing = [0..1, 999..1001, 2999..3001, 5000..5001, 9000..10_000];
    let (closed, first) =
        limited(async { tokio::join!(nodes[0].close(Duration::ZERO), end.wait(..)) }).await;
    let _ = closed;
    let error = first.unwrap_err().to_string();
    assert!(error.contains("n0") && error.contains("n1"), "{error}");
    limited(middle.wait(..)).await.unwrap_err();
    for (receiver, name) in [(&middle, "n0"), (&end, "n0")] {
        for range in there.clone() {
            assert_eq!(receiver.try_range(range.clone())?, Some(&values(1, range)[..]));
        }
        for range in missing.clone() {
            let error = receiver.try_range(range.clone()).unwrap_err().to_string();
            assert!(error.contains(name), "{range:?}: {error}");
        }
    }
    // As it lands: all that landed, then the error.
    let mut seen = 0;
    let error = loop {
        match limited(end.next_any()).await {
            Ok(part) => seen += part.unwrap().1.len(),
            Err(error) => break error,
        }
    };
    assert_eq!(seen, 4000);
    assert!(error.to_string().contains("n0"), "{error}");
    Ok(())
}

/// Drops either end, or both, after a number of steps of the seed. The other end learns of it, and
/// both buffers come back or are freed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn anything_is_dropped_at_any_point() -> Outcome {
    for seed in 0..60 {
        let pair = Pair::new().await;
        let mut random = seeded(seed);
        let (mut sender, mut receiver) = pair.delta(40_000, Increment::default()).await;
        let (steps, victim) = (random.below(9) as usize, random.below(3));
        let mut kept = Vec::new();
        for (step, mut part) in sender.parts(8)?.into_iter().rev().enumerate() {
            if step < steps {
                let start = part.range().start;
                compute(1, start, &mut part);
                part.commit();
            } else if random.below(2) == 0 {
                kept.push(part);
            }
        }
        if random.below(2) == 0 && steps > 0 {
            limited(receiver.next_any()).await?;
        }
        match victim {
            0 => {
                drop(sender);
                drop(kept);
                let whole = limited(receiver.finish()).await;
                assert_eq!(whole.is_ok(), steps == 8, "seed {seed}: {whole:?}");
                assert_eq!(
                    limited(receiver.into_buffer()).await.is_ok(),
                    steps == 8,
                    "seed {seed}"
                );
            }
            1 => {
                drop(receiver);
                drop(kept);
                let mut is_left = false;
                loop {
                    let next = sender.next(5000);
                    is_left |= !matches!(next, Ok(None));
                    let Ok(Some(chunk)) = next else { break };
                    let _ = limited(chunk.commit()).await;
                }
                let sent = limited(sender.finish()).await;
                // All may have landed before the receiver was dropped.
                assert!(sent.is_err() || !is_left, "seed {seed}");
                assert_eq!(limited(sender.into_buffer()).await.len(), 40_000, "seed {seed}");
            }
            _ => {
                drop((receiver, sender));
                kept.into_iter().for_each(Part::commit);
            }
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_dropped_receiver_is_told_at_once() -> Outcome {
    let pair = Pair::new().await;
    let (mut sender, receiver) = pair.delta(1000, Increment::default()).await;
    drop(receiver);
    // Nothing was sent that could be refused.
    let gone = limited(async {
        loop {
            tokio::task::yield_now().await;
            if let Err(error) = sender.next(1) {
                return error;
            }
        }
    });
    let error = gone.await;
    assert!(matches!(error, DeltaSendError::Gone { .. }), "{error}");
    assert!(error.to_string().contains("right"), "{error}");
    Ok(())
}

#[tokio::test]
async fn a_buffer_of_a_sender_that_is_dropped_between_rounds_is_freed() -> Outcome {
    let pair = Pair::new().await;
    let (mut sender, mut receiver) = pair.delta(10, Increment::default()).await;
    commit(1, &mut sender, 10).await?;
    limited(sender.finish()).await?;
    limited(receiver.start()).await?;
    drop(sender);
    let error = limited(receiver.finish()).await.unwrap_err();
    assert!(matches!(error, DeltaRecvError::Ended { landed_bytes: 0, .. }), "{error}");
    Ok(())
}

/// The first message of a delta of ten `u32`, and the header of an increment, as another program would
/// write them.
fn opening() -> Vec<u8> {
    let [length, increment] = [10_u64, 40].map(u64::to_le_bytes);
    let big_endian = u8::from(cfg!(target_endian = "big"));
    let head =
        [&b"DLTA"[..], &1_u16.to_le_bytes(), &[big_endian, 3], &4_u32.to_le_bytes()].concat();
    [&head[..], &length, &increment, b"u32"].concat()
}

fn header(round: u32, offset: u64, bytes: u64) -> Vec<u8> {
    let words = [1, round].map(u32::to_le_bytes).concat();
    [words, [offset, bytes].map(u64::to_le_bytes).concat()].concat()
}

#[tokio::test]
async fn wrong_increments_are_errors_at_both_ends_and_never_panics() -> Outcome {
    for (wrong, word) in [
        (header(1, 36, 8), "8 bytes at byte 36"),
        (header(1, 4, 8), "bytes 8..12 have landed before"),
        (header(1, 2, 4), "4 bytes at byte 2"),
        (header(7, 0, 4), "round 7, ours is 1"),
        (vec![0; 24], "kind 0"),
        (vec![0xff; 24], "kind 4294967295"),
    ] {
        let pair = Pair::new().await;
        let mut forged = pair.left.open_duplex_bytes(&pair.peer, "forged").await?;
        forged.sender().send_slice(&opening()).await?;
        let receiver = DeltaReceiver::accept(&pair.right, "forged", vec![0_u32; 10]);
        let receiver = limited(receiver).await?;
        forged.sender().send_slice(&[&header(1, 8, 4)[..], &[9; 4]].concat()).await?;
        assert_eq!(limited(receiver.wait(2..3)).await?, [0x0909_0909]);
        forged.sender().send_slice_now(&wrong).await?;
        let error = limited(receiver.wait(..)).await.unwrap_err();
        assert!(matches!(error, DeltaRecvError::Frame { .. }), "{error}");
        let text = chunkcomm::with_causes(&error);
        assert!(text.contains("left") && text.contains(word), "{text}");
        assert_eq!(receiver.try_range(2..3)?, Some(&[0x0909_0909][..]), "it stays");
        let reply = limited(forged.recv()).await?.ok_or("the reason")?;
        assert!(String::from_utf8_lossy(&reply).contains(word), "{reply:?}");
        assert!(limited(forged.recv()).await?.is_none());
        // Further bytes find no room, and the channel ends.
        forged.sender().send_slice_now(&[0; 100]).await?;
        limited(forged.sender().closed()).await;
    }
    Ok(())
}

/// The receiver is dropped as soon as a thread sees the last element.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_sender_hears_that_all_has_landed_from_a_receiver_that_leaves_at_once() -> Outcome {
    let pair = Pair::new().await;
    for _ in 0..300 {
        let (mut sender, receiver) = pair.delta(1000, Increment::default()).await;
        let reading = std::thread::spawn(move || {
            while receiver.try_range(..).unwrap().is_none() {
                std::hint::spin_loop();
            }
        });
        commit(1, &mut sender, 1000).await?;
        limited(sender.finish()).await?;
        reading.join().unwrap();
    }
    Ok(())
}
