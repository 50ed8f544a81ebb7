//! Changes of a node's links, as its subscribers hear of them.

use chunkcomm::error::LinkCause;
use chunkcomm::{Address, LinkEvent, LinkEvents, Node, Peer};
use chunkcomm_testkit::proxy::Proxy;
use chunkcomm_testkit::raw::{RawPeer, again, socket_address};
use chunkcomm_testkit::{NEVER, Pair, limited, memory, on_both, on_one_thread, pair, pair_of, tcp};
use std::collections::HashSet;
use std::time::Duration;

async fn next(events: &mut LinkEvents) -> LinkEvent {
    limited(events.next()).await.expect("the node is there")
}

async fn connected(events: &mut LinkEvents) -> Peer {
    match next(events).await {
        LinkEvent::Connected { peer } => peer,
        other => panic!("{other:?}"),
    }
}

/// Lets node `b` dial `a` through a proxy; returns the subscriptions of both.
async fn watched() -> (Pair, Proxy, [LinkEvents; 2]) {
    let a = Node::builder().name("a").listen(tcp()).build().await.unwrap();
    let b = Node::builder().name("b").build().await.unwrap();
    let proxy = Proxy::before(&a);
    let events = [a.events(), b.events()];
    let peer = b.connect(&proxy.address).await.unwrap();
    (Pair { a, b, peer }, proxy, events)
}

#[test]
fn both_ends_are_told_of_a_cut_and_of_the_end_in_order() {
    on_both(|| async {
        let (pair, proxy, [mut at_a, mut at_b]) = watched().await;
        let (mut sender, receiver) = pair.channel::<u64>("counted").await;
        assert_eq!(connected(&mut at_a).await, *receiver.peer());
        assert_eq!(connected(&mut at_b).await, pair.peer);
        sender.send(&0).await.unwrap();
        limited(sender.sync()).await.unwrap();
        proxy.cut();
        for (events, seen) in [(&mut at_a, receiver.peer()), (&mut at_b, &pair.peer)] {
            match next(events).await {
                LinkEvent::CutOff { peer, error } => {
                    assert_eq!((&peer, error.peer()), (seen, seen.name()));
                    assert!(!error.is_closed() && peer.is_alive(), "{error}");
                }
                other => panic!("{other:?}"),
            }
            match next(events).await {
                LinkEvent::Resumed { peer, attempt, after } => {
                    assert_eq!(&peer, seen);
                    assert!(attempt >= 2 && after > Duration::ZERO, "{attempt}, {after:?}");
                }
                other => panic!("{other:?}"),
            }
        }
        proxy.swallow(true);
        sender.send_all(1..4u64).await.unwrap();
        pair.peer.abort();
        match next(&mut at_b).await {
            LinkEvent::Ended { peer, error, unacknowledged } => {
                assert_eq!(peer, pair.peer);
                assert!(matches!(error.cause(), LinkCause::Closed), "{error}");
                let [lost] = &*unacknowledged else { panic!("{unacknowledged:?}") };
                assert_eq!((&*lost.channel, &*lost.peer), ("counted", "a"));
                assert_eq!((lost.account.accepted, lost.account.acknowledged), (4, 1));
            }
            other => panic!("{other:?}"),
        }
    });
}

#[test]
fn a_subscription_begins_with_what_there_is() {
    on_both(|| async {
        let (pair, proxy, [_, mut at_b]) = watched().await;
        connected(&mut at_b).await;
        assert_eq!(connected(&mut pair.b.events()).await, pair.peer);
        proxy.close(true);
        proxy.cut();
        let LinkEvent::CutOff { .. } = next(&mut at_b).await else { panic!("not cut off") };
        let mut late = pair.b.events();
        assert_eq!(connected(&mut late).await, pair.peer);
        let LinkEvent::CutOff { .. } = next(&mut late).await else { panic!("not cut off") };
        proxy.close(false);
        for events in [&mut at_b, &mut late] {
            let LinkEvent::Resumed { .. } = next(events).await else { panic!("not resumed") };
        }
        limited(pair.b.close(NEVER)).await.unwrap();
        for mut events in [at_b, late, pair.b.events()] {
            if let Some(event) = limited(events.next()).await {
                assert!(matches!(event, LinkEvent::Ended { .. }), "{event:?}");
                assert!(limited(events.next()).await.is_none());
            }
        }
    });
}

