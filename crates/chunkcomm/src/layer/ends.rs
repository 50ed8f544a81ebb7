//! Links and the ends of channels, below their types.

use super::{Fingerprint, Link, Opened, RawReceiver, RawSender, Staged};
use crate::Address;
use crate::channel::bytes_sender::BytesSender;
use crate::channel::receiver::Receiver;
use crate::channel::sender::Sender;
use crate::channel::{ChannelOptions, channel};
use crate::driver::mail::{Command, LinkShared};
use crate::driver::staging::{Settling, TxEnd, TxShared};
use crate::error::{AcceptError, ConnectError, LinkCause, LinkError, Loss, SendError};
use crate::node::accepting::AcceptTable;
use crate::node::{Node, Peer, duplexes};
use crate::proto::describe::fnv1a;
use crate::proto::outbox::OpenSpec;
use crate::proto::packet::{ChannelKind, Lane};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::runtime::Handle;

/// Looks at how far a channel has come, wherever its sender is.
#[derive(Clone)]
pub struct Written {
    shared: Arc<TxShared>,
    link: Arc<LinkShared>,
}

impl fmt::Debug for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Written").field(&self.messages()).finish()
    }
}

impl Written {
    /// Looks at that of `sender`.
    #[must_use]
    pub fn of(sender: &mut BytesSender) -> Written {
        let tx = sender.tx();
        Written { shared: tx.shared(), link: tx.link() }
    }

    /// Returns the number of messages that were handed to the transport.
    #[must_use]
    pub fn messages(&self) -> u64 {
        self.shared.written()
    }

    /// Returns for how long the channel has waited for room to open, since the peer had room for another
    /// one that waited; `None` where it does not wait.
    #[must_use]
    pub fn waits_in_vain(&self) -> Option<Duration> {
        self.link.opens().waits_in_vain(&self.shared)
    }
}

impl Link {
    /// Returns the link of a peer.
    #[must_use]
    pub fn of(peer: &Peer) -> Link {
        Link(Arc::clone(&peer.link))
    }

    /// Returns the links of a node, those among them whose session has just ended.
    #[must_use]
    pub fn all_of(node: &Node) -> Vec<Link> {
        node.table().links().into_iter().map(Link).collect()
    }

    /// Returns the live session of `node` with the node of this incarnation, whichever began it. Of
    /// several, both nodes return the same one.
    #[must_use]
    pub fn with(node: &Node, incarnation: u128) -> Option<Link> {
        node.table().preferred(node.incarnation(), incarnation).map(Link)
    }

    /// Returns the session as [`Link::with`] does. Without one, dials `address` once; `None` when
    /// another node is there. Of two nodes that dial each other at the same time, the one with the
    /// smaller incarnation begins the session.
    ///
    /// # Errors
    ///
    /// As [`Node::connect`].
    ///
    /// # Cancel safety
    ///
    /// As [`Node::connect`].
    pub async fn meet(
        node: &Node,
        incarnation: u128,
        address: &Address,
    ) -> Result<Option<Link>, ConnectError> {
        let met = node.meet(incarnation, address).await?;
        Ok(met.map(|peer| Link(peer.link)))
    }

    /// Returns the peer at the other end, as `node`, which has the link, sees it.
    #[must_use]
    pub fn peer(&self, node: &Node) -> Peer {
        node.peer(Arc::clone(&self.0))
    }

    /// Returns the peer's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.peer.name
    }

    /// Returns the random number that the peer drew when it started.
    #[must_use]
    pub fn incarnation(&self) -> u128 {
        self.0.peer.incarnation
    }

    /// Whether the session has not ended.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.0.ended().is_none()
    }

    /// Returns why the session ended, if it has.
    #[must_use]
    pub fn ended(&self) -> Option<LinkError> {
        self.0.ended()
    }

    /// Waits for the end of the session.
    pub fn poll_ended(&self, context: &mut Context<'_>) -> Poll<LinkError> {
        self.0.poll_ended(context)
    }

    /// Returns the error of a wait that ends because its own side is gone.
    #[must_use]
    pub fn closed(&self) -> LinkError {
        LinkError::new(self.name(), LinkCause::Closed)
    }

    /// Returns the error of a wait for this peer that ends for the reason `why`.
    #[must_use]
    pub fn gone(&self, why: impl Into<Loss>) -> LinkError {
        LinkError::new(self.name(), LinkCause::Gone(why.into()))
    }

    /// Opens a channel of a layer, with a reserved name. Its messages leave before those of the
    /// program's channels. `schema` names their form, which the other end compares.
    ///
    /// # Errors
    ///
    /// The session has ended.
    pub fn open_words(&self, name: &str, schema: &str) -> Result<WordSender, LinkError> {
        let spec = Box::new(OpenSpec {
            lane: Lane::Express,
            system: true,
            kind: ChannelKind::Typed,
            fingerprint: fnv1a(schema.as_bytes()),
            stream: None,
            backlog: None,
            name: name.to_owned(),
        });
        let shared = TxShared::new(name.to_owned(), schema.to_owned(), Settling::No);
        let end = self.0.open(|id| {
            let (end, ring) = TxEnd::new(&self.0, &shared, id);
            (Command::Open { id, spec, tx: Arc::clone(&shared), ring, back: None }, end)
        })?;
        Ok(WordSender { end, scratch: Vec::new() })
    }

    /// Opens a duplex of values from `node`, which has the link, at once and without a new session.
    /// For `fingerprint` see [`Fingerprint::duplex`].
    ///
    /// # Errors
    ///
    /// The session has ended.
    pub fn open_duplex(
        &self,
        node: &Node,
        options: &ChannelOptions,
        fingerprint: &Fingerprint,
    ) -> Result<(RawSender, RawReceiver), LinkError> {
        let (tx, rx) = node.try_open_both(&self.0, options, fingerprint)?;
        Ok((RawSender::new(tx, self.peer(node)), rx))
    }
}

