//! SR's operations: called or sent to, and accepted by guards and priorities (G. Andrews, R. Olsson:
//! *The SR Programming Language*, 1993).
//!
//! | in SR | here |
//! |---|---|
//! | `in a(x) and g(x) by p(x) -> .. [] b() -> .. ni` | `match resource.accept([a.arm(In::A, fits), b.arm(In::B, fits)]).await? { .. }` |
//! | `[] else`; `?a`; `reply`; `forward` | [`Resource::try_accept`]; [`Operation::waiting`]; [`Invocation::reply`]; a task that calls, then replies |
//!
//! A `send` is a call that is answered when its invocation waits. Therefore the invocations of a
//! capability wait in the order in which they began, in both forms, and a `send`, too, fails when the
//! owner dies. With a channel for the sends they would need no answer, and neither would hold.

use chunkcomm::host;
use chunkcomm::layer::{Bell, Wait};
use chunkcomm_cluster::call::ServiceOptions;
use chunkcomm_cluster::cluster::{End, NameError, NodeId};
use chunkcomm_cluster::{CallClient, CallError, Cluster, NodeExt as _, Service};
use serde::{Serialize, de::DeserializeOwned};
use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;

use super::sole::{Sole, withdrawn};

/// Most calls of an operation that wait; as many sends more. A further one is an error at its caller.
pub const WAITING_MAX: usize = 65_536;

/// Wait for an answer once the owner has withdrawn its operation: by way of the manager that word may
/// overtake the last answers.
const LAST_ANSWER: Duration = Duration::from_secs(1);

/// Number of the next invocation: all arms together take the oldest first.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// Arguments and results.
pub trait Value: Serialize + DeserializeOwned + Send + 'static {}
impl<T: Serialize + DeserializeOwned + Send + 'static> Value for T {}

/// Owner of operations, on this node.
pub struct Resource {
    cluster: Cluster,
    changed: Arc<Bell>,
}

impl Resource {
    /// Makes a resource.
    pub fn create(cluster: &Cluster) -> Resource {
        Resource { cluster: cluster.clone(), changed: Arc::default() }
    }

    /// Makes an operation, until it is dropped. No other of the cluster has its name meanwhile. Errors are
    /// those of [`Cluster::serve`] and [`Cluster::provide_sole`].
    pub async fn operation<A: Value, O: Value>(
        &self,
        name: &str,
    ) -> Result<Operation<A, O>, NameError> {
        let (changed, waiting) = (Arc::clone(&self.changed), Mutex::default());
        let queue = Arc::new(Queue { changed, waiting, count: 0.into() });
        let invoked = Arc::clone(&queue);
        let handler = move |(is_call, args)| Arc::clone(&invoked).handle(is_call, args);
        // A request that the service itself held back could not be chosen.
        let options = ServiceOptions::default().at_once(usize::MAX);
        let service = self.cluster.node().serve_with(name, options, handler);
        let service = service.map_err(NameError::Serve)?;
        let sole = Sole::provide(&self.cluster, name).await?;
        Ok(Operation { queue, service, _sole: sole })
    }

