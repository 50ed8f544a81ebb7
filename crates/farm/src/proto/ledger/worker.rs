//! A worker, as the ledger sees it.

use std::collections::VecDeque;

use super::Share;
use super::balance::{SIGN_NS, SILENCE_NS_MIN};
use super::piece::Key;

#[derive(Clone, Debug)]
pub(super) struct Worker {
    pub(super) joined: bool,
    /// Whether it gets no task of this run.
    pub(super) kept_off: bool,
    /// Whether it gets copies of what a silent worker holds.
    pub(super) gets_copies: bool,
    pub(super) in_line: bool,
    /// Whether the last piece is not on its way yet; no other is given before.
    pub(super) stalled: bool,
    /// Whether it got nothing beside a suspect.
    pub(super) alone: bool,
    /// Whether another answered what it holds, so that its own answer is still to come.
    pub(super) owes: bool,
    /// When it was asked for tasks that it has not begun; `None` if it has said what it gives.
    pub(super) asked_ns: Option<u64>,
    /// Whether it had none when it was asked, and got no piece since.
    pub(super) barren: bool,
    pub(super) threads: u32,
    pub(super) share: Share,
    pub(super) task_ns: Option<f64>,
    /// When it answered last, or got a piece while it had none.
    pub(super) heard_ns: u64,
    /// When it was heard last, whatever it said.
    pub(super) signed_ns: u64,
    /// Whether it is asked for signs of life, and what it holds is copied only with one.
    pub(super) is_asked: bool,
    pub(super) tasks: u64,
    pub(super) pieces: VecDeque<Key>,
}

impl Worker {
    pub(super) fn new(share: Share, threads: u32) -> Worker {
        Worker {
            joined: true,
            kept_off: false,
            gets_copies: true,
            in_line: false,
            stalled: false,
            alone: false,
            owes: false,
            asked_ns: None,
            barren: false,
            threads: threads.max(1),
            share,
            task_ns: None,
            heard_ns: 0,
            signed_ns: 0,
            is_asked: false,
            tasks: 0,
            pieces: VecDeque::new(),
        }
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

    /// Whether several threads hold no more tasks than all pieces of their share but one. The rest of a
    /// piece may wait for one thread, while the others have none.
    fn holds_little(&self) -> bool {
        let others = u64::from(self.share.pieces - 1) * u64::from(self.share.grain);
        self.threads > 1 && self.tasks <= others
    }

    pub(super) fn is_idle(&self) -> bool {
        let is_free = self.joined && !self.kept_off && !self.stalled && !self.owes;
        is_free && self.pieces.is_empty()
    }

    /// Whether it does not answer, but has given a sign of life since.
    pub(super) fn is_alive(&self, now_ns: u64) -> bool {
        let is_new = (now_ns.saturating_sub(self.signed_ns) as f64) < SIGN_NS;
        !self.is_asked || is_new && self.signed_ns > self.heard_ns
    }

    /// Whether it was asked for tasks a short time ago, and has not said what it gives.
    pub(super) fn is_to_give(&self, now_ns: u64) -> bool {
        let since = |asked_ns: u64| (now_ns.saturating_sub(asked_ns) as f64) < SILENCE_NS_MIN;
        self.joined && self.asked_ns.is_some_and(since)
    }

    /// Returns the number of tasks that it cannot have begun.
    pub(super) fn spare(&self) -> u64 {
        self.tasks.saturating_sub(self.threads.into())
    }
}
