//! Answers that are too large to be sent.

use std::error::Error;

use super::wire::{self, Answer, Ask, Item, Malformed};

/// Returns what is sent instead of an answer that is too large: an answer for each of its tasks. A
/// result that is too large by itself fails its task; a value for all workers is given up.
pub(crate) fn instead(answer: &[u8], error: &dyn Error) -> Result<Vec<Vec<u8>>, Malformed> {
    let (run, first, count, busy_ns, mut results) = match wire::read_answer(answer)? {
        Answer::Done { run, first, count, busy_ns, is_reduced: false, results } => {
            (run, first, count, busy_ns, results)
        }
        Answer::Once { run, key, .. } => {
            return Ok(vec![wire::once_answer(run, key, &Ask::GivenUp)]);
        }
        _ => return Err(Malformed),
    };
    let mut all = Vec::new();
    for task in first..first + u64::from(count) {
        let mut one = Vec::new();
        wire::begin_answer(&mut one, run, task);
        match results.next_result()?.ok_or(Malformed)? {
            _ if count == 1 => {
                let text = chunkcomm::with_causes(error);
                wire::put_failure(&mut one, &format!("its result could not be sent: {text}"));
            }
            Item::Value(value) => wire::put_bytes(&mut one, value),
            Item::Failure(text) => wire::put_failure(&mut one, text),
        }
        wire::finish_answer(&mut one, 1, busy_ns / u64::from(count));
        all.push(one);
    }
    Ok(all)
}
