//! A problem that is divided, and its parts.
//!
//! ```text
//!   whole ── part 0 ── solved by a worker
//!         '─ part 1 ── part 0 ── solved ─┐ all parts of "part 1" are solved:
//!                   '─ part 1 ── solved ─┘ conquered here, and so on upwards
//! ```
//!
//! The farmer keeps the places of the parts. A worker divides a problem, and never says where the
//! problem stands.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};

use crate::error::TaskError;
use crate::functions::{Conquer, Divided};
use crate::tasks::{Sink, Source};

/// Place of a part: the number of the divided problem, and the index of the part. `None` for the
/// whole.
type PartOf = Option<(u64, usize)>;

struct Divisions<I, O> {
    /// Problems to be given, the newest last.
    open: Vec<(I, PartOf)>,
    /// Problems at workers, by the index of their task.
    given: BTreeMap<u64, PartOf>,
    given_count: u64,
    /// Problems that wait for the solutions of their parts.
    divided: BTreeMap<u64, (PartOf, Vec<Option<O>>)>,
    divided_count: u64,
    solution: Option<O>,
}

/// Source of a problem's parts: gives the newest first, so that few wait.
pub(crate) struct Given<I, O>(Arc<Mutex<Divisions<I, O>>>);

/// Sink of a problem's parts: takes solutions and further parts.
pub(crate) struct Taken<'a, I, O>(Arc<Mutex<Divisions<I, O>>>, &'a Conquer<O>);

/// Solution of the whole problem, after the run.
pub(crate) struct Solution<I, O>(Arc<Mutex<Divisions<I, O>>>);

/// Returns source and sink of a run that solves the problem, and the solution to come.
pub(crate) fn problem<I, O>(
    whole: I,
    conquer: &Conquer<O>,
) -> (Given<I, O>, Taken<'_, I, O>, Solution<I, O>) {
    let divisions = Arc::new(Mutex::new(Divisions {
        open: vec![(whole, None)],
        given: BTreeMap::new(),
        given_count: 0,
        divided: BTreeMap::new(),
        divided_count: 0,
        solution: None,
    }));
    let (one, two) = (Arc::clone(&divisions), Arc::clone(&divisions));
    (Given(one), Taken(two, conquer), Solution(divisions))
}

fn locked<I, O>(divisions: &Mutex<Divisions<I, O>>) -> MutexGuard<'_, Divisions<I, O>> {
    divisions.lock().expect("the run ends with a panic of the closure")
}

impl<I, O> Source for Given<I, O> {
    type Task = I;

    fn poll_next(&mut self, _: &mut Context<'_>) -> Poll<Option<I>> {
        let mut divisions = locked(&self.0);
        match divisions.open.pop() {
            Some((problem, place)) => {
                // The run numbers its tasks in the order in which they are given.
                let index = divisions.given_count;
                divisions.given.insert(index, place);
                divisions.given_count += 1;
                Poll::Ready(Some(problem))
            }
            None if divisions.given.is_empty() => Poll::Ready(None),
            // The run asks again when results have come.
            None => Poll::Pending,
        }
    }

    fn left(&self) -> Option<u64> {
        None
    }
}

impl<I, O> Sink<Divided<I, O>> for Taken<'_, I, O> {
    fn take(&mut self, index: u64, result: Result<Divided<I, O>, TaskError>, _bytes: usize) {
        // The run ends with the first error.
        let Ok(divided) = result else { return };
        let mut divisions = locked(&self.0);
        let Some(mut place) = divisions.given.remove(&index) else { return };
        let mut solution = match divided {
            Divided::Solved(solution) => solution,
            Divided::Parts(parts) if parts.is_empty() => (self.1)(Vec::new()),
            Divided::Parts(parts) => {
                let number = divisions.divided_count;
                divisions.divided_count += 1;
                let solved = parts.iter().map(|_| None).collect();
                divisions.divided.insert(number, (place, solved));
                let placed = parts.into_iter().enumerate();
                let placed = placed.map(|(at, part)| (part, Some((number, at))));
                divisions.open.extend(placed);
                return;
            }
        };
        while let Some((number, at)) = place {
            let (above, solved) =
                divisions.divided.get_mut(&number).expect("it waits for this part");
            solved[at] = Some(solution);
            if solved.iter().any(Option::is_none) {
                return;
            }
            place = *above;
            let (_, solved) = divisions.divided.remove(&number).expect("it was there just now");
            solution = (self.1)(solved.into_iter().flatten().collect());
        }
        divisions.solution = Some(solution);
    }
}

impl<I, O> Solution<I, O> {
    pub(crate) fn get(self) -> Option<O> {
        locked(&self.0).solution.take()
    }
}
