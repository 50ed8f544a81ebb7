//! Counts that stand for walks over all channels, and the channels that a decision looks at.

use super::*;

const CHANNELS: usize = 10_000;

/// Opens [`CHANNELS`] channels, with the open of each in a packet.
fn many(policy: Policy, packet_bytes: usize) -> (Scene, Vec<u32>) {
    let mut scene = Scene::new(policy, packet_bytes);
    scene.grant_opens(CHANNELS as u64);
    let channels = (0..CHANNELS).map(|_| scene.open(Lane::Bulk)).collect();
    scene.transmit();
    assert!(scene.outbox.is_idle() && scene.got.len() == CHANNELS);
    (scene, channels)
}

/// Decides; returns the verdict and the number of channels that were looked at.
fn decide(scene: &mut Scene) -> (Option<Verdict>, usize) {
    let before = scene.rings.views;
    let verdict = scene.outbox.decide(&mut scene.rings, scene.now);
    (verdict, scene.rings.views - before)
}

#[test]
fn a_decision_looks_at_no_idle_channel() {
    let (mut scene, channels) = many(Policy::Chunked, 64 * 1024);
    assert_eq!(decide(&mut scene), (None, 0));
    for channel in [channels[0], channels[CHANNELS - 1]] {
        scene.stage(channel, 10);
    }
    assert_eq!(decide(&mut scene).1, 2);
}

#[test]
fn a_decision_looks_at_no_more_channels_than_a_packet_holds() {
    for packet_bytes in [PACKET_BYTES_MIN, 64 * 1024] {
        let (mut scene, channels) = many(Policy::Chunked, packet_bytes);
        for channel in channels {
            scene.stage(channel, 10);
        }
        let (verdict, looked) = decide(&mut scene);
        assert_eq!(verdict, Some(Verdict::Leave(FlushReason::Full)));
        let held = packet_bytes / (RECORD_BYTES + 11);
        assert!(looked <= held + 1, "{looked} for a packet of {held}");
        // Once to decide, once to fill the packet, and once to see that nothing is left behind.
        let before = scene.rings.views;
        scene.transmit();
        let looked = scene.rings.views - before;
        assert!(looked <= 4 * CHANNELS, "{looked} looks");
        scene.check(false);
        assert!(scene.rings.is_empty());
    }
}

#[test]
fn a_decision_of_one_message_a_packet_looks_at_one_channel() {
    let (mut scene, channels) = many(Policy::Unbuffered, 64 * 1024);
    for channel in channels {
        scene.stage(channel, 10);
    }
    assert_eq!(decide(&mut scene), (Some(Verdict::Leave(FlushReason::Full)), 1));
}

#[test]
fn an_urgent_message_behind_a_full_packet_is_the_reason() {
    for (lane, urgent_first) in [(Lane::Bulk, true), (Lane::Bulk, false), (Lane::Express, false)] {
        let mut scene = Scene::new(Policy::Chunked, 4096);
        let (large, small) = (scene.open(Lane::Bulk), scene.open(lane));
        scene.transmit();
        for _ in 0..100 {
            scene.stage(large, 100);
        }
        // It may be asked for before the notice of the message comes.
        if urgent_first {
            scene.outbox.urgent(small, 1, scene.now);
        }
        scene.stage(small, 10);
        scene.outbox.urgent(small, 1, scene.now);
        assert_eq!(decide(&mut scene).0, Some(Verdict::Leave(FlushReason::Urgent)));
        scene.transmit();
        scene.stage(large, 100);
        scene.stage(large, 8000);
        let verdict = decide(&mut scene).0;
        assert!(verdict != Some(Verdict::Leave(FlushReason::Urgent)), "it has left: {verdict:?}");
    }
}

#[test]
fn a_channel_waits_for_credit_until_it_comes_or_the_receiver_is_gone() {
    for gone in [false, true] {
        let mut scene = Scene::new(Policy::Chunked, 4096);
        let channels = [scene.open(Lane::Bulk), scene.open(Lane::Express)];
        for channel in channels {
            (0..40).for_each(|_| scene.stage(channel, 1000));
        }
        scene.transmit();
        for channel in channels {
            assert!(scene.outbox.waits_for_credit() && !scene.outbox.has_ended());
            if gone {
                scene.outbox.terminate(channel, scene.now);
            } else {
                scene.grant(channel, 1 << 20);
                scene.end(channel);
            }
            scene.transmit();
        }
        assert!(!scene.outbox.waits_for_credit() && scene.outbox.has_ended());
        let late = WINDOW_BYTES_INITIAL + (1 << 21);
        channels.iter().for_each(|channel| scene.outbox.handle_credit(*channel, late));
        assert!(scene.outbox.is_idle(), "nothing follows an end");
        channels.iter().for_each(|channel| scene.outbox.remove(*channel));
        assert!(scene.outbox.counts_agree() && scene.outbox.channels() == 0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// After any call the counts are those of a walk.
    #[test]
    fn counts_are_those_of_a_walk(
        unbuffered in any::<bool>(),
        steps in prop::collection::vec((0u8..10, 0usize..8, sizes()), 1..120),
    ) {
        let policy = if unbuffered { Policy::Unbuffered } else { Policy::Chunked };
        let mut scene = Scene::new(policy, 4096);
        let mut channels = Vec::new();
        for (step, channel, size) in steps {
            if channels.len() <= channel {
                channels.push(scene.open(if size % 2 == 0 { Lane::Bulk } else { Lane::Express }));
            }
            let channel = channels[channel % channels.len()];
            let now = scene.now;
            let until = scene.outbox.sent_messages(channel) + size as u64 % 4;
            match step {
                0..=2 => scene.stage(channel, size),
                3 => scene.outbox.urgent(channel, until, now),
                4 => scene.end(channel),
                5 => {
                    scene.rings.discard(channel);
                    scene.outbox.terminate(channel, now);
                }
                6 => scene.grant(channel, size as u64),
                7 => scene.grant_opens(1),
                8 if scene.got.get(&channel).is_some_and(|got| got.end.is_some()) => {
                    scene.outbox.remove(channel);
                }
                _ => scene.transmit(),
            }
            prop_assert!(scene.outbox.counts_agree());
        }
    }
}
