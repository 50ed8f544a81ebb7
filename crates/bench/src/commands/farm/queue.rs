//! `chunkperf farm queue`: memory of a farmer in which many tasks wait.

use chunkcomm_farm::settings::{Grain, Prefetch};
use clap::{Args, ValueEnum};

use crate::commands::Verdict;
use crate::failure::Failure;
use crate::harness::protocol::Transport;
use crate::harness::slices::name_of;
use crate::harness::work::Work;
use crate::options::{Common, values};
use crate::ours::farm::{FarmKind, Queue, bytes_of_queue};
use crate::pair;

/// Iterations of a task that is not answered while the memory is read: hours.
const ENDLESS: u64 = 1 << 50;

/// Options of `chunkperf farm queue`.
#[derive(Debug, Args)]
pub(super) struct QueueArgs {
    #[command(flatten)]
    common: Common,
    /// Tasks that wait
    #[arg(long, value_name = "N", default_value = "1000000", value_parser = values::count)]
    tasks: u64,
    /// Encoded bytes of a task, at least 8
    #[arg(long, value_name = "B", default_value = "16", value_parser = values::message_bytes)]
    task_bytes: usize,
    /// Where the tasks wait
    #[arg(long, value_enum, default_value_t = QueueKind::Held)]
    queue: QueueKind,
    /// Tasks an assignment, of those that are held
    #[arg(long, value_name = "G", default_value = "1", value_parser = grain)]
    grain: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum QueueKind {
    /// Assigned to one worker that does not answer.
    Held,
    /// In a pool, with the default settings.
    Pool,
}

/// Parses the tasks of an assignment.
fn grain(text: &str) -> Result<u32, String> {
    let number = values::count(text)?;
    u32::try_from(number).map_err(|_| format!("allowed are 1 to {}", u32::MAX))
}

/// Runs the command.
///
/// # Errors
/// If the options do not go together, or the measurement fails.
pub(super) fn run(args: &QueueArgs) -> Result<Verdict, Failure> {
    args.check()?;
    let setting = args.common.setting()?;
    let bench = pair::start_many(&setting, 0)?;
    let (kind, queue) = (args.kind()?, args.queue());
    let bytes = bytes_of_queue(&bench.runtime, &kind, args.tasks, queue)?;
    let mut row = args.common.row("farm-queue");
    row.set("queue", name_of(args.queue))
        .set("tasks", args.tasks)
        .set("task_bytes", args.task_bytes)
        .set("grain", (queue == Queue::Held).then_some(args.grain))
        .set("bytes", bytes)
        .set("bytes_per_task", bytes as f64 / args.tasks as f64)
        .print(args.common.json);
    Ok(Verdict::Fine)
}

impl QueueArgs {
    fn check(&self) -> Result<(), Failure> {
        self.common.needs_this_host("farm queue")?;
        let refuse = |why: &str| Err(Failure::Refused(why.to_owned()));
        self.common.needs_session("farm queue")?;
        if self.common.transport == Transport::Memory {
            return refuse(
                "--transport memory: the worker is a process, tcp, tls and unix are allowed",
            );
        }
        if self.tasks.div_ceil(self.grain.into()) > u64::from(u32::MAX) {
            return refuse("--tasks: allowed are at most 4294967295 assignments");
        }
        Ok(())
    }

    fn queue(&self) -> Queue {
        match self.queue {
            QueueKind::Held => Queue::Held,
            QueueKind::Pool => Queue::Pool,
        }
    }

    fn kind(&self) -> Result<FarmKind, Failure> {
        let assignments = u32::try_from(self.tasks.div_ceil(self.grain.into()));
        let (prefetch, grain) = match self.queue {
            // One more than there are: the farmer asks for a further task, and sees the end.
            QueueKind::Held => (
                Prefetch::Fixed(assignments.unwrap_or(u32::MAX).saturating_add(1)),
                Grain::Fixed(self.grain),
            ),
            QueueKind::Pool => (Prefetch::Auto, Grain::Auto),
        };
        let work = Work::Iterations(ENDLESS);
        let kind = FarmKind::of(work, self.common.runtime, self.common.transport)?;
        Ok(FarmKind { task_bytes: self.task_bytes, prefetch, grain, ..kind })
    }
}
