//! A large call: all its transfers begin at once, and each element travels as soon as it can.
//!
//! ```text
//!   regions: input, partial, result      Ready to whom we receive from
//!   landings, each expected          ─▶  one task a call: one transfer an edge of the flow,
//!                                        which begins with Ready from whom we send to
//! ```
//!
//! A transfer goes by a [line](Lines), which stays for the next call.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::ops::Range;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use chunkcomm::host::memory::{self, Slices, free_vec};
use chunkcomm::host::{self, JoinHandle};
use chunkcomm::{LossKind, Peer};
use chunkcomm_cluster::Cluster;
use tokio::sync::{Notify, watch};

use super::op::Op;
use crate::group::error::GroupError;
use crate::group::io::Io;
use crate::landing::{Combine, Due, accept_line};
use crate::proto::schedule::flow::{Flow, FlowReceive, Memory, Side};
use crate::pump::Target;
use crate::region::{Lines, Operand, Region, RegionLanding};
use crate::{DeltaRecvError, DeltaSendError, Element};

/// Bytes of a call's data from which its transfers flow: 64 KiB. Below, whole messages cost less than the
/// opening of a transfer an edge.
pub(crate) const FLOW_BYTES_MIN: usize = 64 * 1024;

/// The buffers of a call.
pub(crate) struct Buffers<T> {
    pub(crate) input: Vec<T>,
    pub(crate) result: Vec<T>,
    /// Memory of sums that go on, kept from call to call.
    pub(crate) partial: Vec<T>,
    /// Memory of what is combined further here, likewise.
    pub(crate) steps: Vec<Vec<T>>,
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
    /// The ranks at the other ends, while they are reached.
    reaching: Option<Reaching>,
    /// Ranks whose memory is not known to be ready, and who is to hear that it is.
    unready: Vec<(usize, watch::Sender<bool>)>,
    running: Option<Running<T>>,
}

type Peers = BTreeMap<usize, Peer>;
type Reaching = Pin<Box<dyn Future<Output = Result<Peers, GroupError>> + Send>>;

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
            reaching: None,
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
        if self.running.is_none() {
            let reaching = self.reaching.get_or_insert_with(|| {
                self.flow.receives.iter_mut().for_each(|it| it.from = rank_of(it.from));
                self.flow.sends.iter_mut().for_each(|it| it.to = rank_of(it.to));
                let mut to: Vec<usize> = self.flow.sends.iter().map(|it| it.to).collect();
                to.sort_unstable();
                to.dedup();
                self.unready = to.into_iter().map(|to| (to, watch::Sender::new(false))).collect();
                reach(&self.flow, io)
            });
            match ready!(reaching.as_mut().poll(io.context)) {
                Ok(peers) => self.start(peers, io, buffers()),
                Err(error) => return Poll::Ready((buffers(), Err(error))),
            }
        }
        self.unready.retain(|(rank, ready)| {
            let is_ready = io.take_ready(*rank);
            ready.send_if_modified(|it| mem::replace(it, is_ready) != is_ready);
            !is_ready
        });
        let running = self.running.as_mut().expect("it was started");
        Pin::new(&mut running.task).poll(io.context).map(|ended| {
            ended.unwrap_or_else(|_| {
                let none =
                    Buffers { input: vec![], result: vec![], partial: vec![], steps: vec![] };
                (none, Err(GroupError::Closed))
            })
        })
    }

    /// Starts the transfers, and says to the ranks from which some come that there is memory for them.
    fn start(&mut self, peers: Peers, io: &mut Io<'_, '_>, buffers: Buffers<T>) {
        self.reaching = None;
        let transfers = Transfers {
            cluster: io.cluster().clone(),
            lines: Arc::clone(io.lines()),
            peers,
            rank: io.rank(),
            call: io.call,
            name: Arc::clone(io.group_name()),
            ready: self.unready.iter().map(|(rank, ready)| (*rank, ready.subscribe())).collect(),
            input_blocks: mem::take(&mut self.input_blocks),
            result_blocks: mem::take(&mut self.result_blocks),
            there: mem::take(&mut self.there),
            own: self.own.take(),
            op: self.op.take(),
            flow: mem::take(&mut self.flow),
        };
        let memories = transfers.memories(buffers);
        let landings = transfers.expect(&memories);
        landings.keys().for_each(|from| io.send_ready(*from));
        let runtime = transfers.cluster.node().runtime().clone();
        let stop = Arc::new(Notify::new());
        let task = host::spawn_on(&runtime, transfers.run(memories, landings, Arc::clone(&stop)));
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
        self.unready.first().map(|(rank, _)| *rank)
    }
}

