//! The number of bytes in an increment.
//!
//! Source of the formula: the cascade of Bao, Ding, Gao and Archambault, "Delta Send-Recv",
//! section 2, written as a cost model. `m` bytes go through `p` nodes in increments of `d` bytes. A
//! byte costs `c` seconds of compute and `beta` seconds of link, an increment `h` seconds of overhead:
//!
//! ```text
//! T(d) = m max(c, beta) + (p-1)(c+beta) d + (m/d) h
//! ```
//!
//! The second term is the time to fill the pipeline, the third the overhead of the increments. The
//! sum is least at `d* = sqrt(m h / ((p-1)(c+beta)))`.

/// The smallest increment that [`Increment::Auto`] picks: one page.
///
/// Below it the overhead of an increment (a task switch and a share of a system call) is no
/// longer small beside the kernel's copy of its bytes, whatever the compute costs.
pub const AUTO_INCREMENT_BYTES_MIN: usize = 4 * 1024;

/// The largest increment that [`Increment::Auto`] picks: 1 MiB.
///
/// From 256 KiB on a link over loopback TCP is at its fastest. An increment larger than the
/// second-level cache (1 to 2 MiB) has left the cache before the kernel reads it.
pub const AUTO_INCREMENT_BYTES_MAX: usize = 1024 * 1024;

const _: () = assert!(AUTO_INCREMENT_BYTES_MIN < AUTO_INCREMENT_BYTES_MAX);

/// Costs of an increment, of compute a byte and of link a byte, measured or declared.
///
/// The default is a pair of nodes on one machine: 4 us an increment, 2 us a side, 2 ns of compute and
/// 0.2 ns of link a byte. A cost that is ten times off changes the increment by a factor of three and the
/// run time by some percent, since the optimum is flat.
///
/// ```
/// use chunkcomm_group::{Costs, Increment};
///
/// let costs = Costs::default().with_nodes(5).with_compute_measured(65_536, 300_000.0);
/// let bytes = Increment::Auto(costs).bytes_for(4 << 20, 4);
/// assert!((4_096..=1 << 20).contains(&bytes));
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Costs {
    /// Number of nodes that the bytes pass, the first and the last included; at least 2.
    pub nodes: usize,
    /// Overhead of an increment in nanoseconds, whatever its size.
    pub overhead_ns: f64,
    /// Compute of each node for a byte, in nanoseconds.
    pub compute_ns_per_byte: f64,
    /// Time of the link for a byte, in nanoseconds.
    pub link_ns_per_byte: f64,
}

impl Default for Costs {
    fn default() -> Self {
        Self { nodes: 2, overhead_ns: 4_000.0, compute_ns_per_byte: 2.0, link_ns_per_byte: 0.2 }
    }
}

impl Costs {
    /// Returns the same costs for a chain of `nodes` nodes; below 2 counts as 2.
    #[must_use]
    pub fn with_nodes(self, nodes: usize) -> Self {
        Self { nodes: nodes.max(2), ..self }
    }

    /// Returns the same costs with a compute of `elapsed_ns` nanoseconds for `bytes` bytes.
    ///
    /// A measurement of no bytes changes nothing.
    #[must_use]
    pub fn with_compute_measured(self, bytes: usize, elapsed_ns: f64) -> Self {
        if bytes == 0 {
            return self;
        }
        Self { compute_ns_per_byte: elapsed_ns / bytes as f64, ..self }
    }

    /// Returns the same costs with a link that moves a byte in `ns` nanoseconds.
    #[must_use]
    pub fn with_link_ns_per_byte(self, ns: f64) -> Self {
        Self { link_ns_per_byte: ns, ..self }
    }

    /// Returns the same costs with an overhead of `ns` nanoseconds an increment.
    #[must_use]
    pub fn with_overhead_ns(self, ns: f64) -> Self {
        Self { overhead_ns: ns, ..self }
    }

    /// Returns `d*` of the module's formula for a buffer of `len_bytes`, in bytes, not yet bounded.
    fn best_bytes(&self, len_bytes: usize) -> f64 {
        let hops = self.nodes.max(2) as f64 - 1.0;
        let fill_ns = hops * (self.compute_ns_per_byte + self.link_ns_per_byte);
        (len_bytes as f64 * self.overhead_ns / fill_ns).sqrt()
    }
}

