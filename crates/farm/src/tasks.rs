//! Source of the tasks of a run, and sink of its results.

use std::iter::Fuse;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use chunkcomm::codec::{DecodeError, EncodeError, decode};
use chunkcomm_cluster::registry::panic_message;
use futures_core::Stream;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::TaskError;
use crate::proto::wire;

/// Input of a task, to be encoded.
pub(crate) trait Input {
    /// Appends its length and its encoded bytes. A panic of the type is an error, too.
    fn put(&self, message: &mut Vec<u8>) -> Result<(), EncodeError>;
}

/// Result of a task, to be decoded.
pub(crate) trait Output: Sized {
    /// Reads the result. A panic of the type is an error, too, so that the other tasks go on.
    fn read(bytes: &[u8]) -> Result<Self, Unreadable>;
}

/// Reason why bytes are no result.
pub(crate) enum Unreadable {
    Refused(DecodeError),
    /// The type panicked with this message.
    Panicked(String),
}

impl<T: Serialize> Input for T {
    #[inline]
    fn put(&self, message: &mut Vec<u8>) -> Result<(), EncodeError> {
        let put = catch_unwind(AssertUnwindSafe(|| wire::put_value(message, self)));
        put.unwrap_or_else(|panic| {
            let text = panic_message(panic.as_ref());
            Err(EncodeError::Refused(format!("its type panicked: {text}").into()))
        })
    }
}

impl<T: DeserializeOwned> Output for T {
    #[inline]
    fn read(bytes: &[u8]) -> Result<Self, Unreadable> {
        match catch_unwind(|| decode(bytes)) {
            Ok(read) => read.map_err(Unreadable::Refused),
            Err(panic) => Err(Unreadable::Panicked(panic_message(panic.as_ref()).to_owned())),
        }
    }
}

/// Input with its length, or a result; it passes through a sub-farmer as it is.
pub(crate) struct Encoded(pub(crate) Bytes);

impl Input for Encoded {
    fn put(&self, message: &mut Vec<u8>) -> Result<(), EncodeError> {
        message.extend_from_slice(&self.0);
        Ok(())
    }
}

impl Output for Encoded {
    fn read(bytes: &[u8]) -> Result<Self, Unreadable> {
        Ok(Encoded(Bytes::copy_from_slice(bytes)))
    }
}

/// Tasks of [`Farm::stream`](crate::Farm::stream): an iterator or a stream.
///
/// Either may be endless and slow. `Kind` tells the two apart; the compiler finds it.
#[diagnostic::on_unimplemented(message = "`{Self}` is neither an iterator nor a stream of tasks")]
pub trait Tasks<Kind> {
    /// Type of a task.
    type Task;
    #[doc(hidden)]
    type Source: Source<Task = Self::Task>;

    #[doc(hidden)]
    fn into_source(self) -> Self::Source;
}

/// Kind of [`Tasks`]: an iterator.
#[derive(Debug)]
pub enum Iterated {}

/// Kind of [`Tasks`]: a stream.
#[derive(Debug)]
pub enum Streamed {}

impl<T: IntoIterator> Tasks<Iterated> for T {
    type Task = T::Item;
    type Source = Listed<T::IntoIter>;

    fn into_source(self) -> Listed<T::IntoIter> {
        Listed::new(self)
    }
}

impl<S: Stream> Tasks<Streamed> for S {
    type Task = S::Item;
    type Source = Arriving<S>;

    fn into_source(self) -> Arriving<S> {
        Arriving(Some(Box::pin(self)))
    }
}

/// Source of the tasks of a run.
pub trait Source {
    type Task;

    /// Returns the next task; pending while there is none, `None` after the last.
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Self::Task>>;

    /// Returns the number of remaining tasks, where it is known.
    fn left(&self) -> Option<u64>;

    /// Returns the index of the next task and how often it was given out before, if the farmer
    /// above numbered it.
    #[inline]
    fn numbered(&self) -> Option<(u64, u32)> {
        None
    }
}

