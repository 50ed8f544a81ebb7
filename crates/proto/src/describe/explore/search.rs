//! Properties of the graph as far as it is known: where something is unknown, and what comes to an
//! end.

use super::super::graph::{Alternative, Id, Node};
use super::{Explorer, Frame};

/// A search through the graph: the nodes seen by it, and those that lie ahead.
#[derive(Debug, Default)]
pub(super) struct Search {
    /// By node, the number of the last search that saw it.
    seen: Vec<u32>,
    number: u32,
    ahead: Vec<Id>,
}

impl Search {
    fn begin(&mut self, nodes: usize, stack: &[Frame]) {
        self.seen.resize(nodes, 0);
        self.number += 1;
        for frame in stack {
            self.seen[frame.id] = self.number;
        }
    }

    /// Returns whether the node was not seen before.
    fn see(&mut self, id: Id) -> bool {
        std::mem::replace(&mut self.seen[id], self.number) != self.number
    }
}

impl Explorer {
    fn is_unknown(&self, one: &Alternative) -> bool {
        if self.comparing { !one.is_compared } else { !one.is_done() }
    }

    /// Returns the alternative to learn from: something at or behind it is unknown.
    pub(super) fn least_tried(&mut self, id: Id) -> Option<usize> {
        if !self.may_be_open(id) {
            return None;
        }
        let mut search = std::mem::take(&mut self.search);
        search.begin(self.nodes.len(), &self.stack);
        let mut least: Option<(u32, usize)> = None;
        if search.see(id) {
            let alternatives = &self.nodes[id].alternatives;
            // First the one that was picked last: more of it may be unknown, and is found soon.
            let last = self.nodes[id].picked;
            for index in (last..alternatives.len()).chain(0..last) {
                let one = &alternatives[index];
                if one.is_out() || least.is_some_and(|(tries, _)| tries <= one.tries) {
                    continue;
                }
                // A search in vain leaves its nodes seen: they lead nowhere.
                if self.leads_on(one, &mut search) {
                    least = Some((one.tries, index));
                    search.begin(self.nodes.len(), &self.stack);
                    search.see(id);
                }
            }
        }
        self.search = search;
        least.map(|(_, index)| index)
    }

    /// Whether something at or behind the node is unknown.
    pub(super) fn leads_on_from(&mut self, id: Id) -> bool {
        let mut search = std::mem::take(&mut self.search);
        search.begin(self.nodes.len(), &[]);
        search.see(id);
        let mut alternatives = self.nodes[id].alternatives.iter();
        let leads_on = alternatives.any(|one| !one.is_out() && self.leads_on(one, &mut search));
        self.search = search;
        leads_on
    }

    /// Whether something at or behind `one` is unknown, without passing through nodes that the
    /// search has seen.
    fn leads_on(&self, one: &Alternative, search: &mut Search) -> bool {
        if self.is_unknown(one) {
            return true;
        }
        search.ahead.clear();
        search.ahead.extend(&one.children);
        while let Some(id) = search.ahead.pop() {
            if !self.may_be_open(id) || !search.see(id) {
                continue;
            }
            for one in self.nodes[id].alternatives.iter().filter(|one| !one.is_out()) {
                if self.is_unknown(one) {
                    return true;
                }
                search.ahead.extend(&one.children);
            }
        }
        false
    }

    /// Whether something may be unknown behind the node; false when nothing was at the
    /// beginning of the pass.
    fn may_be_open(&self, id: Id) -> bool {
        self.open.get(id).copied().unwrap_or(true)
    }

    /// Returns the alternative that comes to an end soonest.
    pub(super) fn lowest(&self, id: Id) -> Option<usize> {
        let alternatives = self.nodes[id].alternatives.iter().enumerate();
        alternatives
            .filter_map(|(index, one)| Some((self.height_of(one)?, index)))
            .min()
            .map(|(_, index)| index)
    }

    fn height_of(&self, one: &Alternative) -> Option<u32> {
        if one.given_up || !one.is_done() {
            return None;
        }
        let mut height = 0;
        for child in &one.children {
            height = height.max(self.height.get(*child).copied().flatten()? + 1);
        }
        Some(height)
    }

    pub(super) fn end_waits(&mut self) {
        for node in &mut self.nodes {
            for one in &mut node.alternatives {
                one.waits_for = one.waits_for.filter(|id| self.height[*id].is_none());
            }
        }
    }

    pub(super) fn find_open(&mut self) {
        let is_unknown = |one: &Alternative| !one.is_out() && self.is_unknown(one);
        self.open =
            self.nodes.iter().map(|node| node.alternatives.iter().any(is_unknown)).collect();
        loop {
            let mut changed = false;
            for (id, node) in self.nodes.iter().enumerate().rev() {
                let leads_on = |one: &Alternative| {
                    !one.is_out() && one.children.iter().any(|child| self.open[*child])
                };
                if !self.open[id] && node.alternatives.iter().any(leads_on) {
                    self.open[id] = true;
                    changed = true;
                }
            }
            if !changed {
                return;
            }
        }
    }

    pub(super) fn find_heights(&mut self) {
        let of_leaf = |node: &Node| node.answer(0).map(|_| 0);
        self.height = self.nodes.iter().map(of_leaf).collect();
        loop {
            let mut changed = false;
            for id in (0..self.nodes.len()).rev() {
                let alternatives = &self.nodes[id].alternatives;
                let height = alternatives.iter().filter_map(|one| self.height_of(one)).min();
                if height.is_some() && height != self.height[id] {
                    self.height[id] = height;
                    changed = true;
                }
            }
            if !changed {
                return;
            }
        }
    }
}
