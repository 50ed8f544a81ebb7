//! [`CallScope`]: the deadline and the context of a call, which the calls made for it inherit.

use crate::proto::call::CONTEXT_BYTES_MAX;
use crate::proto::call::wire::With;
use chunkcomm::host::Instant;
use std::cell::Cell;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::OnceLock;
use std::time::Duration;
use tracing::Span;

thread_local! {
    /// The scope of the handler that this thread polls.
    static CURRENT: Cell<Option<Box<CallScope>>> = const { Cell::new(None) };
}

static HOOKS: OnceLock<Box<dyn CallHooks>> = OnceLock::new();

/// Bytes that travel with a call, at most 64: an identifier of a trace, of a user or of a request.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct CallContext {
    bytes: Option<([u8; CONTEXT_BYTES_MAX], u8)>,
}

impl CallContext {
    /// Returns a context of these bytes; `None` if they are more than 64.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Option<CallContext> {
        let mut all = [0; CONTEXT_BYTES_MAX];
        all.get_mut(..bytes.len())?.copy_from_slice(bytes);
        let bytes = (!bytes.is_empty()).then_some((all, bytes.len() as u8));
        Some(CallContext { bytes })
    }

    /// Returns the bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.as_ref().map_or(&[], |(all, length)| &all[..usize::from(*length)])
    }

    /// Whether there are no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_none()
    }
}

impl fmt::Debug for CallContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(self.as_bytes()))
    }
}

/// The deadline and the context of the call that a handler answers.
///
/// Both travel with each call: the deadline as the time that is left, so that no clocks are compared.
/// Calls that are made within the handler's future inherit them: of two deadlines the earlier one counts.
/// [`CallScope::run`] carries them into a task that the handler spawns, and begins a scope where there is
/// none.
///
/// ```
/// use chunkcomm::{Node, host};
/// use chunkcomm_cluster::NodeExt;
/// use chunkcomm_cluster::call::CallScope;
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let node = Node::builder().build().await?;
/// let peer = node.local().await?;
/// let _service = node.serve("left", |(): ()| async {
///     let scope = CallScope::current();
///     // Calls of this task are made for the same call.
///     let spawned = host::spawn(scope.clone().run(async { CallScope::current().left() }));
///     let left = spawned.await.map_err(|error| error.to_string())?;
///     Ok::<_, String>((left.is_some(), scope.context().as_bytes().to_vec()))
/// })?;
/// let left = node.call_client::<(), (bool, Vec<u8>)>(&peer, "left")?;
/// assert_eq!(left.call(&()).await?, (false, Vec::new()));
///
/// let scope = CallScope::within(Duration::from_secs(5)).with_context(b"user 7").unwrap();
/// assert_eq!(scope.run(left.call(&())).await?, (true, b"user 7".to_vec()));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct CallScope {
    deadline: Option<Instant>,
    context: CallContext,
    /// The handler's span, as the hooks chose it.
    span: Option<Span>,
}

impl CallScope {
    /// Returns the scope of the present task: that of the call that its handler answers, or of the
    /// [`run`](Self::run) around it; else one without deadline and context.
    #[must_use]
    pub fn current() -> CallScope {
        with_current(|scope| scope.map_or_else(CallScope::default, Clone::clone))
    }

    /// Returns a scope whose deadline is `left` from now.
    #[must_use]
    pub fn within(left: Duration) -> CallScope {
        CallScope { deadline: Some(Instant::now() + left), ..CallScope::default() }
    }

    /// Sets the bytes that travel with the calls of this scope; `None` if they are more than 64.
    #[must_use]
    pub fn with_context(self, bytes: &[u8]) -> Option<CallScope> {
        Some(CallScope { context: CallContext::new(bytes)?, ..self })
    }

    /// Returns the deadline; `None` if there is none.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Returns the time to the deadline, zero if it has passed; `None` if there is none. The time that the
    /// request waited for its turn is spent.
    #[must_use]
    pub fn left(&self) -> Option<Duration> {
        self.deadline.map(|deadline| deadline - Instant::now())
    }

