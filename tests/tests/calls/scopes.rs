//! Deadlines and contexts of calls: they travel, and the calls made for a call inherit them.

use chunkcomm::{Node, host};
use chunkcomm_cluster::call::{
    CallContext, CallHooks, CallOptions, CallScope, ServiceOptions, set_call_hooks,
};
use chunkcomm_cluster::{CallClient, CallError, NodeExt, Service};
use chunkcomm_testkit::{Pair, limited, on_both, on_one_thread, pair, until};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Waker};
use std::time::Duration;
use tokio::sync::Semaphore;

/// The milliseconds left and the context, as a handler sees them.
type Sight = (Option<u64>, Vec<u8>);

fn sight() -> Sight {
    let scope = CallScope::current();
    let left = scope.left().map(|left| left.as_millis() as u64);
    (left, scope.context().as_bytes().to_vec())
}

/// Starts a service that returns what its handler sees, at once or after a wait.
fn looking(node: &Node) -> Service {
    let service = node.serve("sight", |waits: bool| async move {
        if waits {
            host::sleep(Duration::from_millis(5)).await;
        }
        Ok::<_, String>(sight())
    });
    service.unwrap()
}

fn client(pair: &Pair) -> CallClient<bool, Sight> {
    pair.b.call_client(&pair.peer, "sight").unwrap()
}

#[test]
fn a_handler_sees_what_is_left_and_the_context() {
    on_both(|| async {
        let pair = pair().await;
        let _service = looking(&pair.a);
        let sight = client(&pair);
        for waits in [false, true] {
            assert_eq!(limited(sight.call(&waits)).await.unwrap(), (None, Vec::new()));
            let limit = sight.clone().timeout(Duration::from_secs(60));
            let (left, context) = limited(limit.call(&waits)).await.unwrap();
            assert!(left.is_some_and(|left| (30_000..=60_000).contains(&left)), "{left:?}");
            assert!(context.is_empty());
            let scope = CallScope::default().with_context(b"trace").unwrap();
            let seen = limited(scope.run(sight.call(&waits))).await.unwrap();
            assert_eq!(seen, (None, b"trace".to_vec()));
            // The earlier deadline counts, whichever it is.
            let scope = CallScope::within(Duration::from_secs(10));
            let (left, _) = limited(scope.run(limit.call(&waits))).await.unwrap();
            assert!(left.is_some_and(|left| left <= 10_000), "{left:?}");
            let scope = CallScope::within(Duration::from_secs(600));
            let (left, _) = limited(scope.run(limit.call(&waits))).await.unwrap();
            assert!(left.is_some_and(|left| left <= 60_000), "{left:?}");
        }
        assert_eq!(sight_here(), (None, Vec::new()), "no scope is left behind");
        assert!(CallContext::new(&[1; 64]).is_some() && CallContext::new(&[1; 65]).is_none());
    });
}

fn sight_here() -> Sight {
    sight()
}

#[test]
fn calls_made_for_a_call_inherit_its_scope_also_in_tasks() {
    on_both(|| async {
        let pair = pair().await;
        let _service = looking(&pair.a);
        let inner = client(&pair);
        let outer = pair.b.serve("outer", move |spawns: bool| {
            // Also what is called before the handler's future is polled.
            let (inner, early) = (inner.clone(), sight());
            async move {
                let call =
                    async move { inner.call(&true).await.map_err(|error| error.to_string()) };
                let seen = if spawns {
                    let scoped = CallScope::current().run(call);
                    host::spawn(scoped).await.map_err(|error| error.to_string())?
                } else {
                    call.await
                };
                Ok::<_, String>((early, seen?))
            }
        });
        let _outer = outer.unwrap();
        let local = pair.b.local().await.unwrap();
        let outer = pair.b.call_client::<bool, (Sight, Sight)>(&local, "outer").unwrap();
        for spawns in [false, true] {
            let scope = CallScope::within(Duration::from_secs(20)).with_context(b"id").unwrap();
            let (early, seen) = limited(scope.run(outer.call(&spawns))).await.unwrap();
            for (left, context) in [early, seen] {
                assert!(left.is_some_and(|left| (5_000..=20_000).contains(&left)), "{left:?}");
                assert_eq!(context, b"id");
            }
        }
    });
}

#[test]
fn a_request_whose_deadline_passed_in_the_queue_is_not_handled() {
    on_one_thread(async {
        let pair = pair().await;
        let (gate, handled) = (Arc::new(Semaphore::new(0)), Arc::new(AtomicUsize::new(0)));
        let (opens, counts) = (Arc::clone(&gate), Arc::clone(&handled));
        let options = ServiceOptions::default().at_once(1);
        let service = pair.a.serve_with("one", options, move |number: u64| {
            let opens = Arc::clone(&opens);
            counts.fetch_add(1, Ordering::SeqCst);
            async move {
                opens.acquire().await.unwrap().forget();
                Ok::<_, String>(number)
            }
        });
        let service = service.unwrap();
        let client = pair.b.call_client::<u64, u64>(&pair.peer, "one").unwrap();
        let first = tokio::spawn({
            let client = client.clone();
            async move { client.call(&1).await }
        });
        until(|| handled.load(Ordering::SeqCst) == 1).await;
        let hasty = client.clone().timeout(Duration::from_millis(50));
        let late = tokio::spawn(async move { hasty.call(&2).await });
        until(|| service.stats().waiting == 1).await;
        // The client's thread is held up, so that its cancellation comes after the turn.
        std::thread::sleep(Duration::from_millis(80));
        gate.add_permits(2);
        assert_eq!(limited(first).await.unwrap().unwrap(), 1);
        let error = limited(late).await.unwrap().unwrap_err();
        assert!(
            matches!(&error, CallError::Timeout { after, .. } if after.as_millis() == 50),
            "{error}"
        );
        until(|| service.stats().at_once + service.stats().waiting == 0).await;
        assert_eq!(handled.load(Ordering::SeqCst), 1);
        let stats = service.stats();
        assert_eq!((stats.expired, stats.cancelled), (1, 0), "{stats:?}");
    });
}

