//! A node's warnings to people, where no call can return an error: messages whose arrival is
//! unknown at the node's end, and channels that nobody accepts.

use chunkcomm::{
    AcceptError, Address, Node, NodeBuilder, Peer, Redelivery, SendError, Sender, channel,
};
use chunkcomm_testkit::events::Events;
use chunkcomm_testkit::raw::RawPeer;
use chunkcomm_testkit::{
    fill, itself, limited, memory, on_both, on_one_thread, own_host, pair, pair_of, tcp, until,
    until_some, windows_of,
};
use std::time::Duration;
use tokio::net::TcpListener;

/// Variable that is set for the process that ends: the way in which it ends.
const ENDS: &str = "CHUNKCOMM_TEST_ENDS";

/// Variable that is set for the process that sends and ends: the address of its peer.
const SENDS: &str = "CHUNKCOMM_TEST_SENDS";

const MESSAGES: u64 = 1000;

/// Sends more than the window holds of a channel that nobody accepts.
async fn send(builder: NodeBuilder) -> (Node, Peer, Sender<(u64, String)>) {
    let server = Node::builder().name("server").listen(tcp()).build().await.unwrap();
    let client = builder.name("client").build().await.unwrap();
    let peer = client.connect(&server.addresses()[0]).await.unwrap();
    let mut sender = client.open(&peer, "greetings").await.unwrap();
    for number in 0..MESSAGES {
        sender.send(&(number, "hello".to_owned())).await.unwrap();
    }
    // The server lives as long as the runtime does.
    tokio::spawn(async move {
        std::future::pending::<()>().await;
        drop(server);
    });
    (client, peer, sender)
}

/// Runs as one process, which ends as the variable says.
#[test]
fn ends() {
    let Ok(how) = std::env::var(ENDS) else { return };
    let runtime = || tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let events = Events::default();
    let runtime = match &how[..] {
        "main returns" => {
            let runtime = runtime();
            runtime.block_on(async {
                let (_client, _peer, sender) = send(Node::builder()).await;
                drop(sender);
            });
            runtime
        }
        "the runtime is dropped first" => {
            let first = runtime();
            let (client, peer, sender) = first.block_on(send(Node::builder()));
            drop(first);
            drop((peer, sender));
            drop(client);
            runtime()
        }
        "closed" => {
            let runtime = runtime();
            runtime.block_on(async {
                let (client, _peer, sender) = send(Node::builder()).await;
                drop(sender);
                client.close(Duration::from_millis(100)).await.unwrap_err();
            });
            runtime
        }
        "told by an error" => {
            let runtime = runtime();
            runtime.block_on(async {
                let (_client, peer, mut sender) = send(Node::builder()).await;
                peer.abort();
                peer.closed().await;
                sender.send(&(0, String::new())).await.unwrap_err();
            });
            runtime
        }
        "quiet" => {
            let runtime = runtime();
            runtime.block_on(async { drop(send(Node::builder().quiet()).await) });
            runtime
        }
        "traced" => {
            let _guard = events.listen();
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.unwrap();
            runtime.block_on(async { drop(send(Node::builder()).await) });
            drop(runtime);
            let said = ["WARN", "peer=\"server\"", "greetings", "of 1000 messages"];
            assert_eq!(events.count(&said), 1, "{events:?}");
            return;
        }
        how => panic!("{how}"),
    };
    drop(runtime);
}

/// Runs as one process, which sends on a thread of the node's own and returns from `main` at once.
#[test]
fn sends_and_ends() {
    let Ok(address) = std::env::var(SENDS) else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = Node::builder().name("client").io_thread().build().await.unwrap();
        let peer = client.connect(&address.parse().unwrap()).await.unwrap();
        let mut sender = client.open::<u64>(&peer, "last words").await.unwrap();
        for number in 0..MESSAGES {
            sender.send(&number).await.unwrap();
        }
    });
    // Ends as `main` does, without the code that the tests' own `main` runs behind them.
    std::process::exit(0);
}

#[test]
fn the_end_of_a_node_with_a_thread_of_its_own_waits_for_what_was_accepted() {
    on_both(|| async {
        let server = Node::builder().name("server").listen(tcp()).build().await.unwrap();
        let address = server.addresses()[0].to_string();
        let ended = tokio::task::spawn_blocking(move || {
            itself("warnings::sends_and_ends").env(SENDS, address).output().unwrap()
        });
        let (_, mut receiver) = limited(server.accept::<u64>("last words")).await.unwrap();
        for number in 0..MESSAGES {
            assert_eq!(limited(receiver.recv()).await.unwrap(), Some(number));
        }
        assert_eq!(limited(receiver.recv()).await.unwrap(), None);
        let output = limited(ended).await.unwrap();
        assert!(output.status.success());
        assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    });
}

