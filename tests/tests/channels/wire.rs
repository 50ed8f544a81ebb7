//! Peers that break the protocol: the session ends with a clear cause, and no
//! other link of the node is concerned.

use chunkcomm::error::LinkCause;
use chunkcomm::proto::error::ProtocolError;
use chunkcomm::proto::limits::{
    FRAGMENT_BYTES_MAX, MESSAGE_BYTES_DEFAULT, PACKET_BYTES_TUNED, WINDOW_BYTES_INITIAL,
};
use chunkcomm::proto::packet::{AppendRecords, ChannelKind, Header, Item, Lane, Refusal};
use chunkcomm::{BytesReceiver, LinkError, Node, Peer, RecvError, SendError, Sender, TryRecvError};
use chunkcomm_testkit::random::{Random, seeded};
use chunkcomm_testkit::raw::{RawPeer, run_of};
use chunkcomm_testkit::{Pair, limited, on_both, on_one_thread, pair};
use tokio::net::TcpListener;

/// A node with an honest link, and with a link to a raw peer whose channel 1 it accepted.
struct Scene {
    pair: Pair,
    raw: RawPeer,
    peer: Peer,
    receiver: BytesReceiver,
}

impl Scene {
    async fn new() -> Scene {
        let pair = pair().await;
        let mut raw = RawPeer::connect(&pair.a).await;
        raw.open(1, "raw").await;
        let (peer, receiver) = limited(pair.a.accept_bytes("raw")).await.unwrap();
        assert_eq!(peer.name(), "raw");
        Scene { pair, raw, peer, receiver }
    }

    /// Sends a run that is said to have this number of messages.
    async fn send_run(&mut self, run: &[u8], messages: u32) {
        let body = |body: &mut Vec<u8>| {
            body.run(1, run.len() as u32, messages);
            body.extend_from_slice(run);
        };
        self.raw.packet(body).await;
    }

    /// Checks that the session ended, that everybody who can act knows why, and that all else
    /// works.
    async fn ended(mut self) -> LinkError {
        let error = limited(self.peer.closed()).await;
        assert_eq!(error.peer(), "raw");
        assert!(error.to_string().contains("raw"), "{error}");
        let lost = loop {
            match limited(self.receiver.recv()).await {
                Ok(Some(_)) => {}
                Ok(None) => panic!("the stream ended in order"),
                Err(error) => break error,
            }
        };
        let RecvError::Lost { link, .. } = &lost else { panic!("{lost}") };
        assert_eq!(link.to_string(), error.to_string());
        limited(self.raw.hung_up()).await;
        self.pair.is_well("honest").await;
        error
    }

    async fn protocol_error(self) -> ProtocolError {
        let error = self.ended().await;
        match error.cause() {
            LinkCause::Protocol(error) => *error,
            other => panic!("{other:?}"),
        }
    }
}

/// Returns the node's error for a numbered packet with this body.
async fn of_packet(body: impl FnOnce(&mut Vec<u8>)) -> ProtocolError {
    let mut scene = Scene::new().await;
    scene.raw.packet(body).await;
    scene.protocol_error().await
}

/// Returns the node's error for these bytes.
async fn of_bytes(bytes: &[u8]) -> ProtocolError {
    let mut scene = Scene::new().await;
    scene.raw.bytes(bytes).await;
    scene.protocol_error().await
}

#[test]
fn packets_that_lie_about_their_lengths() {
    on_both(|| async {
        let large = Header { body_bytes: u32::MAX, sequence: 2, ..Header::default() };
        let error = of_bytes(&large.encode()).await;
        assert!(matches!(error, ProtocolError::PacketTooLarge { bytes: u32::MAX, .. }), "{error}");
        // A run reaches beyond the end of its packet.
        let error = of_packet(|body| body.run(1, 1000, 1)).await;
        assert_eq!(error, ProtocolError::RecordPassesPacket);
        let error = of_packet(|body| {
            body.run(1, u32::MAX, 1);
            body.extend_from_slice(&[0; 100]);
        });
        assert_eq!(error.await, ProtocolError::RecordPassesPacket);
        // The rest is shorter than a record.
        let error = of_packet(|body| body.extend_from_slice(&[1; 15])).await;
        assert_eq!(error, ProtocolError::RecordPassesPacket);
        // A fragment reaches beyond its packet.
        let error = of_packet(|body| body.fragment(1, 100_000, 5000)).await;
        assert_eq!(error, ProtocolError::RecordPassesPacket);
    });
}

