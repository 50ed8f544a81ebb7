//! Byte streams between nodes: what is written arrives later, in order, in
//! pieces cut anywhere, or not at all. Time and what happens to connections come
//! from outside.

use crate::proto::Time;
use std::collections::VecDeque;
use std::time::Duration;

/// The end of time: a piece that arrives then never does.
pub(super) const NEVER: Time = Time(u64::MAX);

/// One direction of a connection.
#[derive(Debug, Default)]
struct Pipe {
    /// Written and not read.
    bytes: VecDeque<u8>,
    /// So many of them have arrived.
    readable: usize,
    /// When the others do: pieces in order.
    pieces: VecDeque<(Time, usize)>,
    /// Nothing arrives before this time.
    stalled_until: Time,
    /// The reader finds the end behind what is readable.
    ended: bool,
    /// What is written goes nowhere.
    cut: bool,
    /// The writer learned of it.
    broken: bool,
}

/// A connection. Side 0 dialled it.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) nodes: [usize; 2],
    pub(super) latency: Duration,
    capacity: usize,
    /// `pipes[side]` leads to that side.
    pipes: [Pipe; 2],
    closed: [bool; 2],
}

/// What became of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Written {
    /// So many bytes were taken; the last of them arrives then.
    Some(usize, Time),
    /// The buffers are full.
    Full,
    /// The connection is known to be gone.
    Broken,
}

/// All connections.
#[derive(Debug, Default)]
pub(super) struct Network(Vec<Connection>);

impl Network {
    /// A new connection, over which a byte takes `latency`, with buffers of
    /// `capacity` bytes.
    pub(super) fn connect(
        &mut self,
        nodes: [usize; 2],
        latency: Duration,
        capacity: usize,
    ) -> usize {
        let pipes = [Pipe::default(), Pipe::default()];
        self.0.push(Connection { nodes, latency, capacity, pipes, closed: [false; 2] });
        self.0.len() - 1
    }

    pub(super) fn get(&self, id: usize) -> &Connection {
        &self.0[id]
    }

    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    /// Writes at most `bytes` from `side`; `late` is what they take longer than
    /// others.
    pub(super) fn write(
        &mut self,
        id: usize,
        side: usize,
        bytes: &[u8],
        now: Time,
        late: Duration,
    ) -> Written {
        let connection = &mut self.0[id];
        let pipe = &mut connection.pipes[1 - side];
        if pipe.broken || connection.closed[side] {
            return Written::Broken;
        }
        let room = connection.capacity.saturating_sub(pipe.bytes.len());
        if room == 0 {
            return Written::Full;
        }
        let count = bytes.len().min(room);
        pipe.bytes.extend(&bytes[..count]);
        if pipe.cut || connection.closed[1 - side] {
            return Written::Some(count, NEVER);
        }
        let last = pipe.pieces.back().map_or(Time(0), |piece| piece.0);
        let at = now.max(pipe.stalled_until).after(connection.latency + late).max(last);
        pipe.pieces.push_back((at, count));
        Written::Some(count, at)
    }

    /// What is due arrives at `side`. Says when to ask again if that is later than
    /// was thought.
    pub(super) fn arrive(&mut self, id: usize, side: usize, now: Time) -> Option<Time> {
        let pipe = &mut self.0[id].pipes[side];
        while let Some((at, count)) = pipe.pieces.front().copied() {
            if at > now {
                return None;
            }
            if pipe.stalled_until > now {
                let held = pipe.stalled_until;
                pipe.pieces.iter_mut().for_each(|piece| piece.0 = piece.0.max(held));
                return (held < NEVER).then_some(held);
            }
            pipe.readable += count;
            pipe.pieces.pop_front();
        }
        None
    }

    /// Nothing arrives at `side` before `until`.
    pub(super) fn stall(&mut self, id: usize, side: usize, until: Time) {
        let pipe = &mut self.0[id].pipes[side];
        pipe.stalled_until = pipe.stalled_until.max(until);
    }

    /// Nothing will ever arrive at this side.
    pub(super) fn is_stalled_for_ever(&self, id: usize, side: usize) -> bool {
        self.0[id].pipes[side].stalled_until == NEVER
    }

    /// Bytes that `side` can read.
    pub(super) fn readable(&self, id: usize, side: usize) -> usize {
        self.0[id].pipes[side].readable
    }

    /// The end of the stream is next at `side`.
    pub(super) fn has_ended(&self, id: usize, side: usize) -> bool {
        let pipe = &self.0[id].pipes[side];
        pipe.ended && pipe.readable == 0 && pipe.pieces.is_empty()
    }

    /// Reads at most `count` bytes; true when a writer may have waited for room.
    pub(super) fn read(&mut self, id: usize, side: usize, count: usize, to: &mut Vec<u8>) -> bool {
        let connection = &mut self.0[id];
        let pipe = &mut connection.pipes[side];
        let full = pipe.bytes.len() >= connection.capacity;
        let count = count.min(pipe.readable);
        pipe.readable -= count;
        let (front, back) = pipe.bytes.as_slices();
        let first = count.min(front.len());
        to.extend_from_slice(&front[..first]);
        to.extend_from_slice(&back[..count - first]);
        pipe.bytes.drain(..count);
        full && count > 0
    }

    /// The connection breaks: of what is under way to each side only the first
    /// `kept` bytes arrive, at once.
    pub(super) fn cut(&mut self, id: usize, kept: [usize; 2]) {
        for (pipe, kept) in self.0[id].pipes.iter_mut().zip(kept) {
            if pipe.cut {
                continue;
            }
            pipe.cut = true;
            pipe.pieces.clear();
            let under_way = pipe.bytes.len() - pipe.readable;
            if pipe.stalled_until == Time(0) {
                pipe.readable += kept.min(under_way);
            }
        }
    }

    /// Bytes under way to `side`.
    pub(super) fn under_way(&self, id: usize, side: usize) -> usize {
        let pipe = &self.0[id].pipes[side];
        pipe.bytes.len() - pipe.readable
    }

    /// `side` learns that the connection is gone.
    pub(super) fn learn(&mut self, id: usize, side: usize) {
        let connection = &mut self.0[id];
        let pipe = &mut connection.pipes[side];
        pipe.ended = true;
        if pipe.stalled_until == NEVER {
            pipe.pieces.clear();
        }
        connection.pipes[1 - side].broken = true;
    }

    pub(super) fn is_cut(&self, id: usize) -> bool {
        self.0[id].pipes[0].cut
    }

    pub(super) fn is_closed(&self, id: usize, side: usize) -> bool {
        self.0[id].closed[side]
    }

    /// `side` hangs up. What it wrote still arrives; says when, the end behind it,
    /// if the other side can learn of it.
    pub(super) fn close(&mut self, id: usize, side: usize, now: Time) -> Option<Time> {
        let connection = &mut self.0[id];
        if std::mem::replace(&mut connection.closed[side], true) {
            return None;
        }
        connection.pipes[side].bytes = VecDeque::new();
        connection.pipes[side].readable = 0;
        connection.pipes[side].pieces.clear();
        let pipe = &connection.pipes[1 - side];
        if pipe.cut || connection.closed[1 - side] || pipe.stalled_until == NEVER {
            return None;
        }
        let last = pipe.pieces.back().map_or(Time(0), |piece| piece.0);
        Some(now.max(pipe.stalled_until).after(connection.latency).max(last))
    }
}
