//! Regions: several ends of one memory, by sections; forwards and combinations while elements come.
#![expect(clippy::single_range_in_vec_init, reason = "transfers often have one section")]

use std::future::{Future, poll_fn};
use std::ops::Range;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use chunkcomm::{Node, Peer};
use chunkcomm_group::{Operand, Region, RegionLanding, RegionSend};
use chunkcomm_pipeline::{
    DeltaReceiver, DeltaRecvError, DeltaSendError, DeltaSender, Element, Increment,
};
use chunkcomm_testkit::limited;
use chunkcomm_testkit::random::seeded;

use super::{Outcome, compute, link, node, value, values};

/// Nodes in a row, each linked with the next: `next[i]` is node `i + 1` as node `i` sees it.
struct Row {
    nodes: Vec<Node>,
    next: Vec<Peer>,
    before: Vec<Peer>,
}

impl Row {
    async fn new(count: usize) -> Self {
        let (mut nodes, mut next, mut before) = (Vec::new(), Vec::new(), Vec::new());
        for index in 0..count {
            nodes.push(node(&format!("n{index}")).await);
        }
        for pair in nodes.windows(2) {
            next.push(link(&pair[0], &pair[1]).await);
            let hello = pair[0].open_bytes(next.last().unwrap(), "hello").await.unwrap();
            before.push(pair[1].accept_bytes("hello").await.unwrap().0);
            drop(hello);
        }
        Self { nodes, next, before }
    }

    /// Sends from node `at` to the next one.
    async fn send<T: Element>(
        &self,
        at: usize,
        region: &Region<T>,
        name: &str,
        sections: &[Range<usize>],
    ) -> RegionSend {
        let (node, increment) = (&self.nodes[at], Increment::default());
        let sent = region.send(node, &self.next[at], name, sections, increment);
        limited(sent).await.unwrap()
    }

    /// Lands at node `at` from the one before.
    async fn land<T: Element>(
        &self,
        at: usize,
        region: &Region<T>,
        name: &str,
        sections: &[Range<usize>],
    ) -> RegionLanding {
        let landing = region.land(&self.nodes[at], &self.before[at - 1], name, sections);
        limited(landing).await.unwrap()
    }

    /// Combines at node `at` what comes from the one before with `own`, which comes first.
    async fn combine(
        &self,
        at: usize,
        out: &Region<u64>,
        name: &str,
        own: &Region<u64>,
    ) -> RegionLanding {
        let all = [0..out.len()];
        let own = Operand { region: own, sections: &all };
        let before = &self.before[at - 1];
        limited(out.combine(&self.nodes[at], before, name, &all, own, affine)).await.unwrap()
    }
}

/// Composition of affine functions modulo 2^32, `(a << 32) | b` for `a x + b`: associative and not
/// commutative.
fn compose(first: u64, second: u64) -> u64 {
    let parts = |it: u64| ((it >> 32) as u32, it as u32);
    let ((a, b), (c, d)) = (parts(first), parts(second));
    let (slope, offset) = (a.wrapping_mul(c), b.wrapping_mul(c).wrapping_add(d));
    (u64::from(slope) << 32) | u64::from(offset)
}

fn affine(out: &mut [u64], own: &[u64]) {
    assert!(out.len() == own.len());
    for (out, own) in out.iter_mut().zip(own) {
        *out = compose(*own, *out);
    }
}

fn numbers(seed: u64, len: usize) -> Vec<u64> {
    let mut random = seeded(seed);
    (0..len).map(|_| random.next_u64()).collect()
}

/// Computes all elements of a region in parts of about `piece`, in an order of the seed.
async fn compute_scattered(region: &Region<u32>, piece: usize, seed: u64) {
    let mut random = seeded(seed);
    let len = region.len();
    let mut parts: Vec<_> = (0..len)
        .step_by(piece)
        .map(|start| region.part(start..len.min(start + piece)).unwrap())
        .collect();
    while !parts.is_empty() {
        let mut part = parts.swap_remove(random.below(parts.len() as u64) as usize);
        let start = part.range().start;
        compute(1, start, &mut part);
        part.commit();
        tokio::task::yield_now().await;
    }
}

