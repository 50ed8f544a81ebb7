//! Plans of all ranks against brute force over all elements.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::ops::Range;

/// One dimension of a layout: how it is distributed, over how many ranks, its margin, and how many indices the
/// array has before and behind what is transferred.
#[derive(Clone, Debug)]
struct Dim {
    kind: u8,
    number: usize,
    ranks: usize,
    margin: usize,
    around: (usize, usize),
}

fn dims(count: usize) -> impl Strategy<Value = Vec<Dim>> {
    let dim = (0..5u8, 1..6usize, 1..4usize, 0..3usize, 0..3usize, 0..3usize).prop_map(
        |(kind, number, ranks, margin, before, behind)| Dim {
            kind,
            number,
            ranks,
            margin,
            around: (before, behind),
        },
    );
    prop::collection::vec(dim, count)
}

/// A layout that transfers an array of that shape, and where the transferred part begins.
fn layout(shape: &[usize], dims: &[Dim], order: &[usize]) -> (Layout, Vec<usize>) {
    // Dimension `i` of the storage is dimension `order[i]` of the transfer.
    let extents: Vec<usize> =
        order.iter().map(|&dim| shape[dim] + dims[dim].around.0 + dims[dim].around.1).collect();
    let mut builder = Layout::builder(&extents);
    let mut margins = Vec::new();
    let mut region: Vec<Range<usize>> = Vec::new();
    for (&dim, &extent) in order.iter().zip(&extents) {
        let Dim { kind, number, ranks, margin, around } = &dims[dim];
        builder = match kind {
            0 => builder.replicated(*ranks),
            1 => builder.block(*ranks),
            2 => builder.cyclic(*number, *ranks),
            3 => builder.cyclic(1, *ranks),
            _ => builder.blocks(&cut(extent, *number, *ranks)),
        };
        margins.push(if matches!(kind, 2 | 3) { 0 } else { *margin });
        region.push(around.0..around.0 + shape[dim]);
    }
    let layout = builder.build().and_then(|layout| layout.margins(&margins)).expect("it is valid");
    let layout = layout.region(&region).expect("it is within");
    let mut axes = vec![0; order.len()];
    for (axis, &dim) in order.iter().enumerate() {
        axes[dim] = axis;
    }
    let starts = dims.iter().map(|dim| dim.around.0).collect();
    (layout.permuted(&axes).expect("each axis is there once"), starts)
}

/// Lengths that sum up to an extent, some of them 0.
fn cut(extent: usize, number: usize, ranks: usize) -> Vec<usize> {
    let mut ends: Vec<usize> = (1..ranks).map(|i| i * number * 7 % (extent + 1)).collect();
    ends.push(extent);
    ends.sort_unstable();
    let starts = std::iter::once(0).chain(ends.iter().copied());
    starts.zip(&ends).map(|(start, end)| end - start).collect()
}

type Case = (Vec<usize>, Vec<Dim>, Vec<Dim>, Vec<usize>, Vec<usize>);

fn cases() -> impl Strategy<Value = Case> {
    (1..4usize).prop_flat_map(|count| {
        let order = || Just((0..count).collect::<Vec<_>>()).prop_shuffle();
        let extents = 0..[0usize, 60, 14, 7][count];
        (prop::collection::vec(extents, count), dims(count), dims(count), order(), order())
    })
}

/// Where each element of a receiver's storage comes from, by its offset there: the sender, and the offset there.
fn sources(
    from: &Layout,
    to: &Layout,
    receiver: usize,
    plan: &Plan,
) -> BTreeMap<usize, (usize, usize)> {
    let mut sources = BTreeMap::new();
    let into = to.strides(receiver);
    for peer in &plan.peers {
        let strides = from.strides(peer.peer);
        let mut offsets = vec![(0, 0)];
        for (dim, meeting) in peer.meetings.iter().enumerate() {
            let along: Vec<(usize, usize)> = meeting
                .runs(0..meeting.total)
                .flat_map(|run| {
                    (0..run.length).map(move |i| (run.at_sender + i, run.at_receiver + i))
                })
                .map(|(at_sender, at_receiver)| (at_sender * strides[dim], at_receiver * into[dim]))
                .collect();
            offsets = offsets
                .iter()
                .flat_map(|(a, b)| along.iter().map(move |(c, d)| (a + c, b + d)))
                .collect();
        }
        assert_eq!(offsets.len(), peer.elements());
        for (at_sender, at_receiver) in offsets {
            let other = sources.insert(at_receiver, (peer.peer, at_sender));
            assert_eq!(other, None, "offset {at_receiver} comes from two ranks");
        }
    }
    sources
}

