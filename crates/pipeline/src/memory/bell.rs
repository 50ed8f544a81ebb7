//! The bell of a memory, for tasks that wait.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;

/// Wakes all tasks that wait, in the order in which they began to: a simulation is the same each time.
///
/// A `watch` channel wakes its receivers in a random order.
#[derive(Debug, Default)]
pub(super) struct Bell(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    rings: AtomicU64,
    waiting: Notify,
}

impl Bell {
    pub(super) fn ring(&self) {
        self.0.rings.fetch_add(1, Ordering::Release);
        self.0.waiting.notify_waiters();
    }

    /// Returns what hears the bell from now on.
    pub(super) fn hearer(&self) -> Hearer {
        let heard = self.0.rings.load(Ordering::Acquire);
        Hearer { bell: Arc::clone(&self.0), heard }
    }
}

/// Hears a bell.
#[derive(Debug)]
pub(crate) struct Hearer {
    bell: Arc<Shared>,
    heard: u64,
}

impl Hearer {
    /// Takes no notice of the rings so far.
    pub(crate) fn mark_unchanged(&mut self) {
        self.heard = self.bell.rings.load(Ordering::Acquire);
    }

    /// Waits until the bell has rung since the last call.
    pub(crate) async fn changed(&mut self) {
        loop {
            let mut rung = pin!(self.bell.waiting.notified());
            rung.as_mut().enable();
            let rings = self.bell.rings.load(Ordering::Acquire);
            if rings != self.heard {
                self.heard = rings;
                return;
            }
            rung.await;
        }
    }
}
