//! The journal of a farm: a file with the results that were accepted, for a farmer that is started
//! again.
//!
//! A result is found by the digest of its task's input, not by its index. So the tasks may come in
//! another order, as those of a pool do. Equal tasks take one stored result each.

use std::collections::{BTreeMap, VecDeque};
use std::error::Error;
use std::fmt;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use chunkcomm::layer::warn;

use self::reading::{Found, Runs, read_runs};
use self::writer::Writer;
use crate::proto::record::{self, Finished, RunHead, Stamp};
use crate::settings::{Fsync, JournalOptions};

mod reading;
mod writer;

/// Bytes from which results are written within a turn.
const BUFFER_BYTES: usize = 256 << 10;

/// Bytes that are made permanent before a second is over, so that the end of the run has few to wait for.
const SYNC_BYTES: usize = 2 << 20;

/// Largest payload; a longer one is damage.
const PAYLOAD_BYTES_MAX: u32 = 1 << 31;

/// A journal that a farm cannot use.
#[derive(Clone)]
#[non_exhaustive]
pub enum JournalError {
    /// The file cannot be made, read or written.
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: Arc<io::Error>,
    },
    /// Another farm has it open, in this process or in another one.
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// The file is something else, or a journal of another version.
    NotAJournal {
        /// The file.
        path: PathBuf,
    },
    /// The record here is damaged, and was permanent. Nothing was changed.
    /// [`skip_damaged_records`](crate::settings::JournalOptions::skip_damaged_records) goes on without it.
    Damaged {
        /// The file.
        path: PathBuf,
        /// Bytes of the file before the damage.
        offset: u64,
    },
    /// A run of this number had another function, or other types.
    OtherRun {
        /// The file.
        path: PathBuf,
        /// Number of the run in its program, from 1.
        run: u32,
        /// Name of the function that it had.
        function: String,
    },
}

impl fmt::Display for JournalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JournalError::Io { path, .. } => {
                write!(f, "the journal {} cannot be read or written", path.display())
            }
            JournalError::InUse { path } => {
                write!(f, "the journal {} is in use by another farm", path.display())
            }
            JournalError::NotAJournal { path } => {
                write!(f, "the file {} is no journal of this version of the farm", path.display())
            }
            JournalError::Damaged { path, offset } => write!(
                f,
                "the journal {} is damaged at byte {offset}, where it was complete \
                 (skip_damaged_records runs its tasks again)",
                path.display()
            ),
            JournalError::OtherRun { path, run, function } => write!(
                f,
                "the journal {} is of another program: its run {run} had function {function:?}, or \
                 that name with other types",
                path.display()
            ),
        }
    }
}

chunkcomm::debug_with_causes!(JournalError);

impl Error for JournalError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            JournalError::Io { source, .. } => Some(source.as_ref()),
            _ => None,
        }
    }
}

impl JournalError {
    fn io(path: &Path, error: io::Error) -> JournalError {
        JournalError::Io { path: path.to_owned(), source: Arc::new(error) }
    }
}

/// Results of a run that an earlier farmer accepted, and that were not taken yet: by digest the
/// latest of them, and for each the one before it with the same digest.
#[derive(Default)]
struct Known {
    latest: BTreeMap<u128, u32>,
    results: Vec<Stored>,
}

struct Stored {
    at: u64,
    bytes: u32,
    before: Option<u32>,
}

impl Known {
    fn put(&mut self, digest: u128, at: u64, bytes: u32) {
        let Ok(number) = u32::try_from(self.results.len()) else { return };
        let before = self.latest.insert(digest, number);
        self.results.push(Stored { at, bytes, before });
    }

    fn take(&mut self, digest: u128) -> Option<(u64, u32)> {
        let number = self.latest.get_mut(&digest)?;
        let Stored { at, bytes, before } = self.results[*number as usize];
        match before {
            Some(before) => *number = before,
            None => drop(self.latest.remove(&digest)),
        }
        Some((at, bytes))
    }
}

