//! The receiving end of a buffer: bytes go from the socket to their place in it, and the end of the
//! channel becomes an end with a reason.

use std::mem;
use std::ops::Range;
use std::sync::{Arc, Weak};

use bytemuck::Pod;
use chunkcomm::channel::Landing;
use chunkcomm::{Loss, LossKind, RecvError};

use crate::error::DeltaRecvError;
use crate::memory::{Lease, Share};
use crate::proto::fault::DeltaFault;
use crate::proto::frame::{CORRECTION_BYTES_MAX, HEADER_BYTES, Header};
use crate::proto::sections::Sections;
use base::Base;
use combining::Combiner;

mod accepting;
mod base;
mod combining;
mod line;
mod way_back;

pub(crate) use accepting::Accepted;
pub use accepting::accept;
pub use base::Ending;
pub(crate) use base::LandingFate;
pub(crate) use combining::Combine;
pub use combining::Operand;
pub(crate) use line::{Due, Expected, accept_line, expect};
pub use way_back::Interest;
pub(crate) use way_back::WayBack;

/// Names of a transfer for its errors.
#[derive(Clone)]
pub(crate) struct Origin {
    pub(crate) peer: String,
    pub(crate) channel: String,
}

/// Lets an accepted delta land in the whole of `share`, round by round, as long as the interest is held.
pub fn land<T: Pod>(accepted: Accepted, name: &str, share: Share<T>) -> Arc<Interest> {
    let Accepted { peer, channel, back, .. } = accepted;
    share.land();
    let sections = Sections::whole(share.len() * size_of::<T>());
    let interest = Arc::new(Interest::new(back.clone()));
    let origin = Origin { peer: peer.name().to_owned(), channel: name.to_owned() };
    let base = Arc::new(Base { share, sections, back, origin, ending: Ending::Memory });
    channel.land(Box::new(Lander::new(base, None, &interest)));
    interest
}

/// Lets an accepted delta land in these sections of `share`, combined or as it comes: a region's one round, or
/// the rounds of a collective.
///
/// It lasts as long as the interest is held.
pub fn land_sections<T: Pod>(
    accepted: Accepted,
    name: &str,
    memory: (Share<T>, Sections),
    combine: Option<(Operand<T>, Combine<T>)>,
    ending: Ending,
) -> Arc<Interest> {
    let Accepted { peer, channel, back, .. } = accepted;
    let (share, sections) = memory;
    let interest = Arc::new(Interest::new(back.clone()));
    let origin = Origin { peer: peer.name().to_owned(), channel: name.to_owned() };
    let has_rounds = matches!(ending, Ending::Flow(_));
    let base = Arc::new(Base { share, sections, back, origin, ending });
    let node = peer.node();
    let combiner = combine
        .and_then(|it| Combiner::start(base.clone(), it, has_rounds, &interest, node.runtime()));
    channel.land(Box::new(Lander::new(base, combiner, &interest)));
    interest
}

/// The place for the next bytes.
enum At<T: Pod> {
    Header {
        bytes: [u8; HEADER_BYTES],
        filled: usize,
    },
    /// The first `filled` bytes of the lease are part of an element; the positions `rest` follow.
    Increment {
        lease: Lease<T>,
        filled: usize,
        rest: Range<usize>,
    },
    Correction {
        offset: usize,
        bytes: Vec<u8>,
        filled: usize,
    },
    Cause {
        bytes: Vec<u8>,
        filled: usize,
    },
    Over,
}

impl<T: Pod> At<T> {
    fn header() -> Self {
        Self::Header { bytes: [0; HEADER_BYTES], filled: 0 }
    }
}

/// Returns the range that a header names, which may be outside the buffer.
fn range_of(offset: u64, bytes: u64) -> Result<Range<usize>, DeltaFault> {
    let range = || {
        let start = usize::try_from(offset).ok()?;
        Some(start..start.checked_add(usize::try_from(bytes).ok()?)?)
    };
    range().ok_or(DeltaFault::Outside { offset, bytes })
}