/// Cuts `0..len` into about `count` sections, some of them empty, in an order of the seed.
fn scattered(len: usize, count: u64, seed: u64) -> Vec<Range<usize>> {
    let mut random = seeded(seed);
    let mut cuts: Vec<usize> = (0..count).map(|_| random.below(len as u64 + 1) as usize).collect();
    cuts.extend([0, len]);
    cuts.sort_unstable();
    let mut sections: Vec<_> = cuts.windows(2).map(|pair| pair[0]..pair[1]).collect();
    for index in (1..sections.len()).rev() {
        sections.swap(index, random.below(index as u64 + 1) as usize);
    }
    sections
}

#[tokio::test]
async fn sections_come_to_their_places_through_a_region_in_the_middle() -> Outcome {
    for (seed, len) in (1..).zip([1, 2, 1025, 300_007]) {
        let row = Row::new(3).await;
        let [first, middle, last] = [(); 3].map(|()| Region::new(vec![7_u32; len]));
        let (of_first, of_last) = (scattered(len, 9, seed), scattered(len, 5, seed + 100));
        let whole = [0..len];
        let mut sent = row.send(0, &first, "a", &of_first).await;
        let mut forward = row.send(1, &middle, "b", &whole).await;
        let mut landing = row.land(1, &middle, "a", &of_first).await;
        let mut end = row.land(2, &last, "b", &of_last).await;
        compute_scattered(&first, 1000, seed).await;
        limited(sent.finish()).await?;
        limited(landing.finish()).await?;
        assert!(limited(middle.finish()).await? == values(1, 0..len), "seed {seed}, {len}");
        limited(end.finish()).await?;
        limited(forward.finish()).await?;
        let there = limited(last.finish()).await?;
        let in_order = of_last.iter().flat_map(|it| &there[it.clone()]).copied();
        assert!(in_order.eq((0..len).map(|index| value(1, index))), "seed {seed}, {len}");
        for region in [first, middle] {
            assert!(limited(region.into_buffer()).await == values(1, 0..len));
        }
    }
    Ok(())
}

/// The middle forwards what has come before the rest is there.
#[tokio::test]
async fn elements_pass_before_the_last_is_computed() -> Outcome {
    let row = Row::new(3).await;
    let len = 10_000;
    let [first, middle, last] = [(); 3].map(|()| Region::new(vec![0_u32; len]));
    let whole = [0..len];
    let _sent = row.send(0, &first, "a", &whole).await;
    let _forward = row.send(1, &middle, "a", &whole).await;
    let _landing = row.land(1, &middle, "a", &whole).await;
    let _end = row.land(2, &last, "a", &whole).await;
    let mut part = first.part(4000..5000)?;
    compute(1, 4000, &mut part);
    part.commit();
    assert_eq!(limited(last.wait(4000..5000)).await?, values(1, 4000..5000));
    assert_eq!((last.done(3999..4001), last.done(5000..5000)), (None, Some(&[][..])));
    Ok(())
}

