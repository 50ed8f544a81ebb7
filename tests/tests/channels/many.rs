//! One message to many peers, some of which are gone or cannot take it.

use bytes::Bytes;
use chunkcomm::channel::{send_bytes_to_all, send_to_all};
use chunkcomm::{Node, SendError, Sender};
use chunkcomm_testkit::{limited, memory, messages_of, on_both, on_one_thread, pair, tcp};
use serde::ser::{Error as _, Serialize, Serializer};
use serde::{Deserialize, de};

#[test]
fn the_living_get_everything_once_and_in_order_and_the_dead_are_named() {
    on_both(|| async {
        let server = Node::builder().name("server").build().await.unwrap();
        let (mut senders, mut receivers) = (Vec::new(), Vec::new());
        for _ in 0..6 {
            let client = Node::builder().listen(tcp()).build().await.unwrap();
            let peer = server.connect(&client.addresses()[0]).await.unwrap();
            senders.push(server.open::<Vec<u32>>(&peer, "news").await.unwrap());
            receivers.push(limited(client.accept::<Vec<u32>>("news")).await.unwrap().1);
        }
        // Messages of some of these sizes fit a packet; others travel in fragments.
        let news = |number: u32| vec![number; [1, 1000, 5000, 100_000][number as usize % 4]];
        // Three peers end early: two receivers are dropped, a session is given up.
        let takes = [u32::MAX, 20, 60, u32::MAX, 40, u32::MAX];
        let taking = receivers.into_iter().zip(takes).map(|(mut receiver, takes)| {
            tokio::spawn(async move {
                let mut taken = 0;
                while taken < takes
                    && let Some(got) = limited(receiver.recv()).await.unwrap()
                {
                    assert!(got == news(taken), "message {taken}");
                    taken += 1;
                }
                if takes == 40 {
                    receiver.peer().abort();
                    limited(receiver.peer().closed()).await;
                }
                taken
            })
        });
        let taking: Vec<_> = taking.collect();
        for number in 0..100 {
            // From now on this peer is known to be dead.
            if let Some(dead) = takes.iter().position(|takes| *takes == number) {
                limited(senders[dead].closed()).await;
            }
            let sent = limited(send_to_all(&mut senders, &news(number))).await;
            let dead: Vec<usize> = match sent {
                Ok(()) => Vec::new(),
                Err(skipped) => {
                    for (index, error) in &skipped.failed {
                        match error {
                            SendError::Terminated(_) => assert_ne!(*index, 4),
                            SendError::Lost(_) => assert_eq!(*index, 4),
                            other => panic!("{other}"),
                        }
                    }
                    skipped.failed.into_iter().map(|(index, _)| index).collect()
                }
            };
            let expected: &[usize] = match number {
                0..20 => &[],
                20..40 => &[1],
                40..60 => &[1, 4],
                _ => &[1, 2, 4],
            };
            assert_eq!(dead, expected, "message {number}");
        }
        drop(senders);
        for (task, takes) in taking.into_iter().zip(takes) {
            assert_eq!(limited(task).await.unwrap(), takes.min(100));
        }
    });
}

#[test]
fn what_one_peer_does_not_take_the_others_get() {
    on_both(|| async {
        let server = Node::builder().build().await.unwrap();
        let (mut senders, mut receivers) = (Vec::new(), Vec::new());
        for bytes_max in [1 << 20, 64 * 1024, 1 << 20] {
            let client = Node::builder().limits(messages_of(bytes_max)).listen(memory());
            let client = client.build().await.unwrap();
            let peer = server.connect(&client.addresses()[0]).await.unwrap();
            senders.push(server.open_bytes(&peer, "sizes").await.unwrap());
            receivers.push(limited(client.accept_bytes("sizes")).await.unwrap().1);
        }
        let skipped = limited(send_bytes_to_all(&mut senders, &vec![1; 100_000].into())).await;
        let skipped = skipped.unwrap_err();
        assert!(matches!(&skipped.failed[..], [(1, SendError::TooLarge { .. })]), "{skipped}");
        limited(send_bytes_to_all(&mut senders, &Bytes::from_static(b"small"))).await.unwrap();
        for (receiver, sizes) in receivers.iter_mut().zip([&[100_000, 5][..], &[5], &[100_000, 5]])
        {
            for size in sizes {
                assert_eq!(limited(receiver.recv()).await.unwrap().unwrap().len(), *size);
            }
        }
    });
}

/// A number that cannot be encoded when it is 0.
struct Never0(u32);

impl Serialize for Never0 {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0 == 0 {
            return Err(S::Error::custom("it is 0"));
        }
        serializer.serialize_u32(self.0)
    }
}

impl<'de> Deserialize<'de> for Never0 {
    fn deserialize<D: de::Deserializer<'de>>(deserializer: D) -> Result<Never0, D::Error> {
        u32::deserialize(deserializer).map(Never0)
    }
}

#[test]
fn a_value_that_cannot_be_encoded_goes_to_nobody() {
    on_one_thread(async {
        let pair = pair().await;
        let (one, mut from_one) = pair.channel::<Never0>("one").await;
        let (two, mut from_two) = pair.channel::<Never0>("two").await;
        let mut senders: [Sender<Never0>; 2] = [one, two];
        let skipped = limited(send_to_all(&mut senders, &Never0(0))).await.unwrap_err();
        let [(0, SendError::Encode(_)), (1, SendError::Encode(_))] = &skipped.failed[..] else {
            panic!("{skipped}")
        };
        limited(send_to_all(&mut senders, &Never0(7))).await.unwrap();
        limited(send_to_all::<Never0>(&mut [], &Never0(7))).await.unwrap();
        for receiver in [&mut from_one, &mut from_two] {
            assert_eq!(limited(receiver.recv()).await.unwrap().unwrap().0, 7);
        }
    });
}
