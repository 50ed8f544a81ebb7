//! Counts of what calls and transfers cost: the system's account of the ranks' processes, and the traffic that
//! they report.

use crate::failure::Failure;
use crate::harness::ranks::{Ranks, Traffic};
use crate::harness::slices::{Side, Slice};
use crate::table::Row;

/// Names of what ours and the baseline take of the machine, a call or transfer.
const TAKEN: [[&str; 3]; 2] = [
    ["cpu_us", "context_switches", "page_faults"],
    ["baseline_cpu_us", "baseline_context_switches", "baseline_page_faults"],
];

/// Names of the traffic of ours, a call or transfer.
const TRAFFIC: [&str; 6] =
    ["packets", "packets_with_messages", "packet_bytes", "writes", "reads", "credit_waits"];

/// Counts of ours and of the baseline, if they are asked for.
pub(super) struct CountsOfSides(Option<[Counts; 2]>);

/// Counts of one side.
#[derive(Debug, Default)]
struct Counts {
    calls: u64,
    taken: [u64; 3],
    traffic: Traffic,
}

impl CountsOfSides {
    /// Creates counts that are taken if they are `wanted`.
    pub(super) fn new(wanted: bool) -> Self {
        Self(wanted.then(Default::default))
    }

    /// Runs a slice of a side, and counts what it costs.
    ///
    /// # Errors
    /// Those of the slice, and if a rank of ours does not answer.
    pub(super) fn of(
        &mut self,
        side: Side,
        ranks: &mut Ranks,
        slice: impl FnOnce(&mut Ranks) -> Result<Slice, Failure>,
    ) -> Result<Slice, Failure> {
        let Some(sides) = &mut self.0 else { return slice(ranks) };
        let is_ours = side == Side::Ours;
        // Ranks of a baseline need not know the question.
        let traffic = |ranks: &mut Ranks| if is_ours { ranks.traffic() } else { Ok([0; 6]) };
        let (traffic_then, taken_then) = (traffic(ranks)?, ranks.taken());
        let slice = slice(ranks)?;
        let (taken, traffic) = (ranks.taken(), traffic(ranks)?);
        let counts = &mut sides[usize::from(!is_ours)];
        add_since(&mut counts.taken, taken, taken_then);
        add_since(&mut counts.traffic, traffic, traffic_then);
        counts.calls += slice.messages;
        Ok(slice)
    }

    /// Adds the counts to the row, each a call or transfer; those of the baseline are by the system.
    pub(super) fn set(&self, row: &mut Row) {
        for (counts, names) in self.0.iter().flatten().zip(TAKEN) {
            if counts.calls == 0 {
                continue;
            }
            let each = |count: u64| count as f64 / counts.calls as f64;
            let [cpu_ns, switches, faults] = counts.taken.map(each);
            for (name, count) in names.into_iter().zip([cpu_ns / 1e3, switches, faults]) {
                row.set(name, count);
            }
            for (name, count) in TRAFFIC.into_iter().zip(counts.traffic) {
                if names == TAKEN[0] {
                    row.set(name, each(count));
                }
            }
        }
    }
}

fn add_since<const N: usize>(sum: &mut [u64; N], now: [u64; N], then: [u64; N]) {
    for (sum, (now, then)) in sum.iter_mut().zip(now.into_iter().zip(then)) {
        *sum += now.saturating_sub(then);
    }
}
