//! The threads that run tasks.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use chunkcomm::host::{self, Instant};
use chunkcomm_cluster::registry::FunctionError;

use super::queue::{Next, Slice, Step};
use super::waits::{Alarm, Begun, Key};
use super::{Seat, Shared, aside, discard, locked};
use crate::context::TaskContext;
use crate::pieces::Piece;

type Polled = Poll<Result<Vec<u8>, FunctionError>>;

/// A compute thread; in a simulation, a task that occupies a core.
pub(super) struct Runner {
    pub(super) shared: Arc<Shared>,
    pub(super) seat: Seat,
}

impl Runner {
    pub(super) fn compute(&self) {
        let _seated = aside::sit_down(&self.shared, &self.seat.work);
        let mut results = Vec::new();
        while let Some(step) = self.wait_for_step() {
            let mut task = match step {
                Step::Run(slice) => {
                    let started = Instant::now();
                    self.note(&slice.tasks);
                    let is_seen = self.shared.run(&slice.tasks, &mut results, &self.seat.work);
                    if !self.report(&slice, &mut results, started, is_seen) {
                        return;
                    }
                    continue;
                }
                Step::Begin(piece, key) => self.begin(&piece, key),
                Step::GoOn(task) => task,
            };
            self.take_up(&task);
            let within = self.shared.runtime.enter();
            let polled = self.poll(&mut task);
            drop(within);
            if !self.settle(task, polled) {
                return;
            }
        }
    }

    fn note(&self, tasks: &Piece) {
        let &Piece { run, first, count, .. } = tasks;
        *locked(&self.seat.slice) = (run, first, count);
    }

    /// Waits for tasks; `None` when the worker ends.
    fn wait_for_step(&self) -> Option<Step> {
        let mut queue = self.shared.queue();
        loop {
            let next = queue.next();
            // The queue stays locked, since the farmer keeps the number that comes last.
            if !self.send(queue.told()) {
                return None;
            }
            let is_full = match next {
                Next::Go(step) => return Some(step),
                Next::End => return None,
                Next::Wait { is_full } => is_full,
            };
            // Results leave when there is nothing else to do. The queue stays locked until the
            // wait, so that no wake-up falls between the two.
            let Some(answers) = self.gathered(is_full) else {
                queue.waiting += 1;
                if queue.back > 0 {
                    queue.note_place();
                    self.shared.places.notify_one();
                }
                queue = self.shared.work.wait(queue).expect("nothing panics with the queue locked");
                queue.waiting -= 1;
                continue;
            };
            drop(queue);
            if !self.send(answers) {
                return None;
            }
            queue = self.shared.queue();
        }
    }

    pub(super) async fn compute_virtually(self) {
        let mut results = Vec::new();
        loop {
            // Created before the queue is looked at, so that no wake-up falls between the two.
            let woken = self.shared.virtual_work.notified();
            let (next, told) = {
                let mut queue = self.shared.queue();
                (queue.next(), queue.told())
            };
            if !self.send(told) {
                return;
            }
            let step = match next {
                Next::Go(step) => step,
                Next::Wait { is_full } => {
                    let answers = self.gathered(is_full);
                    if !self.send(answers.into_iter().flatten()) {
                        return;
                    }
                    self.shared.queue().waiting += 1;
                    woken.await;
                    self.shared.queue().waiting -= 1;
                    continue;
                }
                Next::End => return,
            };
            let goes_on = match step {
                Step::Run(slice) => {
                    let started = Instant::now();
                    self.note(&slice.tasks);
                    let (shared, tasks) = (&self.shared, &slice.tasks);
                    let run = || shared.run(tasks, &mut results, &self.seat.work);
                    let (is_seen, work) = host::working(run);
                    // The time of all of them passes here, as that of the first.
                    self.seat.work.begin(tasks.first, shared.clock());
                    work.done().await;
                    self.seat.work.end();
                    self.report(&slice, &mut results, started, is_seen)
                }
                Step::Begin(piece, key) => self.go_on_virtually(|| self.begin(&piece, key)).await,
                Step::GoOn(task) => self.go_on_virtually(|| task).await,
            };
            if !goes_on {
                return;
            }
        }
    }

