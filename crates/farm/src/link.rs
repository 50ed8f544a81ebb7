//! The farmer's end of the duplex to a worker, for a hand-written future.
//!
//! Sending and receiving must go on together. A farmer that only waited until an assignment fits
//! would leave the answers unread. The worker would then wait until its answers fit, and neither
//! would go on. So the farmer polls both directions. A waiting assignment lives here and not in the
//! future of a run, which may be dropped.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use chunkcomm::{BytesDuplex, BytesReceiver, BytesSender, Loss, Peer, SendError, TryRecvError};

use crate::error::WorkerEnd;
use crate::name::WorkerName;
use crate::proto::wire;
use crate::settings::times::SILENT;
use crate::shared::Sharing;
use crate::threads::spawn;

/// The duplex to a worker that is ready.
pub(crate) struct Link {
    pub(crate) name: WorkerName,
    pub(crate) round_trip_ns: u64,
    /// Number of threads on which the worker computes, those below it included.
    pub(crate) threads: u32,
    /// Whether the worker is a sub-farmer.
    pub(crate) farms: bool,
    /// Number of times that the worker has been told its place, this one included.
    pub(crate) arrival: u32,
    /// Number of workers that a sub-farmer has lost since it began, as far as it has reported.
    pub(crate) lost_below: u64,
    /// Whether a warning has named the worker for its silence.
    pub(crate) is_warned_of: bool,
    /// Symptom of a broken link, until the cause is known and the worker is lost.
    pub(crate) broken: Option<Loss>,
    /// Cause of the worker's loss, if it is lost.
    pub(crate) lost: Option<Loss>,
    /// Way of tasks to the worker; `None` after their end.
    tasks: Option<BytesSender>,
    /// Messages that wait for room; the last one is the assignment.
    waiting: VecDeque<Bytes>,
    /// Number of the first shared value that the worker does not have.
    known: u64,
    peer: Peer,
    /// Answers of the worker; `None` once no run wants them.
    answers: Option<BytesReceiver>,
}

impl Link {
    pub(crate) fn new(
        name: WorkerName,
        duplex: BytesDuplex,
        round_trip_ns: u64,
        threads: u32,
        farms: bool,
        arrival: u32,
    ) -> Link {
        let (tasks, answers, _) = duplex.split();
        Link {
            name,
            round_trip_ns,
            threads,
            farms,
            arrival,
            lost_below: 0,
            is_warned_of: false,
            broken: None,
            lost: None,
            tasks: Some(tasks),
            waiting: VecDeque::new(),
            known: 0,
            peer: answers.peer().clone(),
            answers: Some(answers),
        }
    }

    pub(crate) fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Sends an assignment, after the shared values that the worker does not have.
    ///
    /// No other assignment may be waiting. Pending means that the assignment waits for room;
    /// [`Link::poll_stalled`] reports when it is accepted.
    #[inline]
    pub(crate) fn send(
        &mut self,
        assignment: &[u8],
        sharing: &Sharing,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), SendError>> {
        let Some(tasks) = self.tasks.as_mut().filter(|_| self.waiting.is_empty()) else {
            unreachable!("no assignment is given to a worker while one waits");
        };
        if self.known == sharing.next() {
            let sent = pin!(tasks.send_slice(assignment)).poll(context);
            if sent.is_ready() {
                return sent;
            }
            // Dropping the future takes the message back.
        } else {
            let (bytes, bytes_max) = (assignment.len() as u64, self.peer().message_bytes_max());
            if bytes > bytes_max {
                return Poll::Ready(Err(SendError::TooLarge { bytes, bytes_max }));
            }
            self.waiting.extend(sharing.news(&mut self.known));
        }
        self.waiting.push_back(Bytes::copy_from_slice(assignment));
        self.poll_stalled(context)
    }

