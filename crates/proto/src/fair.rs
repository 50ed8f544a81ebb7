//! Fair turns when one taker serves many sources: round robin with a cap by bytes, so that a
//! source with large or many messages cannot starve another.
//!
//! Source: deficit round robin (M. Shreedhar and G. Varghese, "Efficient Fair Queueing using
//! Deficit Round Robin", 1995).

use std::collections::VecDeque;

/// Order in which sources with something ready are served.
///
/// Order of calls: [`Turns::ready`] when a source has something; then [`Turns::poll_next`],
/// serving one message of that source, and [`Turns::served`].
#[derive(Debug, Default)]
pub struct Turns {
    queue: VecDeque<usize>,
    sources: Vec<Source>,
    quantum: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Source {
    queued: bool,
    debt: u64,
}

impl Turns {
    /// Creates turns without a ready source. A turn allows `quantum` bytes, at least one
    /// message.
    #[must_use]
    pub fn new(quantum: u64) -> Turns {
        Turns { queue: VecDeque::new(), sources: Vec::new(), quantum: quantum.max(1) }
    }

    /// Notes that source `index` has something ready; a second call changes nothing.
    pub fn ready(&mut self, index: usize) {
        if index >= self.sources.len() {
            self.sources.resize(index + 1, Source::default());
        }
        if let Some(source) = self.sources.get_mut(index)
            && !source.queued
        {
            source.queued = true;
            self.queue.push_back(index);
        }
    }

    /// Returns the source whose message is next, if any is ready. Passes over a source that
    /// still pays for a large message, which pays off one quantum.
    pub fn poll_next(&mut self) -> Option<usize> {
        loop {
            let index = *self.queue.front()?;
            let source = self.sources.get_mut(index)?;
            if source.debt <= self.quantum {
                return Some(index);
            }
            // Alone, it owes nobody.
            source.debt = if self.queue.len() == 1 { 0 } else { source.debt - self.quantum };
            self.queue.rotate_left(1);
        }
    }

    /// Notes that the source named by `poll_next` gave a message of `bytes`. `None`: it had
    /// none after all, and leaves the turns until it is ready again.
    pub fn served(&mut self, index: usize, bytes: Option<u64>) {
        debug_assert_eq!(self.queue.front(), Some(&index));
        let Some(source) = self.sources.get_mut(index) else { return };
        match bytes {
            Some(bytes) => {
                source.debt = source.debt.saturating_sub(self.quantum) + bytes;
                self.queue.rotate_left(1);
            }
            None => {
                *source = Source::default();
                self.queue.pop_front();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Serves `rounds` messages from sources that always have one of the given size; returns
    /// the number that each gave.
    fn serve(sizes: &[u64], quantum: u64, rounds: usize) -> Vec<u64> {
        let mut turns = Turns::new(quantum);
        for index in 0..sizes.len() {
            turns.ready(index);
        }
        let mut taken = vec![0; sizes.len()];
        for _ in 0..rounds {
            let index = turns.poll_next().unwrap();
            taken[index] += 1;
            turns.served(index, Some(sizes[index]));
        }
        taken
    }

    #[test]
    fn small_messages_alternate_one_by_one() {
        assert_eq!(serve(&[10, 10, 10], 100, 300), [100, 100, 100]);
    }

    #[test]
    fn large_messages_are_capped_by_bytes() {
        let taken = serve(&[100_000, 100], 1000, 10_100);
        assert!(taken[1] >= 50 * taken[0], "{taken:?}");
        assert!(taken[0] > 0);
    }

    #[test]
    fn one_source_alone_is_served_whatever_its_size() {
        assert_eq!(serve(&[1 << 30], 1000, 5), [5]);
    }

    #[test]
    fn who_has_nothing_leaves_until_it_is_ready_again() {
        let mut turns = Turns::new(10);
        turns.ready(3);
        turns.ready(3);
        assert_eq!(turns.poll_next(), Some(3));
        turns.served(3, None);
        assert_eq!(turns.poll_next(), None);
        turns.ready(3);
        assert_eq!(turns.poll_next(), Some(3));
    }
}