/// Sends the words of a layer to the same layer of a peer. It does not keep the node alive.
pub struct WordSender {
    end: TxEnd,
    scratch: Vec<u8>,
}

impl fmt::Debug for WordSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WordSender").field(&self.end.shared.name).finish()
    }
}

impl WordSender {
    /// Sends a word; waits for room. It leaves with others, or after [`WordSender::urgent`].
    ///
    /// # Errors
    ///
    /// As [`Sender::send`].
    ///
    /// # Cancel safety
    ///
    /// Dropped before it returns, nothing was accepted.
    pub async fn send<W: Serialize>(&mut self, word: &W) -> Result<(), SendError> {
        let WordSender { end, scratch } = self;
        let mut staged = end.stage(word, scratch)?;
        let shared = Arc::clone(&end.shared);
        poll_fn(|context| {
            if staged == Staged::Full {
                // The staged words leave first.
                shared.wait(context.waker());
                staged = end.stage_scratch(scratch)?;
            }
            if staged == Staged::Done { Poll::Ready(Ok(())) } else { Poll::Pending }
        })
        .await
    }

    /// Lets everything accepted so far leave at once.
    pub fn urgent(&mut self) {
        self.end.urgent();
    }

    /// Waits until nothing can be sent any more, as when the peer has no such layer; returns the
    /// reason.
    ///
    /// # Cancel safety
    ///
    /// Safe.
    pub async fn failed(&mut self) -> SendError {
        loop {
            if let Some(error) = self.end.failed() {
                return error;
            }
            let shared = &self.end.shared;
            poll_fn(|context| shared.poll_watch(context, TxShared::has_failed)).await;
        }
    }
}

impl fmt::Debug for Opened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Opened").field(&self.name()).finish()
    }
}

impl Opened {
    /// Returns the channel's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.receiver.shared.name
    }

    /// Returns the link by which it was opened.
    #[must_use]
    pub fn link(&self) -> Link {
        Link(Arc::clone(&self.receiver.link))
    }

    /// Returns the lane on which its messages come.
    #[must_use]
    pub fn lane(&self) -> Lane {
        self.lane
    }

    /// Whether it is a channel of values with this fingerprint.
    #[must_use]
    pub fn is_of(&self, fingerprint: u64) -> bool {
        self.kind == ChannelKind::Typed && self.fingerprint == fingerprint
    }

    /// Whether it is a channel of words with this schema; see [`Link::open_words`].
    #[must_use]
    pub fn is_words(&self, schema: &str) -> bool {
        self.is_of(fnv1a(schema.as_bytes()))
    }

    /// Returns the receiving end.
    #[must_use]
    pub fn into_receiver(mut self) -> RawReceiver {
        self.receiver.refuses = false;
        self.receiver
    }
}

impl fmt::Debug for RawReceiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RawReceiver").field(&self.shared.name).finish()
    }
}

impl RawReceiver {
    /// Returns the link by which the messages come.
    #[must_use]
    pub fn link(&self) -> Link {
        Link(Arc::clone(&self.link))
    }

    /// Opens the way back of the duplex whose way there this end receives, on `lane`. After the
    /// session's end it is a channel that has failed.
    #[must_use]
    pub fn open_back(&self, node: &Node, lane: Lane, fingerprint: &Fingerprint) -> RawSender {
        let options = channel(&*self.shared.name).lane(lane);
        let tx = duplexes::open_back(self, &options, ChannelKind::Typed, fingerprint);
        RawSender::new(tx, self.link().peer(node))
    }

    /// Returns the receiver of values of this end. `carries`: see [`Fingerprint::carries`].
    pub fn into_receiver<T: DeserializeOwned>(self, node: &Node, carries: bool) -> Receiver<T> {
        let peer = self.link().peer(node);
        Receiver::new(self, peer, carries)
    }

