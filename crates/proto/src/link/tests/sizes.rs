//! Sizes of the packets that leave.

use super::*;

const KIB: usize = 1024;

/// Opens a channel with endless credit, on a link that tunes its packets and keeps all.
fn tuned() -> (Pair, u32) {
    let mut pair = Pair::new([64 * KIB; 2], [1 << 20; 2]);
    let sizes = LinkConfig {
        packet_bytes_small: 16 * KIB,
        packet_bytes_tuned: 256 * KIB,
        resend_bytes_max: 1 << 30,
        ..config(64 * KIB, 1 << 20, 1 << 20)
    };
    pair.ends[0] = End::new(&sizes);
    let now = pair.now;
    let channel = pair.ends[0].open(true, "tuned", now);
    exchange(&mut pair);
    pair.ends[0].link.outbox.handle_credit(channel, 1 << 30);
    (pair, channel)
}

/// Stages `messages` at once and returns the sizes of the packets in which they leave, with
/// headers.
fn burst(pair: &mut Pair, channel: u32, messages: usize, size: usize) -> Vec<usize> {
    let now = pair.now;
    for _ in 0..messages {
        pair.ends[0].stage(channel, size, now);
    }
    let mut sizes = Vec::new();
    loop {
        let before = pair.ends[0].wire.len();
        if pair.ends[0].transmit(1, now) == 0 {
            break;
        }
        sizes.push(pair.ends[0].wire.len() - before);
    }
    sizes
}

#[test]
fn packets_are_small_in_bursts_and_full_behind_a_row() {
    let (mut pair, channel) = tuned();
    // Four full packets and a rest, again and again.
    for _ in 0..40 {
        let sizes = burst(&mut pair, channel, 66, 1000);
        assert!(sizes.len() >= 5 && sizes.iter().all(|size| *size <= 16 * KIB), "{sizes:?}");
    }
    // Behind each packet of a row more waits.
    let sizes = burst(&mut pair, channel, 600, 1000);
    assert!(sizes[..17].iter().all(|size| *size <= 16 * KIB), "{sizes:?}");
    assert!(sizes[17..].iter().any(|size| *size > 60 * KIB), "{sizes:?}");
}

#[test]
fn messages_that_fill_a_packet_alone_do_not_make_it_larger() {
    let (mut pair, channel) = tuned();
    for _ in 0..40 {
        assert!(burst(&mut pair, channel, 1, 12 * KIB).len() <= 2);
    }
    let sizes = burst(&mut pair, channel, 66, 1000);
    assert!(sizes.iter().all(|size| *size <= 16 * KIB), "{sizes:?}");
}
