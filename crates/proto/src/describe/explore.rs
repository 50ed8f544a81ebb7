//! The choice of the next question to a type.
//!
//! A pass answers the calls from the root on. At each node it picks an alternative:
//!
//! 1. one that leads to something unknown without passing through a node that is being answered
//!    further up, least tried first;
//! 2. otherwise one that comes to an end soonest, by what is known;
//! 3. if none is known to end, the pass is stopped by an error. Everything noted until then stays.
//!
//! So a list first runs into itself and stops; the next pass answers that place by `None` and
//! sees the parts behind it.
//!
//! There is an end, because every pass finds something or rules something out. When a pass was
//! stopped, the innermost alternative that was picked for something unknown behind it waits. It
//! waits until the node that stopped the pass is known to end. When a type refused a made-up
//! answer, the alternative is tried [`TRIES_MAX`] times with other numbers and then given up.

use std::any::type_name;
use std::collections::{HashMap, HashSet};

use super::graph::{Alternative, Form, Graph, Id, Kind, Node};

/// Number of vain tries of an alternative before it is given up.
const TRIES_MAX: u32 = 4;

/// Most passes in all. A pass usually sees at least one variant of an enum.
const PASSES_MAX: u32 = 4096;

/// Calls of one pass that may be answered by something unknown; after that the pass only comes
/// to an end.
const STEPS_MAX: u32 = 10_000;

/// Most calls within each other that one pass answers.
const DEPTH_MAX: usize = 128;

/// Identity of a node. The names of types are unique enough within one process. Nodes that they
/// tell apart needlessly are merged later; the names are not part of the description.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    kind: Kind,
    visitor: &'static str,
    value: &'static str,
}

/// A place that a node fills: a child of an alternative, or the root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Slot {
    Root,
    Child { parent: Id, alternative: usize, index: usize },
}

/// An alternative that is being answered.
#[derive(Clone, Copy, Debug)]
struct Frame {
    id: Id,
    alternative: usize,
    /// Whether it was picked because something behind it is unknown.
    curious: bool,
}

/// The graph as far as known, and the state of the present pass.
#[derive(Debug, Default)]
pub(super) struct Explorer {
    nodes: Vec<Node>,
    ids: HashMap<Key, Id>,
    root: Option<Id>,
    /// Whether two calls in one place asked for different things.
    varies: bool,
    /// Shifts the answers of leaves after something larger was refused.
    round: u32,
    passes: u32,

    /// By node, at the beginning of the pass: whether something unknown lies at or behind it.
    open: Vec<bool>,
    /// By node, at the beginning of the pass: number of levels within which it can come to an
    /// end.
    height: Vec<Option<u32>>,

    /// This field and all below are about the present pass.
    stack: Vec<Frame>,
    steps: u32,
    found: bool,
    stopped: bool,
    /// The alternative that stopped the pass; it waits for a node, or was refused (`None`).
    blamed: Option<(Frame, Option<Id>)>,
    curious: Vec<Frame>,
}

impl Explorer {
    /// Prepares a pass. False when there is nothing left to find out.
    pub(super) fn begin_pass(&mut self) -> bool {
        self.find_heights();
        self.end_waits();
        self.find_open();
        let is_open = self.root.is_none_or(|root| self.open[root]);
        if !is_open || self.passes == PASSES_MAX {
            return false;
        }
        // A root that never asks for anything is known after one pass.
        if self.root.is_none() && self.passes > 0 {
            return false;
        }
        self.passes += 1;
        self.stack.clear();
        self.curious.clear();
        (self.steps, self.found, self.stopped, self.blamed) = (0, false, false, None);
        true
    }

    /// Notes how the pass ended, and the alternatives to blame when it found nothing.
    pub(super) fn end_pass(&mut self, made_up: bool) {
        if self.found {
            return;
        }
        let blamed = match self.blamed {
            Some(blamed) if !made_up => vec![blamed],
            // The unknown things that it was curious about did not come up.
            _ => self.curious.iter().map(|frame| (*frame, None)).collect(),
        };
        for (frame, waits_for) in blamed {
            let alternative = &mut self.nodes[frame.id].alternatives[frame.alternative];
            alternative.waits_for = waits_for;
            if waits_for.is_none() {
                alternative.tries += 1;
                alternative.given_up |= alternative.tries >= TRIES_MAX;
            }
        }
    }

    /// Whether the pass is over and every further call must fail.
    pub(super) fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// Returns the node of this call, which fills `slot`.
    pub(super) fn enter<V, T>(&mut self, slot: Slot, kind: Kind, answers: u32) -> Id {
        let key = Key { kind, visitor: type_name::<V>(), value: type_name::<T>() };
        let next = self.nodes.len();
        let id = *self.ids.entry(key).or_insert(next);
        if id == next {
            self.nodes.push(Node::new(kind, answers));
        }
        match slot {
            Slot::Root => {
                self.varies |= self.root.is_some_and(|root| root != id);
                self.root = Some(self.root.unwrap_or(id));
            }
            Slot::Child { parent, alternative, index } => {
                let children = &mut self.nodes[parent].alternatives[alternative].children;
                match children.get(index) {
                    Some(known) => self.varies |= *known != id,
                    None => {
                        children.push(id);
                        self.found = true;
                    }
                }
            }
        }
        id
    }

