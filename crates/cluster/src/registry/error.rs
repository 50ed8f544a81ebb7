//! Errors of a call.

use chunkcomm_proto::codec::{DecodeError, EncodeError};
use std::fmt;
use std::sync::Arc;

/// Reason why a call gave no result. The registry and the process are unharmed.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum CallError {
    /// The bytes are not an input of the function.
    Input {
        /// The function's name.
        function: Arc<str>,
        /// The codec's error.
        source: DecodeError,
    },
    /// The function's result could not be encoded.
    Output {
        /// The function's name.
        function: Arc<str>,
        /// The codec's error.
        source: EncodeError,
    },
    /// The function panicked.
    Panicked {
        /// The function's name.
        function: Arc<str>,
        /// The panic's message.
        message: Box<str>,
    },
    /// The function waits, and its caller does not.
    Waits {
        /// The function's name.
        function: Arc<str>,
    },
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CallError::Input { function, .. } => {
                write!(f, "the input of function {function:?} could not be decoded")
            }
            CallError::Output { function, .. } => {
                write!(f, "the result of function {function:?} could not be encoded")
            }
            CallError::Panicked { function, message } => {
                write!(f, "function {function:?} panicked: {message}")
            }
            CallError::Waits { function } => {
                write!(f, "function {function:?} waits, and its caller does not")
            }
        }
    }
}

chunkcomm_proto::debug_with_causes!(CallError);

impl std::error::Error for CallError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            CallError::Input { source, .. } => Some(source),
            CallError::Output { source, .. } => Some(source),
            CallError::Panicked { .. } | CallError::Waits { .. } => None,
        }
    }
}
