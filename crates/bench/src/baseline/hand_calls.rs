//! Collective calls by hand: bare sockets in as many processes, 256 KiB a read and a write, and sums
//! in place.
//!
//! Broadcast, reduce and scan are chains that pass on each piece as it comes. All-reduce is such a
//! reduce into such a broadcast, or a ring (Patarasuk and Yuan 2009): both are tried at the start, and
//! the faster one is taken. All-gather is a ring, all-to-all goes pair by pair.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::ops::Range;
use std::thread;

use super::mesh::{Mesh, PIECE_BYTES};
use crate::failure::{Doing, Failure};
use crate::harness::calls::{CallKind, ELEMENT_BYTES, Operation};
use crate::harness::machine::now_ns;
use crate::harness::ranks::Player;

/// Counted calls of each way of an all-reduce, of which the fastest counts.
const TRIES: u64 = 5;

/// Takes part as one rank, until the near end has ended.
///
/// # Errors
/// If a connection fails.
pub async fn serve(port: u16, rank: usize, kind: CallKind) -> Result<(), Failure> {
    let (mut control, mesh) = Mesh::join(port, rank, kind.ranks).await?;
    let mut hand = Hand {
        mesh,
        kind,
        input: vec![0; kind.bytes],
        result: vec![0; kind.result_len(rank) * ELEMENT_BYTES],
        piece: vec![0; PIECE_BYTES],
        in_ring: false,
    };
    if kind.operation == Operation::AllReduce {
        hand.choose().doing("trying ways of an all-reduce")?;
    }
    control.serve(&mut hand).await
}

/// One rank with its vectors.
struct Hand {
    mesh: Mesh,
    kind: CallKind,
    input: Vec<u8>,
    result: Vec<u8>,
    /// A piece on its way, which stays in the processor's cache.
    piece: Vec<u8>,
    /// Whether an all-reduce is a ring.
    in_ring: bool,
}

impl Player for Hand {
    async fn fill(&mut self, call: u64) -> Result<(), Failure> {
        self.kind.fill_bytes(self.mesh.rank, call, &mut self.input);
        Ok(())
    }

    async fn meet(&mut self) -> Result<(), Failure> {
        self.mesh.meet().doing("meeting by hand")
    }

    async fn call(&mut self) -> Result<(), Failure> {
        self.collective().doing("calling by hand")
    }

    async fn is_right(&mut self, call: u64) -> Result<bool, Failure> {
        let is_root = self.kind.operation == Operation::Broadcast && self.mesh.rank == 0;
        let result = if is_root { &self.input } else { &self.result };
        Ok(self.kind.are_right(self.mesh.rank, call, result))
    }
}

impl Hand {
    fn collective(&mut self) -> io::Result<()> {
        match self.kind.operation {
            Operation::Barrier => self.mesh.meet(),
            Operation::Broadcast if self.mesh.rank == 0 => self.lead(),
            Operation::Broadcast => pass_on(&self.mesh, &mut self.result),
            Operation::Reduce => self.reduce(),
            Operation::AllReduce if self.in_ring => self.ring(),
            Operation::AllReduce => self.chains(),
            Operation::AllGather => self.gather(),
            Operation::AllToAll => self.transpose(),
            Operation::Scan => self.scan(),
        }
    }

    /// Takes the way of an all-reduce that rank 0 finds faster.
    fn choose(&mut self) -> io::Result<()> {
        let mut fastest_ns = [u64::MAX; 2];
        for _ in 0..=TRIES {
            for (way, fastest_ns) in fastest_ns.iter_mut().enumerate() {
                self.in_ring = way == 1;
                self.mesh.meet()?;
                let started_ns = now_ns();
                self.collective()?;
                *fastest_ns = (*fastest_ns).min(now_ns() - started_ns);
            }
        }
        let mut chosen = [u8::from(fastest_ns[1] < fastest_ns[0])];
        if self.mesh.rank > 0 {
            self.mesh.to(self.mesh.rank - 1)?.read_exact(&mut chosen)?;
        }
        if self.mesh.rank + 1 < self.mesh.ranks() {
            self.mesh.to(self.mesh.rank + 1)?.write_all(&chosen)?;
        }
        self.in_ring = chosen[0] == 1;
        Ok(())
    }

