//! Middleware of the crate `tower` around clients and services.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use chunkcomm_cluster::call::ServiceOptions;
use chunkcomm_cluster::call::middleware::{CallRequest, CallRetry, Refusal};
use chunkcomm_cluster::{CallError, Called, NodeExt, TravellingSender};
use chunkcomm_testkit::{Pair, pair};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, timeout};
use tower::buffer::{Buffer, BufferLayer};
use tower::filter::FilterLayer;
use tower::limit::{ConcurrencyLimit, ConcurrencyLimitLayer, RateLimitLayer};
use tower::load_shed::error::Overloaded;
use tower::load_shed::{LoadShed, LoadShedLayer};
use tower::retry::budget::TpsBudget;
use tower::retry::{Retry, RetryLayer};
use tower::timeout::error::Elapsed;
use tower::timeout::{Timeout, TimeoutLayer};
use tower::{BoxError, Layer as _, Service, ServiceBuilder, ServiceExt};

#[chunkcomm_cluster::service]
trait Store {
    #[idempotent]
    async fn get(&self, key: u64) -> Result<u64, String>;
    async fn put(&self, key: u64, value: u64) -> u64;
}

/// Threads do not share its requests: it has no services of tower's, and all else.
#[chunkcomm_cluster::service]
trait Alone {
    async fn alone(&self, cell: Cell<u64>) -> u64;
}

impl Alone for () {
    async fn alone(&self, cell: Cell<u64>) -> u64 {
        cell.get()
    }
}

#[chunkcomm_cluster::service]
trait Ends {
    async fn report_to(&self, to: TravellingSender<u64>);
}

impl Ends for () {
    async fn report_to(&self, to: TravellingSender<u64>) {
        to.connect().await.unwrap().send(&7).await.unwrap();
    }
}

/// A store that counts its calls, lets them wait for a permit, and panics at first.
struct Gated {
    calls: Arc<AtomicU64>,
    most: Arc<AtomicU64>,
    running: AtomicU64,
    gate: Arc<Semaphore>,
    panics: u64,
}

impl Gated {
    fn new(permits: usize, panics: u64) -> Gated {
        let gate = Arc::new(Semaphore::new(permits));
        let (calls, most, running) = Default::default();
        Gated { calls, most, running, gate, panics }
    }

    async fn handle(&self) {
        let call = self.calls.fetch_add(1, SeqCst);
        assert!(call >= self.panics, "call {call}");
        self.most.fetch_max(self.running.fetch_add(1, SeqCst) + 1, SeqCst);
        self.gate.acquire().await.unwrap().forget();
        self.running.fetch_sub(1, SeqCst);
    }
}

impl Store for Gated {
    async fn get(&self, key: u64) -> Result<u64, String> {
        self.handle().await;
        if key == 0 { Err("no key".into()) } else { Ok(key) }
    }

    async fn put(&self, key: u64, value: u64) -> u64 {
        self.handle().await;
        key + value
    }
}

fn client(pair: &Pair) -> StoreClient {
    StoreClient::at(&pair.b, &pair.peer).unwrap().timeout(Duration::from_secs(20))
}

