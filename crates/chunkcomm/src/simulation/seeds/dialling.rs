//! Connections from the call to the driver that adopts them, as `node/resume.rs`
//! makes them.

mod words;

use super::end::Over;
use super::network::Written;
use super::world::{Event, Session, World};
use crate::proto::Time;
use crate::proto::backoff::Backoff;
use crate::proto::hello::{HELLO_BYTES, Hello, Name};
use crate::proto::planted;
use crate::proto::resume::{RESUME_BYTES, Resume};
use std::time::Duration;

/// A connection that is not had in this time is tried anew.
const ATTEMPT_DEADLINE: Duration = Duration::from_secs(3);

/// A peer has so long to say which session it means.
const WORD_DEADLINE: Duration = Duration::from_secs(5);

/// Sessions that a pair begins, one after the other.
const SESSIONS_MAX: u32 = 6;

/// A dialler dials at most so often, and so much more often each second.
const DIALS_MAX: u64 = 24;
const DIALS_A_SECOND_MAX: u64 = 8;

/// Whoever nobody answers gives up so long after the last fault.
const GIVES_UP: Duration = Duration::from_secs(15);

/// How far the talk at one side of a connection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Talk {
    /// Not there yet.
    Calls {
        session: usize,
        attempt: u32,
    },
    /// The dialler waits for the hello, then for the answer.
    Hello {
        session: usize,
        attempt: u32,
    },
    Answer {
        session: usize,
        attempt: u32,
    },
    /// The acceptor waits for the hello, then for the word.
    Stranger,
    Word {
        incarnation: u128,
    },
    /// On its way to the driver.
    Handed {
        end: usize,
        attempt: u32,
        received: u64,
    },
    /// The driver has it.
    Linked {
        end: usize,
    },
    /// It says this word and is not what it says it is.
    GhostCalls {
        incarnation: u128,
        word: Resume,
    },
    Ghost {
        word: Resume,
    },
    GhostSpoke {
        word: Resume,
    },
    Over,
}

/// How a dialler gets on.
#[derive(Debug)]
pub(super) struct Dialling {
    pub(super) generation: u32,
    pub(super) attempt: u32,
    backoff: Backoff,
    since: Time,
    tries: u64,
    connection: Option<usize>,
}

