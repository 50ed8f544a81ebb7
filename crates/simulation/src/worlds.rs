//! Worlds in files: read by name or path, and the work of functions, measured once.

use crate::network::preset_names;
use crate::{WorldError, WorldSpec};
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Runs of a function that [`calibrate`] measures, of which the shortest counts.
const RUNS: usize = 5;

/// Error of a file with a world.
#[derive(Clone)]
#[non_exhaustive]
pub enum LoadError {
    /// Neither a preset nor a file has this name.
    Unknown {
        /// The name.
        name: String,
    },
    /// The file cannot be read or written.
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: Arc<io::Error>,
    },
    /// The file describes no world.
    World {
        /// The file.
        path: PathBuf,
        /// The fault.
        error: WorldError,
    },
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoadError::Unknown { name } => {
                write!(f, "{name} is neither a file nor a preset, which are {}", preset_names())
            }
            LoadError::Io { path, .. } => {
                write!(f, "the world's file {} cannot be read or written", path.display())
            }
            LoadError::World { path, .. } => write!(f, "{} describes no world", path.display()),
        }
    }
}

chunkcomm_proto::debug_with_causes!(LoadError);

impl std::error::Error for LoadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            LoadError::Unknown { .. } => None,
            LoadError::Io { error, .. } => Some(error.as_ref()),
            LoadError::World { error, .. } => Some(error),
        }
    }
}

/// Returns the preset of this name, else the world that the TOML file with this path describes.
///
/// # Errors
///
/// See [`LoadError`].
pub fn load(name: &str) -> Result<WorldSpec, LoadError> {
    if let Ok(preset) = WorldSpec::preset(name) {
        return Ok(preset);
    }
    if !Path::new(name).exists() {
        return Err(LoadError::Unknown { name: name.to_owned() });
    }
    read(name.as_ref())
}

fn read(path: &Path) -> Result<WorldSpec, LoadError> {
    let io = |error| LoadError::Io { path: path.to_owned(), error: Arc::new(error) };
    let text = fs::read_to_string(path).map_err(io)?;
    let world = WorldSpec::from_toml(&text);
    world.map_err(|error| LoadError::World { path: path.to_owned(), error })
}

/// Measures a function once and writes its work into the world's file, under this name. Returns the
/// work: what the file has already, if it has any. So runs on the world never measure.
///
/// The machine of this process counts as the reference machine, and its build: measure in a release
/// build. The shortest of five runs counts. The file is written anew, without its comments.
///
/// ```no_run
/// use chunkcomm_simulation::calibrate;
///
/// # fn main() -> Result<(), chunkcomm_simulation::LoadError> {
/// let work = calibrate("lab.toml", "sum", || {
///     std::hint::black_box((0..1_000_000_u64).sum::<u64>());
/// })?;
/// println!("a call takes {work:?}");
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// The file cannot be read or written, or describes no world.
pub fn calibrate(
    path: impl AsRef<Path>,
    name: &str,
    mut function: impl FnMut(),
) -> Result<Duration, LoadError> {
    let path = path.as_ref();
    let mut world = read(path)?;
    if let Some(work) = world.work.get(name) {
        return Ok(*work);
    }
    let mut once = || {
        let started = Instant::now();
        function();
        started.elapsed()
    };
    let work = (0..RUNS).map(|_| once()).min().unwrap_or_default();
    world.work.insert(name.to_owned(), work);
    let io = |error| LoadError::Io { path: path.to_owned(), error: Arc::new(error) };
    // Put in place as a whole: a reader sees the old file or the new one.
    let mut new = path.as_os_str().to_owned();
    new.push(format!(".new-{}", std::process::id()));
    fs::write(&new, world.to_toml()).and_then(|()| fs::rename(&new, path)).map_err(io)?;
    Ok(work)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_preset_or_a_file() {
        assert_eq!(load("lan-1g").unwrap(), WorldSpec::preset("lan-1g").unwrap());
        let error = load("lan-2g").unwrap_err().to_string();
        assert!(error.starts_with("lan-2g is neither a file nor a preset"), "{error}");
    }

    #[test]
    fn a_function_is_measured_once() {
        let path = chunkcomm_testkit::Scratch::new("world");
        fs::write(&path, WorldSpec::default().to_toml()).unwrap();
        let mut calls = 0;
        let first = calibrate(&path, "work", || calls += 1).unwrap();
        let again = calibrate(&path, "work", || calls += 1).unwrap();
        assert_eq!((calls, first), (RUNS, again));
        assert_eq!(load(path.to_str().unwrap()).unwrap().work["work"], first);
        fs::write(&path, "hosts = 3").unwrap();
        let error = load(path.to_str().unwrap()).unwrap_err();
        assert!(chunkcomm::with_causes(&error).contains("describes no world: line 1"), "{error:?}");
    }
}
