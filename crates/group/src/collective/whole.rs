//! The run of a call.
//!
//! Small data travel step by step, each with whole messages. Where lengths differ from rank to rank they
//! travel first, with the small blocks. Large data [flow](super::flow), behind that.
//!
//! Steps may have much data all the same: of an exclusive scan, or by an algorithm that was set. A poll
//! copies, says and combines a slice of them.

use std::any::Any;
use std::mem;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use chunkcomm::host::memory::{self, Slices, free_vec};

use crate::Element;
use crate::collective::flow::{Buffers, Flowing};
use crate::collective::op::Op;
use crate::collective::parts::Parts;
use crate::element::zeros;
use crate::error::panicked;
use crate::group::error::GroupError;
use crate::group::io::{Heard, Io};
use crate::group::shared::Run;
use crate::proto::schedule::flow::Flow;
use crate::proto::schedule::{Of, ReceiveStep, SendStep, Step, Take};

/// Most bytes of a block that travel with its length: 4 KiB.
const INLINE_BYTES_MAX: usize = 4096;

/// Run of a call.
pub(crate) struct Whole<T: Element> {
    pub(crate) steps: Vec<Step>,
    at: usize,
    progress: Progress,
    /// Whether what is said ahead was said.
    has_sent_ahead: bool,
    slices: Slices,
    /// Rank in the group of each rank of the schedule; `None` where they are the same.
    pub(crate) map: Option<Arc<[usize]>>,
    /// The caller's data.
    pub(crate) input: Vec<T>,
    pub(crate) input_blocks: Vec<Range<usize>>,
    pub(crate) result: Vec<T>,
    /// Memory that the caller has for the result; its elements are overwritten.
    pub(crate) into: Vec<T>,
    /// Places of the blocks in `result`.
    pub(crate) result_blocks: Vec<Range<usize>>,
    /// Lengths of the result's blocks, where they travel with the data. Blocks of more than
    /// [`INLINE_BYTES_MAX`] bytes then follow the steps.
    pub(crate) lengths: Option<Vec<usize>>,
    /// Makes the flow of large blocks, once their lengths are known.
    pub(crate) later: Option<Box<dyn FnOnce() -> Option<Flow> + Send>>,
    pub(crate) flowing: Option<Flowing<T>>,
    /// Whether the data flow: the result is then no copy of the input.
    pub(crate) flows: bool,
    /// Memory of sums in a flow, and of what is combined further there.
    partial: Vec<T>,
    steps_of_flow: Vec<Vec<T>>,
    /// Combined data of an exclusive scan, which are sent in the place of the result.
    pub(crate) running: Option<Vec<T>>,
    /// Elements with which the result begins.
    begins: Option<Begins<T>>,
    /// Rank whose block of the input becomes its block of the result with the flow.
    pub(crate) own: Option<usize>,
    /// Rank whose block of the result is kept apart in the end, and this block.
    pub(crate) keeps: Option<usize>,
    pub(crate) mine: Vec<T>,
    has_result: bool,
    pub(crate) op: Option<Op<T>>,
    /// Data of the step that is being received.
    incoming: Vec<T>,
    counts: Vec<u64>,
    /// Fault in what the caller gave.
    refused: Option<String>,
    /// Reads the result before the call counts as finished.
    pub(crate) read: Option<Read<T>>,
    /// The values, as `read` has made them.
    pub(crate) made: Option<Box<dyn Any + Send>>,
}

/// Reads the result of a call of values, and makes what its caller gets.
pub(crate) type Read<T> =
    Box<dyn FnOnce(&Whole<T>) -> Result<Box<dyn Any + Send>, GroupError> + Send>;

/// Elements with which a result begins.
enum Begins<T> {
    /// The input.
    Input,
    /// This one throughout, and the running data with the input.
    Neutral(T),
}

/// Progress of the present step.
#[derive(Default)]
struct Progress {
    /// Bytes of the data that were said, and whether that is all.
    said: usize,
    sent: bool,
    /// Bytes that have come, of how many elements, and whether that is all.
    filled: usize,
    due: usize,
    came: bool,
    /// Number of elements that have come to their places.
    placed: usize,
}

