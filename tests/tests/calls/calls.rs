//! Calls: each answer reaches its caller, errors are told apart, limits and cancellation hold.

use chunkcomm::error::{LinkCause, RefusalReason};
use chunkcomm::explain::LinkReport;
use chunkcomm::layer::Expected;
use chunkcomm::{Lane, Node, OpenError, Policy, Silence};
use chunkcomm_cluster::call::{CallOptions, ServeError, ServiceOptions};
use chunkcomm_cluster::proto::call::CALLS_PREFIX;
use chunkcomm_cluster::{CallClient, CallError, NodeExt, Service};
use chunkcomm_testkit::proxy::Proxy;
use chunkcomm_testkit::random::seeded;
use chunkcomm_testkit::{
    NEVER, Pair, cancelled, limited, memory, on_both, on_one_thread, on_two_threads, packets_of,
    pair, pair_of, tcp, until, until_some, waiting, windows_of,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinHandle;

const LONG: Duration = Duration::from_secs(60);

/// Returns a client of a service: node `a` serves, node `b` calls.
fn client<Req, Resp>(pair: &Pair, name: &str) -> CallClient<Req, Resp>
where
    Req: Serialize + DeserializeOwned,
    Resp: Serialize + DeserializeOwned + Send + 'static,
{
    pair.b.call_client(&pair.peer, name).unwrap()
}

/// Returns a client whose calls do not wait for a service that the peer does not serve.
fn hasty<Req, Resp>(pair: &Pair, name: &str) -> CallClient<Req, Resp>
where
    Req: Serialize + DeserializeOwned,
    Resp: Serialize + DeserializeOwned + Send + 'static,
{
    let options = CallOptions::default().served_within(Duration::ZERO);
    pair.b.call_client_with(&pair.peer, name, options).unwrap()
}

/// Number of the `Counted` values that exist.
#[derive(Clone, Default)]
struct Count(Arc<AtomicUsize>);

struct Counted(Count);

impl Count {
    fn one(&self) -> Counted {
        self.0.fetch_add(1, Ordering::SeqCst);
        Counted(self.clone())
    }

    fn now(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Starts a service whose handlers wait for a permit; returns the gate and the number of handlers.
fn gated(node: &Node, options: ServiceOptions) -> (Service, Arc<Semaphore>, Count) {
    let (gate, count) = (Arc::new(Semaphore::new(0)), Count::default());
    let (opens, counts) = (Arc::clone(&gate), count.clone());
    let service = node.serve_with("gated", options, move |number: u64| {
        let (gate, counted) = (Arc::clone(&opens), counts.one());
        async move {
            let _counted = counted;
            gate.acquire().await.unwrap().forget();
            Ok::<u64, String>(number + 1)
        }
    });
    (service.unwrap(), gate, count)
}

/// Calls in a task of its own.
fn calling(client: &CallClient<u64, u64>, number: u64) -> JoinHandle<Result<u64, CallError>> {
    let client = client.clone();
    tokio::spawn(async move { client.call(&number).await })
}

#[test]
fn every_caller_gets_its_own_answer_whatever_their_order_and_size() {
    on_both(|| async {
        for address in [tcp(), memory()] {
            let pair = pair_of(address, Node::builder(), Node::builder()).await;
            let service = pair.a.serve("turn", |(number, text): (u64, String)| async move {
                // Some requests are done at once, some later and out of order.
                for _ in 0..number % 5 {
                    tokio::task::yield_now().await;
                }
                Ok::<_, String>((text, number))
            });
            let _service = service.unwrap();
            let client = client::<(u64, String), (String, u64)>(&pair, "turn");
            let mut random = seeded(11);
            let mut calls = tokio::task::JoinSet::new();
            for number in 0..400 {
                let bytes = [0, 10, 300, 9_000, 70_000][random.below(5) as usize];
                let text = char::from(b'a' + (number % 26) as u8).to_string().repeat(bytes);
                let client = client.clone();
                calls.spawn(async move {
                    let (back, same) = client.call(&(number, text.clone())).await.unwrap();
                    assert!(same == number && back == text, "call {number}");
                });
            }
            while let Some(call) = limited(calls.join_next()).await {
                call.unwrap();
            }
        }
    });
}

/// Checks that requests wait neither for their age nor for more requests on a node that lingers.
#[test]
fn requests_in_flight_share_packets_and_one_alone_leaves_at_once() {
    on_one_thread(async {
        for policy in [Policy::Chunked, Policy::Linger(NEVER)] {
            let settings = Node::builder().policy(policy).age_bound(NEVER);
            let pair = pair_of(tcp(), settings.clone(), settings).await;
            let _service = pair.a.serve("id", |number: u64| async move { Ok::<_, String>(number) });
            let client = client::<u64, u64>(&pair, "id");
            for number in 0..10 {
                assert_eq!(limited(client.call(&number)).await.unwrap(), number, "{policy:?}");
            }
            let before = pair.peer.stats().message_packets_sent;
            let calls: Vec<_> = (0..1000)
                .map(|number| {
                    let client = client.clone();
                    tokio::spawn(async move {
                        assert_eq!(client.call(&number).await.unwrap(), number);
                    })
                })
                .collect();
            for call in calls {
                limited(call).await.unwrap();
            }
            let packets = pair.peer.stats().message_packets_sent - before;
            assert!(packets < 100, "{packets} packets for 1000 calls, {policy:?}");
        }
    });
}

#[test]
fn errors_of_the_handler_are_told_apart() {
    on_both(|| async {
        let pair = pair().await;
        let _service = pair.a.serve("moody", |mood: u8| async move {
            if mood >= 100 {
                tokio::task::yield_now().await;
            }
            match mood % 100 {
                0 => Ok("fine".to_owned()),
                1 => Err("no mood"),
                2 => panic!("enough of {mood}"),
                _ => Ok("x".repeat(40 << 20)),
            }
        });
        let client = client::<u8, String>(&pair, "moody");
        // Errors come at once, and after a wait.
        for later in [0, 100] {
            assert_eq!(limited(client.call(&later)).await.unwrap(), "fine");
            let error = limited(client.call(&(later + 1))).await.unwrap_err();
            assert!(error.is_from_service() && !error.was_not_handled());
            assert_eq!(error.to_string(), "service \"moody\" failed: no mood");
            let error = limited(client.call(&(later + 2))).await.unwrap_err();
            let text =
                format!("the handler of service \"moody\" panicked: enough of {}", later + 2);
            assert_eq!(error.to_string(), text);
            let error = limited(client.call(&(later + 3))).await.unwrap_err();
            assert!(matches!(error, CallError::Unsendable { .. }), "{error}");
        }
        assert_eq!(limited(client.call(&0)).await.unwrap(), "fine");
    });
}

/// A value whose `Deserialize` panics and whose `Serialize` refuses, when it is asked to.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Touchy(u8);

impl Serialize for Touchy {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            1 => Err(serde::ser::Error::custom("not this one")),
            _ => self.0.serialize(to),
        }
    }
}

impl<'de> serde::Deserialize<'de> for Touchy {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Touchy, D::Error> {
        match u8::deserialize(from)? {
            2 => Err(serde::de::Error::custom("not that one")),
            3 => panic!("not at all"),
            number => Ok(Touchy(number)),
        }
    }
}

#[test]
fn values_that_do_not_travel_are_one_calls_trouble() {
    on_one_thread(async {
        let pair = pair().await;
        let _service = pair.a.serve("touchy", |Touchy(number): Touchy| async move {
            Ok::<_, String>(Touchy(number.saturating_sub(10)))
        });
        let client = client::<Touchy, Touchy>(&pair, "touchy");
        let error = client.call(&Touchy(1)).await.unwrap_err();
        assert!(matches!(error, CallError::Request { .. }), "{error}");
        for number in [2, 3] {
            let error = limited(client.call(&Touchy(number))).await.unwrap_err();
            assert!(matches!(error, CallError::Unreadable { .. }), "{error}");
            assert!(error.was_not_handled());
        }
        let error = limited(client.call(&Touchy(11))).await.unwrap_err();
        assert!(matches!(error, CallError::Unsendable { .. }), "{error}");
        for number in [12, 13] {
            let error = limited(client.call(&Touchy(number))).await.unwrap_err();
            assert!(matches!(error, CallError::Answer { .. }), "{error}");
        }
        assert_eq!(limited(client.call(&Touchy(15))).await.unwrap(), Touchy(5));
    });
}

#[test]
fn what_is_not_there_or_of_another_type_is_said_by_name() {
    on_both(|| async {
        let pair = pair().await;
        let client = hasty::<u64, u64>(&pair, "late");
        let error = limited(client.call(&1)).await.unwrap_err();
        assert!(error.was_not_handled());
        assert_eq!(error.to_string(), "a has no service \"late\"");
        let service = pair.a.serve("late", |text: String| async move { Ok::<_, String>(text) });
        let error = limited(client.call(&1)).await.unwrap_err();
        let CallError::Types(refused) = &error else { panic!("{error}") };
        let RefusalReason::TypeMismatch { sender, receiver } = &refused.reason else { panic!() };
        assert_eq!(sender, "duplex<u64, u64>");
        assert_eq!(receiver, "duplex<str, str>");
        assert_eq!(
            error.to_string(),
            "calls of service \"late\" were refused by a: the sender's type is duplex<u64, u64>, the \
             receiver's is duplex<str, str>"
        );
        // The answers' types are compared, too.
        let answers = hasty::<String, u64>(&pair, "late");
        let error = limited(answers.call(&"x".to_owned())).await.unwrap_err();
        let CallError::Types(refused) = &error else { panic!("{error}") };
        assert!(error.was_not_handled());
        let RefusalReason::TypeMismatch { sender, .. } = &refused.reason else { panic!() };
        assert_eq!(sender, "duplex<str, u64>");
        // The same client goes on with another service of that name.
        drop(service);
        let _service = pair.a.serve("late", |number: u64| async move { Ok::<_, String>(number) });
        assert_eq!(limited(client.call(&1)).await.unwrap(), 1);
    });
}

#[test]
fn a_call_waits_for_a_service_that_is_still_to_come() {
    on_both(|| async {
        let pair = pair().await;
        let id = |number: u64| async move { Ok::<_, String>(number) };
        let _other = pair.a.serve("other", id).unwrap();
        let early = client::<u64, u64>(&pair, "late");
        let early = waiting(async move { early.call(&1).await }).await;
        // Its answer comes behind the refusal of the other call.
        assert_eq!(limited(client::<u64, u64>(&pair, "other").call(&2)).await.unwrap(), 2);
        let _service = pair.a.serve("late", id).unwrap();
        assert_eq!(limited(early).await.unwrap().unwrap(), 1);

        // The limit is that of the client or of the call.
        let soon = Duration::from_millis(20);
        let options = CallOptions::default().served_within(soon);
        let of_client = pair.b.call_client_with::<u64, u64>(&pair.peer, "never", options).unwrap();
        let error = limited(of_client.call(&1)).await.unwrap_err();
        assert!(error.was_not_handled(), "{error}");
        assert!(error.to_string().starts_with("a did not serve \"never\" within "), "{error}");
        let CallError::NoService { waited, .. } = error else { panic!("{error}") };
        assert!(waited >= soon, "{waited:?}");
        let of_call = client::<u64, u64>(&pair, "never").timeout(soon);
        let error = limited(of_call.call(&1)).await.unwrap_err();
        let is_told = |error: &CallError| {
            // The last refusal may come too late.
            matches!(error, CallError::NoService { .. } | CallError::Timeout { .. })
        };
        assert!(is_told(&error), "{error}");
    });
}

#[test]
fn names_and_types_that_cannot_be_are_refused_at_once() {
    on_one_thread(async {
        let pair = pair().await;
        let serve = |name: &str| pair.a.serve(name, |it: u8| async move { Ok::<_, String>(it) });
        assert!(matches!(serve("").unwrap_err(), ServeError::Name { bytes: 0 }));
        assert!(matches!(serve(&"x".repeat(241)).unwrap_err(), ServeError::Name { bytes: 241 }));
        let first = serve("one").unwrap();
        assert!(matches!(serve("one").unwrap_err(), ServeError::Taken { .. }));
        drop(first);
        drop(serve("one").unwrap());
        let of_nothing = pair.a.serve("nothing", |_: Vec<()>| async move { Ok::<_, String>(1) });
        assert!(matches!(of_nothing.unwrap_err(), ServeError::Type(_)));
        let error = pair.b.call_client::<u8, u8>(&pair.peer, "").unwrap_err();
        assert!(matches!(error, OpenError::Name { bytes: 0 }));
    });
}

#[test]
fn so_many_are_handled_at_once_so_many_wait_and_the_rest_are_refused() {
    on_both(|| async {
        let pair = pair().await;
        let options = ServiceOptions::default().at_once(3).waiting(4);
        let (service, gate, count) = gated(&pair.a, options);
        let client = client::<u64, u64>(&pair, "gated");
        let mut calls = tokio::task::JoinSet::new();
        for number in 0..10 {
            let client = client.clone();
            calls.spawn(async move { client.call(&number).await });
        }
        // Ten calls are three more than the service handles and lets wait.
        for _ in 0..3 {
            let error = limited(calls.join_next()).await.unwrap().unwrap().unwrap_err();
            assert!(matches!(error, CallError::Overloaded { .. }), "{error}");
        }
        let stats = service.stats();
        assert_eq!((stats.requests, stats.overloaded), (10, 3));
        assert_eq!((stats.at_once, stats.waiting, count.now()), (3, 4, 3));
        let mut answered = 0;
        while !calls.is_empty() {
            assert!(count.now() <= 3);
            gate.add_permits(1);
            limited(calls.join_next()).await.unwrap().unwrap().unwrap();
            answered += 1;
        }
        assert_eq!(answered, 7);
        until(|| service.stats().at_once == 0).await;
        assert_eq!(count.now(), 0);
    });
}

#[test]
fn a_call_that_is_dropped_drops_its_handler() {
    on_both(|| async {
        let pair = pair().await;
        let options = ServiceOptions::default().at_once(2);
        let (service, gate, count) = gated(&pair.a, options);
        let client = client::<u64, u64>(&pair, "gated");
        // Two calls are handled, one waits; each is dropped where it stands.
        let mut calls = Vec::new();
        for number in 0..3 {
            calls.push(calling(&client, number));
            until(|| count.now() + service.stats().waiting == number as usize + 1).await;
        }
        assert_eq!((count.now(), service.stats().waiting), (2, 1));
        calls[2].abort();
        until(|| service.stats().waiting == 0).await;
        assert_eq!(count.now(), 2);
        calls.iter().for_each(JoinHandle::abort);
        until(|| count.now() == 0 && service.stats().at_once == 0).await;
        assert_eq!(service.stats().cancelled, 3);
        gate.add_permits(1);
        assert_eq!(limited(client.call(&7)).await.unwrap(), 8);
    });
}

#[test]
fn a_call_may_be_dropped_at_every_await() {
    on_both(|| async {
        let small = || Node::builder().experiment(packets_of(1024)).limits(windows_of(256 * 1024));
        let pair = pair_of(memory(), small(), small()).await;
        let count = Count::default();
        let counts = count.clone();
        let service = pair.a.serve("slow", move |text: String| {
            let counted = counts.one();
            async move {
                let _counted = counted;
                for _ in 0..3 {
                    tokio::task::yield_now().await;
                }
                Ok::<_, String>(text)
            }
        });
        let service = service.unwrap();
        let mut random = seeded(5);
        for round in 0..60 {
            // A new client opens its channels; that is cancelled as well.
            let client = client::<String, String>(&pair, "slow").timeout(LONG);
            let text = "t".repeat(random.below(20_000) as usize);
            let mut waits = 0;
            loop {
                let done = limited(cancelled(waits, client.call(&text))).await;
                if let Some(answer) = done {
                    assert!(answer.unwrap() == text, "round {round}");
                    break;
                }
                waits += 1;
                tokio::task::yield_now().await;
            }
            // A cancelled call does not disturb the others.
            assert!(limited(client.call(&text)).await.unwrap() == text);
        }
        until(|| count.now() == 0 && service.stats().at_once == 0).await;
    });
}

#[test]
fn a_call_that_is_late_drops_its_handler_and_a_slot_of_it_is_not_mixed_up() {
    on_both(|| async {
        let pair = pair().await;
        let (service, gate, count) = gated(&pair.a, ServiceOptions::default());
        let client = client::<u64, u64>(&pair, "gated");
        // The channel is open, so every call is sent before it is late.
        gate.add_permits(1);
        assert_eq!(limited(client.call(&0)).await.unwrap(), 1);
        let hasty = client.clone().timeout(Duration::from_millis(20));
        for number in 0..5 {
            let error = limited(hasty.call(&number)).await.unwrap_err();
            assert!(matches!(error, CallError::Timeout { .. }), "{error}");
            assert_eq!(error.to_string(), "service \"gated\" did not answer within 20ms");
        }
        // On a busy machine the service may hear of all calls only after some time.
        until(|| service.stats().cancelled == 5 && count.now() == 0).await;
        gate.add_permits(2);
        // Calls that have time, and calls that never had a deadline.
        assert_eq!(limited(client.call(&10)).await.unwrap(), 11);
        assert_eq!(limited(client.clone().timeout(LONG).call(&20)).await.unwrap(), 21);
    });
}

#[test]
fn an_earlier_deadline_than_the_one_waited_for_is_kept() {
    on_one_thread(async {
        let pair = pair().await;
        let (_service, _gate, count) = gated(&pair.a, ServiceOptions::default());
        let client = client::<u64, u64>(&pair, "gated");
        let patient = client.clone().timeout(NEVER);
        let _patient = waiting(async move { patient.call(&1).await }).await;
        until(|| count.now() == 1).await;
        let hasty = client.timeout(Duration::from_millis(20));
        let error = limited(hasty.call(&2)).await.unwrap_err();
        assert!(matches!(error, CallError::Timeout { .. }), "{error}");
    });
}

/// Most of them wait for room by then: more than a mebibyte is not staged at a time.
#[test]
fn the_answers_of_handlers_that_have_returned_arrive_although_the_node_closes() {
    on_one_thread(async {
        let pair = pair().await;
        let (gate, count) = (Arc::new(Semaphore::new(0)), Count::default());
        let (opens, counts) = (Arc::clone(&gate), count.clone());
        let service = pair.a.serve("long", move |number: u64| {
            let (gate, counted) = (Arc::clone(&opens), counts.one());
            async move {
                let _counted = counted;
                gate.acquire().await.unwrap().forget();
                Ok::<_, String>(vec![number; 10_000])
            }
        });
        let _service = service.unwrap();
        let client = client::<u64, Vec<u64>>(&pair, "long");
        let calls: Vec<_> = (0..100)
            .map(|number| {
                let client = client.clone();
                tokio::spawn(async move { client.call(&number).await })
            })
            .collect();
        until(|| count.now() == 100).await;
        gate.add_permits(100);
        until(|| count.now() == 0).await;
        limited(pair.a.close(LONG)).await.unwrap();
        for (number, call) in (0..).zip(calls) {
            assert!(limited(call).await.unwrap().unwrap() == vec![number; 10_000], "{number}");
        }
    });
}

/// As the handler of a call that asks a program to end.
#[test]
fn a_handler_that_is_about_to_return_when_the_node_closes_is_heard() {
    on_two_threads(async {
        let pair = pair().await;
        let (begun, closes) = (Arc::new(Notify::new()), Arc::new(Barrier::new(2)));
        let (begins, goes_on) = (Arc::clone(&begun), Arc::clone(&closes));
        let service = pair.a.serve("end", move |number: u64| {
            let (begun, closes) = (Arc::clone(&begins), Arc::clone(&goes_on));
            async move {
                tokio::task::block_in_place(|| {
                    begun.notify_one();
                    closes.wait();
                });
                Ok::<u64, String>(number)
            }
        });
        let _service = service.unwrap();
        let call = calling(&client(&pair, "end"), 7);
        begun.notified().await;
        let node = pair.a.clone();
        let closing = waiting(async move { node.close(LONG).await }).await;
        tokio::task::block_in_place(|| closes.wait());
        assert_eq!(limited(call).await.unwrap().unwrap(), 7);
        limited(closing).await.unwrap().unwrap();
    });
}

#[test]
fn a_service_that_closes_answers_what_it_has_and_refuses_what_comes() {
    on_both(|| async {
        let pair = pair().await;
        let (service, gate, count) = gated(&pair.a, ServiceOptions::default().at_once(1));
        let client = client::<u64, u64>(&pair, "gated");
        let calls: Vec<_> = (0..3).map(|number| calling(&client, number)).collect();
        until(|| count.now() == 1 && service.stats().waiting == 2).await;
        let closing = waiting(service.close(LONG)).await;
        let error = limited(client.call(&9)).await.unwrap_err();
        assert!(matches!(error, CallError::Closing { .. }), "{error}");
        gate.add_permits(3);
        for (number, call) in calls.into_iter().enumerate() {
            assert_eq!(limited(call).await.unwrap().unwrap(), number as u64 + 1);
        }
        limited(closing).await.unwrap().unwrap();
        // The service's end has arrived, and may not have been looked at.
        let is_known = |error: &CallError| !matches!(error, CallError::Ended { .. });
        let error = until_some(|| async { client.call(&9).await.err().filter(is_known) }).await;
        assert!(matches!(error, CallError::NoService { .. }), "{error}");
    });
}

#[test]
fn a_service_that_does_not_close_in_time_or_is_dropped_says_so_to_its_callers() {
    on_both(|| async {
        for in_order in [true, false] {
            let pair = pair().await;
            let (service, _gate, count) = gated(&pair.a, ServiceOptions::default().at_once(1));
            let client = client::<u64, u64>(&pair, "gated");
            let calls: Vec<_> = (0..2).map(|number| calling(&client, number)).collect();
            until(|| count.now() == 1 && service.stats().waiting == 1).await;
            if in_order {
                let error = service.close(Duration::from_millis(10)).await.unwrap_err();
                assert_eq!((error.handled, error.waiting), (1, 1), "{error}");
            } else {
                drop(service);
            }
            for call in calls {
                let error = limited(call).await.unwrap().unwrap_err();
                assert!(matches!(error, CallError::Ended { .. }), "{error}");
            }
            until(|| count.now() == 0).await;
        }
    });
}

#[test]
fn calls_in_flight_learn_that_the_server_is_gone_and_later_ones_find_it_again() {
    on_both(|| async {
        let ms = Duration::from_millis;
        let quick = || {
            Node::builder().silence(Silence { probe: ms(100), suspect: ms(500), dead: ms(2_000) })
        };
        let server = quick().name("server").listen(tcp()).build().await.unwrap();
        let proxy = Proxy::before(&server);
        let (_service, _gate, count) = gated(&server, ServiceOptions::default());
        let node = quick().name("client").build().await.unwrap();
        let peer = node.connect(&proxy.address).await.unwrap();
        let client = node.call_client::<u64, u64>(&peer, "gated").unwrap();
        let calls: Vec<_> = (0..20).map(|number| calling(&client, number)).collect();
        until(|| count.now() == 20).await;
        // The arrival of the calls is known here, too. A link whose thread is late reports nothing sent.
        let is_known = |it: &LinkReport| it.sent > 0 && it.acknowledged == it.sent;
        let all_known = || async { node.explain().await.links.iter().all(is_known).then_some(()) };
        until_some(all_known).await;
        // Another process takes the server's place.
        let again = quick().name("again").listen(tcp()).build().await.unwrap();
        let _service =
            again.serve("gated", |number: u64| async move { Ok::<_, String>(number * 2) }).unwrap();
        proxy.redirect(chunkcomm_testkit::raw::socket_address(&again));
        proxy.cut();
        for call in calls {
            let error = limited(call).await.unwrap().unwrap_err();
            let CallError::Link { sent, .. } = &error else { panic!("{error}") };
            assert_eq!(sent.accepted, 20);
            assert_eq!(sent.acknowledged, 20, "{error}");
            assert!(error.to_string().contains("whether the request was handled is unknown"));
            assert!(!error.is_from_service() && !error.was_not_handled());
        }
        assert_eq!(limited(client.call(&21)).await.unwrap(), 42);
        // The server's handlers learn of the loss as well.
        until(|| count.now() == 0).await;
    });
}

#[test]
fn a_lost_connection_is_not_noticed_by_calls() {
    on_both(|| async {
        let server = Node::builder().name("server").listen(tcp()).build().await.unwrap();
        let proxy = Proxy::before(&server);
        let _service = server.serve("id", |number: u64| async move { Ok::<_, String>(number) });
        let node = Node::builder().name("client").build().await.unwrap();
        let peer = node.connect(&proxy.address).await.unwrap();
        let client = node.call_client::<u64, u64>(&peer, "id").unwrap();
        for number in 0..300 {
            if number % 30 == 7 {
                proxy.cut();
            }
            assert_eq!(limited(client.call(&number)).await.unwrap(), number);
        }
    });
}

#[test]
fn a_client_that_is_gone_leaves_no_handler_behind() {
    on_both(|| async {
        let pair = pair().await;
        let (service, _gate, count) = gated(&pair.a, ServiceOptions::default().at_once(5));
        let client = client::<u64, u64>(&pair, "gated");
        for number in 0..8 {
            drop(calling(&client, number));
        }
        drop(client);
        until(|| count.now() == 5 && service.stats().waiting == 3).await;
        pair.peer.abort();
        until(|| count.now() == 0 && service.stats().waiting == 0).await;
        until(|| service.stats().at_once == 0).await;
    });
}

#[test]
fn a_node_calls_itself_and_services_call_each_other() {
    on_both(|| async {
        let pair = pair().await;
        let own = pair.a.local().await.unwrap();
        let inner = pair.a.call_client::<u64, u64>(&own, "inner").unwrap();
        let _inner =
            pair.a.serve("inner", |number: u64| async move { Ok::<_, String>(number + 1) });
        let _outer = pair.a.serve("outer", move |number: u64| {
            let inner = inner.clone();
            async move { inner.call(&number).await }
        });
        let client = client::<u64, u64>(&pair, "outer");
        for number in 0..50 {
            assert_eq!(limited(client.call(&number)).await.unwrap(), number + 1);
        }
    });
}

#[test]
fn handlers_that_compute_may_have_tasks_of_their_own() {
    on_two_threads(async {
        let pair = pair().await;
        let met = Arc::new(AtomicUsize::new(0));
        let options = ServiceOptions::default().parallel();
        let _service = pair.a.serve_with("meet", options, move |(): ()| {
            let met = Arc::clone(&met);
            async move {
                // Blocks its thread until the other handler is there, too.
                met.fetch_add(1, Ordering::SeqCst);
                while met.load(Ordering::SeqCst) < 2 {
                    std::thread::yield_now();
                }
                Ok::<_, String>(())
            }
        });
        let client = client::<(), ()>(&pair, "meet");
        let (one, two) = tokio::join!(client.call(&()), client.call(&()));
        one.unwrap();
        two.unwrap();
    });
}

#[test]
fn options_of_lane_and_schema_reach_the_service() {
    on_one_thread(async {
        let pair = pair().await;
        let options = ServiceOptions::default().schema("numbers/1");
        let _service =
            pair.a.serve_with("n", options, |number: u32| async move { Ok::<_, String>(number) });
        for (name, fits) in [("numbers/1", true), ("numbers/2", false)] {
            let options = CallOptions::default().lane(Lane::Bulk).schema(name);
            // Another type of the same form: the user promised that it fits.
            let client = pair.b.call_client_with::<i32, i32>(&pair.peer, "n", options).unwrap();
            match limited(client.call(&5)).await {
                Ok(number) => assert!(fits && number == 5),
                Err(error) => assert!(!fits && matches!(error, CallError::Types(_)), "{error}"),
            }
        }
    });
}

/// Waits until the peer of the only link has everything that was sent.
async fn arrived(node: &Node) {
    until_some(|| async {
        let links = node.explain().await.links;
        let link = links.first()?;
        (link.sent > 0 && link.acknowledged == link.sent).then_some(())
    })
    .await;
}

#[test]
fn a_call_to_a_service_that_ends_before_it_knows_the_client_is_refused() {
    on_both(|| async {
        let pair = pair().await;
        // Its node takes calls.
        let _other = pair.a.serve("other", |it: u64| async move { Ok::<_, String>(it) }).unwrap();
        for taken in [false, true] {
            let name = format!("{CALLS_PREFIX}held");
            let expected = Expected::begin(&pair.a, name).unwrap();
            let client = hasty::<u64, u64>(&pair, "held");
            let call = tokio::spawn(async move { client.call(&1).await });
            let opened = if taken {
                Some(limited(expected.take()).await.unwrap())
            } else {
                arrived(&pair.b).await;
                None
            };
            expected.end();
            drop(opened);
            let error = limited(call).await.unwrap().unwrap_err();
            assert!(matches!(error, CallError::NoService { .. }), "{error}");
            assert!(error.was_not_handled());
        }
    });
}

#[test]
fn every_call_ends_when_its_service_does() {
    on_both(|| async {
        let pair = pair().await;
        for round in 0..200 {
            let id = |number: u64| async move { Ok::<_, String>(number) };
            let service = pair.a.serve("brief", id).unwrap();
            let client = hasty::<u64, u64>(&pair, "brief");
            let call = tokio::spawn(async move { client.call(&1).await });
            for _ in 0..round % 20 {
                tokio::task::yield_now().await;
            }
            drop(service);
            let _ = limited(call).await.unwrap();
        }
    });
}

#[test]
fn channels_of_calls_are_not_for_others() {
    on_one_thread(async {
        let pair = pair().await;
        let name = &format!("{CALLS_PREFIX}nobody");
        let mut sender = pair.b.open::<u64>(&pair.peer, name).await.unwrap();
        sender.send(&1).await.unwrap();
        let error = limited(sender.closed()).await;
        assert_eq!(
            error.to_string(),
            "service \"nobody\" was refused by a: nobody accepted it, and too many wait"
        );
        let client = client::<u64, u64>(&pair, "waits");
        let never = |_: u64| std::future::pending::<Result<u64, String>>();
        let _service = pair.a.serve("waits", never).unwrap();
        let call = tokio::spawn(async move { client.call(&1).await });
        let explained = || async {
            let text = pair.b.explain().await.to_string();
            text.contains("to service \"waits\": ").then_some(text)
        };
        let text = limited(until_some(explained)).await;
        assert!(!text.contains("\\0"), "{text}");
        call.abort();
    });
}

#[test]
fn a_client_that_breaks_the_rules_is_cut_and_others_go_on() {
    on_one_thread(async {
        let pair = pair().await;
        let _service = pair.a.serve("id", |number: u64| async move { Ok::<_, String>(number) });
        let client = client::<u64, u64>(&pair, "id");
        assert_eq!(limited(client.call(&1)).await.unwrap(), 1);
        // Its type differs, so it is refused at once.
        let mut stranger =
            pair.b.open_bytes(&pair.peer, &format!("{CALLS_PREFIX}id")).await.unwrap();
        stranger.send_slice(b"GET / HTTP/1.1").await.unwrap();
        let error = limited(stranger.closed()).await;
        assert!(error.to_string().contains("refused"), "{error}");
        assert_eq!(limited(client.call(&2)).await.unwrap(), 2);
    });
}

#[test]
fn a_closed_node_says_so() {
    on_one_thread(async {
        let pair = pair().await;
        let (_service, _gate, count) = gated(&pair.a, ServiceOptions::default());
        let client = client::<u64, u64>(&pair, "gated");
        let call = tokio::spawn({
            let client = client.clone();
            async move { client.call(&1).await }
        });
        until(|| count.now() == 1).await;
        let _ = pair.b.close(Duration::from_millis(50)).await;
        let error = limited(call).await.unwrap().unwrap_err();
        let CallError::Link { link, .. } = &error else { panic!("{error}") };
        assert!(matches!(link.cause(), LinkCause::Closed | LinkCause::CloseDeadline), "{error}");
        let error = limited(client.call(&1)).await.unwrap_err();
        assert!(matches!(error, CallError::Unreachable(_)), "{error}");
        until(|| count.now() == 0).await;
    });
}
