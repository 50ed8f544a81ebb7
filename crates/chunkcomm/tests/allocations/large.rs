//! Large messages: their memory is used again, and a link that has none any more gives it up.

use crate::{alone, on_one_thread};
use chunkcomm::{Address, Node, Receiver, Sender};
use chunkcomm_testkit::counting::{LARGE_ALLOCATIONS, LARGE_BYTES_MIN, LIVE_BYTES};
use chunkcomm_testkit::until;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::sync::atomic::Ordering;

const MESSAGE_BYTES: usize = 4 * LARGE_BYTES_MIN;
const MESSAGES: u64 = 50;

/// Bytes that their receiver looks at and does not keep.
#[derive(Debug)]
struct Look(Vec<u8>);

impl Serialize for Look {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for Look {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl serde::de::Visitor<'_> for Visitor {
            type Value = Look;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("bytes")
            }
            fn visit_bytes<E: serde::de::Error>(self, bytes: &[u8]) -> Result<Look, E> {
                let same = bytes.iter().all(|byte| *byte == bytes[0]);
                if bytes.len() != MESSAGE_BYTES || !same {
                    return Err(E::custom("they are not what was sent"));
                }
                Ok(Look(vec![bytes[0]]))
            }
        }
        deserializer.deserialize_bytes(Visitor)
    }
}

async fn pass(
    sender: &mut Sender<Look>,
    receiver: &mut Receiver<Look>,
    value: &mut Look,
    count: u64,
) {
    let sending = async {
        for number in 0..count {
            value.0.fill(number as u8);
            sender.send(value).await.unwrap();
        }
        sender.sync().await.unwrap();
    };
    let receiving = async {
        for number in 0..count {
            let value = receiver.recv().await.unwrap().unwrap();
            assert_eq!(value.0, [number as u8]);
        }
    };
    tokio::join!(sending, receiving);
}

#[test]
fn the_memory_of_large_messages_is_used_again_and_not_kept() {
    let _turn = alone();
    on_one_thread(async {
        let loopback: Address = "127.0.0.1:0".parse().unwrap();
        let a = Node::builder().name("a").listen(loopback).build().await.unwrap();
        let b = Node::builder().name("b").build().await.unwrap();
        let peer = b.connect(&a.addresses()[0]).await.unwrap();
        let mut sender = b.open::<Look>(&peer, "large").await.unwrap();
        let (_, mut receiver) = a.accept::<Look>("large").await.unwrap();
        let mut value = Look(vec![0; MESSAGE_BYTES]);
        let live = || LIVE_BYTES.load(Ordering::Relaxed);
        let before = live();
        pass(&mut sender, &mut receiver, &mut value, 5).await;

        let allocated = LARGE_ALLOCATIONS.load(Ordering::Relaxed);
        pass(&mut sender, &mut receiver, &mut value, MESSAGES).await;
        let allocated = LARGE_ALLOCATIONS.load(Ordering::Relaxed) - allocated;
        println!("{allocated} large allocations for {MESSAGES} messages");
        // A busy machine may free a block that was not used for a second.
        assert!(allocated < MESSAGES / 4, "{allocated} large allocations");

        until(|| live() - before < MESSAGE_BYTES as i64).await;
    });
}