impl<T: Element> Default for Whole<T> {
    fn default() -> Whole<T> {
        Whole {
            steps: Vec::new(),
            at: 0,
            progress: Progress::default(),
            has_sent_ahead: false,
            slices: Slices::default(),
            map: None,
            input: Vec::new(),
            input_blocks: Vec::new(),
            result: Vec::new(),
            into: Vec::new(),
            result_blocks: Vec::new(),
            lengths: None,
            later: None,
            flowing: None,
            flows: false,
            partial: Vec::new(),
            steps_of_flow: Vec::new(),
            running: None,
            begins: None,
            own: None,
            keeps: None,
            mine: Vec::new(),
            has_result: false,
            op: None,
            incoming: Vec::new(),
            counts: Vec::new(),
            refused: None,
            read: None,
            made: None,
        }
    }
}

impl<T: Element> Whole<T> {
    /// Forgets the last call, but for the memory: `result` is to be overwritten.
    fn reset(&mut self) {
        self.steps.clear();
        free_vec(mem::take(&mut self.input));
        free_vec(mem::take(&mut self.into));
        self.input_blocks.clear();
        self.result_blocks.clear();
        self.counts.clear();
        (self.at, self.progress, self.flows, self.has_result) =
            (0, Progress::default(), false, false);
        self.has_sent_ahead = false;
        (self.lengths, self.later, self.flowing) = (None, None, None);
        (self.map, self.op, self.begins) = (None, None, None);
        (self.own, self.keeps) = (None, None);
        free_vec(self.running.take().unwrap_or_default());
        free_vec(mem::take(&mut self.mine));
        (self.refused, self.read, self.made) = (None, None, None);
    }

    /// Takes the data that the result begins with.
    pub(crate) fn set_result(&mut self, data: Vec<T>) {
        free_vec(mem::replace(&mut self.result, data));
    }

    /// Lets the result begin as a copy of the input, unless they flow.
    pub(crate) fn begin_with_input(&mut self) {
        if !self.flows {
            self.result.clear();
            self.begins = Some(Begins::Input);
        }
    }

    /// Lets the result of an exclusive scan begin with the neutral element, if there is one.
    pub(crate) fn begin_exclusive(&mut self, neutral: Option<T>) {
        if let Some(neutral) = neutral {
            self.begins = Some(Begins::Neutral(neutral));
        }
        self.running = Some(Vec::new());
    }

    /// Makes this rank's block of the input its block of the result: a large one with the flow.
    pub(crate) fn own_block(&mut self, rank: usize) {
        let block = self.input_blocks[rank].clone();
        let is_large = !is_inline::<T>(block.len());
        self.own = is_large.then_some(rank);
        self.result_blocks[rank] = if is_large { 0..0 } else { 0..block.len() };
        self.result.extend_from_slice(if is_large { &[] } else { &self.input[block] });
    }

    /// Begins the result; ready when it is as long as the input.
    fn poll_begin(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Some(begins) = &self.begins else { return Poll::Ready(()) };
        while self.result.len() < self.input.len() {
            let start = self.result.len();
            let slice = &self.input[start..];
            let slice = &slice[..slice.len().min(memory::elements_of_slice::<T>())];
            if start == 0 {
                self.result.reserve_exact(self.input.len());
            }
            match begins {
                Begins::Input => self.result.extend_from_slice(slice),
                Begins::Neutral(neutral) => self.result.resize(start + slice.len(), *neutral),
            }
            let mut bytes = size_of_val(slice);
            if let Some(running) = &mut self.running {
                running.extend_from_slice(slice);
                bytes += bytes;
            }
            ready!(self.slices.poll_worked(context, bytes));
        }
        self.begins = None;
        Poll::Ready(())
    }

    /// Lets the call fail for what its caller gave.
    pub(crate) fn refuse(&mut self, why: String) {
        self.refused = Some(why);
    }

