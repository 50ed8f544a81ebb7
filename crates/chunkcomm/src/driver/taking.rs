//! The receiver's side of a channel: the runs that it took from the inbox, and the messages in
//! them.
//!
//! ```text
//!   inbox ──▶ runs ──▶ current: | message | message | message |
//!   (RxShared)                   taken      ▲ at
//!
//!   current used up ──▶ its messages count as consumed ──▶ the inbox's next run
//!   nothing left    ──▶ Empty, or Ended once the channel has ended
//! ```
//!
//! | a run | holds | a message of it is |
//! |---|---|---|
//! | `Copied` | small messages | borrowed |
//! | `Shared` | small messages of a packet that is kept | borrowed, or a slice without a copy |
//! | `Large` | one large message | moved out |

mod landing;

pub(crate) use landing::land_rest;

use super::inbox::{Notify, Outcome, Run, RxShared};
use super::large::WASTE_MAX;
use super::mail::{Command, LinkShared};
use super::memory::free_vec;
use crate::driver::landing::Landing;
use crate::proto::link::Counted;
use crate::proto::message;
use crate::proto::packet::{Refusal, StreamStart};
use crate::stats::ReceivingStats;
use bytes::Bytes;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::task::{Context, Poll};

/// A message, as the receiving end found it.
pub(crate) enum Found<'a> {
    /// The bytes of a message in a copied run.
    Small(&'a [u8]),
    /// A message in a shared run: the run, to cut a slice from, and the range of the message in it.
    SmallOf(&'a Bytes, Range<usize>),
    /// A large message.
    Large(Vec<u8>),
}

/// The next thing at the receiving end of a channel.
#[derive(Debug)]
pub enum Next {
    /// A message is there.
    Message,
    /// Nothing is there now.
    Empty,
    /// The channel has ended, and all of it was taken.
    Ended(Outcome),
}

/// The receiving end of a channel, below its type.
pub struct RxEnd {
    pub(crate) shared: Arc<RxShared>,
    pub(crate) link: Arc<LinkShared>,
    runs: VecDeque<Run>,
    current: Option<Run>,
    /// An emptied vector for the inbox's next copied run.
    spare: Vec<u8>,
    at: usize,
    taken: u32,
    consumed: u64,
    /// Bytes consumed of a channel with a backlog, since its sender was told.
    untold: u64,
    finished: bool,
    /// Nobody has taken the channel yet: dropped so, it is refused.
    pub(crate) refuses: bool,
    /// The channel has ended and all of it was taken; the receiver may still settle.
    ended: bool,
    settles: Option<Settles>,
    /// Counters of the messages in runs that were left behind; a run counts when it is left.
    left: ReceivingStats,
}

/// Way in which a receiver settles the messages of a stream.
#[derive(Debug, Clone, Copy)]
struct Settles {
    stream: StreamStart,
    by_hand: bool,
    /// Number of messages of the stream that are settled.
    settled: u64,
}

/// Place of a message in its stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Delivery {
    /// The stream's random number: the same for all messages of one sender, over all its channels.
    pub stream: u128,
    /// The message's number in its stream, from 0.
    pub number: u64,
    /// Whether the message may have been delivered before, by an earlier channel of the stream.
    pub redelivered: bool,
}

impl RxEnd {
    pub(crate) fn new(
        shared: Arc<RxShared>,
        link: Arc<LinkShared>,
        stream: Option<StreamStart>,
    ) -> RxEnd {
        RxEnd {
            refuses: false,
            ended: false,
            settles: stream.map(|stream| Settles { stream, by_hand: false, settled: stream.first }),
            shared,
            link,
            runs: VecDeque::new(),
            current: None,
            spare: Vec::new(),
            at: 0,
            taken: 0,
            consumed: 0,
            untold: 0,
            finished: false,
            left: ReceivingStats::default(),
        }
    }

    /// Takes the next small message of the current run; `None` when there is no such run or it has
    /// none left.
    #[inline]
    fn next_in_current(&mut self) -> Option<Range<usize>> {
        let run = match &self.current {
            Some(Run::Shared { bytes, .. }) => &bytes[..],
            Some(Run::Copied { bytes, .. }) => &bytes[..],
            _ => return None,
        };
        let range = message::next_in_run(run, self.at)?;
        self.at = range.end;
        self.taken += 1;
        Some(range)
    }

