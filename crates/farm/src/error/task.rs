//! The error of a task.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use chunkcomm::codec::DecodeError;
use chunkcomm::error::Plain;

use super::counted;
use crate::name::WorkerName;
use chunkcomm::Loss;

/// Error of a task; it stands in the place of the task's result.
#[derive(Clone)]
#[non_exhaustive]
pub enum TaskError {
    /// The task panicked, or the worker could not decode its input. Or the result could not be
    /// encoded, or was too large.
    Failed {
        /// Index of the task.
        index: u64,
        /// The function's name.
        function: String,
        /// The worker that ran the task.
        worker: WorkerName,
        /// The worker's reason, for instance a panic's message.
        text: String,
    },
    /// Workers died while they ran the task, so it does not run again.
    SetAside {
        /// Index of the task.
        index: u64,
        /// The function's name.
        function: String,
        /// Number of workers that died.
        deaths: u32,
        /// The worker that died last.
        worker: WorkerName,
        /// How it was lost.
        loss: Loss,
        /// The task's input, as [`chunkcomm::codec`] encodes it.
        input: Vec<u8>,
    },
    /// The task did not end within its time and its grace, or it stopped the processes of workers,
    /// as `SIGSTOP` does.
    TimedOut {
        /// Index of the task.
        index: u64,
        /// The function's name.
        function: String,
        /// The worker that ran the task.
        worker: WorkerName,
        /// Time and grace together.
        after: Duration,
    },
    /// The result could not be decoded.
    Result {
        /// Index of the task.
        index: u64,
        /// The worker that ran the task.
        worker: WorkerName,
        /// The codec's error.
        source: DecodeError,
    },
    /// The result's type panicked while the farmer decoded it.
    ResultPanicked {
        /// Index of the task.
        index: u64,
        /// The worker that ran the task.
        worker: WorkerName,
        /// The panic's message.
        text: String,
    },
}

impl TaskError {
    /// Returns the index of the task.
    #[must_use]
    pub fn index(&self) -> u64 {
        match *self {
            TaskError::Failed { index, .. }
            | TaskError::SetAside { index, .. }
            | TaskError::TimedOut { index, .. }
            | TaskError::Result { index, .. }
            | TaskError::ResultPanicked { index, .. } => index,
        }
    }
}

impl fmt::Display for TaskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TaskError::Failed { index, function, worker, text } => {
                write!(f, "task {index} of {function:?} failed at {worker}: {}", Plain(text))
            }
            TaskError::SetAside { index, function, deaths, worker, loss, .. } => {
                let workers = counted((*deaths).into(), "worker");
                write!(
                    f,
                    "task {index} of {function:?} is set aside since {workers} died of it, {worker} \
                     last: {loss}"
                )
            }
            TaskError::TimedOut { index, function, worker, after } => {
                let after = after.as_secs_f64();
                write!(f, "task {index} of {function:?} did not end at {worker} in {after} s")
            }
            TaskError::Result { index, worker, .. } => {
                write!(f, "the result of task {index} from {worker} could not be decoded")
            }
            TaskError::ResultPanicked { index, worker, text } => write!(
                f,
                "the result of task {index} from {worker} could not be decoded: its type panicked: \
                 {}",
                Plain(text)
            ),
        }
    }
}

chunkcomm::debug_with_causes!(TaskError);

impl Error for TaskError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            TaskError::Result { source, .. } => Some(source),
            TaskError::SetAside { loss, .. } => loss.source(),
            TaskError::Failed { .. }
            | TaskError::TimedOut { .. }
            | TaskError::ResultPanicked { .. } => None,
        }
    }
}
