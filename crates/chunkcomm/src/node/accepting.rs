//! Who takes the channels that peers open: those that wait in `accept`, or
//! nobody yet; and the links that a node has.

use super::fingerprint::Fingerprint;
use super::losses::Losses;
use crate::driver::clock;
use crate::driver::ending::LostChannel;
use crate::driver::events::{Acceptor, Opened};
use crate::driver::mail::{Command, LinkShared};
use crate::driver::taking::RxEnd;
use crate::driver::wakers::{Wakers, locked};
use crate::error::{AcceptError, CloseError, RefusalReason};
use crate::moving::Moving;
use crate::proto::call;
use crate::proto::limits::{HELD_OPENS_MAX, HELD_OPENS_NODE_MAX};
use crate::proto::packet::{ChannelKind, Refusal};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::runtime::Handle;

/// Refused connections that are remembered.
const REFUSALS_MAX: usize = 16;

/// How long `accept` waits for the sender's type after it refused the channel.
const DESCRIPTION_DEADLINE: Duration = Duration::from_secs(2);

#[derive(Default)]
struct Table {
    /// By name; in an order that is the same in each run.
    held: BTreeMap<String, VecDeque<Opened>>,
    waiting: Wakers,
    /// Types of senders that were refused: link, channel, text.
    described: Vec<(Arc<LinkShared>, u32, String)>,
    links: Vec<(Arc<LinkShared>, bool)>,
    refusals: VecDeque<String>,
    losses: Losses,
    /// Channels of calls that somebody takes; others are refused at once.
    expected: BTreeSet<String>,
    closed: bool,
}

impl Table {
    fn held_count(&self) -> usize {
        self.held.values().map(VecDeque::len).sum()
    }

    /// Lets go of what nobody accepted while its session lasted; true when that
    /// made room.
    fn forget_ended(&mut self) -> bool {
        let before = self.held_count();
        for opens in self.held.values_mut() {
            opens.retain(|held| held.receiver.link.ended().is_none());
        }
        self.held.retain(|_, opens| !opens.is_empty());
        self.held_count() < before
    }
}

/// The table of one node, and who takes the channels that are not for its user.
pub(crate) struct AcceptTable(Mutex<Table>, Arc<Moving>);

impl Acceptor for AcceptTable {
    fn opened(&self, opened: Opened) -> Result<(), Box<Opened>> {
        let Some(opened) = self.1.opened(opened)? else { return Ok(()) };
        let mut table = locked(&self.0);
        let name = opened.receiver.shared.name.to_string();
        if call::is_reserved(&name) && !table.expected.contains(&name) {
            return Err(Box::new(opened));
        }
        let same_link = |held: &&Opened| Arc::ptr_eq(&held.receiver.link, &opened.receiver.link);
        let held = table.held.values().flatten().filter(same_link).count();
        if table.closed || held >= HELD_OPENS_MAX {
            return Err(Box::new(opened));
        }
        if table.held_count() >= HELD_OPENS_NODE_MAX && !table.forget_ended() {
            return Err(Box::new(opened));
        }
        table.held.entry(name).or_default().push_back(opened);
        let waiting = table.waiting.take();
        drop(table);
        waiting.wake();
        Ok(())
    }

    fn described(&self, link: &Arc<LinkShared>, channel: u32, text: &str) {
        let mut table = locked(&self.0);
        if table.described.len() >= HELD_OPENS_MAX {
            table.described.remove(0);
        }
        table.described.push((Arc::clone(link), channel, text.to_owned()));
        let waiting = table.waiting.take();
        drop(table);
        waiting.wake();
    }

    fn lost(&self, channels: Vec<LostChannel>) {
        let mut table = locked(&self.0);
        let closed = table.closed;
        table.losses.add(channels, closed);
    }

    fn ended(&self, link: &Arc<LinkShared>) {
        let mut table = locked(&self.0);
        table.links.retain(|(known, _)| !Arc::ptr_eq(known, link));
        table.described.retain(|(known, _, _)| !Arc::ptr_eq(known, link));
        if table.held_count() > HELD_OPENS_MAX / 4 {
            table.forget_ended();
        }
        let waiting = table.waiting.take();
        drop(table);
        waiting.wake();
    }
}

