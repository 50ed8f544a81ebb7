//! Which connection of a session counts: the one with the highest number.

use super::planted;
use super::resume::Kind;

/// What becomes of a connection that is offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offer {
    /// The one at hand is gone; this one is adopted once both ends have said what
    /// they have.
    Taken,
    /// A later one came before.
    Stale,
    /// The session is over, or about to be, or goes no further than its
    /// connection.
    Over,
}

impl Offer {
    /// How the acceptor says so.
    #[must_use]
    pub fn kind(self) -> Kind {
        match self {
            Offer::Taken => Kind::Agreed,
            Offer::Stale => Kind::Stale,
            Offer::Over => Kind::Unknown,
        }
    }
}

/// The connections of one session as one end sees them. Order of calls:
/// [`Attempts::lost`], [`Attempts::offer`] and [`Attempts::adopt`] as they happen.
#[derive(Debug)]
pub struct Attempts {
    last: u32,
    connected: bool,
}

impl Default for Attempts {
    fn default() -> Attempts {
        Attempts { last: 1, connected: true }
    }
}

impl Attempts {
    /// The number of the connection at hand, or of the last one.
    #[must_use]
    pub fn last(&self) -> u32 {
        self.last
    }

    /// There is a connection.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.connected
    }

    /// The connection at hand is of no use any more.
    pub fn lost(&mut self) {
        self.connected = false;
    }

    /// Connection `attempt` is offered; `over` when the session takes none.
    pub fn offer(&mut self, attempt: u32, over: bool) -> Offer {
        if over {
            return Offer::Over;
        }
        if attempt <= self.last && !planted::is!(StaleAttemptAccepted) {
            return Offer::Stale;
        }
        self.last = attempt;
        self.connected = false;
        Offer::Taken
    }

    /// Connection `attempt`, which was taken, is ready. False when a later one was
    /// taken meanwhile.
    pub fn adopt(&mut self, attempt: u32) -> bool {
        let adopts = attempt == self.last && !self.connected;
        self.connected |= adopts;
        adopts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_attempt_counts() {
        let mut attempts = Attempts::default();
        assert_eq!(attempts.offer(1, false), Offer::Stale);
        assert_eq!(attempts.offer(2, true), Offer::Over);
        assert!(attempts.is_connected());
        assert_eq!(attempts.offer(3, false), Offer::Taken);
        assert!(!attempts.is_connected());
        assert_eq!(attempts.offer(3, false), Offer::Stale);
        assert_eq!(attempts.offer(5, false), Offer::Taken);
        assert!(!attempts.adopt(3), "a later one was taken");
        assert!(attempts.adopt(5) && attempts.is_connected());
        assert!(!attempts.adopt(5), "once");
        attempts.lost();
        assert_eq!((attempts.last(), attempts.offer(4, false)), (5, Offer::Stale));
    }
}
