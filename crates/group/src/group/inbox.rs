//! Words that no run has taken yet.

use std::collections::VecDeque;

use super::io::Heard;
use super::numbered::Numbered;
use crate::proto::talk::Kind;

/// Queues of earlier calls that are kept for the next ones, and most words for which such a one has memory.
const SPARE_COUNT_MAX: usize = 16;
const SPARE_WORDS_MAX: usize = 64;

/// The words, by their calls, in the order in which they came.
#[derive(Default)]
pub(crate) struct Inbox {
    calls: Numbered<VecDeque<Heard>>,
    spare: Vec<VecDeque<Heard>>,
}

impl Inbox {
    pub(super) fn push(&mut self, heard: Heard) {
        match self.calls.get_mut(heard.call) {
            Some(words) => words.push_back(heard),
            None => {
                let mut words = self.spare.pop().unwrap_or_default();
                let call = heard.call;
                words.push_back(heard);
                self.calls.insert(call, words);
            }
        }
    }

    /// Takes the next word of this kind that came from a rank for a call.
    pub(super) fn take(&mut self, call: u64, from: usize, kind: Kind) -> Option<Heard> {
        self.take_any(call, |heard| heard.from == from && heard.kind == kind)
    }

    /// Takes the first word of a call for which `is_it`.
    pub(super) fn take_any(&mut self, call: u64, is_it: impl Fn(&Heard) -> bool) -> Option<Heard> {
        let words = self.calls.get_mut(call)?;
        let at = words.iter().position(is_it)?;
        let heard = words.remove(at);
        if words.is_empty()
            && let Some(words) = self.calls.remove(call)
            && self.spare.len() < SPARE_COUNT_MAX
            && words.capacity() <= SPARE_WORDS_MAX
        {
            self.spare.push(words);
        }
        heard
    }

    /// Takes all words.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = Heard> + use<> {
        self.calls.take_all().flat_map(|(_, words)| words)
    }

    /// Whether a word is there that came from a rank for a call.
    pub(super) fn has(&self, call: u64, from: usize) -> bool {
        self.of_call(call).any(|heard| heard.from == from)
    }

    /// Returns the words of a call.
    pub(super) fn of_call(&self, call: u64) -> impl Iterator<Item = &Heard> {
        self.calls.get(call).into_iter().flatten()
    }
}