/// One region gets its halves from two peers, and gives other sections to both.
#[tokio::test]
async fn one_region_lands_from_several_peers_and_sends_to_several() -> Outcome {
    let row = Row::new(3).await;
    let len = 100_001;
    let half = len / 2;
    let [low, all, high] = [(); 3].map(|()| Region::new(vec![0_u32; len]));
    let mut up = row.send(0, &low, "up", &[0..half]).await;
    let mut down = limited(high.send(
        &row.nodes[2],
        &row.before[1],
        "down",
        &[half..len],
        Increment::Fixed(999),
    ))
    .await?;
    let mut from_low = row.land(1, &all, "up", &[0..half]).await;
    let mut from_high =
        limited(all.land(&row.nodes[1], &row.next[1], "down", &[half..len])).await?;
    let mut to_high = row.send(1, &all, "rest", &[0..half]).await;
    let mut rest = row.land(2, &high, "rest", &[0..half]).await;
    let mut to_low = limited(all.send(
        &row.nodes[1],
        &row.before[0],
        "rest",
        &[half..len],
        Increment::default(),
    ))
    .await?;
    let mut other = limited(low.land(&row.nodes[0], &row.next[0], "rest", &[half..len])).await?;
    for (region, range) in [(&high, half..len), (&low, 0..half)] {
        let mut part = region.part(range.clone())?;
        compute(1, range.start, &mut part);
        part.commit();
    }
    for sent in [&mut up, &mut down, &mut to_high, &mut to_low] {
        limited(sent.finish()).await?;
    }
    for landing in [&mut from_low, &mut from_high, &mut rest, &mut other] {
        limited(landing.finish()).await?;
    }
    for region in [low, all, high] {
        assert!(limited(region.into_buffer()).await == values(1, 0..len));
    }
    Ok(())
}

#[tokio::test]
async fn a_chain_combines_in_order() -> Outcome {
    for len in [0, 1, 8191, 8192, 100_003, 1 << 20] {
        let row = Row::new(4).await;
        let inputs: Vec<_> = (0..4).map(|seed| numbers(seed, len)).collect();
        let own: Vec<_> = inputs.iter().cloned().map(Region::filled).collect();
        let out: Vec<_> = (0..4).map(|_| Region::new(vec![0; len])).collect();
        let whole = [0..len];
        let mut sent = vec![row.send(0, &own[0], "r", &whole).await];
        let mut landings = Vec::new();
        for at in 1..4 {
            landings.push(row.combine(at, &out[at], "r", &own[at]).await);
            if at < 3 {
                sent.push(row.send(at, &out[at], "r", &whole).await);
            }
        }
        for landing in &mut landings {
            limited(landing.finish()).await?;
        }
        for sent in &mut sent {
            limited(sent.finish()).await?;
        }
        let expected: Vec<u64> = (0..len)
            .map(|at| (0..3).rev().fold(inputs[3][at], |it, rank| compose(it, inputs[rank][at])))
            .collect();
        assert!(limited(out[3].finish()).await? == expected, "{len}");
    }
    Ok(())
}

/// The second child's elements come first and wait for the first one's results.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_children_are_combined_in_their_order() -> Outcome {
    for (seed, len) in (1..).zip([1, 5000, 24 * 1024 + 1, 300_007]) {
        let row = Row::new(3).await;
        let [first, own, second] = [0, 10, 20].map(|it| numbers(seed + it, len));
        let whole = [0..len];
        let parent = Region::filled(own.clone());
        let left = Region::new(vec![0; len]);
        let right = Region::filled(second.clone());
        let [partial, result] = [(); 2].map(|()| Region::new(vec![0; len]));
        // The second child at node 2 is sent from there.
        let (nodes, to_2) = (&row.nodes, &row.next[1]);
        let mut later =
            limited(right.send(&nodes[2], &row.before[1], "c", &whole, Increment::default()))
                .await?;
        let before = Operand { region: &partial, sections: &whole };
        let mut second_landing =
            limited(result.combine(&nodes[1], to_2, "c", &whole, before, affine)).await?;
        let mut sooner = row.send(0, &left, "c", &whole).await;
        let mut first_landing = row.combine(1, &partial, "c", &parent).await;
        for start in (0..len).step_by(3001).collect::<Vec<_>>().into_iter().rev() {
            let mut part = left.part(start..len.min(start + 3001))?;
            let range = part.range();
            part.copy_from_slice(&first[range]);
            part.commit();
            tokio::task::yield_now().await;
        }
        limited(first_landing.finish()).await?;
        limited(second_landing.finish()).await?;
        limited(sooner.finish()).await?;
        limited(later.finish()).await?;
        let expected: Vec<u64> =
            (0..len).map(|at| compose(compose(own[at], first[at]), second[at])).collect();
        assert!(limited(result.into_buffer()).await == expected, "seed {seed}, {len}");
        assert_eq!(limited(partial.into_buffer()).await.len(), len);
    }
    Ok(())
}

