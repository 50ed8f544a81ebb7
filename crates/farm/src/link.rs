//! The farmer's end of the two channels to a worker, for a hand-written future.
//!
//! Sending and receiving must go on together. A farmer that only waited until an
//! assignment fits would leave the answers unread. The worker would then wait until
//! its answers fit, and neither would go on. So the farmer polls both directions. A
//! waiting assignment lives here and not in the future of a run, which may be dropped.

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use chunkcomm::{BytesReceiver, BytesSender, Peer, SendError, TryRecvError};

use crate::error::Loss;
use crate::name::WorkerName;

type Sending = Pin<Box<dyn Future<Output = (BytesSender, Result<(), SendError>)> + Send>>;

enum Outgoing {
    Ready(BytesSender),
    Waiting(Sending),
    /// Ended, failed, or for a moment while another state is replaced.
    Over,
}

/// Result of sending an assignment.
pub(crate) enum Sent {
    Accepted,
    /// The assignment waits for room; [`Link::poll_stalled`] reports when it is accepted.
    Stalled,
    Failed(SendError),
}

/// The channels to and from a worker that is ready.
pub(crate) struct Link {
    pub(crate) name: WorkerName,
    pub(crate) peer: Peer,
    pub(crate) round_trip_ns: u64,
    outgoing: Outgoing,
    answers: BytesReceiver,
}

impl Link {
    pub(crate) fn new(
        name: WorkerName,
        peer: Peer,
        tasks: BytesSender,
        answers: BytesReceiver,
        round_trip_ns: u64,
    ) -> Link {
        let outgoing = Outgoing::Ready(tasks);
        Link { name, peer, round_trip_ns, outgoing, answers }
    }

    /// Sends an assignment, or begins to. No other may be waiting.
    #[inline]
    pub(crate) fn send(&mut self, assignment: &[u8], context: &mut Context<'_>) -> Sent {
        let Outgoing::Ready(tasks) = &mut self.outgoing else {
            unreachable!("no assignment is given to a worker while one waits");
        };
        match pin!(tasks.send_slice(assignment)).poll(context) {
            Poll::Ready(Ok(())) => return Sent::Accepted,
            Poll::Ready(Err(error)) => return Sent::Failed(error),
            // Dropping the future takes the message back.
            Poll::Pending => {}
        }
        self.wait_to_send(assignment.to_vec());
        match self.poll_stalled(context) {
            Poll::Ready(Ok(())) => Sent::Accepted,
            Poll::Ready(Err(error)) => Sent::Failed(error),
            Poll::Pending => Sent::Stalled,
        }
    }

    fn wait_to_send(&mut self, assignment: Vec<u8>) {
        if let Outgoing::Ready(mut tasks) = std::mem::replace(&mut self.outgoing, Outgoing::Over) {
            self.outgoing = Outgoing::Waiting(Box::pin(async move {
                let sent = tasks.send_slice(&assignment).await;
                (tasks, sent)
            }));
        }
    }

    /// Whether an assignment waits for room.
    pub(crate) fn is_stalled(&self) -> bool {
        matches!(self.outgoing, Outgoing::Waiting(_))
    }

    /// Ready when the assignment that waits is accepted; pending when none waits.
    pub(crate) fn poll_stalled(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), SendError>> {
        let Outgoing::Waiting(sending) = &mut self.outgoing else {
            return Poll::Pending;
        };
        sending.as_mut().poll(context).map(|(tasks, sent)| {
            self.outgoing = Outgoing::Ready(tasks);
            sent
        })
    }

    /// Passes the next answer to `look`, without a copy where it lies whole in the
    /// link's buffer.
    #[inline]
    pub(crate) fn poll_answer<R>(
        &mut self,
        context: &mut Context<'_>,
        mut look: impl FnMut(&[u8]) -> R,
    ) -> Poll<Result<R, Loss>> {
        match self.answers.try_recv_with(&mut look) {
            Err(TryRecvError::Empty) => {}
            Ok(looked) => return Poll::Ready(Ok(looked)),
            Err(TryRecvError::Ended) => return Poll::Ready(Err(Loss::Closed)),
            Err(TryRecvError::Failed(error)) => return Poll::Ready(Err(Loss::Link(error))),
            Err(_) => return Poll::Ready(Err(Loss::Malformed)),
        }
        self.answers.poll_recv(context).map(|received| match received {
            Ok(Some(bytes)) => Ok(look(&bytes)),
            Ok(None) => Err(Loss::Closed),
            Err(error) => Err(Loss::Link(error)),
        })
    }

    /// Ends the channel of the tasks, which makes the worker end.
    pub(crate) fn end_tasks(&mut self) {
        self.outgoing = Outgoing::Over;
    }

    /// Waits until the worker has ended its channel of answers, which it does after the
    /// channel of the tasks has ended. Drops answers that still come: no run wants them.
    pub(crate) async fn answers_end(&mut self) -> Result<(), Loss> {
        while self.answers.recv().await.map_err(Loss::Link)?.is_some() {}
        Ok(())
    }
}