    /// Sends short words that are no assignments, as soon as there is room.
    pub(crate) fn tell(&mut self, messages: &[Bytes]) {
        if self.is_open() {
            self.waiting.extend(messages.iter().cloned());
        }
    }

    /// Whether the worker is there, as far as this end knows.
    pub(crate) fn is_open(&self) -> bool {
        self.tasks.is_some()
    }

    /// Whether the worker cannot get an assignment: one waits for room, or the link is broken.
    pub(crate) fn is_stalled(&self) -> bool {
        !self.waiting.is_empty() || self.broken.is_some()
    }

    /// Ready when all waiting messages are accepted; pending when none waits.
    pub(crate) fn poll_stalled(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), SendError>> {
        let Some(tasks) = self.tasks.as_mut().filter(|_| !self.waiting.is_empty()) else {
            return Poll::Pending;
        };
        while let Some(message) = self.waiting.front() {
            let ready = ready!(tasks.poll_ready(context));
            if let Err(error) = ready.and_then(|()| tasks.start_send(message.clone())) {
                self.waiting.clear();
                return Poll::Ready(Err(error));
            }
            self.waiting.pop_front();
        }
        Poll::Ready(Ok(()))
    }

    /// Passes the next answer to `look`, without a copy if it lies whole in the link's buffer.
    #[inline]
    pub(crate) fn poll_answer<R>(
        &mut self,
        context: &mut Context<'_>,
        mut look: impl FnMut(&[u8]) -> R,
    ) -> Poll<Result<R, Loss>> {
        let Some(answers) = &mut self.answers else {
            return Poll::Ready(Err(WorkerEnd::Closed.into()));
        };
        match answers.try_recv_with(&mut look) {
            Err(TryRecvError::Empty) => {}
            Ok(looked) => return Poll::Ready(Ok(looked)),
            Err(TryRecvError::Ended) => return Poll::Ready(Err(WorkerEnd::Closed.into())),
            Err(TryRecvError::Failed(error)) => return Poll::Ready(Err(error.into())),
            Err(_) => return Poll::Ready(Err(WorkerEnd::Malformed.into())),
        }
        answers.poll_recv(context).map(|received| match received {
            Ok(Some(bytes)) => Ok(look(&bytes)),
            Ok(None) => Err(WorkerEnd::Closed.into()),
            Err(error) => Err(error.into()),
        })
    }

    /// Says that the farm is done instead of sending waiting messages, and ends the tasks. Ready
    /// when the worker has ended its answers, which are dropped; returns how.
    pub(crate) fn poll_finish(&mut self, context: &mut Context<'_>) -> Poll<Loss> {
        if self.is_open() {
            if self.waiting.front().is_none_or(|word| word[..] != wire::THE_END) {
                self.waiting = VecDeque::from([Bytes::from_static(&wire::THE_END)]);
            }
            if self.poll_stalled(context).is_ready() {
                self.end_tasks();
            }
        }
        loop {
            if let Err(loss) = ready!(self.poll_answer(context, |_| ())) {
                return Poll::Ready(loss);
            }
        }
    }

    /// Ends the tasks, which makes the worker end.
    pub(crate) fn end_tasks(&mut self) {
        self.tasks = None;
        self.waiting.clear();
    }

    /// Ends the tasks of a lost worker. Other workers get them, so they are not lost. The error is
    /// taken here, or the node would report it when it closes.
    pub(crate) fn give_up_tasks(&mut self) {
        if let Some(tasks) = self.tasks.take() {
            spawn(Box::pin(async move {
                let _ = tasks.close(SILENT).await;
            }));
        }
        self.waiting.clear();
    }

    /// Drops the answers of a lost worker until it ends them. A worker that waits for room for an
    /// answer does not see that its tasks have ended.
    pub(crate) fn give_up_answers(&mut self) {
        if let Some(mut answers) = self.answers.take() {
            spawn(Box::pin(async move { while let Ok(Some(_)) = answers.recv().await {} }));
        }
    }
}
