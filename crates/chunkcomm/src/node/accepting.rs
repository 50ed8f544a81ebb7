//! The table of a node: channels that peers open and the `accept` calls that take them, links,
//! streams, losses.

use super::fingerprint::Fingerprint;
use super::held::{Held, incarnation};
use super::layers::{Answer, Layers};
use super::links::{Links, News};
use super::losses::{Losses, is_reserved, reported};
use super::warnings::Warnings;
use crate::channel::ChannelOptions;
use crate::driver::clock;
use crate::driver::ending::LostChannel;
use crate::driver::events::{Acceptor, Opened};
use crate::driver::mail::{Beginning, Command, LinkShared};
use crate::driver::staging::TxShared;
use crate::driver::taking::RxEnd;
use crate::driver::wakers::{Wakers, locked};
use crate::error::{AcceptError, CloseError, LinkCause, LinkError, RefusalReason};
use crate::proto::packet::{ChannelKind, Refusal};
use crate::proto::sorted::SortedSet;
use crate::transport::shown::Shown;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::Notify;

/// Most refused connections that are remembered: 16.
const REFUSALS_MAX: usize = 16;

/// Most types of refused senders that are remembered until their `accept` takes them: 256.
const DESCRIBED_MAX: usize = 256;

/// Time for which `accept` waits for the sender's type after it refused the channel: 2 s.
const DESCRIPTION_DEADLINE: Duration = Duration::from_secs(2);

#[derive(Default)]
pub(super) struct Table {
    pub(super) held: Held,
    /// Number of held opens that gave way to others since the last warning of that.
    pub(super) gave_way: u64,
    /// Tasks that wait for anything but an open.
    waiting: Wakers,
    /// Types of refused senders: link, channel, text.
    described: Vec<(Arc<LinkShared>, u32, String)>,
    pub(super) links: Links,
    refusals: VecDeque<String>,
    pub(super) losses: Losses,
    /// Reserved names that a layer expects; others are refused at once.
    expected: SortedSet<String>,
    /// Streams that are not over.
    pub(super) streams: Vec<Weak<TxShared>>,
    pub(super) closed: bool,
    /// Whether the runtime is gone: nobody drives the links, and none will come.
    pub(super) runtime_gone: bool,
}

impl Table {
    /// Takes the wakers of all tasks that wait; the caller wakes them without the lock.
    fn take_waiting(&mut self) -> Wakers {
        let mut waiting = self.waiting.take();
        waiting.append(self.held.take_all_waiting());
        waiting
    }
}

/// The table of one node, and its layers, which take the channels with reserved names.
pub(crate) struct AcceptTable {
    pub(super) table: Mutex<Table>,
    layers: Arc<Layers>,
    /// Notified of each open that is held.
    holds: Arc<Notify>,
    /// Notified of each open of ours that waits for room.
    pub(super) open_waits: Arc<Notify>,
    pub(super) warnings: Warnings,
    /// Limit of the memory of sessions that are cut off, in bytes.
    cut_off_bytes_max: u64,
}

impl Acceptor for AcceptTable {
    fn opened(&self, opened: Opened, left: u64) -> Result<(), Box<Opened>> {
        let is_of_layer = is_reserved(opened.name());
        let answer =
            if is_of_layer { self.layers.opened(opened) } else { Answer::Held(Box::new(opened)) };
        let (opened, only_expected) = match answer {
            Answer::Taken => return Ok(()),
            Answer::Refused(opened) => return Err(opened),
            Answer::Expected(opened) => (*opened, true),
            Answer::Held(opened) => (*opened, false),
        };
        let mut table = locked(&self.table);
        if table.closed || only_expected && !table.expected.contains(opened.name()) {
            return Err(Box::new(opened));
        }
        let (name, node) = (Arc::clone(&opened.receiver.shared.name), incarnation(&opened));
        let gave_way = table.held.hold(opened, left)?;
        table.gave_way += u64::from(gave_way.is_some());
        let waiting = table.held.take_waiting(&name, node);
        drop(table);
        self.holds.notify_one();
        waiting.wake();
        if let Some(opened) = gave_way {
            refuse(opened, Refusal::NotAccepted, RefusalReason::NotAccepted);
        }
        Ok(())
    }

    fn described(&self, link: &Arc<LinkShared>, channel: u32, text: &str) {
        let mut table = locked(&self.table);
        if table.described.len() >= DESCRIBED_MAX {
            table.described.remove(0);
        }
        table.described.push((Arc::clone(link), channel, text.to_owned()));
        let waiting = table.waiting.take();
        drop(table);
        waiting.wake();
    }

