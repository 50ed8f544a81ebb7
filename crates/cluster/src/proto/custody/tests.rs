use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

fn events(custody: &mut Custody) -> Vec<Event> {
    std::iter::from_fn(|| custody.poll_event()).collect()
}

fn dropped(by: &str) -> Fate {
    Fate::Dropped { by: by.to_owned() }
}

#[test]
fn what_became_of_a_port_goes_back_the_way_it_came() {
    let (mut home, mut middle) = (Custody::default(), Custody::default());
    let first = home.send(Origin::Home(77), 1, 5);
    middle.arrive(10, first);
    assert_eq!(events(&mut middle), [Event::Say(10, Word::Arrived(first))]);
    let second = middle.send(Origin::Hop { link: 10, hop: first }, 20, 6);
    assert_eq!((home.outstanding(), middle.outstanding()), (1, 1));
    middle.handle_word(20, Word::Arrived(second));
    middle.handle_word(20, Word::Done(second, dropped("c")));
    assert_eq!(events(&mut middle), [Event::Say(10, Word::Done(first, dropped("c")))]);
    home.handle_word(1, Word::Done(first, dropped("c")));
    assert_eq!(events(&mut home), [Event::Home(77, dropped("c"))]);
    assert_eq!((home.outstanding(), middle.outstanding()), (0, 0));
    // Only once.
    home.handle_word(1, Word::Done(first, Fate::Connected));
    assert_eq!(events(&mut home), []);
}

#[test]
fn a_carrier_that_failed_is_asked_for_what_did_not_arrive() {
    let mut custody = Custody::default();
    let [there, lost, other] = [5, 5, 6].map(|carrier| custody.send(Origin::Home(1), 1, carrier));
    custody.handle_word(1, Word::Arrived(there));
    custody.handle_carrier_failed(5);
    assert_eq!(events(&mut custody), [Event::Say(1, Word::Settle(lost))]);
    custody.handle_word(1, Word::Settled(lost));
    let told = events(&mut custody);
    assert!(matches!(&told[..], [Event::Home(1, Fate::Lost { .. })]), "{told:?}");
    // A late answer changes nothing for an end that had arrived meanwhile.
    custody.handle_word(1, Word::Arrived(other));
    custody.handle_word(1, Word::Settled(other));
    assert_eq!((events(&mut custody), custody.outstanding()), (vec![], 2));
}

#[test]
fn a_refused_message_is_asked_for_what_did_not_arrive() {
    let mut custody = Custody::default();
    let [there, lost, other] = [5; 3].map(|carrier| custody.send(Origin::Home(1), 1, carrier));
    custody.handle_word(1, Word::Arrived(there));
    custody.handle_refused(&[there, lost, 77]);
    assert_eq!(events(&mut custody), [Event::Say(1, Word::Settle(lost))]);
    custody.handle_word(1, Word::Settled(lost));
    assert_eq!((events(&mut custody).len(), custody.outstanding()), (1, 2), "not {other}");
}

#[test]
fn a_link_that_ended_loses_all_that_went_by_it() {
    let mut custody = Custody::default();
    let hop = custody.send(Origin::Home(1), 1, 5);
    custody.handle_word(1, Word::Arrived(hop));
    custody.send(Origin::Hop { link: 3, hop: 9 }, 1, 5);
    custody.send(Origin::Home(2), 2, 6);
    custody.handle_link_ended(1, "it is gone");
    let lost = || Fate::Lost { why: "it is gone".to_owned() };
    let told = events(&mut custody);
    assert_eq!(told, [Event::Home(1, lost()), Event::Say(3, Word::Done(9, lost()))]);
    assert_eq!(custody.outstanding(), 1);
}

#[test]
fn a_peer_changes_nothing_that_was_not_sent_to_it() {
    let mut custody = Custody::default();
    let hop = custody.send(Origin::Home(1), 1, 5);
    for word in [Word::Arrived(hop), Word::Done(hop, Fate::Connected), Word::Settled(hop)] {
        custody.handle_word(2, word.clone());
        custody.handle_word(
            1,
            match word {
                Word::Done(..) => Word::Done(hop + 1, Fate::Connected),
                Word::Arrived(_) => Word::Arrived(hop + 1),
                _ => Word::Settled(hop + 1),
            },
        );
    }
    custody.handle_word(2, Word::Settle(12));
    assert_eq!(events(&mut custody), [Event::Say(2, Word::Settled(12))]);
    assert_eq!(custody.outstanding(), 1);
}

#[test]
fn causes_are_cut_where_a_character_ends() {
    let long = "ä".repeat(CAUSE_BYTES_MAX);
    assert_eq!(cut(&format!("x{long}")).len(), CAUSE_BYTES_MAX - 1);
    assert_eq!(cut("short"), "short");
    let mut custody = Custody::default();
    let hop = custody.send(Origin::Home(1), 1, 5);
    custody.handle_word(1, Word::Done(hop, dropped(&long)));
    assert_eq!(events(&mut custody), [Event::Home(1, dropped(&long[..CAUSE_BYTES_MAX]))]);
}

const NODES: usize = 4;

