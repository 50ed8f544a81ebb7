//! Records of a journal, as bytes.
//!
//! ```text
//!   journal   magic 8 bytes | record ..
//!   record    head | payload
//!   head      bytes of the payload u32 | CRC-32 of the payload u32 | run u32 | permanent u64 | CRC-32 u32
//!   payload   kind u8 0 | input u64 | output u64 | function's name
//!             kind u8 1 | result ..
//!             kind u8 2                                      says what is permanent
//!   result    digest of the input 12 bytes | bytes u8, or 255 and u32 | encoded result
//! ```
//!
//! Integers are little-endian. `input` and `output` are the hashes of the types. `permanent` is the
//! length of the file that was on the disk when the record was made. Damage before it is no write
//! that was cut short. The head's checksum covers its place in the file too, so that a journal in a
//! result is not taken for records.

use siphasher::sip128::SipHasher13;

/// First bytes of a journal; the last one is the version.
pub(crate) const MAGIC: [u8; 8] = *b"farmlog\x01";

/// Bytes of a record before its payload.
pub(crate) const HEAD: usize = 24;

/// Bytes of a digest of an input: two of 10^9 tasks share a digest with a probability of 10^-11.
const DIGEST_BYTES: usize = 12;

/// Stands for a number of bytes that follows in four bytes.
const LONG: u8 = u8::MAX;

const RUN: u8 = 0;
const RESULTS: u8 = 1;
const MARK: u8 = 2;

/// Words of a record beside its payload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stamp {
    /// Number of the run.
    pub(crate) run: u32,
    /// Length of the permanent part of the file.
    pub(crate) permanent: u64,
    /// Place in the file of the buffer that the record is written to.
    pub(crate) place: u64,
}

/// Head of a record, with the right checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    /// Bytes of the payload.
    pub(crate) bytes: u32,
    /// Checksum of the payload.
    pub(crate) sum: u32,
    pub(crate) run: u32,
    pub(crate) permanent: u64,
}

impl Head {
    /// Returns the end of a record at this place.
    pub(crate) fn end(&self, at: u64) -> u64 {
        at + HEAD as u64 + u64::from(self.bytes)
    }
}

/// Run that the results after this record belong to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RunHead {
    /// Number of the run in its program, from 1.
    pub(crate) run: u32,
    /// Hashes of the types of input and result.
    pub(crate) types: (u64, u64),
    pub(crate) function: String,
}

/// Results of a run that workers have finished without a farmer. Each is the digest of a task's
/// encoded input, and its encoded result.
#[derive(Clone, Debug)]
pub(crate) struct Finished {
    pub(crate) head: RunHead,
    pub(crate) results: Vec<(u128, Vec<u8>)>,
}

/// Payload of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Record<'a> {
    Run(RunHead),
    Results(Results<'a>),
    Mark,
}

/// Returns the digest of a value.
#[inline]
pub(crate) fn digest(value: &[u8]) -> u128 {
    SipHasher13::new().hash(value).as_u128()
}

/// Returns the digest of an encoded input, by which its result is found again.
#[inline]
pub(crate) fn input_digest(input: &[u8]) -> u128 {
    digest(input) & (u128::MAX >> (128 - 8 * DIGEST_BYTES))
}

/// Appends a record that begins a run.
pub(crate) fn put_run(out: &mut Vec<u8>, head: &RunHead, stamp: Stamp) {
    let at = begin(out, RUN);
    out.extend_from_slice(&head.types.0.to_le_bytes());
    out.extend_from_slice(&head.types.1.to_le_bytes());
    out.extend_from_slice(head.function.as_bytes());
    finish(out, at, stamp);
}

/// Appends a record that says how much of the file is permanent.
pub(crate) fn put_mark(out: &mut Vec<u8>, stamp: Stamp) {
    let at = begin(out, MARK);
    finish(out, at, stamp);
}

/// Begins a record of results; returns its place, for [`finish`].
pub(crate) fn begin_results(out: &mut Vec<u8>) -> usize {
    begin(out, RESULTS)
}

/// Appends a result to the record that was begun; returns the place of its value.
#[inline]
pub(crate) fn put_result(out: &mut Vec<u8>, digest: u128, value: &[u8]) -> usize {
    out.reserve(DIGEST_BYTES + 5 + value.len());
    out.extend_from_slice(&digest.to_le_bytes()[..DIGEST_BYTES]);
    match u8::try_from(value.len()) {
        Ok(bytes) if bytes < LONG => out.push(bytes),
        _ => {
            out.push(LONG);
            // A message has less than 2 GiB, and so has a value.
            out.extend_from_slice(&(value.len() as u32).to_le_bytes());
        }
    }
    let at = out.len();
    out.extend_from_slice(value);
    at
}

fn begin(out: &mut Vec<u8>, kind: u8) -> usize {
    let at = out.len();
    out.extend_from_slice(&[0; HEAD]);
    out.push(kind);
    at
}

/// Ends the record that was begun at this place of the buffer.
pub(crate) fn finish(out: &mut [u8], at: usize, stamp: Stamp) {
    let payload = &out[at + HEAD..];
    let (bytes, sum) = (payload.len() as u32, crc32fast::hash(payload));
    let head = &mut out[at..at + HEAD];
    head[..4].copy_from_slice(&bytes.to_le_bytes());
    head[4..8].copy_from_slice(&sum.to_le_bytes());
    head[8..12].copy_from_slice(&stamp.run.to_le_bytes());
    head[12..20].copy_from_slice(&stamp.permanent.to_le_bytes());
    let sum = head_sum(&head[..20], stamp.place + at as u64);
    head[20..].copy_from_slice(&sum.to_le_bytes());
}