    /// Takes the next message if there is one. Large ones are moved out.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<Found<'_>> {
        loop {
            if let Some(range) = self.next_in_current() {
                return match &self.current {
                    Some(Run::Shared { bytes, .. }) => Some(Found::SmallOf(bytes, range)),
                    Some(Run::Copied { bytes, .. }) => Some(Found::Small(&bytes[range])),
                    _ => None,
                };
            }
            if let Some(large) = self.next_run()? {
                return Some(Found::Large(large));
            }
        }
    }

    /// Takes the next message if there is one; passes its bytes to `decode`.
    #[inline(always)]
    pub fn take_with<R>(&mut self, decode: impl FnOnce(&[u8]) -> R) -> Option<R> {
        let run = match &self.current {
            Some(Run::Shared { bytes, .. }) => &bytes[..],
            Some(Run::Copied { bytes, .. }) => &bytes[..],
            _ => &[],
        };
        match message::next_in_run(run, self.at) {
            Some(range) => {
                self.at = range.end;
                self.taken += 1;
                Some(decode(&run[range]))
            }
            None => self.take_with_next(decode),
        }
    }

    /// Takes messages of the current run, at most `max`, until `each` returns false; returns their
    /// number.
    #[inline]
    pub(crate) fn take_many(&mut self, max: usize, mut each: impl FnMut(&[u8]) -> bool) -> usize {
        let run = match &self.current {
            Some(Run::Shared { bytes, .. }) => &bytes[..],
            Some(Run::Copied { bytes, .. }) => &bytes[..],
            _ => return 0,
        };
        let (mut at, mut count, mut goes_on) = (self.at, 0, true);
        if let Some(&length) = run.get(at)
            && usize::from(length) <= message::SHORT_MAX
        {
            // Short messages of the same length as the first, as all of a type may be.
            let whole = 1 + usize::from(length);
            for message in run[at..].chunks_exact(whole).take(max) {
                let Some((&head, message)) = message.split_first() else { break };
                if head != length || !goes_on {
                    break;
                }
                goes_on = each(message);
                count += 1;
            }
            at += count * whole;
        }
        while count < max && goes_on {
            let Some(range) = message::next_in_run(run, at) else { break };
            at = range.end;
            count += 1;
            goes_on = each(&run[range]);
        }
        self.at = at;
        self.taken += count as u32;
        count
    }

    #[cold]
    #[inline(never)]
    fn take_with_next<R>(&mut self, decode: impl FnOnce(&[u8]) -> R) -> Option<R> {
        match self.take()? {
            Found::Small(bytes) => Some(decode(bytes)),
            Found::SmallOf(bytes, range) => Some(decode(&bytes[range])),
            Found::Large(bytes) => {
                let decoded = decode(&bytes);
                self.keep(bytes);
                Some(decoded)
            }
        }
    }

    /// Returns the bytes of the next message, if there is one.
    pub(crate) fn peek_bytes(&mut self) -> Option<usize> {
        let run = match &self.current {
            Some(Run::Shared { bytes, .. }) => &bytes[..],
            Some(Run::Copied { bytes, .. }) => &bytes[..],
            _ => &[],
        };
        if let Some(range) = message::next_in_run(run, self.at) {
            return Some(range.len());
        }
        if self.runs.is_empty() {
            self.shared.with_queue(|queue| queue.drain(&mut self.runs, &mut self.spare));
        }
        match self.runs.front()? {
            Run::Large { bytes, .. } => Some(bytes.len()),
            Run::Shared { bytes, .. } => message::next_in_run(bytes, 0).map(|range| range.len()),
            Run::Copied { bytes, .. } => message::next_in_run(bytes, 0).map(|range| range.len()),
        }
    }

    /// Gives memory for the next message, if that is a large one. Returns the memory if another
    /// message is there already.
    pub(crate) fn give_into(&mut self, buffer: Vec<u8>) -> Option<Vec<u8>> {
        if self.current_has_more() || !self.runs.is_empty() {
            return Some(buffer);
        }
        self.shared.with_queue(|queue| queue.give_into(buffer))
    }

    /// Takes the memory of `give_into` back, if it was not used.
    pub(crate) fn take_back_into(&mut self) -> Option<Vec<u8>> {
        self.shared.with_queue(|queue| queue.into.take())
    }

    /// Keeps `buffer`, memory of the caller for the next message, if that one is large and has come in
    /// other memory. The next one that begins before the caller waits for it comes in this one.
    pub(crate) fn keep_unless_needed(&mut self, buffer: &mut Vec<u8>) {
        if !self.current_has_more()
            && let Some(Run::Large { bytes, .. }) = self.runs.front()
            && (bytes.len()..=WASTE_MAX * bytes.len()).contains(&buffer.capacity())
        {
            self.keep(std::mem::take(buffer));
        }
    }

    fn keep(&self, block: Vec<u8>) {
        if self.link.large_in.give(block) {
            self.link.wake();
        }
    }

    /// Whether the next message lies in the current run.
    #[inline]
    pub(crate) fn current_has_more(&self) -> bool {
        match &self.current {
            Some(Run::Shared { bytes, .. }) => self.at < bytes.len(),
            Some(Run::Copied { bytes, .. }) => self.at < bytes.len(),
            _ => false,
        }
    }

    /// Leaves the current run for the next one. `Some(Some(..))` is a large message, `None` means
    /// that nothing is there.
    #[cold]
    fn next_run(&mut self) -> Option<Option<Vec<u8>>> {
        self.leave_current();
        if self.runs.is_empty() {
            self.shared.with_queue(|queue| queue.drain(&mut self.runs, &mut self.spare));
        }
        match self.runs.pop_front()? {
            Run::Large { bytes, counted } => {
                self.left.messages += 1;
                self.left.large_messages += 1;
                self.left.bytes += bytes.len() as u64;
                match counted {
                    Counted::Not => return Some(Some(bytes)),
                    Counted::Window => self.count(bytes.len()),
                    Counted::Large => {
                        self.link.command(Command::LargeTaken { id: self.shared.id() });
                    }
                }
                self.count_of_backlog(bytes.len() + 1);
                Some(Some(bytes))
            }
            run => {
                let bounded = self.shared.backlog_step() > 0;
                self.current = Some(if bounded { self.first_part(run) } else { run });
                self.at = 0;
                self.taken = 0;
                Some(None)
            }
        }
    }

    #[inline]
    fn leave_current(&mut self) {
        let Some(run) = self.current.take() else { return };
        let (length, messages) = match &run {
            Run::Shared { bytes, messages } => (bytes.len(), *messages),
            Run::Copied { bytes, messages } => (bytes.len(), *messages),
            Run::Large { .. } => return,
        };
        if self.at != length || self.taken != messages {
            self.link.command(Command::Corrupt { id: self.shared.id() });
        }
        self.left.messages += u64::from(self.taken);
        self.left.bytes += self.at as u64;
        self.left.runs += 1;
        if let Run::Copied { mut bytes, .. } = run {
            bytes.clear();
            if self.spare.capacity() < bytes.capacity() {
                self.spare = bytes;
            }
        }
        self.count(length);
        self.count_of_backlog(length);
    }

    /// Cuts a run of a channel with a backlog, so that its bytes are reported step by step; puts the
    /// rest back in front of the others.
    #[cold]
    fn first_part(&mut self, run: Run) -> Run {
        // The next report is due behind what is not told yet.
        let step = self.shared.backlog_step().saturating_sub(self.untold) as usize;
        let (whole, messages) = match run {
            Run::Copied { bytes, messages } if bytes.len() > step => (Bytes::from(bytes), messages),
            Run::Shared { bytes, messages } if bytes.len() > step => (bytes, messages),
            _ => return run,
        };
        let (mut at, mut count) = (0, 0);
        while at < step
            && let Some(range) = message::next_in_run(&whole, at)
        {
            (at, count) = (range.end, count + 1);
        }
        if at == whole.len() || at < step || count >= messages {
            // A run that disagrees with its count is reported where it is left.
            return Run::Shared { bytes: whole, messages };
        }
        self.runs.push_front(Run::Shared { bytes: whole.slice(at..), messages: messages - count });
        Run::Shared { bytes: whole.slice(..at), messages: count }
    }

    /// Counts consumed bytes of a channel with a backlog; tells its sender of each step.
    #[inline]
    fn count_of_backlog(&mut self, bytes: usize) {
        let step = self.shared.backlog_step();
        if step > 0 {
            self.untold += bytes as u64;
            if self.untold >= step {
                self.tell_consumed();
            }
        }
    }

    /// Tells the sender of a channel with a backlog what was consumed, all of it.
    #[inline]
    pub(crate) fn tell_consumed(&mut self) {
        let bytes = std::mem::take(&mut self.untold);
        if bytes > 0 {
            self.link.command(Command::ConsumedOfBacklog { id: self.shared.id(), bytes });
        }
    }

    /// Notes that the receiver asks for the next message: those that it has taken are settled,
    /// unless it settles by hand.
    #[inline]
    pub(crate) fn ask(&mut self) {
        if self.settles.is_some_and(|settles| !settles.by_hand) {
            self.settle();
        }
    }

    /// Returns whether the channel is one whose receiver settles.
    pub(crate) fn can_settle(&self) -> bool {
        self.settles.is_some()
    }

    /// Settles all messages that were taken.
    #[inline]
    pub(crate) fn settle(&mut self) {
        let Some(Settles { stream, settled, .. }) = &mut self.settles else { return };
        let taken = if self.current.is_some() { self.taken } else { 0 };
        let total = stream.first + self.left.messages + u64::from(taken);
        if total > *settled {
            *settled = total;
            if self.shared.settle(total) {
                self.tell_settled();
            }
        }
    }

    #[cold]
    fn tell_settled(&self) {
        self.link.command(Command::Settled { id: self.shared.id() });
    }

    /// Makes the receiver settle by hand: taking the next message settles none any more.
    pub(crate) fn settle_by_hand(&mut self) {
        if let Some(settles) = &mut self.settles {
            settles.by_hand = true;
        }
    }

    /// Returns the place in its stream of the message taken last.
    pub(crate) fn delivery(&self) -> Option<Delivery> {
        let StreamStart { id, first, sent_before } = self.settles?.stream;
        let number = first + self.stats().messages.checked_sub(1)?;
        Some(Delivery { stream: id, number, redelivered: number < sent_before })
    }

    /// Returns the counters of the messages taken so far.
    pub(crate) fn stats(&self) -> ReceivingStats {
        let mut stats = self.left;
        if self.current.is_some() {
            stats.messages += u64::from(self.taken);
            stats.bytes += self.at as u64;
            stats.runs += 1;
        }
        stats
    }

    #[inline]
    fn count(&mut self, bytes: usize) {
        self.consumed += bytes as u64;
        if self.consumed >= self.shared.report_step() {
            let bytes = std::mem::take(&mut self.consumed);
            self.link.command(Command::Consumed { id: self.shared.id(), bytes });
        }
    }

    /// Returns whether a message is there, without taking it; `Ended` only when no message is left.
    pub(crate) fn next(&mut self) -> Next {
        if self.current_has_more() || !self.runs.is_empty() {
            return Next::Message;
        }
        // A run that was taken to its end is counted before anything is waited for.
        self.leave_current();
        self.ask();
        let (runs, spare) = (&mut self.runs, &mut self.spare);
        let (outcome, wanted) = self.shared.with_queue(|queue| {
            queue.drain(runs, spare);
            let wanted = runs.is_empty() && std::mem::take(&mut queue.large_wanted);
            (queue.outcome(), wanted)
        });
        self.demand(wanted);
        self.known(outcome)
    }

    /// Asks for a held-back large message, which comes only when its receiver waits.
    #[inline]
    fn demand(&self, wanted: bool) {
        if wanted {
            self.link.command(Command::LargeDemanded { id: self.shared.id() });
        }
    }

    #[inline]
    fn known(&mut self, outcome: Option<Outcome>) -> Next {
        if !self.runs.is_empty() {
            return Next::Message;
        }
        self.tell_consumed();
        match outcome {
            Some(outcome) => {
                self.finish();
                Next::Ended(outcome)
            }
            None => Next::Empty,
        }
    }

    /// Waits until a message is there, which it does not take, or the channel has ended.
    #[inline]
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Next> {
        if self.current_has_more() || !self.runs.is_empty() {
            return Poll::Ready(Next::Message);
        }
        self.leave_current();
        self.ask();
        let (runs, spare) = (&mut self.runs, &mut self.spare);
        let (outcome, wanted) = self.shared.with_queue(|queue| {
            queue.drain(runs, spare);
            let outcome = queue.outcome();
            let wanted = runs.is_empty() && std::mem::take(&mut queue.large_wanted);
            if runs.is_empty() && outcome.is_none() {
                match &mut queue.notify {
                    Notify::Task(known) if known.will_wake(context.waker()) => {}
                    notify => *notify = Notify::Task(context.waker().clone()),
                }
            }
            (outcome, wanted)
        });
        self.demand(wanted);
        match self.known(outcome) {
            Next::Empty => Poll::Pending,
            next => Poll::Ready(next),
        }
    }

    /// Calls `tell` from now on when something arrives, and once at the start.
    pub(crate) fn notify(&mut self, tell: Arc<dyn Fn() + Send + Sync>) {
        let once = Arc::clone(&tell);
        self.shared.with_queue(|queue| queue.notify = Notify::SelectAll(tell));
        once();
    }

    /// Tells the sender that no more is wanted; messages that it has sent still arrive.
    pub(crate) fn stop(&self) {
        self.shared.with_queue(|queue| queue.early.stopped = true);
        self.link.command(Command::Stop { id: self.shared.id() });
    }

    /// Forgets the channel, which was refused, without telling the peer.
    pub(crate) fn disarm(mut self) {
        self.finished = true;
        self.shared.with_queue(|queue| queue.dropped = true);
    }

    fn finish(&mut self) {
        self.leave_current();
        self.ended = true;
        // Messages taken from a stream may be settled until the receiver is dropped.
        if !self.finished && self.settles.is_none() {
            self.finished = true;
            self.link.command(Command::Finished { id: self.shared.id() });
        }
    }

    /// Hands the messages that have arrived to a landing, and then all that follow.
    pub(crate) fn land(mut self, landing: Box<dyn Landing>) {
        let Some(landing) = self.shared.land_later(landing) else {
            self.finished = true;
            return;
        };
        let mut taken = Vec::new();
        while let Some(found) = self.take() {
            taken.push(match found {
                Found::Small(bytes) => Bytes::copy_from_slice(bytes),
                Found::SmallOf(bytes, range) => bytes.slice(range),
                Found::Large(bytes) => Bytes::from(bytes),
            });
        }
        self.finished = true;
        self.tell_consumed();
        let bytes = std::mem::take(&mut self.consumed);
        self.link.command(Command::Consumed { id: self.shared.id(), bytes });
        if self.shared.id() == 0 {
            return land_rest(&self.shared, landing, &taken, None);
        }
        let command = Command::Land { id: self.shared.id(), landing, taken };
        if let Err(Command::Land { landing, taken, .. }) = self.link.try_command(command) {
            let arrived = self.stats().messages;
            let over = self.link.ended().map(|link| Outcome::Lost(link, arrived));
            land_rest(&self.shared, landing, &taken, over);
        }
    }
}

impl Drop for RxEnd {
    fn drop(&mut self) {
        if self.finished {
            return;
        }
        if self.ended {
            return self.link.command(Command::Finished { id: self.shared.id() });
        }
        self.shared.with_queue(|queue| {
            queue.dropped = true;
            queue.runs.drain(..).chain(self.runs.drain(..)).for_each(Run::free);
            free_vec(queue.into.take().unwrap_or_default());
        });
        let id = self.shared.id();
        self.link.command(match self.refuses {
            true => Command::Refuse { id, refusal: Refusal::NotAccepted, text: String::new() },
            false => Command::Terminate { id },
        });
    }
}

#[cfg(test)]
mod tests;
