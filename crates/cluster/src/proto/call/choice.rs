//! Choice of one of several providers for the next call.

/// Chooses the provider with the fewest calls of this client in flight; among equals each in turn.
#[derive(Debug, Clone, Default)]
pub struct Choice {
    /// Index at which the search begins.
    next: usize,
}

impl Choice {
    /// Returns the index of the provider to call, from the calls in flight at each; `None` when
    /// there is no provider.
    pub fn choose(&mut self, in_flight: &[usize]) -> Option<usize> {
        let count = in_flight.len();
        let turn = |index: usize| (index + count - self.next % count) % count;
        let best = (0..count).min_by_key(|&index| (in_flight[index], turn(index)))?;
        self.next = best + 1;
        Some(best)
    }
}