    /// Returns the context.
    #[must_use]
    pub fn context(&self) -> &CallContext {
        &self.context
    }

    /// Runs `future` in this scope: the calls that it makes inherit deadline and context. If there is a
    /// scope around it with an earlier deadline, that one stays. The future itself is not stopped at the
    /// deadline.
    ///
    /// # Cancel safety
    ///
    /// That of `future`.
    pub async fn run<F: Future>(mut self, future: F) -> F::Output {
        let outer = with_current(|scope| scope.and_then(|scope| scope.deadline));
        self.deadline = earlier(self.deadline, outer);
        let (mut scope, mut future) = (Some(Box::new(self)), pin!(future));
        poll_fn(|context| enter(&mut scope, || future.as_mut().poll(context))).await
    }

    /// Returns the scope of a call that came with this, in the memory of an earlier one if there is some.
    pub(super) fn arrived(
        service: &str,
        with: With<'_>,
        spare: Option<Box<CallScope>>,
    ) -> Box<CallScope> {
        let context = CallContext::new(with.context).unwrap_or_default();
        let left = with.left_ms.map(|ms| Duration::from_millis(u64::from(ms)));
        let deadline = left.map(|left| Instant::now() + left);
        let hooks = HOOKS.get().filter(|_| !context.is_empty());
        let span = hooks.map(|hooks| hooks.extract(service, &context));
        let mut scope = spare.unwrap_or_default();
        *scope = CallScope { deadline, context, span };
        scope
    }

    /// Whether the deadline has passed.
    pub(super) fn is_over(&self) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= Instant::now())
    }
}

/// Fills the context of calls, and reads it: for tracing.
///
/// [`set_call_hooks`] sets them, once a process.
pub trait CallHooks: Send + Sync + 'static {
    /// Returns the context of a call of `service` that is about to leave. `inherited` is that of the scope
    /// around the call.
    fn inject(&self, service: &str, inherited: &CallContext) -> CallContext;

    /// Returns the span in which the handler of a call of `service` runs that came with `context`.
    fn extract(&self, service: &str, context: &CallContext) -> Span;
}

/// Sets the hooks of all calls of this process. False if there were some: they stay.
pub fn set_call_hooks(hooks: impl CallHooks) -> bool {
    HOOKS.set(Box::new(hooks)).is_ok()
}

/// Returns the scope that a call made now inherits, its context as the hooks fill it; `None` without a
/// scope and hooks.
#[inline]
pub(super) fn inherited(service: &str) -> Option<Box<CallScope>> {
    let hooks = HOOKS.get();
    let scope = CURRENT.take();
    if scope.is_none() && hooks.is_none() {
        return None;
    }
    let mut inherits = scope.clone().unwrap_or_default();
    CURRENT.set(scope);
    if let Some(hooks) = hooks {
        inherits.context = hooks.inject(service, &inherits.context);
    }
    Some(inherits)
}

/// Returns the earlier of two deadlines.
fn earlier(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

fn with_current<R>(look: impl FnOnce(Option<&CallScope>) -> R) -> R {
    CURRENT.with(|current| {
        let scope = current.take();
        let result = look(scope.as_deref());
        current.set(scope);
        result
    })
}

/// Does `act` within `scope`, if there is one.
#[inline]
pub(super) fn enter<R>(scope: &mut Option<Box<CallScope>>, act: impl FnOnce() -> R) -> R {
    if scope.is_none() { act() } else { enter_scope(scope, act) }
}

fn enter_scope<R>(scope: &mut Option<Box<CallScope>>, act: impl FnOnce() -> R) -> R {
    let span = scope.as_ref().and_then(|scope| scope.span.clone());
    let _entered = span.as_ref().map(Span::enter);
    let outer = CURRENT.replace(scope.take());
    let _within = Within { scope, outer };
    act()
}

/// Takes the scope back when the act is over, also by a panic.
struct Within<'a> {
    scope: &'a mut Option<Box<CallScope>>,
    outer: Option<Box<CallScope>>,
}

impl Drop for Within<'_> {
    fn drop(&mut self) {
        *self.scope = CURRENT.replace(self.outer.take());
    }
}
