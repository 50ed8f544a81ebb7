//! Producers and receivers of the application at an end.

use super::super::arrivals::Waiting;
use super::{End, Sent, Style};
use chunkcomm_proto::Time;
use chunkcomm_proto::limits::{CHANNEL_NAME_BYTES_MAX, WINDOW_BYTES_INITIAL};
use chunkcomm_proto::link::Counted;
use chunkcomm_proto::outbox::OpenSpec;
use chunkcomm_proto::packet::{ChannelKind, Lane};
use std::time::Duration;

/// Bytes in a ring beyond which its producer waits.
const RING_BYTES_MAX: usize = 32 * 1024;
/// Bytes of large messages beyond which a producer waits.
const LARGE_STAGED_MAX: usize = 256 * 1024;

impl End {
    /// Opens a channel for `messages` messages over about `work`; returns its number.
    pub(in super::super) fn open(&mut self, messages: u64, work: Duration, now: Time) -> u32 {
        let random = &mut self.random;
        let lane = if random.one_in(4) { Lane::Express } else { Lane::Bulk };
        let name = match random.below(40) {
            0 => "refuse".to_owned(),
            1 => "n".repeat(CHANNEL_NAME_BYTES_MAX),
            _ => "name".to_owned(),
        };
        let burst = random.range(1, 40).min(messages.max(1));
        let gap = work * u32::try_from(burst).unwrap_or(1) / messages.max(1) as u32;
        // A channel that stays open must not keep others from being opened.
        let room = self.config.peer_open_credit >= 8 * WINDOW_BYTES_INITIAL;
        let ends = !room || !random.one_in(4);
        let spec = OpenSpec {
            lane,
            system: false,
            kind: ChannelKind::Typed,
            fingerprint: 1,
            stream: None,
            backlog: None,
            name,
        };
        self.rings.open();
        self.sent.push(Sent {
            messages: 0,
            left: messages,
            burst,
            gap,
            ends,
            ended: false,
            terminated: false,
            waits: false,
            acked: 0,
            end_acked: false,
            sync: None,
        });
        self.endpoint.link.open(spec, now)
    }

    /// Gives a producer its turn; returns how long it rests then.
    pub(in super::super) fn produce(&mut self, channel: u32, now: Time) -> Option<Duration> {
        let sent = &mut self.sent[channel as usize - 1];
        if sent.terminated || sent.ended || self.endpoint.is_closing() {
            return None;
        }
        let count = self.random.range(1, sent.burst + 1).min(sent.left);
        for _ in 0..count {
            let (bytes, large) = self.rings.bytes(channel);
            if bytes > RING_BYTES_MAX || large > LARGE_STAGED_MAX {
                sent.waits = true;
                self.endpoint.link.no_room(channel, sent.messages, now);
                return None;
            }
            let (start, size) = self.ours.message(channel, sent.messages);
            sent.messages += 1;
            sent.left -= 1;
            if self.rings.stage(channel, start, size, self.inline_max) {
                if self.random.one_in(2) {
                    self.endpoint.link.staged(channel, now);
                } else {
                    self.endpoint.link.woken_for(channel, now, size.min(self.inline_max));
                }
            }
        }
        match self.random.below(24) {
            0..=2 => self.endpoint.link.urgent(channel, sent.messages, now),
            3 => self.endpoint.link.flush(channel, sent.messages, now, false),
            4 | 5 => {
                self.endpoint.link.flush(channel, sent.messages, now, true);
                if sent.acked < sent.messages {
                    sent.sync = Some(sent.messages);
                }
            }
            _ => {}
        }
        if sent.left > 0 {
            return Some(sent.gap * self.random.range(1, 200) as u32 / 100);
        }
        if sent.ends {
            sent.ended = true;
            self.endpoint.link.end(channel, sent.messages, now);
        }
        None
    }

    /// Whether all messages were handed over.
    pub(in super::super) fn has_produced(&self) -> bool {
        self.sent.iter().all(|sent| sent.left == 0 || sent.terminated)
    }

    pub(in super::super) fn close(&mut self, now: Time) {
        self.endpoint.close(now);
    }

    /// Lets a receiver take what waits; returns when it looks again.
    pub(in super::super) fn take(&mut self, channel: u32, now: Time) -> Option<Time> {
        let inbox = &mut self.inboxes[channel as usize - 1];
        inbox.resting = false;
        if inbox.dropped || inbox.finished {
            return None;
        }
        if now < self.stopped_until {
            inbox.resting = true;
            return Some(self.stopped_until);
        }
        let mut count = if inbox.style == Style::Eager { usize::MAX } else { 1 };
        while count > 0 {
            let Some(waiting) = inbox.arrivals.waiting.pop_front() else { break };
            let Waiting { bytes, counted, .. } = waiting;
            count -= 1;
            match counted {
                Counted::Not => {}
                Counted::Window => {
                    inbox.unreported += bytes;
                    if inbox.unreported >= self.endpoint.link.report_step(channel) {
                        self.endpoint.link.consumed(channel, std::mem::take(&mut inbox.unreported));
                    }
                }
                Counted::Large => {
                    self.large_held -= bytes;
                    self.endpoint.link.large_taken(channel);
                }
            }
        }
        match inbox.style {
            Style::Drops(after) if inbox.arrivals.arrived >= after => {
                self.drop_receiver(channel);
                return None;
            }
            Style::Slow(rest) if !inbox.arrivals.waiting.is_empty() => {
                inbox.resting = true;
                return Some(now.after(rest));
            }
            _ if !inbox.arrivals.waiting.is_empty() => return self.take(channel, now),
            _ => {}
        }
        if inbox.ended {
            inbox.finished = true;
            self.endpoint.link.finished(channel);
        } else if std::mem::take(&mut inbox.large_waits) {
            self.endpoint.link.demand_large(channel);
        }
        None
    }

    fn drop_receiver(&mut self, channel: u32) {
        let inbox = &mut self.inboxes[channel as usize - 1];
        inbox.dropped = true;
        inbox.arrivals.partial = None;
        for Waiting { bytes, counted, .. } in inbox.arrivals.waiting.drain(..) {
            if counted == Counted::Large {
                self.large_held -= bytes;
            }
        }
        self.endpoint.link.terminate(channel);
    }
}
