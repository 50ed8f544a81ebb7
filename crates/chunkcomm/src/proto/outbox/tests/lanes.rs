//! What goes first, and what channels of a lane get.

use super::*;

/// Channels of the runs of each packet, in order, while both lanes have more
/// than enough.
fn lanes_of_packets(packets: usize) -> Vec<Vec<u32>> {
    let mut scene = Scene::new(Policy::Chunked, 4096);
    let bulk = scene.open(Lane::Bulk);
    let express = scene.open(Lane::Express);
    for channel in [bulk, express] {
        scene.outbox.handle_credit(channel, 1 << 30);
    }
    (0..packets)
        .map(|_| {
            for channel in [bulk, express] {
                for _ in 0..100 {
                    scene.stage(channel, 99);
                }
            }
            let mut head = vec![0; HEADER_BYTES];
            let (rings, session) = (&mut scene.rings, &mut scene.session);
            scene.outbox.fill(rings, session, &mut head, 4096, scene.now);
            let body_bytes = (head.len() - HEADER_BYTES) as u32;
            head[..HEADER_BYTES]
                .copy_from_slice(&Header { body_bytes, ..Header::default() }.encode());
            let mut channels = Vec::new();
            let mut at = 0;
            let mut decoder = Decoder::new(4096);
            while let Some(item) = decoder.next(&head, &mut at).unwrap() {
                if let Item::Run { channel, .. } = item {
                    channels.push(if channel == express { 1 } else { 0 });
                }
            }
            channels
        })
        .collect()
}

#[test]
fn express_goes_first_and_bulk_keeps_one_packet_in_sixteen() {
    let packets = lanes_of_packets(64);
    let bulk_first = packets.iter().filter(|channels| channels[0] == 0).count();
    assert_eq!(bulk_first as u64, 64 / BULK_FIRST_EVERY);
    let express = packets.iter().filter(|channels| channels.contains(&1)).count();
    assert!(express >= 60, "{packets:?}");
}

/// What each of several channels of a lane got that always have a message of the
/// next of their sizes, after each packet.
fn shares(lane: Lane, sizes: &[Vec<usize>], packet_bytes: usize, packets: usize) -> Vec<Vec<u64>> {
    let mut scene = Scene::new(Policy::Chunked, packet_bytes);
    scene.grant_opens(sizes.len() as u64);
    let channels: Vec<u32> = sizes.iter().map(|_| scene.open(lane)).collect();
    let mut next = vec![0; channels.len()];
    let mut shares = Vec::new();
    for _ in 0..packets {
        for ((channel, sizes), next) in channels.iter().zip(sizes).zip(&mut next) {
            let mut staged = scene.staged_bytes(*channel);
            while staged <= packet_bytes {
                let size = sizes[*next % sizes.len()];
                scene.stage(*channel, size);
                *next += 1;
                staged += size + 1;
            }
            scene.grant(*channel, 1 << 20);
        }
        let mut head = vec![0; HEADER_BYTES];
        let (rings, session) = (&mut scene.rings, &mut scene.session);
        let filled = scene.outbox.fill(rings, session, &mut head, packet_bytes, scene.now);
        // As the driver does with what a packet left behind.
        for channel in std::mem::take(&mut scene.rings.restaged) {
            scene.outbox.staged(channel, scene.now);
        }
        scene.read(head, &filled);
        let got = |channel| scene.got.get(channel).map_or(0, |got| got.bytes);
        shares.push(channels.iter().map(got).collect());
    }
    shares
}

/// Two turns, each a share of the packet and the fragment that may end it.
fn shares_differ_by_at_most(packet_bytes: usize) -> u64 {
    2 * (packet_bytes + FRAGMENT_BYTES_MAX) as u64
}

#[test]
fn channels_of_a_lane_share_by_bytes_whatever_the_size_of_their_messages() {
    const LARGE: usize = 600_000;
    for (sizes, packet_bytes) in [
        (vec![vec![12], vec![120], vec![1200]], 12 * 1024),
        (vec![vec![LARGE], vec![16]], 64 * 1024),
        (vec![vec![16], vec![LARGE]], 64 * 1024),
        (vec![vec![LARGE, 16, 16], vec![16, 16, LARGE]], 16 * 1024),
        (vec![vec![LARGE], vec![9000], vec![8000], vec![100]], 64 * 1024),
    ] {
        for lane in [Lane::Bulk, Lane::Express] {
            let shares = shares(lane, &sizes, packet_bytes, 200);
            let last = shares.last().unwrap();
            let (least, most) = (*last.iter().min().unwrap(), *last.iter().max().unwrap());
            let bound = shares_differ_by_at_most(packet_bytes);
            assert!(most - least <= bound, "{sizes:?}: {last:?}");
            assert!(most > bound || packet_bytes < 64 * 1024, "too few to tell: {last:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    /// At every moment, for any messages: who always has something got as much as
    /// any other, but for two turns.
    #[test]
    fn no_channel_is_ahead_of_another_by_more_than_two_turns(
        sizes in prop::collection::vec(prop::collection::vec(sizes(), 1..6), 2..5),
        packet_bytes in packet_bytes(),
        express in any::<bool>(),
    ) {
        let lane = if express { Lane::Express } else { Lane::Bulk };
        let bound = shares_differ_by_at_most(packet_bytes);
        for got in shares(lane, &sizes, packet_bytes, 40) {
            let (least, most) = (got.iter().min().unwrap(), got.iter().max().unwrap());
            prop_assert!(most - least <= bound, "{:?}", got);
        }
    }
}
