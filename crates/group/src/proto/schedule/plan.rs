//! The algorithms, each as the steps of one rank among at least two.

use std::ops::Range;

use super::tree::{Shape, Tree};
use super::world::Line;
use super::{Kind, Of, ReceiveStep, SendStep, Step, Take};

/// The steps of a rank, while they are made.
pub(super) struct Plan<'a> {
    pub(super) size: usize,
    pub(super) line: &'a Line,
    pub(super) ordered: bool,
    pub(super) rank: usize,
    pub(super) out: &'a mut Vec<Step>,
}

impl Plan<'_> {
    fn all(&self) -> Range<usize> {
        0..self.size
    }

    fn send(&mut self, to: usize, blocks: Range<usize>, of: Of) {
        self.step(Some(SendStep { to, blocks, of }), None);
    }

    fn receive(&mut self, from: usize, blocks: Range<usize>, take: Take) {
        self.step(None, Some(ReceiveStep { from, blocks, take }));
    }

    fn step(&mut self, send: Option<SendStep>, receive: Option<ReceiveStep>) {
        self.out.push(Step { send, receive });
    }

    pub(super) fn reduce(&mut self, shape: Shape, root: usize) {
        // An ordered chain is the fold from rank 0, whose last rank hands the result to the root.
        let last = self.size - 1;
        let hands_over = shape == Shape::Chain && self.ordered && root != last;
        self.tree(shape, if hands_over { last } else { root });
        if hands_over && self.rank == last {
            self.send(root, self.all(), Of::Result);
        } else if hands_over && self.rank == root {
            self.receive(last, self.all(), Take::Place);
        }
    }

    /// Reduces towards the root.
    fn tree(&mut self, shape: Shape, root: usize) {
        let (line, place) = (self.line, self.line.place(self.rank));
        let tree = Tree { shape, line, root: line.place(root), ordered: self.ordered };
        let parent = tree.relatives(place, |child| {
            let take = if child < place { Take::Before } else { Take::After };
            self.receive(line.rank(child), self.all(), take);
        });
        if let Some(parent) = parent {
            self.send(line.rank(parent), self.all(), Of::Result);
        }
    }

    /// A reduction backwards.
    pub(super) fn broadcast(&mut self, shape: Shape, root: usize) {
        let start = self.out.len();
        self.tree(shape, root);
        self.out[start..].reverse();
        for step in &mut self.out[start..] {
            let Step { send, receive } = std::mem::take(step);
            let place =
                |SendStep { to, blocks, .. }| ReceiveStep { from: to, blocks, take: Take::Place };
            let pass =
                |ReceiveStep { from, blocks, .. }| SendStep { to: from, blocks, of: Of::Result };
            *step = Step { send: receive.map(pass), receive: send.map(place) };
        }
    }

    pub(super) fn chains(&mut self) {
        let last = self.line.rank(self.size - 1);
        self.reduce(Shape::Chain, last);
        self.broadcast(Shape::Chain, last);
    }

    /// Recursive doubling among a power of two of *actors*. Each of the first `extra` actors has an
    /// assistant one place below, which gives its operand and gets the result.
    pub(super) fn doubling(&mut self, kind: Kind) {
        let (line, size, place) = (self.line, self.size, self.line.place(self.rank));
        let actors = 1 << size.ilog2();
        let extra = size - actors;
        let blocks = |places: Range<usize>| match kind {
            Kind::Barrier => 0..0,
            Kind::AllGather => places,
            _ => 0..size,
        };
        let take = |take| if kind == Kind::AllReduce { take } else { Take::Place };
        let send = |to, places| Some(SendStep { to, blocks: blocks(places), of: Of::Result });
        let receive =
            |from, places, how| Some(ReceiveStep { from, blocks: blocks(places), take: take(how) });
        let assisted = place < 2 * extra;
        if assisted && place.is_multiple_of(2) {
            let (actor, blocks) = (line.rank(place + 1), blocks(0..size));
            let result = ReceiveStep { from: actor, blocks, take: Take::Place };
            return self.step(send(actor, place..place + 1), Some(result));
        }
        if assisted {
            let assistant = line.rank(place - 1);
            self.step(None, receive(assistant, place - 1..place, Take::Before));
        }
        let actor = if assisted { place / 2 } else { place - extra };
        let start = |actor: usize| actor + actor.min(extra);
        let mut len = 1;
        while len < actors {
            let peer = actor ^ len;
            let rank = line.rank(start(peer + 1) - 1);
            let [ours, theirs] = [actor, peer].map(|actor| actor / len * len);
            let how = if theirs < ours { Take::Before } else { Take::After };
            self.step(
                send(rank, start(ours)..start(ours + len)),
                receive(rank, start(theirs)..start(theirs + len), how),
            );
            len *= 2;
        }
        if assisted {
            self.step(send(line.rank(place - 1), 0..size), None);
        }
    }

    /// In each round a block goes one place on; a reduction's is complete after `size - 1` rounds.
    pub(super) fn ring(&mut self, kind: Kind) {
        let (line, size, place) = (self.line, self.size, self.line.place(self.rank));
        let (rounds, combining, offset) = match kind {
            Kind::AllReduce => (2 * (size - 1), size - 1, 0),
            Kind::ReduceScatter => (size - 1, size - 1, 1),
            _ => (size - 1, 0, 0),
        };
        let [next, previous] = [1, size - 1].map(|by| line.rank((place + by) % size));
        for round in 0..rounds {
            let block = |back| block(line.rank((place + 2 * size - offset - round - back) % size));
            let take = if round < combining { Take::Before } else { Take::Place };
            self.step(
                Some(SendStep { to: next, blocks: block(0), of: Of::Result }),
                Some(ReceiveStep { from: previous, blocks: block(1), take }),
            );
        }
    }

    /// The fold from rank 0, block by block; the last rank sends each rank its block.
    pub(super) fn scatter_chain(&mut self) {
        let last = self.size - 1;
        for owner in 0..self.size {
            if self.rank > 0 {
                self.receive(self.rank - 1, block(owner), Take::Before);
            }
            let to = if self.rank == last { owner } else { self.rank + 1 };
            if to != self.rank {
                self.send(to, block(owner), Of::Result);
            }
        }
        if self.rank != last {
            self.receive(last, block(self.rank), Take::Place);
        }
    }

    /// All send first: the order of the operands is not that of the rounds.
    pub(super) fn reduce_pairs(&mut self) {
        for by in 1..self.size {
            let to = (self.rank + by) % self.size;
            self.send(to, block(to), Of::Input);
        }
        for from in (0..self.rank).rev() {
            self.receive(from, block(self.rank), Take::Before);
        }
        for from in self.rank + 1..self.size {
            self.receive(from, block(self.rank), Take::After);
        }
    }

    pub(super) fn exchange_pairs(&mut self) {
        for by in 1..self.size {
            let [to, from] = [by, self.size - by].map(|by| (self.rank + by) % self.size);
            self.step(
                Some(SendStep { to, blocks: block(to), of: Of::Input }),
                Some(ReceiveStep { from, blocks: block(from), take: Take::Place }),
            );
        }
    }

    pub(super) fn gather(&mut self, root: usize) {
        if self.rank != root {
            return self.send(root, block(self.rank), Of::Input);
        }
        for by in 1..self.size {
            let from = (root + by) % self.size;
            self.receive(from, block(from), Take::Place);
        }
    }

    pub(super) fn scatter(&mut self, root: usize) {
        if self.rank != root {
            return self.receive(root, block(self.rank), Take::Place);
        }
        for by in 1..self.size {
            let to = (root + by) % self.size;
            self.send(to, block(to), Of::Input);
        }
    }

    /// After the round of `distance` a rank has combined the last `2 * distance` ranks, itself included.
    pub(super) fn scan(&mut self) {
        let mut distance = 1;
        while distance < self.size {
            let to = Some(self.rank + distance).filter(|to| *to < self.size);
            let from = self.rank.checked_sub(distance);
            let send = to.map(|to| SendStep { to, blocks: self.all(), of: Of::Result });
            let take = Take::Before;
            let receive = from.map(|from| ReceiveStep { from, blocks: self.all(), take });
            if send.is_some() || receive.is_some() {
                self.step(send, receive);
            }
            distance *= 2;
        }
    }

    pub(super) fn scan_chain(&mut self) {
        if self.rank > 0 {
            self.receive(self.rank - 1, self.all(), Take::Before);
        }
        if self.rank + 1 < self.size {
            self.send(self.rank + 1, self.all(), Of::Result);
        }
    }

    pub(super) fn dissemination(&mut self) {
        let mut distance = 1;
        while distance < self.size {
            let [to, from] =
                [distance, self.size - distance].map(|by| (self.rank + by) % self.size);
            self.step(
                Some(SendStep { to, blocks: 0..0, of: Of::Result }),
                Some(ReceiveStep { from, blocks: 0..0, take: Take::Place }),
            );
            distance *= 2;
        }
    }
}

fn block(of: usize) -> Range<usize> {
    of..of + 1
}
