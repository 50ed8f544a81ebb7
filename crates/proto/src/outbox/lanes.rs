//! Filling a packet: the first lane, and the turns in it.

use super::filling::{Put, Putting};
use super::{Outbox, Staged};
use crate::Time;
use crate::packet::Lane;
use crate::session::Session;
use crate::tuning::constants::TALK_BYTES_MAX;
use crate::tuning::flush::Policy;
use bytes::Bytes;

/// Result of filling a packet.
#[derive(Debug, Default)]
pub struct Filled {
    /// Time when it was filled.
    pub at: Time,
    /// Bytes that end the packet, not copied.
    pub tail: Option<Bytes>,
    /// Whether these are a fragment.
    pub is_fragment: bool,
    /// Messages that were completed in the packet.
    pub messages: u32,
    /// Whether something did not fit.
    pub fit: bool,
    /// Number of entries noted in the session for the packet.
    pub entries: u32,
    /// Time when the oldest message in the packet was staged.
    pub oldest: Option<Time>,
}

impl Outbox {
    /// Fills `head` up to `bytes_max` in all; notes its messages and ends in `session`.
    #[inline]
    pub fn fill(
        &mut self,
        staged: &mut impl Staged,
        session: &mut Session,
        head: &mut Vec<u8>,
        bytes_max: usize,
        now: Time,
    ) -> Filled {
        let bulk_first = self.shares.begin();
        self.carried.clear();
        self.turns.clear();
        let lanes =
            if bulk_first { [Lane::Bulk, Lane::Express] } else { [Lane::Express, Lane::Bulk] };
        let mut filled = Filled { at: now, ..Filled::default() };
        for lane in lanes {
            if super::queue(&mut self.express, &mut self.bulk, lane).is_empty() {
                continue;
            }
            let before = head.len();
            let room = if lane == Lane::Bulk { self.bulk_room() } else { usize::MAX };
            let room = [bytes_max, before.saturating_add(room)];
            let full =
                room[1] > before && self.fill_lane(lane, staged, session, head, room, &mut filled);
            let tail = filled.tail.as_ref().map_or(0, Bytes::len);
            let took = head.len() - before + tail;
            match lane {
                Lane::Express => self.shares.express_took(took),
                Lane::Bulk => self.shares.bulk_took(took),
            }
            if full {
                break;
            }
        }
        self.express.filled();
        self.bulk.filled();
        self.count_turns(now);
        self.gathering.left(filled.messages, now);
        debug_assert!(self.counts_agree());
        filled
    }

    /// Counts the turns that put something in, and forgets the others.
    #[inline]
    fn count_turns(&mut self, now: Time) {
        let mut kept = 0;
        for at in 0..self.turns.len() {
            let id = self.turns[at];
            let Some(channel) = self.channels.get_mut(id) else { continue };
            let bytes = channel.count(now);
            if bytes == 0 {
                continue;
            }
            let talks = channel.spec.lane == Lane::Express || bytes <= TALK_BYTES_MAX;
            self.latest.took(id, talks, now);
            self.turns[kept] = id;
            kept += 1;
        }
        self.turns.truncate(kept);
    }

    /// Fills a packet from one lane; true when the packet is complete. It may grow to
    /// `bytes_max`, with a fragment at its end to `fragment_end`.
    #[inline]
    fn fill_lane(
        &mut self,
        lane: Lane,
        staged: &mut impl Staged,
        session: &mut Session,
        head: &mut Vec<u8>,
        [bytes_max, fragment_end]: [usize; 2],
        filled: &mut Filled,
    ) -> bool {
        let bytes_max = bytes_max.min(fragment_end);
        let queue = super::queue(&mut self.express, &mut self.bulk, lane);
        let share = self.shares.channel(bytes_max.saturating_sub(head.len()), queue.len());
        loop {
            let Some(id) = queue.pop() else { return false };
            let Some(channel) = self.channels.get_mut(id) else { continue };
            channel.leave(queue);
            if channel.begins(self.shares.packets()) {
                self.turns.push(id);
            }
            let before = channel.sent_bytes;
            let mut put = Putting {
                id,
                channel,
                staged,
                session,
                carried: &mut self.carried,
                longs: &mut self.longs,
                fragment_end,
                one: self.gathering.policy() == Policy::Unbuffered,
                filled,
            };
            let outcome = put.put(head, bytes_max, share);
            channel.round = queue.took(channel.round, channel.sent_bytes - before);
            match outcome {
                Put::Done { more: false } => {}
                Put::Done { more: true } | Put::NoRoom | Put::Tail(_) | Put::Fragment(_) => {
                    channel.enter(id, queue);
                }
                Put::Blocked => {
                    channel.set_blocked(true, &mut self.blocked);
                    self.credit_waits += 1;
                    channel.counters.credit_waits += 1;
                }
                Put::Ended => self.unended -= 1,
            }
            match outcome {
                Put::NoRoom => {
                    filled.fit = true;
                    return true;
                }
                Put::Tail(tail) => {
                    filled.tail = Some(tail);
                    return true;
                }
                Put::Fragment(tail) => {
                    (filled.tail, filled.is_fragment) = (Some(tail), true);
                    return true;
                }
                Put::Done { .. } | Put::Blocked | Put::Ended => {}
            }
            if self.gathering.policy() == Policy::Unbuffered && filled.messages > 0 {
                return true;
            }
        }
    }
}
