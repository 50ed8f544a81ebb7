//! Messages through their bytes, and bytes that are none.

use super::*;
use proptest::prelude::*;

fn inputs(mut items: Items<'_>) -> Result<Vec<Vec<u8>>, Malformed> {
    let mut all = Vec::new();
    while let Some(item) = items.next()? {
        all.push(item.to_vec());
    }
    Ok(all)
}

fn results(mut items: Items<'_>) -> Result<Vec<Result<Vec<u8>, String>>, Malformed> {
    let mut all = Vec::new();
    while let Some(item) = items.next_result()? {
        all.push(match item {
            Item::Value(bytes) => Ok(bytes.to_vec()),
            Item::Failure(text) => Err(text.to_owned()),
        });
    }
    Ok(all)
}

fn assigned(bytes: &[u8]) -> Result<Assignment<'_>, Malformed> {
    match read_order(bytes)? {
        Order::Assign(assignment) => Ok(assignment),
        _ => Err(Malformed),
    }
}

proptest! {
    #[test]
    fn assignments_and_answers_survive_their_bytes(
        run: u32, function: u32, first in 0..u64::MAX / 2, busy: u64,
        values in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..9),
        fails: u16,
    ) {
        let mut bytes = vec![1, 2, 3];
        begin_assignment(&mut bytes, run, function);
        for value in &values {
            put_item(&mut bytes, |out| { out.extend_from_slice(value); Ok::<_, ()>(()) }).unwrap();
        }
        number_assignment(&mut bytes, first, values.len() as u32);
        for marked in [false, true] {
            prop_assert_eq!(assigned(&bytes).unwrap().reducible, marked);
            mark_reducible(&mut bytes);
        }
        let assignment = assigned(&bytes).unwrap();
        prop_assert_eq!((assignment.run, assignment.function), (run, function));
        prop_assert_eq!((assignment.first, assignment.count as usize), (first, values.len()));
        prop_assert_eq!(&inputs(Items::new(assignment.items, assignment.count)).unwrap(), &values);
        let half = values.len() / 2;
        let taken: usize = values[..half].iter().map(|value| value.len() + 4).sum();
        prop_assert_eq!(items_bytes(assignment.items, half as u32), Some(taken));
        prop_assert_eq!(items_bytes(assignment.items, values.len() as u32 + 1), None);

        let mut answer = Vec::new();
        begin_answer(&mut answer, run, first);
        let outcome = |(at, value): (usize, &Vec<u8>)| match fails >> at & 1 {
            0 => Ok(value.clone()),
            _ => Err(format!("failure {at}")),
        };
        let outcomes: Vec<_> = values.iter().enumerate().map(outcome).collect();
        for outcome in &outcomes {
            match outcome {
                Ok(value) => put_item(&mut answer, |out| {
                    out.extend_from_slice(value);
                    Ok::<_, ()>(())
                }).unwrap(),
                Err(text) => put_failure(&mut answer, text),
            }
        }
        finish_answer(&mut answer, values.len() as u32, busy);
        for marked in [false, true] {
            if marked {
                mark_reduced(&mut answer);
            }
            match read_answer(&answer).unwrap() {
                Answer::Done { run: r, first: f, count, busy_ns, is_reduced, results: items } => {
                    prop_assert_eq!((r, f, count), (run, first, values.len() as u32));
                    prop_assert_eq!((busy_ns, is_reduced), (busy, marked));
                    prop_assert_eq!(results(items).unwrap(), outcomes.clone());
                }
                other => prop_assert!(false, "{other:?}"),
            }
        }
    }

    #[test]
    fn random_bytes_are_read_or_refused(mut bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        bytes.iter_mut().take(1).for_each(|kind| *kind %= 12);
        if let Ok(assignment) = assigned(&bytes) {
            let _ = inputs(Items::new(assignment.items, assignment.count));
            let _ = items_bytes(assignment.items, assignment.count.min(100));
        }
        if let Ok(Answer::Done { results: items, .. }) = read_answer(&bytes) {
            let _ = results(items);
        }
    }
}

