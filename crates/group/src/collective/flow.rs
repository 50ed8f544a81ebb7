//! A large call: all its transfers begin at once, and each element travels as soon as it can.
//!
//! ```text
//!   Ready to whom we receive from     once both are there:   regions: input, partial, result
//!   Ready from whom we send to    ─▶  one task a call    ─▶  one transfer an edge of the flow
//! ```

use std::ops::Range;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use chunkcomm::LossKind;
use chunkcomm::host::memory::{self, Slices, free_vec};
use chunkcomm::host::{self, JoinHandle};
use chunkcomm_cluster::Cluster;
use chunkcomm_cluster::cluster::NodeId;
use tokio::sync::Notify;

use super::op::Op;
use crate::group::error::GroupError;
use crate::group::io::Io;
use crate::landing::Combine;
use crate::proto::schedule::flow::{Flow, FlowReceive, Memory, Side};
use crate::pump::Target;
use crate::region::{Operand, Region};
use crate::{DeltaRecvError, DeltaSendError, Element, Increment};

/// Bytes of a call's data from which its transfers flow: 64 KiB. Below, whole messages cost less than the
/// opening of a transfer an edge.
pub(crate) const FLOW_BYTES_MIN: usize = 64 * 1024;

/// The buffers of a call.
pub(crate) struct Buffers<T> {
    pub(crate) input: Vec<T>,
    pub(crate) result: Vec<T>,
    /// Memory of sums that go on, kept from call to call.
    pub(crate) partial: Vec<T>,
}

/// The transfers of a rank, before and while they run.
pub(crate) struct Flowing<T: Element> {
    flow: Flow,
    /// Sections of each memory by block.
    input_blocks: Vec<Range<usize>>,
    result_blocks: Vec<Range<usize>>,
    /// Blocks of the result that are there from the start.
    there: Vec<Range<usize>>,
    /// Elements of the input, and their place in the result, to which they are copied.
    pub(crate) own: Option<(Range<usize>, Range<usize>)>,
    op: Option<Op<T>>,
    has_said: bool,
    /// Ranks whose memory is not known to be ready.
    unready: Vec<usize>,
    running: Option<Running<T>>,
}

struct Running<T> {
    task: JoinHandle<(Buffers<T>, Result<(), GroupError>)>,
    stop: Arc<Notify>,
}

impl<T: Element> Flowing<T> {
    pub(crate) fn new(
        flow: Flow,
        input_blocks: Vec<Range<usize>>,
        result_blocks: Vec<Range<usize>>,
        there: Vec<Range<usize>>,
        op: Option<Op<T>>,
    ) -> Flowing<T> {
        let Flow { mut receives, mut sends } = flow;
        let has_some = |blocks: &[Range<usize>], of: &[Range<usize>]| {
            blocks.iter().flat_map(|it| &of[it.clone()]).any(|it| !it.is_empty())
        };
        receives.retain(|it| has_some(&it.blocks, &result_blocks));
        sends.retain(|it| match it.of {
            Memory::Input => has_some(&it.blocks, &input_blocks),
            _ => has_some(&it.blocks, &result_blocks),
        });
        Flowing {
            flow: Flow { receives, sends },
            input_blocks,
            result_blocks,
            there,
            own: None,
            op,
            has_said: false,
            unready: Vec::new(),
            running: None,
        }
    }

    /// Goes on; ready with the buffers when all transfers are over.
    pub(crate) fn poll(
        &mut self,
        rank_of: impl Fn(usize) -> usize,
        io: &mut Io<'_, '_>,
        buffers: impl FnOnce() -> Buffers<T>,
    ) -> Poll<(Buffers<T>, Result<(), GroupError>)> {
        if !self.has_said {
            self.has_said = true;
            let mut from: Vec<usize> = self.flow.receives.iter().map(|it| it.from).collect();
            from.sort_unstable();
            from.dedup();
            from.into_iter().for_each(|from| io.send_ready(rank_of(from)));
            self.unready = self.flow.sends.iter().map(|it| rank_of(it.to)).collect();
            self.unready.sort_unstable();
            self.unready.dedup();
        }
        self.unready.retain(|rank| !io.take_ready(*rank));
        if self.running.is_none() {
            if !self.unready.is_empty() {
                return Poll::Pending;
            }
            self.start(rank_of, io, buffers());
        }
        let running = self.running.as_mut().expect("it was started");
        Pin::new(&mut running.task).poll(io.context).map(|ended| {
            ended.unwrap_or_else(|_| {
                let none = Buffers { input: vec![], result: vec![], partial: vec![] };
                (none, Err(GroupError::Closed))
            })
        })
    }