#[test]
fn records_that_are_none() {
    on_both(|| async {
        for kind in [0, 17, 0xFF] {
            let error = of_packet(|body| {
                body.bye();
                body[0] = kind;
            });
            assert_eq!(error.await, ProtocolError::UnknownRecord(kind));
        }
        let error = of_packet(|body| {
            body.open(2, Lane::Bulk, ChannelKind::Bytes, 0, "name");
            *body.last_mut().unwrap() = 0xFF;
        });
        assert_eq!(error.await, ProtocolError::BadText);
        let error = of_packet(|body| {
            body.open(2, Lane::Bulk, ChannelKind::Bytes, 0, &"n".repeat(256));
        });
        assert_eq!(error.await, ProtocolError::BadText);
        let error = of_packet(|body| {
            body.refuse(1, Refusal::NotAccepted, "");
            body[8] = 200;
        });
        assert_eq!(error.await, ProtocolError::BadReason);
    });
}

#[test]
fn sequences_and_acks_that_cannot_be() {
    on_both(|| async {
        for (sequence, due) in [(3, 2), (1, 2), (u64::MAX, 2)] {
            let mut scene = Scene::new().await;
            let header = Header { sequence, ..Header::default() };
            scene.raw.packet_as(header, |body| body.credit(1, 1)).await;
            let error = scene.protocol_error().await;
            let expected = ProtocolError::Sequence { got: sequence, due };
            assert_eq!(error, expected);
        }
        for ack in [1000, u64::MAX] {
            let mut scene = Scene::new().await;
            let header = Header { sequence: 2, ack, ..Header::default() };
            scene.raw.packet_as(header, |_| ()).await;
            let error = scene.protocol_error().await;
            assert!(matches!(error, ProtocolError::Ack { got, .. } if got == ack), "{error}");
        }
    });
}

#[test]
fn channels_that_do_not_exist_or_exist_already() {
    on_both(|| async {
        let error = of_packet(|body| {
            body.run(9, 2, 1);
            body.extend_from_slice(&[1, 5]);
        });
        assert_eq!(error.await, ProtocolError::UnknownChannel(9));
        let error = of_packet(|body| {
            body.fragment(9, 20_000, 1);
            body.push(0);
        });
        assert_eq!(error.await, ProtocolError::UnknownChannel(9));
        assert_eq!(of_packet(|body| body.end(9, 0)).await, ProtocolError::UnknownChannel(9));
        let error = of_packet(|body| body.open(1, Lane::Bulk, ChannelKind::Bytes, 0, "raw"));
        assert_eq!(error.await, ProtocolError::OpenedTwice(1));
        let error = of_packet(|body| body.end(1, 5)).await;
        assert_eq!(error, ProtocolError::EndCount { declared: 5, received: 0 });
    });
}

#[test]
fn answers_to_what_was_never_asked_change_nothing() {
    on_both(|| async {
        let mut scene = Scene::new().await;
        scene
            .raw
            .packet(|body| {
                body.credit(77, u64::MAX);
                body.open_credit(u64::MAX);
                body.terminate(77);
                body.refuse(77, Refusal::TypeMismatch, "no type");
                body.describe(77, "no type either");
                body.run(1, 4, 1);
                body.extend_from_slice(&run_of(&[b"yes"]));
            })
            .await;
        let message = limited(scene.receiver.recv()).await.unwrap().unwrap();
        assert_eq!(&message[..], b"yes");
        scene.pair.is_well("honest").await;
        assert!(scene.peer.is_alive());
    });
}