    /// Returns the result's blocks in the order of ranks.
    pub(crate) fn take_parts(&mut self) -> Parts<T> {
        let counts = self.result_blocks.iter().map(Range::len).collect();
        let starts = self.result_blocks.iter().filter(|it| !it.is_empty()).map(|it| it.start);
        let mut data = mem::take(&mut self.into);
        if starts.is_sorted() && data.capacity() == 0 {
            return Parts { data: mem::take(&mut self.result), counts };
        }
        data.clear();
        data.reserve_exact(self.result.len());
        for block in &self.result_blocks {
            data.extend_from_slice(&self.result[block.clone()]);
        }
        Parts { data, counts }
    }

    fn rank(&self, rank: usize) -> usize {
        self.map.as_ref().map_or(rank, |map| map[rank])
    }

    /// Says the data of a step; ready when all are said.
    fn poll_send(&mut self, step: &SendStep, io: &mut Io<'_, '_>) -> Poll<()> {
        let (data, blocks) = match step.of {
            Of::Input => (&self.input, &self.input_blocks),
            Of::Result => (self.running.as_ref().unwrap_or(&self.result), &self.result_blocks),
        };
        let to = self.rank(step.to);
        let range = step.blocks.clone();
        let blocks = &blocks[range.clone()];
        let Some(lengths) = &self.lengths else {
            let body = bytemuck::cast_slice(&data[span(blocks)]);
            let Progress { said, sent, .. } = &mut self.progress;
            while !*sent {
                if io.is_full(to) {
                    return Poll::Pending;
                }
                let piece = io.send_piece(to, body, *said);
                *said += piece;
                *sent = *said == body.len();
                ready!(self.slices.poll_worked(io.context, piece));
            }
            return Poll::Ready(());
        };
        let length = |index: usize, block: &Range<usize>| match step.of {
            Of::Input => block.len(),
            Of::Result => lengths[range.start + index],
        };
        let each = blocks.iter().enumerate().map(|(index, block)| (length(index, block), block));
        let head: Vec<u8> =
            each.clone().flat_map(|(length, _)| (length as u64).to_le_bytes()).collect();
        let inline = each.filter(|(length, _)| is_inline::<T>(*length));
        let body: Vec<T> = inline.flat_map(|(_, block)| &data[block.clone()]).copied().collect();
        io.send(to, &head, bytemuck::cast_slice(&body));
        self.progress.sent = true;
        Poll::Ready(())
    }

    /// Says the lengths of all blocks of the input at once, with the small blocks: they wait for nothing that comes.
    fn send_ahead(&mut self, io: &mut Io<'_, '_>) {
        if self.lengths.is_none() || mem::replace(&mut self.has_sent_ahead, true) {
            return;
        }
        for at in 0..self.steps.len() {
            if let Some(send) = self.steps[at].send.clone().filter(|send| self.is_ahead(send)) {
                let _ = self.poll_send(&send, io);
            }
        }
        self.progress = Progress::default();
    }

    /// Whether the send of a step is among those that are said ahead.
    fn is_ahead(&self, send: &SendStep) -> bool {
        self.lengths.is_some() && send.of == Of::Input
    }

    /// Takes in what has come of a step; ready when that is all.
    fn receive(&mut self, step: &ReceiveStep, io: &mut Io<'_, '_>) -> Poll<Result<(), GroupError>> {
        let from = self.rank(step.from);
        while !self.progress.came {
            let Some(heard) = io.take_data(from) else { return Poll::Pending };
            let taken = self.take_piece(step, &heard);
            if taken.is_none() {
                let why = format!("rank {from} sent data of another length than its call states");
                return Poll::Ready(Err(GroupError::refused(from, why)));
            }
            self.progress.came = heard.left == 0;
            let bytes = heard.payload().len();
            io.give_back(heard);
            ready!(self.slices.poll_worked(io.context, bytes));
        }
        Poll::Ready(Ok(()))
    }

