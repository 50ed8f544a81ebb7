//! The network that joins the nodes of a seed.

use super::MS;
use chunkcomm_proto::random::Random;
use chunkcomm_simulation::LinkSpec;
use std::time::Duration;

/// Slowest rate of a link; a seed's messages would take too long with less.
const BYTES_PER_SECOND_MIN: u64 = 2_000_000;

/// Smallest packet of which buffers hold many: less is in few packets.
const PACKET_BYTES_FEW: u64 = 64;

/// Kind of network that joins the nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Wiring {
    /// One link for each two nodes, with properties of its own.
    Links,
    /// One wire shared by all nodes.
    Medium,
    Switch,
}

/// Returns a random link, or a medium or switch for this many pairs, and the time to cross it. Its
/// slowness is drawn as the time to deliver everything that its buffers hold. A link that takes
/// seconds for that is as good as dead.
pub(super) fn link(random: &mut Random, pairs: u64) -> (LinkSpec, Duration) {
    let far = random.one_in(3);
    let (latency, queue_kib) = if far {
        (random.range(MS, 20 * MS), random.pick(&[64, 256, 1024]))
    } else {
        (random.range(5_000, 300_000), random.pick(&[1, 8, 64, 256]))
    };
    let jitter = if random.one_in(2) { 0 } else { random.below(MS) };
    let queue_bytes = queue_kib * 1024;
    let window_bytes = (queue_bytes * random.pick(&[1, 4, 16]) / 4).max(1024);
    let frame_bytes = match random.below(8) {
        0 | 1 => 1460,
        2 => random.range(400, 20_000),
        _ => 64 * 1024,
    };
    let held = (queue_bytes + window_bytes) * pairs;
    let (mut rate, mut cost, mut slow) = (u64::MAX, 0, 0);
    if !random.one_in(3) {
        let delivers = random.pick(&[MS, 10 * MS, 60 * MS]);
        rate = (held * 1_000_000_000 / delivers).max(pairs * BYTES_PER_SECOND_MIN);
        slow += delivers;
    }
    if random.one_in(2) {
        let delivers = random.pick(&[MS, 10 * MS, 60 * MS]);
        cost = (delivers / (held / PACKET_BYTES_FEW)).min(500_000);
        slow += delivers;
    }
    let spec = LinkSpec {
        latency: Duration::from_nanos(latency),
        jitter: Duration::from_nanos(jitter),
        bytes_per_second: rate,
        cost_per_packet: Duration::from_nanos(cost),
        frame_bytes: frame_bytes as usize,
        queue_bytes: queue_bytes as usize,
        window_bytes: window_bytes as usize,
        ..LinkSpec::default()
    };
    // A queue holds up to four windows, each of which waits for its acknowledgements. Bytes that
    // earlier connections left on the way go first.
    let crossing = (latency + jitter) * 12 + 3 * slow;
    (spec, Duration::from_nanos(crossing))
}
