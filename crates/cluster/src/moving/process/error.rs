//! Errors of processes.

use crate::registry::Signature;
use chunkcomm::{LinkError, Loss, SendError};
use chunkcomm_proto::plain::Plain;
use std::error::Error;
use std::fmt;

/// Reason why a process was not asked for, or its end that is no success.
#[derive(Clone)]
#[non_exhaustive]
pub enum ProcessError {
    /// The input cannot be encoded, or is larger than the node takes. The process was not asked for; its
    /// input is dropped, with the ends in it.
    Unsent(SendError),
    /// The node is lost, or cannot be reached. The process was not asked for; its input is dropped, with
    /// the ends in it.
    Unreachable(Loss),
    /// The process returned a [`Failure`](super::Failure).
    Failed {
        /// The process.
        process: String,
        /// The node where it ran.
        node: String,
        /// The failure's message.
        message: String,
    },
    /// The process panicked. The node goes on.
    Panicked {
        /// The process.
        process: String,
        /// The node where it ran.
        node: String,
        /// The panic's message.
        message: String,
        /// File, line and column, as compiled into the program that ran the process.
        place: Option<String>,
    },
    /// The node ended the process because it is being closed.
    Stopped {
        /// The process.
        process: String,
        /// The node where it ran.
        node: String,
    },
    /// The node does not have the process, or has it with another input type. The process did not
    /// begin.
    Differs {
        /// The node.
        node: String,
        /// The process that this node asked for.
        here: Box<Signature>,
        /// The process of that name that the node has.
        there: Option<Box<Signature>>,
    },
    /// The node could not decode the input, though its type is the same. The process did not begin.
    Input {
        /// The process.
        process: String,
        /// The node.
        node: String,
        /// The reason.
        why: String,
    },
    /// The node runs as many processes as it may. The process did not begin.
    Full {
        /// The process.
        process: String,
        /// The node.
        node: String,
        /// Number of processes that the node runs.
        processes: u64,
    },
    /// The session with the node ended before the process did.
    Lost {
        /// The process.
        process: String,
        /// The reason for the session's end.
        link: LinkError,
    },
}

impl fmt::Display for ProcessError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProcessError::Unsent(error) => error.fmt(f),
            ProcessError::Unreachable(loss) => loss.fmt(f),
            ProcessError::Failed { process, node, message } => {
                write!(f, "process {process:?} at {node} failed: {}", Plain(message))
            }
            ProcessError::Panicked { process, node, message, place } => {
                write!(f, "process {process:?} at {node} panicked: {}", Plain(message))?;
                place.as_ref().map_or(Ok(()), |place| write!(f, ", at {}", Plain(place)))
            }
            ProcessError::Stopped { process, node } => {
                write!(f, "process {process:?} was ended at {node}")
            }
            ProcessError::Differs { node, here, there: None } => {
                write!(f, "{node} has no process {:?}", here.name)
            }
            ProcessError::Differs { node, here, there: Some(there) } => {
                let (name, here) = (&there.name, Plain(&here.input.text));
                let there = Plain(&there.input.text);
                write!(f, "process {name:?} takes {here} here and {there} at {node}")
            }
            ProcessError::Input { process, node, why } => {
                let why = Plain(why);
                write!(f, "{node} could not decode the input of process {process:?}: {why}")
            }
            ProcessError::Full { process, node, processes } => {
                write!(f, "{node} runs {processes} processes and began no other {process:?}")
            }
            ProcessError::Lost { process, link } => write!(f, "process {process:?}: {link}"),
        }
    }
}

chunkcomm_proto::debug_with_causes!(ProcessError);

impl Error for ProcessError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            ProcessError::Unsent(error) => error.source(),
            ProcessError::Unreachable(loss) => loss.source(),
            ProcessError::Lost { link, .. } => link.source(),
            _ => None,
        }
    }
}
