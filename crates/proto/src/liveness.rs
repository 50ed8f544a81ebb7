//! Whether the peer is still there: any byte of it shows that. While something waits for the
//! peer, silence makes us ask for a sign of life, then give the connection up, then the
//! session. A peer that nothing waits for is asked now and then.
//!
//! A false death mostly comes from one's own process: it was stopped, or its event loop was
//! blocked. So a look that comes late moves all deadlines by its delay.

use super::Time;
use super::limits::{
    DEAD_MS_DEFAULT, IDLE_PROBE_MS, MESSAGE_BYTES_DEFAULT, PROBE_MS_DEFAULT, SUSPECT_MS_DEFAULT,
    VALUE_BYTES_A_SECOND, VALUE_MS_MAX,
};
use std::time::Duration;

/// Delay from which a look counts as late.
const LATE_MIN: Duration = Duration::from_millis(100);

/// Limits of a peer's silence while something waits for the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Silence {
    /// Time until the peer is asked for a sign of life, and between two such questions: 1 s by
    /// default.
    pub probe: Duration,
    /// Time until the peer's connection is given up and dialled anew: 3 s by default.
    pub suspect: Duration,
    /// Time until the peer's session is dead: 10 s by default. Also the time in which a lost
    /// connection may come back.
    pub dead: Duration,
}

impl Default for Silence {
    fn default() -> Silence {
        Silence {
            probe: Duration::from_millis(PROBE_MS_DEFAULT),
            suspect: Duration::from_millis(SUSPECT_MS_DEFAULT),
            dead: Duration::from_millis(DEAD_MS_DEFAULT),
        }
    }
}

/// Questions of the dialler's system to the peer's on a connection on which nothing passes.
/// They wake neither process.
///
/// An acceptor can only wait when its connection is lost, and the notice of the loss may be
/// lost with it. A dialler that waits for nothing would ask half a minute later, when the
/// session is dead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeepAlive {
    /// Time without a byte until the first question.
    pub idle: Duration,
    /// Time until the next question.
    pub interval: Duration,
    /// Time without a byte or an answer until the connection is lost. Also the time for which
    /// written bytes may stay unanswered.
    pub timeout: Duration,
}

impl KeepAlive {
    /// Returns the time after which the silent loss of a connection is known at the latest,
    /// whatever the dialler writes meanwhile.
    #[must_use]
    pub fn learns_within(&self) -> Duration {
        self.interval + 2 * self.timeout
    }
}

impl Silence {
    /// Returns the limits for messages of up to `bytes_max`. A task that encodes or decodes one
    /// keeps the driver on its thread from answering. Messages beyond the default size add the
    /// time for that.
    #[must_use]
    pub fn with_messages_of(self, bytes_max: u64) -> Silence {
        let beyond = bytes_max.saturating_sub(MESSAGE_BYTES_DEFAULT);
        let millis = (beyond / VALUE_BYTES_A_SECOND).saturating_mul(1_000).min(VALUE_MS_MAX);
        let more = Duration::from_millis(millis);
        Silence { suspect: self.suspect + more, dead: self.dead + more, ..self }
    }

    /// Returns the times with which the dialler is back while the session lives. Bytes that it
    /// writes before the last question is out, such as credit, put the questions off. They then
    /// count as unanswered for a timeout of their own. At worst twice the timeout and the
    /// interval of a question pass, and a tenth is left to dial.
    #[must_use]
    pub fn keep_alive(&self) -> KeepAlive {
        let tenth = self.dead / 10;
        KeepAlive { idle: tenth * 2, interval: tenth, timeout: tenth * 4 }
    }
}

/// Reaction to a peer's silence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Alive {
    /// Nothing.
    Fine,
    /// Ask for a sign of life.
    Probe,
    /// Give the connection up.
    Suspect,
    /// Give the session up.
    Dead,
}

/// Watches the silence of one peer. Order of calls: [`Liveness::heard`] when bytes arrive,
/// [`Liveness::waits`] when something begins or ceases to wait, [`Liveness::poll`] by
/// [`Liveness::deadline`]; [`Liveness::offline`] and [`Liveness::online`] as connections go and
/// come.
#[derive(Debug)]
pub struct Liveness {
    /// The limits for messages up to the default size.
    base: Silence,
    silence: Silence,
    heard: Time,
    waiting_since: Option<Time>,
    asked: Option<Time>,
    suspected: bool,
    online: bool,
    /// Time of the last look.
    looked: Time,
}

impl Liveness {
    /// Watches a peer that was heard at `now`.
    #[must_use]
    pub fn new(silence: Silence, now: Time) -> Liveness {
        Liveness {
            base: silence,
            silence,
            heard: now,
            waiting_since: None,
            asked: None,
            suspected: false,
            online: true,
            looked: now,
        }
    }

    /// Returns the limits of the peer's silence.
    #[must_use]
    pub fn silence(&self) -> Silence {
        self.silence
    }

