//! The thread that writes a journal, so that the farmer does not wait for the disk.

use std::fs::File;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use crate::threads::start_thread;

/// Most bytes on their way. The farmer waits while there are more.
const UNDERWAY_MAX: usize = 4 << 20;

enum Job {
    Write(Vec<u8>),
    Sync,
}

/// Appends to a file.
pub(super) struct Writer {
    /// No error: it is of the type of `done`, so that the channels' code is compiled once.
    jobs: Sender<io::Result<Job>>,
    /// Each job that is done, or the error that ended the thread.
    done: Receiver<io::Result<Job>>,
    /// Number of jobs that are not known to be done.
    waiting: usize,
    /// Number of their bytes.
    underway: usize,
    /// The length of the file that a sync among them makes permanent.
    syncs: Option<u64>,
    /// Length of the file when all is done.
    length: u64,
    /// Length of the file that is known to be permanent.
    permanent: u64,
    /// An empty buffer to use again.
    spare: Vec<u8>,
}

impl Writer {
    /// Starts the thread. The file has this length.
    pub(super) fn start(file: Arc<File>, length: u64) -> io::Result<Writer> {
        let (jobs, todo) = channel::<io::Result<Job>>();
        let (answers, done) = channel();
        let writing = move || {
            for job in todo {
                let result = job.and_then(|job| handle(&file, job));
                let goes_on = result.is_ok();
                // Bytes behind an error would not be found again.
                if answers.send(result).is_err() || !goes_on {
                    break;
                }
            }
        };
        start_thread("farm-journal".to_owned(), Box::new(writing))?;
        let (waiting, underway, syncs, permanent) = (0, 0, None, 0);
        let spare = Vec::new();
        Ok(Writer { jobs, done, waiting, underway, syncs, length, permanent, spare })
    }

    /// Returns the length of the file that is known to be permanent.
    pub(super) fn permanent(&self) -> u64 {
        self.permanent
    }

    /// Appends bytes in the background; returns an empty buffer, or the error of an earlier job.
    pub(super) fn write(&mut self, bytes: Vec<u8>) -> io::Result<Vec<u8>> {
        self.underway += bytes.len();
        self.length += bytes.len() as u64;
        self.send(Job::Write(bytes))?;
        self.note_done()?;
        while self.underway > UNDERWAY_MAX {
            self.wait_for_one()?;
        }
        Ok(std::mem::take(&mut self.spare))
    }

    /// Makes permanent, in the background, what was given to [`write`](Writer::write); `false` while an
    /// earlier call is not done: a slow disk would have more and more of them to do.
    pub(super) fn try_sync(&mut self) -> io::Result<bool> {
        self.note_done()?;
        if self.syncs.is_some() {
            return Ok(false);
        }
        self.syncs = Some(self.length);
        self.send(Job::Sync).map(|()| true)
    }

    /// Waits until all is done.
    pub(super) fn wait(&mut self) -> io::Result<()> {
        while self.waiting > 0 {
            self.wait_for_one()?;
        }
        Ok(())
    }

    fn send(&mut self, job: Job) -> io::Result<()> {
        self.waiting += 1;
        match self.jobs.send(Ok(job)) {
            Ok(()) => Ok(()),
            // Its error comes behind the answers before it.
            Err(_) => self.wait(),
        }
    }

    fn note_done(&mut self) -> io::Result<()> {
        while let Ok(answer) = self.done.try_recv() {
            self.take(answer)?;
        }
        Ok(())
    }

    fn wait_for_one(&mut self) -> io::Result<()> {
        let gone = || io::Error::other("the thread that writes the file has ended");
        let answer = self.done.recv().unwrap_or_else(|_| Err(gone()));
        self.take(answer)
    }

    fn take(&mut self, answer: io::Result<Job>) -> io::Result<()> {
        self.waiting -= 1;
        let Job::Write(mut buffer) = answer? else {
            self.permanent = self.syncs.take().unwrap_or(self.permanent);
            return Ok(());
        };
        self.underway -= buffer.len();
        buffer.clear();
        self.spare = buffer;
        Ok(())
    }
}

/// Does a job and returns it.
fn handle(mut file: &File, job: Job) -> io::Result<Job> {
    match &job {
        Job::Write(bytes) => file.write_all(bytes)?,
        Job::Sync => file.sync_data()?,
    }
    Ok(job)
}

#[cfg(unix)]
#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::OwnedFd;

    /// A pipe that is not read is a disk that takes nothing: its few KiB are full at once.
    #[test]
    fn the_farmer_waits_while_too_many_bytes_are_on_their_way() {
        let (mut reader, writer) = io::pipe().unwrap();
        let file = Arc::new(File::from(OwnedFd::from(writer)));
        let mut writer = Writer::start(file.clone(), 0).unwrap();
        drop(file);
        for _ in 0..4 {
            writer.write(vec![7; UNDERWAY_MAX / 4]).unwrap();
        }
        assert_eq!((writer.waiting, writer.underway), (4, UNDERWAY_MAX));
        let reading = std::thread::spawn(move || io::copy(&mut reader, &mut io::sink()));
        writer.write(vec![7; 1000]).unwrap();
        assert!(writer.underway <= UNDERWAY_MAX);
        writer.wait().unwrap();
        assert_eq!((writer.waiting, writer.underway), (0, 0));
        // No pipe can be synced, and nothing is written behind that error.
        assert!(writer.try_sync().unwrap());
        assert!(writer.wait().is_err());
        drop(writer);
        assert_eq!(reading.join().unwrap().unwrap(), (UNDERWAY_MAX + 1000) as u64);
    }

    #[test]
    fn one_sync_is_on_its_way_at_a_time() {
        let (reader, writer) = io::pipe().unwrap();
        let file = Arc::new(File::from(OwnedFd::from(writer)));
        let mut writer = Writer::start(file, 0).unwrap();
        // It waits behind bytes that nobody reads.
        writer.write(vec![7; 1 << 20]).unwrap();
        assert!(writer.try_sync().unwrap());
        assert!(!writer.try_sync().unwrap());
        drop(reader);
        assert!(writer.wait().is_err());
    }
}
