//! The run of a call.
//!
//! Small data travel step by step, each with whole messages. Where lengths differ from rank to rank they
//! travel first, with the small blocks. Large data [flow](super::flow), behind that.

use std::any::Any;
use std::mem;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Poll, ready};

use crate::Element;
use crate::collective::flow::{Buffers, Flowing};
use crate::collective::op::Op;
use crate::collective::parts::Parts;
use crate::element::zeros;
use crate::error::group::GroupError;
use crate::group::io::{Heard, Io};
use crate::group::shared::Run;
use crate::proto::schedule::flow::Flow;
use crate::proto::schedule::{Of, ReceiveStep, SendStep, Step, Take};
use crate::proto::talk::Kind;

/// Most bytes of a block that travel with its length: 4 KiB.
const INLINE_BYTES_MAX: usize = 4096;

/// Run of a call.
pub(crate) struct Whole<T: Element> {
    pub(crate) steps: Vec<Step>,
    at: usize,
    sent: bool,
    /// Rank in the group of each rank of the schedule; `None` where they are the same.
    pub(crate) map: Option<Arc<[usize]>>,
    /// The caller's data.
    pub(crate) input: Vec<T>,
    pub(crate) input_blocks: Vec<Range<usize>>,
    pub(crate) result: Vec<T>,
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
    /// Memory of sums in a flow.
    partial: Vec<T>,
    /// Combined data of an exclusive scan, which are sent in the place of the result.
    pub(crate) running: Option<Vec<T>>,
    has_result: bool,
    pub(crate) op: Option<Op<T>>,
    /// Data of the step that is being received, and the bytes that are there.
    incoming: Vec<T>,
    filled: usize,
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

impl<T: Element> Default for Whole<T> {
    fn default() -> Whole<T> {
        Whole {
            steps: Vec::new(),
            at: 0,
            sent: false,
            map: None,
            input: Vec::new(),
            input_blocks: Vec::new(),
            result: Vec::new(),
            result_blocks: Vec::new(),
            lengths: None,
            later: None,
            flowing: None,
            flows: false,
            partial: Vec::new(),
            running: None,
            has_result: false,
            op: None,
            incoming: Vec::new(),
            filled: 0,
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
        self.input = Vec::new();
        self.input_blocks.clear();
        self.result_blocks.clear();
        self.counts.clear();
        (self.at, self.sent, self.flows, self.has_result) = (0, false, false, false);
        (self.lengths, self.later, self.flowing) = (None, None, None);
        (self.map, self.running, self.op, self.filled) = (None, None, None, 0);
        (self.refused, self.read, self.made) = (None, None, None);
    }

    /// Lets the result begin as a copy of data, unless they flow.
    pub(crate) fn copy_to_result(&mut self, data: &[T]) {
        if !self.flows {
            self.result.clear();
            self.result.extend_from_slice(data);
        }
    }

    /// Lets the result be a copy of the input.
    pub(crate) fn copy_input_to_result(&mut self) {
        self.result.clone_from(&self.input);
    }

    /// Lets the call fail for what its caller gave.
    pub(crate) fn refuse(&mut self, why: String) {
        self.refused = Some(why);
    }

    /// Returns the result's blocks in the order of ranks.
    pub(crate) fn take_parts(&mut self) -> Parts<T> {
        let counts = self.result_blocks.iter().map(Range::len).collect();
        let starts = self.result_blocks.iter().filter(|it| !it.is_empty()).map(|it| it.start);
        if starts.is_sorted() {
            return Parts { data: mem::take(&mut self.result), counts };
        }
        let mut data = Vec::with_capacity(self.result.len());
        for block in &self.result_blocks {
            data.extend_from_slice(&self.result[block.clone()]);
        }
        Parts { data, counts }
    }

    fn rank(&self, rank: usize) -> usize {
        self.map.as_ref().map_or(rank, |map| map[rank])
    }

    fn send(&self, step: &SendStep, io: &mut Io<'_, '_>) {
        let (data, blocks) = match step.of {
            Of::Input => (&self.input, &self.input_blocks),
            Of::Result => (self.running.as_ref().unwrap_or(&self.result), &self.result_blocks),
        };
        let to = self.rank(step.to);
        let range = step.blocks.clone();
        let blocks = &blocks[range.clone()];
        let Some(lengths) = &self.lengths else {
            io.send(to, &[], bytemuck::cast_slice(&data[span(blocks)]));
            return;
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
    }

    /// Takes in what has come of a step; ready when that is all.
    fn receive(&mut self, step: &ReceiveStep, io: &mut Io<'_, '_>) -> Poll<Result<(), GroupError>> {
        let from = self.rank(step.from);
        while let Some(heard) = io.take(from, Kind::Data) {
            let taken = self.take_piece(step, &heard);
            if taken.is_none() {
                let why = format!("rank {from} sent data of another length than its call states");
                return Poll::Ready(Err(GroupError::Rank { rank: from, why }));
            }
            let is_last = heard.left == 0;
            io.give_back(heard);
            if is_last {
                self.filled = 0;
                return Poll::Ready(self.place(step, io.rank()));
            }
        }
        Poll::Pending
    }

    /// Adds a piece to the data of the step; `None` when it has another length than was said.
    fn take_piece(&mut self, step: &ReceiveStep, heard: &Heard) -> Option<()> {
        let mut payload = heard.payload();
        let left = usize::try_from(heard.left).ok()?;
        if self.filled == 0 {
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
            self.incoming.clear();
            self.incoming.resize(due, T::zeroed());
        }
        let place = bytemuck::cast_slice_mut::<T, u8>(&mut self.incoming);
        place.get_mut(self.filled..)?.get_mut(..payload.len())?.copy_from_slice(payload);
        self.filled += payload.len();
        (heard.left > 0 || self.filled == place_len::<T>(&self.incoming)).then_some(())
    }

    /// Returns the number of elements of a step; at most what a vector can have.
    fn due(&self, step: &ReceiveStep) -> Option<usize> {
        if self.lengths.is_some() {
            let counts = self.counts.iter().map(|it| usize::try_from(*it).ok());
            return counts.map(|it| it.filter(|it| is_inline::<T>(*it)).or(it.map(|_| 0))).sum();
        }
        Some(span(&self.result_blocks[step.blocks.clone()]).len())
    }

    /// Puts the data of a step to their place.
    fn place(&mut self, step: &ReceiveStep, rank: usize) -> Result<(), GroupError> {
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
            return Ok(());
        }
        let place = &mut result[span(&result_blocks[step.blocks.clone()])];
        let first = !mem::replace(&mut self.has_result, true);
        match (step.take, op) {
            (Take::Place, _) | (_, None) => place.copy_from_slice(incoming),
            (take, Some(op)) => {
                let combine = |into: &mut [T]| match take {
                    Take::Before => op.before(into, incoming),
                    _ => op.after(into, incoming),
                };
                let combined = catch_unwind(AssertUnwindSafe(|| {
                    if let Some(running) = running {
                        combine(running);
                    }
                    if running.is_some() && first {
                        place.copy_from_slice(incoming);
                    } else {
                        combine(place);
                    }
                }));
                combined.map_err(|panic| GroupError::Rank {
                    rank,
                    why: panicked("the operator", &*panic),
                })?;
            }
        }
        Ok(())
    }
}

/// Whether a block of this many elements travels with its length.
fn is_inline<T>(length: usize) -> bool {
    length.saturating_mul(size_of::<T>()) <= INLINE_BYTES_MAX
}

fn place_len<T>(data: &[T]) -> usize {
    size_of_val(data)
}

/// Returns the range of neighbouring blocks.
fn span(blocks: &[Range<usize>]) -> Range<usize> {
    match (blocks.first(), blocks.last()) {
        (Some(first), Some(last)) => first.start..last.end,
        _ => 0..0,
    }
}

/// Returns what the panic of a program's own function says.
fn panicked(what: &str, panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|it| (*it).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    format!("{what} panicked: {}", text.unwrap_or_default())
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
        let most = lengths.iter().enumerate().max_by_key(|(_, length)| **length);
        let mut data: Vec<T> = zeros(end).map_err(|why| match most {
            Some((rank, most)) => format!("{why}: rank {} states {most} elements", self.rank(rank)),
            None => why,
        })?;
        let mut there = Vec::new();
        for (place, block) in places.iter().zip(&self.result_blocks) {
            if place.len() == block.len() {
                data[place.clone()].copy_from_slice(&self.result[block.clone()]);
                there.push(place.clone());
            }
        }
        let only_large = |blocks: &[Range<usize>]| {
            let large = |it: &Range<usize>| if is_large(&it.len()) { it.clone() } else { 0..0 };
            blocks.iter().map(large).collect::<Vec<_>>()
        };
        let (input_blocks, result_blocks) = (only_large(&self.input_blocks), only_large(&places));
        self.flowing =
            later().map(|flow| Flowing::new(flow, input_blocks, result_blocks, there, None));
        (self.result, self.result_blocks) = (data, places);
        Ok(())
    }