    /// Polls a task, and lets the work pass that it declares. A task that waits only for that work
    /// goes on at once: its own waits begin when the work is done.
    async fn go_on_virtually(&self, task: impl FnOnce() -> Begun) -> bool {
        let (mut task, begun) = host::working(task);
        begun.done().await;
        loop {
            let started = Instant::now();
            self.take_up(&task);
            let (polled, work) = host::working(|| self.poll(&mut task));
            work.done().await;
            let has_worked = started.elapsed() > Duration::ZERO;
            if !has_worked || polled.is_ready() || !self.shared.queue().waits.go_on(task.key) {
                return self.settle(task, polled);
            }
        }
    }

    /// Takes all results that must leave before the runner waits; `None` if there are none.
    fn gathered(&self, is_full: bool) -> Option<Vec<Vec<u8>>> {
        let mut answers: Vec<_> = locked(&self.seat.report).take().into_iter().collect();
        // Some of the waiting tasks will soon have a result as well.
        if !is_full {
            answers.append(&mut locked(&self.shared.done).take());
        }
        (!answers.is_empty()).then_some(answers)
    }

    /// Begins a task of an async function, up to its first poll.
    fn begin(&self, piece: &Piece, key: Key) -> Begun {
        let context = TaskContext::begin(&self.shared.common, piece, self.shared.clock());
        if self.shared.limit.is_some() {
            self.shared.queue().waits.note(key, context.clone());
        }
        let started = Instant::now();
        let entry = &self.shared.entries[piece.function as usize];
        let within = (!host::is_virtual()).then(|| self.shared.runtime.enter());
        // Bytes that are not whole are no input: the task fails.
        let input = piece.inputs().next().ok().flatten().unwrap_or_default();
        let call = context.within(|| entry.start(input)).expect("the function is async");
        drop(within);
        let waker = Waker::from(Arc::new(Alarm { shared: Arc::clone(&self.shared), key }));
        Begun { key, context, started, call, waker }
    }

    /// Notes that this runner is at a task.
    fn take_up(&self, task: &Begun) {
        *locked(&self.seat.slice) = (task.context.run(), task.context.index(), 1);
        self.seat.work.begin(task.context.index(), task.context.begun_ns());
    }

    fn poll(&self, task: &mut Begun) -> Polled {
        let Begun { context, call, waker, .. } = task;
        context.within(|| Pin::new(call).poll(&mut Context::from_waker(waker)))
    }

    /// Keeps a task that was polled, or gathers its result. Returns `false` if the worker has
    /// ended, or has given this runner up.
    fn settle(&self, task: Begun, polled: Polled) -> bool {
        self.seat.work.end();
        if !self.put_down() {
            discard([task]);
            return false;
        }
        let mut queue = self.shared.queue();
        let Poll::Ready(result) = polled else {
            let unwanted = if queue.closed { Some(task) } else { queue.waits.put_back(task) };
            drop(queue);
            discard(unwanted);
            return true;
        };
        let is_wanted = queue.waits.end(task.key);
        queue.width.handle_ended(1);
        let left = queue.left();
        drop(queue);
        let (run, index) = (task.context.run(), task.context.index());
        let started = task.started;
        task.context.end_reports();
        discard([task]);
        if !is_wanted {
            return true;
        }
        let now = Instant::now();
        let mut done = locked(&self.shared.done);
        done.add((run, index), &result, now - started, now);
        let answers = if done.is_due(left, now) { done.take() } else { Vec::new() };
        drop(done);
        self.send(answers)
    }

    /// Notes that the tasks of the slice have results, so that they cannot be given up. Returns
    /// `false` if they were given up before.
    fn put_down(&self) -> bool {
        let mut noted = locked(&self.seat.slice);
        noted.2 = 0;
        !self.seat.work.is_abandoned()
    }

    /// Reports the results of a slice; returns `false` if the worker has ended or given this runner
    /// up.
    fn report(
        &self,
        slice: &Slice,
        results: &mut Vec<u8>,
        started: Instant,
        is_seen: bool,
    ) -> bool {
        if !self.put_down() {
            return false;
        }
        let ended = self.shared.measure(&slice.tasks, started, is_seen);
        let mut report = locked(&self.seat.report);
        let before = report.begin(&slice.tasks, ended);
        report.bytes.extend_from_slice(results);
        report.count += slice.tasks.count;
        report.busy += ended - started;
        let answer = if report.is_due(slice, ended) { report.take() } else { None };
        drop(report);
        results.clear();
        self.send(before.into_iter().chain(answer))
    }

    /// Sends answers; returns `false` if the worker has ended.
    fn send(&self, answers: impl IntoIterator<Item = Vec<u8>>) -> bool {
        answers.into_iter().all(|answer| self.shared.answers.send(answer).is_ok())
    }
}
