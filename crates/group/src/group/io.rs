//! The way of a run to the other ranks.

use std::sync::Arc;
use std::task::Context;

use chunkcomm_cluster::Cluster;
use chunkcomm_cluster::cluster::NodeId;

use super::inbox::Inbox;
use super::links::Links;
use crate::proto::talk::{Kind, Word};
use crate::region::Lines;

/// Most bytes of a step's data in one word: 256 KiB.
const PIECE_BYTES_MAX: usize = 256 * 1024;

/// Least memory of a held word: 1 KiB.
const WORD_HELD_BYTES_MIN: usize = 1024;

/// A word of a call that its run has not taken yet.
pub struct Heard {
    pub(crate) call: u64,
    pub(crate) from: usize,
    pub(crate) kind: Kind,
    pub(crate) left: u64,
    /// The word, whose statement and payload begin there.
    pub(crate) bytes: Vec<u8>,
    pub(crate) statement_at: usize,
    pub(crate) payload_at: usize,
}

impl Heard {
    pub(crate) fn statement(&self) -> &[u8] {
        &self.bytes[self.statement_at..self.payload_at]
    }

    /// Returns its data.
    pub fn payload(&self) -> &[u8] {
        &self.bytes[self.payload_at..]
    }

    /// Returns the memory that it counts for while it is held, of which each word has a least one.
    pub(crate) fn held_bytes(&self) -> usize {
        self.bytes.len().max(WORD_HELD_BYTES_MIN)
    }
}

/// The links, and the words that have come: all that a run needs to go on.
pub struct Io<'a, 'c> {
    /// Number of the call in the group, from 1.
    pub call: u64,
    pub(crate) statement: &'a [u8],
    pub(crate) links: &'a mut Links,
    pub(crate) inbox: &'a mut Inbox,
    /// The context of this run alone: what wakes it lets no other run be polled.
    pub context: &'a mut Context<'c>,
}

impl Io<'_, '_> {
    /// Whether a rank takes words more slowly than they are made: the run is woken when there is room.
    pub(crate) fn is_full(&mut self, to: usize) -> bool {
        let is_full = self.links.is_full(to);
        if is_full {
            self.links.await_room(self.call);
        }
        is_full
    }

    /// Sends the piece of a step's data behind the `said` bytes; returns its length.
    pub(crate) fn send_piece(&mut self, to: usize, body: &[u8], said: usize) -> usize {
        let rest = &body[said..];
        let piece = &rest[..rest.len().min(PIECE_BYTES_MAX)];
        self.say(to, Kind::Data, (rest.len() - piece.len()) as u64, &[piece]);
        piece.len()
    }

    /// Sends `head` and `body`, which are small, as the data of one step.
    pub fn send(&mut self, to: usize, head: &[u8], body: &[u8]) {
        let mut left = head.len() + body.len();
        let mut first = head;
        let mut rest = body;
        loop {
            let (piece, after) = rest.split_at(rest.len().min(PIECE_BYTES_MAX));
            left -= first.len() + piece.len();
            self.say(to, Kind::Data, left as u64, &[first, piece]);
            if left == 0 {
                return;
            }
            (first, rest) = (&[], after);
        }
    }

    /// Says to a rank that there is memory for its part of a large call.
    pub fn send_ready(&mut self, to: usize) {
        self.say(to, Kind::Ready, 0, &[]);
    }

    fn say(&mut self, to: usize, kind: Kind, left: u64, payload: &[&[u8]]) {
        let word = Word { kind, call: self.call, left, statement: self.statement };
        self.links.send(to, &word, payload);
    }

    /// Takes the word of a rank that it has memory for its part of this call; returns whether it has come.
    pub fn take_ready(&mut self, from: usize) -> bool {
        self.take(from, Kind::Ready).is_some()
    }

    /// Takes the next data that came from a rank for this call.
    pub fn take_data(&mut self, from: usize) -> Option<Heard> {
        self.take(from, Kind::Data)
    }

    fn take(&mut self, from: usize, kind: Kind) -> Option<Heard> {
        let heard = self.inbox.take(self.call, from, kind)?;
        self.links.taken(&heard);
        Some(heard)
    }

    /// Keeps the memory of a word that was taken.
    pub fn give_back(&mut self, heard: Heard) {
        self.links.give_back(heard);
    }

    /// Returns this node's rank in the group.
    pub fn rank(&self) -> usize {
        self.links.rank
    }

    /// Returns the cluster whose members the ranks are.
    pub fn cluster(&self) -> &Cluster {
        self.links.cluster()
    }

    pub(crate) fn members(&self) -> &Arc<[NodeId]> {
        self.links.members()
    }

    /// The lines to the other ranks.
    pub(crate) fn lines(&self) -> &Arc<Lines> {
        &self.links.lines
    }

    /// The group's name in those of channels.
    pub fn group_name(&self) -> &Arc<str> {
        &self.links.name
    }
}
