//! Types that differ between the ends, kinds that differ, messages too large.

use bytes::Bytes;
use chunkcomm::error::RefusalReason;
use chunkcomm::{AcceptError, Node, OpenError, SendError, Sender, TrySendError, channel};
use chunkcomm_testkit::{
    all, limited, messages_of, on_both, on_one_thread, pair, pair_of, tcp, until,
};
use serde::{Deserialize, Serialize};
use std::time::Duration;

mod ours {
    use serde::{Deserialize, Serialize};

    #[derive(Serialize, Deserialize, Debug, PartialEq)]
    pub(super) struct Reading {
        pub(super) station: u32,
        pub(super) celsius: f64,
    }
}

mod theirs {
    use serde::{Deserialize, Serialize};

    /// The same name and shape, with one field renamed.
    #[derive(Serialize, Deserialize)]
    pub(super) struct Reading {
        pub(super) station: u32,
        pub(super) kelvin: f64,
    }
}

#[test]
fn one_field_renamed_is_refused_with_both_types_on_both_sides() {
    on_both(|| async {
        let pair = pair().await;
        let mut sender: Sender<theirs::Reading> =
            pair.b.open(&pair.peer, "readings").await.unwrap();
        sender.send(&theirs::Reading { station: 1, kelvin: 293.0 }).await.unwrap();
        let error = limited(pair.a.accept::<ours::Reading>("readings")).await.unwrap_err();
        let AcceptError::Mismatch { channel, peer, reason } = &error else { panic!("{error}") };
        assert_eq!((channel.as_str(), peer.as_str()), ("readings", "b"));
        let RefusalReason::TypeMismatch { sender: theirs, receiver: ours } = reason else {
            panic!("{error}")
        };
        assert!(theirs.contains("Reading") && theirs.contains("kelvin"), "{theirs}");
        assert!(ours.contains("Reading") && ours.contains("celsius"), "{ours}");
        let seen_there = limited(sender.closed()).await;
        let SendError::Refused(refused) = &seen_there else { panic!("{seen_there}") };
        assert_eq!(&refused.reason, reason);
        assert_eq!((refused.channel.as_str(), refused.peer.as_str()), ("readings", "a"));
        for text in [error.to_string(), seen_there.to_string()] {
            let named = ["\"readings\"", "kelvin", "celsius"].iter().all(|it| text.contains(it));
            assert!(named, "{text}");
        }
        // Messages accepted on it count as not consumed, and sync returns the refusal.
        assert!(matches!(limited(sender.sync()).await, Err(SendError::Refused(_))));
        let error = limited(sender.close(Duration::from_secs(5))).await;
        if let Err(error) = error {
            assert!(matches!(error.channels[0].cause, Some(SendError::Refused(_))));
        }
        // The same name can be accepted again.
        let mut sender: Sender<ours::Reading> = pair.b.open(&pair.peer, "readings").await.unwrap();
        sender.send(&ours::Reading { station: 2, celsius: 20.0 }).await.unwrap();
        let (_, mut receiver) = limited(pair.a.accept::<ours::Reading>("readings")).await.unwrap();
        let got = limited(receiver.recv()).await.unwrap().unwrap();
        assert_eq!(got, ours::Reading { station: 2, celsius: 20.0 });
    });
}

#[test]
fn a_sender_that_waits_learns_of_the_refusal() {
    on_both(|| async {
        let pair = pair().await;
        let mut sender: Sender<Vec<u32>> = pair.b.open(&pair.peer, "waits").await.unwrap();
        let sending = tokio::spawn(async move {
            loop {
                if let Err(error) = sender.send(&vec![1; 1000]).await {
                    return error;
                }
            }
        });
        until(|| pair.peer.stats().credit_waits > 0).await;
        limited(pair.a.accept::<Vec<u64>>("waits")).await.unwrap_err();
        let error = limited(sending).await.unwrap();
        assert!(matches!(error, SendError::Refused(_)), "{error}");
        pair.is_well("after").await;
    });
}

#[test]
fn bytes_against_values_are_refused_either_way() {
    on_both(|| async {
        let pair = pair().await;
        let mut bytes = pair.b.open_bytes(&pair.peer, "kind").await.unwrap();
        bytes.send_slice(b"raw").await.unwrap();
        let error = limited(pair.a.accept::<u32>("kind")).await.unwrap_err();
        let kind = |error: &AcceptError| {
            matches!(error, AcceptError::Mismatch { reason: RefusalReason::KindMismatch, .. })
        };
        assert!(kind(&error), "{error}");
        let error = limited(bytes.closed()).await;
        let refused = |error: &SendError| matches!(error, SendError::Refused(it) if it.reason == RefusalReason::KindMismatch);
        assert!(refused(&error), "{error}");
        let mut values: Sender<u32> = pair.b.open(&pair.peer, "kind").await.unwrap();
        values.send(&1).await.unwrap();
        assert!(kind(&limited(pair.a.accept_bytes("kind")).await.unwrap_err()));
        assert!(refused(&limited(values.closed()).await));
        pair.is_well("after").await;
    });
}

