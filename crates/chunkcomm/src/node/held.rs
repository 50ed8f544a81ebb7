//! Channels that peers opened and nobody accepted yet, and the rule by which one gives way when
//! there are too many. The first row that applies counts.
//!
//! | an open comes, and | then it |
//! |---|---|
//! | an `accept` waits for its name | is held beyond any bound, and taken at once |
//! | its link would have less than its reserve left | is refused |
//! | the node holds less than its bound | is held |
//! | an open of a session that has ended is held | is held; that other open is let go |
//! | another link holds at least two more | is held; the last of the link with most is refused |
//! | none of these applies | is refused |
//!
//! A link's share is thus the node's bound divided by the number of links that hold any, whatever
//! the other links open.

use crate::driver::events::Opened;
use crate::driver::mail::LinkShared;
use crate::driver::wakers::Wakers;
use crate::proto::limits::{HELD_OPENS_NODE_MAX, OPEN_RESERVE_DIVISOR};
use crate::proto::sorted::SortedMap;
use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;

/// Opens that wait for an `accept`, and names that an `accept` waits for.
#[derive(Default)]
pub(super) struct Held {
    /// The opens by name, in an order that is the same in each run.
    by_name: SortedMap<String, VecDeque<Opened>>,
    count: usize,
    /// Calls that wait in `accept`, by name and by the node whose opens they take; `None` for those
    /// that take any.
    wanted: SortedMap<String, SortedMap<Option<u128>, Calls>>,
}

/// Calls that wait for the same opens.
#[derive(Default)]
struct Calls {
    count: usize,
    wakers: Wakers,
}

impl Held {
    /// Holds `opened` behind all others of its name; returns the open that gave way, which the
    /// caller refuses. The link of `opened` may open `left` more.
    ///
    /// # Errors
    ///
    /// There is no room for `opened`: the caller refuses it.
    pub(super) fn hold(
        &mut self,
        opened: Opened,
        left: u64,
    ) -> Result<Option<Opened>, Box<Opened>> {
        let name = opened.receiver.shared.name.to_string();
        let link = &opened.receiver.link;
        let mut gave_way = None;
        if !self.is_wanted(&name, link.peer.incarnation, 0) {
            if !self.leaves_reserve(link, left) {
                return Err(Box::new(opened));
            }
            if self.count >= HELD_OPENS_NODE_MAX {
                gave_way = self.make_room(link);
                if gave_way.is_none() {
                    return Err(Box::new(opened));
                }
            }
        }
        self.by_name.get_or_insert(name, VecDeque::new()).push_back(opened);
        self.count += 1;
        Ok(gave_way)
    }

    /// Holds `opened` again, before all others of its name.
    pub(super) fn give_back(&mut self, opened: Opened) {
        let name = opened.receiver.shared.name.to_string();
        self.by_name.get_or_insert(name, VecDeque::new()).push_front(opened);
        self.count += 1;
    }

    /// Takes the oldest open of `name`, of the node of this link alone where one is given.
    pub(super) fn take(&mut self, name: &str, from: Option<&Arc<LinkShared>>) -> Option<Opened> {
        let opens = self.by_name.get_mut(name)?;
        let is_its =
            |opened: &Opened| from.is_none_or(|link| opened.receiver.link.peer.is_as(&link.peer));
        let opened = opens.iter().position(is_its).and_then(|at| opens.remove(at))?;
        if opens.is_empty() {
            self.by_name.remove(name);
        }
        self.count -= 1;
        Some(opened)
    }

