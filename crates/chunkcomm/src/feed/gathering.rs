//! A subscription to several feeds, as they come and go.
//!
//! ```text
//!   Sources ──▶ task: which feeds there are ──▶ a task each: reach, subscribe ──▶ Subscription
//!                                                    ▲                               │
//!                                                    └── its feed has ended ◀────────┘
//! ```
//!
//! A feed that has ended its subscriber, which was behind, is subscribed to again once the user has heard so. A
//! stopped reader holds one line of such a feed.

use super::names::NAMES;
use super::receiving::{Line, Subscription};
use super::{Silence, Word};
use crate::channel::ChannelOptions;
use crate::channel::receiver::Receiver;
use crate::channel::select_all::SelectAll;
use crate::channel::sender::Sender;
use crate::driver::{clock, tasks};
use crate::error::{FeedError, OpenError, RecvError, RefusalReason};
use crate::node::fingerprint::Fingerprint;
use crate::node::{Node, Peer};
use crate::proto::backoff::Backoff;
use crate::proto::sorted::SortedMap;
use crate::watch::{Publisher, WatchReceiver};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::sync::{mpsc, oneshot, watch};

/// The way to a node that feeds, for [`Sources`]; `None` when it cannot be reached now.
pub type Reach<Id> = Arc<dyn Fn(Id) -> Reaching + Send + Sync>;

/// The future of a [`Reach`].
pub type Reaching = Pin<Box<dyn Future<Output = Option<Peer>> + Send>>;

/// Knows which feeds there are, for [`Subscription::gathering`].
pub trait Sources: Send + 'static {
    /// Identifies a node that feeds.
    type Id: Ord + Clone + Send + Sync + 'static;

    /// Waits until other feeds are there than at the last call; returns all of them with their names. `None`
    /// when there will be no others. Dropped before it returns, it has taken nothing.
    fn next(&mut self) -> impl Future<Output = Option<Vec<(Self::Id, String)>>> + Send;

    /// Returns the way to the nodes.
    fn reach(&self) -> Reach<Self::Id>;
}

/// The feeds of one node.
pub(super) struct Named {
    node: Node,
    whom: Publisher,
    names: Option<WatchReceiver<Vec<String>>>,
}

impl Named {
    pub(super) fn new(node: &Node, whom: Publisher) -> Named {
        Named { node: node.clone(), whom, names: None }
    }
}

impl Sources for Named {
    type Id = ();

    async fn next(&mut self) -> Option<Vec<((), String)>> {
        if self.names.is_none() {
            let names = self.node.watch::<Vec<String>>(NAMES, self.whom.clone()).await;
            self.names = Some(names.ok()?);
        }
        let names = self.names.as_mut()?;
        if names.changed().await.is_err() {
            // The last feed has ended; others may follow.
            self.names = None;
            return (!self.node.is_closed()).then(Vec::new);
        }
        let names = names.borrow_and_update();
        Some(names.iter().map(|name| ((), name.clone())).collect())
    }

    fn reach(&self) -> Reach<()> {
        let (node, Publisher(whom)) = (self.node.clone(), self.whom.clone());
        Arc::new(move |()| {
            let (node, whom) = (node.clone(), whom.clone());
            Box::pin(async move { whom.find(&node).await })
        })
    }
}

/// The lines to several feeds.
pub(super) struct Gathered<T> {
    lines: SelectAll<Receiver<Word<T>>>,
    /// Of each line that may be open.
    origins: Vec<Option<Origin>>,
    last: Option<Arc<(Peer, String)>>,
    /// Lines that are new; none will come once it has ended.
    comes: mpsc::UnboundedReceiver<Result<Coming<T>, FeedError>>,
    is_last: bool,
}

/// A line that is new.
struct Coming<T> {
    words: Receiver<Word<T>>,
    heard: oneshot::Sender<()>,
    /// Messages that were left out before the first one.
    skipped: u64,
}

/// The feed of a line.
struct Origin {
    feed: Arc<(Peer, String)>,
    /// Dropped when the user hears that the line was behind.
    heard: Option<oneshot::Sender<()>>,
}

