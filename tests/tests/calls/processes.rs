//! Processes: one message asks for one, streams and values go both ways, and the creator learns how
//! it ends.

use chunkcomm::{Address, Node, Peer, SendError};
use chunkcomm_cluster::process::{Failure, ProcessError};
use chunkcomm_cluster::{
    Arriving, Departing, MovingReport, NodeBuilderExt, NodeExt, Process, Registry, SenderExt,
    TravelError, TravellingReceiver, TravellingSender, ValueWriter,
};
use chunkcomm_testkit::raw::RawPeer;
use chunkcomm_testkit::{
    at_last, cancelled, limited, memory, on_both, on_one_thread, on_two_threads, tcp,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::{Notify, oneshot};

/// Ports of a process that doubles the numbers that come and counts them.
type Doubled = (TravellingReceiver<u64>, TravellingSender<u64>, ValueWriter<u64>);

struct Programs {
    registry: Registry,
    double: Process<Doubled>,
    count: Process<TravellingSender<u64>>,
    fail: Process<String>,
    wait: Process<TravellingSender<u64>>,
    relay: Process<(String, TravellingSender<u64>)>,
    grind: Process<TravellingSender<u64>>,
}

fn programs() -> Programs {
    let mut registry = Registry::new();
    let double = registry.process("double", |_, (numbers, doubled, count): Doubled| async move {
        let mut numbers = numbers.connect().await?;
        let mut doubled = doubled.connect().await?;
        let mut seen = 0;
        while let Some(number) = numbers.recv().await? {
            doubled.send(&(2 * number)).await?;
            seen += 1;
        }
        count.write(&seen).await?;
        Ok(())
    });
    let count = registry.process("count", |_, out: TravellingSender<u64>| async move {
        let mut out = out.connect().await?;
        for number in 0.. {
            out.send(&number).await?;
        }
        Ok(())
    });
    let fail = registry.process("fail", |_, how: String| async move {
        match &how[..] {
            "error" => Err(Failure::new("no luck")),
            "caused" => Err("not a number".parse::<u32>().unwrap_err().into()),
            "late" => {
                tokio::task::yield_now().await;
                panic!("too {how}")
            }
            how => panic!("{how}"),
        }
    });
    let wait = registry.process("wait", |_, out: TravellingSender<u64>| async move {
        let mut out = out.connect().await?;
        out.send(&1).await?;
        std::future::pending::<()>().await;
        drop(out);
        Ok(())
    });
    let counts = count.clone();
    let relay =
        registry.process("relay", move |context, (to, out): (String, TravellingSender<u64>)| {
            let counts = counts.clone();
            async move {
                let peer = context.node().connect(&to.parse()?).await?;
                context.node().instantiate(&peer, &counts, out).await?.await?;
                Ok(())
            }
        });
    let grind = registry.blocking_process("grind", |context, out: TravellingSender<u64>| {
        let here = tokio::runtime::Handle::current();
        let mut out = here.block_on(out.connect())?;
        out.blocking_send(&1)?;
        here.block_on(out.flush())?;
        while !context.is_stopped() {
            std::hint::spin_loop();
        }
        out.blocking_send(&2)?;
        Ok(())
    });
    Programs { registry, double, count, fail, wait, relay, grind }
}

/// Two nodes: `here` creates processes, `there` runs them.
struct Two {
    here: Node,
    there: Node,
    peer: Peer,
    programs: Programs,
}

impl Two {
    async fn new(address: fn() -> Address) -> Two {
        let programs = programs();
        let node = |name: &str| Node::builder().name(name).listen(address());
        let there = node("there").processes(&programs.registry).build().await.unwrap();
        let here = node("here").build().await.unwrap();
        let peer = here.connect(&there.addresses()[0]).await.unwrap();
        Two { here, there, peer, programs }
    }

    async fn nothing_is_left(&self) {
        for node in [&self.here, &self.there] {
            limited(async {
                while node.moving_report() != MovingReport::default() {
                    tokio::task::yield_now().await;
                }
            })
            .await;
        }
    }

    async fn fails(&self, how: &str) -> ProcessError {
        let asked = self.here.instantiate(&self.peer, &self.programs.fail, how.to_owned()).await;
        limited(asked.unwrap()).await.unwrap_err()
    }
}

fn everywhere<F>(test: impl Fn(fn() -> Address) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    on_both(|| test(memory));
    on_both(|| test(tcp));
}

async fn sends(numbers: Departing<u64>, count: u64) {
    let mut numbers = limited(numbers.connect()).await.unwrap();
    for number in 0..count {
        numbers.send(&number).await.unwrap();
    }
}

async fn takes_doubled(mut doubled: Arriving<u64>, count: u64) {
    for number in 0..count {
        assert_eq!(limited(doubled.recv()).await.unwrap(), Some(2 * number));
    }
    assert_eq!(limited(doubled.recv()).await.unwrap(), None);
}

#[test]
fn streams_go_in_and_out_and_values_come_back() {
    everywhere(|address| async move {
        let two = Two::new(address).await;
        for count in [0, 5000] {
            let (input, numbers) = two.here.travelling_receiver().unwrap();
            let (output, doubled) = two.here.travelling_sender().unwrap();
            let (writer, counted) = two.here.value().unwrap();
            let input = (input, output, writer);
            let process = two.here.instantiate(&two.peer, &two.programs.double, input).await;
            let process = process.unwrap();
            assert_eq!(process.peer().name(), "there");
            tokio::join!(sends(numbers, count), takes_doubled(doubled, count));
            assert_eq!(limited(counted.get()).await.unwrap(), &count);
            limited(process).await.unwrap();
        }
        two.nothing_is_left().await;
    });
}

#[test]
fn outputs_are_independent_of_each_other() {
    on_both(|| async {
        let mut registry = Registry::new();
        type Three = (TravellingSender<u64>, TravellingSender<String>, ValueWriter<bool>);
        let three = registry.process("three", |_, (numbers, texts, done): Three| async move {
            done.write(&true).await?;
            let numbers = async {
                let mut numbers = numbers.connect().await?;
                loop {
                    // Sends without end while nobody takes the numbers.
                    numbers.send(&1).await?;
                }
            };
            let texts = async {
                let mut texts = texts.connect().await?;
                for _ in 0..3 {
                    texts.send(&"text".to_owned()).await?;
                }
                Ok::<_, Failure>(())
            };
            let (numbers, texts): (Result<(), Failure>, _) = tokio::join!(numbers, texts);
            numbers.and(texts)
        });
        let there = Node::builder().processes(&registry).listen(tcp()).build().await.unwrap();
        let here = Node::builder().build().await.unwrap();
        let peer = here.connect(&there.addresses()[0]).await.unwrap();
        let (numbers, mut first) = here.travelling_sender().unwrap();
        let (texts, mut second) = here.travelling_sender().unwrap();
        let (writer, third) = here.value().unwrap();
        let process = here.instantiate(&peer, &three, (numbers, texts, writer)).await.unwrap();
        assert!(limited(third.get()).await.unwrap());
        for _ in 0..3 {
            assert_eq!(limited(second.recv()).await.unwrap().as_deref(), Some("text"));
        }
        assert_eq!(limited(second.recv()).await.unwrap(), None);
        assert_eq!(limited(first.recv()).await.unwrap(), Some(1));
        drop(first);
        assert!(matches!(limited(process).await, Err(ProcessError::Failed { .. })));
    });
}

#[test]
fn creation_costs_one_message() {
    on_one_thread(async {
        let two = Two::new(tcp).await;
        let (out, mut from) = two.here.travelling_sender().unwrap();
        let process = two.here.instantiate(&two.peer, &two.programs.wait, out).await.unwrap();
        assert_eq!(limited(from.recv()).await.unwrap(), Some(1));
        limited(async {
            while two.peer.stats().messages_received == 0 {
                tokio::task::yield_now().await;
            }
        })
        .await;
        let stats = two.peer.stats();
        assert_eq!(stats.messages_sent, 1, "{stats:?}");
        assert_eq!(stats.flushes.get(chunkcomm::stats::FlushReason::Urgent), 1, "{stats:?}");
        drop(process);
        two.nothing_is_left().await;
    });
}

#[test]
fn an_error_reaches_the_creator_with_its_causes() {
    everywhere(|address| async move {
        let two = Two::new(address).await;
        let error = two.fails("error").await;
        assert_eq!(error.to_string(), "process \"fail\" at there failed: no luck");
        let error = two.fails("caused").await;
        assert!(error.to_string().ends_with("invalid digit found in string"), "{error}");
        two.nothing_is_left().await;
    });
}

#[test]
fn a_panic_reaches_the_creator_with_its_place() {
    everywhere(|address| async move {
        let two = Two::new(address).await;
        for how in ["at once", "late"] {
            let error = two.fails(how).await;
            let ProcessError::Panicked { process, node, message, place } = &error else {
                panic!("{error}")
            };
            assert_eq!((&process[..], &node[..]), ("fail", "there"));
            assert!(message.ends_with(how), "{message}");
            let place = place.as_deref().unwrap();
            assert!(place.contains("tests/calls/processes.rs:"), "{place}");
            assert!(error.to_string().contains(place), "{error}");
        }
        // The node goes on.
        two.fails("error").await;
        two.nothing_is_left().await;
    });
}

#[test]
fn a_dropped_handle_ends_the_process() {
    everywhere(|address| async move {
        let two = Two::new(address).await;
        let (out, mut from) = two.here.travelling_sender().unwrap();
        let process = two.here.instantiate(&two.peer, &two.programs.wait, out).await.unwrap();
        assert_eq!(limited(from.recv()).await.unwrap(), Some(1));
        drop(process);
        // The ends that it held were dropped.
        assert_eq!(limited(from.recv()).await.unwrap(), None);
        two.nothing_is_left().await;
        // A process that has hardly begun or not begun yet ends, too, with the ends in its input.
        let (out, mut from) = two.here.travelling_sender().unwrap();
        drop(two.here.instantiate(&two.peer, &two.programs.wait, out).await.unwrap());
        let mut last = limited(from.recv()).await;
        if matches!(last, Ok(Some(1))) {
            last = limited(from.recv()).await;
        }
        assert!(matches!(last, Err(TravelError::Dropped { .. }) | Ok(None)), "{last:?}");
        two.nothing_is_left().await;
    });
}

#[test]
fn a_detached_process_outlives_its_handle() {
    on_both(|| async {
        let two = Two::new(tcp).await;
        let (out, from) = two.here.travelling_sender().unwrap();
        two.here.instantiate(&two.peer, &two.programs.count, out).await.unwrap().detach();
        let mut from = limited(from.into_receiver()).await.unwrap();
        for number in 0..50_000 {
            assert_eq!(limited(from.recv()).await.unwrap(), Some(number));
        }
        drop(from);
        two.nothing_is_left().await;
    });
}

#[test]
fn a_dropped_receiver_ends_its_producer() {
    everywhere(|address| async move {
        let two = Two::new(address).await;
        let (out, mut from) = two.here.travelling_sender().unwrap();
        let process = two.here.instantiate(&two.peer, &two.programs.count, out).await.unwrap();
        assert_eq!(limited(from.recv()).await.unwrap(), Some(0));
        drop(from);
        let error = limited(process).await.unwrap_err();
        assert!(error.to_string().contains("closed or dropped the receiver"), "{error}");
        two.nothing_is_left().await;
    });
}

#[test]
fn a_difference_names_both_sides() {
    on_both(|| async {
        let two = Two::new(tcp).await;
        let mut other = Registry::new();
        let nobodys = other.process("nobodys", |_, _: TravellingSender<u8>| async { Ok(()) });
        let count = other.process("count", |_, _: (TravellingSender<u8>, u16)| async { Ok(()) });
        let (out, mut from) = two.here.travelling_sender().unwrap();
        let error = limited(two.here.instantiate(&two.peer, &nobodys, out).await.unwrap()).await;
        assert_eq!(error.unwrap_err().to_string(), "there has no process \"nobodys\"");
        // The ends in the input that nobody decoded are dropped.
        assert!(matches!(limited(from.recv()).await, Err(TravelError::Dropped { .. })));
        let (out, mut from) = two.here.travelling_sender().unwrap();
        let asked = two.here.instantiate(&two.peer, &count, (out, 1)).await.unwrap();
        let error = limited(asked).await.unwrap_err();
        let ProcessError::Differs { node, here, there: Some(there) } = &error else {
            panic!("{error}")
        };
        assert_eq!(node, "there");
        assert!(here.input.text.contains("u16"), "{error}");
        assert!(there.input.text.contains("u64"), "{error}");
        for word in ["count", "u8", "u16 here", "u64", "at there"] {
            let text = error.to_string().replace(") here", " here");
            assert!(text.contains(word), "{word}: {text}");
        }
        assert!(matches!(limited(from.recv()).await, Err(TravelError::Dropped { .. })));
        // Other processes are not concerned.
        two.fails("error").await;
        two.nothing_is_left().await;
    });
}

#[test]
fn a_node_without_processes_says_so() {
    on_both(|| async {
        let two = Two::new(tcp).await;
        let back = two.there.connect(&two.here.addresses()[0]).await.unwrap();
        let asked = two.there.instantiate(&back, &two.programs.fail, String::new()).await.unwrap();
        let error = limited(asked).await.unwrap_err();
        assert_eq!(error.to_string(), "here has no process \"fail\"");
    });
}

#[test]
fn a_process_creates_processes_elsewhere() {
    everywhere(|address| async move {
        let two = Two::new(address).await;
        let builder = Node::builder().name("far").processes(&two.programs.registry);
        let far = builder.listen(address()).build().await.unwrap();
        let (out, mut from) = two.here.travelling_sender().unwrap();
        let input = (far.addresses()[0].to_string(), out);
        let process = two.here.instantiate(&two.peer, &two.programs.relay, input).await.unwrap();
        for number in 0..20_000 {
            assert_eq!(limited(from.recv()).await.unwrap(), Some(number));
        }
        // The streams are direct: the node between has no part in them.
        let stats = two.peer.stats();
        assert!(stats.packet_bytes_received < 10_000, "{stats:?}");
        drop(from);
        let error = limited(process).await.unwrap_err().to_string();
        assert!(
            error.contains("\"relay\" at there") && error.contains("\"count\" at far"),
            "{error}"
        );
        two.nothing_is_left().await;
    });
}

#[test]
fn a_process_at_the_node_itself() {
    on_both(|| async {
        let two = Two::new(tcp).await;
        let own = two.there.local().await.unwrap();
        let (input, numbers) = two.there.travelling_receiver().unwrap();
        let (output, doubled) = two.there.travelling_sender().unwrap();
        let (writer, counted) = two.there.value().unwrap();
        let input = (input, output, writer);
        let process = two.there.instantiate(&own, &two.programs.double, input).await.unwrap();
        tokio::join!(sends(numbers, 99), takes_doubled(doubled, 99));
        assert_eq!(limited(counted.get()).await.unwrap(), &99);
        limited(process).await.unwrap();
        two.nothing_is_left().await;
    });
}

#[test]
fn one_that_computes_leaves_the_links_alone() {
    // A runtime of one thread, which a process that spins on it would stop.
    on_one_thread(async {
        let two = Two::new(tcp).await;
        let (out, mut from) = two.here.travelling_sender().unwrap();
        let process = two.here.instantiate(&two.peer, &two.programs.grind, out).await.unwrap();
        assert_eq!(limited(from.recv()).await.unwrap(), Some(1));
        two.fails("error").await;
        drop(process);
        // The process learns that it is to end.
        assert_eq!(limited(from.recv()).await.unwrap(), Some(2));
        assert_eq!(limited(from.recv()).await.unwrap(), None);
        two.nothing_is_left().await;
    });
}

#[test]
fn a_node_that_dies_is_named_and_its_own_processes_end() {
    everywhere(|address| async move {
        let two = Two::new(address).await;
        let (out, mut from) = two.here.travelling_sender().unwrap();
        let process = two.here.instantiate(&two.peer, &two.programs.wait, out).await.unwrap();
        assert_eq!(limited(from.recv()).await.unwrap(), Some(1));
        two.peer.declare_dead("its fan stopped");
        let error = limited(process).await.unwrap_err();
        assert_eq!(error.to_string(), "process \"wait\": there is gone: its fan stopped");
        // At the node `there` the creator is gone, and nobody wants the process any more.
        two.nothing_is_left().await;
        let Err(ProcessError::Unreachable(_)) = ({
            let stranger = two.here.local().await.unwrap();
            stranger.abort();
            limited(stranger.closed()).await;
            two.here.instantiate(&stranger, &two.programs.fail, String::new()).await
        }) else {
            panic!("it was asked for")
        };
    });
}

/// It is the first word of its node to the creator's, whose channel is not open by then.
#[test]
fn the_end_of_a_process_is_told_although_its_node_closes_right_behind_it() {
    on_one_thread(async {
        let ended = Arc::new(Notify::new());
        let mut registry = Registry::new();
        let ends = Arc::clone(&ended);
        let quick = registry.process("quick", move |_, (): ()| {
            let ends = Arc::clone(&ends);
            async move {
                ends.notify_one();
                Ok(())
            }
        });
        let there = Node::builder().listen(tcp()).processes(&registry).build().await.unwrap();
        let here = Node::builder().build().await.unwrap();
        let peer = here.connect(&there.addresses()[0]).await.unwrap();
        // A task of its own, which runs as soon as the process ends.
        let closing = tokio::spawn(async move {
            ended.notified().await;
            there.close(std::time::Duration::from_secs(60)).await
        });
        let process = here.instantiate(&peer, &quick, ()).await.unwrap();
        limited(process).await.unwrap();
        limited(closing).await.unwrap().unwrap();
    });
}

#[test]
fn a_node_that_closes_ends_its_processes() {
    on_both(|| async {
        let two = Two::new(tcp).await;
        let (out, mut from) = two.here.travelling_sender().unwrap();
        let process = two.here.instantiate(&two.peer, &two.programs.wait, out).await.unwrap();
        assert_eq!(limited(from.recv()).await.unwrap(), Some(1));
        limited(two.there.close(std::time::Duration::from_secs(60))).await.unwrap();
        let error = limited(process).await.unwrap_err();
        assert!(
            matches!(error, ProcessError::Lost { .. } | ProcessError::Stopped { .. }),
            "{error}"
        );
        two.nothing_is_left().await;
    });
}

#[test]
fn an_input_that_is_too_large_is_not_sent() {
    on_one_thread(async {
        let two = Two::new(tcp).await;
        let large = "x".repeat(40 << 20);
        let error = two.here.instantiate(&two.peer, &two.programs.fail, large).await.unwrap_err();
        let ProcessError::Unsent(SendError::TooLarge { bytes_max, .. }) = error else {
            panic!("{error}")
        };
        assert_eq!(bytes_max, two.peer.message_bytes_max());
        let large = "x".repeat(20 << 20);
        let asked = two.here.instantiate(&two.peer, &two.programs.fail, large).await.unwrap();
        assert!(matches!(limited(asked).await, Err(ProcessError::Panicked { .. })));
    });
}

#[test]
fn every_wait_may_be_dropped() {
    on_both(|| async {
        let two = Two::new(tcp).await;
        for _ in 0..20 {
            let (mut process, mut from) = at_last!(async {
                let (out, from) = two.here.travelling_sender().unwrap();
                let asked = two.here.instantiate(&two.peer, &two.programs.count, out).await;
                (asked.unwrap(), from)
            });
            assert_eq!(at_last!(from.recv()).unwrap(), Some(0));
            drop(from);
            let ended = at_last!(&mut process);
            assert!(matches!(ended, Err(ProcessError::Failed { .. })), "{ended:?}");
        }
        two.nothing_is_left().await;
    });
}

#[test]
fn a_process_that_is_ended_may_be_so_at_every_wait() {
    on_two_threads(async {
        let two = Two::new(tcp).await;
        for round in 0..200u32 {
            let (input, numbers) = two.here.travelling_receiver().unwrap();
            let (output, doubled) = two.here.travelling_sender().unwrap();
            let (writer, counted) = two.here.value::<u64>().unwrap();
            let input = (input, output, writer);
            let process =
                two.here.instantiate(&two.peer, &two.programs.double, input).await.unwrap();
            let using = tokio::spawn(async move {
                if let Ok(mut numbers) = numbers.connect().await {
                    while numbers.send(&1).await.is_ok() {}
                }
            });
            for _ in 0..round {
                tokio::task::yield_now().await;
            }
            drop(process);
            limited(using).await.unwrap();
            assert!(limited(counted.get()).await.is_err());
            let mut doubled = doubled;
            while let Ok(Some(_)) = limited(doubled.recv()).await {}
        }
        two.nothing_is_left().await;
    });
}

#[test]
fn the_future_of_a_process_is_dropped_on_its_own_runtime() {
    on_one_thread(async {
        struct Tells(Option<oneshot::Sender<std::thread::ThreadId>>);
        impl Drop for Tells {
            fn drop(&mut self) {
                let _ = self.0.take().unwrap().send(std::thread::current().id());
            }
        }
        let (told, dropped) = oneshot::channel();
        let told = std::sync::Mutex::new(Some(told));
        let begun = Arc::new(AtomicBool::new(false));
        let mut registry = Registry::new();
        let begins = Arc::clone(&begun);
        let wait = registry.process("wait", move |_, (): ()| {
            let tells = Tells(told.lock().unwrap().take());
            begins.store(true, Ordering::SeqCst);
            async move {
                let _tells = tells;
                std::future::pending().await
            }
        });
        let own = Node::builder().io_thread().processes(&registry);
        let there = own.listen(tcp()).build().await.unwrap();
        let here = Node::builder().build().await.unwrap();
        let peer = here.connect(&there.addresses()[0]).await.unwrap();
        let process = here.instantiate(&peer, &wait, ()).await.unwrap();
        limited(async {
            while !begun.load(Ordering::SeqCst) {
                tokio::task::yield_now().await;
            }
        })
        .await;
        drop(process);
        assert_eq!(limited(dropped).await.unwrap(), std::thread::current().id());
    });
}

#[test]
fn who_creates_processes_that_a_peer_does_not_take_waits() {
    on_both(|| async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().into();
        let node = Node::builder().build().await.unwrap();
        let (peer, _deaf) = tokio::join!(node.connect(&address), RawPeer::accept(&listener));
        let (peer, fail) = (peer.unwrap(), programs().fail);
        let input = "x".repeat(100_000);
        let mut handles = Vec::new();
        while let Some(created) = cancelled(1, node.instantiate(&peer, &fail, input.clone())).await
        {
            handles.push(created.unwrap());
            assert!(handles.len() < 100, "nothing waits");
        }
        assert!(handles.len() > 40, "{} of 100 kB each", handles.len());
    });
}