    /// Adds a piece to the data of the step; `None` when it has another length than was said.
    fn take_piece(&mut self, step: &ReceiveStep, heard: &Heard) -> Option<()> {
        let mut payload = heard.payload();
        let left = usize::try_from(heard.left).ok()?;
        let filled = self.progress.filled;
        if filled == 0 {
            self.counts.clear();
            if self.lengths.is_some() {
                let (head, rest) = payload.split_at_checked(step.blocks.len() * 8)?;
                let counts = head.chunks_exact(8);
                let count = |it: &[u8]| u64::from_le_bytes(it.try_into().expect("8 bytes"));
                self.counts.extend(counts.map(count));
                payload = rest;
            }
            let (bytes, due) = (payload.len().checked_add(left)?, self.due(step)?);
            if due.checked_mul(size_of::<T>())? != bytes {
                return None;
            }
            self.progress.due = due;
            self.incoming.clear();
            self.incoming.reserve_exact(due);
        }
        // The memory grows with the bytes that come, which may end within an element.
        let (end, due) = (filled + payload.len(), self.progress.due);
        let elements = end.div_ceil(size_of::<T>());
        if elements > due {
            return None;
        }
        self.incoming.resize(elements, T::zeroed());
        let place = bytemuck::cast_slice_mut::<T, u8>(&mut self.incoming);
        place.get_mut(filled..end)?.copy_from_slice(payload);
        self.progress.filled = end;
        (heard.left > 0 || end == due * size_of::<T>()).then_some(())
    }

    /// Returns the number of elements of a step; at most what a vector can have.
    fn due(&self, step: &ReceiveStep) -> Option<usize> {
        if self.lengths.is_some() {
            let counts = self.counts.iter().map(|it| usize::try_from(*it).ok());
            return counts.map(|it| it.filter(|it| is_inline::<T>(*it)).or(it.map(|_| 0))).sum();
        }
        Some(span(&self.result_blocks[step.blocks.clone()]).len())
    }

    /// Puts the data of a step to their place; ready when all are there.
    fn poll_place(
        &mut self,
        step: &ReceiveStep,
        io: &mut Io<'_, '_>,
    ) -> Poll<Result<(), GroupError>> {
        let Whole { incoming, result, result_blocks, op, running, lengths, .. } = self;
        if let Some(lengths) = lengths {
            let mut from = 0;
            for (block, count) in step.blocks.clone().zip(&self.counts) {
                let (start, length) = (result.len(), *count as usize);
                let count = if is_inline::<T>(length) { length } else { 0 };
                // Recursive doubling brings a rank's own block back to it.
                if result_blocks[block].is_empty() {
                    lengths[block] = length;
                    result.extend_from_slice(&incoming[from..][..count]);
                    result_blocks[block] = start..start + count;
                }
                from += count;
            }
            return Poll::Ready(Ok(()));
        }
        let blocks = span(&result_blocks[step.blocks.clone()]);
        let placed = &mut self.progress.placed;
        while *placed < blocks.len() {
            let slice = *placed..blocks.len().min(*placed + memory::elements_of_slice::<T>());
            let place = &mut result[blocks.clone()][slice.clone()];
            let incoming = &incoming[slice.clone()];
            match (step.take, &*op) {
                (Take::Place, _) | (_, None) => place.copy_from_slice(incoming),
                (take, Some(op)) => {
                    let combine = |into: &mut [T]| match take {
                        Take::Before => op.before(into, incoming),
                        _ => op.after(into, incoming),
                    };
                    let combined = catch_unwind(AssertUnwindSafe(|| {
                        // The running data have all elements, each at its place.
                        if let Some(running) = running {
                            combine(&mut running[blocks.clone()][slice.clone()]);
                        }
                        if running.is_some() && !self.has_result {
                            place.copy_from_slice(incoming);
                        } else {
                            combine(place);
                        }
                    }));
                    let rank = io.rank();
                    combined.map_err(|panic| GroupError::Lost {
                        rank,
                        loss: panicked("the operator", &*panic),
                    })?;
                }
            }
            *placed = slice.end;
            ready!(self.slices.poll_worked(io.context, size_of_val(incoming)));
        }
        self.has_result = true;
        Poll::Ready(Ok(()))
    }
}

impl<T: Element> Drop for Whole<T> {
    fn drop(&mut self) {
        let Whole { input, result, into, partial, mine, incoming, running, .. } = self;
        let running = running.take().unwrap_or_default();
        [input, result, into, partial, mine, incoming]
            .map(mem::take)
            .into_iter()
            .for_each(free_vec);
        free_vec(running);
        mem::take(&mut self.steps_of_flow).into_iter().for_each(free_vec);
    }
}

