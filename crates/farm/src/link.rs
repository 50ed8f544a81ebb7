//! The farmer's end of the two channels to a worker, for a hand-written future.
//!
//! Sending and receiving must go on together: a farmer that waited until an
//! assignment fits would leave the answers unread, the worker would wait until
//! its answers fit, and neither would go on. So both directions are polled, and
//! what waits lives here rather than in the future of a run, which may be dropped.

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
    /// After an error, and for a moment while one of the others is replaced.
    Over,
}

/// What became of an assignment that was to be sent.
pub(crate) enum Sent {
    Accepted,
    /// It waits for room; [`Link::poll_stalled`] tells when it is accepted.
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

    /// Sends an assignment, or begins to. None may be waiting.
    #[inline]
    pub(crate) fn send(&mut self, assignment: &[u8], context: &mut Context<'_>) -> Sent {
        let Outgoing::Ready(tasks) = &mut self.outgoing else {
            unreachable!("no assignment is given to a worker while one waits");
        };
        match pin!(tasks.send_slice(assignment)).poll(context) {
            Poll::Ready(Ok(())) => return Sent::Accepted,
            Poll::Ready(Err(error)) => return Sent::Failed(error),
            // The future is dropped, which takes the message back.
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

    /// True while an assignment waits for room.
    pub(crate) fn is_stalled(&self) -> bool {
        matches!(self.outgoing, Outgoing::Waiting(_))
    }

    /// Tells when the assignment that waits is accepted.
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

    /// Shows the next answer to `look`, without a copy where it lies in whole in
    /// the link's buffer.
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
            Err(_) => return Poll::Ready(Err(Loss::Nonsense)),
        }
        self.answers.poll_recv(context).map(|received| match received {
            Ok(Some(bytes)) => Ok(look(&bytes)),
            Ok(None) => Err(Loss::Closed),
            Err(error) => Err(Loss::Link(error)),
        })
    }

    /// Ends the channel of the tasks, upon which the worker ends.
    pub(crate) fn end_tasks(&mut self) {
        self.outgoing = Outgoing::Over;
    }

    /// Waits until the worker has ended the channel of its answers, as it does when
    /// that of the tasks has ended. Answers that still come are of nobody's run.
    pub(crate) async fn answers_end(&mut self) -> Result<(), Loss> {
        while self.answers.recv().await.map_err(Loss::Link)?.is_some() {}
        Ok(())
    }
}