#[test]
fn a_schema_name_stands_for_the_type() {
    on_one_thread(async {
        let pair = pair().await;
        let options = |name: &str| channel("schema").schema(name);
        // The types differ on purpose.
        let mut sender: Sender<theirs::Reading> =
            pair.b.open(&pair.peer, options("reading 1")).await.unwrap();
        sender.send(&theirs::Reading { station: 3, kelvin: 1.5 }).await.unwrap();
        let accepted = pair.a.accept::<ours::Reading>(options("reading 1"));
        let (_, mut receiver) = limited(accepted).await.unwrap();
        let got = limited(receiver.recv()).await.unwrap().unwrap();
        assert_eq!(got, ours::Reading { station: 3, celsius: 1.5 });
        // The names differ.
        let mut sender: Sender<u8> = pair.b.open(&pair.peer, options("reading 1")).await.unwrap();
        let refused = pair.a.accept::<u8>(options("reading 2"));
        let text = limited(refused).await.unwrap_err().to_string();
        assert!(text.contains("reading 1") && text.contains("reading 2"), "{text}");
        limited(sender.closed()).await;
    });
}

#[test]
fn bytes_with_a_schema_are_accepted_under_that_schema_only() {
    on_both(|| async {
        let pair = pair().await;
        let options = |name: &str| channel("schema").schema(name);
        for (there, here) in [(Some("pixels 1"), None), (None, Some("pixels 1"))] {
            let of = |name: Option<&str>| name.map_or_else(|| channel("schema"), options);
            let opened = pair.b.open_bytes(&pair.peer, of(there));
            let mut sender = opened.await.unwrap();
            sender.send_slice(b"raw").await.unwrap();
            let refused = limited(pair.a.accept_bytes(of(here))).await.unwrap_err();
            let text = refused.to_string();
            assert!(text.contains("pixels 1") && text.contains("bytes"), "{text}");
            assert!(matches!(limited(sender.closed()).await, SendError::Refused(_)));
        }
        let opened = pair.b.open_bytes(&pair.peer, options("pixels 1"));
        let mut sender = opened.await.unwrap();
        sender.send_slice(b"raw").await.unwrap();
        let accept = || pair.a.accept_bytes(options("pixels 1"));
        // A channel that is given back keeps its schema.
        limited(accept()).await.unwrap().1.give_back();
        let (_, mut receiver) = limited(accept()).await.unwrap();
        assert_eq!(limited(receiver.recv()).await.unwrap().unwrap(), b"raw"[..]);
    });
}

#[test]
fn a_type_whose_values_cannot_be_read_back_is_refused_before_anything_is_sent() {
    #[derive(Serialize, Deserialize, Debug)]
    #[serde(untagged)]
    enum Either {
        Number(u32),
        Text(String),
    }
    on_one_thread(async {
        let pair = pair().await;
        let error = pair.b.open::<Either>(&pair.peer, "either").await.unwrap_err();
        assert!(matches!(error, OpenError::Type(_)), "{error}");
        let error = pair.a.accept::<Either>("either").await.unwrap_err();
        assert!(matches!(error, AcceptError::Type(_)), "{error}");
        // Each variant is used, so that both exist.
        let _ = [Either::Number(1), Either::Text(String::new())];
    });
}

#[test]
fn an_oversized_message_is_refused_with_both_sizes_and_the_channel_goes_on() {
    on_both(|| async {
        let modest = Node::builder().limits(messages_of(100_000));
        let pair = pair_of(tcp(), modest, Node::builder()).await;
        assert_eq!(pair.peer.message_bytes_max(), 100_000);
        let (mut sender, mut receiver) = pair.channel::<Vec<u8>>("size").await;
        let (mut bytes, mut from_bytes) = pair.bytes("bytes").await;
        let too_large = |error: SendError| {
            let text = error.to_string();
            assert!(text.contains("100001") && text.contains("100000"), "{text}");
            matches!(error, SendError::TooLarge { bytes: 100_001, bytes_max: 100_000 })
        };
        for number in 0..3u8 {
            // A vector's length takes eight bytes.
            let value = vec![number; 99_993];
            assert!(too_large(sender.send(&value).await.unwrap_err()));
            let Err(TrySendError::Failed(error)) = sender.try_send(&value) else { panic!() };
            assert!(too_large(error));
            let all = sender.send_all([&vec![number; 2], &value]).await.unwrap_err();
            assert_eq!(all.accepted, 1);
            assert!(too_large(all.error));
            sender.send(&vec![number; 99_992]).await.unwrap();
            assert_eq!(limited(receiver.recv()).await.unwrap(), Some(vec![number; 2]));
            assert_eq!(limited(receiver.recv()).await.unwrap(), Some(vec![number; 99_992]));
            let payload = Bytes::from(vec![number; 100_001]);
            assert!(too_large(bytes.send(payload.clone()).await.unwrap_err()));
            assert!(too_large(bytes.send_slice(&payload).await.unwrap_err()));
            bytes.send(payload.slice(1..)).await.unwrap();
            assert_eq!(limited(from_bytes.recv()).await.unwrap().unwrap(), payload.slice(1..));
        }
        drop(sender);
        assert!(all(&mut receiver).await.is_empty());
    });
}