/// Whether a block of this many elements travels with its length.
fn is_inline<T>(length: usize) -> bool {
    length.saturating_mul(size_of::<T>()) <= INLINE_BYTES_MAX
}

/// Returns `into` with this many elements, or other memory where it is too small, or lacks more than a slice of them.
fn resized<T: Element>(mut into: Vec<T>, length: usize) -> Result<Vec<T>, String> {
    let lacks = length.saturating_sub(into.len());
    if into.capacity() < length || lacks > memory::elements_of_slice::<T>() {
        free_vec(into);
        return zeros(length);
    }
    into.resize(length, T::zeroed());
    Ok(into)
}

/// Returns the range of neighbouring blocks.
fn span(blocks: &[Range<usize>]) -> Range<usize> {
    match (blocks.first(), blocks.last()) {
        (Some(first), Some(last)) => first.start..last.end,
        _ => 0..0,
    }
}

impl<T: Element> Whole<T> {
    /// Gives the blocks their final places, and lets the large ones flow there.
    fn lay_out(&mut self, later: Box<dyn FnOnce() -> Option<Flow> + Send>) -> Result<(), String> {
        let Some(lengths) = &self.lengths else { return Ok(()) };
        let is_large = |length: &usize| !is_inline::<T>(*length);
        let sends_large = self.input_blocks.iter().any(|it| is_large(&it.len()));
        if !sends_large && !lengths.iter().any(is_large) {
            return Ok(());
        }
        let mut end = 0_usize;
        let mut places = Vec::with_capacity(lengths.len());
        for length in lengths {
            let start = end;
            end =
                end.checked_add(*length).ok_or("the lengths of all ranks are beyond all memory")?;
            places.push(start..end);
        }
        let mut there = Vec::new();
        let stays =
            |(place, block): (&Range<usize>, &Range<usize>)| place.is_empty() || place == block;
        let data = if places.iter().zip(&self.result_blocks).all(stays) {
            there.extend(places.iter().filter(|it| !it.is_empty()).cloned());
            mem::take(&mut self.result)
        } else {
            let most = lengths.iter().enumerate().max_by_key(|(_, length)| **length);
            let mut data = resized(mem::take(&mut self.into), end).map_err(|why| match most {
                Some((rank, most)) => {
                    format!("{why}: rank {} states {most} elements", self.rank(rank))
                }
                None => why,
            })?;
            // Those that have come are small.
            for (place, block) in places.iter().zip(&self.result_blocks) {
                if place.len() == block.len() {
                    data[place.clone()].copy_from_slice(&self.result[block.clone()]);
                    there.push(place.clone());
                }
            }
            data
        };
        let own = self.own.map(|own| (self.input_blocks[own].clone(), places[own].clone()));
        let only_large = |blocks: &[Range<usize>]| {
            let large = |it: &Range<usize>| if is_large(&it.len()) { it.clone() } else { 0..0 };
            blocks.iter().map(large).collect::<Vec<_>>()
        };
        let (input_blocks, result_blocks) = (only_large(&self.input_blocks), only_large(&places));
        self.flowing =
            later().map(|flow| Flowing::new(flow, input_blocks, result_blocks, there, None));
        if let Some(flowing) = &mut self.flowing {
            flowing.own = own;
        }
        self.set_result(data);
        self.result_blocks = places;
        Ok(())
    }

    fn poll_flow(&mut self, io: &mut Io<'_, '_>) -> Poll<Result<(), GroupError>> {
        let Whole { flowing, map, input, result, partial, steps_of_flow, .. } = self;
        let Some(running) = flowing else { return Poll::Ready(Ok(())) };
        let rank_of = |rank: usize| map.as_ref().map_or(rank, |map| map[rank]);
        let buffers = || Buffers {
            input: mem::take(input),
            result: mem::take(result),
            partial: mem::take(partial),
            steps: mem::take(steps_of_flow),
        };
        match running.poll(rank_of, io, buffers) {
            Poll::Pending => Poll::Pending,
            Poll::Ready((buffers, outcome)) => {
                *flowing = None;
                self.take_back(buffers);
                Poll::Ready(outcome)
            }
        }
    }

