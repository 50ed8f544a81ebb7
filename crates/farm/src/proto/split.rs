//! Splitting of answers that are too large to be sent, into single results.

use std::error::Error;

use super::wire::{self, Answer, Ask, Item, Malformed};

/// Returns the word that gives a value up instead of the answer that has the value; `None` for
/// another answer.
pub(crate) fn given_up(answer: &[u8]) -> Option<Vec<u8>> {
    match wire::read_answer(answer) {
        Ok(Answer::Once { run, key, .. }) => Some(wire::once_answer(run, key, &Ask::GivenUp)),
        _ => None,
    }
}

/// Returns an answer for each task of this one.
pub(crate) fn one_by_one(answer: &[u8]) -> Result<Vec<Vec<u8>>, Malformed> {
    let Answer::Done { run, first, count, busy_ns, is_reduced: false, mut results } =
        wire::read_answer(answer)?
    else {
        return Err(Malformed);
    };
    let mut all = Vec::new();
    for task in first..first + u64::from(count) {
        let mut one = Vec::new();
        wire::begin_answer(&mut one, run, task);
        match results.next_result()?.ok_or(Malformed)? {
            Item::Value(value) => wire::put_bytes(&mut one, value),
            Item::Failure(text) => wire::put_failure(&mut one, text),
        }
        wire::finish_answer(&mut one, 1, busy_ns / u64::from(count));
        all.push(one);
    }
    Ok(all)
}

/// Returns the failure that replaces the answer of a single task, which is too large by itself.
pub(crate) fn in_its_place(answer: &[u8], error: &dyn Error) -> Vec<u8> {
    let Ok(Answer::Done { run, first, busy_ns, .. }) = wire::read_answer(answer) else {
        unreachable!("it was written as an answer");
    };
    let mut one = Vec::new();
    wire::begin_answer(&mut one, run, first);
    let text = chunkcomm::with_causes(error);
    wire::put_failure(&mut one, &format!("its result could not be sent: {text}"));
    wire::finish_answer(&mut one, 1, busy_ns);
    one
}
