//! Messages that a stream has sent and its receiver has not settled.
//!
//! ```text
//! on a channel -- session lost, receiver gone --> returned -- opened again --> on a channel
//!      '-- its sender is done and everything is settled, or nothing can be sent --> over
//! ```
//!
//! The messages stay where they were staged, in the channel's ring ([`super::ring`]): nothing is
//! copied. If the channel ends before they are settled, the ring goes back to the stream. It begins
//! again with the first unsettled message, on the stream's next channel. The sender meanwhile goes
//! on staging, as far as the ring has room.

use super::ending::LostChannel;
use super::ring::{Consumer, Kept};
use super::staging::{Failure, TxShared};
use super::wakers::{Wakers, locked};
use crate::error::LinkError;
use crate::proto::message;
use crate::proto::packet::StreamStart;
use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

/// Messages that were taken from the ring together.
struct Piece {
    kept: Kept,
    messages: u32,
    /// The large message, if the piece is its mark.
    large: Option<Bytes>,
    /// Number of the stream's messages up to the piece's end.
    until: u64,
}

/// Messages that a channel of a stream keeps until they are settled.
pub(crate) struct Keeping {
    on_channel: OnChannel,
    pieces: VecDeque<Piece>,
    /// Messages below this number may have left, on this channel or on an earlier one.
    sent_before: u64,
    sent: u64,
    settled: u64,
}

impl Keeping {
    /// Keeps for a channel of `stream` that begins with `start`.
    pub(crate) fn new(stream: Arc<Stream>, start: StreamStart) -> Keeping {
        let StreamStart { first, sent_before, .. } = start;
        let on_channel = OnChannel(Some(stream));
        Keeping { on_channel, pieces: VecDeque::new(), sent_before, sent: first, settled: first }
    }

    /// Keeps the first `bytes` of the ring, with `messages` messages, which were put in a packet.
    pub(crate) fn consume(&mut self, ring: &mut Consumer, bytes: usize, messages: u32) {
        if bytes == 0 {
            return;
        }
        self.sent += u64::from(messages);
        let kept = ring.consume_kept(bytes, messages);
        self.pieces.push_back(Piece { kept, messages, large: None, until: self.sent });
    }

    /// Keeps the large message of the mark that was consumed last.
    pub(crate) fn keep_large(&mut self, bytes: Bytes) {
        if let Some(piece) = self.pieces.back_mut() {
            piece.large = Some(bytes);
        }
    }

    /// Gives the memory of whole pieces back to the sender: the receiver has settled `total`
    /// messages of the stream. A total above the number of messages sent counts as that number.
    pub(crate) fn settle(&mut self, total: u64, shared: &TxShared) {
        self.settled = self.settled.max(total.min(self.sent));
        while self.pieces.front().is_some_and(|piece| piece.until <= self.settled)
            && let Some(piece) = self.pieces.pop_front()
        {
            piece.kept.release();
            if let Some(large) = piece.large {
                shared.large_released(large.len());
            }
        }
        shared.set_settled(self.settled);
    }

    /// Returns whether the sender is done and everything is settled.
    pub(crate) fn is_done(&self, shared: &TxShared) -> bool {
        shared.ended() == Some(self.settled)
    }

    /// Ends the stream: nothing more is to be sent.
    pub(crate) fn end(&self) {
        if let Some(stream) = &self.on_channel.0 {
            stream.end();
        }
    }

    /// Gives the ring back to the stream, since the channel has ended. The ring then begins with
    /// the first unsettled message. If the stream is over, the ring is returned to the caller.
    pub(crate) fn give_back(self, ring: Consumer, shared: &Arc<TxShared>) -> Option<Returned> {
        let Keeping { mut on_channel, pieces, sent_before, sent, settled } = self;
        let ring = rewind(ring, pieces, settled, shared);
        let shared = Arc::clone(shared);
        // The channel may have ended before it sent all messages of earlier channels again.
        let sent_before = sent_before.max(sent);
        let stream = on_channel.0.take()?;
        stream.give_back(Returned { shared, ring, first: settled, sent_before })
    }
}

