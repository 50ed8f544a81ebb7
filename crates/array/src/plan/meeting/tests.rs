//! Meetings against brute force over all indices.

use super::*;
use crate::plan::runs::Run;
use proptest::prelude::*;

/// Any set of indices: cut first blocks, cut bounds, single intervals, all of it, nothing.
fn helds() -> impl Strategy<Value = Held> {
    let period = prop_oneof![1..12i64, 12..60i64, Just(i64::MAX)];
    (period, 1..12i64, -70..90i64, 0..300i64, 0..300i64, prop::bool::weighted(0.6)).prop_map(
        |(period, block, first, start, length, from_zero)| {
            let start = if from_zero { 0 } else { start };
            let block = if period == i64::MAX { block * 20 } else { block.min(period) };
            let before = (start.max(first) - first) / period * block;
            let bounds = start..start + if from_zero { 2 * length } else { length };
            // The index in storage of the first index that is stored is not negative, and often not 0.
            Held { first, block, period, bounds, local: block + first.rem_euclid(7) - before }
        },
    )
}

/// All common indices: where each is stored, by its position.
fn brute(sender: &Held, receiver: &Held) -> Vec<(usize, usize)> {
    let bounds = sender.bounds.start..sender.bounds.end;
    bounds.filter_map(|index| Some((sender.local_of(index)?, receiver.local_of(index)?))).collect()
}

fn pairs(meeting: &Meeting, positions: Range<usize>) -> Vec<(usize, usize)> {
    let pairs = |run: Run| (0..run.length).map(move |i| (run.at_sender + i, run.at_receiver + i));
    meeting.runs(positions).flat_map(pairs).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn equals_brute_force(
        sender in helds(), receiver in helds(), (from, to) in (0.0..1.0f64, 0.0..1.0f64),
    ) {
        let expected = brute(&sender, &receiver);
        let Some(meeting) = Meeting::of(&sender, &receiver, &mut 0) else {
            prop_assert!(expected.is_empty(), "in common: {expected:?}");
            return Ok(());
        };
        prop_assert_eq!(meeting.total, expected.len());
        prop_assert!(meeting.total > 0);
        prop_assert_eq!(&pairs(&meeting, 0..meeting.total), &expected);
        let [from, to] = [from, to].map(|share| (share * expected.len() as f64) as usize);
        let part = from.min(to)..from.max(to);
        prop_assert_eq!(&pairs(&meeting, part.clone())[..], &expected[part]);
    }

    #[test]
    fn is_well_formed(sender in helds(), receiver in helds()) {
        let Some(meeting) = Meeting::of(&sender, &receiver, &mut 0) else { return Ok(()) };
        let mut before = 0;
        for segment in meeting.pattern.iter() {
            prop_assert_eq!(segment.before, before);
            before += segment.length;
        }
        prop_assert_eq!(meeting.window, before);
        prop_assert!(meeting.total <= before || meeting.sender_step > 0 && meeting.receiver_step > 0);
        let runs: Vec<Run> = meeting.runs(0..meeting.total).collect();
        prop_assert_eq!(meeting.run_count(), runs.len() as u64);
        for two in runs.windows(2) {
            let ends = (two[0].at_sender + two[0].length, two[0].at_receiver + two[0].length);
            prop_assert_ne!(ends, (two[1].at_sender, two[1].at_receiver), "two runs are one");
        }
    }

    #[test]
    fn has_few_families(
        (r, s, p, q) in (1..40i64, 1..40i64, 1..9i64, 1..9i64), shares in (0.0..1.0f64, 0.0..1.0f64),
        bits in 8..50u32,
    ) {
        let rank = |share: f64, ranks: i64| (share * ranks as f64) as i64;
        let sender = cyclic(r, p, rank(shares.0, p), 1 << bits);
        let receiver = cyclic(s, q, rank(shares.1, q), 1 << bits);
        let mut steps = 0;
        if let Some(meeting) = Meeting::of(&sender, &receiver, &mut steps) {
            prop_assert!(meeting.families() as i64 <= families_max(r, s, p, q));
        }
        // Two numbers of Euclid's, and a block, a start and an overlap of each family where blocks are walked.
        prop_assert!(steps as i64 <= 20 + 3 * families_max(r, s, p, q), "{steps} steps");
    }
}

/// Returns the blocks of a rank in a cyclic distribution.
fn cyclic(block: i64, ranks: i64, rank: i64, extent: i64) -> Held {
    Held { first: rank * block, block, period: block * ranks, bounds: 0..extent, local: 0 }
}

fn families_max(r: i64, s: i64, p: i64, q: i64) -> i64 {
    let (mut a, mut b) = (r * p, s * q);
    while b != 0 {
        (a, b) = (b, a % b);
    }
    (r + s - 1 + a - 1) / a
}

#[test]
fn work_does_not_grow_with_the_extent() {
    for (r, s, p, q) in
        [(1, 1, 4, 4), (3, 5, 64, 64), (1, 128, 7, 8), (100, 128, 7, 5), (64, 63, 2, 2)]
    {
        let mut counts = Vec::new();
        for bits in [14, 20, 30, 40] {
            let mut steps = 0;
            let (sender, receiver) = (cyclic(r, p, 0, 1 << bits), cyclic(s, q, 0, 1 << bits));
            let meeting = Meeting::of(&sender, &receiver, &mut steps).expect("both have index 0");
            assert!(meeting.families() as i64 <= families_max(r, s, p, q));
            counts.push((meeting.families(), steps));
        }
        // An extent of 2^14 may be less than a window.
        assert!(counts[0].0 <= counts[1].0, "{counts:?}");
        assert!(counts[1..].iter().all(|count| *count == counts[1]), "{counts:?}");
    }
}

#[test]
fn windows_beyond_any_index_are_met() {
    // Coprime periods near 2^50: their multiple is no `i64`.
    let (r, s) = ((1 << 49) + 1, (1 << 49) + 2);
    let (sender, receiver) = (cyclic(r, 2, 0, 1 << 58), cyclic(s, 2, 1, 1 << 58));
    let meeting = Meeting::of(&sender, &receiver, &mut 0).expect("blocks overlap");
    for run in meeting.runs(0..meeting.total) {
        let index = run.at_sender as i64 / r * 2 * r + run.at_sender as i64 % r;
        assert_eq!(sender.local_of(index), Some(run.at_sender));
        assert_eq!(receiver.local_of(index), Some(run.at_receiver));
    }
    // Few distances, many blocks: solved rather than walked.
    let (sender, receiver) =
        (cyclic(1, (1 << 33) + 1, 5, 1 << 58), cyclic(1, (1 << 33) - 1, 5, 1 << 58));
    let mut steps = 0;
    let meeting = Meeting::of(&sender, &receiver, &mut steps).expect("both have index 5");
    assert_eq!(meeting.pattern[0], Segment { before: 0, length: 1, at_sender: 0, at_receiver: 0 });
    assert!(steps < 100, "{steps} steps");
}

#[test]
fn equal_distributions_are_one_run() {
    let (sender, receiver) = (cyclic(3, 4, 2, 1000), cyclic(3, 4, 2, 1000));
    let meeting = Meeting::of(&sender, &receiver, &mut 0).expect("all is common");
    assert_eq!(meeting.run_count(), 1);
    assert_eq!((meeting.families(), meeting.window), (1, meeting.total));
}
