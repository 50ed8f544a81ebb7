//! The common base of a landing and the task that combines for it: the memory, the way back, and the end.

use std::ops::Range;
use std::sync::Arc;

use bytemuck::Pod;
use chunkcomm::Loss;
use tokio::sync::watch;

use super::{Origin, WayBack};
use crate::error::DeltaRecvError;
use crate::memory::{Lease, Share};
use crate::proto::extents::Taken;
use crate::proto::fault::DeltaFault;
use crate::proto::frame::Reply;
use crate::proto::sections::Sections;
use crate::trouble::FlowEnd;

/// Outcome of a region's landing; `None` while it goes on.
pub(crate) type LandingFate = Option<Result<(), DeltaRecvError>>;

/// Where the outcome of a landing is told.
pub enum Ending {
    /// In the memory: that of a delta.
    Memory,
    /// To the follower of a region's landing.
    Region(watch::Sender<LandingFate>),
    /// To the collective that the landing is part of.
    Flow(FlowEnd),
}

pub(super) struct Base<T: Pod> {
    pub(super) share: Share<T>,
    pub(super) sections: Sections,
    pub(super) back: Arc<WayBack>,
    pub(super) origin: Origin,
    pub(super) ending: Ending,
}

impl<T: Pod> Base<T> {
    /// Whether this may be one of several landings in its memory.
    pub(super) fn is_of_several(&self) -> bool {
        match self.ending {
            Ending::Memory => false,
            Ending::Region(_) => true,
            Ending::Flow(_) => !self.sections.is_whole(),
        }
    }

    /// Takes the bytes of `place`.
    pub(super) fn lease(&self, place: Range<usize>) -> Result<Lease<T>, DeltaFault> {
        let (offset, bytes) = (place.start as u64, place.len() as u64);
        self.share.lease(place).map_err(|taken| match taken {
            Taken::Outside => DeltaFault::Outside { offset, bytes },
            Taken::Done(part) | Taken::Out(part) => {
                DeltaFault::Twice { start: part.start, end: part.end }
            }
        })
    }

    /// Ends an empty round; false when this is none, or it has ended.
    pub(super) fn end_empty(&self, round: u32) -> bool {
        let is_open = match &self.ending {
            Ending::Memory => self.share.state().extents().is_open(),
            Ending::Region(fate) => self.sections.bytes() == 0 && fate.borrow().is_none(),
            Ending::Flow(_) => false,
        };
        if is_open {
            self.back.say_round(true, round);
            match self.ending {
                Ending::Memory => self.share.end_empty(),
                _ => self.done(),
            }
        }
        is_open
    }

    /// Tells the follower of a region's landing that all has landed.
    pub(super) fn done(&self) {
        self.tell(Ok(()));
    }

    fn tell(&self, outcome: Result<(), DeltaRecvError>) {
        let Ending::Region(fate) = &self.ending else { return };
        fate.send_if_modified(|fate| {
            let is_first = fate.is_none();
            fate.get_or_insert(outcome);
            is_first
        });
    }

    /// Ends the landing, unless it has ended: what is missing from `round` on will not come.
    pub(super) fn over(&self, round: u32, error: DeltaRecvError) {
        match &self.ending {
            Ending::Memory => self.share.change(|state| {
                state.end.get_or_insert(error);
            }),
            Ending::Region(fate) if fate.borrow().is_none() => {
                self.share.change(|state| state.lose(&self.sections, &error));
                self.tell(Err(error));
            }
            Ending::Region(_) => {}
            Ending::Flow(end) => end.not_received(round, error),
        }
    }

    /// Tells the sender why its bytes cannot be used, and ends the way back. Ranks of a collective hear the
    /// reason from their group.
    pub(super) fn refuse(&self, error: &DeltaRecvError) {
        if let Ending::Flow(_) = self.ending {
            return self.back.end();
        }
        self.back.say(&Reply::Fault(error.clone().into()).encode());
        self.back.end();
    }

    pub(super) fn frame(&self, fault: DeltaFault) -> DeltaRecvError {
        let Origin { peer, channel } = self.origin.clone();
        DeltaRecvError::Frame { peer, channel, fault }
    }

    /// Returns the error of a transfer that has ended after `landed` bytes of a region's sections, or
    /// after those of the buffer that are done.
    pub(super) fn ended(&self, landed: usize, cause: Option<Loss>) -> DeltaRecvError {
        let Origin { peer, channel } = self.origin.clone();
        let (landed_bytes, length_bytes) = if let Ending::Memory = self.ending {
            let state = self.share.state();
            (state.extents().done_bytes(), state.extents().bytes())
        } else {
            (landed, self.sections.bytes())
        };
        DeltaRecvError::Ended { peer, channel, landed_bytes, length_bytes, cause }
    }
}
