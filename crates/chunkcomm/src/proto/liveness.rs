//! Is the peer still there? Any byte of it says so. While something waits for
//! it, silence makes us ask for a sign of life, then give the connection up,
//! then the session; a peer that nothing waits for is asked now and then.
//!
//! A false death mostly comes from one's own process: it was stopped, or its
//! event loop was blocked. So a look that comes late moves all deadlines by as
//! much.

use super::Time;
use super::limits::{IDLE_PROBE_MS, MESSAGE_BYTES_DEFAULT, VALUE_BYTES_A_SECOND, VALUE_MS_MAX};
use super::planted;
use std::time::Duration;

/// A look that comes so much too late was kept from coming.
const LATE_MIN: Duration = Duration::from_millis(100);

/// How long a peer may be silent while something waits for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Silence {
    /// Until it is asked for a sign of life, and again after as long.
    pub probe: Duration,
    /// Until its connection is given up.
    pub suspect: Duration,
    /// Until its session is dead; also how long a lost connection may take to
    /// come back.
    pub dead: Duration,
}

/// What the dialler's system asks of the peer's on a connection on which nothing
/// passes, without waking either process.
///
/// Whoever was dialled can only wait when its connection is lost, and the word of
/// the loss may be lost with it. A dialler that waits for nothing would ask half a
/// minute later, and the session would be dead by then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeepAlive {
    /// Without a byte until the first question.
    pub idle: Duration,
    /// Until the next one.
    pub interval: Duration,
    /// Without a byte or an answer until the connection is lost; also how long what
    /// was written may go unanswered.
    pub timeout: Duration,
}

impl KeepAlive {
    /// A connection that is lost without a word is known to be lost after this at the
    /// latest, whatever the dialler writes meanwhile.
    #[must_use]
    pub fn learns_within(&self) -> Duration {
        self.interval + 2 * self.timeout
    }
}

impl Silence {
    /// Returns the limits for messages of up to `bytes_max`. A task that encodes or decodes one
    /// keeps the driver on its thread from answering. Where more than the default is allowed, the
    /// time for that is added.
    #[must_use]
    pub fn with_messages_of(self, bytes_max: u64) -> Silence {
        let beyond = bytes_max.saturating_sub(MESSAGE_BYTES_DEFAULT);
        let millis = (beyond / VALUE_BYTES_A_SECOND).saturating_mul(1_000).min(VALUE_MS_MAX);
        let more = Duration::from_millis(millis);
        Silence { suspect: self.suspect + more, dead: self.dead + more, ..self }
    }

    /// So that the dialler is there again while the session lives. What it writes
    /// before the last question is out, such as credit, puts the questions off, and
    /// then counts as unanswered for a timeout of its own: twice the timeout and a
    /// question's interval pass at worst, and a tenth is left to dial.
    #[must_use]
    pub fn keep_alive(&self) -> KeepAlive {
        let tenth = self.dead / 10;
        KeepAlive { idle: tenth * 2, interval: tenth, timeout: tenth * 4 }
    }
}

/// What silence makes us do.
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

/// Watches the silence of one peer. Order of calls: [`Liveness::heard`] for what
/// comes, [`Liveness::waits`] when that changes, [`Liveness::poll`] at the latest
/// at [`Liveness::deadline`]; [`Liveness::offline`] and [`Liveness::online`] as
/// connections go and come.
#[derive(Debug)]
pub struct Liveness {
    silence: Silence,
    heard: Time,
    waiting_since: Option<Time>,
    asked: Option<Time>,
    suspected: bool,
    online: bool,
    /// The last look.
    looked: Time,
}

impl Liveness {
    /// A peer that was just heard.
    #[must_use]
    pub fn new(silence: Silence, now: Time) -> Liveness {
        Liveness {
            silence,
            heard: now,
            waiting_since: None,
            asked: None,
            suspected: false,
            online: true,
            looked: now,
        }
    }

    /// Bytes came.
    pub fn heard(&mut self, now: Time) {
        self.heard = now;
        self.asked = None;
        self.suspected = false;
    }

    /// Whether something waits for the peer.
    pub fn waits(&mut self, waits: bool, now: Time) {
        let waits = waits || self.asked.is_some() || !self.online;
        match (waits, self.waiting_since) {
            (true, None) => self.waiting_since = Some(now),
            (false, Some(_)) => self.waiting_since = None,
            _ => {}
        }
    }

    /// The connection is gone. One that was given up for its silence leaves the
    /// peer only the rest of its time.
    pub fn offline(&mut self, now: Time) {
        // After a stop this may be known before the next look.
        self.look(now);
        self.online = false;
        self.asked = None;
        if !self.suspected || self.waiting_since.is_none() {
            self.heard = now;
            self.waiting_since = Some(now);
        }
    }

    /// There is a connection again.
    pub fn online(&mut self, now: Time) {
        self.online = true;
        self.heard(now);
        self.waiting_since = None;
    }

    /// The peer is silent for longer than it should, or has no connection.
    #[must_use]
    pub fn is_suspect(&self) -> bool {
        self.suspected || !self.online
    }

    /// When the peer was heard last.
    #[must_use]
    pub fn heard_at(&self) -> Time {
        self.heard
    }

    /// When silence would mean something next.
    #[must_use]
    pub fn deadline(&self) -> Time {
        let Some(since) = self.waiting_since else {
            return self.heard.after(Duration::from_millis(IDLE_PROBE_MS));
        };
        let from = since.max(self.heard);
        let dead = self.dead_at(from);
        if !self.online {
            // Nobody is asked, but who does not look would not know of a stop.
            return dead.min(self.looked.after(self.silence.probe));
        }
        let probe = self.asked.unwrap_or(from).after(self.silence.probe);
        if self.suspected {
            return probe.min(dead);
        }
        probe.min(self.suspect_at(from)).min(dead)
    }

    fn dead_at(&self, from: Time) -> Time {
        if planted::is!(NeverDead) {
            return Time(u64::MAX);
        }
        from.after(self.silence.dead)
    }

    fn suspect_at(&self, from: Time) -> Time {
        if planted::is!(SilenceKeepsConnection) {
            return Time(u64::MAX);
        }
        from.after(self.silence.suspect)
    }

    /// What silence means now.
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

    /// Is anything due? If long since, all is later by as much.
    fn look(&mut self, now: Time) -> bool {
        let due = self.deadline();
        self.looked = now;
        if now >= due.after(LATE_MIN) && !planted::is!(LateLookKills) {
            self.move_by(Duration::from_nanos(now.0 - due.0));
        }
        now >= due
    }

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

    /// Polls at every deadline up to `until`; what came of it, with its time.
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
        // Unanswered, the question is what waits.
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
        // The first wait of a backoff, and what a connection takes.
        let dials = Duration::from_millis(10 + 500);
        let dialled = at(0).after(keep_alive.learns_within() + dials);
        assert_eq!(run(&mut acceptor, dialled.0 / 1_000_000), []);
        acceptor.online(dialled);
        // Or it begins to wait right before it would be told.
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
        // One that is given up for its silence has what is left of it.
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
            // It was stopped right after a look, and then looks as before.
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
