//! Messages of a farmer and a worker, as bytes on a duplex that the worker opens.
//!
//! ```text
//!   worker ──▶ Hello                      who I am, my functions with their types
//!   farmer ──▶ Seat                       the worker's part and settings; or what differs
//!   worker ──▶ handed ..                  results of an earlier farmer's tasks
//!
//!   where the seat names a sub-farmer, the worker says hello there in the same way
//!
//!   farmer ──▶ assignment, take-back ..   the first are pings: with their returns the worker is ready
//!   worker ──▶ answer, return ..
//!
//!   assignment  kind u8 0 | run u32 | function u32 | first u64 | count u32 | attempt u32 | count x item
//!   take-back   kind u8 1 | run u32 | count u64
//!   value       kind u8 2 | 0 u32 | digest u128 | total u64 | offset u64 | bytes
//!   forget      kind u8 3 | 0 u32 | digest u128
//!   end         kind u8 4 | 0 u32
//!   once        kind u8 5 | run u32 | key u128 | 0 u8: compute; 1 u8 | value
//!   reducible   kind u8 6, then as an assignment: a sub-farmer may reduce the results
//!   answer      kind u8 0 | run u32 | first u64 | count u32 | busy_ns u64 | count x item
//!   return      kind u8 1 | run u32 | first u64 | count u32
//!   late        kind u8 2 | run u32 | index u64 | stuck u32
//!   aside       kind u8 3 | run u32 | index u64 | 1 u32 | deaths u32 | last loss
//!   threads     kind u8 4 | 0 u32 | lost u64 | threads u32
//!   virtual     kind u8 5 | run u32 | 0 u64 | virtual workers u32
//!   progress    kind u8 6 | run u32 | 0 u64 | count u32 | count x (index u64 | thousandths u32)
//!   mishaps     kind u8 7 | run u32 | 0 u64 | 4 u32 | 4 x number u64
//!   once        kind u8 8 | run u32 | 0 u64 | 0 u32: need; 1: computed; 2: given up | key u128 | value
//!   reduced     kind u8 9, then as an answer: an item may be of the tasks after it, too
//!   handed      kind u8 10 | run u32 | 0 u64 | function u32 | encoded list of digest u128 and value
//!   item        bytes u32 | encoded value; in an answer the highest bit of `bytes` marks
//!               the text of a failure
//! ```
//!
//! | word | meaning |
//! |---|---|
//! | assignment | Tasks `first` to `first + count` of the run. |
//! | answer | Results of any range of the worker's tasks. It may span small assignments, or be a part of a large one. |
//! | reduced | A sub-farmer's answer to reducible tasks. It is accepted whole or refused. |
//! | take-back | Asks for up to `count` tasks that are not begun. Zero tasks is a ping. |
//! | return | The tasks given back, then an empty range as the end. |
//! | value | A part of a shared value. Its parts come in order, before the tasks that name its digest. |
//! | late | Timeout plus grace of a task has passed. `stuck` = 1: a thread still runs it; 0: it waited and was dropped. |
//! | virtual | Takes the place of the number of threads, until the run ends or another is sent. |
//! | progress | Fractions that running tasks have reported since the last such word (`progress.rs`). |
//! | once | A value that one worker computes for all (`once.rs`). |
//! | handed | Results of tasks of a lost farmer, by the digests of their inputs, before the first return. |
//! | aside, threads, mishaps | Only of sub-farmers: tasks it has set aside; threads below it and workers it has lost; tasks that it gave out again, got back, copied and dropped. Sent when they change. |
//!
//! A sub-farmer is a worker to its farmer and a farmer to its workers, with the same words. When
//! its messages end without the word *end*, its workers turn to the farmer.
//!
//! Integers are little-endian. The number of the run tells the rest of a cancelled run from the
//! next run. Hello and Seat go through the codec (`wire/hello.rs`). The others are written
//! and read by hand, since each task has them.

pub use self::hello::TaskTimeout;
pub(crate) use self::hello::{
    Hello, Role, Seat, Seated, Terms, VERSIONS, Who, duplex, hello, places, read_hello,
};
pub(crate) use self::items::{
    Item, Items, LENGTH_BYTES, items_bytes, put_bytes, put_failure, put_item, put_value,
};
pub(crate) use self::once::{Ask, Key, ONCE_HEAD_MAX, Told, once_answer, once_order};
pub(crate) use self::progress::{Fractions, progress};

use super::ledger::Mishaps;
use bytes::{Buf, TryGetError};
use chunkcomm::codec::{EncodeError, decode, encode_into_vec};
use chunkcomm_proto::loss::Loss;

/// Bytes that are no assignment or no answer, or an answer to no assignment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

impl From<TryGetError> for Malformed {
    #[inline]
    fn from(_: TryGetError) -> Self {
        Self
    }
}

