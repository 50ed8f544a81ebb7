//! Messages of a farmer and a worker, as bytes on a duplex that the worker opens.
//!
//! ```text
//!   worker ──▶ Hello                      who I am
//!   farmer ──▶ Setup                      the functions, with their types
//!   worker ──▶ Reply                      ready, or what differs
//!   farmer ──▶ assignment, assignment ..
//!   worker ──▶ answer, answer ..          one an assignment
//!
//!   assignment  run u32 | function u32 | first u64 | count u32 | count x (bytes u32 | input)
//!   answer      run u32 | kind u8 | first u64 | count u32 | busy_ns u64
//!               kind 0: count x (bytes u32 | result);  kind 1: text, first is the task's index
//! ```
//!
//! Integers are little-endian. Both carry the number of the run, which tells the rest of
//! a cancelled run from the next run. Hello, Setup and Reply go through the codec. The
//! others are written and read by hand, since each task has them.
//!
//! The worker's first message begins with 4 bytes: the oldest and the newest version of this
//! protocol that it speaks. These bytes and the form of Hello never change, so that two sides
//! without a common version get an error that says so. The first 2 bytes of Setup are the version
//! that both use: the newest that both speak.

use chunkcomm::codec::{EncodeError, decode, encode_into_vec};
use chunkcomm_cluster::launch::Token;
use chunkcomm_cluster::registry::{Difference, FunctionFingerprint};
use serde::{Deserialize, Serialize};

/// Name of the duplex. Workers before version 4 open a channel of this name and are refused.
pub(crate) const DUPLEX: &str = "farm.results";
/// The versions that this code speaks, from the oldest to the newest.
pub(crate) const VERSIONS: (u16, u16) = (4, 4);

const _: () = assert!(VERSIONS.0 <= VERSIONS.1);

/// The worker's first message, after its versions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Hello {
    /// The worker that was started with this index and this token.
    Started { token: Token, index: u64 },
    /// A node of the farmer's cluster; its link tells which one.
    Member,
}

/// Bytes that are no hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HelloError {
    /// The worker's versions, none of which this code speaks.
    Versions((u16, u16)),
    Malformed,
}

/// Encodes the worker's first message.
pub(crate) fn hello(hello: &Hello) -> Result<Vec<u8>, EncodeError> {
    let (oldest, newest) = VERSIONS;
    let mut bytes = [oldest.to_le_bytes(), newest.to_le_bytes()].concat();
    encode_into_vec(hello, &mut bytes)?;
    Ok(bytes)
}

/// Reads a worker's first message: its hello, and the version that both sides use.
pub(crate) fn read_hello(bytes: &[u8]) -> Result<(Hello, u16), HelloError> {
    let (&[a, b, c, d], hello) = bytes.split_first_chunk().ok_or(HelloError::Malformed)?;
    let theirs = (u16::from_le_bytes([a, b]), u16::from_le_bytes([c, d]));
    if theirs.0 > theirs.1 {
        return Err(HelloError::Malformed);
    }
    let version = common(VERSIONS, theirs).ok_or(HelloError::Versions(theirs))?;
    Ok((decode(hello).map_err(|_| HelloError::Malformed)?, version))
}

/// Returns the newest version that is in both ranges.
fn common(ours: (u16, u16), theirs: (u16, u16)) -> Option<u16> {
    let newest = ours.1.min(theirs.1);
    (newest >= ours.0.max(theirs.0)).then_some(newest)
}

/// The farmer's first message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Setup {
    /// Version that both sides use.
    pub(crate) version: u16,
    pub(crate) functions: Vec<FunctionFingerprint>,
}

/// The worker's answer to the [`Setup`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Reply {
    Ready,
    Differs(Difference),
}

/// Bytes that are no assignment or no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// Takes numbers and slices from the front of its bytes.
#[derive(Clone, Copy, Debug)]
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    #[inline]
    fn bytes(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (taken, rest) = self.0.split_first_chunk::<N>().ok_or(Malformed)?;
        self.0 = rest;
        Ok(*taken)
    }

    #[inline]
    fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_le_bytes)
    }

    #[inline]
    fn u64(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_le_bytes)
    }
}

/// Encoded values, each preceded by its length.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Items<'a> {
    rest: Reader<'a>,
    left: u32,
}

impl<'a> Items<'a> {
    /// Returns the next value's bytes; `None` after the last.
    #[inline]
    pub(crate) fn next(&mut self) -> Result<Option<&'a [u8]>, Malformed> {
        if self.left == 0 {
            return if self.rest.0.is_empty() { Ok(None) } else { Err(Malformed) };
        }
        self.left -= 1;
        let bytes = self.rest.u32()?;
        self.rest.bytes(bytes as usize).map(Some)
    }
}

