//! Calls of async functions.

use super::{FunctionError, panic_message};
use chunkcomm::host;
use chunkcomm_proto::codec::{decode, encode_into_vec};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

type Encoded = Result<Vec<u8>, FunctionError>;

/// A call of an async function, made by [`Entry::start`](super::Entry::start). It resolves to the
/// encoded result.
///
/// A panic of the function is an error here, as in [`Entry::call`](super::Entry::call). Dropping this
/// drops what the function holds.
#[must_use = "a function runs as far as this is polled"]
pub struct Started {
    function: Arc<str>,
    /// `None` after the end.
    call: Option<Pin<Box<dyn Future<Output = Encoded> + Send>>>,
}

impl fmt::Debug for Started {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Started").field(&self.function).finish()
    }
}

impl Future for Started {
    type Output = Result<Vec<u8>, FunctionError>;

    /// # Panics
    /// When it is polled after its end.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let call = self.call.as_mut().expect("a call that has ended is not polled");
        // After a panic the function is dropped, so that no half-done state is visible.
        let polled = catch_unwind(AssertUnwindSafe(|| call.as_mut().poll(context)));
        let ended = match polled {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(ended)) => ended,
            Err(panic) => Err(panicked(&self.function, panic.as_ref())),
        };
        self.call = None;
        Poll::Ready(ended)
    }
}

/// Returns the type-erased form of an async function.
pub(super) fn erased<I, O, F>(
    function: Arc<str>,
    call: impl Fn(I) -> F + Send + Sync + 'static,
) -> impl Fn(&[u8]) -> Started + Send + Sync
where
    I: DeserializeOwned + 'static,
    O: Serialize + 'static,
    F: Future<Output = O> + Send + 'static,
{
    move |input| {
        let name = Arc::clone(&function);
        host::spend_call(&name);
        // As in `Started::poll`.
        let begun = catch_unwind(AssertUnwindSafe(|| decode::<I>(input).map(&call)));
        let run = async move {
            let result = match begun {
                Ok(Ok(future)) => future.await,
                Ok(Err(source)) => return Err(FunctionError::Input { function: name, source }),
                Err(panic) => return Err(panicked(&name, panic.as_ref())),
            };
            let mut encoded = Vec::new();
            match encode_into_vec(&result, &mut encoded) {
                Ok(_) => Ok(encoded),
                Err(source) => Err(FunctionError::Output { function: name, source }),
            }
        };
        Started { function: Arc::clone(&function), call: Some(Box::pin(run)) }
    }
}

fn panicked(function: &Arc<str>, panic: &(dyn Any + Send)) -> FunctionError {
    let message = panic_message(panic).into();
    FunctionError::Panicked { function: Arc::clone(function), message }
}

/// Polls a call once, and appends its result.
pub(super) fn at_once(mut call: Started, output: &mut Vec<u8>) -> Result<(), FunctionError> {
    match Pin::new(&mut call).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(ended) => ended.map(|encoded| output.extend_from_slice(&encoded)),
        Poll::Pending => Err(FunctionError::Waits { function: call.function }),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Registry;
    use super::*;
    use chunkcomm_proto::codec::DecodeError;
    use std::future::ready;

    fn registry() -> Registry {
        let mut registry = Registry::new();
        registry.register_async("double", |number: u32| async move {
            tokio::task::yield_now().await;
            number * 2
        });
        registry.register_async("at-once", |number: u32| ready(number + 1));
        registry.register_async("fail", |(): ()| async {
            tokio::task::yield_now().await;
            if true {
                panic!("no luck");
            }
        });
        registry.register("plain", |(): ()| ());
        registry
    }

    async fn run(name: &str, input: &[u8]) -> Encoded {
        registry().lookup(name).unwrap().start(input).unwrap().await
    }

    #[tokio::test]
    async fn an_async_function_runs_to_its_encoded_result() {
        assert_eq!(run("double", &21u32.to_le_bytes()).await.unwrap(), 42u32.to_le_bytes());
        let error = run("double", &[1]).await.unwrap_err();
        assert!(
            matches!(error, FunctionError::Input { source: DecodeError::Short, .. }),
            "{error}"
        );
        let error = run("fail", &[]).await.unwrap_err();
        assert_eq!(error.to_string(), "function \"fail\" panicked: no luck");
        assert!(registry().lookup("plain").unwrap().start(&[]).is_none());
    }

    #[test]
    fn a_caller_that_does_not_wait_gets_what_is_there_at_once() {
        let (registry, mut output) = (registry(), vec![7]);
        let call = |name: &str, output: &mut Vec<u8>| {
            let entry = registry.lookup(name).unwrap();
            assert!(entry.is_async());
            entry.call(&1u32.to_le_bytes(), output)
        };
        call("at-once", &mut output).unwrap();
        assert_eq!(output, [7, 2, 0, 0, 0]);
        let error = call("double", &mut output).unwrap_err();
        assert_eq!(error.to_string(), "function \"double\" waits, and its caller does not");
        assert_eq!(output.len(), 5);
    }
}
