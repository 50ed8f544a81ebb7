//! Cycles of waits: nodes that wait in a ring for each other to receive.
//!
//! Edge chasing after K. M. Chandy, J. Misra and L. M. Haas, "Distributed deadlock
//! detection", ACM TOCS 1(2), 1983, section 4: who waits tells whom it waits for;
//! who is told and waits itself passes that on along its own waits; what comes back
//! to where it began is a cycle. Two things differ. The word carries the chain of
//! waits that it went along ([`chain`]), so that the cycle can be named. And it is
//! passed on by the clock, with what was heard meanwhile, and not at once: each node
//! says a bounded amount a second, whatever it is told.
//!
//! A chain that comes back once says that each of its waits was there at some time.
//! A second one, begun after the first was back, with the same waits that have not
//! sent a byte since, says that all of them were there at one time: the moment when
//! the first came back. Only then is the cycle reported, for as long as it comes back
//! again and again.
//!
//! [`Board`] is what the links of one node have in common. Order of calls: a link
//! [`joins`](Board::join); while one of its channels waits for credit it
//! [`looks`](Board::look) once in [`LOOK`] and passes on what it gets;
//! [`Board::heard`] for what its peer says; [`Board::leave`] at its end.

pub mod chain;

pub use chain::{CHAIN_BYTES_MAX, HOPS_MAX, Hop, hops, is_chain};

use super::Time;
use super::packet::cut;
use chain::HOP_NAME_BYTES_MAX;
use std::collections::BTreeMap;
use std::time::Duration;

/// A link looks so often while a channel waits for credit; a wait that two looks in
/// a row find is spoken of. Less would report receivers that are only slow.
pub const LOOK: Duration = Duration::from_secs(1);

/// What was heard counts for so long: a look of the peer's may be late, and one lost
/// with its connection.
pub const HEARD_FOR: Duration = Duration::from_millis(3_500);

/// A chain that came back is known for so long: where waits lead around on several ways,
/// words come back now by the one and now by the other.
pub const KNOWN_FOR: Duration = Duration::from_secs(30);

/// Chains of others that a node keeps and passes on, one for each node where they begin.
pub const CHAINS_MAX: usize = 16;

/// Channels of a link that are spoken of, those that have waited longest.
pub const CHANNELS_MAX: usize = 4;

/// Chains that came back that a node keeps.
pub const CYCLES_MAX: usize = 16;

/// A channel that has something to send and no credit for it.
#[derive(Debug, Clone, Copy)]
pub struct Blocked<'a> {
    /// Its number.
    pub channel: u32,
    /// Bytes that it has sent.
    pub position: u64,
    /// Its name.
    pub name: &'a str,
}

/// What a link is to tell its peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// Counted where the chain begins: a later one is higher.
    pub number: u64,
    /// The waits; the last is for the peer.
    pub chain: Vec<u8>,
}

#[derive(Debug)]
struct Wait {
    position: u64,
    name: String,
    since: Time,
}

#[derive(Debug)]
struct Heard {
    told: Told,
    at: Time,
}

/// A chain that came back.
#[derive(Debug)]
struct Cycle {
    told: Told,
    at: Time,
    /// Our count when it came back first: a number above began later.
    first: u64,
    /// It came back with such a number.
    confirmed: bool,
}

/// The waits of one node, and what it heard of those of others.
#[derive(Debug)]
pub struct Board {
    node: u64,
    name: String,
    links: u64,
    /// Counts looks.
    number: u64,
    waits: BTreeMap<u64, BTreeMap<u32, Wait>>,
    /// By the node where they begin.
    heard: BTreeMap<u64, Heard>,
    cycles: Vec<Cycle>,
}

impl Board {
    /// Of the node that is called `name`.
    #[must_use]
    pub fn new(node: u64, name: &str) -> Board {
        Board {
            node,
            name: cut(name, HOP_NAME_BYTES_MAX).to_owned(),
            links: 0,
            number: 0,
            waits: BTreeMap::new(),
            heard: BTreeMap::new(),
            cycles: Vec::new(),
        }
    }

