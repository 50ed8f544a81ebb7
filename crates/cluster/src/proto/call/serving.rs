//! The requests of a service: those that are handled, and those that wait for their turn.
//!
//! ```text
//!   request -> Run ------------------------------> finished
//!         |     '-> detach -> task --> answers --> finished
//!         |-> Wait -> queue ---^          (the turn of one that waited comes at a finish)
//!         '-> Refuse
//!   cancel: removes a waiting request, or returns the task to be aborted; the side that
//!           takes a job away answers it
//! ```

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// Key of a call: its client, and the client's number of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// Number of the client's connection.
    pub caller: u64,
    /// The client's number of the call.
    pub slot: u32,
}

/// Decision about a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It is handled now; [`Serving::finished`] follows.
    Run,
    /// It waits: [`Serving::queue`] follows at once.
    Wait,
    /// It is not handled.
    Refuse(Refused),
    /// The client has used the number of a call that is not answered.
    Twice,
}

/// Reason why a request is not handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// Too many wait.
    Overloaded,
    /// The service closes.
    Closing,
}

/// State in which a cancelled call was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cancelled<R, T> {
    /// It waited: it is not handled.
    Waited(R),
    /// It is being handled; the task, if known yet.
    Ran(Option<T>),
    /// It was answered before.
    Over,
}

/// A waiting request whose turn has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Start<R> {
    /// The key of the call.
    pub key: Key,
    /// The job's number.
    pub number: u64,
    /// Index of the function.
    pub function: usize,
    /// The request.
    pub request: R,
}

#[derive(Debug)]
enum Job<T> {
    Waits { number: u64, function: usize },
    Runs { number: u64, function: usize, task: Option<T> },
}

impl<T> Job<T> {
    fn function(&self) -> usize {
        match *self {
            Job::Waits { function, .. } | Job::Runs { function, .. } => function,
        }
    }
}

/// Counters of a function since the service began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Requests that came.
    pub requests: u64,
    /// Of these, refused because too many waited.
    pub overloaded: u64,
    /// Of these, cancelled while they waited or were handled.
    pub cancelled: u64,
    /// Of these, not handled: the deadline passed before their turn.
    pub expired: u64,
}

/// The requests of a service. `R` is a waiting request, `T` a task that can be aborted.
///
/// At most `at_once_max` are handled and at most `waiting_max` wait; none waits while fewer than
/// `at_once_max` are handled.
#[derive(Debug)]
pub struct Serving<R, T> {
    at_once_max: usize,
    waiting_max: usize,
    at_once: usize,
    /// Waiting requests by number, in the order in which they came, each with its function.
    waiting: BTreeMap<u64, (Key, usize, R)>,
    /// Requests that wait, and those that tasks handle.
    jobs: BTreeMap<Key, Job<T>>,
    last_number: u64,
    closing: bool,
    /// By function.
    counters: Vec<Counters>,
}

impl<R, T> Serving<R, T> {
    /// Returns a service that handles `at_once_max` requests at the same time, at least one, and
    /// lets `waiting_max` wait. They are counted apart for each of `functions`.
    #[must_use]
    pub fn new(at_once_max: usize, waiting_max: usize, functions: usize) -> Serving<R, T> {
        Serving {
            at_once_max: at_once_max.max(1),
            waiting_max,
            at_once: 0,
            waiting: BTreeMap::new(),
            jobs: BTreeMap::new(),
            last_number: 0,
            closing: false,
            counters: vec![Counters::default(); functions],
        }
    }

    /// Returns the number of requests in handling now.
    #[must_use]
    pub fn at_once(&self) -> usize {
        self.at_once
    }

    /// Returns the number of waiting requests.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Returns the counters so far, by function.
    #[must_use]
    pub fn counters(&self) -> &[Counters] {
        &self.counters
    }

