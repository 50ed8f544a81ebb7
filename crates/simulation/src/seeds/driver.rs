//! The turns of one end's driver, as `driver/link.rs` takes them.

mod writing;

use super::end::{Closing, Over};
use super::world::{Event, World};
use crate::network::Read;
use chunkcomm_proto::Time;
use chunkcomm_proto::liveness::Alive;
use std::time::Duration;

/// Turns of reading and writing in one look.
const TURNS_MAX: usize = 16;

/// Result of a turn.
enum Turn {
    Progress,
    Rest,
}

impl World<'_> {
    pub(super) fn woken(&mut self, id: usize) {
        // An alarm that was set again stays in the heap, and finds nothing due.
        if self.ends[id].wake_at.is_some_and(|at| at <= self.now) {
            self.ends[id].wake_at = None;
            self.poll(id);
        }
    }

    fn wake_at(&mut self, id: usize, at: Time) {
        if self.ends[id].wake_at.is_none_or(|before| at < before) {
            self.ends[id].wake_at = Some(at);
            self.at(at, Event::Wake { end: id });
        }
    }

    /// Takes one look of the driver.
    pub(super) fn poll(&mut self, id: usize) {
        if self.ends[id].over.is_some() {
            return;
        }
        self.count_look(id);
        self.check_lag(id);
        for turn in 0.. {
            if turn == TURNS_MAX {
                self.wake_at(id, self.now.after(Duration::from_micros(1)));
                break;
            }
            self.take_all(id);
            self.maybe_close(id);
            let wrote = self.write(id);
            let read = if self.ends[id].over.is_none() { self.read(id) } else { Turn::Rest };
            if let Some(wrong) = self.ends[id].wrong.take() {
                let text = format!("end {id}: {wrong}");
                self.violate(&text);
            }
            if self.ends[id].over.is_some() || self.violation.is_some() {
                return;
            }
            if matches!((wrote, read), (Turn::Rest, Turn::Rest)) {
                break;
            }
        }
        self.rest(id);
        self.look_for_fault(id);
    }

    /// Lets receivers with something new take it.
    fn take_all(&mut self, id: usize) {
        let mut touched = std::mem::take(&mut self.ends[id].touched);
        for channel in touched.drain(..) {
            if !self.ends[id].inboxes[channel as usize - 1].resting {
                self.take_one(id, channel);
            }
        }
        self.ends[id].touched = touched;
    }

    // ---- reading ----

    fn read(&mut self, id: usize) -> Turn {
        let (Some(connection), side) = (self.ends[id].connection, self.ends[id].side) else {
            return Turn::Rest;
        };
        if !self.ends[id].may_read {
            return Turn::Rest;
        }
        let crumbs = self.plan.crumbs;
        let end = &mut self.ends[id];
        let most = if end.random.one_in(crumbs) { end.random.range(1, 40) } else { 64 * 1024 };
        let now = Time(self.now.0 + self.nodes[end.node].ahead);
        let direct = end.direct().filter(|_| end.random.one_in(2));
        let most = direct.map_or(most as usize, |(_, left)| left.min(most as usize));
        let mut unread = std::mem::take(&mut end.unread);
        let read = self.read_from(connection, side, most, &mut unread);
        self.ends[id].unread = unread;
        match read {
            Ok(Read::Bytes(_)) => {}
            Ok(Read::Nothing) => {
                self.ends[id].may_read = false;
                return Turn::Rest;
            }
            Ok(Read::End) | Err(_) => {
                self.disconnect(id);
                return Turn::Progress;
            }
        }
        if let Some((channel, _)) = direct {
            self.read_direct(id, channel);
        }
        let outcome = self.ends[id].handle_unread(now);
        self.ends[id].link.heard(now);
        self.quiet_since(id);
        if let Err(error) = outcome {
            self.finish(id, Over::Protocol(error));
        } else if let Some(word) = self.ends[id].last_word {
            self.finish(id, word);
        } else {
            self.check_acknowledged(id);
            // The other end may expect an acknowledgement from now on.
            if let Some(other) = self.other(id) {
                self.check_lag(other);
            }
        }
        Turn::Progress
    }

    /// Delivers bytes of a fragment that were read straight to their place, past the decoder.
    fn read_direct(&mut self, id: usize, channel: u32) {
        let end = &mut self.ends[id];
        let bytes = std::mem::take(&mut end.unread);
        end.decoder.skip_fragment(bytes.len() as u32);
        end.large_bytes(channel, &bytes);
        if let Some(counted) = end.link.fragment_landed(channel, bytes.len() as u64) {
            end.large_done(channel, counted);
        }
        end.touched.push(channel);
    }

    // ---- resting ----

    fn rest(&mut self, id: usize) {
        let node = self.ends[id].node;
        let now = self.local(node);
        let end = &mut self.ends[id];
        let (alive, at) = end.link.poll_alive(now);
        match alive {
            Alive::Dead => {
                self.check_dead(id);
                return self.finish(id, Over::Dead);
            }
            Alive::Suspect if end.side == 0 => {
                self.note(3, [id as u64, 0], || format!("end {id} gives its connection up"));
                self.check_suspect(id);
                self.disconnect(id);
                return self.wake_at(id, self.now.after(Duration::from_micros(1)));
            }
            Alive::Probe if end.connection.is_some() => {
                return self.wake_at(id, self.now);
            }
            _ => {}
        }
        let can_write = end.connection.is_some() && end.writer.packet.head.is_empty();
        let link = if can_write { end.link.next_deadline() } else { None };
        let due = link.map_or(at, |link| link.min(at));
        // Timers have steps of one millisecond.
        let ahead = self.nodes[node].ahead;
        let at = due.0.saturating_sub(ahead).max(self.now.0).next_multiple_of(1_000_000);
        self.wake_at(id, Time(at));
    }

    // ---- connections ----

    /// Drops a connection that is of no use any more: the session waits for another one, or is over
    /// if it was closing.
    pub(super) fn disconnect(&mut self, id: usize) {
        if matches!(self.ends[id].closing, Closing::Bye | Closing::Shutdown) {
            return self.finish(id, Over::Closed);
        }
        self.cut_end(id);
        if self.ends[id].side == 0 {
            let (session, last) = (self.ends[id].session, self.ends[id].attempts.last());
            self.redial(session, last);
        }
    }

    pub(super) fn cut_end(&mut self, id: usize) {
        let now = self.local(self.ends[id].node);
        let side = self.ends[id].side;
        if let Some(connection) = self.ends[id].connection {
            self.note(4, [id as u64, 0], || format!("end {id} has lost connection {connection}"));
            self.hang_up(connection, side);
        }
        // A connection that is given up for its silence leaves the peer the rest of its time.
        let silent = self.ends[id].connection.is_some() && self.ends[id].link.is_suspect();
        self.ends[id].cut(now);
        self.ends[id].quiet.lost = self.now;
        if !silent {
            self.quiet_since(id);
        }
    }

    pub(super) fn quiet_since(&mut self, id: usize) {
        let quiet = &mut self.ends[id].quiet;
        quiet.since = self.now;
        quiet.stopped = Duration::ZERO;
        quiet.stops = 0;
    }

    /// Ends the session at this end.
    pub(super) fn finish(&mut self, id: usize, over: Over) {
        if self.ends[id].over.is_some() {
            return;
        }
        self.note(5, [id as u64, over.index() as u64], || format!("end {id} is over: {over:?}"));
        self.check_cause(id, over);
        let end = &mut self.ends[id];
        end.note_acknowledged();
        end.over = Some(over);
        if over != Over::Crashed {
            end.check_account();
            end.sent.iter_mut().for_each(|sent| sent.sync = None);
            self.say_gone(id, over);
        }
        self.check_acknowledged(id);
        if let Some(wrong) = self.ends[id].wrong.take() {
            self.violate(&format!("end {id}: {wrong}"));
        }
        self.session_over(id, over);
    }

    /// Tells the peer that the session was given up, and hangs up.
    fn say_gone(&mut self, id: usize, over: Over) {
        let end = &mut self.ends[id];
        let (side, closed) = (end.side, over == Over::Closed);
        let Some(connection) = end.connection.take() else { return };
        if !closed && end.last_word.is_none() && end.writer.offset == 0 {
            let farewell = end.link.farewell();
            // Sent if possible: the peer may be gone, or the buffers full.
            let _ = self.write_to(connection, side, &farewell);
        }
        self.hang_up(connection, side);
    }
}
