//! Processes in a [`Registry`].

mod context;
mod failure;
mod panics;

pub use context::ProcessContext;
pub use failure::Failure;
pub(crate) use panics::catch;

use super::{Registry, Signature, Travels, TypeFingerprint, describe_for};
use chunkcomm::host;
use chunkcomm_proto::codec::{DecodeError, decode};
use chunkcomm_proto::describe::Description;
use chunkcomm_proto::sorted::SortedMap;
use panics::Panicked;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::future::{Future, poll_fn};
use std::marker::PhantomData;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;

/// A registered process as its user holds it: its name, and the type of its input.
pub struct Process<I> {
    name: Arc<str>,
    description: Arc<Description>,
    types: PhantomData<fn(I)>,
}

impl<I> Process<I> {
    /// Returns the name it was registered under.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn hash(&self) -> u64 {
        self.description.hash
    }

    pub(crate) fn signature(&self) -> Signature {
        signature(&self.name, &self.description)
    }
}

impl<I> Clone for Process<I> {
    fn clone(&self) -> Process<I> {
        let (name, description) = (Arc::clone(&self.name), Arc::clone(&self.description));
        Process { name, description, types: PhantomData }
    }
}

impl<I> fmt::Debug for Process<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Process").field(&self.name).finish()
    }
}

/// How a process ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum End {
    Done,
    /// The process returned an error.
    Failed(String),
    Panicked {
        message: String,
        place: Option<String>,
    },
    /// Its future was dropped.
    Stopped,
    /// The node does not have the process, or has it with another input.
    Differs(Option<Signature>),
    /// The input could not be decoded.
    Input(String),
    /// The node runs this many processes already, as many as it may.
    Full(u64),
}

/// A running process.
pub(crate) type Running = Pin<Box<dyn Future<Output = End> + Send>>;

type Start = dyn Fn(ProcessContext, &[u8]) -> Result<Running, DecodeError> + Send + Sync;

/// A process without its type.
#[derive(Clone)]
pub(crate) struct Entry {
    description: Arc<Description>,
    /// Decodes the input, in which ends may arrive, and begins.
    pub(crate) start: Arc<Start>,
}

/// The processes of a registry, by name.
#[derive(Clone, Default)]
pub(crate) struct Entries(SortedMap<Arc<str>, Entry>);

impl fmt::Debug for Entries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl Entries {
    /// Names and input types of all processes.
    pub(crate) fn signatures(&self) -> impl Iterator<Item = Signature> {
        self.0.iter().map(|(name, entry)| signature(name, &entry.description))
    }

    /// Returns the process with this name and input, or the one that has the name instead.
    pub(crate) fn find(&self, name: &str, hash: u64) -> Result<&Entry, Option<Signature>> {
        match self.0.get(name) {
            Some(entry) if entry.description.hash == hash => Ok(entry),
            Some(entry) => Err(Some(signature(name, &entry.description))),
            None => Err(None),
        }
    }
}

fn signature(name: &str, input: &Description) -> Signature {
    Signature { name: name.to_owned(), input: TypeFingerprint::of(input), output: None }
}

impl Registry {
    /// Registers a process under a name and returns its typed handle. The function begins the
    /// process. The future runs on the runtime in which the node was built, and must not compute
    /// for long without waiting (see [`Registry::blocking_process`]).
    ///
    /// Processes and functions have separate names.
    ///
    /// # Panics
    /// As [`Registry::register`].
    #[track_caller]
    pub fn process<I, F, R>(&mut self, name: &str, function: F) -> Process<I>
    where
        I: Travels + Send,
        F: Fn(ProcessContext, I) -> R + Send + Sync + 'static,
        R: Future<Output = Result<(), Failure>> + Send + 'static,
    {
        let function = Arc::new(function);
        self.add_process(name, move |context, input: I| {
            let function = Arc::clone(&function);
            Box::pin(guarded(async move { function(context, input).await }))
        })
    }

    /// As [`Registry::process`], for a process that computes (in a simulation it cannot wait by
    /// blocking calls, which panic there): it runs on one of the runtime's
    /// threads for blocking work, and uses the blocking calls of its ends. It cannot be ended from
    /// outside while it computes: [`ProcessContext::is_stopped`] and ends that are gone show it
    /// that it should end.
    ///
    /// # Panics
    /// As [`Registry::register`].
    #[track_caller]
    pub fn blocking_process<I, F>(&mut self, name: &str, function: F) -> Process<I>
    where
        I: Travels + Send,
        F: Fn(ProcessContext, I) -> Result<(), Failure> + Send + Sync + 'static,
    {
        let function = Arc::new(function);
        self.add_process(name, move |context, input: I| {
            let function = Arc::clone(&function);
            Box::pin(async move {
                let work = move || end_of(catch(|| function(context, input)));
                host::compute(std::time::Duration::ZERO, work).await
            })
        })
    }

    #[track_caller]
    fn add_process<I>(
        &mut self,
        name: &str,
        begin: impl Fn(ProcessContext, I) -> Running + Send + Sync + 'static,
    ) -> Process<I>
    where
        I: Travels,
    {
        let description = describe_for::<I>(name, "input");
        let name: Arc<str> = name.into();
        let start: Arc<Start> =
            Arc::new(move |context, bytes| Ok(begin(context, decode::<I>(bytes)?)));
        let entry = Entry { description: Arc::clone(&description), start };
        let before = self.processes.0.insert(Arc::clone(&name), entry);
        assert!(before.is_none(), "process {name:?} is registered twice");
        Process { name, description, types: PhantomData }
    }
}

impl From<Panicked> for End {
    fn from(Panicked { message, place }: Panicked) -> End {
        End::Panicked { message, place }
    }
}

fn end_of(ran: Result<Result<(), Failure>, Panicked>) -> End {
    match ran {
        Ok(Ok(())) => End::Done,
        Ok(Err(failure)) => End::Failed(failure.message().to_owned()),
        Err(panicked) => panicked.into(),
    }
}

/// Runs the future and catches its panics.
async fn guarded(future: impl Future<Output = Result<(), Failure>>) -> End {
    let mut future = pin!(future);
    poll_fn(|context| match catch(|| future.as_mut().poll(context)) {
        Ok(Poll::Pending) => Poll::Pending,
        Ok(Poll::Ready(result)) => Poll::Ready(end_of(Ok(result))),
        Err(panicked) => Poll::Ready(end_of(Err(panicked))),
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Asserts that this panics at the line of its caller, which is in this file.
    #[track_caller]
    fn assert_panics_here(line: u32, registers: impl FnOnce()) {
        let place = catch(registers).unwrap_err().place.unwrap();
        assert!(place.starts_with(&format!("{}:{line}:", file!())), "{place}");
    }

    #[test]
    fn a_mistake_panics_at_the_line_that_registers() {
        let mut registry = Registry::new();
        let nothing = |(): ()| async {};
        registry.register("f", |(): ()| ());
        assert_panics_here(line!(), || drop(registry.register("f", |(): ()| ())));
        assert_panics_here(line!(), || drop(registry.register_async("f", nothing)));
        assert_panics_here(line!(), || drop(registry.register("g", |(): ()| vec![(); 3])));
        let process = |_: ProcessContext, (): ()| async { Ok(()) };
        let blocking = |_: ProcessContext, (): ()| Ok(());
        registry.process("p", process);
        assert_panics_here(line!(), || drop(registry.process("p", process)));
        assert_panics_here(line!(), || drop(registry.blocking_process("p", blocking)));
    }
}