    /// Writes the vector to the next rank.
    fn lead(&mut self) -> io::Result<()> {
        if self.mesh.ranks() > 1 {
            let mut next = self.mesh.to(1)?;
            for piece in self.input.chunks(PIECE_BYTES) {
                next.write_all(piece)?;
            }
        }
        Ok(())
    }

    fn reduce(&mut self) -> io::Result<()> {
        let Self { mesh, input, result, piece, .. } = self;
        let mut down = (mesh.rank > 0).then(|| mesh.to(mesh.rank - 1)).transpose()?;
        sum_up(mesh, input, piece, |range, sum| match &mut down {
            Some(down) => down.write_all(sum),
            None => {
                result[range].copy_from_slice(sum);
                Ok(())
            }
        })
    }

    /// Reduces to rank 0, and passes on from there each piece that is summed. A rank in the middle
    /// does both at a time, in two threads: with one it could wait for both of its neighbours.
    fn chains(&mut self) -> io::Result<()> {
        let Self { mesh, input, result, piece, .. } = self;
        let mesh = &*mesh;
        if mesh.rank == 0 {
            let mut next = (mesh.ranks() > 1).then(|| mesh.to(1)).transpose()?;
            return sum_up(mesh, input, piece, |range, sum| {
                result[range].copy_from_slice(sum);
                next.as_mut().map_or(Ok(()), |next| next.write_all(sum))
            });
        }
        let mut down = mesh.to(mesh.rank - 1)?;
        thread::scope(|scope| {
            let passing = scope.spawn(|| pass_on(mesh, result));
            sum_up(mesh, input, piece, |_, sum| down.write_all(sum))?;
            passing.join().unwrap_or_else(|_| Err(io::Error::other("the thread panicked")))
        })
    }

    /// Passes the sums of blocks round, and then the sums of all.
    fn ring(&mut self) -> io::Result<()> {
        let Self { mesh, input, result, .. } = self;
        let ranks = mesh.ranks();
        if ranks == 1 {
            result.copy_from_slice(input);
            return Ok(());
        }
        for step in 0..2 * (ranks - 1) {
            let summing = step < ranks - 1;
            let ours = block(input.len(), ranks, mesh.below(step % ranks) + ranks);
            let theirs = block(input.len(), ranks, mesh.below((step + 1) % ranks) + ranks);
            let (out, into) = if step == 0 {
                (&input[ours], &mut result[theirs.clone()])
            } else {
                apart(result, ours, theirs.clone())
            };
            let mut added = 0;
            mesh.exchange((mesh.above(1), out), (mesh.below(1), into), |into, there| {
                let whole = there - there % ELEMENT_BYTES;
                if summing {
                    let own = &input[theirs.start + added..theirs.start + whole];
                    add(&mut into[added..whole], own);
                }
                added = whole;
            })?;
        }
        Ok(())
    }

    fn gather(&mut self) -> io::Result<()> {
        let Self { mesh, input, result, .. } = self;
        let of = |rank: usize| rank * input.len()..(rank + 1) * input.len();
        result[of(mesh.rank)].copy_from_slice(input);
        for step in 0..mesh.ranks() - 1 {
            let (ours, theirs) = (of(mesh.below(step)), of(mesh.below(step + 1)));
            let (out, into) = apart(result, ours, theirs);
            mesh.exchange((mesh.above(1), out), (mesh.below(1), into), |_, _| ())?;
        }
        Ok(())
    }

