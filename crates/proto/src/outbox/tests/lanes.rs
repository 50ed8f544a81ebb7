//! Order of lanes, and the shares of channels within a lane.

use super::*;
use crate::tuning::constants::{BULK_FIRST_EVERY, SYSTEM_AHEAD_BYTES};

/// Returns the channels of the runs of each packet, in order, while both lanes have more than
/// enough.
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
            let channels = next_packet(&mut scene);
            channels.into_iter().map(|channel| u32::from(channel == express)).collect()
        })
        .collect()
}

/// Returns the channels of the runs of the next packet, in order.
fn next_packet(scene: &mut Scene) -> Vec<u32> {
    let (mut head, bytes_max) = (vec![0; HEADER_BYTES], scene.packet_bytes);
    let (rings, session) = (&mut scene.rings, &mut scene.session);
    scene.outbox.fill(rings, session, &mut head, bytes_max, scene.now);
    // As the driver does with messages that a packet left behind.
    for channel in std::mem::take(&mut scene.rings.restaged) {
        scene.outbox.staged(channel, scene.now);
    }
    let body_bytes = (head.len() - HEADER_BYTES) as u32;
    head[..HEADER_BYTES].copy_from_slice(&Header { body_bytes, ..Header::default() }.encode());
    let (mut channels, mut at, mut decoder) = (Vec::new(), 0, Decoder::new(bytes_max));
    while let Some(item) = decoder.next(&head, &mut at).unwrap() {
        if let Item::Run { channel, .. } = item {
            channels.push(channel);
        }
    }
    channels
}

/// Opens `count` express channels that have more than enough.
fn saturate(scene: &mut Scene, count: usize) -> Vec<u32> {
    scene.grant_opens(count as u64 + 1);
    let channels: Vec<u32> = (0..count).map(|_| scene.open(Lane::Express)).collect();
    for channel in &channels {
        scene.outbox.handle_credit(*channel, 1 << 30);
        (0..4000).for_each(|_| scene.stage(*channel, 99));
    }
    channels
}

#[test]
fn a_word_of_the_system_is_first_in_the_next_packet() {
    let mut scene = Scene::new(Policy::Chunked, 16 * 1024);
    let users = saturate(&mut scene, 8);
    next_packet(&mut scene);
    // Opened last, and used before: the others would have to catch up.
    let system = scene.open_as(Lane::Express, true);
    scene.outbox.handle_credit(system, 1 << 30);
    for words in [1, 200, 1, 1, 100, 1] {
        (0..words).for_each(|_| scene.stage(system, 99));
        let mut left = words * 100;
        while left > 0 {
            let channels = next_packet(&mut scene);
            assert_eq!(channels[0], system, "{channels:?}");
            left = scene.staged_bytes(system);
            assert!(left == 0 || channels.iter().all(|it| *it == system), "{channels:?}");
        }
        let channels = next_packet(&mut scene);
        assert!(channels.iter().all(|it| users.contains(it)), "{channels:?}");
    }
}

#[test]
fn the_open_of_a_system_channel_is_before_those_that_wait_for_credit() {
    let mut scene = Scene::new(Policy::Chunked, 16 * 1024);
    let waiting = OPEN_CREDIT / WINDOW_BYTES_INITIAL;
    let users: Vec<u32> = (0..waiting + 2).map(|_| scene.open(Lane::Express)).collect();
    let system = scene.open_as(Lane::Express, true);
    for channel in users.iter().chain([&system]) {
        scene.stage(*channel, 99);
    }
    assert!(!next_packet(&mut scene).contains(&system), "there is no credit");
    scene.open_total += WINDOW_BYTES_INITIAL;
    scene.outbox.handle_open_credit(WINDOW_BYTES_INITIAL, 0);
    assert_eq!(next_packet(&mut scene), [system]);
}

#[test]
fn a_channel_of_the_system_that_never_ends_leaves_the_others_their_part() {
    for packet_bytes in [4 * 1024, 64 * 1024] {
        let mut scene = Scene::new(Policy::Chunked, packet_bytes);
        let users = saturate(&mut scene, 3);
        let system = scene.open_as(Lane::Express, true);
        scene.outbox.handle_credit(system, 1 << 30);
        let mut packets = 0;
        while scene.staged_bytes(users[0]) > packet_bytes {
            packets += 1;
            assert!(packets < 2000, "the others get nothing");
            while scene.staged_bytes(system) < packet_bytes {
                scene.stage(system, 1000);
            }
            next_packet(&mut scene);
            let bound = SYSTEM_AHEAD_BYTES + shares_differ_by_at_most(packet_bytes);
            let [got, least] = [system, users[0]].map(|it| scene.outbox.state(it).sent_bytes);
            assert!(got <= least + bound, "{got} against {least}");
        }
        assert!(scene.outbox.state(system).sent_bytes > 300_000, "it has its part, too");
    }
}

#[test]
fn express_goes_first_and_bulk_keeps_one_packet_in_sixteen() {
    let packets = lanes_of_packets(64);
    let bulk_first = packets.iter().filter(|channels| channels[0] == 0).count();
    assert_eq!(bulk_first as u64, 64 / BULK_FIRST_EVERY);
    let express = packets.iter().filter(|channels| channels.contains(&1)).count();
    assert!(express >= 60, "{packets:?}");
}

/// Returns the bytes that each channel of a lane got, after each packet. Each always has a
/// message of the next of its sizes.
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
        // As the driver does with messages that a packet left behind.
        for channel in std::mem::take(&mut scene.rings.restaged) {
            scene.outbox.staged(channel, scene.now);
        }
        scene.read(head, &filled);
        let got = |channel| scene.got.get(channel).map_or(0, |got| got.bytes);
        shares.push(channels.iter().map(got).collect());
    }
    shares
}

#[test]
fn many_channels_do_not_cut_a_packet_into_crumbs() {
    let sizes = vec![vec![16]; 40];
    for (index, got) in shares(Lane::Bulk, &sizes, 16 * 1024, 5).iter().enumerate() {
        // Each of those in a packet gets an eighth of it, not a fortieth.
        let served = got.iter().filter(|bytes| **bytes > 0).count();
        assert!(served <= 8 * (index + 1), "{served} channels in {} packets", index + 1);
    }
}

/// Returns two turns, each a share of the packet and the fragment that may end it.
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

    /// At every moment, for any messages: a channel that always has something got as much as
    /// any other, up to two turns.
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

#[test]
fn an_express_turn_of_any_size_is_talk_and_one_of_bulk_if_it_is_small() {
    for (lane, small, talks) in [
        (Lane::Express, 100, true),
        (Lane::Express, 6_000, true),
        (Lane::Bulk, 100, true),
        (Lane::Bulk, 6_000, false),
    ] {
        let mut scene = Scene::new(Policy::Chunked, PACKET_BYTES_DEFAULT);
        let (bulk, other) = (scene.open(Lane::Bulk), scene.open(lane));
        for channel in [bulk, other] {
            scene.outbox.handle_credit(channel, 1 << 30);
        }
        for _ in 0..20 {
            scene.stage(bulk, 6_000);
            next_packet(&mut scene);
            scene.stage(other, small);
            next_packet(&mut scene);
        }
        let expected = if talks { Sharing::Talks } else { Sharing::Shared };
        assert_eq!(scene.outbox.sharing(scene.now), expected, "{lane:?}, {small} bytes");
    }
}
