use super::*;
use crate::driver::mail::Taken;
use proptest::prelude::*;
use std::task::Waker;

/// An operation on an inbox.
#[derive(Debug, Clone)]
enum Step {
    PutShared(Vec<usize>),
    PutCopied(Vec<usize>),
    /// A large message, in the receiver's memory if some was given and is large enough.
    PutLarge(usize, Counted),
    Take,
    TakeWith,
    /// Takes at most this many messages, up to one that ends with this byte.
    TakeMany(usize, u8),
    Peek,
    Look,
    Wait,
    GiveInto(usize),
    TakeBackInto,
    ReportEvery(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let sizes = || {
        let size = prop_oneof![4 => 0usize..20, 1 => 245usize..260, 1 => 2000usize..9000];
        prop::collection::vec(size, 1..8)
    };
    let counted = prop_oneof![Just(Counted::Window), Just(Counted::Large)];
    prop_oneof![
        3 => sizes().prop_map(Step::PutShared),
        3 => sizes().prop_map(Step::PutCopied),
        2 => (500usize..50_000, counted).prop_map(|(size, counted)| Step::PutLarge(size, counted)),
        5 => Just(Step::Take),
        5 => Just(Step::TakeWith),
        5 => (0usize..20, any::<u8>()).prop_map(|(max, until)| Step::TakeMany(max, until)),
        2 => Just(Step::Peek),
        1 => Just(Step::Look),
        1 => Just(Step::Wait),
        2 => (0usize..60_000).prop_map(Step::GiveInto),
        1 => Just(Step::TakeBackInto),
        1 => (0u64..20_000).prop_map(Step::ReportEvery),
    ]
}

/// A receiving end, the driver's side of it, and the expected state of both.
struct Rig {
    end: RxEnd,
    shared: Arc<RxShared>,
    link: Arc<LinkShared>,
    /// Messages that were put in and not taken.
    waiting: VecDeque<Vec<u8>>,
    put: u64,
    taken: u64,
    /// Bytes of the memory that the receiver gave and that was not used.
    given: Option<usize>,
    /// Put in: bytes that count in the window; `told_large`: large messages that are reported.
    window_bytes: u64,
    told_large: u64,
    reported_bytes: u64,
    reported_large: u64,
    finished: u64,
    /// At least this many bytes are reported at once.
    report_step: u64,
    /// Fewer bytes than this may stay unreported.
    largest_step: u64,
}

impl Rig {
    fn new() -> Rig {
        let link = LinkShared::undriven(1 << 16);
        let shared = RxShared::new("inbox", 7);
        Rig {
            end: RxEnd::new(Arc::clone(&shared), Arc::clone(&link), None),
            shared,
            link,
            waiting: VecDeque::new(),
            put: 0,
            taken: 0,
            given: None,
            window_bytes: 0,
            told_large: 0,
            reported_bytes: 0,
            reported_large: 0,
            finished: 0,
            report_step: 0,
            largest_step: 0,
        }
    }

    /// Makes a message; no two are alike for long.
    fn message(&mut self, size: usize) -> Vec<u8> {
        self.put += 1;
        let message: Vec<u8> = (0..size).map(|at| (self.put as usize * 31 + at) as u8).collect();
        self.waiting.push_back(message.clone());
        message
    }

    fn run(&mut self, sizes: &[usize]) -> Vec<u8> {
        let mut run = Vec::new();
        for size in sizes {
            let mut prefix = [0; message::PREFIX_BYTES_MAX];
            message::write_prefix(*size, &mut prefix);
            run.extend_from_slice(&prefix[..message::prefix_bytes(*size)]);
            run.extend(self.message(*size));
        }
        self.window_bytes += run.len() as u64;
        run
    }

    fn put_large(&mut self, size: usize, counted: Counted) {
        let behind = !self.shared.with_queue(|queue| queue.runs.is_empty());
        let message = self.message(size);
        let into = self.shared.take_into(size as u64);
        let fits = self.given.is_some_and(|room| room >= size);
        assert_eq!(into.is_some(), fits && !behind);
        let counted = match into {
            Some(_) => Counted::Not,
            None => counted,
        };
        match counted {
            Counted::Not => self.given = None,
            Counted::Window => self.window_bytes += size as u64,
            Counted::Large => self.told_large += 1,
        }
        let mut memory = into.unwrap_or_default();
        memory.clear();
        memory.extend_from_slice(&message);
        self.shared.put_large(memory, counted).unwrap();
    }

