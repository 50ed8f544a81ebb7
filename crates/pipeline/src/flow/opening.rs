//! Sets the transfers of a flowing collective up.

use std::future::poll_fn;
use std::ops::Range;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use chunkcomm::Peer;
use chunkcomm::host::memory::{self, FreedVec};
use chunkcomm_cluster::Cluster;
use chunkcomm_cluster::cluster::NodeId;
use chunkcomm_group::layer::{
    Ending, Fated, FlowEnd, FlowReceive, Interest, Manner, Memory, Own, Owner, Pace, PumpHandle,
    Schedule, Sections, Share, Source, Target, Trouble, accept, combining, land_sections, overlap,
    pump, sections, share,
};
use chunkcomm_group::{DeltaRecvError, Element, GroupError, Op, Shape};
use tokio::sync::{oneshot, watch};

use super::Flow;
use super::lane::{Inner, Lane};
use crate::{DeltaReceiver, DeltaSender};

/// Time in which a link usually releases what it sends.
const RELEASE_WAIT: Duration = Duration::from_millis(100);

/// Everything that sets the transfers of a rank up.
pub(super) struct Plan<T: Element> {
    pub(super) cluster: Cluster,
    pub(super) members: Arc<[NodeId]>,
    pub(super) rank: usize,
    /// Beginning of the transfers' names.
    pub(super) name: String,
    /// The call in words, for errors.
    pub(super) title: String,
    pub(super) schedule: Schedule,
    pub(super) op: Option<Op<T>>,
    pub(super) flow: Flow,
    pub(super) has_input: bool,
    /// Elements of the input and of the result, by block. There is a result unless that is empty.
    pub(super) input_blocks: Vec<Range<usize>>,
    pub(super) result_blocks: Vec<Range<usize>>,
    pub(super) has_result: bool,
    /// Memory of the result of each lane, where that is not the caller's.
    pub(super) results: Vec<Vec<T>>,
    /// Block of the result that is this rank's input.
    pub(super) own_block: Option<usize>,
    /// Every round has all elements.
    pub(super) is_whole: bool,
}

/// The ends and lanes of a rank.
pub(super) struct Opened<T: Element> {
    pub(super) sender: Option<DeltaSender<T>>,
    pub(super) receiver: Option<DeltaReceiver<T>>,
    pub(super) lanes: Vec<Lane<T>>,
}

/// The memories of a lane.
struct Memories<T: Element> {
    input: Option<Owner<T>>,
    result: Option<Owner<T>>,
    partial: Option<Owner<T>>,
    /// Of each receive whose blocks a later one makes again.
    steps: Vec<Option<Owner<T>>>,
}

/// The transfers of a lane, each landing by the index of its receive.
#[derive(Default)]
struct Transfers {
    sends: Vec<PumpHandle>,
    landings: Vec<Arc<Interest>>,
    trouble: Arc<Trouble>,
}

/// Waits until a transfer fails.
fn first_fault(transfers: &[Transfers]) -> impl Future<Output = GroupError> + use<> {
    let of = |it: &Transfers| {
        let trouble = Arc::clone(&it.trouble);
        Box::pin(async move {
            let (rank, loss) = trouble.until(|found| found.failed.clone()).await;
            GroupError::Lost { rank, loss }
        })
    };
    let mut faults: Vec<_> = transfers.iter().map(of).collect();
    poll_fn(move |context| {
        let found = faults.iter_mut().map(|it| it.as_mut().poll(context));
        found.reduce(|one, other| if one.is_ready() { one } else { other }).unwrap_or(Poll::Pending)
    })
}

impl<T: Element> Plan<T> {
    /// Opens all transfers. Without success the cause is told by `failed`, and the caller's data come back
    /// after the stop: the transfers stand until the group says why.
    pub(super) async fn open(
        mut self,
        data: Vec<T>,
        mut stopped: watch::Receiver<bool>,
        failed: oneshot::Sender<GroupError>,
    ) -> Result<Opened<T>, Vec<T>> {
        let data = FreedVec(data);
        let mut lanes: Vec<Memories<T>> = Vec::new();
        for _ in 1..self.flow.depth {
            let result = self.results.pop();
            lanes.push(self.memories(memory::copied(&data.0).await, result));
        }
        let result = self.results.pop();
        lanes.insert(0, self.memories(data.into_inner(), result));
        let mut transfers: Vec<_> = lanes.iter().map(|_| Transfers::default()).collect();
        let fault = first_fault(&transfers);
        let opened = tokio::select! {
            biased;
            opened = self.transfers(&lanes, &mut transfers) => opened,
            // A rank may wait for this one before it opens its transfers.
            fault = fault => Err(fault),
            _ = stopped.wait_for(|it| *it) => Err(GroupError::Closed),
        };
        let Err(cause) = opened else { return Ok(self.opened(lanes, transfers)) };
        let _ = failed.send(cause);
        let _ = stopped.wait_for(|it| *it).await;
        let Memories { input, result, partial, steps } = lanes.remove(0);
        drop((transfers, lanes, partial, steps));
        let owner = if self.has_input { input } else { result };
        let owner = owner.expect("it has the caller's data");
        Err(owner.into_vec_or_copy(RELEASE_WAIT).await)
    }

