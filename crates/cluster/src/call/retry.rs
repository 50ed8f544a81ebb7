//! [`CallRetry`]: the retry of calls that may be made again.

use super::error::{CallError, Called};
use super::form::Method;
use chunkcomm::host;
use chunkcomm_proto::backoff::Backoff;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tower::BoxError;
use tower::retry::Policy;
use tower::retry::budget::{Budget, TpsBudget};

/// Retries of a call by default.
const RETRIES: u32 = 10;

/// An error that may be that of a call: [`CallError`], [`Called`], and a [`BoxError`] around a [`CallError`].
pub trait OfCall {
    /// Returns the error of the call.
    fn of_call(&self) -> Option<&CallError>;
}

impl OfCall for CallError {
    fn of_call(&self) -> Option<&CallError> {
        Some(self)
    }
}

impl<E> OfCall for Called<E> {
    fn of_call(&self) -> Option<&CallError> {
        self.call_error()
    }
}

impl OfCall for BoxError {
    fn of_call(&self) -> Option<&CallError> {
        self.downcast_ref()
    }
}

/// A policy of [`tower::retry`]: calls are made again only where that does no harm and may succeed.
///
/// - The error is not [permanent](CallError::is_permanent), and
///   [nobody has handled](CallError::was_not_handled) the call or its method is `#[idempotent]`. Errors of the
///   service and of other layers are not retried.
/// - Before a retry it waits, at random up to 10 ms at first, twice as long each time, up to 1 s.
/// - The budget of all clones is tower's [`TpsBudget`]: by default 10 retries a second, and one for every five
///   answers.
/// - A call is retried 10 times at most, by default.
#[derive(Clone)]
pub struct CallRetry {
    method: Option<Method>,
    /// Seed of the next call that is retried.
    seeds: Arc<AtomicU64>,
    budget: Arc<TpsBudget>,
    retries: u32,
    /// Of the call of this clone: `Retry` clones its policy for each.
    backoff: Option<Backoff>,
}

impl fmt::Debug for CallRetry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallRetry")
            .field("method", &self.method)
            .field("retries", &self.retries)
            .finish_non_exhaustive()
    }
}

impl CallRetry {
    /// Returns the policy for a method, or for a closure, whose calls are repeated if nobody has handled them.
    /// Another `seed` gives other waits.
    #[must_use]
    pub fn new(method: Option<Method>, seed: u64) -> CallRetry {
        let (seeds, budget) = (Arc::new(AtomicU64::new(seed)), Arc::default());
        CallRetry { method, seeds, budget, retries: RETRIES, backoff: None }
    }

    /// Sets the retries of a call, at most.
    #[must_use]
    pub fn retries(self, retries: u32) -> CallRetry {
        CallRetry { retries, ..self }
    }

    /// Sets the budget of all calls.
    #[must_use]
    pub fn budget(self, budget: TpsBudget) -> CallRetry {
        CallRetry { budget: Arc::new(budget), ..self }
    }

    fn may_repeat(&self, error: &CallError) -> bool {
        match &self.method {
            Some(method) => method.may_repeat(error),
            None => error.was_not_handled() && !error.is_permanent(),
        }
    }
}

impl<Req: Clone, Resp, E: OfCall> Policy<Req, Resp, E> for CallRetry {
    type Future = Pin<Box<dyn Future<Output = ()> + Send>>;

    fn retry(&mut self, _: &mut Req, result: &mut Result<Resp, E>) -> Option<Self::Future> {
        let error = match result {
            Ok(_) => {
                self.budget.deposit();
                return None;
            }
            Err(error) => error.of_call()?,
        };
        if self.retries == 0 || !self.may_repeat(error) || !self.budget.withdraw() {
            return None;
        }
        self.retries -= 1;
        let seeds = &self.seeds;
        let backoff =
            self.backoff.get_or_insert_with(|| Backoff::new(seeds.fetch_add(1, Ordering::Relaxed)));
        Some(Box::pin(host::sleep(backoff.wait())))
    }

    fn clone_request(&mut self, request: &Req) -> Option<Req> {
        Some(request.clone())
    }
}