#[test]
fn a_peer_that_dials_again_before_the_loss_was_seen_was_cut_off() {
    on_one_thread(async {
        let node = Node::builder().listen(tcp()).build().await.unwrap();
        let mut events = node.events();
        let _first = RawPeer::connect(&node).await;
        connected(&mut events).await;
        let stream = tokio::net::TcpStream::connect(socket_address(&node)).await.unwrap();
        let mut second = RawPeer::greet(stream).await;
        second.bytes(&again(&second, 5, 0).encode()).await;
        let LinkEvent::CutOff { error, .. } = next(&mut events).await else {
            panic!("not cut off")
        };
        assert!(matches!(error.cause(), LinkCause::ConnectionLost), "{error}");
        let LinkEvent::Resumed { attempt, .. } = next(&mut events).await else {
            panic!("not resumed")
        };
        assert_eq!(attempt, 5);
    });
}

#[test]
fn a_slow_subscriber_learns_how_much_it_missed() {
    on_one_thread(async {
        let pair = pair_of(memory(), Node::builder(), Node::builder()).await;
        let (mut slow, mut fast) = (pair.b.events(), pair.b.events());
        connected(&mut fast).await;
        pair.peer.abort();
        let mut told = 1;
        for _ in 0..600 {
            let LinkEvent::Ended { .. } = next(&mut fast).await else { panic!("it goes on") };
            let peer = pair.b.connect(&pair.a.addresses()[0]).await.unwrap();
            assert_eq!(connected(&mut fast).await, peer);
            peer.abort();
            told += 2;
        }
        let LinkEvent::Ended { .. } = next(&mut fast).await else { panic!("it goes on") };
        told += 1;
        let LinkEvent::Missed { events: missed } = next(&mut slow).await else {
            panic!("nothing is missed")
        };
        assert_eq!(missed, told - 1024);
        limited(pair.b.close(NEVER)).await.unwrap();
        let mut last = None;
        for _ in 0..1024 {
            last = Some(next(&mut slow).await);
        }
        assert!(matches!(last, Some(LinkEvent::Ended { .. })), "{last:?}");
        assert!(limited(slow.next()).await.is_none());
    });
}

#[test]
fn a_subscription_ends_with_its_node_and_does_not_keep_it() {
    on_both(|| async {
        let pair = pair().await;
        let mut at_a = pair.a.events();
        connected(&mut at_a).await;
        let mut at_b = pair.b.events();
        connected(&mut at_b).await;
        let waiting = tokio::spawn(async move { at_b.next().await });
        // Its links end with the node, which is gone for its own subscribers.
        drop((pair.b, pair.peer));
        assert!(limited(waiting).await.unwrap().is_none());
        let LinkEvent::Ended { error, .. } = next(&mut at_a).await else { panic!("it goes on") };
        assert!(matches!(error.cause(), LinkCause::ClosedByPeer), "{error}");
        // Nobody is left: closing ends it at once.
        let waiting = tokio::spawn(async move { at_a.next().await });
        tokio::task::yield_now().await;
        limited(pair.a.close(NEVER)).await.unwrap();
        assert!(limited(waiting).await.unwrap().is_none());
    });
}

#[test]
fn a_node_is_told_nothing_of_its_links_to_itself() {
    on_one_thread(async {
        let node = Node::builder().build().await.unwrap();
        let mut early = node.events();
        let local = node.local().await.unwrap();
        assert_eq!(local.address(), None);
        let mut late = node.events();
        limited(node.close(NEVER)).await.unwrap();
        assert!(limited(early.next()).await.is_none());
        assert!(limited(late.next()).await.is_none());
    });
}

#[test]
// A peer's parts that change are not compared.
#[allow(clippy::mutable_key_type)]
fn peers_are_equal_within_a_session_and_know_their_address() {
    on_both(|| async {
        let pair = pair().await;
        let mut at_a = pair.a.events();
        let seen = connected(&mut at_a).await;
        let (_sender, receiver) = pair.channel::<u64>("one").await;
        let (_back, answers) = pair.back::<u64>("back").await;
        assert_eq!(seen, *receiver.peer());
        assert_eq!(pair.peer, *answers.peer());
        assert_ne!(pair.peer, seen);
        // The dialling node knows where to dial, however it got the peer.
        assert_eq!(answers.peer().address(), Some(&pair.a.addresses()[0]));
        let Some(Address::Tcp { host, port }) = seen.address() else { panic!("{seen:?}") };
        assert!(host == "127.0.0.1" && *port > 0);
        let mut peers = HashSet::from([pair.peer.clone(), answers.peer().clone(), seen]);
        assert_eq!(peers.len(), 2);
        // Another session with the same process, and one with another process.
        pair.peer.abort();
        limited(pair.peer.closed()).await;
        let again = pair.b.connect(&pair.a.addresses()[0]).await.unwrap();
        assert!(peers.insert(again.clone()));
        assert_eq!(again.incarnation(), pair.peer.incarnation());
        assert!(!peers.insert(pair.b.connect(&pair.a.addresses()[0]).await.unwrap()));
    });
}