    fn refused(&self, channel: LostChannel) {
        let channels = reported(vec![channel], &self.layers);
        let mut table = locked(&self.table);
        let closed = table.closed;
        table.losses.add(channels, closed);
    }

    fn open_waits(&self) {
        self.open_waits.notify_one();
    }

    fn warn(&self, what: &str) {
        self.say(what);
    }

    fn cut_off(&self, link: &Arc<LinkShared>, error: &LinkError, bytes: u64) {
        let cut_off_bytes_max = self.cut_off_bytes_max;
        let mut table = locked(&self.table);
        let watching = table.links.cut_off(link, error, bytes);
        let succeeded = table.links.succeeded(link);
        let beyond = table.links.take_beyond(cut_off_bytes_max);
        drop(table);
        watching.wake();
        succeeded.iter().for_each(|it| it.is_succeeded());
        let cause = LinkCause::GaveWayForMemory { cut_off_bytes_max };
        beyond.iter().for_each(|it| it.give_way(cause.clone()));
    }

    fn resumed(&self, link: &Arc<LinkShared>, attempt: u32) {
        let watching = locked(&self.table).links.resumed(link, attempt);
        watching.wake();
    }

    fn ended(&self, link: &Arc<LinkShared>, error: &LinkError, lost: Vec<LostChannel>) {
        let lost = reported(lost, &self.layers);
        let mut table = locked(&self.table);
        let watching = table.links.remove(link, error, &lost);
        let closed = table.closed;
        table.losses.add(lost, closed);
        table.described.retain(|(known, _, _)| !Arc::ptr_eq(known, link));
        let waiting = table.take_waiting();
        drop(table);
        waiting.wake();
        watching.wake();
    }
}

impl AcceptTable {
    pub(super) fn new(
        layers: Arc<Layers>,
        holds: Arc<Notify>,
        warnings: Warnings,
        cut_off_bytes_max: u64,
    ) -> AcceptTable {
        let (table, open_waits) = (Mutex::default(), Arc::default());
        AcceptTable { table, layers, holds, open_waits, warnings, cut_off_bytes_max }
    }

    pub(super) fn add_link(&self, link: &Arc<LinkShared>) {
        let mut table = locked(&self.table);
        let watching = table.links.add(link);
        let succeeded = table.links.succeeded(link);
        let closed = table.closed;
        if closed {
            link.open_no_more();
        }
        drop(table);
        watching.wake();
        succeeded.iter().for_each(|it| it.is_succeeded());
        if closed {
            link.close();
        }
    }

    /// Returns a live link with this peer that this node began, and where the peer has shown the same
    /// certificate: its incarnation is its own claim.
    pub(super) fn dialled(&self, incarnation: u128, shown: &Shown) -> Option<Arc<LinkShared>> {
        let table = locked(&self.table);
        let found = table.links.iter().find(|link| {
            let dialled = matches!(link.peer.beginning, Beginning::Dialled(_));
            let is_its = link.peer.incarnation == incarnation && link.peer.shown.is_same(shown);
            dialled && is_its && link.ended().is_none()
        });
        found.cloned()
    }

    /// Returns the session with this number that this peer began.
    pub(super) fn accepted(&self, incarnation: u128, session: u64) -> Option<Arc<LinkShared>> {
        let table = locked(&self.table);
        let found = table.links.iter().find(|link| {
            let accepted = matches!(link.peer.beginning, Beginning::Accepted(_));
            accepted && link.peer.incarnation == incarnation && link.peer.session == session
        });
        found.cloned()
    }

    pub(crate) fn links(&self) -> Vec<Arc<LinkShared>> {
        locked(&self.table).links.iter().cloned().collect()
    }

    /// Returns the losses that no call has reported yet, as an error.
    pub(super) fn tell_losses(&self) -> Result<(), CloseError> {
        locked(&self.table).losses.tell()
    }

    /// Waits until the node has none of these links: their sessions have ended, and their losses
    /// are known.
    pub(super) async fn gone(&self, links: &[Arc<LinkShared>]) {
        poll_fn(|context| {
            let mut table = locked(&self.table);
            let is_one = |link: &Arc<LinkShared>| links.iter().any(|it| Arc::ptr_eq(it, link));
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
            let mut table = locked(&self.table);
            if table.links.is_empty() {
                return Poll::Ready(());
            }
            table.waiting.add(context.waker());
            Poll::Pending
        })
        .await;
    }

    /// Warns the people who run the node.
    pub(super) fn say(&self, what: &str) {
        self.warnings.say(what);
    }