/// Most virtual workers of a worker.
pub(crate) const VIRTUAL_MAX: u32 = 1 << 20;

/// A part of a shared value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part<'a> {
    /// Digest of the whole encoded value, by which tasks name it.
    pub(crate) digest: u128,
    /// Bytes of the whole value.
    pub(crate) total: u64,
    /// Place of this part in it.
    pub(crate) offset: u64,
    pub(crate) bytes: &'a [u8],
}

/// Message of the farmer.
#[derive(Clone, Debug)]
pub(crate) enum Order<'a> {
    Assign(Assignment<'a>),
    Value(Part<'a>),
    /// Notice that no task names the value from then on.
    Forget {
        digest: u128,
    },
    /// The farm is done, and the messages end.
    End,
    /// Reply to a worker that needs a value which one worker computes for all.
    Once {
        run: u32,
        key: Key,
        reply: Told,
    },
    /// Request for up to this number of tasks that are not begun, those with the highest indices
    /// first.
    TakeBack {
        run: u32,
        count: u64,
    },
}

/// Tasks for a worker: `count` of them, with the indices from `first` on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Assignment<'a> {
    pub(crate) run: u32,
    /// Index of the function in the worker's seat.
    pub(crate) function: u32,
    pub(crate) first: u64,
    pub(crate) count: u32,
    /// Number of times that the tasks were given out before.
    pub(crate) attempt: u32,
    /// Whether a sub-farmer may reduce the results.
    pub(crate) reducible: bool,
    /// Inputs, each after its length; not checked yet.
    pub(crate) items: &'a [u8],
}

const ASSIGN: u8 = 0;
const TAKE_BACK: u8 = 1;
const VALUE: u8 = 2;
const FORGET: u8 = 3;
const END: u8 = 4;
const ONCE_ORDER: u8 = 5;
const REDUCIBLE: u8 = 6;

/// The word that the farm is done.
pub(crate) const THE_END: [u8; 5] = [END, 0, 0, 0, 0];

const COUNT_AT: usize = 17;
const ATTEMPT_AT: usize = COUNT_AT + 4;

/// Bytes of an assignment before its inputs.
pub(crate) const ASSIGNMENT_HEAD: usize = ATTEMPT_AT + 4;

/// Begins an assignment; the inputs follow with [`put_value`], and then [`number_assignment`].
#[inline]
pub(crate) fn begin_assignment(out: &mut Vec<u8>, run: u32, function: u32) {
    out.clear();
    out.push(ASSIGN);
    out.extend_from_slice(&run.to_le_bytes());
    out.extend_from_slice(&function.to_le_bytes());
    out.extend_from_slice(&[0; 16]);
}

/// Writes the first task and the number of tasks into an assignment.
#[inline]
pub(crate) fn number_assignment(out: &mut [u8], first: u64, count: u32) {
    out[COUNT_AT - 8..COUNT_AT].copy_from_slice(&first.to_le_bytes());
    out[COUNT_AT..COUNT_AT + 4].copy_from_slice(&count.to_le_bytes());
}

/// Marks an assignment whose results a sub-farmer may reduce.
pub(crate) fn mark_reducible(assignment: &mut [u8]) {
    assignment[0] = REDUCIBLE;
}

/// Writes how often the tasks of an assignment were given out before.
pub(crate) fn set_attempt(out: &mut [u8], attempt: u32) {
    out[ATTEMPT_AT..ASSIGNMENT_HEAD].copy_from_slice(&attempt.to_le_bytes());
}

/// Encodes a request for tasks that are not begun.
pub(crate) fn take_back(run: u32, count: u64) -> [u8; 13] {
    let mut bytes = [TAKE_BACK; 13];
    bytes[1..5].copy_from_slice(&run.to_le_bytes());
    bytes[5..].copy_from_slice(&count.to_le_bytes());
    bytes
}

/// Encodes a part of a shared value.
pub(crate) fn value_part(part: &Part<'_>) -> Vec<u8> {
    let mut bytes = vec![VALUE, 0, 0, 0, 0];
    bytes.extend_from_slice(&part.digest.to_le_bytes());
    bytes.extend_from_slice(&part.total.to_le_bytes());
    bytes.extend_from_slice(&part.offset.to_le_bytes());
    bytes.extend_from_slice(part.bytes);
    bytes
}

/// Encodes the notice that a shared value is not needed from then on.
pub(crate) fn forget(digest: u128) -> [u8; 21] {
    let mut bytes = [0; 21];
    bytes[0] = FORGET;
    bytes[5..].copy_from_slice(&digest.to_le_bytes());
    bytes
}