    /// Takes an invocation of this resource that fits: of all arms that of least priority, then the
    /// oldest. Waits, and looks again when one arrives; `explain` shows how many wait and do not fit.
    /// The error is the end of the cluster. Dropped, it has taken none.
    pub async fn accept<'a, T: 'a>(&self, arms: impl AsRef<[Arm<'a, T>]>) -> Result<T, NameError> {
        let (mut wait, mut changes) = (None, self.cluster.changes());
        let taken = self.changed.until(move || {
            let taken = self.try_accept(&arms);
            if taken.is_none() {
                let begin = || Wait::begin(self.cluster.node(), String::new());
                let arms: Vec<_> = arms.as_ref().iter().map(|arm| (arm.report)()).collect();
                let what = format!("an invocation that fits: {}", arms.join(", "));
                wait.get_or_insert_with(begin).goes_on_for(what);
            }
            taken
        });
        let ended = async { while changes.next().await.is_some() {} };
        let taken = tokio::select! { biased; taken = taken => Some(taken), () = ended => None };
        taken.ok_or_else(|| NameError::Ended(self.cluster.ended().unwrap_or(End::Left)))
    }

    /// Takes an invocation as [`Resource::accept`], or none if none fits now.
    pub fn try_accept<'a, T: 'a>(&self, arms: impl AsRef<[Arm<'a, T>]>) -> Option<T> {
        let fit = || arms.as_ref().iter().filter_map(|arm| Some(((arm.first)()?, arm)));
        let first = || fit().min_by_key(|(first, _)| *first);
        std::iter::from_fn(first).find_map(|((_, number), arm)| (arm.take)(number))
    }
}

/// An operation, at its owner.
pub struct Operation<A, O> {
    queue: Arc<Queue<A, O>>,
    service: Service,
    /// Withdrawn last: nobody else has the name while this one answers.
    _sole: Sole,
}

/// Invocations that wait, by their number.
struct Queue<A, O> {
    changed: Arc<Bell>,
    waiting: Mutex<BTreeMap<u64, Invocation<A, O>>>,
    count: AtomicUsize, // apart, so that a guard may ask for it
}

impl<A, O> Queue<A, O> {
    fn with<R>(&self, act: impl FnOnce(&mut BTreeMap<u64, Invocation<A, O>>) -> R) -> R {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let done = act(&mut waiting);
        self.count.store(waiting.len(), Relaxed);
        done
    }

    /// Handles a request. It is dropped when the caller waits no more.
    async fn handle(self: Arc<Self>, is_call: bool, args: A) -> Result<Option<O>, String> {
        let most = if is_call { WAITING_MAX } else { 2 * WAITING_MAX };
        if self.count.load(Relaxed) >= most {
            return Err(format!("{most} invocations wait already"));
        }
        let (caller, reply) = oneshot::channel();
        let invocation = Invocation { args, caller: is_call.then_some(caller) };
        let number = NEXT.fetch_add(1, Relaxed);
        self.with(|waiting| waiting.insert(number, invocation));
        self.changed.ring();
        if !is_call {
            return Ok(None);
        }
        let _withdraws = Withdraws(&self, number);
        reply.await.map(Some).map_err(|_| "the owner dropped the invocation unanswered".into())
    }
}

/// Removes an invocation that still waits, when it is dropped.
struct Withdraws<'a, A, O>(&'a Queue<A, O>, u64);

impl<A, O> Drop for Withdraws<'_, A, O> {
    fn drop(&mut self) {
        if self.0.with(|waiting| waiting.remove(&self.1)).is_some() {
            self.0.changed.ring(); // guards may count those that wait
        }
    }
}

impl<A: Send, O: Send> Operation<A, O> {
    /// Returns the arm of an [`accept`](Resource::accept) that takes the invocations for whose
    /// arguments `fits` returns a priority, and makes them `into` what the accept returns.
    pub fn arm<'a, T>(
        &'a self,
        into: impl Fn(Invocation<A, O>) -> T + Send + 'a,
        fits: impl Fn(&A) -> Option<i64> + Send + 'a,
    ) -> Arm<'a, T> {
        let Operation { queue, service, .. } = self;
        let fit = move |(number, it): (&u64, &Invocation<A, O>)| Some((fits(&it.args)?, *number));
        Arm {
            first: Box::new(move || queue.with(|waiting| waiting.iter().filter_map(&fit).min())),
            take: Box::new(move |number| queue.with(|waiting| waiting.remove(&number)).map(&into)),
            report: Box::new(move || format!("{} ({} wait)", service.name(), self.waiting())),
        }
    }

    /// Returns the number of invocations that wait. Guards may ask for it.
    pub fn waiting(&self) -> usize {
        self.queue.count.load(Relaxed)
    }
}

/// An operation in an [`accept`](Resource::accept), and its invocations that fit.
pub struct Arm<'a, T> {
    first: Box<dyn Fn() -> Option<(i64, u64)> + Send + 'a>,
    take: Box<dyn Fn(u64) -> Option<T> + Send + 'a>,
    report: Box<dyn Fn() -> String + Send + 'a>,
}

