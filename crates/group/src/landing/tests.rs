use super::*;
use crate::memory::{Owner, share};
use tokio::sync::watch;

struct Ends {
    owner: Owner<u16>,
    interest: Arc<Interest>,
}

fn lander(len: usize) -> (Box<Lander<u16>>, Ends) {
    let owner = share(vec![0; len]);
    owner.share().land();
    let back = Arc::new(WayBack::gone());
    let interest = Arc::new(Interest::new(back.clone()));
    let origin = Origin { peer: "far".to_owned(), channel: "data".to_owned() };
    let (share, sections) = (owner.share().clone(), Sections::whole(2 * len));
    let base = Arc::new(Base { share, sections, back, origin, ending: Ending::Memory });
    let lander = Lander::new(base, None, &interest);
    (Box::new(lander), Ends { owner, interest })
}

fn header(round: u32, offset: u64, bytes: u64) -> [u8; HEADER_BYTES] {
    Header::Increment { round, offset, bytes }.encode()
}

/// Puts `bytes` where the lander wants them, at most `step` at a time; returns the number that
/// found room.
fn put(lander: &mut Lander<u16>, bytes: &[u8], step: usize) -> usize {
    let mut put = 0;
    while put < bytes.len() {
        let room = lander.room();
        let count = room.len().min(step).min(bytes.len() - put);
        if count == 0 {
            break;
        }
        room[..count].copy_from_slice(&bytes[put..put + count]);
        lander.advance(count);
        put += count;
    }
    put
}

#[test]
fn increments_land_at_their_places_however_the_bytes_are_cut() {
    for step in [1, 5, 1000] {
        let (mut lander, ends) = lander(4);
        let last = [&header(1, 6, 2)[..], &[7, 7]].concat();
        assert_eq!(put(&mut lander, &last, step), last.len());
        assert_eq!(ends.owner.elements(3..4), Some(&[0x0707][..]));
        let first = [&header(1, 0, 6)[..], &[1, 1, 2, 2, 3]].concat();
        assert_eq!(put(&mut lander, &first, step), first.len());
        assert_eq!(ends.owner.prefix(), [0x0101, 0x0202], "half an element is not shown");
        assert_eq!(put(&mut lander, &[3], step), 1);
        assert_eq!(ends.owner.prefix(), [0x0101, 0x0202, 0x0303, 0x0707]);
        assert_eq!(lander.room().len(), HEADER_BYTES, "the next round may follow");
    }
}

#[test]
fn an_increment_that_does_not_fit_is_an_error_by_name() {
    let outside = |offset, bytes| DeltaFault::Outside { offset, bytes };
    let end = |round, bytes| Header::End { round, bytes }.encode();
    let kind = [[9; 4].to_vec(), vec![0; 20]].concat().try_into().unwrap();
    for (bytes, expected) in [
        (header(1, 6, 4), outside(6, 4)),
        (header(1, u64::MAX - 1, 2), outside(u64::MAX - 1, 2)),
        (header(1, 0, u64::MAX - 1), outside(0, u64::MAX - 1)),
        (header(1, 3, 2), outside(3, 2)),
        (header(1, 4, 3), outside(4, 3)),
        (header(1, 4, 0), outside(4, 0)),
        (header(1, 0, 8), DeltaFault::Twice { start: 2, end: 4 }),
        (header(2, 4, 2), DeltaFault::Round { theirs: 2, ours: 1 }),
        (kind, DeltaFault::Kind { kind: 0x0909_0909 }),
        // There is a gap before the bytes that have landed.
        (end(1, 2), DeltaFault::End { end: 2, landed: 2 }),
        (end(1, 0), DeltaFault::End { end: 0, landed: 2 }),
        (end(2, 2), DeltaFault::Round { theirs: 2, ours: 1 }),
        (Header::Broken { bytes: 0 }.encode(), DeltaFault::Cause),
    ] {
        let (mut lander, ends) = lander(4);
        let good = [&header(1, 2, 2)[..], &[5, 5]].concat();
        put(&mut lander, &good, 100);
        put(&mut lander, &bytes, 100);
        assert!(lander.room().is_empty(), "{expected:?}");
        let end = ends.owner.share().state().end.clone().expect("it has ended");
        match end {
            DeltaRecvError::Frame { peer, fault, .. } => {
                assert_eq!((peer.as_str(), fault), ("far", expected));
            }
            // A sender may end for no reason.
            DeltaRecvError::Ended { cause, .. } => assert!(cause.is_some()),
            other => panic!("{other}"),
        }
        assert_eq!(ends.owner.elements(1..2), Some(&[0x0505][..]), "what landed stays");
    }
}