    /// Whether the child in this place has asked for anything yet.
    pub(super) fn is_known(&self, slot: Slot) -> bool {
        match slot {
            Slot::Root => self.root.is_some(),
            Slot::Child { parent, alternative, index } => {
                index < self.nodes[parent].alternatives[alternative].children.len()
            }
        }
    }

    /// Picks the answer to a leaf, or stops the pass.
    pub(super) fn answer(&mut self, id: Id) -> Option<u32> {
        let answer = self.nodes[id].answer(self.round);
        if answer.is_none() {
            self.stop(id);
        }
        answer
    }

    /// Notes that a leaf's visitor refused the answer.
    pub(super) fn turned_down(&mut self, id: Id, answer: u32) {
        self.nodes[id].turned_down |= 1 << answer;
        self.found = true;
        self.stop(id);
    }

    /// Picks the alternative by which to answer a node, or stops the pass.
    pub(super) fn pick(&mut self, id: Id) -> Option<usize> {
        self.steps += 1;
        let may_explore = self.steps < STEPS_MAX && self.stack.len() < DEPTH_MAX;
        let unknown = if may_explore { self.least_tried(id) } else { None };
        let Some(alternative) = unknown.or_else(|| self.lowest(id)) else {
            self.stop(id);
            return None;
        };
        let frame = Frame { id, alternative, curious: unknown.is_some() };
        self.stack.push(frame);
        if frame.curious {
            self.curious.push(frame);
        }
        Some(alternative)
    }

    /// Ends the answer to a node: its visitor has its value, or not.
    pub(super) fn leave(&mut self, made_up: bool) {
        let frame = self.stack.pop().expect("every leave follows a pick");
        if made_up {
            // The visitor may have asked for less than it could.
            let alternative = &mut self.nodes[frame.id].alternatives[frame.alternative];
            if !alternative.is_done() {
                alternative.arity = Some(alternative.children.len());
                self.found = true;
            }
        } else {
            self.refused(frame.id, frame.alternative);
        }
    }

    /// Notes that the type refused the answer made up for this alternative, unless the pass was
    /// stopped before.
    pub(super) fn refused(&mut self, id: Id, alternative: usize) {
        if self.stopped {
            return;
        }
        self.stopped = true;
        self.round = self.round.wrapping_add(1);
        self.blamed = Some((Frame { id, alternative, curious: false }, None));
        let alternative = &mut self.nodes[id].alternatives[alternative];
        // Without parts there is nothing else to try.
        if alternative.arity == Some(0) && !alternative.given_up {
            alternative.given_up = true;
            self.found = true;
        }
    }

    /// Notes the form of a variant.
    pub(super) fn has_form(&mut self, id: Id, alternative: usize, form: Form) {
        let alternative = &mut self.nodes[id].alternatives[alternative];
        match alternative.form {
            Some(known) => self.varies |= known != form,
            None => {
                alternative.form = Some(form);
                alternative.arity = Some(form.arity());
                self.found = true;
            }
        }
    }

    pub(super) fn into_graph(self) -> Graph {
        Graph { nodes: self.nodes, root: self.root, varies: self.varies }
    }

    fn stop(&mut self, at: Id) {
        if !self.stopped {
            self.stopped = true;
            let innermost = self.stack.iter().rev().find(|frame| frame.curious);
            self.blamed = innermost.map(|frame| (*frame, Some(at)));
        }
    }

    /// Returns the alternative to learn from: something at or behind it is unknown.
    fn least_tried(&self, id: Id) -> Option<usize> {
        if !self.may_be_open(id) {
            return None;
        }
        let mut seen: HashSet<Id> = self.stack.iter().map(|frame| frame.id).collect();
        if !seen.insert(id) {
            return None;
        }
        let alternatives = self.nodes[id].alternatives.iter().enumerate();
        alternatives
            .filter(|(_, one)| !one.is_out() && self.leads_on(one, &mut seen.clone()))
            .min_by_key(|(_, one)| one.tries)
            .map(|(index, _)| index)
    }

    /// Whether something at or behind `one` is unknown, without passing through nodes in
    /// `seen`.
    fn leads_on(&self, one: &Alternative, seen: &mut HashSet<Id>) -> bool {
        if !one.is_done() {
            return true;
        }
        let mut ahead: Vec<Id> = one.children.clone();
        while let Some(id) = ahead.pop() {
            if !self.may_be_open(id) || !seen.insert(id) {
                continue;
            }
            for one in self.nodes[id].alternatives.iter().filter(|one| !one.is_out()) {
                if !one.is_done() {
                    return true;
                }
                ahead.extend(&one.children);
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
    fn lowest(&self, id: Id) -> Option<usize> {
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

    fn end_waits(&mut self) {
        for node in &mut self.nodes {
            for one in &mut node.alternatives {
                one.waits_for = one.waits_for.filter(|id| self.height[*id].is_none());
            }
        }
    }

    fn find_open(&mut self) {
        let is_unknown = |one: &Alternative| !one.is_out() && !one.is_done();
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

    fn find_heights(&mut self) {
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
