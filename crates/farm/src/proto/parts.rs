//! Results that come in any order, in as few answers as their tasks allow.

use super::wire;

/// Results of neighbours.
#[derive(Debug, Default)]
struct Part {
    first: u64,
    count: u32,
    /// Each after its length, as in an answer.
    items: Vec<u8>,
    /// Number of results in `items`, without the empty ones. A reduced result is followed by an
    /// empty one for each further task of its range.
    results: u32,
}

impl Part {
    fn end(&self) -> u64 {
        self.first + u64::from(self.count)
    }

    fn is_reduced(&self) -> bool {
        self.results < self.count
    }
}

/// Results of a run, until they are sent together.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    /// In the order in which they came.
    parts: Vec<Part>,
    count: u64,
    bytes: usize,
}

impl Parts {
    /// Returns the number of tasks that have a result.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Returns the number of bytes of the results.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds the result of a task, which `put` writes.
    pub(crate) fn add(&mut self, index: u64, put: impl FnOnce(&mut Vec<u8>)) {
        // A reduced part must not grow: it cannot be sent in two.
        if self.parts.last().is_none_or(|last| last.end() != index || last.is_reduced()) {
            self.parts.push(Part { first: index, ..Part::default() });
        }
        let part = self.parts.last_mut().expect("there is one now");
        let before = part.items.len();
        put(&mut part.items);
        (part.count, part.results) = (part.count + 1, part.results + 1);
        self.bytes += part.items.len() - before;
        self.count += 1;
    }

    /// Reduces the results of neighbours. `reduce` takes results, each after its length, and their
    /// number. It returns as many in their place, or `None` to leave them. An answer with
    /// neighbours has at most `bytes_max`.
    pub(crate) fn reduce(
        &mut self,
        bytes_max: usize,
        mut reduce: impl FnMut(&[u8], u32) -> Option<Vec<u8>>,
    ) {
        let items_max = bytes_max.saturating_sub(wire::ANSWER_HEAD);
        // The joined results may have to leave as they are.
        self.join(|last, part| last.items.len() + part.items.len() <= items_max);
        for part in self.parts.iter_mut().filter(|part| part.results > 1) {
            let reduced = reduce(&part.items, part.count);
            if let Some(items) = reduced.filter(|items| items.len() <= items_max) {
                (part.items, part.results) = (items, 1);
            }
        }
        self.bytes = self.parts.iter().map(|part| part.items.len()).sum();
    }

    /// Takes the results, as answers of this run; `busy_ns` is the mean time of a task. An answer
    /// of `bytes_max` gets no further part.
    pub(crate) fn take(&mut self, run: u32, busy_ns: f64, bytes_max: usize) -> Vec<Vec<u8>> {
        (self.count, self.bytes) = (0, 0);
        self.join(|last, part| {
            last.items.len() < bytes_max && !last.is_reduced() && !part.is_reduced()
        });
        let answer = |part: Part| {
            let is_reduced = part.is_reduced();
            let Part { first, count, items, .. } = part;
            let mut bytes = Vec::with_capacity(wire::ANSWER_HEAD + items.len());
            wire::begin_answer(&mut bytes, run, first);
            bytes.extend_from_slice(&items);
            wire::finish_answer(&mut bytes, count, (busy_ns * f64::from(count)) as u64);
            if is_reduced {
                wire::mark_reduced(&mut bytes);
            }
            bytes
        };
        self.parts.drain(..).map(answer).collect()
    }

