//! Collective calls to be measured: what each rank gives, and what it must get.
//!
//! Elements are `f64` that hold whole numbers, so that a sum is exact in any order. They depend on the
//! rank and on the number of the call, so that a result of the call before is seen.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// Bytes of an element.
pub const ELEMENT_BYTES: usize = size_of::<f64>();

/// Period of the elements of a vector: a prime, so that blocks of any usual length differ.
const PERIOD: usize = 4093;

/// Number of calls after which the elements repeat.
const CALLS: u64 = 997;

/// A collective operation; its root, if it has one, is rank 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
pub enum Operation {
    /// All ranks wait for each other.
    Barrier,
    /// The root's vector at all ranks.
    Broadcast,
    /// The sum of all vectors at the root.
    Reduce,
    /// The sum of all vectors at all ranks.
    AllReduce,
    /// The vectors of all ranks at all ranks.
    AllGather,
    /// A part of each rank's vector at each rank.
    AllToAll,
    /// At each rank the sum of its own vector and those of the lower ranks.
    Scan,
}

/// One operation on vectors of one length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallKind {
    /// Operation.
    pub operation: Operation,
    /// Bytes of a rank's vector, whole elements; 0 of a barrier.
    pub bytes: usize,
    /// Number of ranks.
    pub ranks: usize,
}

/// Elements that lie together: element `i` is `(start + i) % PERIOD * scale + add`.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Part {
    start: usize,
    len: usize,
    scale: f64,
    add: f64,
}

impl Part {
    #[inline]
    fn elements(self) -> impl Iterator<Item = f64> {
        let Self { start, len, scale, add } = self;
        (start..start + len).map(move |index| (index % PERIOD) as f64 * scale + add)
    }
}

impl CallKind {
    /// Returns the elements of a rank's vector.
    pub fn len(&self) -> usize {
        self.bytes / ELEMENT_BYTES
    }

    /// Whether the calls carry no data.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Returns the elements of a rank's result.
    pub fn result_len(&self, rank: usize) -> usize {
        match self.operation {
            Operation::Barrier => 0,
            Operation::Reduce if rank > 0 => 0,
            Operation::AllGather => self.len() * self.ranks,
            _ => self.len(),
        }
    }

    /// Writes a rank's vector for a call.
    pub fn fill(&self, rank: usize, call: u64, vector: &mut [f64]) {
        let Some(part) = self.input(rank, call) else { return };
        for (to, element) in vector.iter_mut().zip(part.elements()) {
            *to = element;
        }
    }

    /// As [`fill`](Self::fill), into bytes in the machine's order.
    pub fn fill_bytes(&self, rank: usize, call: u64, vector: &mut [u8]) {
        let Some(part) = self.input(rank, call) else { return };
        for (to, element) in vector.as_chunks_mut().0.iter_mut().zip(part.elements()) {
            *to = element.to_ne_bytes();
        }
    }

    /// Whether `result` is what a rank must get by a call.
    pub fn is_right(&self, rank: usize, call: u64, result: &[f64]) -> bool {
        self.matches(rank, call, result.len(), result.iter().copied())
    }

    /// As [`is_right`](Self::is_right), of bytes in the machine's order.
    pub fn are_right(&self, rank: usize, call: u64, result: &[u8]) -> bool {
        let elements = result.as_chunks().0.iter().map(|bytes| f64::from_ne_bytes(*bytes));
        self.matches(rank, call, result.len() / ELEMENT_BYTES, elements)
    }

    fn matches(
        &self,
        rank: usize,
        call: u64,
        len: usize,
        mut result: impl Iterator<Item = f64>,
    ) -> bool {
        len == self.result_len(rank)
            && self.output(rank, call).all(|part| {
                // Without a branch an element, so that looking takes little of a run.
                let wrong = part.elements().zip(&mut result).filter(|(one, other)| one != other);
                wrong.count() == 0
            })
    }

    fn input(&self, rank: usize, call: u64) -> Option<Part> {
        let gives = match self.operation {
            Operation::Barrier => false,
            Operation::Broadcast => rank == 0,
            _ => true,
        };
        gives.then(|| Part { start: 0, len: self.len(), scale: 1.0, add: given(rank, call) })
    }

    fn output(&self, rank: usize, call: u64) -> impl Iterator<Item = Part> {
        let (len, ranks) = (self.len(), self.ranks);
        let block = len / ranks;
        let (start, len, sources) = match self.operation {
            Operation::Barrier => (0, 0, 0),
            Operation::Reduce if rank > 0 => (0, 0, 0),
            Operation::Broadcast | Operation::Reduce | Operation::AllReduce | Operation::Scan => {
                (0, len, 1)
            }
            Operation::AllGather => (0, len, ranks),
            Operation::AllToAll => (rank * block, block, ranks),
        };
        let operation = self.operation;
        (0..sources).map(move |source| match operation {
            Operation::Reduce | Operation::AllReduce => sum(start, len, ranks, call),
            Operation::Scan => sum(start, len, rank + 1, call),
            _ => Part { start, len, scale: 1.0, add: given(source, call) },
        })
    }
}

/// Returns the number that a rank adds to its elements.
fn given(rank: usize, call: u64) -> f64 {
    rank as f64 + 3.0 * (call % CALLS) as f64
}

/// Returns the sum of the vectors of the first `count` ranks.
fn sum(start: usize, len: usize, count: usize, call: u64) -> Part {
    let add = (0..count).map(|rank| given(rank, call)).sum();
    Part { start, len, scale: count as f64, add }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input(kind: &CallKind, rank: usize, call: u64) -> Vec<f64> {
        let mut vector = vec![0.0; kind.len()];
        kind.fill(rank, call, &mut vector);
        vector
    }

    #[test]
    fn a_result_is_right_or_not() {
        let (ranks, bytes, call) = (4, 12_000 * ELEMENT_BYTES, 5);
        for &operation in Operation::value_variants() {
            let bytes = if operation == Operation::Barrier { 0 } else { bytes };
            let kind = CallKind { operation, bytes, ranks };
            let inputs: Vec<_> = (0..ranks).map(|rank| input(&kind, rank, call)).collect();
            for rank in 0..ranks {
                let summed = |count: usize| -> Vec<f64> {
                    let at = |index| inputs[..count].iter().map(|it: &Vec<f64>| it[index]).sum();
                    (0..kind.len()).map(at).collect()
                };
                let block = kind.len() / ranks;
                let mut result = match operation {
                    Operation::Barrier => Vec::new(),
                    Operation::Broadcast => inputs[0].clone(),
                    Operation::Reduce if rank > 0 => Vec::new(),
                    Operation::Reduce | Operation::AllReduce => summed(ranks),
                    Operation::Scan => summed(rank + 1),
                    Operation::AllGather => inputs.concat(),
                    Operation::AllToAll => {
                        let own = rank * block..(rank + 1) * block;
                        inputs.iter().flat_map(|it| it[own.clone()].to_vec()).collect()
                    }
                };
                assert!(kind.is_right(rank, call, &result), "{kind:?} at {rank}");
                let bytes: Vec<u8> = result.iter().flat_map(|it| it.to_ne_bytes()).collect();
                assert!(kind.are_right(rank, call, &bytes), "{kind:?} at {rank}");
                if let Some(last) = result.len().checked_sub(1) {
                    assert!(!kind.is_right(rank, call + 1, &result), "of another call");
                    result[last] += 1.0;
                    assert!(!kind.is_right(rank, call, &result), "{kind:?}: the last differs");
                    assert!(!kind.is_right(rank, call, &result[1..]), "{kind:?}: too short");
                }
            }
        }
    }
}
