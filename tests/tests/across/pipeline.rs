//! Deltas end to end over loopback TCP, the nodes in one process.

use std::error::Error;
use std::future::Future;
use std::ops::Range;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use chunkcomm::{Address, Node, Peer};
use chunkcomm_pipeline::{
    DeltaFault, DeltaReceiver, DeltaRecvError, DeltaSendError, DeltaSender, Increment,
};

use chunkcomm_testkit::limited;

type Outcome = Result<(), Box<dyn Error>>;

async fn node(name: &str) -> Result<Node, Box<dyn Error>> {
    let address = "tcp://127.0.0.1:0".parse::<Address>()?;
    Ok(Node::builder().name(name).listen(address).build().await?)
}

async fn link(from: &Node, to: &Node) -> Result<Peer, Box<dyn Error>> {
    Ok(from.connect(&to.addresses()[0]).await?)
}

/// Builds two nodes; returns them and the second as the first one's peer.
async fn pair() -> Result<(Node, Node, Peer), Box<dyn Error>> {
    let (left, right) = (node("left").await?, node("right").await?);
    let peer = link(&left, &right).await?;
    Ok((left, right, peer))
}

/// Polls once and drops, as a cancelled wait does; returns whether it was pending.
fn is_pending(what: impl Future) -> bool {
    let what = std::pin::pin!(what);
    matches!(what.poll(&mut Context::from_waker(Waker::noop())), Poll::Pending)
}

fn value(index: usize) -> u32 {
    (index as u32).wrapping_mul(2_654_435_761).rotate_left(7)
}

fn values(range: Range<usize>) -> Vec<u32> {
    range.map(value).collect()
}

/// Computes up to element `end` in chunks of `chunk`.
async fn fill(sender: &mut DeltaSender<u32>, end: usize, chunk: usize) -> Outcome {
    while sender.position() < end {
        let count = chunk.min(end - sender.position());
        let mut chunk = sender.next(count)?.expect("not at the end");
        for (index, element) in chunk.range().zip(chunk.iter_mut()) {
            *element = value(index);
        }
        chunk.commit().await?;
    }
    Ok(())
}

/// Sends `len` elements in chunks of `chunk` under `increment` and checks both sides' results.
async fn transfer(len: usize, chunk: usize, increment: Increment) -> Outcome {
    let (left, right, peer) = pair().await?;
    let send = async {
        let buffer = vec![0_u32; len];
        let mut sender = DeltaSender::open(&left, &peer, "numbers", buffer, increment).await?;
        fill(&mut sender, len, chunk).await?;
        assert!(sender.next(1)?.is_none());
        sender.finish().await?;
        assert!(sender.into_buffer().await == values(0..len));
        Outcome::Ok(())
    };
    let receive = async {
        let mut receiver = DeltaReceiver::accept(&right, "numbers", vec![7_u32; len]).await?;
        let mut seen = Vec::new();
        while let Some(part) = receiver.next().await? {
            assert!(!part.is_empty());
            seen.extend_from_slice(part);
        }
        assert!(seen == values(0..len));
        assert!(receiver.finish().await? == seen);
        assert_eq!(receiver.peer().unwrap().name(), "left");
        assert!(receiver.into_buffer().await? == seen);
        Outcome::Ok(())
    };
    let (sent, received) = limited(async { tokio::join!(send, receive) }).await;
    sent.and(received)
}