#[test]
fn refusals_without_end_are_answered_once() {
    on_both(|| async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().into();
        let node = Node::builder().build().await.unwrap();
        let (peer, mut raw) =
            limited(async { tokio::join!(node.connect(&address), RawPeer::accept(&listener)) })
                .await;
        let mut sender: Sender<u32> = node.open(&peer.unwrap(), "again").await.unwrap();
        let opened = raw.find(|item| matches!(item, Item::Open(_)).then_some(()));
        limited(opened).await.unwrap();
        for _ in 0..1000 {
            raw.packet(|body| body.refuse(1, Refusal::TypeMismatch, "another type")).await;
        }
        assert!(matches!(limited(sender.closed()).await, SendError::Refused(_)));
        let mut answer = async || {
            let answer = raw.find(|item| match item {
                Item::Describe { channel, text } => Some((channel, text.to_owned())),
                _ => None,
            });
            let answer = limited(answer).await;
            raw.packet(AppendRecords::bye).await;
            answer
        };
        assert_eq!(answer().await, Some((1, "u32".to_owned())));
        assert_eq!(answer().await, None);
    });
}

#[test]
fn more_credit_than_was_given() {
    on_both(|| async {
        // The excess comes in one run, and in many.
        for run_bytes in [WINDOW_BYTES_INITIAL as usize + 1, 1000] {
            let mut scene = Scene::new().await;
            for _ in 0..WINDOW_BYTES_INITIAL as usize / run_bytes + 1 {
                scene
                    .raw
                    .packet(|body| {
                        body.run(1, run_bytes as u32, run_bytes as u32);
                        body.resize(body.len() + run_bytes, 0);
                    })
                    .await;
            }
            let error = scene.protocol_error().await;
            let expected =
                matches!(error, ProtocolError::OverWindow { granted: WINDOW_BYTES_INITIAL, .. });
            assert!(expected, "{error}");
        }
        // A fragment's bytes count as well.
        let error = of_packet(|body| {
            let bytes = WINDOW_BYTES_INITIAL as usize + 1;
            body.fragment(1, 1 << 20, bytes as u32);
            body.resize(body.len() + bytes, 0);
        });
        let error = error.await;
        assert!(matches!(error, ProtocolError::OverWindow { .. }), "{error}");
    });
}

#[test]
fn more_opens_than_there_is_memory_for() {
    on_both(|| async {
        let mut scene = Scene::new().await;
        for id in 2..=600 {
            scene.raw.open(id, "more").await;
        }
        let error = scene.protocol_error().await;
        assert_eq!(error, ProtocolError::TooManyOpens);
    });
}

#[test]
fn messages_above_the_size_that_was_agreed() {
    on_both(|| async {
        for bytes in [MESSAGE_BYTES_DEFAULT + 1, 1 << 62, 1 << 63, (1 << 63) + 1, u64::MAX] {
            let error = of_packet(|body| {
                body.fragment(1, bytes, 10);
                body.extend_from_slice(&[0; 10]);
            });
            let bytes_max = MESSAGE_BYTES_DEFAULT;
            let expected = ProtocolError::MessageTooLarge { bytes, bytes_max };
            assert_eq!(error.await, expected, "{bytes}");
        }
    });
}

#[test]
fn fragments_that_do_not_fit() {
    on_both(|| async {
        let error = of_packet(|body| {
            body.fragment(1, 10, 11);
            body.resize(body.len() + 11, 0);
        });
        assert_eq!(error.await, ProtocolError::BadFragment);
        let error = of_packet(|body| body.fragment(1, 10_000, 0)).await;
        assert_eq!(error, ProtocolError::BadFragment);
        // The second fragment is of another message, or longer than the missing rest.
        for (bytes, fragment) in [(20_001, 5000), (20_000, 15_001)] {
            let mut scene = Scene::new().await;
            for (bytes, fragment) in [(20_000, 5000), (bytes, fragment)] {
                scene
                    .raw
                    .packet(|body| {
                        body.fragment(1, bytes, fragment);
                        body.resize(body.len() + fragment as usize, 0);
                    })
                    .await;
            }
            let error = scene.protocol_error().await;
            let credit = matches!(error, ProtocolError::OverWindow { .. });
            assert!(error == ProtocolError::Fragments || credit, "{error}");
            assert!(!credit || fragment > 11_384, "{error}");
        }
        // The fragment is longer than any may be.
        let mut scene = Scene::new().await;
        let body_bytes = (FRAGMENT_BYTES_MAX + PACKET_BYTES_TUNED) as u32 + 1000;
        let header = Header { body_bytes, sequence: 2, ..Header::default() };
        scene.raw.bytes(&header.encode()).await;
        let error = scene.protocol_error().await;
        assert!(matches!(error, ProtocolError::PacketTooLarge { .. }), "{error}");
    });
}

