//! Results that come in any order, in as few answers as their tasks allow.

use super::wire;

/// Results of neighbours.
#[derive(Debug, Default)]
struct Part {
    first: u64,
    count: u32,
    /// Each after its length, as in an answer.
    items: Vec<u8>,
}

impl Part {
    fn end(&self) -> u64 {
        self.first + u64::from(self.count)
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
    /// Number of results.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Bytes of the results.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds the result of a task, which `put` writes.
    pub(crate) fn add(&mut self, index: u64, put: impl FnOnce(&mut Vec<u8>)) {
        if self.parts.last().is_none_or(|last| last.end() != index) {
            self.parts.push(Part { first: index, ..Part::default() });
        }
        let part = self.parts.last_mut().expect("there is one now");
        let before = part.items.len();
        put(&mut part.items);
        part.count += 1;
        self.bytes += part.items.len() - before;
        self.count += 1;
    }

    /// Takes the results, as answers of this run; `busy_ns` is the mean time of a task. An answer of
    /// `bytes_max` is not continued.
    pub(crate) fn take(&mut self, run: u32, busy_ns: f64, bytes_max: usize) -> Vec<Vec<u8>> {
        (self.count, self.bytes) = (0, 0);
        self.parts.sort_by_key(|part| part.first);
        let mut merged: Vec<Part> = Vec::new();
        for part in self.parts.drain(..) {
            let follows = |last: &Part| last.end() == part.first && last.items.len() < bytes_max;
            match merged.last_mut().filter(|last| follows(last)) {
                Some(last) => {
                    last.count += part.count;
                    last.items.extend_from_slice(&part.items);
                }
                None => merged.push(part),
            }
        }
        let answer = |Part { first, count, items }: Part| {
            let mut bytes = Vec::with_capacity(wire::ANSWER_HEAD + items.len());
            wire::begin_answer(&mut bytes, run, first);
            bytes.extend_from_slice(&items);
            wire::finish_answer(&mut bytes, count, (busy_ns * f64::from(count)) as u64);
            bytes
        };
        merged.into_iter().map(answer).collect()
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
                let Ok(Answer::Done { run: 7, first, count, busy_ns, mut results }) =
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

    #[test]
    fn an_answer_that_is_long_enough_is_not_continued() {
        let mut parts = Parts::default();
        [1, 0, 3, 2].into_iter().for_each(|index| put(&mut parts, index));
        assert_eq!(parts.take(0, 0.0, 24).len(), 2);
    }
}
