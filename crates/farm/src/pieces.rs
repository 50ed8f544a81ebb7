//! Encoded tasks that wait: at a worker to begin, or at a sub-farmer to be given out.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::proto::wire::{self, Assignment};

/// Tasks of one assignment.
#[derive(Default)]
pub(crate) struct Piece {
    pub(crate) run: u32,
    pub(crate) function: u32,
    pub(crate) first: u64,
    pub(crate) count: u32,
    /// Number of times that the tasks were given out before.
    pub(crate) attempt: u32,
    /// Their inputs, each after its length.
    pub(crate) items: Bytes,
}

impl Piece {
    /// Returns the inputs one by one.
    pub(crate) fn inputs(&self) -> wire::Items<'_> {
        wire::Items::new(&self.items, self.count)
    }
}

/// Pieces of one run, the oldest first.
#[derive(Default)]
pub(crate) struct Pieces {
    pieces: VecDeque<Piece>,
    /// Number of tasks in them.
    tasks: u64,
    /// Number of the newest run; pieces of earlier runs are dropped.
    run: u32,
}

impl Pieces {
    /// Takes an assignment; returns whether it begins another run.
    pub(crate) fn put(&mut self, assignment: &Assignment<'_>) -> bool {
        let Assignment { run, function, first, count, attempt, items, .. } = *assignment;
        let is_other = self.enter(run);
        if count > 0 {
            let items = Bytes::copy_from_slice(items);
            self.pieces.push_back(Piece { run, function, first, count, attempt, items });
            self.tasks += u64::from(count);
        }
        is_other
    }

    /// Returns the number of tasks.
    pub(crate) fn tasks(&self) -> u64 {
        self.tasks
    }

    /// Returns the number of the newest run.
    pub(crate) fn run(&self) -> u32 {
        self.run
    }

    pub(crate) fn front(&self) -> Option<&Piece> {
        self.pieces.front()
    }

    /// Takes up to `count` tasks of the oldest piece.
    pub(crate) fn take(&mut self, count: u32) -> Option<Piece> {
        let piece = self.pieces.front_mut()?;
        if count >= piece.count {
            self.tasks -= u64::from(piece.count);
            return self.pieces.pop_front();
        }
        self.tasks -= u64::from(count);
        // A fault in the bytes after the end shows when the tasks run.
        let bytes = wire::items_bytes(&piece.items, count).unwrap_or(piece.items.len());
        let items = piece.items.split_to(bytes);
        let taken = Piece { count, items, ..*piece };
        piece.first += u64::from(count);
        piece.count -= count;
        Some(taken)
    }

    /// Removes up to `count` tasks of this run, the newest first; returns their ranges.
    pub(crate) fn give_back(&mut self, count: u64) -> Vec<(u64, u32)> {
        let (mut left, mut given) = (count, Vec::new());
        while let Some(piece) = self.pieces.back_mut().filter(|_| left > 0) {
            let taken = u32::try_from(left).unwrap_or(u32::MAX).min(piece.count);
            piece.count -= taken;
            left -= u64::from(taken);
            self.tasks -= u64::from(taken);
            given.push((piece.first + u64::from(piece.count), taken));
            if piece.count == 0 {
                self.pieces.pop_back();
            } else {
                let bytes = wire::items_bytes(&piece.items, piece.count);
                piece.items.truncate(bytes.unwrap_or(piece.items.len()));
            }
        }
        given
    }

    pub(crate) fn clear(&mut self) {
        self.pieces.clear();
        self.tasks = 0;
    }

    /// Begins a run and drops what an earlier one left; returns whether it is another run.
    pub(crate) fn enter(&mut self, run: u32) -> bool {
        let is_other = self.run != run;
        if is_other {
            self.run = run;
            self.clear();
        }
        is_other
    }
}
