//! Every future of farms and deltas, dropped at each place where it can wait, over memory. Accepted
//! values are not lost, a cancelled call can be made again, and the nodes go on.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use chunkcomm::{Address, Node, Peer};
use chunkcomm_coupled::patterns::{
    Arrays, Chain, Compute, Pattern, PatternError, Run, Transfer, run_head, run_middle, run_tail,
    sequential, serve,
};
use chunkcomm_farm::settings::{Messaging, Model, Prefetch, WorkersAs};
use chunkcomm_farm::{Farm, FarmBuilder, RunError};
use chunkcomm_pipeline::{
    DeltaFault, DeltaReceiver, DeltaRecvError, DeltaSendError, DeltaSender, Increment,
};
use chunkcomm_tests::farm_tasks::{Functions, registry};

use chunkcomm_testkit::{at_last, cancelled, limited, on_both, packets_of, until_some, windows_of};

const LEN: usize = 20_000;

/// More waits than any future here has; the number of tries where a future begins anew each time.
const WAITS_MAX: u32 = 400;

fn memory() -> Address {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    Address::Memory(format!("cancel-{}", NEXT.fetch_add(1, Ordering::Relaxed)))
}

/// Builds a node whose window and packets are so small that large buffers wait often.
async fn node(name: &str) -> Node {
    let builder = Node::builder().name(name).listen(memory());
    builder.limits(windows_of(256 * 1024)).experiment(packets_of(1024)).build().await.unwrap()
}

/// Builds a node with room for the bytes of dropped runs, which nobody takes.
async fn roomy_node(name: &str) -> Node {
    let builder = Node::builder().name(name).listen(memory());
    builder.experiment(packets_of(1024)).build().await.unwrap()
}

async fn link(from: &Node, to: &Node) -> Peer {
    from.connect(&to.addresses()[0]).await.unwrap()
}

fn values() -> Vec<u32> {
    (0..LEN as u32).map(|index| index.wrapping_mul(2_654_435_761)).collect()
}

const INCREMENT: Increment = Increment::Fixed(4096);

async fn open(node: &Node, peer: &Peer, name: &str) -> DeltaSender<u32> {
    DeltaSender::open(node, peer, name, vec![0; LEN], INCREMENT).await.unwrap()
}

/// Commits all of [`values`], each commit dropped at another wait.
async fn fill(sender: &mut DeltaSender<u32>) {
    let values = values();
    for waits in (0..4).cycle() {
        let Some(mut chunk) = sender.next(777).unwrap() else { return };
        let range = chunk.range();
        chunk.copy_from_slice(&values[range]);
        // The elements of a commit that was never polled are handed out again.
        if let Some(committed) = limited(cancelled(waits, chunk.commit())).await {
            committed.unwrap();
        }
    }
}

/// Checks that a delta from one node to the other arrives.
async fn works(from: &Node, peer: &Peer, to: &Node) {
    let sending = async {
        let mut sender = open(from, peer, "works").await;
        fill(&mut sender).await;
        sender.finish().await.unwrap();
    };
    let receiving = async {
        let receiver = DeltaReceiver::accept(to, "works", vec![0; LEN]).await.unwrap();
        assert!(receiver.into_buffer().await.unwrap() == values());
    };
    limited(async { tokio::join!(sending, receiving) }).await;
}