#[inline]
pub(crate) fn read_order(mut rest: &[u8]) -> Result<Order<'_>, Malformed> {
    let kind = rest.try_get_u8()?;
    let run = rest.try_get_u32_le()?;
    match kind {
        ASSIGN | REDUCIBLE => {
            let function = rest.try_get_u32_le()?;
            let (first, count, attempt) =
                (rest.try_get_u64_le()?, rest.try_get_u32_le()?, rest.try_get_u32_le()?);
            // An index that overflows is never assigned.
            first.checked_add(count.into()).ok_or(Malformed)?;
            let (reducible, items) = (kind == REDUCIBLE, rest);
            Ok(Order::Assign(Assignment { run, function, first, count, attempt, reducible, items }))
        }
        TAKE_BACK => {
            let count = rest.try_get_u64_le()?;
            if rest.is_empty() { Ok(Order::TakeBack { run, count }) } else { Err(Malformed) }
        }
        VALUE => {
            let digest = rest.try_get_u128_le()?;
            let (total, offset) = (rest.try_get_u64_le()?, rest.try_get_u64_le()?);
            Ok(Order::Value(Part { digest, total, offset, bytes: rest }))
        }
        FORGET => {
            let digest = rest.try_get_u128_le()?;
            if rest.is_empty() { Ok(Order::Forget { digest }) } else { Err(Malformed) }
        }
        END if rest.is_empty() => Ok(Order::End),
        ONCE_ORDER => once::read_once_order(run, rest),
        _ => Err(Malformed),
    }
}

/// Word of a worker about the range of tasks from `first` on.
#[derive(Clone, Debug)]
pub(crate) enum Answer<'a> {
    /// The tasks were run: each has a result or failed. A reduced result is one of several tasks.
    Done {
        run: u32,
        first: u64,
        count: u32,
        busy_ns: u64,
        is_reduced: bool,
        results: Items<'a>,
    },
    /// The task has not ended in time, and its result is not awaited. Not stuck means that no
    /// thread runs it.
    Late {
        run: u32,
        index: u64,
        is_stuck: bool,
    },
    /// This many workers died of the task; its loss tells how the last one was lost.
    Aside {
        run: u32,
        index: u64,
        deaths: u32,
        loss: Loss,
    },
    /// Numbers of tasks that were so far given out again, returned, copied and dropped below.
    Mishaps {
        run: u32,
        mishaps: Mishaps,
    },
    /// Number of threads that compute here and below, and of workers lost below.
    Threads {
        count: u32,
        lost: u64,
    },
    /// Number of virtual workers in the run.
    Virtual {
        run: u32,
        workers: u32,
    },
    /// Tasks, each with the thousandths of it that are done.
    Progress {
        run: u32,
        fractions: Fractions<'a>,
    },
    /// A word about a value that one worker computes for all.
    Once {
        run: u32,
        key: Key,
        ask: Ask,
    },
    Handed(Handed),
    /// The tasks were not begun and are given back. An empty range ends the reply to a take-back.
    Returned {
        run: u32,
        first: u64,
        count: u32,
    },
}

/// Results of a run that a worker has finished without a farmer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Handed {
    pub(crate) run: u32,
    /// Index of the function in the worker's seat.
    pub(crate) function: u32,
    /// Digest of each task's encoded input, and its encoded result.
    pub(crate) results: Vec<(u128, Vec<u8>)>,
}

const DONE: u8 = 0;
const RETURNED: u8 = 1;
const LATE: u8 = 2;
const ASIDE: u8 = 3;
const THREADS: u8 = 4;
const VIRTUAL: u8 = 5;
const PROGRESS: u8 = 6;
const MISHAPS: u8 = 7;
const ONCE: u8 = 8;
const REDUCED: u8 = 9;
const HANDED: u8 = 10;
const ANSWER_COUNT_AT: usize = 13;
const BUSY_AT: usize = 17;

/// Bytes of an answer before its results.
pub(crate) const ANSWER_HEAD: usize = BUSY_AT + 8;

/// Begins the answer to tasks from `first` on. The results follow with [`put_item`] and
/// [`put_failure`], their number and their time with [`finish_answer`].
#[inline]
pub(crate) fn begin_answer(out: &mut Vec<u8>, run: u32, first: u64) {
    out.clear();
    out.push(DONE);
    out.extend_from_slice(&run.to_le_bytes());
    out.extend_from_slice(&first.to_le_bytes());
    out.extend_from_slice(&[0; 12]);
}

/// Writes the number of tasks and the time that they took into an answer that was begun.
#[inline]
pub(crate) fn finish_answer(out: &mut [u8], count: u32, busy_ns: u64) {
    out[ANSWER_COUNT_AT..BUSY_AT].copy_from_slice(&count.to_le_bytes());
    out[BUSY_AT..ANSWER_HEAD].copy_from_slice(&busy_ns.to_le_bytes());
}