/// Tells the stream when its channel has ended without giving the ring back.
struct OnChannel(Option<Arc<Stream>>);

impl Drop for OnChannel {
    fn drop(&mut self) {
        if let Some(stream) = &self.0 {
            stream.change(|state| state.on_channel = false);
        }
    }
}

/// Returns the ring as it was before `pieces` were read, without the messages that are settled.
fn rewind(
    ring: Consumer,
    mut pieces: VecDeque<Piece>,
    settled: u64,
    shared: &TxShared,
) -> Consumer {
    shared.stage_large_again(pieces.iter_mut().filter_map(|piece| piece.large.take()).collect());
    let Some(first) = pieces.pop_front() else { return ring };
    let before = first.until - u64::from(first.messages);
    let mut ring = first.kept.rewind();
    // A part of the first piece may be settled. A mark is a piece of its own, so the walk meets no
    // mark.
    let settled = u32::try_from(settled.saturating_sub(before)).unwrap_or(0);
    let (front, back, _) = ring.peek();
    let walk = message::walk(front, back, usize::MAX, settled);
    ring.consume(walk.bytes, walk.messages);
    ring.release();
    ring
}

/// A stream without a channel.
pub(crate) struct Returned {
    pub(crate) shared: Arc<TxShared>,
    pub(crate) ring: Consumer,
    /// The first message that is not settled.
    pub(crate) first: u64,
    /// Messages below this number may have left.
    pub(crate) sent_before: u64,
}

impl Returned {
    /// Returns a stream without a channel: its last one was to begin with `start`, and has sent
    /// nothing.
    pub(crate) fn unopened(shared: Arc<TxShared>, ring: Consumer, start: StreamStart) -> Returned {
        Returned { shared, ring, first: start.first, sent_before: start.sent_before }
    }

    /// Returns the number of accepted messages; the ring holds the unsettled ones.
    pub(crate) fn accepted(&self) -> u64 {
        self.first + u64::from(self.ring.messages())
    }

    /// Returns whether the sender is done and everything is settled.
    fn is_done(&self) -> bool {
        self.shared.ended() == Some(self.first)
    }

    /// Ends the stream for its sender, whose node closes; returns the messages that are lost by
    /// that.
    pub(crate) fn give_up(self, link: &LinkError) -> Option<LostChannel> {
        self.shared.fail(Failure::Lost(link.clone()));
        let accepted = self.accepted();
        let is_lost = accepted > self.first && !self.shared.outlives_its_node();
        is_lost.then(|| LostChannel::new(&self.shared, self.shared.account(accepted), link))
    }
}

/// A stream whose messages are sent again until they are settled, over any number of channels.
pub(crate) struct Stream {
    pub(crate) id: u128,
    /// Most encoded bytes that are kept.
    pub(crate) bytes_max: usize,
    /// Whether messages are stored in a log before they leave.
    logged: bool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    returned: Option<Returned>,
    /// The stream was taken for a channel, which may not have begun yet.
    on_channel: bool,
    over: bool,
    log_closed: bool,
    waiting: Wakers,
}

impl Stream {
    pub(crate) fn new(id: u128, bytes_max: usize, logged: bool) -> Arc<Stream> {
        Arc::new(Stream { id, bytes_max, logged, state: Mutex::default() })
    }

    pub(crate) fn is_logged(&self) -> bool {
        self.logged
    }

    /// Returns how many bytes a sender may stage before they are read, if a packet takes
    /// `packet_bytes`. There is no such bound with a log, or while the stream has no channel: bytes
    /// wait while earlier ones are stored, or for the peer. Only the bound of the stream limits
    /// them then.
    pub(crate) fn unread_bytes_max(&self, packet_bytes: usize) -> usize {
        let is_bound = !self.logged && locked(&self.state).returned.is_none();
        if is_bound { packet_bytes } else { usize::MAX }
    }

    /// Notes that the log is closed: the messages in it are permanent, and another sender may open
    /// it.
    pub(crate) fn set_log_closed(&self) {
        self.change(|state| state.log_closed = true);
    }