#[test]
fn the_calls_of_a_delta_sender() {
    on_both(|| async {
        let (left, right) = (node("left").await, node("right").await);
        let peer = link(&left, &right).await;
        let receiving = tokio::spawn({
            let right = right.clone();
            async move {
                loop {
                    // A dropped open may have opened a channel, which then ends at once.
                    match DeltaReceiver::accept(&right, "sent", vec![0; LEN]).await {
                        Ok(receiver) => match receiver.into_buffer().await {
                            Ok(buffer) => return buffer,
                            Err(error) => {
                                assert!(matches!(error, DeltaRecvError::Ended { .. }), "{error}");
                            }
                        },
                        Err(error) => {
                            assert!(matches!(error, DeltaRecvError::Opening { .. }), "{error}");
                        }
                    }
                }
            }
        });
        let opened = at_last!(DeltaSender::open(&left, &peer, "sent", vec![0; LEN], INCREMENT));
        let mut sender = opened.unwrap();
        fill(&mut sender).await;
        at_last!(sender.finish()).unwrap();
        assert!(limited(sender.into_buffer()).await == values());
        assert!(limited(receiving).await.unwrap() == values());
        works(&left, &peer, &right).await;
    });
}

#[test]
fn a_dropped_wait_for_a_senders_buffer_lets_what_is_committed_arrive() {
    on_both(|| async {
        let (left, right) = (node("left").await, node("right").await);
        let peer = link(&left, &right).await;
        for waits in 0..WAITS_MAX {
            let mut sender = open(&left, &peer, "buffer").await;
            let receiver = DeltaReceiver::accept(&right, "buffer", vec![0; LEN]).await.unwrap();
            let start = values();
            let mut chunk = sender.next(5000).unwrap().unwrap();
            chunk.copy_from_slice(&start[..5000]);
            chunk.commit().await.unwrap();
            let buffer = limited(cancelled(waits, sender.into_buffer())).await;
            assert!(limited(receiver.wait(..5000)).await.unwrap() == &start[..5000]);
            let error = limited(receiver.wait(5000..)).await.unwrap_err();
            assert!(matches!(error, DeltaRecvError::Ended { .. }), "{error}");
            if let Some(buffer) = buffer {
                assert!(buffer[..5000] == start[..5000]);
                works(&left, &peer, &right).await;
                return;
            }
        }
        panic!("the buffer does not come back");
    });
}

#[test]
fn the_calls_of_a_delta_receiver() {
    on_both(|| async {
        let (left, right) = (node("left").await, node("right").await);
        let peer = link(&left, &right).await;
        let accepting = tokio::spawn({
            let right = right.clone();
            async move { at_last!(DeltaReceiver::accept(&right, "data", vec![0; LEN])).unwrap() }
        });
        let mut sender = open(&left, &peer, "data").await;
        let mut receiver = limited(accepting).await.unwrap();
        let sending = tokio::spawn(async move {
            fill(&mut sender).await;
            sender.finish().await.unwrap();
        });
        let mut seen = Vec::new();
        while seen.len() < LEN {
            let start = seen.len();
            let end = (start + 501).min(LEN);
            if start % 2 == 0 {
                let part = at_last!(receiver.wait(start..end)).unwrap();
                assert!(part == &values()[start..end]);
            }
            let part = at_last!(async { receiver.next().await.unwrap().map(<[u32]>::to_vec) });
            seen.extend(part.unwrap());
        }
        assert!(seen == values());
        assert!(at_last!(async { receiver.finish().await.unwrap() == values() }));
        assert!(at_last!(receiver.next()).unwrap().is_none());
        limited(sending).await.unwrap();
        assert!(limited(receiver.into_buffer()).await.unwrap() == values());
        works(&left, &peer, &right).await;
    });
}