/// Waits until a counter has this value.
async fn until(counter: &AtomicU64, value: u64) {
    let reached = async {
        while counter.load(SeqCst) != value {
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(Duration::from_secs(20), reached).await.unwrap();
}

#[tokio::test]
async fn a_client_has_limits_of_its_open_calls_and_sheds_load() {
    let pair = pair().await;
    let store = Gated::new(0, 0);
    let (calls, most, gate) =
        (Arc::clone(&store.calls), Arc::clone(&store.most), Arc::clone(&store.gate));
    let _serving = StoreServer::new(store).serve(&pair.a).unwrap();
    let get = StoreClient::at(&pair.b, &pair.peer).unwrap().into_tower();
    let limited = ConcurrencyLimit::new(get.get(), 2);
    let asked: Vec<_> = (1..=6).map(|key| tokio::spawn(limited.clone().oneshot((key,)))).collect();
    until(&calls, 2).await;
    // Both places are taken.
    let mut shed = LoadShed::new(limited.clone());
    let error = shed.ready().await.unwrap().call((7,)).await.unwrap_err();
    assert!(error.is::<Overloaded>(), "{error}");
    gate.add_permits(6);
    for (key, asked) in (1..=6).zip(asked) {
        assert_eq!(asked.await.unwrap().unwrap(), key);
    }
    assert_eq!((calls.load(SeqCst), most.load(SeqCst)), (6, 2));
}

#[tokio::test]
async fn a_time_out_of_a_client_stops_the_handler() {
    let pair = pair().await;
    let gate = Arc::new(Semaphore::new(0));
    let held = Arc::new(());
    let (of_handler, waits) = (Arc::clone(&held), Arc::clone(&gate));
    let _serving = pair.a.serve("wait", move |(): ()| {
        let (held, gate) = (Arc::clone(&of_handler), Arc::clone(&waits));
        async move {
            gate.acquire().await.unwrap().forget();
            drop(held);
            Ok::<_, String>(())
        }
    });
    let wait = pair.b.call_client::<(), ()>(&pair.peer, "wait").unwrap().into_tower();
    let error =
        Timeout::new(wait.clone(), Duration::from_millis(50)).oneshot(()).await.unwrap_err();
    assert!(error.is::<Elapsed>(), "{error}");
    let stopped = async {
        while Arc::strong_count(&held) > 2 {
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(Duration::from_secs(20), stopped).await.unwrap();
    gate.add_permits(1);
    Timeout::new(wait, Duration::from_secs(20)).oneshot(()).await.unwrap();
}

#[tokio::test]
async fn a_client_stands_within_a_buffer_and_a_limit_of_its_rate() {
    let pair = pair().await;
    let _serving = StoreServer::new(Gated::new(100, 0)).serve(&pair.a).unwrap();
    let put = client(&pair).into_tower().put();
    let buffered = Buffer::new(put.clone(), 8);
    let asked: Vec<_> = (0..20).map(|it| tokio::spawn(buffered.clone().oneshot((it, 1)))).collect();
    for (number, asked) in (0..20).zip(asked) {
        assert_eq!(asked.await.unwrap().unwrap(), number + 1);
    }
    let rate = RateLimitLayer::new(2, Duration::from_millis(100));
    let mut slow = ServiceBuilder::new().layer(rate).service(put);
    let began = Instant::now();
    for number in 0..5 {
        assert_eq!(slow.ready().await.unwrap().call((number, 2)).await.unwrap(), number + 2);
    }
    // Two and two, and the fifth in the third period.
    assert!(began.elapsed() >= Duration::from_millis(190), "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_retry_repeats_only_what_is_safe() {
    let pair = pair().await;
    let store = Gated::new(100, 3);
    let calls = Arc::clone(&store.calls);
    let serving = StoreServer::new(store).serve(&pair.a).unwrap();
    let services = client(&pair).into_tower();
    let (get, put) = (services.get(), services.put());
    // The handler may have done half of it.
    let error = Retry::new(put.retry(1), put.clone()).oneshot((1, 1)).await.unwrap_err();
    assert!(matches!(error, CallError::Panicked { .. }), "{error}");
    assert_eq!(calls.load(SeqCst), 1);
    // The second and the third panic, too.
    assert_eq!(Retry::new(get.retry(1), get.clone()).oneshot((4,)).await.unwrap(), 4);
    assert_eq!(calls.load(SeqCst), 4);
    // The service's own error is an answer.
    let error = Retry::new(get.retry(1), get.clone()).oneshot((0,)).await.unwrap_err();
    assert!(matches!(&error, Called::Service(text) if text == "no key"), "{error}");
    assert_eq!(calls.load(SeqCst), 5);
    // It is gone, and comes back: no call of either method was handled meanwhile.
    serving.close(Duration::from_secs(5)).await.unwrap();
    let retry = put.retry(1).retries(100).budget(TpsBudget::new(Duration::from_secs(10), 1000, 1.));
    let asked = tokio::spawn(RetryLayer::new(retry).layer(put).oneshot((5, 6)));
    sleep(Duration::from_millis(50)).await;
    assert!(!asked.is_finished());
    let _serving = StoreServer::new(Gated::new(1, 0)).serve(&pair.a).unwrap();
    assert_eq!(timeout(Duration::from_secs(20), asked).await.unwrap().unwrap().unwrap(), 11);
}

#[tokio::test]
async fn a_retry_has_a_limit_and_a_budget() {
    let pair = pair().await;
    let store = Gated::new(100, 1000);
    let calls = Arc::clone(&store.calls);
    let _serving = StoreServer::new(store).serve(&pair.a).unwrap();
    let get = client(&pair).into_tower().get();
    let generous = TpsBudget::new(Duration::from_secs(10), 1000, 1.);
    let twice = get.retry(7).retries(2).budget(generous);
    Retry::new(twice, get.clone()).oneshot((1,)).await.unwrap_err();
    assert_eq!(calls.swap(0, SeqCst), 3);
    // A budget of nothing allows no retry.
    let retry =
        Retry::new(get.retry(7).budget(TpsBudget::new(Duration::from_secs(10), 0, 0.)), get);
    for _ in 0..3 {
        retry.clone().oneshot((1,)).await.unwrap_err();
    }
    assert_eq!(calls.load(SeqCst), 3);
}

#[tokio::test]
async fn a_layer_of_a_service_sees_method_and_peer_and_may_refuse() {
    let pair = pair().await;
    let store = Gated::new(100, 0);
    let calls = Arc::clone(&store.calls);
    let name = pair.b.name().to_owned();
    #[derive(Clone)]
    struct Reads(String);
    impl<Req> tower::filter::Predicate<CallRequest<Req>> for Reads {
        type Request = CallRequest<Req>;
        fn check(&mut self, call: CallRequest<Req>) -> Result<CallRequest<Req>, BoxError> {
            assert_eq!((call.service(), call.peer().name()), ("Store", &*self.0));
            assert!(call.deadline().is_some());
            match call.method() {
                Some("get") => Ok(call),
                method => Err(Refusal::new(format!("not {}", method.unwrap_or_default())).into()),
            }
        }
    }
    let reads = FilterLayer::new(Reads(name));
    let _serving = StoreServer::new(store).layer(&reads).serve(&pair.a).unwrap();
    let store = client(&pair);
    assert_eq!(store.get(1).await.unwrap(), 1);
    let put = store.into_tower().put();
    let error = Retry::new(put.retry(1), put).oneshot((1, 2)).await.unwrap_err();
    assert_eq!(error.to_string(), "service \"Store.put\" refused the call: not put");
    assert!(matches!(error, CallError::Refused { .. }) && error.was_not_handled());
    assert!(error.is_permanent() && error.is_from_service());
    assert!(StoreClient::METHODS.iter().all(|method| !method.may_repeat(&error)));
    assert_eq!(calls.load(SeqCst), 1);
}

#[tokio::test]
async fn a_service_has_limits_and_sheds_load() {
    let pair = pair().await;
    let store = Gated::new(0, 0);
    let (calls, most, gate) =
        (Arc::clone(&store.calls), Arc::clone(&store.most), Arc::clone(&store.gate));
    let layer = ConcurrencyLimitLayer::new(2);
    let serving = StoreServer::new(store).layer(&layer).serve(&pair.a).unwrap();
    let store = client(&pair);
    let asked: Vec<_> = (1..=6)
        .map(|key| (key, store.clone()))
        .map(|(key, store)| tokio::spawn(async move { store.get(key).await }))
        .collect();
    until(&calls, 2).await;
    gate.add_permits(6);
    for (key, asked) in (1..=6).zip(asked) {
        assert_eq!(asked.await.unwrap().unwrap(), key);
    }
    assert_eq!((calls.load(SeqCst), most.load(SeqCst)), (6, 2));
    serving.close(Duration::from_secs(5)).await.unwrap();

    let store = Gated::new(0, 0);
    let (calls, gate) = (Arc::clone(&store.calls), Arc::clone(&store.gate));
    let layer =
        ServiceBuilder::new().layer(LoadShedLayer::new()).layer(ConcurrencyLimitLayer::new(1));
    let _serving = StoreServer::new(store).layer(&layer).serve(&pair.a).unwrap();
    let store = client(&pair);
    let first = tokio::spawn(store.clone().into_tower().get().oneshot((1,)));
    until(&calls, 1).await;
    let error = store.put(1, 2).await.unwrap_err();
    assert!(matches!(error, CallError::Overloaded { .. }), "{error}");
    gate.add_permits(1);
    assert_eq!(first.await.unwrap().unwrap(), 1);
}

#[tokio::test]
async fn a_closure_has_layers_a_time_out_and_a_buffer() {
    let pair = pair().await;
    let wait = |ms: u64| async move {
        sleep(Duration::from_millis(ms)).await;
        if ms == 1 { Err("one".to_owned()) } else { Ok(ms) }
    };
    let layer = ServiceBuilder::new()
        .layer(BufferLayer::new(8))
        .layer(RateLimitLayer::new(1000, Duration::from_secs(1)))
        .layer(TimeoutLayer::new(Duration::from_millis(200)));
    let options = ServiceOptions::default();
    let _serving = pair.a.serve_layered("wait", options, &layer, wait).unwrap();
    let client = pair.b.call_client::<u64, u64>(&pair.peer, "wait").unwrap();
    assert_eq!(client.call(&2).await.unwrap(), 2);
    for (ms, text) in [(1, "one"), (20_000, "request timed out")] {
        let error = client.call(&ms).await.unwrap_err();
        assert!(matches!(&error, CallError::Failed { text: it, .. } if it == text), "{error}");
        assert!(!error.was_not_handled());
    }
    let policy = CallRetry::new(None, 1);
    let tower = client.into_tower();
    assert_eq!(Retry::new(policy, tower).oneshot(3).await.unwrap(), 3);
}

#[tokio::test]
async fn requests_of_any_type_are_served_within_a_layer() {
    let pair = pair().await;
    let layer = ConcurrencyLimitLayer::new(1);
    let _alone = AloneServer::new(()).layer(&layer).serve(&pair.a).unwrap();
    let _ends = EndsServer::new(()).layer(&layer).serve(&pair.a).unwrap();
    let alone = AloneClient::at(&pair.b, &pair.peer).unwrap();
    assert_eq!(alone.alone(Cell::new(3)).await.unwrap(), 3);
    let (there, mut here) = pair.b.travelling_sender::<u64>().unwrap();
    let ends = EndsClient::at(&pair.b, &pair.peer).unwrap().into_tower();
    let mut report = ends.report_to();
    let asked = tokio::spawn(report.ready().await.unwrap().call((there,)));
    assert_eq!(here.recv().await.unwrap(), Some(7));
    asked.await.unwrap().unwrap();
}

#[test]
fn what_lasts_is_not_repeated() {
    let get = StoreClient::METHODS[0];
    let service = Arc::<str>::from("Store");
    let text = || "bytes".to_owned();
    assert!(get.may_repeat(&CallError::Overloaded { service: Arc::clone(&service) }));
    assert!(get.may_repeat(&CallError::Ended { service: Arc::clone(&service), peer: text() }));
    for error in [
        CallError::Unreadable { service: Arc::clone(&service), text: text() },
        CallError::Unsendable { service: Arc::clone(&service), text: text() },
        CallError::Refused { service: Arc::clone(&service), why: text() },
        CallError::Method { service, peer: text(), ours: text(), theirs: None },
    ] {
        assert!(error.is_permanent() && !get.may_repeat(&error), "{error}");
    }
}
