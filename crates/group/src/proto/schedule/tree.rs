//! Trees over the ranks of a group, each of which reduces towards its root.
//!
//! All but the chain have two floors: a tree over the hosts, between one *leader* a host, and one over
//! the places of each host. So of a tree over `h` hosts exactly `h - 1` edges cross hosts. The leader of
//! the root's host is the root, of others their first place.
//!
//! A node combines its children in the order of the visits. The result covers neighbouring items:
//!
//! ```text
//! binomial, 8 items, root 2          binary, 7 items, root 3
//!   0  1  2  3  4  5  6  7             0  1  2  3  4  5  6
//!   └◀─┘  └◀─┘  └◀─┘  └◀─┘             └─▶┴◀─┘     └─▶┴◀─┘
//!   └────▶┘     └◀────┘                   └────▶┴◀────┘
//!         └◀────┘
//! ```

use super::world::Line;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Chain,
    Binomial,
    Binary,
}

/// A tree of all places, with its root.
#[derive(Clone, Copy)]
pub(super) struct Tree<'a> {
    pub(super) shape: Shape,
    pub(super) line: &'a Line,
    pub(super) root: usize,
    /// Children below a node are lower places, children above it higher ones. A chain's root is then
    /// its last place.
    pub(super) ordered: bool,
}

impl Tree<'_> {
    /// Visits the children of `place`, in the order in which they are combined, and returns its parent.
    pub(super) fn relatives(&self, place: usize, mut child: impl FnMut(usize)) -> Option<usize> {
        let host = self.line.host(place);
        if self.shape == Shape::Chain {
            return self.chain(host, place, child);
        }
        let leader = |host| {
            let members = self.line.members(host);
            if members.contains(&self.root) { self.root } else { members.start }
        };
        let members = self.line.members(host);
        let (first, head) = (members.start, leader(host));
        let parent =
            self.floor(members.len(), head - first, place - first, |item| child(first + item));
        if place != head {
            return parent.map(|item| first + item);
        }
        let root = self.line.host(self.root);
        self.floor(self.line.host_count(), root, host, |host| child(leader(host))).map(leader)
    }

    fn floor(
        &self,
        count: usize,
        root: usize,
        item: usize,
        child: impl FnMut(usize),
    ) -> Option<usize> {
        match self.shape {
            Shape::Binary => binary(count, root, item, self.ordered, child),
            _ => binomial(count, root, item, child),
        }
    }

    /// The hosts one after another, the root's last; a host's places likewise, and the root the last.
    fn chain(&self, host: usize, place: usize, mut child: impl FnMut(usize)) -> Option<usize> {
        let (line, hosts) = (self.line, self.line.host_count());
        let exit = |host| {
            let members = line.members(host);
            if members.contains(&self.root) { self.root } else { members.end - 1 }
        };
        let after = |host, place: usize| {
            let members = line.members(host);
            if place + 1 == members.end { members.start } else { place + 1 }
        };
        let members = line.members(host);
        let previous = (host + hosts - 1) % hosts;
        if place != after(host, exit(host)) {
            child(if place == members.start { members.end } else { place } - 1);
        } else if previous != line.host(self.root) {
            child(exit(previous));
        }
        let next = (host + 1) % hosts;
        match place {
            _ if place == self.root => None,
            _ if place == exit(host) => Some(after(next, exit(next))),
            _ => Some(after(host, place)),
        }
    }
}

/// Blocks of 1, 2, 4 .. items; in each round two neighbours become one, and the head of one of them the
/// child of the other's. The root heads its block, the first item every other one.
fn binomial(count: usize, root: usize, item: usize, mut child: impl FnMut(usize)) -> Option<usize> {
    let head = |start: usize, len| if (start..start + len).contains(&root) { root } else { start };
    let mut len = 1;
    while len < count {
        let both = head(item / (2 * len) * (2 * len), 2 * len);
        if both != item {
            return Some(both);
        }
        let neighbour = ((item / len) ^ 1) * len;
        if neighbour < count {
            child(head(neighbour, len));
        }
        len *= 2;
    }
    None
}

/// Each subtree's root is its middle. The root's own place is turned into the middle unless `ordered`.
fn binary(
    count: usize,
    root: usize,
    item: usize,
    ordered: bool,
    mut child: impl FnMut(usize),
) -> Option<usize> {
    let turn = if ordered { 0 } else { (count + count / 2 - root) % count };
    let back = |turned: usize| (turned + count - turn) % count;
    let (mut node, item) = ((root + turn) % count, (item + turn) % count);
    let (mut low, mut high, mut parent) = (0, count, None);
    while node != item {
        parent = Some(back(node));
        if item < node {
            high = node;
        } else {
            low = node + 1;
        }
        node = usize::midpoint(low, high);
    }
    for (low, high) in [(low, node), (node + 1, high)] {
        if low < high {
            child(back(usize::midpoint(low, high)));
        }
    }
    parent
}