/// Dropped between the channel and its first message: the channel waits for the next accept.
#[test]
fn an_accept_that_is_dropped_after_the_open_leaves_the_sender_to_the_next() {
    on_both(|| async {
        let (left, right) = (node("left").await, node("right").await);
        let peer = link(&left, &right).await;
        for round in 0..20_u32 {
            // Nothing is sent on the channel yet, so that accepting has to wait.
            let mut silent = left.open_duplex_bytes(&peer, "held").await.unwrap();
            silent.flush().await.unwrap();
            for ms in 0..3 {
                let accepted = DeltaReceiver::<u32>::accept(&right, "held", vec![0; LEN]);
                let waited = tokio::time::timeout(Duration::from_millis(ms), accepted);
                assert!(waited.await.is_err(), "no opening was said");
            }
            // An accept that waits already gets the channel, too.
            let waiting = tokio::spawn({
                let right = right.clone();
                async move {
                    let accepted = DeltaReceiver::accept(&right, "held", vec![0_u32; LEN]).await;
                    accepted.expect_err("it says no opening")
                }
            });
            for _ in 0..round % 3 {
                tokio::task::yield_now().await;
            }
            let accepted = DeltaReceiver::<u32>::accept(&right, "held", vec![0; LEN]);
            let waited = tokio::time::timeout(Duration::from_millis(1), accepted);
            assert!(waited.await.is_err(), "no opening was said");
            silent.sender().send_slice(b"hello").await.unwrap();
            let error = limited(waiting).await.unwrap();
            let DeltaRecvError::Opening { fault, .. } = error else { panic!("{error}") };
            assert_eq!(fault, DeltaFault::Length { bytes: 5 }, "what was held came");
        }
        works(&left, &peer, &right).await;
    });
}

#[test]
fn an_accept_that_is_dropped_while_it_refuses_has_refused() {
    on_both(|| async {
        let (left, right) = (node("left").await, node("right").await);
        let peer = link(&left, &right).await;
        for waits in 1..WAITS_MAX {
            let mut sender = open(&left, &peer, "odd").await;
            fill(&mut sender).await;
            let refusing = DeltaReceiver::<u32>::accept(&right, "odd", vec![0; LEN + 1]);
            let refused = limited(cancelled(waits, refusing)).await;
            let told = async {
                if refused.is_none() {
                    // The accept may have been dropped before it knew the delta to refuse.
                    let again = DeltaReceiver::<u32>::accept(&right, "odd", vec![0; LEN + 1]);
                    tokio::select! {
                        told = sender.finish() => return told,
                        _ = again => {}
                    }
                }
                sender.finish().await
            };
            let error = limited(told).await.unwrap_err();
            assert!(matches!(error, DeltaSendError::Mismatch(_)), "{waits}: {error}");
            if let Some(refused) = refused {
                assert!(matches!(refused.unwrap_err(), DeltaRecvError::Mismatch(_)));
                works(&left, &peer, &right).await;
                return;
            }
        }
        panic!("it is never refused");
    });
}

#[test]
fn a_dropped_wait_for_a_receivers_buffer_stops_the_sender_and_no_more() {
    on_both(|| async {
        let (left, right) = (node("left").await, node("right").await);
        let peer = link(&left, &right).await;
        for waits in 0..WAITS_MAX {
            let mut sender = open(&left, &peer, "into").await;
            let receiver = DeltaReceiver::accept(&right, "into", vec![0; LEN]).await.unwrap();
            let sending = tokio::spawn(async move {
                fill_all(&mut sender).await;
                sender.finish().await
            });
            let buffer = limited(cancelled(waits, receiver.into_buffer())).await;
            let sent = limited(sending).await.unwrap();
            if let Some(buffer) = buffer {
                assert!(buffer.unwrap() == values());
                sent.unwrap();
                works(&left, &peer, &right).await;
                return;
            }
        }
        panic!("the buffer never comes");
    });
}

/// Commits all elements at once.
async fn fill_all(sender: &mut DeltaSender<u32>) {
    let Ok(Some(mut chunk)) = sender.next(LEN) else { return };
    chunk.copy_from_slice(&values());
    chunk.commit().await.unwrap_or_default();
}

