//! The log of a feed: messages that some subscriber has not been sent, or that late ones are to get.
//!
//! ```text
//!   segments:  | small, small, ... | large | small, ... |
//!                 ▲ begin     ▲ kept          ▲        ▲ end
//!                                          places of subscribers
//! ```
//!
//! Small messages lie in a segment as in a run of a packet. A segment that is full, or of which a long part goes
//! to the subscribers, is closed: their links share its bytes.

use crate::driver::staging::SHARED_RUN_BYTES_MIN;
use crate::proto::limits::{PACKET_BYTES_DEFAULT, PACKET_OVERHEAD_BYTES};
use crate::proto::message;
use bytes::Bytes;
use std::collections::VecDeque;

/// Most bytes of small messages in a segment, and of those that wait for their batch: as many as a packet of
/// 64 KiB holds.
pub(super) const SEGMENT_BYTES_MAX: usize = PACKET_BYTES_DEFAULT - PACKET_OVERHEAD_BYTES;

/// An encoded message.
#[derive(Clone, Copy)]
pub(super) enum Encoded<'a> {
    /// A small one, behind its prefix.
    Small(&'a [u8]),
    /// A large one, which all share.
    Large(&'a Bytes),
}

impl Encoded<'_> {
    /// Returns the bytes that count towards a backlog.
    pub(super) fn len(self) -> u64 {
        match self {
            Encoded::Small(framed) => framed.len() as u64,
            Encoded::Large(bytes) => large_bytes(bytes),
        }
    }
}

/// Messages that lie together.
enum Stored {
    /// Small ones, to which more may be added.
    Open(Vec<u8>),
    Run(Bytes),
    Large(Bytes),
}

/// Bytes of a large message and its mark.
fn large_bytes(message: &Bytes) -> u64 {
    message.len() as u64 + 1
}

struct Segment {
    messages: Stored,
    /// Number of the message behind it.
    until: u64,
}

/// The place before a message.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Place {
    /// The message's number.
    pub(super) message: u64,
    /// Bytes of all messages before it.
    pub(super) bytes: u64,
    segment: u64,
    at: usize,
}

