//! Connections from the dial until an endpoint has them.

mod words;

use super::{Event, Session, World};
use chunkcomm_proto::Time;
use chunkcomm_proto::backoff::Backoff;
use chunkcomm_proto::endpoint::SessionEnd;
use chunkcomm_proto::hello::{HELLO_BYTES, Hello, Name};
use chunkcomm_proto::resume::{RESUME_BYTES, Resume};
use chunkcomm_simulation::Read;
use std::time::Duration;

/// Time after which the first connection of a session is given up and tried anew.
const ATTEMPT_DEADLINE: Duration = Duration::from_secs(3);

/// Time that a peer has to say which session it means.
const WORD_DEADLINE: Duration = Duration::from_secs(5);

/// Sessions that a pair begins, one after the other; the second while the seed is short.
const SESSIONS_MAX: u32 = 6;
const SESSIONS_MAX_SHORT: u32 = 60;

/// Most dials of one dialler: this number, and further ones for each second.
const DIALS_MAX: u64 = 24;
const DIALS_A_SECOND_MAX: u64 = 8;

/// Time after the last fault until an unanswered dialler gives up.
const GIVES_UP: Duration = Duration::from_secs(15);

/// Time in which a departure from the protocol is found out, or never.
const FOUND_OUT: Duration = Duration::from_secs(30);

/// State of the talk at one side of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Talk {
    /// The dialler waits for the connection.
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
    /// The connection is on its way to the driver, with the other side's word.
    Handed {
        end: usize,
        word: Resume,
    },
    /// The driver has the connection.
    Linked {
        end: usize,
    },
    /// An impostor: it says this word and is not the end that it names.
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

/// The dials of a session. The first connection is dialled from here, as there is no endpoint yet.
#[derive(Debug)]
pub(super) struct Dialling {
    pub(super) generation: u32,
    backoff: Backoff,
    /// Time of the last loss of a connection, and dials since then.
    since: Time,
    tries: u64,
    /// The connection that is dialled or talked over.
    connection: Option<usize>,
}

