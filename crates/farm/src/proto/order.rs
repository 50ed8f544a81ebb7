//! Puts results in the order of their tasks.
//!
//! A window of slots begins at the first task whose result was not handed on yet:
//!
//! ```text
//!   task    0 1 2 3 | 4 5 6 7 8 | 9 ...
//!           handed  | . r . r r | not assigned     accept(4) -> pop: 4, 5
//!           on      | window    |
//! ```
//!
//! The window is as long as the fastest result is ahead of the slowest.

use std::collections::VecDeque;

/// Accepts results in any order and returns them in the order of their tasks.
#[derive(Clone, Debug)]
pub(crate) struct InOrder<T> {
    base: u64,
    slots: VecDeque<Option<T>>,
}

impl<T> InOrder<T> {
    pub(crate) fn new() -> InOrder<T> {
        InOrder { base: 0, slots: VecDeque::new() }
    }

    /// Takes the result of task `index`, which was not given before.
    #[inline]
    pub(crate) fn accept(&mut self, index: u64, result: T) {
        let at = index.checked_sub(self.base).expect("a result is accepted once") as usize;
        if at >= self.slots.len() {
            self.slots.resize_with(at + 1, || None);
        }
        self.slots[at] = Some(result);
    }

    /// Returns the number of tasks from the first without a result to the last with one.
    pub(crate) fn window(&self) -> usize {
        self.slots.len()
    }

    /// Returns the next result in order with its task's index, when it is there.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<(u64, T)> {
        let result = self.slots.front_mut()?.take()?;
        self.slots.pop_front();
        self.base += 1;
        Some((self.base - 1, result))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_order_in_gives_the_order_of_tasks(
            indices in Just((0..60u64).collect::<Vec<_>>()).prop_shuffle(),
        ) {
            let mut order = InOrder::new();
            let mut out = Vec::new();
            for (taken, &index) in indices.iter().enumerate() {
                order.accept(index, index * 10);
                out.extend(std::iter::from_fn(|| order.pop()));
                // All that can be handed on is: a prefix of what was taken.
                let prefix = (0..60).take_while(|task| indices[..=taken].contains(task)).count();
                prop_assert_eq!(out.len(), prefix);
            }
            prop_assert_eq!(out, (0..60).map(|index| (index, index * 10)).collect::<Vec<_>>());
        }
    }
}
