//! Channel ends that travel in messages connect directly. Each end learns of anything that happens
//! to the other on its way, and nothing is left.

use chunkcomm::{Address, Node, OpenError, Peer, SendError, Sender};
use chunkcomm_cluster::{
    Arriving, CallError, MovingReport, NodeExt, SenderExt, TravelError, TravellingReceiver,
    TravellingSender, Value, ValueWriter,
};
use chunkcomm_testkit::{
    Pair, at_last, cancelled, limited, memory, on_both, on_one_thread, packets_of, pair_of, tcp,
    until, windows_of,
};
use std::time::Duration;

/// Returns two nodes that both listen; `b` dialled `a`.
async fn pair(address: fn() -> Address) -> Pair {
    pair_of(address(), Node::builder(), Node::builder().listen(address())).await
}

/// Runs `test` on both runtimes, over memory and over TCP.
fn everywhere<F>(test: impl Fn(fn() -> Address) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    on_both(|| test(memory));
    on_both(|| test(tcp));
}

/// Checks that nothing of moved ends is left at these nodes.
async fn nothing_is_left(nodes: &[&Node]) {
    for node in nodes {
        limited(async {
            while node.moving_report() != MovingReport::default() {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }
}

async fn numbers(mut sender: Sender<u64>, count: u64) {
    for number in 0..count {
        sender.send(&number).await.unwrap();
    }
}

async fn takes_numbers(mut from: Arriving<u64>, count: u64) {
    for number in 0..count {
        assert_eq!(limited(from.recv()).await.unwrap(), Some(number));
    }
    assert_eq!(limited(from.recv()).await.unwrap(), None);
}

#[test]
fn a_sending_end_connects_where_it_was_sent() {
    everywhere(|address| async move {
        let pair = pair(address).await;
        let (mut ways, mut ends) = pair.channel::<(u32, TravellingSender<u64>)>("ends").await;
        for round in 0..3 {
            let (there, here) = pair.b.travelling_sender().unwrap();
            ways.hand_over((round, there)).await.unwrap();
            let (number, there) = limited(ends.recv()).await.unwrap().unwrap();
            assert_eq!((number, there.home()), (round, "b"));
            let sending =
                tokio::spawn(async move { numbers(there.connect().await.unwrap(), 999).await });
            takes_numbers(here, 999).await;
            limited(sending).await.unwrap();
        }
        nothing_is_left(&[&pair.a, &pair.b]).await;
    });
}

#[test]
fn ends_travel_in_requests_and_answers_of_calls() {
    everywhere(|address| async move {
        let pair = pair(address).await;
        let back = |(bytes, there): (usize, TravellingSender<u64>)| async move {
            Ok::<_, String>((vec![1u8; bytes], there))
        };
        let _service = pair.a.serve("back", back).unwrap();
        let client = pair.b.call_client::<_, (Vec<u8>, TravellingSender<u64>)>(&pair.peer, "back");
        let client = client.unwrap();
        // Answers of all lengths, one after the other.
        for bytes in [0, 300, 10, 40_000, 0] {
            let (there, here) = pair.b.travelling_sender::<u64>().unwrap();
            let (filled, there) = limited(client.call(&(bytes, there))).await.unwrap();
            assert_eq!(filled.len(), bytes);
            let sending =
                tokio::spawn(async move { numbers(there.connect().await.unwrap(), 9).await });
            takes_numbers(here, 9).await;
            limited(sending).await.unwrap();
        }
        // An end leaves once; a call that fails drops it, and one that nobody waits for does.
        let (there, here) = pair.b.travelling_sender::<u64>().unwrap();
        let request = (0, there);
        drop(limited(client.call(&request)).await.unwrap());
        let error = limited(client.call(&request)).await.unwrap_err();
        assert!(matches!(error, CallError::Request { .. }), "{error}");
        is_dropped(here).await;
        let held = |there: TravellingSender<u64>| async move {
            std::future::pending::<()>().await;
            drop(there);
            Ok::<_, String>(())
        };
        let _held = pair.a.serve("held", held).unwrap();
        let client = pair.b.call_client::<_, ()>(&pair.peer, "held").unwrap();
        let (there, here) = pair.b.travelling_sender::<u64>().unwrap();
        let client = client.timeout(Duration::from_millis(20));
        limited(client.call(&there)).await.unwrap_err();
        is_dropped(here).await;
        nothing_is_left(&[&pair.a, &pair.b]).await;
    });
}

async fn is_dropped(mut here: Arriving<u64>) {
    let error = limited(here.recv()).await.unwrap_err();
    assert!(matches!(error, TravelError::Dropped { .. }), "{error}");
}

#[test]
fn a_receiving_end_connects_where_it_was_sent() {
    everywhere(|address| async move {
        let pair = pair(address).await;
        let (mut ways, mut ends) = pair.channel::<TravellingReceiver<u64>>("ends").await;
        let (there, here) = pair.b.travelling_receiver().unwrap();
        ways.hand_over(there).await.unwrap();
        let sending =
            tokio::spawn(async move { numbers(here.connect().await.unwrap(), 999).await });
        let there = limited(ends.recv()).await.unwrap().unwrap();
        takes_numbers(limited(there.connect()).await.unwrap(), 999).await;
        limited(sending).await.unwrap();
        nothing_is_left(&[&pair.a, &pair.b]).await;
    });
}

#[test]
fn both_ends_may_stay_at_home() {
    on_both(|| async {
        let pair = pair(memory).await;
        let (there, here) = pair.a.travelling_sender().unwrap();
        let sending =
            tokio::spawn(async move { numbers(there.connect().await.unwrap(), 10).await });
        takes_numbers(here, 10).await;
        limited(sending).await.unwrap();
        let (there, here) = pair.a.travelling_sender::<u64>().unwrap();
        drop(there);
        let error = { here }.recv().await.unwrap_err();
        assert!(matches!(&error, TravelError::Dropped { by } if by == "a"), "{error}");
        nothing_is_left(&[&pair.a]).await;
    });
}

#[test]
fn by_reference_an_end_is_not_sent_and_stays() {
    on_both(|| async {
        let pair = pair(memory).await;
        let (mut ways, mut ends) = pair.channel::<TravellingSender<u64>>("ends").await;
        let (there, here) = pair.b.travelling_sender().unwrap();
        let error = ways.send(&there).await.unwrap_err();
        let SendError::Encode(cause) = &error else { panic!("{error}") };
        assert!(cause.to_string().contains("hand_over"), "{cause}");
        ways.hand_over(there).await.unwrap();
        let there = limited(ends.recv()).await.unwrap().unwrap();
        let sending =
            tokio::spawn(async move { numbers(there.connect().await.unwrap(), 10).await });
        takes_numbers(here, 10).await;
        limited(sending).await.unwrap();
    });
}

#[test]
fn an_end_of_another_node_is_not_sent() {
    on_one_thread(async {
        let pair = pair(memory).await;
        let (mut ways, _ends) = pair.channel::<TravellingSender<u64>>("ends").await;
        let (there, _here) = pair.a.travelling_sender().unwrap();
        let failed = ways.hand_over(there).await.unwrap_err();
        let SendError::Encode(cause) = &failed.error else { panic!("{failed}") };
        assert!(cause.to_string().contains("the node that has it"), "{cause}");
    });
}

#[test]
fn what_is_not_handed_over_comes_back_whole() {
    on_both(|| async {
        let pair = pair(memory).await;
        let (mut gone, ends) = pair.channel::<TravellingSender<u64>>("gone").await;
        drop(ends);
        limited(gone.closed()).await;
        let (there, here) = pair.b.travelling_sender().unwrap();
        let failed = gone.hand_over(there).await.unwrap_err();
        assert!(matches!(failed.error, SendError::Terminated(_)), "{failed}");
        let (mut ways, mut ends) = pair.channel::<TravellingSender<u64>>("ends").await;
        ways.hand_over(failed.value).await.unwrap();
        let there = limited(ends.recv()).await.unwrap().unwrap();
        let sending =
            tokio::spawn(async move { numbers(there.connect().await.unwrap(), 10).await });
        takes_numbers(here, 10).await;
        limited(sending).await.unwrap();
        nothing_is_left(&[&pair.a, &pair.b]).await;
    });
}

#[test]
fn an_end_that_is_dropped_there_ends_this_one() {
    everywhere(|address| async move {
        let pair = pair(address).await;
        let (mut ways, mut ends) =
            pair.channel::<(TravellingSender<u64>, TravellingReceiver<u64>)>("ends").await;
        let (out, mut from) = pair.b.travelling_sender::<u64>().unwrap();
        let (into, to) = pair.b.travelling_receiver::<u64>().unwrap();
        ways.hand_over((out, into)).await.unwrap();
        drop(limited(ends.recv()).await.unwrap().unwrap());
        let error = limited(from.recv()).await.unwrap_err();
        assert!(matches!(&error, TravelError::Dropped { by } if by == "a"), "{error}");
        let error = limited(to.connect()).await.unwrap_err();
        assert!(matches!(&error, TravelError::Dropped { by } if by == "a"), "{error}");
        nothing_is_left(&[&pair.a, &pair.b]).await;
    });
}

#[test]
fn a_message_that_is_not_taken_ends_the_ends_in_it() {
    everywhere(|address| async move {
        let pair = pair(address).await;
        // The message lies in the inbox; its channel may have ended before.
        for ended in [false, true] {
            let (mut ways, ends) = pair.channel::<TravellingSender<u64>>("ends").await;
            let (there, mut here) = pair.b.travelling_sender::<u64>().unwrap();
            ways.hand_over(there).await.unwrap();
            ways.sync().await.unwrap();
            let ways = (!ended).then_some(ways);
            drop(ends);
            let error = limited(here.recv()).await.unwrap_err();
            assert!(matches!(&error, TravelError::Dropped { by } if by == "a"), "{error}");
            drop(ways);
        }
        nothing_is_left(&[&pair.a, &pair.b]).await;
    });
}

#[test]
fn a_message_on_its_way_to_nobody_ends_the_ends_in_it() {
    everywhere(|address| async move {
        let pair = pair(address).await;
        let (mut ways, ends) = pair.channel::<(TravellingSender<u64>, String)>("ends").await;
        let mut here = Vec::new();
        // As many as fill the window, the rings and the sockets.
        let sending = async {
            loop {
                let (there, at_home) = pair.b.travelling_sender::<u64>().unwrap();
                here.push(at_home);
                if let Err(failed) = ways.hand_over((there, "x".repeat(3000))).await {
                    return failed.error;
                }
            }
        };
        let dropping = async {
            until(|| pair.peer.stats().credit_waits > 0).await;
            drop(ends);
        };
        let (error, ()) = limited(async { tokio::join!(sending, dropping) }).await;
        assert!(matches!(error, SendError::Terminated(_)), "{error}");
        assert!(here.len() > 5, "{}", here.len());
        for mut one in here {
            let error = limited(one.recv()).await.unwrap_err();
            assert!(
                matches!(error, TravelError::Dropped { .. } | TravelError::Lost { .. }),
                "{error}"
            );
        }
        nothing_is_left(&[&pair.a, &pair.b]).await;
    });
}

#[test]
fn a_channel_that_is_refused_ends_the_ends_in_its_messages() {
    on_both(|| async {
        let pair = pair(tcp).await;
        let mut ways = pair.b.open::<TravellingSender<u64>>(&pair.peer, "ends").await.unwrap();
        let (there, mut here) = pair.b.travelling_sender::<u64>().unwrap();
        ways.hand_over(there).await.unwrap();
        // The type of an end includes the type of its messages.
        let refused = limited(pair.a.accept::<TravellingSender<u32>>("ends")).await.unwrap_err();
        assert!(refused.to_string().contains("u64"), "{refused}");
        let error = limited(here.recv()).await.unwrap_err();
        assert!(matches!(error, TravelError::Lost { .. }), "{error}");
        nothing_is_left(&[&pair.b]).await;
    });
}

#[test]
fn a_node_that_is_gone_ends_the_ends_that_it_had() {
    everywhere(|address| async move {
        let pair = pair(address).await;
        let (mut ways, mut ends) = pair.channel::<TravellingSender<u64>>("ends").await;
        let mut at_home = Vec::new();
        for _ in 0..3 {
            let (there, here) = pair.b.travelling_sender::<u64>().unwrap();
            ways.hand_over(there).await.unwrap();
            at_home.push(here);
        }
        // One is connected, one is held, one lies in the inbox.
        let mut sender = limited(ends.recv()).await.unwrap().unwrap().connect().await.unwrap();
        sender.send(&7).await.unwrap();
        let held = limited(ends.recv()).await.unwrap().unwrap();
        assert_eq!(limited(at_home[0].recv()).await.unwrap(), Some(7));
        pair.peer.declare_dead("the plug was pulled");
        let error = limited(at_home[0].recv()).await.unwrap_err();
        assert!(matches!(error, TravelError::Receive(_)), "{error}");
        for here in &mut at_home[1..] {
            let error = limited(here.recv()).await.unwrap_err();
            assert!(matches!(error, TravelError::Lost { .. }), "{error}");
            let text = error.to_string();
            assert!(text.contains("a is gone: the plug was pulled"), "{text}");
        }
        // The holder of the end learns that it is of no use: at once, when the session ends in the
        // middle of the call, or from the end's home.
        match limited(held.connect()).await {
            Ok(mut late) => {
                let error = limited(async {
                    loop {
                        if let Err(error) = late.send(&1).await {
                            return error;
                        }
                        tokio::task::yield_now().await;
                    }
                })
                .await;
                assert!(matches!(error, SendError::Refused(_) | SendError::Lost(_)), "{error}");
            }
            Err(error) => {
                let TravelError::Open(cause) = error else { panic!("{error}") };
                assert!(matches!(*cause, OpenError::Lost(_)), "{cause}");
            }
        }
        drop((sender, ends));
        nothing_is_left(&[&pair.b, &pair.a]).await;
    });
}

#[test]
fn a_receiver_that_is_dropped_ends_its_sender() {
    on_both(|| async {
        let pair = pair(tcp).await;
        let (mut ways, mut ends) = pair.channel::<TravellingSender<u64>>("ends").await;
        for connected_before in [true, false] {
            let (there, mut here) = pair.b.travelling_sender::<u64>().unwrap();
            ways.hand_over(there).await.unwrap();
            let there = limited(ends.recv()).await.unwrap().unwrap();
            let mut sender = there.connect().await.unwrap();
            if connected_before {
                sender.send(&1).await.unwrap();
                assert_eq!(limited(here.recv()).await.unwrap(), Some(1));
            }
            drop(here);
            let _ = sender.send(&2).await;
            let error = limited(sender.closed()).await;
            // Also if the channel comes after the drop.
            assert!(matches!(error, SendError::Terminated(_)), "{error}");
        }
        nothing_is_left(&[&pair.a, &pair.b]).await;
    });
}

#[test]
fn an_end_that_did_not_come_in_a_message_is_of_no_use() {
    on_one_thread(async {
        // The encoding of an end: hop, number, home, addresses, lane, no value.
        let mut bytes = Vec::new();
        let words = (1u64, 2u128, 3u128, String::from("a"), Vec::<String>::new(), false);
        let nothing: Option<u64> = None;
        chunkcomm::codec::encode_into_vec(&(words, nothing), &mut bytes).unwrap();
        let stray: TravellingSender<u64> = chunkcomm::codec::decode(&bytes).unwrap();
        assert_eq!(stray.home(), "a");
        assert!(chunkcomm::codec::encode_into_vec(&stray, &mut Vec::new()).is_err());
        assert!(matches!(stray.connect().await, Err(TravelError::Stray)));
    });
}

#[test]
fn who_guesses_is_refused() {
    on_one_thread(async {
        let pair = pair(tcp).await;
        let (_there, _here) = pair.a.travelling_sender::<u64>().unwrap();
        let guess = format!("\0the channel of a travelling end\0{:032x}", 12345);
        let mut sender = pair.b.open::<u64>(&pair.peer, &guess).await.unwrap();
        sender.send(&1).await.unwrap();
        let error = limited(sender.closed()).await;
        assert!(matches!(error, SendError::Refused(_)), "{error}");
        assert_eq!(pair.a.moving_report().ends_waiting, 1);
    });
}

/// Three nodes in a row that all listen: `a` knows `b`, and `b` knows `c`.
struct Row {
    a: Node,
    b: Node,
    c: Node,
    first: Sender<Ends>,
    second: Sender<Ends>,
    links: [Peer; 2],
}

type Ends = (TravellingSender<u64>, TravellingReceiver<u64>);

impl Row {
    async fn new(address: fn() -> Address) -> Row {
        let node = |name: &str| Node::builder().name(name).listen(address()).build();
        let (a, b, c) =
            (node("a").await.unwrap(), node("b").await.unwrap(), node("c").await.unwrap());
        let links = [
            a.connect(&b.addresses()[0]).await.unwrap(),
            b.connect(&c.addresses()[0]).await.unwrap(),
        ];
        let first = a.open(&links[0], "ends").await.unwrap();
        let second = b.open(&links[1], "ends").await.unwrap();
        Row { a, b, c, first, second, links }
    }

    /// Sends ends of `a` to `b` and on to `c`.
    async fn pass_on(&mut self, ends: Ends) -> Ends {
        self.first.hand_over(ends).await.unwrap();
        let (_, mut at_b) = limited(self.b.accept::<Ends>("ends")).await.unwrap();
        let ends = limited(at_b.recv()).await.unwrap().unwrap();
        self.second.hand_over(ends).await.unwrap();
        let (_, mut at_c) = limited(self.c.accept::<Ends>("ends")).await.unwrap();
        limited(at_c.recv()).await.unwrap().unwrap()
    }
}

#[test]
fn passed_on_ends_connect_without_those_between() {
    everywhere(|address| async move {
        let mut row = Row::new(address).await;
        let (out, from) = row.a.travelling_sender::<u64>().unwrap();
        let (into, to) = row.a.travelling_receiver::<u64>().unwrap();
        let (out, into) = row.pass_on((out, into)).await;
        const COUNT: u64 = 20_000;
        let there = tokio::spawn(async move {
            let taking = takes_numbers(into.connect().await.unwrap(), COUNT);
            tokio::join!(numbers(out.connect().await.unwrap(), COUNT), taking);
        });
        let sending = async { numbers(to.connect().await.unwrap(), COUNT).await };
        limited(async { tokio::join!(takes_numbers(from, COUNT), sending) }).await;
        limited(there).await.unwrap();
        nothing_is_left(&[&row.a, &row.b, &row.c]).await;
        // The node between has seen the ends, and some words about them.
        for link in &row.links {
            let stats = link.stats();
            assert!(stats.messages_sent + stats.messages_received < 20, "{stats:?}");
            assert!(stats.packet_bytes_sent + stats.packet_bytes_received < 10_000, "{stats:?}");
        }
    });
}

#[test]
fn passed_on_ends_that_are_dropped_end_those_at_home() {
    everywhere(|address| async move {
        let mut row = Row::new(address).await;
        let (out, mut from) = row.a.travelling_sender::<u64>().unwrap();
        let (into, to) = row.a.travelling_receiver::<u64>().unwrap();
        drop(row.pass_on((out, into)).await);
        let error = limited(from.recv()).await.unwrap_err();
        assert!(matches!(&error, TravelError::Dropped { by } if by == "c"), "{error}");
        let error = limited(to.connect()).await.unwrap_err();
        assert!(matches!(&error, TravelError::Dropped { by } if by == "c"), "{error}");
        nothing_is_left(&[&row.a, &row.b, &row.c]).await;
    });
}

#[test]
fn a_node_beyond_the_next_that_is_gone_is_named() {
    on_both(|| async {
        let mut row = Row::new(tcp).await;
        let (out, mut from) = row.a.travelling_sender::<u64>().unwrap();
        let (into, _to) = row.a.travelling_receiver::<u64>().unwrap();
        let held = row.pass_on((out, into)).await;
        row.links[1].declare_dead("it burns");
        let error = limited(from.recv()).await.unwrap_err();
        assert!(error.to_string().contains("c is gone: it burns"), "{error}");
        drop(held);
    });
}

#[test]
fn a_value_is_written_once_and_read_by_all_clones() {
    everywhere(|address| async move {
        let pair = pair(address).await;
        let (mut ways, mut ends) = pair.channel::<ValueWriter<String>>("ends").await;
        let (writer, value) = pair.b.value::<String>().unwrap();
        ways.hand_over(writer).await.unwrap();
        let clone = value.clone();
        let reading = tokio::spawn(async move { clone.get().await.unwrap().clone() });
        let writer = limited(ends.recv()).await.unwrap().unwrap();
        assert_eq!(value.peek(), None);
        limited(writer.write(&"hello".to_owned())).await.unwrap();
        assert_eq!(limited(value.get()).await.unwrap(), "hello");
        assert_eq!(limited(value.get()).await.unwrap(), "hello");
        assert_eq!(limited(reading).await.unwrap(), "hello");
        assert_eq!(value.peek().unwrap(), "hello");
        drop(value);
        nothing_is_left(&[&pair.a, &pair.b]).await;
    });
}

#[test]
fn a_value_leaves_at_once_whatever_the_policy() {
    on_both(|| async {
        let hours = Duration::from_secs(3600);
        let slow = Node::builder().policy(chunkcomm::Policy::Linger(hours)).age_bound(hours);
        let pair = pair_of(tcp(), slow.clone(), slow).await;
        let (writer, value) = pair.b.value::<u64>().unwrap();
        let mut ways = pair.b.open::<ValueWriter<u64>>(&pair.peer, "ends").await.unwrap();
        ways.hand_over(writer).await.unwrap();
        limited(ways.flush()).await.unwrap();
        let (_, mut ends) = limited(pair.a.accept::<ValueWriter<u64>>("ends")).await.unwrap();
        let writer = limited(ends.recv()).await.unwrap().unwrap();
        limited(writer.write(&5)).await.unwrap();
        assert_eq!(limited(value.get()).await.unwrap(), &5);
    });
}

#[test]
fn a_value_that_is_not_written_says_who_did_not() {
    everywhere(|address| async move {
        let pair = pair(address).await;
        let (mut ways, mut ends) = pair.channel::<ValueWriter<String>>("ends").await;
        let (writer, value): (_, Value<String>) = pair.b.value().unwrap();
        ways.hand_over(writer).await.unwrap();
        drop(limited(ends.recv()).await.unwrap().unwrap());
        for value in [&value, &value.clone()] {
            let error = limited(value.get()).await.unwrap_err();
            assert!(matches!(&error, TravelError::Unwritten { by } if by == "a"), "{error}");
            assert!(error.to_string().contains("dropped at a without writing"), "{error}");
        }
        drop(value);
        nothing_is_left(&[&pair.a, &pair.b]).await;
    });
}

#[test]
fn a_value_is_read_where_its_reading_side_was_sent() {
    everywhere(|address| async move {
        let pair = pair(address).await;
        let (mut ways, mut ends) =
            pair.channel::<chunkcomm_cluster::ValueReader<u64>>("ends").await;
        let (end, source) = pair.b.value_reader::<u64>().unwrap();
        ways.hand_over(end).await.unwrap();
        let writing = tokio::spawn(async move { source.write(&12).await });
        let value = limited(ends.recv()).await.unwrap().unwrap().connect().await.unwrap();
        assert_eq!(limited(value.get()).await.unwrap(), &12);
        limited(writing).await.unwrap().unwrap();
        drop(value);
        nothing_is_left(&[&pair.a, &pair.b]).await;
    });
}

#[test]
fn every_wait_may_be_dropped() {
    on_both(|| async {
        let small = || Node::builder().limits(windows_of(256 * 1024)).experiment(packets_of(1024));
        let pair = pair_of(memory(), small(), small().listen(memory())).await;
        let (mut ways, mut ends) = pair
            .channel::<(TravellingSender<u64>, Option<TravellingReceiver<u64>>, String)>("ends")
            .await;
        let mut at_home = Vec::new();
        let taking = tokio::spawn(async move {
            let mut taken = Vec::new();
            while let Some((end, _, _)) = at_last!(ends.recv()).unwrap() {
                taken.push(end);
            }
            taken
        });
        for number in 0..60usize {
            let size = [10, 300, 700, 6000, 9000, 40_000][number % 6];
            let home = at_last!({
                let (there, here) = pair.b.travelling_sender::<u64>().unwrap();
                let handing = ways.hand_over((there, None, "x".repeat(size)));
                async move { handing.await.map(|()| here).unwrap() }
            });
            at_home.push(home);
        }
        drop(ways);
        let mut taken = limited(taking).await.unwrap();
        assert_eq!(taken.len(), at_home.len());
        let last = taken.split_off(30);
        let sending = tokio::spawn(async move {
            for (number, end) in taken.into_iter().enumerate() {
                // A connect that is dropped drops its end.
                let connected = cancelled(number as u32 % 3, end.connect()).await;
                if let Some(connected) = connected {
                    numbers(connected.unwrap(), 3).await;
                }
            }
            drop(last);
        });
        let mut connected = 0;
        for mut home in at_home {
            match at_last!(home.recv()) {
                Ok(first) => {
                    connected += 1;
                    assert_eq!(first, Some(0));
                    assert_eq!(at_last!(home.recv()).unwrap(), Some(1));
                }
                Err(error) => assert!(matches!(error, TravelError::Dropped { .. }), "{error}"),
            }
        }
        assert!((1..30).contains(&connected), "{connected}");
        limited(sending).await.unwrap();
        nothing_is_left(&[&pair.a, &pair.b]).await;
    });
}
