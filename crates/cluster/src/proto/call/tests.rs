//! The machines of calls against oracles that are too simple to be wrong.

use super::calls::{Calls, Look, Then, Unasked};
use super::choice::Choice;
use super::methods::{self, MethodKey};
use super::serving::{Cancelled, Key, Refused, Serving, Verdict};
use super::wire::{self, Kind, Request, With};
use super::{CONTEXT_BYTES_MAX, ERROR_TEXT_BYTES_MAX, cut};
use chunkcomm_proto::{Time, codec};
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

#[test]
fn every_word_is_what_it_was() {
    assert_eq!(Request::parse(&wire::cancel(7)[..4]), None);
    assert_eq!(Request::parse(&wire::cancel(7)), Some(Request::Cancel { slot: 7 }));
    let mut call = Vec::new();
    codec::encode_into_vec(&(wire::call_head(0), "x"), &mut call).unwrap();
    wire::set_slot(&mut call, 0xABCD);
    let value_bytes = codec::encode_into_vec(&"x", &mut Vec::new()).unwrap();
    assert_eq!(call.len(), wire::HEAD_BYTES + value_bytes, "nothing but the head and the value");
    let word = Request::parse(&call);
    let Some(Request::Call { slot: 0xABCD, with: None, value }) = word else { panic!() };
    assert_eq!(codec::decode::<String>(value), Ok("x".to_owned()));
    let text = Kind::Panicked.with_text(9, "oh");
    assert_eq!(wire::answer(&text), Some((9, Kind::Panicked, &b"oh"[..])));
    let refusal = Kind::Refused.with_text(9, "no");
    assert_eq!(wire::answer(&refusal), Some((9, Kind::Refused, &b"no"[..])));
    let refusal = Kind::NoMethod.with_text(9, "");
    assert_eq!(wire::answer(&refusal), Some((9, Kind::NoMethod, &b""[..])));
}

/// Returns the key of a method of these types; its number is that of its first letter.
fn method(name: &str, types: &[u64]) -> MethodKey {
    MethodKey::new(u32::from(name.as_bytes()[0]), name, types.iter().copied())
}

#[test]
fn methods_that_the_ends_do_not_share_are_found_whatever_their_order() {
    let ours = [method("len", &[1]), method("get", &[1, 2]), method("put", &[1, 2])];
    // Of other types, not there, and of another name that has the same number.
    let theirs =
        [method("put", &[2, 1]), method("all", &[1]), method("len", &[1]), method("gut", &[1, 2])];
    let word = wire::methods(theirs.into_iter());
    let Some(Request::Methods { keys }) = Request::parse(&word) else { panic!("{word:?}") };
    assert!(wire::keys(keys).eq(theirs));
    assert_eq!(methods::differing(&ours, wire::keys(keys)), [b'p', b'a', b'g'].map(u32::from));
    let longer = wire::methods(ours.into_iter().cycle().take(methods::METHODS_MAX + 1));
    for cut in [&word[..word.len() - 1], &longer] {
        assert_eq!(Request::parse(cut), None);
    }
    assert_eq!(methods::id_of(&[1, 0, 0, 0, 9]), Some(1));
    assert_eq!(methods::id_of(&[1, 0, 0]), None);
}

proptest! {
    #[test]
    fn deadline_and_context_travel_and_the_time_left_can_be_set_again(
        left_ms in proptest::option::of(prop_oneof![any::<u32>(), Just(u32::MAX)]),
        context in vec(any::<u8>(), 0..=CONTEXT_BYTES_MAX),
        value in vec(any::<u8>(), 0..20),
        slot in any::<u32>(),
        later_ms in any::<u32>(),
    ) {
        let mut call = Vec::new();
        wire::put_call_with(&mut call, With { left_ms, context: &context });
        call.extend_from_slice(&value);
        wire::set_slot(&mut call, slot);
        let with_at_most = |left_ms: Option<u32>| {
            let left_ms = left_ms.map(|left_ms| left_ms.min(wire::LEFT_MS_MAX));
            Some(With { left_ms, context: &context })
        };
        let with = with_at_most(left_ms);
        prop_assert_eq!(Request::parse(&call), Some(Request::Call { slot, with, value: &value }));
        wire::set_left(&mut call, later_ms);
        let with = with_at_most(left_ms.map(|_| later_ms));
        prop_assert_eq!(Request::parse(&call), Some(Request::Call { slot, with, value: &value }));
    }
}

#[test]
fn a_long_text_is_cut_between_characters() {
    let text = format!("x{}", "ü".repeat(ERROR_TEXT_BYTES_MAX));
    assert_eq!(cut(&text).len(), ERROR_TEXT_BYTES_MAX - 1);
    assert!(text.starts_with(cut(&text)));
}