    fn read(&mut self, rank: usize) -> Result<(), GroupError> {
        let Some(read) = self.read.take() else { return Ok(()) };
        let made = catch_unwind(AssertUnwindSafe(|| read(self)));
        let loss = |panic: Box<dyn Any + Send>| panicked("the reading of a value", &*panic);
        let made = made.map_err(|panic| GroupError::Lost { rank, loss: loss(panic) });
        self.made = Some(made??);
        Ok(())
    }

    fn take_back(&mut self, buffers: Buffers<T>) {
        let Buffers { input, result, partial, steps } = buffers;
        (self.input, self.result, self.partial, self.steps_of_flow) =
            (input, result, partial, steps);
    }

    /// Copies the kept block of the result apart; ready when all of it is there.
    fn poll_keep(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Some(keeps) = self.keeps else { return Poll::Ready(()) };
        let block = &self.result[self.result_blocks[keeps].clone()];
        self.mine.reserve_exact(block.len() - self.mine.len());
        while self.mine.len() < block.len() {
            let slice = &block[self.mine.len()..];
            let slice = &slice[..slice.len().min(memory::elements_of_slice::<T>())];
            self.mine.extend_from_slice(slice);
            ready!(self.slices.poll_worked(context, size_of_val(slice)));
        }
        Poll::Ready(())
    }
}

impl<T: Element> Run for Whole<T> {
    fn poll(&mut self, io: &mut Io<'_, '_>) -> Poll<Result<(), GroupError>> {
        if let Some(why) = self.refused.take() {
            return Poll::Ready(Err(GroupError::Input { why }));
        }
        ready!(self.poll_begin(io.context));
        self.send_ahead(io);
        while let Some(step) = self.steps.get(self.at).cloned() {
            let sent = match &step.send {
                Some(send) if !self.progress.sent && !self.is_ahead(send) => {
                    self.poll_send(send, io)
                }
                _ => Poll::Ready(()),
            };
            if let Some(receive) = &step.receive {
                ready!(self.receive(receive, io))?;
            }
            // The send takes the data from before the receive.
            ready!(sent);
            if let Some(receive) = &step.receive {
                ready!(self.poll_place(receive, io))?;
            }
            self.at += 1;
            self.progress = Progress::default();
        }
        if let Some(later) = self.later.take()
            && let Err(why) = self.lay_out(later)
        {
            return Poll::Ready(Err(GroupError::refused(io.rank(), why)));
        }
        ready!(self.poll_flow(io))?;
        ready!(self.poll_keep(io.context));
        Poll::Ready(self.read(io.rank()))
    }

    fn waits_for(&self) -> Option<usize> {
        if let Some(flowing) = &self.flowing {
            return flowing.waits_for();
        }
        let Step { send, receive } = self.steps.get(self.at)?;
        let from = receive.as_ref().filter(|_| !self.progress.came).map(|it| it.from);
        let to =
            send.as_ref().filter(|it| !self.progress.sent && !self.is_ahead(it)).map(|it| it.to);
        from.or(to).map(|rank| self.rank(rank))
    }

    fn stop(&mut self, _cause: &GroupError, io: &mut Io<'_, '_>) -> Poll<()> {
        let Some(flowing) = &mut self.flowing else { return Poll::Ready(()) };
        match flowing.stop(io.context) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(None) => {}
            Poll::Ready(Some(buffers)) => self.take_back(buffers),
        }
        self.flowing = None;
        Poll::Ready(())
    }

    fn is_saying(&self) -> bool {
        self.progress.said > 0 && !self.progress.sent
    }

    fn strip(&mut self, bytes_max: usize) -> Option<usize> {
        self.reset();
        let bytes = |it: &Vec<T>| it.capacity() * size_of::<T>();
        let kept: usize = [&self.result, &self.partial, &self.incoming].map(bytes).iter().sum();
        // These are the first to go.
        let steps: usize = self.steps_of_flow.iter().map(bytes).sum();
        if kept.saturating_add(steps) <= bytes_max {
            return Some(kept + steps);
        }
        self.steps_of_flow.drain(..).for_each(free_vec);
        Some(kept)
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}