/// Returns the standard error of a process that ends as `how` says.
fn said(how: &str) -> String {
    let output = itself("warnings::ends").env(ENDS, how).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{how}: {said}{}", String::from_utf8_lossy(&output.stdout));
    said
}

#[test]
fn a_node_that_ends_says_which_messages_may_not_have_arrived() {
    for how in ["main returns", "the runtime is dropped first"] {
        let said = said(how);
        let [line] = said.lines().collect::<Vec<_>>()[..] else { panic!("{how}: {said:?}") };
        for part in [
            "chunkcomm: node client: it ended, and whether ",
            "channel \"greetings\" to server: of 1000 messages ",
            "Node::close",
        ] {
            assert!(line.contains(part), "{how}: {part:?} is not in {line:?}");
        }
    }
}

#[test]
fn nothing_is_said_of_what_was_told_or_is_not_to_be_told() {
    for how in ["closed", "told by an error", "quiet", "traced"] {
        assert_eq!(said(how), "", "{how}");
    }
}

/// Readers copy these, and `main` returns right behind them.
#[test]
fn the_first_examples_of_the_readme_and_the_crate_close_what_they_send() {
    for text in
        [include_str!("../../../README.md"), include_str!("../../../crates/chunkcomm/src/lib.rs")]
    {
        let example = text.split("```").find(|block| block.contains("\"greetings\"")).unwrap();
        let closes = ["client.close(", "sender.close("];
        assert!(closes.iter().any(|close| example.contains(close)), "{example}");
    }
}

/// Runs `test` on a clock that jumps to the next timer when nothing else is to be done.
fn on_a_paused_clock(test: impl Future<Output = ()>) {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().start_paused(true).build().unwrap().block_on(test);
}

#[test]
fn a_channel_that_nobody_accepts_is_told_by_its_name_at_both_ends() {
    let events = Events::default();
    let _guard = events.listen();
    on_a_paused_clock(async {
        let pair = pair_of(memory(), Node::builder(), Node::builder()).await;
        let node = pair.a.clone();
        let waiting = tokio::spawn(async move { node.accept::<u64>("events").await.map(|_| ()) });
        let mut sender = pair.b.open::<u64>(&pair.peer, "evnts").await.unwrap();
        fill(&mut sender, &1).await;
        let stalled = tokio::spawn(async move { sender.send(&2).await });
        let receiver_says: &[&str] = &[
            "WARN",
            "channel \"evnts\" from b: nobody has accepted it for 5 s",
            "this node waits for a peer to open channel \"events\"",
        ];
        let sender_says: &[&str] =
            &["WARN", "channel \"evnts\" to a: nobody there has taken anything of it for 5 s"];
        until(|| events.count(receiver_says) > 0 && events.count(sender_says) > 0).await;
        tokio::time::sleep(Duration::from_secs(30)).await;
        assert_eq!((events.count(receiver_says), events.count(sender_says)), (1, 1), "{events:?}");
        stalled.abort();
        waiting.abort();
    });
}

#[test]
fn a_channel_for_which_the_peer_has_no_room_is_told_by_its_name_and_opened_when_one_ends() {
    let events = Events::default();
    let _guard = events.listen();
    on_a_paused_clock(async {
        // Room for the first windows of 8 channels.
        let small = Node::builder().limits(windows_of(256 * 1024));
        let pair = pair_of(memory(), small, Node::builder()).await;
        let mut open = Vec::new();
        for number in 0..8 {
            let name = format!("open {number}");
            let opens = pair.b.open::<u64>(&pair.peer, &*name);
            let (accepted, sender) = tokio::join!(limited(pair.a.accept::<u64>(&*name)), opens);
            let sender = sender.unwrap();
            assert_eq!(sender.waits_to_open(), None);
            open.push((accepted.unwrap(), sender));
        }
        let mut sender = pair.b.open::<u64>(&pair.peer, "beyond").await.unwrap();
        sender.send(&7).await.unwrap();
        let says: &[&str] = &[
            "WARN",
            "channel \"beyond\" to a, to which 8 are open: the peer has had no room for it for 5 s",
        ];
        until(|| events.count(says) > 0).await;
        assert!(sender.waits_to_open() >= Some(Duration::from_secs(5)));
        tokio::time::sleep(Duration::from_secs(30)).await;
        assert_eq!(events.count(says), 1, "{events:?}");
        let explained = pair.b.explain().await.to_string();
        let waits = "waits for the peer to have room for one more channel: 8 are open, 1 wait";
        assert!(explained.contains(waits), "{explained}");
        drop(open.pop());
        let (_, mut receiver) = limited(pair.a.accept::<u64>("beyond")).await.unwrap();
        assert_eq!(limited(receiver.recv()).await.unwrap(), Some(7));
        until(|| sender.waits_to_open().is_none()).await;
        // Another one that waits when its session ends waits no longer.
        let mut last = pair.b.open::<u64>(&pair.peer, "last").await.unwrap();
        until(|| last.waits_to_open().is_some()).await;
        pair.peer.declare_dead("the test");
        limited(last.closed()).await;
        assert_eq!(last.waits_to_open(), None);
    });
}

