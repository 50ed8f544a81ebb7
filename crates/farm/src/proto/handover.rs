//! Tasks that a worker holds, kept so that the next farmer gets their results if this one is lost.
//!
//! ```text
//!   assignment ──▶ held ── answer is acknowledged, or tasks are given back ──▶ forgotten
//!                   │
//!                   └── the farmer is gone, and the answer was not, or comes now ──▶ result, by the
//!                                                                 digest of the task's input
//! ```

use std::collections::VecDeque;

use chunkcomm_proto::sorted::SortedMap;

use super::record;
use super::wire::{self, Answer, Assignment, Item, Malformed};

/// Results of tasks that ran while there was no farmer: the digest of each encoded input, and the
/// encoded result.
pub(crate) type Orphans = Vec<(u128, Vec<u8>)>;

/// An assignment.
struct Held {
    count: u32,
    /// Number of its tasks that were neither answered nor given back.
    left: u32,
    items: Vec<u8>,
}

/// The assignments of the newest run, by their first task.
#[derive(Default)]
pub(crate) struct Holding {
    pub(crate) run: u32,
    /// Index of the run's function in the seat that the farmer gave.
    pub(crate) function: u32,
    held: SortedMap<u64, Held>,
    /// Answers that were sent and not acknowledged, each with the number of its last message.
    sent: VecDeque<(u64, Vec<u8>)>,
}

impl Holding {
    pub(crate) fn put(&mut self, assignment: &Assignment<'_>) {
        let Assignment { run, function, first, count, items, .. } = *assignment;
        if run != self.run {
            (self.run, self.function) = (run, function);
            self.held = SortedMap::new();
        }
        let held = Held { count, left: count, items: items.to_vec() };
        self.held.insert(first, held);
    }

    /// Forgets tasks that were given back.
    pub(crate) fn give_back(&mut self, first: u64, count: u32) {
        let end = first + u64::from(count);
        self.held.retain(|&at, held| {
            let common = end.min(at + u64::from(held.count)).saturating_sub(first.max(at));
            held.left = held.left.saturating_sub(u32::try_from(common).unwrap_or(u32::MAX));
            held.left > 0
        });
    }

    /// Notes that an answer was sent, with the number of its last message. Forgets the answers
    /// whose messages the farmer has `acknowledged`.
    pub(crate) fn sent(
        &mut self,
        number: u64,
        answer: Vec<u8>,
        acknowledged: u64,
    ) -> Result<(), Malformed> {
        self.sent.push_back((number, answer));
        while self.sent.front().is_some_and(|(number, _)| *number <= acknowledged) {
            let (_, answer) = self.sent.pop_front().expect("it is there");
            self.answered(&answer)?;
        }
        Ok(())
    }

    /// Takes the results of the answers that a lost farmer has not acknowledged.
    pub(crate) fn finish_sent(&mut self, acknowledged: u64) -> Result<Orphans, Malformed> {
        let mut orphans = Vec::new();
        for (number, answer) in std::mem::take(&mut self.sent) {
            match number <= acknowledged {
                true => self.answered(&answer)?,
                false => orphans.extend(self.finish(&answer)?),
            }
        }
        Ok(orphans)
    }

    /// Forgets the tasks of a message that the farmer has.
    fn answered(&mut self, message: &[u8]) -> Result<(), Malformed> {
        match wire::read_answer(message)? {
            Answer::Done { run, first, count, .. } | Answer::Returned { run, first, count }
                if run == self.run =>
            {
                self.give_back(first, count);
            }
            Answer::Late { run, index, .. } if run == self.run => self.give_back(index, 1),
            _ => {}
        }
        Ok(())
    }

    /// Takes the results of an answer for which there is no farmer. Failures are dropped, so that
    /// those tasks run again.
    pub(crate) fn finish(&mut self, message: &[u8]) -> Result<Orphans, Malformed> {
        let mut orphans = Vec::new();
        if let Answer::Done { run, first, mut results, .. } = wire::read_answer(message)?
            && run == self.run
        {
            let mut index = first;
            while let Some(item) = results.next_result()? {
                if let (Item::Value(value), Some(input)) = (item, self.input(index)) {
                    orphans.push((record::input_digest(input), value.to_vec()));
                }
                index += 1;
            }
        }
        self.answered(message)?;
        Ok(orphans)
    }

