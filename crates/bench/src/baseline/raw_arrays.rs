//! The bytes of a transfer over the same connections, from and into one reused buffer: nothing is
//! packed, and nothing stays where it is.

use super::exchange::{Exchange, Parts};
use super::hand_arrays::common;
use super::mesh::{Mesh, PIECE_BYTES};
use crate::failure::{Doing, Failure};
use crate::harness::ranks::Player;
use crate::harness::transfers::{ELEMENT_BYTES, Part, Transfer};

/// Takes part as one rank, until the near end has ended.
///
/// # Errors
/// If a connection fails.
pub async fn serve(port: u16, rank: usize, transfer: Transfer) -> Result<(), Failure> {
    let (mut control, mesh) = Mesh::join(port, rank, transfer.ranks()).await?;
    let bytes = |given: &Part, wanted: &Part| {
        let [rows, columns] = wanted.logical(transfer.kind.transposed);
        let elements = common(&given.rows, rows).len() * common(&given.columns, columns).len();
        elements * ELEMENT_BYTES
    };
    let (given, wanted) = (transfer.given(rank), transfer.wanted(rank));
    let both =
        |peer| [bytes(&given, &transfer.wanted(peer)), bytes(&transfer.given(peer), &wanted)];
    let totals: Vec<usize> = (0..transfer.ranks()).map(|peer| both(peer)[1]).collect();
    let exchange = Exchange::new(mesh, both).doing("setting up epoll")?;
    let [out, into] = [vec![0; PIECE_BYTES], vec![0; PIECE_BYTES]];
    let pieces = Pieces { out, into, totals, stamp: 0, are_right: true };
    control.serve(&mut Raw { exchange, pieces, is_planned: false }).await
}

struct Raw {
    exchange: Exchange,
    pieces: Pieces,
    is_planned: bool,
}

/// The buffers: all that is sent in a call are stamps of it.
struct Pieces {
    out: Vec<u8>,
    into: Vec<u8>,
    /// Bytes that come in a call, by peer.
    totals: Vec<usize>,
    stamp: u8,
    /// Whether the last byte of each peer was the call's stamp.
    are_right: bool,
}

impl Player for Raw {
    async fn fill(&mut self, call: u64) -> Result<(), Failure> {
        self.pieces.stamp = call as u8;
        self.pieces.out.fill(call as u8);
        self.pieces.are_right = true;
        Ok(())
    }

    async fn meet(&mut self) -> Result<(), Failure> {
        self.exchange.mesh.meet().doing("meeting by hand")
    }

    async fn call(&mut self) -> Result<(), Failure> {
        if !self.is_planned {
            self.is_planned = true;
            return Ok(());
        }
        self.exchange.run(&mut self.pieces).doing("moving bytes")
    }

    async fn is_right(&mut self, _call: u64) -> Result<bool, Failure> {
        Ok(self.pieces.are_right)
    }
}

impl Parts for Pieces {
    fn outgoing(&mut self, _peer: usize, at: usize) -> &[u8] {
        &self.out[at % PIECE_BYTES..]
    }

    fn incoming(&mut self, _peer: usize, at: usize) -> &mut [u8] {
        &mut self.into[at % PIECE_BYTES..]
    }

    fn landed(&mut self, peer: usize, at: usize, count: usize) {
        if at + count == self.totals[peer] {
            self.are_right &= self.into[at % PIECE_BYTES + count - 1] == self.stamp;
        }
    }

    fn work(&mut self) -> bool {
        false
    }
}
