//! Whole arrays along a binomial tree, each a message: what a program does without segments.
//!
//! ```text
//!     rank    0 ◀── 1     2 ◀── 3     4 ◀── 5     6 ◀── 7      up: all at once
//!             0 ◀──────── 2           4 ◀──────── 6            then combined as a whole
//!             0 ◀──────────────────── 4                        down: the other way round
//! ```

use std::time::Duration;

use chunkcomm::host;
use chunkcomm_coupled::patterns::{Pass, source_of};
use chunkcomm_group::Group;
use chunkcomm_pipeline::{Chunk, DeltaReceiver, DeltaSender, Increment};

use crate::failure::{Doing, Failure};
use crate::harness::flows::{FlowKind, FlowPattern};

const SENDING: &str = "sending a whole array";

/// A rank's edges, and its array.
#[derive(Default)]
pub(super) struct Tree {
    /// To the rank above, with the array.
    up: Option<DeltaSender<f32>>,
    /// From the ranks below, the first to combine first.
    below: Vec<DeltaReceiver<f32>>,
    from_above: Option<DeltaReceiver<f32>>,
    /// To the ranks below, that of the largest branch first.
    down: Vec<DeltaSender<f32>>,
    /// The array of a rank without `up`.
    root: Vec<f32>,
}

impl Tree {
    /// Opens the edges that the pattern needs.
    pub(super) async fn grow(group: &Group, kind: &FlowKind) -> Result<Self, Failure> {
        let (rank, mut tree) = (group.rank(), Self::default());
        let (above, below) = neighbours(rank, kind.nodes);
        let (node, array) = (group.cluster().node(), || vec![f32::NAN; kind.len()]);
        let open = async |to: usize, name: String, array: Vec<f32>| {
            let peer = group.peer(to).await.doing("reaching a neighbour")?;
            let whole = Increment::Fixed(kind.bytes);
            let sender = DeltaSender::open(node, &peer, &name, array, whole).await;
            sender.doing("opening an edge")
        };
        let accept = async |name: String| {
            DeltaReceiver::accept(node, &name, array()).await.doing("accepting an edge")
        };
        // Where computing writes nothing, the array is the source.
        let own = || source_of(rank, kind.len());
        if kind.pattern != FlowPattern::Broadcast {
            if let Some(above) = above {
                tree.up = Some(open(above, format!("whole.up.{rank}"), own()).await?);
            }
            for child in &below {
                tree.below.push(accept(format!("whole.up.{child}")).await?);
            }
        }
        if kind.pattern != FlowPattern::Reduce {
            for &child in below.iter().rev() {
                tree.down.push(open(child, format!("whole.down.{child}"), array()).await?);
            }
            if above.is_some() {
                tree.from_above = Some(accept(format!("whole.down.{rank}")).await?);
            }
        }
        if above.is_none() {
            tree.root = own();
        }
        Ok(tree)
    }

    /// Begins a round at all edges; the first one has begun.
    pub(super) async fn start(&mut self, has_begun: bool) -> Result<(), Failure> {
        if !has_begun {
            return Ok(());
        }
        for receiver in self.below.iter_mut().chain(&mut self.from_above) {
            receiver.start().await.doing("starting to receive a whole array")?;
        }
        for sender in self.down.iter_mut().chain(&mut self.up) {
            sender.start().await.doing("starting to send a whole array")?;
        }
        Ok(())
    }

    /// Computes the own array; in a reduction adds those from below, and sends the sum up.
    pub(super) async fn reduce(
        &mut self,
        kind: &FlowKind,
        source: &[f32],
        pass: Pass,
    ) -> Result<(), Failure> {
        let Some(up) = &mut self.up else {
            return sum(&mut self.below, kind, source, pass, &mut self.root).await;
        };
        let mut own = whole(up)?;
        sum(&mut self.below, kind, source, pass, &mut own).await?;
        own.commit().await.doing(SENDING)?;
        up.finish().await.doing(SENDING)
    }

    /// Passes the root's array down.
    pub(super) async fn broadcast(&mut self) -> Result<(), Failure> {
        let array = match &mut self.from_above {
            Some(above) => above.finish().await.doing("receiving a whole array")?,
            None => &self.root,
        };
        for child in &mut self.down {
            let mut copy = whole(child)?;
            copy.copy_from_slice(array);
            copy.commit().await.doing(SENDING)?;
            child.finish().await.doing(SENDING)?;
        }
        Ok(())
    }

    /// Returns the elements that this rank got: its sum, or what came from above.
    pub(super) fn found(&self) -> &[f32] {
        self.from_above.as_ref().map_or(&self.root, DeltaReceiver::landed)
    }
}

/// Computes the array of a rank, and adds those from below.
async fn sum(
    below: &mut [DeltaReceiver<f32>],
    kind: &FlowKind,
    source: &[f32],
    mut pass: Pass,
    own: &mut [f32],
) -> Result<(), Failure> {
    pass.apply(source, 0..kind.len(), own).await;
    for (index, child) in below.iter_mut().enumerate() {
        let came = child.finish().await.doing("receiving a whole array")?;
        let is_sum = kind.writes() || index > 0;
        let ((), work) = host::working(|| {
            host::spend(Duration::from_nanos((kind.gamma_ns * kind.bytes as f64) as u64));
            combine(own, if is_sum { None } else { Some(source) }, came);
        });
        work.done().await;
    }
    Ok(())
}

/// Hands out the whole array.
fn whole(sender: &mut DeltaSender<f32>) -> Result<Chunk<'_, f32>, Failure> {
    let chunk = sender.next(sender.len()).doing(SENDING)?;
    Ok(chunk.expect("a round hands the array out once"))
}

/// Adds what came to the own array, or writes the sum of `source` and what came there.
fn combine(own: &mut [f32], source: Option<&[f32]>, came: &[f32]) {
    match source {
        None => own.iter_mut().zip(came).for_each(|(own, came)| *own += came),
        Some(source) => {
            let sums = source.iter().zip(came).map(|(own, came)| own + came);
            own.iter_mut().zip(sums).for_each(|(own, sum)| *own = sum);
        }
    }
}

/// Returns the rank above, and those below, the smallest branch first.
fn neighbours(rank: usize, nodes: usize) -> (Option<usize>, Vec<usize>) {
    let lowest = if rank == 0 { nodes.next_power_of_two() } else { 1 << rank.trailing_zeros() };
    let above = (rank > 0).then(|| rank - lowest);
    let steps = (0..usize::BITS).map(|round| 1_usize << round).take_while(|step| *step < lowest);
    (above, steps.map(|step| rank + step).filter(|below| *below < nodes).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rank_is_below_the_one_above_it() {
        for nodes in 1..70 {
            let mut seen = vec![0];
            for rank in 0..nodes {
                for below in neighbours(rank, nodes).1 {
                    assert_eq!(neighbours(below, nodes).0, Some(rank));
                    seen.push(below);
                }
            }
            seen.sort_unstable();
            assert_eq!(seen, (0..nodes).collect::<Vec<_>>());
        }
        assert_eq!(neighbours(0, 7).1, [1, 2, 4]);
    }
}