/// Reads the head of a record at this place of the file; `None` if there is no head.
pub(crate) fn read_head(head: [u8; HEAD], at: u64) -> Option<Head> {
    let (checked, sum) = head.split_last_chunk::<4>()?;
    let (bytes, rest) = checked.split_first_chunk()?;
    let (of_payload, rest) = rest.split_first_chunk()?;
    let (run, rest) = rest.split_first_chunk()?;
    let permanent = u64::from_le_bytes(rest.try_into().ok()?);
    // A permanent part lies before its record. This check spares most checksums in a search for a
    // head.
    if permanent > at || u32::from_le_bytes(*sum) != head_sum(checked, at) {
        return None;
    }
    let (bytes, sum) = (u32::from_le_bytes(*bytes), u32::from_le_bytes(*of_payload));
    Some(Head { bytes, sum, run: u32::from_le_bytes(*run), permanent })
}

fn head_sum(checked: &[u8], at: u64) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(checked);
    hasher.update(&at.to_le_bytes());
    hasher.finalize()
}

/// Reads the payload of a record of this run; `None` if its form is unknown. Its checksum is right.
pub(crate) fn read(run: u32, payload: &[u8]) -> Option<Record<'_>> {
    match payload.split_first()? {
        (&RUN, rest) => {
            let (input, rest) = rest.split_first_chunk()?;
            let (output, name) = rest.split_first_chunk()?;
            let types = (u64::from_le_bytes(*input), u64::from_le_bytes(*output));
            let function = std::str::from_utf8(name).ok()?.to_owned();
            Some(Record::Run(RunHead { run, types, function }))
        }
        (&RESULTS, rest) => Some(Record::Results(Results { rest, at: 1 })),
        (&MARK, []) => Some(Record::Mark),
        _ => None,
    }
}

/// Results of a record, in the order in which they were accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Results<'a> {
    rest: &'a [u8],
    /// Place of the unread part in the payload.
    at: usize,
}

impl Iterator for Results<'_> {
    /// Digest of the input, place of the value in the payload, and its bytes.
    type Item = (u128, usize, u32);

    fn next(&mut self) -> Option<Self::Item> {
        let before = self.rest.len();
        let (short, rest) = self.rest.split_first_chunk::<DIGEST_BYTES>()?;
        let (bytes, rest) = match rest.split_first()? {
            (&LONG, rest) => {
                let (bytes, rest) = rest.split_first_chunk()?;
                (u32::from_le_bytes(*bytes), rest)
            }
            (&bytes, rest) => (bytes.into(), rest),
        };
        self.rest = rest.get(bytes as usize..)?;
        let at = self.at + before - rest.len();
        self.at = at + bytes as usize;
        let mut digest = [0; 16];
        digest[..DIGEST_BYTES].copy_from_slice(short);
        Some((u128::from_le_bytes(digest), at, bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const STAMP: Stamp = Stamp { run: 7, permanent: 900, place: 1000 };

    fn payload(record: &[u8]) -> &[u8] {
        let (head, payload) = record.split_first_chunk().unwrap();
        let (bytes, sum) = (payload.len() as u32, crc32fast::hash(payload));
        let Stamp { run, permanent, place } = STAMP;
        assert_eq!(read_head(*head, place), Some(Head { bytes, sum, run, permanent }));
        assert_eq!(read_head(*head, place + 1), None, "it is of another place");
        payload
    }

    /// Short ones, and those of the lengths at which the head changes.
    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![4 => 0..9usize, 1 => 253..258usize]
            .prop_flat_map(|bytes| prop::collection::vec(any::<u8>(), bytes))
    }

    proptest! {
        #[test]
        fn records_go_there_and_back(
            types: (u64, u64), function in "\\PC{0,20}",
            values in prop::collection::vec((any::<u128>(), bytes()), 0..20),
        ) {
            let values: Vec<_> = values.into_iter().map(|(digest, value)| (digest >> 32, value)).collect();
            let head = RunHead { run: 7, types, function };
            let mut out = Vec::new();
            put_run(&mut out, &head, STAMP);
            prop_assert_eq!(read(7, payload(&out)), Some(Record::Run(head)));
            out.clear();
            put_mark(&mut out, STAMP);
            prop_assert_eq!(read(7, payload(&out)), Some(Record::Mark));

            let mut out = Vec::new();
            let at = begin_results(&mut out);
            for (digest, value) in &values {
                let at = put_result(&mut out, *digest, value);
                prop_assert_eq!(&out[at..], &value[..]);
            }
            finish(&mut out, at, STAMP);
            let payload = payload(&out);
            let Some(Record::Results(results)) = read(7, payload) else { panic!() };
            let found: Vec<_> = results
                .map(|(digest, at, bytes)| (digest, payload[at..at + bytes as usize].to_vec()))
                .collect();
            prop_assert_eq!(found, values);
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..99)) {
            if let Some(Record::Results(results)) = read(7, &bytes) {
                for (_, at, length) in results {
                    prop_assert!(at + length as usize <= bytes.len());
                }
            }
        }
    }

    /// A journal outlives the program that wrote it, so the digest must never change.
    #[test]
    fn the_digest_stays() {
        assert_eq!(digest(b"seventeen"), 294_698_329_304_231_172_154_499_464_071_285_934_637);
        assert_ne!(digest(b""), digest(b"\0"));
        assert_eq!(input_digest(b"seventeen"), digest(b"seventeen") << 32 >> 32);
    }
}