    /// Returns the encoded input of a task.
    fn input(&self, index: u64) -> Option<&[u8]> {
        let contains = |at: u64, held: &Held| at <= index && index - at < u64::from(held.count);
        let mut newest_first = self.held.iter().rev();
        let (&first, held) = newest_first.find(|&(&at, held)| contains(at, held))?;
        let at = wire::items_bytes(&held.items, (index - first) as u32)?;
        let item = &held.items[at..wire::items_bytes(&held.items, (index - first) as u32 + 1)?];
        Some(&item[wire::LENGTH_BYTES..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::wire::Order;

    fn assigned(holding: &mut Holding, run: u32, first: u64, inputs: &[&str]) {
        let mut bytes = Vec::new();
        wire::begin_assignment(&mut bytes, run, 3);
        inputs.iter().for_each(|input| wire::put_value(&mut bytes, input).unwrap());
        wire::number_assignment(&mut bytes, first, inputs.len() as u32);
        let Ok(Order::Assign(assignment)) = wire::read_order(&bytes) else { panic!() };
        holding.put(&assignment);
    }

    fn answer(run: u32, first: u64, results: &[Option<u8>]) -> Vec<u8> {
        let mut bytes = Vec::new();
        wire::begin_answer(&mut bytes, run, first);
        for result in results {
            match result {
                Some(value) => wire::put_value(&mut bytes, value).unwrap(),
                None => wire::put_failure(&mut bytes, "no"),
            }
        }
        wire::finish_answer(&mut bytes, results.len() as u32, 1);
        bytes
    }

    fn digest_of(input: &str) -> u128 {
        let mut bytes = Vec::new();
        wire::put_value(&mut bytes, &input).unwrap();
        record::input_digest(&bytes[wire::LENGTH_BYTES..])
    }

    #[test]
    fn results_are_told_by_the_inputs_of_their_tasks() {
        let mut holding = Holding::default();
        assigned(&mut holding, 2, 10, &["a", "bb", "c"]);
        assigned(&mut holding, 2, 13, &["ddd"]);
        holding.answered(&answer(2, 10, &[Some(1)])).unwrap();
        let found = holding.finish(&answer(2, 11, &[Some(2), None, Some(4)])).unwrap();
        let expected =
            [("bb", 2), ("ddd", 4)].map(|(input, value)| (digest_of(input), vec![value]));
        assert_eq!((holding.run, holding.function), (2, 3));
        assert_eq!(found, expected);
        assert!(holding.held.is_empty(), "all are answered");
        // Nobody asked for these.
        assert_eq!(holding.finish(&answer(2, 11, &[Some(2)])).unwrap(), []);
        assert_eq!(holding.finish(&answer(1, 13, &[Some(2)])).unwrap(), []);
    }

    #[test]
    fn answers_are_kept_until_they_are_acknowledged() {
        let mut holding = Holding::default();
        assigned(&mut holding, 1, 0, &["a", "b", "c"]);
        holding.sent(4, answer(1, 0, &[Some(0)]), 3).unwrap();
        holding.sent(5, answer(1, 1, &[Some(1)]), 4).unwrap();
        // This one could not be sent.
        holding.sent(6, answer(1, 2, &[Some(2)]), 4).unwrap();
        assert_eq!((holding.held[&0].left, holding.sent.len()), (2, 2));
        let found = holding.finish_sent(5).unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0], (digest_of("c"), vec![2]));
        assert!(holding.held.is_empty());
    }

    #[test]
    fn what_is_given_back_late_or_of_an_earlier_run_is_forgotten() {
        let mut holding = Holding::default();
        assigned(&mut holding, 1, 0, &["a"; 5]);
        holding.give_back(3, 2);
        holding.answered(&wire::late(1, 0, true)).unwrap();
        holding.answered(&wire::returned(1, 2, 1)).unwrap();
        assert_eq!(holding.held[&0].left, 1);
        assigned(&mut holding, 2, 9, &["b"]);
        assert_eq!(holding.held.len(), 1);
        holding.answered(&wire::returned(1, 9, 1)).unwrap();
        assert_eq!(holding.held[&9].left, 1);
        holding.answered(&wire::returned(2, 9, 1)).unwrap();
        assert!(holding.held.is_empty());
    }
}
