//! The run of a flowing collective in its group: it stands as long as the collective does.

use std::any::Any;
use std::mem;
use std::ops::Range;
use std::pin::Pin;
use std::task::Poll;

use chunkcomm::host::memory::free_vec;
use chunkcomm::host::{self, JoinHandle};
use chunkcomm::{Loss, LossKind};
use chunkcomm_group::layer::{Giver, Io, Run, zeros};
use chunkcomm_group::{Element, GroupError};
use tokio::sync::{oneshot, watch};

use super::lane::{Fault, Lane};
use super::opening::{Opened, Plan};
use crate::{DeltaReceiver, DeltaSender};

/// The program's ends of a collective that was set up, and the number of elements of each rank.
pub(super) struct Ends<T: Element> {
    pub(super) sender: Option<DeltaSender<T>>,
    pub(super) receiver: Option<DeltaReceiver<T>>,
    pub(super) counts: Vec<usize>,
}

impl<T: Element> Run for Ends<T> {
    fn poll(&mut self, _io: &mut Io<'_, '_>) -> Poll<Result<(), GroupError>> {
        Poll::Ready(Ok(()))
    }

    fn waits_for(&self) -> Option<usize> {
        None
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}

/// Elements of each rank, where they are said before the transfers are opened: at the root.
pub(super) struct Counting {
    pub(super) root: usize,
    pub(super) counts: Vec<Option<usize>>,
}

type Open<T> = JoinHandle<Result<Opened<T>, Vec<T>>>;
type Lanes<T> = Vec<(Option<JoinHandle<(Lane<T>, Result<(), Fault>)>>, Option<Lane<T>>)>;

enum Stage<T: Element> {
    /// The ranks say how many elements they have, and that there is memory for those of others.
    New,
    Agreeing,
    /// With the error of the opening, as soon as there is one: the transfers stand until the stop.
    Opening(Open<T>, Option<oneshot::Receiver<GroupError>>),
    /// Each lane is in its task, or has ended.
    Running(Lanes<T>),
}

/// Run of a flowing collective.
pub(super) struct FlowRun<T: Element> {
    giver: Giver,
    plan: Option<Plan<T>>,
    /// The caller's data, until the collective is set up.
    pub(super) data: Vec<T>,
    refused: Option<String>,
    counting: Option<Counting>,
    unready: Vec<usize>,
    stage: Stage<T>,
    /// One a lane: a channel wakes its receivers in no order.
    stops: Vec<watch::Sender<bool>>,
}

impl<T: Element> FlowRun<T> {
    pub(super) fn new(
        giver: Giver,
        plan: Plan<T>,
        data: Vec<T>,
        refused: Option<String>,
        counting: Option<Counting>,
    ) -> Self {
        let (unready, stage) = (Vec::new(), Stage::New);
        let stops = (0..plan.flow.depth).map(|_| watch::Sender::new(false)).collect();
        Self { giver, plan: Some(plan), data, refused, counting, unready, stage, stops }
    }

    /// Says what the others wait for.
    fn say(&mut self, io: &mut Io<'_, '_>) {
        let Some(plan) = &self.plan else { return };
        let own = self.data.len();
        match &mut self.counting {
            Some(Counting { root, counts }) if *root == plan.rank => counts[*root] = Some(own),
            Some(Counting { root, .. }) => {
                io.send(*root, &(own as u64).to_le_bytes(), &[]);
                self.counting = None;
            }
            None => {}
        }
        let unique = |ranks: &mut Vec<usize>| {
            ranks.sort_unstable();
            ranks.dedup();
        };
        let mut from: Vec<usize> = plan.schedule.receives.iter().map(|it| it.from).collect();
        unique(&mut from);
        from.into_iter().for_each(|from| io.send_ready(from));
        self.unready = plan.schedule.sends.iter().map(|it| it.to).collect();
        unique(&mut self.unready);
    }