    /// Sorts the parts, and joins neighbours that may be joined.
    fn join(&mut self, may: impl Fn(&Part, &Part) -> bool) {
        self.parts.sort_by_key(|part| part.first);
        let mut joined: Vec<Part> = Vec::new();
        for part in self.parts.drain(..) {
            let last = joined.last_mut();
            match last.filter(|last| last.end() == part.first && may(last, &part)) {
                Some(last) => {
                    last.count += part.count;
                    last.items.extend_from_slice(&part.items);
                    last.results += part.results;
                }
                None => joined.push(part),
            }
        }
        self.parts = joined;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::wire::{Answer, Item};
    use proptest::prelude::*;

    fn put(parts: &mut Parts, index: u64) {
        parts.add(index, |items| wire::put_value(items, &index).unwrap());
    }

    proptest! {
        #[test]
        fn any_order_gives_each_result_once_in_the_fewest_answers(
            indices in Just((0..60u64).collect::<Vec<_>>()).prop_shuffle(),
            count in 0..60usize,
        ) {
            let (mut parts, mut told) = (Parts::default(), Vec::new());
            indices[..count].iter().for_each(|&index| put(&mut parts, index));
            prop_assert_eq!((parts.count(), parts.bytes()), (count as u64, count * 12));
            let answers = parts.take(7, 10.0, usize::MAX);
            for answer in &answers {
                let Ok(Answer::Done { run: 7, first, count, busy_ns, is_reduced: false, mut results }) =
                    wire::read_answer(answer) else { panic!() };
                prop_assert_eq!(busy_ns, u64::from(count) * 10);
                for index in first..first + u64::from(count) {
                    let expected = index.to_le_bytes();
                    prop_assert_eq!(results.next_result(), Ok(Some(Item::Value(&expected))));
                    told.push(index);
                }
                prop_assert_eq!(results.next_result(), Ok(None));
            }
            let mut expected = indices[..count].to_vec();
            expected.sort_unstable();
            let starts = expected.iter().filter(|&&at| at == 0 || !expected.contains(&(at - 1)));
            prop_assert_eq!((answers.len(), told), (starts.count(), expected.clone()));
            prop_assert_eq!((parts.count(), parts.take(7, 10.0, 1).len()), (0, 0));
        }
    }

    /// Returns the numbers of a message's items, and their sum in the place of the first.
    fn sum(items: &[u8], count: u32) -> Vec<u8> {
        let (mut items, mut sum) = (wire::Items::new(items, count), 0u64);
        while let Ok(Some(Item::Value(value))) = items.next_result() {
            sum += u64::from_le_bytes(value.try_into().unwrap());
        }
        let mut sums = Vec::new();
        (0..count).for_each(|at| {
            wire::put_value(&mut sums, &if at == 0 { sum } else { 0 }).unwrap();
        });
        sums
    }

    proptest! {
        #[test]
        fn neighbours_are_reduced_whenever_it_is_done(
            indices in Just((0..60u64).collect::<Vec<_>>()).prop_shuffle(),
            count in 0..60usize,
            times in prop::collection::btree_set(0..60usize, 0..9),
            fails: bool,
        ) {
            let mut parts = Parts::default();
            for (at, &index) in indices[..count].iter().enumerate() {
                put(&mut parts, index);
                if times.contains(&at) {
                    parts.reduce(usize::MAX, |items, count| (!fails).then(|| sum(items, count)));
                    prop_assert_eq!((parts.count(), parts.bytes()), (at as u64 + 1, (at + 1) * 12));
                }
            }
            let (mut covered, mut total) = (0, 0);
            for answer in parts.take(7, 10.0, usize::MAX) {
                let Ok(Answer::Done { first, count, is_reduced, mut results, .. }) =
                    wire::read_answer(&answer) else { panic!() };
                let (mut expected, mut told) = (0, 0);
                for at in 0..u64::from(count) {
                    let Ok(Some(Item::Value(value))) = results.next_result() else { panic!() };
                    let value = u64::from_le_bytes(value.try_into().unwrap());
                    if !is_reduced {
                        prop_assert_eq!(value, first + at);
                    }
                    (expected, told) = (expected + first + at, told + value);
                }
                prop_assert_eq!(told, expected, "a result is of the tasks of its answer");
                prop_assert!(!(fails && is_reduced));
                (covered, total) = (covered + count as usize, total + told);
            }
            prop_assert_eq!((covered, total), (count, indices[..count].iter().sum::<u64>()));
        }
    }

    /// A reduced answer cannot be taken apart.
    #[test]
    fn neighbours_that_are_too_long_together_are_not_reduced() {
        let bytes_max = wire::ANSWER_HEAD + 3 * 12;
        let mut parts = Parts::default();
        (0..12).rev().for_each(|index| put(&mut parts, index));
        for is_longer in [true, false] {
            let reduce = |items: &[u8], count| {
                assert_eq!((items.len(), count), (3 * 12, 3));
                Some(if is_longer { vec![0; 3 * 12 + 1] } else { sum(items, count) })
            };
            parts.reduce(bytes_max, reduce);
        }
        put(&mut parts, 12);
        let answers = parts.take(7, 10.0, usize::MAX);
        let lengths: Vec<_> = answers.iter().map(Vec::len).collect();
        assert_eq!(lengths[..4], [bytes_max; 4]);
        assert_eq!(lengths[4..], [wire::ANSWER_HEAD + 12]);
        let is_sum = |(at, answer): (usize, &Vec<u8>)| {
            answer[wire::ANSWER_HEAD + 4..][..8] == (9 * at as u64 + 3).to_le_bytes()
        };
        assert!(answers[..4].iter().enumerate().all(is_sum));
    }

    #[test]
    fn an_answer_that_is_long_enough_is_not_continued() {
        let mut parts = Parts::default();
        [1, 0, 3, 2].into_iter().for_each(|index| put(&mut parts, index));
        assert_eq!(parts.take(0, 0.0, 24).len(), 2);
    }
}
