//! The subscriber of a feed.

use super::gathering::{Gathered, Named};
use super::{Silence, WORD_HEAD, WORD_TAIL, Word};
use crate::channel::receiver::Receiver;
use crate::channel::sender::Sender;
use crate::channel::{ChannelOptions, channel};
use crate::driver::clock;
use crate::error::{FeedError, OpenError};
use crate::node::whom::Whom;
use crate::node::{Node, Peer};
use crate::proto::codec::{self, DecodeError};
use crate::watch::Publisher;
use futures_core::Stream;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// Pause before another look for the node that feeds.
const FIND_AGAIN: Duration = Duration::from_millis(100);

/// Receives the messages of a feed, or of several; [`Node::subscribe`] makes it. Dropped, it leaves them.
#[must_use = "a subscriber leaves its feed when it is dropped"]
pub struct Subscription<T> {
    source: Source<T>,
    skipped: u64,
}

enum Source<T> {
    One(Box<Line<T>>),
    Several(Gathered<T>),
}

/// A subscriber of one feed.
pub(super) struct Line<T> {
    pub(super) words: Receiver<Word<T>>,
    /// Ends with the subscription, which the feed hears.
    pub(super) silence: Sender<Silence>,
    /// Messages that were left out before the first one.
    pub(super) skipped: u64,
}

impl<T> fmt::Debug for Subscription<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Subscription");
        if let Some((peer, feed)) = self.origin() {
            debug.field("feed", &feed).field("peer", &peer.name());
        }
        debug.field("skipped", &self.skipped).finish_non_exhaustive()
    }
}

impl<T> Subscription<T> {
    pub(super) fn gathered(several: Gathered<T>) -> Subscription<T> {
        Subscription { source: Source::Several(several), skipped: 0 }
    }

    /// Returns the node and the name of the feed from which the last message came. Of a subscription to one
    /// feed they are known at once.
    #[must_use]
    pub fn origin(&self) -> Option<(&Peer, &str)> {
        match &self.source {
            Source::One(line) => Some((line.words.peer(), line.words.name())),
            Source::Several(several) => several.origin(),
        }
    }

    /// Returns how many messages were left out of those that came so far, by all feeds together. The
    /// number rises in front of the first message behind a gap.
    #[must_use]
    pub fn skipped(&self) -> u64 {
        self.skipped
    }
}

impl<T: DeserializeOwned> Subscription<T> {
    /// Waits for the next message; `None` when the feed has ended and all was taken.
    ///
    /// # Errors
    ///
    /// - [`FeedError::Behind`]: the feed has ended this subscriber.
    /// - [`FeedError::Recv`]: as [`Receiver::recv`]. One message that cannot be decoded is gone; the next
    ///   call goes on.
    ///
    /// With several feeds an error concerns one of them, which [`Self::origin`] names, and the next call
    /// goes on with the others.
    ///
    /// # Cancel safety
    ///
    /// Safe: dropped before it returns, it has taken nothing.
    pub fn recv(&mut self) -> impl Future<Output = Result<Option<T>, FeedError>> {
        Receiving { subscription: self }
    }

    /// Waits for the next word of a message, and those before it.
    #[inline(never)]
    fn poll_recv_slowly(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<Option<T>, FeedError>> {
        let budget = ready!(tokio::task::coop::poll_proceed(context));
        let received = self.poll_recv(context);
        if received.is_ready() {
            budget.made_progress();
        }
        received
    }

    /// As [`Self::recv`], as a `poll` function.
    ///
    /// # Errors
    ///
    /// As [`Self::recv`].
    pub fn poll_recv(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<T>, FeedError>> {
        loop {
            let word = match &mut self.source {
                Source::One(line) => ready!(line.words.poll_recv(context)).map_err(FeedError::Recv),
                Source::Several(several) => ready!(several.poll_word(context)),
            };
            if let Some(received) = self.heard(word) {
                return Poll::Ready(received);
            }
        }
    }

    #[inline]
    fn heard(
        &mut self,
        word: Result<Option<Word<T>>, FeedError>,
    ) -> Option<Result<Option<T>, FeedError>> {
        match word {
            Ok(Some((Some(message), _))) => Some(Ok(Some(message))),
            Ok(None) => Some(Ok(None)),
            Ok(Some((None, Some(count)))) => {
                self.skipped = self.skipped.saturating_add(count);
                None
            }
            Ok(Some((None, None))) => {
                let (peer, feed) = self.origin()?;
                let (feed, peer) = (feed.to_owned(), peer.name().to_owned());
                Some(Err(FeedError::Behind { feed, peer }))
            }
            Err(error) => Some(Err(error)),
        }
    }
}

/// The future of [`Subscription::recv`]: written by hand, so that a message that is there costs no more than its
/// decoding.
struct Receiving<'a, T> {
    subscription: &'a mut Subscription<T>,
}

impl<T: DeserializeOwned> Future for Receiving<'_, T> {
    type Output = Result<Option<T>, FeedError>;

