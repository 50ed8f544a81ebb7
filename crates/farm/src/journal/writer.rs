//! The thread that writes a journal, so that the farmer does not wait for the disk.

use std::fs::File;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use crate::machine::start_thread;

/// Most bytes on their way; the farmer waits until no more are.
const UNDERWAY_MAX: usize = 4 << 20;

enum Job {
    Write(Vec<u8>),
    Sync,
}

/// Appends to a file.
pub(super) struct Writer {
    jobs: Sender<Job>,
    /// For each job its bytes, or the error that ended the thread.
    done: Receiver<io::Result<Vec<u8>>>,
    /// Number of jobs that are not known to be done.
    waiting: usize,
    /// Number of their bytes.
    underway: usize,
}

impl Writer {
    pub(super) fn start(file: Arc<File>) -> io::Result<Writer> {
        let (jobs, todo) = channel();
        let (answers, done) = channel();
        start_thread("farm-journal".to_owned(), move || {
            for job in todo {
                let result = handle(&file, job);
                let goes_on = result.is_ok();
                // Bytes behind an error would not be found again.
                if answers.send(result).is_err() || !goes_on {
                    break;
                }
            }
        })?;
        Ok(Writer { jobs, done, waiting: 0, underway: 0 })
    }

    /// Appends bytes in the background; returns an empty buffer, or the error of an earlier job.
    pub(super) fn write(&mut self, bytes: Vec<u8>) -> io::Result<Vec<u8>> {
        self.underway += bytes.len();
        self.send(Job::Write(bytes))?;
        let mut buffer = match self.done.try_recv() {
            Ok(answer) => self.note_done(answer)?,
            Err(_) => Vec::new(),
        };
        while self.underway > UNDERWAY_MAX {
            buffer = self.take()?;
        }
        Ok(buffer)
    }

    /// Makes permanent, in the background, what was given to [`write`](Writer::write).
    pub(super) fn sync(&mut self) -> io::Result<()> {
        self.send(Job::Sync)
    }

    /// Waits until all is done.
    pub(super) fn wait(&mut self) -> io::Result<()> {
        while self.waiting > 0 {
            self.take()?;
        }
        Ok(())
    }

    fn send(&mut self, job: Job) -> io::Result<()> {
        self.waiting += 1;
        match self.jobs.send(job) {
            Ok(()) => Ok(()),
            // Its error comes behind the answers before it.
            Err(_) => self.wait(),
        }
    }

    fn take(&mut self) -> io::Result<Vec<u8>> {
        let gone = || io::Error::other("the thread that writes the file has ended");
        let answer = self.done.recv().unwrap_or_else(|_| Err(gone()));
        self.note_done(answer)
    }

    fn note_done(&mut self, answer: io::Result<Vec<u8>>) -> io::Result<Vec<u8>> {
        self.waiting -= 1;
        let mut buffer = answer?;
        self.underway -= buffer.len();
        buffer.clear();
        Ok(buffer)
    }
}

fn handle(mut file: &File, job: Job) -> io::Result<Vec<u8>> {
    match job {
        Job::Write(bytes) => file.write_all(&bytes).map(|()| bytes),
        Job::Sync => file.sync_data().map(|()| Vec::new()),
    }
}