    /// Notes that one of the two encodes or decodes messages of up to `bytes_max`.
    pub fn messages_of(&mut self, bytes_max: u64) {
        self.silence = self.base.with_messages_of(bytes_max);
    }

    /// Notes that bytes came.
    #[inline]
    pub fn heard(&mut self, now: Time) {
        self.heard = now;
        self.asked = None;
        self.suspected = false;
    }

    /// Notes whether something waits for the peer.
    #[inline]
    pub fn waits(&mut self, waits: bool, now: Time) {
        let waits = waits || self.asked.is_some() || !self.online;
        match (waits, self.waiting_since) {
            (true, None) => self.waiting_since = Some(now),
            (false, Some(_)) => self.waiting_since = None,
            _ => {}
        }
    }

    /// Notes that the connection is gone. If it was given up for its silence, the peer has only
    /// the rest of its time.
    pub fn offline(&mut self, now: Time) {
        // After a stop, the loss may be known before the next look.
        self.look(now);
        self.online = false;
        self.asked = None;
        if !self.suspected || self.waiting_since.is_none() {
            self.heard = now;
            self.waiting_since = Some(now);
        }
    }

    /// Notes that there is a connection again.
    pub fn online(&mut self, now: Time) {
        self.online = true;
        self.heard(now);
        self.waiting_since = None;
    }

    /// Whether the peer is silent for longer than it should be, or has no connection.
    #[must_use]
    pub fn is_suspect(&self) -> bool {
        self.suspected || !self.online
    }

    /// Returns the time when the peer was last heard.
    #[must_use]
    pub fn heard_at(&self) -> Time {
        self.heard
    }

    /// Returns the time of the next reaction to silence.
    #[must_use]
    #[inline]
    pub fn deadline(&self) -> Time {
        let Some(since) = self.waiting_since else {
            return self.heard.after(Duration::from_millis(IDLE_PROBE_MS));
        };
        let from = since.max(self.heard);
        let dead = self.dead_at(from);
        if !self.online {
            // Nobody is asked, but without looks a stop of the process would go unnoticed.
            return dead.min(self.looked.after(self.silence.probe));
        }
        let probe = self.asked.unwrap_or(from).after(self.silence.probe);
        if self.suspected {
            return probe.min(dead);
        }
        probe.min(self.suspect_at(from)).min(dead)
    }

    #[inline]
    fn dead_at(&self, from: Time) -> Time {
        from.after(self.silence.dead)
    }

    #[inline]
    fn suspect_at(&self, from: Time) -> Time {
        from.after(self.silence.suspect)
    }

    /// Returns the reaction to the silence up to `now`.
    #[inline]
    pub fn poll(&mut self, now: Time) -> Alive {
        if !self.look(now) {
            return Alive::Fine;
        }
        let Some(since) = self.waiting_since else {
            return self.ask(now);
        };
        let from = since.max(self.heard);
        if now >= self.dead_at(from) {
            return Alive::Dead;
        }
        if !self.online {
            return Alive::Fine;
        }
        if !self.suspected && now >= self.suspect_at(from) {
            self.suspected = true;
            return Alive::Suspect;
        }
        self.ask(now)
    }

    /// Whether anything is due. When it has long been due, all deadlines move by the delay.
    #[inline]
    fn look(&mut self, now: Time) -> bool {
        let due = self.deadline();
        self.looked = now;
        if now >= due.after(LATE_MIN) {
            self.move_by(Duration::from_nanos(now.0 - due.0));
        }
        now >= due
    }

    #[inline]
    fn ask(&mut self, now: Time) -> Alive {
        self.asked = Some(now);
        self.waiting_since.get_or_insert(now);
        Alive::Probe
    }

    fn move_by(&mut self, late: Duration) {
        self.heard = self.heard.after(late);
        self.waiting_since = self.waiting_since.map(|time| time.after(late));
        self.asked = self.asked.map(|time| time.after(late));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time(ms * 1_000_000)
    }

    fn watched() -> Liveness {
        let ms = Duration::from_millis;
        Liveness::new(Silence { probe: ms(1000), suspect: ms(3000), dead: ms(10_000) }, at(0))
    }

    /// Polls at every deadline up to `until`; returns the results with their times.
    fn run(liveness: &mut Liveness, until: u64) -> Vec<(u64, Alive)> {
        let mut seen = Vec::new();
        loop {
            let due = liveness.deadline();
            if due > at(until) {
                return seen;
            }
            let alive = liveness.poll(due);
            if alive != Alive::Fine {
                seen.push((due.0 / 1_000_000, alive));
            }
            if alive == Alive::Dead {
                return seen;
            }
        }
    }