/// Results and operands lie elsewhere than what comes; elements have odd sizes.
#[tokio::test]
async fn a_section_is_combined_with_another_place() -> Outcome {
    let row = Row::new(2).await;
    let len = 50_000;
    let cell = |index: usize| [index as u8, (index >> 8) as u8, 3];
    let source = Region::filled((0..len).map(cell).collect());
    let own = Region::filled(vec![[1, 2, 3]; 2 * len]);
    let out = Region::new(vec![[0; 3]; len]);
    let mut sent = row.send(0, &source, "x", &[0..len]).await;
    let operand = Operand { region: &own, sections: &[len + 1..2 * len, 5..6] };
    let (node, before) = (&row.nodes[1], &row.before[0]);
    let sections = [len / 3..len, 0..len / 3];
    let add = |out: &mut [[u8; 3]], own: &[[u8; 3]]| {
        for (out, own) in out.iter_mut().zip(own) {
            *out = std::array::from_fn(|at| own[at].wrapping_add(out[at]));
        }
    };
    let mut landing = limited(out.combine(node, before, "x", &sections, operand, add)).await?;
    limited(landing.finish()).await?;
    limited(sent.finish()).await?;
    let there = limited(out.finish()).await?;
    let split = len - len / 3;
    for position in [0, 1, split - 1, split, len - 1] {
        let place = if position < split { position + len / 3 } else { position - split };
        let [a, b, _] = cell(position);
        assert_eq!(there[place], [a.wrapping_add(1), b.wrapping_add(2), 6], "{position}");
    }
    Ok(())
}

#[tokio::test]
async fn nothing_is_sent_and_lands() -> Outcome {
    let row = Row::new(2).await;
    for (len, sections) in [(0, vec![]), (10, vec![]), (10, vec![3..3, 10..10]), (0, vec![0..0])] {
        let [source, sink] = [(); 2].map(|()| Region::new(vec![5_u64; len]));
        let mut sent = row.send(0, &source, "n", &sections).await;
        let mut landing = row.land(1, &sink, "n", &sections).await;
        limited(landing.finish()).await?;
        limited(sent.finish()).await?;
        let own = Region::new(vec![0; len]);
        let operand = Operand { region: &own, sections: &sections };
        let mut sent = row.send(0, &source, "c", &sections).await;
        let (node, before) = (&row.nodes[1], &row.before[0]);
        let mut landing =
            limited(sink.combine(node, before, "c", &sections, operand, affine)).await?;
        limited(landing.finish()).await?;
        limited(sent.finish()).await?;
        assert!(limited(sink.wait(0..0)).await?.is_empty());
        assert_eq!(limited(sink.into_buffer()).await, vec![5; len]);
    }
    Ok(())
}

#[tokio::test]
async fn deltas_are_the_other_ends_of_regions() -> Outcome {
    let row = Row::new(2).await;
    let len = 200_000;
    let mut sender =
        DeltaSender::open(&row.nodes[0], &row.next[0], "a", vec![0; len], Increment::default())
            .await?;
    let sink = Region::new(vec![0_u32; len + 5]);
    let mut landing = row.land(1, &sink, "a", &[5..len + 5]).await;
    sender.each_chunk(1000, |start, chunk| compute(1, start, chunk))?;
    limited(sender.finish()).await?;
    limited(landing.finish()).await?;
    assert!(limited(sink.wait(5..)).await? == values(1, 0..len));
    let source = Region::filled(values(2, 0..len));
    let mut sent = row.send(0, &source, "b", &[0..len]).await;
    let receiver = limited(DeltaReceiver::accept(&row.nodes[1], "b", vec![0_u32; len])).await?;
    assert!(limited(receiver.into_buffer()).await? == values(2, 0..len));
    limited(sent.finish()).await?;
    Ok(())
}

