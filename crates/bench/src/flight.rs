//! Calls in flight: several tasks, each of which makes one call after another.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::runtime::Runtime;
use tokio::sync::Notify;

use crate::failure::{Doing, Failure};
use crate::harness::machine::now_ns;
use crate::harness::protocol::Order;
use crate::harness::runtime::run_task;
use crate::message::Message;

/// Calls for each one that is timed, if several are in flight: the clock would be a good part of a
/// call.
const CALLS_A_SAMPLE: u64 = 16;

/// Client that makes calls.
pub trait Caller<M>: Clone + Send + 'static {
    /// Sends a message and waits for the answer.
    fn call(&self, message: &M) -> impl Future<Output = Result<M, Failure>> + Send;
}

/// Makes as many calls as ordered, `in_flight` at a time; returns the times of some, in
/// nanoseconds.
///
/// # Errors
/// If a call fails, or an answer is wrong.
pub fn fly<M: Message, C: Caller<M>>(
    runtime: &Runtime,
    caller: &C,
    (bytes, in_flight): (usize, u64),
    order: &Order,
) -> Result<Vec<u64>, Failure> {
    let (caller, order) = (caller.clone(), order.clone());
    run_task(runtime, async move {
        if in_flight == 1 {
            return one_after_another::<M, C>(caller, bytes, order.first, 1, order.messages).await;
        }
        let tasks: Vec<_> = (0..in_flight.min(order.messages))
            .map(|index| {
                let count = (order.messages - index).div_ceil(in_flight);
                let (caller, first) = (caller.clone(), order.first + index);
                tokio::spawn(one_after_another::<M, C>(caller, bytes, first, in_flight, count))
            })
            .collect();
        let mut samples_ns = Vec::new();
        for task in tasks {
            samples_ns.extend(task.await.doing("running a task")??);
        }
        Ok(samples_ns)
    })?
}

async fn one_after_another<M: Message, C: Caller<M>>(
    caller: C,
    bytes: usize,
    first: u64,
    step: u64,
    count: u64,
) -> Result<Vec<u64>, Failure> {
    let every = if step == 1 { 1 } else { CALLS_A_SAMPLE };
    let mut message = M::with_size(bytes);
    let mut samples_ns = Vec::with_capacity((count / every + 1) as usize);
    for index in 0..count {
        let sequence = first + index * step;
        message.stamp(sequence);
        let started_ns = (index % every == 0).then(now_ns);
        let answer = caller.call(&message).await?;
        samples_ns.extend(started_ns.map(|started_ns| now_ns() - started_ns));
        if !answer.verify(sequence + 1, bytes) {
            return Err(Failure::wrong_message(sequence + 1));
        }
    }
    Ok(samples_ns)
}

/// The far end of calls: verifies each message and answers with the next number.
#[derive(Debug, Clone)]
pub struct Answering(Arc<Handled>);

#[derive(Debug)]
struct Handled {
    bytes: usize,
    count: AtomicU64,
    target: AtomicU64,
    reached: Notify,
}

impl Answering {
    /// Makes a far end for messages of `bytes` bytes.
    pub fn new(bytes: usize) -> Self {
        let (count, target) = (AtomicU64::new(0), AtomicU64::new(u64::MAX));
        Self(Arc::new(Handled { bytes, count, target, reached: Notify::new() }))
    }

    /// Returns the answer to a message.
    ///
    /// # Errors
    /// If the message is wrong.
    #[inline]
    pub fn answer<M: Message>(&self, mut message: M) -> Result<M, Failure> {
        let sequence = message.sequence();
        if !message.verify(sequence, self.0.bytes) {
            return Err(Failure::wrong_message(sequence));
        }
        message.stamp(sequence + 1);
        let count = self.0.count.fetch_add(1, Ordering::Relaxed) + 1;
        if count >= self.0.target.load(Ordering::Relaxed) {
            self.0.reached.notify_one();
        }
        Ok(message)
    }

    /// Waits until all ordered messages are answered.
    ///
    /// # Errors
    /// If the runtime is gone.
    pub fn answer_all(&self, runtime: &Runtime, order: &Order) -> Result<(), Failure> {
        let handled = Arc::clone(&self.0);
        let target = order.first + order.messages;
        handled.target.store(target, Ordering::SeqCst);
        run_task(runtime, async move {
            while handled.count.load(Ordering::SeqCst) < target {
                handled.reached.notified().await;
            }
        })
    }
}
