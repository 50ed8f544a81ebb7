//! Crossing of a channel end into a message and out of it.
//!
//! serde hands no context to `Serialize` and `Deserialize`. So a thread variable holds the context
//! of the ends while their message is encoded or decoded. Without that variable an end does not
//! cross.

use super::{Moving, Saying};
use crate::moving::moving;
use crate::proto::custody::Origin;
use chunkcomm::Node;
use chunkcomm::layer::arriving;
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

thread_local! {
    static LEAVING: RefCell<Option<Leaving>> = const { RefCell::new(None) };
}

/// The end is here.
const HERE: u8 = 0;
/// The end is in a message that may still be refused.
const PACKED: u8 = 1;
/// The end has left, or was used.
const GONE: u8 = 2;

/// An unused end, at the node where it is. Dropping it informs the end's home.
pub(crate) struct Held {
    pub(crate) node: Node,
    pub(crate) origin: Origin,
    state: AtomicU8,
}

impl Held {
    pub(crate) fn new(node: Node, origin: Origin) -> Arc<Held> {
        Arc::new(Held { node, origin, state: AtomicU8::new(HERE) })
    }

    /// Marks the end as used or left: dropping it then reports nothing.
    pub(crate) fn gone(&self) {
        self.state.store(GONE, Ordering::Relaxed);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.state.load(Ordering::Relaxed) != GONE {
            let moving = moving(&self.node);
            let by = moving.name.clone();
            let fate = crate::proto::custody::Fate::Dropped { by };
            moving.custody(|custody| custody.release(self.origin, fate));
        }
    }
}

/// Ends in a message that is being encoded or waits to be accepted. Dropping this takes them back.
pub(crate) struct Leaving {
    moving: Arc<Moving>,
    line: u64,
    carrier: u64,
    ends: Vec<(Arc<Held>, u64)>,
}

impl Leaving {
    /// Begins with no ends, for a message on this line, by the channel with this number.
    pub(crate) fn new(moving: &Arc<Moving>, line: &Saying, carrier: u64) -> Leaving {
        Leaving { moving: Arc::clone(moving), line: line.number, carrier, ends: Vec::new() }
    }

    /// Runs `encode`, during which ends may cross.
    pub(crate) fn during<R>(self, encode: impl FnOnce() -> R) -> (R, Leaving) {
        struct Restore(Option<Leaving>);
        impl Drop for Restore {
            fn drop(&mut self) {
                LEAVING.with(|leaving| leaving.replace(self.0.take()));
            }
        }
        let before = LEAVING.with(|leaving| leaving.replace(Some(self)));
        let mut restore = Restore(before);
        let result = encode();
        let after = LEAVING.with(|leaving| leaving.replace(restore.0.take()));
        (result, after.expect("only a crossing inside of this one takes it, and puts it back"))
    }

    /// Returns the ends that leave, for a message that its receiver may refuse.
    pub(crate) fn carried(&self) -> Carried {
        Carried { moving: Arc::clone(&self.moving), hops: self.hops() }
    }

    /// Returns the numbers of the hops.
    pub(crate) fn hops(&self) -> Vec<u64> {
        self.ends.iter().map(|(_, hop)| *hop).collect()
    }

    /// Notes that the message was accepted: the ends have left.
    pub(crate) fn accepted(mut self) {
        for (held, _) in self.ends.drain(..) {
            held.gone();
        }
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        for (held, hop) in self.ends.drain(..) {
            self.moving.custody(|custody| custody.take_back(hop));
            held.state.store(HERE, Ordering::Relaxed);
        }
    }
}

/// Ends in a message that was sent.
pub(crate) struct Carried {
    moving: Arc<Moving>,
    hops: Vec<u64>,
}

impl Carried {
    /// Notes that the message was refused: the ends that did not arrive before are lost.
    pub(crate) fn refused(self) {
        self.moving.custody(|custody| custody.handle_refused(&self.hops));
    }
}

/// Reason why an end does not cross.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stays {
    /// The message is sent by a call that takes it by reference.
    NotMoved,
    /// The end belongs to another node of this program than the channel.
    OtherNode,
    /// The end is in a message already.
    Twice,
}

impl std::fmt::Display for Stays {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Stays::NotMoved => {
                "a channel end moves: it is sent by `hand_over`, by a call, or given to a process"
            }
            Stays::OtherNode => "a channel end is sent by channels of the node that has it",
            Stays::Twice => "a channel end is in one message only",
        })
    }
}

/// Packs the end into the message that is being encoded; returns the number of its hop.
pub(crate) fn pack(held: &Arc<Held>) -> Result<u64, Stays> {
    LEAVING.with(|leaving| {
        let mut leaving = leaving.borrow_mut();
        let Some(leaving) = &mut *leaving else { return Err(Stays::NotMoved) };
        if !Arc::ptr_eq(&leaving.moving, &moving(&held.node)) {
            return Err(Stays::OtherNode);
        }
        if held.state.swap(PACKED, Ordering::Relaxed) != HERE {
            return Err(Stays::Twice);
        }
        let (line, carrier) = (leaving.line, leaving.carrier);
        let hop = leaving.moving.custody(|custody| custody.send(held.origin, line, carrier));
        leaving.ends.push((Arc::clone(held), hop));
        Ok(hop)
    })
}

/// Takes the end with this hop out of the message that is being decoded; `None` if there is no such
/// message.
pub(crate) fn unpack(hop: u64) -> Option<Arc<Held>> {
    let (node, link) = arriving()?;
    let moving = moving(&node);
    let line = moving.line(&link);
    moving.custody(|custody| custody.arrive(line.number, hop));
    let origin = Origin::Hop { link: line.number, hop };
    Some(Held::new(node, origin))
}