impl AcceptTable {
    pub(super) fn new(moving: Arc<Moving>) -> AcceptTable {
        AcceptTable(Mutex::default(), moving)
    }

    pub(super) fn add_link(&self, link: &Arc<LinkShared>, dialled: bool) {
        let mut table = locked(&self.0);
        table.links.push((Arc::clone(link), dialled));
        let closed = table.closed;
        drop(table);
        if closed {
            link.close();
        }
    }

    /// A live link with this peer that was begun here.
    pub(super) fn dialled(&self, incarnation: u128) -> Option<Arc<LinkShared>> {
        let table = locked(&self.0);
        let found = table.links.iter().find(|(link, dialled)| {
            *dialled && link.peer.incarnation == incarnation && link.ended().is_none()
        });
        found.map(|(link, _)| Arc::clone(link))
    }

    /// The session with this number that this peer began.
    pub(super) fn accepted(&self, incarnation: u128, session: u64) -> Option<Arc<LinkShared>> {
        let table = locked(&self.0);
        let found = table.links.iter().find(|(link, dialled)| {
            !dialled && link.peer.incarnation == incarnation && link.peer.session == session
        });
        found.map(|(link, _)| Arc::clone(link))
    }

    pub(crate) fn links(&self) -> Vec<Arc<LinkShared>> {
        locked(&self.0).links.iter().map(|(link, _)| Arc::clone(link)).collect()
    }

    /// What was lost and nobody was told of.
    pub(super) fn tell_losses(&self) -> Result<(), CloseError> {
        locked(&self.0).losses.tell()
    }

    /// Waits until the node has none of these links: their sessions have ended, and what was
    /// lost is known.
    pub(super) async fn gone(&self, links: &[Arc<LinkShared>]) {
        poll_fn(|context| {
            let mut table = locked(&self.0);
            let is_one =
                |(link, _): &(Arc<LinkShared>, bool)| links.iter().any(|it| Arc::ptr_eq(it, link));
            if !table.links.iter().any(is_one) {
                return Poll::Ready(());
            }
            table.waiting.add(context.waker());
            Poll::Pending
        })
        .await;
    }

    /// Waits until the node has no link.
    pub(super) async fn all_ended(&self) {
        poll_fn(|context| {
            let mut table = locked(&self.0);
            if table.links.is_empty() {
                return Poll::Ready(());
            }
            table.waiting.add(context.waker());
            Poll::Pending
        })
        .await;
    }

    pub(super) fn close(&self) {
        let mut table = locked(&self.0);
        table.closed = true;
        let held = std::mem::take(&mut table.held);
        let waiting = table.waiting.take();
        drop(table);
        // Their senders learn that nobody takes them.
        drop(held);
        waiting.wake();
    }

    pub(crate) fn is_closed(&self) -> bool {
        locked(&self.0).closed
    }

    pub(super) fn refuse(&self, refusal: String) {
        tracing::warn!(%refusal, "a connection was refused");
        let mut table = locked(&self.0);
        if table.refusals.len() == REFUSALS_MAX {
            table.refusals.pop_front();
        }
        table.refusals.push_back(refusal);
    }

    pub(super) fn refusals(&self) -> Vec<String> {
        locked(&self.0).refusals.iter().cloned().collect()
    }

    /// Holds a channel again that was accepted, before all others of its name.
    pub(super) fn give_back(&self, opened: Opened) {
        let mut table = locked(&self.0);
        if table.closed {
            drop(table);
            // Its sender learns that nobody takes it.
            drop(opened);
            return;
        }
        let name = opened.receiver.shared.name.to_string();
        table.held.entry(name).or_default().push_front(opened);
        let waiting = table.waiting.take();
        drop(table);
        waiting.wake();
    }

    /// From now on channels of calls under `name` are held; false when they were.
    pub(crate) fn expect(&self, name: &str) -> bool {
        locked(&self.0).expected.insert(name.to_owned())
    }

