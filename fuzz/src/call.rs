//! The messages of calls, and the machines of both ends.

use std::collections::{BTreeMap, BTreeSet};

use chunkcomm::proto::Time;
use chunkcomm_cluster::proto::call::calls::{Calls, Look, Then};
use chunkcomm_cluster::proto::call::serving::{Cancelled, Key, Serving, Verdict};
use chunkcomm_cluster::proto::call::wire::{self, HEAD_BYTES, Kind, Request};
use chunkcomm_cluster::proto::call::{ERROR_TEXT_BYTES_MAX, cut};

use crate::deeds::Deeds;

/// Last byte of the bytes that close the service; others that are no request end one.
const CLOSES: u8 = 99;

/// Functions of a service, which are counted apart.
const FUNCTIONS: usize = 3;

/// Runs by the first byte: the bytes as one message, a client whose service answers anything, or a
/// service whose clients send anything.
pub fn run(data: &[u8]) {
    let mut deeds = Deeds::new(data);
    match deeds.byte() % 3 {
        0 => as_word(deeds.bytes(usize::MAX)),
        1 => client(&mut deeds),
        _ => service(&mut deeds),
    }
}

/// Writes what was read as a message; the bytes must be the same.
fn as_word(data: &[u8]) {
    match Request::parse(data) {
        Some(Request::Call { slot, with, value }) => {
            let mut again = data.to_vec();
            wire::set_slot(&mut again, !slot);
            assert_eq!(Request::parse(&again), Some(Request::Call { slot: !slot, with, value }));
            wire::set_slot(&mut again, slot);
            assert_eq!(again, data);
            if let Some(with) = with {
                let mut written = Vec::new();
                wire::put_call_with(&mut written, with);
                wire::set_slot(&mut written, slot);
                written.extend_from_slice(value);
                assert_eq!(written, data);
            }
        }
        Some(Request::Cancel { slot }) => assert_eq!(wire::cancel(slot)[..], *data),
        Some(Request::Methods { keys }) => {
            assert_eq!(wire::methods(wire::keys(keys))[HEAD_BYTES..], *keys);
        }
        None => {}
    }
    let Some((slot, kind, rest)) = wire::answer(data) else { return };
    assert_eq!(kind.head(slot).0, data[0]);
    let Ok(text) = str::from_utf8(rest) else { return };
    let sent = cut(text);
    assert!(sent.len() <= ERROR_TEXT_BYTES_MAX && text.starts_with(sent));
    assert_eq!(kind.with_text(slot, text)[HEAD_BYTES..], *sent.as_bytes());
    assert_eq!(wire::answer(&kind.with_text(slot, text)), Some((slot, kind, sent.as_bytes())));
}

/// Runs a client whose service answers anything. Each call has one outcome, from an answer to its own
/// slot; an answer to a slot that is not in flight is an error.
fn client(deeds: &mut Deeds<'_>) {
    let mut calls = Calls::<u32, u32>::default();
    // Slots of calls that somebody waits for, and of calls that the service owes an answer.
    let (mut waited, mut asked) = (BTreeSet::new(), BTreeSet::new());
    let (mut now, mut wakes) = (0, Vec::new());
    while !deeds.is_empty() {
        match deeds.byte() % 8 {
            0 | 1 => {
                let slot = calls.reserve().expect("fewer than may be in flight");
                assert!(!waited.contains(&slot) && asked.insert(slot), "{slot} is used twice");
                let deadline = deeds.one_in(2).then(|| Time(now + deeds.number(&[0])));
                calls.sent(slot, slot, deadline);
                waited.insert(slot);
            }
            2 | 3 => answered(&mut calls, &mut waited, &mut asked, deeds),
            4 => {
                let slot = u32::from(deeds.byte() % 16);
                if waited.contains(&slot) {
                    match calls.look(slot, |_| {}) {
                        Look::Waiting => {}
                        Look::Answered(of) => {
                            assert_eq!(of, slot, "the answer to another call");
                            waited.remove(&slot);
                        }
                        Look::Late => drop(waited.remove(&slot)),
                    }
                }
            }
            5 => {
                let slot = u32::from(deeds.byte() % 16);
                if waited.remove(&slot) {
                    assert!(calls.abandon(slot).is_none_or(|of| of == slot));
                }
            }
            6 => {
                now += u64::from(deeds.byte());
                wakes.clear();
                calls.handle_timeout(Time(now), &mut wakes);
                assert!(wakes.iter().all(|slot| waited.contains(slot)));
            }
            _ => {
                while let Some(slot) = calls.poll_cancel() {
                    assert!(asked.contains(&slot), "{slot} is not in flight");
                }
            }
        }
        assert_eq!(calls.in_flight(), asked.len());
    }
}

