//! Words of the two ends before a connection is a session's, and the drivers' part in them.

use super::Talk;
use crate::plan::Wrong;
use crate::world::{Event, Session, World};
use chunkcomm_proto::hello::Hello;
use chunkcomm_proto::resume::{Kind, Resume, Wish};
use std::time::Duration;

impl World<'_> {
    pub(super) fn heard(&mut self, connection: usize, side: usize, bytes: &[u8]) {
        let talk = self.connections[connection].talks[side];
        self.note(11, [connection as u64, side as u64], || {
            format!("connection {connection}, side {side}: heard what {talk:?} waits for")
        });
        match talk {
            Talk::Hello { session, attempt } => {
                let theirs = incarnation_of(bytes);
                self.dialler_heard_hello(connection, session, attempt, theirs);
            }
            Talk::Stranger => {
                self.connections[connection].talks[1] =
                    Talk::Word { incarnation: incarnation_of(bytes) };
                self.hear(connection, 1);
            }
            Talk::Word { incarnation } => self.acceptor_heard_word(connection, incarnation, bytes),
            Talk::Answer { session, .. } => self.dialler_heard_answer(connection, session, bytes),
            Talk::Ghost { mut word } => {
                word.addressee = incarnation_of(bytes);
                self.connections[connection].talks[0] = Talk::GhostSpoke { word };
                self.say(connection, 0, &word.encode());
            }
            Talk::GhostSpoke { word } => {
                if word_of(bytes).kind == Kind::Agreed && word.kind == Kind::New {
                    self.violate("a copy of a session was agreed to");
                }
                self.hang_up(connection, 0);
            }
            _ => {}
        }
    }

    fn dialler_heard_hello(
        &mut self,
        connection: usize,
        session: usize,
        attempt: u32,
        theirs: u128,
    ) {
        let Session { number, ends, .. } = self.sessions[session];
        let word = if let Some(end) = ends[0] {
            let now = self.local(self.ends[end].node);
            match self.ends[end].endpoint.greeted(attempt, theirs, now) {
                Ok(Some(word)) => self.received_to_say(end, word),
                Ok(None) => {
                    self.hang_up(connection, 0);
                    return self.poll(end);
                }
                Err(over) => {
                    self.hang_up(connection, 0);
                    return self.finish(end, over);
                }
            }
        } else {
            self.sessions[session].incarnations[1] = theirs;
            Resume::new_session(number, theirs)
        };
        self.connections[connection].talks[0] = Talk::Answer { session, attempt };
        self.say(connection, 0, &word.encode());
        self.hear(connection, 0);
    }

    fn dialler_heard_answer(&mut self, connection: usize, session: usize, bytes: &[u8]) {
        let answer = word_of(bytes);
        match (answer.kind, self.sessions[session].ends[0]) {
            (_, Some(end)) => self.hand(connection, 0, end, answer),
            (Kind::Agreed, None) => {
                let end = self.begin_end(session, 0);
                self.dialling[session].connection = None;
                self.connections[connection].talks[0] = Talk::Linked { end };
                self.ends[end].link_to(connection);
                self.poll(end);
            }
            _ => self.failed(connection),
        }
    }

    fn acceptor_heard_word(&mut self, connection: usize, incarnation: u128, bytes: &[u8]) {
        let word = word_of(bytes);
        let ours = self.nodes[self.node_at(connection, 1)].incarnation;
        let mine = |it: &Session| it.number == word.session && it.incarnations[0] == incarnation;
        let session = self.sessions.iter().rposition(mine);
        let end = session.and_then(|session| self.sessions[session].ends[1]).filter(|end| {
            let node = self.nodes[self.ends[*end].node].incarnation;
            self.ends[*end].over.is_none() && node == ours
        });
        match (word.wish(ours, end.is_some()), end, session) {
            (Ok(Wish::Begin), _, Some(session)) => self.accept_new(connection, session, &word),
            (Ok(Wish::GoOn), Some(end), _) => self.accept_again(connection, end, &word),
            _ => self.turn_away(connection, &word, Kind::Unknown),
        }
    }

    fn accept_new(&mut self, connection: usize, session: usize, word: &Resume) {
        if self.sessions[session].ends[1].is_some() {
            // A copy that comes after the session's end.
            return self.hang_up(connection, 1);
        }
        let end = self.begin_end(session, 1);
        self.say(connection, 1, &word.answer(Kind::Agreed, 0, 0).encode());
        self.connections[connection].talks[1] = Talk::Linked { end };
        self.ends[end].link_to(connection);
        self.poll(end);
    }

    fn accept_again(&mut self, connection: usize, id: usize, word: &Resume) {
        let now = self.local(self.ends[id].node);
        let end = &mut self.ends[id];
        let last = end.endpoint.attempt();
        let answer = end.endpoint.offered(word, now);
        if answer.kind != Kind::Agreed {
            return self.turn_away(connection, word, answer.kind);
        }
        if word.attempt <= last {
            self.violate(&format!("end {id}: attempt {} was taken after {last}", word.attempt));
        }
        self.cut_end(id);
        let answer = self.received_to_say(id, answer);
        self.say(connection, 1, &answer.encode());
        self.hand(connection, 1, id, *word);
    }

    fn turn_away(&mut self, connection: usize, word: &Resume, kind: Kind) {
        self.counts.turned_away[usize::from(kind == Kind::Unknown)] += 1;
        self.note(7, [connection as u64, kind as u64], || {
            format!("connection {connection} is told {kind:?}")
        });
        self.say(connection, 1, &word.answer(kind, 0, 0).encode());
        self.hang_up(connection, 1);
    }

    /// Returns the word as this end says it: now and then it has received less, or lies.
    fn received_to_say(&mut self, id: usize, mut word: Resume) -> Resume {
        let other = self.other(id);
        let pair = self.pair_of(id);
        let end = &mut self.ends[id];
        if self.plan.pairs[pair].modest && end.said < word.received {
            // The end must not say less than before, and need not say all.
            word.received = end.random.range(end.said, word.received + 1);
        }
        end.said = end.said.max(word.received);
        let Some(other) = other else { return word };
        let (acked, written) =
            (self.ends[other].endpoint.link.numbers()[1], self.ends[other].written);
        let end = &mut self.ends[id];
        word.received = match end.departs {
            Some(Wrong::ReceivedLow) if acked > 0 => end.random.below(acked),
            // Far beyond `written`, which may grow before the peer hears this word.
            Some(Wrong::ReceivedHigh) => written + end.random.range(1 << 20, 1 << 30),
            _ => return word,
        };
        end.departs = None;
        self.has_departed(id);
        let received = word.received;
        self.note(8, [id as u64, received], || format!("end {id} departs: it says {received}"));
        word
    }

    fn hand(&mut self, connection: usize, side: usize, end: usize, word: Resume) {
        self.connections[connection].talks[side] = Talk::Handed { end, word };
        let wait = match self.random.below(4) {
            0 => Duration::from_nanos(self.random.below(50_000_000)),
            _ => Duration::from_nanos(self.random.below(20_000)),
        };
        self.after(wait, Event::Adopt { connection, side });
    }

    pub(in super::super) fn adopt(&mut self, connection: usize, side: usize) {
        let Talk::Handed { end: id, word } = self.connections[connection].talks[side] else {
            return;
        };
        let now = self.local(self.ends[id].node);
        let end = &mut self.ends[id];
        if end.over.is_some() {
            return self.hang_up(connection, side);
        }
        let (acked, written) = (end.endpoint.link.numbers()[1], end.written);
        let Resume { attempt, received, .. } = word;
        let adopted = match side {
            0 => end.endpoint.answered(attempt, &word, now),
            _ => end.endpoint.adopt(attempt, received, now),
        };
        if side == 0 && self.dialling[self.ends[id].session].connection == Some(connection) {
            self.dialling[self.ends[id].session].connection = None;
        }
        match adopted {
            Ok(true) => {}
            Ok(false) => {
                self.hang_up(connection, side);
                if word.kind == Kind::Unknown {
                    self.violate("an end goes on with a session that it was told is unknown");
                }
                return self.poll(id);
            }
            Err(over) => {
                self.hang_up(connection, side);
                return self.finish(id, over);
            }
        }
        let end = &mut self.ends[id];
        if received < acked || received > written {
            end.fail(|| format!("{received} was believed between {acked} and {written}"));
        }
        end.link_to(connection);
        end.note_acknowledged();
        self.connections[connection].talks[side] = Talk::Linked { end: id };
        self.quiet_since(id);
        self.note(9, [id as u64, received], || {
            format!("end {id} adopts connection {connection}, which has {received}")
        });
        self.poll(id);
    }
}

fn incarnation_of(bytes: &[u8]) -> u128 {
    let hello = bytes.try_into().ok().and_then(|bytes| Hello::decode(bytes).ok());
    hello.map_or(0, |hello| hello.incarnation)
}

fn word_of(bytes: &[u8]) -> Resume {
    let word = bytes.try_into().ok().and_then(|bytes| Resume::decode(bytes).ok());
    word.expect("words are not changed on their way")
}
