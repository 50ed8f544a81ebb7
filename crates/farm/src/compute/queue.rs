//! The assignments of a worker, in slices.

use crate::pieces::{Piece, Pieces};
use crate::proto::placement::{Place, Placement};

/// Time of a slice on a compute thread, in nanoseconds: what is in a slice cannot be given back.
const SLICE_NS: f64 = 250e3;

/// The next step of a compute thread.
pub(super) enum Next {
    Run(Slice),
    Wait,
    End,
}

/// Tasks that are run one after the other.
pub(super) struct Slice {
    pub(super) tasks: Piece,
    /// Number of tasks that are then left, if the assignment has no more; for one thread.
    pub(super) left: Option<u64>,
}

/// State that the runners of a worker share.
pub(super) struct Queue {
    pub(super) pieces: Pieces,
    /// Where the tasks of each function run.
    pub(super) placements: Vec<Placement>,
    pub(super) threads: u32,
    /// Whether tiny tasks run in the I/O loop.
    pub(super) loops: bool,
    /// Number of compute threads that wait for tasks.
    pub(super) waiting: u32,
    pub(super) closed: bool,
}

impl Queue {
    pub(super) fn new(functions: usize, threads: u32, loops: bool) -> Queue {
        Queue {
            pieces: Pieces::default(),
            placements: vec![Placement::new(); functions],
            threads,
            loops,
            waiting: 0,
            closed: false,
        }
    }

    /// Takes tasks of about this time in nanoseconds, if the next ones run at this place.
    pub(super) fn take(&mut self, place: Place, target_ns: f64) -> Option<Slice> {
        let piece = self.pieces.front()?;
        let placement = &self.placements[piece.function as usize];
        let where_due = if self.loops { placement.place() } else { Place::Thread };
        if where_due != place {
            return None;
        }
        let (held, fair) = (piece.count, piece.count.div_ceil(self.threads));
        let tasks = self.pieces.take(placement.tasks_in(target_ns).min(fair))?;
        let left = (tasks.count == held).then(|| self.pieces.tasks() / u64::from(self.threads));
        Some(Slice { tasks, left })
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