/// The driver's way to put bytes into the buffer.
struct Lander<T: Pod> {
    base: Arc<Base<T>>,
    combiner: Option<Arc<Combiner<T>>>,
    interest: Weak<Interest>,
    at: At<T>,
    /// The memory's round that is the first of this transfer.
    first: u32,
    /// Round of the transfer that lands, from 1, and the number of its bytes that came.
    round: u32,
    landed: usize,
    has_ended: bool,
}

impl<T: Pod> Lander<T> {
    fn new(
        base: Arc<Base<T>>,
        combiner: Option<Arc<Combiner<T>>>,
        interest: &Arc<Interest>,
    ) -> Self {
        let (interest, first) = (Arc::downgrade(interest), base.share.state().round);
        Self {
            base,
            combiner,
            interest,
            at: At::header(),
            first,
            round: 1,
            landed: 0,
            has_ended: false,
        }
    }

    /// Returns the place for what follows a complete header.
    fn begin(&mut self, header: &[u8; HEADER_BYTES]) -> Result<At<T>, DeltaFault> {
        let header = Header::decode(header)?;
        let ours = self.base.share.state().round - self.first + 1;
        if ours != self.round {
            (self.round, self.landed) = (ours, 0);
        }
        match header {
            Header::Increment { round, .. }
            | Header::Correction { round, .. }
            | Header::End { round, .. }
                if round != ours =>
            {
                Err(DeltaFault::Round { theirs: round, ours })
            }
            Header::Increment { offset, bytes, .. } => self.place(offset, bytes),
            Header::Correction { offset, bytes, .. } => self.place_apart(offset, bytes),
            Header::End { bytes, .. } => self.cut(bytes),
            Header::Broken { bytes } => Ok(At::Cause { bytes: vec![0; bytes], filled: 0 }),
        }
    }

    /// Ends the last round behind `bytes` bytes, which must have landed. Regions have no rounds.
    fn cut(&self, bytes: u64) -> Result<At<T>, DeltaFault> {
        let (landed, is_end) = {
            let state = self.base.share.state();
            let (extents, landed) = (state.extents(), state.extents().done_bytes());
            let is_open = !extents.is_whole() && extents.prefix() == landed;
            let corrected = state.corrections.ranges().last().map_or(0, |range| range.end);
            (landed, is_open && landed as u64 == bytes && corrected <= landed)
        };
        if !is_end || self.has_whole_rounds() {
            return Err(DeltaFault::End { end: bytes, landed });
        }
        // Whoever sees the end may leave, and then nothing more is said.
        self.base.back.say_round(true, self.round);
        assert!(self.base.share.cut(), "nothing else lands");
        Ok(At::header())
    }

    /// Returns the place for an increment.
    fn place(&mut self, offset: u64, bytes: u64) -> Result<At<T>, DeltaFault> {
        let (range, outside) = (range_of(offset, bytes)?, DeltaFault::Outside { offset, bytes });
        if range == (0..0) && self.base.end_empty(self.round) {
            return Ok(At::header());
        }
        let parts = [range.start, range.len()].map(|bytes| bytes % size_of::<T>());
        if range.is_empty() || parts != [0, 0] || range.end > self.base.sections.bytes() {
            return Err(outside);
        }
        self.lease(range)
    }

    /// Whether rounds are neither cut nor corrected: those of regions, and those that are combined.
    fn has_whole_rounds(&self) -> bool {
        self.base.is_of_several() || self.combiner.is_some()
    }

    /// Returns the place for the bytes at these positions, the first of which are together there.
    fn lease(&self, positions: Range<usize>) -> Result<At<T>, DeltaFault> {
        let place = self.base.sections.place(&positions);
        let rest = positions.start + place.len()..positions.end;
        let lease = self.base.lease(place)?;
        Ok(At::Increment { lease, filled: 0, rest })
    }

