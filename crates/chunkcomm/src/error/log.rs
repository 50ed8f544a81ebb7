//! Errors of the log of a redelivering sender.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// The log of a redelivering sender cannot be used.
#[derive(Clone)]
#[non_exhaustive]
pub enum LogError {
    /// The directory or a file cannot be made, read, written or removed.
    Io {
        /// The directory of the log, or a file in it.
        path: PathBuf,
        /// The system's error.
        error: Arc<io::Error>,
    },
    /// Another sender has the log open, in this process or in another one.
    InUse {
        /// The directory of the log.
        path: PathBuf,
    },
    /// The log has the messages of another channel, or of another type.
    OtherStream {
        /// The file.
        path: PathBuf,
        /// The name of the channel that the log belongs to.
        channel: String,
    },
    /// The file is damaged. Nothing was changed.
    Damaged {
        /// The file.
        path: PathBuf,
        /// Bytes of the file before the damage.
        offset: u64,
    },
}

impl fmt::Display for LogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LogError::Io { path, .. } => {
                write!(f, "the log {} cannot be read or written", path.display())
            }
            LogError::InUse { path } => {
                write!(f, "the log {} is in use by another sender", path.display())
            }
            LogError::OtherStream { path, channel } => write!(
                f,
                "the log {} belongs to channel \"{channel}\"; this sender has another name or type",
                path.display()
            ),
            LogError::Damaged { path, offset } => write!(
                f,
                "the log {} is damaged at byte {offset}; the messages before it are whole, and \
                 nothing was changed. To begin anew without its messages, move its directory away",
                path.display()
            ),
        }
    }
}

crate::debug_with_causes!(LogError);

impl Error for LogError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            LogError::Io { error, .. } => Some(error.as_ref()),
            _ => None,
        }
    }
}
