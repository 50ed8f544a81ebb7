//! Channels that peers open before anybody accepts them: they are held, a waiting `accept` comes
//! first, no peer takes another's share, and a refusal is reported.

use chunkcomm::error::RefusalReason;
use chunkcomm::proto::limits::{
    HELD_OPENS_NODE_MAX, OPEN_CREDIT_DIVISOR, OPEN_RESERVE_DIVISOR, WINDOW_BYTES_INITIAL,
    WINDOW_BYTES_LINK_DEFAULT,
};
use chunkcomm::{AcceptError, Node, Peer, SendError, Sender, TrySendError, channel};
use chunkcomm_testkit::{Pair, limited, on_both, on_one_thread, pair, tcp, until};
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

/// Number of channels that a link holds by default while none of its channels was accepted.
const LINK_MAX: usize = {
    let opens = WINDOW_BYTES_LINK_DEFAULT / OPEN_CREDIT_DIVISOR / WINDOW_BYTES_INITIAL;
    (opens - opens / OPEN_RESERVE_DIVISOR) as usize
};

const LATE: Duration = Duration::from_secs(20);

/// Opens `count` channels, each with its number as a message; returns when the peer has heard of
/// all.
async fn opened(node: &Node, peer: &Peer, name: &str, count: usize) -> Vec<Sender<usize>> {
    let mut senders = Vec::new();
    for number in 0..count {
        let mut sender: Sender<usize> = node.open(peer, name).await.unwrap();
        // The channel may be refused, and the refusal be known already.
        let _ = sender.send(&number).await;
        senders.push(sender);
    }
    let _ = limited(senders.last_mut().unwrap().sync()).await;
    senders
}

/// Returns how many of these channels were refused.
fn refused(senders: &mut [Sender<usize>]) -> usize {
    senders.iter_mut().map(|sender| usize::from(is_refused(sender.try_send(&0)))).sum()
}

fn is_refused(outcome: Result<(), TrySendError>) -> bool {
    let Err(TrySendError::Failed(SendError::Refused(refused))) = outcome else { return false };
    refused.reason == RefusalReason::NotAccepted
}

/// Accepts `name`; returns the first message.
async fn first(node: &Node, name: &str) -> usize {
    let (_, mut receiver) = limited(node.accept::<usize>(name)).await.unwrap();
    limited(receiver.recv()).await.unwrap().unwrap()
}

/// Adds another peer of `pair.a`.
async fn another(pair: &Pair) -> (Node, Peer) {
    let node = Node::builder().build().await.unwrap();
    let peer = node.connect(&pair.a.addresses()[0]).await.unwrap();
    (node, peer)
}

#[test]
fn opens_that_nobody_accepts_are_held_then_refused_by_name() {
    on_both(|| async {
        let pair = pair().await;
        let mut senders = Vec::new();
        for number in 0..LINK_MAX + 3 {
            let name = format!("held {number}");
            let mut sender: Sender<usize> = pair.b.open(&pair.peer, &name).await.unwrap();
            // The channel may be refused, and the refusal be known already.
            let _ = sender.send(&number).await;
            senders.push(sender);
        }
        for (number, sender) in senders.iter_mut().enumerate().skip(LINK_MAX) {
            let error = limited(sender.closed()).await;
            assert!(
                matches!(&error, SendError::Refused(it) if it.reason == RefusalReason::NotAccepted),
                "{error}"
            );
            assert!(error.to_string().contains(&format!("\"held {number}\"")), "{error}");
        }
        for number in 0..LINK_MAX {
            assert_eq!(first(&pair.a, &format!("held {number}")).await, number);
        }
        pair.is_well("after").await;
    });
}

