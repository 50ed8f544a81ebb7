//! Watch over workers that have tasks and answer nothing: a stopped process ends neither itself nor
//! its link.
//!
//! ```text
//!   silence   1 s  asked, and again each second       any message of the worker ends its silence
//!             2 s  the node's report names it
//!            10 s  a warning names it, once
//!   time-out + grace + 3 s  lost, where tasks have a time-out
//! ```

use std::task::Context;
use std::time::Duration;

use bytes::Bytes;
use chunkcomm::Silence;
use chunkcomm::host::Instant;
use chunkcomm::host::Time;
use chunkcomm::layer::{Wait, warn};
use chunkcomm::proto::liveness::{Alive, Liveness};
use chunkcomm::stats::PeerStats;

use super::{Run, Timer};
use crate::error::{RunError, WorkerEnd, counted};
use crate::link::Link;
use crate::proto::wire;
use crate::settings::TaskTimeout;
use crate::settings::times::{BEYOND, PROBE, SILENT};
use crate::tasks::{Input, Output, Sink, Source};

/// Bytes to and from a worker since the last look that show a long message under way. A question
/// and its acknowledgement have fewer.
const PROGRESS_BYTES: u64 = 1 << 10;

/// Silence of the workers of a run.
pub(super) struct Lookout {
    silence: Silence,
    workers: Vec<Option<Watched>>,
    /// Time of the next look, while tasks have no result.
    due: Option<Instant>,
    wait: Timer,
}

/// Watch over a worker with tasks.
struct Watched {
    liveness: Liveness,
    /// Whether a question to the worker has no answer.
    is_asked: bool,
    /// Bytes to and from the worker at the last look.
    bytes: u64,
    /// Line about the worker in the node's report.
    told: Option<Wait>,
}

impl Lookout {
    pub(super) fn new(limit: Option<TaskTimeout>) -> Lookout {
        let dead = limit.map_or(Duration::MAX, |limit| limit.after().saturating_add(BEYOND));
        let silence = Silence { probe: PROBE, suspect: SILENT, dead };
        Lookout { silence, workers: Vec::new(), due: None, wait: Timer::default() }
    }

    /// Notes that a worker was heard.
    pub(super) fn handle_heard(&mut self, worker: usize, now_ns: u64) {
        if let Some(Some(watched)) = self.workers.get_mut(worker) {
            watched.handle_heard(Time(now_ns));
        }
    }

    /// Looks at a worker with tasks.
    fn look(&mut self, worker: usize, stats: &PeerStats, now: Time) -> (&mut Watched, Alive) {
        if self.workers.len() <= worker {
            self.workers.resize_with(worker + 1, || None);
        }
        let bytes = stats.packet_bytes_sent.wrapping_add(stats.packet_bytes_received);
        let watched = self.workers[worker].get_or_insert_with(|| {
            let mut liveness = Liveness::new(self.silence, now);
            liveness.waits(true, now);
            Watched { liveness, is_asked: false, bytes, told: None }
        });
        if bytes.wrapping_sub(std::mem::replace(&mut watched.bytes, bytes)) >= PROGRESS_BYTES {
            watched.handle_heard(now);
        }
        let alive = watched.liveness.poll(now);
        (watched, alive)
    }

    /// Whether the worker has tasks, and does not answer.
    pub(super) fn is_silent(&self, worker: usize) -> bool {
        self.workers.get(worker).is_some_and(|it| it.as_ref().is_some_and(|it| it.told.is_some()))
    }

    /// Ends the watch over a worker that has no tasks, or is lost.
    fn forget(&mut self, worker: usize) {
        if let Some(watched) = self.workers.get_mut(worker) {
            *watched = None;
        }
    }

    /// Returns the time of the next look.
    fn deadline(&self, now: Time) -> Time {
        let watched = self.workers.iter().flatten();
        let deadlines = watched.map(|watched| watched.liveness.deadline());
        deadlines.min().unwrap_or(now.after(PROBE))
    }
}

impl Watched {
    fn handle_heard(&mut self, now: Time) {
        self.liveness.heard(now);
        (self.is_asked, self.told) = (false, None);
    }
}

/// Whether the worker can be stopped while its farmer is not.
pub(super) fn may_stop(link: &Link) -> bool {
    link.name.pid.is_some() || link.name.member.is_some()
}

impl<O: Output, T: Source<Task: Input>, S: Sink<O>> Run<'_, O, T, S> {
    /// Asks silent workers, and ends those that answer nothing for too long.
    pub(super) fn look_for_silent(&mut self, context: &mut Context<'_>) -> Result<(), RunError> {
        if self.account.ledger.unanswered() == 0 {
            self.lookout.due = None;
            return Ok(());
        }
        loop {
            let due = self.lookout.due.unwrap_or_else(|| {
                let at = self.lookout.deadline(Time(self.account.now_ns));
                self.account.started + Duration::from_nanos(at.0)
            });
            self.lookout.due = Some(due);
            if !self.lookout.wait.has_come(due, context) {
                return Ok(());
            }
            self.account.look_at_clock();
            for worker in 0..self.workers.links.len() {
                self.look_at(worker, context)?;
            }
            self.lookout.due = None;
        }
    }

    fn look_at(&mut self, worker: usize, context: &mut Context<'_>) -> Result<(), RunError> {
        let link = &mut self.workers.links[worker];
        let tasks = self.account.ledger.held(worker);
        if !link.is_open() || !may_stop(link) || tasks == 0 {
            self.lookout.forget(worker);
            return Ok(());
        }
        let now = Time(self.account.now_ns);
        let (watched, alive) = self.lookout.look(worker, &link.peer().stats(), now);
        match alive {
            Alive::Fine => {}
            Alive::Probe => {
                if watched.is_asked && watched.told.is_none() {
                    let tasks = counted(tasks, "task");
                    let what = format!("an answer of {}, which has {tasks}", link.name);
                    watched.told = Some(Wait::begin(&link.peer().node(), what));
                }
                watched.is_asked = true;
                // A message that waits for room counts as a question.
                if !link.is_stalled() {
                    // The answer is of no run, and is dropped.
                    self.tell(worker, Bytes::copy_from_slice(&wire::take_back(0, 0)));
                    self.send_stalled(worker, context)?;
                }
            }
            Alive::Suspect if !std::mem::replace(&mut link.is_warned_of, true) => warn(
                "farmer",
                &format!(
                    "{} has {} and has answered nothing for {} s: it is stopped, or a task keeps it from \
                 answering",
                    link.name,
                    counted(tasks, "task"),
                    SILENT.as_secs()
                ),
            ),
            Alive::Suspect => {}
            Alive::Dead => {
                self.lookout.forget(worker);
                self.bury(worker, &WorkerEnd::Silent(self.lookout.silence.dead).into())?;
                // The next turn gives out the lost worker's tasks.
                context.waker().wake_by_ref();
            }
        }
        Ok(())
    }
}
