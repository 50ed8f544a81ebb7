//! The costs of a transfer, measured while it runs, and the increment that follows from them.
//!
//! - *Production*: time a byte from the first commit of a round to the last one.
//! - *Overhead and link*: the straight line through the times that messages took from an idle link to
//!   an idle link, over their sizes, by least squares. Older messages count less, so that the line
//!   follows a link that changes.
//!
//! A figure that was not measured yet, or that no message pair of different sizes has told, stays as
//! it was declared.

use super::increment::{Costs, Increment};

/// Weight of all earlier messages when one more is measured: the last ten or so count.
const DECAY: f64 = 0.9;

/// Least overhead of an increment that is believed, in nanoseconds: below it the line through noisy
/// times may even be negative.
const OVERHEAD_NS_MIN: f64 = 500.0;

/// Least time of the link for a byte that is believed, in nanoseconds: 100 GB/s.
const LINK_NS_PER_BYTE_MIN: f64 = 0.01;

/// Longest time, in nanoseconds, for which less than an increment waits for the rest: 1 ms, the age
/// bound of messages in a channel.
const PATIENCE_NS_MAX: f64 = 1e6;

/// Measured costs of one transfer.
#[derive(Debug)]
pub(crate) struct Meter {
    costs: Costs,
    len_bytes: usize,
    element_bytes: usize,
    /// Weighted sums over messages: of 1, of bytes, of ns, of bytes squared, of bytes times ns.
    sums: [f64; 5],
}

impl Meter {
    /// Begins with declared costs.
    pub(crate) fn new(costs: Costs, len_bytes: usize, element_bytes: usize) -> Self {
        Self { costs, len_bytes, element_bytes, sums: [0.0; 5] }
    }

    /// Takes in that `bytes` bytes were committed in the `elapsed_ns` since the first of them.
    pub(crate) fn handle_produced(&mut self, bytes: usize, elapsed_ns: u64) {
        if elapsed_ns > 0 {
            self.costs = self.costs.with_compute_measured(bytes, elapsed_ns as f64);
        }
    }

    /// Takes in that a message of `bytes` bytes made an idle link busy for `elapsed_ns`.
    pub(crate) fn handle_sent(&mut self, bytes: usize, elapsed_ns: u64) {
        let (x, y) = (bytes as f64, elapsed_ns as f64);
        for (sum, term) in self.sums.iter_mut().zip([1.0, x, y, x * x, x * y]) {
            *sum = *sum * DECAY + term;
        }
        let [weight, of_x, of_y, of_xx, of_xy] = self.sums;
        let (mean_x, mean_y) = (of_x / weight, of_y / weight);
        let (variance, covariance) =
            (of_xx / weight - mean_x * mean_x, of_xy / weight - mean_x * mean_y);
        // Sizes that differ by less than a tenth tell nothing of a byte.
        if variance > mean_x * mean_x / 100.0 {
            let ns = (covariance / variance).max(LINK_NS_PER_BYTE_MIN);
            self.costs = self.costs.with_link_ns_per_byte(ns);
        }
        let overhead_ns = mean_y - self.costs.link_ns_per_byte * mean_x;
        self.costs = self.costs.with_overhead_ns(overhead_ns.max(OVERHEAD_NS_MIN));
    }

    /// Returns the increment in bytes that is best under these costs.
    pub(crate) fn increment_bytes(&self) -> usize {
        Increment::Auto(self.costs).bytes_for(self.len_bytes, self.element_bytes)
    }

    /// Returns the time, in nanoseconds, in which such an increment is produced: longer than that, less
    /// does not wait for the rest.
    pub(crate) fn patience_ns(&self) -> u64 {
        let ns = self.increment_bytes() as f64 * self.costs.compute_ns_per_byte;
        ns.min(PATIENCE_NS_MAX) as u64
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn finds_the_costs_of_a_link_and_the_increment_of_the_formula() {
        let mut meter = Meter::new(Costs::default(), 4 << 20, 4);
        let before = meter.increment_bytes();
        for bytes in [4096, 100_000, 20_000, 300_000, 50_000] {
            // 3 us an increment and half a nanosecond a byte.
            meter.handle_sent(bytes, 3000 + bytes as u64 / 2);
        }
        meter.handle_produced(1_000_000, 5_500_000);
        // sqrt(4 MiB * 3 us / (6 ns)) = 45.8 KB
        let best = meter.increment_bytes();
        assert!((45_700..45_900).contains(&best), "{best}");
        assert!(before > best, "the declared costs were others");
        assert_eq!(meter.patience_ns(), (best as f64 * 5.5) as u64);
    }

    #[test]
    fn messages_of_one_size_tell_the_overhead_alone() {
        let mut meter = Meter::new(Costs::default(), 4 << 20, 4);
        for _ in 0..9 {
            meter.handle_sent(10_000, 42_000);
        }
        // 0.2 ns a byte were declared: 2 us of the 42.
        assert!((meter.costs.overhead_ns - 40_000.0).abs() < 1.0, "{:?}", meter.costs);
        assert!((meter.costs.link_ns_per_byte - 0.2).abs() < 1e-9);
    }

    proptest! {
        #[test]
        fn any_times_give_an_increment_within_the_limits(
            sent in prop::collection::vec((0_usize..1 << 30, any::<u64>()), 0..20),
            produced in prop::collection::vec((0_usize..1 << 30, any::<u64>()), 0..5),
        ) {
            let mut meter = Meter::new(Costs::default(), 1 << 30, 4);
            sent.into_iter().for_each(|(bytes, ns)| meter.handle_sent(bytes, ns));
            produced.into_iter().for_each(|(bytes, ns)| meter.handle_produced(bytes, ns));
            let bytes = meter.increment_bytes();
            prop_assert!((4096..=1 << 20).contains(&bytes) && bytes.is_multiple_of(4));
            prop_assert!(meter.patience_ns() <= 1_000_000);
        }
    }
}
