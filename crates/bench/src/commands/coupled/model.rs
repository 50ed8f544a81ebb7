//! Time of an array in the steady stream of `fft2d`, in closed form.
//!
//! Two groups of `P` ranks each, arrays of `N x N` elements of 16 bytes; of each rank, in seconds:
//!
//! ```text
//!     compute   N / P transforms of a row, each 5 N log2 N operations
//!     pack      N^2 / P elements into messages at a sender, out of them at a receiver
//!     wire      N^2 / P elements through the port of a rank: N^2 / P t_w
//!     P t_s     a message to each of P peers, the word back that it has landed, or both: on a core
//! ```
//!
//! A host of one core computes, packs and begins messages in turn; its wire works beside it. A sender begins
//! round `k + depth` when round `k` has landed at all receivers (`crates/array/src/ends/sender.rs`), and a
//! receiver transforms round `k` while round `k + 1` is computed. So with depth 1 a round is on one path from its
//! first row to the word that the last has landed, and nothing else of it counts. Without overlap
//! (`ends/outlet.rs`, `ends/inlet.rs`) nothing leaves before all is packed, nothing is unpacked before all has come:
//!
//! ```text
//!     sender    compute | pack | P t_s, wire |        | compute ..         off: compute + 2 pack + P t_s + wire
//!     receiver  (array before)               | unpack | compute ..
//! ```
//!
//! With overlap a block of rows is packed and leaves while the next one is computed. The rest is the *fill*:
//! the wire and the unpacking of the last block, whose rows are finished last. With depth 2 the next round is computed
//! meanwhile: no fill, and the core or the wire is always busy, whichever has more to do:
//!
//! ```text
//!     on: max(compute + pack + P t_s, wire) + fill
//! ```
//!
//! Not in it: a message leaves in packets of 16 to 64 KiB, each of which is acknowledged, and all of them cost their
//! hosts the time of a packet. A core that is always busy feels that: 470 packets of 40 us are 3 % of an array of
//! 1024 x 1024 through four ranks and four.
//!
//! The data-parallel form has all ranks in one group, `Q` of them, and no overlap: all that leaves is packed first
//! (`ends/exchange.rs`). Each keeps its own part, and sends and receives `Q - 1` messages on its one core:
//!
//! ```text
//!     2 compute + 2 pack + (Q - 1) t_s + (1 - 1 / Q) wire
//! ```

use crate::commands::collective::formulas::Costs;
use crate::failure::Failure;
use crate::lan::load;

use super::program::{Figures, Program, Run};

/// Bytes of an element: two f64.
const ELEMENT_BYTES: usize = 16;

/// Bytes of a message that the library aims at (`crates/array/src/plan/tiles.rs`).
const TILE_BYTES: usize = 128 << 10;

/// Nanoseconds of an operation and of packing a byte where the program chooses.
const COSTS_NS: [f64; 2] = [2.0, 0.0];

/// A form of the program on a world.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Form {
    pub(crate) costs: Costs,
    pub(crate) shape: [usize; 2],
    pub(crate) flop_ns: f64,
    pub(crate) packing_ns: f64,
}

/// A way through the two groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pipeline {
    /// Ranks of the first group, and of the second.
    pub(crate) ranks: [usize; 2],
    pub(crate) overlap: bool,
    pub(crate) depth: usize,
}

/// Returns the modelled time of an array, where the run has a model: `fft2d` in virtual time.
///
/// # Errors
/// If there is no such world.
pub(crate) fn of_run(run: &Run, figures: &Figures) -> Result<Option<f64>, Failure> {
    let Some(spec) = run.lan.strip_prefix("virtual:").filter(|_| run.program == Program::Fft2d)
    else {
        return Ok(None);
    };
    let (Some(costs), Some(shape)) = (Costs::of(&load(spec)?), figures.shape()) else {
        return Ok(None);
    };
    let flop_ns = run.flop_ns.unwrap_or(COSTS_NS[0]);
    let form = Form { costs, shape, flop_ns, packing_ns: run.packing_ns.unwrap_or(COSTS_NS[1]) };
    Ok(match figures.ranks()[..] {
        [ranks] => Some(form.data_parallel(ranks)),
        [first, second] => {
            let (overlap, depth) = (figures.is_on("overlap"), figures.depth());
            Some(form.pipelined(Pipeline { ranks: [first, second], overlap, depth }))
        }
        _ => None,
    })
}