    #[inline(always)]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let subscription = &mut *self.subscription;
        if let Source::One(line) = &mut subscription.source
            && let Some(word) = line.words.take_at_hand(decode_word)
        {
            if let Ok((Some(message), _)) = word {
                return Poll::Ready(Ok(Some(message)));
            }
            if let Some(received) = subscription.heard(word.map(Some).map_err(FeedError::Recv)) {
                return Poll::Ready(received);
            }
        }
        subscription.poll_recv_slowly(context)
    }
}

/// Decodes a word: of a message the message alone.
#[inline(always)]
fn decode_word<T: DeserializeOwned>(bytes: &[u8]) -> Result<Word<T>, DecodeError> {
    if let [WORD_HEAD, message @ .., WORD_TAIL] = bytes
        && let Ok(message) = codec::decode(message)
    {
        return Ok((Some(message), None));
    }
    codec::decode(bytes)
}

impl<T: DeserializeOwned> Stream for Subscription<T> {
    type Item = Result<T, FeedError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Poll::Ready(ready!(self.poll_recv(context)).transpose())
    }
}

impl Node {
    /// Subscribes to the [feed](Node::feed) of a node, by its address or its peer. Waits until the feed has
    /// taken the subscriber: it gets every message from then on, and before them those that the feed
    /// [keeps](crate::feed::FeedOptions::keep).
    ///
    /// With a `*` at its end the name stands for all feeds of the node whose names begin so, as they come
    /// and go. Then the call does not wait, and the subscription lasts until it is dropped. A feed that
    /// is lost is subscribed to again, once it is there.
    ///
    /// Of the [options](crate::channel()), [`within`](ChannelOptions::within) limits this wait, and a schema
    /// stands for the type. The lane and the backlog are the feed's.
    ///
    /// # Errors
    ///
    /// - [`FeedError::Open`]: the node cannot be reached, the name is empty or longer than 255 bytes, or
    ///   messages of the type cannot be received.
    /// - [`FeedError::Late`]: with `within`, no feed has taken the subscriber in time.
    /// - [`FeedError::Recv`]: the feed has another type, or is lost.
    /// - [`FeedError::Behind`]: what the feed keeps and sends is more than its backlog, and it ends who is behind.
    ///
    /// # Cancel safety
    ///
    /// Safe: dropped before it returns, nothing is subscribed to.
    pub async fn subscribe<T>(
        &self,
        feed: impl Into<ChannelOptions>,
        whom: impl Into<Publisher>,
    ) -> Result<Subscription<T>, FeedError>
    where
        T: Serialize + DeserializeOwned + Send + 'static,
    {
        let options = feed.into();
        options.check_name().map_err(FeedError::Open)?;
        if options.name.ends_with('*') {
            let named = Named::new(self, whom.into());
            return Subscription::gathering(self, options, named);
        }
        let Publisher(whom) = whom.into();
        let (within, name) = (options.within, options.name.clone());
        let subscribing = async { self.line(&self.feeder(&whom).await?, options).await };
        let line = match within {
            None => subscribing.await?,
            Some(limit) => clock::within(self.runtime(), limit, subscribing)
                .await
                .unwrap_or(Err(FeedError::Late { feed: name, waited: limit }))?,
        };
        let skipped = line.skipped;
        Ok(Subscription { source: Source::One(Box::new(line)), skipped })
    }

    /// Subscribes to the feed of this peer; waits until the feed has taken the subscriber.
    pub(super) async fn line<T>(
        &self,
        peer: &Peer,
        options: ChannelOptions,
    ) -> Result<Line<T>, FeedError>
    where
        T: Serialize + DeserializeOwned,
    {
        let ChannelOptions { name, schema, .. } = options;
        let options = ChannelOptions { schema, ..channel(name) };
        let opened = self.open_duplex::<Silence, Word<T>>(peer, options).await;
        let (silence, mut words) = opened.map_err(FeedError::Open)?.split();
        // By the first word the feed has taken the subscriber. A feed that has ended says none.
        let skipped = match words.recv().await.map_err(FeedError::Recv)? {
            Some((None, None)) => {
                let (feed, peer) = (words.name().to_owned(), peer.name().to_owned());
                return Err(FeedError::Behind { feed, peer });
            }
            Some((_, skipped)) => skipped.unwrap_or(0),
            None => 0,
        };
        Ok(Line { words, silence, skipped })
    }

    /// Returns the node that feeds, once it is there.
    async fn feeder(&self, whom: &Whom) -> Result<Peer, FeedError> {
        loop {
            if self.is_closed() {
                return Err(FeedError::Closed);
            }
            if let Some(address) = &whom.address {
                let met = self.connect(address).await;
                met.map_err(|error| FeedError::Open(OpenError::Connect(error)))?;
            }
            if let Some(peer) = whom.find(self).await {
                return Ok(peer);
            }
            clock::pause(FIND_AGAIN).await;
        }
    }
}
