//! Memory of a farmer in which many tasks wait.

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use chunkcomm_farm::RunError;
use tokio::runtime::Runtime;

use super::{FarmKind, Functions, open};
use crate::failure::{Doing, Failure};
use crate::harness::machine;
use crate::message::Message;
use crate::with_message_of;

/// The place where the tasks wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Queue {
    /// Assigned and unanswered: the farmer keeps their encoded inputs for another worker.
    Held,
    /// Not assigned: a pool has their values.
    Pool,
}

/// Returns the bytes that the farmer's resident memory grows by while `tasks` tasks wait.
///
/// Tasks that are held need workers which may hold that number, and do not answer: a prefetch times
/// a grain of as many, and endless work.
///
/// # Errors
/// If the workers do not start, or the system does not report the memory.
pub fn bytes_of_queue(
    runtime: &Runtime,
    kind: &FarmKind,
    tasks: u64,
    queue: Queue,
) -> Result<u64, Failure> {
    with_message_of!(kind.task_bytes, M => grown::<M>(runtime, kind, tasks, queue))
}

fn grown<M: Message>(
    runtime: &Runtime,
    kind: &FarmKind,
    tasks: u64,
    queue: Queue,
) -> Result<u64, Failure> {
    let functions = Functions::new(kind.work);
    let mut farm = open(runtime, kind, &functions, None)?;
    let before = resident()?;
    let given = Cell::new(0);
    let task = |sequence| {
        let mut task = M::with_size(kind.task_bytes);
        task.stamp(sequence);
        given.set(sequence + 1);
        task
    };
    let all = (0..tasks).map(task);
    let after = runtime.block_on(async {
        match queue {
            Queue::Held => {
                let function = functions.of::<M, u64>();
                let results = farm.stream(&function, all).doing("filling the queue")?;
                let run = results.as_completed().for_each(|_, _| {});
                resident_when(run, || given.get() == tasks).await
            }
            Queue::Pool => {
                let function = functions.of::<M, (u64, Vec<M>)>();
                let run = farm.run_pool(&function, all, |_| {});
                resident_when(run, || given.get() == tasks).await
            }
        }
    })?;
    // The workers would compute for ever: the farm kills them.
    drop(farm);
    Ok(after.saturating_sub(before))
}

/// Drives a run until all tasks wait; returns the resident bytes then.
async fn resident_when<R>(
    run: impl Future<Output = Result<R, RunError>>,
    all_wait: impl Fn() -> bool,
) -> Result<u64, Failure> {
    let mut run = pin!(run);
    poll_fn(|context| match run.as_mut().poll(context) {
        Poll::Ready(Ok(_)) => {
            Poll::Ready(Err(Failure::broken("filling the queue", "the tasks were answered")))
        }
        Poll::Ready(Err(error)) => Poll::Ready(Err(error).doing("filling the queue")),
        Poll::Pending if all_wait() => Poll::Ready(resident()),
        Poll::Pending => Poll::Pending,
    })
    .await
}

fn resident() -> Result<u64, Failure> {
    let unknown = || Failure::broken("reading the memory", "the system does not report it");
    machine::resident_bytes().ok_or_else(unknown)
}