#[tokio::test]
async fn every_length_chunk_and_increment_arrives() -> Outcome {
    for len in [0, 1, 1023, 1025, 100_003] {
        for chunk in [1, 999, 1 << 20] {
            if len / chunk > 2_000 {
                continue;
            }
            for increment in [
                Increment::Fixed(1),
                Increment::Fixed(30_001),
                Increment::Fixed(len * 4),
                Increment::default(),
            ] {
                let what = format!("{len} elements in chunks of {chunk}, {increment:?}");
                transfer(len, chunk, increment)
                    .await
                    .map_err(|error| format!("{what}: {error}"))?;
            }
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn megabytes_arrive_on_the_multi_thread_runtime() -> Outcome {
    transfer(5_000_017, 10_000, Increment::default()).await
}

#[tokio::test]
async fn increments_arrive_before_the_last_is_computed() -> Outcome {
    let (left, right, peer) = pair().await?;
    let (buffer, increment) = (vec![0_u32; 10_000], Increment::Fixed(4000));
    let mut sender = DeltaSender::open(&left, &peer, "early", buffer, increment).await?;
    let mut receiver = limited(DeltaReceiver::accept(&right, "early", vec![0_u32; 10_000])).await?;
    assert_eq!(receiver.increment_bytes(), 4000);

    // 2500 elements are two increments and a half; the half stays.
    fill(&mut sender, 2500, 100).await?;
    assert_eq!(limited(receiver.wait(1200..2000)).await?, values(1200..2000));
    assert_eq!(limited(receiver.next()).await?, Some(&values(0..2000)[..]));
    assert!(is_pending(receiver.wait(2000..2001)));
    assert!(is_pending(receiver.next()));

    // A cancelled wait has taken nothing from the later ones.
    fill(&mut sender, 3000, 500).await?;
    limited(receiver.wait(..3000)).await?;
    assert_eq!(limited(receiver.next()).await?, Some(&values(2000..3000)[..]));
    assert!(is_pending(receiver.finish()));
    assert_eq!(sender.committed(), values(0..3000));
    Ok(())
}

#[tokio::test]
async fn a_whole_increment_holds_everything_back() -> Outcome {
    let (left, right, peer) = pair().await?;
    let (buffer, whole) = (vec![0_u32; 10_000], Increment::Fixed(40_000));
    let mut sender = DeltaSender::open(&left, &peer, "whole", buffer, whole).await?;
    let mut receiver = limited(DeltaReceiver::accept(&right, "whole", vec![0_u32; 10_000])).await?;
    fill(&mut sender, 9_999, 1000).await?;
    // A second delta on the same link arrives; the first has not moved.
    let second = DeltaSender::<u8>::open(&left, &peer, "2", Vec::new(), Increment::default());
    let mut second = second.await?;
    let (sent, received) = limited(async {
        tokio::join!(second.finish(), DeltaReceiver::accept(&right, "2", Vec::<u8>::new()))
    })
    .await;
    sent.map_err(Box::new)?;
    drop(received?);
    assert_eq!(receiver.landed().len(), 0);
    fill(&mut sender, 10_000, 1).await?;
    assert_eq!(limited(receiver.finish()).await?, values(0..10_000));
    Ok(())
}

#[tokio::test]
async fn ranges_outside_the_buffer_are_errors() -> Outcome {
    let (left, right, peer) = pair().await?;
    let buffer = vec![0_u8; 10];
    let _sender = DeltaSender::open(&left, &peer, "r", buffer, Increment::default()).await?;
    let receiver = limited(DeltaReceiver::accept(&right, "r", vec![0_u8; 10])).await?;
    let error = limited(receiver.wait(5..11)).await.expect_err("beyond the end");
    assert!(matches!(error, DeltaRecvError::Range { start: 5, end: 11, length: 10, .. }));
    let backwards = Range { start: 4, end: 3 };
    assert!(limited(receiver.wait(backwards)).await.is_err());
    assert!(limited(receiver.wait(10..)).await?.is_empty());
    Ok(())
}

#[tokio::test]
async fn finish_before_the_end_says_how_much_is_missing() -> Outcome {
    let (left, right, peer) = pair().await?;
    let buffer = vec![0_u32; 100];
    let mut sender = DeltaSender::open(&left, &peer, "n", buffer, Increment::default()).await?;
    let mut receiver = limited(DeltaReceiver::accept(&right, "n", vec![0_u32; 100])).await?;
    fill(&mut sender, 60, 60).await?;
    let error = limited(sender.finish()).await.expect_err("40 are missing");
    assert!(matches!(error, DeltaSendError::Unfinished { committed: 60, length: 100, .. }));
    assert!(error.to_string().contains("60 of 100"), "{error}");
    // The error loses nothing.
    fill(&mut sender, 100, 60).await?;
    // A cancelled call loses nothing either, wherever it had got to.
    let _ = is_pending(sender.finish());
    let (sent, received) =
        limited(async { tokio::join!(sender.finish(), receiver.finish()) }).await;
    sent?;
    assert_eq!(received?, values(0..100));
    Ok(())
}

/// Sends zeroes to a receiver that `accepts` another shape; both errors must have all `words`.
async fn mismatch(
    len: usize,
    accepts: impl AsyncFnOnce(&Node) -> Result<(), DeltaRecvError>,
    words: [&str; 2],
) -> Outcome {
    let (left, right, peer) = pair().await?;
    let send = async {
        let (buffer, increment) = (vec![0_f32; len], Increment::Fixed(4096));
        let mut sender = DeltaSender::open(&left, &peer, "odd", buffer, increment).await?;
        while let Some(chunk) = sender.next(100)? {
            chunk.commit().await?;
        }
        sender.finish().await
    };
    let (sent, received) = limited(async { tokio::join!(send, accepts(&right)) }).await;
    let sent = sent.expect_err("the shapes differ");
    let received = received.expect_err("the shapes differ");
    assert!(matches!(received, DeltaRecvError::Mismatch(_)), "{received}");
    assert!(matches!(sent, DeltaSendError::Mismatch(_)), "{sent}");
    for word in words {
        assert!(received.to_string().contains(word), "{received}");
        assert!(sent.to_string().contains(word), "{sent}");
    }
    assert!(received.to_string().contains("left") && sent.to_string().contains("right"));
    Ok(())
}

#[tokio::test]
async fn both_sides_name_a_mismatch_of_length() -> Outcome {
    let accepts =
        async |node: &Node| DeltaReceiver::accept(node, "odd", vec![0_f32; 20_001]).await.map(drop);
    mismatch(20_000, accepts, ["20000 elements of f32", "20001 elements of f32"]).await
}

#[tokio::test]
async fn both_sides_name_a_mismatch_of_type() -> Outcome {
    let accepts =
        async |node: &Node| DeltaReceiver::accept(node, "odd", vec![0_u32; 5]).await.map(drop);
    mismatch(5, accepts, ["5 elements of f32", "5 elements of u32"]).await
}

#[tokio::test]
async fn what_is_no_delta_is_refused() -> Outcome {
    let (left, right, peer) = pair().await?;
    let mut channel = left.open_duplex_bytes(&peer, "plain").await?;
    channel.sender().send_slice(b"what is this, and why is it here? it is no opening").await?;
    let error = limited(DeltaReceiver::accept(&right, "plain", vec![0_u8; 4])).await;
    let error = error.expect_err("no opening");
    assert!(matches!(error, DeltaRecvError::Opening { fault: DeltaFault::Magic, .. }), "{error}");
    limited(channel.sender().closed()).await;
    assert!(limited(channel.recv()).await?.is_none());

    drop(left.open_duplex_bytes(&peer, "nothing").await?);
    let error = limited(DeltaReceiver::accept(&right, "nothing", vec![0_u8; 4])).await;
    let error = error.expect_err("no opening");
    let nothing = DeltaFault::Length { bytes: 0 };
    assert!(matches!(error, DeltaRecvError::Opening { fault, .. } if fault == nothing));
    Ok(())
}

#[tokio::test]
async fn a_sender_that_is_dropped_ends_the_waits() -> Outcome {
    let (left, right, peer) = pair().await?;
    let (buffer, increment) = (vec![0_u32; 1000], Increment::Fixed(400));
    let mut sender = DeltaSender::open(&left, &peer, "torn", buffer, increment).await?;
    let mut receiver = limited(DeltaReceiver::accept(&right, "torn", vec![0_u32; 1000])).await?;
    fill(&mut sender, 333, 50).await?;
    drop(sender);
    let error = limited(receiver.finish()).await.expect_err("the rest never comes");
    let DeltaRecvError::Ended { landed_bytes: 1332, length_bytes: 4000, cause, .. } = &error else {
        panic!("{error}");
    };
    assert!(
        cause.as_ref().is_some_and(|cause| cause.kind() == chunkcomm::LossKind::Left),
        "{error}"
    );
    assert!(error.to_string().contains("left"), "{error}");
    // The committed elements have come and stay.
    assert_eq!(limited(receiver.next()).await?, Some(&values(0..333)[..]));
    assert!(limited(receiver.next()).await.is_err());
    assert!(limited(receiver.into_buffer()).await.is_err());
    Ok(())
}

#[tokio::test]
async fn a_node_that_dies_ends_the_waits_with_its_name() -> Outcome {
    let (left, right, peer) = pair().await?;
    let (buffer, increment) = (vec![0_u32; 1000], Increment::Fixed(400));
    let mut sender = DeltaSender::open(&left, &peer, "dead", buffer, increment).await?;
    let receiver = limited(DeltaReceiver::accept(&right, "dead", vec![0_u32; 1000])).await?;
    fill(&mut sender, 500, 50).await?;
    assert_eq!(limited(receiver.wait(..500)).await?, values(0..500));
    let (first, second, _) = limited(async {
        tokio::join!(receiver.wait(400..600), receiver.wait(..), left.close(Duration::ZERO))
    })
    .await;
    for outcome in [first, second] {
        let error = outcome.expect_err("the sender's node is gone");
        assert!(error.to_string().contains("left"), "{error}");
    }
    assert_eq!(receiver.landed(), values(0..500));
    // The sender's side gets an error, too.
    let sent = limited(async {
        fill(&mut sender, 1000, 10).await?;
        Ok::<_, Box<dyn Error>>(sender.finish().await?)
    });
    let error = sent.await.expect_err("its node is closed");
    assert!(error.to_string().contains("right"), "{error}");
    Ok(())
}

#[tokio::test]
async fn a_receiver_that_is_dropped_stops_the_sender() -> Outcome {
    let (left, right, peer) = pair().await?;
    let len = 4_000_000;
    let buffer = vec![0_u32; len];
    let mut sender = DeltaSender::open(&left, &peer, "off", buffer, Increment::default()).await?;
    let receiver = limited(DeltaReceiver::accept(&right, "off", vec![0_u32; len])).await?;
    fill(&mut sender, 1000, 1000).await?;
    drop(receiver);
    let sent = limited(async {
        fill(&mut sender, len, 100_000).await?;
        Ok::<_, Box<dyn Error>>(sender.finish().await?)
    });
    sent.await.expect_err("nobody takes the rest");
    // The memory comes back all the same.
    assert_eq!(limited(sender.into_buffer()).await.len(), len);
    Ok(())
}

#[tokio::test]
async fn buffers_are_used_again() -> Outcome {
    let (left, right, peer) = pair().await?;
    let (mut out, mut back) = (vec![0_u32; 50_000], vec![0_u32; 50_000]);
    let addresses = (out.as_ptr() as usize, back.as_ptr() as usize);
    for round in 0..5 {
        let send = async {
            let (buffer, increment) = (std::mem::take(&mut out), Increment::default());
            let mut sender = DeltaSender::open(&left, &peer, "again", buffer, increment).await?;
            while let Some(mut chunk) = sender.next(777)? {
                chunk.fill(round);
                chunk.commit().await?;
            }
            sender.finish().await?;
            out = sender.into_buffer().await;
            Outcome::Ok(())
        };
        let receive = async {
            let buffer = std::mem::take(&mut back);
            let receiver = DeltaReceiver::accept(&right, "again", buffer).await?;
            back = receiver.into_buffer().await?;
            Outcome::Ok(())
        };
        let (sent, received) = limited(async { tokio::join!(send, receive) }).await;
        sent.and(received)?;
        assert!(back.iter().all(|element| *element == round));
        assert_eq!((out.as_ptr() as usize, back.as_ptr() as usize), addresses);
    }
    Ok(())
}

#[tokio::test]
async fn a_computing_thread_commits_without_a_runtime() -> Outcome {
    let (left, right, peer) = pair().await?;
    let len = 300_000;
    let buffer = vec![0_u32; len];
    let sender = DeltaSender::open(&left, &peer, "t", buffer, Increment::default()).await?;
    let computing = std::thread::spawn(move || {
        for start in (0..len).step_by(1000) {
            let mut chunk = sender.part(start..len.min(start + 1000)).expect("it is free");
            chunk.iter_mut().zip(start..).for_each(|(element, index)| *element = value(index));
            chunk.commit();
        }
        sender
    });
    let mut receiver = limited(DeltaReceiver::accept(&right, "t", vec![0_u32; len])).await?;
    assert!(limited(receiver.finish()).await? == values(0..len));
    let mut sender = computing.join().expect("the thread does not panic");
    limited(sender.finish()).await?;
    Ok(())
}

#[tokio::test]
async fn forwards_pass_through_a_node_as_the_bytes_land() -> Outcome {
    let nodes = [node("n0").await?, node("n1").await?, node("n2").await?, node("n3").await?];
    let to_1 = link(&nodes[0], &nodes[1]).await?;
    let to_2 = link(&nodes[1], &nodes[2]).await?;
    let to_3 = link(&nodes[1], &nodes[3]).await?;
    let len = 100_000;
    let (buffer, increment) = (vec![0_u32; len], Increment::Fixed(40_000));
    let mut sender = DeltaSender::open(&nodes[0], &to_1, "f", buffer, increment).await?;
    let middle = limited(DeltaReceiver::accept(&nodes[1], "f", vec![0_u32; len])).await?;
    let mut forwards = [
        middle.forward(&nodes[1], &to_2, "f").await?,
        middle.forward(&nodes[1], &to_3, "g").await?,
    ];
    let mut ends = [
        limited(DeltaReceiver::accept(&nodes[2], "f", vec![0_u32; len])).await?,
        limited(DeltaReceiver::accept(&nodes[3], "g", vec![0_u32; len])).await?,
    ];
    // Nobody reads in the middle; the first half is at the ends before the rest is computed.
    fill(&mut sender, len / 2, 10_000).await?;
    for end in &ends {
        assert!(limited(end.wait(..len / 2)).await? == values(0..len / 2));
        assert!(is_pending(end.wait(..len / 2 + 1)));
    }
    fill(&mut sender, len, 10_000).await?;
    limited(sender.finish()).await?;
    for (forward, end) in forwards.iter_mut().zip(&mut ends) {
        limited(forward.finish()).await?;
        assert!(limited(end.finish()).await? == values(0..len));
    }
    assert!(limited(middle.into_buffer()).await? == values(0..len));
    Ok(())
}

#[tokio::test]
async fn a_forward_goes_on_without_its_receiver() -> Outcome {
    let nodes = [node("n0").await?, node("n1").await?, node("n2").await?];
    let to_1 = link(&nodes[0], &nodes[1]).await?;
    let to_2 = link(&nodes[1], &nodes[2]).await?;
    let len = 50_000;
    let (buffer, increment) = (vec![0_u32; len], Increment::Fixed(4096));
    let mut sender = DeltaSender::open(&nodes[0], &to_1, "f", buffer, increment).await?;
    let middle = limited(DeltaReceiver::accept(&nodes[1], "f", vec![0_u32; len])).await?;
    drop(middle.forward(&nodes[1], &to_2, "f").await?);
    drop(middle);
    let mut end = limited(DeltaReceiver::accept(&nodes[2], "f", vec![0_u32; len])).await?;
    fill(&mut sender, len, 1000).await?;
    assert!(limited(end.finish()).await? == values(0..len));
    limited(sender.finish()).await?;
    Ok(())
}

#[tokio::test]
async fn the_end_of_a_chain_learns_who_died_at_its_start() -> Outcome {
    let nodes = [node("n0").await?, node("n1").await?, node("n2").await?];
    let to_1 = link(&nodes[0], &nodes[1]).await?;
    let to_2 = link(&nodes[1], &nodes[2]).await?;
    let (buffer, increment) = (vec![0_u32; 1000], Increment::Fixed(400));
    let mut sender = DeltaSender::open(&nodes[0], &to_1, "f", buffer, increment).await?;
    let middle = limited(DeltaReceiver::accept(&nodes[1], "f", vec![0_u32; 1000])).await?;
    let mut forward = middle.forward(&nodes[1], &to_2, "f").await?;
    let mut end = limited(DeltaReceiver::accept(&nodes[2], "f", vec![0_u32; 1000])).await?;
    fill(&mut sender, 500, 100).await?;
    limited(end.wait(..500)).await?;
    let (_, error) =
        limited(async { tokio::join!(nodes[0].close(Duration::ZERO), end.finish()) }).await;
    let error = error.expect_err("the rest never comes").to_string();
    assert!(error.contains("n1") && error.contains("n0"), "{error}");
    let error = limited(forward.finish()).await.expect_err("the rest never comes");
    assert!(matches!(error, DeltaSendError::Source { .. }), "{error}");
    assert!(error.source().is_some_and(|source| source.to_string().contains("n0")));
    Ok(())
}