/// Returns runs whose messages do not fill them: bytes, count of messages, good messages before the
/// lie.
fn lies() -> Vec<(Vec<u8>, u32, usize)> {
    vec![
        // The last message reaches beyond the end.
        (vec![1, 7, 5, 7], 2, 1),
        // The bytes end within a prefix.
        (vec![1, 7, 0xFA, 1], 2, 1),
        (vec![1, 7, 0xFB, 0xFF, 0xFF, 0xFF, 0xFF], 2, 1),
        // No prefix begins with this byte, and large messages are not in runs.
        (vec![1, 7, 0xFC], 2, 1),
        (vec![1, 7, 0xFF], 2, 1),
        (vec![0xFF; 30], 1, 0),
        // The run has fewer messages than announced, or more.
        (vec![1, 7, 1, 8], 3, 2),
        (vec![1, 7, 1, 8], 1, 2),
    ]
}

#[test]
fn runs_whose_messages_lie_end_the_session_when_they_are_taken() {
    on_both(|| async {
        for (run, messages, good) in lies() {
            let mut scene = Scene::new().await;
            scene.send_run(&run, messages).await;
            for _ in 0..good {
                let message = limited(scene.receiver.recv()).await.unwrap().unwrap();
                assert_eq!(message.len(), 1);
            }
            let error = limited(scene.receiver.recv()).await.unwrap_err();
            assert!(matches!(error, RecvError::Lost { .. }), "{error}");
            let error = scene.ended().await;
            assert!(matches!(error.cause(), LinkCause::CorruptRun { channel: 1 }), "{error}");
        }
    });
}

#[test]
fn runs_with_no_or_impossibly_many_messages_end_the_session_at_once() {
    on_both(|| async {
        for (run, messages) in [(vec![1, 7], 0), (vec![1, 7], 3), (vec![], 0), (vec![], u32::MAX)] {
            let mut scene = Scene::new().await;
            scene.send_run(&run, messages).await;
            let error = scene.ended().await;
            assert!(matches!(error.cause(), LinkCause::Protocol(_)), "{error}");
        }
    });
}

#[test]
fn runs_that_lie_end_every_way_of_receiving() {
    on_both(|| async {
        for way in 0..4 {
            let mut scene = Scene::new().await;
            let (run, messages, _) = lies().swap_remove(5);
            scene.send_run(&run, messages).await;
            let receiver = &mut scene.receiver;
            let error = limited(async {
                loop {
                    let tried = match way {
                        0 => receiver.recv_into(vec![0; 100]).await.map(|message| {
                            assert!(message.is_some(), "the stream ended in order");
                        }),
                        1 => match receiver.try_recv() {
                            Err(TryRecvError::Failed(error)) => Err(error),
                            Err(TryRecvError::Empty) => Ok(()),
                            other => panic!("{other:?}"),
                        },
                        2 => match receiver.try_recv_with(|_| panic!("a message")) {
                            Err(TryRecvError::Failed(error)) => Err(error),
                            Err(TryRecvError::Empty) => Ok(()),
                            other => panic!("{other:?}"),
                        },
                        _ => receiver.recv().await.map(|_| panic!("a message")),
                    };
                    match tried {
                        Ok(()) => tokio::time::sleep(std::time::Duration::from_millis(1)).await,
                        Err(error) => break error,
                    }
                }
            });
            assert!(matches!(error.await, RecvError::Lost { .. }));
            let error = scene.ended().await;
            assert!(matches!(error.cause(), LinkCause::CorruptRun { channel: 1 }), "{error}");
        }
    });
}

