//! The increments that are being written, pure.
//!
//! ```text
//!   oldest                          newest
//!   [ 4 ]  [ 9 ]  [ 5 ]  [ 6 ]  <-- touched
//!     |             '- open ---'
//!     '-> finished: `open` younger ones exist
//! ```
//!
//! A scan finds increments without their order. Each run of neighbours was then written away from the
//! increments that were touched before it:
//!
//! ```text
//!   touched before   run of this look, written upwards
//!   [ ][ ][ ][ ]     [ 4 ][ 5 ][ 6 ] <-- newest
//!
//!   newest --> [ 4 ][ 5 ][ 6 ]   [ ][ ][ ][ ]
//!              written downwards   touched before
//! ```

use std::collections::VecDeque;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Untouched,
    Open,
    Sent,
}

/// Order of the touched increments, and those that were sent.
///
/// Order of calls: `order` of all that a look found, if it was a scan; `touch` for all that a look found, then `next_finished` until it is `None`; `sent` for
/// each increment that was sent.
#[derive(Debug)]
pub(crate) struct Window {
    states: Vec<State>,
    /// Touched increments with the look that touched them last, the oldest first.
    queue: VecDeque<(usize, u64)>,
    open: usize,
    /// Whether an increment must rest for one look before it is finished: where the order of touches within
    /// a look is unknown.
    rests: bool,
    look: u64,
}

impl Window {
    /// Begins with `count` untouched increments, of which `open` are written at a time.
    pub(crate) fn new(count: usize, open: usize, rests: bool) -> Self {
        let (states, queue) = (vec![State::default(); count], VecDeque::new());
        Self { states, queue, open: open.max(1), rests, look: 0 }
    }

    /// Begins another look.
    pub(crate) fn look(&mut self) {
        self.look += 1;
    }

    /// Puts the increments that a scan found, in ascending order, into the likely order of their touches:
    /// each run goes away from what was touched before it.
    ///
    /// A run without touched neighbours goes up from the start of the buffer. Others, and one of the whole
    /// buffer, may have gone either way, so both ends are the newest.
    pub(crate) fn order(&self, found: &mut [usize]) {
        if !self.rests {
            return;
        }
        let touched =
            |index: usize| self.states.get(index).is_some_and(|state| *state != State::Untouched);
        for run in found.chunk_by_mut(|one, next| one + 1 == *next) {
            let (first, last) = (run[0], run[run.len() - 1]);
            let up = touched(first) || first > 0 && touched(first - 1);
            let down = touched(last) || touched(last + 1);
            if !up && down {
                run.reverse();
            } else if !up && (first > 0 || last + 1 == self.states.len()) {
                let but_last = run.len() - 1;
                run[..but_last].rotate_left(usize::from(but_last > 0));
            }
        }
    }

    /// Notes a write to increment `index`, which becomes the newest.
    pub(crate) fn touch(&mut self, index: usize) {
        let before = std::mem::replace(&mut self.states[index], State::Open);
        if before == State::Open {
            self.queue.retain(|(other, _)| *other != index);
        }
        self.queue.push_back((index, self.look));
    }

    /// Returns the oldest increment if it is finished, and takes it off.
    pub(crate) fn next_finished(&mut self) -> Option<usize> {
        let (index, look) = *self.queue.front()?;
        let rested = !self.rests || look < self.look;
        if self.queue.len() <= self.open || !rested {
            return None;
        }
        self.queue.pop_front();
        Some(index)
    }

    /// Notes that increment `index` was sent.
    pub(crate) fn sent(&mut self, index: usize) {
        self.states[index] = State::Sent;
    }

    /// Whether increment `index` was sent and not touched since.
    pub(crate) fn is_sent(&self, index: usize) -> bool {
        self.states[index] == State::Sent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finished(window: &mut Window) -> Vec<usize> {
        std::iter::from_fn(|| {
            let index = window.next_finished()?;
            window.sent(index);
            Some(index)
        })
        .collect()
    }

    #[test]
    fn an_increment_is_finished_when_as_many_are_younger() {
        let mut window = Window::new(6, 2, false);
        window.touch(3);
        window.touch(1);
        assert_eq!(finished(&mut window), []);
        window.touch(3);
        window.touch(5);
        assert_eq!(finished(&mut window), [1], "3 was touched again and is younger");
        assert!(window.is_sent(1) && !window.is_sent(3));
        window.touch(1);
        assert!(!window.is_sent(1));
        assert_eq!(finished(&mut window), [3]);
    }

    #[test]
    fn what_must_rest_is_not_finished_by_the_look_that_found_it() {
        let mut window = Window::new(6, 1, true);
        for index in 0..4 {
            window.touch(index);
        }
        assert_eq!(finished(&mut window), []);
        window.look();
        window.touch(2);
        assert_eq!(finished(&mut window), [0, 1, 3], "2 is the youngest");
        window.look();
        assert_eq!(finished(&mut window), [], "nobody has begun another");
    }

    #[test]
    fn a_run_goes_away_from_what_was_touched_before() {
        fn order(window: &mut Window, found: &[usize]) -> Vec<usize> {
            let mut found = found.to_vec();
            window.order(&mut found);
            for index in &found {
                window.touch(*index);
            }
            window.look();
            found
        }
        let mut window = Window::new(20, 2, true);
        assert_eq!(order(&mut window, &[5, 6, 17, 18, 19]), [5, 6, 18, 17, 19]);
        assert_eq!(order(&mut window, &[6, 7, 8, 15, 16, 17]), [6, 7, 8, 17, 16, 15]);
        assert_eq!(order(&mut window, &[9, 10, 13, 14]), [9, 10, 14, 13]);
        assert_eq!(order(&mut window, &[3, 4]), [4, 3]);
        assert_eq!(order(&mut window, &[7, 8, 9]), [7, 8, 9], "no way is known");
        assert_eq!(order(&mut Window::new(5, 2, true), &[0, 1, 2]), [0, 1, 2]);
        assert_eq!(order(&mut Window::new(5, 2, true), &[1, 2, 3]), [2, 1, 3]);
        let all: Vec<usize> = (0..5).collect();
        assert_eq!(order(&mut Window::new(5, 2, true), &all), [1, 2, 3, 0, 4]);
        assert_eq!(order(&mut Window::new(1, 2, true), &[0]), [0]);
        let mut in_order = Window::new(5, 2, false);
        assert_eq!(order(&mut in_order, &[3, 4]), [3, 4], "the faults had an order");
    }
}