/// Two nodes that have no layer for words yet: `here` asks for processes that `there` does not run.
async fn plain_pair() -> (Node, Node, Peer) {
    let there = Node::builder().name("there").listen(tcp()).build().await.unwrap();
    let here = Node::builder().name("here").build().await.unwrap();
    let peer = here.connect(&there.addresses()[0]).await.unwrap();
    (here, there, peer)
}

#[test]
fn a_refusal_of_words_concerns_no_end_that_is_on_its_way() {
    on_both(|| async {
        let (here, there, peer) = plain_pair().await;
        let programs = programs();
        let mut ways = here.open::<TravellingSender<u64>>(&peer, "ways").await.unwrap();
        let (there_end, mut from) = here.travelling_sender().unwrap();
        ways.hand_over(there_end).await.unwrap();
        // The peer has not decoded the end: it refuses the words of the process.
        let asked = here.instantiate(&peer, &programs.fail, "anyhow".to_owned()).await.unwrap();
        let error = limited(asked).await.unwrap_err();
        assert_eq!(error.to_string(), "there has no process \"fail\"");
        let (_, mut ends) = limited(there.accept::<TravellingSender<u64>>("ways")).await.unwrap();
        let end = limited(ends.recv()).await.unwrap().unwrap();
        limited(end.connect()).await.unwrap().send_now(&7).await.unwrap();
        assert_eq!(limited(from.recv()).await.unwrap(), Some(7));
    });
}