proptest! {
    #[test]
    fn any_bytes_are_a_word_or_none(bytes in vec(any::<u8>(), 0..20)) {
        if let Some(Request::Call { with, value, .. }) = Request::parse(&bytes) {
            let before = with.map_or(5, |with| 10 + with.context.len());
            prop_assert_eq!(value, &bytes[before..]);
        }
        if let Some((_, kind, rest)) = wire::answer(&bytes) {
            prop_assert_eq!(kind as u8, bytes[0]);
            prop_assert_eq!(rest, &bytes[5..]);
        }
    }
}

/// A caller of the oracle: the outcomes that it may still see.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Caller {
    Waits { deadline: Option<u64> },
    Answered(u32),
    Late,
    Gone,
}

#[derive(Debug, Clone)]
enum Deed {
    Send { deadline: Option<u64> },
    GiveBack,
    Answer { pick: usize },
    Look { pick: usize },
    Drop { pick: usize },
    Clock { by: u64 },
    Cancels,
    Lose,
}

fn deeds() -> impl Strategy<Value = Vec<Deed>> {
    let pick = any::<usize>();
    let deed = prop_oneof![
        6 => proptest::option::of(0..50u64).prop_map(|deadline| Deed::Send { deadline }),
        1 => Just(Deed::GiveBack),
        4 => pick.prop_map(|pick| Deed::Answer { pick }),
        4 => pick.prop_map(|pick| Deed::Look { pick }),
        2 => pick.prop_map(|pick| Deed::Drop { pick }),
        2 => (0..20u64).prop_map(|by| Deed::Clock { by }),
        2 => Just(Deed::Cancels),
        1 => Just(Deed::Lose),
    ];
    vec(deed, 0..200)
}

/// Picks one of these.
fn picked<T: Copy>(of: impl Iterator<Item = T>, pick: usize) -> Option<T> {
    let all: Vec<T> = of.collect();
    (!all.is_empty()).then(|| all[pick % all.len()])
}

/// Outcome of a loss.
const LOST: u32 = u32::MAX;

