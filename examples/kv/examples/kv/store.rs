//! The store's interface, and its file.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{File, TryLockError};
use std::io::{self, BufRead as _, BufReader, Seek as _, Write as _};
use std::path::Path;

/// The store, as clients call it.
#[chunkcomm_cluster::service]
pub(crate) trait Store {
    /// Returns the value of a key.
    #[idempotent]
    async fn get(&self, key: String) -> Option<String>;

    /// Stores a value; returns the number of the change.
    async fn put(&self, key: String, value: String) -> Result<u64, String>;

    /// Returns the first changes after this number, at most 10,000.
    #[idempotent]
    async fn since(&self, number: u64) -> Vec<Change>;
}

/// A value that was stored.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Change {
    /// Counted from 1.
    pub(crate) number: u64,
    pub(crate) key: String,
    pub(crate) value: String,
}

/// The server that leads.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Leader {
    /// Counted from 1; a later leader has a higher one.
    pub(crate) term: u64,
    pub(crate) at: String,
}

/// All that is stored.
#[derive(Default)]
pub(crate) struct Kept {
    pub(crate) changes: Vec<Change>,
    pub(crate) values: BTreeMap<String, String>,
}

impl Kept {
    pub(crate) fn add(&mut self, change: Change) {
        self.values.insert(change.key.clone(), change.value.clone());
        self.changes.push(change);
    }
}

/// Returns the file if this process has it for itself, from now to its end.
pub(crate) fn lock(path: &Path) -> io::Result<Option<File>> {
    let file = File::options().read(true).append(true).create(true).open(path)?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Reads the changes. A last one without its end was never answered, and is cut off.
pub(crate) fn read(file: &mut File) -> io::Result<Kept> {
    file.rewind()?;
    let (mut kept, mut input, mut line) = (Kept::default(), BufReader::new(&*file), Vec::new());
    let mut whole = 0;
    while input.read_until(b'\n', &mut line)? > 0 && line.ends_with(b"\n") {
        kept.add(serde_json::from_slice(&line)?);
        whole += line.len() as u64;
        line.clear();
    }
    file.set_len(whole)?;
    Ok(kept)
}

/// Appends changes, and waits until the disk has them.
pub(crate) fn append(file: &mut File, changes: &[Change]) -> io::Result<()> {
    let mut lines = Vec::new();
    for change in changes {
        serde_json::to_writer(&mut lines, change)?;
        lines.push(b'\n');
    }
    file.write_all(&lines)?;
    file.sync_data()
}