/// A text that would begin a line of its own and steer a terminal.
const FORGED: &str = "b\nchunkcomm: all is well\u{1b}[2J\u{202e}";

/// Checks that no text has a character of [`FORGED`] that does so, and that each shows the rest.
fn are_plain(texts: &[String]) {
    for text in texts {
        assert!(!text.contains(['\n', '\u{1b}', '\u{202e}']), "{text}");
        assert!(text.contains(r"b\nchunkcomm: all is well\u{1b}[2J\u{202e}"), "{text}");
    }
}

#[test]
fn nothing_that_a_peer_chooses_begins_a_line_of_its_own() {
    let events = Events::default();
    let _guard = events.listen();
    on_a_paused_clock(async {
        let a = Node::builder().name("a").listen(memory()).build().await.unwrap();
        let b = Node::builder().name(&FORGED[..31]).build().await.unwrap();
        let peer = b.connect(&a.addresses()[0]).await.unwrap();
        let forged = format!("{FORGED}, twice");
        let named = |schema: &str| channel(&*forged).schema(schema);
        let mut sender = b.open::<u64>(&peer, named(&forged)).await.unwrap();
        sender.send(&1).await.unwrap();
        until(|| events.count(&["nobody has accepted it"]) > 0).await;
        let wrong = limited(a.accept::<u64>(named("else"))).await.unwrap_err();
        let refused = limited(sender.closed()).await;
        are_plain(&[wrong.to_string(), refused.to_string()]);
        let named = Redelivery::to_peer(&FORGED[..31]);
        let mut back = a.open_redelivering::<u64>("back", named).unwrap();
        back.send(&2).await.unwrap();
        let (_, mut receiver) = limited(b.accept::<u64>("back")).await.unwrap();
        assert_eq!(limited(receiver.recv()).await.unwrap(), Some(2), "the name is still its name");
        let explained = a.explain().await.to_string();
        let begins = |line: &str| line.starts_with("node a: ") || line.starts_with("  ");
        assert!(explained.lines().all(begins), "{explained}");
        assert!(!explained.contains(['\u{1b}', '\u{202e}']), "{explained}");
        assert_eq!(events.count(&["\n"]) + events.count(&["\u{1b}"]), 0, "{events:?}");
    });
}

