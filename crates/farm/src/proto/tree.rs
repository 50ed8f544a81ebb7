//! Places of the nodes in a tree of farms: groups, each with a sub-farmer at its head.
//!
//! ```text
//!               farmer
//!        ┌────────┼────────┐
//!       head     head     head        sub-farmers: they work too
//!      ┌─┼─┐    ┌─┼─┐    ┌─┼─┐
//!      w w w    w w w    w w w        workers
//! ```
//!
//! A node takes the first group that has room, and is the head of a new group where none has. A
//! node whose head is gone is placed again in this way, in another group. If the other groups are
//! full, the first of these nodes is the next head.

use chunkcomm_proto::sorted::SortedMap;

/// Position of a node in the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Position {
    /// At the head of a group.
    Head,
    /// Below this head.
    Below(usize),
}

/// The rule by which nodes are placed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// Groups of this many nodes, the head among them.
    Size(usize),
    /// A group for each host.
    Host,
}

/// The groups of a farm.
#[derive(Clone, Debug)]
pub(crate) struct Tree {
    rule: Rule,
    places: SortedMap<usize, Position>,
    /// Heads that take nodes, with their hosts, in the order in which they came.
    heads: Vec<(usize, String)>,
}

impl Tree {
    pub(crate) fn new(rule: Rule) -> Tree {
        Tree { rule, places: SortedMap::new(), heads: Vec::new() }
    }

    /// Places a new node, by its index among the workers.
    pub(crate) fn place(&mut self, node: usize, host: &str) -> Position {
        self.place_beside(node, host, None)
    }

    /// Places a node again whose head is gone.
    pub(crate) fn place_again(&mut self, node: usize, host: &str) -> Position {
        let before = match self.places.remove(&node) {
            Some(Position::Below(head)) => Some(head),
            _ => None,
        };
        self.heads.retain(|&(head, _)| head != node);
        self.place_beside(node, host, before)
    }

    fn place_beside(&mut self, node: usize, host: &str, not: Option<usize>) -> Position {
        let has_room = |&(head, ref of): &(usize, String)| match self.rule {
            Rule::Size(size) => self.below(head) + 1 < size,
            Rule::Host => of == host,
        };
        let mut heads = self.heads.iter().filter(|&&(head, _)| Some(head) != not);
        let place = match heads.find(|head| has_room(head)) {
            Some(&(head, _)) => Position::Below(head),
            None => Position::Head,
        };
        if place == Position::Head {
            self.heads.push((node, host.to_owned()));
        }
        self.places.insert(node, place);
        place
    }

    /// Notes that a node is lost: no node is placed below it from then on.
    pub(crate) fn handle_lost(&mut self, node: usize) {
        self.heads.retain(|&(head, _)| head != node);
        self.places.remove(&node);
    }

    /// Returns the place of a node.
    pub(crate) fn place_of(&self, node: usize) -> Option<Position> {
        self.places.get(&node).copied()
    }

    /// Returns the number of nodes below this head.
    pub(crate) fn below(&self, head: usize) -> usize {
        self.places.values().filter(|&&place| place == Position::Below(head)).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(rule: Rule, hosts: &[&str]) -> (Tree, Vec<Position>) {
        let mut tree = Tree::new(rule);
        let places = hosts.iter().enumerate().map(|(node, host)| tree.place(node, host)).collect();
        (tree, places)
    }

    #[test]
    fn groups_are_filled_one_after_the_other() {
        use Position::{Below, Head};
        let (tree, places) = tree(Rule::Size(3), &["a"; 7]);
        assert_eq!(places, [Head, Below(0), Below(0), Head, Below(3), Below(3), Head]);
        assert_eq!((tree.below(0), tree.below(6)), (2, 0));
    }

    #[test]
    fn a_host_has_one_head() {
        use Position::{Below, Head};
        let (_, places) = tree(Rule::Host, &["a", "b", "a", "b", "a"]);
        assert_eq!(places, [Head, Head, Below(0), Below(1), Below(0)]);
    }

    #[test]
    fn nodes_without_their_head_get_a_new_one() {
        use Position::{Below, Head};
        let (mut tree, _) = tree(Rule::Size(3), &["a"; 6]);
        // They come before the farmer knows of the death, or after.
        assert_eq!(tree.place_again(4, "a"), Head);
        tree.handle_lost(3);
        assert_eq!(tree.place_again(5, "a"), Below(4));
        assert_eq!(tree.place(6, "a"), Below(4));
        assert_eq!(tree.place(7, "a"), Head);
    }

    #[test]
    fn a_head_that_left_and_comes_again_takes_the_first_place_that_is_free() {
        use Position::{Below, Head};
        let (mut tree, _) = tree(Rule::Size(2), &["a"; 3]);
        tree.handle_lost(0);
        assert_eq!(tree.place_again(1, "a"), Below(2));
        assert_eq!(tree.place_again(0, "a"), Head);
        assert_eq!(tree.place_of(0), Some(Head));
    }
}
