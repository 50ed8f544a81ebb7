//! The receiving end of a line: a channel on which a rank sends one transfer after the other.
//!
//! ```text
//! line ──▶ word in front ──▶ the transfer that is due ──▶ its Lander, until all has landed
//!               ▲                                                     │
//!               '─────────────────────────────────────────────────────'
//! ```
//!
//! A transfer is made known before its sender may begin. A word that names none ends the line.

use std::collections::BTreeMap;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytemuck::Pod;
use chunkcomm::channel::{Landing, channel};
use chunkcomm::{Node, Peer, RecvError};
use tokio::runtime::Handle;
use tokio::sync::watch;

use super::base::{Base, Ending};
use super::combining::{Combine, Combiner, Operand};
use super::way_back::Back;
use super::{At, Interest, Lander, LandingFate, Origin, WayBack};
use crate::error::DeltaRecvError;
use crate::memory::Share;
use crate::proto::fault::DeltaFault;
use crate::proto::line::{HEAD_BYTES, Head};
use crate::proto::sections::Sections;

/// A transfer of a group, by the rank that sends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Due {
    pub(crate) from: usize,
    /// Number of the call in its group.
    pub(crate) call: u64,
    /// Number among the transfers of the two ranks in this call and direction, from 0.
    pub(crate) number: u32,
}

/// The transfers of a group that are due and have not begun.
#[derive(Default)]
pub(crate) struct Expected(Mutex<BTreeMap<Due, Awaited>>);

/// A transfer that has not begun: its bytes, its way back, and where it lands.
struct Awaited {
    bytes: u64,
    back: Arc<WayBack>,
    lander: Box<dyn Transfer>,
}

impl Expected {
    fn all(&self) -> MutexGuard<'_, BTreeMap<Due, Awaited>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a transfer of the rank in this call has not begun.
    pub(crate) fn awaits(&self, from: usize, call: u64) -> bool {
        let all = Due { from, call, number: 0 }..=Due { from, call, number: u32::MAX };
        self.all().range(all).next().is_some()
    }

    fn take(&self, due: &Due) -> Option<Awaited> {
        self.all().remove(due)
    }
}

/// Takes a transfer back that nobody waits for any more.
pub(super) struct Awaiting {
    expected: Arc<Expected>,
    due: Due,
}

impl Drop for Awaiting {
    fn drop(&mut self) {
        // Its end is told outside the lock.
        drop(self.expected.take(&self.due));
    }
}

/// Lets a transfer land in these sections, combined or as it comes, when a line brings it. It lasts as long as the
/// interest is held.
pub(crate) fn expect<T: Pod>(
    (expected, due): (&Arc<Expected>, Due),
    origin: Origin,
    (share, sections): (Share<T>, Sections),
    combine: Option<(Operand<T>, Combine<T>)>,
    fate: watch::Sender<LandingFate>,
    runtime: &Handle,
) -> Arc<Interest> {
    let back = Arc::new(WayBack::of_line());
    let awaiting = Awaiting { expected: Arc::clone(expected), due };
    let interest = Arc::new(Interest::awaiting(Arc::clone(&back), awaiting));
    let bytes = sections.bytes() as u64;
    let ending = Ending::Region(fate);
    let base = Arc::new(Base { share, sections, back: Arc::clone(&back), origin, ending });
    let combiner =
        combine.and_then(|it| Combiner::start(Arc::clone(&base), it, false, &interest, runtime));
    let lander = Box::new(Lander::new(base, combiner, &interest));
    expected.all().insert(due, Awaited { bytes, back, lander });
    interest
}

/// Accepts a line that `peer`, which has rank `from`, opens under this name.
///
/// # Cancel safety
/// When the future is dropped, a line that was opened meanwhile goes to the next call.
pub(crate) async fn accept_line(
    node: &Node,
    peer: &Peer,
    name: &str,
    from: usize,
    expected: &Arc<Expected>,
) -> Result<(), DeltaRecvError> {
    let accepted = node.accept_duplex_bytes(channel(name).from_peer(peer)).await;
    let (_, duplex) = accepted.map_err(DeltaRecvError::Accept)?;
    let (back, line, _) = duplex.split();
    let back = Arc::new(Mutex::new(Some(back)));
    line.land(Box::new(LineLanding::new(from, expected, back)));
    Ok(())
}

/// A landing whose end is known by its bytes.
trait Transfer: Landing {
    /// Whether all of it has landed.
    fn has_all(&self) -> bool;

    /// Lets go of it when all has landed: what is to be combined still has its own task.
    fn leave(self: Box<Self>);

    /// Ends it: the sender has another number of bytes.
    fn refuse(self: Box<Self>, bytes: u64);
}

impl<T: Pod> Transfer for Lander<T> {
    fn has_all(&self) -> bool {
        let is_between = matches!(self.at, At::Header { filled: 0, .. });
        is_between && self.landed == self.base.sections.bytes()
    }

    fn leave(mut self: Box<Self>) {
        self.has_ended = true;
    }

    fn refuse(mut self: Box<Self>, bytes: u64) {
        let error = self.base.frame(DeltaFault::Outside { offset: 0, bytes });
        self.fail(error);
    }
}

/// The driver's way to the transfers of a line.
struct LineLanding {
    from: usize,
    expected: Arc<Expected>,
    back: Back,
    at: Place,
}

/// The place for the next bytes of a line.
enum Place {
    Head { bytes: [u8; HEAD_BYTES], filled: usize },
    Transfer(Box<dyn Transfer>),
    Over,
}

impl LineLanding {
    fn new(from: usize, expected: &Arc<Expected>, back: Back) -> LineLanding {
        LineLanding { from, expected: Arc::clone(expected), back, at: Place::head() }
    }

    /// Returns the place for the bytes behind a word.
    fn begin(&self, head: &[u8; HEAD_BYTES]) -> Place {
        let Some(Head { call, number, bytes }) = Head::decode(head) else { return Place::Over };
        let due = Due { from: self.from, call, number };
        let Some(awaited) = self.expected.take(&due) else { return Place::Over };
        awaited.back.attach(&self.back);
        if awaited.bytes != bytes {
            awaited.lander.refuse(bytes);
            return Place::Over;
        }
        Place::Transfer(awaited.lander)
    }
}

impl Place {
    fn head() -> Place {
        Place::Head { bytes: [0; HEAD_BYTES], filled: 0 }
    }
}

impl Landing for LineLanding {
    fn room(&mut self) -> &mut [u8] {
        match &mut self.at {
            Place::Head { bytes, filled } => &mut bytes[*filled..],
            Place::Transfer(lander) => lander.room(),
            Place::Over => &mut [],
        }
    }

    fn advance(&mut self, bytes: usize) {
        match &mut self.at {
            Place::Head { bytes: head, filled } => {
                *filled += bytes;
                if *filled == HEAD_BYTES {
                    let head = *head;
                    self.at = self.begin(&head);
                }
            }
            Place::Transfer(lander) => {
                lander.advance(bytes);
                if lander.has_all()
                    && let Place::Transfer(lander) = mem::replace(&mut self.at, Place::head())
                {
                    lander.leave();
                }
            }
            Place::Over => {}
        }
    }

    fn end(self: Box<Self>, outcome: Result<(), RecvError>) {
        if let Place::Transfer(lander) = self.at {
            lander.end(outcome);
        }
    }
}

#[cfg(test)]
mod tests;