/// Appends a length and its value.
///
/// `write` appends the value; when `write` fails, `out` is as before.
#[inline]
pub(crate) fn put_item<E>(
    out: &mut Vec<u8>,
    write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
) -> Result<(), E> {
    let at = out.len();
    out.extend_from_slice(&[0; 4]);
    if let Err(error) = write(out) {
        out.truncate(at);
        return Err(error);
    }
    // A message has less than 4 GiB, so the cut length of a longer value is never
    // seen: sending it fails.
    let bytes = (out.len() - at - 4) as u32;
    out[at..at + 4].copy_from_slice(&bytes.to_le_bytes());
    Ok(())
}

/// Appends a length and the value as the codec encodes it; see [`put_item`].
#[inline]
pub(crate) fn put_value<T: Serialize>(out: &mut Vec<u8>, value: &T) -> Result<(), EncodeError> {
    put_item(out, |out| encode_into_vec(value, out).map(drop))
}

/// Tasks for a worker: `count` of them, with the indices from `first` on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Assignment<'a> {
    pub(crate) run: u32,
    /// Index of the function in the farmer's Setup.
    pub(crate) function: u32,
    pub(crate) first: u64,
    pub(crate) count: u32,
    pub(crate) inputs: Items<'a>,
}

const COUNT_AT: usize = 16;

/// Begins an assignment; the inputs follow with [`put_value`], their number with
/// [`finish_assignment`].
#[inline]
pub(crate) fn begin_assignment(out: &mut Vec<u8>, run: u32, function: u32, first: u64) {
    out.clear();
    out.extend_from_slice(&run.to_le_bytes());
    out.extend_from_slice(&function.to_le_bytes());
    out.extend_from_slice(&first.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
}

/// Writes the number of inputs into an assignment that was begun.
#[inline]
pub(crate) fn finish_assignment(out: &mut [u8], count: u32) {
    out[COUNT_AT..COUNT_AT + 4].copy_from_slice(&count.to_le_bytes());
}

#[inline]
pub(crate) fn read_assignment(bytes: &[u8]) -> Result<Assignment<'_>, Malformed> {
    let mut reader = Reader(bytes);
    let (run, function) = (reader.u32()?, reader.u32()?);
    let (first, count) = (reader.u64()?, reader.u32()?);
    // An index that overflows is never assigned.
    first.checked_add(count.into()).ok_or(Malformed)?;
    Ok(Assignment { run, function, first, count, inputs: Items { rest: reader, left: count } })
}

