//! Panics of processes, with the place where they were.
//!
//! A caught panic has its message but not its place, which only the panic hook receives. So a hook
//! notes the place for the thread, if a process is running on it, and goes on to the hook that was
//! there before.

use crate::registry::panic_message;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

thread_local! {
    static WATCHED: Cell<bool> = const { Cell::new(false) };
    static PLACE: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// A caught panic.
#[derive(Debug)]
pub(crate) struct Panicked {
    pub(super) message: String,
    pub(super) place: Option<String>,
}

fn install() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if WATCHED.get() {
                PLACE.set(info.location().map(ToString::to_string));
            }
            before(info);
        }));
    });
}

/// Runs a piece of a process, and catches its panic.
pub(crate) fn catch<R>(run: impl FnOnce() -> R) -> Result<R, Panicked> {
    install();
    let before = WATCHED.replace(true);
    // Half-done state of a process is dropped with it.
    let ran = catch_unwind(AssertUnwindSafe(run));
    WATCHED.set(before);
    ran.map_err(|panic| Panicked {
        message: panic_message(panic.as_ref()).to_owned(),
        place: PLACE.take(),
    })
}
