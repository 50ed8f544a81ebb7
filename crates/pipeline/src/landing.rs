//! The receiving end of a buffer: bytes go from the socket to their place in it, and the end of the
//! channel becomes an end with a reason.

use std::mem;
use std::ops::Range;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Waker};

use bytemuck::Pod;
use chunkcomm::channel::Landing;
use chunkcomm::{BytesReceiver, BytesSender, RecvError, host, with_causes};

use crate::error::DeltaRecvError;
use crate::memory::{Lease, Share};
use crate::proto::extents::Taken;
use crate::proto::frame::{
    CORRECTION_BYTES_MAX, FrameFault, HEADER_BYTES, Header, Reply, encode_round,
};

/// The receiver's direction of a delta's channel: a few bytes a round.
pub(crate) struct WayBack(Mutex<Option<BytesSender>>);

impl WayBack {
    pub(crate) fn new(sender: BytesSender) -> Self {
        Self(Mutex::new(Some(sender)))
    }

    /// Says that all bytes of `round` have landed, or that there is a buffer for it.
    pub(crate) fn say_round(&self, landed: bool, round: u32) {
        self.say(&encode_round(landed, round));
    }

    /// Sends `message`, without waiting and, where the channel has room, without an allocation.
    pub(crate) fn say(&self, message: &[u8]) {
        let mut sender = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(sender) = sender.as_mut() else { return };
        let sent = pin!(sender.send_slice_now(message))
            .poll(&mut Context::from_waker(Waker::noop()))
            .is_ready();
        if !sent {
            // Nothing was accepted. A later message may overtake this one: each says all that the ones
            // before it said.
            let (mut sender, message) = (sender.clone(), message.to_vec());
            host::spawn(async move {
                // The user sees the transfer's own outcome.
                let _ = sender.send_slice_now(&message).await;
            });
        }
    }

