//! Responsibility for a channel end that travels in messages.
//!
//! A *travelling end* is a channel end that was made at one node, its *home*, and is used at
//! another. It gets there in messages, through any number of nodes. Each step from a node to the
//! next is a *hop*, numbered by the node that sends it. The sender of a hop reports the end's fate
//! to the node that the end came from. So the fate reaches the home:
//! ```text
//! home  --hop 7-->  B  --hop 3-->  C       the end, in messages
//! home  <--done 7-- B  <--done 3-- C       its fate
//!
//! sent --arrived--> there --done--> forgotten
//!   | the channel of the message failed: settle -> settled, and it had not arrived
//!   '--> lost                            from either state, the link ended -> lost
//! ```
//!
//! A message is decoded when it is taken. So an end in a message that nobody takes does not exist
//! at the other side. When the channel of the message fails, its sender asks (*settle*). The other
//! side has reported each decoded end at once (*arrived*), on the same way and so before its answer
//! (*settled*). An end that has not arrived when the answer comes is lost.
//!
//! Order of calls: ends call [`Custody::send`], [`Custody::take_back`] and [`Custody::release`];
//! events of the world call `handle_*`; [`Custody::poll_event`] returns the next thing to do.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};

/// Longest name or cause that is passed on, in bytes.
pub const CAUSE_BYTES_MAX: usize = 512;

/// Fate of an end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fate {
    /// A channel to its home was opened, and the home has it.
    Connected,
    /// The end was dropped unused.
    Dropped {
        /// The name of the node that dropped it.
        by: String,
    },
    /// A node that had the end is gone, or the end's home could not be reached.
    Lost {
        /// The known cause.
        why: String,
    },
}

/// Word of two nodes about a hop between them, named by the hop's number at its sender.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Word {
    /// The message was decoded: the end is here.
    Arrived(u64),
    /// The fate of the end.
    Done(u64, Fate),
    /// The channel of the message has failed: has the end arrived?
    Settle(u64),
    /// Answer to `Settle`: each end that arrived was reported before.
    Settled(u64),
}

/// Place where an end came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The end was made here, with this number.
    Home(u128),
    /// The end came by this hop of the peer at the other end of this link.
    Hop {
        /// This node's number of the link.
        link: u64,
        /// The peer's number of the hop.
        hop: u64,
    },
}

/// Next thing to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Send this word to the peer at the other end of this link.
    Say(u64, Word),
    /// Report the fate of the end with this number, which was made here.
    Home(u128, Fate),
}

/// An end on its way, or at the peer that it was sent to.
#[derive(Debug)]
struct Sent {
    origin: Origin,
    link: u64,
    /// This node's number of the channel that carries the message.
    carrier: u64,
    arrived: bool,
}

/// Ends that one node answers for.
///
/// Their number is bounded by the ends that this node sent and whose fate it does not know; a peer
/// can add none.
#[derive(Debug, Default)]
pub struct Custody {
    next_hop: u64,
    sent: BTreeMap<u64, Sent>,
    events: VecDeque<Event>,
}

impl Custody {
    /// Notes that an end from `origin` is about to leave on `link`, in a message of channel
    /// `carrier`; returns the number of the hop.
    pub fn send(&mut self, origin: Origin, link: u64, carrier: u64) -> u64 {
        self.next_hop += 1;
        self.sent.insert(self.next_hop, Sent { origin, link, carrier, arrived: false });
        self.next_hop
    }

    /// Takes an end back: the message of this hop was not accepted, so the end did not leave.
    pub fn take_back(&mut self, hop: u64) {
        self.sent.remove(&hop);
    }

    /// Reports the fate of an end that was here.
    pub fn release(&mut self, origin: Origin, fate: Fate) {
        self.events.push_back(match origin {
            Origin::Home(number) => Event::Home(number, fate),
            Origin::Hop { link, hop } => Event::Say(link, Word::Done(hop, fate)),
        });
    }

    /// Notes that an end came by this hop.
    pub fn arrive(&mut self, link: u64, hop: u64) {
        self.events.push_back(Event::Say(link, Word::Arrived(hop)));
    }

    /// Handles a word of the peer at the other end of `link`. A word about a forgotten hop, or a
    /// hop that was never sent there, changes nothing.
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

    /// Handles the failure of a channel. Its messages are decoded by now, or never will be.
    pub fn handle_carrier_failed(&mut self, carrier: u64) {
        for (&hop, sent) in &self.sent {
            if sent.carrier == carrier && !sent.arrived {
                self.events.push_back(Event::Say(sent.link, Word::Settle(hop)));
            }
        }
    }

    /// Handles the refusal of a message that carried these hops: unless they arrived before, it was not decoded.
    pub fn handle_refused(&mut self, hops: &[u64]) {
        for hop in hops {
            if let Some(sent) = self.sent.get(hop).filter(|sent| !sent.arrived) {
                self.events.push_back(Event::Say(sent.link, Word::Settle(*hop)));
            }
        }
    }

    /// Handles the end of a link: the ends sent on it are lost.
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

    /// Returns the next thing to do.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Returns the number of sent ends whose fate is not known.
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

/// Cuts a text to at most [`CAUSE_BYTES_MAX`] bytes.
#[must_use]
pub fn cut(text: &str) -> String {
    chunkcomm_proto::plain::cut(text, CAUSE_BYTES_MAX).to_owned()
}

#[cfg(test)]
mod tests;
