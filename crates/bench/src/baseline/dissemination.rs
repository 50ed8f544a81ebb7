//! A barrier and an all-reduce of one element by dissemination over epoll by hand (D. Hensgen, R. Finkel
//! and U. Manber 1988).
//!
//! In round `k` each rank sends to the rank `2^k` above, and waits for the one `2^k` below. For a power
//! of two ranks, sums that are passed on so hold each element once.

use super::mesh::Mesh;
use super::raw::Polled;
use super::wire::Wire;
use crate::failure::{Doing, Failure};
use crate::harness::calls::{CallKind, ELEMENT_BYTES, Operation};
use crate::harness::ranks::Player;

/// Takes part as one rank, until the near end has ended.
///
/// # Errors
/// If a connection fails.
pub async fn serve(port: u16, rank: usize, kind: CallKind, spin: bool) -> Result<(), Failure> {
    let (mut control, mesh) = Mesh::join(port, rank, kind.ranks).await?;
    let mut rounds = Vec::new();
    let mut distance = 1;
    while distance < kind.ranks {
        rounds.push((mesh.above(distance), mesh.below(distance)));
        distance *= 2;
    }
    let peers: Result<Vec<_>, Failure> = mesh
        .into_streams()
        .map(|stream| {
            let polled = stream.map(|stream| Polled::new(Wire::Tcp(stream), spin)).transpose();
            polled.doing("setting up epoll")
        })
        .collect();
    let mut player = Dissemination { rank, kind, rounds, peers: peers?, own: 0.0, sum: 0.0 };
    control.serve(&mut player).await
}

struct Dissemination {
    rank: usize,
    kind: CallKind,
    /// The ranks to send to and to receive from, by round.
    rounds: Vec<(usize, usize)>,
    peers: Vec<Option<Polled>>,
    own: f64,
    sum: f64,
}

impl Dissemination {
    fn collective(&mut self) -> std::io::Result<()> {
        let adds = self.kind.operation == Operation::AllReduce;
        self.sum = self.own;
        for &(above, below) in &self.rounds {
            let mut other = [0; ELEMENT_BYTES];
            if let Some(above) = &mut self.peers[above] {
                above.put(&self.sum.to_ne_bytes())?;
            }
            if let Some(below) = &mut self.peers[below] {
                below.get(&mut other)?;
            }
            if adds {
                self.sum += f64::from_ne_bytes(other);
            }
        }
        Ok(())
    }
}

impl Player for Dissemination {
    async fn fill(&mut self, call: u64) -> Result<(), Failure> {
        self.kind.fill(self.rank, call, std::slice::from_mut(&mut self.own));
        Ok(())
    }

    async fn meet(&mut self) -> Result<(), Failure> {
        self.collective().doing("meeting by hand")
    }

    async fn call(&mut self) -> Result<(), Failure> {
        self.collective().doing("calling by hand")
    }

    async fn is_right(&mut self, call: u64) -> Result<bool, Failure> {
        let result = if self.kind.is_empty() { &[][..] } else { std::slice::from_ref(&self.sum) };
        Ok(self.kind.is_right(self.rank, call, result))
    }
}
