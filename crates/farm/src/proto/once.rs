//! Values that a worker computes for all workers of a farm.
//!
//! ```text
//!   need ──▶ nobody has it ──▶ compute, to the first that asks ──▶ value ──▶ to all that asked
//!                 ▲                        │ lost, or given up               and to those who ask later
//!                 └── nobody else asked ◀──┴──▶ compute, to the next that asked
//! ```
//!
//! A sub-farmer is a worker to its farmer: it asks once, for the first worker below that needs a
//! value. It then serves the others from its own table. That table begins with the reply of the
//! farmer above; a farmer's own table begins with *compute*.
//!
//! Order of calls: `handle_*` for words and losses, then the `poll_*` until they return `None`.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;

use super::wire::{self, Ask, Key, Told};

#[derive(Debug)]
enum State {
    /// The farmer above was asked, for these workers.
    Asked(VecDeque<usize>),
    /// A worker computes the value, and others wait.
    Computing(usize, VecDeque<usize>),
    /// The encoded reply with the value, the same for any worker: the value lies in memory once.
    Known(Bytes),
}

/// Values of a run.
#[derive(Debug)]
pub(crate) struct Table {
    run: u32,
    is_below: bool,
    values: BTreeMap<Key, State>,
    /// Encoded words.
    replies: VecDeque<(usize, Key, Bytes)>,
    asks: VecDeque<(Key, Ask)>,
}

impl Table {
    /// Returns the empty table of a run; `is_below` makes it a sub-farmer's.
    pub(crate) fn new(run: u32, is_below: bool) -> Table {
        let (replies, asks) = (VecDeque::new(), VecDeque::new());
        Table { run, is_below, values: BTreeMap::new(), replies, asks }
    }

    /// Takes the word of a worker about a value. It is dropped if the worker was not told to
    /// compute the value.
    pub(crate) fn handle_ask(&mut self, worker: usize, key: Key, ask: Ask) {
        let is_its =
            matches!(self.values.get(&key), Some(&State::Computing(by, _)) if by == worker);
        match ask {
            Ask::Need if is_its => {}
            Ask::Need => self.need(worker, key),
            Ask::Value(value) if is_its => {
                self.tell_all(key, value.clone());
                if self.is_below {
                    self.asks.push_back((key, Ask::Value(value)));
                }
            }
            Ask::GivenUp if is_its => self.pass_on(key),
            Ask::Value(_) | Ask::GivenUp => {}
        }
    }

    /// Takes the loss of a worker: the next one that waits computes its values.
    pub(crate) fn handle_lost(&mut self, worker: usize) {
        let mut given_up = Vec::new();
        for (&key, state) in &mut self.values {
            match state {
                State::Asked(waiting) => waiting.retain(|&it| it != worker),
                State::Computing(by, waiting) => {
                    waiting.retain(|&it| it != worker);
                    if *by == worker {
                        given_up.push(key);
                    }
                }
                State::Known(_) => {}
            }
        }
        given_up.into_iter().for_each(|key| self.pass_on(key));
    }

    /// Takes the reply of the farmer above.
    pub(crate) fn handle_reply(&mut self, key: Key, reply: Told) {
        match (reply, self.values.get(&key)) {
            (_, Some(State::Computing(..) | State::Known(_))) => {}
            (Told::Value(value), _) => self.tell_all(key, value),
            (Told::Compute, _) => self.pass_on(key),
        }
    }

    /// Returns a worker to reply to, and the encoded reply.
    pub(crate) fn poll_reply(&mut self) -> Option<(usize, Key, Bytes)> {
        self.replies.pop_front()
    }

    /// Returns a word to the farmer above.
    pub(crate) fn poll_ask(&mut self) -> Option<(Key, Ask)> {
        self.asks.pop_front()
    }

    fn need(&mut self, worker: usize, key: Key) {
        match self.values.get_mut(&key) {
            Some(State::Known(word)) => {
                self.replies.push_back((worker, key, word.clone()));
            }
            Some(State::Asked(waiting) | State::Computing(_, waiting)) => {
                if !waiting.contains(&worker) {
                    waiting.push_back(worker);
                }
            }
            None if self.is_below => {
                self.values.insert(key, State::Asked(VecDeque::from([worker])));
                self.asks.push_back((key, Ask::Need));
            }
            None => self.compute(key, worker, VecDeque::new()),
        }
    }