/// Returns the sessions with the ranks of a flow.
fn reach(flow: &Flow, io: &Io<'_, '_>) -> Reaching {
    let ranks = flow.receives.iter().map(|it| it.from).chain(flow.sends.iter().map(|it| it.to));
    let ranks: BTreeSet<usize> = ranks.collect();
    let (cluster, members) = (io.cluster().clone(), Arc::clone(io.members()));
    Box::pin(async move {
        let mut peers = Peers::new();
        for rank in ranks {
            let peer = cluster.peer_of(members[rank]).await;
            peers.insert(rank, peer.map_err(|loss| GroupError::Lost { rank, loss })?);
        }
        Ok(peers)
    })
}

/// Everything that the task of a call needs.
struct Transfers<T: Element> {
    cluster: Cluster,
    lines: Arc<Lines>,
    peers: Peers,
    rank: usize,
    /// Number of the call.
    call: u64,
    /// Beginning of the lines' names: the group's.
    name: Arc<str>,
    /// Tells whether the memory of a rank is ready.
    ready: BTreeMap<usize, watch::Receiver<bool>>,
    flow: Flow,
    input_blocks: Vec<Range<usize>>,
    result_blocks: Vec<Range<usize>>,
    there: Vec<Range<usize>>,
    own: Option<(Range<usize>, Range<usize>)>,
    op: Option<Op<T>>,
}

/// The memory of a call while its transfers run.
struct Memories<T: Element> {
    input: Region<T>,
    sums: Region<T>,
    result: Region<T>,
    /// Memory for what is combined further here: of each receive whose blocks a later one makes again.
    steps: Vec<Option<Region<T>>>,
    /// Memory of sums that this call does not need.
    spare: Vec<T>,
}

/// The transfers that come, by the ranks from which they do.
type Landings = BTreeMap<usize, Vec<RegionLanding>>;

type End<'a> = Pin<Box<dyn Future<Output = Result<(), GroupError>> + Send + 'a>>;
type Ends<'a> = Vec<End<'a>>;

/// Memory that a receive fills: a region and the sections there.
struct Place<'a, T: Element> {
    region: &'a Region<T>,
    sections: Vec<Range<usize>>,
}

impl<T: Element> Transfers<T> {
    /// Makes regions of the buffers.
    fn memories(&self, buffers: Buffers<T>) -> Memories<T> {
        let Buffers { input, result, mut partial, steps } = buffers;
        let blocks = self.result_blocks.iter().chain(&self.there);
        let blocks = blocks.chain(self.own.iter().map(|(_, place)| place));
        let length = blocks.map(|it| it.end).max().unwrap_or(0);
        let needs_sums = self.flow.sends.iter().any(|it| it.of == Memory::Partial)
            || self.flow.receives.iter().any(|it| it.into == Memory::Partial);
        let sums = if needs_sums { of_length(mem::take(&mut partial), length) } else { Vec::new() };
        Memories {
            input: Region::filled(input),
            sums: Region::new(sums),
            result: filled_in_part(of_length(result, length), &self.there),
            steps: self.steps(steps),
            spare: partial,
        }
    }

