//! Waits of a hand-written future.

use std::pin::Pin;
use std::task::Context;
use std::time::Duration;

use chunkcomm::host::{Instant, sleep, sleep_until};

/// Wait that begins when it is first asked for, and again after it was over.
#[derive(Default)]
pub(crate) struct Timer {
    wait: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    /// End of the wait, if that is a moment.
    at: Option<Instant>,
}

impl Timer {
    /// Whether this time has passed since the wait began; wakes the context then.
    pub(crate) fn is_over(&mut self, time: Duration, context: &mut Context<'_>) -> bool {
        let wait = self.wait.get_or_insert_with(|| Box::pin(sleep(time)));
        let is_over = wait.as_mut().poll(context).is_ready();
        if is_over {
            *self = Timer::default();
        }
        is_over
    }

    /// Whether this moment has come; wakes the context then, and for no other moment.
    pub(crate) fn has_come(&mut self, at: Instant, context: &mut Context<'_>) -> bool {
        if self.at.replace(at) != Some(at) {
            self.wait = Some(Box::pin(sleep_until(at)));
        }
        self.is_over(Duration::ZERO, context)
    }
}
