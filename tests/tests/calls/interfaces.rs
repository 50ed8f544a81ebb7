//! Services whose interface is a trait: one line for all methods, errors of the service with their types, and
//! versions of a service that live beside each other.

use chunkcomm::Node;
use chunkcomm_cluster::call::{CallOptions, CallScope, Method, ServiceOptions};
use chunkcomm_cluster::{
    Arriving, CallError, Called, MovingReport, NodeExt, TravellingReceiver, TravellingSender,
};
use chunkcomm_testkit::{Pair, limited, memory, on_both, pair, pair_of, tcp, until};
use serde::{Deserialize, Serialize};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;
use tokio::sync::Semaphore;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
enum StoreError {
    Full { keys: u64 },
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let StoreError::Full { keys } = self;
        write!(f, "{keys} keys are enough")
    }
}

impl std::error::Error for StoreError {}

/// A store, as its clients see it.
#[chunkcomm_cluster::service]
trait Store {
    /// Returns the value of a key.
    #[idempotent]
    async fn get(&self, key: String) -> Result<Option<Vec<u8>>, StoreError>;
    async fn put(&self, key: String, value: Vec<u8>) -> Result<u64, StoreError>;
    /// Sends the keys that begin with this, those there are and then those that come.
    async fn follow(&self, prefix: String) -> TravellingReceiver<String>;
    async fn report_to(&self, to: TravellingSender<u64>);
    #[idempotent]
    async fn len(&self) -> u64;
    async fn left_ms(&self, service: String, request: u64) -> Option<u64>;
    async fn wait(&self);
    async fn r#type(&self, panics: bool) -> String;
}

struct Memory {
    node: Node,
    values: Mutex<BTreeMap<String, Vec<u8>>>,
    gate: Semaphore,
    waiting: Arc<AtomicUsize>,
}

impl Memory {
    fn new(node: &Node) -> Memory {
        let (node, gate) = (node.clone(), Semaphore::new(0));
        Memory { node, values: Mutex::default(), gate, waiting: Arc::default() }
    }
}

/// Counts the handlers that exist.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Store for Memory {
    async fn get(&self, key: String) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.values.lock().unwrap().get(&key).cloned())
    }

    async fn put(&self, key: String, value: Vec<u8>) -> Result<u64, StoreError> {
        let mut values = self.values.lock().unwrap();
        if values.len() >= 3 {
            return Err(StoreError::Full { keys: 3 });
        }
        values.insert(key, value);
        Ok(values.len() as u64)
    }

    async fn follow(&self, prefix: String) -> TravellingReceiver<String> {
        let (there, here) = self.node.travelling_receiver().unwrap();
        let keys: Vec<_> = self.values.lock().unwrap().keys().cloned().collect();
        tokio::spawn(async move {
            let mut sender = here.connect().await.unwrap();
            for key in keys.into_iter().filter(|key| key.starts_with(&prefix)) {
                sender.send(&key).await.unwrap();
            }
        });
        there
    }

    async fn report_to(&self, to: TravellingSender<u64>) {
        let len = self.len().await;
        to.connect().await.unwrap().send(&len).await.unwrap();
    }

    async fn len(&self) -> u64 {
        self.values.lock().unwrap().len() as u64
    }

    async fn left_ms(&self, service: String, request: u64) -> Option<u64> {
        assert_eq!((&*service, request), ("users", 7), "arguments may have any name");
        CallScope::current().left().map(|left| left.as_millis() as u64)
    }

    async fn wait(&self) {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let _counted = Counted(Arc::clone(&self.waiting));
        self.gate.acquire().await.unwrap().forget();
    }

    async fn r#type(&self, panics: bool) -> String {
        assert!(!panics, "as was asked for");
        "memory".to_owned()
    }
}

const LONG: Duration = Duration::from_secs(60);

/// Returns a client of a store at node `a`.
fn client(pair: &Pair) -> StoreClient {
    StoreClient::at(&pair.b, &pair.peer).unwrap()
}

fn key(name: &str) -> (String, Vec<u8>) {
    (name.to_owned(), name.to_uppercase().into_bytes())
}

