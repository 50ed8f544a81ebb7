//! The links of a node, and the watchers of their changes.

use crate::driver::clock;
use crate::driver::ending::LostChannel;
use crate::driver::mail::{Beginning, LinkShared};
use crate::driver::wakers::Wakers;
use crate::error::{LinkError, Unacknowledged};
use crate::proto::Time;
use crate::proto::sorted::{SortedMap, SortedSet};
use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// Most changes that wait for one watcher: 1024. Beyond that the oldest gives way. They take about
/// 50 KiB, beside the accounts of ended sessions. With 500 links a switch that restarts makes
/// 1000 changes.
const CHANGES_MAX: usize = 1024;

/// A change of a link's state.
#[derive(Clone)]
pub(super) enum Change {
    Connected,
    CutOff(LinkError),
    Resumed { attempt: u32, after: Duration },
    Ended { error: LinkError, unacknowledged: Arc<[Unacknowledged]> },
}

/// The next news for a watcher.
pub(super) enum News {
    Of(Arc<LinkShared>, Change),
    /// Number of changes that gave way.
    Missed(u64),
}

struct Known {
    link: Arc<LinkShared>,
    /// While there is no connection.
    cut_off: Option<CutOff>,
}

impl Known {
    /// Whether it is a live session with the node of this incarnation.
    fn is_with(&self, node: u128) -> bool {
        let link = &self.link;
        link.peer.incarnation == node && !is_local(link) && link.ended().is_none()
    }
}

struct CutOff {
    /// The error that broke the connection.
    error: LinkError,
    since: Time,
    /// Memory that the session's end would free, in bytes; 0 if this node began the session.
    bytes: u64,
}

struct Watcher {
    id: u64,
    changes: VecDeque<(Arc<LinkShared>, Change)>,
    missed: u64,
}

#[derive(Default)]
pub(super) struct Links {
    known: Vec<Known>,
    /// Memory of all sessions that are cut off and that peers began, in bytes.
    cut_off_bytes: u64,
    watchers: Vec<Watcher>,
    watchers_ever: u64,
    /// Nodes that this one dials for the only session.
    dialling: SortedSet<u128>,
    /// Number of dials for the only session that this node has agreed to, by dialler.
    agreed: SortedMap<u128, usize>,
    waiting: Wakers,
}

