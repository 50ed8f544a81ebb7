//! Text files: their paths and their lines.

use std::error;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read as _};
use std::path::{Path, PathBuf};

/// Most bytes of a line: a longer one is no text, and would be held in memory.
pub(crate) const LINE_BYTES_MAX: usize = 1 << 20;

/// Most folders inside each other. Links cannot make them deeper, since they are not followed.
const DEPTH_MAX: usize = 64;

/// Error of a text.
#[derive(Debug)]
pub(crate) enum TextError {
    /// A file or folder cannot be opened, listed or read.
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// A folder without any file.
    Empty(PathBuf),
    /// Folders are nested deeper than the search goes.
    Deep(PathBuf),
    /// A line has more than [`LINE_BYTES_MAX`] bytes.
    Line {
        /// The file.
        path: PathBuf,
        /// Number of the line, from 1.
        line: u64,
    },
}

impl fmt::Display for TextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TextError::Io { path, .. } => write!(f, "{} cannot be read", path.display()),
            TextError::Empty(path) => write!(f, "there is no file in {}", path.display()),
            TextError::Deep(path) => {
                write!(f, "{} is more than {DEPTH_MAX} folders deep", path.display())
            }
            TextError::Line { path, line } => {
                let path = path.display();
                write!(
                    f,
                    "{path}: line {line} has more than {LINE_BYTES_MAX} bytes: this is no text"
                )
            }
        }
    }
}

impl error::Error for TextError {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match self {
            TextError::Io { error, .. } => Some(error),
            _ => None,
        }
    }
}

fn io_error(path: &Path) -> impl FnOnce(io::Error) -> TextError {
    let path = path.to_owned();
    move |error| TextError::Io { path, error }
}

/// Returns the files to read: a file that is named, and of a folder all files below it by name,
/// except hidden ones and links.
///
/// # Errors
/// A path does not exist or cannot be listed, or a folder has no file.
pub(crate) fn files(paths: &[PathBuf]) -> Result<Vec<PathBuf>, TextError> {
    let mut found = Vec::new();
    for path in paths {
        let before = found.len();
        if fs::metadata(path).map_err(io_error(path))?.is_dir() {
            look(path, 0, &mut found)?;
            if found.len() == before {
                return Err(TextError::Empty(path.clone()));
            }
        } else {
            found.push(path.clone());
        }
    }
    Ok(found)
}

fn look(folder: &Path, depth: usize, found: &mut Vec<PathBuf>) -> Result<(), TextError> {
    if depth == DEPTH_MAX {
        return Err(TextError::Deep(folder.to_owned()));
    }
    let entries = fs::read_dir(folder).and_then(Iterator::collect::<io::Result<Vec<_>>>);
    let mut entries = entries.map_err(io_error(folder))?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let path = entry.path();
        let kind = entry.file_type().map_err(io_error(&path))?;
        if entry.file_name().as_encoded_bytes().starts_with(b".") {
            continue;
        }
        if kind.is_dir() {
            look(&path, depth + 1, found)?;
        } else if kind.is_file() {
            found.push(path);
        }
    }
    Ok(())
}

/// The lines of a file that are not UTF-8.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wrong {
    /// The file.
    pub(crate) path: PathBuf,
    /// Number of the first such line, from 1.
    pub(crate) first: u64,
    /// Number of such lines.
    pub(crate) lines: u64,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Wrong { path, first, lines } = self;
        write!(f, "{}: line {first} is not UTF-8", path.display())?;
        if *lines > 1 {
            write!(f, ", nor are {} more", lines - 1)?;
        }
        f.write_str("; what is wrong there separates words")
    }
}

/// Numbers of lines and packets sent, and the wrong lines.
#[derive(Default)]
pub(crate) struct Sent {
    pub(crate) lines: u64,
    pub(crate) packets: u64,
    pub(crate) wrong: Vec<Wrong>,
}

/// Passes the lines of the files to `take`, as [`lines`] does.
///
/// # Errors
/// As of [`lines`].
pub(crate) fn all_lines<E: From<TextError>>(
    files: &[PathBuf],
    mut take: impl FnMut(&str) -> Result<(), E>,
) -> Result<Sent, E> {
    let mut sent = Sent::default();
    for path in files {
        let (count, wrong) = lines(path, &mut take)?;
        sent.lines += count;
        sent.wrong.extend(wrong);
    }
    Ok(sent)
}

/// Passes the lines of a file to `take`, without their ends. Bytes that are not UTF-8 become
/// U+FFFD, which is no letter. Memory: one line.
///
/// # Errors
/// The file cannot be read, a line is too long, or `take` returns an error.
fn lines<E: From<TextError>>(
    path: &Path,
    mut take: impl FnMut(&str) -> Result<(), E>,
) -> Result<(u64, Option<Wrong>), E> {
    let mut file = BufReader::new(File::open(path).map_err(io_error(path))?);
    let (mut count, mut wrong) = (0, None);
    let mut bytes = Vec::new();
    loop {
        bytes.clear();
        // One byte more than allowed, and the end of the line.
        let mut limited = file.by_ref().take(LINE_BYTES_MAX as u64 + 2);
        if limited.read_until(b'\n', &mut bytes).map_err(io_error(path))? == 0 {
            return Ok((count, wrong));
        }
        count += 1;
        let line = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
        if line.len() > LINE_BYTES_MAX {
            return Err(TextError::Line { path: path.to_owned(), line: count }.into());
        }
        match std::str::from_utf8(line) {
            Ok(line) => take(line)?,
            Err(_) => {
                let path = path.to_owned();
                wrong.get_or_insert(Wrong { path, first: count, lines: 0 }).lines += 1;
                take(&String::from_utf8_lossy(line))?;
            }
        }
    }
}