#[test]
fn methods_return_what_their_implementation_does() {
    on_both(|| async {
        let pair = pair().await;
        let service = StoreServer::new(Memory::new(&pair.a)).serve(&pair.a).unwrap();
        assert_eq!(service.name(), "Store");
        let store = client(&pair);
        for (count, name) in ["one", "two", "three"].into_iter().enumerate() {
            let (key, value) = key(name);
            let put = limited(store.put(key, value)).await.unwrap();
            assert_eq!(put, count as u64 + 1);
        }
        assert_eq!(limited(store.get("two".into())).await.unwrap().unwrap(), b"TWO");
        assert_eq!(limited(store.get("none".into())).await.unwrap(), None);
        assert_eq!(limited(store.len()).await.unwrap(), 3);
        assert_eq!(limited(store.r#type(false)).await.unwrap(), "memory");
        // The service's own error, with its type.
        let (key, value) = key("four");
        let error = limited(store.put(key, value)).await.unwrap_err();
        assert!(matches!(error, Called::Service(StoreError::Full { keys: 3 })), "{error}");
        assert_eq!(error.to_string(), "3 keys are enough");
        // An error of the call names the method.
        let error = limited(store.r#type(true)).await.unwrap_err();
        let text = "the handler of service \"Store.type\" panicked: as was asked for";
        assert_eq!(error.to_string(), text);
        // All methods have one line.
        let channels = pair.b.explain().await.to_string();
        assert_eq!(channels.matches("to service \"Store\"").count(), 1, "{channels}");
        limited(service.close(LONG)).await.unwrap();
        let hasty = CallOptions::default().served_within(Duration::ZERO);
        let gone = StoreClient::at_with(&pair.b, &pair.peer, "Store", hasty).unwrap();
        let error = limited(gone.get("one".into())).await.unwrap_err();
        assert!(matches!(error.call_error(), Some(CallError::NoService { .. })), "{error}");
        assert_eq!(error.to_string(), "a has no service \"Store\"");
    });
}

#[test]
fn a_service_of_another_name_is_another() {
    on_both(|| async {
        let pair = pair().await;
        let server = || StoreServer::new(Memory::new(&pair.a));
        let _users = server().name("users").serve(&pair.a).unwrap();
        let options = ServiceOptions::default().at_once(1);
        let _others = server().options(options).name("others").serve(&pair.a).unwrap();
        let at =
            |name| StoreClient::at_with(&pair.b, &pair.peer, name, CallOptions::default()).unwrap();
        let (users, others) = (at("users"), at("others"));
        let (key, value) = key("one");
        limited(users.put(key, value)).await.unwrap();
        assert_eq!(limited(users.len()).await.unwrap(), 1);
        assert_eq!(limited(others.clone().len()).await.unwrap(), 0);
    });
}

#[test]
fn limits_and_cancellations_are_those_of_calls() {
    on_both(|| async {
        let pair = pair().await;
        let memory = Memory::new(&pair.a);
        let waiting = Arc::clone(&memory.waiting);
        let service = StoreServer::new(memory).serve(&pair.a).unwrap();
        let store = client(&pair);
        let left = || store.left_ms("users".into(), 7);
        assert_eq!(limited(left()).await.unwrap(), None);
        let limit = Duration::from_secs(500);
        let limited_left = limited(CallScope::within(limit).run(left())).await.unwrap().unwrap();
        assert!((400_000..=500_000).contains(&limited_left), "{limited_left}");
        let hasty = store.clone().timeout(Duration::from_millis(20));
        let error = limited(hasty.wait()).await.unwrap_err();
        assert_eq!(error.to_string(), "service \"Store.wait\" did not answer within 20ms");
        until(|| waiting.load(Ordering::SeqCst) == 0 && service.stats().cancelled == 1).await;
        let waits = tokio::spawn(async move { store.wait().await });
        until(|| waiting.load(Ordering::SeqCst) == 1).await;
        waits.abort();
        until(|| waiting.load(Ordering::SeqCst) == 0).await;
        assert_eq!(service.stats().cancelled, 2);
        let stats = service.method_stats();
        let of = |name: &str| stats.iter().find(|it| &*it.name == name).unwrap();
        assert_eq!((of("Store.wait").requests, of("Store.wait").cancelled), (2, 2));
        assert_eq!((of("Store.left_ms").requests, of("Store.len").requests), (2, 0));
    });
}

/// Checks that nothing of moved ends is left at these nodes.
async fn nothing_is_left(nodes: &[&Node]) {
    for node in nodes {
        until(|| node.moving_report() == MovingReport::default()).await;
    }
}

async fn all<T: serde::de::DeserializeOwned>(mut from: Arriving<T>) -> Vec<T> {
    let mut all = Vec::new();
    while let Some(value) = limited(from.recv()).await.unwrap() {
        all.push(value);
    }
    all
}

#[test]
fn streams_are_ends_that_travel_in_results_and_in_arguments() {
    for address in [tcp, memory] {
        on_both(|| async move {
            let b = Node::builder().listen(address());
            let pair = pair_of(address(), Node::builder(), b).await;
            let service = StoreServer::new(Memory::new(&pair.a)).serve(&pair.a).unwrap();
            let store = client(&pair);
            for name in ["a1", "b1", "a2"] {
                let (key, value) = key(name);
                limited(store.put(key, value)).await.unwrap();
            }
            for prefix in ["a", "b"] {
                let keys = limited(store.follow(prefix.into())).await.unwrap();
                assert_eq!(keys.home(), "a");
                let keys = all(limited(keys.connect()).await.unwrap()).await;
                assert!(keys.len() == if prefix == "a" { 2 } else { 1 }, "{keys:?}");
            }
            for _ in 0..2 {
                let (to, here) = pair.b.travelling_sender().unwrap();
                limited(store.report_to(to)).await.unwrap();
                assert_eq!(all(here).await, [3]);
            }
            // The end comes back from a service that does not take it.
            drop(service);
            let (to, mut here) = pair.b.travelling_sender::<u64>().unwrap();
            limited(store.report_to(to)).await.unwrap_err();
            assert!(limited(here.recv()).await.is_err());
            drop((here, store));
            nothing_is_left(&[&pair.a, &pair.b]).await;
        });
    }
}

/// A later version of the store: it lost a method, has another one, and one with other types.
mod later {
    use super::*;

    #[chunkcomm_cluster::service]
    pub(super) trait Store {
        async fn clear(&self) -> u64;
        async fn len(&self) -> u64;
        async fn put(&self, key: String, value: String) -> u64;
        async fn report_to(&self, to: TravellingSender<u32>);
    }

    pub(super) struct Empty;

    impl Store for Empty {
        async fn clear(&self) -> u64 {
            1
        }

        async fn len(&self) -> u64 {
            0
        }

        async fn put(&self, key: String, value: String) -> u64 {
            (key.len() + value.len()) as u64
        }

        async fn report_to(&self, to: TravellingSender<u32>) {
            drop(to);
        }
    }
}

#[test]
fn versions_of_a_service_share_the_methods_that_they_both_have() {
    on_both(|| async {
        let b = Node::builder().listen(memory());
        let pair = pair_of(memory(), Node::builder(), b).await;
        let first = StoreServer::new(Memory::new(&pair.a)).serve(&pair.a).unwrap();
        let (store, late) = (client(&pair), later::StoreClient::at(&pair.b, &pair.peer).unwrap());
        // A later client of the first service.
        assert_eq!(limited(late.len()).await.unwrap(), 0);
        let error = limited(late.clear()).await.unwrap_err();
        assert!(error.was_not_handled() && error.is_from_service());
        assert_eq!(error.to_string(), "service \"Store\" of a has no method clear() -> u64");
        let error = limited(late.put("k".into(), "v".into())).await.unwrap_err();
        let CallError::Method { ours, theirs: Some(theirs), .. } = &error else {
            panic!("{error}")
        };
        assert_eq!(ours, "put(str, str) -> u64");
        assert!(theirs.starts_with("put(str, [u8]) -> enum Result{"), "{theirs}");
        assert!(error.to_string().contains(&**ours) && error.to_string().contains(&**theirs));
        // The line goes on.
        assert_eq!(limited(late.len()).await.unwrap(), 0);
        // The first client of a later service, with the same line.
        assert_eq!(limited(store.len()).await.unwrap(), 0);
        drop(first);
        let _second = later::StoreServer::new(later::Empty).serve(&pair.a).unwrap();
        assert_eq!(
            limited(later::StoreClient::at(&pair.b, &pair.peer).unwrap().clear()).await.unwrap(),
            1
        );
        let error = limited(store.get("one".into())).await.unwrap_err();
        let Some(CallError::Method { theirs: None, .. }) = error.call_error() else {
            panic!("{error}")
        };
        assert_eq!(limited(store.len()).await.unwrap(), 0);
        // An end in a request that is refused is dropped, and its home learns that.
        let (to, mut here) = pair.b.travelling_sender::<u64>().unwrap();
        let error = limited(store.report_to(to)).await.unwrap_err();
        assert!(matches!(error, CallError::Method { theirs: Some(_), .. }), "{error}");
        assert!(limited(here.recv()).await.is_err());
        drop(here);
        // Also if its caller has gone by then; on two threads the refusal may come first.
        let (to, mut here) = pair.b.travelling_sender::<u64>().unwrap();
        let mut asking = Box::pin(store.report_to(to));
        let _ = polled(&mut asking).await;
        drop(asking);
        assert!(limited(here.recv()).await.is_err());
        drop(here);
        nothing_is_left(&[&pair.a, &pair.b]).await;
    });
}

async fn polled<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    poll_fn(|context| Poll::Ready(Pin::new(&mut *future).poll(context))).await
}

#[test]
fn a_call_goes_to_another_thread_if_its_arguments_do() {
    #[chunkcomm_cluster::service]
    trait Counter {
        async fn set(&self, count: Cell<u64>) -> u64;
    }

    struct Counting;

    impl Counter for Counting {
        async fn set(&self, count: Cell<u64>) -> u64 {
            count.get()
        }
    }

    on_both(|| async {
        let pair = pair().await;
        let _service = CounterServer::new(Counting).serve(&pair.a).unwrap();
        let client = CounterClient::at(&pair.b, &pair.peer).unwrap();
        let calling = tokio::spawn(async move { client.set(Cell::new(7)).await });
        assert_eq!(limited(calling).await.unwrap().unwrap(), 7);
    });
}

#[test]
fn a_closures_client_and_a_traits_are_told_apart() {
    on_both(|| async {
        let pair = pair().await;
        let _store = StoreServer::new(Memory::new(&pair.a)).serve(&pair.a).unwrap();
        let closure = pair.b.call_client::<u64, u64>(&pair.peer, "Store").unwrap();
        let error = limited(closure.call(&1)).await.unwrap_err();
        assert!(matches!(error, CallError::Types(_)), "{error}");
        let text =
            "the sender's type is duplex<u64, u64>, the receiver's is the methods of a trait";
        assert!(error.to_string().contains(text), "{error}");
    });
}

#[test]
fn a_retry_asks_what_may_be_repeated() {
    let method = |name| *StoreClient::METHODS.iter().find(|it| it.name() == name).unwrap();
    let (get, put): (Method, Method) = (method("get"), method("put"));
    assert!(get.is_idempotent() && !put.is_idempotent());
    let (service, peer) = (Arc::<str>::from("Store"), "a".to_owned());
    let over = CallError::Overloaded { service: Arc::clone(&service) };
    let ended = CallError::Ended { service, peer };
    assert!(get.may_repeat(&over) && put.may_repeat(&over));
    assert!(get.may_repeat(&ended) && !put.may_repeat(&ended));
    let names: Vec<_> = StoreClient::METHODS.iter().map(Method::name).collect();
    assert_eq!(names[..3], ["get", "put", "follow"]);
    assert_eq!(names.last(), Some(&"type"));
}
