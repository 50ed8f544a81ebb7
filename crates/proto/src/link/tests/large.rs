//! Messages and texts that do not fit where others do.

use super::*;
use crate::limits::{MESSAGE_BYTES_DEFAULT, VALUE_BYTES_A_SECOND};

#[test]
fn large_messages_get_the_links_memory_one_after_the_other_when_they_are_wanted() {
    let mut pair = Pair::new([64 * 1024; 2], [256 * 1024; 2]);
    let now = pair.now;
    let channels: Vec<u32> = (0..4).map(|_| pair.ends[0].open(false, "name", now)).collect();
    for channel in &channels {
        pair.ends[0].stage(*channel, 290_000, now);
    }
    exchange(&mut pair);
    assert_eq!(pair.ends[1].large_held, 0, "nobody wants one");
    let wanted = &channels[1..];
    for channel in wanted {
        pair.ends[1].take(*channel, 1);
    }
    for channel in wanted {
        exchange(&mut pair);
        for other in &channels {
            let whole = !pair.ends[1].inboxes[other].waiting.is_empty();
            assert_eq!(whole, other == channel, "channel {other}");
        }
        assert_eq!(pair.ends[1].large_held, 290_000);
        pair.ends[1].take(*channel, 1);
    }
    pair.finish();
}

#[test]
fn a_large_message_may_be_wanted_before_the_one_before_it_is_reported_as_taken() {
    let mut pair = Pair::new([64 * 1024; 2], [256 * 1024; 2]);
    let now = pair.now;
    let channel = pair.ends[0].open(false, "name", now);
    for _ in 0..3 {
        pair.ends[0].stage(channel, 290_000, now);
    }
    for _ in 0..3 {
        exchange(&mut pair);
        // The next one begins to arrive within the rest of the window.
        pair.ends[1].link.demand_large(channel);
        exchange(&mut pair);
        assert_eq!(pair.ends[1].inboxes[&channel].waiting.len(), 1);
        pair.ends[1].link.demand_large(channel);
        pair.ends[1].link.demand_large(channel);
        pair.ends[1].take(channel, 1);
    }
    pair.finish();
}

#[test]
fn a_large_message_that_is_cut_short_keeps_no_memory_from_others() {
    // The message is not wanted; it has its turn; it waits for its turn.
    for wanted in 0..3 {
        let mut pair = Pair::new([64 * 1024; 2], [256 * 1024; 2]);
        let now = pair.now;
        let [first, cut, last] = [0; 3].map(|_| {
            let channel = pair.ends[0].open(false, "name", now);
            pair.ends[0].stage(channel, 290_000, now);
            channel
        });
        exchange(&mut pair);
        let both = [first, cut];
        let wanting = &both[2 - wanted..];
        for channel in wanting {
            pair.ends[1].take(*channel, 1);
        }
        // The sender hears that nothing more is wanted before it hears of the grant.
        pair.ends[1].stop(cut);
        pair.ends[1].stop(cut);
        exchange(&mut pair);
        assert!(pair.ends[0].sent[&cut].terminated && pair.ends[1].inboxes[&cut].ended);
        pair.ends[1].take(first, 1);
        exchange(&mut pair);
        pair.ends[1].take(first, 1);
        pair.ends[1].take(last, 1);
        exchange(&mut pair);
        assert_eq!(pair.ends[1].inboxes[&last].waiting.len(), 1, "wanted: {wanting:?}");
        assert_eq!(pair.ends[1].inboxes[&cut].taken, 0);
        pair.finish();
    }
}

#[test]
fn long_texts_and_grants_of_many_channels_leave_in_packets_of_any_size() {
    let mut pair = Pair::new([1024; 2], [8 << 20; 2]);
    let now = pair.now;
    for number in 0..60 {
        let name = if number % 2 == 0 { "refuse me".to_owned() } else { "n".repeat(255) };
        let channel = pair.ends[0].open(number % 3 == 0, &name, now);
        for _ in 0..20 {
            pair.ends[0].stage(channel, 500, now);
        }
    }
    pair.finish();
}

/// Returns a pair whose second end takes messages that take a second longer to decode than the
/// default ones, and the size of such a message.
fn pair_of_long() -> (Pair, usize) {
    let bytes = MESSAGE_BYTES_DEFAULT + VALUE_BYTES_A_SECOND;
    let mut pair = Pair::new([64 * 1024; 2], [8 << 20; 2]);
    let takes = LinkConfig { message_bytes_max: bytes, ..config(64 * 1024, 8 << 20, 8 << 20) };
    pair.ends[1] = End::new(&takes);
    (pair, bytes as usize)
}

/// Returns the silences, in seconds, after which each end gives the other up.
fn dead_after(pair: &mut Pair) -> [u64; 2] {
    let now = pair.now;
    [0, 1].map(|side: usize| {
        pair.ends[side].link.poll_alive(now);
        pair.ends[side].link.silence().dead.as_secs()
    })
}

#[test]
fn a_peer_may_be_silent_for_longer_only_while_it_has_a_long_message_to_take() {
    let (mut pair, bytes) = pair_of_long();
    let now = pair.now;
    // The end that takes long messages waits for longer, and nothing that it says makes the other
    // one do so.
    assert_eq!(dead_after(&mut pair), [10, 11]);
    let channel = pair.ends[0].open(false, "name", now);
    pair.ends[0].stage(channel, bytes, now);
    pair.ends[0].stage(channel, 100, now);
    exchange(&mut pair);
    pair.ends[1].take(channel, 1);
    (0..10).for_each(|_| exchange(&mut pair));
    assert_eq!(pair.ends[1].large_held, bytes as u64);
    assert_eq!(dead_after(&mut pair), [11, 11], "it has arrived and is not taken");
    pair.cut();
    exchange(&mut pair);
    assert_eq!(dead_after(&mut pair), [11, 11], "totals are said anew");
    assert_eq!(pair.ends[0].link.sent_messages(channel), 1, "nothing follows it");
    pair.ends[1].take(channel, 1);
    exchange(&mut pair);
    assert_eq!(dead_after(&mut pair), [10, 11]);
    assert_eq!(pair.ends[0].link.sent_messages(channel), 2);
    pair.finish();
}

#[test]
fn the_end_of_a_channel_does_not_hide_that_its_long_message_was_taken() {
    for way in 0..3 {
        let (mut pair, bytes) = pair_of_long();
        let now = pair.now;
        let channel = pair.ends[0].open(false, "name", now);
        pair.ends[0].stage(channel, bytes, now);
        pair.ends[0].end(channel, now);
        exchange(&mut pair);
        pair.ends[1].take(channel, 1);
        (0..10).for_each(|_| exchange(&mut pair));
        pair.now = now.after(Duration::from_millis(ACK_DELAY_MS));
        exchange(&mut pair);
        assert!(pair.ends[0].sent[&channel].end_acknowledged);
        assert_eq!(dead_after(&mut pair), [11, 11], "it is not taken yet");
        match way {
            0 => pair.ends[1].take(channel, 1),
            1 => pair.ends[1].drop_receiver(channel),
            _ => {
                pair.ends[1].take(channel, 1);
                pair.ends[1].transmit(100, pair.now);
                pair.cut();
            }
        }
        exchange(&mut pair);
        assert_eq!(dead_after(&mut pair), [10, 11], "way {way}");
        pair.finish();
    }
}
