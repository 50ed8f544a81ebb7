//! Cycles of waits: nodes that wait in a ring for each other to receive.
//!
//! Edge chasing after K. M. Chandy, J. Misra and L. M. Haas, "Distributed deadlock detection",
//! ACM TOCS 1(2), 1983, section 4. A node that waits sends a word to the node it waits for. A
//! node that gets a word and waits itself passes the word on along its own waits. A word that
//! comes back to its origin shows a cycle.
//!
//! Two things differ. The word carries the chain of waits along which it went ([`chain`]), so
//! that the cycle can be named. And a node does not pass words on at once but by the clock,
//! together with those heard meanwhile: each node sends a bounded amount a second, however much
//! it hears.
//!
//! A chain that comes back once shows that each of its waits was there at some time. A second
//! one with the same waits, begun after the first was back, shows more. If no wait has sent a
//! byte since, all of them were there at one time: the moment when the first came back. Only
//! then is the cycle reported, for as long as it comes back again and again.
//!
//! [`Board`] is shared by the links of one node. Order of calls: a link [`joins`](Board::join);
//! while one of its channels waits for credit it [`looks`](Board::look) once in [`LOOK`] and
//! sends the returned chains; [`Board::heard`] for each chain that its peer sends;
//! [`Board::leave`] at its end.

pub mod chain;

pub use chain::{CHAIN_BYTES_MAX, HOPS_MAX, Hop, hops, is_chain};

use super::Time;
use super::plain::{Plain, cut};
use super::sorted::SortedMap;
use chain::HOP_NAME_BYTES_MAX;
use std::time::Duration;

/// Time between two looks of a link while a channel waits for credit. A wait that two looks in
/// a row find is reported to the peer. A shorter time would report receivers that are only
/// slow.
pub const LOOK: Duration = Duration::from_secs(1);

/// Time for which a heard chain counts: a look of the peer's may be late, and one may be lost
/// with its connection.
pub const HEARD_FOR: Duration = Duration::from_millis(3_500);

/// Time for which a chain that came back is remembered. Where waits lead around on several
/// ways, words come back by a different one each time.
pub const KNOWN_FOR: Duration = Duration::from_secs(30);

/// Chains of others that a node keeps and passes on, one for each node where they begin.
pub const CHAINS_MAX: usize = 16;

/// Most channels of a link whose waits are reported, those that have waited longest.
pub const CHANNELS_MAX: usize = 4;

/// Most chains that came back and that a node keeps.
pub const CYCLES_MAX: usize = 16;

/// A channel that has something to send and no credit for it.
#[derive(Debug, Clone, Copy)]
pub struct Blocked<'a> {
    /// The channel's number.
    pub channel: u32,
    /// Bytes that the channel has sent.
    pub position: u64,
    /// The channel's name.
    pub name: &'a str,
}

/// Word that a link sends to its peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// Number of the word, counted where the chain begins: a later one is higher.
    pub number: u64,
    /// The chain of waits; the last one is for the peer.
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
    /// Our count when the chain first came back: a word with a higher number began later.
    first: u64,
    /// Whether the chain came back with a higher number.
    confirmed: bool,
}

/// The waits of one node, and the waits of others that it heard of.
#[derive(Debug)]
pub struct Board {
    node: u64,
    name: String,
    links: u64,
    /// Number of looks so far.
    number: u64,
    waits: SortedMap<u64, SortedMap<u32, Wait>>,
    /// Chains by the node where they begin.
    heard: SortedMap<u64, Heard>,
    cycles: Vec<Cycle>,
}

impl Board {
    /// Creates the board of the node `node` with `name`.
    #[must_use]
    pub fn new(node: u64, name: &str) -> Board {
        Board {
            node,
            name: cut(name, HOP_NAME_BYTES_MAX).to_owned(),
            links: 0,
            number: 0,
            waits: SortedMap::new(),
            heard: SortedMap::new(),
            cycles: Vec::new(),
        }
    }

    /// Adds a link; returns its number.
    pub fn join(&mut self) -> u64 {
        self.links += 1;
        self.links
    }

    /// Removes `link`, which has ended.
    pub fn leave(&mut self, link: u64) {
        self.waits.remove(&link);
    }

    /// Notes the channels of `link` that wait for `peer`; returns the words to send to `peer`.
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
            // A chain that went through the peer tells it nothing new; one that began there is
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
        let waits: SortedMap<u32, Wait> = blocked
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

    /// Drops chains and cycles that do not count any more.
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

    /// Handles a word of a peer that waits for this node at the end of the chain: no task here
    /// takes its messages. Returns the cycle in words if there is one that was not reported
    /// before.
    pub fn heard(&mut self, told: Told, now: Time) -> Option<String> {
        self.forget(now);
        if self.waits.is_empty() {
            // A node that waits for no other is in no cycle.
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
            // The way by which the first word came is the one that counts.
            Some(heard) if heard.told.number >= told.number => {}
            Some(heard) => *heard = Heard { told, at: now },
            None if has_room => {
                self.heard.insert(origin, Heard { told, at: now });
            }
            None => {}
        }
    }

    fn came_back(&mut self, told: Told, now: Time) -> Option<String> {
        // A node that waits only for itself may just have a slow receiver. And no word was sent
        // with a number that is still to come.
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

    /// Keeps `cycle`, if need be in the place of the one that has not come back for longest.
    fn note_cycle(&mut self, cycle: Cycle) {
        if self.cycles.len() >= CYCLES_MAX {
            let others = self.cycles.iter().enumerate().filter(|(_, it)| !it.is_live(cycle.at));
            let Some((oldest, _)) = others.min_by_key(|(_, it)| it.at) else { return };
            self.cycles.remove(oldest);
        }
        self.cycles.push(cycle);
    }

    /// Returns the cycles that this node is in, in words.
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
    /// Whether the cycle was there as a whole, and came back not long ago.
    fn is_live(&self, now: Time) -> bool {
        self.confirmed && now <= self.at.after(HEARD_FOR)
    }
}

impl Wait {
    fn lasts(&self, now: Time) -> bool {
        now >= self.since.after(LOOK)
    }
}

/// Whether the wait that a chain began with is still there.
fn waits_at(waits: &SortedMap<u64, SortedMap<u32, Wait>>, hop: &Hop<'_>) -> bool {
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
        let (node, peer) = (Plain(hop.node_name), Plain(next.node_name));
        format!("{node} waits for {peer} on channel {:?}", hop.channel_name)
    });
    waits.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests;