    fn start(&mut self, rank_of: impl Fn(usize) -> usize, io: &Io<'_, '_>, buffers: Buffers<T>) {
        let mut flow = std::mem::take(&mut self.flow);
        flow.receives.iter_mut().for_each(|it| it.from = rank_of(it.from));
        flow.sends.iter_mut().for_each(|it| it.to = rank_of(it.to));
        let cluster = io.cluster().clone();
        let runtime = cluster.node().runtime().clone();
        let transfers = Transfers {
            cluster,
            members: Arc::clone(io.members()),
            rank: io.rank(),
            name: format!("{}/{}", io.group_name(), io.call),
            input_blocks: std::mem::take(&mut self.input_blocks),
            result_blocks: std::mem::take(&mut self.result_blocks),
            there: std::mem::take(&mut self.there),
            own: self.own.take(),
            op: self.op.take(),
            flow,
        };
        let stop = Arc::new(Notify::new());
        let stopped = Arc::clone(&stop);
        let task = host::spawn_on(&runtime, transfers.run(buffers, stopped));
        self.running = Some(Running { task, stop });
    }

    /// Stops the transfers; ready with the buffers once nobody uses them, without them if they were never
    /// given.
    pub(crate) fn stop(&mut self, context: &mut Context<'_>) -> Poll<Option<Buffers<T>>> {
        let Some(running) = &mut self.running else { return Poll::Ready(None) };
        running.stop.notify_one();
        Pin::new(&mut running.task).poll(context).map(|ended| ended.ok().map(|it| it.0))
    }

    /// Returns the rank whose memory is waited for.
    pub(crate) fn waits_for(&self) -> Option<usize> {
        self.unready.first().copied()
    }
}

/// Everything that the task of a call needs.
struct Transfers<T: Element> {
    cluster: Cluster,
    members: Arc<[NodeId]>,
    rank: usize,
    /// Beginning of the transfers' names.
    name: String,
    flow: Flow,
    input_blocks: Vec<Range<usize>>,
    result_blocks: Vec<Range<usize>>,
    there: Vec<Range<usize>>,
    own: Option<(Range<usize>, Range<usize>)>,
    op: Option<Op<T>>,
}

type End<'a> = Pin<Box<dyn Future<Output = Result<(), GroupError>> + Send + 'a>>;
type Ends<'a> = Vec<End<'a>>;

/// Memory that a receive fills: a region and the sections there.
struct Place<'a, T: Element> {
    region: &'a Region<T>,
    sections: Vec<Range<usize>>,
}

impl<T: Element> Transfers<T> {
    async fn run(
        self,
        buffers: Buffers<T>,
        stop: Arc<Notify>,
    ) -> (Buffers<T>, Result<(), GroupError>) {
        let Buffers { input, result, mut partial } = buffers;
        let blocks = self.result_blocks.iter().chain(&self.there);
        let blocks = blocks.chain(self.own.iter().map(|(_, place)| place));
        let length = blocks.map(|it| it.end).max().unwrap_or(0);
        let result = of_length(result, length).await;
        let is_used = |memory| {
            self.flow.sends.iter().any(|it| it.of == memory)
                || self.flow.receives.iter().any(|it| it.into == memory)
        };
        let sums = if is_used(Memory::Partial) {
            of_length(std::mem::take(&mut partial), length).await
        } else {
            Vec::new()
        };
        let input = Region::filled(input);
        let result = filled_in_part(result, &self.there);
        let sums = Region::new(sums);
        let steps = self.steps();
        let outcome = {
            let mut ends = self.ends(&input, &sums, &result, &steps);
            ends.extend(self.own.clone().map(|own| copy_own(&input, &result, own)));
            let mut all = pin!(try_all(ends));
            let mut stopped = pin!(stop.notified());
            std::future::poll_fn(|context| {
                if stopped.as_mut().poll(context).is_ready() {
                    return Poll::Ready(Err(GroupError::Closed));
                }
                all.as_mut().poll(context)
            })
            .await
        };
        drop(steps);
        let (input, sums) = (input.into_buffer().await, sums.into_buffer().await);
        let result = result.into_buffer().await;
        if is_used(Memory::Partial) {
            partial = sums;
        }
        (Buffers { input, result, partial }, outcome)
    }