#[test]
fn results_that_are_handed_over_survive_their_bytes() {
    let said =
        Handed { run: 7, function: 3, results: vec![(1 << 90, vec![1, 2]), (2, Vec::new())] };
    let bytes = handed(&said).unwrap();
    assert!(matches!(read_answer(&bytes), Ok(Answer::Handed(read)) if read == said));
    assert!(read_answer(&bytes[..bytes.len() - 1]).is_err());
    assert!(read_answer(&[&bytes[..], &[0]].concat()).is_err());
}

#[test]
fn take_backs_and_returns_survive_their_bytes() {
    let asked = take_back(7, u64::MAX);
    assert!(matches!(read_order(&asked), Ok(Order::TakeBack { run: 7, count: u64::MAX })));
    assert!(read_order(&asked[..12]).is_err());
    assert!(read_order(&[&asked[..], &[0]].concat()).is_err());
    let given = returned(7, 1 << 40, 3);
    match read_answer(&given).unwrap() {
        Answer::Returned { run: 7, first, count: 3 } => assert_eq!(first, 1 << 40),
        other => panic!("{other:?}"),
    }
    for stuck in [false, true] {
        let Ok(Answer::Late { run: 7, index: 9, is_stuck }) = read_answer(&late(7, 9, stuck))
        else {
            panic!("{stuck}")
        };
        assert_eq!(is_stuck, stuck);
    }
    assert!(read_answer(&late(7, u64::MAX, false)).is_err());
    let told = virtual_workers(7, 33);
    assert!(matches!(read_answer(&told), Ok(Answer::Virtual { run: 7, workers: 33 })));
    match read_answer(&aside(7, 9, 3, &"gone".into())).unwrap() {
        Answer::Aside { run: 7, index: 9, deaths: 3, loss } => assert_eq!(loss, "gone".into()),
        other => panic!("{other:?}"),
    }
    assert!(read_answer(&aside(7, 9, 3, &"".into())[..19]).is_err());
    let said = Mishaps { reissued: 1, returned: 2, copied: 3, dropped: 4 };
    let told = mishaps(7, said);
    match read_answer(&told).unwrap() {
        Answer::Mishaps { run: 7, mishaps } => assert_eq!(mishaps, said),
        other => panic!("{other:?}"),
    }
    assert!(read_answer(&told[..told.len() - 1]).is_err());
    assert!(read_answer(&[&told[..], &[0]].concat()).is_err());
    let told = threads(33, 2);
    assert!(matches!(read_answer(&told), Ok(Answer::Threads { count: 33, lost: 2 })));
    assert!(matches!(read_order(&THE_END), Ok(Order::End)));
    assert!(read_order(&[&THE_END[..], &[0]].concat()).is_err());
    assert!(read_answer(&given[..16]).is_err());
    assert!(read_answer(&[&given[..], &[0]].concat()).is_err());
}

#[test]
fn a_cut_or_longer_message_is_malformed() {
    let mut bytes = Vec::new();
    begin_assignment(&mut bytes, 1, 2);
    put_value(&mut bytes, &7u16).unwrap();
    number_assignment(&mut bytes, 3, 1);
    for cut in 0..bytes.len() {
        let read =
            assigned(&bytes[..cut]).and_then(|read| inputs(Items::new(read.items, read.count)));
        assert_eq!(read, Err(Malformed), "{cut} bytes of {}", bytes.len());
    }
    bytes.push(0);
    assert_eq!(
        assigned(&bytes).and_then(|read| inputs(Items::new(read.items, read.count))),
        Err(Malformed)
    );
}

#[test]
fn a_failure_carries_its_text_cut_to_the_limit() {
    let mut bytes = Vec::new();
    begin_answer(&mut bytes, 5, 6);
    put_failure(&mut bytes, &"ö".repeat(3000));
    finish_answer(&mut bytes, 1, 0);
    let Ok(Answer::Done { results: items, .. }) = read_answer(&bytes) else { panic!() };
    assert_eq!(results(items).unwrap(), [Err("ö".repeat(2048))]);
}

#[test]
fn a_value_that_cannot_be_written_leaves_nothing_behind() {
    let mut out = vec![1];
    let failed = put_item(&mut out, |out| {
        out.push(9);
        Err("no")
    });
    assert_eq!((failed, out), (Err("no"), vec![1]));
}
