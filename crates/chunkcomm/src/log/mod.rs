//! The log of a redelivering sender: the messages that its receiver has not settled, on disk.
//!
//! A log is a directory with a lock and segments. A segment has the number of its first message as
//! its name. The last one grows; the first is removed when all of its messages are settled.
//!
//! ```text
//! lock
//! 00000000000000000000.log   head, record, record, ...
//! 00000000000004194304.log   head, record, ...
//! ```
//!
//! A record holds the messages that were stored together, in the form that they have in a channel's
//! ring ([`crate::proto::message`]), and behind them the large messages whose marks are among them.
//! It also says how many messages were settled by then ([`record`]). A record without messages says
//! that alone.
//!
//! Each record has a checksum (CRC-32). A record that ends the last segment and is not whole was
//! being written when the process or the machine stopped. It is cut off: no message in it has left.
//! Any other record that is not whole is an error, and nothing is changed.

mod record;
mod recovery;

use crate::error::{LogCause, LogError};
use bytes::Bytes;
use record::Head;
pub(crate) use recovery::Recovered;
use std::collections::VecDeque;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A segment that has this many bytes is the last one no more: 64 MiB.
const SEGMENT_BYTES: u64 = 64 * 1024 * 1024;

/// Records up to this many bytes are written with one system call.
const ONE_WRITE_BYTES: usize = 64 * 1024;

/// The moment at which stored messages are safe from more than the end of their process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Fsync {
    /// All messages that were accepted while the last `fsync` ran are written and made permanent
    /// by the next one, before the first of them leaves. They survive a crash of the machine.
    #[default]
    Batched,
    /// Messages are written before they leave, and the system makes them permanent when it likes.
    /// They survive the end of the process, also by SIGKILL. After a crash of the machine the last
    /// ones may be missing, or the log may be damaged, which is an error when it is opened.
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
    directory: PathBuf,
    /// Locked while it is open.
    _lock: File,
    identity: Identity,
    stream: u128,
    fsync: Fsync,
    /// The first message of each segment.
    segments: VecDeque<u64>,
    file: File,
    file_bytes: u64,
    /// Number of the next message.
    next: u64,
    /// Settled messages by the last record.
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

impl Log {
    /// Opens the log in `directory`, which is made if it is not there, with the messages that are
    /// not settled. A new log gets `stream` as its number.
    pub(crate) fn open(
        directory: &Path,
        identity: &Identity,
        fsync: Fsync,
        stream: u128,
    ) -> Result<(Log, Recovered), LogError> {
        let failed = |error| LogError::io(directory, error);
        std::fs::create_dir_all(directory).map_err(failed)?;
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).write(true);
        let lock = options.open(directory.join("lock")).map_err(failed)?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => LogError::new(directory, LogCause::InUse),
            TryLockError::Error(error) => failed(error),
        })?;
        let mut segments = recovery::segments(directory).map_err(failed)?;
        let recovered = recovery::read(directory, &mut segments, identity)?;
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
        let log = Log {
            directory: directory.to_owned(),
            _lock: lock,
            identity: identity.clone(),
            stream: recovered.stream,
            fsync,
            segments: segments.into(),
            file,
            file_bytes,
            next,
            marked: recovered.settled,
            scratch: Vec::new(),
            counters: Counters::default(),
        };
        Ok((log, recovered))
    }

    /// Stores messages as they are staged, `front` then `back`, with the large ones among them.
    /// They are permanent when this returns, as far as the [`Fsync`] says. The first `settled`
    /// messages of the stream are settled.
    ///
    /// After an error nothing more can be appended.
    pub(crate) fn append(
        &mut self,
        (front, back, messages): (&[u8], &[u8], u32),
        large: &[Bytes],
        settled: u64,
    ) -> Result<(), LogError> {
        let failed = |error| LogError::io(&self.directory, error);
        if self.file_bytes >= SEGMENT_BYTES {
            let begun = begin(&self.directory, &self.identity, self.stream, self.next);
            self.file = begun.map_err(failed)?;
            self.file_bytes = 0;
            self.segments.push_back(self.next);
        }
        let bytes = record::write(&mut self.scratch, (front, back, messages), large, settled);
        let whole = bytes <= ONE_WRITE_BYTES;
        if whole {
            [front, back].iter().for_each(|part| self.scratch.extend_from_slice(part));
            large.iter().for_each(|part| self.scratch.extend_from_slice(part));
        }
        self.file.write_all(&self.scratch).map_err(failed)?;
        if !whole {
            self.file.write_all(front).map_err(failed)?;
            self.file.write_all(back).map_err(failed)?;
            for large in large {
                self.file.write_all(large).map_err(failed)?;
            }
        }
        if self.fsync == Fsync::Batched && messages > 0 {
            self.file.sync_data().map_err(failed)?;
            self.counters.syncs += 1;
        }
        self.file_bytes += bytes as u64;
        self.counters.bytes += bytes as u64;
        self.next += u64::from(messages);
        self.marked = settled;
        self.remove_settled()
    }

    /// Notes that the first `settled` messages of the stream are settled.
    pub(crate) fn mark(&mut self, settled: u64) -> Result<(), LogError> {
        if settled == self.marked { Ok(()) } else { self.append((&[], &[], 0), &[], settled) }
    }

    /// As [`Log::mark`], and makes it permanent.
    pub(crate) fn finish(mut self, settled: u64) -> Result<(), LogError> {
        self.mark(settled)?;
        self.file.sync_data().map_err(|error| LogError::io(&self.directory, error))
    }

    /// Returns the number of settled messages by the last record.
    pub(crate) fn marked(&self) -> u64 {
        self.marked
    }

    fn remove_settled(&mut self) -> Result<(), LogError> {
        while self.segments.get(1).is_some_and(|&first| first <= self.marked)
            && let Some(first) = self.segments.pop_front()
        {
            std::fs::remove_file(segment(&self.directory, first))
                .map_err(|error| LogError::io(&self.directory, error))?;
        }
        Ok(())
    }
}

fn segment(directory: &Path, first: u64) -> PathBuf {
    directory.join(format!("{first:020}.log"))
}

/// Begins a segment.
fn begin(directory: &Path, identity: &Identity, stream: u128, first: u64) -> io::Result<File> {
    let path = segment(directory, first);
    let mut file = OpenOptions::new().create_new(true).append(true).open(path)?;
    file.write_all(&Head { identity: identity.clone(), stream, first }.encode())?;
    file.sync_all()?;
    // The name is permanent, too.
    File::open(directory)?.sync_all()?;
    Ok(file)
}

impl LogError {
    fn new(path: &Path, cause: LogCause) -> LogError {
        LogError { path: path.to_owned(), cause }
    }

    fn io(path: &Path, error: io::Error) -> LogError {
        LogError::new(path, LogCause::Io(Arc::new(error)))
    }
}

#[cfg(test)]
mod tests;
