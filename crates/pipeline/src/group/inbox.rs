//! Words that no run has taken yet.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use super::io::Heard;
use crate::proto::talk::Kind;

/// A call, the rank that speaks of it, and a number that grows with each word.
type Key = (u64, usize, u64);

/// The words, by their calls and ranks, in the order in which they came.
#[derive(Default)]
pub(crate) struct Inbox {
    words: BTreeMap<Key, Heard>,
    /// Number of all words that ever came.
    count: u64,
}

impl Inbox {
    pub(super) fn push(&mut self, heard: Heard) {
        self.count += 1;
        self.words.insert((heard.call, heard.from, self.count), heard);
    }

    /// Takes the next word of this kind that came from a rank for a call.
    pub(super) fn take(&mut self, call: u64, from: usize, kind: Kind) -> Option<Heard> {
        let mut of_rank = self.words.range((call, from, 0)..=(call, from, u64::MAX));
        let key = *of_rank.find(|(_, heard)| heard.kind == kind)?.0;
        self.words.remove(&key)
    }

    /// Takes a word of a call, where there is one that `is_it`.
    pub(super) fn take_any(&mut self, call: u64, is_it: impl Fn(&Heard) -> bool) -> Option<Heard> {
        let key = *self.words.range(all(call)).find(|(_, heard)| is_it(heard))?.0;
        self.words.remove(&key)
    }

    /// Takes all words.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = Heard> + use<> {
        std::mem::take(&mut self.words).into_values()
    }

    /// Whether a word is there that came from a rank for a call.
    pub(super) fn has(&self, call: u64, from: usize) -> bool {
        self.words.range((call, from, 0)..=(call, from, u64::MAX)).next().is_some()
    }

    /// Returns the words of a call.
    pub(super) fn of_call(&self, call: u64) -> impl Iterator<Item = &Heard> {
        self.words.range(all(call)).map(|(_, heard)| heard)
    }
}

fn all(call: u64) -> RangeInclusive<Key> {
    (call, 0, 0)..=(call, usize::MAX, u64::MAX)
}
