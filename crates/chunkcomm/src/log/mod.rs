//! The log of a redelivering sender: the messages that its receiver has not settled, on disk.
//!
//! A log is a directory with a lock and segments. A segment is named by the number of its first
//! message. The last segment grows; the first is removed when all of its messages are settled.
//!
//! ```text
//! lock
//! 00000000000000000000.log   head, record, record, ...
//! 00000000000004194304.log   head, record, ...
//! ```
//!
//! A record holds the messages that were stored together, in the form that they have in a channel's
//! ring ([`crate::proto::message`]). Behind them it holds the large messages whose marks are among
//! them. It also holds the number of messages that were settled by then ([`record`]); a record
//! without messages holds only that.
//!
//! Each record has a checksum (CRC-32), and the number of bytes of the segment that were permanent
//! when the record was written. The rule of [`Redelivery::log`](crate::Redelivery::log) tells by it
//! which damage is cut off: no message in it has left.

mod record;
mod recovery;

use crate::error::LogError;
use bytes::Bytes;
use record::Head;
pub(crate) use recovery::Recovered;
use std::collections::VecDeque;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes from which on a segment is followed by a new one: 64 MiB.
const SEGMENT_BYTES: u64 = 64 * 1024 * 1024;

/// Digits of the number in a segment's name.
const NUMBER_DIGITS: usize = 20;

/// Largest record in bytes that is written with one system call.
const ONE_WRITE_BYTES: usize = 64 * 1024;

/// Moment from which stored messages also survive a crash of the machine.
///
/// The journal of a farm has the same words, and `EverySecond` (`chunkcomm_farm::settings::Fsync`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Fsync {
    /// Before they leave. One `fsync` covers all messages that were accepted during the previous
    /// one.
    #[default]
    Always,
    /// When the system makes them permanent. They are written before they leave, and survive the
    /// end of the process, also by SIGKILL. After a crash of the machine the log may be damaged,
    /// which is an error when it is opened. It may also lack its last messages. New messages then
    /// get the numbers of the missing ones. A receiver that skips numbers it has stored loses these
    /// new messages.
    Never,
}

/// Identity of the stream that a log belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) channel: String,
    pub(crate) fingerprint: u64,
}

/// A log that is open for appending.
pub(crate) struct Log {
    /// The bytes that were removed when the log was opened, in words.
    pub(crate) cut: Vec<String>,
    directory: PathBuf,
    /// Locked while the log is open.
    lock: File,
    identity: Identity,
    stream: u128,
    fsync: Fsync,
    /// Number of the first message of each segment.
    segments: VecDeque<u64>,
    file: File,
    file_bytes: u64,
    /// Bytes of the file that are permanent.
    synced: u64,
    /// Number of the next message.
    next: u64,
    /// Number of settled messages by the last record.
    marked: u64,
    scratch: Vec<u8>,
    pub(crate) counters: Counters,
}

/// Counts since the log was opened.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counters {
    pub(crate) bytes: u64,
    pub(crate) syncs: u64,
}

impl Drop for Log {
    fn drop(&mut self) {
        // A process that is just being started has the file a little longer.
        let _ = self.lock.unlock();
    }
}