    fn poll_flow(&mut self, io: &mut Io<'_, '_>) -> Poll<Result<(), GroupError>> {
        let Whole { flowing, map, input, result, partial, .. } = self;
        let Some(running) = flowing else { return Poll::Ready(Ok(())) };
        let rank_of = |rank: usize| map.as_ref().map_or(rank, |map| map[rank]);
        let buffers = || Buffers {
            input: mem::take(input),
            result: mem::take(result),
            partial: mem::take(partial),
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
        let panicked = |panic: Box<dyn Any + Send>| panicked("the reading of a value", &*panic);
        let made = made.map_err(|panic| GroupError::Rank { rank, why: panicked(panic) });
        self.made = Some(made??);
        Ok(())
    }

    fn take_back(&mut self, buffers: Buffers<T>) {
        (self.input, self.result, self.partial) = (buffers.input, buffers.result, buffers.partial);
    }
}

impl<T: Element> Run for Whole<T> {
    fn poll(&mut self, io: &mut Io<'_, '_>) -> Poll<Result<(), GroupError>> {
        if let Some(why) = self.refused.take() {
            return Poll::Ready(Err(GroupError::Input { why }));
        }
        while let Some(step) = self.steps.get(self.at).cloned() {
            if !mem::replace(&mut self.sent, true)
                && let Some(send) = &step.send
            {
                self.send(send, io);
            }
            if let Some(receive) = &step.receive {
                match self.receive(receive, io) {
                    Poll::Ready(Ok(())) => {}
                    other => return other,
                }
            }
            self.at += 1;
            self.sent = false;
        }
        if let Some(later) = self.later.take()
            && let Err(why) = self.lay_out(later)
        {
            return Poll::Ready(Err(GroupError::Rank { rank: io.rank(), why }));
        }
        ready!(self.poll_flow(io))?;
        Poll::Ready(self.read(io.rank()))
    }

    fn waits_for(&self) -> Option<usize> {
        if let Some(flowing) = &self.flowing {
            return flowing.waits_for();
        }
        let receive = self.steps.get(self.at)?.receive.as_ref()?;
        Some(self.rank(receive.from))
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

    fn strip(&mut self) -> Option<usize> {
        self.reset();
        let kept = [&self.result, &self.partial, &self.incoming];
        Some(kept.iter().map(|it| it.capacity() * size_of::<T>()).sum())
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}
