//! The concurrent form: each block has a group of its own.
//!
//! ```text
//! 4 ranks              1 rank               4 ranks
//! ┌────────┐ sender ───▶ receiver
//! │  left  │           middle ...
//! └────────┘ receiver ◀─ sender
//! ```
//!
//! The columns at which two blocks touch travel while the ranks of each block exchange their margins.

use chunkcomm_array::{ArrayError, ArrayReceiver, ArraySender, Transfer};
use chunkcomm_examples::groups::Costs;
use chunkcomm_group::{Group, Pair};

use super::Failure;
use super::part::Part;
use super::problem::{Block, EAST, Geometry, WEST};

/// A rank's part of the only block that it has.
pub(crate) struct Concurrent {
    pub(crate) part: Part,
    /// The ranks of this block.
    pub(crate) group: Group,
    seams: Vec<Seam>,
}

/// A side of the block where it touches another one, which another group has.
struct Seam {
    side: usize,
    sender: ArraySender<f64>,
    receiver: ArrayReceiver<f64>,
    /// Whether the first round has begun.
    has_begun: bool,
}

impl Concurrent {
    /// Splits the world into the groups of the blocks, of which this rank's has this `index`.
    pub(crate) async fn open(
        world: &mut Group,
        geometry: Geometry,
        index: usize,
        costs: Costs,
    ) -> Result<Concurrent, Failure> {
        let mut group = world.split(Some(index as u32), 0).await?.ok_or("no group")?;
        let block = &geometry.blocks()[index];
        let part = Part::new(&group, block)?;
        let mut seams = Vec::new();
        for (left, name) in [(0, "left-middle"), (1, "middle-right")] {
            let side = match index {
                _ if index == left => EAST,
                _ if index == left + 1 => WEST,
                _ => continue,
            };
            let pair = group.meet(name).await?;
            seams.push(Seam::open(&group, pair, block, side, costs).await?);
        }
        Ok(Concurrent { part, group, seams })
    }

    /// Relaxes the points of one colour.
    pub(crate) async fn half_sweep(
        &mut self,
        (colour, omega): (usize, f64),
        costs: Costs,
        squares: &mut [f64],
    ) -> Result<(), Failure> {
        for seam in &mut self.seams {
            seam.send(&self.part).await?;
        }
        self.part.exchange().await?;
        for seam in &mut self.seams {
            let strip = seam.receiver.finish().await?;
            self.part.write(seam.side, strip);
        }
        self.part.spend(costs, 0).await;
        self.part.relax(colour, omega, squares);
        Ok(())
    }
}

impl Seam {
    /// Opens both directions; the left group of the pair sends first.
    async fn open(
        group: &Group,
        mut pair: Pair,
        block: &Block,
        side: usize,
        costs: Costs,
    ) -> Result<Seam, Failure> {
        let [outgoing, incoming] = [block.strip(side, group)?, block.strip(side, group)?];
        // A round is computed while the word that the last one has landed is on its way.
        let transfer = || Transfer::default().depth(2).declared_nanos_per_byte(costs.packing);
        if side == EAST {
            let sender = outgoing.sender_with(&mut pair, transfer()).await?;
            let receiver = incoming.receiver_with(&mut pair, transfer()).await?;
            return Ok(Seam { side, sender, receiver, has_begun: false });
        }
        let receiver = incoming.receiver_with(&mut pair, transfer()).await?;
        let sender = outgoing.sender_with(&mut pair, transfer()).await?;
        Ok(Seam { side, sender, receiver, has_begun: false })
    }

    /// Puts the column at this side on its way, and begins to receive.
    async fn send(&mut self, part: &Part) -> Result<(), ArrayError> {
        if self.has_begun {
            self.sender.start().await?;
            self.receiver.start().await?;
        }
        self.has_begun = true;
        let mut strip = self.sender.slab(0..part.rows.len())?;
        part.read(self.side, &mut strip);
        strip.commit();
        Ok(())
    }
}