    /// One more link; says its number.
    pub fn join(&mut self) -> u64 {
        self.links += 1;
        self.links
    }

    /// `link` has ended.
    pub fn leave(&mut self, link: u64) {
        self.waits.remove(&link);
    }

    /// These channels of `link` wait for `peer`; says what to tell it.
    pub fn look<'a>(
        &mut self,
        link: u64,
        peer: u64,
        blocked: impl Iterator<Item = Blocked<'a>>,
        now: Time,
    ) -> Vec<Told> {
        self.number += 1;
        self.note_waits(link, blocked, now);
        self.forget(now);
        let Some(waits) = self.waits.get(&link) else { return Vec::new() };
        let mut longest: Vec<_> = waits.iter().filter(|(_, wait)| wait.lasts(now)).collect();
        longest.sort_by_key(|(_, wait)| wait.since);
        longest.truncate(CHANNELS_MAX);
        let mut told = Vec::new();
        for (channel, wait) in longest {
            let own = Told { number: self.number, chain: Vec::new() };
            // What went through the peer says nothing new to it; what began there is
            // a cycle.
            let others = self.heard.values().map(|heard| &heard.told).filter(|told| {
                let mut behind = hops(&told.chain).skip(1);
                behind.all(|hop| hop.node != peer) && hops(&told.chain).count() < HOPS_MAX
            });
            for before in std::iter::once(&own).chain(others) {
                let mut chain = before.chain.clone();
                self.hop(*channel, wait).append_to(&mut chain);
                told.push(Told { number: before.number, chain });
            }
        }
        told
    }

    fn note_waits<'a>(&mut self, link: u64, blocked: impl Iterator<Item = Blocked<'a>>, now: Time) {
        let before = self.waits.remove(&link).unwrap_or_default();
        let waits: BTreeMap<u32, Wait> = blocked
            .map(|it| {
                let known = before.get(&it.channel).filter(|wait| wait.position == it.position);
                let name = cut(it.name, HOP_NAME_BYTES_MAX).to_owned();
                let since = known.map_or(now, |wait| wait.since);
                (it.channel, Wait { position: it.position, name, since })
            })
            .collect();
        if !waits.is_empty() {
            self.waits.insert(link, waits);
        }
    }

    fn hop<'a>(&'a self, channel: u32, wait: &'a Wait) -> Hop<'a> {
        Hop {
            node: self.node,
            channel,
            position: wait.position,
            node_name: &self.name,
            channel_name: &wait.name,
        }
    }

    /// Drops what does not count any more.
    fn forget(&mut self, now: Time) {
        let is_late = |at: Time| now > at.after(HEARD_FOR);
        let waits = std::mem::take(&mut self.waits);
        let nobody_waits = waits.is_empty();
        self.heard.retain(|_, heard| !nobody_waits && !is_late(heard.at));
        self.cycles.retain(|cycle| {
            let first = hops(&cycle.told.chain).next();
            now <= cycle.at.after(KNOWN_FOR) && first.is_some_and(|hop| waits_at(&waits, &hop))
        });
        self.waits = waits;
    }

    /// A peer told that it waits for this node at the end of `chain`, and nobody here
    /// takes what it sends. Says the cycle in words if that is one, and was not
    /// reported before.
    pub fn heard(&mut self, told: Told, now: Time) -> Option<String> {
        self.forget(now);
        if self.waits.is_empty() {
            // Who waits for nobody is in no cycle.
            return None;
        }
        let origin = hops(&told.chain).next()?.node;
        if origin == self.node {
            return self.came_back(told, now);
        }
        if hops(&told.chain).all(|hop| hop.node != self.node) {
            self.note_heard(origin, told, now);
        }
        None
    }

    fn note_heard(&mut self, origin: u64, told: Told, now: Time) {
        let has_room = self.heard.len() < CHAINS_MAX;
        match self.heard.get_mut(&origin) {
            // Whichever way the first came is gone on with.
            Some(heard) if heard.told.number >= told.number => {}
            Some(heard) => *heard = Heard { told, at: now },
            None if has_room => {
                self.heard.insert(origin, Heard { told, at: now });
            }
            None => {}
        }
    }

    fn came_back(&mut self, told: Told, now: Time) -> Option<String> {
        // A node that waits for itself alone is one whose receiver is slow, for all
        // that can be known; and nothing was told with a number that is to come.
        let too_short = hops(&told.chain).count() < 2;
        if too_short || told.number > self.number {
            return None;
        }
        let first = hops(&told.chain).next()?;
        if !waits_at(&self.waits, &first) {
            return None;
        }
        let index = self.cycles.iter().position(|cycle| cycle.told.chain == told.chain);
        let Some(cycle) = index.and_then(|index| self.cycles.get_mut(index)) else {
            self.note_cycle(Cycle { told, at: now, first: self.number, confirmed: false });
            return None;
        };
        if told.number <= cycle.told.number {
            return None;
        }
        let is_news = !cycle.is_live(now);
        cycle.at = now;
        cycle.told.number = told.number;
        cycle.confirmed |= told.number > cycle.first;
        if !is_news || !cycle.confirmed {
            return None;
        }
        // The same nodes may wait on several channels each.
        let mut live = self.cycles.iter().filter(|it| it.is_live(now));
        let known = live.any(|it| it.told.chain != told.chain && same_nodes(it, &told.chain));
        (!known).then(|| in_words(&told.chain))
    }

    /// In the place of the one that has not come back for longest, if need be.
    fn note_cycle(&mut self, cycle: Cycle) {
        if self.cycles.len() >= CYCLES_MAX {
            let others = self.cycles.iter().enumerate().filter(|(_, it)| !it.is_live(cycle.at));
            let Some((oldest, _)) = others.min_by_key(|(_, it)| it.at) else { return };
            self.cycles.remove(oldest);
        }
        self.cycles.push(cycle);
    }

    /// The cycles that this node is in, in words.
    #[must_use]
    pub fn cycles(&mut self, now: Time) -> Vec<String> {
        self.forget(now);
        let mut named: Vec<&Cycle> = Vec::new();
        for cycle in self.cycles.iter().filter(|cycle| cycle.is_live(now)) {
            if !named.iter().any(|it| same_nodes(it, &cycle.told.chain)) {
                named.push(cycle);
            }
        }
        named.iter().map(|cycle| in_words(&cycle.told.chain)).collect()
    }
}

impl Cycle {
    /// It was there as a whole, and came back not long ago.
    fn is_live(&self, now: Time) -> bool {
        self.confirmed && now <= self.at.after(HEARD_FOR)
    }
}

impl Wait {
    fn lasts(&self, now: Time) -> bool {
        now >= self.since.after(LOOK)
    }
}

/// The wait that a chain began with is still there.
fn waits_at(waits: &BTreeMap<u64, BTreeMap<u32, Wait>>, hop: &Hop<'_>) -> bool {
    let mut of_links = waits.values().filter_map(|waits| waits.get(&hop.channel));
    of_links.any(|wait| wait.position == hop.position)
}

fn same_nodes(cycle: &Cycle, chain: &[u8]) -> bool {
    let nodes = |chain| hops(chain).map(|hop| hop.node);
    nodes(&cycle.told.chain).eq(nodes(chain))
}

fn in_words(chain: &[u8]) -> String {
    let next = hops(chain).skip(1).chain(hops(chain).take(1));
    let waits = hops(chain).zip(next).map(|(hop, next)| {
        format!("{} waits for {} on channel {:?}", hop.node_name, next.node_name, hop.channel_name)
    });
    waits.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests;
