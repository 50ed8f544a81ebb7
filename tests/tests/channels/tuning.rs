//! Controllers that are switched off for measuring.

use chunkcomm::proto::tuning::without::WITHOUT_VARIABLE;
use chunkcomm::stats::FlushReason;
use chunkcomm::{Node, Sender};
use chunkcomm_testkit::{Pair, itself, limited, memory, on_one_thread, pair_of};
use std::time::Duration;

/// Sends a message; returns the size of its channel's ring before that, and whether the packet
/// waited for nothing.
async fn ring_and_flush() -> (usize, bool) {
    let slow = Node::builder().age_bound(Duration::from_secs(60));
    let pair: Pair = pair_of(memory(), Node::builder(), slow).await;
    let mut sender: Sender<u64> = pair.b.open(&pair.peer, "tuning").await.unwrap();
    let ring_bytes = sender.stats().ring_bytes;
    sender.send(&7).await.unwrap();
    let (_, mut receiver) = limited(pair.a.accept::<u64>("tuning")).await.unwrap();
    assert_eq!(limited(receiver.recv()).await.unwrap(), Some(7));
    limited(sender.sync()).await.unwrap();
    (ring_bytes, pair.peer.stats().flushes.get(FlushReason::Old) > 0)
}

/// The test is its own child process, since no other test may see the variable.
#[test]
fn the_environment_switches_controllers_off() {
    let Ok(without) = std::env::var(WITHOUT_VARIABLE) else {
        for without in ["rings", "flush", "flush,rings", "none", "rings,"] {
            let name = "tuning::the_environment_switches_controllers_off";
            let output = itself(name).env(WITHOUT_VARIABLE, without).output().unwrap();
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success() && text.contains("1 passed"), "{without:?}: {text}");
        }
        return;
    };
    on_one_thread(async move {
        let all = ["rings", "flush"];
        if !without.split(',').all(|name| all.contains(&name)) {
            let text = Node::builder().build().await.unwrap_err().to_string();
            assert!(
                text.contains(WITHOUT_VARIABLE) && text.contains("packet-size, pace"),
                "{text}"
            );
            return;
        }
        let (ring_bytes, at_once) = ring_and_flush().await;
        assert_eq!(ring_bytes > 2048, without.contains("rings"), "{ring_bytes}");
        assert_eq!(at_once, without.contains("flush"));
    });
}