impl Form {
    /// Returns the seconds of an array through two groups.
    pub(crate) fn pipelined(&self, pipeline: Pipeline) -> f64 {
        let Pipeline { ranks, overlap, depth } = pipeline;
        let [[compute, pack, wire], [compute_second, unpack, wire_second]] =
            [self.rank(ranks[0], 0), self.rank(ranks[1], 1)];
        let wire = wire.max(wire_second);
        let compute = compute.max(compute_second);
        let begin = ranks[0].max(ranks[1]) as f64 * self.costs.alpha;
        let core = compute + pack.max(unpack) + begin;
        if depth > 1 {
            return core.max(wire);
        }
        let latency = 2.0 * self.costs.latency;
        if !overlap {
            return compute + pack + begin + wire + unpack + latency;
        }
        let fill = (wire + unpack) / self.blocks(ranks) as f64 + latency;
        core.max(wire) + fill
    }

    /// Returns the seconds of an array with one group.
    pub(crate) fn data_parallel(&self, ranks: usize) -> f64 {
        let [rows, columns] = [0, 1].map(|group| self.rank(ranks, group));
        let others = ranks as f64 - 1.0;
        let wire = rows[2].max(columns[2]) * others / ranks as f64;
        let of_core = rows[0] + columns[0] + rows[1] + columns[1];
        of_core + others * self.costs.alpha + wire + self.costs.latency
    }

    /// Returns the seconds of a rank of the group that has rows, 0, or columns, 1: its transforms, its packing, its
    /// wire. The first ranks have the most.
    fn rank(&self, ranks: usize, group: usize) -> [f64; 3] {
        let (lines, length) =
            (self.shape[group].div_ceil(ranks) as f64, self.shape[1 - group] as f64);
        let bytes = lines * length * ELEMENT_BYTES as f64;
        let compute = lines * 5.0 * length * length.log2() * self.flop_ns;
        [compute * 1e-9, bytes * self.packing_ns * 1e-9, bytes * self.costs.beta]
    }

    /// Returns the number of blocks of rows that leave one by one: a message has all columns of a pair of ranks,
    /// and as many rows as it has room for.
    fn blocks(&self, ranks: [usize; 2]) -> usize {
        let [rows, columns] = [0, 1].map(|dim| self.shape[dim].div_ceil(ranks[dim]));
        let bytes = rows * columns * ELEMENT_BYTES;
        ((bytes as f64 / TILE_BYTES as f64).round() as usize).clamp(1, rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORM: Form = Form {
        costs: Costs { alpha: 80e-6, beta: 1.0 / 30e6, latency: 20e-6, receive: 40e-6 },
        shape: [512, 512],
        flop_ns: 40.0,
        packing_ns: 17.24,
    };

    /// 128 rows of a rank take 118 ms, packing 18 ms, the wire 35 ms.
    #[test]
    fn terms_of_eight_ranks() {
        let pipelined =
            |overlap, depth| FORM.pipelined(Pipeline { ranks: [4, 4], overlap, depth }) * 1e3;
        assert!(
            (pipelined(false, 1) - (117.96 + 18.08 + 0.32 + 34.95 + 18.08 + 0.04)).abs() < 0.02
        );
        // Two blocks of rows: half of the wire and of the unpacking are the fill.
        assert!((pipelined(true, 1) - (117.96 + 18.08 + 0.32 + 17.48 + 9.04 + 0.04)).abs() < 0.02);
        assert!((pipelined(true, 2) - (117.96 + 18.08 + 0.32)).abs() < 0.02);
        let all = FORM.data_parallel(8) * 1e3;
        assert!((all - (117.96 + 18.08 + 0.56 + 15.29 + 0.02)).abs() < 0.02, "{all}");
    }

    #[test]
    fn one_that_hardly_computes_takes_the_time_of_its_wire() {
        let form = Form { flop_ns: 0.1, packing_ns: 0.0, ..FORM };
        let seconds = form.pipelined(Pipeline { ranks: [4, 4], overlap: true, depth: 2 });
        assert!((seconds - 512.0 * 512.0 / 4.0 * 16.0 / 30e6).abs() < 1e-9);
    }

    #[test]
    fn the_largest_part_counts() {
        let even = FORM.pipelined(Pipeline { ranks: [3, 3], overlap: true, depth: 2 });
        // 171 of 512 rows.
        assert!((even * 1e3 - (171.0 * 0.9216 + 171.0 * 0.14123 + 0.24)).abs() < 0.02, "{even}");
    }
}
