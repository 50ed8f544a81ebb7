//! Errors of the log of a redelivering sender.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// The log of a redelivering sender cannot be used.
#[derive(Clone)]
pub struct LogError {
    /// The directory of the log, or a file in it.
    pub path: PathBuf,
    /// The cause.
    pub cause: LogCause,
}

/// A cause that keeps a log from being used.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum LogCause {
    /// A file cannot be made, read, written or removed.
    Io(Arc<io::Error>),
    /// Another sender has the log open, in this process or in another one.
    InUse,
    /// The log has the messages of another channel, or of another type.
    OtherStream {
        /// The name of the channel that the log belongs to.
        channel: String,
    },
    /// The file is damaged. Nothing was changed.
    Damaged {
        /// Bytes of the file before the damage.
        offset: u64,
    },
}

impl fmt::Display for LogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match &self.cause {
            LogCause::Io(_) => write!(f, "the log {path} cannot be read or written"),
            LogCause::InUse => write!(f, "the log {path} is in use by another sender"),
            LogCause::OtherStream { channel } => write!(
                f,
                "the log {path} belongs to channel \"{channel}\"; this sender has another name or type"
            ),
            LogCause::Damaged { offset } => write!(
                f,
                "the log {path} is damaged at byte {offset}; the messages before it are whole, and \
                 nothing was changed. To begin anew without its messages, move its directory away"
            ),
        }
    }
}

crate::debug_with_causes!(LogError);

impl Error for LogError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.cause {
            LogCause::Io(error) => Some(error.as_ref()),
            _ => None,
        }
    }
}