    /// Ends this direction: the sender learns that its receiver is gone.
    pub(crate) fn end(&self) {
        drop(self.0.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

/// Held by a receiver and its forwards. Without a holder, nothing more lands.
pub(crate) struct Interest(pub(crate) Arc<WayBack>);

impl Drop for Interest {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Names of a transfer for its errors.
#[derive(Clone)]
pub(crate) struct Origin {
    pub(crate) peer: String,
    pub(crate) channel: String,
}

/// Lets all further bytes of `channel` land in `share`, as long as the interest is held.
pub(crate) fn land<T: Pod>(
    channel: BytesReceiver,
    share: Share<T>,
    interest: &Arc<Interest>,
    origin: Origin,
) {
    share.land();
    let (back, interest) = (interest.0.clone(), Arc::downgrade(interest));
    let at = At::header();
    channel.land(Box::new(Lander { share, interest, back, origin, at }));
}

/// The place for the next bytes.
enum At<T: Pod> {
    Header { bytes: [u8; HEADER_BYTES], filled: usize },
    Increment(Lease<T>),
    Correction { offset: usize, bytes: Vec<u8>, filled: usize },
    Cause { bytes: Vec<u8>, filled: usize },
    Over,
}

impl<T: Pod> At<T> {
    fn header() -> Self {
        Self::Header { bytes: [0; HEADER_BYTES], filled: 0 }
    }
}

/// Returns the range that a header names, which may be outside the buffer.
fn range_of(offset: u64, bytes: u64) -> Result<Range<usize>, FrameFault> {
    let range = || {
        let start = usize::try_from(offset).ok()?;
        Some(start..start.checked_add(usize::try_from(bytes).ok()?)?)
    };
    range().ok_or(FrameFault::Outside { offset, bytes })
}

/// The driver's way to put bytes into the buffer.
struct Lander<T: Pod> {
    share: Share<T>,
    interest: Weak<Interest>,
    back: Arc<WayBack>,
    origin: Origin,
    at: At<T>,
}

impl<T: Pod> Lander<T> {
    /// Returns the place for what follows a complete header.
    fn begin(&self, header: &[u8; HEADER_BYTES]) -> Result<At<T>, FrameFault> {
        let header = Header::decode(header)?;
        let ours = self.share.state().round;
        match header {
            Header::Increment { round, .. }
            | Header::Correction { round, .. }
            | Header::End { round, .. }
                if round != ours =>
            {
                Err(FrameFault::Round { theirs: round, ours })
            }
            Header::Increment { offset, bytes, .. } => self.place(offset, bytes),
            Header::Correction { offset, bytes, .. } => self.place_apart(offset, bytes),
            Header::End { bytes, .. } => self.cut(bytes),
            Header::Broken { bytes } => Ok(At::Cause { bytes: vec![0; bytes], filled: 0 }),
        }
    }

    /// Ends the last round behind `bytes` bytes, which must have landed.
    fn cut(&self, bytes: u64) -> Result<At<T>, FrameFault> {
        let (landed, round, is_end) = {
            let state = self.share.state();
            let (extents, landed) = (state.extents(), state.extents().done_bytes());
            let is_open = !extents.is_whole() && extents.prefix() == landed;
            let corrected = state.corrections.ranges().last().map_or(0, |range| range.end);
            (landed, state.round, is_open && landed as u64 == bytes && corrected <= landed)
        };
        if !is_end {
            return Err(FrameFault::End { end: bytes, landed });
        }
        // Whoever sees the end may leave, and then nothing more is said.
        self.back.say_round(true, round);
        assert!(self.share.cut(), "nothing else lands");
        Ok(At::header())
    }

    /// Returns the place for an increment.
    fn place(&self, offset: u64, bytes: u64) -> Result<At<T>, FrameFault> {
        let (range, outside) = (range_of(offset, bytes)?, FrameFault::Outside { offset, bytes });
        let (is_open, round) = {
            let state = self.share.state();
            (state.extents().is_open(), state.round)
        };
        if is_open && range == (0..0) {
            self.back.say_round(true, round);
            self.share.end_empty();
            return Ok(At::header());
        }
        let parts = [range.start, range.len()].map(|bytes| bytes % size_of::<T>());
        if range.is_empty() || parts != [0, 0] {
            return Err(outside);
        }
        match self.share.lease(range) {
            Ok(lease) => Ok(At::Increment(lease)),
            Err(Taken::Outside) => Err(outside),
            Err(Taken::Done(part) | Taken::Out(part)) => {
                Err(FrameFault::Twice { start: part.start, end: part.end })
            }
        }
    }

    /// Returns the place for a correction: each byte has one a round, before all have landed.
    fn place_apart(&self, offset: u64, bytes: u64) -> Result<At<T>, FrameFault> {
        let range = range_of(offset, bytes)?;
        let state = self.share.state();
        let fits =
            (1..=CORRECTION_BYTES_MAX).contains(&range.len()) && range.end <= state.extents().len();
        if !fits || state.extents().is_whole() {
            return Err(FrameFault::Outside { offset, bytes });
        }
        match state.corrections.overlap(&range) {
            Some(part) => Err(FrameFault::Twice { start: part.start, end: part.end }),
            None => {
                Ok(At::Correction { offset: range.start, bytes: vec![0; range.len()], filled: 0 })
            }
        }
    }

    /// Goes on when the current place is full.
    fn turn(&mut self) {
        self.at = match mem::replace(&mut self.at, At::Over) {
            At::Header { bytes, filled } if filled == HEADER_BYTES => match self.begin(&bytes) {
                Ok(at) => at,
                Err(fault) => {
                    let Origin { peer, channel } = self.origin.clone();
                    let error = DeltaRecvError::Frame { peer, channel, fault };
                    self.back.say(&Reply::Fault(with_causes(&error)).encode());
                    self.back.end();
                    return self.over(error);
                }
            },
            At::Increment(lease) if lease.range().is_empty() => At::header(),
            At::Correction { offset, bytes, filled } if filled == bytes.len() => {
                self.share.state().corrections.note(offset, bytes.into());
                At::header()
            }
            at => at,
        };
        match &self.at {
            At::Cause { bytes, filled } if *filled == bytes.len() => {
                let cause = String::from_utf8_lossy(bytes).into_owned();
                self.over(self.ended(Some(cause)));
            }
            _ => {}
        }
    }

    fn ended(&self, cause: Option<String>) -> DeltaRecvError {
        let Origin { peer, channel } = self.origin.clone();
        let state = self.share.state();
        let extents = state.extents();
        let (landed_bytes, length_bytes) = (extents.done_bytes(), extents.len());
        DeltaRecvError::Ended { peer, channel, landed_bytes, length_bytes, cause }
    }

    /// Ends the landing, unless it has ended.
    fn over(&mut self, error: DeltaRecvError) {
        // The memory is released before the end is reported.
        self.at = At::Over;
        self.share.change(|state| {
            state.end.get_or_insert(error);
        });
    }
}

impl<T: Pod> Landing for Lander<T> {
    fn room(&mut self) -> &mut [u8] {
        if self.interest.strong_count() == 0 {
            return &mut [];
        }
        match &mut self.at {
            At::Header { bytes, filled } => &mut bytes[*filled..],
            At::Increment(lease) => lease.bytes_mut(),
            At::Correction { bytes, filled, .. } | At::Cause { bytes, filled } => {
                &mut bytes[*filled..]
            }
            At::Over => &mut [],
        }
    }

    fn advance(&mut self, bytes: usize) {
        match &mut self.at {
            At::Header { filled, .. }
            | At::Correction { filled, .. }
            | At::Cause { filled, .. } => *filled += bytes,
            At::Increment(lease) => {
                let state = self.share.state();
                let extents = state.extents();
                let (whole, round) = (extents.done_bytes() + bytes == extents.len(), state.round);
                drop(state);
                if whole {
                    self.back.say_round(true, round);
                }
                lease.advance(bytes);
            }
            At::Over => {}
        }
        self.turn();
    }

    fn end(mut self: Box<Self>, outcome: Result<(), RecvError>) {
        let error = match outcome {
            Ok(()) => self.ended(None),
            Err(error) => DeltaRecvError::Channel(error),
        };
        self.over(error);
    }
}

impl<T: Pod> Drop for Lander<T> {
    fn drop(&mut self) {
        let error = self.ended(Some("the node was closed".to_owned()));
        self.over(error);
    }
}

#[cfg(test)]
mod tests;