    fn check(&mut self, got: Option<&[u8]>) {
        self.taken += u64::from(got.is_some());
        assert_eq!(got, self.waiting.pop_front().as_deref());
    }

    fn take_many(&mut self, max: usize, until: u8) {
        let mut got = Vec::new();
        let count = self.end.take_many(max, |bytes| {
            got.push(bytes.to_vec());
            bytes.last() != Some(&until)
        });
        assert!(count == got.len() && count <= max);
        let stops = got.iter().position(|message| message.last() == Some(&until));
        assert!(stops.is_none_or(|at| at + 1 == count), "it goes on after it was told to stop");
        for message in got {
            self.check(Some(&message));
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::PutShared(sizes) => {
                let run = Bytes::from(self.run(&sizes));
                self.shared.put_shared(run, sizes.len() as u32).unwrap();
            }
            Step::PutCopied(sizes) => {
                let run = self.run(&sizes);
                self.shared.put_copied(&run, sizes.len() as u32).unwrap();
            }
            Step::PutLarge(size, counted) => self.put_large(size, counted),
            Step::Take => {
                let got = self.end.take().map(|found| match found {
                    Found::Small(bytes) => bytes.to_vec(),
                    Found::SmallOf(bytes, range) => bytes[range].to_vec(),
                    Found::Large(bytes) => bytes,
                });
                self.check(got.as_deref());
            }
            Step::TakeWith => {
                let got = self.end.take_with(<[u8]>::to_vec);
                self.check(got.as_deref());
            }
            Step::TakeMany(max, until) => self.take_many(max, until),
            Step::Peek => {
                assert_eq!(self.end.peek_bytes(), self.waiting.front().map(Vec::len));
            }
            Step::Look => {
                let there = matches!(self.end.next(), Next::Message);
                assert_eq!(there, !self.waiting.is_empty());
            }
            Step::Wait => {
                let polled = self.end.poll_next(&mut Context::from_waker(Waker::noop()));
                assert_eq!(polled.is_pending(), self.waiting.is_empty());
            }
            Step::GiveInto(room) => {
                let back = self.end.give_into(vec![0xEE; room]);
                assert_eq!(back.is_some(), !self.waiting.is_empty());
                if back.is_none() {
                    self.given = Some(room);
                }
            }
            Step::TakeBackInto => {
                let back = self.end.take_back_into().map(|memory| memory.len());
                assert_eq!(back, self.given.take());
            }
            Step::ReportEvery(bytes) => {
                self.largest_step = self.largest_step.max(bytes);
                self.report_step = bytes;
                self.shared.set_report_step(bytes);
            }
        }
    }

    /// Checks that the reports to the driver add up.
    fn settle(&mut self) {
        let mut mail = Taken::default();
        self.link.take_mail(&mut mail);
        for command in mail.commands {
            match command {
                Command::Consumed { bytes, .. } => {
                    assert!(bytes >= self.report_step, "{bytes} of {}", self.report_step);
                    self.reported_bytes += bytes;
                }
                Command::LargeTaken { .. } => self.reported_large += 1,
                Command::Finished { .. } => self.finished += 1,
                _ => panic!("nothing lies, waits or is dropped"),
            }
        }
        assert!(self.reported_bytes + self.end.consumed <= self.window_bytes);
        assert_eq!(self.end.stats().messages, self.taken);
    }
}

proptest! {
    /// Against a queue of messages, however they come and are taken.
    #[test]
    fn the_inbox_is_a_queue(steps in prop::collection::vec(step(), 1..200)) {
        let mut rig = Rig::new();
        for step in steps {
            rig.step(step);
            rig.settle();
        }
        rig.shared.end(Outcome::Done);
        while !rig.waiting.is_empty() {
            prop_assert!(matches!(rig.end.next(), Next::Message));
            rig.step(Step::TakeWith);
        }
        // At the end all counted bytes were consumed, and reported except for less than a step.
        prop_assert!(matches!(rig.end.next(), Next::Ended(Outcome::Done)));
        rig.settle();
        prop_assert_eq!(rig.reported_bytes + rig.end.consumed, rig.window_bytes);
        prop_assert!(rig.end.consumed == 0 || rig.end.consumed < rig.largest_step);
        prop_assert_eq!((rig.reported_large, rig.finished), (rig.told_large, 1));
        prop_assert_eq!(rig.taken, rig.put);
    }
}
