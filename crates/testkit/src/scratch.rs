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
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("chunkcomm-{name}-{}-{count}", std::process::id());
        let scratch = Scratch(std::env::temp_dir().join(name));
        scratch.remove(); // of a process that was killed
        scratch
    }

    /// Makes a folder at such a path.
    #[must_use]
    pub fn folder(name: &str) -> Scratch {
        let scratch = Scratch::new(name);
        std::fs::create_dir(&scratch).unwrap();
        scratch
    }

    fn remove(&self) {
        if remove_file(self).is_err() {
            let _ = remove_dir_all(self);
        }
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
        self.remove();
    }
}
