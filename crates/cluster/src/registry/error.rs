//! The error of a registered function.

use chunkcomm_proto::codec::{DecodeError, EncodeError};
use std::sync::Arc;

/// Reason why a function gave no result. The registry and the process are unharmed.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FunctionError {
    /// The bytes are not an input of the function.
    #[error("the input of function {function:?} could not be decoded")]
    Input {
        /// The function's name.
        function: Arc<str>,
        /// The codec's error.
        source: DecodeError,
    },
    /// The function's result could not be encoded.
    #[error("the result of function {function:?} could not be encoded")]
    Output {
        /// The function's name.
        function: Arc<str>,
        /// The codec's error.
        source: EncodeError,
    },
    /// The function panicked.
    #[error("function {function:?} panicked: {message}")]
    Panicked {
        /// The function's name.
        function: Arc<str>,
        /// The panic's message.
        message: Box<str>,
    },
    /// The function waits, and its caller does not.
    #[error("function {function:?} waits, and its caller does not")]
    Waits {
        /// The function's name.
        function: Arc<str>,
    },
}

chunkcomm_proto::debug_with_causes!(FunctionError);