    fn memories(&self, data: Vec<T>, result: Option<Vec<T>>) -> Memories<T> {
        let length = self.result_blocks.iter().map(|it| it.end).max().unwrap_or(0);
        let new = |length| share(bytemuck::zeroed_vec::<T>(length));
        let receives = &self.schedule.receives;
        let is_partial = |it: &FlowReceive| it.into == Memory::Partial;
        let partial = receives.iter().any(is_partial).then(|| new(length));
        let step = |index: usize| {
            let it: &FlowReceive = &receives[index];
            let mut later = receives[index + 1..].iter();
            let again = later.any(|later| later.into == it.into && overlap(it, later));
            let of_blocks = sections(&it.blocks, &self.result_blocks);
            again.then(|| new(of_blocks.iter().map(Range::len).sum()))
        };
        let steps = (0..receives.len()).map(step).collect();
        let (input, result) = match self.has_input {
            true => (Some(share(data)), result.map(share)),
            false => (None, Some(share(data))),
        };
        Memories { input, result, partial, steps }
    }

    /// Opens the sends of all lanes, which waits for nobody, and then accepts what is received.
    async fn transfers(
        &self,
        lanes: &[Memories<T>],
        all: &mut [Transfers],
    ) -> Result<(), GroupError> {
        for (lane, (memories, transfers)) in lanes.iter().zip(&mut *all).enumerate() {
            for (index, send) in self.schedule.sends.iter().enumerate() {
                let place = self.place(memories, send.of, &send.blocks);
                let same = self.schedule.sends[..index].iter().filter(|it| it.to == send.to);
                let name = self.name_of(lane, self.rank, send.to, same.count());
                let of_input = send.of == Memory::Input;
                let end = self.end(transfers, send.to);
                transfers.sends.push(self.send(&name, place, of_input, end).await?);
            }
        }
        for (lane, (memories, transfers)) in lanes.iter().zip(all).enumerate() {
            for (index, receive) in self.schedule.receives.iter().enumerate() {
                let earlier = self.schedule.receives[..index].iter();
                let same = earlier.filter(|it| it.from == receive.from).count();
                let name = self.name_of(lane, receive.from, self.rank, same);
                let end = self.end(transfers, receive.from);
                let landing = self.receive(&name, memories, index, end).await?;
                transfers.landings.push(landing);
            }
        }
        Ok(())
    }

    fn end(&self, transfers: &Transfers, rank: usize) -> FlowEnd {
        FlowEnd { trouble: transfers.trouble.clone(), rank, own: self.rank }
    }

    /// Returns the memory of blocks, and their place in it.
    fn place(
        &self,
        memories: &Memories<T>,
        memory: Memory,
        blocks: &[Range<usize>],
    ) -> (Share<T>, Sections) {
        let (owner, of) = match memory {
            Memory::Input => (&memories.input, &self.input_blocks),
            Memory::Partial => (&memories.partial, &self.result_blocks),
            Memory::Result => (&memories.result, &self.result_blocks),
        };
        let share = owner.as_ref().expect("the schedule has it").share().clone();
        let len = share.len() * size_of::<T>();
        let sections = Sections::of(&sections(blocks, of), size_of::<T>(), len);
        (share, sections)
    }

    async fn send(
        &self,
        name: &str,
        (share, sections): (Share<T>, Sections),
        of_input: bool,
        end: FlowEnd,
    ) -> Result<PumpHandle, GroupError> {
        let (to, peer) = (end.rank, self.peer(end.rank).await?);
        let increment_bytes = self.flow.increment.bytes_for(sections.bytes(), size_of::<T>());
        let pace = Pace::of(self.flow.increment);
        let source = if of_input { Source::Commits } else { Source::Landing };
        let manner = Manner { source, increment_bytes, pace, flow: Some(end), needs_room: true };
        let target = Target { node: self.cluster.node(), peer: &peer, channel: name };
        let started = pump(target, &share, sections, manner, ()).await;
        started.map_err(|error| GroupError::Lost { rank: to, loss: error.into() })
    }

