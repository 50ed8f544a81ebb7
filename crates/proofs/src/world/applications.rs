//! Steps of the applications at the ends: begin, produce, take and close.

use super::{Event, Session, World};
use crate::end::End;
use crate::plan;
use chunkcomm_proto::endpoint::SessionId;
use chunkcomm_proto::random::Random;
use std::time::Duration;

impl World<'_> {
    /// Begins one end of a session and its application; returns the end's index.
    pub(super) fn begin_end(&mut self, session: usize, side: usize) -> usize {
        let Session { pair, number, .. } = self.sessions[session];
        let nodes = self.plan.pairs[pair].nodes;
        let now = nodes.map(|node| self.local(node));
        let configs = plan::configs(&mut Random::fork(self.seed, number), now);
        let id = self.ends.len();
        let random = Random::fork(number, 77 + side as u64);
        let place = [session, side, nodes[side]];
        let id_of = SessionId { number, peer: self.sessions[session].incarnations[1 - side] };
        let mut end = End::new(place, number << 1, id_of, &configs[side], random, self.now);
        let many = self.sessions[session].first || self.is_short();
        let channels = end.random.range(3, 6);
        for _ in 0..channels {
            let messages = if many { self.plan.messages } else { end.random.range(1, 40) };
            let channel = end.open(messages, self.plan.work, now[side]);
            let wait = Duration::from_nanos(self.random.below(2_000_000));
            self.after(wait, Event::Produce { end: id, channel });
        }
        self.ends.push(end);
        self.sessions[session].ends[side] = Some(id);
        id
    }

    pub(super) fn produce(&mut self, id: usize, channel: u32) {
        let now = self.local(self.ends[id].node);
        if let Some(rest) = self.ends[id].produce(channel, now) {
            self.after(rest, Event::Produce { end: id, channel });
        }
        self.poll(id);
    }

    pub(super) fn take(&mut self, id: usize, channel: u32) {
        self.take_one(id, channel);
        self.poll(id);
    }

    pub(super) fn take_one(&mut self, id: usize, channel: u32) {
        if let Some(next) = self.ends[id].take(channel, self.now) {
            self.at(next, Event::Take { end: id, channel });
        }
    }

    /// Closes the end if its application has done its part.
    pub(super) fn maybe_close(&mut self, id: usize) {
        let pair = self.pair_of(id);
        let end = &self.ends[id];
        let closes = self.plan.pairs[pair].closes[end.side];
        if !closes || end.endpoint.is_closing() || !end.has_produced() {
            return;
        }
        let theirs = self.other(id).map_or(usize::MAX, |other| self.ends[other].sent.len());
        let has_all = end.inboxes.len() == theirs
            && end.inboxes.iter().all(|inbox| inbox.finished || inbox.dropped);
        // Channels that only the close ends never finish before it.
        let has_all = has_all || self.has_all_messages(id);
        if has_all || self.plan.pairs[pair].early {
            let now = self.local(end.node);
            self.note(20, [id as u64, 0], || format!("end {id} closes"));
            self.ends[id].close(now);
        }
    }

    /// Whether this end received everything that the other end will ever send.
    fn has_all_messages(&self, id: usize) -> bool {
        let Some(other) = self.other(id) else { return false };
        let (end, other) = (&self.ends[id], &self.ends[other]);
        other.has_produced()
            && other.sent.iter().enumerate().all(|(index, sent)| {
                let inbox = end.inboxes.get(index);
                sent.terminated
                    || inbox.is_some_and(|it| it.dropped || it.arrivals.arrived == sent.messages)
            })
    }
}
