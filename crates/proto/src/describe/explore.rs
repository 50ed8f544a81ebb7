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
//!
//! Each value that a pass makes up is compared with its bytes (`written.rs`). When nothing is left
//! to find out, further passes make values up by the alternatives that no such value had, in the
//! same way.

mod search;

use std::any::type_name;
use std::collections::HashMap;

use serde::Serialize;

use super::super::codec::encode_into_vec;
use super::graph::{Form, Graph, Id, Kind, Node};
use super::written;
use search::Search;

/// Number of passes after which the properties of the whole graph are found anew. It costs about
/// as much as ten passes in a wide type. A change meanwhile costs a vain pass at most.
const PASSES_BETWEEN: u32 = 16;

/// Number of vain tries of an alternative before it is given up.
const TRIES_MAX: u32 = 4;

/// Most passes to find something out, and as many to compare. A pass usually sees at least one
/// variant of an enum.
const PASSES_MAX: u32 = 4096;

/// Calls of one pass that may be answered by something unknown; after that the pass only comes
/// to an end.
const STEPS_MAX: u32 = 10_000;

/// Most calls within each other that one pass answers.
const DEPTH_MAX: usize = 128;

/// Identity of a node. The names of types are unique enough within one process. Nodes that they
/// tell apart needlessly are merged later; the names are not part of the description.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    kind: Kind,
    visitor: &'static str,
    value: &'static str,
}

impl Key {
    pub(super) fn of<V, T>(kind: Kind) -> Key {
        Key { kind, visitor: type_name::<V>(), value: type_name::<T>() }
    }
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

    /// Whether everything is found out, and the passes make up what was not compared yet.
    comparing: bool,
    /// Whether the type panicked over the writing of a value: no further one is compared.
    is_incomparable: bool,
    misreading: Option<String>,

    /// By node, when it was last found: whether something unknown lies at or behind it.
    open: Vec<bool>,
    /// By node, when it was last found: number of levels within which it can come to an end.
    height: Vec<Option<u32>>,
    /// Whether the two above may be too old for the next pass.
    outdated: bool,
    search: Search,

    /// This field and all below are about the present pass.
    stack: Vec<Frame>,
    steps: u32,
    found: bool,
    stopped: bool,
    /// The alternative that stopped the pass; it waits for a node, or was refused (`None`).
    blamed: Option<(Frame, Option<Id>)>,
    curious: Vec<Frame>,
    /// Alternatives that answered, with their nodes.
    picked: Vec<(Id, usize)>,
    /// The bytes of the answers.
    answered: Vec<u8>,
    /// The bytes of the made-up value.
    written: Vec<u8>,
}

impl Explorer {
    /// Prepares a pass. False when there is nothing left to find out or to compare.
    pub(super) fn begin_pass(&mut self) -> bool {
        // A root that never asks for anything is known after one pass.
        if self.root.is_none() && self.passes > 0 {
            return false;
        }
        if self.outdated || self.passes.is_multiple_of(PASSES_BETWEEN) {
            self.look_at_all();
        }
        // After a pass that found something there is one more.
        let is_known = !self.found && !self.is_open() || self.passes >= PASSES_MAX;
        if is_known || self.comparing && self.is_incomparable {
            if self.comparing || self.is_incomparable {
                return false;
            }
            self.comparing = true;
            self.passes = 0;
            for one in self.nodes.iter_mut().flat_map(|node| &mut node.alternatives) {
                one.tries = 0;
            }
            self.look_at_all();
            if !self.is_open() {
                return false;
            }
        }
        self.passes += 1;
        self.stack.clear();
        self.curious.clear();
        self.picked.clear();
        self.answered.clear();
        (self.steps, self.found, self.stopped, self.blamed) = (0, false, false, None);
        true
    }

    /// Finds out about the graph as a whole.
    fn look_at_all(&mut self) {
        self.find_heights();
        self.end_waits();
        self.find_open();
        self.outdated = false;
    }