proptest! {
    #[test]
    fn a_caller_gets_its_own_answer_once_and_a_slot_is_used_again_after_its_answer(
        deeds in deeds()
    ) {
        let mut calls = Calls::<u32, u32>::default();
        // By slot: those that callers hold, and those that the service has not answered.
        let mut callers = BTreeMap::<u32, Caller>::new();
        let mut asked = BTreeSet::<u32>::new();
        let mut told = BTreeSet::<u32>::new();
        let (mut now, mut wakes) = (0, Vec::new());
        for deed in deeds {
            match deed {
                Deed::Send { deadline } => {
                    let slot = calls.reserve().unwrap();
                    prop_assert!(!callers.contains_key(&slot), "{slot} has a caller");
                    prop_assert!(asked.insert(slot), "{slot} is not answered");
                    let deadline = deadline.map(|after| now + after);
                    calls.sent(slot, slot, deadline.map(Time));
                    callers.insert(slot, Caller::Waits { deadline });
                }
                Deed::GiveBack => {
                    let slot = calls.reserve().unwrap();
                    prop_assert!(!callers.contains_key(&slot) && !asked.contains(&slot));
                    prop_assert_eq!(calls.handle_answer(slot, 0), Err(Unasked { slot }));
                    calls.give_back(slot);
                }
                Deed::Answer { pick } => {
                    let Some(slot) = picked(asked.iter().copied(), pick) else { continue };
                    let then = calls.handle_answer(slot, slot + 1).unwrap();
                    asked.remove(&slot);
                    told.remove(&slot);
                    let expected = match callers.get(&slot) {
                        Some(Caller::Waits { .. }) => Then::Wake(slot),
                        Some(Caller::Gone) => Then::Drop(slot + 1),
                        _ => Then::Nothing,
                    };
                    prop_assert_eq!(then, expected);
                    if callers.get(&slot) == Some(&Caller::Gone) {
                        callers.remove(&slot);
                    } else {
                        callers.insert(slot, Caller::Answered(slot + 1));
                    }
                    prop_assert_eq!(calls.handle_answer(slot, 0), Err(Unasked { slot }));
                }
                Deed::Look { pick } => {
                    let here = callers.iter().filter(|(_, it)| **it != Caller::Gone);
                    let Some((slot, caller)) = picked(here.map(|(s, c)| (*s, *c)), pick) else {
                        continue;
                    };
                    let found = calls.look(slot, |wake| *wake = slot);
                    match caller {
                        Caller::Waits { .. } => prop_assert_eq!(found, Look::Waiting),
                        Caller::Answered(answer) => {
                            prop_assert_eq!(found, Look::Answered(answer));
                            callers.remove(&slot);
                        }
                        _ => {
                            prop_assert_eq!(found, Look::Late);
                            callers.insert(slot, Caller::Gone);
                        }
                    }
                }
                Deed::Drop { pick } => {
                    let here = callers.iter().filter(|(_, it)| **it != Caller::Gone);
                    let Some((slot, caller)) = picked(here.map(|(s, c)| (*s, *c)), pick) else {
                        continue;
                    };
                    let left = calls.abandon(slot);
                    match caller {
                        Caller::Answered(answer) => prop_assert_eq!(left, Some(answer)),
                        _ => prop_assert_eq!(left, None),
                    }
                    if asked.contains(&slot) {
                        callers.insert(slot, Caller::Gone);
                    } else {
                        callers.remove(&slot);
                    }
                }
                Deed::Clock { by } => {
                    now += by;
                    wakes.clear();
                    calls.handle_timeout(Time(now), &mut wakes);
                    let mut late = Vec::new();
                    for (slot, caller) in &mut callers {
                        if matches!(caller, Caller::Waits { deadline: Some(at) } if *at <= now) {
                            *caller = Caller::Late;
                            late.push(*slot);
                        }
                    }
                    prop_assert_eq!(&wakes, &late);
                }
                Deed::Cancels => {
                    while let Some(slot) = calls.poll_cancel() {
                        let caller = callers.get(&slot);
                        prop_assert!(matches!(caller, Some(Caller::Late | Caller::Gone)));
                        prop_assert!(told.insert(slot), "{slot} is told twice");
                    }
                    let quiet = |(_, it): &(&u32, &Caller)| {
                        matches!(it, Caller::Late | Caller::Gone)
                    };
                    for (slot, _) in callers.iter().filter(quiet) {
                        prop_assert!(told.contains(slot), "{slot} is not told");
                    }
                }
                Deed::Lose => {
                    wakes.clear();
                    calls.handle_loss(|| LOST, &mut wakes);
                    let waited = callers.iter().filter(|(_, it)| matches!(it, Caller::Waits { .. }));
                    let waited: Vec<u32> = waited.map(|(slot, _)| *slot).collect();
                    prop_assert_eq!(&wakes, &waited);
                    callers.retain(|_, it| *it != Caller::Gone);
                    for caller in callers.values_mut() {
                        if matches!(caller, Caller::Waits { .. } | Caller::Late) {
                            *caller = Caller::Answered(LOST);
                        }
                    }
                    asked.clear();
                    told.clear();
                }
            }
            prop_assert_eq!(calls.in_flight(), asked.len());
            let first = callers.values().filter_map(|it| match it {
                Caller::Waits { deadline } => *deadline,
                _ => None,
            });
            if let Some(first) = first.min() {
                prop_assert!(calls.next_deadline().is_some_and(|at| at.0 <= first));
            }
        }
    }
}

#[derive(Debug, Clone)]
enum Event {
    Request { caller: u64, slot: u32, as_task: bool },
    Finish { pick: usize },
    Cancel { caller: u64, slot: u32 },
    Leave { caller: u64 },
    Close,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let (caller, slot) = (0..3u64, 0..6u32);
    let event = prop_oneof![
        60 => (caller.clone(), slot.clone(), any::<bool>())
            .prop_map(|(caller, slot, as_task)| Event::Request { caller, slot, as_task }),
        40 => any::<usize>().prop_map(|pick| Event::Finish { pick }),
        20 => (caller.clone(), slot).prop_map(|(caller, slot)| Event::Cancel { caller, slot }),
        5 => caller.prop_map(|caller| Event::Leave { caller }),
        1 => Just(Event::Close),
    ];
    vec(event, 0..200)
}

/// Requests in handling, for the oracle: the key of each while its answer is wanted.
type Handled = Vec<(u64, Option<Key>)>;

