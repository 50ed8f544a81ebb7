//! Schedules of large calls: all transfers at once, ordered by the data that they need alone.
//!
//! A flow has the messages of [`steps`], less their order. Messages between two ranks that go from the
//! same memory into the same memory are one transfer. An element leaves as soon as it stands in the
//! memory that it leaves from, and is received as soon as it has come and its own operand is there.
//!
//! ```text
//! ring all-reduce, rank 2 of 4      from rank 1               to rank 3
//!   input   │ . . 2 . │             1 into partial, combined  2 of input
//!   partial │ 0 1 . . │             0 into partial, combined  1, 0 of partial
//!   result  │ 0 1 2 3 │             3 into result, combined   3, 2, 1 of result
//!                                   2, 1, 0 into result
//! ```

use std::collections::BTreeMap;
use std::ops::Range;

use super::algorithm::Algorithm;
use super::world::World;
use super::{Kind, Of, Step, Take, steps};

#[cfg(test)]
mod tests;

/// Memory of a rank in a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// The rank's own data. Of a gather or all-gather they are one block: the rank's.
    Input,
    /// Combined data that go on.
    Partial,
    /// The rank's result of the call.
    Result,
}

/// Side of the received operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// `received op own`
    Before,
    /// `own op received`
    After,
}

/// All transfers of one rank. The n-th send of a rank to another one is the n-th receive there from
/// it, and has the same blocks (of an all-to-all its own in both).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flow {
    /// Transfers to this rank, in the order of which [`FlowReceive::into`] and `combine` speak.
    pub receives: Vec<FlowReceive>,
    /// Transfers from this rank.
    pub sends: Vec<FlowSend>,
}

/// A transfer to this rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowReceive {
    /// The rank that sends.
    pub from: usize,
    /// The blocks that come, in their order.
    pub blocks: Vec<Range<usize>>,
    /// Where several receives of the list make the same blocks of `Partial` or `Result`, the last one does.
    pub into: Memory,
    /// Combines with what the last earlier receive of the list has made of these blocks, or with `Input`.
    pub combine: Option<Side>,
}

/// A transfer from this rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowSend {
    /// The rank that receives.
    pub to: usize,
    /// The blocks that leave, in their order.
    pub blocks: Vec<Range<usize>>,
    /// The memory that they leave from.
    pub of: Memory,
}

impl Flow {
    /// Lets what leaves from the input leave from the result, where both are one memory.
    pub(crate) fn of_result(mut self) -> Flow {
        self.sends.iter_mut().for_each(|send| send.of = Memory::Result);
        self
    }
}

/// Returns the transfers of a rank; `None` for what [`steps`] refuses and for what does not flow: barriers,
/// exclusive scans, doubling. Of one rank alone it is empty.
pub(crate) fn flow(
    kind: Kind,
    algorithm: Algorithm,
    world: &World,
    commutative: bool,
    rank: usize,
) -> Option<Flow> {
    let flows = algorithm != Algorithm::Doubling;
    let flows = flows && !matches!(kind, Kind::Barrier | Kind::ExclusiveScan);
    if !flows || !kind.takes(algorithm, commutative) {
        return None;
    }
    let mut out = Vec::new();
    let mut messages = |rank| {
        steps(kind, algorithm, world, commutative, rank, &mut out);
        messages(kind, rank, &out)
    };
    // Both ends must divide their messages alike, so each looks at both.
    let mut peers = BTreeMap::new();
    let mut transfers: Vec<Transfer> = Vec::new();
    for end in messages(rank) {
        let theirs: &mut Vec<End> = peers.entry(end.peer).or_insert_with(|| {
            let theirs = messages(end.peer).into_iter();
            theirs.filter(|theirs| theirs.peer == rank).collect()
        });
        let other = theirs.iter().position(|theirs| theirs.sends != end.sends);
        let other = theirs.remove(other.expect("each message has two ends"));
        let alike = transfers.iter_mut().find(|transfer| transfer.is_of(&end, &other));
        match alike {
            Some(transfer) => match transfer.blocks.last_mut() {
                Some(last) if last.end == end.blocks.start => last.end = end.blocks.end,
                _ => transfer.blocks.push(end.blocks),
            },
            None => transfers.push(Transfer { blocks: vec![end.blocks.clone()], end, other }),
        }
    }
    Some(Flow::of(transfers))
}

/// A message as one of its two ranks sees it.
struct End {
    sends: bool,
    peer: usize,
    blocks: Range<usize>,
    memory: Memory,
    combine: Option<Side>,
}

/// Messages that are alike at both ends.
struct Transfer {
    end: End,
    other: End,
    blocks: Vec<Range<usize>>,
}

impl Transfer {
    fn is_of(&self, end: &End, other: &End) -> bool {
        let alike = |a: &End, b: &End| {
            (a.sends, a.peer, a.memory, a.combine) == (b.sends, b.peer, b.memory, b.combine)
        };
        alike(&self.end, end) && alike(&self.other, other)
    }
}

impl Flow {
    fn of(transfers: Vec<Transfer>) -> Self {
        let mut flow = Self::default();
        for Transfer { end: End { sends, peer, memory, combine, .. }, blocks, .. } in transfers {
            if sends {
                flow.sends.push(FlowSend { to: peer, blocks, of: memory });
            } else {
                flow.receives.push(FlowReceive { from: peer, blocks, into: memory, combine });
            }
        }
        flow
    }
}

/// Finds the memory of each message. Blocks of two messages of a rank are equal or disjoint here.
fn messages(kind: Kind, rank: usize, steps: &[Step]) -> Vec<End> {
    // The last receive of a block makes the result, if the rank gets one.
    let gets = |block| match kind {
        Kind::Reduce { root } => rank == root,
        Kind::ReduceScatter => rank == block,
        _ => true,
    };
    let received = |step: &Step| step.receive.as_ref().map(|receive| receive.blocks.start);
    let received = steps.iter().map(received).enumerate();
    let last: BTreeMap<usize, usize> =
        received.filter_map(|(index, block)| Some((block?, index))).collect();
    let mut stands = BTreeMap::new();
    let mut ends = Vec::new();
    for (index, step) in steps.iter().enumerate() {
        if let Some(send) = &step.send {
            let memory = stands.get(&send.blocks.start).copied().unwrap_or(Memory::Input);
            let memory = if send.of == Of::Input { Memory::Input } else { memory };
            let (peer, blocks) = (send.to, send.blocks.clone());
            ends.push(End { sends: true, peer, blocks, memory, combine: None });
        }
        if let Some(receive) = &step.receive {
            let block = receive.blocks.start;
            let makes_result = gets(block) && last[&block] == index;
            let memory = if makes_result { Memory::Result } else { Memory::Partial };
            stands.insert(block, memory);
            let combine = match receive.take {
                Take::Place => None,
                Take::Before => Some(Side::Before),
                Take::After => Some(Side::After),
            };
            let (peer, blocks) = (receive.from, receive.blocks.clone());
            ends.push(End { sends: false, peer, blocks, memory, combine });
        }
    }
    ends
}
