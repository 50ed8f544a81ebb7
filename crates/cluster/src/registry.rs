//! The functions that other processes of the same program may run.
//!
//! A function cannot be sent, but its name can. Every copy of a program builds the same
//! [`Registry`], first thing in `main`, and one copy asks another to run a function by its name.
//! With [`Registry::signatures`] and [`Registry::difference`] the two check, before anything is run,
//! that they mean the same function. Functions that have channels to others are
//! [processes](crate::process).
//!
//! ```
//! use chunkcomm_cluster::Registry;
//!
//! let mut registry = Registry::new();
//! let double = registry.register("double", |number: u32| number * 2);
//! assert_eq!(double.name(), "double");
//!
//! // What another process does with it: bytes in, bytes out.
//! let entry = registry.lookup("double").expect("registered above");
//! let mut result = Vec::new();
//! entry.call(&21u32.to_le_bytes(), &mut result)?;
//! assert_eq!(result, 42u32.to_le_bytes());
//! # Ok::<(), chunkcomm_cluster::registry::FunctionError>(())
//! ```

mod error;
pub(crate) mod processes;
mod started;
mod travels;

pub use crate::proto::signature::{Difference, Signature, TypeFingerprint};
pub use error::FunctionError;
pub use started::Started;
pub use travels::Travels;

use chunkcomm_proto::sorted::SortedMap;
use std::any::Any;
use std::fmt;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use chunkcomm::host;
use chunkcomm_proto::codec::{decode, encode_into_vec};
use chunkcomm_proto::describe::{Description, describe};
use processes::Entries;

/// A registered function as its user holds it: its name, and its types.
///
/// It is only a name with types. [`Registry::register`] makes it; calls that ask another process to
/// run the function take it as an argument.
pub struct Function<I, O> {
    name: Arc<str>,
    types: PhantomData<fn(I) -> O>,
}

impl<I, O> Function<I, O> {
    /// Returns the name it was registered under.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl<I, O> Clone for Function<I, O> {
    fn clone(&self) -> Self {
        Function { name: Arc::clone(&self.name), types: PhantomData }
    }
}

impl<I, O> fmt::Debug for Function<I, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Function").field(&self.name).finish()
    }
}

type Call = dyn Fn(&[u8], &mut Vec<u8>) -> Result<(), FunctionError> + Send + Sync;
type Start = dyn Fn(&[u8]) -> Started + Send + Sync;

#[derive(Clone)]
enum Body {
    Sync(Arc<Call>),
    Async(Arc<Start>),
}

/// A function of a [`Registry`] without its types: bytes in, bytes out.
#[derive(Clone)]
pub struct Entry {
    name: Arc<str>,
    input: Arc<Description>,
    output: Arc<Description>,
    body: Body,
}

impl Entry {
    /// Returns the name it was registered under.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Describes the type of the input.
    #[must_use]
    pub fn input(&self) -> &Description {
        &self.input
    }

    /// Describes the type of the result.
    #[must_use]
    pub fn output(&self) -> &Description {
        &self.output
    }

    /// Runs the function on an encoded input and appends the encoded result to
    /// `output`. Allocates only what the input, the function and a growing
    /// `output` need.
    ///
    /// # Errors
    /// Bytes that are no input, a result that cannot be encoded, and a panic of the function
    /// (caught, with its message; the panic hook runs before, so it also shows on stderr). `output`
    /// is then as it was before the call. [`FunctionError::Waits`]: an async function that did not end
    /// at its first poll, and was dropped; [`start`](Entry::start) runs it.
    #[inline]
    pub fn call(&self, input: &[u8], output: &mut Vec<u8>) -> Result<(), FunctionError> {
        match &self.body {
            Body::Sync(call) => call(input, output),
            Body::Async(start) => started::at_once(start(input), output),
        }
    }

    /// Whether the function was registered with [`Registry::register_async`].
    #[must_use]
    pub fn is_async(&self) -> bool {
        matches!(self.body, Body::Async(_))
    }

    /// Starts an async function on an encoded input; `None` for a plain function. It runs as far as
    /// the result is polled.
    #[must_use]
    pub fn start(&self, input: &[u8]) -> Option<Started> {
        match &self.body {
            Body::Sync(_) => None,
            Body::Async(start) => Some(start(input)),
        }
    }

    /// Whether the handle names this function and has its types.
    #[must_use]
    pub fn is<I, O>(&self, function: &Function<I, O>) -> bool
    where
        I: Serialize + DeserializeOwned,
        O: Serialize + DeserializeOwned,
    {
        self.name == function.name
            && self.input.hash == describe::<I>().hash
            && self.output.hash == describe::<O>().hash
    }