/// Nodes with links between all of them, and ends among them. Words arrive late and in order.
#[derive(Default)]
struct World {
    nodes: [Custody; NODES],
    /// Words on their way, by (from, to). A link's number is that of the other node.
    words: BTreeMap<(usize, usize), VecDeque<Word>>,
    /// Ends that are held: their node, number and origin.
    held: Vec<(usize, u128, Origin)>,
    /// Ends in messages: number, from, to, hop.
    messages: Vec<(u128, usize, usize, u64)>,
    told: BTreeMap<u128, Fate>,
    cut_off: Vec<(usize, usize)>,
    made: u128,
}

impl World {
    fn settle_events(&mut self) {
        for node in 0..NODES {
            while let Some(event) = self.nodes[node].poll_event() {
                match event {
                    Event::Say(link, word) => {
                        let to = link as usize;
                        if self.cut_off.contains(&(node, to)) {
                            self.nodes[node].handle_link_ended(link, "ended");
                        } else {
                            self.words.entry((node, to)).or_default().push_back(word);
                        }
                    }
                    // Only the first counts: the home has forgotten the end then.
                    Event::Home(number, fate) => {
                        assert_eq!(number as usize % NODES, node, "told to another home");
                        self.told.entry(number).or_insert(fate);
                    }
                }
            }
        }
    }

    fn cut(&mut self, a: usize, b: usize) {
        for (from, to) in [(a, b), (b, a)] {
            if !self.cut_off.contains(&(from, to)) {
                self.cut_off.push((from, to));
                self.words.remove(&(from, to));
                self.nodes[from].handle_link_ended(to as u64, "cut");
            }
        }
        let is_cut = |from, to| (from, to) == (a, b) || (from, to) == (b, a);
        self.messages.retain(|&(_, from, to, _)| !is_cut(from, to));
    }

    fn step(&mut self, what: u8, which: usize) {
        match what % 8 {
            0 => {
                let node = which % NODES;
                let number = self.made * NODES as u128 + node as u128;
                self.made += 1;
                self.held.push((node, number, Origin::Home(number)));
            }
            1 | 2 if !self.held.is_empty() => {
                let (from, number, origin) = self.held.swap_remove(which % self.held.len());
                let to = (from + 1 + which % (NODES - 1)) % NODES;
                if self.cut_off.contains(&(from, to)) {
                    self.held.push((from, number, origin));
                    return;
                }
                let hop = self.nodes[from].send(origin, to as u64, to as u64);
                if which.is_multiple_of(11) {
                    self.nodes[from].take_back(hop);
                    self.held.push((from, number, origin));
                } else {
                    self.messages.push((number, from, to, hop));
                }
            }
            3 | 4 if !self.messages.is_empty() => {
                let (number, from, to, hop) = self.messages.remove(which % self.messages.len());
                self.nodes[to].arrive(from as u64, hop);
                self.held.push((to, number, Origin::Hop { link: from as u64, hop }));
            }
            5 if !self.held.is_empty() => {
                let (at, _, origin) = self.held.swap_remove(which % self.held.len());
                let fate = if which.is_multiple_of(2) { Fate::Connected } else { dropped("it") };
                self.nodes[at].release(origin, fate);
            }
            6 => {
                // A receiver drops the messages that it has not taken; its sender learns that and
                // asks.
                let (from, to) = (which % NODES, (which / NODES) % NODES);
                let before = self.messages.len();
                self.messages.retain(|&(_, f, t, _)| (f, t) != (from, to));
                if self.messages.len() < before {
                    self.nodes[from].handle_carrier_failed(to as u64);
                }
            }
            7 if which.is_multiple_of(5) => {
                self.cut(which % NODES, (which % NODES + 1 + which % (NODES - 1)) % NODES);
            }
            _ => {
                self.hear(which);
            }
        }
        self.settle_events();
    }

    fn hear(&mut self, which: usize) -> bool {
        let waiting: Vec<_> =
            self.words.iter().filter(|(_, words)| !words.is_empty()).map(|(key, _)| *key).collect();
        if waiting.is_empty() {
            return false;
        }
        let (from, to) = waiting[which % waiting.len()];
        let word = self.words.get_mut(&(from, to)).and_then(VecDeque::pop_front).unwrap();
        self.nodes[to].handle_word(from as u64, word);
        true
    }

    /// Drops every held end, takes every message, delivers every word.
    fn end(&mut self) {
        while !self.messages.is_empty() {
            self.step(3, 0);
        }
        while !self.held.is_empty() {
            self.step(5, 1);
        }
        while self.hear(0) {
            self.settle_events();
        }
    }
}

proptest! {
    #[test]
    fn every_home_is_told_and_nobody_keeps_anything(
        steps in prop::collection::vec((any::<u8>(), any::<u16>()), 1..200)
    ) {
        let mut world = World::default();
        for (what, which) in steps {
            world.step(what, which as usize);
        }
        world.end();
        for number in 0..world.made {
            let told = world.told.keys().filter(|it| **it / NODES as u128 == number).count();
            prop_assert_eq!(told, 1, "end {}", number);
        }
        for node in &world.nodes {
            prop_assert_eq!(node.outstanding(), 0);
        }
    }
}
