//! The messages of a channel as they arrive, checked against what its sender must have sent.

use super::plan;
use super::{PATTERN_BYTES, pattern};
use chunkcomm_proto::link::Counted;
use chunkcomm_proto::message;
use chunkcomm_proto::random::Random;
use std::collections::VecDeque;

/// Contents of the messages of one side of a link, by a key.
#[derive(Debug, Clone, Copy)]
pub(super) struct Content(pub(super) u64);

impl Content {
    /// Returns the place in the pattern where message `index` of `channel` begins, and its size.
    pub(super) fn message(self, channel: u32, index: u64) -> (usize, usize) {
        let mut random = Random::fork(self.0 ^ u64::from(channel) << 40, index);
        let size = plan::size(&mut random);
        (random.below((PATTERN_BYTES - size) as u64) as usize, size)
    }
}

/// A run or a large message that waits for its receiver.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) messages: u64,
    pub(super) bytes: u64,
    pub(super) counted: Counted,
}

/// The messages that have arrived on a channel.
#[derive(Debug)]
pub(super) struct Arrivals {
    content: Content,
    channel: u32,
    /// Messages that came as a whole.
    pub(super) arrived: u64,
    /// Bytes that came of the next message, if it is large and incomplete.
    pub(super) partial: Option<usize>,
    pub(super) waiting: VecDeque<Waiting>,
}

impl Arrivals {
    pub(super) fn new(content: Content, channel: u32) -> Arrivals {
        Arrivals { content, channel, arrived: 0, partial: None, waiting: VecDeque::new() }
    }

    fn next(&self) -> (usize, usize) {
        self.content.message(self.channel, self.arrived)
    }

    /// Takes a run; false when its messages are not the next ones.
    pub(super) fn run(&mut self, messages: u32, bytes: &[u8]) -> bool {
        let (mut at, mut found) = (0, 0);
        let mut good = self.partial.is_none();
        while let Some(range) = message::next_in_run(bytes, at) {
            at = range.end;
            found += 1;
            let (start, size) = self.next();
            good &= pattern().get(start..start + size) == bytes.get(range);
            self.arrived += 1;
        }
        let (messages, counted) = (u64::from(messages), Counted::Window);
        self.waiting.push_back(Waiting { messages, bytes: bytes.len() as u64, counted });
        good && found == messages && at == bytes.len()
    }

    pub(super) fn large_begins(&mut self) {
        self.partial = Some(0);
    }

    /// Takes bytes of a large message; false when they are not the next ones.
    pub(super) fn large_bytes(&mut self, bytes: &[u8]) -> bool {
        let (start, size) = self.next();
        self.partial.as_mut().is_some_and(|at| {
            let from = start + *at;
            *at += bytes.len();
            *at <= size && pattern().get(from..from + bytes.len()) == Some(bytes)
        })
    }

    /// Completes the large message; returns its size, and whether all of it came.
    pub(super) fn large_done(&mut self, counted: Counted) -> (u64, bool) {
        let size = self.next().1;
        let good = self.partial.take() == Some(size);
        self.arrived += 1;
        self.waiting.push_back(Waiting { messages: 1, bytes: size as u64, counted });
        (size as u64, good)
    }
}
