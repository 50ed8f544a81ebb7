//! Collectives on arrays that their ranks compute: what each rank gives, and what it must get.
//!
//! Elements are `f32`. Each rank has a source of its own. A sum may differ from the sequential one by
//! what its order rounds.

use chunkcomm::host;
use chunkcomm_coupled::patterns::{Compute, source_of};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// Bytes of an element.
pub const ELEMENT_BYTES: usize = size_of::<f32>();

/// Largest difference of a sum from the sequential one that counts as rounding, a rank.
const ROUNDING: f64 = 1e-5;

/// Ways of the arrays among the ranks; the root is rank 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum FlowPattern {
    /// All ranks compute, and the root gets the sum.
    Reduce,
    /// The root computes, and the others compute on what they get.
    Broadcast,
    /// All ranks compute, and all get the sum.
    AllReduce,
}

/// When elements leave and are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
pub enum FlowWay {
    /// Whole arrays along a binomial tree, each a message.
    Whole,
    /// All is computed, then the group called.
    Calls,
    /// In increments, while they are computed.
    Delta,
}

/// One collective on arrays of one length.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FlowKind {
    /// Ways of the arrays.
    pub pattern: FlowPattern,
    /// Number of ranks.
    pub nodes: usize,
    /// Bytes of an array, whole elements.
    pub bytes: usize,
    /// Bytes of an increment.
    pub delta_bytes: usize,
    /// Computation of an array.
    pub compute: Compute,
    /// Nanoseconds of virtual time for a byte that is combined.
    pub gamma_ns: f64,
    /// Name of the algorithm of what flows.
    pub algorithm: String,
}

impl FlowKind {
    /// Returns the elements of an array.
    pub fn len(&self) -> usize {
        self.bytes / ELEMENT_BYTES
    }

    /// Whether the arrays have no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the elements that are computed at a time.
    pub(crate) fn grain(&self) -> usize {
        (self.delta_bytes / ELEMENT_BYTES).max(1)
    }

    /// Whether computing writes; else the arrays are the sources.
    pub(crate) fn writes(&self) -> bool {
        matches!(self.compute, Compute::Random | Compute::Trig)
    }

    /// Whether this rank has an array of its own.
    pub(crate) fn gives(&self, rank: usize) -> bool {
        rank == 0 || self.pattern != FlowPattern::Broadcast
    }

    /// Whether this rank gets elements.
    pub(crate) fn gets(&self, rank: usize) -> bool {
        match self.pattern {
            FlowPattern::Reduce => rank == 0,
            FlowPattern::Broadcast => rank > 0,
            FlowPattern::AllReduce => true,
        }
    }

    /// Returns what a rank that gets elements must have in the end.
    pub(crate) fn expected(&self) -> Vec<f32> {
        if self.pattern == FlowPattern::Broadcast {
            return self.computed(self.computed(source_of(0, self.len())));
        }
        let mut sums = vec![0.0_f64; self.len()];
        for rank in 0..self.nodes {
            let array = self.computed(source_of(rank, self.len()));
            sums.iter_mut().zip(array).for_each(|(sum, element)| *sum += f64::from(element));
        }
        sums.into_iter().map(|sum| sum as f32).collect()
    }

    /// Returns the index of the first wrong element.
    pub(crate) fn first_wrong(&self, expected: &[f32], found: &[f32]) -> Option<usize> {
        if found.len() != expected.len() {
            return Some(found.len().min(expected.len()));
        }
        let near = ROUNDING * self.nodes as f64;
        let is_wrong = |(found, expected): (&f32, &f32)| {
            // Negated, since a NaN is never near.
            let is_near = (f64::from(*found) - f64::from(*expected)).abs() <= near;
            !is_near
        };
        found.iter().zip(expected).position(is_wrong)
    }

    fn computed(&self, input: Vec<f32>) -> Vec<f32> {
        if !self.writes() {
            return input;
        }
        let mut output = vec![0.0; input.len()];
        // Its virtual time is nobody's.
        let _ = host::working(|| self.compute.apply(&input, 0..input.len(), &mut output));
        output
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_without_one_rank_is_wrong() {
        let kind = |nodes| FlowKind {
            pattern: FlowPattern::Reduce,
            nodes,
            bytes: 400,
            delta_bytes: 40,
            compute: Compute::Trig,
            gamma_ns: 0.0,
            algorithm: "auto".to_owned(),
        };
        let (all, fewer) = (kind(64).expected(), kind(63).expected());
        assert_eq!(kind(64).first_wrong(&all, &all), None);
        assert!(kind(64).first_wrong(&all, &fewer).is_some());
        assert_eq!(kind(64).first_wrong(&all, &all[..99]), Some(99));
        assert_eq!(kind(64).first_wrong(&all, &[f32::NAN; 100]), Some(0));
    }
}