/// Marks an answer whose results were reduced.
pub(crate) fn mark_reduced(answer: &mut [u8]) {
    answer[0] = REDUCED;
}

/// Encodes the return of tasks that were not begun.
pub(crate) fn returned(run: u32, first: u64, count: u32) -> [u8; 17] {
    about(RETURNED, run, first, count)
}

/// Encodes that a task has not ended in time.
pub(crate) fn late(run: u32, index: u64, is_stuck: bool) -> [u8; 17] {
    about(LATE, run, index, is_stuck.into())
}

/// Encodes that a task is set aside.
pub(crate) fn aside(run: u32, index: u64, deaths: u32, loss: &Loss) -> Vec<u8> {
    let mut bytes = about(ASIDE, run, index, 1).to_vec();
    bytes.extend_from_slice(&deaths.to_le_bytes());
    bytes.extend_from_slice(&loss.to_bytes());
    bytes
}

/// Encodes the numbers of tasks that were given out again, returned, copied and dropped.
pub(crate) fn mishaps(run: u32, mishaps: Mishaps) -> Vec<u8> {
    let Mishaps { reissued, returned, copied, dropped } = mishaps;
    let numbers = [reissued, returned, copied, dropped];
    let mut bytes = about(MISHAPS, run, 0, 4).to_vec();
    numbers.iter().for_each(|number| bytes.extend_from_slice(&number.to_le_bytes()));
    bytes
}

/// Encodes the number of threads that compute, and of lost workers.
pub(crate) fn threads(count: u32, lost: u64) -> [u8; 17] {
    about(THREADS, 0, lost, count)
}

/// Encodes the number of virtual workers in a run.
pub(crate) fn virtual_workers(run: u32, count: u32) -> [u8; 17] {
    about(VIRTUAL, run, 0, count)
}

/// Encodes results for a farmer that takes the place of a lost one.
pub(crate) fn handed(handed: &Handed) -> Result<Vec<u8>, EncodeError> {
    let mut bytes = about(HANDED, handed.run, 0, handed.function).to_vec();
    encode_into_vec(&handed.results, &mut bytes)?;
    Ok(bytes)
}

fn about(kind: u8, run: u32, first: u64, count: u32) -> [u8; 17] {
    let mut bytes = [kind; 17];
    bytes[1..5].copy_from_slice(&run.to_le_bytes());
    bytes[5..13].copy_from_slice(&first.to_le_bytes());
    bytes[13..].copy_from_slice(&count.to_le_bytes());
    bytes
}

#[inline]
pub(crate) fn read_answer(mut rest: &[u8]) -> Result<Answer<'_>, Malformed> {
    let kind = rest.try_get_u8()?;
    let run = rest.try_get_u32_le()?;
    let (first, count) = (rest.try_get_u64_le()?, rest.try_get_u32_le()?);
    first.checked_add(count.into()).ok_or(Malformed)?;
    match kind {
        DONE | REDUCED => {
            let (busy_ns, is_reduced) = (rest.try_get_u64_le()?, kind == REDUCED);
            let results = Items::new(rest, count);
            Ok(Answer::Done { run, first, count, busy_ns, is_reduced, results })
        }
        LATE if rest.is_empty() && count <= 1 && first < u64::MAX => {
            Ok(Answer::Late { run, index: first, is_stuck: count == 1 })
        }
        RETURNED if rest.is_empty() => Ok(Answer::Returned { run, first, count }),
        ASIDE if count == 1 => {
            let deaths = rest.try_get_u32_le()?;
            let loss = Loss::from_bytes(rest).ok_or(Malformed)?;
            Ok(Answer::Aside { run, index: first, deaths, loss })
        }
        MISHAPS if count == 4 => {
            let mishaps = Mishaps {
                reissued: rest.try_get_u64_le()?,
                returned: rest.try_get_u64_le()?,
                copied: rest.try_get_u64_le()?,
                dropped: rest.try_get_u64_le()?,
            };
            if rest.is_empty() { Ok(Answer::Mishaps { run, mishaps }) } else { Err(Malformed) }
        }
        THREADS if rest.is_empty() => Ok(Answer::Threads { count, lost: first }),
        ONCE if first == 0 => {
            let (key, ask) = once::read_once_answer(count, rest)?;
            Ok(Answer::Once { run, key, ask })
        }
        PROGRESS if first == 0 => {
            Ok(Answer::Progress { run, fractions: Fractions::read(count, rest)? })
        }
        HANDED if first == 0 => {
            let results = decode(rest).map_err(|_| Malformed)?;
            Ok(Answer::Handed(Handed { run, function: count, results }))
        }
        VIRTUAL if rest.is_empty() => Ok(Answer::Virtual { run, workers: count }),
        _ => Err(Malformed),
    }
}

mod hello;
mod items;
mod once;
mod progress;
#[cfg(test)]
mod tests;