    /// Takes all opens of `name`.
    pub(super) fn take_all(&mut self, name: &str) -> VecDeque<Opened> {
        let opens = self.by_name.remove(name).unwrap_or_default();
        self.count -= opens.len();
        opens
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Opened> {
        self.by_name.values().flatten()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Opened> {
        self.by_name.values_mut().flatten()
    }

    /// Takes all opens.
    pub(super) fn clear(&mut self) -> SortedMap<String, VecDeque<Opened>> {
        self.count = 0;
        std::mem::take(&mut self.by_name)
    }

    /// Counts one more call that waits for an open of `name`, of this node alone where one is given.
    pub(super) fn want(&mut self, name: &str, from: Option<u128>) {
        let wanted = self.wanted.get_or_insert(name.to_owned(), SortedMap::new());
        wanted.get_or_insert(from, Calls::default()).count += 1;
    }

    /// Counts one fewer such call.
    pub(super) fn want_no_more(&mut self, name: &str, from: Option<u128>) {
        let Some(wanted) = self.wanted.get_mut(name) else { return };
        if let Some(calls) = wanted.get_mut(&from) {
            calls.count -= 1;
        }
        wanted.retain(|_, calls| calls.count > 0);
        if wanted.is_empty() {
            self.wanted.remove(name);
        }
    }

    /// Lets such a call, which is counted, wait.
    pub(super) fn wait(&mut self, name: &str, from: Option<u128>, waker: &Waker) {
        if let Some(calls) = self.wanted.get_mut(name).and_then(|wanted| wanted.get_mut(&from)) {
            calls.wakers.add(waker);
        }
    }

    /// Takes the wakers of the calls that an open of `name` by this node is for.
    pub(super) fn take_waiting(&mut self, name: &str, node: u128) -> Wakers {
        let mut waiting = Wakers::default();
        let Some(wanted) = self.wanted.get_mut(name) else { return waiting };
        for from in [None, Some(node)] {
            if let Some(calls) = wanted.get_mut(&from) {
                waiting.append(calls.wakers.take());
            }
        }
        waiting
    }

    /// Takes the wakers of all calls.
    pub(super) fn take_all_waiting(&mut self) -> Wakers {
        let mut waiting = Wakers::default();
        for calls in self.wanted.values_mut().flat_map(SortedMap::values_mut) {
            waiting.append(calls.wakers.take());
        }
        waiting
    }

    /// Returns whether more calls wait for opens of `name` by this node than are held for them, not
    /// counting `beside` of the held ones.
    fn is_wanted(&self, name: &str, node: u128, beside: usize) -> bool {
        let Some(wanted) = self.wanted.get(name) else { return false };
        let calls = |from| wanted.get(&from).map_or(0, |calls: &Calls| calls.count);
        let (of_any, of_its) = (calls(None), calls(Some(node)));
        let is_for_them = |opened: &&Opened| of_any > 0 || incarnation(opened) == node;
        let held = self.by_name.get(name).into_iter().flatten().filter(is_for_them).count();
        of_any + of_its + beside > held
    }

    /// Returns whether the `left` opens of `link` are at least its reserve, with one more held.
    fn leaves_reserve(&self, link: &Arc<LinkShared>, left: u64) -> bool {
        let enough = |held: usize| left >= (held as u64 + 1 + left) / OPEN_RESERVE_DIVISOR;
        let is_its = |opened: &&Opened| Arc::ptr_eq(&opened.receiver.link, link);
        enough(self.count) || enough(self.by_name.values().flatten().filter(is_its).count())
    }

    /// Takes the open that gives way to one of `link`.
    fn make_room(&mut self, link: &Arc<LinkShared>) -> Option<Opened> {
        let mut counts = SortedMap::<*const LinkShared, usize>::new();
        let mut ended = None;
        for opened in self.by_name.values().flatten() {
            let link = &opened.receiver.link;
            let count = counts.get_or_insert(Arc::as_ptr(link), 0);
            // Asked once for each session, at the first of its opens.
            if *count == 0 && ended.is_none() && link.ended().is_some() {
                ended = Some(Arc::as_ptr(link));
            }
            *count += 1;
        }
        let least = counts.get(&Arc::as_ptr(link)).map_or(0, |own| own + 2);
        let (from, _) = match ended {
            Some(ended) => (ended, 0),
            None => counts
                .into_iter()
                .filter(|(_, count)| *count >= least)
                .max_by_key(|(_, count)| *count)?,
        };
        self.take_last_of(from)
    }

    /// Takes the last open of this link that no `accept` is about to take.
    fn take_last_of(&mut self, link: *const LinkShared) -> Option<Opened> {
        let is_its = |opened: &Opened| Arc::as_ptr(&opened.receiver.link) == link;
        let number = |opened: &Opened| opened.receiver.shared.id();
        let held = &*self;
        let its = held.by_name.iter().flat_map(|(name, opens)| {
            let is_free = move |opened: &Opened| !held.is_wanted(name, incarnation(opened), 1);
            let its = opens.iter().enumerate();
            let its = its.filter(move |(_, opened)| is_its(opened) && is_free(opened));
            its.map(move |(at, opened)| (number(opened), name, at))
        });
        let (_, name, at) = its.max_by_key(|(number, ..)| *number)?;
        let name = name.clone();
        let opens = self.by_name.get_mut(&name)?;
        let opened = opens.remove(at)?;
        if opens.is_empty() {
            self.by_name.remove(&name);
        }
        self.count -= 1;
        Some(opened)
    }
}

/// Returns the incarnation of the node that opened.
pub(super) fn incarnation(opened: &Opened) -> u128 {
    opened.receiver.link.peer.incarnation
}