/// Number of bytes that are committed before they leave.
///
/// A larger increment costs latency at each hop, a smaller one overhead a byte. Bytes committed
/// while the link is busy leave as one piece, whatever the increment.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Increment {
    /// This many bytes, rounded up to whole elements; nothing leaves before that many are
    /// committed. With the buffer's own size nothing leaves before all is computed.
    Fixed(usize),
    /// Computed from the costs, between [`AUTO_INCREMENT_BYTES_MIN`] and
    /// [`AUTO_INCREMENT_BYTES_MAX`]. These are the first costs; those of the link and of the compute
    /// are then measured in the transfer itself. Less than an increment leaves, too, when the link is
    /// idle and the rest is slow to come.
    Auto(Costs),
}

impl Default for Increment {
    fn default() -> Self {
        Self::Auto(Costs::default())
    }
}

impl Increment {
    /// Returns the increment in bytes for a buffer of `len_bytes` with elements of `element_bytes`:
    /// a multiple of `element_bytes`, at least one element.
    #[must_use]
    pub fn bytes_for(&self, len_bytes: usize, element_bytes: usize) -> usize {
        let wanted = match self {
            Self::Fixed(bytes) => *bytes,
            // The cast saturates: an infinite optimum is bounded like any other, and NaN becomes
            // the smallest.
            Self::Auto(costs) => (costs.best_bytes(len_bytes) as usize)
                .clamp(AUTO_INCREMENT_BYTES_MIN, AUTO_INCREMENT_BYTES_MAX),
        };
        let element_bytes = element_bytes.max(1);
        wanted.max(1).div_ceil(element_bytes).saturating_mul(element_bytes)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn total_ns(costs: &Costs, len_bytes: f64, increment: f64) -> f64 {
        let (c, beta) = (costs.compute_ns_per_byte, costs.link_ns_per_byte);
        len_bytes * c.max(beta)
            + (costs.nodes as f64 - 1.0) * (c + beta) * increment
            + len_bytes / increment * costs.overhead_ns
    }

    #[test]
    fn auto_is_where_the_modelled_time_is_least() {
        let costs = Costs { nodes: 4, overhead_ns: 8_000.0, ..Costs::default() };
        let len = 16 << 20;
        let best = Increment::Auto(costs).bytes_for(len, 4);
        assert!((AUTO_INCREMENT_BYTES_MIN..AUTO_INCREMENT_BYTES_MAX).contains(&best));
        let at = |bytes: usize| total_ns(&costs, len as f64, bytes as f64);
        assert!(at(best) < at(best / 2));
        assert!(at(best) < at(best * 2));
    }

    #[test]
    fn a_known_value_of_the_formula() {
        // sqrt(4 MiB * 10 us / (1 * (5 + 0.25) ns)) = 89.4 KB
        let costs = Costs {
            nodes: 2,
            overhead_ns: 10_000.0,
            compute_ns_per_byte: 5.0,
            link_ns_per_byte: 0.25,
        };
        assert_eq!(Increment::Auto(costs).bytes_for(4 << 20, 4), 89_384);
    }

    #[test]
    fn odd_costs_stay_within_the_limits() {
        for (h, c) in [(0.0, 0.0), (f64::NAN, 1.0), (1.0, f64::INFINITY), (1.0, 0.0), (-1.0, 1.0)] {
            let costs = Costs {
                overhead_ns: h,
                compute_ns_per_byte: c,
                link_ns_per_byte: 0.0,
                ..Costs::default()
            };
            let bytes = Increment::Auto(costs).bytes_for(1 << 30, 1);
            assert!((AUTO_INCREMENT_BYTES_MIN..=AUTO_INCREMENT_BYTES_MAX).contains(&bytes));
        }
    }

    proptest! {
        #[test]
        fn is_whole_elements_and_not_less_than_asked(
            fixed in 0_usize..1 << 24, len in 0_usize..1 << 28, element in 1_usize..100,
        ) {
            let bytes = Increment::Fixed(fixed).bytes_for(len, element);
            prop_assert!(bytes >= fixed.max(1) && bytes < fixed + element.max(2));
            prop_assert_eq!(bytes % element, 0);
            prop_assert_eq!(Increment::default().bytes_for(len, element) % element, 0);
        }
    }
}
