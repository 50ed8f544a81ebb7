//! Parts of a buffer, committed in any order and shown as they land.

use std::ops::Range;
use std::time::Duration;

use chunkcomm_pipeline::{
    DeltaReceiver, DeltaRecvError, DeltaSender, Element, Increment, PartError,
};
use chunkcomm_testkit::limited;
use chunkcomm_testkit::random::seeded;

use super::{Outcome, Pair, commit, compute, link, node, value, values};

/// Several threads commit the parts of a buffer in an order of the seed, piece by piece; the receiver
/// takes them as they land.
async fn scattered(seed: u64, len: usize, pieces: usize, increment: Increment) -> Outcome {
    let pair = Pair::new().await;
    let (mut sender, mut receiver) = pair.delta(len, increment).await;
    let mut random = seeded(seed);
    let mut parts = Vec::new();
    for mut part in sender.parts(pieces)? {
        let middle = random.below(part.len() as u64 + 1) as usize;
        let back = part.split_off(middle);
        parts.extend([part, back]);
    }
    for index in (1..parts.len()).rev() {
        parts.swap(index, random.below(index as u64 + 1) as usize);
    }
    let mut threads: Vec<Vec<_>> = (0..3).map(|_| Vec::new()).collect();
    for (index, part) in parts.into_iter().enumerate() {
        threads[index % 3].push(part);
    }
    let threads: Vec<_> = threads
        .into_iter()
        .map(|parts| {
            std::thread::spawn(move || {
                for mut part in parts {
                    let start = part.range().start;
                    compute(1, start, &mut part);
                    let half = part.len() / 2;
                    part.commit_first(half);
                    assert_eq!(part.range().start, start + half);
                    part.commit();
                }
            })
        })
        .collect();
    let mut seen = vec![false; len];
    while let Some((range, elements)) = limited(receiver.next_any()).await? {
        assert!(!range.is_empty() && elements == values(1, range.clone()), "seed {seed}");
        assert!(seen[range.clone()].iter().all(|seen| !seen), "seed {seed}: {range:?} again");
        seen[range].fill(true);
    }
    assert!(seen.into_iter().all(|seen| seen), "seed {seed}");
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    limited(sender.finish()).await?;
    assert!(limited(receiver.finish()).await? == values(1, 0..len), "seed {seed}");
    assert!(limited(sender.into_buffer()).await == values(1, 0..len), "seed {seed}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn threads_commit_in_any_order() -> Outcome {
    for (seed, len) in [0, 1, 2, 1025, 65_537, 300_007].into_iter().enumerate() {
        for (pieces, increment) in [
            (1, Increment::default()),
            (7, Increment::Fixed(1)),
            (64, Increment::default()),
            (64, Increment::Fixed(len * 4)),
            (64, Increment::Fixed(10_000)),
        ] {
            scattered(seed as u64, len, pieces, increment).await.map_err(|error| {
                format!("seed {seed}, {len} in {pieces}, {increment:?}: {error}")
            })?;
        }
    }
    Ok(())
}

#[tokio::test]
async fn what_is_committed_last_may_be_first() -> Outcome {
    let pair = Pair::new().await;
    let (mut sender, mut receiver) = pair.delta(3000, Increment::Fixed(4000)).await;
    let mut high = sender.part(2000..)?;
    compute(1, 2000, &mut high);
    high.commit();
    assert_eq!(limited(receiver.wait(2000..3000)).await?, values(1, 2000..3000));
    assert_eq!(limited(receiver.next_any()).await?.unwrap().0, 2000..3000);
    assert!(receiver.try_range(0..1)?.is_none() && receiver.landed().is_empty());
    assert_eq!(receiver.try_range(2999..)?, Some(&[value(1, 2999)][..]));
    // The sequential form goes on around the part.
    while let Some(mut chunk) = sender.next(1500)? {
        compute(1, chunk.range().start, &mut chunk);
        chunk.commit().await?;
    }
    assert_eq!(sender.position(), 2000);
    limited(sender.finish()).await?;
    assert_eq!(limited(receiver.next()).await?, Some(&values(1, 0..3000)[..]));
    Ok(())
}

#[tokio::test]
async fn less_than_an_increment_leaves_when_the_link_is_idle() -> Outcome {
    let pair = Pair::new().await;
    let (mut sender, receiver) = pair.delta(100_000, Increment::default()).await;
    for (start, count) in [(5, 1), (50_000, 3), (6, 2)] {
        let mut part = sender.part(start..start + count)?;
        compute(1, start, &mut part);
        part.commit();
        let range = start..start + count;
        assert_eq!(limited(receiver.wait(range.clone())).await?, values(1, range));
    }
    assert!(limited(sender.finish()).await.is_err(), "most is missing");
    Ok(())
}

#[tokio::test]
async fn a_whole_forward_keeps_less_than_an_increment_until_it_is_whole() -> Outcome {
    let (pair, ends) = (Pair::new().await, [node("soon").await, node("whole").await]);
    let (mut sender, middle) = pair.delta(100_000, Increment::default()).await;
    let (to_soon, to_whole) =
        (link(&pair.right, &ends[0]).await, link(&pair.right, &ends[1]).await);
    let _forward = middle.forward(&pair.right, &to_soon, "f").await?;
    let mut forward = middle.forward_whole(&pair.right, &to_whole, "f").await?;
    let soon = limited(DeltaReceiver::accept(&ends[0], "f", vec![7; 100_000])).await?;
    let mut whole = limited(DeltaReceiver::accept(&ends[1], "f", vec![7; 100_000])).await?;
    commit(1, &mut sender, 1).await?;
    assert_eq!(limited(soon.wait(..1)).await?, values(1, 0..1));
    assert_eq!(whole.try_range(..1)?, None);
    commit(1, &mut sender, 100_000).await?;
    limited(sender.finish()).await?;
    limited(forward.finish()).await?;
    assert!(limited(whole.finish()).await? == values(1, 0..100_000));
    Ok(())
}

#[tokio::test]
async fn an_overlap_names_both_ranges() -> Outcome {
    let pair = Pair::new().await;
    let (mut sender, _receiver) = pair.delta(100, Increment::default()).await;
    let part = sender.part(10..20)?;
    let out = sender.part(15..30).unwrap_err();
    assert_eq!(out, PartError::Out { asked: 15..30, taken: 15..20 });
    assert!(out.to_string().contains("15..30") && out.to_string().contains("15..20"), "{out}");
    part.commit();
    let committed = sender.part(..).unwrap_err();
    assert_eq!(committed, PartError::Committed { asked: 0..100, taken: 10..20 });
    assert_eq!(sender.part(90..101).unwrap_err(), PartError::Range { asked: 90..101, length: 100 });
    // A dropped part is free again.
    drop(sender.part(50..60)?);
    assert!(sender.parts(3).is_err());
    let chunk = sender.next(1000)?.unwrap();
    assert_eq!(chunk.range(), 0..10);
    chunk.commit().await?;
    assert_eq!(sender.next(1000)?.unwrap().range(), 20..100, "the part is passed over");
    Ok(())
}

#[tokio::test]
async fn elements_of_a_dropped_chunk_are_handed_out_again() -> Outcome {
    let pair = Pair::new().await;
    let (mut sender, mut receiver) = pair.delta(100, Increment::default()).await;
    sender.next(30)?.unwrap().fill(0);
    let mut chunk = sender.next(20)?.unwrap();
    assert_eq!(chunk.range(), 0..20);
    compute(1, 0, &mut chunk);
    chunk.commit_first(10).await?;
    assert_eq!(chunk.range(), 10..20, "the chunk has the rest");
    drop(chunk);
    assert_eq!((sender.position(), sender.committed()), (10, &values(1, 0..10)[..]));
    let mut chunk = sender.next(5)?.unwrap();
    assert_eq!((chunk.range(), &chunk[..]), (10..15, &values(1, 10..15)[..]), "as it was written");
    chunk.fill(0);
    // Never polled, it has committed nothing.
    drop(chunk.commit());
    assert_eq!(sender.part(10..15)?.range(), 10..15, "they are free");
    let unfinished = limited(sender.finish()).await.unwrap_err();
    assert!(unfinished.to_string().contains("10 of 100"), "{unfinished}");
    // Behind a part, too.
    let mut part = sender.part(10..40)?;
    sender.next(10)?.unwrap().fill(0);
    compute(1, 10, &mut part);
    part.commit();
    while let Some(mut chunk) = sender.next(7)? {
        compute(1, chunk.range().start, &mut chunk);
        chunk.commit().await?;
    }
    limited(sender.finish()).await?;
    assert_eq!(limited(receiver.finish()).await?, values(1, 0..100));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plain_thread_waits_for_a_range_and_gives_up_in_time() -> Outcome {
    let pair = Pair::new().await;
    let (sender, receiver) = pair.delta(1000, Increment::default()).await;
    let late = receiver.wait_blocking(500..600, Some(Duration::from_millis(5))).unwrap_err();
    assert!(matches!(late, DeltaRecvError::Late { start: 500, end: 600, .. }), "{late}");
    let waiting =
        std::thread::spawn(move || receiver.wait_blocking(500..600, None).map(<[u32]>::to_vec));
    let mut part = sender.part(400..700)?;
    compute(1, 400, &mut part);
    part.commit();
    assert_eq!(waiting.join().unwrap()?, values(1, 500..600));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plain_thread_takes_elements_as_they_land() -> Outcome {
    let pair = Pair::new().await;
    let (sender, mut receiver) = pair.delta(1000, Increment::default()).await;
    let soon = Some(Duration::from_millis(5));
    let late = receiver.next_any_blocking(soon).unwrap_err();
    assert!(matches!(late, DeltaRecvError::Late { .. }), "{late}");
    let taking = std::thread::spawn(move || {
        let mut seen = 0;
        while let Some((range, elements)) = receiver.next_any_blocking(None).unwrap() {
            assert_eq!(elements, values(1, range));
            seen += elements.len();
        }
        seen
    });
    for mut part in sender.parts(5)?.into_iter().rev() {
        let start = part.range().start;
        compute(1, start, &mut part);
        part.commit();
        tokio::task::yield_now().await;
    }
    assert_eq!(taking.join().unwrap(), 1000);
    Ok(())
}

/// Few pages of the 3 GiB are touched: a zeroed vector has memory where it is written.
#[cfg(target_pointer_width = "64")]
#[tokio::test]
async fn parts_of_a_sparse_buffer_of_3_gib_arrive_at_their_places() -> Outcome {
    const LEN: usize = (3 << 30) + 1;
    let pair = Pair::new().await;
    let buffer = vec![0_u8; LEN];
    let sender = DeltaSender::open(&pair.left, &pair.peer, "g", buffer, Increment::default());
    let sender = limited(sender).await?;
    let receiver = DeltaReceiver::accept(&pair.right, "g", vec![0_u8; LEN]);
    let mut receiver = limited(receiver).await?;
    let middle = 1 << 31;
    let places = [LEN - 3..LEN, middle - 5..middle + 70_000, 0..10, (1 << 30)..(1 << 30) + 1];
    for (place, value) in places.clone().into_iter().zip(1..) {
        let mut part = sender.part(place)?;
        part.fill(value);
        part.commit();
    }
    for (place, value) in places.clone().into_iter().zip(1..) {
        let landed = limited(receiver.wait(place)).await?;
        assert!(landed.iter().all(|element| *element == value));
    }
    assert_eq!(receiver.try_range(middle - 6..middle)?, None);
    assert_eq!(receiver.landed().len(), 10);
    let mut shown = 0;
    let expected = places.iter().map(Range::len).sum();
    while shown < expected {
        let (range, _) = limited(receiver.next_any()).await?.ok_or("there are more")?;
        assert!(
            places.iter().any(|it| it.start <= range.start && range.end <= it.end),
            "{range:?}"
        );
        shown += range.len();
    }
    assert_eq!(limited(sender.into_buffer()).await.len(), LEN);
    let error = limited(receiver.finish()).await.unwrap_err();
    assert!(matches!(error, DeltaRecvError::Ended { length_bytes: LEN, .. }), "{error}");
    Ok(())
}

/// Sends `len` elements in parts from the last to the first, and compares each.
async fn exact<T: Element + PartialEq>(
    pair: &Pair,
    len: usize,
    increment: Increment,
    value: impl Fn(usize) -> T,
) -> Outcome {
    let buffer = vec![T::zeroed(); len];
    let sender = DeltaSender::open(&pair.left, &pair.peer, "e", buffer.clone(), increment);
    let mut sender = limited(sender).await?;
    let receiver = limited(DeltaReceiver::accept(&pair.right, "e", buffer)).await?;
    for mut part in sender.parts(7)?.into_iter().rev() {
        let range = part.range();
        for (index, element) in range.zip(&mut *part) {
            *element = value(index);
        }
        part.commit();
    }
    limited(sender.finish()).await?;
    let all = limited(receiver.into_buffer()).await?;
    assert!(all.len() == len && all.into_iter().enumerate().all(|(at, it)| it == value(at)));
    Ok(())
}

#[tokio::test]
async fn lengths_around_a_page_arrive_element_by_element() -> Outcome {
    let pair = Pair::new().await;
    for len in [0, 1, 7, 4095, 4096, 4097, 12_289] {
        for increment in [Increment::Fixed(1), Increment::Fixed(4096), Increment::default()] {
            let exact = async {
                exact(&pair, len, increment, |index| index as u8 ^ 0x5A).await?;
                exact(&pair, len, increment, |index| [index as u8, (index >> 8) as u8, 9]).await?;
                exact(&pair, len / 9, increment, |index| [index as u64; 13]).await
            };
            let what = format!("{len}, {increment:?}");
            exact.await.map_err(|error| format!("{what}: {error}"))?;
        }
    }
    Ok(())
}
