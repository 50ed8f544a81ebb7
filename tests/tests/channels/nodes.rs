//! Nodes: addresses that cannot be had, settings, threads of their own.

use chunkcomm::{
    AGE_BOUND_VARIABLE, Address, ConnectError, Experiment, Node, NodeError, Policy, Silence,
};
use chunkcomm_testkit::{
    NEVER, Pair, blocking, free_path, limited, memory, messages_of, on_both, on_one_thread,
    pair_of, tcp, until, windows_of,
};
use std::error::Error;
use std::io::ErrorKind;
use std::time::Duration;
use tokio::runtime::Builder;

#[test]
fn an_address_that_is_taken() {
    on_both(|| async {
        let path = free_path("taken");
        for address in [tcp(), memory(), Address::Unix(path)] {
            let first = Node::builder().listen(address).build().await.unwrap();
            let taken = first.addresses()[0].clone();
            let error = Node::builder().listen(taken.clone()).build().await.unwrap_err();
            let NodeError::Listen { address, error: cause } = &error else { panic!("{error}") };
            assert_eq!((address, cause.kind()), (&taken, ErrorKind::AddrInUse));
            assert!(error.to_string().contains(&taken.to_string()), "{error}");
            assert!(error.source().is_some());
            // The first one is not concerned.
            let b = Node::builder().name("b").build().await.unwrap();
            let peer = b.connect(&taken).await.unwrap();
            Pair { a: first, b, peer }.is_well("still").await;
        }
    });
}

#[test]
fn the_addresses_of_a_closed_node_are_free() {
    on_both(|| async {
        let path = free_path("closed");
        for mut address in [tcp(), memory(), Address::Unix(path)] {
            for _ in 0..200 {
                let node = Node::builder().listen(address).build().await.unwrap();
                limited(node.close(NEVER)).await.unwrap();
                address = node.addresses()[0].clone();
            }
        }
    });
}

/// Nobody runs the tasks that listen.
#[test]
fn a_node_closes_while_its_runtime_does_not_run() {
    let runtime = || Builder::new_current_thread().enable_all().build().unwrap();
    let (own, other) = (runtime(), runtime());
    let address = Address::Unix(free_path("undriven"));
    let node = own.block_on(Node::builder().listen(address).build()).unwrap();
    other.block_on(async { limited(node.close(NEVER)).await.unwrap() });
}

#[test]
fn a_node_without_a_name_is_called_the_same_at_both_ends() {
    on_one_thread(async {
        let a = Node::builder().listen(memory()).build().await.unwrap();
        let b = Node::builder().name("b").build().await.unwrap();
        let peer = limited(b.connect(&a.addresses()[0])).await.unwrap();
        let name = format!("node-{:08x}", a.incarnation() >> 96);
        assert_eq!((a.name(), peer.name()), (&name[..], &name[..]));
        assert!(a.explain().await.to_string().starts_with(&format!("node {name}: ")));
    });
}

#[test]
fn an_address_that_refuses() {
    on_both(|| async {
        let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = Address::from(gone.local_addr().unwrap());
        drop(gone);
        let path = free_path("nobody");
        for address in [address, memory(), Address::Unix(path)] {
            let node = Node::builder().build().await.unwrap();
            let error = limited(node.connect_within(&address, Duration::ZERO)).await.unwrap_err();
            let ConnectError::Unreachable { address: named, error: cause, .. } = &error else {
                panic!("{error}")
            };
            assert_eq!(named, &address);
            let kinds = [ErrorKind::ConnectionRefused, ErrorKind::NotFound];
            assert!(kinds.contains(&cause.kind()), "{cause}");
            assert!(error.to_string().contains(&address.to_string()), "{error}");
        }
    });
}

#[test]
fn beyond_loopback_needs_a_loudly_named_option() {
    on_one_thread(async {
        for address in ["0.0.0.0:0", "[::]:0"] {
            let address: Address = address.parse().unwrap();
            let error = Node::builder().listen(address.clone()).build().await.unwrap_err();
            assert!(matches!(error, NodeError::BeyondLoopback { .. }), "{error}");
            assert!(error.to_string().contains("insecure_bind_beyond_loopback"), "{error}");
        }
        let open = Node::builder().listen("0.0.0.0:0".parse().unwrap());
        let node = open.insecure_bind_beyond_loopback().build().await.unwrap();
        assert_eq!(node.addresses().len(), 1);
    });
}

#[test]
fn settings_that_cannot_be_say_what_is_allowed() {
    const SECOND: Duration = Duration::from_secs(1);
    on_one_thread(async {
        let long = "n".repeat(33);
        let unasked =
            Node::builder().silence(Silence { probe: SECOND, suspect: SECOND, dead: SECOND });
        let settings = [
            (unasked, "silence", "probe < suspect"),
            (Node::builder().limits(messages_of(100)), "message_bytes_max", "8192"),
            (Node::builder().limits(windows_of(100)), "window_bytes_max", "32768"),
            (Node::builder().name(long.clone()), "name", "32 bytes"),
            (Node::builder().cluster(long), "cluster", "32 bytes"),
        ];
        for (settings, name, allowed) in settings {
            let text = settings.build().await.unwrap_err().to_string();
            assert!(text.contains(name) && text.contains(allowed), "{text}");
        }
    });
    chunkcomm_testkit::on_two_threads(async {
        let error = Node::builder().busy_poll().build().await.unwrap_err();
        assert!(error.to_string().contains("io_thread"), "{error}");
    });
    // Only this test would set the variable, and it knows that others do without.
    assert_eq!(std::env::var(AGE_BOUND_VARIABLE).ok(), None);
}