    /// Takes in what others have said; returns whether that is all.
    fn hear(&mut self, io: &mut Io<'_, '_>) -> Result<bool, GroupError> {
        self.unready.retain(|rank| !io.take_ready(*rank));
        if let Some(Counting { counts, .. }) = &mut self.counting {
            for (rank, count) in counts.iter_mut().enumerate().filter(|it| it.1.is_none()) {
                let Some(heard) = io.take_data(rank) else { continue };
                let said = heard.payload().try_into().ok().map(u64::from_le_bytes);
                *count = said.and_then(|said| usize::try_from(said).ok());
                io.give_back(heard);
                if count.is_none() {
                    let why = "its number of elements is not readable";
                    return Err(refused(rank, why));
                }
            }
        }
        let counted = |it: &Counting| it.counts.iter().all(Option::is_some);
        Ok(self.unready.is_empty() && self.counting.as_ref().is_none_or(counted))
    }

    /// Begins to open the transfers.
    fn open(&mut self, io: &Io<'_, '_>) -> Result<(), GroupError> {
        let mut plan = self.plan.take().expect("it opens once");
        if let Some(Counting { counts, .. }) = &self.counting {
            let mut end = 0_usize;
            plan.result_blocks.clear();
            for count in counts.iter().flatten() {
                let start = end;
                let bytes = end.checked_add(*count).filter(|it| fits::<T>(*it));
                let why = "the elements of all ranks are beyond all memory";
                end = bytes.ok_or_else(|| refused(plan.rank, why))?;
                plan.result_blocks.push(start..end);
            }
            let blocks = &plan.result_blocks;
            plan.schedule.receives.retain(|it| has_some(&it.blocks, blocks));
        }
        if plan.has_input && plan.has_result {
            let length = plan.result_blocks.iter().map(|it| it.end).max().unwrap_or(0);
            let results: Result<_, String> = (0..self.stops.len()).map(|_| zeros(length)).collect();
            let rank = plan.rank;
            plan.results = results.map_err(|why| refused(rank, why))?;
        }
        plan.name = format!("{}/{}", io.group_name(), io.call);
        plan.title = format!("call {}, {}", io.call, plan.title);
        let runtime = plan.cluster.node().runtime().clone();
        let (failed, cause) = oneshot::channel();
        let opening = plan.open(mem::take(&mut self.data), self.stops[0].subscribe(), failed);
        self.stage = Stage::Opening(host::spawn_on(&runtime, opening), Some(cause));
        Ok(())
    }

    /// Gives the program its ends, and starts the lanes.
    fn start(&mut self, opened: Opened<T>, io: &Io<'_, '_>) {
        let Opened { sender, receiver, lanes } = opened;
        let runtime = io.cluster().node().runtime();
        let tasks = lanes
            .into_iter()
            .zip(&self.stops)
            .map(|(lane, stop)| (Some(host::spawn_on(runtime, lane.run(stop.subscribe()))), None));
        self.stage = Stage::Running(tasks.collect());
        self.give(sender, receiver, io);
    }

    fn give(
        &mut self,
        sender: Option<DeltaSender<T>>,
        receiver: Option<DeltaReceiver<T>>,
        io: &Io<'_, '_>,
    ) {
        let counts = self.counting.take().into_iter().flat_map(|it| it.counts).flatten().collect();
        let ends = Box::new(Ends { sender, receiver, counts });
        self.giver.give(io.call, ends);
    }

