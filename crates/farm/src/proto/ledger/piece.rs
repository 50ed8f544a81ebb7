//! A range of tasks with their encoded inputs.

use std::ops::Range;

use crate::proto::wire;

/// Index of a piece in the ledger's table.
pub(super) type Key = usize;

#[derive(Clone, Debug, Default)]
pub(super) struct Piece {
    pub(super) first: u64,
    pub(super) count: u32,
    /// Number of items at the beginning of the message that were accepted.
    pub(super) skip: u32,
    /// Number of times that it was given out before.
    pub(super) attempt: u32,
    /// Number of workers that died while they held it.
    pub(super) deaths: u32,
    /// Time at which it was given out last.
    pub(super) given_ns: u64,
    /// Workers that hold it: none while it is open, two when it was copied.
    pub(super) holders: [Option<u32>; 2],
    /// The assignment as it was sent.
    pub(super) message: Vec<u8>,
}

impl Piece {
    pub(super) fn tasks(&self) -> Range<u64> {
        self.first..self.first + u64::from(self.count)
    }

    /// Returns the encoded inputs of the tasks.
    fn items(&self) -> &[u8] {
        let items = &self.message[wire::ASSIGNMENT_HEAD..];
        let (_, items) = items.split_at(bytes_of(items, self.skip));
        &items[..bytes_of(items, self.count)]
    }

    /// Returns the encoded input of the first task.
    pub(super) fn input(&self) -> Vec<u8> {
        self.items().get(wire::LENGTH_BYTES..).unwrap_or_default().to_vec()
    }

    fn with_items(&self, items: &[u8]) -> Vec<u8> {
        [&self.message[..wire::ASSIGNMENT_HEAD], items].concat()
    }

    /// Splits after the first `at` tasks; returns the second part, which has the same holders.
    pub(super) fn split_off(&mut self, at: u32) -> Piece {
        let (items, rest) = self.items().split_at(bytes_of(self.items(), at));
        let (message, rest) = (self.with_items(items), self.with_items(rest));
        let (first, count) = (self.first + u64::from(at), self.count - at);
        let rest = Piece { first, count, skip: 0, message: rest, ..*self };
        (self.count, self.skip, self.message) = (at, 0, message);
        rest
    }

    /// Keeps the first `each` tasks; returns the others in parts of the same number.
    pub(super) fn split(&mut self, each: u32) -> Vec<Piece> {
        let mut parts = Vec::new();
        if self.count <= each {
            return parts;
        }
        let rest = self.split_off(each);
        let (mut items, mut first, mut left) = (rest.items(), rest.first, rest.count);
        while left > 0 {
            let count = left.min(each);
            let (own, others) = items.split_at(bytes_of(items, count));
            parts.push(Piece { first, count, message: rest.with_items(own), ..rest });
            (items, first, left) = (others, first + u64::from(count), left - count);
        }
        parts
    }

    /// Writes the message anew for the next attempt, without what was accepted or split off.
    pub(super) fn rewrite(&mut self) {
        self.attempt += 1;
        (self.message, self.skip) = (self.with_items(self.items()), 0);
        wire::number_assignment(&mut self.message, self.first, self.count);
        wire::set_attempt(&mut self.message, self.attempt);
    }
}

/// Returns the bytes of the first `count` items, which the farmer wrote.
fn bytes_of(items: &[u8], count: u32) -> usize {
    wire::items_bytes(items, count).expect("a piece has all its items")
}
