//! Channels of which one end sends and the other receives, polled by the program's call.

use std::convert::Infallible;
use std::future::poll_fn;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use chunkcomm::host::memory::Slices;
use chunkcomm::{BytesReceiver, BytesSender, Loss};
use chunkcomm_group::Element;

use super::opening::Link;
use super::shared::{Fault, dropped};
use super::way::{Failure, Intake, Messages, Way};
use super::wire;

/// Elements of one round that leave to a peer, packed.
pub(crate) struct Leaving {
    pub(crate) way: Way,
    channel: BytesSender,
    pub(crate) messages: Messages,
    /// Number of tiles that were packed when the peer could take them.
    pub(super) packed: usize,
    slices: Slices,
}

/// Elements of one round that come from a peer.
pub(crate) struct Arriving {
    pub(crate) intake: Intake,
    channel: BytesReceiver,
    slices: Slices,
}

impl Leaving {
    pub(crate) async fn open(way: Way, link: Link) -> Result<Leaving, Failure> {
        match link.open_one_way().await {
            Ok(channel) => {
                let (messages, slices) = (Messages::default(), Slices::default());
                Ok(Leaving { way, channel, messages, packed: 0, slices })
            }
            Err(loss) => Err(way.broken(loss.into(), 0)),
        }
    }

    /// Sends what is left; ready when all of it is accepted.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        self.poll_sent(context).map_err(|loss| self.way.broken(loss.into(), 0))
    }

    fn poll_sent(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Loss>> {
        while !self.messages.0.is_empty() {
            ready!(self.channel.poll_ready(context))?;
            let message = self.messages.0.pop_front().expect("there is one");
            self.channel.start_send(message)?;
        }
        self.channel.poll_flush(context).map_err(Loss::from)
    }

    /// Packs and sends what is left, tile by tile; ready when all of it is accepted.
    pub(super) fn poll_packed<T: Element>(
        &mut self,
        round: u32,
        source: &[T],
        context: &mut Context<'_>,
    ) -> Poll<Result<(), Failure>> {
        while self.packed < self.way.tiles.len() {
            let ready = ready!(self.channel.poll_ready(context)).map_err(Loss::from);
            let mut message = self.messages.1.take();
            self.way.pack((round, self.packed), (source, 0), &mut message);
            let bytes = message.len();
            let sent =
                ready.and_then(|()| Ok(self.channel.start_send(self.messages.1.lend(message))?));
            sent.map_err(|loss| self.way.broken(loss.into(), 0))?;
            self.packed += 1;
            ready!(self.slices.poll_worked(context, bytes));
        }
        self.poll(context)
    }

    /// Tells the peer that nothing more comes, and why.
    pub(super) fn fail(mut self, told: &Fault) {
        // A peer that takes nothing sees the end of the channel.
        let _ = self.channel.try_send(&Bytes::from(wire::failed(0, told)));
    }
}

impl Arriving {
    pub(crate) async fn accept<T>(way: Way, link: Link) -> Result<Arriving, Failure> {
        match link.accept_one_way().await {
            Ok(channel) => Ok(Arriving::new::<T>(way, channel)),
            Err(loss) => Err(way.broken(loss.into(), 0)),
        }
    }

    pub(crate) fn new<T>(way: Way, channel: BytesReceiver) -> Arriving {
        Arriving { intake: Intake::new::<T>(way), channel, slices: Slices::default() }
    }

    /// Takes what comes, as `poll` does; names the peer when it cannot go on.
    pub(crate) fn poll_whole<T: Element>(
        &mut self,
        storage: &mut [T],
        context: &mut Context<'_>,
    ) -> Poll<Result<(), Failure>> {
        self.poll(storage, context).map_err(|fault| self.intake.broken(fault))
    }

    /// Takes what comes; ready when all of it is in the storage.
    pub(crate) fn poll<T: Element>(
        &mut self,
        storage: &mut [T],
        context: &mut Context<'_>,
    ) -> Poll<Result<(), Fault>> {
        while self.intake.missing > 0 {
            let message = ready!(self.channel.poll_recv(context)).map_err(Loss::from)?;
            let message = message.ok_or_else(dropped)?;
            let Some((index, elements)) = self.intake.tile(&message)? else { continue };
            self.intake.place(index, elements, storage);
            ready!(self.slices.poll_worked(context, elements.len()));
        }
        Poll::Ready(Ok(()))
    }
}

/// Polls all; ready when all are, or one has failed.
pub(crate) fn poll_each<I, E>(
    all: impl IntoIterator<Item = I>,
    mut poll: impl FnMut(I) -> Poll<Result<(), E>>,
) -> Poll<Result<(), E>> {
    let mut outcome = Poll::Ready(Ok(()));
    for one in all {
        if poll(one)?.is_pending() {
            outcome = Poll::Pending;
        }
    }
    outcome
}

/// Waits for all of these, at the same time.
pub(super) async fn all<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut futures: Vec<_> = futures.map(|future| (Box::pin(future), None)).collect();
    let over = poll_fn(|context| {
        poll_each(&mut futures, |(future, outcome)| {
            if outcome.is_none() {
                *outcome = Some(ready!(future.as_mut().poll(context)));
            }
            Poll::Ready(Ok::<_, Infallible>(()))
        })
    });
    let Ok(()) = over.await;
    futures.into_iter().filter_map(|(_, outcome)| outcome).collect()
}
