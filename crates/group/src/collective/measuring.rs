//! The measured costs of a group, by which its calls choose their algorithms.

use std::time::Duration;

use chunkcomm::host::Instant;

use super::op::Op;
use crate::Group;
use crate::group::error::GroupError;
use crate::group::forming::Making;
use crate::proto::costs::Costs;
use crate::proto::schedule::algorithm::Algorithm;

/// Bytes of a measured broadcast: 1 MiB.
const MEASURED_BYTES: usize = 1 << 20;

/// Barriers and broadcasts of a measurement, of which the fastest count.
const BARRIER_COUNT: usize = 20;
const BROADCAST_COUNT: usize = 4;

impl Group {
    /// Measures what a message and a byte cost among the ranks, and how long combining takes; further calls
    /// choose their algorithms by it ([`Algorithm::Auto`]). Takes 20 barriers and 4 broadcasts of 1 MiB.
    ///
    /// All ranks call it, once for the group and those made of it. Without it, a LAN of 10 Gbit/s is assumed.
    ///
    /// # Errors
    ///
    /// As a call of the group.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the measurement goes on without it. This rank then chooses by other costs than
    /// the others, so that further calls may differ.
    pub fn measure(&mut self) -> impl Future<Output = Result<(), GroupError>> + Send {
        let (_, name) = self.child("measure");
        let own = self.of_all_ranks(&name);
        let measuring = Making::new(&self.core.cluster, |_| own.measured());
        async move {
            self.costs = measuring.await?;
            Ok(())
        }
    }

    /// Measures in this group, which nobody else uses.
    async fn measured(mut self) -> Result<Costs, GroupError> {
        let mut message = Duration::MAX;
        for _ in 0..BARRIER_COUNT {
            let since = Instant::now();
            self.barrier().await?;
            message = message.min(since.elapsed());
        }
        let mut bytes = Duration::MAX;
        let mut data = vec![0_u64; MEASURED_BYTES / 8];
        for _ in 0..BROADCAST_COUNT {
            let since = Instant::now();
            let algorithm = std::mem::replace(&mut self.algorithm, Algorithm::Chain);
            let broadcast = self.broadcast(0, data);
            self.algorithm = algorithm;
            data = broadcast.await?;
            self.barrier().await?;
            bytes = bytes.min(since.elapsed());
        }
        let other = vec![1_u64; data.len()];
        let sum = Op::<u64>::sum();
        let since = Instant::now();
        sum.after(&mut data, &other);
        let combining = since.elapsed();
        // The slowest rank's figures are those of all.
        let mine = [message, bytes, combining].map(|it| it.as_nanos() as u64);
        let slowest = self.all_reduce(mine.to_vec(), Op::max()).await?;
        let [message, bytes, combining] = slowest[..] else { return Ok(self.costs) };
        Ok(costs(self.size(), message as f64, bytes as f64, combining as f64))
    }
}

/// Returns the costs that make a barrier and a broadcast by chain take these times in nanoseconds.
fn costs(size: usize, barrier_ns: f64, broadcast_ns: f64, combining_ns: f64) -> Costs {
    let rounds = f64::from(size.next_power_of_two().ilog2().max(1));
    let message_ns = (barrier_ns / rounds).max(100.0);
    // A fifth of a message's way occupies its sender.
    let (alpha_ns, latency_ns) = (message_ns / 5.0, message_ns * 4.0 / 5.0);
    let hops = size.saturating_sub(1).max(1) as f64;
    let left_ns = broadcast_ns - barrier_ns - hops * message_ns;
    let bytes = MEASURED_BYTES as f64;
    Costs {
        alpha_ns,
        latency_ns,
        beta_ns_per_byte: (left_ns / bytes).max(0.01),
        gamma_ns_per_byte: combining_ns / bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_what_makes_the_measured_times() {
        let costs = costs(8, 75_000.0, 75_000.0 + 7.0 * 25_000.0 + 1_048_576.0 * 0.5, 104_857.6);
        assert_eq!((costs.alpha_ns, costs.latency_ns), (5_000.0, 20_000.0));
        assert!((costs.beta_ns_per_byte - 0.5).abs() < 1e-9);
        assert!((costs.gamma_ns_per_byte - 0.1).abs() < 1e-9);
    }
}
