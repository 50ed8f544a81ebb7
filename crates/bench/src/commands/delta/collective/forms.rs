//! Times of reductions in closed form, from the numbers of a virtual world whose hosts have one core.
//!
//! With `p` nodes, `m` bytes, increments of `d` bytes, `c` seconds of computing a byte, `gamma` seconds of
//! combining a byte, `beta` seconds a byte on the wire, `l` the latency, and `h` the time in which the
//! processor of an inner node handles the messages of an increment (one more is received in a binary
//! tree):
//!
//! ```text
//!     chain      m max(c + gamma + h/d, beta) + (c + (p - 1) (beta + gamma)) d + (p - 1) l
//!     binary     m max(c + 2 gamma + h/d, 2 beta) + (c + 2 L (beta + gamma)) d + L l     L = floor(log2 p)
//!     whole      m (c + L (beta + gamma)) + L (l + h)                                    L = ceil(log2 p)
//! ```

use chunkcomm_coupled::patterns::Compute;
use chunkcomm_group::Algorithm;
use chunkcomm_simulation::WorldSpec;

use crate::commands::collective::formulas::Costs;
use crate::harness::flows::{FlowKind, FlowPattern};

/// A reduction with its costs, in seconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Forms {
    costs: Costs,
    compute: f64,
    gamma: f64,
    nodes: f64,
    bytes: f64,
    delta: f64,
}

impl Forms {
    /// Returns the forms of a reduction whose computing is a wait.
    pub(super) fn of(world: &WorldSpec, kind: &FlowKind) -> Option<Self> {
        let compute = match kind.compute {
            _ if kind.pattern != FlowPattern::Reduce => return None,
            Compute::Empty => 0.0,
            Compute::Wait(time) => time.as_secs_f64() / kind.bytes as f64,
            _ => return None,
        };
        Some(Self {
            costs: Costs::of(world)?,
            compute,
            gamma: kind.gamma_ns * 1e-9,
            nodes: kind.nodes as f64,
            bytes: kind.bytes as f64,
            delta: kind.delta_bytes.min(kind.bytes) as f64,
        })
    }

    /// Returns the seconds of whole messages.
    pub(super) fn whole(&self) -> f64 {
        let Self { costs, compute, gamma, .. } = *self;
        let levels = self.nodes.log2().ceil();
        self.bytes * (compute + levels * (costs.beta + gamma))
            + levels * (costs.latency + costs.alpha)
    }

    /// Returns the seconds in deltas, where the algorithm has a closed form.
    pub(super) fn delta(&self, algorithm: Algorithm) -> Option<f64> {
        let Self { costs, compute, gamma, delta, .. } = *self;
        let (inputs, levels) = match algorithm {
            Algorithm::Chain => (1.0, self.nodes - 1.0),
            Algorithm::Binary => (2.0, self.nodes.log2().floor()),
            _ => return None,
        };
        let handling = costs.alpha + (inputs - 1.0) * costs.receive;
        let a_byte = (compute + inputs * gamma + handling / delta).max(inputs * costs.beta);
        let first = (compute + inputs * levels * (costs.beta + gamma)) * delta;
        Some(self.bytes * a_byte + first + levels * costs.latency)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::timed;
    use super::*;
    use crate::harness::flows::FlowWay;
    use crate::lan::{LanArgs, load};

    const WORLD: &str = "lan-1g-one-core";

    fn kind(nodes: usize) -> FlowKind {
        FlowKind {
            pattern: FlowPattern::Reduce,
            nodes,
            bytes: 4 << 20,
            delta_bytes: 20 << 10,
            compute: Compute::Wait(Duration::from_nanos(5 * (4 << 20))),
            gamma_ns: 0.25,
            algorithm: "auto".to_owned(),
        }
    }

    #[test]
    fn four_mebibytes_on_16_and_64_hosts_of_one_core() {
        let world = load(WORLD).unwrap();
        for (nodes, expected_ms) in [(16, [72.3, 38.8, 167.0]), (64, [73.1, 48.8, 240.0])] {
            let forms = Forms::of(&world, &kind(nodes)).unwrap();
            let delta = |algorithm| forms.delta(algorithm).unwrap();
            let found = [delta(Algorithm::Binary), delta(Algorithm::Chain), forms.whole()];
            for (found, expected) in found.into_iter().zip(expected_ms) {
                assert!((found * 1e3 / expected - 1.0).abs() < 0.01, "{found} for {expected} ms");
            }
            assert_eq!(forms.delta(Algorithm::Binomial), None);
        }
    }

    /// The tree of whole messages is what the other ways stand beside.
    #[test]
    fn whole_messages_take_their_time() {
        let lan = LanArgs { lan: String::new(), trace: None, check: false };
        for nodes in [2, 5, 8] {
            let kind = FlowKind { bytes: 1 << 20, ..kind(nodes) };
            let form = Forms::of(&load(WORLD).unwrap(), &kind).unwrap().whole();
            let seconds = timed(&lan, WORLD, &kind, &[FlowWay::Whole]).unwrap().0[0];
            assert!((seconds / form - 1.0).abs() < 0.02, "{nodes} nodes: {seconds} s for {form}");
        }
    }
}
