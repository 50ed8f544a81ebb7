//! Runs of a chain whose nodes are processes of this machine.

use std::time::Duration;

use chunkcomm_coupled::patterns::{Run, Transfer};

use crate::failure::{Doing, Failure};
use crate::harness::near::Bench;
use crate::harness::slices::{Contender, Slice};
use crate::ours::chain::Head;

/// The runs of one chain.
pub(super) struct Runs {
    pub(super) head: Head,
    kind: Run,
    number: u64,
}

impl Runs {
    pub(super) fn new(head: Head, kind: Run) -> Self {
        Self { head, kind, number: 0 }
    }

    fn once(
        &mut self,
        bench: &Bench,
        transfer: Transfer,
        verify: bool,
    ) -> Result<Duration, Failure> {
        self.number += 1;
        let run = Run { number: self.number, transfer, verify, ..self.kind.clone() };
        let outcome = bench.runtime.block_on(self.head.chain.run(&run)).doing("running a chain")?;
        match outcome.difference {
            None => Ok(outcome.elapsed),
            Some(difference) => Err(Failure::broken("verifying the array", difference)),
        }
    }

    /// Runs once and compares the results with arrays computed in one piece; not counted.
    pub(super) fn verify(&mut self, bench: &Bench, transfer: Transfer) -> Result<(), Failure> {
        self.once(bench, transfer, true).map(drop)
    }

    /// Runs `count` times; the processor time is that of all nodes.
    pub(super) fn slice(
        &mut self,
        bench: &mut Bench,
        transfer: Transfer,
        count: u64,
    ) -> Result<Slice, Failure> {
        let before_ns = bench.cpu_ns()?;
        let mut seconds = 0.0;
        for _ in 0..count {
            seconds += self.once(bench, transfer, false)?.as_secs_f64();
        }
        let cpu_ns = bench.cpu_ns()? - before_ns;
        Ok(Slice { messages: count, seconds, cpu_ns, samples_ns: Vec::new() })
    }
}

/// The baseline of a chain.
pub(super) enum Opposite {
    /// A chain of two nodes.
    Hop(Box<Runs>),
    /// One that knows nothing of deltas.
    Other(Box<dyn Contender>),
}

impl Opposite {
    pub(super) fn slice(
        &mut self,
        bench: &mut Bench,
        delta: Transfer,
        count: u64,
    ) -> Result<Slice, Failure> {
        match self {
            Self::Hop(runs) => runs.slice(bench, delta, count),
            Self::Other(other) => other.slice(bench, count),
        }
    }
}