/// Passes an answer to the client, sometimes to a slot that was asked.
fn answered(
    calls: &mut Calls<u32, u32>,
    waited: &mut BTreeSet<u32>,
    asked: &mut BTreeSet<u32>,
    deeds: &mut Deeds<'_>,
) {
    let mut bytes = [0; HEAD_BYTES];
    bytes[0] = deeds.byte() % 9;
    bytes[1..].copy_from_slice(&u32::from(deeds.byte() % 16).to_le_bytes());
    let Some((slot, _, _)) = wire::answer(&bytes) else {
        assert!(bytes[0] > Kind::Unsendable as u8);
        return;
    };
    match calls.handle_answer(slot, slot) {
        Ok(then) => {
            assert!(asked.remove(&slot), "{slot} was not asked");
            match then {
                Then::Wake(whom) => assert!(whom == slot && waited.contains(&slot)),
                Then::Nothing => assert!(waited.contains(&slot)),
                Then::Drop(of) => assert!(of == slot && !waited.contains(&slot)),
            }
        }
        Err(unasked) => {
            assert_eq!(unasked.slot, slot);
            assert!(!asked.contains(&slot), "{slot} waits for it");
        }
    }
}

/// Runs a service whose clients send anything. Each request gets one answer, and the numbers of
/// handled and of waiting requests keep their limits.
fn service(deeds: &mut Deeds<'_>) {
    let (at_once_max, waiting_max) = (1 + deeds.below(4), deeds.below(4));
    let mut serving = Serving::<Key, Key>::new(at_once_max, waiting_max, FUNCTIONS);
    // Requests without an answer, and the numbers of those that are handled.
    let (mut open, mut handled) = (BTreeSet::new(), BTreeMap::new());
    // Number of requests that were cancelled while they were handled.
    let mut aborted = 0;
    while !deeds.is_empty() {
        let key = |slot| Key { caller: u64::from(slot % 3), slot: slot / 3 };
        let length = 1 + deeds.below(HEAD_BYTES + 10);
        let word = deeds.bytes(length);
        match Request::parse(word) {
            Some(Request::Call { slot, .. }) => {
                let (key, function) = (key(slot % 32), slot as usize % FUNCTIONS);
                match serving.request(key, function) {
                    Verdict::Run => {
                        assert!(open.insert(key));
                        let number = serving.detach(key, function);
                        assert_eq!(serving.attach(key, number, key), None);
                        handled.insert(key, number);
                    }
                    Verdict::Wait => {
                        assert!(open.insert(key));
                        serving.queue(key, function, key);
                    }
                    Verdict::Refuse(_) => assert!(!open.contains(&key)),
                    Verdict::Twice => assert!(open.contains(&key)),
                }
            }
            Some(Request::Cancel { slot }) => {
                let key = key(slot % 32);
                match serving.cancel(key) {
                    Cancelled::Waited(of) => assert!(of == key && open.remove(&key)),
                    Cancelled::Ran(task) => {
                        assert!(task.is_none_or(|of| of == key) && open.remove(&key));
                        handled.remove(&key);
                        aborted += 1;
                    }
                    Cancelled::Over => assert!(!open.contains(&key)),
                }
            }
            Some(Request::Methods { .. }) => {}
            None if word.last() == Some(&CLOSES) => serving.close(),
            None => {
                finish(&mut serving, &mut open, &mut handled, &mut aborted);
            }
        }
        assert!(serving.at_once() <= at_once_max && serving.waiting() <= waiting_max);
        assert_eq!(serving.at_once() + serving.waiting(), open.len() + aborted);
    }
}

/// Ends a request that is handled: an aborted one, otherwise the first.
fn finish(
    serving: &mut Serving<Key, Key>,
    open: &mut BTreeSet<Key>,
    handled: &mut BTreeMap<Key, u64>,
    aborted: &mut usize,
) {
    if *aborted > 0 {
        *aborted -= 1;
    } else if let Some((key, number)) = handled.pop_first() {
        assert!(serving.answers(key, number) && open.remove(&key), "{key:?} is not answered");
        assert!(!serving.answers(key, number), "{key:?} is answered twice");
    } else {
        return;
    }
    if let Some(start) = serving.finished() {
        assert!(start.request == start.key && open.contains(&start.key));
        assert_eq!(serving.attach(start.key, start.number, start.key), None);
        handled.insert(start.key, start.number);
    }
}

/// Returns a message of each kind, a client and a service.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let call = |slot: u8| vec![1, slot, 0, 0, 0, b'v'];
    let cancel = wire::cancel(7);
    vec![
        [&[0], &call(9)[..]].concat(),
        [&[0], &cancel[..]].concat(),
        [&[0], &Kind::Panicked.with_text(3, "oh \u{20ac}")[..]].concat(),
        vec![1, 0, 200, 0, 10, 5, 2, 0, 0, 4, 0, 5, 1, 6, 100, 7, 3, 1, 1],
        // A length stands before each message.
        [&[2, 0, 1], &[5][..], &call(0), &[5], &call(1), &[4], &cancel, &[0, 9, 0, 9]].concat(),
        [&[2, 1, 0], &[0, CLOSES][..], &[5], &call(0)].concat(),
    ]
}