    async fn run(
        self,
        memories: Memories<T>,
        landings: Landings,
        stop: Arc<Notify>,
    ) -> (Buffers<T>, Result<(), GroupError>) {
        let outcome = {
            let mut ends = self.ends(&memories, landings);
            let own = self.own.clone();
            ends.extend(own.map(|own| copy_own(&memories.input, &memories.result, own)));
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
        let Memories { input, sums, result, steps, spare } = memories;
        let mut kept = Vec::new();
        // After an error a peer that is cut off may still have a part of one: nobody waits for that.
        for step in steps.into_iter().flatten().filter(|_| outcome.is_ok()) {
            kept.push(step.into_buffer().await);
        }
        let (input, sums) = (input.into_buffer().await, sums.into_buffer().await);
        let result = result.into_buffer().await;
        let partial = if spare.capacity() > 0 { spare } else { sums };
        (Buffers { input, result, partial, steps: kept }, outcome)
    }

    /// Makes memory for what is combined further here, of that which was kept.
    fn steps(&self, kept: Vec<Vec<T>>) -> Vec<Option<Region<T>>> {
        let receives = &self.flow.receives;
        let again = |index: usize| {
            let it: &FlowReceive = &receives[index];
            receives[index + 1..].iter().any(|later| later.into == it.into && overlap(it, later))
        };
        let mut kept = kept.into_iter();
        let step = |index: usize| {
            let bytes = sections(&receives[index].blocks, &self.result_blocks);
            let length = bytes.iter().map(Range::len).sum();
            again(index).then(|| Region::new(of_length(kept.next().unwrap_or_default(), length)))
        };
        let steps = (0..receives.len()).map(step).collect();
        kept.for_each(free_vec);
        steps
    }

    /// Returns the place of blocks in a memory of the call.
    fn place<'a>(
        &self,
        memories: &'a Memories<T>,
        blocks: &[Range<usize>],
        of: Memory,
    ) -> Place<'a, T> {
        let (region, all) = match of {
            Memory::Input => (&memories.input, &self.input_blocks),
            Memory::Partial => (&memories.sums, &self.result_blocks),
            Memory::Result => (&memories.result, &self.result_blocks),
        };
        Place { region, sections: sections(blocks, all) }
    }

    /// Lets all transfers to this rank land.
    fn expect(&self, memories: &Memories<T>) -> Landings {
        let (receives, steps) = (&self.flow.receives, &memories.steps);
        let mut landings = Landings::new();
        for (index, receive) in receives.iter().enumerate() {
            let into = match &steps[index] {
                Some(step) => Place { region: step, sections: whole(step) },
                None => self.place(memories, &receive.blocks, receive.into),
            };
            let combine = receive.combine.map(|side| {
                let earlier = (0..index).rev().find(|it| overlap(&receives[*it], receive));
                let own = match earlier.map(|earlier| (&steps[earlier], &receives[earlier])) {
                    Some((Some(step), _)) => Place { region: step, sections: whole(step) },
                    Some((None, earlier)) => self.place(memories, &receive.blocks, earlier.into),
                    None => self.place(memories, &receive.blocks, Memory::Input),
                };
                (side, own)
            });
            let of_rank = landings.entry(receive.from).or_default();
            of_rank.push(self.expect_one(receive.from, of_rank.len(), into, combine.as_ref()));
        }
        landings
    }

    fn expect_one(
        &self,
        from: usize,
        number: usize,
        Place { region, sections }: Place<'_, T>,
        combine: Option<&(Side, Place<'_, T>)>,
    ) -> RegionLanding {
        let (peer, name) = (&self.peers[&from], self.name_of(from, self.rank));
        let due = Due { from, call: self.call, number: number as u32 };
        let combine = combine.zip(self.op.clone()).map(|((side, own), op)| {
            let own = Operand { region: own.region, sections: &own.sections };
            (own, combining(op, *side))
        });
        let runtime = self.cluster.node().runtime();
        region.expect((&self.lines, due), (peer, &name), &sections, combine, runtime)
    }

    /// Returns all transfers.
    fn ends<'a>(&'a self, memories: &'a Memories<T>, landings: Landings) -> Ends<'a> {
        let sends = &self.flow.sends;
        let mut ends: Ends<'a> = Vec::new();
        for (from, landings) in landings {
            ends.push(Box::pin(self.receive(from, landings)));
        }
        for (index, send) in sends.iter().enumerate() {
            let number = sends[..index].iter().filter(|it| it.to == send.to).count();
            let place = self.place(memories, &send.blocks, send.of);
            ends.push(Box::pin(self.send(send.to, number, place)));
        }
        ends
    }

    async fn send(
        &self,
        to: usize,
        number: usize,
        Place { region, sections }: Place<'_, T>,
    ) -> Result<(), GroupError> {
        // Without its sender the call is over.
        let ready = self.ready[&to].clone().wait_for(|is_ready| *is_ready).await.is_ok();
        if !ready {
            return Err(GroupError::Closed);
        }
        let (peer, name) = (&self.peers[&to], self.name_of(self.rank, to));
        let target = Target { node: self.cluster.node(), peer, channel: &name };
        let which = (self.call, number as u32);
        let sent = region.send_on(&self.lines, target, to, which, &sections).await;
        let fault = |error: DeltaSendError| match error {
            // The other rank is there.
            DeltaSendError::NoRoom { .. } => {
                GroupError::Lost { rank: self.rank, loss: error.into() }
            }
            error => GroupError::Lost { rank: to, loss: error.into() },
        };
        sent.map_err(fault)?.finish().await.map_err(fault)
    }

    /// Waits for the transfers of a rank, and accepts the lines that it opens until all have begun: a rank whose data
    /// have come may leave, while they wait here for another operand.
    async fn receive(
        &self,
        from: usize,
        mut landings: Vec<RegionLanding>,
    ) -> Result<(), GroupError> {
        let fault = |error: DeltaRecvError| match error {
            // Nobody is lost: the operator panicked. Else the other operand does not come, from a rank of
            // which its own transfer says more.
            DeltaRecvError::Combine { ref loss, .. } if loss.kind() == LossKind::Panicked => {
                GroupError::Lost { rank: self.rank, loss: error.into() }
            }
            error => GroupError::Lost { rank: from, loss: error.into() },
        };
        let landed = landings.iter_mut().map(|landing| -> End<'_> {
            Box::pin(async move { landing.finish().await.map_err(fault) })
        });
        let mut landed = pin!(try_all(landed.collect()));
        let (node, peer, name) =
            (self.cluster.node(), &self.peers[&from], self.name_of(from, self.rank));
        let expected = &self.lines.expected;
        while expected.awaits(from, self.call) {
            tokio::select! {
                biased;
                outcome = &mut landed => return outcome,
                accepted = accept_line(node, peer, &name, from, expected) => {
                    // The last of them may have begun on another line meanwhile.
                    if let Err(error) = accepted
                        && expected.awaits(from, self.call)
                    {
                        return Err(fault(error));
                    }
                }
            }
        }
        landed.await
    }

    /// Returns the name of the lines from one rank to another.
    fn name_of(&self, from: usize, to: usize) -> String {
        format!("{}/{from}-{to}", self.name)
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

/// Returns memory of this many elements: `buffer` where it has the room and lacks at most a slice of them, else such
/// of which the system has touched nothing yet.
fn of_length<T: Element>(mut buffer: Vec<T>, length: usize) -> Vec<T> {
    let lacks = length.saturating_sub(buffer.len());
    if buffer.capacity() < length || lacks > memory::elements_of_slice::<T>() {
        free_vec(buffer);
        return bytemuck::zeroed_vec(length);
    }
    buffer.resize(length, T::zeroed());
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
