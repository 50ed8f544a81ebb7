//! Appends the same bytes as a log to a file, with as many calls of `fsync`.

use std::fs::File;
use std::io::Write as _;

use chunkcomm_testkit::Scratch;

use crate::failure::{Doing, Failure};
use crate::harness::machine::{cpu_ns, now_ns};
use crate::harness::near::Bench;
use crate::harness::slices::{Contender, Slice};
use crate::ours::stream::Logged;

/// Appends the bytes that the log of the slice before got: as many a message, and as many messages
/// a sync.
pub struct Append {
    folder: Scratch,
    file: File,
    written: usize,
    logged: Logged,
    batch: Vec<u8>,
    message_bytes: usize,
}

/// Bytes after which another file is begun and this one removed, as in the library: 64 MiB.
const FILE_BYTES: usize = 64 << 20;

impl Append {
    /// Opens a file for messages of `message_bytes` in the log.
    ///
    /// # Errors
    /// If the file cannot be made.
    pub fn open(message_bytes: usize, logged: &Logged) -> Result<Self, Failure> {
        let folder = Scratch::new("append");
        std::fs::create_dir_all(&folder).doing("making a folder")?;
        let file = begin(&folder)?;
        let logged = Logged::clone(logged);
        Ok(Self { folder, file, written: 0, logged, batch: Vec::new(), message_bytes })
    }
}

fn begin(folder: &Scratch) -> Result<File, Failure> {
    let path = folder.join("file");
    let _ = std::fs::remove_file(&path);
    File::create_new(path).doing("making a file")
}

impl Contender for Append {
    fn slice(&mut self, _bench: &mut Bench, count: u64) -> Result<Slice, Failure> {
        let (bytes, syncs) = self.logged.get();
        let batch = (bytes / syncs.max(1)).max(self.message_bytes as u64) as usize;
        self.batch.resize(batch, 1);
        let mut left = usize::try_from(count).unwrap_or(usize::MAX) * self.message_bytes;
        let (cpu, begun) = (cpu_ns(), now_ns());
        while left > 0 {
            if self.written > FILE_BYTES {
                self.file = begin(&self.folder)?;
                self.written = 0;
            }
            let now = left.min(batch);
            self.file.write_all(&self.batch[..now]).doing("appending")?;
            self.file.sync_data().doing("syncing")?;
            self.written += now;
            left -= now;
        }
        let seconds = (now_ns() - begun) as f64 / 1e9;
        Ok(Slice { messages: count, seconds, cpu_ns: cpu_ns() - cpu, samples_ns: Vec::new() })
    }
}

/// The slowest of several contenders, slice by slice.
pub struct Slowest(pub Vec<Box<dyn Contender>>);

impl Contender for Slowest {
    fn slice(&mut self, bench: &mut Bench, count: u64) -> Result<Slice, Failure> {
        let mut slowest: Option<Slice> = None;
        for contender in &mut self.0 {
            let slice = contender.slice(bench, count)?;
            if slowest.as_ref().is_none_or(|known| slice.rate() < known.rate()) {
                slowest = Some(slice);
            }
        }
        slowest.ok_or_else(|| Failure::Refused("there is nothing to compare with".to_owned()))
    }
}
