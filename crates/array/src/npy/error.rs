//! Errors of `.npy` files.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use chunkcomm::error::Plain;

use super::element::NpyType;
use super::header::NpyHeaderError;

/// Reason why an `.npy` file is not read or written. Each names the file.
#[derive(Clone)]
#[non_exhaustive]
pub enum NpyError {
    /// A call of the system failed.
    #[non_exhaustive]
    Io {
        /// Action that failed.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: Arc<io::Error>,
    },
    /// The file does not begin with a header that is known.
    #[non_exhaustive]
    Header {
        /// The file.
        path: PathBuf,
        /// Fault of the header.
        source: NpyHeaderError,
    },
    /// The elements have a type that is none of [`NpyType`], such as NumPy's `float16`, a record, a boolean or a text.
    #[non_exhaustive]
    UnknownType {
        /// The file.
        path: PathBuf,
        /// Type as NumPy describes it.
        descr: String,
    },
    /// The bytes of an element are in the other order than those of this machine.
    #[non_exhaustive]
    ByteOrder {
        /// The file.
        path: PathBuf,
        /// Type and order as NumPy describes them.
        descr: String,
        /// The type, whose description on this machine is the one that fits.
        ours: NpyType,
    },
    /// The program asks for another type of elements than the file has.
    #[non_exhaustive]
    Element {
        /// The file.
        path: PathBuf,
        /// Type in the file.
        found: NpyType,
        /// Type of the program.
        expected: NpyType,
    },
    /// The file is shorter or longer than its header says.
    #[non_exhaustive]
    Length {
        /// The file.
        path: PathBuf,
        /// Bytes of header and elements.
        expected: u64,
        /// Bytes of the file.
        found: u64,
    },
    /// The array of the file has another shape than the layout's transfers.
    #[non_exhaustive]
    Shape {
        /// The file.
        path: PathBuf,
        /// Shape in the file.
        found: Vec<usize>,
        /// Shape of the layout.
        expected: Vec<usize>,
    },
    /// The system has no memory for a rank's part of the array.
    #[non_exhaustive]
    Memory {
        /// The file.
        path: PathBuf,
        /// The rank.
        rank: usize,
        /// Bytes of its part, margins included.
        bytes: usize,
    },
    /// The elements to write are more or fewer than the rank stores.
    #[non_exhaustive]
    Storage {
        /// The file.
        path: PathBuf,
        /// The rank.
        rank: usize,
        /// Number of elements that the rank stores.
        expected: usize,
        /// Number of elements that were given.
        found: usize,
    },
}

impl fmt::Display for NpyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NpyError::Io { what, path, .. } => write!(f, "could not {what} {}", path.display()),
            NpyError::Header { path, .. } => {
                write!(f, "{} cannot be read or written", path.display())
            }
            NpyError::UnknownType { path, descr } => write!(
                f,
                "{} has elements of type {}, which is none of {}",
                path.display(),
                Plain(descr),
                NpyType::ALL.map(NpyType::code).join(", ")
            ),
            NpyError::ByteOrder { path, descr, ours } => write!(
                f,
                "{} has elements {descr}, whose bytes are in another order than this machine's {}",
                path.display(),
                ours.descr()
            ),
            NpyError::Element { path, found, expected } => {
                write!(f, "{} has elements of {found}, not of {expected}", path.display())
            }
            NpyError::Length { path, expected, found } => write!(
                f,
                "{} has {found} bytes, but its header promises {expected}",
                path.display()
            ),
            NpyError::Shape { path, found, expected } => write!(
                f,
                "{} has an array of {found:?}, the layout one of {expected:?}",
                path.display()
            ),
            NpyError::Memory { path, rank, bytes } => write!(
                f,
                "there is no memory of {bytes} bytes for the part of {} that rank {rank} of the layout \
                 stores",
                path.display()
            ),
            NpyError::Storage { path, rank, expected, found } => write!(
                f,
                "{found} elements for {}: rank {rank} of the layout stores {expected}",
                path.display()
            ),
        }
    }
}

chunkcomm::debug_with_causes!(NpyError);

impl Error for NpyError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            NpyError::Io { source, .. } => Some(source.as_ref()),
            NpyError::Header { source, .. } => Some(source),
            NpyError::UnknownType { .. }
            | NpyError::ByteOrder { .. }
            | NpyError::Element { .. }
            | NpyError::Length { .. }
            | NpyError::Shape { .. }
            | NpyError::Memory { .. }
            | NpyError::Storage { .. } => None,
        }
    }
}
