//! Whole nodes on described worlds, whose hosts have costs for packets.

use super::{connect, node};
use bytes::Bytes;
use chunkcomm_simulation::WorldSpec;
use std::time::Duration;

/// Step of the programs' clock, once for the send and once for the receive.
const STEPS: Duration = Duration::from_micros(2);

#[test]
fn a_small_message_takes_the_costs_of_its_hosts_and_its_way() {
    for name in WorldSpec::presets() {
        let world = WorldSpec::preset(name).unwrap();
        let (network, hosts) = world.build(7, 3);
        let (host, link) = (world.hosts[0].spec, world.segments[0].spec);
        chunkcomm_simulation::run(network, async |simulation| {
            let left = node(&simulation, hosts[0], "left").await;
            let right = node(&simulation, hosts[2], "right").await;
            let peer = connect(&left, &right).await;
            let mut sender = left.open_bytes(&peer, "messages").await.unwrap();
            let (_, mut receiver) = right.accept_bytes("messages").await.unwrap();
            for _ in 0..10 {
                simulation.sleep(Duration::from_secs(1)).await;
                let (before, start) = (peer.stats(), simulation.now());
                let sent = sender.send(Bytes::from_static(&[7; 16]));
                let (sent, received) = tokio::join!(biased; sent, receiver.recv());
                sent.unwrap();
                assert_eq!(received.unwrap().unwrap().len(), 16);
                let (took, after) = (simulation.now() - start, peer.stats());
                assert_eq!(after.writes - before.writes, 1);
                let bytes = after.packet_bytes_sent - before.packet_bytes_sent;
                let picos = bytes * (host.send_picos_per_byte + host.receive_picos_per_byte);
                let wire = Duration::from_nanos(bytes * 1_000_000_000 / link.bytes_per_second);
                let expected = host.send_cost_per_packet
                    + host.receive_cost_per_packet
                    + Duration::from_nanos(picos / 1_000)
                    + wire
                    + link.latency;
                println!("{name}: {bytes} B take {took:?}, by the formula {expected:?}");
                assert!(took.abs_diff(expected) <= STEPS, "{took:?}, not {expected:?}");
            }
        });
    }
}
