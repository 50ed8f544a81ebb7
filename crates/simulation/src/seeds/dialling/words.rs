//! Words of the two ends before a connection is a session's, and the drivers' part in them.

use super::super::end::{Closing, Over};
use super::super::plan::Wrong;
use super::super::world::{Event, Session, World};
use super::Talk;
use chunkcomm_proto::attempts::Offer;
use chunkcomm_proto::hello::Hello;
use chunkcomm_proto::resume::{Kind, Resume};
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
            Talk::Answer { session, attempt } => {
                self.dialler_heard_answer(connection, session, attempt, bytes);
            }
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
        let Session { number, incarnations, ends, .. } = self.sessions[session];
        let mut word =
            Resume { kind: Kind::New, session: number, attempt, received: 0, addressee: theirs };
        if let Some(end) = ends[0] {
            if theirs != incarnations[1] {
                self.hang_up(connection, 0);
                return self.finish(end, Over::Restarted);
            }
            if self.offer(end, attempt) != Offer::Taken {
                return self.failed(connection);
            }
            word.kind = Kind::Again;
            word.received = self.received_to_say(end);
        } else {
            self.sessions[session].incarnations[1] = theirs;
        }
        self.connections[connection].talks[0] = Talk::Answer { session, attempt };
        self.say(connection, 0, &word.encode());
        self.hear(connection, 0);
    }

    fn dialler_heard_answer(
        &mut self,
        connection: usize,
        session: usize,
        attempt: u32,
        bytes: &[u8],
    ) {
        let answer = word_of(bytes);
        let end = self.sessions[session].ends[0];
        match (answer.kind, end) {
            (Kind::Agreed, None) => {
                let end = self.begin_end(session, 0);
                self.dialling[session].connection = None;
                self.connections[connection].talks[0] = Talk::Linked { end };
                self.ends[end].link_to(connection);
                self.poll(end);
            }
            (Kind::Agreed, Some(end)) => {
                self.dialling[session].connection = None;
                self.hand(connection, 0, end, attempt, answer.received);
            }
            (Kind::Unknown, Some(end)) => {
                self.hang_up(connection, 0);
                self.finish(end, Over::Forgotten);
            }
            _ => self.failed(connection),
        }
        let goes_on = end.is_some_and(|end| self.ends[end].over.is_none());
        if answer.kind == Kind::Unknown && goes_on {
            self.violate("an end goes on with a session that it was told is unknown");
        }
    }

    fn acceptor_heard_word(&mut self, connection: usize, incarnation: u128, bytes: &[u8]) {
        let word = word_of(bytes);
        let ours = self.nodes[self.node_at(connection, 1)].incarnation;
        let meant = word.addressee == ours;
        let mine = |it: &Session| it.number == word.session && it.incarnations[0] == incarnation;
        let session = self.sessions.iter().rposition(mine);
        let end = session.and_then(|session| self.sessions[session].ends[1]).filter(|end| {
            let node = self.nodes[self.ends[*end].node].incarnation;
            self.ends[*end].over.is_none() && node == ours
        });
        match (word.kind, end, session) {
            (Kind::New, None, Some(session)) if meant => {
                self.accept_new(connection, session, &word);
            }
            (Kind::Again, Some(end), _) if meant => self.accept_again(connection, end, &word),
            _ => self.turn_away(connection, &word, Kind::Unknown),
        }
    }

    fn accept_new(&mut self, connection: usize, session: usize, word: &Resume) {
        if self.sessions[session].ends[1].is_some() {
            // A copy that comes after the session's end.
            return self.hang_up(connection, 1);
        }
        let end = self.begin_end(session, 1);
        self.say(connection, 1, &Resume { kind: Kind::Agreed, received: 0, ..*word }.encode());
        self.connections[connection].talks[1] = Talk::Linked { end };
        self.ends[end].link_to(connection);
        self.poll(end);
    }

    fn accept_again(&mut self, connection: usize, end: usize, word: &Resume) {
        let offer = self.offer(end, word.attempt);
        if offer != Offer::Taken {
            return self.turn_away(connection, word, offer.kind());
        }
        let received = self.received_to_say(end);
        self.say(connection, 1, &Resume { kind: Kind::Agreed, received, ..*word }.encode());
        self.hand(connection, 1, end, word.attempt, word.received);
    }

    fn turn_away(&mut self, connection: usize, word: &Resume, kind: Kind) {
        self.counts.turned_away[usize::from(kind == Kind::Unknown)] += 1;
        self.note(7, [connection as u64, kind as u64], || {
            format!("connection {connection} is told {kind:?}")
        });
        self.say(connection, 1, &Resume { kind, received: 0, ..*word }.encode());
        self.hang_up(connection, 1);
    }

    /// Returns the number of the last packet that this end says it has received.
    fn received_to_say(&mut self, id: usize) -> u64 {
        let other = self.other(id);
        let pair = self.pair_of(id);
        let end = &mut self.ends[id];
        let mut received = end.link.received();
        if self.plan.pairs[pair].modest && end.said < received {
            // The end must not say less than before, and need not say all.
            received = end.random.range(end.said, received + 1);
        }
        end.said = end.said.max(received);
        let Some(other) = other else { return received };
        let (acked, written) = (self.ends[other].link.numbers()[1], self.ends[other].written);
        let end = &mut self.ends[id];
        match end.departs {
            Some(Wrong::ReceivedLow) if acked > 0 => received = end.random.below(acked),
            // Far beyond `written`, which may grow before the peer hears this word.
            Some(Wrong::ReceivedHigh) => received = written + end.random.range(1 << 20, 1 << 30),
            _ => return received,
        }
        end.departs = None;
        self.has_departed(id);
        self.note(8, [id as u64, received], || format!("end {id} departs: it says {received}"));
        received
    }

    /// Offers connection `attempt` to the driver of an end.
    fn offer(&mut self, id: usize, attempt: u32) -> Offer {
        let end = &mut self.ends[id];
        let over = end.over.is_some() || matches!(end.closing, Closing::Bye | Closing::Shutdown);
        let last = end.attempts.last();
        let offer = end.attempts.offer(attempt, over);
        if offer == Offer::Taken {
            if attempt <= last {
                end.fail(|| format!("attempt {attempt} was taken after {last}"));
            }
            if end.connection.is_some() {
                self.cut_end(id);
            }
        }
        if let Some(wrong) = self.ends[id].wrong.take() {
            self.violate(&format!("end {id}: {wrong}"));
        }
        offer
    }

    fn hand(&mut self, connection: usize, side: usize, end: usize, attempt: u32, received: u64) {
        self.connections[connection].talks[side] = Talk::Handed { end, attempt, received };
        let wait = match self.random.below(4) {
            0 => Duration::from_nanos(self.random.below(50_000_000)),
            _ => Duration::from_nanos(self.random.below(20_000)),
        };
        self.after(wait, Event::Adopt { connection, side });
    }

    pub(in super::super) fn adopt(&mut self, connection: usize, side: usize) {
        let Talk::Handed { end: id, attempt, received } = self.connections[connection].talks[side]
        else {
            return;
        };
        let now = self.local(self.ends[id].node);
        let end = &mut self.ends[id];
        if end.over.is_some() || !end.attempts.adopt(attempt) {
            return self.hang_up(connection, side);
        }
        let (acked, written) = (end.link.numbers()[1], end.written);
        if let Err(error) = end.link.resume(received, now) {
            self.hang_up(connection, side);
            return self.finish(id, Over::Protocol(error));
        }
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