#[test]
fn an_empty_round_lands_with_its_header_and_once() {
    let outside = |offset| DeltaFault::Outside { offset, bytes: 0 };
    for (bytes, fault) in [
        (header(1, 0, 0), outside(0)),
        (Header::End { round: 1, bytes: 0 }.encode(), DeltaFault::End { end: 0, landed: 0 }),
    ] {
        let (mut lander, ends) = lander(0);
        assert!(!ends.owner.share().state().extents().is_whole(), "nothing has come");
        put(&mut lander, &header(1, 0, 0), 5);
        assert!(ends.owner.share().state().extents().is_whole());
        put(&mut lander, &bytes, 100);
        let end = ends.owner.share().state().end.clone();
        assert!(matches!(&end, Some(DeltaRecvError::Frame { fault: it, .. }) if *it == fault));
    }
    let (mut lander, ends) = lander(0);
    put(&mut lander, &header(1, 2, 0), 100);
    let end = ends.owner.share().state().end.clone();
    assert!(matches!(&end, Some(DeltaRecvError::Frame { fault, .. }) if *fault == outside(2)));
}

#[test]
fn a_round_ends_once_before_it_is_whole_and_behind_its_corrections() {
    let end = |round, bytes| Header::End { round, bytes }.encode();
    let two = [&header(1, 0, 4)[..], &[1, 1, 2, 2]].concat();
    let four = [&header(1, 0, 8)[..], &[5; 8]].concat();
    let corrected = [&correction(1, 4, 2)[..], &[3, 3], &two].concat();
    let ended = [&two[..], &end(1, 4)].concat();
    let outside = DeltaFault::Outside { offset: 4, bytes: 2 };
    for (before, bytes, expected) in [
        (&ended, end(1, 4), DeltaFault::End { end: 4, landed: 4 }),
        (&ended, header(1, 4, 2), outside),
        (&ended, header(1, 0, 2), DeltaFault::Twice { start: 0, end: 2 }),
        (&ended, correction(1, 0, 2), DeltaFault::Outside { offset: 0, bytes: 2 }),
        (&four, end(1, 8), DeltaFault::End { end: 8, landed: 8 }),
        (&corrected, end(1, 4), DeltaFault::End { end: 4, landed: 4 }),
    ] {
        let (mut lander, ends) = lander(4);
        assert_eq!(put(&mut lander, before, 1000), before.len());
        assert!(ends.owner.share().state().end.is_none());
        put(&mut lander, &bytes, 100);
        let end = ends.owner.share().state().end.clone();
        match end {
            Some(DeltaRecvError::Frame { fault, .. }) => assert_eq!(fault, expected),
            other => panic!("{other:?}, not {expected:?}"),
        }
    }
}

fn correction(round: u32, offset: u64, bytes: u64) -> [u8; HEADER_BYTES] {
    Header::Correction { round, offset, bytes }.encode()
}

#[tokio::test]
async fn corrections_wait_until_the_owner_asks_for_them() {
    for step in [1, 5, 1000] {
        let (mut lander, mut ends) = lander(4);
        let first = [&header(1, 0, 4)[..], &[1, 1, 2, 2], &correction(1, 2, 2)].concat();
        assert_eq!(put(&mut lander, &first, step), first.len());
        let last = [&[9, 9][..], &header(1, 4, 4), &[3, 3, 4, 4]].concat();
        assert_eq!(put(&mut lander, &last, step), last.len());
        assert_eq!(ends.owner.prefix(), [0x0101, 0x0202, 0x0303, 0x0404]);
        ends.owner.correct().await;
        assert_eq!(ends.owner.prefix(), [0x0101, 0x0909, 0x0303, 0x0404]);
    }
}

#[test]
fn a_correction_that_does_not_fit_is_an_error_by_name() {
    let outside = |offset, bytes| DeltaFault::Outside { offset, bytes };
    let large = CORRECTION_BYTES_MAX as u64 + 2;
    let good = [&header(1, 2, 2)[..], &[5, 5], &correction(1, 2, 2), &[6, 6]].concat();
    let whole = [&good[..], &header(1, 0, 2), &[1, 1], &header(1, 4, large), &[0; 65_538]];
    for (before, bytes, expected) in [
        (&good, correction(1, large + 2, 4), outside(large + 2, 4)),
        (&good, correction(1, u64::MAX - 1, 2), outside(u64::MAX - 1, 2)),
        (&good, correction(1, 0, large), outside(0, large)),
        (&good, correction(1, 4, 0), outside(4, 0)),
        (&good, correction(1, 0, 3), DeltaFault::Twice { start: 2, end: 3 }),
        (&good, correction(2, 4, 2), DeltaFault::Round { theirs: 2, ours: 1 }),
        (&whole.concat(), correction(1, 4, 2), outside(4, 2)),
    ] {
        let (mut lander, ends) = lander(2 + large as usize / 2);
        assert_eq!(put(&mut lander, before, 1000), before.len());
        put(&mut lander, &bytes, 100);
        assert!(lander.room().is_empty(), "{expected:?}");
        let end = ends.owner.share().state().end.clone();
        match end {
            Some(DeltaRecvError::Frame { fault, .. }) => assert_eq!(fault, expected),
            other => panic!("{other:?}, not {expected:?}"),
        }
    }
}