impl World<'_> {
    /// The dialler of a pair begins a session.
    pub(super) fn begin(&mut self, pair: usize) {
        let state = self.pairs[pair];
        let over = |session: usize| {
            let end = self.sessions[session].ends[0];
            end.is_some_and(|end| self.ends[end].over.is_some())
        };
        if state.session.is_some_and(|session| !over(session)) || state.begun >= SESSIONS_MAX {
            return;
        }
        self.pairs[pair].begun += 1;
        let session = self.new_session(pair);
        self.dial(session, 0);
    }

    fn new_session(&mut self, pair: usize) -> usize {
        let ours = self.nodes[self.plan.pairs[pair].nodes[0]].incarnation;
        let had = |it: &Session| it.pair == pair && it.ends[0].is_some();
        let first = !self.sessions.iter().any(had);
        let number = self.random.next_u64();
        let (incarnations, ends) = ([ours, 0], [None; 2]);
        self.sessions.push(Session { pair, number, incarnations, ends, first });
        self.dialling.push(Dialling {
            generation: 0,
            attempt: 0,
            backoff: Backoff::new(number),
            since: self.now,
            tries: 0,
            connection: None,
        });
        self.pairs[pair].session = Some(self.sessions.len() - 1);
        self.sessions.len() - 1
    }

    /// Connection `attempt` of `session` was lost: sees to the next one.
    pub(super) fn redial(&mut self, session: usize, attempt: u32) {
        let seed = self.sessions[session].number ^ u64::from(attempt) << 32;
        let dialling = &mut self.dialling[session];
        dialling.attempt = attempt;
        dialling.backoff = Backoff::new(seed);
        dialling.since = self.now;
        dialling.tries = 0;
        self.dial_later(session);
    }

    fn dial_later(&mut self, session: usize) {
        let dialling = &mut self.dialling[session];
        dialling.generation += 1;
        let generation = dialling.generation;
        let wait = dialling.backoff.wait();
        self.after(wait, Event::Dial { session, generation });
    }

    pub(super) fn dial(&mut self, session: usize, generation: u32) {
        let dialling = &mut self.dialling[session];
        if dialling.generation != generation {
            return;
        }
        let end = self.sessions[session].ends[0];
        let all = self.next_fault == self.plan.faults.len();
        if end.is_none() && all && self.now > self.last_fault.after(GIVES_UP) {
            return;
        }
        if !planted::is!(AttemptNotCounted) || dialling.attempt == 0 {
            dialling.attempt += 1;
        }
        dialling.tries += 1;
        let seconds = (self.now.0 - dialling.since.0) / 1_000_000_000;
        let (attempt, tries) = (dialling.attempt, dialling.tries);
        if tries > DIALS_MAX + DIALS_A_SECOND_MAX * seconds {
            self.violate(&format!("{tries} dials in {seconds} s"));
        }
        let pair = self.sessions[session].pair;
        let connection = self.call(pair, Talk::Calls { session, attempt });
        self.dialling[session].connection = Some(connection);
        self.note(6, [session as u64, u64::from(attempt)], || {
            format!("session {session} attempt {attempt}: connection {connection}")
        });
    }

    /// A connection of a pair is dialled.
    pub(super) fn call(&mut self, pair: usize, talk: Talk) -> usize {
        let plan = &self.plan.pairs[pair];
        let state = self.pairs[pair];
        let mut latency = plan.latency;
        if self.random.one_in(2) {
            latency += plan.latency * self.random.below(100) as u32 / 400;
        }
        let connection = self.network.connect(plan.nodes, latency, plan.capacity);
        for side in [0, 1] {
            self.network.stall(connection, side, state.held_until[side]);
        }
        let mut late = Duration::ZERO;
        if self.now < state.late_until {
            late = Duration::from_nanos(self.random.below(4_000_000_000));
        }
        self.talks.push([talk, Talk::Over]);
        self.counts.dials += 1;
        let there = self.now.max(state.held_until[1]).after(latency + late);
        self.at(there, Event::Accepted { connection });
        self.after(ATTEMPT_DEADLINE, Event::Timeout { connection, side: 0 });
        connection
    }

    /// There is nobody at the address.
    pub(super) fn refuse(&mut self, connection: usize) {
        let nodes = self.network.get(connection).nodes;
        if !self.nodes[nodes[1]].silent {
            let latency = self.network.get(connection).latency;
            self.after(latency, Event::Refused { connection });
        }
    }

    pub(super) fn accepted(&mut self, connection: usize) {
        let held = self.pairs[self.pair_of_connection(connection)].held_until[0];
        let latency = self.network.get(connection).latency;
        self.talks[connection][1] = Talk::Stranger;
        self.say_hello(
            connection,
            1,
            self.nodes[self.network.get(connection).nodes[1]].incarnation,
        );
        self.at(self.now.max(held).after(latency), Event::Connected { connection });
        self.after(WORD_DEADLINE, Event::Timeout { connection, side: 1 });
        if self.network.is_closed(connection, 0) {
            self.at(self.now.after(latency), Event::Learn { connection, side: 1 });
        }
    }

    pub(super) fn connected(&mut self, connection: usize) {
        let incarnation = match self.talks[connection][0] {
            Talk::Calls { session, attempt } => {
                self.talks[connection][0] = Talk::Hello { session, attempt };
                self.sessions[session].incarnations[0]
            }
            Talk::GhostCalls { incarnation, word } => {
                self.talks[connection][0] = Talk::Ghost { word };
                incarnation
            }
            _ => return,
        };
        self.say_hello(connection, 0, incarnation);
        self.hear(connection, 0);
    }

    pub(super) fn pair_of_connection(&self, connection: usize) -> usize {
        let nodes = self.network.get(connection).nodes;
        self.plan.pairs.iter().position(|pair| pair.nodes == nodes).unwrap_or(0)
    }

    fn say(&mut self, connection: usize, side: usize, bytes: &[u8]) {
        let late = Duration::ZERO;
        if let Written::Some(_, at) = self.network.write(connection, side, bytes, self.now, late) {
            self.arrives(connection, 1 - side, at);
        }
    }

    fn say_hello(&mut self, connection: usize, side: usize, incarnation: u128) {
        let hello = Hello::new(Name::truncated(""), Name::truncated(""), incarnation);
        self.say(connection, side, &hello.encode());
    }

    /// Something arrived, or the end of it.
    pub(super) fn has_news(&mut self, connection: usize, side: usize) {
        let node = &self.nodes[self.network.get(connection).nodes[side]];
        if node.stopped_until > self.now {
            return self.at(node.stopped_until, Event::Hear { connection, side });
        }
        if node.up {
            self.hear(connection, side);
        }
    }

    pub(super) fn hear(&mut self, connection: usize, side: usize) {
        let wants = match self.talks[connection][side] {
            Talk::Linked { end } => return self.hear_linked(end, connection),
            Talk::Hello { .. } | Talk::Stranger | Talk::Ghost { .. } => HELLO_BYTES,
            Talk::Answer { .. } | Talk::Word { .. } | Talk::GhostSpoke { .. } => RESUME_BYTES,
            _ => return,
        };
        if self.network.readable(connection, side) < wants {
            if self.network.has_ended(connection, side) {
                self.broke(connection, side);
            }
            return;
        }
        let mut bytes = Vec::with_capacity(wants);
        self.network.read(connection, side, wants, &mut bytes);
        self.heard(connection, side, &bytes);
    }

    fn hear_linked(&mut self, end: usize, connection: usize) {
        if self.ends[end].connection == Some(connection) {
            return self.poll(end);
        }
        if planted::is!(OldConnectionStillRead) && self.ends[end].over.is_none() {
            let side = self.ends[end].side;
            let mut bytes = std::mem::take(&mut self.ends[end].unread);
            self.network.read(connection, side, usize::MAX, &mut bytes);
            self.ends[end].unread = bytes;
            self.poll(end);
        }
    }

    /// The connection ended before the talk did.
    fn broke(&mut self, connection: usize, side: usize) {
        match self.talks[connection][side] {
            Talk::Calls { .. } | Talk::Hello { .. } | Talk::Answer { .. } => {
                self.failed(connection);
            }
            _ => self.hang_up(connection, side),
        }
    }

    /// An attempt came to nothing.
    pub(super) fn failed(&mut self, connection: usize) {
        let (Talk::Calls { session, .. }
        | Talk::Hello { session, .. }
        | Talk::Answer { session, .. }) = self.talks[connection][0]
        else {
            return self.hang_up(connection, 0);
        };
        self.hang_up(connection, 0);
        if self.dialling[session].connection != Some(connection) {
            return;
        }
        self.dialling[session].connection = None;
        match self.sessions[session].ends[0] {
            Some(end) if self.ends[end].over.is_some() => {}
            Some(_) => self.dial_later(session),
            None => {
                // Whoever begins a session tries with another one.
                let pair = self.sessions[session].pair;
                let next = self.new_session(pair);
                let old = &self.dialling[session];
                let (backoff, since, tries) = (old.backoff.clone(), old.since, old.tries);
                let dialling = &mut self.dialling[next];
                (dialling.backoff, dialling.since, dialling.tries) = (backoff, since, tries);
                self.dial_later(next);
            }
        }
    }

    pub(super) fn timeout(&mut self, connection: usize, side: usize) {
        match self.talks[connection][side] {
            Talk::Calls { .. } | Talk::Hello { .. } | Talk::Answer { .. } => {
                self.failed(connection);
            }
            Talk::Handed { .. } | Talk::Linked { .. } | Talk::Over => {}
            _ => self.hang_up(connection, side),
        }
    }

    /// One side hangs up; what it wrote last may get lost with what it did not read.
    pub(super) fn hang_up(&mut self, connection: usize, side: usize) {
        if self.network.readable(connection, side) > 0 && self.random.one_in(2) {
            let under_way = self.network.under_way(connection, 1 - side) as u64;
            let kept = self.random.below(under_way + 1) as usize;
            let at = self.now.after(self.network.get(connection).latency);
            let stalled = self.network.is_stalled_for_ever(connection, 1 - side);
            self.network.cut(connection, [kept, kept]);
            if !stalled {
                self.at(at, Event::Learn { connection, side: 1 - side });
            }
        }
        if let Some(at) = self.network.close(connection, side, self.now) {
            self.at(at, Event::Learn { connection, side: 1 - side });
        }
        if !planted::is!(OldConnectionStillRead) {
            self.talks[connection][side] = Talk::Over;
        }
    }

    /// The end that has this side of a connection.
    pub(super) fn linked(&self, connection: usize, side: usize) -> Option<usize> {
        match self.talks[connection][side] {
            Talk::Linked { end } if self.ends[end].over.is_none() => Some(end),
            _ => None,
        }
    }

    /// A session ended at one end: its dialler rests, and its application may
    /// begin another one.
    pub(super) fn session_over(&mut self, id: usize, over: Over) {
        let end = &self.ends[id];
        let (session, side) = (end.session, end.side);
        if side != 0 {
            return;
        }
        self.dialling[session].generation += 1;
        if let Some(connection) = self.dialling[session].connection.take() {
            self.hang_up(connection, 0);
        }
        let pair = self.sessions[session].pair;
        let clean = matches!(over, Over::Closed | Over::ClosedByPeer | Over::Crashed);
        let more = self.next_fault < self.plan.faults.len() || self.now < self.last_fault;
        if !clean && more {
            let wait = Duration::from_nanos(self.random.below(50_000_000));
            self.after(wait, Event::Begin { pair });
        }
    }
}