    /// Whether it is closing and nothing is left.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.closing && self.is_idle()
    }

    /// Whether nothing is handled and nothing waits.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.at_once == 0 && self.waiting.is_empty()
    }

    /// Refuses requests from now on; present ones go on.
    pub fn close(&mut self) {
        self.closing = true;
    }

    /// Decides about a request that came.
    pub fn request(&mut self, key: Key, function: usize) -> Verdict {
        if self.jobs.contains_key(&key) {
            return Verdict::Twice;
        }
        self.counters[function].requests += 1;
        if self.closing {
            return Verdict::Refuse(Refused::Closing);
        }
        if self.at_once < self.at_once_max {
            self.at_once += 1;
            return Verdict::Run;
        }
        if self.waiting.len() < self.waiting_max {
            return Verdict::Wait;
        }
        self.counters[function].overloaded += 1;
        Verdict::Refuse(Refused::Overloaded)
    }

    /// Queues a request after [`Verdict::Wait`].
    pub fn queue(&mut self, key: Key, function: usize, request: R) {
        let number = self.next_number();
        self.waiting.insert(number, (key, function, request));
        self.jobs.insert(key, Job::Waits { number, function });
        self.check();
    }

    /// Notes that a request goes on in a task, which [`Serving::attach`] names; returns the job's
    /// number.
    pub fn detach(&mut self, key: Key, function: usize) -> u64 {
        let number = self.next_number();
        self.jobs.insert(key, Job::Runs { number, function, task: None });
        number
    }

    /// Notes the task of a job. Returns it when it is to be aborted: the job was cancelled
    /// meanwhile, or is done.
    pub fn attach(&mut self, key: Key, job: u64, handle: T) -> Option<T> {
        match self.jobs.get_mut(&key) {
            Some(Job::Runs { number, task, .. }) if *number == job => {
                *task = Some(handle);
                None
            }
            _ => Some(handle),
        }
    }

    /// Notes that a task is done; returns whether it is to answer, since nobody else did.
    pub fn answers(&mut self, key: Key, job: u64) -> bool {
        match self.jobs.entry(key) {
            Entry::Occupied(entry) => {
                let is_it = matches!(entry.get(), Job::Runs { number, .. } if *number == job);
                if is_it {
                    entry.remove();
                }
                is_it
            }
            Entry::Vacant(_) => false,
        }
    }

    /// Cancels a call: its client does not wait any more. Unless the call is over, the caller of
    /// this function answers it.
    pub fn cancel(&mut self, key: Key) -> Cancelled<R, T> {
        let Some(job) = self.jobs.remove(&key) else { return Cancelled::Over };
        self.counters[job.function()].cancelled += 1;
        match job {
            Job::Runs { task, .. } => Cancelled::Ran(task),
            Job::Waits { number, .. } => match self.waiting.remove(&number) {
                Some((.., request)) => Cancelled::Waited(request),
                None => Cancelled::Over,
            },
        }
    }

    /// Cancels all calls of a client that is gone.
    pub fn leave(&mut self, caller: u64) -> Vec<Cancelled<R, T>> {
        let mine = Key { caller, slot: 0 }..=Key { caller, slot: u32::MAX };
        let keys: Vec<Key> = self.jobs.range(mine).map(|(key, _)| *key).collect();
        keys.into_iter().map(|key| self.cancel(key)).collect()
    }

    /// Counts a request that is answered before it is decided about: its deadline has passed, or its
    /// caller does not wait any more.
    pub fn passed_over(&mut self, function: usize, expired: bool) {
        let of_these = &mut self.counters[function];
        of_these.requests += 1;
        *(if expired { &mut of_these.expired } else { &mut of_these.cancelled }) += 1;
    }

    /// Counts a request whose deadline passed before its turn.
    pub fn expired(&mut self, function: usize) {
        self.counters[function].expired += 1;
    }

    /// Ends a request that was handled; returns the next one, if one waits.
    pub fn finished(&mut self) -> Option<Start<R>> {
        debug_assert!(self.at_once > 0);
        let Some((number, (key, function, request))) = self.waiting.pop_first() else {
            self.at_once -= 1;
            return None;
        };
        self.jobs.insert(key, Job::Runs { number, function, task: None });
        Some(Start { key, number, function, request })
    }

    fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    fn check(&self) {
        debug_assert!(self.at_once <= self.at_once_max);
        debug_assert!(self.waiting.len() <= self.waiting_max);
        debug_assert!(self.waiting.is_empty() || self.at_once == self.at_once_max);
    }
}