/// Digests of the inputs of tasks, from the first without a result on.
#[derive(Default)]
struct Inputs {
    base: u64,
    window: VecDeque<u128>,
}

impl Inputs {
    /// Stands in for the digest of a task that has its result.
    const TAKEN: u128 = 0;

    fn push(&mut self, digest: u128) {
        if digest == Self::TAKEN && self.window.is_empty() {
            self.base += 1;
        } else {
            self.window.push_back(digest);
        }
    }

    fn take(&mut self, index: u64) -> Option<u128> {
        let at = usize::try_from(index.checked_sub(self.base)?).ok()?;
        let digest = std::mem::replace(self.window.get_mut(at)?, Self::TAKEN);
        while self.window.front() == Some(&Self::TAKEN) {
            self.window.pop_front();
            self.base += 1;
        }
        Some(digest)
    }
}

/// A journal that is open.
pub(crate) struct Journal {
    path: PathBuf,
    fsync: Fsync,
    /// Locked while the journal is open; appends.
    file: Arc<File>,
    writer: Writer,
    /// The runs that are in the file, with their results.
    runs: Runs,
    /// The run that goes on, and its tasks.
    head: Option<RunHead>,
    inputs: Inputs,
    /// Records that are not written yet.
    buffer: Vec<u8>,
    /// Place of the buffer in the file.
    place: u64,
    /// The length that the last record says is permanent.
    marked: u64,
    /// Place of the record of results in it that is not finished.
    open: Option<usize>,
    /// Bytes that were given to the thread that writes, and may not be permanent.
    unsynced: usize,
    /// Why nothing more is written: what comes behind a failed write would not be found again, and what is
    /// of another program is not to be mixed with this one's.
    broken: Option<JournalError>,
}

