//! Assignments of a worker, in slices.

use chunkcomm::host::Instant;

use super::aside::Patience;
use super::waits::{Begun, Key, Waits};
use crate::pieces::{Piece, Pieces};
use crate::proto::placement::{Place, Placement};
use crate::proto::width::Width;
use crate::proto::wire;

/// Time of a slice on a compute thread, in nanoseconds: 250 us. Tasks of a slice cannot be given
/// back.
const SLICE_NS: f64 = 250e3;

/// Next step of a compute thread.
pub(super) enum Next {
    Go(Step),
    /// Wait: for tasks, for a begun task, or because others go first. `is_full`: no other task may
    /// be begun.
    Wait {
        is_full: bool,
    },
    End,
}

/// Thread that takes the place of one whose task blocks it.
pub(super) enum StandIn {
    /// A thread whose task waits to go on; none if too many threads are active.
    Back,
    /// A thread that waits for tasks, if there is one.
    Waiting,
    /// A new thread.
    New,
}

/// Work of a compute thread.
pub(super) enum Step {
    Run(Slice),
    /// Begin a task of an async function.
    Begin(Piece, Key),
    /// Go on with a task that has waited.
    GoOn(Begun),
}

/// Number of tasks that a thread goes on with in a row before it begins another. Tasks that wake
/// themselves, and wait for tasks not begun, would otherwise keep it for ever.
const IN_A_ROW_MAX: u32 = 64;

/// Tasks that are run one after the other.
pub(super) struct Slice {
    pub(super) tasks: Piece,
    /// Number of tasks left for one thread after the slice; `None` if the answer must not leave for
    /// them.
    pub(super) left: Option<u64>,
}

/// State that the runners of a worker share.
pub(super) struct Queue {
    pub(super) pieces: Pieces,
    /// Place of each function's tasks.
    pub(super) placements: Vec<Placement>,
    pub(super) threads: u32,
    /// Number of compute threads; above `threads` once some have stepped aside.
    pub(super) runners: u32,
    /// Number of compute threads whose task blocks them, or waits to go on.
    pub(super) aside: u32,
    /// Number of threads whose task waits to go on.
    pub(super) back: u32,
    pub(super) patience: Patience,
    /// Whether each function is async.
    pub(super) is_async: Vec<bool>,
    /// Tasks of async functions that were begun.
    pub(super) waits: Waits,
    pub(super) width: Width,
    /// Whether the time of tasks is limited.
    pub(super) is_limited: bool,
    in_a_row: u32,
    /// Whether tiny tasks run in the I/O loop.
    pub(super) loops: bool,
    /// Number of compute threads that wait for tasks.
    pub(super) waiting: u32,
    pub(super) closed: bool,
}

impl Queue {
    pub(super) fn new(is_async: Vec<bool>, width: Width, threads: u32, is_limited: bool) -> Queue {
        let placement = |&waits: &bool| {
            let mut placement = Placement::new();
            if waits {
                placement.keep_on_thread();
            }
            placement
        };
        Queue {
            pieces: Pieces::default(),
            placements: is_async.iter().map(placement).collect(),
            threads,
            runners: threads,
            aside: 0,
            back: 0,
            patience: Patience::new(Instant::now()),
            is_async,
            waits: Waits::default(),
            width,
            is_limited,
            in_a_row: 0,
            // The loop does not help several threads, and a loop that runs a task sees no time-out.
            loops: threads == 1 && !is_limited,
            waiting: 0,
            closed: false,
        }
    }

    /// Begins a run, if it is another one: tasks of the previous run are dropped. Returns whether
    /// it is another, and the dropped tasks that were begun.
    pub(super) fn enter(&mut self, run: u32) -> (bool, Vec<Begun>) {
        if !self.pieces.enter(run) {
            return (false, Vec::new());
        }
        self.width.handle_run();
        (true, self.waits.clear())
    }

    /// Returns the number of tasks that have no result.
    pub(super) fn left(&self) -> u64 {
        self.pieces.tasks() + u64::from(self.waits.begun())
    }

    /// Returns the number of tasks that were begun and may wait.
    fn begun(&self) -> u32 {
        self.waits.begun() + self.aside
    }

    /// Returns the number of compute threads that have a task, or look for one, until the worker
    /// ends.
    fn active(&self) -> u32 {
        self.runners - self.waiting - self.aside
    }

    /// Whether more threads are active than should be.
    fn is_crowded(&self) -> bool {
        self.active() > self.threads
    }

    /// Notes that a thread has given up its place, or taken one.
    pub(super) fn note_place(&mut self) {
        let is_crowded = self.is_crowded();
        self.patience.handle_place(Instant::now(), is_crowded);
    }

    /// Whether a task whose wait is over may go on.
    pub(super) fn has_place(&self) -> bool {
        self.active() < self.threads
    }

