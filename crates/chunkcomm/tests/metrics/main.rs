//! Counters of links as the `metrics` facade gets them. A program of its own: what publishes them
//! also runs where others count polls or simulate times.

#![allow(clippy::unwrap_used)]

use chunkcomm_testkit::{limited, on_one_thread, pair, until};
use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, SharedString, Unit};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// A recorder that keeps the counters by name and labels.
#[derive(Default)]
struct Counters(Mutex<BTreeMap<String, Arc<AtomicU64>>>);

impl Counters {
    fn of(&self, name: &str, peer: &str) -> u64 {
        let counters = self.0.lock().unwrap();
        let label = format!("peer={peer}");
        let ours = counters.iter().filter(|(key, _)| key.starts_with(name));
        ours.filter(|(key, _)| key.contains(&label)).map(|it| it.1.load(Ordering::SeqCst)).sum()
    }
}

impl metrics::Recorder for Counters {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        let labels = key.labels().map(|it| format!(" {}={}", it.key(), it.value()));
        let name = key.name().to_owned() + &labels.collect::<String>();
        let mut counters = self.0.lock().unwrap();
        Counter::from_arc(Arc::clone(counters.entry(name).or_default()))
    }
    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }
    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

#[test]
fn counters_reach_the_recorder_also_when_the_link_rests_or_ends() {
    let counters = Counters::default();
    let _guard = metrics::set_default_local_recorder(&counters);
    on_one_thread(async {
        let pair = pair().await;
        let (mut sender, mut receiver) = pair.channel::<u64>("counted").await;
        for number in 0..100 {
            sender.send(&number).await.unwrap();
            limited(receiver.recv()).await.unwrap();
        }
        until(|| counters.of("chunkcomm_messages_sent_total", "a") == 100).await;
        until(|| counters.of("chunkcomm_messages_received_total", "b") == 100).await;
        sender.send(&100).await.unwrap();
        limited(sender.sync()).await.unwrap();
        pair.peer.abort();
        limited(pair.peer.closed()).await;
        assert_eq!(counters.of("chunkcomm_messages_sent_total", "a"), 101);
        let packets = pair.peer.stats().message_packets_sent;
        assert_eq!(counters.of("chunkcomm_flushes_total", "a"), packets);
    });
}
