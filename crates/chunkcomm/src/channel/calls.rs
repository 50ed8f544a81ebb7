//! The calls that all senders, all receivers or all duplexes have in common: here once, since
//! their promises are the same.

/// The calls of a sender whose field `tx` is its [`Tx`](super::tx::Tx).
macro_rules! calls_of_every_sender {
    () => {
        /// Returns the peer at the other end.
        #[must_use]
        pub fn peer(&self) -> &Peer {
            &self.tx.peer
        }

        /// Returns the channel's name.
        #[must_use]
        pub fn name(&self) -> &str {
            self.tx.name()
        }

        /// Returns the channel's counters.
        #[must_use]
        pub fn stats(&self) -> ChannelStats {
            self.tx.stats()
        }

        /// Returns how many encoded bytes of small messages are accepted now without waiting.
        pub fn capacity(&mut self) -> usize {
            self.tx.with(TxEnd::capacity)
        }

        /// Hands everything accepted so far to the transport, whatever the policy.
        ///
        /// # Errors
        ///
        /// The channel ended before; see [`SendError`].
        ///
        /// # Cancel safety
        ///
        /// When the future is dropped, what was asked still happens.
        pub async fn flush(&mut self) -> Result<(), SendError> {
            self.tx.flush().await
        }

        /// Waits until everything accepted so far is in the peer's inbox. The receiver may not
        /// have taken it yet.
        ///
        /// # Errors
        ///
        /// The channel ended before; [`SendError::Lost`] has the account.
        ///
        /// # Cancel safety
        ///
        /// When the future is dropped, what was asked still happens.
        pub async fn sync(&mut self) -> Result<(), SendError> {
            self.tx.sync().await
        }

        /// Waits until the receiver has settled everything accepted so far.
        ///
        /// The receiver settles by [`Receiver::settle`](crate::Receiver::settle) or by taking the
        /// next message. `sync` waits for less: a message that arrived and was not settled may be
        /// lost with the receiver.
        ///
        /// # Errors
        ///
        /// [`SendError::NotSettled`] on a channel that was opened without settling; else as
        /// `sync`. A redelivering sender waits for its peer's return.
        ///
        /// # Cancel safety
        ///
        /// Safe: accepted messages are delivered all the same.
        pub async fn sync_settled(&mut self) -> Result<(), SendError> {
            self.tx.sync_settled().await
        }

        /// Waits until everything accepted so far is in the log of a redelivering sender
        /// ([`Redelivery::log`](crate::Redelivery::log)), as permanently as its
        /// [`Fsync`](crate::Fsync) promises. If the process ends afterwards, none of it is lost.
        ///
        /// # Errors
        ///
        /// [`SendError::NotLogged`] of a sender without a log, [`SendError::Log`] when the log
        /// cannot be written; else as `sync`.
        ///
        /// # Cancel safety
        ///
        /// Safe: it only waits.
        pub async fn sync_stored(&mut self) -> Result<(), SendError> {
            self.tx.sync_stored().await
        }

        /// Ends the channel and waits until everything accepted is acknowledged. A redelivering
        /// sender waits until everything is settled. With clones alive only this sender ends.
        ///
        /// # Errors
        ///
        /// Some message was not acknowledged within `deadline`, or the channel ended
        /// before; the error has the account.
        ///
        /// # Cancel safety
        ///
        /// When the future is dropped, the channel ends as if the sender had been dropped.
        pub async fn close(self, deadline: Duration) -> Result<(), CloseError> {
            self.tx.close(deadline).await
        }

        /// Returns for how long the channel's open has waited until the peer has room for one more
        /// channel; `None` where it does not wait. Nothing of the channel leaves before.
        ///
        /// A link has room for 512 channels of each side by default; one is free when another has ended.
        /// After 5 s the node warns of the wait, which [`Node::explain`](crate::Node::explain) shows. An open
        /// that this call does not count yet is on its way to the link's driver.
        #[must_use]
        pub fn waits_to_open(&self) -> Option<std::time::Duration> {
            self.tx.waits_to_open()
        }

        /// Waits until nothing more can be sent, and returns the reason.
        ///
        /// # Cancel safety
        ///
        /// Safe.
        pub async fn closed(&mut self) -> SendError {
            poll_fn(|context| self.tx.poll_failed(context)).await
        }

        /// As [`Self::closed`], as a `poll` function.
        pub fn poll_closed(&mut self, context: &mut Context<'_>) -> Poll<SendError> {
            self.tx.poll_failed(context)
        }

        /// Waits until the next [`Self::start_send`] accepts a message of any size.
        ///
        /// # Errors
        ///
        /// The channel ended before; see [`SendError`].
        pub fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), SendError>> {
            self.tx.poll_ready(context)
        }

        /// Waits until everything accepted so far is handed to the transport.
        ///
        /// # Errors
        ///
        /// As [`Self::flush`].
        pub fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<Result<(), SendError>> {
            self.tx.poll_flush(context)
        }

        /// Flushes as [`Self::poll_flush`] and then ends the channel, unless clones are alive.
        /// Unlike [`Self::close`] it does not wait for acknowledgements.
        ///
        /// # Errors
        ///
        /// As [`Self::flush`].
        pub fn poll_close(&mut self, context: &mut Context<'_>) -> Poll<Result<(), SendError>> {
            self.tx.poll_close(context)
        }
    };
}

/// The calls of a `Sink` by the poll functions of `$end`, except `start_send`.
macro_rules! calls_of_every_sink {
    ($end:ty) => {
        type Error = SendError;

        fn poll_ready(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
        ) -> Poll<Result<(), SendError>> {
            <$end>::poll_ready(&mut self, context)
        }

        fn poll_flush(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
        ) -> Poll<Result<(), SendError>> {
            <$end>::poll_flush(&mut self, context)
        }

        fn poll_close(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
        ) -> Poll<Result<(), SendError>> {
            <$end>::poll_close(&mut self, context)
        }
    };
}

