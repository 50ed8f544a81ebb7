//! The connection of a session that counts: the one with the highest number.

use super::resume::Kind;

/// Answer to an offered connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offer {
    /// The previous connection is gone. The offered one is adopted once both ends have reported
    /// what they received.
    Taken,
    /// A connection with this number or a later one was offered before.
    Stale,
    /// The session is over, or about to be, or ends with its connection.
    Over,
}

impl Offer {
    /// Returns the kind of the acceptor's answer on the wire.
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
    /// Returns the number of the current connection, or of the last one.
    #[must_use]
    pub fn last(&self) -> u32 {
        self.last
    }

    /// Whether there is a connection.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.connected
    }

    /// Notes that the current connection is lost.
    pub fn lost(&mut self) {
        self.connected = false;
    }

    /// Decides about the offered connection `attempt`; `over`: the session takes none.
    pub fn offer(&mut self, attempt: u32, over: bool) -> Offer {
        if over {
            return Offer::Over;
        }
        if attempt <= self.last {
            return Offer::Stale;
        }
        self.last = attempt;
        self.connected = false;
        Offer::Taken
    }

    /// Adopts connection `attempt`, which was taken and is ready. False when a later one was
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