    fn transpose(&mut self) -> io::Result<()> {
        let Self { mesh, input, result, .. } = self;
        let each = input.len() / mesh.ranks();
        let of = |rank: usize| rank * each..(rank + 1) * each;
        result[of(mesh.rank)].copy_from_slice(&input[of(mesh.rank)]);
        for distance in 1..mesh.ranks() {
            let (to, from) = (mesh.above(distance), mesh.below(distance));
            mesh.exchange((to, &input[of(to)]), (from, &mut result[of(from)]), |_, _| ())?;
        }
        Ok(())
    }

    fn scan(&mut self) -> io::Result<()> {
        let Self { mesh, input, result, .. } = self;
        let before = (mesh.rank > 0).then(|| mesh.to(mesh.rank - 1)).transpose()?;
        let next = (mesh.rank + 1 < mesh.ranks()).then(|| mesh.to(mesh.rank + 1)).transpose()?;
        for range in pieces(input.len()) {
            let sum = &mut result[range.clone()];
            match before {
                Some(mut before) => {
                    before.read_exact(sum)?;
                    add(sum, &input[range]);
                }
                None => sum.copy_from_slice(&input[range]),
            }
            if let Some(mut next) = next {
                next.write_all(sum)?;
            }
        }
        Ok(())
    }
}

/// Receives from the rank before, and passes on what has come.
fn pass_on(mesh: &Mesh, result: &mut [u8]) -> io::Result<()> {
    let mut before = mesh.to(mesh.rank - 1)?;
    let next = (mesh.rank + 1 < mesh.ranks()).then(|| mesh.to(mesh.rank + 1)).transpose()?;
    let mut landed = 0;
    while landed < result.len() {
        let end = result.len().min(landed + PIECE_BYTES);
        let read = before.read(&mut result[landed..end])?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if let Some(mut next) = next {
            next.write_all(&result[landed..landed + read])?;
        }
        landed += read;
    }
    Ok(())
}

/// Adds each piece to the sum of the ranks above, and gives it to `take`.
fn sum_up(
    mesh: &Mesh,
    input: &[u8],
    piece: &mut [u8],
    mut take: impl FnMut(Range<usize>, &[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let above = (mesh.rank + 1 < mesh.ranks()).then(|| mesh.to(mesh.rank + 1)).transpose()?;
    for range in pieces(input.len()) {
        let own = &input[range.clone()];
        let Some(mut above) = above else {
            take(range, own)?;
            continue;
        };
        let sum: &mut [u8] = &mut piece[..own.len()];
        <&TcpStream as Read>::read_exact(&mut above, sum)?;
        add(sum, own);
        take(range, sum)?;
    }
    Ok(())
}

fn pieces(len: usize) -> impl Iterator<Item = Range<usize>> {
    (0..len).step_by(PIECE_BYTES).map(move |start| start..len.min(start + PIECE_BYTES))
}

/// Adds elements in place.
fn add(sums: &mut [u8], others: &[u8]) {
    let (sums, others) = (sums.as_chunks_mut().0, others.as_chunks().0);
    for (sum, other) in sums.iter_mut().zip(others) {
        *sum = (f64::from_ne_bytes(*sum) + f64::from_ne_bytes(*other)).to_ne_bytes();
    }
}

/// Returns the bytes of a rank's block; ranks are counted round.
fn block(bytes: usize, ranks: usize, rank: usize) -> Range<usize> {
    let (elements, rank) = (bytes / ELEMENT_BYTES, rank % ranks);
    let start = |rank| elements * rank / ranks * ELEMENT_BYTES;
    start(rank)..start(rank + 1)
}

/// Returns two ranges that do not overlap, the second one to be written.
fn apart(bytes: &mut [u8], read: Range<usize>, write: Range<usize>) -> (&[u8], &mut [u8]) {
    if read.end <= write.start {
        let (low, high) = bytes.split_at_mut(write.start);
        (&low[read], &mut high[..write.len()])
    } else {
        let (low, high) = bytes.split_at_mut(read.start);
        (&high[..read.len()], &mut low[write])
    }
}