impl Journal {
    /// Opens the journal, or makes it.
    pub(crate) fn open(path: &Path, options: JournalOptions) -> Result<Journal, JournalError> {
        let JournalOptions { fsync, skip_damaged_records: skips } = options;
        let io = |error| JournalError::io(path, error);
        let options = OpenOptions::new().read(true).append(true).create(true).clone();
        let mut file = options.open(path).map_err(io)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(JournalError::InUse { path: path.to_owned() });
            }
            Err(TryLockError::Error(error)) => return Err(io(error)),
        }
        let length = file.metadata().map_err(io)?.len();
        let mut head = Vec::new();
        let magic_bytes = record::MAGIC.len() as u64;
        (&file).take(magic_bytes).read_to_end(&mut head).map_err(io)?;
        if !record::MAGIC.starts_with(&head) {
            return Err(JournalError::NotAJournal { path: path.to_owned() });
        }
        let (mut runs, mut place) = (Runs::new(), magic_bytes);
        if length < magic_bytes {
            file.set_len(0).map_err(io)?;
            file.write_all(&record::MAGIC).map_err(io)?;
            sync_folder_of(path);
        } else {
            let found = read_runs(&file, length, skips).map_err(io)?;
            let damaged = |offset| JournalError::Damaged { path: path.to_owned(), offset };
            let found = found.map_err(damaged)?;
            tell(path, length, &found);
            file.set_len(found.end).map_err(io)?;
            (runs, place) = (found.runs, found.end);
        }
        let file = Arc::new(file);
        let mut journal = Journal {
            path: path.to_owned(),
            fsync,
            writer: Writer::start(file.clone(), place).map_err(io)?,
            file,
            runs,
            head: None,
            inputs: Inputs::default(),
            buffer: Vec::new(),
            place,
            marked: 0,
            open: None,
            // An earlier farmer may have died before it was.
            unsynced: record::MAGIC.len(),
            broken: None,
        };
        journal.settle()?;
        Ok(journal)
    }

    /// Begins a run, whose results may be known in part.
    pub(crate) fn begin(&mut self, head: &RunHead) -> Result<(), JournalError> {
        if let Some(error) = &self.broken {
            return Err(error.clone());
        }
        // A dropped run did not.
        self.settle()?;
        if let Some((known, _)) = self.runs.get(&head.run)
            && known != head
        {
            let (path, run, function) = (self.path.clone(), head.run, known.function.clone());
            let error = JournalError::OtherRun { path, run, function };
            return Err(self.broken.insert(error).clone());
        }
        (self.head, self.inputs) = (Some(head.clone()), Inputs::default());
        let stamp = self.stamp(head.run);
        record::put_run(&mut self.buffer, head, stamp);
        Ok(())
    }

    /// Returns what a record of this run says beside its payload.
    fn stamp(&mut self, run: u32) -> Stamp {
        self.marked = self.writer.permanent();
        Stamp { run, permanent: self.marked, place: self.place }
    }

    /// Adds results that workers have for runs of an earlier farmer. Those of another program are dropped.
    pub(crate) fn take_over(&mut self, handed: Vec<Finished>) -> Result<(), JournalError> {
        for Finished { head, results } in handed {
            self.write()?;
            let is_other = |now: &RunHead| now.run == head.run && *now != head;
            if self.head.as_ref().is_some_and(is_other) {
                continue;
            }
            if self.runs.get(&head.run).is_some_and(|(known, _)| *known != head) {
                continue;
            }
            let stamp = self.stamp(head.run);
            let begun = (head.clone(), Known::default());
            let (_, known) = self.runs.get_or_insert(head.run, begun);
            record::put_run(&mut self.buffer, &head, stamp);
            let begin = record::begin_results(&mut self.buffer);
            for (digest, value) in results {
                let at = record::put_result(&mut self.buffer, digest, &value);
                let place = self.place + at as u64;
                known.put(digest, place, value.len() as u32);
            }
            record::finish(&mut self.buffer, begin, stamp);
        }
        // The run may take them from the file.
        self.write_and_wait()
    }

    /// Takes the encoded input of the run's next task; returns the task's result, if it is known and
    /// `decode` reads it.
    pub(crate) fn meet<O>(
        &mut self,
        input: &[u8],
        decode: impl FnOnce(&[u8]) -> Option<O>,
    ) -> Result<Option<O>, JournalError> {
        let digest = record::input_digest(input);
        let head = self.head.as_ref();
        let runs = head.and_then(|head| self.runs.get_mut(&head.run));
        let known = runs.and_then(|(_, known)| known.take(digest));
        let mut result = None;
        if let Some((at, bytes)) = known {
            let mut value = vec![0; bytes as usize];
            read_at(&self.file, &mut value, at)
                .map_err(|error| JournalError::io(&self.path, error))?;
            result = decode(&value);
        }
        self.inputs.push(if result.is_some() { Inputs::TAKEN } else { digest });
        Ok(result)
    }

    /// Whether results must not be passed on before [`end_answer`](Journal::end_answer).
    pub(crate) fn holds_back(&self) -> bool {
        self.fsync == Fsync::Always
    }

    /// Adds the accepted result of a task.
    #[inline]
    pub(crate) fn add(&mut self, index: u64, value: &[u8]) {
        let Some(digest) = self.inputs.take(index) else { return };
        if self.open.is_none() {
            self.open = Some(record::begin_results(&mut self.buffer));
        }
        record::put_result(&mut self.buffer, digest, value);
    }

    /// Notes that a task has failed, which is not written: it is run again.
    pub(crate) fn skip(&mut self, index: u64) {
        self.inputs.take(index);
    }

    /// Ends the results of an answer: they may be passed on.
    #[inline]
    pub(crate) fn end_answer(&mut self) -> Result<(), JournalError> {
        if self.holds_back() {
            return self.settle();
        }
        if self.buffer.len() >= BUFFER_BYTES { self.write() } else { Ok(()) }
    }

    /// Ends a turn of the farmer; returns whether [`sync`](Journal::sync) is due within a second.
    pub(crate) fn end_turn(&mut self) -> Result<bool, JournalError> {
        self.write()?;
        Ok(self.unsynced > 0 && self.fsync != Fsync::Never)
    }

    /// Waits until all is written, and permanent if it is to be.
    pub(crate) fn settle(&mut self) -> Result<(), JournalError> {
        // While an earlier sync is not done there is no other.
        while self.end_turn()? {
            self.sync()?;
            self.wait()?;
        }
        self.wait()
    }

    /// Ends a run: waits as [`settle`](Journal::settle) does, and lets the file say what is permanent.
    pub(crate) fn end_run(&mut self) -> Result<(), JournalError> {
        self.settle()?;
        if self.writer.permanent() > self.marked {
            let run = self.head.as_ref().map_or(0, |head| head.run);
            let stamp = self.stamp(run);
            record::put_mark(&mut self.buffer, stamp);
            self.write_and_wait()?;
            // The mark itself may be lost.
            self.unsynced = 0;
        }
        Ok(())
    }

    /// Gives what has come to the thread that writes.
    fn write(&mut self) -> Result<(), JournalError> {
        if let Some(error) = &self.broken {
            return Err(error.clone());
        }
        if self.buffer.is_empty() {
            return Ok(());
        }
        if let Some(at) = self.open.take() {
            let run = self.head.as_ref().map_or(0, |head| head.run);
            let stamp = self.stamp(run);
            record::finish(&mut self.buffer, at, stamp);
        }
        self.unsynced += self.buffer.len();
        self.place += self.buffer.len() as u64;
        let written = self.writer.write(std::mem::take(&mut self.buffer));
        self.buffer = written.map_err(|error| self.broken_by(error))?;
        if self.unsynced >= SYNC_BYTES && self.fsync == Fsync::EverySecond {
            self.sync()?;
        }
        Ok(())
    }

    fn write_and_wait(&mut self) -> Result<(), JournalError> {
        self.write()?;
        self.wait()
    }

    fn wait(&mut self) -> Result<(), JournalError> {
        self.writer.wait().map_err(|error| self.broken_by(error))
    }

    /// Makes permanent, soon, what is written; later if the disk has not done this for what came before.
    pub(crate) fn sync(&mut self) -> Result<(), JournalError> {
        if self.writer.try_sync().map_err(|error| self.broken_by(error))? {
            self.unsynced = 0;
        }
        Ok(())
    }

    fn broken_by(&mut self, error: io::Error) -> JournalError {
        let error = JournalError::io(&self.path, error);
        self.broken.get_or_insert(error).clone()
    }
}