impl World<'_> {
    /// Begins a session of a pair, unless one goes on or enough were begun.
    pub(super) fn begin(&mut self, pair: usize) {
        self.leave_liar(pair);
        let state = self.pairs[pair];
        let over = |session: usize| {
            let Session { ends, incarnations, .. } = self.sessions[session];
            let node = self.plan.pairs[pair].nodes[0];
            match ends[0] {
                Some(end) => self.ends[end].over.is_some(),
                // The process that began it may be gone.
                None => incarnations[0] != self.nodes[node].incarnation,
            }
        };
        let most = if self.is_short() { SESSIONS_MAX_SHORT } else { SESSIONS_MAX };
        if state.session.is_some_and(|session| !over(session)) || state.begun >= most {
            return;
        }
        self.pairs[pair].begun += 1;
        self.last_begun = self.now;
        let session = self.new_session(pair);
        self.dial(session, 0);
    }

    /// Lets the dialler give up a session in which one end departed from the protocol long ago and
    /// was not found out. The seed can then have its other faults and messages.
    fn leave_liar(&mut self, pair: usize) {
        let Some(session) = self.pairs[pair].session else { return };
        let [Some(dialler), Some(acceptor)] = self.sessions[session].ends else { return };
        let long = [dialler, acceptor].iter().any(|end| {
            let end = &self.ends[*end];
            end.departed && self.now >= end.departed_at.after(FOUND_OUT)
        });
        if long && self.ends[dialler].over.is_none() && self.is_short() {
            self.counts.left += 1;
            self.finish(dialler, SessionEnd::Dead);
        }
    }

    /// Notes that an end has departed from the protocol.
    pub(super) fn has_departed(&mut self, id: usize) {
        (self.ends[id].departed, self.ends[id].departed_at) = (true, self.now);
        self.after(FOUND_OUT, Event::Begin { pair: self.pair_of(id) });
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
            backoff: Backoff::new(number),
            since: self.now,
            tries: 0,
            connection: None,
        });
        self.pairs[pair].session = Some(self.sessions.len() - 1);
        self.sessions.len() - 1
    }

    fn dial_later(&mut self, session: usize) {
        let dialling = &mut self.dialling[session];
        dialling.generation += 1;
        let generation = dialling.generation;
        let wait = dialling.backoff.wait();
        self.after(wait, Event::Dial { session, generation });
    }

    /// Dials the first connection of a session.
    pub(super) fn dial(&mut self, session: usize, generation: u32) {
        if self.dialling[session].generation != generation {
            return;
        }
        let all = self.next_fault == self.plan.faults.len();
        let rests = all && self.now > self.last_fault.after(GIVES_UP);
        if rests && !self.is_short() {
            return;
        }
        let connection = self.dial_attempt(session, 1);
        self.after(ATTEMPT_DEADLINE, Event::Timeout { connection, side: 0 });
    }

    /// Dials connection `attempt` for an endpoint that has lost the one before.
    pub(super) fn dial_again(&mut self, id: usize, attempt: u32) {
        let (session, lost) = (self.ends[id].session, self.ends[id].quiet.lost);
        if self.dialling[session].since < lost {
            (self.dialling[session].since, self.dialling[session].tries) = (lost, 0);
        }
        self.give_dial_up(session);
        self.dial_attempt(session, attempt);
    }

    pub(super) fn give_dial_up(&mut self, session: usize) {
        if let Some(connection) = self.dialling[session].connection.take() {
            self.hang_up(connection, 0);
        }
    }

    fn dial_attempt(&mut self, session: usize, attempt: u32) -> usize {
        let dialling = &mut self.dialling[session];
        dialling.tries += 1;
        let seconds = (self.now.0 - dialling.since.0) / 1_000_000_000;
        let tries = dialling.tries;
        if tries > DIALS_MAX + DIALS_A_SECOND_MAX * seconds {
            self.violate(&format!("{tries} dials in {seconds} s"));
        }
        let pair = self.sessions[session].pair;
        let connection = self.call(pair, Talk::Calls { session, attempt });
        self.dialling[session].connection = Some(connection);
        self.note(6, [session as u64, u64::from(attempt)], || {
            format!("session {session} attempt {attempt}: connection {connection}")
        });
        connection
    }

    /// Dials a connection of a pair.
    pub(super) fn call(&mut self, pair: usize, talk: Talk) -> usize {
        let mut late = Duration::ZERO;
        if self.now < self.pairs[pair].late_until {
            late = Duration::from_nanos(self.random.below(4_000_000_000));
        }
        let connection = self.connect(pair, talk, late);
        self.counts.dials += 1;
        connection
    }

    pub(super) fn accepted(&mut self, connection: usize) {
        if self.connections[connection].closed[1] {
            // It was for a process that is gone.
            return;
        }
        self.connections[connection].talks[1] = Talk::Stranger;
        let incarnation = self.nodes[self.node_at(connection, 1)].incarnation;
        self.say_hello(connection, 1, incarnation);
        self.after(WORD_DEADLINE, Event::Timeout { connection, side: 1 });
        self.hear(connection, 1);
    }

    pub(super) fn connected(&mut self, connection: usize) {
        let talk = &mut self.connections[connection].talks[0];
        let incarnation = match *talk {
            Talk::Calls { session, attempt } => {
                *talk = Talk::Hello { session, attempt };
                self.sessions[session].incarnations[0]
            }
            Talk::GhostCalls { incarnation, word } => {
                *talk = Talk::Ghost { word };
                incarnation
            }
            _ => return,
        };
        self.say_hello(connection, 0, incarnation);
        self.hear(connection, 0);
    }

    /// Writes the first words of a connection. Without a peer they get lost, and the silence is
    /// noticed.
    fn say(&mut self, connection: usize, side: usize, bytes: &[u8]) {
        if let Ok(count) = self.write_to(connection, side, bytes) {
            assert_eq!(count, bytes.len(), "the smallest queue holds what is said first");
        }
    }

    fn say_hello(&mut self, connection: usize, side: usize, incarnation: u128) {
        let hello = Hello::new(Name::truncated(""), Name::truncated(""), incarnation);
        self.say(connection, side, &hello.encode());
    }

    pub(super) fn hear(&mut self, connection: usize, side: usize) {
        let wants = match self.connections[connection].talks[side] {
            Talk::Linked { end } => return self.hear_linked(end, connection),
            Talk::Hello { .. } | Talk::Stranger | Talk::Ghost { .. } => HELLO_BYTES,
            Talk::Answer { .. } | Talk::Word { .. } | Talk::GhostSpoke { .. } => RESUME_BYTES,
            // Before the connection is there, the only news is that it will not be.
            Talk::Calls { .. } | Talk::GhostCalls { .. } => 1,
            Talk::Handed { .. } | Talk::Over => return,
        };
        let mut bytes = std::mem::take(&mut self.connections[connection].heard[side]);
        let read = self.read_from(connection, side, wants - bytes.len(), &mut bytes);
        if bytes.len() == wants {
            return self.heard(connection, side, &bytes);
        }
        self.connections[connection].heard[side] = bytes;
        if matches!(read, Ok(Read::End) | Err(_)) {
            self.broke(connection, side);
        }
    }

    fn hear_linked(&mut self, end: usize, connection: usize) {
        if self.ends[end].connection == Some(connection) {
            // News for reading and for writing: the connection may be broken.
            (self.ends[end].may_read, self.ends[end].may_write) = (true, true);
            self.poll(end);
        }
    }

    pub(super) fn has_room(&mut self, connection: usize, side: usize) {
        if let Talk::Linked { end } = self.connections[connection].talks[side]
            && self.ends[end].connection == Some(connection)
        {
            self.ends[end].may_write = true;
            self.poll(end);
        }
    }

    /// Handles a connection that ended before the talk did.
    fn broke(&mut self, connection: usize, side: usize) {
        match self.connections[connection].talks[side] {
            Talk::Calls { .. } | Talk::Hello { .. } | Talk::Answer { .. } => {
                self.failed(connection);
            }
            _ => self.hang_up(connection, side),
        }
    }

    /// Handles an attempt that came to nothing.
    pub(super) fn failed(&mut self, connection: usize) {
        let (Talk::Calls { session, attempt }
        | Talk::Hello { session, attempt }
        | Talk::Answer { session, attempt }) = self.connections[connection].talks[0]
        else {
            return self.hang_up(connection, 0);
        };
        self.hang_up(connection, 0);
        if self.dialling[session].connection != Some(connection) {
            return;
        }
        self.dialling[session].connection = None;
        let Some(end) = self.sessions[session].ends[0] else {
            // A dialler that begins a session tries again with another one.
            let next = self.new_session(self.sessions[session].pair);
            let old = &self.dialling[session];
            let (backoff, since, tries) = (old.backoff.clone(), old.since, old.tries);
            let dialling = &mut self.dialling[next];
            (dialling.backoff, dialling.since, dialling.tries) = (backoff, since, tries);
            return self.dial_later(next);
        };
        let now = self.local(self.ends[end].node);
        self.ends[end].endpoint.dial_failed(attempt, now);
        self.poll(end);
    }

    pub(super) fn timeout(&mut self, connection: usize, side: usize) {
        match self.connections[connection].talks[side] {
            Talk::Calls { .. } | Talk::Hello { .. } | Talk::Answer { .. } => {
                self.failed(connection);
            }
            Talk::Handed { .. } | Talk::Linked { .. } | Talk::Over => {}
            _ => self.hang_up(connection, side),
        }
    }

    /// Handles a session's end at one end: its dialler rests, and its application may begin another
    /// session.
    pub(super) fn session_over(&mut self, id: usize, over: SessionEnd) {
        let end = &self.ends[id];
        let (session, side) = (end.session, end.side);
        if side != 0 {
            return;
        }
        self.dialling[session].generation += 1;
        self.give_dial_up(session);
        let pair = self.sessions[session].pair;
        let clean =
            matches!(over, SessionEnd::Closed | SessionEnd::ClosedByPeer | SessionEnd::GivenUp);
        let more = self.next_fault < self.plan.faults.len() || self.now < self.last_fault;
        if (!clean && more) || self.is_short() {
            // Not all sessions are to be over before the next fault.
            let begun = Duration::from_millis(40 * u64::from(self.pairs[pair].begun));
            let rest = if clean { self.plan.work / 4 + begun } else { Duration::ZERO };
            let most = Duration::from_millis(50) + rest;
            let wait = Duration::from_nanos(self.random.below(most.as_nanos() as u64));
            self.after(wait, Event::Begin { pair });
        }
    }
}