    /// From now on they are refused, also those that are held.
    pub(crate) fn expect_no_more(&self, name: &str) {
        let mut table = locked(&self.0);
        table.expected.remove(name);
        let held = table.held.remove(name);
        drop(table);
        // Their senders learn that nobody takes them.
        drop(held);
    }

    /// Waits for a channel under `name`; it must be of this kind and type.
    pub(super) async fn accept(
        &self,
        name: &str,
        kind: ChannelKind,
        print: &Fingerprint,
        runtime: &Handle,
    ) -> Result<RxEnd, AcceptError> {
        let opened = self.take(name).await?;
        self.judge(opened, kind, print, runtime).await
    }

    /// Waits for a channel under `name`, which is then to be judged.
    pub(crate) async fn take(&self, name: &str) -> Result<Opened, AcceptError> {
        poll_fn(|context| self.poll_take(name, context)).await
    }

    /// A channel that was taken must be of this kind and type; else it is refused, and
    /// the sender's type is waited for.
    pub(crate) async fn judge(
        &self,
        opened: Opened,
        kind: ChannelKind,
        print: &Fingerprint,
        runtime: &Handle,
    ) -> Result<RxEnd, AcceptError> {
        if opened.kind != kind {
            return Err(refuse(opened, Refusal::KindMismatch, RefusalReason::KindMismatch));
        }
        if opened.fingerprint == print.hash {
            return Ok(opened.receiver);
        }
        let (link, id) = (Arc::clone(&opened.receiver.link), opened.receiver.shared.id);
        let reason = RefusalReason::TypeMismatch {
            sender: "unknown".to_owned(),
            receiver: print.text.clone(),
        };
        let error = refuse(opened, Refusal::TypeMismatch, reason);
        let described = poll_fn(|context| self.poll_described(&link, id, context));
        let sender = clock::within(runtime, DESCRIPTION_DEADLINE, described).await.flatten();
        Err(with_sender(error, sender))
    }

    fn poll_take(
        &self,
        name: &str,
        context: &mut Context<'_>,
    ) -> Poll<Result<Opened, AcceptError>> {
        let mut table = locked(&self.0);
        if let Some(held) = table.held.get_mut(name) {
            let opened = held.pop_front();
            if held.is_empty() {
                table.held.remove(name);
            }
            if let Some(opened) = opened {
                return Poll::Ready(Ok(opened));
            }
        }
        if table.closed {
            return Poll::Ready(Err(AcceptError::Closed));
        }
        table.waiting.add(context.waker());
        Poll::Pending
    }

    fn poll_described(
        &self,
        link: &Arc<LinkShared>,
        channel: u32,
        context: &mut Context<'_>,
    ) -> Poll<Option<String>> {
        let mut table = locked(&self.0);
        let is_it =
            |it: &(Arc<LinkShared>, u32, String)| it.1 == channel && Arc::ptr_eq(&it.0, link);
        if let Some(at) = table.described.iter().position(is_it) {
            return Poll::Ready(Some(table.described.swap_remove(at).2));
        }
        if link.ended().is_some() {
            return Poll::Ready(None);
        }
        table.waiting.add(context.waker());
        Poll::Pending
    }
}

fn refuse(opened: Opened, refusal: Refusal, reason: RefusalReason) -> AcceptError {
    let Opened { receiver, .. } = opened;
    let text = match &reason {
        RefusalReason::TypeMismatch { receiver, .. } => receiver.clone(),
        _ => String::new(),
    };
    receiver.link.command(Command::Refuse { id: receiver.shared.id, refusal, text });
    let channel = receiver.shared.name.to_string();
    let peer = receiver.link.peer.name.clone();
    receiver.disarm();
    AcceptError::Mismatch { channel, peer, reason }
}

fn with_sender(error: AcceptError, described: Option<String>) -> AcceptError {
    match (error, described) {
        (
            AcceptError::Mismatch {
                channel,
                peer,
                reason: RefusalReason::TypeMismatch { receiver, .. },
            },
            Some(sender),
        ) => AcceptError::Mismatch {
            channel,
            peer,
            reason: RefusalReason::TypeMismatch { sender, receiver },
        },
        (error, _) => error,
    }
}