impl Log {
    /// Opens the log in `directory`, which is made if it is missing; returns the unsettled messages
    /// too. A new log gets `stream` as its number.
    pub(crate) fn open(
        directory: &Path,
        identity: &Identity,
        fsync: Fsync,
        stream: u128,
    ) -> Result<(Log, Recovered), LogError> {
        let failed = |error| LogError::io(directory, error);
        make_directory(directory).map_err(failed)?;
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).write(true);
        let lock = options.open(directory.join("lock")).map_err(failed)?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => LogError::InUse { path: directory.to_owned() },
            TryLockError::Error(error) => failed(error),
        })?;
        let mut segments = recovery::segments(directory).map_err(failed)?;
        let mut cut = Vec::new();
        let recovered = recovery::read(directory, &mut segments, identity, &mut cut)?;
        let recovered = recovered.unwrap_or_else(|| Recovered::nothing(stream));
        let next = recovered.next();
        let file = match segments.last() {
            Some(&last) => OpenOptions::new().append(true).open(segment(directory, last)),
            None => {
                segments.push(next);
                begin(directory, identity, recovered.stream, next)
            }
        };
        let file = file.map_err(failed)?;
        let file_bytes = file.metadata().map_err(failed)?.len();
        // An earlier process may have ended before the bytes read here were permanent.
        for &first in &segments {
            let synced = File::open(segment(directory, first)).and_then(|file| file.sync_all());
            synced.map_err(failed)?;
        }
        sync_directory(directory).map_err(failed)?;
        let log = Log {
            cut,
            directory: directory.to_owned(),
            lock,
            identity: identity.clone(),
            stream: recovered.stream,
            fsync,
            segments: segments.into(),
            file,
            file_bytes,
            synced: file_bytes,
            next,
            marked: recovered.settled,
            scratch: Vec::new(),
            counters: Counters::default(),
        };
        Ok((log, recovered))
    }

    /// Stores messages as they are staged, `front` then `back`, with the large ones among them.
    /// They are permanent when this returns, as far as the [`Fsync`] promises. The record also
    /// holds that the first `settled` messages of the stream are settled.
    ///
    /// # Errors
    ///
    /// The system cannot write. Nothing of the record is kept.
    pub(crate) fn append(
        &mut self,
        staged: (&[u8], &[u8], u32),
        large: &[Bytes],
        settled: u64,
    ) -> Result<(), LogError> {
        let before = self.file_bytes;
        let written = self.write(staged, large, settled);
        if written.is_err() {
            // Also when the record was written and could not be made permanent: it may look
            // permanent later.
            let _ = self.file.set_len(before);
        }
        written.map_err(|error| self.failed(error))?;
        self.remove_settled();
        Ok(())
    }

    /// Returns the error of this log.
    pub(crate) fn failed(&self, error: io::Error) -> LogError {
        LogError::io(&self.directory, error)
    }

    fn write(
        &mut self,
        (front, back, messages): (&[u8], &[u8], u32),
        large: &[Bytes],
        settled: u64,
    ) -> io::Result<()> {
        if self.file_bytes >= SEGMENT_BYTES && self.segments.back() != Some(&self.next) {
            self.sync()?;
            self.file = begin(&self.directory, &self.identity, self.stream, self.next)?;
            self.file_bytes = self.file.metadata()?.len();
            self.synced = self.file_bytes;
            self.segments.push_back(self.next);
        }
        let synced = if self.fsync == Fsync::Never { 0 } else { self.synced };
        let says = (settled, synced);
        let bytes = record::write(&mut self.scratch, (front, back, messages), large, says);
        let whole = bytes <= ONE_WRITE_BYTES;
        if whole {
            [front, back].iter().for_each(|part| self.scratch.extend_from_slice(part));
            large.iter().for_each(|part| self.scratch.extend_from_slice(part));
        }
        self.file.write_all(&self.scratch)?;
        if !whole {
            self.file.write_all(front)?;
            self.file.write_all(back)?;
            for large in large {
                self.file.write_all(large)?;
            }
        }
        if messages > 0 {
            self.sync()?;
            self.is_there()?;
        }
        self.file_bytes += bytes as u64;
        if messages > 0 {
            self.synced = self.file_bytes;
        }
        self.counters.bytes += bytes as u64;
        self.next += u64::from(messages);
        self.marked = settled;
        Ok(())
    }

    /// Makes the written bytes permanent, as far as that is asked for.
    fn sync(&mut self) -> io::Result<()> {
        if self.fsync == Fsync::Always {
            self.file.sync_data()?;
            self.counters.syncs += 1;
        }
        Ok(())
    }

    /// Fails when the file was removed: it can be written, and nobody finds it again.
    fn is_there(&self) -> io::Result<()> {
        #[cfg(unix)]
        if std::os::unix::fs::MetadataExt::nlink(&self.file.metadata()?) == 0 {
            let why = "the file of the log was removed while it was in use";
            return Err(io::Error::new(io::ErrorKind::NotFound, why));
        }
        Ok(())
    }

    /// Notes that the first `settled` messages of the stream are settled.
    pub(crate) fn mark(&mut self, settled: u64) -> Result<(), LogError> {
        if settled == self.marked { Ok(()) } else { self.append((&[], &[], 0), &[], settled) }
    }

    /// As [`Log::mark`], and makes everything permanent. Its record shows later that everything
    /// before it was whole.
    pub(crate) fn finish(&mut self, settled: u64) -> Result<(), LogError> {
        self.append((&[], &[], 0), &[], settled)?;
        self.file.sync_data().map_err(|error| self.failed(error))
    }

    /// Returns the number of settled messages by the last record.
    pub(crate) fn marked(&self) -> u64 {
        self.marked
    }

    /// Removes segments whose messages are all settled. A segment that cannot be removed is left.
    fn remove_settled(&mut self) {
        while self.segments.get(1).is_some_and(|&first| first <= self.marked)
            && let Some(first) = self.segments.pop_front()
        {
            let path = segment(&self.directory, first);
            if let Err(error) = std::fs::remove_file(&path) {
                tracing::warn!(path = %path.display(), %error, "a segment of the log is left");
            }
        }
    }
}

fn segment(directory: &Path, first: u64) -> PathBuf {
    directory.join(format!("{first:0NUMBER_DIGITS$}.log"))
}

/// Begins a segment.
fn begin(directory: &Path, identity: &Identity, stream: u128, first: u64) -> io::Result<File> {
    let path = segment(directory, first);
    let mut file = OpenOptions::new().create_new(true).append(true).open(path)?;
    file.write_all(&Head { identity: identity.clone(), stream, first }.encode())?;
    file.sync_all()?;
    sync_directory(directory)?;
    Ok(file)
}

/// Makes the names in a directory permanent.
fn sync_directory(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

/// Makes a directory and its missing parents, and makes their names permanent.
fn make_directory(directory: &Path) -> io::Result<()> {
    let whole = std::path::absolute(directory)?;
    let missing: Vec<&Path> = whole.ancestors().take_while(|it| !it.exists()).collect();
    std::fs::create_dir_all(&whole)?;
    missing.iter().filter_map(|it| it.parent()).try_for_each(sync_directory)
}

impl LogError {
    pub(crate) fn io(path: &Path, error: io::Error) -> LogError {
        LogError::Io { path: path.to_owned(), error: Arc::new(error) }
    }
}

#[cfg(test)]
mod tests;
