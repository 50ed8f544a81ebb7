//! Connections as the simulation knows them: the talks on them, and the faults done to them. The
//! bytes are the network's.

use super::dialling::Talk;
use super::{Event, World};
use chunkcomm_simulation::{EndId, NetworkError, Read};
use std::time::Duration;

/// Port at which every node listens.
pub(super) const PORT: u16 = 1;

/// A wait without end.
pub(super) const NEVER: Duration = Duration::MAX;

/// A connection. Side 0 dialled it.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) pair: usize,
    pub(super) talks: [Talk; 2],
    /// Bytes heard so far of the word that each side's talk waits for.
    pub(super) heard: [Vec<u8>; 2],
    /// Whether the acceptor's system has taken it.
    pub(super) accepted: bool,
    /// Whether each side's process hung up or is gone.
    pub(super) closed: [bool; 2],
    pub(super) cut: bool,
    /// Whether nothing arrives at a side for ever, without notice to anybody.
    pub(super) severed: [bool; 2],
    ends: [EndId; 2],
}

impl Connection {
    pub(super) fn end(&self, side: usize) -> EndId {
        self.ends[side]
    }
}

impl World<'_> {
    /// Dials a connection of `pair`, which the acceptor's system takes after `late`; returns its
    /// index.
    pub(super) fn connect(&mut self, pair: usize, talk: Talk, late: Duration) -> usize {
        let [from, to] = self.plan.pairs[pair].nodes.map(|node| self.nodes[node].host);
        let end = self.network.dial(self.now, from, to, PORT).expect("the plan joins the two");
        if late > Duration::ZERO {
            self.network.stall(self.now, end.peer(), late);
        }
        debug_assert_eq!(end.connection(), self.connections.len());
        self.connections.push(Connection {
            pair,
            talks: [talk, Talk::Over],
            heard: [Vec::new(), Vec::new()],
            accepted: false,
            closed: [false; 2],
            cut: false,
            severed: [false; 2],
            ends: [end, end.peer()],
        });
        end.connection()
    }

    /// Translates an event of the network into one of the simulation.
    pub(super) fn translated(&mut self, event: chunkcomm_simulation::Event) -> Event {
        use chunkcomm_simulation::Event as It;
        match event {
            It::Incoming { end, .. } => {
                let connection = end.connection();
                self.connections[connection].accepted = true;
                Event::Accepted { connection }
            }
            It::Connected(end) => Event::Connected { connection: end.connection() },
            It::Refused(end) => Event::Refused { connection: end.connection() },
            It::Readable(end) | It::Broken(end) => {
                Event::Hear { connection: end.connection(), side: usize::from(end.is_accepted()) }
            }
            It::Writable(end) => {
                Event::Room { connection: end.connection(), side: usize::from(end.is_accepted()) }
            }
            other => unreachable!("the hosts of a seed compute nothing: {other:?}"),
        }
    }

    pub(super) fn end_at(&self, connection: usize, side: usize) -> EndId {
        self.connections[connection].end(side)
    }

    pub(super) fn node_at(&self, connection: usize, side: usize) -> usize {
        self.plan.pairs[self.connections[connection].pair].nodes[side]
    }

    pub(super) fn write_to(
        &mut self,
        connection: usize,
        side: usize,
        bytes: &[u8],
    ) -> Result<usize, NetworkError> {
        let end = self.end_at(connection, side);
        self.network.write(self.now, end, bytes)
    }

    pub(super) fn read_from(
        &mut self,
        connection: usize,
        side: usize,
        most: usize,
        to: &mut Vec<u8>,
    ) -> Result<Read, NetworkError> {
        let end = self.end_at(connection, side);
        self.network.read_to(self.now, end, most, to)
    }

    /// Loses some of the bytes on their way to a side: all behind a random point.
    pub(super) fn lose_some(&mut self, connection: usize, side: usize) {
        let end = self.end_at(connection, side);
        let on_the_way = self.network.on_the_way(end);
        let kept = self.random.below(on_the_way as u64 + 1) as usize;
        self.counts.torn += u64::from(kept > 0 && kept < on_the_way);
        self.network.lose(self.now, end, kept);
    }

    /// Hangs up one side. If it leaves bytes unread, the last bytes that it wrote may get lost.
    pub(super) fn hang_up(&mut self, connection: usize, side: usize) {
        let end = self.end_at(connection, side);
        if !self.connections[connection].closed[side] {
            if self.network.readable(end) > 0 && self.random.one_in(2) {
                self.lose_some(connection, 1 - side);
            }
            self.connections[connection].closed[side] = true;
            self.network.leave(self.now, end);
        }
        self.connections[connection].talks[side] = Talk::Over;
    }

    /// Returns the connections of a pair that are neither cut nor closed on both sides.
    pub(super) fn connections_of(&self, pair: usize) -> Vec<usize> {
        let open = |it: &Connection| it.pair == pair && it.closed != [true; 2] && !it.cut;
        let all = self.connections.iter().enumerate();
        all.filter(|(_, it)| open(it)).map(|(id, _)| id).collect()
    }

    /// Whether something is in the way of this connection for ever.
    pub(super) fn is_useless(&self, connection: usize) -> bool {
        let it = &self.connections[connection];
        it.cut || it.severed.contains(&true)
    }
}