#[test]
fn forwards() {
    on_both(|| async {
        let nodes = [node("n0").await, node("n1").await, node("n2").await];
        let (to_1, to_2) = (link(&nodes[0], &nodes[1]).await, link(&nodes[1], &nodes[2]).await);
        let mut sender = open(&nodes[0], &to_1, "f").await;
        let middle = DeltaReceiver::accept(&nodes[1], "f", vec![0_u32; LEN]).await.unwrap();
        let mut waits = 0;
        let (mut forward, name) = loop {
            // A name for each try, since a dropped forward may have opened its channel.
            let name = format!("f{waits}");
            let made = middle.forward(&nodes[1], &to_2, &name);
            if let Some(forward) = limited(cancelled(waits, made)).await {
                break (forward.unwrap(), name);
            }
            waits += 1;
        };
        let end = at_last!(DeltaReceiver::accept(&nodes[2], &name, vec![0_u32; LEN])).unwrap();
        let sending = tokio::spawn(async move {
            fill(&mut sender).await;
            at_last!(sender.finish()).unwrap();
        });
        at_last!(forward.finish()).unwrap();
        limited(sending).await.unwrap();
        assert!(limited(middle.into_buffer()).await.unwrap() == values());
        assert!(limited(end.into_buffer()).await.unwrap() == values());
        works(&nodes[1], &to_2, &nodes[2]).await;
    });
}

/// A round is begun by the call that returns, never by one that was dropped.
#[test]
fn the_rounds_of_a_delta_and_its_forward() {
    const ROUNDS: u32 = 3;
    let of_round = |round: u32| values().into_iter().map(move |value| value ^ round);
    async fn take(receiver: &mut DeltaReceiver<u32>) -> Vec<u32> {
        let mut all = vec![0; LEN];
        loop {
            let next = at_last!(async {
                let next = receiver.next_any().await.unwrap();
                next.map(|(range, elements)| (range.start, elements.to_vec()))
            });
            let Some((start, elements)) = next else { return all };
            all[start..start + elements.len()].copy_from_slice(&elements);
        }
    }
    on_both(move || async move {
        let nodes = [node("n0").await, node("n1").await, node("n2").await];
        let (to_1, to_2) = (link(&nodes[0], &nodes[1]).await, link(&nodes[1], &nodes[2]).await);
        let mut sender = open(&nodes[0], &to_1, "r").await;
        let mut middle = DeltaReceiver::accept(&nodes[1], "r", vec![0_u32; LEN]).await.unwrap();
        let mut forward = middle.forward(&nodes[1], &to_2, "r").await.unwrap();
        let mut end = DeltaReceiver::accept(&nodes[2], "r", vec![0_u32; LEN]).await.unwrap();
        let sending = tokio::spawn(async move {
            for round in 1..=ROUNDS {
                assert_eq!(sender.round(), round);
                for mut part in sender.parts(7).unwrap().into_iter().rev() {
                    let range = part.range();
                    let elements: Vec<u32> = of_round(round).collect();
                    part.copy_from_slice(&elements[range]);
                    part.commit();
                    tokio::task::yield_now().await;
                }
                if round < ROUNDS {
                    at_last!(sender.start()).unwrap();
                }
            }
            at_last!(sender.finish()).unwrap();
        });
        let passing = tokio::spawn(async move {
            for round in 1..=ROUNDS {
                assert_eq!(middle.round(), round);
                assert!(take(&mut middle).await.into_iter().eq(of_round(round)), "round {round}");
                at_last!(forward.finish()).unwrap();
                if round < ROUNDS {
                    at_last!(middle.start()).unwrap();
                }
            }
        });
        for round in 1..=ROUNDS {
            assert_eq!(end.round(), round);
            assert!(take(&mut end).await.into_iter().eq(of_round(round)), "round {round}");
            assert!(at_last!(async {
                end.finish().await.unwrap().iter().copied().eq(of_round(round))
            }));
            if round < ROUNDS {
                at_last!(end.start()).unwrap();
            }
        }
        limited(sending).await.unwrap();
        limited(passing).await.unwrap();
        works(&nodes[1], &to_2, &nodes[2]).await;
    });
}

fn run(number: u64) -> Run {
    let transfer = Transfer::Delta(1024);
    Run { number, transfer, ..Run::new(Pattern::Cascade, Compute::Trig, 3000) }
}

