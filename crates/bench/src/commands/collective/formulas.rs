//! Times of collective calls in closed form, from the numbers of a virtual world.
//!
//! With `p` ranks, `m` bytes, `alpha` seconds a message, `beta` seconds a byte, `l` the latency:
//!
//! ```text
//!     chain       (p - 2 + k) (alpha + beta m / k) + (p - 1) l      k segments, the best number
//!     binomial    ceil(log2 p) (alpha + beta m + l)
//!     ring        all-reduce 2 (p - 1) (alpha + beta m / p + l), all-gather (p - 1) (alpha + beta m + l)
//!     doubling    all-reduce ceil(log2 p) (alpha + beta m + l)
//!     chains      twice the chain with k segments in common: (2 p - 3 + k) (..) + 2 (p - 1) l
//! ```
//!
//! Sums cost no virtual time.

use chunkcomm_group::Algorithm;
use chunkcomm_simulation::WorldSpec;

use crate::harness::calls::{CallKind, Operation};

/// Most segments that are tried, as many as 16 MiB have pieces of 256 bytes.
const SEGMENTS_MAX: u64 = 1 << 16;

/// Costs of a message between two hosts of a world, in seconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Costs {
    pub(crate) alpha: f64,
    pub(crate) beta: f64,
    pub(crate) latency: f64,
    /// Part of `alpha` that the receiver has.
    pub(crate) receive: f64,
}

impl Costs {
    /// Returns the costs between the first hosts of a world, on its first segment. `alpha` is the time
    /// of the hosts for a packet; `beta` that of the wire, or of a host where it takes longer for a
    /// byte.
    pub(crate) fn of(world: &WorldSpec) -> Option<Self> {
        let (host, wire) = (&world.hosts.first()?.spec, &world.segments.first()?.spec);
        let wire_s = 1.0 / wire.bytes_per_second as f64;
        let picos = host.send_picos_per_byte.max(host.receive_picos_per_byte);
        let alpha = host.send_cost_per_packet + host.receive_cost_per_packet + wire.cost_per_packet;
        Some(Self {
            alpha: alpha.as_secs_f64(),
            beta: wire_s.max(picos as f64 * 1e-12),
            latency: wire.latency.as_secs_f64(),
            receive: host.receive_cost_per_packet.as_secs_f64(),
        })
    }

    /// Returns the seconds of a call, where the algorithm has a closed form.
    pub(crate) fn seconds(&self, kind: CallKind, algorithm: Algorithm) -> Option<f64> {
        let (p, m) = (kind.ranks as f64, kind.bytes as f64);
        let once = self.alpha + self.beta * m + self.latency;
        let rounds = p.log2().ceil();
        match (kind.operation, algorithm) {
            _ if kind.ranks < 2 => None,
            (Operation::Broadcast | Operation::Reduce | Operation::Scan, Algorithm::Chain) => {
                Some(self.piped(p - 2.0, m) + (p - 1.0) * self.latency)
            }
            (Operation::AllReduce, Algorithm::Chains) => {
                Some(self.piped(2.0 * p - 3.0, m) + 2.0 * (p - 1.0) * self.latency)
            }
            (Operation::Broadcast | Operation::Reduce, Algorithm::Binomial)
            | (Operation::AllReduce | Operation::Scan, Algorithm::Doubling) => Some(rounds * once),
            (Operation::AllReduce, Algorithm::Ring) => {
                let block = self.alpha + self.beta * m / p + self.latency;
                Some(2.0 * (p - 1.0) * block)
            }
            (Operation::AllGather, Algorithm::Ring) => Some((p - 1.0) * once),
            _ => None,
        }
    }

    /// Returns the time of `steps + k` steps of `m / k` bytes, with the best number `k`.
    fn piped(&self, steps: f64, m: f64) -> f64 {
        let time = |k: f64| (steps + k) * (self.alpha + self.beta * m / k);
        let best = (steps * self.beta * m / self.alpha.max(1e-12)).sqrt();
        let best = best.clamp(1.0, (SEGMENTS_MAX as f64).min((m / 8.0).max(1.0)));
        time(best.floor()).min(time(best.ceil()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COSTS: Costs = Costs { alpha: 1e-5, beta: 1e-8, latency: 1e-4, receive: 0.0 };

    fn seconds(operation: Operation, algorithm: Algorithm, bytes: usize, ranks: usize) -> f64 {
        let kind = CallKind { operation, bytes, ranks };
        COSTS.seconds(kind, algorithm).expect("there is a form")
    }

    #[test]
    fn a_chain_takes_little_more_than_its_bytes_and_a_tree_its_depth() {
        let bytes = 16 << 20;
        let once = bytes as f64 * COSTS.beta;
        let chain = seconds(Operation::Broadcast, Algorithm::Chain, bytes, 16);
        // m beta + 2 sqrt(14 alpha m beta) + 14 alpha + 15 l
        let terms = once + 2.0 * (14.0 * COSTS.alpha * once).sqrt() + 14.0 * COSTS.alpha + 15e-4;
        assert!((chain / terms - 1.0).abs() < 1e-4, "{chain} {terms}");
        let tree = seconds(Operation::Broadcast, Algorithm::Binomial, bytes, 16);
        assert!((tree / (4.0 * (once + 1.1e-4)) - 1.0).abs() < 1e-9);
        assert!(seconds(Operation::Broadcast, Algorithm::Chain, bytes, 2) > once);
        // A single element is a single segment.
        let small = seconds(Operation::Broadcast, Algorithm::Chain, 8, 4);
        assert!((small - (3.0 * (COSTS.alpha + 8e-8) + 3e-4)).abs() < 1e-12);
    }
}