#[test]
fn ends_in_the_input_of_a_refused_process_are_dropped_there() {
    on_one_thread(async {
        let (here, _there, peer) = plain_pair().await;
        let (out, mut from) = here.travelling_sender().unwrap();
        let asked = here.instantiate(&peer, &programs().count, out).await.unwrap();
        assert!(limited(asked).await.is_err());
        let error = limited(from.recv()).await.unwrap_err();
        assert!(matches!(&error, TravelError::Dropped { by } if by == "there"), "{error}");
    });
}

#[test]
fn a_peer_that_begins_to_speak_while_it_refuses_is_heard() {
    on_both(|| async {
        for _ in 0..20 {
            let (here, there, peer) = plain_pair().await;
            let programs = programs();
            let mut ways = here.open::<TravellingSender<u64>>(&peer, "ways").await.unwrap();
            let (end, _from) = here.travelling_sender().unwrap();
            ways.hand_over(end).await.unwrap();
            let first = here.instantiate(&peer, &programs.fail, String::new()).await.unwrap();
            // By decoding the end it gets the layer, and says that the end arrived.
            let (_, mut ends) =
                limited(there.accept::<TravellingSender<u64>>("ways")).await.unwrap();
            let _end = limited(ends.recv()).await.unwrap().unwrap();
            let second = here.instantiate(&peer, &programs.fail, String::new()).await.unwrap();
            for asked in [first, second] {
                let error = limited(asked).await.unwrap_err();
                assert!(matches!(error, ProcessError::Differs { .. }), "{error}");
            }
        }
    });
}