#[tokio::test]
async fn a_difference_of_shapes_is_an_error_at_both_ends() -> Outcome {
    let row = Row::new(2).await;
    let (source, sink) = (Region::filled(vec![0_u32; 10]), Region::new(vec![0_u32; 10]));
    let mut sent = row.send(0, &source, "m", &[0..4, 5..7]).await;
    let refused = limited(sink.land(&row.nodes[1], &row.before[0], "m", &[0..7])).await;
    let text = refused.unwrap_err().to_string();
    assert!(text.contains("7 elements of u32") && text.contains("6 elements"), "{text}");
    let error = limited(sent.finish()).await.unwrap_err();
    assert!(matches!(error, DeltaSendError::Mismatch(_)), "{error}");
    let text = error.to_string();
    assert!(text.contains("6 elements") && text.contains("7 elements"), "{text}");
    assert!(limited(sink.into_buffer()).await == [0; 10]);
    Ok(())
}

/// Elements of the dead peer are an error, down the chain; those of others still come.
#[tokio::test]
async fn a_dead_peer_is_an_error_of_its_own_sections() -> Outcome {
    let row = Row::new(3).await;
    let len = 20_000;
    let half = len / 2;
    let [dead, middle, last] = [(); 3].map(|()| Region::new(vec![0_u32; len]));
    let _sent = row.send(0, &dead, "d", &[0..half]).await;
    let mut landing = row.land(1, &middle, "d", &[0..half]).await;
    let mut forward = row.send(1, &middle, "f", &[0..half]).await;
    let mut end = row.land(2, &last, "f", &[0..half]).await;
    let alive = Region::new(vec![0_u32; half]);
    let mut other =
        limited(alive.send(&row.nodes[2], &row.before[1], "o", &[0..half], Increment::default()))
            .await?;
    let mut other_landing =
        limited(middle.land(&row.nodes[1], &row.next[1], "o", &[half..len])).await?;
    let mut part = dead.part(100..200)?;
    compute(1, 100, &mut part);
    part.commit();
    limited(last.wait(100..200)).await?;
    let (_, missing) =
        limited(async { tokio::join!(row.nodes[0].close(Duration::ZERO), last.wait(0..half)) })
            .await;
    let text = missing.unwrap_err().to_string();
    assert!(text.contains("n1") && text.contains("n0"), "{text}");
    let text = limited(landing.finish()).await.unwrap_err().to_string();
    assert!(text.contains("n0"), "{text}");
    let error = limited(forward.finish()).await.unwrap_err();
    assert!(matches!(error, DeltaSendError::Source { .. }), "{error}");
    limited(end.finish()).await.unwrap_err();
    limited(middle.wait(0..1)).await.unwrap_err();
    assert_eq!(limited(middle.wait(100..200)).await?, values(1, 100..200), "it stays");
    let mut part = alive.part(..)?;
    compute(1, half, &mut part);
    part.commit();
    limited(other_landing.finish()).await?;
    limited(other.finish()).await?;
    assert!(limited(middle.wait(half..)).await? == values(1, half..len));
    for region in [dead, middle, last] {
        assert_eq!(limited(region.into_buffer()).await.len(), len);
    }
    Ok(())
}

