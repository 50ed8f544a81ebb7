//! The end of a channel.

use super::*;

#[test]
fn an_end_is_sent_once_whoever_asks_for_it() {
    for sender_first in [true, false] {
        let mut scene = Scene::new(Policy::Chunked, 4096);
        let channel = scene.open(Lane::Bulk);
        scene.stage(channel, 10);
        scene.transmit();
        for end in 0..4 {
            if (end % 2 == 0) == sender_first {
                scene.outbox.end(channel, 1, scene.now);
            } else {
                assert!(scene.outbox.terminate(channel, scene.now));
            }
            // The check itself reports an end that comes twice.
            scene.transmit();
        }
        scene.outbox.end_when_drained(channel, scene.now);
        scene.transmit();
        assert_eq!(scene.got[&channel].end, Some(1));
        assert!(scene.outbox.has_ended());
    }
}

#[test]
fn a_terminated_channel_ends_without_credit() {
    let mut scene = Scene::new(Policy::Chunked, 64 * 1024);
    let channel = scene.open(Lane::Bulk);
    for _ in 0..40 {
        scene.stage(channel, 1000);
    }
    scene.transmit();
    assert!(!scene.outbox.has_ended() && scene.outbox.is_idle(), "it waits for credit");
    let sent = scene.outbox.sent_messages(channel);
    assert!(sent < 40 && scene.outbox.credit_waits() > 0);
    scene.rings.discard(channel);
    assert!(scene.outbox.terminate(channel, scene.now));
    scene.transmit();
    assert_eq!(scene.got[&channel].end, Some(sent));
    assert!(scene.outbox.has_ended());
}

/// Found by fuzzing: the packet was filled for ever, with staged messages still in their ring.
#[test]
fn a_channel_that_is_to_be_drained_ends_when_its_receiver_is_gone() {
    for known in [false, true] {
        let mut scene = Scene::new(Policy::Chunked, 4096);
        let channel = scene.open(Lane::Bulk);
        for _ in 0..40 {
            scene.stage(channel, 1000);
        }
        scene.transmit();
        if known {
            scene.outbox.terminate(channel, scene.now);
        }
        scene.outbox.end_when_drained(channel, scene.now);
        scene.outbox.terminate(channel, scene.now);
        scene.transmit();
        assert!(!scene.rings.is_empty() && scene.got[&channel].end.is_some());
    }
}

/// The log of a stream may store messages after the end of their channel was sent.
#[test]
fn nothing_follows_an_end() {
    let mut scene = Scene::new(Policy::Chunked, 4096);
    let channel = scene.open(Lane::Bulk);
    scene.outbox.end_when_drained(channel, scene.now);
    scene.transmit();
    scene.stage(channel, 10);
    scene.transmit();
    let got = &scene.got[&channel];
    assert_eq!((got.messages.len(), got.end), (0, Some(0)));
}
