//! The farmer's own worker in a run, where tasks do not pay to be sent.

use bytes::Bytes;

use super::Run;
use crate::proto::wire;
use crate::tasks::{Input, Output, Sink, Source};

impl<O: Output, T: Source<Task: Input>, S: Sink<O>> Run<'_, O, T, S> {
    /// Lets the farmer's own worker take part, once tasks do not pay to be sent.
    pub(super) fn look_home(&mut self) {
        if self.home.is_due(self.account.now_ns) && self.home.handle_look(self.account.spent()) {
            self.workers.crew.hire_reserve();
            // The worker may be there already, from an earlier run.
            if let Some(worker) = self.own_worker() {
                let name = &self.workers.links[worker].name;
                let is_chosen = self.workers.choose(name, &self.home);
                self.account.keep_off(worker, !is_chosen);
            }
        }
    }

    /// Gives the farmer's own worker no further task of this run, and takes back tasks that it has
    /// not begun. Another worker died, perhaps of a task.
    pub(super) fn work_no_more(&mut self) {
        self.home.handle_death();
        let Some(worker) = self.own_worker() else { return };
        self.account.keep_off(worker, true);
        let held = self.account.ledger.held(worker);
        if held > 0 {
            let word = wire::take_back(self.account.plan.run, held);
            self.tell(worker, Bytes::copy_from_slice(&word));
        }
    }

    fn own_worker(&self) -> Option<usize> {
        let links = &self.workers.links;
        links.iter().position(|link| self.workers.crew.is_reserve(&link.name))
    }
}