#[test]
fn a_burst_of_opens_is_held_while_accept_takes_one_at_a_time() {
    on_both(|| async {
        let pair = pair().await;
        drop(opened(&pair.b, &pair.peer, "burst", 400).await);
        // The end of the session changes nothing for messages that arrived.
        limited(pair.b.close(LATE)).await.unwrap();
        for number in 0..400 {
            assert_eq!(first(&pair.a, "burst").await, number);
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
}

#[test]
fn an_accept_that_waits_is_served_whatever_is_held() {
    on_both(|| async {
        let pair = pair().await;
        // One link holds all that it may, and then the node does.
        let (full, peer) = another(&pair).await;
        let mut own = opened(&full, &peer, "nobody's", LINK_MAX + 1).await;
        assert_eq!(refused(&mut own), 1);
        let mut others = Vec::new();
        let mut held = LINK_MAX;
        while held < HELD_OPENS_NODE_MAX {
            let (node, peer) = another(&pair).await;
            let count = LINK_MAX.min(HELD_OPENS_NODE_MAX - held);
            others.push((opened(&node, &peer, "nobody's", count).await, node));
            held += count;
        }
        assert_eq!(others.iter_mut().map(|it| refused(&mut it.0)).sum::<usize>(), 0);
        assert_eq!(refused(&mut own), 1);
        for (node, peer) in [(&pair.b, &pair.peer), (&full, &peer)] {
            let mut waits = std::pin::pin!(pair.a.accept::<usize>("wanted"));
            assert!(has_to_wait(waits.as_mut()).await);
            let mut sender: Sender<usize> = node.open(peer, "wanted").await.unwrap();
            sender.send(&7).await.unwrap();
            let (_, mut receiver) = limited(waits).await.unwrap();
            assert_eq!(limited(receiver.recv()).await.unwrap(), Some(7));
        }
    });
}

/// Polls `future` once; returns whether it has to wait.
async fn has_to_wait<F: Future>(mut future: Pin<&mut F>) -> bool {
    poll_fn(|context| Poll::Ready(future.as_mut().poll(context).is_pending())).await
}

#[test]
fn the_peer_that_has_most_gives_way_to_one_that_has_less() {
    on_both(|| async {
        let pair = pair().await;
        let mut greedy = Vec::new();
        for _ in 0..HELD_OPENS_NODE_MAX / LINK_MAX + 1 {
            let (node, peer) = another(&pair).await;
            greedy.push(opened(&node, &peer, "greedy", LINK_MAX).await);
        }
        let before = greedy.len() * LINK_MAX - HELD_OPENS_NODE_MAX;
        until(|| greedy.iter_mut().map(|it| refused(it)).sum::<usize>() >= before).await;
        assert_eq!(greedy.iter_mut().map(|it| refused(it)).sum::<usize>(), before);
        // Nobody accepts it yet.
        let mut modest = opened(&pair.b, &pair.peer, "modest", 10).await;
        assert_eq!(refused(&mut modest), 0);
        for number in 0..10 {
            assert_eq!(first(&pair.a, "modest").await, number);
        }
        until(|| greedy.iter_mut().map(|it| refused(it)).sum::<usize>() >= before + 10).await;
        assert_eq!(greedy.iter_mut().map(|it| refused(it)).sum::<usize>(), before + 10);
    });
}

#[test]
fn what_a_session_that_ended_left_gives_way_first() {
    on_both(|| async {
        let pair = pair().await;
        let mut gone = Vec::new();
        for _ in 0..HELD_OPENS_NODE_MAX / LINK_MAX + 1 {
            let (node, peer) = another(&pair).await;
            gone.push((opened(&node, &peer, "gone", LINK_MAX).await, node));
        }
        for (senders, node) in gone {
            drop(senders);
            let _ = limited(node.close(LATE)).await;
        }
        let mut here = opened(&pair.b, &pair.peer, "here", LINK_MAX).await;
        assert_eq!(refused(&mut here), 0);
        for number in 0..LINK_MAX {
            assert_eq!(first(&pair.a, "here").await, number);
        }
    });
}

/// Opens a channel that the peer refuses; its message is in the peer's inbox.
async fn is_refused_to(pair: &Pair, full: &[Sender<usize>]) -> Sender<usize> {
    assert_eq!(full.len(), LINK_MAX);
    let mut sender: Sender<usize> = pair.b.open(&pair.peer, "refused").await.unwrap();
    sender.try_send(&1).unwrap();
    limited(sender.closed()).await;
    assert_eq!(sender.stats().acknowledged, 1);
    sender
}

#[test]
fn a_refused_open_fails_the_next_call_whatever_it_is() {
    // On one thread: nothing runs between the open and its message.
    on_one_thread(async {
        let pair = pair().await;
        let full = opened(&pair.b, &pair.peer, "nobody's", LINK_MAX).await;
        let is_refused = |outcome| matches!(outcome, Err(SendError::Refused(_)));
        let mut sender = is_refused_to(&pair, &full).await;
        assert!(is_refused(limited(sender.flush()).await), "flush");
        assert!(is_refused(limited(sender.sync()).await), "sync");
        assert!(is_refused(limited(sender.send(&1)).await), "send");
        assert!(is_refused(limited(sender.send_now(&1)).await), "send_now");
        assert!(is_refused(limited(sender.reserve(1)).await.map(drop)), "reserve");
        let mut sink = std::pin::pin!(sender);
        let flushed =
            poll_fn(|context| futures_sink::Sink::<usize>::poll_flush(sink.as_mut(), context));
        assert!(is_refused(limited(flushed).await), "poll_flush");
        let sender = is_refused_to(&pair, &full).await;
        let error = limited(sender.close(LATE)).await.unwrap_err();
        let cause = error.channels[0].cause.as_ref();
        assert!(matches!(cause, Some(SendError::Refused(_))), "{error}");
    });
}

#[test]
fn a_refused_open_whose_sender_is_gone_is_said_when_the_node_is_closed() {
    // On one thread: nothing runs between the open and its message.
    on_one_thread(async {
        let pair = pair().await;
        let full = opened(&pair.b, &pair.peer, "nobody's", LINK_MAX).await;
        for _ in 0..3 {
            let mut sender: Sender<usize> = pair.b.open(&pair.peer, "refused").await.unwrap();
            sender.try_send(&1).unwrap();
        }
        pair.is_well("beside").await;
        drop(full);
        let error = limited(pair.b.close(LATE)).await.unwrap_err();
        let names: Vec<&str> = error.channels.iter().map(|it| it.channel.as_str()).collect();
        assert_eq!(names, ["refused"; 3], "{error}");
        assert!(error.to_string().contains("nobody accepted it"), "{error}");
    });
}

/// Runs `future`; counts its polls when they end, so that a counted one has its waker where it waits.
async fn counted<F: Future>(future: F, polls: Arc<AtomicUsize>) -> F::Output {
    let mut future = pin!(future);
    poll_fn(|context| {
        let polled = future.as_mut().poll(context);
        polls.fetch_add(1, Ordering::Relaxed);
        polled
    })
    .await
}

#[test]
fn an_open_wakes_the_accepts_of_its_name_and_peer_only() {
    on_both(|| async {
        const NAMES: usize = 64;
        let pair = pair().await;
        let (_other, _) = another(&pair).await;
        let mut greeting = pair.b.open::<usize>(&pair.peer, "greeting").await.unwrap();
        greeting.send(&0).await.unwrap();
        let (from_b, _) = limited(pair.a.accept::<usize>("greeting")).await.unwrap();
        let polls = Arc::new(AtomicUsize::new(0));
        let mut accepting = tokio::task::JoinSet::new();
        for number in 0..NAMES {
            let (node, polls, from) = (pair.a.clone(), Arc::clone(&polls), from_b.clone());
            let name = channel(format!("name {number}"));
            let name = if number % 2 == 0 { name } else { name.from_peer(&from) };
            accepting.spawn(async move {
                let (_, mut receiver) = counted(node.accept::<usize>(name), polls).await.unwrap();
                assert_eq!(receiver.recv().await.unwrap(), Some(number));
                number
            });
        }
        until(|| polls.load(Ordering::Relaxed) == NAMES).await;
        for number in (0..NAMES).rev() {
            let name = format!("name {number}");
            let mut sender = pair.b.open::<usize>(&pair.peer, &*name).await.unwrap();
            sender.send(&number).await.unwrap();
            assert_eq!(limited(accepting.join_next()).await.unwrap().unwrap(), number);
            assert_eq!(polls.load(Ordering::Relaxed), 2 * NAMES - number, "{name}");
        }
    });
}

#[test]
fn all_accepts_learn_that_the_node_is_closed() {
    on_both(|| async {
        let pair = pair().await;
        let mut accepting = tokio::task::JoinSet::new();
        for number in 0..8 {
            let node = pair.a.clone();
            accepting.spawn(async move { node.accept::<usize>(&*format!("{number}")).await });
        }
        tokio::task::yield_now().await;
        limited(pair.a.close(LATE)).await.unwrap();
        let mut done = 0;
        while let Some(accepted) = limited(accepting.join_next()).await {
            assert!(matches!(accepted.unwrap().unwrap_err(), AcceptError::Closed));
            done += 1;
        }
        assert_eq!(done, 8);
    });
}

#[test]
fn an_accept_from_one_peer_takes_the_opens_of_all_its_sessions() {
    on_both(|| async {
        let a = Node::builder().name("a").listen(tcp()).build().await.unwrap();
        let b = Node::builder().name("b").listen(tcp()).build().await.unwrap();
        let first = limited(b.connect(&a.addresses()[0])).await.unwrap();
        let mut sender = b.open::<usize>(&first, "work").await.unwrap();
        sender.send(&1).await.unwrap();
        let (from_b, mut receiver) = limited(a.accept::<usize>("work")).await.unwrap();
        assert_eq!(limited(receiver.recv()).await.unwrap(), Some(1));
        // An accept that waits since before the other session.
        let work = channel("work").from_peer(&from_b);
        let waiting = tokio::spawn({
            let (a, work) = (a.clone(), work.clone());
            async move { a.accept::<usize>(work).await }
        });
        limited(a.connect(&b.addresses()[0])).await.unwrap();
        let mut events = b.events();
        let second = limited(async {
            loop {
                let event = events.next().await.unwrap();
                if let chunkcomm::LinkEvent::Connected { peer, .. } = event
                    && peer != first
                {
                    return peer;
                }
            }
        })
        .await;
        first.abort();
        limited(from_b.closed()).await;
        let mut sender = b.open::<usize>(&second, "work").await.unwrap();
        sender.send(&2).await.unwrap();
        let (peer, mut receiver) = limited(waiting).await.unwrap().unwrap();
        assert_eq!((peer.incarnation(), peer == from_b), (b.incarnation(), false));
        assert_eq!(limited(receiver.recv()).await.unwrap(), Some(2));
        // The last session is over: so is the wait.
        let waiting = tokio::spawn(async move { a.accept::<usize>(work).await });
        second.abort();
        let error = limited(waiting).await.unwrap().unwrap_err();
        assert!(matches!(error, AcceptError::Lost { .. }), "{error}");
    });
}