/// The messages behind a place, up to the end of their segment.
pub(super) enum Rest<'a> {
    /// Small ones, and their number.
    Run(&'a [u8], u32),
    /// Those behind a place in bytes that can be shared.
    Shared(&'a Bytes, usize, u32),
    Large(&'a Bytes),
}

/// The messages from `begin` to `end`.
pub(super) struct Log {
    segments: VecDeque<Segment>,
    /// Number of the first segment.
    first: u64,
    begin: Place,
    end: Place,
    /// The first message for late subscribers.
    kept: Place,
    keep: u64,
    keep_bytes_max: u64,
    /// Bytes of small messages after which a new segment begins.
    segment_bytes: usize,
    /// Memory for the next segment.
    spare: Vec<u8>,
    /// Bytes of the segment that was closed last.
    closed_bytes: usize,
}

/// Returns the bytes of the first message of a run with its prefix.
fn first_bytes(run: &[u8]) -> usize {
    message::next_in_run(run, 0).expect("the feed framed it").end
}

impl Log {
    /// Makes a log for subscribers with this backlog. It keeps the last messages, up to half of that.
    pub(super) fn new(keep: u64, backlog: u64) -> Log {
        let quarter = usize::try_from(backlog / 4).unwrap_or(usize::MAX);
        Log {
            segment_bytes: quarter.min(SEGMENT_BYTES_MAX),
            keep_bytes_max: backlog / 2,
            segments: VecDeque::new(),
            first: 0,
            begin: Place::default(),
            end: Place::default(),
            kept: Place::default(),
            keep,
            spare: Vec::new(),
            closed_bytes: 0,
        }
    }

    pub(super) fn begin(&self) -> Place {
        self.begin
    }

    pub(super) fn end(&self) -> Place {
        self.end
    }

    pub(super) fn kept(&self) -> Place {
        self.kept
    }

    /// Whether messages are kept for late subscribers.
    pub(super) fn keeps(&self) -> bool {
        self.keep > 0
    }

    /// Adds a message. Returns whether it began a segment.
    pub(super) fn append(&mut self, message: Encoded<'_>) -> bool {
        let begins = match (message, self.segments.back()) {
            (Encoded::Small(framed), Some(Segment { messages: Stored::Open(run), .. })) => {
                run.len() + framed.len() > self.segment_bytes
            }
            _ => true,
        };
        if begins {
            self.close();
            let messages = match message {
                Encoded::Small(_) => {
                    let mut run = std::mem::take(&mut self.spare);
                    // Where one was closed, the next one probably gets as long.
                    run.reserve(self.closed_bytes);
                    Stored::Open(run)
                }
                Encoded::Large(bytes) => Stored::Large(bytes.clone()),
            };
            self.segments.push_back(Segment { messages, until: self.end.message });
        }
        let last = self.segments.back_mut().expect("there is one");
        if let (Stored::Open(run), Encoded::Small(framed)) = (&mut last.messages, message) {
            run.extend_from_slice(framed);
            self.end.at = run.len();
        }
        last.until += 1;
        self.end.message += 1;
        self.end.bytes += message.len();
        self.end.segment = self.first + self.segments.len() as u64 - 1;
        self.keep_last();
        begins
    }

    /// Closes the last segment if it is worth that: nothing more is added to it, and its bytes can be shared.
    pub(super) fn close(&mut self) {
        if let Some(Segment { messages, .. }) = self.segments.back_mut()
            && let Stored::Open(run) = messages
            && run.len() >= SHARED_RUN_BYTES_MIN
        {
            self.closed_bytes = run.len();
            if run.capacity() / 2 > run.len() {
                // It may lie here for long.
                run.shrink_to_fit();
            }
            *messages = Stored::Run(Bytes::from(std::mem::take(run)));
        }
    }

    fn keep_last(&mut self) {
        if self.keep == 0 {
            self.kept = self.end;
            return;
        }
        let Place { message, bytes, .. } = self.end;
        while message - self.kept.message > self.keep
            || bytes - self.kept.bytes > self.keep_bytes_max
        {
            self.kept = self.after(self.kept);
        }
    }

    /// Returns the messages behind `place`, which moves into their segment; `None` at the end.
    pub(super) fn rest(&self, place: &mut Place) -> Option<Rest<'_>> {
        if place.message == self.end.message {
            return None;
        }
        let mut segment = self.segment(place.segment);
        while place.message >= segment.until {
            (place.segment, place.at) = (place.segment + 1, 0);
            segment = self.segment(place.segment);
        }
        Some(match &segment.messages {
            Stored::Open(run) => {
                Rest::Run(&run[place.at..], (segment.until - place.message) as u32)
            }
            Stored::Run(run) => Rest::Shared(run, place.at, (segment.until - place.message) as u32),
            Stored::Large(bytes) => Rest::Large(bytes),
        })
    }

    fn segment(&self, number: u64) -> &Segment {
        &self.segments[(number - self.first) as usize]
    }

    /// Returns the place behind the next message; the end's is the end.
    pub(super) fn after(&self, mut place: Place) -> Place {
        match self.rest(&mut place) {
            None => {}
            Some(Rest::Run(run, _)) => place.advance(first_bytes(run), 1),
            Some(Rest::Shared(run, at, _)) => place.advance(first_bytes(&run[at..]), 1),
            Some(Rest::Large(bytes)) => place.advance_large(bytes),
        }
        place
    }

    /// Returns the place behind the segment of `place`; the end's is the end.
    fn after_segment(&self, mut place: Place) -> Place {
        match self.rest(&mut place) {
            None => {}
            Some(Rest::Run(run, messages)) => place.advance(run.len(), messages),
            Some(Rest::Shared(run, at, messages)) => place.advance(run.len() - at, messages),
            Some(Rest::Large(bytes)) => place.advance_large(bytes),
        }
        place
    }

    /// Returns the first place from `place` on with at most `bytes_max` behind it; before the last message at
    /// the latest.
    pub(super) fn within(&self, mut place: Place, bytes_max: u64) -> Place {
        let is_before = |place: Place| {
            self.end.bytes - place.bytes > bytes_max && place.message + 1 < self.end.message
        };
        while is_before(self.after_segment(place)) {
            place = self.after_segment(place);
        }
        while is_before(place) {
            place = self.after(place);
        }
        place
    }

    /// Lets go of the first segments, as long as the others have `bytes_max` or more.
    pub(super) fn trim_beyond(&mut self, bytes_max: u64) {
        loop {
            let next = self.after_segment(self.begin);
            if self.end.bytes - next.bytes < bytes_max {
                return;
            }
            self.trim(next);
        }
    }

    /// Lets go of the messages before `begin`.
    pub(super) fn trim(&mut self, begin: Place) {
        self.begin = begin;
        while self.segments.len() > 1 && self.segments[0].until <= begin.message {
            self.first += 1;
            let segment = self.segments.pop_front().expect("there are several");
            self.reuse(segment);
        }
        // A place at the end of a segment that is gone lies before the next one.
        if self.begin.segment < self.first {
            (self.begin.segment, self.begin.at) = (self.first, 0);
        }
        if self.kept.message <= self.begin.message {
            self.kept = self.begin;
        }
    }

    /// Lets go of all messages: nobody is behind, and none are kept.
    pub(super) fn clear(&mut self) {
        self.first += self.segments.len() as u64;
        while let Some(segment) = self.segments.pop_front() {
            self.reuse(segment);
        }
        (self.end.segment, self.end.at) = (self.first, 0);
        (self.begin, self.kept) = (self.end, self.end);
    }

    fn reuse(&mut self, segment: Segment) {
        if let Stored::Open(mut run) = segment.messages {
            run.clear();
            self.spare = run;
        }
    }
}

impl Place {
    /// Moves behind `messages` of a run.
    pub(super) fn advance(&mut self, bytes: usize, messages: u32) {
        self.at += bytes;
        self.bytes += bytes as u64;
        self.message += u64::from(messages);
    }

    /// Moves behind a large message.
    pub(super) fn advance_large(&mut self, message: &Bytes) {
        self.bytes += large_bytes(message);
        self.message += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::random::Random;

    /// A message that tells its number: a small one, or one in 16 a large one.
    fn append(log: &mut Log, number: u64, random: &mut Random) {
        if random.one_in(16) {
            let large = Bytes::from(number.to_le_bytes().repeat(1 + random.below(9) as usize));
            log.append(Encoded::Large(&large));
        } else {
            let payload = number.to_le_bytes().repeat(1 + random.below(25) as usize);
            let framed = [&[payload.len() as u8], &payload[..]].concat();
            log.append(Encoded::Small(&framed));
        }
    }

    /// Reads some messages from `place` on, and checks that they are those that follow.
    fn read(log: &Log, place: &mut Place, random: &mut Random) {
        if place.message <= log.begin().message {
            *place = log.begin();
        }
        for _ in 0..random.below(200) {
            let before = *place;
            match log.rest(place) {
                None => assert_eq!(place.message, log.end().message),
                Some(rest @ (Rest::Run(..) | Rest::Shared(..))) => {
                    let (run, messages) = match rest {
                        Rest::Shared(run, at, messages) => (&run[at..], messages),
                        Rest::Run(run, messages) => (run, messages),
                        Rest::Large(_) => unreachable!(),
                    };
                    assert!(messages > 0);
                    let range = message::next_in_run(run, 0).unwrap();
                    assert_eq!(run[range.start..][..8], before.message.to_le_bytes());
                    place.advance(range.end, 1);
                }
                Some(Rest::Large(bytes)) => {
                    assert_eq!(bytes[..8], before.message.to_le_bytes());
                    place.advance_large(bytes);
                }
            }
            assert_eq!(log.after(before).message, place.message);
            assert_eq!(log.after(before).bytes, place.bytes);
        }
    }

    #[test]
    fn readers_get_all_messages_in_order_whatever_is_let_go_before_them() {
        for seed in 0..50 {
            let mut random = Random::new(seed);
            let keep = [0, 3, 1_000][random.below(3) as usize];
            let mut log = Log::new(keep, 40_000);
            let mut places = [Place::default(); 3];
            for _ in 0..200 {
                for _ in 0..random.below(100) {
                    let number = log.end().message;
                    append(&mut log, number, &mut random);
                }
                for place in &mut places {
                    read(&log, place, &mut random);
                }
                let kept = log.end().message - log.kept().message;
                assert!(kept <= keep && log.end().bytes - log.kept().bytes <= 20_000, "{seed}");
                let slowest = places.iter().min_by_key(|place| place.message).unwrap();
                if slowest.message == log.end().message && keep == 0 {
                    log.clear();
                    places = [log.end(); 3];
                } else if slowest.message < log.kept().message {
                    log.trim(*slowest);
                } else {
                    log.trim(log.kept());
                }
                if random.one_in(3) {
                    log.close();
                }
                if random.one_in(4) {
                    log.trim(log.within(log.begin(), 50_000));
                    assert!(log.end().bytes - log.begin().bytes <= 50_000, "seed {seed}");
                    let one = log.after(log.begin());
                    if log.end().bytes - one.bytes > 20_000 {
                        let place = log.within(one, 20_000);
                        // The place before it has more behind it.
                        assert!(log.end().bytes - place.bytes <= 20_000, "seed {seed}");
                        let mut before = one;
                        while log.after(before).message < place.message {
                            before = log.after(before);
                        }
                        assert!(log.end().bytes - before.bytes > 20_000, "seed {seed}");
                    }
                } else if random.one_in(4) {
                    log.trim_beyond(30_000);
                    assert!(
                        log.end().bytes - log.begin().bytes < 30_000 + 2 * 10_000,
                        "seed {seed}"
                    );
                }
            }
        }
    }
}