/// Returns the index of the transfer of a global index, if it is carried.
fn carried(global: &[usize], starts: &[usize], shape: &[usize]) -> Option<Vec<usize>> {
    let inside = global.iter().zip(starts).zip(shape);
    inside.map(|((at, start), extent)| at.checked_sub(*start).filter(|at| at < extent)).collect()
}

proptest! {
    #[test]
    fn all_that_is_wanted_comes_from_one_owner((shape, from, to, sender_order, receiver_order) in cases()) {
        let (from, from_starts) = layout(&shape, &from, &sender_order);
        let (to, to_starts) = layout(&shape, &to, &receiver_order);
        for receiver in 0..to.ranks() {
            let plan = Plan::of(&from, &to, Side::Receiver, receiver);
            let mut sources = sources(&from, &to, receiver, &plan);
            for offset in 0..to.local_len(receiver) {
                let global = to.global(receiver, offset);
                let index = global.and_then(|global| carried(&global, &to_starts, &shape));
                let source = sources.remove(&offset);
                prop_assert_eq!(index.is_some(), source.is_some(), "offset {} of rank {}", offset, receiver);
                if let (Some(index), Some((sender, at))) = (index, source) {
                    let index: Vec<usize> = index.iter().zip(&from_starts).map(|(i, start)| i + start).collect();
                    prop_assert_eq!(from.local(sender, &index), Some(at));
                }
            }
            prop_assert!(sources.is_empty(), "beyond the storage: {sources:?}");
        }
    }

    #[test]
    fn both_ends_agree(
        (shape, from, to, sender_order, receiver_order) in cases(), element_bytes in 1..40_000usize,
    ) {
        let (from, _) = layout(&shape, &from, &sender_order);
        let (to, _) = layout(&shape, &to, &receiver_order);
        let mut sent = BTreeMap::new();
        for rank in 0..from.ranks() {
            let plan = Plan::of(&from, &to, Side::Sender, rank);
            let turn = |peer: &PeerPlan| (peer.peer + to.ranks() - 1 - rank % to.ranks()) % to.ranks();
            prop_assert!(plan.peers.windows(2).all(|two| turn(&two[0]) < turn(&two[1])), "order of peers");
            for peer in plan.peers {
                let tiles = peer.tiles(&from, &to, element_bytes);
                sent.insert((rank, peer.peer), (peer.meetings, tiles));
            }
        }
        for rank in 0..to.ranks() {
            for peer in Plan::of(&from, &to, Side::Receiver, rank).peers {
                let tiles = peer.tiles(&from, &to, element_bytes);
                prop_assert_eq!(sent.remove(&(peer.peer, rank)), Some((peer.meetings, tiles)));
            }
        }
        prop_assert!(sent.is_empty(), "sent, but not awaited: {sent:?}");
    }

    #[test]
    fn runs_are_contiguous_at_both((shape, from, to, sender_order, receiver_order) in cases()) {
        let (from, _) = layout(&shape, &from, &sender_order);
        let (to, _) = layout(&shape, &to, &receiver_order);
        for rank in 0..to.ranks() {
            let plan = Plan::of(&from, &to, Side::Receiver, rank);
            let all = sources(&from, &to, rank, &plan);
            let mut counted = BTreeMap::new();
            let mut last = None;
            for (&at, &(sender, from_at)) in &all {
                // The next element here is the next one there: not a run of its own.
                let follows = last == at.checked_sub(1).zip(from_at.checked_sub(1)).map(|(at, from)| (at, sender, from));
                *counted.entry(sender).or_insert(0) += u64::from(!follows || last.is_none());
                last = Some((at, sender, from_at));
            }
            for peer in &plan.peers {
                let runs = peer.runs((&from, peer.peer), (&to, rank));
                let least = counted[&peer.peer];
                prop_assert!(runs >= least && runs <= peer.elements() as u64, "{runs}, not {least}");
                let is_plain = peer.meetings.len() == 1;
                prop_assert!(!is_plain || runs == least, "{runs}, not {least}");
            }
        }
    }
}

