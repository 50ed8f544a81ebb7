//! The link of the message at hand.
//!
//! serde hands no context to `Deserialize`. So the node and the link are kept in a variable of the
//! thread while a message is decoded that asks for them.

use crate::driver::mail::Link;
use crate::node::Node;
use std::cell::{Cell, RefCell};

thread_local! {
    static ARRIVING: RefCell<Option<(Node, Link)>> = const { RefCell::new(None) };
    static NEEDED: Cell<bool> = const { Cell::new(false) };
}

/// Notes that values of the type at hand need [`arriving`]. To be called first by their
/// `Deserialize`.
///
/// A receiver of such values decodes all that arrived before it is dropped, so that none of them
/// is lost unseen.
pub fn needs_link() {
    NEEDED.set(true);
}

/// Runs `probe` and returns whether a type in it needs its link.
pub(crate) fn finds_needs<R>(probe: impl FnOnce() -> R) -> (R, bool) {
    let before = NEEDED.replace(false);
    let result = probe();
    (result, NEEDED.replace(before))
}

/// Returns the node at which the message at hand is decoded, and the link by which it came. `None`
/// where no message of a channel is decoded.
#[must_use]
pub fn arriving() -> Option<(Node, Link)> {
    ARRIVING.with(|arriving| arriving.borrow().clone())
}

/// Runs `decode`; within it the message at hand arrives at `node` by `link`.
pub fn arriving_by<R>(node: &Node, link: &Link, decode: impl FnOnce() -> R) -> R {
    struct Restore(Option<(Node, Link)>);
    impl Drop for Restore {
        fn drop(&mut self) {
            ARRIVING.with(|arriving| arriving.replace(self.0.take()));
        }
    }
    let here = Some((node.clone(), link.clone()));
    let _restore = Restore(ARRIVING.with(|arriving| arriving.replace(here)));
    decode()
}