/// The tasks of an iterator.
pub struct Listed<T>(Fuse<T>);

impl<T: Iterator> Listed<T> {
    pub(crate) fn new(tasks: impl IntoIterator<IntoIter = T>) -> Listed<T> {
        Listed(tasks.into_iter().fuse())
    }
}

impl<T: Iterator> Source for Listed<T> {
    type Task = T::Item;

    #[inline]
    fn poll_next(&mut self, _: &mut Context<'_>) -> Poll<Option<T::Item>> {
        Poll::Ready(self.0.next())
    }

    fn left(&self) -> Option<u64> {
        let (at_least, at_most) = self.0.size_hint();
        (at_most == Some(at_least)).then_some(at_least as u64)
    }
}

/// The tasks of a stream, until its end.
pub struct Arriving<S>(Option<Pin<Box<S>>>);

impl<S: Stream> Source for Arriving<S> {
    type Task = S::Item;

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<S::Item>> {
        let Some(tasks) = &mut self.0 else { return Poll::Ready(None) };
        let next = tasks.as_mut().poll_next(context);
        if matches!(next, Poll::Ready(None)) {
            self.0 = None;
        }
        next
    }

    fn left(&self) -> Option<u64> {
        let Some(tasks) = &self.0 else { return Some(0) };
        let (at_least, at_most) = tasks.size_hint();
        (at_most == Some(at_least)).then_some(at_least as u64)
    }
}

/// Inputs of an iterator in groups of neighbours; each group is a task.
pub(crate) struct Groups<T> {
    inputs: Listed<T>,
    size: usize,
}

/// Inputs of a group where the number of inputs is not known.
const GROUP: usize = 16;

/// Most inputs of a group.
const GROUP_MAX: usize = 1024;

/// Least number of groups where the number of inputs is known: some for each of hundreds of
/// workers. A number that depended on the workers would differ from start to start, and a journal
/// would not find the groups.
const GROUPS: u64 = 4096;

impl<T: Iterator> Groups<T> {
    pub(crate) fn new(inputs: impl IntoIterator<IntoIter = T>) -> Groups<T> {
        let inputs = Listed::new(inputs);
        let size = inputs.left().map_or(GROUP, |left| {
            usize::try_from(left / GROUPS).unwrap_or(GROUP_MAX).clamp(1, GROUP_MAX)
        });
        Groups { inputs, size }
    }

    pub(crate) fn size(&self) -> usize {
        self.size
    }
}

impl<T: Iterator> Source for Groups<T> {
    type Task = Vec<T::Item>;

    fn poll_next(&mut self, _: &mut Context<'_>) -> Poll<Option<Vec<T::Item>>> {
        let group: Vec<_> = self.inputs.0.by_ref().take(self.size).collect();
        Poll::Ready((!group.is_empty()).then_some(group))
    }

    fn left(&self) -> Option<u64> {
        self.inputs.left().map(|left| left.div_ceil(self.size as u64))
    }
}

/// Sink of the results of a run.
pub(crate) trait Sink<O> {
    /// Takes a result of this number of encoded bytes.
    fn take(&mut self, index: u64, result: Result<O, TaskError>, bytes: usize);

    /// Takes tasks that go back to the farmer above; only that farmer asks for some.
    fn give_back(&mut self, _first: u64, _count: u32) {}

    /// Takes the thousandths of a running task that are done; a sub-farmer passes them on.
    fn note_progress(&mut self, _task: u64, _thousandths: u32) {}

    /// Returns whether it takes results of further tasks.
    fn has_room(&self) -> bool {
        true
    }
}

impl<O, F: FnMut(u64, Result<O, TaskError>)> Sink<O> for F {
    #[inline]
    fn take(&mut self, index: u64, result: Result<O, TaskError>, _bytes: usize) {
        self(index, result);
    }
}