#[cfg(unix)]
fn read_at(file: &File, bytes: &mut [u8], at: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, bytes, at)
}

#[cfg(windows)]
fn read_at(file: &File, mut bytes: &mut [u8], mut at: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        let count = std::os::windows::fs::FileExt::seek_read(file, bytes, at)?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        (bytes, at) = (&mut bytes[count..], at + count as u64);
    }
    Ok(())
}

/// Says which tasks are run again, although their results were written.
fn tell(path: &Path, length: u64, found: &Found) {
    let path = path.display();
    for place in &found.skipped {
        warn(
            "farmer",
            &format!("the journal {path} is damaged at byte {place}; the record there is skipped"),
        );
    }
    if found.end < length {
        let (end, bytes) = (found.end, length - found.end);
        warn(
            "farmer",
            &format!(
                "the journal {path} has {bytes} bytes from byte {end} on that are not whole; they are cut off"
            ),
        );
    }
}

/// Makes the name of a new file permanent, where the system can.
fn sync_folder_of(path: &Path) {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    if let Ok(folder) = File::open(folder.unwrap_or(Path::new("."))) {
        // Not every file system can; the file is there all the same.
        let _ = folder.sync_all();
    }
}

impl Drop for Journal {
    /// Writes what a cancelled run accepted last.
    fn drop(&mut self) {
        // Lost results are computed again.
        let _ = self.end_run();
        // The thread that writes has the file a little longer.
        let _ = self.file.unlock();
    }
}

#[cfg(test)]
mod tests;
