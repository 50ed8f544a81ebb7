//! Words of a run: its progress to the user, and values that one worker has computed for the
//! others.

use std::task::Context;
use std::time::Duration;

use super::Run;
use crate::error::RunError;
use crate::proto::wire::{self, Told};
use crate::tasks::{Input, Output, Sink, Source};

/// Time between two calls with the progress of a run.
const SHOWN_EVERY: Duration = Duration::from_millis(100);

impl<O: Output, T: Source<Task: Input>, S: Sink<O>> Run<'_, O, T, S> {
    /// Calls the closure that watches the run, if there is one and its time has come.
    pub(super) fn show(&mut self, context: &mut Context<'_>) {
        if self.workers.watch.is_none() && !self.workers.board.is_looked_at() {
            return;
        }
        while self.show_wait.as_mut().is_none_or(|wait| wait.is_over(SHOWN_EVERY, context)) {
            self.show_now();
            self.post(false);
            self.show_wait.get_or_insert_default();
        }
    }

    pub(super) fn show_now(&mut self) {
        let progress = self.progress();
        if let Some(watch) = &mut self.workers.watch {
            watch(&progress);
        }
    }

    /// Sends workers the duty to compute a value, and values that others have computed.
    pub(super) fn reply(&mut self, context: &mut Context<'_>) -> Result<(), RunError> {
        while let Some((worker, key, mut message)) = self.account.once.poll_reply() {
            if message.len() as u64 > self.workers.links[worker].peer().message_bytes_max() {
                // The worker then computes the value for itself, and its later word about the value
                // is dropped.
                message = wire::once_order(self.account.plan.run, key, &Told::Compute);
            }
            self.tell(worker, message);
            self.send_stalled(worker, context)?;
        }
        Ok(())
    }
}
