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
//! The window is as long as the distance from the slowest result to the fastest.

use std::collections::VecDeque;

/// Accepts results in any order and returns them in the order of their tasks.
#[derive(Clone, Debug)]
pub(crate) struct InOrder<T> {
    base: u64,
    /// Each result with its encoded bytes.
    slots: VecDeque<Option<(T, usize)>>,
    /// Sum of the encoded bytes in the slots.
    bytes: usize,
}

impl<T> InOrder<T> {
    pub(crate) fn new() -> InOrder<T> {
        InOrder { base: 0, slots: VecDeque::new(), bytes: 0 }
    }

    /// Takes the result of task `index`, with its encoded bytes. A task has one result.
    #[inline]
    pub(crate) fn accept(&mut self, index: u64, result: T, bytes: usize) {
        let at = index.checked_sub(self.base).expect("a result is accepted once") as usize;
        if at >= self.slots.len() {
            self.slots.resize_with(at + 1, || None);
        }
        self.slots[at] = Some((result, bytes));
        self.bytes += bytes;
    }

    /// Returns the number of encoded bytes of the results that wait.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the number of tasks from the first without a result to the last with one.
    pub(crate) fn window(&self) -> usize {
        self.slots.len()
    }

    /// Returns the next result in order with its task's index and its encoded bytes, when it is there.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<(u64, T, usize)> {
        let (result, bytes) = self.slots.front_mut()?.take()?;
        self.slots.pop_front();
        self.base += 1;
        self.bytes -= bytes;
        Some((self.base - 1, result, bytes))
    }

    /// Removes and returns all results that wait, with their tasks' indices and their encoded bytes.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = (u64, T, usize)> {
        self.bytes = 0;
        let waiting = (self.base..).zip(std::mem::take(&mut self.slots));
        waiting.filter_map(|(index, slot)| slot.map(|(result, bytes)| (index, result, bytes)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn those_that_wait_can_be_had_without_the_first() {
        let mut order = InOrder::new();
        order.accept(0, "a", 1);
        assert_eq!(order.pop(), Some((0, "a", 1)));
        order.accept(2, "c", 10);
        order.accept(4, "e", 100);
        assert_eq!(order.drain().collect::<Vec<_>>(), [(2, "c", 10), (4, "e", 100)]);
        assert_eq!((order.bytes(), order.window(), order.pop()), (0, 0, None));
    }

    proptest! {
        #[test]
        fn any_order_in_gives_the_order_of_tasks(
            indices in Just((0..60u64).collect::<Vec<_>>()).prop_shuffle(),
        ) {
            let mut order = InOrder::new();
            let mut out = Vec::new();
            for (taken, &index) in indices.iter().enumerate() {
                order.accept(index, index * 10, index as usize);
                out.extend(std::iter::from_fn(|| order.pop()));
                // All that can be handed on is: a prefix of what was taken.
                let prefix = (0..60).take_while(|task| indices[..=taken].contains(task)).count();
                prop_assert_eq!(out.len(), prefix);
                let waiting = indices[..=taken].iter().filter(|&&index| index >= prefix as u64);
                prop_assert_eq!(order.bytes() as u64, waiting.sum::<u64>());
            }
            let expected = (0..60).map(|index| (index, index * 10, index as usize));
            prop_assert_eq!(out, expected.collect::<Vec<_>>());
        }
    }
}