#[test]
fn replicas_share_the_receivers() {
    let from = Layout::builder(&[6, 6]).replicated(2).replicated(3).build().expect("it is valid");
    let to = Layout::builder(&[6, 6]).block(4).whole().build().expect("it is valid");
    let senders: Vec<usize> = (0..3)
        .map(|rank| {
            let plan = Plan::of(&from, &to, Side::Receiver, rank);
            assert_eq!(plan.peers.len(), 1);
            plan.peers[0].peer
        })
        .collect();
    assert_eq!(senders, [0, 3, 1], "coordinates (0, 0), (1, 0), (0, 1)");
    // The last one of four blocks of 2 is empty.
    assert!(Plan::of(&from, &to, Side::Receiver, 3).peers.is_empty());
}

#[test]
fn runs_join_over_dimensions() {
    let rows = Layout::builder(&[12, 20]).block(2).whole().build().expect("it is valid");
    let columns = Layout::builder(&[12, 20]).whole().block(2).build().expect("it is valid");
    let turned = Layout::builder(&[20, 12]).block(2).whole().build().expect("it is valid");
    let turned = turned.permuted(&[1, 0]).expect("each axis is there once");
    let wide = rows.clone().margin(1).expect("not cyclic");
    for (from, to, runs) in
        [(&rows, &rows, 1), (&rows, &columns, 6), (&rows, &turned, 60), (&rows, &wide, 6)]
    {
        let plan = Plan::of(from, to, Side::Sender, 1);
        let last = plan.peers.last().expect("there are two receivers");
        assert_eq!(last.runs((from, 1), (to, last.peer)), runs, "{from:?} to {to:?}");
    }
}

fn cyclic(extent: usize, block: usize, ranks: usize) -> Layout {
    let builder = Layout::builder(&[extent, extent]).cyclic(block, ranks).cyclic(block, ranks);
    builder.build().expect("it is valid")
}

#[test]
fn few_families_for_many_blocks() {
    let (from, to) = (cyclic(16384, 3, 64), cyclic(16384, 5, 64));
    for (side, rank) in
        [(Side::Sender, 0), (Side::Receiver, 0), (Side::Sender, 1234), (Side::Receiver, 4095)]
    {
        let plan = Plan::of(&from, &to, side, rank);
        assert_eq!(plan.peers.len(), 49);
        let mut families = [0, 0];
        let mut met = [Vec::new(), Vec::new()];
        for peer in &plan.peers {
            let other = if side == Side::Sender { &to } else { &from };
            let coordinates = other.coordinates(peer.peer);
            for dim in 0..2 {
                if !met[dim].contains(&coordinates[dim]) {
                    met[dim].push(coordinates[dim]);
                    families[dim] += peer.meetings[dim].families();
                }
            }
        }
        assert_eq!(families, [7, 7]);
        // Two dimensions of 64 coordinates, of which each is tried; 49 products; Euclid's numbers.
        assert!(plan.steps < 2 * 64 + 49 + 2 * 7 + 40, "{} steps", plan.steps);
    }
}

#[test]
fn blocks_are_walked_where_they_are_fewer() {
    let (from, to) = (cyclic(16384, 1000, 7), cyclic(16384, 1024, 5));
    let plan = Plan::of(&from, &to, Side::Sender, 0);
    assert!(plan.peers.len() <= 25);
    assert!(plan.steps < 2 * 5 * 12 + 25 + 40, "{} steps", plan.steps);
}

#[test]
fn steps_do_not_grow_with_the_extent() {
    for (k, p, l, q) in [(1, 4, 1, 4), (3, 64, 5, 64), (1000, 7, 1024, 5), (1, 3, 128, 16)] {
        let mut counts = Vec::new();
        for bits in [14, 20, 24, 30, 40] {
            let from = Layout::builder(&[1 << bits]).cyclic(k, p).build().expect("it is valid");
            let to = Layout::builder(&[1 << bits]).cyclic(l, q).build().expect("it is valid");
            let plan = Plan::of(&from, &to, Side::Sender, 0);
            let most = (k + l - 1).div_ceil(gcd(k * p, l * q));
            let families: Vec<usize> =
                plan.peers.iter().map(|peer| peer.meetings[0].families()).collect();
            assert!(families.iter().all(|count| *count <= most), "{families:?}, at most {most}");
            counts.push((families, plan.steps));
        }
        // From an extent on that has whole windows, nothing changes.
        assert!(counts[1..].iter().all(|count| *count == counts[1]), "{counts:?}");
        assert!(counts[0].1 <= counts[1].1, "{counts:?}");
    }
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}
