//! Who answers for a channel end that travels in messages.
//!
//! A *port* is a channel end that was made at one node, its *home*, and is used at another. It gets
//! there in messages, through any number of nodes. Each such way from a node to the next is a *hop*,
//! numbered by the node that sends it. Whoever sent a hop answers for it to where it came from, in
//! the end to the home, until it is known what became of the port:
//!
//! ```text
//! home  --hop 7-->  B  --hop 3-->  C       the port, in messages
//! home  <--done 7-- B  <--done 3-- C       what became of it
//!
//! sent --arrived--> there --done--> forgotten
//!   | the channel of the message failed: settle -> settled, and it had not arrived
//!   '--> dropped                         from either state, the link ended -> lost
//! ```
//!
//! A message is decoded when it is taken, so a port in a message that nobody takes does not exist
//! at the other side. When the channel that carried it fails, its sender asks (*settle*): what the
//! other side decoded it had said before (*arrived*), on the same way, so that the answer (*settled*)
//! finds it known, and else the port is dropped for it.
//!
//! The machine: [`Custody::send`], [`Custody::take_back`] and [`Custody::release`] are what ports do;
//! `handle_*` what the world told us; [`Custody::poll_event`] what to do next.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};

/// Longest name or cause that is told on, in bytes.
pub const CAUSE_BYTES_MAX: usize = 512;

/// What became of a port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fate {
    /// A channel to its home was opened, and the home has it.
    Connected,
    /// It was dropped unused.
    Dropped {
        /// The name of the node where that was.
        by: String,
    },
    /// A node that had it is gone, or its home could not be reached.
    Lost {
        /// What is known of that.
        why: String,
    },
}

/// What two nodes tell each other of the hops between them. The number is the sender's of the hop.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Word {
    /// The message was decoded: the port is here.
    Arrived(u64),
    /// That became of it.
    Done(u64, Fate),
    /// The channel of the message has failed: did the port arrive?
    Settle(u64),
    /// Everything that arrived was said before.
    Settled(u64),
}

/// Where a port came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// It was made here, with this number.
    Home(u128),
    /// It came by this hop of the peer at the other end of this link.
    Hop {
        /// Our number of the link.
        link: u64,
        /// The peer's number of the hop.
        hop: u64,
    },
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Tell the peer at the other end of this link.
    Say(u64, Word),
    /// That became of the port with this number, which was made here.
    Home(u128, Fate),
}

/// A port on its way, or at the peer that it was sent to.
#[derive(Debug)]
struct Sent {
    origin: Origin,
    link: u64,
    /// Our number of the channel that carries the message.
    carrier: u64,
    arrived: bool,
}

/// The ports that one node answers for. Bounded by the ports that this node sent and whose end it
/// has not heard of; a peer can add nothing.
#[derive(Debug, Default)]
pub struct Custody {
    next_hop: u64,
    sent: BTreeMap<u64, Sent>,
    events: VecDeque<Event>,
}

impl Custody {
    /// A port from `origin` is about to leave on `link`, in a message of channel `carrier`: the
    /// number of the hop.
    pub fn send(&mut self, origin: Origin, link: u64, carrier: u64) -> u64 {
        self.next_hop += 1;
        self.sent.insert(self.next_hop, Sent { origin, link, carrier, arrived: false });
        self.next_hop
    }

    /// The message of this hop was not accepted: the port did not leave.
    pub fn take_back(&mut self, hop: u64) {
        self.sent.remove(&hop);
    }

    /// That became of a port which was here.
    pub fn release(&mut self, origin: Origin, fate: Fate) {
        self.events.push_back(match origin {
            Origin::Home(number) => Event::Home(number, fate),
            Origin::Hop { link, hop } => Event::Say(link, Word::Done(hop, fate)),
        });
    }

    /// A port came by this hop.
    pub fn arrive(&mut self, link: u64, hop: u64) {
        self.events.push_back(Event::Say(link, Word::Arrived(hop)));
    }

    /// The peer at the other end of `link` said this. What does not fit, of a hop that we have
    /// forgotten or never sent there, changes nothing.
    pub fn handle_word(&mut self, link: u64, word: Word) {
        match word {
            Word::Arrived(hop) => {
                if let Some(sent) = self.sent_there(link, hop) {
                    sent.arrived = true;
                }
            }
            Word::Done(hop, fate) => self.end(link, hop, fate),
            Word::Settle(hop) => self.events.push_back(Event::Say(link, Word::Settled(hop))),
            Word::Settled(hop) => {
                if self.sent_there(link, hop).is_some_and(|sent| !sent.arrived) {
                    let why = "the message that carried it was not taken".to_owned();
                    self.end(link, hop, Fate::Lost { why });
                }
            }
        }
    }

    /// This channel has failed: what it brought is decoded by now, or never will be.
    pub fn handle_carrier_failed(&mut self, carrier: u64) {
        for (&hop, sent) in &self.sent {
            if sent.carrier == carrier && !sent.arrived {
                self.events.push_back(Event::Say(sent.link, Word::Settle(hop)));
            }
        }
    }

    /// Nothing is said on this link any more.
    pub fn handle_link_ended(&mut self, link: u64, why: &str) {
        let mut origins = Vec::new();
        self.sent.retain(|_, sent| {
            if sent.link == link {
                origins.push(sent.origin);
            }
            sent.link != link
        });
        for origin in origins {
            self.release(origin, Fate::Lost { why: cut(why) });
        }
    }

    /// What is to be done next.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Ports that were sent and of whose end nothing is known.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.sent.len()
    }

    fn sent_there(&mut self, link: u64, hop: u64) -> Option<&mut Sent> {
        self.sent.get_mut(&hop).filter(|sent| sent.link == link)
    }

    fn end(&mut self, link: u64, hop: u64, fate: Fate) {
        if self.sent_there(link, hop).is_none() {
            return;
        }
        if let Some(sent) = self.sent.remove(&hop) {
            let fate = match fate {
                Fate::Connected => Fate::Connected,
                Fate::Dropped { by } => Fate::Dropped { by: cut(&by) },
                Fate::Lost { why } => Fate::Lost { why: cut(&why) },
            };
            self.release(sent.origin, fate);
        }
    }
}

/// At most [`CAUSE_BYTES_MAX`] bytes of a text.
#[must_use]
pub fn cut(text: &str) -> String {
    let mut end = text.len().min(CAUSE_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_owned()
}

#[cfg(test)]
mod tests;