    /// Closes the links; returns them. A table that is found closed has no link that opens channels.
    pub(super) fn close(&self) -> Vec<Arc<LinkShared>> {
        self.give_up_streams();
        let mut table = locked(&self.table);
        table.closed = true;
        let links: Vec<_> = table.links.iter().cloned().collect();
        links.iter().for_each(|link| link.open_no_more());
        let held = table.held.clear();
        let (waiting, watching) = (table.take_waiting(), table.links.take_waiting());
        drop(table);
        // Their senders learn that nobody takes them.
        drop(held);
        // One may have come since, until the table was closed.
        self.give_up_streams();
        links.iter().for_each(|link| link.close());
        waiting.wake();
        watching.wake();
        links
    }

    /// Adds a watcher of the links; returns its number.
    pub(super) fn watch(&self) -> u64 {
        locked(&self.table).links.watch()
    }

    pub(super) fn unwatch(&self, watcher: u64) {
        locked(&self.table).links.unwatch(watcher);
    }

    pub(super) fn poll_news(&self, watcher: u64, context: &mut Context<'_>) -> Poll<Option<News>> {
        let mut table = locked(&self.table);
        let closed = table.closed;
        table.links.poll_news(watcher, closed, context)
    }

    pub(crate) fn is_closed(&self) -> bool {
        locked(&self.table).closed
    }

    /// Ends the calls that wait in the node: nobody drives it any more.
    pub(super) fn runtime_gone(&self) {
        self.give_up_streams();
        let mut table = locked(&self.table);
        table.runtime_gone = true;
        let waiting = table.take_waiting();
        drop(table);
        waiting.wake();
        self.layers.runtime_gone();
    }

    pub(super) fn runtime_is_gone(&self) -> bool {
        locked(&self.table).runtime_gone
    }

    /// Waits until the node is closed or its runtime is gone.
    pub(super) async fn over(&self) {
        poll_fn(|context| {
            let mut table = locked(&self.table);
            if table.closed || table.runtime_gone {
                return Poll::Ready(());
            }
            table.waiting.add(context.waker());
            Poll::Pending
        })
        .await;
    }

    /// Makes room for one more session that a peer begins, where `sessions_max` are allowed.
    /// The session that has been cut off for longest gives way. False when all are connected.
    pub(super) fn make_room_for_session(&self, sessions_max: usize) -> bool {
        let mut table = locked(&self.table);
        if table.links.begun_by_peers() < sessions_max {
            return true;
        }
        let Some(link) = table.links.take_longest_cut_off() else { return false };
        link.give_way(LinkCause::GaveWay { sessions_max });
        true
    }

    pub(super) fn refuse(&self, refusal: String) {
        tracing::warn!(%refusal, "a connection was refused");
        self.note_refusal(refusal);
    }

    /// Warns that connections cannot be accepted, and notes the reason as one why they were refused.
    pub(super) fn cannot_accept(&self, what: String) {
        self.warnings.say_accept_error(&what);
        self.note_refusal(what);
    }

    fn note_refusal(&self, refusal: String) {
        let mut table = locked(&self.table);
        if table.refusals.len() == REFUSALS_MAX {
            table.refusals.pop_front();
        }
        table.refusals.push_back(refusal);
    }

    pub(super) fn refusals(&self) -> Vec<String> {
        locked(&self.table).refusals.iter().cloned().collect()
    }

    /// Holds an accepted channel again, before all others of its name.
    pub(super) fn give_back(&self, opened: Opened) {
        let mut table = locked(&self.table);
        if table.closed {
            drop(table);
            // Its sender learns that nobody takes it.
            drop(opened);
            return;
        }
        let (name, node) = (Arc::clone(&opened.receiver.shared.name), incarnation(&opened));
        table.held.give_back(opened);
        let waiting = table.held.take_waiting(&name, node);
        drop(table);
        waiting.wake();
    }

    /// Holds channels under the reserved `name` from now on; false when they were held before.
    pub(crate) fn expect(&self, name: &str) -> bool {
        locked(&self.table).expected.insert(name.to_owned())
    }

    /// Refuses channels under the reserved `name` from now on, and those that are held.
    pub(crate) fn expect_no_more(&self, name: &str) {
        let mut table = locked(&self.table);
        table.expected.remove(name);
        let mut held = table.held.take_all(name);
        drop(table);
        held.iter_mut().for_each(|opened| opened.receiver.refuses = true);
    }

    /// Waits for a channel under `name`, from any node or from the one of this link; the caller then
    /// judges it.
    pub(crate) async fn take(
        &self,
        name: &str,
        from: Option<&Arc<LinkShared>>,
    ) -> Result<Opened, AcceptError> {
        let node = from.map(|link| link.peer.incarnation);
        locked(&self.table).held.want(name, node);
        let _wanted = Wanted { table: self, name, from: node };
        poll_fn(|context| self.poll_take(name, from, context)).await
    }