    fn compute(&mut self, key: Key, worker: usize, waiting: VecDeque<usize>) {
        self.values.insert(key, State::Computing(worker, waiting));
        self.replies.push_back((worker, key, wire::once_order(self.run, key, &Told::Compute)));
    }

    /// Lets the next worker in the wait compute the value.
    fn pass_on(&mut self, key: Key) {
        let waiting = match self.values.remove(&key) {
            Some(State::Asked(waiting) | State::Computing(_, waiting)) => waiting,
            _ => VecDeque::new(),
        };
        let mut waiting = waiting;
        match waiting.pop_front() {
            Some(next) => self.compute(key, next, waiting),
            None if self.is_below => self.asks.push_back((key, Ask::GivenUp)),
            None => {}
        }
    }

    fn tell_all(&mut self, key: Key, value: Bytes) {
        let word = wire::once_order(self.run, key, &Told::Value(value));
        let before = self.values.insert(key, State::Known(word.clone()));
        if let Some(State::Asked(waiting) | State::Computing(_, waiting)) = before {
            let reply = |worker| (worker, key, word.clone());
            self.replies.extend(waiting.into_iter().map(reply));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::wire::Order;
    use chunkcomm_testkit::random::Random;

    fn value(key: Key) -> Bytes {
        Bytes::from(vec![key as u8; 3])
    }

    const RUN: u32 = 9;

    /// A reply about the value 7.
    fn told(worker: usize, reply: &Told) -> Option<(usize, Key, Bytes)> {
        Some((worker, 7, wire::once_order(RUN, 7, reply)))
    }

    #[test]
    fn the_first_computes_and_all_get_the_value() {
        let mut table = Table::new(RUN, false);
        (0..3).for_each(|worker| table.handle_ask(worker, 7, Ask::Need));
        assert_eq!(table.poll_reply(), told(0, &Told::Compute));
        // Only the one that computes it may say what it is.
        table.handle_ask(1, 7, Ask::Value(value(1)));
        table.handle_ask(2, 7, Ask::GivenUp);
        assert_eq!(table.poll_reply(), None);
        table.handle_ask(0, 7, Ask::Value(value(7)));
        table.handle_ask(3, 7, Ask::Need);
        for worker in 1..=3 {
            assert_eq!(table.poll_reply(), told(worker, &Told::Value(value(7))));
        }
        assert_eq!((table.poll_reply(), table.poll_ask()), (None, None));
    }

    #[test]
    fn a_value_lies_in_memory_once() {
        let mut table = Table::new(RUN, false);
        (0..4).for_each(|worker| table.handle_ask(worker, 7, Ask::Need));
        table.handle_ask(0, 7, Ask::Value(value(7)));
        table.handle_ask(4, 7, Ask::Need);
        assert_eq!(table.poll_reply(), told(0, &Told::Compute));
        let words: Vec<_> = std::iter::from_fn(|| table.poll_reply()).collect();
        let first = words[0].2.as_ptr();
        assert!(words.len() == 4 && words.iter().all(|(.., word)| word.as_ptr() == first));
    }

    #[test]
    fn the_next_computes_when_one_is_lost_or_gives_up() {
        let mut table = Table::new(RUN, false);
        (0..4).for_each(|worker| table.handle_ask(worker, 7, Ask::Need));
        table.handle_lost(1);
        table.handle_lost(0);
        table.handle_ask(2, 7, Ask::GivenUp);
        table.handle_ask(3, 7, Ask::GivenUp);
        table.handle_ask(4, 7, Ask::Need);
        for worker in [0, 2, 3, 4] {
            assert_eq!(table.poll_reply(), told(worker, &Told::Compute));
        }
        assert_eq!(table.poll_reply(), None);
    }

    #[test]
    fn a_sub_farmer_gives_up_what_nobody_below_it_computes() {
        let mut table = Table::new(RUN, true);
        table.handle_ask(0, 7, Ask::Need);
        assert_eq!((table.poll_reply(), table.poll_ask()), (None, Some((7, Ask::Need))));
        table.handle_lost(0);
        table.handle_reply(7, Told::Compute);
        assert_eq!((table.poll_reply(), table.poll_ask()), (None, Some((7, Ask::GivenUp))));
    }

    /// A farmer with two workers and two sub-farmers of two workers each. Workers give up or are lost by
    /// chance, and others come in the place of lost ones.
    #[test]
    fn every_worker_that_is_there_gets_each_value_that_it_needs() {
        for seed in 0..2000 {
            World::new(seed).run();
        }
    }

    const KEYS: Key = 3;
    const WORKERS: usize = 6;

    /// Table 0 is the farmer's, with the sub-farmers as its workers 2 and 3; worker `n` of the world is
    /// worker `n % 2` of the table of `TABLES[n]`.
    struct World {
        random: Random,
        tables: [Table; 3],
        /// Of each worker, whether it waits for, computes or has a value.
        workers: Vec<BTreeMap<Key, Has>>,
        /// Number of faults that are left.
        faults: u32,
        computed: BTreeMap<Key, u32>,
    }

    const TABLES: [usize; WORKERS] = [0, 0, 1, 1, 2, 2];

    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Has {
        Asked,
        Computes,
        It,
    }

    impl World {
        fn new(seed: u64) -> World {
            World {
                random: Random::new(seed),
                tables: [Table::new(RUN, false), Table::new(RUN, true), Table::new(RUN, true)],
                workers: vec![BTreeMap::new(); WORKERS],
                faults: 6,
                computed: BTreeMap::new(),
            }
        }

        fn run(mut self) {
            for _ in 0..200 {
                let (at, key) = (self.random.below(WORKERS as u64), self.random.below(3));
                self.step(at as usize, Key::from(key));
            }
            self.faults = 0;
            for round in 0..4 {
                for at in 0..WORKERS {
                    (0..KEYS).for_each(|key| self.step(at, key));
                }
                let all = self.workers.iter().map(BTreeMap::len).sum::<usize>();
                assert!(round == 0 || all == WORKERS * KEYS as usize);
            }
            let has_it = |worker: &BTreeMap<Key, Has>| worker.values().all(|&it| it == Has::It);
            assert!(self.workers.iter().all(has_it), "{:?}", self.workers);
        }

        /// A worker goes on with a value.
        fn step(&mut self, at: usize, key: Key) {
            let (table, worker) = (TABLES[at], at % 2);
            let fails = self.faults > 0 && self.random.one_in(4);
            match self.workers[at].get(&key) {
                None => {
                    self.workers[at].insert(key, Has::Asked);
                    self.tables[table].handle_ask(worker, key, Ask::Need);
                }
                Some(Has::Computes) if fails => {
                    self.faults -= 1;
                    self.workers[at].remove(&key);
                    self.tables[table].handle_ask(worker, key, Ask::GivenUp);
                }
                Some(Has::Computes) => {
                    self.workers[at].insert(key, Has::It);
                    *self.computed.entry(key).or_default() += 1;
                    // Nobody else was told to compute it meanwhile.
                    assert_eq!(self.computed[&key], 1);
                    self.tables[table].handle_ask(worker, key, Ask::Value(value(key)));
                }
                Some(Has::Asked | Has::It) if fails => {
                    self.faults -= 1;
                    self.workers[at].clear();
                    self.tables[table].handle_lost(worker);
                }
                Some(Has::Asked | Has::It) => {}
            }
            self.deliver();
        }

        /// Brings all words to where they belong.
        fn deliver(&mut self) {
            loop {
                let mut any = false;
                for table in 0..3 {
                    while let Some((key, ask)) = self.tables[table].poll_ask() {
                        any = true;
                        self.tables[0].handle_ask(table + 1, key, ask);
                    }
                    while let Some((worker, _, word)) = self.tables[table].poll_reply() {
                        any = true;
                        let Ok(Order::Once { run: RUN, key, reply }) = wire::read_order(&word)
                        else {
                            panic!("another word")
                        };
                        if table == 0 && worker >= 2 {
                            self.tables[worker - 1].handle_reply(key, reply);
                            continue;
                        }
                        let of = &mut self.workers[2 * table + worker];
                        let has = match reply {
                            Told::Compute => Has::Computes,
                            Told::Value(bytes) => {
                                assert_eq!(bytes, value(key));
                                Has::It
                            }
                        };
                        // Another worker has the place of a lost one.
                        if of.get(&key) == Some(&Has::Asked) {
                            of.insert(key, has);
                        }
                    }
                }
                if !any {
                    return;
                }
            }
        }
    }
}
