//! Checks of both ends of a session together, and of the end of a run.

use super::World;
use crate::end::{End, Sent};
use crate::plan::STATE_NAMES;
use chunkcomm_proto::endpoint::SessionEnd;
use chunkcomm_proto::limits::{ACK_DELAY_MS, DEAD_MS_DEFAULT, SUSPECT_MS_DEFAULT};
use std::time::Duration;

/// Looks of an end's driver in one virtual second; more count as a loop without end.
const LOOKS_MAX: u32 = 20_000;

/// Time in which an unhindered link recovers: at the dialler, at the acceptor.
const RECOVERS: [Duration; 2] = [Duration::from_secs(8), Duration::from_millis(9500)];

/// Time in which a connection is dialled and talked over, without its crossings: the first wait of
/// a backoff, and steps that take no time of their own.
const DIALS: Duration = Duration::from_millis(100);
/// Crossings from one end to the other while a connection is dialled and talked over.
const DIALS_CROSSINGS: u32 = 6;

/// Time allowed to steps that take no time of their own.
const SLACK: Duration = Duration::from_millis(100);

impl World<'_> {
    pub(super) fn count_look(&mut self, id: usize) {
        let second = self.now.0 / 1_000_000_000;
        let looks = &mut self.ends[id].quiet.looks;
        *looks = if looks.0 == second { (second, looks.1 + 1) } else { (second, 1) };
        if looks.1 > LOOKS_MAX {
            self.violate(&format!("end {id} looks without end"));
        }
    }

    /// Checks that nothing counts as arrived that did not arrive.
    pub(super) fn check_acknowledged(&mut self, id: usize) {
        let Some(other) = self.other(id) else { return };
        let acked = self.ends[id].endpoint.link.numbers()[1];
        let received = self.ends[other].endpoint.link.received();
        if acked > received && !self.ends[other].departed {
            let text = format!("end {id}: packet {acked} acknowledged, {received} received");
            return self.violate(&text);
        }
        for index in 0..self.ends[id].sent.len() {
            let (acked, end) =
                (self.ends[id].sent[index].acked, self.ends[id].sent[index].end_acked);
            let inbox = self.ends[other].inboxes.get(index);
            let (arrived, ended) = inbox.map_or((0, false), |it| (it.arrivals.arrived, it.ended));
            if inbox.is_some_and(|inbox| inbox.dropped) || self.ends[other].departed {
                continue;
            }
            if acked > arrived || (end && !ended && !self.ends[id].sent[index].terminated) {
                let text = format!(
                    "end {id} channel {}: {acked} acknowledged, {arrived} arrived, end {end}",
                    index + 1
                );
                return self.violate(&text);
            }
        }
    }

    /// Checks that an acknowledgement comes in time while nothing is in the way.
    pub(super) fn check_lag(&mut self, id: usize) {
        let Some(other) = self.other(id) else { return };
        let pair = self.pair_of(id);
        let (end, peer) = (&self.ends[id], &self.ends[other]);
        if end.departed || peer.departed {
            return;
        }
        let [_, acked, _] = end.endpoint.link.numbers();
        let together = end.connection.is_some() && end.connection == peer.connection;
        let useless = end.connection.is_some_and(|it| self.is_useless(it));
        let healthy = self.pairs[pair].healthy_from;
        let behind = peer.endpoint.link.received() > acked;
        let busy = peer.endpoint.is_writing();
        if !together || useless || !behind || busy || healthy > self.now || peer.over.is_some() {
            self.ends[id].quiet.lag = None;
            return;
        }
        let known = end.quiet.lag.filter(|lag| lag.1 == acked && lag.0 >= healthy);
        let (since, received) =
            (known.map_or(self.now, |lag| lag.0), peer.endpoint.link.received());
        self.ends[id].quiet.lag = Some((since, acked));
        let bound =
            2 * self.plan.pairs[pair].crossing + Duration::from_millis(ACK_DELAY_MS) + SLACK;
        if self.now > since.after(bound) {
            let text = format!("end {id}: {received} received and only {acked} acknowledged");
            self.violate(&text);
        }
    }

    fn healthy_for(&self, id: usize) -> Duration {
        let from = self.pairs[self.pair_of(id)].healthy_from;
        Duration::from_nanos(self.now.0.saturating_sub(from.0))
    }

    /// Checks that no healthy connection is given up.
    pub(super) fn check_dropped(&mut self, id: usize) {
        let Some(connection) = self.ends[id].connection else { return };
        let useless = self.is_useless(connection);
        let gone = self.other(id).is_none_or(|other| {
            self.ends[other].over.is_some() || self.ends[other].connection != Some(connection)
        });
        let crossing = self.plan.pairs[self.pair_of(id)].crossing;
        let suspect = Duration::from_millis(SUSPECT_MS_DEFAULT) + 2 * SLACK + 2 * crossing;
        if !useless && !gone && self.healthy_for(id) > suspect {
            self.violate(&format!("end {id} gives a healthy connection up"));
        }
    }

    /// Checks that a dead session could not have gone on, and did not die before its time.
    pub(super) fn check_dead(&mut self, id: usize) {
        let end: &End = &self.ends[id];
        let dead = Duration::from_millis(DEAD_MS_DEFAULT);
        let passed = Duration::from_nanos(self.now.0 - end.quiet.since.0);
        let awake = passed.saturating_sub(end.quiet.stopped);
        // Each stop also counts the time until the next look.
        let less = Duration::from_millis(300 + 1100 * u64::from(end.quiet.stops));
        if awake + less < dead {
            return self.violate(&format!("end {id} is dead after {awake:?}"));
        }
        let other = self.other(id).is_some_and(|other| self.ends[other].over.is_none());
        let dials = DIALS + DIALS_CROSSINGS * self.plan.pairs[self.pair_of(id)].crossing;
        if !other || self.healthy_for(id) <= RECOVERS[end.side] + dials {
            return;
        }
        // A dialler that waits for nothing may not know that its connection is of no use. It looks
        // every half minute only, unless its system asks. When it begins to wait, it learns of the
        // loss at its suspect time. The time left may then be less than dialling takes.
        let asks = self.plan.pairs[self.pair_of(id)].asks;
        let unaware = end.side == 1
            && self.other(id).is_some_and(|other| {
                let other = &self.ends[other];
                other.connection.is_some() || self.now < other.quiet.lost.after(dials)
            });
        if unaware && !asks {
            self.counts.unaware += 1;
        } else {
            self.violate(&format!("end {id} is dead while nothing is in the way"));
        }
    }

    /// Checks that a session ends for a reason.
    pub(super) fn check_cause(&mut self, id: usize, over: SessionEnd) {
        let other = self.other(id);
        let other_over = other.and_then(|other| self.ends[other].over);
        let other_closes = other.is_some_and(|other| self.ends[other].endpoint.has_said_bye());
        let good = match over {
            // The bye itself may be lost, and so may answers to the peer behind it.
            SessionEnd::Closed => {
                let arrived = |sent: &Sent| sent.terminated || sent.acked == sent.messages;
                self.ends[id].sent.iter().all(arrived)
            }
            SessionEnd::ClosedByPeer => other_closes,
            // An end that has said bye takes no other connection.
            SessionEnd::Forgotten => other.is_none() || other_over.is_some() || other_closes,
            SessionEnd::Restarted => {
                let session = &self.sessions[self.ends[id].session];
                let node = self.plan.pairs[session.pair].nodes[1];
                self.nodes[node].incarnation != session.incarnations[1]
            }
            // Some lies are found out by the end that told them.
            SessionEnd::Protocol(_) => {
                other.is_some_and(|other| self.ends[other].departed) || self.ends[id].departed
            }
            SessionEnd::Dead | SessionEnd::GivenUp => true,
            SessionEnd::Lost => false,
        };
        if !good {
            self.violate(&format!("end {id} is over without cause: {over:?}"));
        }
    }

    /// Checks, when the time is up or nothing happens any more, that nothing is left.
    pub(super) fn check_over(&mut self) {
        for id in 0..self.ends.len() {
            let end = &self.ends[id];
            let wrong =
                end.departed || self.other(id).is_some_and(|other| self.ends[other].departed);
            if end.over.is_none() && self.nodes[end.node].up && !wrong {
                let (state, numbers) = (end.state(), end.endpoint.link.numbers());
                let text = format!(
                    "end {id} is stuck: {}, sent, acked, received {numbers:?}, sent {:?}, inboxes {:?}",
                    STATE_NAMES[state], end.sent, end.inboxes,
                );
                return self.violate(&text);
            }
            let told = end.sent.iter().all(|sent| sent.sync.is_none());
            if !told && !matches!(end.over, None | Some(SessionEnd::GivenUp)) {
                return self.violate(&format!("a call on end {id} was not told of its end"));
            }
        }
        for session in 0..self.sessions.len() {
            self.check_session(session);
        }
    }

    /// Checks that a clean close sent everything: of an end that closed, and of an end whose peer
    /// closed and waited for it.
    fn check_session(&mut self, session: usize) {
        let [Some(one), Some(other)] = self.sessions[session].ends else { return };
        for (from, to) in [(one, other), (other, one)] {
            let (sender, receiver) = (&self.ends[from], &self.ends[to]);
            let early = self.plan.pairs[self.sessions[session].pair].early;
            let clean = match sender.over {
                Some(SessionEnd::Closed) => true,
                Some(SessionEnd::ClosedByPeer) => {
                    receiver.over == Some(SessionEnd::Closed) && !early
                }
                _ => false,
            };
            // An end that says bye at the same time need not read the other's bye.
            for (index, sent) in sender.sent.iter().enumerate() {
                let inbox = receiver.inboxes.get(index);
                let gone = sent.terminated || inbox.is_some_and(|inbox| inbox.dropped);
                let arrived = inbox.map_or(0, |inbox| inbox.arrivals.arrived);
                let lost = clean && !gone && arrived != sent.messages;
                if lost || (!gone && arrived < sent.acked) {
                    let (messages, acked) = (sent.messages, sent.acked);
                    let text = format!(
                        "channel {} of end {from}: {messages} sent, {acked} acknowledged, {arrived} arrived",
                        index + 1
                    );
                    return self.violate(&text);
                }
            }
        }
    }
}
