//! Pieces of the ledger and their holders: split, opened, given, removed.

use std::ops::Range;

use super::piece::{Key, Piece};
use super::{Ledger, SUSPECTED, SetAside};

/// Largest buffer that is kept for the next assignment, in bytes.
pub(super) const KEPT_BYTES_MAX: usize = 64 << 10;

impl Ledger {
    /// Returns the tasks of this range that the worker holds, in ascending order.
    pub(super) fn held_of(&self, worker: usize, tasks: &Range<u64>) -> Vec<Range<u64>> {
        let common = |&key: &Key| {
            let held = self.pieces[key].tasks();
            held.start.max(tasks.start)..held.end.min(tasks.end)
        };
        let held = self.workers[worker].pieces.iter().map(common);
        let mut parts: Vec<_> = held.filter(|part| !part.is_empty()).collect();
        parts.sort_by_key(|part| part.start);
        parts
    }

    /// Makes these tasks, which lie in one piece that the worker holds, a piece of their own.
    pub(super) fn carve(&mut self, worker: usize, tasks: &Range<u64>) -> Key {
        let has = |key: &&Key| self.pieces[**key].tasks().contains(&tasks.start);
        let key = *self.workers[worker].pieces.iter().find(has).expect("the worker holds it");
        let key = match (tasks.start - self.pieces[key].first) as u32 {
            0 => key,
            before => self.split_off(key, before),
        };
        let count = (tasks.end - tasks.start) as u32;
        if count < self.pieces[key].count {
            self.split_off(key, count);
        }
        key
    }

    /// Splits a piece after its first `at` tasks; returns the second part.
    pub(super) fn split_off(&mut self, key: Key, at: u32) -> Key {
        let piece = &mut self.pieces[key];
        let (rest, holders) = (piece.split_off(at), piece.holders);
        let rest = self.insert(rest);
        for holder in holders.into_iter().flatten() {
            let pieces = &mut self.workers[holder as usize].pieces;
            let after = pieces.iter().position(|&held| held == key).map_or(0, |at| at + 1);
            pieces.insert(after, rest);
        }
        rest
    }

    /// Splits an open piece into about `parts`.
    pub(super) fn split(&mut self, key: Key, parts: u32) {
        let each = self.pieces[key].count.div_ceil(parts).max(1);
        for part in self.pieces[key].split(each) {
            let key = self.insert(part);
            self.open_again(key);
        }
    }

    /// Ends a worker's hold of a piece; returns whether no worker holds it now.
    pub(super) fn let_go(&mut self, key: Key, worker: usize) -> bool {
        let piece = &mut self.pieces[key];
        let slot = &mut self.workers[worker];
        slot.pieces.retain(|&held| held != key);
        slot.tasks -= u64::from(piece.count);
        let others = piece.holders.into_iter().flatten().find(|&held| held as usize != worker);
        piece.holders = [others, None];
        others.is_none()
    }

    pub(super) fn open_again(&mut self, key: Key) {
        let is_suspect = self.is_suspect(key);
        let waiting = if is_suspect { &mut self.suspects } else { &mut self.open };
        waiting.push_back(key);
    }

    /// Whether a worker is to have this piece alone, so that the next death tells the cause.
    fn is_suspect(&self, key: Key) -> bool {
        let deaths = self.pieces[key].deaths;
        deaths >= SUSPECTED || deaths > 0 && deaths + 1 >= self.deaths_max
    }

    pub(super) fn set_aside(&mut self, key: Key) -> SetAside {
        let piece = &self.pieces[key];
        let aside = SetAside { task: piece.first, deaths: piece.deaths, input: piece.input() };
        self.unanswered -= 1;
        self.remove(key);
        aside
    }

    #[inline]
    pub(super) fn hold(&mut self, worker: usize, key: Key, now_ns: u64) {
        let is_suspect = self.is_suspect(key);
        let piece = &mut self.pieces[key];
        let free = piece.holders.iter_mut().find(|holder| holder.is_none());
        *free.expect("a piece has at most two holders") = Some(worker as u32);
        piece.given_ns = now_ns;
        let slot = &mut self.workers[worker];
        if slot.pieces.is_empty() {
            slot.heard_ns = now_ns;
            slot.alone = is_suspect;
        }
        slot.tasks += u64::from(piece.count);
        slot.pieces.push_back(key);
        slot.barren = false;
        self.stand_in_line(worker);
    }

    #[inline]
    pub(super) fn insert(&mut self, piece: Piece) -> Key {
        match self.free.pop() {
            Some(key) => {
                self.pieces[key] = piece;
                key
            }
            None => {
                self.pieces.push(piece);
                self.pieces.len() - 1
            }
        }
    }

    /// Removes a finished piece, also from its holders. Its buffer is kept.
    #[inline]
    pub(super) fn remove(&mut self, key: Key) {
        let piece = &mut self.pieces[key];
        let copied = piece.holders[1].is_some();
        for holder in std::mem::take(&mut piece.holders).into_iter().flatten() {
            let slot = &mut self.workers[holder as usize];
            slot.tasks -= u64::from(piece.count);
            // A worker that answers at this moment owes nothing afterwards.
            slot.owes |= copied;
            match slot.pieces.front() {
                Some(&front) if front == key => drop(slot.pieces.pop_front()),
                _ => slot.pieces.retain(|&held| held != key),
            }
        }
        piece.count = 0;
        piece.skip = 0;
        if piece.message.capacity() > KEPT_BYTES_MAX {
            piece.message = Vec::new();
        }
        self.free.push(key);
    }
}