    async fn receive(
        &self,
        name: &str,
        memories: &Memories<T>,
        index: usize,
        end: FlowEnd,
    ) -> Result<Arc<Interest>, GroupError> {
        let receives = &self.schedule.receives;
        let (receive, from, peer) = (&receives[index], end.rank, self.peer(end.rank).await?);
        let step = |index: usize| {
            memories.steps[index].as_ref().map(|step: &Owner<T>| {
                (step.share().clone(), Sections::whole(step.len() * size_of::<T>()))
            })
        };
        let into = step(index);
        let into = into.unwrap_or_else(|| self.place(memories, receive.into, &receive.blocks));
        let combine = receive.combine.zip(self.op.clone()).map(|(side, op)| {
            let earlier = (0..index).rev().find(|it| overlap(&receives[*it], receive));
            let (share, sections) = match earlier {
                Some(earlier) => step(earlier).unwrap_or_else(|| {
                    self.place(memories, receives[earlier].into, &receive.blocks)
                }),
                None => self.place(memories, Memory::Input, &receive.blocks),
            };
            (Own { share, sections }, combining(op, side))
        });
        let shape = Shape::of::<T>(into.1.bytes() / size_of::<T>());
        let accepted = accept(self.cluster.node(), Some(&peer), name, shape).await;
        let lost = |error: DeltaRecvError| GroupError::Lost { rank: from, loss: error.into() };
        let accepted = accepted.map_err(lost)?;
        Ok(land_sections(accepted, name, into, combine, Ending::Flow(end)))
    }

    async fn peer(&self, rank: usize) -> Result<Peer, GroupError> {
        let peer = self.cluster.peer_of(self.members[rank]).await;
        peer.map_err(|loss| GroupError::Lost { rank, loss })
    }

    fn name_of(&self, lane: usize, from: usize, to: usize, number: usize) -> String {
        format!("{}/{lane}/{from}-{to}/{number}", self.name)
    }

    /// Makes the lanes and the program's ends of them.
    fn opened(&self, memories: Vec<Memories<T>>, transfers: Vec<Transfers>) -> Opened<T> {
        let bytes = self.input_blocks.iter().chain(&self.result_blocks).map(|it| it.end).max();
        let bytes = bytes.unwrap_or(0) * size_of::<T>();
        let increment_bytes = self.flow.increment.bytes_for(bytes, size_of::<T>());
        let (mut lanes, mut inputs, mut results) = (Vec::new(), Vec::new(), Vec::new());
        for (memories, transfers) in memories.into_iter().zip(transfers) {
            let Memories { input, result, partial, steps } = memories;
            let Transfers { sends, landings, trouble } = transfers;
            let (fate, _) =
                watch::channel(Fated { landed: 0, increment_bytes, is_over: false, error: None });
            let handle = PumpHandle::of_flow(&fate, &self.title, self.is_whole);
            let mut lane = Lane {
                rank: self.rank,
                input: input.as_ref().map(|it| it.share().clone()),
                result: result.as_ref().map(|it| it.share().clone()),
                inner: Vec::new(),
                landings: Vec::new(),
                sends,
                own_place: self.own_block.map(|block| {
                    let place = &self.result_blocks[block];
                    place.start * size_of::<T>()..place.end * size_of::<T>()
                }),
                trouble,
                fate,
            };
            let mut partial = partial.map(|owner| Inner { owner, landings: Vec::new() });
            for ((landing, step), receive) in
                landings.into_iter().zip(steps).zip(&self.schedule.receives)
            {
                match (step, &mut partial) {
                    (Some(owner), _) => lane.inner.push(Inner { owner, landings: vec![landing] }),
                    (None, Some(partial)) if receive.into == Memory::Partial => {
                        partial.landings.push(landing);
                    }
                    _ => lane.landings.push(landing),
                }
            }
            lane.inner.extend(partial);
            inputs.extend(input.map(|owner| (owner, handle)));
            results.extend(result.map(|owner| (owner, lane.landings.clone())));
            lanes.push(lane);
        }
        let title = &self.title;
        let sender = self.has_input.then(|| DeltaSender::of_flow(inputs));
        let receiver = || DeltaReceiver::of_lanes(results, None, title, increment_bytes);
        Opened { sender, receiver: self.has_result.then(receiver), lanes }
    }
}
