//! The dials of a session whose connection is lost: a wait, an attempt, a longer wait, the next.

use super::Action;
use crate::Time;
use crate::backoff::Backoff;
use std::time::Duration;

/// Longest time of an attempt: 3 s.
const ATTEMPT_MAX: Duration = Duration::from_secs(3);

#[derive(Debug)]
enum State {
    Rests,
    Dials,
}

#[derive(Debug)]
struct UnderWay {
    state: State,
    /// Time of the next step.
    until: Time,
    /// Number of the last attempt.
    attempt: u32,
    backoff: Backoff,
}

/// The progress of the dialler, while there is no connection.
#[derive(Debug, Default)]
pub(super) struct Dialling(Option<UnderWay>);

impl Dialling {
    /// Begins after the loss of connection `attempt` of `session`.
    pub(super) fn begin(&mut self, session: u64, attempt: u32, now: Time) {
        let mut backoff = Backoff::new(session ^ u64::from(attempt) << 32);
        let until = now.after(backoff.wait());
        self.0 = Some(UnderWay { state: State::Rests, until, attempt, backoff });
    }

    /// Returns the next step; `None` when this end does not dial.
    #[inline]
    pub(super) fn poll(&mut self, now: Time) -> Option<Action> {
        let it = self.0.as_mut()?;
        if now < it.until {
            return Some(Action::Wait(it.until));
        }
        match it.state {
            State::Rests => {
                it.attempt += 1;
                (it.state, it.until) = (State::Dials, now.after(ATTEMPT_MAX));
                Some(Action::Dial { attempt: it.attempt })
            }
            State::Dials => {
                self.failed(now);
                Some(Action::Unanswered)
            }
        }
    }

    /// Whether `attempt` is under way.
    pub(super) fn is_at(&self, attempt: u32) -> bool {
        self.0.as_ref().is_some_and(|it| it.attempt == attempt && matches!(it.state, State::Dials))
    }

    /// Notes that the attempt under way has failed.
    pub(super) fn failed(&mut self, now: Time) {
        if let Some(it) = &mut self.0 {
            (it.state, it.until) = (State::Rests, now.after(it.backoff.wait()));
        }
    }

    /// Notes that there is a connection, or that none is wanted.
    pub(super) fn done(&mut self) {
        self.0 = None;
    }
}