    fn signature(&self) -> Signature {
        Signature {
            name: self.name.to_string(),
            input: TypeFingerprint::of(&self.input),
            output: Some(TypeFingerprint::of(&self.output)),
        }
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The functions of a program that other copies of it may run, by name.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    entries: Vec<Entry>,
    by_name: SortedMap<Arc<str>, usize>,
    pub(crate) processes: Entries,
}

impl Registry {
    /// Returns an empty registry.
    #[must_use]
    pub fn new() -> Registry {
        Registry::default()
    }

    /// Registers a function under a name and returns its typed handle.
    ///
    /// Every copy of the program must register the same functions; the order does not matter.
    ///
    /// ```
    /// use chunkcomm_cluster::Registry;
    ///
    /// let mut registry = Registry::new();
    /// let double = registry.register("double", |number: u32| number * 2);
    /// assert_eq!(double.name(), "double");
    /// assert!(registry.lookup("double").is_some());
    /// ```
    ///
    /// # Panics
    /// When the name is taken, and when values of one of the types cannot travel (see
    /// [`Description::refusal`]): mistakes in the program, in every copy of it.
    #[track_caller]
    pub fn register<I, O>(
        &mut self,
        name: &str,
        function: impl Fn(I) -> O + Send + Sync + 'static,
    ) -> Function<I, O>
    where
        I: Travels,
        O: Travels,
    {
        let name: Arc<str> = name.into();
        let call = erased(Arc::clone(&name), function);
        self.add(name, Body::Sync(Arc::new(call)))
    }

    /// Registers an async function as [`register`](Registry::register) does. While a call of it waits,
    /// its thread may run others.
    ///
    /// ```
    /// use chunkcomm::host;
    /// use chunkcomm_cluster::Registry;
    /// use std::time::Duration;
    ///
    /// let mut registry = Registry::new();
    /// registry.register_async("patient", |ms: u64| async move {
    ///     host::sleep(Duration::from_millis(ms)).await;
    ///     ms
    /// });
    /// ```
    ///
    /// # Panics
    /// As [`register`](Registry::register).
    #[track_caller]
    pub fn register_async<I, O, F>(
        &mut self,
        name: &str,
        function: impl Fn(I) -> F + Send + Sync + 'static,
    ) -> Function<I, O>
    where
        I: Travels,
        O: Travels,
        F: Future<Output = O> + Send + 'static,
    {
        let name: Arc<str> = name.into();
        let start = started::erased(Arc::clone(&name), function);
        self.add(name, Body::Async(Arc::new(start)))
    }

    #[track_caller]
    fn add<I, O>(&mut self, name: Arc<str>, body: Body) -> Function<I, O>
    where
        I: Serialize + DeserializeOwned + 'static,
        O: Serialize + DeserializeOwned + 'static,
    {
        let before = self.by_name.insert(Arc::clone(&name), self.entries.len());
        assert!(before.is_none(), "function {name:?} is registered twice");
        self.entries.push(Entry {
            name: Arc::clone(&name),
            input: describe_for::<I>(&name, "input"),
            output: describe_for::<O>(&name, "result"),
            body,
        });
        Function { name, types: PhantomData }
    }

    /// Returns the function of that name.
    #[must_use]
    pub fn lookup(&self, name: &str) -> Option<&Entry> {
        self.by_name.get(name).map(|&index| &self.entries[index])
    }

    /// Returns the functions in the order in which they were registered.
    #[must_use]
    pub fn entries(&self) -> impl ExactSizeIterator<Item = &Entry> {
        self.entries.iter()
    }

    /// Names and types of all functions, in the order in which they were registered: announced to
    /// another process before it is asked for calls.
    #[must_use]
    pub fn signatures(&self) -> Vec<Signature> {
        self.entries.iter().map(Entry::signature).collect()
    }