/// Any end, or a region, is dropped in the middle: all other ends learn of it, and memory comes back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn anything_is_dropped_in_the_middle() -> Outcome {
    for victim in 0..8 {
        let row = Row::new(3).await;
        let len = 400_000;
        let whole = [0..len];
        let [first, own, last] = [(); 3].map(|()| Region::new(vec![1_u64; len]));
        let partial = Region::new(vec![0; len]);
        let mut sent = Some(row.send(0, &first, "a", &whole).await);
        let mut landing = Some(row.combine(1, &partial, "a", &own).await);
        let mut forward = Some(row.send(1, &partial, "b", &whole).await);
        let mut end = Some(row.land(2, &last, "b", &whole).await);
        for (region, to) in [(&first, len / 2), (&own, len / 4)] {
            region.part(0..to)?.commit();
        }
        assert_eq!(limited(last.wait(7..8)).await?, [compose(1, 1)]);
        let mut regions = [Some(first), Some(own), Some(partial), Some(last)];
        match victim {
            0 => drop(sent.take()),
            1 => drop(landing.take()),
            2 => drop(forward.take()),
            3 => drop(end.take()),
            _ => drop(regions[victim - 4].take()),
        }
        if let Some(sent) = sent.as_mut().filter(|_| [1, 4, 5, 6].contains(&victim)) {
            limited(sent.finish()).await.expect_err("the first transfer");
        }
        if let Some(landing) = landing.as_mut().filter(|_| [0, 4, 5, 6].contains(&victim)) {
            limited(landing.finish()).await.expect_err("the first landing");
        }
        if let Some(forward) = forward.as_mut().filter(|_| victim != 2) {
            limited(forward.finish()).await.expect_err("the forward");
        }
        if let Some(end) = end.as_mut().filter(|_| victim != 3) {
            limited(end.finish()).await.expect_err("the last landing");
        }
        if let Some(last) = &regions[3] {
            limited(last.wait(..)).await.expect_err("the last region");
        }
        for region in regions.into_iter().flatten() {
            assert_eq!(limited(region.into_buffer()).await.len(), len, "{victim}");
        }
    }
    Ok(())
}

/// The memory comes back while peers live and nothing was finished, the ends still there.
#[tokio::test]
async fn the_buffer_comes_back_in_the_middle() -> Outcome {
    let row = Row::new(2).await;
    let len = 1 << 20;
    let [source, sink] = [(); 2].map(|()| Region::new(vec![3_u32; len]));
    let mut sent = row.send(0, &source, "a", &[0..len]).await;
    let mut landing = row.land(1, &sink, "a", &[0..len]).await;
    source.part(0..len / 2)?.commit();
    limited(sink.wait(0..1)).await?;
    assert_eq!(limited(sink.into_buffer()).await.len(), len);
    let error = limited(sent.finish()).await.unwrap_err().to_string();
    assert!(error.contains("n1"), "{error}");
    limited(landing.finish()).await.unwrap_err();
    assert_eq!(limited(source.into_buffer()).await, vec![3; len]);
    Ok(())
}

#[tokio::test]
async fn a_panic_of_the_function_is_an_error_at_both_ends() -> Outcome {
    let row = Row::new(2).await;
    let whole = [0..50_000];
    let [source, own] = [(); 2].map(|()| Region::filled(vec![1_u64; 50_000]));
    let out = Region::new(vec![0; 50_000]);
    let mut sent = row.send(0, &source, "p", &whole).await;
    let operand = Operand { region: &own, sections: &whole };
    let (node, before) = (&row.nodes[1], &row.before[0]);
    let fails = |_: &mut [u64], _: &[u64]| panic!("no {}", "sum");
    let mut landing = limited(out.combine(node, before, "p", &whole, operand, fails)).await?;
    let error = limited(landing.finish()).await.unwrap_err();
    assert!(matches!(error, DeltaRecvError::Combine { .. }), "{error}");
    assert!(error.to_string().contains("no sum"), "{error}");
    let refused = limited(sent.finish()).await.unwrap_err().to_string();
    assert!(refused.contains("no sum") && refused.contains("n1"), "{refused}");
    limited(out.wait(0..1)).await.unwrap_err();
    // The link goes on.
    let mut sent = row.send(0, &source, "q", &whole).await;
    let mut landing = row.combine(1, &out, "q", &own).await;
    limited(landing.finish()).await?;
    limited(sent.finish()).await?;
    assert_eq!(limited(out.finish()).await?[9], compose(1, 1));
    Ok(())
}

#[tokio::test]
async fn what_lands_twice_is_an_error() -> Outcome {
    let row = Row::new(2).await;
    let source = Region::filled(values(1, 0..1000));
    let sink = Region::new(vec![0_u32; 1000]);
    for (name, fits) in [("a", true), ("b", false)] {
        let mut sent = row.send(0, &source, name, &[0..600]).await;
        let mut landing = row.land(1, &sink, name, &[100..700]).await;
        assert_eq!(limited(landing.finish()).await.is_ok(), fits);
        assert_eq!(limited(sent.finish()).await.is_ok(), fits);
    }
    assert!(limited(sink.wait(100..700)).await? == values(1, 0..600));
    Ok(())
}