    /// As `take`, within `deadline`.
    pub(super) async fn take_within(
        &self,
        options: &ChannelOptions,
        deadline: Duration,
        runtime: &Handle,
    ) -> Result<Opened, AcceptError> {
        let late = || AcceptError::Late {
            channel: options.name.clone(),
            waited: deadline,
            held: self.held_names(),
        };
        let from = options.from.as_ref().map(|peer| &peer.link);
        let taking = self.take(&options.name, from);
        let taken = clock::within(runtime, deadline, taking).await;
        taken.unwrap_or_else(|| Err(late()))
    }

    /// Returns the receiver of a taken channel if its kind and type fit; else refuses the channel
    /// and waits for the sender's type.
    pub(crate) async fn judge(
        &self,
        opened: Opened,
        kind: ChannelKind,
        print: &Fingerprint,
        runtime: &Handle,
    ) -> Result<RxEnd, AcceptError> {
        let (link, id) = (Arc::clone(&opened.receiver.link), opened.receiver.shared.id());
        let error = match judge_at_once(opened, kind, print) {
            Ok(receiver) => return Ok(receiver),
            Err(error) => error,
        };
        if let AcceptError::Mismatch { reason: RefusalReason::KindMismatch, .. } = error {
            return Err(error);
        }
        let described = poll_fn(|context| self.poll_described(&link, id, context));
        let sender = clock::within(runtime, DESCRIPTION_DEADLINE, described).await.flatten();
        Err(with_sender(error, sender))
    }

    fn poll_take(
        &self,
        name: &str,
        from: Option<&Arc<LinkShared>>,
        context: &mut Context<'_>,
    ) -> Poll<Result<Opened, AcceptError>> {
        let mut table = locked(&self.table);
        let node = from.map(|link| link.peer.incarnation);
        if let Some(opened) = table.held.take(name, from) {
            return Poll::Ready(Ok(opened));
        }
        if table.closed {
            return Poll::Ready(Err(AcceptError::Closed));
        }
        if table.runtime_gone {
            return Poll::Ready(Err(AcceptError::RuntimeGone));
        }
        if let Some(error) = from.and_then(|link| link.ended())
            && !table.links.iter().any(|it| from.is_some_and(|from| it.peer.is_as(&from.peer)))
        {
            return Poll::Ready(Err(AcceptError::Lost { channel: name.to_owned(), error }));
        }
        table.held.wait(name, node, context.waker());
        Poll::Pending
    }

    fn poll_described(
        &self,
        link: &Arc<LinkShared>,
        channel: u32,
        context: &mut Context<'_>,
    ) -> Poll<Option<String>> {
        let mut table = locked(&self.table);
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

/// An `accept` that waits for an open of this name.
struct Wanted<'a> {
    table: &'a AcceptTable,
    name: &'a str,
    /// The node whose opens alone it takes.
    from: Option<u128>,
}

impl Drop for Wanted<'_> {
    fn drop(&mut self) {
        locked(&self.table.table).held.want_no_more(self.name, self.from);
    }
}

impl Drop for AcceptTable {
    /// Warns of losses that no call has reported: the node and all its links are gone.
    fn drop(&mut self) {
        let table = self.table.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(untold) = table.losses.untold() {
            self.warnings.say_unheard(&untold);
        }
    }
}

/// Returns the receiver of a taken channel if its kind and type fit; else refuses the channel. The error does not
/// name the sender's type.
pub(super) fn judge_at_once(
    opened: Opened,
    kind: ChannelKind,
    print: &Fingerprint,
) -> Result<RxEnd, AcceptError> {
    if opened.kind != kind {
        return Err(refuse(opened, Refusal::KindMismatch, RefusalReason::KindMismatch));
    }
    if opened.fingerprint == print.hash {
        return Ok(opened.receiver);
    }
    let (sender, receiver) = ("unknown".to_owned(), print.text.clone());
    let reason = RefusalReason::TypeMismatch { sender, receiver };
    Err(refuse(opened, Refusal::TypeMismatch, reason))
}

fn refuse(opened: Opened, refusal: Refusal, reason: RefusalReason) -> AcceptError {
    let Opened { receiver, .. } = opened;
    let text = match &reason {
        RefusalReason::TypeMismatch { receiver, .. } => receiver.clone(),
        _ => String::new(),
    };
    receiver.link.command(Command::Refuse { id: receiver.shared.id(), refusal, text });
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