    /// Makes memory for what is combined further here: of each receive whose blocks a later one makes
    /// again.
    fn steps(&self) -> Vec<Option<Region<T>>> {
        let receives = &self.flow.receives;
        let again = |index: usize| {
            let it: &FlowReceive = &receives[index];
            receives[index + 1..].iter().any(|later| later.into == it.into && overlap(it, later))
        };
        let step = |index: usize| {
            let bytes = sections(&receives[index].blocks, &self.result_blocks);
            let length = bytes.iter().map(Range::len).sum();
            again(index).then(|| Region::new(bytemuck::zeroed_vec(length)))
        };
        (0..receives.len()).map(step).collect()
    }

    /// Returns all transfers.
    fn ends<'a>(
        &'a self,
        input: &'a Region<T>,
        partial: &'a Region<T>,
        result: &'a Region<T>,
        steps: &'a [Option<Region<T>>],
    ) -> Ends<'a> {
        let Flow { receives, sends } = &self.flow;
        let memory = |memory| match memory {
            Memory::Input => (input, &self.input_blocks),
            Memory::Partial => (partial, &self.result_blocks),
            Memory::Result => (result, &self.result_blocks),
        };
        let place = |of: &[Range<usize>], it| {
            let (region, blocks) = memory(it);
            Place { region, sections: sections(of, blocks) }
        };
        let mut ends: Ends<'a> = Vec::new();
        for (index, receive) in receives.iter().enumerate() {
            let number = receives[..index].iter().filter(|it| it.from == receive.from).count();
            let into = match &steps[index] {
                Some(step) => Place { region: step, sections: whole(step) },
                None => place(&receive.blocks, receive.into),
            };
            let combine = receive.combine.map(|side| {
                let earlier = (0..index).rev().find(|it| overlap(&receives[*it], receive));
                let own = match earlier.map(|earlier| (&steps[earlier], &receives[earlier])) {
                    Some((Some(step), _)) => Place { region: step, sections: whole(step) },
                    Some((None, earlier)) => place(&receive.blocks, earlier.into),
                    None => place(&receive.blocks, Memory::Input),
                };
                (side, own)
            });
            ends.push(Box::pin(self.receive(receive.from, number, into, combine)));
        }
        for (index, send) in sends.iter().enumerate() {
            let number = sends[..index].iter().filter(|it| it.to == send.to).count();
            ends.push(Box::pin(self.send(send.to, number, place(&send.blocks, send.of))));
        }
        ends
    }

    async fn send(
        &self,
        to: usize,
        number: usize,
        Place { region, sections }: Place<'_, T>,
    ) -> Result<(), GroupError> {
        let (peer, name) = (self.peer(to).await?, self.name_of(self.rank, to, number));
        let node = self.cluster.node();
        let target = Target { node, peer: &peer, channel: &name };
        let sent = region.send_to(target, &sections, Increment::default(), true).await;
        let fault = |error: DeltaSendError| match error {
            // The other rank is there.
            DeltaSendError::NoRoom { .. } => {
                GroupError::Lost { rank: self.rank, loss: error.into() }
            }
            error => GroupError::Lost { rank: to, loss: error.into() },
        };
        sent.map_err(fault)?.finish().await.map_err(fault)
    }

    async fn receive(
        &self,
        from: usize,
        number: usize,
        into: Place<'_, T>,
        combine: Option<(Side, Place<'_, T>)>,
    ) -> Result<(), GroupError> {
        let (peer, name) = (self.peer(from).await?, self.name_of(from, self.rank, number));
        let (node, Place { region, sections }) = (self.cluster.node(), into);
        let landing = match (combine, self.op.clone()) {
            (Some((side, own)), Some(op)) => {
                let own = Operand { region: own.region, sections: &own.sections };
                region.combine_with(node, &peer, &name, &sections, own, combining(op, side)).await
            }
            _ => region.land(node, &peer, &name, &sections).await,
        };
        let fault = |error: DeltaRecvError| match error {
            // Nobody is lost: the operator panicked. Else the other operand does not come, from a rank of
            // which its own transfer says more.
            DeltaRecvError::Combine { ref loss, .. } if loss.kind() == LossKind::Panicked => {
                GroupError::Lost { rank: self.rank, loss: error.into() }
            }
            error => GroupError::Lost { rank: from, loss: error.into() },
        };
        landing.map_err(fault)?.finish().await.map_err(fault)
    }

    async fn peer(&self, rank: usize) -> Result<chunkcomm::Peer, GroupError> {
        let peer = self.cluster.peer_of(self.members[rank]).await;
        peer.map_err(|loss| GroupError::Lost { rank, loss })
    }

    fn name_of(&self, from: usize, to: usize, number: usize) -> String {
        format!("{}/{from}-{to}/{number}", self.name)
    }
}

