//! Reads a journal, and finds damage in it.
//!
//! A record that is not whole was being written when the farmer or its machine stopped, or is damaged. The
//! records behind it tell: each has the length of the file that was permanent when it was made.

use std::fs::File;
use std::io::{self, BufReader, Read as _, Seek as _, SeekFrom};

use chunkcomm_proto::sorted::SortedMap;

use super::{BUFFER_BYTES, Known, PAYLOAD_BYTES_MAX, read_at};
use crate::proto::record::{self, HEAD, Head, Record, RunHead};

/// Bytes that are searched at a time for a whole record.
const WINDOW: usize = 64 << 10;

/// The runs of a journal, with their results.
pub(super) type Runs = SortedMap<u32, (RunHead, Known)>;

/// A journal that was read.
pub(super) struct Found {
    pub(super) runs: Runs,
    /// End of the whole records.
    pub(super) end: u64,
    /// Places of damaged records among them.
    pub(super) skipped: Vec<u64>,
}

/// A journal of this length.
struct Reading<'a> {
    file: &'a File,
    length: u64,
    payload: Vec<u8>,
}

/// Reads the records of a journal of this length. A damaged one that was permanent is an error, unless it
/// is to be skipped: its place. The first other one that is not whole ends them.
pub(super) fn read_runs(file: &File, length: u64, skips: bool) -> io::Result<Result<Found, u64>> {
    let mut found =
        Found { runs: Runs::new(), end: record::MAGIC.len() as u64, skipped: Vec::new() };
    let mut reading = Reading { file, length, payload: Vec::new() };
    // The lock keeps out other handles of this process, too.
    let mut reader = BufReader::with_capacity(BUFFER_BYTES, file);
    reader.seek(SeekFrom::Start(found.end))?;
    while found.end < length {
        let at = found.end;
        if let Some(head) = reading.next(&mut reader, at)?
            && take(&mut found.runs, &head, at, &reading.payload)
        {
            found.end = head.end(at);
            continue;
        }
        match reading.permanent_behind(at)? {
            None => break,
            Some(next) if skips => {
                found.skipped.push(at);
                found.end = next;
                reader.seek(SeekFrom::Start(next))?;
            }
            Some(_) => return Ok(Err(at)),
        }
    }
    Ok(Ok(found))
}

/// Takes a whole record; `false` if it is of no known form.
fn take(runs: &mut Runs, head: &Head, at: u64, payload: &[u8]) -> bool {
    match record::read(head.run, payload) {
        Some(Record::Run(run)) => {
            runs.get_or_insert(head.run, (run, Known::default()));
        }
        Some(Record::Results(results)) => {
            // The beginning of its run may be a damaged record.
            if let Some((_, known)) = runs.get_mut(&head.run) {
                let begin = at + HEAD as u64;
                results.for_each(|(digest, at, bytes)| known.put(digest, begin + at as u64, bytes));
            }
        }
        Some(Record::Mark) => {}
        None => return false,
    }
    true
}

impl Reading<'_> {
    /// Reads the record at this place, where the reader stands; `None` if it is not whole.
    fn next(&mut self, reader: &mut BufReader<&File>, at: u64) -> io::Result<Option<Head>> {
        let mut bytes = [0; HEAD];
        if self.length - at < HEAD as u64 {
            return Ok(None);
        }
        reader.read_exact(&mut bytes)?;
        let Some(head) = self.head(bytes, at) else { return Ok(None) };
        self.payload.resize(head.bytes as usize, 0);
        reader.read_exact(&mut self.payload)?;
        Ok((crc32fast::hash(&self.payload) == head.sum).then_some(head))
    }

    /// Reads the head of a record that fits in the file.
    fn head(&self, bytes: [u8; HEAD], at: u64) -> Option<Head> {
        let head = record::read_head(bytes, at)?;
        (head.bytes <= PAYLOAD_BYTES_MAX && head.end(at) <= self.length).then_some(head)
    }

    /// Returns the place of the next whole record if one behind this place says that what lies there was
    /// permanent.
    fn permanent_behind(&mut self, at: u64) -> io::Result<Option<u64>> {
        let (mut first, mut from) = (None, at + 1);
        while let Some((place, head)) = self.find_whole(from)? {
            first.get_or_insert(place);
            if head.permanent > at {
                return Ok(first);
            }
            from = head.end(place);
        }
        Ok(None)
    }

    /// Finds the first whole record from this place on.
    fn find_whole(&mut self, from: u64) -> io::Result<Option<(u64, Head)>> {
        let mut window = vec![0; HEAD];
        let mut from = from;
        while self.length.saturating_sub(from) >= HEAD as u64 {
            let left = self.length - from;
            window.truncate(usize::try_from(left).unwrap_or(usize::MAX));
            read_at(self.file, &mut window, from)?;
            for (at, bytes) in window.windows(HEAD).enumerate() {
                let bytes = bytes.try_into().expect("a window has the bytes of a head");
                let place = from + at as u64;
                if let Some(head) = self.head(bytes, place)
                    && self.has_payload(&head, place)?
                {
                    return Ok(Some((place, head)));
                }
            }
            from += (window.len() - HEAD + 1) as u64;
            // Whole records lie behind each other, so the first look is short.
            window.resize(WINDOW, 0);
        }
        Ok(None)
    }

    fn has_payload(&mut self, head: &Head, at: u64) -> io::Result<bool> {
        self.payload.resize(head.bytes as usize, 0);
        read_at(self.file, &mut self.payload, at + HEAD as u64)?;
        Ok(crc32fast::hash(&self.payload) == head.sum)
    }
}
