//! A worker, as the ledger sees it.

use std::collections::VecDeque;

use super::Share;
use super::balance::{SIGN_NS, SILENCE_NS_MIN};
use super::piece::Key;

#[derive(Clone, Debug, Default)]
pub(super) struct Worker {
    pub(super) joined: bool,
    /// Whether the worker gets no task of this run.
    pub(super) kept_off: bool,
    /// Whether the worker gets copies of a silent worker's tasks.
    pub(super) gets_copies: bool,
    pub(super) in_line: bool,
    /// Whether the last piece still waits to be sent; no other is given before.
    pub(super) stalled: bool,
    /// Whether the worker holds a suspect, and gets nothing beside it.
    pub(super) alone: bool,
    /// Whether another worker answered its tasks, so that its own answer is still to come.
    pub(super) owes: bool,
    /// Time at which it was asked for tasks not begun; `None` once it has answered that.
    pub(super) asked_ns: Option<u64>,
    /// Whether it had no such tasks when it was asked, and got no piece since.
    pub(super) barren: bool,
    pub(super) threads: u32,
    pub(super) share: Share,
    pub(super) task_ns: Option<f64>,
    /// Time of its last answer, or of a piece that it got while it had none.
    pub(super) heard_ns: u64,
    /// Time of its last message of any kind.
    pub(super) signed_ns: u64,
    /// Whether it is asked for signs of life; its tasks are then copied only after one.
    pub(super) is_asked: bool,
    pub(super) tasks: u64,
    pub(super) pieces: VecDeque<Key>,
}

impl Worker {
    pub(super) fn new(share: Share, threads: u32) -> Worker {
        let threads = threads.max(1);
        Worker { joined: true, gets_copies: true, threads, share, ..Worker::default() }
    }

    pub(super) fn has_room(&self) -> bool {
        let has_place = self.pieces.is_empty() || !self.alone;
        has_place
            && self.joined
            && !self.kept_off
            && !self.stalled
            && !self.owes
            && (self.pieces.len() < self.share.pieces as usize || self.holds_little())
    }

    /// Whether a worker of several threads holds no more tasks than its share less one piece. The
    /// rest of a piece may wait for one thread, while the others have no task.
    fn holds_little(&self) -> bool {
        let others = u64::from(self.share.pieces - 1) * u64::from(self.share.grain);
        self.threads > 1 && self.tasks <= others
    }

    pub(super) fn is_idle(&self) -> bool {
        let is_free = self.joined && !self.kept_off && !self.stalled && !self.owes;
        is_free && self.pieces.is_empty()
    }

    /// Whether the worker gave a sign of life since its last answer, or is not asked for any.
    pub(super) fn is_alive(&self, now_ns: u64) -> bool {
        let is_new = (now_ns.saturating_sub(self.signed_ns) as f64) < SIGN_NS;
        !self.is_asked || is_new && self.signed_ns > self.heard_ns
    }

    /// Whether the worker was asked for tasks a short time ago, and has not answered that.
    pub(super) fn is_to_give(&self, now_ns: u64) -> bool {
        let since = |asked_ns: u64| (now_ns.saturating_sub(asked_ns) as f64) < SILENCE_NS_MIN;
        self.joined && self.asked_ns.is_some_and(since)
    }

    /// Returns the number of tasks that the worker cannot have begun.
    pub(super) fn spare(&self) -> u64 {
        self.tasks.saturating_sub(self.threads.into())
    }
}