    /// Ready when all lanes have ended, or one of them because the group breaks.
    fn poll_lanes(&mut self, io: &mut Io<'_, '_>) -> Poll<Result<(), GroupError>> {
        let Stage::Running(lanes) = &mut self.stage else { return Poll::Ready(Ok(())) };
        let mut is_pending = false;
        for (task, kept) in lanes {
            let Some(running) = task else { continue };
            let Poll::Ready(ended) = Pin::new(running).poll(io.context) else {
                is_pending = true;
                continue;
            };
            *task = None;
            match ended {
                Ok((mut lane, Ok(()))) => {
                    let why = "its program has dropped an end of the collective";
                    lane.fail(&left(io.rank(), why));
                }
                Ok((mut lane, Err(Fault::Left(rank)))) => {
                    lane.fail(&left(rank, "it has ended the collective"));
                }
                // The transfers stand until the group says why.
                Ok((lane, Err(Fault::Broken(error)))) => {
                    *kept = Some(lane);
                    return Poll::Ready(Err(error));
                }
                Err(_) => return Poll::Ready(Err(GroupError::Closed)),
            }
        }
        if is_pending { Poll::Pending } else { Poll::Ready(Ok(())) }
    }
}

/// Ready with the error of an opening.
fn poll_failed(
    failed: &mut Option<oneshot::Receiver<GroupError>>,
    io: &mut Io<'_, '_>,
) -> Poll<Result<(), GroupError>> {
    let Some(receiver) = failed else { return Poll::Pending };
    let Poll::Ready(told) = Pin::new(receiver).poll(io.context) else { return Poll::Pending };
    *failed = None;
    told.map_or(Poll::Pending, |cause| Poll::Ready(Err(cause)))
}

fn refused(rank: usize, why: impl Into<String>) -> GroupError {
    GroupError::Lost { rank, loss: Loss::new(LossKind::Refused, why) }
}

fn left(rank: usize, why: &str) -> GroupError {
    GroupError::Lost { rank, loss: Loss::new(LossKind::Left, why) }
}

/// Whether as many elements fit into a vector.
fn fits<T>(count: usize) -> bool {
    count.checked_mul(size_of::<T>()).is_some_and(|bytes| isize::try_from(bytes).is_ok())
}

/// Whether one of these blocks has elements.
pub(super) fn has_some(blocks: &[Range<usize>], of: &[Range<usize>]) -> bool {
    blocks.iter().flat_map(|it| &of[it.clone()]).any(|it| !it.is_empty())
}

impl<T: Element> Run for FlowRun<T> {
    fn poll(&mut self, io: &mut Io<'_, '_>) -> Poll<Result<(), GroupError>> {
        if let Some(why) = self.refused.take() {
            return Poll::Ready(Err(GroupError::Input { why }));
        }
        loop {
            match &mut self.stage {
                Stage::New => {
                    self.say(io);
                    self.stage = Stage::Agreeing;
                }
                Stage::Agreeing => match self.hear(io) {
                    Ok(true) => self.open(io)?,
                    Ok(false) => return Poll::Pending,
                    Err(error) => return Poll::Ready(Err(error)),
                },
                Stage::Opening(task, failed) => match Pin::new(task).poll(io.context) {
                    Poll::Pending => return poll_failed(failed, io),
                    Poll::Ready(Ok(Ok(opened))) => self.start(opened, io),
                    Poll::Ready(Ok(Err(_)) | Err(_)) => {
                        self.stage = Stage::Running(Vec::new());
                        return Poll::Ready(Err(GroupError::Closed));
                    }
                },
                Stage::Running(_) => return self.poll_lanes(io),
            }
        }
    }

    fn waits_for(&self) -> Option<usize> {
        let uncounted = |it: &Counting| it.counts.iter().position(Option::is_none);
        let is_agreeing = matches!(self.stage, Stage::Agreeing);
        let first = self.unready.first().copied();
        first.or_else(|| self.counting.as_ref().and_then(uncounted)).filter(|_| is_agreeing)
    }

    fn stop(&mut self, cause: &GroupError, io: &mut Io<'_, '_>) -> Poll<()> {
        for stop in &self.stops {
            stop.send_replace(true);
        }
        match &mut self.stage {
            Stage::New | Stage::Agreeing => {}
            Stage::Opening(task, _) => match Pin::new(task).poll(io.context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(Err(data))) => self.data = data,
                Poll::Ready(Ok(Ok(mut opened))) => {
                    // The ends have the caller's data.
                    opened.lanes.iter_mut().for_each(|it| it.fail(cause));
                    self.give(opened.sender, opened.receiver, io);
                }
                Poll::Ready(Err(_)) => {}
            },
            Stage::Running(lanes) => {
                for (task, kept) in lanes {
                    if let Some(running) = task {
                        let Poll::Ready(ended) = Pin::new(running).poll(io.context) else {
                            return Poll::Pending;
                        };
                        (*task, *kept) = (None, ended.ok().map(|it| it.0));
                    }
                    kept.take().iter_mut().for_each(|lane| lane.fail(cause));
                }
            }
        }
        self.stage = Stage::Running(Vec::new());
        Poll::Ready(())
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}

impl<T: Element> Drop for FlowRun<T> {
    fn drop(&mut self) {
        free_vec(mem::take(&mut self.data));
        for stop in &self.stops {
            stop.send_replace(true);
        }
    }
}