#[test]
fn warnings_of_channels_that_nobody_accepts_are_gathered_and_become_rare() {
    let events = Events::default();
    let _guard = events.listen();
    on_a_paused_clock(async {
        let pair = pair_of(memory(), Node::builder(), Node::builder()).await;
        let mut senders = Vec::new();
        for number in 0..300 {
            let name = format!("lost {number}");
            senders.push(pair.b.open::<u64>(&pair.peer, &name).await.unwrap());
            senders[number].send(&1).await.unwrap();
        }
        let gathered = &["and 296 more: nobody has accepted them for 5 s"];
        until(|| events.count(gathered) > 0).await;
        for number in 0..140 {
            let name = format!("lost again {number}");
            senders.push(pair.b.open::<u64>(&pair.peer, &name).await.unwrap());
            senders[300 + number].send(&1).await.unwrap();
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        let said = events.count(&["WARN"]);
        assert!((4..=8).contains(&said), "{said} warnings: {events:?}");
    });
}

#[test]
fn nothing_is_said_of_channels_that_are_accepted_within_5_s() {
    let events = Events::default();
    let _guard = events.listen();
    on_a_paused_clock(async {
        let pair = pair_of(memory(), Node::builder(), Node::builder()).await;
        for name in ["first", "second"] {
            let mut sender = pair.b.open::<u64>(&pair.peer, name).await.unwrap();
            sender.send(&1).await.unwrap();
            tokio::time::sleep(Duration::from_secs(4)).await;
            let (_, mut receiver) = limited(pair.a.accept::<u64>(name)).await.unwrap();
            tokio::time::sleep(Duration::from_secs(4)).await;
            assert_eq!(limited(receiver.recv()).await.unwrap(), Some(1));
        }
        assert_eq!(events.count(&["WARN"]), 0, "{events:?}");
    });
}

#[test]
fn nothing_is_said_of_channels_to_a_peer_that_is_cut_off() {
    let events = Events::default();
    let _guard = events.listen();
    on_one_thread(async {
        let listener = TcpListener::bind((own_host(), 0)).await.unwrap();
        let address: Address = listener.local_addr().unwrap().into();
        let b = Node::builder().name("b").build().await.unwrap();
        let (peer, raw) = tokio::join!(b.connect(&address), RawPeer::accept(&listener));
        let mut sender = b.open::<u64>(&peer.unwrap(), "events").await.unwrap();
        fill(&mut sender, &1).await;
        drop((raw, listener));
        let is_cut_off = || async { b.explain().await.links[0].state == "cut off" };
        until_some(|| async { is_cut_off().await.then_some(()) }).await;
        tokio::time::pause();
        let error = sender.send(&2).await.unwrap_err();
        assert!(matches!(error, SendError::Lost(_)), "{error}");
        assert_eq!(events.count(&["has taken anything"]), 0, "{events:?}");
    });
}

#[test]
fn who_accepts_within_a_time_learns_what_was_opened_in_its_place() {
    on_both(|| async {
        let pair = pair().await;
        let mut sender = pair.b.open::<u64>(&pair.peer, "evnts").await.unwrap();
        sender.send(&7).await.unwrap();
        sender.sync().await.unwrap();
        let soon = Duration::from_millis(20);
        let error =
            limited(pair.a.accept::<u64>(channel("events").within(soon))).await.unwrap_err();
        let AcceptError::Late { channel: name, waited, held } = &error else { panic!("{error}") };
        assert_eq!(
            (&name[..], *waited, &held[..]),
            ("events", soon, &["\"evnts\" by b".to_owned()][..])
        );
        assert_eq!(
            error.to_string(),
            "no peer opened channel \"events\" within 20ms; opened and not accepted: \"evnts\" by b"
        );
        let bytes = channel("bytes").within(soon);
        let error = limited(pair.a.accept_bytes(bytes)).await.unwrap_err();
        assert!(matches!(error, AcceptError::Late { .. }), "{error}");
        // The channel is still there, and a deadline far away is no hindrance.
        let late = Duration::from_secs(20);
        let accepted = limited(pair.a.accept::<u64>(channel("evnts").within(late))).await;
        assert_eq!(limited(accepted.unwrap().1.recv()).await.unwrap(), Some(7));
    });
}

#[test]
fn an_accept_from_one_peer_leaves_the_opens_of_others_and_ends_with_its_sessions() {
    on_both(|| async {
        let pair = pair().await;
        let other = Node::builder().name("c").build().await.unwrap();
        let peer = other.connect(&pair.a.addresses()[0]).await.unwrap();
        // The other one opens first, under each name.
        let mut firsts = Vec::new();
        for (node, peer, number) in [(&other, &peer, 1), (&pair.b, &pair.peer, 2)] {
            for name in ["hello", "work"] {
                let mut sender = node.open::<u64>(peer, name).await.unwrap();
                sender.send(&number).await.unwrap();
                sender.sync().await.unwrap();
                firsts.push(sender);
            }
        }
        let (its_peer, _) = limited(pair.a.accept::<u64>("hello")).await.unwrap();
        let (our_peer, _) = limited(pair.a.accept::<u64>("hello")).await.unwrap();
        assert_eq!((its_peer.name(), our_peer.name()), ("c", "b"));
        let from_b = || channel("work").from_peer(&our_peer);
        let (peer, mut receiver) = limited(pair.a.accept::<u64>(from_b())).await.unwrap();
        assert_eq!((peer.name(), limited(receiver.recv()).await.unwrap()), ("b", Some(2)));
        // It waits for a peer that is there, and not for one that is gone.
        let soon = Duration::from_millis(20);
        let late = limited(pair.a.accept::<u64>(from_b().within(soon))).await.unwrap_err();
        assert!(matches!(late, AcceptError::Late { .. }), "{late}");
        let waiting = pair.a.accept::<u64>(from_b());
        let (lost, _) = tokio::join!(limited(waiting), pair.b.close(Duration::ZERO));
        let error = lost.unwrap_err();
        assert!(matches!(error, AcceptError::Lost { .. }), "{error}");
        assert_eq!(error.to_string(), "nobody opens channel \"work\" any more");
        let (_, mut receiver) = limited(pair.a.accept::<u64>("work")).await.unwrap();
        assert_eq!(limited(receiver.recv()).await.unwrap(), Some(1));
    });
}