/// Its words lie there together, as after a stop of the service.
#[test]
fn a_call_that_is_cancelled_or_late_before_it_is_read_is_not_handled() {
    on_one_thread(async {
        let pair = pair().await;
        let handled = Arc::new(AtomicUsize::new(0));
        let counts = Arc::clone(&handled);
        let service = pair.a.serve("busy", move |computes: bool| {
            counts.fetch_add(1, Ordering::SeqCst);
            if computes {
                std::thread::sleep(2 * CallScope::current().left().unwrap());
            }
            async { Ok::<_, String>(()) }
        });
        let service = service.unwrap();
        let client = pair.b.call_client::<bool, ()>(&pair.peer, "busy").unwrap();
        limited(client.call(&false)).await.unwrap();

        let limit = client.clone().timeout(Duration::from_secs(60));
        let mut calls: Vec<_> = (0..3).map(|_| limit.call(&false)).collect();
        for call in &mut calls {
            let mut context = Context::from_waker(Waker::noop());
            assert!(Pin::new(call).poll(&mut context).is_pending());
        }
        drop((calls.remove(2), calls.remove(0)));
        limited(calls.remove(0)).await.unwrap();
        until(|| service.stats().requests == 4).await;
        assert_eq!((handled.load(Ordering::SeqCst), service.stats().cancelled), (2, 2));

        // The first one computes until the deadline of both has passed.
        let limit = client.timeout(Duration::from_millis(50));
        let (first, second) = (limit.call(&true), limit.call(&false));
        let (_, second) = tokio::join!(limited(first), limited(second));
        assert!(matches!(second, Err(CallError::Timeout { .. })), "{second:?}");
        until(|| service.stats().requests == 6).await;
        assert_eq!((handled.load(Ordering::SeqCst), service.stats().expired), (3, 1));
    });
}

#[test]
fn a_call_after_the_deadline_is_not_sent() {
    on_both(|| async {
        let pair = pair().await;
        let service = looking(&pair.a);
        let sight = client(&pair);
        limited(sight.call(&false)).await.unwrap();
        let scope = CallScope::within(Duration::ZERO);
        let error = limited(scope.run(sight.call(&false))).await.unwrap_err();
        assert!(matches!(&error, CallError::Timeout { after, .. } if after.is_zero()), "{error}");
        assert_eq!(service.stats().requests, 1);
        // The scope's deadline ends a call that waits.
        let _slow = pair.a.serve("slow", |(): ()| std::future::pending::<Result<(), String>>());
        let slow = pair.b.call_client::<(), ()>(&pair.peer, "slow").unwrap();
        let scope = CallScope::within(Duration::from_millis(30));
        let error = limited(scope.run(slow.call(&()))).await.unwrap_err();
        assert!(matches!(&error, CallError::Timeout { after, .. } if !after.is_zero()), "{error}");
    });
}

/// Counts the calls of the services whose name begins with `hooked`; others have what they inherit.
struct Counts(AtomicUsize);

impl CallHooks for Counts {
    fn inject(&self, service: &str, inherited: &CallContext) -> CallContext {
        if !service.starts_with("hooked") {
            return *inherited;
        }
        let number = self.0.fetch_add(1, Ordering::SeqCst);
        CallContext::new(format!("{service} {number}").as_bytes()).unwrap()
    }

    fn extract(&self, _: &str, _: &CallContext) -> tracing::Span {
        tracing::Span::none()
    }
}

#[chunkcomm_cluster::service]
trait Contexts {
    async fn context(&self) -> Vec<u8>;
}

struct Here;

impl Contexts for Here {
    async fn context(&self) -> Vec<u8> {
        sight().1
    }
}

#[test]
fn hooks_fill_the_context_of_each_call() {
    on_one_thread(async {
        assert!(set_call_hooks(Counts(AtomicUsize::new(0))));
        assert!(!set_call_hooks(Counts(AtomicUsize::new(7))), "the first ones stay");
        let pair = pair().await;
        let service = pair.a.serve("hooked", |(): ()| async { Ok::<_, String>(sight().1) });
        let _service = service.unwrap();
        let client = pair.b.call_client::<(), Vec<u8>>(&pair.peer, "hooked").unwrap();
        for number in 0..3 {
            let context = limited(client.call(&())).await.unwrap();
            assert_eq!(context, format!("hooked {number}").as_bytes());
        }
        // Those of a trait by their methods.
        let _service = ContextsServer::new(Here).name("hooked too").serve(&pair.a).unwrap();
        let options = CallOptions::default();
        let client = ContextsClient::at_with(&pair.b, &pair.peer, "hooked too", options).unwrap();
        assert_eq!(limited(client.context()).await.unwrap(), b"hooked too.context 3");
    });
}
