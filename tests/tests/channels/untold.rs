//! Messages that were accepted and lost without any call reporting it: closing the node reports
//! them.

use chunkcomm::channel::Landing;
use chunkcomm::error::{LinkCause, Unacknowledged};
use chunkcomm::{CloseError, Node, OpenError, RecvError, SendError, Sender};
use chunkcomm_cluster::{NodeExt, SenderExt, TravelError, TravellingSender};
use chunkcomm_testkit::{Pair, fill, limited, on_both, on_one_thread, pair, pair_of, tcp, until};
use std::time::Duration;

const LATE: Duration = Duration::from_secs(20);

/// Returns the only channel in an account: its name, accepted, acknowledged, cause.
fn only(error: &CloseError) -> (&str, u64, u64, Option<&SendError>) {
    assert_eq!(error.forgotten, 0);
    let [Unacknowledged { channel, account, cause, .. }] = &error.channels[..] else {
        panic!("{error}")
    };
    (channel, account.accepted, account.acknowledged, cause.as_ref())
}

/// Returns a channel that `b` filled and whose receiver takes nothing; some of it is acknowledged.
async fn filled(pair: &Pair, name: &str) -> (Sender<u64>, chunkcomm::Receiver<u64>, u64) {
    let (mut sender, receiver) = pair.channel::<u64>(name).await;
    sender.send_all(0..10u64).await.unwrap();
    limited(sender.sync()).await.unwrap();
    let accepted = 10 + fill(&mut sender, &1).await;
    (sender, receiver, accepted)
}

#[test]
fn what_a_dropped_sender_lost_before_is_said_when_the_node_is_closed() {
    on_both(|| async {
        let pair = pair().await;
        let (sender, _receiver, accepted) = filled(&pair, "dropped").await;
        drop(sender);
        pair.peer.abort();
        limited(pair.peer.closed()).await;
        let error = limited(pair.b.close(LATE)).await.unwrap_err();
        let (channel, said, acknowledged, cause) = only(&error);
        assert_eq!((channel, said), ("dropped", accepted));
        assert!((10..accepted).contains(&acknowledged), "{error}");
        let Some(SendError::Lost(lost)) = cause else { panic!("{error}") };
        assert!(matches!(lost.link.cause(), LinkCause::Closed));
        let text = error.to_string();
        assert!(text.contains("channel \"dropped\" to a") && text.contains("was closed"), "{text}");
        // The loss was reported once.
        limited(pair.b.close(LATE)).await.unwrap();
    });
}

#[test]
fn what_a_call_on_the_sender_said_is_not_said_again() {
    on_both(|| async {
        let pair = pair().await;
        let (mut told, _one, _) = filled(&pair, "told").await;
        let (untold, _other, accepted) = filled(&pair, "untold").await;
        pair.peer.abort();
        limited(pair.peer.closed()).await;
        let SendError::Lost(lost) = limited(told.send(&1)).await.unwrap_err() else { panic!() };
        assert!(lost.account.unknown() > 0);
        drop(told);
        let error = limited(pair.b.close(LATE)).await.unwrap_err();
        // The loss is reported whether or not the sender lives: nobody looked.
        let (channel, said, ..) = only(&error);
        assert_eq!((channel, said), ("untold", accepted));
        drop(untold);
    });
}

#[test]
fn what_was_accepted_on_a_refused_channel_is_said_when_its_sender_is_gone() {
    on_both(|| async {
        let pair = pair().await;
        let mut sender: Sender<u64> = pair.b.open(&pair.peer, "refused").await.unwrap();
        // More than its window holds, so that not all of it can be acknowledged.
        let accepted = fill(&mut sender, &1).await;
        drop(sender);
        limited(pair.a.accept::<String>("refused")).await.unwrap_err();
        // A channel beside it: the refusal came before this channel's messages.
        pair.is_well("beside").await;
        let error = limited(pair.b.close(LATE)).await.unwrap_err();
        let (channel, said, _, cause) = only(&error);
        assert_eq!((channel, said), ("refused", accepted));
        assert!(matches!(cause, Some(SendError::Refused(_))), "{error}");
        assert!(error.to_string().contains("refused: the sender's type is"), "{error}");
    });
}