    /// Whether the peer has opened the channel. Only the way back of a duplex begins before that.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.shared.id() != 0
    }

    /// Ends the session: the peer sent what is no message of this channel.
    pub fn malformed(&self) {
        self.link.command(Command::Corrupt { id: self.shared.id() });
    }
}

impl fmt::Debug for RawSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RawSender").field(&self.name()).finish()
    }
}

impl RawSender {
    /// Returns the raw end of a sender.
    pub fn of<T>(sender: &mut Sender<T>) -> &mut RawSender {
        sender.tx()
    }

    /// Returns the peer at the other end.
    #[must_use]
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Returns the numbers of messages accepted and acknowledged.
    pub fn account(&mut self) -> crate::error::Account {
        self.with(|end| end.account())
    }

    /// Lets everything accepted so far leave at once.
    pub fn urgent(&mut self) {
        self.with(TxEnd::urgent);
    }

    /// Ends the channel behind the accepted messages, for clones too. Tasks that wait for room
    /// find the end.
    pub fn end(&mut self) {
        self.with(TxEnd::close);
    }

    /// Returns a watch of the channel's fate, also after its senders are dropped.
    #[must_use]
    pub fn watch(&self) -> Watch {
        Watch(self.shared())
    }
}

/// The fate of a channel of ours. A task that watches does not count as one that waits for
/// the peer.
#[derive(Clone)]
pub struct Watch(Arc<TxShared>);

/// Equal when they watch the same channel.
impl PartialEq for Watch {
    fn eq(&self, other: &Watch) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Watch {}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Watch").field(&self.0.name).finish()
    }
}

impl Watch {
    /// Waits until the channel's end is acknowledged, or the channel failed. Returns whether its
    /// messages may be lost.
    ///
    /// # Cancel safety
    ///
    /// Safe.
    pub async fn over(&self) -> bool {
        let over = |it: &TxShared| it.is_lost() || it.end_acked();
        poll_fn(|context| self.0.poll_watch(context, over)).await;
        self.0.is_lost()
    }

    /// Waits until the peer has the first message or the channel's end, or the channel failed.
    /// Returns whether the peer has it.
    ///
    /// # Cancel safety
    ///
    /// Safe.
    pub async fn reached(&self) -> bool {
        let there = |it: &TxShared| it.acked() > 0 || it.end_acked();
        poll_fn(|context| self.0.poll_watch(context, |it| there(it) || it.is_lost())).await;
        there(&self.0)
    }
}

/// A reserved name under which channels are held until they are taken. Without it they are
/// refused. Dropping it is [`Expected::end`].
#[must_use = "channels are refused again when it is dropped"]
pub struct Expected {
    table: Arc<AcceptTable>,
    runtime: Handle,
    name: String,
    ended: AtomicBool,
}

impl fmt::Debug for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Expected").field(&self.name).finish()
    }
}

impl Expected {
    /// Expects channels under `name` from now on; `None` when somebody does already.
    #[must_use]
    pub fn begin(node: &Node, name: String) -> Option<Expected> {
        let (table, runtime) = (Arc::clone(node.table()), node.runtime().clone());
        let ended = AtomicBool::new(false);
        // Only then: dropping one frees the name.
        table.expect(&name).then(|| Expected { table, runtime, name, ended })
    }

    /// Frees the name: further channels are refused, and those that are held.
    pub fn end(&self) {
        if !self.ended.swap(true, Ordering::Relaxed) {
            self.table.expect_no_more(&self.name);
        }
    }

    /// Waits for the next channel. Dropped before it is judged, it is refused.
    ///
    /// # Errors
    ///
    /// The node was closed, its runtime is gone, or the name was freed before the call.
    ///
    /// # Cancel safety
    ///
    /// Safe.
    pub async fn take(&self) -> Result<Opened, AcceptError> {
        if self.ended.load(Ordering::Relaxed) {
            return Err(AcceptError::Closed);
        }
        let mut opened = self.table.take(&self.name, None).await?;
        opened.receiver.refuses = true;
        Ok(opened)
    }

    /// Returns the receiver of a channel that was taken, if its type fits.
    ///
    /// # Errors
    ///
    /// It is of another type: the channel is refused, and the error names both types.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the channel is dropped or refused.
    pub async fn judge(
        &self,
        opened: Opened,
        fingerprint: &Fingerprint,
    ) -> Result<RawReceiver, AcceptError> {
        let judged = self.table.judge(opened, ChannelKind::Typed, fingerprint, &self.runtime);
        let mut receiver = judged.await?;
        receiver.refuses = false;
        Ok(receiver)
    }
}

impl Drop for Expected {
    fn drop(&mut self) {
        self.end();
    }
}