    #[test]
    fn larger_messages_than_the_default_add_the_time_to_encode_them() {
        let Silence { probe, suspect, dead } = watched().silence;
        let more = |seconds: u64, bytes: u64| {
            let longer = watched().silence.with_messages_of(bytes);
            let more = Duration::from_secs(seconds);
            assert_eq!(longer, Silence { probe, suspect: suspect + more, dead: dead + more });
            let mut liveness = watched();
            liveness.messages_of(bytes);
            assert_eq!(liveness.silence(), longer);
            liveness.messages_of(0);
            assert_eq!(liveness.silence(), watched().silence, "not for longer than the message");
        };
        more(0, 0);
        more(0, MESSAGE_BYTES_DEFAULT);
        more(3, MESSAGE_BYTES_DEFAULT + 3 * VALUE_BYTES_A_SECOND);
        more(VALUE_MS_MAX / 1_000, u64::MAX);
    }

    #[test]
    fn a_silent_peer_is_asked_then_suspected_then_dead() {
        let mut liveness = watched();
        liveness.waits(true, at(0));
        let seen = run(&mut liveness, 60_000);
        assert_eq!(seen[..3], [(1000, Alive::Probe), (2000, Alive::Probe), (3000, Alive::Suspect)]);
        assert_eq!(seen.last(), Some(&(10_000, Alive::Dead)));
    }

    #[test]
    fn a_peer_that_nothing_waits_for_is_asked_every_half_minute() {
        let mut liveness = watched();
        assert_eq!(run(&mut liveness, 30_500), [(30_000, Alive::Probe)]);
        liveness.heard(at(30_600));
        liveness.waits(false, at(30_600));
        assert_eq!(liveness.deadline(), at(60_600));
        // An unanswered question counts as something that waits.
        assert_eq!(run(&mut liveness, 60_700), [(60_600, Alive::Probe)]);
        assert_eq!(run(&mut liveness, 90_000).last(), Some(&(70_600, Alive::Dead)));
    }

    /// A connection is lost without a word right after a byte of the peer's passed.
    #[test]
    fn an_idle_dialler_learns_of_a_loss_while_the_other_end_still_waits() {
        let mut acceptor = watched();
        let Silence { suspect, dead, .. } = acceptor.silence;
        let keep_alive = acceptor.silence.keep_alive();
        acceptor.offline(at(0));
        // The first wait of a backoff, and the time to connect.
        let dials = Duration::from_millis(10 + 500);
        let dialled = at(0).after(keep_alive.learns_within() + dials);
        assert_eq!(run(&mut acceptor, dialled.0 / 1_000_000), []);
        acceptor.online(dialled);
        // Or it begins to wait right before the system would report the loss.
        assert!(keep_alive.timeout + keep_alive.interval + suspect + dials < dead);
        assert!(keep_alive.idle + 2 * keep_alive.interval <= keep_alive.timeout, "asked twice");
    }

    #[test]
    fn a_late_look_moves_the_deadlines() {
        let mut liveness = watched();
        liveness.waits(true, at(0));
        // The process was stopped for a minute.
        assert_eq!(liveness.poll(at(60_000)), Alive::Probe);
        let seen = run(&mut liveness, 62_500);
        assert_eq!(seen[..2], [(61_000, Alive::Probe), (62_000, Alive::Suspect)]);
        liveness.heard(at(62_600));
        assert_eq!(liveness.poll(at(63_000)), Alive::Fine);
    }

    #[test]
    fn a_lost_connection_has_the_whole_time_to_come_back() {
        let mut liveness = watched();
        liveness.offline(at(29_000));
        assert_eq!(run(&mut liveness, 60_000), [(39_000, Alive::Dead)]);
        // A connection given up for its silence leaves the peer the rest of its time.
        let mut liveness = watched();
        liveness.waits(true, at(0));
        assert_eq!(run(&mut liveness, 3_000).last(), Some(&(3000, Alive::Probe)));
        liveness.offline(at(3_000));
        assert_eq!(run(&mut liveness, 60_000), [(10_000, Alive::Dead)]);
        let mut liveness = watched();
        liveness.offline(at(29_000));
        liveness.online(at(38_000));
        liveness.waits(false, at(38_000));
        assert_eq!(liveness.deadline(), at(68_000));
    }

    #[test]
    fn a_stop_without_a_connection_kills_nobody() {
        for stop in [5_000, 9_000, 60_000] {
            let mut liveness = watched();
            liveness.offline(at(1000));
            assert_eq!(run(&mut liveness, 3000), []);
            // The process was stopped right after a look, and then looks as before.
            let back = 3000 + stop;
            assert_eq!(liveness.poll(at(back)), Alive::Fine);
            let seen = run(&mut liveness, 100_000);
            assert_eq!(seen, [(back + 7000, Alive::Dead)], "stopped for {stop} ms");
        }
        // The loss of a silent connection is known right after the stop.
        let mut liveness = watched();
        liveness.waits(true, at(0));
        assert_eq!(run(&mut liveness, 3500).last(), Some(&(3000, Alive::Probe)));
        liveness.offline(at(40_000));
        assert_eq!(run(&mut liveness, 60_000), [(46_000, Alive::Dead)]);
    }
}