/// The refusal has come when the node is closed, and its link has not read it.
#[test]
fn what_is_refused_while_the_node_closes_is_said_to_be_refused() {
    on_one_thread(async {
        let pair = pair_of(tcp(), Node::builder().io_thread(), Node::builder()).await;
        let mut sender: Sender<Vec<u64>> = pair.b.open(&pair.peer, "late").await.unwrap();
        // More than its window holds: it cannot be acknowledged before a receiver is there.
        sender.send(&vec![7; 1_000_000]).await.unwrap();
        until(|| pair.peer.stats().packet_bytes_sent > 8 * 1024).await;
        let a = pair.a.clone();
        let refusing = std::thread::spawn(|| {
            on_one_thread(async move {
                limited(a.accept::<String>("late")).await.unwrap_err();
            });
        });
        // Holds up the sender's link, and not the receiver's.
        std::thread::sleep(Duration::from_millis(200));
        drop(sender);
        let error = limited(pair.b.close(LATE)).await.unwrap_err();
        refusing.join().unwrap();
        let (channel, accepted, _, cause) = only(&error);
        assert_eq!((channel, accepted), ("late", 1));
        assert!(matches!(cause, Some(SendError::Refused(_))), "{error}");
    });
}

#[test]
fn a_refused_channel_that_sent_nothing_has_lost_nothing() {
    on_both(|| async {
        let pair = pair().await;
        let sender: Sender<u64> = pair.b.open(&pair.peer, "idle").await.unwrap();
        limited(pair.a.accept::<String>("idle")).await.unwrap_err();
        pair.is_well("beside").await;
        limited(pair.b.close(LATE)).await.unwrap();
        drop(sender);
    });
}

#[test]
fn a_message_of_which_a_part_was_sent_to_who_refuses_it_is_in_the_account() {
    on_both(|| async {
        let pair = pair().await;
        let mut sender: Sender<Vec<u64>> = pair.b.open(&pair.peer, "half").await.unwrap();
        // More than its window holds: the rest waits for a receiver that takes the first part.
        sender.send(&vec![7; 1_000_000]).await.unwrap();
        until(|| pair.peer.stats().packet_bytes_sent > 8 * 1024).await;
        drop(sender);
        limited(pair.a.accept::<String>("half")).await.unwrap_err();
        pair.is_well("beside").await;
        let error = limited(pair.b.close(LATE)).await.unwrap_err();
        let (channel, accepted, acknowledged, cause) = only(&error);
        assert_eq!((channel, accepted, acknowledged), ("half", 1, 0));
        assert!(matches!(cause, Some(SendError::Refused(_))), "{error}");
    });
}

#[test]
fn a_channel_that_never_got_to_the_driver_is_in_the_account() {
    // On one thread: nothing runs between the sends and the abort.
    on_one_thread(async {
        let pair = pair().await;
        let mut sender: Sender<u64> = pair.b.open(&pair.peer, "early").await.unwrap();
        for number in 0..3 {
            sender.try_send(&number).unwrap();
        }
        drop(sender);
        pair.peer.abort();
        limited(pair.peer.closed()).await;
        let error = limited(pair.b.close(LATE)).await.unwrap_err();
        let (channel, accepted, acknowledged, _) = only(&error);
        assert_eq!((channel, accepted, acknowledged), ("early", 3, 0));
    });
}

#[test]
fn a_session_whose_messages_all_arrived_leaves_nothing_to_say() {
    on_both(|| async {
        let pair = pair().await;
        let (mut sender, receiver) = pair.channel::<u64>("arrived").await;
        sender.send_all(0..10u64).await.unwrap();
        limited(sender.sync()).await.unwrap();
        let (terminated, dropped, _) = filled(&pair, "terminated").await;
        // A receiver that went away wanted no more.
        drop(dropped);
        limited({
            let mut terminated = terminated;
            async move { terminated.closed().await }
        })
        .await;
        drop(sender);
        pair.peer.abort();
        limited(pair.peer.closed()).await;
        limited(pair.b.close(LATE)).await.unwrap();
        let gone = pair.b.open::<u64>(&pair.peer, "again").await;
        assert!(matches!(gone, Err(OpenError::Connect(_) | OpenError::Lost(_))));
        drop(receiver);
    });
}

#[test]
fn a_node_remembers_a_thousand_channels_and_counts_the_others() {
    on_one_thread(async {
        let Pair { a, b, mut peer } = pair().await;
        for round in 0..2 {
            for _ in 0..600 {
                let mut sender: Sender<u8> = b.open(&peer, "many").await.unwrap();
                sender.try_send(&round).unwrap();
            }
            peer.abort();
            limited(peer.closed()).await;
            peer = b.connect(&a.addresses()[0]).await.unwrap();
        }
        let error = limited(b.close(LATE)).await.unwrap_err();
        assert_eq!((error.channels.len(), error.forgotten), (1024, 176));
        assert!(error.to_string().ends_with("and 176 channels of earlier sessions"));
    });
}

