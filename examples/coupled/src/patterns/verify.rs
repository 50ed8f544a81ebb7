//! Results against those of a sequential computation.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::compute::{Compute, source, source_of};
use super::roles::Arrays;
use super::{Pattern, Run};

/// An element that differs from the expected one.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Difference {
    /// Index of the first differing element.
    pub index: usize,
    /// Value found.
    pub found: f32,
    /// Value expected.
    pub expected: f32,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "element {} is {}, not {}", self.index, self.found, self.expected)
    }
}

/// Returns the first element of `found` that differs from that of `expected`.
///
/// Elements may differ by a millionth: another machine's sine may round the last bit differently.
/// On one machine they are equal.
#[must_use]
pub fn compare(found: &[f32], expected: &[f32]) -> Option<Difference> {
    const TOLERANCE: f32 = 1e-6;
    assert_eq!(found.len(), expected.len(), "results of the same problem");
    let differs = |(found, expected): (&f32, &f32)| {
        // Written with `<=` and negated, since a NaN is never within the tolerance.
        let close = (found - expected).abs() <= TOLERANCE;
        !close
    };
    let index = found.iter().zip(expected).position(differs)?;
    Some(Difference { index, found: found[index], expected: expected[index] })
}

/// Computes the expected result of the last of `nodes` nodes, one node's work after the other's.
#[must_use]
pub fn sequential(compute: Compute, nodes: usize, elements: usize) -> Vec<f32> {
    repeated(compute, nodes, source(elements))
}

/// Computes the expected result of the node with `index` of `nodes`: in a ring from the source of the
/// node before it, on which both have computed.
fn expected(run: &Run, index: usize, nodes: usize) -> Vec<f32> {
    match run.pattern {
        Pattern::Cascade => sequential(run.compute, index + 1, run.elements),
        Pattern::Ring => {
            let before = (index + nodes - 1) % nodes;
            repeated(run.compute, 2, source_of(before, run.elements))
        }
    }
}

fn repeated(compute: Compute, times: usize, mut input: Vec<f32>) -> Vec<f32> {
    if compute.has_result() {
        let mut output = vec![0.0; input.len()];
        for _ in 0..times {
            compute.apply(&input, 0..input.len(), &mut output);
            std::mem::swap(&mut input, &mut output);
        }
    }
    input
}

/// The verification of one node's results.
#[derive(Debug, Default)]
pub(super) struct Verifier {
    /// The sequential result, computed once for runs of the same kind.
    expected: Vec<f32>,
    of: Option<(Pattern, Compute, usize)>,
}

impl Verifier {
    /// Whether the node with `index` has a result to compare.
    pub(super) fn applies(run: &Run, index: usize, nodes: usize) -> bool {
        run.verify && (run.pattern == Pattern::Ring || index + 1 == nodes)
    }

    /// Returns the first wrong element of the node with `index`, if it has a result to compare.
    pub(super) fn verdict(
        &mut self,
        run: &Run,
        index: usize,
        nodes: usize,
        arrays: &Arrays,
    ) -> Option<Difference> {
        if !Self::applies(run, index, nodes) {
            return None;
        }
        let of = Some((run.pattern, run.compute, run.elements));
        if self.of != of {
            self.expected = expected(run, index, nodes);
            self.of = of;
        }
        compare(arrays.result(run.compute), &self.expected)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_found() {
        let right = sequential(Compute::Trig, 3, 100);
        assert_eq!(compare(&right, &right), None);
        let mut wrong = right.clone();
        wrong[40] += 0.001;
        assert_eq!(compare(&wrong, &right).map(|difference| difference.index), Some(40));
        wrong[7] = f32::NAN;
        assert_eq!(compare(&wrong, &right).map(|difference| difference.index), Some(7));
    }

    #[test]
    fn a_node_more_is_a_computation_more() {
        assert_ne!(sequential(Compute::Random, 1, 50), sequential(Compute::Random, 2, 50));
        assert_eq!(sequential(Compute::Empty, 5, 50), source(50));
    }

    #[test]
    fn each_node_of_a_ring_expects_another_result() {
        let run = Run::new(Pattern::Ring, Compute::Random, 50);
        let results = [0, 1, 2].map(|index| expected(&run, index, 3));
        assert_eq!(results[1], sequential(Compute::Random, 2, 50), "from the head's source");
        assert!(results[0] != results[1] && results[1] != results[2] && results[2] != results[0]);
    }
}