    /// Notes that the task of a compute thread blocks it; returns the thread that takes its place.
    pub(super) fn step_aside(&mut self) -> StandIn {
        self.aside += 1;
        let free = self.threads.saturating_sub(self.active() + self.back);
        if free == 0 {
            self.note_place();
            return StandIn::Back;
        }
        self.width.handle_idle(self.begun());
        if self.waiting < free && self.runners < self.width.bound() && !self.closed {
            self.runners += 1;
            return StandIn::New;
        }
        StandIn::Waiting
    }

    /// Takes tasks of about this time in nanoseconds, if the next tasks run at this place.
    pub(super) fn take(&mut self, place: Place, target_ns: f64) -> Option<Slice> {
        let piece = self.pieces.front()?;
        let placement = &self.placements[piece.function as usize];
        let where_due = if self.loops { placement.place() } else { Place::Thread };
        if where_due != place {
            return None;
        }
        let threads = self.threads + self.aside;
        let (held, fair) = (piece.count, piece.count.div_ceil(threads));
        let tasks = self.pieces.take(placement.tasks_in(target_ns).min(fair))?;
        // Where tasks block threads, each thread has few of the results.
        let is_due = tasks.count == held || self.aside > 0;
        let left = is_due.then(|| self.pieces.tasks() / u64::from(threads));
        Some(Slice { tasks, left })
    }

    pub(super) fn next(&mut self) -> Next {
        if self.closed {
            return Next::End;
        }
        // Tasks that wait to go on come first.
        if self.active() + self.back > self.threads {
            return Next::Wait { is_full: false };
        }
        let is_async = |piece: &Piece| self.is_async[piece.function as usize];
        let more = self.pieces.front().is_some_and(is_async);
        if more || self.waits.begun() > 0 {
            return self.next_async(more);
        }
        match self.take(Place::Thread, SLICE_NS) {
            Some(slice) => Next::Go(Step::Run(slice)),
            None => Next::Wait { is_full: false },
        }
    }

    /// Goes on with a woken task, or else begins one if there are `more`.
    fn next_async(&mut self, more: bool) -> Next {
        let begun = self.begun();
        let is_full = begun >= self.width.bound();
        let begins = more && !is_full && self.in_a_row >= IN_A_ROW_MAX;
        if !begins && let Some(task) = self.waits.next_woken(self.is_limited) {
            self.in_a_row += 1;
            return Next::Go(Step::GoOn(task));
        }
        self.in_a_row = 0;
        self.width.handle_idle(begun);
        if is_full {
            return Next::Wait { is_full: more };
        }
        match self.pieces.take(u32::from(more)).filter(|_| more) {
            Some(piece) => Next::Go(Step::Begin(piece, self.waits.reserve())),
            None => Next::Wait { is_full: false },
        }
    }

    /// Returns the word about the number of virtual workers, if the farmer assumes another.
    pub(super) fn told(&mut self) -> Option<Vec<u8>> {
        if self.begun() == 0 && !self.width.is_told() {
            return None;
        }
        let run = self.pieces.run();
        self.width.poll_told().map(|workers| wire::virtual_workers(run, workers).to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::wire::{Assignment, Order};

    fn queue(each: Option<u32>, tasks: u32) -> Queue {
        let mut queue = Queue::new(vec![true], Width::new(1, each), 1, false);
        let mut bytes = Vec::new();
        wire::begin_assignment(&mut bytes, 1, 0);
        (0..tasks).for_each(|task| wire::put_value(&mut bytes, &task).unwrap());
        wire::number_assignment(&mut bytes, 0, tasks);
        let Ok(Order::Assign(assignment)) = wire::read_order(&bytes) else { panic!() };
        let Assignment { run, .. } = assignment;
        assert!(queue.enter(run).0);
        queue.pieces.put(&assignment);
        queue
    }

    /// Begins the next task, whose index is returned; `None` if there is none to begin.
    fn begin(queue: &mut Queue) -> Option<(u64, Key)> {
        match queue.next() {
            Next::Go(Step::Begin(piece, key)) => Some((piece.first, key)),
            _ => None,
        }
    }

    #[test]
    fn no_more_are_begun_than_there_are_virtual_workers() {
        let mut queue = queue(Some(2), 3);
        assert_eq!(begin(&mut queue).unwrap().0, 0);
        assert!(queue.told().is_some_and(|told| told == wire::virtual_workers(1, 2)));
        let (index, second) = begin(&mut queue).unwrap();
        assert_eq!((index, queue.told()), (1, None));
        assert!(matches!(queue.next(), Next::Wait { is_full: true }));
        assert_eq!((queue.left(), queue.waits.end(second)), (3, true));
        assert_eq!(begin(&mut queue).unwrap().0, 2);
        // No more are here: what is done may leave.
        assert!(matches!(queue.next(), Next::Wait { is_full: false }));
    }

    #[test]
    fn another_run_drops_what_was_begun() {
        let mut queue = queue(None, 2);
        assert!(begin(&mut queue).is_some());
        assert!(!queue.enter(1).0 && queue.enter(2).0);
        assert_eq!((queue.left(), queue.told()), (0, None));
    }
}