#[test]
fn data_after_the_end_of_a_channel() {
    on_both(|| async {
        let mut scene = Scene::new().await;
        scene
            .raw
            .packet(|body| {
                body.run(1, 2, 1);
                body.extend_from_slice(&[1, 7]);
                body.end(1, 1);
            })
            .await;
        let message = limited(scene.receiver.recv()).await.unwrap().unwrap();
        assert_eq!(message[..], [7]);
        assert!(limited(scene.receiver.recv()).await.unwrap().is_none());
        scene
            .raw
            .packet(|body| {
                body.run(1, 2, 1);
                body.extend_from_slice(&[1, 7]);
            })
            .await;
        let error = limited(scene.peer.closed()).await;
        let expected = ProtocolError::UnknownChannel(1);
        assert!(matches!(error.cause(), LinkCause::Protocol(it) if *it == expected), "{error}");
        scene.pair.is_well("honest").await;
    });
}

#[test]
fn honest_bytes_arrive_however_they_are_cut() {
    on_one_thread(async {
        for seed in 1..4 {
            let mut random = seeded(seed);
            let mut scene = Scene::new().await;
            let mut bytes = Vec::new();
            let mut expected = Vec::new();
            for sequence in 2..60 {
                let mut body = Vec::new();
                let small: Vec<u8> = random_bytes(&mut random, random_size(sequence));
                body.run(1, 1 + small.len() as u32, 1);
                body.extend_from_slice(&run_of(&[&small]));
                expected.push(small);
                let header =
                    Header { body_bytes: body.len() as u32, sequence, ..Header::default() };
                bytes.extend_from_slice(&header.encode());
                bytes.extend_from_slice(&body);
            }
            assert!(bytes.len() < WINDOW_BYTES_INITIAL as usize);
            let mut rest = &bytes[..];
            while !rest.is_empty() {
                let count = (1 + random.below(97) as usize).min(rest.len());
                scene.raw.bytes(&rest[..count]).await;
                rest = &rest[count..];
                if random.below(3) == 0 {
                    tokio::task::yield_now().await;
                }
            }
            for message in expected {
                let got = limited(scene.receiver.recv()).await.unwrap().unwrap();
                assert_eq!(got[..], message);
            }
        }
    });
}

fn random_bytes(random: &mut Random, count: usize) -> Vec<u8> {
    (0..count).map(|_| random.next_u64() as u8).collect()
}

fn random_size(sequence: u64) -> usize {
    (sequence as usize * 37) % 200
}

#[test]
fn random_bytes_end_a_session_in_order() {
    on_one_thread(async {
        let pair = pair().await;
        for seed in 1..40 {
            let mut random = seeded(seed);
            let mut raw = RawPeer::connect(&pair.a).await;
            raw.open(1, "random").await;
            let (peer, mut receiver) = limited(pair.a.accept_bytes("random")).await.unwrap();
            let count = 1 + random.below(2000) as usize;
            if random.below(2) == 0 {
                let bytes = random_bytes(&mut random, count);
                raw.bytes(&bytes).await;
            } else {
                // A packet whose records are random.
                raw.packet(|body| {
                    for _ in 0..1 + random.below(6) {
                        let mut record = random_bytes(&mut random, 16);
                        record[0] = random.below(12) as u8;
                        record[4..8].copy_from_slice(&(random.below(3) as u32).to_le_bytes());
                        record[8..16].copy_from_slice(&(random.below(60)).to_le_bytes());
                        body.extend_from_slice(&record);
                        let tail = random.below(60) as usize;
                        body.extend_from_slice(&random_bytes(&mut random, tail));
                    }
                })
                .await;
            }
            drop(raw);
            while let Ok(Some(_)) = limited(receiver.recv()).await {}
            drop(receiver);
            let error = limited(peer.closed()).await;
            assert!(!matches!(error.cause(), LinkCause::DriverGone), "the driver panicked");
        }
        pair.is_well("honest").await;
    });
}