    /// Returns the place for a correction: each byte has one a round, before all have landed.
    fn place_apart(&self, offset: u64, bytes: u64) -> Result<At<T>, DeltaFault> {
        let range = range_of(offset, bytes)?;
        let state = self.base.share.state();
        let fits = (1..=CORRECTION_BYTES_MAX).contains(&range.len())
            && range.end <= state.extents().bytes();
        if !fits || state.extents().is_whole() || self.has_whole_rounds() {
            return Err(DeltaFault::Outside { offset, bytes });
        }
        match state.corrections.overlap(&range) {
            Some(part) => Err(DeltaFault::Twice { start: part.start, end: part.end }),
            None => {
                Ok(At::Correction { offset: range.start, bytes: vec![0; range.len()], filled: 0 })
            }
        }
    }

    /// Goes on when the current place is full.
    fn turn(&mut self) {
        let next =
            match mem::replace(&mut self.at, At::Over) {
                At::Header { bytes, filled } if filled == HEADER_BYTES => self.begin(&bytes),
                At::Increment { lease, rest, .. } if lease.range().is_empty() => {
                    if rest.is_empty() { Ok(At::header()) } else { self.lease(rest) }
                }
                At::Correction { offset, bytes, filled } if filled == bytes.len() => {
                    self.base.share.state().corrections.note(offset, bytes.into());
                    Ok(At::header())
                }
                at => Ok(at),
            };
        match next {
            Ok(at) => self.at = at,
            Err(fault) => {
                let error = self.base.frame(fault);
                return self.fail(error);
            }
        }
        match &self.at {
            At::Cause { bytes, filled } if *filled == bytes.len() => {
                let unread = || Loss::new(LossKind::Refused, "its reason is not readable");
                let loss = Loss::from_bytes(bytes).unwrap_or_else(unread);
                self.over(self.ended(Some(loss)));
            }
            _ => {}
        }
    }

    /// Takes in `bytes` bytes of an increment.
    fn advance_increment(&mut self, bytes: usize) {
        let At::Increment { lease, filled, rest } = &mut self.at else { return };
        // Parts of elements are not done: other landings' bytes may come between.
        *filled += bytes;
        let whole = *filled - *filled % size_of::<T>();
        if whole == 0 {
            return;
        }
        let is_last = self.landed + whole == self.base.sections.bytes();
        if let Some(combiner) = &self.combiner {
            let start = rest.start - lease.range().len();
            match combiner.advance(lease, start..start + whole, self.round, is_last) {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => {
                    self.at = At::Over;
                    return combiner.fail(error);
                }
            }
        } else {
            if is_last {
                self.base.back.say_round(true, self.round);
            }
            lease.advance(whole);
            if is_last {
                self.base.done();
            }
        }
        *filled -= whole;
        self.landed += whole;
    }

    fn ended(&self, cause: Option<Loss>) -> DeltaRecvError {
        self.base.ended(self.landed, cause)
    }

    /// Ends the landing for a fault that the sender is told.
    fn fail(&mut self, error: DeltaRecvError) {
        self.base.refuse(&error);
        self.over(error);
    }

    /// Ends the landing, unless it has ended.
    fn over(&mut self, error: DeltaRecvError) {
        // The memory is released before the end is reported.
        self.at = At::Over;
        if mem::replace(&mut self.has_ended, true) {
            return;
        }
        match &self.combiner {
            None => {
                let is_whole = self.landed == self.base.sections.bytes();
                self.base.over(self.round + u32::from(is_whole), error);
            }
            Some(combiner) => combiner.over(error),
        }
    }
}

impl<T: Pod> Landing for Lander<T> {
    fn room(&mut self) -> &mut [u8] {
        let is_over = self.combiner.as_ref().is_some_and(|it| it.is_over());
        if self.interest.strong_count() == 0 || is_over {
            return &mut [];
        }
        match &mut self.at {
            At::Header { bytes, filled } => &mut bytes[*filled..],
            At::Increment { lease, filled, .. } => {
                let most = self.combiner.as_ref().map_or(usize::MAX, |it| it.read_bytes_max());
                let end = lease.range().len().min(most);
                &mut lease.bytes_mut()[*filled..end]
            }
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
            At::Increment { .. } => self.advance_increment(bytes),
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
        let error = self.ended(Some(Loss::new(LossKind::Left, "the node was closed")));
        self.over(error);
    }
}

#[cfg(test)]
mod tests;