impl<T> Gathered<T> {
    pub(super) fn origin(&self) -> Option<(&Peer, &str)> {
        self.last.as_ref().map(|last| (&last.0, &*last.1))
    }
}

impl<T: DeserializeOwned> Gathered<T> {
    pub(super) fn poll_word(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<Option<Word<T>>, FeedError>> {
        while !self.is_last
            && let Poll::Ready(new) = self.comes.poll_recv(context)
        {
            match new {
                Some(Ok(coming)) => {
                    let skipped = coming.skipped;
                    self.add(coming);
                    if skipped > 0 {
                        return Poll::Ready(Ok(Some((None, Some(skipped)))));
                    }
                }
                Some(Err(error)) => return Poll::Ready(Err(error)),
                None => self.is_last = true,
            }
        }
        match self.lines.poll_recv(context) {
            Poll::Ready(Ok(Some((index, word)))) => {
                self.note(index);
                if let (None, None) = word
                    && let Some(origin) = &mut self.origins[index]
                {
                    origin.heard = None;
                }
                Poll::Ready(Ok(Some(word)))
            }
            Poll::Ready(Ok(None)) if self.is_last => Poll::Ready(Ok(None)),
            Poll::Ready(Ok(None)) | Poll::Pending => Poll::Pending,
            Poll::Ready(Err((index, error))) => {
                self.note(index);
                Poll::Ready(Err(FeedError::Recv(error)))
            }
        }
    }

    fn add(&mut self, Coming { words, heard, .. }: Coming<T>) {
        for (index, origin) in self.origins.iter_mut().enumerate() {
            if !self.lines.is_open(index) {
                *origin = None;
            }
        }
        let feed = Arc::new((words.peer().clone(), words.name().to_owned()));
        let index = self.lines.put(words);
        if index == self.origins.len() {
            self.origins.push(None);
        }
        self.origins[index] = Some(Origin { feed, heard: Some(heard) });
    }

    fn note(&mut self, index: usize) {
        let feed = self.origins[index].as_ref().map(|it| &it.feed);
        if let (Some(feed), Some(last)) = (feed, &self.last)
            && Arc::ptr_eq(feed, last)
        {
            return;
        }
        self.last = feed.cloned();
    }
}

impl<T> Subscription<T>
where
    T: Serialize + DeserializeOwned + Send + 'static,
{
    /// Subscribes to all feeds of `sources` whose names fit, as they come and go. A name with a `*` at its
    /// end fits those that begin so. The subscription ends when there will be no other feeds, and all have
    /// ended.
    ///
    /// # Errors
    ///
    /// [`FeedError::Open`]: the name is empty or longer than 255 bytes, or messages of the type cannot be
    /// received.
    pub fn gathering<S: Sources>(
        node: &Node,
        feed: impl Into<ChannelOptions>,
        sources: S,
    ) -> Result<Subscription<T>, FeedError> {
        let options = feed.into();
        options.check_name().map_err(FeedError::Open)?;
        Fingerprint::of::<Word<T>>(options.schema_name())
            .map_err(|refused| FeedError::Open(OpenError::Type(refused)))?;
        let (lines, comes) = mpsc::unbounded_channel();
        let gathers = Gathers { node: node.clone(), options, lines };
        tasks::spawn_on(node.runtime(), gathers.run(sources));
        let (origins, last) = (Vec::new(), None);
        let lines = SelectAll::new();
        Ok(Subscription::gathered(Gathered { lines, origins, last, comes, is_last: false }))
    }
}

/// Subscribes to feeds.
struct Gathers<T> {
    node: Node,
    options: ChannelOptions,
    lines: mpsc::UnboundedSender<Result<Coming<T>, FeedError>>,
}

/// State of a feed that is subscribed to.
enum Followed {
    /// By a task, which learns whether the feed is still there.
    By(watch::Sender<bool>),
    /// It cannot be, until it is gone and comes again.
    Never,
}

impl<T> Clone for Gathers<T> {
    fn clone(&self) -> Gathers<T> {
        let Gathers { node, options, lines } = self;
        Gathers { node: node.clone(), options: options.clone(), lines: lines.clone() }
    }
}

impl<T> Gathers<T>
where
    T: Serialize + DeserializeOwned + Send + 'static,
{
    /// Whether a name is one of those that are subscribed to.
    fn fits(&self, name: &str) -> bool {
        match self.options.name.strip_suffix('*') {
            Some(begin) => name.starts_with(begin),
            None => name == self.options.name,
        }
    }

    async fn run<S: Sources>(self, mut sources: S) {
        let reach = sources.reach();
        let mut followed: SortedMap<(S::Id, String), Followed> = SortedMap::default();
        let mut there = Vec::new();
        let (over, mut overs) = mpsc::unbounded_channel();
        loop {
            tokio::select! {
                biased;
                () = self.lines.closed() => return,
                Some((key, is_final)) = overs.recv() => {
                    if is_final {
                        followed.insert(key, Followed::Never);
                    } else {
                        followed.remove(&key);
                    }
                }
                now = sources.next() => {
                    let Some(now) = now else { return };
                    there = now;
                    there.retain(|(_, name)| self.fits(name));
                }
            }
            if self.node.is_closed() {
                return;
            }
            followed.retain(|key, followed| {
                let is_there = there.contains(key);
                match followed {
                    Followed::By(tell) => {
                        tell.send_if_modified(|it| std::mem::replace(it, is_there) != is_there);
                        true
                    }
                    Followed::Never => is_there,
                }
            });
            for key in &there {
                if followed.contains_key(key) {
                    continue;
                }
                let (tell, mut is_there) = watch::channel(true);
                let (gathers, reach, over) = (self.clone(), Arc::clone(&reach), over.clone());
                let its = key.clone();
                tasks::spawn_on(self.node.runtime(), async move {
                    let is_final = gathers.follow(reach, &its, &mut is_there).await;
                    let _ = over.send((its, is_final));
                });
                followed.insert(key.clone(), Followed::By(tell));
            }
        }
    }

    /// Subscribes to a feed whenever it can, until the feed is gone; returns whether it never can.
    async fn follow<Id: Clone>(
        self,
        reach: Reach<Id>,
        (id, name): &(Id, String),
        is_there: &mut watch::Receiver<bool>,
    ) -> bool {
        let seed = self.node.incarnation() as u64;
        let mut backoff = Backoff::new(seed);
        while !self.node.is_closed() {
            let subscribing = async {
                let peer = reach(id.clone()).await?;
                let options = ChannelOptions { name: name.clone(), ..self.options.clone() };
                Some(self.node.line(&peer, options).await)
            };
            let line = tokio::select! {
                biased;
                () = self.lines.closed() => return false,
                _ = is_there.wait_for(|is_there| !is_there) => return false,
                line = subscribing => line,
            };
            match line {
                Some(Ok(Line { words, silence, skipped })) => {
                    backoff = Backoff::new(seed);
                    let (heard, hears) = oneshot::channel();
                    if self.lines.send(Ok(Coming { words, heard, skipped })).is_err() {
                        return false;
                    }
                    self.until_ended(silence, hears).await;
                }
                Some(Err(error)) if is_final(&error) => {
                    let _ = self.lines.send(Err(error));
                    return true;
                }
                _ => {}
            }
            tokio::select! {
                biased;
                () = self.lines.closed() => return false,
                _ = is_there.wait_for(|is_there| !is_there) => return false,
                () = clock::pause(backoff.wait()) => {}
            }
        }
        false
    }

    /// Waits until the feed has ended, the user has heard that this subscriber was behind, or the subscription is
    /// dropped.
    async fn until_ended(&self, mut silence: Sender<Silence>, heard: oneshot::Receiver<()>) {
        tokio::select! {
            biased;
            () = self.lines.closed() => {}
            _ = heard => {}
            _ = silence.closed() => {}
        }
    }
}

/// Whether another attempt would fail as well.
fn is_final(error: &FeedError) -> bool {
    match error {
        FeedError::Recv(RecvError::Refused(refused)) => {
            !matches!(refused.reason, RefusalReason::NotAccepted)
        }
        FeedError::Open(OpenError::Type(_) | OpenError::Name { .. }) => true,
        _ => false,
    }
}
