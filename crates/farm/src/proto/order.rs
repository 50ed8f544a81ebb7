//! Puts results in the order of their tasks, and accepts each once.
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

/// A result of a task that was not assigned, or that already has a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotExpected;

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

    /// Takes the result of task `index`; `assigned` tasks were assigned so far.
    #[inline]
    pub(crate) fn accept(
        &mut self,
        index: u64,
        assigned: u64,
        result: T,
    ) -> Result<(), NotExpected> {
        if index < self.base || index >= assigned {
            return Err(NotExpected);
        }
        let at = (index - self.base) as usize;
        if at >= self.slots.len() {
            self.slots.resize_with(at + 1, || None);
        }
        let slot = &mut self.slots[at];
        if slot.is_some() {
            return Err(NotExpected);
        }
        *slot = Some(result);
        Ok(())
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

    #[test]
    fn twice_or_unasked_is_refused() {
        let mut order = InOrder::new();
        assert_eq!(order.accept(0, 0, 'a'), Err(NotExpected));
        order.accept(1, 2, 'b').unwrap();
        assert_eq!(order.accept(1, 2, 'b'), Err(NotExpected));
        assert_eq!(order.pop(), None);
        order.accept(0, 2, 'a').unwrap();
        assert_eq!(order.pop(), Some((0, 'a')));
        assert_eq!(order.accept(0, 2, 'a'), Err(NotExpected), "handed on already");
        assert_eq!(order.pop(), Some((1, 'b')));
        assert_eq!(order.pop(), None);
    }

    proptest! {
        #[test]
        fn any_order_in_gives_the_order_of_tasks(
            indices in Just((0..60u64).collect::<Vec<_>>()).prop_shuffle(),
        ) {
            let mut order = InOrder::new();
            let mut out = Vec::new();
            for (taken, &index) in indices.iter().enumerate() {
                order.accept(index, 60, index * 10).unwrap();
                out.extend(std::iter::from_fn(|| order.pop()));
                // All that can be handed on is: a prefix of what was taken.
                let prefix = (0..60).take_while(|task| indices[..=taken].contains(task)).count();
                prop_assert_eq!(out.len(), prefix);
            }
            prop_assert_eq!(out, (0..60).map(|index| (index, index * 10)).collect::<Vec<_>>());
        }
    }
}