    /// Returns the first function that another process announced (its
    /// [`signatures`](Registry::signatures)) and that this one does not have, or has with other
    /// types. `None` when every one of them can be called here.
    ///
    /// A function that only this registry has is no difference.
    #[must_use]
    pub fn difference(&self, theirs: &[Signature]) -> Option<Difference> {
        theirs.iter().find_map(|their| {
            let ours = self.lookup(&their.name).map(Entry::signature);
            let same = ours.as_ref().is_some_and(|ours| ours.same_types(their));
            (!same).then(|| Difference { theirs: Some(their.clone()), ours })
        })
    }
}

#[track_caller]
pub(crate) fn describe_for<T: Serialize + DeserializeOwned>(
    function: &str,
    role: &str,
) -> Arc<Description> {
    let description = describe::<T>();
    if let Some(refusal) = description.refusal() {
        panic!("the {role} of function {function:?} cannot travel: {refusal}");
    }
    Arc::new(description)
}

/// Returns the type-erased form of `function`.
fn erased<I: DeserializeOwned + 'static, O: Serialize + 'static>(
    name: Arc<str>,
    function: impl Fn(I) -> O + Send + Sync + 'static,
) -> impl Fn(&[u8], &mut Vec<u8>) -> Result<(), FunctionError> + Send + Sync {
    move |input, output| {
        let before = output.len();
        host::spend_call(&name);
        // The closure only reads its captures, and `output` is cut back below, so no half-done
        // state is visible after a panic.
        let ran = catch_unwind(AssertUnwindSafe(|| {
            let input = decode::<I>(input)
                .map_err(|source| FunctionError::Input { function: Arc::clone(&name), source })?;
            encode_into_vec(&function(input), output)
                .map_err(|source| FunctionError::Output { function: Arc::clone(&name), source })
        }));
        let failed = match ran {
            Ok(Ok(_)) => return Ok(()),
            Ok(Err(error)) => error,
            Err(panic) => FunctionError::Panicked {
                function: Arc::clone(&name),
                message: panic_message(panic.as_ref()).into(),
            },
        };
        output.truncate(before);
        Err(failed)
    }
}

/// Returns the message of a caught panic.
#[must_use]
pub fn panic_message(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&'static str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("a panic without a message")
}

#[cfg(test)]
mod tests {
    use super::*;
    use chunkcomm_proto::codec::DecodeError;
    use serde::Deserialize;

    #[derive(Serialize, Deserialize)]
    struct Point {
        x: f32,
        y: f32,
    }

    fn sample() -> Registry {
        let mut registry = Registry::new();
        registry.register("sum", |point: Point| point.x + point.y);
        registry.register("fail", |_: ()| -> u8 { panic!("no {}", "luck") });
        registry.register("fail-plainly", |_: ()| -> u8 { panic!("plain") });
        registry
    }

    fn call(registry: &Registry, name: &str, input: &[u8]) -> Result<Vec<u8>, FunctionError> {
        let mut output = vec![7];
        let outcome = registry.lookup(name).unwrap().call(input, &mut output);
        assert_eq!(output[0], 7, "what was there stays");
        outcome.as_ref().err().iter().for_each(|_| assert_eq!(output.len(), 1));
        outcome.map(|()| output.split_off(1))
    }

    #[test]
    fn a_call_decodes_runs_and_appends() {
        let mut input = Vec::new();
        encode_into_vec(&Point { x: 1.5, y: 2.0 }, &mut input).unwrap();
        assert_eq!(call(&sample(), "sum", &input).unwrap(), 3.5f32.to_le_bytes());
    }

    #[test]
    fn wrong_bytes_are_an_error_that_names_the_function() {
        let error = call(&sample(), "sum", &[1, 2]).unwrap_err();
        assert_eq!(error.to_string(), "the input of function \"sum\" could not be decoded");
        assert!(matches!(error, FunctionError::Input { source: DecodeError::Short, .. }));
    }

    #[test]
    fn a_panic_is_caught_with_its_message() {
        for (name, message) in [("fail", "no luck"), ("fail-plainly", "plain")] {
            let error = call(&sample(), name, &[]).unwrap_err();
            assert_eq!(error.to_string(), format!("function {name:?} panicked: {message}"));
        }
    }

    #[test]
    #[should_panic(expected = "function \"sum\" is registered twice")]
    fn a_name_is_taken_once() {
        sample().register("sum", |number: u8| number);
    }

    #[test]
    #[should_panic(expected = "the result of function \"nothings\" cannot travel")]
    fn types_that_cannot_travel_are_refused() {
        Registry::new().register("nothings", |count: usize| vec![(); count]);
    }

    #[test]
    fn a_handle_is_of_one_function_with_its_types() {
        let (mut one, mut other) = (Registry::new(), Registry::new());
        let number = one.register("same", |number: u32| number);
        let text = other.register("same", |text: String| text);
        let entry = one.lookup("same").unwrap();
        assert!(entry.is(&number));
        assert!(!entry.is(&text));
    }

    #[test]
    fn registries_are_compared_by_name_and_types() {
        let ours = sample();
        assert_eq!(ours.difference(&ours.signatures()), None);

        let mut other = Registry::new();
        other.register("sum", |point: (f32, f64)| point.0);
        let difference = ours.difference(&other.signatures()).unwrap();
        let theirs = difference.theirs.unwrap();
        assert_eq!(theirs.name, "sum");
        assert_ne!(difference.ours.unwrap().input, theirs.input);

        let mut more = sample();
        more.register("more", |number: u8| number);
        assert_eq!(more.difference(&ours.signatures()), None, "more functions do no harm");
        let difference = ours.difference(&more.signatures()).unwrap();
        assert_eq!((difference.theirs.unwrap().name.as_str(), difference.ours), ("more", None));
    }
}