/// Three nodes, each linked to the next.
struct Three {
    nodes: [Node; 3],
    to_1: Peer,
    to_2: Peer,
}

impl Three {
    async fn new() -> Three {
        let nodes = [roomy_node("n0").await, roomy_node("n1").await, roomy_node("n2").await];
        let (to_1, to_2) = (link(&nodes[0], &nodes[1]).await, link(&nodes[1], &nodes[2]).await);
        Three { nodes, to_1, to_2 }
    }

    /// Runs once and drops the node with index `victim` at its `waits`-th wait; returns whether the
    /// run was done before. The others end, whatever happens.
    async fn run(&self, number: u64, victim: usize, waits: u32, arrays: &mut [Arrays; 3]) -> bool {
        let run = run(number);
        let [first, middle, last] = &mut *arrays;
        limited(first.prepare(&run, 0, 3)).await.expect("the run before was whole");
        limited(middle.prepare(&run, 1, 3)).await.expect("the run before was whole");
        limited(last.prepare(&run, 2, 3)).await.expect("the run before was whole");
        let [n0, n1, n2] = &self.nodes;
        let waits = |index| if index == victim { waits } else { u32::MAX };
        let (a, b, c) = limited(async {
            // A node that waits for a broken run would wait in vain, so its part is given up, too.
            let given_up = tokio::sync::Notify::new();
            let part =
                async |index: usize, role: &mut (dyn Future<Output = Part> + Send + Unpin)| {
                    let done = tokio::select! {
                        done = cancelled(waits(index), role) => done,
                        () = given_up.notified() => None,
                    };
                    if !matches!(done, Some(Ok(()))) {
                        given_up.notify_one();
                        given_up.notify_waiters();
                    }
                    done
                };
            let mut roles = (
                Box::pin(run_head(n0, &self.to_1, &run, first)),
                Box::pin(run_middle(n1, &self.to_2, &run, middle)),
                Box::pin(run_tail(n2, &run, last)),
            );
            tokio::join!(part(0, &mut roles.0), part(1, &mut roles.1), part(2, &mut roles.2))
        })
        .await;
        let done = [a, b, c].map(|part| matches!(part, Some(Ok(()))));
        if done == [true; 3] {
            let expected = sequential(run.compute, 3, run.elements);
            assert!(arrays[2].result(run.compute) == expected);
        }
        done == [true; 3]
    }
}

type Part = Result<(), PatternError>;

#[test]
fn the_roles_of_a_run() {
    on_both(|| async {
        let three = Three::new().await;
        let mut number = 0;
        // In the run that opens the channels, and in one that goes on with them.
        for (victim, is_first) in [0, 1, 2].into_iter().flat_map(|it| [(it, true), (it, false)]) {
            let mut waits = 0;
            loop {
                number += 1;
                let mut arrays = [Arrays::default(), Arrays::default(), Arrays::default()];
                if !is_first {
                    assert!(three.run(number, victim, u32::MAX, &mut arrays).await, "run {number}");
                    number += 1;
                }
                if three.run(number, victim, waits, &mut arrays).await {
                    break;
                }
                waits += 1;
                assert!(waits < WAITS_MAX, "a run has an end");
            }
        }
        works(&three.nodes[0], &three.to_1, &three.nodes[1]).await;
        works(&three.nodes[1], &three.to_2, &three.nodes[2]).await;
    });
}

/// Starts a node that joins again whenever its chain was given up, until one ends while `over`.
fn follower(
    node: &Node,
    head: &Node,
    index: usize,
    over: &Arc<AtomicBool>,
) -> tokio::task::JoinHandle<()> {
    let (node, head, over) = (node.clone(), head.addresses()[0].clone(), over.clone());
    tokio::spawn(async move {
        loop {
            let head = node.connect(&head).await.unwrap();
            let served = serve(&node, &head, index).await;
            if over.load(Ordering::SeqCst) {
                return served.unwrap();
            }
        }
    })
}

