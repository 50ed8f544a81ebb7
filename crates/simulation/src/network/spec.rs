//! The properties of links, media, switches and bridges.

use std::time::Duration;

/// The properties of a link, a shared medium or a switch.
///
/// A packet holds the bytes of one write. On an idle way its last byte arrives after
///
/// ```text
/// cost_per_packet + bytes / bytes_per_second + latency
/// ```
///
/// and each packet of a queue starts when the bytes of the one before it are on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkSpec {
    /// Time from one end to the other. Opening a connection takes two latencies.
    pub latency: Duration,
    /// Most that is added to the latency of a frame, by the seed. Frames of a connection do not
    /// overtake each other.
    pub jitter: Duration,
    /// Payload in bytes a second; `u64::MAX` for a way without limit.
    pub bytes_per_second: u64,
    /// Time that the sender spends on a packet before its first byte leaves (the lambda of a cost
    /// model). A host spends it packet by packet, without keeping others from a shared medium.
    pub cost_per_packet: Duration,
    /// Largest frame in bytes. Packets are sent in frames, and connections and hosts take turns by
    /// frames. A larger frame is cheaper to simulate.
    pub frame_bytes: usize,
    /// Bytes that one direction of a connection takes from its writer before they are on the wire,
    /// as the sending buffer of a socket. A writer that found it full can go on when a third is
    /// free.
    pub queue_bytes: usize,
    /// Bytes that one direction of a connection may have on the way and unread at its receiver, as
    /// the receiving buffer of a socket.
    pub window_bytes: usize,
    /// Shared medium: time of a slot in which hosts contend for it, 51.2 us with Ethernet of 10
    /// Mbit/s. A frame then waits for the mean time that the hosts lose to collisions before it. 0
    /// by default: hosts take turns and lose nothing.
    pub slot_time: Duration,
    /// Switch: most payload in bytes a second over all its ports, as of a backplane or a memory
    /// bus. `u64::MAX`, no limit, by default.
    pub total_bytes_per_second: u64,
}

/// The properties of a bridge or router between two segments. Each direction has its own.
///
/// A frame is taken in as a whole, and then put on the other segment. On an idle way it takes
/// bytes / `bytes_per_second` + `delay` more than the two segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BridgeSpec {
    /// Time from the last byte of a frame until it can leave, 50 us by default.
    pub delay: Duration,
    /// Bytes a second that are taken in, one frame after another; `u64::MAX`, no limit, by default.
    pub bytes_per_second: u64,
    /// Bytes of frames in a direction that left their hosts and have not left the bridge, 64 KiB by
    /// default. A frame that finds no room waits at its host. No frame is larger than this.
    pub queue_bytes: usize,
}

impl BridgeSpec {
    /// Panics on a spec that nothing could pass.
    pub(super) fn check(&self) {
        assert!(self.bytes_per_second > 0, "a bridge carries at least one byte a second");
        assert!(self.queue_bytes > 0, "the queue of a bridge holds at least a byte");
    }
}

impl Default for BridgeSpec {
    /// A bridge as fast as its segments.
    fn default() -> BridgeSpec {
        BridgeSpec {
            delay: Duration::from_micros(50),
            bytes_per_second: u64::MAX,
            queue_bytes: 64 * 1024,
        }
    }
}

/// Payload of a full frame of TCP over Ethernet.
const ETHERNET_PAYLOAD_BYTES: u64 = 1460;

/// Bytes of such a frame on the wire: with the headers of IP and TCP, the frame's own header,
/// checksum, preamble and gap.
const ETHERNET_FRAME_BYTES: u64 = 1538;

/// Returns the payload a second of an Ethernet with this bit rate.
const fn ethernet(bits_per_second: u64) -> u64 {
    bits_per_second / 8 * ETHERNET_PAYLOAD_BYTES / ETHERNET_FRAME_BYTES
}

impl LinkSpec {
    /// Ethernet of 10 Mbit/s with workstations of the early nineties, as a shared
    /// medium: 1.19 MB/s, 0.5 ms of protocol software a packet, 0.1 ms latency.
    pub const ETHERNET_10M: LinkSpec = LinkSpec {
        latency: Duration::from_micros(100),
        jitter: Duration::ZERO,
        bytes_per_second: ethernet(10_000_000),
        cost_per_packet: Duration::from_micros(500),
        frame_bytes: ETHERNET_PAYLOAD_BYTES as usize,
        queue_bytes: 64 * 1024,
        window_bytes: 256 * 1024,
        slot_time: Duration::ZERO,
        total_bytes_per_second: u64::MAX,
    };

    /// Switched Ethernet of 100 Mbit/s: 11.9 MB/s, 60 us a packet, 60 us latency.
    pub const ETHERNET_100M: LinkSpec = LinkSpec {
        latency: Duration::from_micros(60),
        bytes_per_second: ethernet(100_000_000),
        cost_per_packet: Duration::from_micros(60),
        queue_bytes: 128 * 1024,
        ..LinkSpec::ETHERNET_10M
    };

    /// Switched Ethernet of 1 Gbit/s: 119 MB/s, 5 us a packet, 30 us latency.
    pub const ETHERNET_1G: LinkSpec = LinkSpec {
        latency: Duration::from_micros(30),
        bytes_per_second: ethernet(1_000_000_000),
        cost_per_packet: Duration::from_micros(5),
        queue_bytes: 256 * 1024,
        window_bytes: 1024 * 1024,
        ..LinkSpec::ETHERNET_10M
    };

    /// Panics on a spec that nothing could pass.
    pub(super) fn check(&self) {
        let rates = [self.bytes_per_second, self.total_bytes_per_second];
        assert!(!rates.contains(&0), "a link carries at least one byte a second");
        let sizes = [self.frame_bytes, self.queue_bytes, self.window_bytes];
        assert!(!sizes.contains(&0), "frames, queues and windows hold at least a byte");
        let limit = u32::MAX as usize;
        assert!(sizes.iter().all(|bytes| *bytes <= limit), "sizes are below 4 GiB");
    }

    /// Returns the nanoseconds for which `bytes` hold the wire, rounded up.
    pub(super) fn wire_nanos(&self, bytes: usize) -> u64 {
        rate_nanos(bytes, self.bytes_per_second)
    }

    /// Returns the nanoseconds for which `bytes` hold the whole switch, rounded up.
    pub(super) fn total_nanos(&self, bytes: usize) -> u64 {
        rate_nanos(bytes, self.total_bytes_per_second)
    }
}

/// Returns the nanoseconds of `bytes` at a rate, rounded up.
pub(super) fn rate_nanos(bytes: usize, bytes_per_second: u64) -> u64 {
    if bytes_per_second == u64::MAX {
        return 0;
    }
    let nanos = u128::from(bytes as u64) * 1_000_000_000;
    u64::try_from(nanos.div_ceil(u128::from(bytes_per_second))).unwrap_or(u64::MAX)
}

impl Default for LinkSpec {
    /// Ethernet of 1 Gbit/s.
    fn default() -> LinkSpec {
        LinkSpec::ETHERNET_1G
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_ethernet_frame_takes_its_time() {
        // 1538 bytes at 10 Mbit/s are 1230.4 us; the rate is rounded down.
        let nanos = LinkSpec::ETHERNET_10M.wire_nanos(1460);
        assert!((1_230_400..1_230_410).contains(&nanos), "{nanos}");
        let free = LinkSpec { bytes_per_second: u64::MAX, ..LinkSpec::default() };
        assert_eq!(free.wire_nanos(1 << 30), 0);
    }
}