/// The calls of a receiver whose field `end` is its [`RxEnd`](crate::driver::taking::RxEnd), and whose
/// field `peer` is its peer.
macro_rules! calls_of_every_receiver {
    () => {
        /// Returns the peer at the other end.
        #[must_use]
        pub fn peer(&self) -> &Peer {
            &self.peer
        }

        /// Returns the channel's name.
        #[must_use]
        pub fn name(&self) -> &str {
            &self.end.shared.name
        }

        /// Returns the counters of what was taken from the channel so far.
        #[must_use]
        pub fn stats(&self) -> ReceivingStats {
            self.end.stats()
        }

        /// Tells the sender that nothing more is wanted.
        ///
        /// Messages that have already left the sender still come: [`Self::recv`] goes on to the
        /// channel's end. The end follows within a round trip, or after the next connection if there
        /// is none now.
        ///
        /// The sender gets the same error as from a dropped receiver:
        /// [`SendError::Terminated`](crate::SendError::Terminated). Messages that it had accepted and
        /// not yet written are given up, also the rest of a large message that is on its way.
        ///
        /// A close differs from a drop in the account. When `recv` has returned `None` after the
        /// close, the messages acknowledged to the sender are exactly those that were taken here. A
        /// dropped receiver throws away messages that were acknowledged and not taken.
        ///
        /// Closing twice, or after the channel's end, changes nothing.
        pub fn close(&mut self) {
            self.end.stop();
        }

        /// Settles every message taken so far: the sender need not keep them any more.
        ///
        /// The next packet informs the sender. On a channel without settling nothing happens.
        ///
        /// Without this call a message is settled when the receiver is asked for the next message
        /// or the channel's end; see [`Self::settle_by_hand`].
        pub fn settle(&mut self) {
            self.end.settle();
        }

        /// Lets only [`Self::settle`] settle messages from now on.
        ///
        /// For programs that store a message after they have taken the next one. Call it before
        /// the first message is taken.
        pub fn settle_by_hand(&mut self) {
            self.end.settle_by_hand();
        }

        /// Returns the stream and the number of the message taken last, and whether it may have
        /// been delivered before. `None` before the first message, and on a channel without
        /// settling.
        #[must_use]
        pub fn delivery(&self) -> Option<Delivery> {
            self.end.delivery()
        }
    };
}

/// The calls of every duplex, whose halves are its fields `sender` and `receiver`.
macro_rules! calls_of_every_duplex {
    ($sender:ty) => {
        /// Returns the peer at the other end.
        #[must_use]
        pub fn peer(&self) -> &Peer {
            self.sender.peer()
        }

        /// Returns the name of the duplex.
        #[must_use]
        pub fn name(&self) -> &str {
            self.sender.name()
        }

        /// Returns the counters of what is sent from here, and of what was taken here.
        #[must_use]
        pub fn stats(&self) -> (ChannelStats, ReceivingStats) {
            (self.sender.stats(), self.receiver.stats())
        }

        /// Returns the sending half, for its other calls.
        pub fn sender(&mut self) -> &mut $sender {
            &mut self.sender
        }

        /// Hands everything accepted so far to the transport, whatever the policy.
        ///
        /// # Errors
        ///
        /// Our direction ended before; see [`SendError`].
        ///
        /// # Cancel safety
        ///
        /// When the future is dropped, what was asked still happens.
        pub async fn flush(&mut self) -> Result<(), SendError> {
            self.sender.flush().await
        }

        /// Waits until everything accepted so far is in the peer's inbox. The peer may not have
        /// taken it yet.
        ///
        /// # Errors
        ///
        /// Our direction ended before; [`SendError::Lost`] has the account.
        ///
        /// # Cancel safety
        ///
        /// When the future is dropped, what was asked still happens.
        pub async fn sync(&mut self) -> Result<(), SendError> {
            self.sender.sync().await
        }

        /// Waits until the next [`Self::start_send`] accepts a message of any size.
        ///
        /// # Errors
        ///
        /// As [`Self::flush`].
        pub fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), SendError>> {
            self.sender.poll_ready(context)
        }

        /// Waits until everything accepted so far is handed to the transport.
        ///
        /// # Errors
        ///
        /// As [`Self::flush`].
        pub fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<Result<(), SendError>> {
            self.sender.poll_flush(context)
        }

        /// Flushes as [`Self::poll_flush`] and then ends the direction to the peer; the other
        /// goes on. Unlike [`Self::close`] it does not wait for acknowledgements.
        ///
        /// # Errors
        ///
        /// As [`Self::flush`].
        pub fn poll_close(&mut self, context: &mut Context<'_>) -> Poll<Result<(), SendError>> {
            self.sender.poll_close(context)
        }

        /// Ends both directions, and waits until everything accepted here is acknowledged.
        ///
        /// The peer learns at once that nothing more is wanted from it: what it sent and was not
        /// taken here is thrown away. To take the rest, split the duplex, close the sender, and
        /// receive until the end.
        ///
        /// # Errors
        ///
        /// As [`Sender::close`](crate::Sender::close).
        ///
        /// # Cancel safety
        ///
        /// When the future is dropped, both directions end as if the duplex had been dropped.
        pub async fn close(self, deadline: Duration) -> Result<(), CloseError> {
            // First: a peer that waits in `send` goes on to receive.
            drop(self.receiver);
            self.sender.close(deadline).await
        }
    };
}

pub(super) use {
    calls_of_every_duplex, calls_of_every_receiver, calls_of_every_sender, calls_of_every_sink,
};
