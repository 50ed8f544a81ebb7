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

use crate::functions::{Conquer, Divided};

/// Place of a part: the number of the divided problem, and the index of the part. `None` for the
/// whole.
type PartOf = Option<(u64, usize)>;

/// Problems that wait for the solutions of their parts.
pub(crate) struct Divisions<'a, O> {
    conquer: &'a Conquer<O>,
    divided: BTreeMap<u64, (PartOf, Vec<Option<O>>)>,
    count: u64,
    /// Solution of the whole problem.
    pub(crate) solution: Option<O>,
}

impl<O> Divisions<'_, O> {
    pub(crate) fn new(conquer: &Conquer<O>) -> Divisions<'_, O> {
        Divisions { conquer, divided: BTreeMap::new(), count: 0, solution: None }
    }

    /// Takes what became of the problem at this place; returns its parts with their places.
    pub(crate) fn take<I>(
        &mut self,
        mut place: PartOf,
        divided: Divided<I, O>,
    ) -> Vec<(I, PartOf)> {
        let mut solution = match divided {
            Divided::Solved(solution) => solution,
            Divided::Parts(parts) if parts.is_empty() => (self.conquer)(Vec::new()),
            Divided::Parts(parts) => {
                let number = self.count;
                self.count += 1;
                self.divided.insert(number, (place, parts.iter().map(|_| None).collect()));
                let placed = parts.into_iter().enumerate();
                return placed.map(|(at, part)| (part, Some((number, at)))).collect();
            }
        };
        while let Some((number, at)) = place {
            let (above, solved) = self.divided.get_mut(&number).expect("it waits for this part");
            solved[at] = Some(solution);
            if solved.iter().any(Option::is_none) {
                return Vec::new();
            }
            place = *above;
            let (_, solved) = self.divided.remove(&number).expect("it was there just now");
            solution = (self.conquer)(solved.into_iter().flatten().collect());
        }
        self.solution = Some(solution);
        Vec::new()
    }
}