/// An accepted invocation. Dropped without a reply, it is an error at its caller.
pub struct Invocation<A, O> {
    /// Its arguments.
    pub args: A,
    caller: Option<oneshot::Sender<O>>,
}

impl<A, O> Invocation<A, O> {
    /// Ends the call with `result`, at once or after other invocations; a `send` takes no notice. If
    /// the caller has dropped its call, or died, `result` comes back. Both may also happen later.
    pub fn reply(&mut self, result: O) -> Result<(), O> {
        self.caller.take().map_or(Ok(()), |caller| caller.send(result))
    }
}

/// Right to invoke an operation, from any node of the cluster.
///
/// A call or send fails when the owner died, dropped the operation, or has other types; a call also when
/// its invocation is dropped. Dropped, it withdraws the invocation, unless it was accepted; that of a send may stay.
#[derive(Clone)]
pub struct Capability<A, O> {
    client: CallClient<(bool, A), Option<O>>,
    cluster: Cluster,
    owner: NodeId,
}

impl<A: Value, O: Value> Capability<A, O> {
    /// Returns the capability of the operation of this name; waits until an owner has made it.
    pub async fn find(cluster: &Cluster, name: &str) -> Result<Capability<A, O>, CallError> {
        let nobody = |why: String| CallError::NoProvider { service: name.into(), why: Some(why) };
        let owner = cluster.provider(name).await.map_err(|why| nobody(why.to_string()))?;
        let client = cluster.call_client_at(owner.rank, name).await?;
        Ok(Capability { client, cluster: cluster.clone(), owner })
    }

    /// Invokes the operation, and waits until the owner has replied.
    pub async fn call(&self, args: A) -> Result<O, CallError> {
        let (service, text) = (self.client.service().into(), "it takes the call for a send".into());
        self.invoke((true, args)).await?.ok_or(CallError::Failed { service, text })
    }

    /// Invokes the operation, and waits until the invocation waits at the owner.
    pub async fn send(&self, args: A) -> Result<(), CallError> {
        self.invoke((false, args)).await.map(drop)
    }

    /// Waits for the answer as long as the owner has the operation.
    async fn invoke(&self, request: (bool, A)) -> Result<Option<O>, CallError> {
        let service = self.client.service();
        let mut call = pin!(self.client.call(&request));
        tokio::select! {
            biased;
            answer = &mut call => return answer,
            _ = withdrawn(&self.cluster, service, self.owner) => {}
        }
        let ended = || CallError::Ended { service: service.into(), peer: self.owner.to_string() };
        host::timeout(LAST_ANSWER, call).await.unwrap_or_else(|_| Err(ended()))
    }
}

/// SR's `sem`: an operation, whose argument says whether it is a `P`.
pub type Semaphore = Capability<bool, ()>;

impl Semaphore {
    /// Makes a semaphore of this count on this node. It lasts as long as the cluster.
    pub async fn create(on: &Cluster, name: &str, mut count: u64) -> Result<(), NameError> {
        let resource = Resource::create(on);
        let operation = resource.operation::<bool, ()>(name).await?;
        host::spawn(async move {
            let arm = |count| operation.arm(|it| it, move |p| (!p || count > 0).then_some(0));
            while let Ok(mut accepted) = resource.accept([arm(count)]).await {
                if accepted.reply(()).is_ok() {
                    count = if accepted.args { count - 1 } else { count + 1 };
                }
            }
        });
        Ok(())
    }

    /// Takes 1 from the count once it is not 0. Dropped, it gives the 1 back when it has got it.
    pub async fn p(&self) -> Result<(), CallError> {
        let (semaphore, (tell, told)) = (self.clone(), oneshot::channel());
        let (take, taken) = oneshot::channel::<()>();
        host::spawn(async move {
            let granted = semaphore.call(true).await;
            let _ = tell.send(granted.clone());
            if granted.is_ok() && taken.await.is_err() {
                let _ = semaphore.v().await;
            }
        });
        let Ok(granted) = told.await else { return std::future::pending().await };
        let _ = take.send(());
        granted
    }

    /// Adds 1 to the count.
    pub async fn v(&self) -> Result<(), CallError> {
        self.send(false).await
    }
}