/// Outcome of an assignment.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Answer<'a> {
    /// All tasks of the assignment were done.
    Done { run: u32, first: u64, count: u32, busy_ns: u64, results: Items<'a> },
    /// This task failed; the rest of the assignment was not tried.
    Failed { run: u32, index: u64, text: &'a str },
}

const DONE: u8 = 0;
const FAILED: u8 = 1;
const BUSY_AT: usize = 17;

/// Begins the answer to an assignment; the results follow with [`put_item`], the
/// time with [`finish_answer`].
#[inline]
pub(crate) fn begin_answer(out: &mut Vec<u8>, assignment: &Assignment<'_>) {
    out.clear();
    put_answer_head(out, DONE, assignment.run, assignment.first, assignment.count);
}

/// Writes the time that the tasks took into an answer that was begun.
#[inline]
pub(crate) fn finish_answer(out: &mut [u8], busy_ns: u64) {
    out[BUSY_AT..BUSY_AT + 8].copy_from_slice(&busy_ns.to_le_bytes());
}

/// Whether an answer says that all its tasks are done.
pub(crate) fn is_done(answer: &[u8]) -> bool {
    matches!(read_answer(answer), Ok(Answer::Done { .. }))
}

/// Bytes of the longest text of a failure: it must always fit in a message.
const FAILURE_TEXT_BYTES_MAX: usize = 4096;

/// Replaces `out` by an answer that reports the failure of task `index`.
pub(crate) fn write_failure(out: &mut Vec<u8>, run: u32, index: u64, text: &str) {
    out.clear();
    put_answer_head(out, FAILED, run, index, 0);
    let longest = text.len().min(FAILURE_TEXT_BYTES_MAX);
    let end = (0..=longest).rev().find(|&at| text.is_char_boundary(at));
    out.extend_from_slice(&text.as_bytes()[..end.expect("0 is a boundary")]);
}

#[inline]
fn put_answer_head(out: &mut Vec<u8>, kind: u8, run: u32, first: u64, count: u32) {
    out.extend_from_slice(&run.to_le_bytes());
    out.push(kind);
    out.extend_from_slice(&first.to_le_bytes());
    out.extend_from_slice(&count.to_le_bytes());
    out.extend_from_slice(&[0; 8]);
}

#[inline]
pub(crate) fn read_answer(bytes: &[u8]) -> Result<Answer<'_>, Malformed> {
    let mut reader = Reader(bytes);
    let run = reader.u32()?;
    let [kind] = reader.array()?;
    let (first, count, busy_ns) = (reader.u64()?, reader.u32()?, reader.u64()?);
    match kind {
        DONE => {
            first.checked_add(count.into()).ok_or(Malformed)?;
            let results = Items { rest: reader, left: count };
            Ok(Answer::Done { run, first, count, busy_ns, results })
        }
        FAILED => {
            let text = std::str::from_utf8(reader.0).map_err(|_| Malformed)?;
            Ok(Answer::Failed { run, index: first, text })
        }
        _ => Err(Malformed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn items(mut items: Items<'_>) -> Result<Vec<Vec<u8>>, Malformed> {
        let mut all = Vec::new();
        while let Some(item) = items.next()? {
            all.push(item.to_vec());
        }
        Ok(all)
    }

    proptest! {
        #[test]
        fn assignments_and_answers_survive_their_bytes(
            run: u32, function: u32, first in 0..u64::MAX / 2, busy: u64,
            values in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..9),
        ) {
            let mut bytes = vec![1, 2, 3];
            begin_assignment(&mut bytes, run, function, first);
            for value in &values {
                put_item(&mut bytes, |out| { out.extend_from_slice(value); Ok::<_, ()>(()) }).unwrap();
            }
            finish_assignment(&mut bytes, values.len() as u32);
            let assignment = read_assignment(&bytes).unwrap();
            prop_assert_eq!((assignment.run, assignment.function), (run, function));
            prop_assert_eq!((assignment.first, assignment.count as usize), (first, values.len()));
            prop_assert_eq!(&items(assignment.inputs).unwrap(), &values);

            let mut answer = Vec::new();
            begin_answer(&mut answer, &assignment);
            for value in &values {
                put_item(&mut answer, |out| { out.extend_from_slice(value); Ok::<_, ()>(()) }).unwrap();
            }
            finish_answer(&mut answer, busy);
            match read_answer(&answer).unwrap() {
                Answer::Done { run: r, first: f, count, busy_ns, results } => {
                    prop_assert_eq!((r, f, count, busy_ns), (run, first, values.len() as u32, busy));
                    prop_assert_eq!(items(results).unwrap(), values);
                }
                Answer::Failed { .. } => prop_assert!(false, "nothing failed"),
            }
        }

        #[test]
        fn random_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            if let Ok(assignment) = read_assignment(&bytes) {
                let _ = items(assignment.inputs);
            }
            if let Ok(Answer::Done { results, .. }) = read_answer(&bytes) {
                let _ = items(results);
            }
        }
    }

    #[test]
    fn both_go_by_the_newest_version_that_both_speak() {
        for (ours, theirs, newest) in [
            ((3, 3), (3, 3), Some(3)),
            ((3, 4), (2, 3), Some(3)),
            ((2, 3), (3, 4), Some(3)),
            ((1, 9), (4, 5), Some(5)),
            ((3, 4), (1, 2), None),
            ((1, 2), (3, 4), None),
        ] {
            assert_eq!(common(ours, theirs), newest, "{ours:?} and {theirs:?}");
        }
    }

    #[test]
    fn a_hello_says_its_versions_first() {
        let said = hello(&Hello::Member).unwrap();
        assert_eq!(read_hello(&said), Ok((Hello::Member, VERSIONS.1)));
        let with = |oldest: u16, newest: u16| {
            let versions = [oldest.to_le_bytes(), newest.to_le_bytes()].concat();
            read_hello(&[&versions, &said[4..]].concat())
        };
        assert_eq!(with(1, VERSIONS.1 + 4), Ok((Hello::Member, VERSIONS.1)));
        let newer = (VERSIONS.1 + 1, VERSIONS.1 + 2);
        assert_eq!(with(newer.0, newer.1), Err(HelloError::Versions(newer)));
        assert_eq!(with(4, 3), Err(HelloError::Malformed));
        assert_eq!(read_hello(&said[..3]), Err(HelloError::Malformed));
    }

    #[test]
    fn a_cut_or_longer_message_is_malformed() {
        let mut bytes = Vec::new();
        begin_assignment(&mut bytes, 1, 2, 3);
        put_value(&mut bytes, &7u16).unwrap();
        finish_assignment(&mut bytes, 1);
        for cut in 0..bytes.len() {
            let read = read_assignment(&bytes[..cut]).and_then(|read| items(read.inputs));
            assert_eq!(read, Err(Malformed), "{cut} bytes of {}", bytes.len());
        }
        bytes.push(0);
        assert_eq!(items(read_assignment(&bytes).unwrap().inputs), Err(Malformed));
    }

    #[test]
    fn a_failure_carries_its_text_cut_to_the_limit() {
        let mut bytes = Vec::new();
        write_failure(&mut bytes, 5, 6, &"ö".repeat(3000));
        match read_answer(&bytes).unwrap() {
            Answer::Failed { run, index, text } => {
                assert_eq!((run, index, text.len()), (5, 6, FAILURE_TEXT_BYTES_MAX));
            }
            Answer::Done { .. } => panic!("it failed"),
        }
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
}
