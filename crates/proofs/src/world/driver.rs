//! The driver of one end: it moves bytes, time and connections for the endpoint.

mod writing;

use super::{Event, World};
use crate::end::over_index;
use chunkcomm_proto::Time;
use chunkcomm_proto::endpoint::{Action, SessionEnd};
use chunkcomm_proto::packet::Elsewhere;
use chunkcomm_simulation::Read;
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
        if let Some(part) = self.ends[id].decoder.elsewhere() {
            self.read_memory(id, connection, part);
            return Turn::Progress;
        }
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
                self.lost(id);
                return Turn::Progress;
            }
        }
        if let Some((channel, _)) = direct {
            self.read_direct(id, channel);
        }
        self.handle_unread(id, now);
        Turn::Progress
    }

    /// Handles every complete item of the bytes that were read.
    fn handle_unread(&mut self, id: usize, now: Time) {
        let end = &mut self.ends[id];
        let handled = end.handle_unread(now);
        let heard = end.endpoint.heard(now);
        self.quiet_since(id);
        if let Err(over) = handled.map_err(SessionEnd::Protocol).and(heard) {
            self.finish(id, over);
        } else {
            self.check_acknowledged(id);
            // The other end may expect an acknowledgement from now on.
            if let Some(other) = self.other(id) {
                self.check_lag(other);
            }
        }
    }

    /// Reads bytes of a fragment from the memory of the other end, which has them as long as it has the
    /// connection. Now and then the system does not let it.
    fn read_memory(&mut self, id: usize, connection: usize, part: Elsewhere) {
        let holds = self.other(id).is_some_and(|other| {
            let other = &self.ends[other];
            other.connection == Some(connection) && other.over.is_none()
        });
        let now = self.local(self.ends[id].node);
        let end = &mut self.ends[id];
        if !holds || end.random.one_in(40) {
            return self.lost(id);
        }
        // The other end must keep the packet until it has read that this one has it.
        let due = self.ends[id].endpoint.link.received() + 1;
        let released = self.other(id).is_some_and(|other| {
            let [_, acknowledged, _] = self.ends[other].endpoint.link.numbers();
            acknowledged >= due
        });
        let end = &mut self.ends[id];
        if released {
            end.fail(|| format!("packet {due} was released before it was read"));
        }
        let most = part.bytes as usize;
        let bytes =
            if end.random.one_in(2) { end.random.range(1, most as u64) as usize } else { most };
        self.counts.read += bytes as u64;
        let end = &mut self.ends[id];
        end.read_memory(part, bytes, now);
        self.handle_unread(id, now);
    }

    /// Delivers bytes of a fragment that were read straight to their place, past the decoder.
    fn read_direct(&mut self, id: usize, channel: u32) {
        let end = &mut self.ends[id];
        let bytes = std::mem::take(&mut end.unread);
        end.decoder.skip_fragment(bytes.len() as u32);
        end.large_bytes(channel, &bytes);
        if let Some(counted) = end.endpoint.link.fragment_landed(channel, bytes.len() as u64) {
            end.large_done(channel, counted);
        }
        end.touched.push(channel);
    }

    // ---- resting ----

    fn rest(&mut self, id: usize) {
        let (node, now) = (self.ends[id].node, self.local(self.ends[id].node));
        let due = loop {
            match self.ends[id].endpoint.poll(now) {
                Action::Wait(due) => break due,
                Action::Write => return self.wake_at(id, self.now),
                Action::Drop => {
                    self.note(3, [id as u64, 0], || format!("end {id} drops its connection"));
                    self.check_dropped(id);
                    self.cut_end(id);
                }
                Action::Dial { attempt } => self.dial_again(id, attempt),
                Action::Unanswered => self.give_dial_up(self.ends[id].session),
                Action::End(over) => {
                    if over == SessionEnd::Dead {
                        self.check_dead(id);
                    }
                    return self.finish(id, over);
                }
            }
        };
        // Timers have steps of one millisecond.
        let ahead = self.nodes[node].ahead;
        let at = due.0.saturating_sub(ahead).max(self.now.0).next_multiple_of(1_000_000);
        self.wake_at(id, Time(at));
    }

    // ---- connections ----

    /// Handles the loss of a connection, as reading shows it.
    fn lost(&mut self, id: usize) {
        let now = self.local(self.ends[id].node);
        match self.ends[id].endpoint.lost(now) {
            Ok(()) => self.cut_end(id),
            Err(over) => self.finish(id, over),
        }
    }

    /// Drops the connection of an end whose endpoint has given it up.
    pub(super) fn cut_end(&mut self, id: usize) {
        let Some(connection) = self.ends[id].connection else { return };
        self.note(4, [id as u64, 0], || format!("end {id} has lost connection {connection}"));
        self.hang_up(connection, self.ends[id].side);
        self.ends[id].cut();
        self.ends[id].quiet.lost = self.now;
        // A connection that is given up for its silence leaves the peer the rest of its time.
        let end = &self.ends[id];
        if end.endpoint.link.heard_at() == self.local(end.node) {
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
    pub(super) fn finish(&mut self, id: usize, over: SessionEnd) {
        if self.ends[id].over.is_some() {
            return;
        }
        self.note(5, [id as u64, over_index(over) as u64], || {
            format!("end {id} is over: {over:?}")
        });
        self.check_cause(id, over);
        let end = &mut self.ends[id];
        end.note_acknowledged();
        end.over = Some(over);
        if over != SessionEnd::GivenUp {
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
    fn say_gone(&mut self, id: usize, over: SessionEnd) {
        let end = &mut self.ends[id];
        let (side, farewell) = (end.side, end.endpoint.end(over));
        let Some(connection) = end.connection.take() else { return };
        if let Some(farewell) = farewell {
            // Sent if possible: the peer may be gone, or the buffers full.
            let _ = self.write_to(connection, side, &farewell);
        }
        self.hang_up(connection, side);
    }
}