    /// Returns whether another pass may learn something.
    fn is_open(&mut self) -> bool {
        let Some(root) = self.root else { return true };
        if !self.leads_on_from(root) {
            // A node that an alternative waited for may be known to end.
            self.look_at_all();
            return self.leads_on_from(root);
        }
        true
    }

    /// Notes how the pass ended, and the alternatives to blame when it found nothing.
    pub(super) fn end_pass(&mut self, made_up: bool) {
        self.outdated |= !made_up || !self.found;
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
                let is_enough = alternative.tries >= TRIES_MAX;
                match self.comparing {
                    false => alternative.given_up |= is_enough,
                    true => alternative.is_compared |= is_enough,
                }
            }
        }
    }

    /// Compares a value that the pass made up with the answers that made it.
    pub(super) fn compare<T: Serialize>(&mut self, value: &T) {
        // A type that passes over an error has seen less than it asked for.
        if self.stopped || self.is_incomparable {
            return;
        }
        self.written.clear();
        // A value that cannot be written cannot be misread.
        let Ok(_) = encode_into_vec(value, &mut self.written) else { return };
        if self.written != self.answered {
            let Some(root) = self.root.filter(|_| self.comparing) else { return };
            match written::walk(value, &self.nodes, root) {
                Ok(()) => {}
                Err(written::Stop::Misread(reason)) => {
                    self.misreading.get_or_insert(reason);
                }
                Err(written::Stop::Unknown) => return,
            }
        }
        for &(id, alternative) in &self.picked {
            let one = &mut self.nodes[id].alternatives[alternative];
            self.found |= self.comparing && !one.is_compared;
            one.is_compared = true;
        }
    }

    /// Notes an answer.
    pub(super) fn answered<A: Serialize>(&mut self, answer: &A) {
        encode_into_vec(answer, &mut self.answered).expect("answers are numbers and texts");
    }

    /// Notes that the type panicked over what was made up so far.
    pub(super) fn panicked(&mut self) {
        match self.stack.last().copied() {
            Some(frame) => self.refused(frame.id, frame.alternative),
            None => self.round = self.round.wrapping_add(1),
        }
    }

    /// Notes that the type panicked when a value was written. It may do so for each one, and each
    /// panic is printed.
    pub(super) fn ends_comparing(&mut self) {
        self.is_incomparable = true;
    }

    /// Whether the pass is over and every further call must fail.
    pub(super) fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// Returns the node of this call, which fills `slot`.
    pub(super) fn enter(&mut self, slot: Slot, key: Key, answers: u32) -> Id {
        let next = self.nodes.len();
        let id = *self.ids.entry(key).or_insert(next);
        if id == next {
            self.nodes.push(Node::new(key.kind, answers));
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

    /// Returns the node and the answer of this call for a leaf, which fills `slot`; `None` once the
    /// pass is stopped.
    pub(super) fn begin_leaf(&mut self, slot: Slot, key: Key, answers: u32) -> Option<(Id, u32)> {
        if self.stopped {
            return None;
        }
        let id = self.enter(slot, key, answers);
        Some((id, self.answer(id)?))
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
        self.nodes[id].picked = unknown.unwrap_or(self.nodes[id].picked);
        self.stack.push(frame);
        self.picked.push((id, alternative));
        match self.nodes[id].kind {
            Kind::Option => self.answered(&(alternative == 0)),
            Kind::Seq | Kind::Map => self.answered(&u64::from(alternative == 0)),
            Kind::Enum(..) => self.answered(&(alternative as u32)),
            _ => {}
        }
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
        let Explorer { nodes, root, varies, misreading, .. } = self;
        Graph { nodes, root, varies, misreading }
    }

    fn stop(&mut self, at: Id) {
        if !self.stopped {
            self.stopped = true;
            let innermost = self.stack.iter().rev().find(|frame| frame.curious);
            self.blamed = innermost.map(|frame| (*frame, Some(at)));
        }
    }
}
