//! Ways between hosts: over a link, over one segment, or over several that bridges join.

use super::wires::{Attachment, Wires};
use super::{HostId, LinkSpec};
use std::collections::{BTreeMap, VecDeque};

/// The way over one link or segment.
#[derive(Debug, Clone, Copy)]
pub(super) struct Leg {
    /// The interface that puts frames on its wire.
    pub(super) interface: usize,
    /// Over a switch with a limit: the port that all frames pass.
    pub(super) fabric: Option<usize>,
    /// Over a switch: the port to the receiver.
    pub(super) port: Option<usize>,
    pub(super) spec: LinkSpec,
}

/// The way of bytes from one end to the other.
#[derive(Debug, Clone, Copy)]
pub(super) struct Way {
    /// The first leg, from the sender.
    pub(super) leg: Leg,
    /// The properties of the whole way: latencies added, the smallest frame and window, the rest
    /// as on the first leg.
    pub(super) spec: LinkSpec,
    /// Over bridges: the number of the route behind the first leg.
    pub(super) route: Option<usize>,
}

/// A bridge's relay, and the leg from there.
#[derive(Debug, Clone, Copy)]
pub(super) struct Hop {
    pub(super) relay: usize,
    pub(super) leg: Leg,
}

/// The ways over bridges that were asked for.
#[derive(Debug, Default)]
pub(super) struct Known {
    ways: BTreeMap<(HostId, HostId), Way>,
    /// Hops of each route. Existing connections keep theirs.
    routes: Vec<Vec<Hop>>,
}

impl Known {
    /// Forgets the ways, since there are more segments or bridges.
    pub(super) fn forget(&mut self) {
        self.ways.clear();
    }

    pub(super) fn hops(&self, route: usize) -> &[Hop] {
        &self.routes[route]
    }
}

/// A bridge on a path: its number, and the number of its place (0 or 1) where the path enters it.
type Crossing = (usize, usize);

impl Wires {
    /// Returns the way between two hosts: their link, else the first segment that both are attached
    /// to, else the way over the fewest bridges. Both directions are of one kind.
    pub(super) fn way(&mut self, from: HostId, to: HostId) -> Option<Way> {
        if let Some(way) = self.links.get(&(from, to)) {
            return Some(*way);
        }
        if let Some(way) = self.way_over_one_segment(from, to) {
            return Some(way);
        }
        if let Some(way) = self.ways.ways.get(&(from, to)) {
            return Some(*way);
        }
        let way = self.way_over_bridges(from, to)?;
        self.ways.ways.insert((from, to), way);
        Some(way)
    }

    fn way_over_one_segment(&self, from: HostId, to: HostId) -> Option<Way> {
        // Attachments are in the order in which the segments were added.
        self.attachments[from.index()].iter().find_map(|ours| {
            let theirs = self.place(to, ours.segment)?;
            let leg = self.leg(ours, &theirs);
            Some(Way { leg, spec: leg.spec, route: None })
        })
    }

    fn place(&self, host: HostId, segment: usize) -> Option<Attachment> {
        self.attachments[host.index()].iter().find(|it| it.segment == segment).copied()
    }

    /// Returns the leg between two places on one segment.
    fn leg(&self, from: &Attachment, to: &Attachment) -> Leg {
        debug_assert_eq!(from.segment, to.segment);
        let segment = &self.segments[from.segment];
        Leg {
            interface: from.interface,
            fabric: segment.fabric(),
            port: to.port,
            spec: segment.spec,
        }
    }

    fn way_over_bridges(&mut self, from: HostId, to: HostId) -> Option<Way> {
        // One search for both directions, so that they cross the same bridges.
        let path = if from < to {
            self.path(from, to)?
        } else {
            let mut path = self.path(to, from)?;
            path.reverse();
            path.into_iter().map(|(bridge, entry)| (bridge, 1 - entry)).collect()
        };
        let entries = path.iter().map(|(bridge, entry)| self.bridges[*bridge][*entry]);
        let last = path.last().map(|(bridge, entry)| self.bridges[*bridge][1 - *entry])?;
        let ends: Vec<_> = entries.chain(self.place(to, last.segment)).collect();
        let first = self.place(from, ends[0].segment)?;
        let leg = self.leg(&first, &ends[0]);
        let mut hops = Vec::new();
        for ((bridge, entry), end) in path.iter().zip(&ends[1..]) {
            let exit = self.bridges[*bridge][1 - *entry];
            hops.push(Hop { relay: bridge * 2 + entry, leg: self.leg(&exit, end) });
        }
        let spec = self.spec_over(leg.spec, &hops);
        for hop in &hops {
            self.relays[hop.relay].expect_frames(spec.frame_bytes);
        }
        self.ways.routes.push(hops);
        Some(Way { leg, spec, route: Some(self.ways.routes.len() - 1) })
    }

    fn spec_over(&self, first: LinkSpec, hops: &[Hop]) -> LinkSpec {
        let mut spec = first;
        for Hop { relay, leg } in hops {
            let bridge = self.relays[*relay].spec();
            spec.latency = spec.latency.saturating_add(bridge.delay);
            spec.latency = spec.latency.saturating_add(leg.spec.latency);
            spec.jitter = spec.jitter.saturating_add(leg.spec.jitter);
            spec.frame_bytes = spec.frame_bytes.min(leg.spec.frame_bytes).min(bridge.queue_bytes);
            spec.window_bytes = spec.window_bytes.min(leg.spec.window_bytes);
        }
        spec
    }

    /// Returns the bridges of a shortest path, found breadth first; bridges and segments that were
    /// added earlier go before others.
    fn path(&self, from: HostId, to: HostId) -> Option<Vec<Crossing>> {
        let mut came: BTreeMap<usize, Option<Crossing>> = BTreeMap::new();
        let mut next: VecDeque<usize> = VecDeque::new();
        for place in &self.attachments[from.index()] {
            came.entry(place.segment).or_insert(None);
            next.push_back(place.segment);
        }
        while let Some(segment) = next.pop_front() {
            if self.place(to, segment).is_some() {
                return Some(self.path_to(segment, &came));
            }
            for (bridge, places) in self.bridges.iter().enumerate() {
                let Some(entry) = places.iter().position(|it| it.segment == segment) else {
                    continue;
                };
                let beyond = places[1 - entry].segment;
                came.entry(beyond).or_insert_with(|| {
                    next.push_back(beyond);
                    Some((bridge, entry))
                });
            }
        }
        None
    }

    /// Walks back from a segment over the bridges by which the search came.
    fn path_to(&self, segment: usize, came: &BTreeMap<usize, Option<Crossing>>) -> Vec<Crossing> {
        let (mut path, mut at) = (Vec::new(), segment);
        while let Some(Some((bridge, entry))) = came.get(&at) {
            path.push((*bridge, *entry));
            at = self.bridges[*bridge][*entry].segment;
        }
        path.reverse();
        path
    }
}