impl Links {
    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<LinkShared>> {
        self.known.iter().map(|known| &known.link)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// Returns the number of sessions that peers began.
    pub(super) fn begun_by_peers(&self) -> usize {
        self.iter().filter(|link| is_accepted(link)).count()
    }

    /// Returns the session that has been cut off for longest, of those that peers began. Returns
    /// it only once, since it is about to end.
    pub(super) fn take_longest_cut_off(&mut self) -> Option<&Arc<LinkShared>> {
        let accepted = self.known.iter_mut().filter(|known| is_accepted(&known.link));
        let cut_off = accepted.filter_map(|it| Some((it.cut_off.as_ref()?.since, it)));
        let (_, longest) = cut_off.min_by_key(|(since, _)| *since)?;
        self.cut_off_bytes -= longest.cut_off.take().map_or(0, |it| it.bytes);
        Some(&longest.link)
    }

    /// Takes sessions as [`Links::take_longest_cut_off`] does until the others hold at most
    /// `bytes_max`. The last one stays.
    pub(super) fn take_beyond(&mut self, bytes_max: u64) -> Vec<Arc<LinkShared>> {
        let mut taken = Vec::new();
        let counts = |it: &&Known| it.cut_off.as_ref().is_some_and(|it| it.bytes > 0);
        while self.cut_off_bytes > bytes_max && self.known.iter().filter(counts).count() > 1 {
            let Some(link) = self.take_longest_cut_off() else { break };
            taken.push(Arc::clone(link));
        }
        taken
    }

    /// Returns the sessions that are cut off and whose peers, each the only node of its name, have a
    /// later session under another incarnation. Looks only at those with the name of `link`.
    pub(super) fn succeeded(&self, link: &LinkShared) -> Vec<Arc<LinkShared>> {
        if !link.peer.sole_name {
            return Vec::new();
        }
        let of_name = |it: &&Known| it.link.peer.sole_name && it.link.peer.name == link.peer.name;
        let Some(last) = self.known.iter().rev().find(of_name) else { return Vec::new() };
        let last = last.link.peer.incarnation;
        let before = self.known.iter().filter(of_name);
        let before = before.filter(|it| it.cut_off.is_some() && it.link.peer.incarnation != last);
        before.map(|it| Arc::clone(&it.link)).collect()
    }

    /// Returns the session that node `own`, which has these links, and `node` prefer: one that is
    /// connected, then one that the smaller incarnation began, then the one of the smallest number.
    pub(super) fn preferred(&self, own: u128, node: u128) -> Option<&Arc<LinkShared>> {
        let its = self.known.iter().filter(|known| known.is_with(node));
        let preferred = its.min_by_key(|Known { link, cut_off }| {
            let larger_began = is_accepted(link) == (own < node);
            (cut_off.is_some(), larger_began, link.peer.session)
        });
        preferred.map(|known| &known.link)
    }

    /// Begins a dial for the only session with `node`; false if one begins already.
    pub(super) fn dials(&mut self, node: u128) -> bool {
        !self.agreed.contains_key(&node) && self.dialling.insert(node)
    }

    /// Decides about a dial of `node` for the only session with node `own`, which has these links.
    pub(super) fn agrees(&mut self, own: u128, node: u128) -> bool {
        let is_session = |known: &Known| known.is_with(node) && known.cut_off.is_none();
        if self.known.iter().any(is_session) || own < node && self.dialling.contains(&node) {
            return false;
        }
        *self.agreed.get_or_insert(node, 0) += 1;
        true
    }

    /// Ends a dial that began, or an agreement; returns the wakers of the tasks that wait for it.
    pub(super) fn claim_ends(&mut self, node: u128, is_dial: bool) -> Wakers {
        if is_dial {
            self.dialling.remove(&node);
        } else if let Some(count) = self.agreed.get_mut(&node) {
            *count -= 1;
            if *count == 0 {
                self.agreed.remove(&node);
            }
        }
        self.waiting.take()
    }

    /// Waits for a change.
    pub(super) fn wait<T>(&mut self, context: &Context<'_>) -> Poll<T> {
        self.waiting.add(context.waker());
        Poll::Pending
    }

    /// Takes the wakers of the tasks that wait for news; the caller wakes them without the lock.
    pub(super) fn take_waiting(&mut self) -> Wakers {
        self.waiting.take()
    }

    pub(super) fn add(&mut self, link: &Arc<LinkShared>) -> Wakers {
        self.known.push(Known { link: Arc::clone(link), cut_off: None });
        self.tell(link, &Change::Connected)
    }

    pub(super) fn cut_off(
        &mut self,
        link: &Arc<LinkShared>,
        error: &LinkError,
        bytes: u64,
    ) -> Wakers {
        let bytes = if is_accepted(link) { bytes } else { 0 };
        if let Some(known) = self.find(link) {
            let cut_off = CutOff { error: error.clone(), since: clock::now(), bytes };
            let before = known.cut_off.replace(cut_off).map_or(0, |it| it.bytes);
            self.cut_off_bytes = self.cut_off_bytes + bytes - before;
        }
        self.tell(link, &Change::CutOff(error.clone()))
    }

    pub(super) fn resumed(&mut self, link: &Arc<LinkShared>, attempt: u32) -> Wakers {
        let cut_off = self.find(link).and_then(|known| known.cut_off.take());
        self.cut_off_bytes -= cut_off.as_ref().map_or(0, |it| it.bytes);
        let after = cut_off.map_or(0, |it| clock::now().micros_since(it.since));
        self.tell(link, &Change::Resumed { attempt, after: Duration::from_micros(after) })
    }

    pub(super) fn remove(
        &mut self,
        link: &Arc<LinkShared>,
        error: &LinkError,
        lost: &[LostChannel],
    ) -> Wakers {
        let cut_off = self.find(link).and_then(|known| known.cut_off.take());
        self.cut_off_bytes -= cut_off.map_or(0, |it| it.bytes);
        self.known.retain(|known| !Arc::ptr_eq(&known.link, link));
        let unacknowledged = lost.iter().map(|it| it.left.clone()).collect();
        self.tell(link, &Change::Ended { error: error.clone(), unacknowledged })
    }

    /// Waits for a session with a peer of this name; returns the newest of several.
    pub(super) fn poll_named(
        &mut self,
        name: &str,
        context: &mut Context<'_>,
    ) -> Poll<Arc<LinkShared>> {
        let is_it = |link: &&Arc<LinkShared>| {
            link.peer.name == name && link.ended().is_none() && !is_local(link)
        };
        if let Some(known) = self.known.iter().rev().map(|known| &known.link).find(is_it) {
            return Poll::Ready(Arc::clone(known));
        }
        self.wait(context)
    }

    fn find(&mut self, link: &Arc<LinkShared>) -> Option<&mut Known> {
        self.known.iter_mut().find(|known| Arc::ptr_eq(&known.link, link))
    }

    fn tell(&mut self, link: &Arc<LinkShared>, change: &Change) -> Wakers {
        if is_local(link) {
            return Wakers::default();
        }
        for watcher in &mut self.watchers {
            if watcher.changes.len() >= CHANGES_MAX {
                watcher.changes.pop_front();
                watcher.missed += 1;
            }
            watcher.changes.push_back((Arc::clone(link), change.clone()));
        }
        self.waiting.take()
    }

    /// Adds a watcher, whose first news are the existing links; returns its number.
    pub(super) fn watch(&mut self) -> u64 {
        self.watchers_ever += 1;
        let mut changes = VecDeque::new();
        for Known { link, cut_off } in self.known.iter().filter(|known| !is_local(&known.link)) {
            changes.push_back((Arc::clone(link), Change::Connected));
            if let Some(CutOff { error, .. }) = cut_off {
                changes.push_back((Arc::clone(link), Change::CutOff(error.clone())));
            }
        }
        self.watchers.push(Watcher { id: self.watchers_ever, changes, missed: 0 });
        self.watchers_ever
    }

    pub(super) fn unwatch(&mut self, id: u64) {
        self.watchers.retain(|watcher| watcher.id != id);
    }

    /// Returns the next news for a watcher; `None` when the node is `closed` and has no link left.
    pub(super) fn poll_news(
        &mut self,
        id: u64,
        closed: bool,
        context: &mut Context<'_>,
    ) -> Poll<Option<News>> {
        let Some(watcher) = self.watchers.iter_mut().find(|it| it.id == id) else {
            return Poll::Ready(None);
        };
        if watcher.missed > 0 {
            return Poll::Ready(Some(News::Missed(std::mem::take(&mut watcher.missed))));
        }
        if let Some((link, change)) = watcher.changes.pop_front() {
            return Poll::Ready(Some(News::Of(link, change)));
        }
        if closed && self.known.is_empty() {
            return Poll::Ready(None);
        }
        self.wait(context)
    }
}

/// Returns whether the peer began the session.
fn is_accepted(link: &LinkShared) -> bool {
    matches!(link.peer.beginning, Beginning::Accepted(_))
}

/// Returns whether the link leads to the node itself.
fn is_local(link: &LinkShared) -> bool {
    matches!(link.peer.beginning, Beginning::Local)
}