/// Returns what combines the elements that came with those of this rank, which stand at this side of the
/// operator. A program's own function does not run between two reads of the link.
pub fn combining<T: Element>(op: Op<T>, side: Side) -> Combine<T> {
    let in_driver = op.is_built_in();
    let apply = Box::new(move |out: &mut [T], own: &[T]| match side {
        Side::Before => op.after(out, own),
        Side::After => op.before(out, own),
    });
    Combine { apply, in_driver }
}

/// Whether two receives make the same blocks.
pub fn overlap(one: &FlowReceive, other: &FlowReceive) -> bool {
    let meet = |a: &Range<usize>, b: &Range<usize>| a.start < b.end && b.start < a.end;
    one.blocks.iter().any(|a| other.blocks.iter().any(|b| meet(a, b)))
}

fn whole<T: Element>(region: &Region<T>) -> Vec<Range<usize>> {
    let all = 0..region.len();
    vec![all]
}

/// Returns the sections of blocks, those that are empty left out.
pub fn sections(blocks: &[Range<usize>], of: &[Range<usize>]) -> Vec<Range<usize>> {
    let mut sections: Vec<Range<usize>> = Vec::new();
    for block in blocks.iter().flat_map(|it| &of[it.clone()]).filter(|it| !it.is_empty()) {
        match sections.last_mut() {
            Some(last) if last.end == block.start => last.end = block.end,
            _ => sections.push(block.clone()),
        }
    }
    sections
}

/// Returns memory of this many elements: `buffer` where it has the room, else such of which the system has
/// touched nothing yet.
async fn of_length<T: Element>(mut buffer: Vec<T>, length: usize) -> Vec<T> {
    if buffer.capacity() < length {
        free_vec(buffer);
        return bytemuck::zeroed_vec(length);
    }
    buffer.truncate(length);
    let mut slices = Slices::default();
    while buffer.len() < length {
        let more = (length - buffer.len()).min(memory::elements_of_slice::<T>());
        buffer.resize(buffer.len() + more, T::zeroed());
        slices.worked(more * size_of::<T>()).await;
    }
    buffer
}

/// Copies a rank's own elements to their place in its result, while others come.
fn copy_own<'a, T: Element>(
    input: &'a Region<T>,
    result: &'a Region<T>,
    (own, place): (Range<usize>, Range<usize>),
) -> End<'a> {
    Box::pin(async move {
        let own = input.done(own).expect("all of the input is done");
        let (mut slices, mut start) = (Slices::default(), place.start);
        for slice in own.chunks(memory::elements_of_slice::<T>()) {
            let part = result.part(start..start + slice.len());
            let mut part = part.expect("nothing else comes to this place");
            part.copy_from_slice(slice);
            part.commit();
            start += slice.len();
            slices.worked(size_of_val(slice)).await;
        }
        Ok(())
    })
}

/// Makes a region in which these elements are done.
fn filled_in_part<T: Element>(buffer: Vec<T>, there: &[Range<usize>]) -> Region<T> {
    let all = buffer.len();
    if let [only] = there
        && only.len() == all
    {
        return Region::filled(buffer);
    }
    let region = Region::new(buffer);
    for range in there.iter().filter(|it| !it.is_empty()) {
        // The memory holds them already.
        region.part(range.clone()).expect("the region is new").commit();
    }
    region
}

/// Waits for all, or for the first error.
async fn try_all(mut all: Ends<'_>) -> Result<(), GroupError> {
    std::future::poll_fn(|context| {
        let mut index = 0;
        while index < all.len() {
            match all[index].as_mut().poll(context) {
                Poll::Ready(Ok(())) => drop(all.swap_remove(index)),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => index += 1,
            }
        }
        if all.is_empty() { Poll::Ready(Ok(())) } else { Poll::Pending }
    })
    .await
}