    /// Returns whether there is no log, or it is closed.
    pub(crate) fn is_log_closed(&self) -> bool {
        !self.logged || locked(&self.state).log_closed
    }

    /// Waits until no log is open.
    pub(crate) fn poll_log_closed(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut state = locked(&self.state);
        if !self.logged || state.log_closed {
            return Poll::Ready(());
        }
        state.waiting.add(context.waker());
        Poll::Pending
    }

    /// Waits until nothing more will be sent, on any channel.
    pub(crate) fn poll_ended(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut state = locked(&self.state);
        if state.over && !state.on_channel {
            return Poll::Ready(());
        }
        state.waiting.add(context.waker());
        Poll::Pending
    }

    /// Takes the stream back from its channel. Returns it to the caller if it is over. A sender
    /// that waits for room looks again: it may stage more than a packet while there is no channel.
    #[must_use]
    pub(crate) fn give_back(&self, returned: Returned) -> Option<Returned> {
        let sender = Arc::clone(&returned.shared);
        let mut returned = Some(returned);
        self.change(|state| {
            state.on_channel = false;
            if !state.over {
                state.returned = returned.take();
            }
        });
        sender.progress();
        returned
    }

    /// Ends the stream: nothing more will be sent.
    pub(crate) fn end(&self) {
        self.change(|state| state.over = true);
    }

    /// Ends the stream; returns its ring with the messages that are not settled, if it has no
    /// channel.
    pub(crate) fn take_last(&self) -> Option<Returned> {
        let mut state = locked(&self.state);
        state.over = true;
        let returned = state.returned.take();
        let waiting = state.waiting.take();
        drop(state);
        waiting.wake();
        returned
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = locked(&self.state);
        change(&mut state);
        let waiting = state.waiting.take();
        drop(state);
        waiting.wake();
    }

    /// Waits until the stream has no channel and needs one; false when it is over.
    pub(crate) fn poll_returned(&self, context: &mut Context<'_>) -> Poll<bool> {
        let mut state = locked(&self.state);
        state.over |= state.returned.as_ref().is_some_and(Returned::is_done);
        if state.over {
            let waiting = state.waiting.take();
            drop(state);
            waiting.wake();
            return Poll::Ready(false);
        }
        if state.returned.is_some() {
            return Poll::Ready(true);
        }
        state.waiting.add(context.waker());
        Poll::Pending
    }

    /// Takes the stream if it has no channel and needs one.
    pub(crate) fn take(&self) -> Option<Returned> {
        let mut state = locked(&self.state);
        state.on_channel |= state.returned.is_some();
        state.returned.take()
    }
}

#[cfg(test)]
mod tests {
    use super::super::ring::ring;
    use super::super::staging::Settling;
    use super::*;

    #[test]
    fn messages_that_an_earlier_channel_sent_stay_declared() {
        let stream = Stream::new(1, 1000, false);
        let settling = Settling::Kept(Arc::clone(&stream));
        let shared = TxShared::new("events".into(), "u8".into(), settling);
        let (mut producer, mut consumer) = ring(100);
        producer.keep(100);
        for number in 0..9 {
            producer.push(&[1], &[number]);
        }
        // The first channel sends five messages, of which one is settled. The second ends after
        // it has sent two of the others again.
        let mut sent = [5, 2].into_iter();
        let mut start = StreamStart { id: 1, first: 0, sent_before: 0 };
        for settled in [1, 2] {
            let mut keeping = Keeping::new(Arc::clone(&stream), start);
            let count = sent.next().unwrap();
            keeping.consume(&mut consumer, 2 * count as usize, count);
            keeping.settle(settled, &shared);
            assert!(keeping.give_back(consumer, &shared).is_none());
            let returned = stream.take().unwrap();
            assert_eq!((returned.first, returned.sent_before), (settled, 5));
            assert_eq!(returned.accepted(), 9);
            start.first = returned.first;
            start.sent_before = returned.sent_before;
            consumer = returned.ring;
        }
    }
}