proptest! {
    #[test]
    fn so_many_are_handled_at_once_in_the_order_they_came_and_each_is_answered_once(
        at_once_max in 1..4usize,
        waiting_max in 0..5usize,
        events in events(),
    ) {
        let mut serving = Serving::<u64, u64>::new(at_once_max, waiting_max, 6);
        let (mut asked, mut cancelled_of) = ([0; 6], [0; 6]);
        let mut handled = Handled::new();
        let mut waiting = Vec::<Key>::new();
        let mut closed = false;
        for event in events {
            match event {
                Event::Request { caller, slot, as_task } => {
                    let key = Key { caller, slot };
                    let known = waiting.contains(&key)
                        || handled.iter().any(|(_, it)| *it == Some(key));
                    let function = slot as usize;
                    let verdict = serving.request(key, function);
                    asked[function] += u64::from(!known);
                    if known {
                        prop_assert_eq!(verdict, Verdict::Twice);
                    } else if closed {
                        prop_assert_eq!(verdict, Verdict::Refuse(Refused::Closing));
                    } else if handled.len() < at_once_max {
                        prop_assert_eq!(verdict, Verdict::Run);
                        if as_task {
                            let number = serving.detach(key, function);
                            prop_assert_eq!(serving.attach(key, number, number), None);
                            handled.push((number, Some(key)));
                        } else {
                            // Done at once; nothing waits while there is room.
                            prop_assert_eq!(serving.finished(), None);
                        }
                    } else if waiting.len() < waiting_max {
                        prop_assert_eq!(verdict, Verdict::Wait);
                        serving.queue(key, function, u64::from(slot));
                        waiting.push(key);
                    } else {
                        prop_assert_eq!(verdict, Verdict::Refuse(Refused::Overloaded));
                    }
                }
                Event::Finish { pick } => {
                    let Some(index) = picked(0..handled.len(), pick) else { continue };
                    let (number, key) = handled.remove(index);
                    if let Some(key) = key {
                        prop_assert!(serving.answers(key, number));
                        prop_assert!(!serving.answers(key, number), "answered twice");
                    }
                    let next = serving.finished();
                    if waiting.is_empty() {
                        prop_assert_eq!(next, None);
                    } else {
                        let (key, start) = (waiting.remove(0), next.unwrap());
                        prop_assert_eq!(start.function, key.slot as usize);
                        prop_assert_eq!((start.key, start.request), (key, u64::from(key.slot)));
                        prop_assert_eq!(serving.attach(key, start.number, start.number), None);
                        handled.push((start.number, Some(key)));
                    }
                }
                Event::Cancel { caller, slot } => {
                    let key = Key { caller, slot };
                    let cancelled = serving.cancel(key);
                    cancelled_of[slot as usize] += u64::from(cancelled != Cancelled::Over);
                    if let Some(at) = waiting.iter().position(|it| *it == key) {
                        waiting.remove(at);
                        prop_assert_eq!(cancelled, Cancelled::Waited(u64::from(slot)));
                    } else if let Some(it) = handled.iter_mut().find(|it| it.1 == Some(key)) {
                        it.1 = None;
                        prop_assert_eq!(cancelled, Cancelled::Ran(Some(it.0)));
                        prop_assert_eq!(serving.attach(key, it.0, it.0), Some(it.0));
                    } else {
                        prop_assert_eq!(cancelled, Cancelled::Over);
                    }
                }
                Event::Leave { caller } => {
                    let mut aborted = Vec::new();
                    for left in serving.leave(caller) {
                        match left {
                            Cancelled::Ran(task) => aborted.push(task.unwrap()),
                            left => prop_assert!(matches!(left, Cancelled::Waited(_))),
                        }
                    }
                    for key in waiting.extract_if(.., |key| key.caller == caller) {
                        cancelled_of[key.slot as usize] += 1;
                    }
                    let mut mine = Vec::new();
                    for (number, key) in &mut handled {
                        if let Some(key) = key.take_if(|key| key.caller == caller) {
                            cancelled_of[key.slot as usize] += 1;
                            mine.push(*number);
                        }
                    }
                    aborted.sort_unstable();
                    mine.sort_unstable();
                    prop_assert_eq!(aborted, mine);
                }
                Event::Close => {
                    serving.close();
                    closed = true;
                }
            }
            prop_assert_eq!((serving.at_once(), serving.waiting()), (handled.len(), waiting.len()));
            let counted = serving.counters().iter().map(|it| (it.requests, it.cancelled));
            prop_assert!(counted.eq(asked.into_iter().zip(cancelled_of)));
            prop_assert_eq!(serving.is_idle(), handled.is_empty() && waiting.is_empty());
        }
    }

    #[test]
    fn the_least_laden_is_called_and_equals_in_turn(loads in vec(0..3usize, 1..6), calls in 1..30) {
        let (mut choice, mut loads) = (Choice::default(), loads);
        for _ in 0..calls {
            let chosen = choice.choose(&loads).unwrap();
            prop_assert_eq!(loads[chosen], *loads.iter().min().unwrap());
            loads[chosen] += 1;
        }
        let mut equals = Choice::default();
        let turns: Vec<_> = (0..6).map(|_| equals.choose(&[1, 1, 1]).unwrap()).collect();
        prop_assert_eq!(turns, [0, 1, 2, 0, 1, 2]);
        prop_assert_eq!(equals.choose(&[]), None);
    }
}