#[test]
fn the_gathering_of_a_chain() {
    on_both(|| async {
        let nodes = [roomy_node("n0").await, roomy_node("n1").await, roomy_node("n2").await];
        let over = Arc::new(AtomicBool::new(false));
        let followers = [1, 2].map(|index| follower(&nodes[index], &nodes[0], index, &over));
        let mut waits = 0;
        let mut chain = loop {
            match limited(cancelled(waits, Chain::gather(&nodes[0], 3))).await {
                Some(Ok(chain)) => break chain,
                // A node of the chain dropped before was still about to leave.
                Some(Err(_)) => {}
                None => waits += 1,
            }
            tokio::task::yield_now().await;
        };
        let outcome = limited(chain.run(&run(1))).await.unwrap();
        assert_eq!(outcome.difference, None);
        over.store(true, Ordering::SeqCst);
        limited(chain.end()).await.unwrap();
        for follower in followers {
            limited(follower).await.unwrap();
        }
    });
}

#[test]
fn the_run_and_the_end_of_a_chain() {
    on_both(|| async {
        let nodes = [roomy_node("n0").await, roomy_node("n1").await, roomy_node("n2").await];
        let mut ended = [false; 2];
        for waits in 0..WAITS_MAX {
            let follow = |index: usize| {
                let (node, head) = (nodes[index].clone(), nodes[0].addresses()[0].clone());
                tokio::spawn(async move {
                    let head = node.connect(&head).await.unwrap();
                    serve(&node, &head, index).await.map_err(|error| error.to_string())
                })
            };
            let followers = [follow(1), follow(2)];
            let mut chain = limited(Chain::gather(&nodes[0], 3)).await.unwrap();
            let number = u64::from(waits);
            // First the runs are dropped, then the ends.
            let done = if ended[0] {
                limited(chain.run(&run(number))).await.unwrap();
                limited(cancelled(waits % 7, chain.end())).await.map(Result::unwrap)
            } else {
                let ran = limited(cancelled(waits, chain.run(&run(number)))).await;
                drop(chain);
                ran.map(|outcome| assert_eq!(outcome.unwrap().difference, None))
            };
            // Nobody waits for ever, whatever was dropped.
            for follower in followers {
                let served = limited(follower).await.unwrap();
                if ended[0] {
                    assert_eq!(served, Ok(()), "an end that is dropped is an end");
                }
            }
            let phase = usize::from(ended[0]);
            ended[phase] |= done.is_some();
            if ended == [true; 2] {
                return;
            }
        }
        panic!("a run or an end never comes");
    });
}

#[test]
fn the_serving_of_a_node() {
    on_both(|| async {
        let nodes = [roomy_node("n0").await, roomy_node("n1").await];
        let address = nodes[0].addresses()[0].clone();
        // The head gathers again until all goes well.
        let mut leading = tokio::spawn({
            let head = nodes[0].clone();
            async move {
                let mut number = 0;
                loop {
                    number += 1;
                    let Ok(mut chain) = Chain::gather(&head, 2).await else { continue };
                    let Ok(outcome) = chain.run(&run(number)).await else { continue };
                    assert_eq!(outcome.difference, None);
                    // The node may be dropped once more before it has the end.
                    let _ = chain.end().await;
                    return;
                }
            }
        });
        let head = nodes[1].connect(&address).await.unwrap();
        for waits in 0.. {
            // Nobody answers a node that joins after the last run.
            let over = limited(async {
                tokio::select! {
                    biased;
                    _ = cancelled(waits, serve(&nodes[1], &head, 1)) => false,
                    led = &mut leading => { led.unwrap(); true }
                }
            });
            if over.await {
                break;
            }
            tokio::task::yield_now().await;
        }
        works(&nodes[1], &head, &nodes[0]).await;
    });
}