#[test]
fn without_a_runtime_a_node_needs_a_thread_of_its_own() {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};
    let mut building = pin!(Node::builder().build());
    let Poll::Ready(outcome) = building.as_mut().poll(&mut Context::from_waker(Waker::noop()))
    else {
        panic!("it waits")
    };
    assert!(matches!(outcome, Err(NodeError::NoRuntime)));
}

#[test]
fn a_node_with_a_thread_of_its_own_works_while_the_runtime_does_not_run() {
    let pair = on_one_thread(async {
        pair_of(tcp(), Node::builder().io_thread(), Node::builder().io_thread()).await
    });
    let (mut sender, mut receiver) = on_one_thread(pair.channel::<u64>("thread"));
    sender.try_send(&1).unwrap();
    // This thread computes, and polls nothing.
    blocking::until("nothing arrives", || receiver.peer().stats().messages_received > 0);
    assert_eq!(receiver.try_recv().unwrap(), 1);
    on_one_thread(async {
        pair.is_well("later").await;
        limited(pair.a.close(NEVER)).await.unwrap();
        limited(pair.b.close(NEVER)).await.unwrap();
    });
}

#[test]
fn busy_polling_nodes_work() {
    on_one_thread(async {
        let busy = || Node::builder().busy_poll();
        let pair = pair_of(tcp(), busy(), busy()).await;
        pair.is_well("one thread").await;
    });
    on_one_thread(async {
        let busy = || Node::builder().io_thread().busy_poll();
        let pair = pair_of(tcp(), busy(), busy()).await;
        pair.is_well("own threads").await;
    });
}

#[test]
fn busy_polling_nodes_carry_more_than_sockets_hold_and_notice_the_end() {
    on_one_thread(async {
        let busy = || Node::builder().busy_poll();
        let path = free_path("busy");
        for address in [tcp(), Address::Unix(path)] {
            let pair = pair_of(address, busy(), busy()).await;
            let mut sender = pair.b.open_bytes(&pair.peer, "large").await.unwrap();
            let sent: Vec<u8> = (0..12_000_000u32).map(|at| (at % 251) as u8).collect();
            let message = bytes::Bytes::from(sent.clone());
            let sending = tokio::spawn(async move { sender.send(message).await.map(|()| sender) });
            let (_, mut receiver) = limited(pair.a.accept_bytes("large")).await.unwrap();
            assert!(limited(receiver.recv()).await.unwrap().unwrap() == sent);
            limited(sending).await.unwrap().unwrap().close(NEVER).await.unwrap();
            // The task that keeps the core busy lives as long as its connections, not longer.
            limited(pair.b.close(NEVER)).await.unwrap();
            assert!(limited(receiver.recv()).await.unwrap().is_none());
            limited(pair.a.close(NEVER)).await.unwrap();
        }
    });
}

#[test]
fn one_node_talks_to_many_peers() {
    on_both(|| async {
        let hub = Node::builder().name("a").listen(tcp()).listen(memory()).build().await.unwrap();
        let mut tasks = Vec::new();
        for number in 0..20 {
            let address = hub.addresses()[number % 2].clone();
            let hub = hub.clone();
            tasks.push(tokio::spawn(async move {
                let node = Node::builder().name(format!("b{number}")).build().await.unwrap();
                let peer = node.connect(&address).await.unwrap();
                let pair = Pair { a: hub, b: node, peer };
                pair.is_well(&format!("channel {number}")).await;
            }));
        }
        for task in tasks {
            limited(task).await.unwrap();
        }
    });
}

#[test]
fn without_a_session_messages_arrive_and_count_as_acknowledged_when_they_leave() {
    on_one_thread(async {
        let off = || {
            Node::builder().experiment(Experiment { session_off: true, ..Experiment::default() })
        };
        let pair = pair_of(tcp(), off(), off()).await;
        let (mut sender, mut receiver) = pair.channel::<u64>("off").await;
        sender.send_all(0..1000u64).await.unwrap();
        for number in 0..1000 {
            assert_eq!(limited(receiver.recv()).await.unwrap(), Some(number));
        }
        limited(sender.sync()).await.unwrap();
        assert_eq!(sender.stats().acknowledged, 1000);
        limited(sender.close(NEVER)).await.unwrap();
        limited(pair.b.close(NEVER)).await.unwrap();
    });
}

#[test]
fn a_node_lingers_though_the_nodes_around_it_do_not() {
    on_one_thread(async {
        let linger = Policy::Linger(Duration::from_millis(2));
        let pair = pair_of(tcp(), Node::builder(), Node::builder().policy(linger)).await;
        let (mut sender, mut receiver) = pair.channel::<u64>("age").await;
        for number in 0..5 {
            sender.send(&number).await.unwrap();
            assert_eq!(limited(receiver.recv()).await.unwrap(), Some(number));
        }
        until(|| pair.peer.stats().messages_sent == 5).await;
        assert!(pair.peer.stats().queueing_delay_us_total >= 5 * 2000);
    });
}
