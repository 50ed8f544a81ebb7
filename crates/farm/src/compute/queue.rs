//! The assignments of a worker, in slices.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::proto::placement::{Place, Placement};
use crate::proto::wire;

/// Time of a slice on a compute thread, in nanoseconds: what is in a slice cannot be given back.
const SLICE_NS: f64 = 250e3;

/// The next step of a compute thread.
pub(super) enum Next {
    Run(Slice),
    Wait,
    End,
}

/// Tasks of one assignment that are not begun.
pub(super) struct Piece {
    pub(super) run: u32,
    pub(super) function: u32,
    pub(super) first: u64,
    pub(super) count: u32,
    /// How often they were given out before.
    pub(super) attempt: u32,
    /// Their inputs, each after its length.
    pub(super) items: Bytes,
}

/// Tasks that are run one after the other.
pub(super) struct Slice {
    pub(super) tasks: Piece,
    /// Number of tasks that are then left, if the assignment has no more; for one thread.
    pub(super) left: Option<u64>,
}

/// State that the runners of a worker share.
pub(super) struct Queue {
    pub(super) pieces: VecDeque<Piece>,
    /// Number of tasks in them.
    pub(super) tasks: u64,
    /// Where the tasks of each function run.
    pub(super) placements: Vec<Placement>,
    pub(super) threads: u32,
    /// Whether tiny tasks run in the I/O loop.
    pub(super) loops: bool,
    /// Number of compute threads that wait for tasks.
    pub(super) waiting: u32,
    /// Number of the newest run: pieces of earlier ones are dropped.
    pub(super) run: u32,
    pub(super) closed: bool,
}

impl Queue {
    pub(super) fn new(functions: usize, threads: u32, loops: bool) -> Queue {
        Queue {
            pieces: VecDeque::new(),
            tasks: 0,
            placements: vec![Placement::new(); functions],
            threads,
            loops,
            waiting: 0,
            run: 0,
            closed: false,
        }
    }

    /// Takes tasks of about this time in nanoseconds, if the next ones run at this place.
    pub(super) fn take(&mut self, place: Place, target_ns: f64) -> Option<Slice> {
        let piece = self.pieces.front_mut()?;
        let placement = &self.placements[piece.function as usize];
        let where_due = if self.loops { placement.place() } else { Place::Thread };
        if where_due != place {
            return None;
        }
        let fair = piece.count.div_ceil(self.threads);
        let count = placement.tasks_in(target_ns).min(fair);
        self.tasks -= u64::from(count);
        if count == piece.count {
            let left = Some(self.tasks / u64::from(self.threads));
            return self.pieces.pop_front().map(|tasks| Slice { tasks, left });
        }
        // A fault in the bytes after the end shows when they are run.
        let bytes = wire::items_bytes(&piece.items, count).unwrap_or(piece.items.len());
        let items = piece.items.split_to(bytes);
        let tasks = Piece { count, items, ..*piece };
        piece.first += u64::from(count);
        piece.count -= count;
        Some(Slice { tasks, left: None })
    }

    pub(super) fn give_back(&mut self, count: u64) -> Vec<(u64, u32)> {
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

    pub(super) fn clear(&mut self) {
        self.pieces.clear();
        self.tasks = 0;
    }

    /// Begins a run: what an earlier one left is dropped. Returns whether it is another run.
    pub(super) fn enter(&mut self, run: u32) -> bool {
        let is_other = self.run != run;
        if is_other {
            self.run = run;
            self.clear();
        }
        is_other
    }

    pub(super) fn next(&mut self) -> Next {
        if self.closed {
            return Next::End;
        }
        match self.take(Place::Thread, SLICE_NS) {
            Some(slice) => Next::Run(slice),
            None => Next::Wait,
        }
    }
}