#[test]
fn without_interest_there_is_no_room() {
    let (mut lander, ends) = lander(3);
    let forward = ends.interest.clone();
    drop(ends.interest);
    assert_eq!(lander.room().len(), HEADER_BYTES);
    drop(forward);
    assert!(lander.room().is_empty());
}

#[test]
fn the_end_is_known_once_and_releases_the_bytes_that_were_landing() {
    let (mut torn, ends) = lander(2);
    put(&mut torn, &header(1, 0, 4), 100);
    assert!(!ends.owner.share().state().extents().none_out());
    let broken = DeltaRecvError::Channel(RecvError::BufferTooSmall { bytes: 2, buffer_bytes: 1 });
    torn.over(broken);
    torn.end(Ok(()));
    let state = ends.owner.share().state();
    assert!(state.extents().none_out());
    assert!(matches!(state.end, Some(DeltaRecvError::Channel(_))), "the first reason stays");
}

/// Two landings in one memory of 8 elements.
struct Two {
    landers: [Box<Lander<u16>>; 2],
    fates: [watch::Receiver<LandingFate>; 2],
    owner: Owner<u16>,
    _interest: Arc<Interest>,
}

fn two_landers() -> Two {
    let owner = share(vec![0; 8]);
    let back = Arc::new(WayBack::gone());
    let interest = Arc::new(Interest::new(back.clone()));
    let lander = |sections: &[Range<usize>]| {
        let (fate, outcome) = watch::channel(None);
        let origin = Origin { peer: "far".to_owned(), channel: "data".to_owned() };
        let (share, sections) = (owner.share().clone(), Sections::of(sections, 2, 16));
        let base =
            Base { share, sections, back: back.clone(), origin, ending: Ending::Region(fate) };
        (Box::new(Lander::new(Arc::new(base), None, &interest)), outcome)
    };
    let ((one, first), (other, second)) = (lander(&[4..6, 0..2]), lander(&[2..4, 4..4]));
    Two { landers: [one, other], fates: [first, second], owner, _interest: interest }
}

#[test]
fn parts_of_elements_of_two_landings_come_between() {
    let Two { landers: [mut one, mut other], fates: [first, second], owner, _interest } =
        two_landers();
    put(&mut one, &header(1, 0, 8), 100);
    put(&mut other, &header(1, 0, 4), 100);
    for (byte, also) in (0..8).zip([true, true, true, true, false, false, false, false]) {
        put(&mut one, &[byte], 1);
        if also {
            put(&mut other, &[byte + 10], 1);
        }
    }
    assert!(matches!(*first.borrow(), Some(Ok(()))) && matches!(*second.borrow(), Some(Ok(()))));
    let bytes = |range: Range<usize>| bytemuck::cast_slice(owner.elements(range).unwrap()).to_vec();
    let there: [Vec<u8>; 3] = [bytes(4..6), bytes(0..2), bytes(2..4)];
    assert_eq!(there, [vec![0, 1, 2, 3], vec![4, 5, 6, 7], vec![10, 11, 12, 13]]);
    let (mut cursor, mut told) = (crate::proto::extents::Cursor::default(), Vec::new());
    while let Some(range) = owner.share().next_done(&mut cursor, 1) {
        told.extend(range);
    }
    told.sort_unstable();
    assert_eq!(told, (0..12).collect::<Vec<_>>(), "forwards send all of it");
}

#[test]
fn what_one_landing_loses_is_not_what_another_does() {
    let Two { landers: [mut one, other], fates: [first, second], owner, _interest } = two_landers();
    put(&mut one, &[&header(1, 0, 8)[..], &[1, 1, 2]].concat(), 100);
    put(&mut one, &[&[2][..], &[3]].concat(), 100);
    one.end(Ok(()));
    let lost = first.borrow().clone();
    let Some(Err(DeltaRecvError::Ended { landed_bytes: 4, length_bytes: 8, .. })) = lost else {
        panic!("{lost:?}");
    };
    let state = owner.share().state();
    for (range, is_lost) in
        [(8..12, false), (0..1, true), (2..4, true), (4..8, false), (0..16, true)]
    {
        assert_eq!(state.end_of(&range).is_some(), is_lost, "{range:?}");
    }
    assert!(state.extents().none_out() && second.borrow().is_none());
    drop(state);
    drop(other);
    assert!(matches!(*second.borrow(), Some(Err(DeltaRecvError::Ended { .. }))));
}

#[test]
fn a_landing_of_a_region_has_no_rounds_and_no_corrections() {
    let end = Header::End { round: 1, bytes: 0 }.encode();
    for bytes in [&end[..], &correction(1, 0, 2), &header(1, 8, 2), &header(1, 0, 0)] {
        let mut two = two_landers();
        put(&mut two.landers[0], bytes, 100);
        assert!(
            matches!(*two.fates[0].borrow(), Some(Err(DeltaRecvError::Frame { .. }))),
            "{bytes:?}"
        );
    }
}
