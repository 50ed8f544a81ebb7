//! Temporary files and folders.

use std::fs::{remove_dir_all, remove_file};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A free path in the system's folder for temporary files. The file or folder that is made there is
/// removed when this is dropped.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    /// Returns a path that no other has, with `name` in it.
    #[must_use]
    pub fn new(name: &str) -> Scratch {
        Scratch(free_path(name))
    }

    /// Makes a folder at such a path.
    #[must_use]
    pub fn folder(name: &str) -> Scratch {
        let scratch = Scratch::new(name);
        std::fs::create_dir(&scratch).unwrap();
        scratch
    }
}

/// Returns a path in the system's folder for temporary files that no other has, with `name` in it.
/// A file that is made there is not removed: for a node's socket, which the node removes.
pub fn free_path(name: &str) -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let path =
        std::env::temp_dir().join(format!("chunkcomm-{name}-{}-{count}", std::process::id()));
    remove(&path); // of a process that was killed
    path
}

fn remove(path: &Path) {
    if remove_file(path).is_err() {
        let _ = remove_dir_all(path);
    }
}

impl Deref for Scratch {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl AsRef<Path> for Scratch {
    fn as_ref(&self) -> &Path {
        self
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        remove(self);
    }
}