fn farm(model: Model) -> (FarmBuilder, Functions) {
    let (registry, functions) = registry();
    let builder = Farm::builder(registry).workers(2).workers_as(WorkersAs::Thread).model(model);
    (builder.prefetch(Prefetch::Fixed(2)), functions)
}

/// Starts a farm, dropped at each wait, at one address, which is free again each time.
async fn started(model: Model) -> (Farm, Functions) {
    let (mut waits, address) = (0, memory());
    loop {
        let (builder, functions) = farm(model);
        match limited(cancelled(waits, builder.messaging(at(&address)).start())).await {
            Some(Ok(farm)) => return (farm, functions),
            // The node of the dropped start is not quite gone.
            Some(Err(chunkcomm_farm::StartError::Node(_))) => {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            Some(Err(error)) => panic!("{error}"),
            None => waits += 1,
        }
    }
}

const TASKS: u64 = 40;

#[test]
fn the_start_and_the_runs_of_a_farm() {
    on_both(|| async {
        for model in [Model::A, Model::B] {
            let (mut farm, functions) = started(model).await;
            let double = &functions.double;
            let expected: Vec<u64> = (0..TASKS).map(|task| task * 2).collect();
            // Loops until each kind of run has come to its end.
            let mut done = [false; 3];
            for waits in 0..WAITS_MAX {
                if let Some(outcome) = limited(cancelled(waits, farm.run(double, 0..TASKS))).await {
                    assert_eq!(outcome.unwrap().results, expected);
                    done[0] = true;
                }
                let mut seen = vec![0; TASKS as usize];
                let each = |index, result| {
                    assert_eq!(result, 2 * index);
                    seen[index as usize] += 1;
                };
                let results = farm.stream(double, 0..TASKS).unwrap().as_completed();
                let ran = limited(cancelled(waits, results.for_each(each))).await;
                done[1] |= all_done(ran);
                assert!(seen.iter().all(|count| *count <= 1), "{seen:?}");
                let mut next = 0;
                let each = |index, result| {
                    assert_eq!((index, result), (next, 2 * next));
                    next += 1;
                };
                let results = farm.stream(double, 0..TASKS).unwrap();
                let ran = limited(cancelled(waits, results.for_each(each))).await;
                done[2] |= all_done(ran);
                // Dropped runs do not show in the next one.
                let outcome = limited(farm.run(double, 0..TASKS)).await.unwrap();
                assert_eq!(outcome.results, expected);
                if done == [true; 3] {
                    break;
                }
            }
            assert_eq!(done, [true; 3]);
            limited(farm.finish(Duration::from_secs(30))).await.unwrap();
        }
    });
}

fn at(address: &Address) -> Messaging {
    Messaging { listen: Some(address.clone()), ..Messaging::default() }
}

fn all_done(ran: Option<Result<chunkcomm_farm::RunStats, RunError>>) -> bool {
    ran.is_some_and(|ran| {
        assert_eq!(ran.unwrap().tasks, TASKS);
        true
    })
}

#[test]
fn the_finish_of_a_farm() {
    on_both(|| async {
        let address = memory();
        for waits in 0..WAITS_MAX {
            // The address is free again once the farm before is gone, finished or dropped.
            let start = || async {
                let (builder, functions) = farm(Model::B);
                match builder.messaging(at(&address)).start().await {
                    Ok(farm) => Some((farm, functions)),
                    Err(chunkcomm_farm::StartError::Node(_)) => None,
                    Err(error) => panic!("{error}"),
                }
            };
            let (mut farm, functions) = until_some(start).await;
            let outcome = limited(farm.run(&functions.double, 0..TASKS)).await.unwrap();
            assert_eq!(outcome.results.len(), TASKS as usize);
            let finishing = farm.finish(Duration::from_secs(30));
            if let Some(finished) = limited(cancelled(waits, finishing)).await {
                return finished.unwrap();
            }
        }
        panic!("it never finishes");
    });
}