/// A landing that takes everything, and panics at the end.
struct Panics(Vec<u8>);

impl Landing for Panics {
    fn room(&mut self) -> &mut [u8] {
        &mut self.0
    }
    fn advance(&mut self, _bytes: usize) {}
    fn end(self: Box<Self>, _outcome: Result<(), RecvError>) {
        panic!("at the end of a landing, as the test wants it");
    }
}

#[test]
fn a_landing_that_panics_when_its_session_ends_keeps_no_node_from_closing() {
    on_both(|| async {
        let pair = pair().await;
        let (mut sender, receiver) = pair.bytes("panics").await;
        receiver.land(Box::new(Panics(vec![0; 10])));
        sender.send_slice(&[1; 100]).await.unwrap();
        limited(sender.sync()).await.unwrap();
        pair.peer.abort();
        limited(pair.a.close(LATE)).await.unwrap();
    });
}

#[test]
fn what_came_home_where_the_end_was_dropped_is_no_loss() {
    on_both(|| async {
        let pair = pair().await;
        let (mut ways, mut ends) = pair.channel::<TravellingSender<u64>>("ends").await;
        let (there, here) = pair.b.travelling_sender::<u64>().unwrap();
        ways.hand_over(there).await.unwrap();
        let mut sender = limited(ends.recv()).await.unwrap().unwrap().connect().await.unwrap();
        drop(here);
        // The send is refused at once, or after it.
        let _ = sender.send(&1).await;
        drop(sender);
        drop((ways, ends));
        limited(pair.a.close(LATE)).await.unwrap();
    });
}

/// Accepts a message for the end, and drops its sender before anything has left. The message is longer
/// than a window: not all of it leaves before the answer of the end's home.
async fn accept_for(end: TravellingSender<Vec<u64>>) {
    let mut sender = limited(end.connect()).await.unwrap();
    sender.try_send(&vec![7; 1_000_000]).unwrap();
}

#[test]
fn what_was_accepted_after_the_home_dropped_its_end_is_no_loss() {
    on_one_thread(async {
        let pair = pair().await;
        let (mut ways, mut ends) = pair.channel::<TravellingSender<Vec<u64>>>("ends").await;
        let (there, here) = pair.b.travelling_sender().unwrap();
        drop(here);
        ways.hand_over(there).await.unwrap();
        accept_for(limited(ends.recv()).await.unwrap().unwrap()).await;
        drop((ways, ends));
        limited(pair.a.close(LATE)).await.unwrap();
    });
}

/// Nobody dropped the end.
#[test]
fn what_was_accepted_for_an_end_that_its_home_counts_as_lost_is_said() {
    on_one_thread(async {
        let pair = pair_of(tcp(), Node::builder(), Node::builder().listen(tcp())).await;
        let (mut ways, mut ends) = pair.channel::<TravellingSender<Vec<u64>>>("ends").await;
        let (there, mut here) = pair.b.travelling_sender().unwrap();
        ways.hand_over(there).await.unwrap();
        let end = limited(ends.recv()).await.unwrap().unwrap();
        pair.peer.declare_dead("the plug was pulled");
        let lost = limited(here.recv()).await.unwrap_err();
        assert!(matches!(lost, TravelError::Lost { .. }), "{lost}");
        limited(ends.peer().closed()).await;
        // On a session of its own.
        accept_for(end).await;
        drop((ways, ends));
        let error = limited(pair.a.close(LATE)).await.unwrap_err();
        assert!(error.to_string().contains("end to b: of 1 messages 0 are"), "{error}");
        assert!(matches!(only(&error).3, Some(SendError::Refused(_))), "{error}");
    });
}

/// Of a farm's answers, say: the farm gives the tasks again, and a node that closes has lost nothing.
#[test]
fn what_a_crate_on_top_lost_is_told_by_that_crate() {
    on_both(|| async {
        let pair = pair().await;
        for (name, told) in [("chunkcomm-farm.default", false), ("farm.default", true)] {
            let node = Node::builder().name("c").build().await.unwrap();
            let peer = limited(node.connect(&pair.a.addresses()[0])).await.unwrap();
            let mut sender: Sender<u64> = node.open(&peer, name).await.unwrap();
            assert!(fill(&mut sender, &1).await > 0);
            drop(sender);
            peer.abort();
            limited(peer.closed()).await;
            assert_eq!(limited(node.close(LATE)).await.is_err(), told, "{name}");
        }
    });
}
