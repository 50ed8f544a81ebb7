//! The far end: takes orders, and checks the messages of each.

use std::io::{BufRead as _, Write as _};
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

use crate::message::{self, number_of};
use crate::{fail, near};

/// Ends this process when the one that started it dies.
pub fn die_with_parent() {
    // If this fails, the end of stdin ends the process too.
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
}

/// The words between the two ends, at the far end.
pub struct Orders {
    goal: Arc<Goal>,
    reached: Receiver<()>,
}

impl Orders {
    pub(crate) fn new() -> Self {
        let (sender, reached) = mpsc::channel();
        Self { goal: Arc::new(Goal { target: AtomicU64::new(u64::MAX), sender }), reached }
    }

    /// Returns the number of messages that the checkers wait for.
    pub fn goal(&self) -> Arc<Goal> {
        self.goal.clone()
    }

    /// Tells the near end the address, and takes orders on a thread of its own from now on. The
    /// process ends with stdin.
    pub fn take(self, address: &str) {
        say(address);
        thread::spawn(move || {
            for line in std::io::stdin().lock().lines() {
                let order = line.ok().and_then(|line| near::Order::of(&line));
                let Some(order) = order else { fail("an order is not understood") };
                self.goal.target.store(order.first + order.count, Ordering::Release);
                say("ready");
                if self.reached.recv().is_err() {
                    fail("the far end is gone");
                }
                say("done");
            }
            process::exit(0);
        });
    }
}

fn say(word: &str) {
    let mut stdout = std::io::stdout().lock();
    // The near end is gone if this fails; then stdin ends, too.
    let _ = writeln!(stdout, "{word}").and_then(|()| stdout.flush());
}

/// Number of messages of all orders so far.
pub struct Goal {
    target: AtomicU64,
    sender: Sender<()>,
}

impl Goal {
    /// Tells the near end if this was the last message.
    #[inline]
    fn taken(&self, count: u64) {
        if count == self.target.load(Ordering::Acquire) && self.sender.send(()).is_err() {
            fail("the orders are gone");
        }
    }
}

/// Taker of the number of messages so far.
enum Count {
    Goal(Arc<Goal>),
    Counter(Arc<AtomicU64>),
}

/// Checks messages that come in order. A wrong one ends the process.
pub struct Checker {
    count: Count,
    next: u64,
    bytes: usize,
}

impl Checker {
    /// Makes the checker of messages of `bytes`.
    pub fn new(goal: Arc<Goal>, bytes: usize) -> Self {
        Self { count: Count::Goal(goal), next: 0, bytes }
    }

    /// Makes the checker of answers, which only counts them.
    pub fn counting(count: Arc<AtomicU64>, bytes: usize) -> Self {
        Self { count: Count::Counter(count), next: 0, bytes }
    }

    /// Checks the next message.
    #[inline]
    pub fn take(&mut self, message: &[u8]) {
        let last = message.last().copied().unwrap_or_default();
        self.take_parts(number_of(message), last, message.len());
    }

    /// Checks the next message by its number, its last byte and its length.
    #[inline]
    pub fn take_parts(&mut self, number: u64, last: u8, length: usize) {
        self.check_parts(number, last, length);
        self.done();
    }

    /// Checks the next message, which is done when its answer is sent.
    #[inline]
    pub fn check(&mut self, message: &[u8]) {
        let last = message.last().copied().unwrap_or_default();
        self.check_parts(number_of(message), last, message.len());
    }

    #[inline]
    fn check_parts(&mut self, number: u64, last: u8, length: usize) {
        if let Err(cause) = message::verify_parts(number, last, length, self.bytes, self.next) {
            fail(&cause);
        }
    }

    /// Goes on to the next message.
    #[inline]
    pub fn done(&mut self) {
        self.next += 1;
        match &self.count {
            Count::Goal(goal) => goal.taken(self.next),
            Count::Counter(count) => count.store(self.next, Ordering::Release),
        }
    }
}

/// Checks requests that may overtake each other, by their check bytes, and their number and the sum
/// of their numbers at the end of an order. A wrong one ends the process.
pub struct Calls {
    goal: Arc<Goal>,
    bytes: usize,
    taken: AtomicU64,
    sum: AtomicU64,
}

impl Calls {
    /// Makes the checker of requests of `bytes`.
    pub fn new(goal: Arc<Goal>, bytes: usize) -> Self {
        Self { goal, bytes, taken: AtomicU64::new(0), sum: AtomicU64::new(0) }
    }

    /// Checks a request.
    #[inline]
    pub fn take(&self, message: &[u8]) {
        let number = number_of(message);
        if let Err(cause) = message::verify(message, self.bytes, number) {
            fail(&cause);
        }
        let sum = self.sum.fetch_add(number, Ordering::AcqRel).wrapping_add(number);
        let taken = self.taken.fetch_add(1, Ordering::AcqRel) + 1;
        if taken == self.goal.target.load(Ordering::Acquire) {
            // Requests are numbered from 0 without gaps.
            let expected = u128::from(taken) * u128::from(taken - 1) / 2;
            if sum != expected as u64 {
                fail("message numbers of the requests are not those that were sent");
            }
            self.goal.taken(taken);
        }
    }
}
