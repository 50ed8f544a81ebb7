//! Whether a packet leaves, from the channels that have something.

use super::{Outbox, Staged};
use crate::Time;
use crate::packet::RECORD_BYTES;
use crate::tuning::flush::{Pending, Verdict};

impl Outbox {
    /// Decides whether a packet leaves. `None` when nothing waits, or only bulk without room.
    #[inline]
    pub fn decide(&mut self, staged: &mut impl Staged, now: Time) -> Option<Verdict> {
        let pending = self.pending(staged)?;
        self.pending_bytes = pending.bytes + pending.records;
        Some(self.gathering.decide(&pending, now))
    }

    /// Looks at the channels that have something, until the verdict is settled. Each takes a record
    /// of the packet: so the channels that are looked at are no more than one packet holds.
    #[inline]
    fn pending(&self, staged: &mut impl Staged) -> Option<Pending> {
        let bulk_room = if self.bulk.is_empty() { 0 } else { self.bulk_room() };
        if self.express.is_empty() && bulk_room == 0 {
            return None;
        }
        let room = if self.express.is_empty() { bulk_room } else { self.packet_room };
        let lanes = if bulk_room > 0 { &[&self.express, &self.bulk][..] } else { &[&self.express] };
        let mut pending = Pending {
            room: room.min(self.packet_room),
            oldest: Time(u64::MAX),
            urgent: lanes.iter().any(|lane| lane.urgent > 0),
            closing: self.closing,
            express: !self.express.is_empty(),
            ..Pending::default()
        };
        for id in lanes.iter().flat_map(|lane| lane.iter()) {
            let Some(channel) = self.channels.get(id) else { continue };
            let view = staged.view(id);
            let credit = channel.credit - channel.sent_bytes;
            let bytes = (view.front.len() + view.back.len()).min(credit as usize);
            pending.bytes += bytes + usize::from(!channel.opened) * RECORD_BYTES;
            pending.records += RECORD_BYTES;
            pending.large |= channel.large.is_some() || view.large;
            pending.explicit |= channel.explicit_until > channel.sent_messages;
            pending.fit |= channel.fit_until > channel.sent_messages;
            pending.closing |= channel.end.is_some() || channel.end_when_drained;
            pending.oldest = pending.oldest.min(channel.oldest);
            if self.gathering.is_settled(&pending) {
                break;
            }
        }
        Some(pending)
    }
}