/// A peer that receives nothing holds up neither the end of a transfer nor the memory.
#[tokio::test]
async fn the_buffer_comes_back_from_a_peer_that_takes_nothing() -> Outcome {
    let row = Row::new(2).await;
    for len in [1000, 1 << 20] {
        let source = Region::filled(vec![3_u32; len]);
        let mut sent = Vec::new();
        for index in 0..40 {
            sent.push(row.send(0, &source, &format!("{index} of {len}"), &[0..len]).await);
        }
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert_eq!(limited(source.into_buffer()).await, vec![3; len]);
        for mut sent in sent {
            limited(sent.finish()).await.unwrap_err();
        }
    }
    Ok(())
}

#[test]
fn regions_and_their_ends_go_to_other_threads() {
    fn is_shared<T: Send + Sync>() {}
    is_shared::<Region<f32>>();
    is_shared::<(RegionSend, RegionLanding)>();
}

/// Polls a future some times and drops it, unless it ends before.
async fn dropped_after<F: Future>(polls: usize, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    for _ in 0..polls {
        if let Poll::Ready(output) = poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await {
            return Some(output);
        }
        tokio::task::yield_now().await;
    }
    None
}

#[tokio::test]
async fn a_call_whose_future_was_dropped_is_made_again() -> Outcome {
    let row = Row::new(2).await;
    let len = 100_000;
    let whole = [0..len];
    for polls in 0..12 {
        let [first, own] = [1, 2].map(|seed| numbers(seed, len));
        let (source, out) = (Region::new(vec![0; len]), Region::new(vec![0; len]));
        let operand = Region::filled(own.clone());
        let operand = Operand { region: &operand, sections: &whole };
        let (node, before) = (&row.nodes[1], &row.before[0]);
        let again = format!("again {polls}");
        let combine = || out.combine(node, before, &again, &whole, operand, affine);
        // Before it is opened, and while it is.
        assert!(dropped_after(polls, combine()).await.is_none());
        let mut sent = row.send(0, &source, &again, &whole).await;
        let mut landing = match dropped_after(polls, combine()).await {
            Some(landing) => landing?,
            None => limited(combine()).await?,
        };
        assert!(dropped_after(polls, out.wait(..)).await.is_none());
        assert!(dropped_after(polls, landing.finish()).await.is_none());
        assert!(dropped_after(polls, sent.finish()).await.is_none());
        let mut part = source.part(..)?;
        part.copy_from_slice(&first);
        part.commit();
        dropped_after(polls, sent.finish()).await;
        dropped_after(polls, landing.finish()).await;
        limited(sent.finish()).await?;
        limited(landing.finish()).await?;
        let there = limited(out.wait(..)).await?;
        assert!(there.iter().copied().eq((0..len).map(|at| compose(own[at], first[at]))));
    }
    Ok(())
}

#[tokio::test]
async fn a_region_begins_again_when_nobody_has_its_bytes() {
    let mut region = Region::filled((0..1000_u64).collect());
    let bytes = region.bytes(10..12).unwrap();
    assert_eq!(bytes[..], [10_u64.to_ne_bytes(), 11_u64.to_ne_bytes()].concat());
    let wait = Duration::from_millis(20);
    assert!(tokio::time::timeout(wait, region.start()).await.is_err());
    assert_eq!(region.done(..).unwrap()[5], 5);
    drop(bytes);
    limited(region.start()).await;
    assert!(region.done(..1).is_none() && region.bytes(3..4).is_none());
    let mut part = region.part(3..5).unwrap();
    assert_eq!(part[..], [3, 4]);
    part[0] = 9;
    part.commit();
    assert_eq!(region.bytes(3..4).unwrap()[..], 9_u64.to_ne_bytes());
    assert!(region.bytes(3..6).is_none());
}
