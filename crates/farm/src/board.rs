//! The run of a farm as the node's report shows it. The run gathers only while somebody looks.
//!
//! ```text
//!   viewer ── Node::report ──▶ looked ──▶ the run's next turn ──▶ section ──▶ the viewer's next report
//! ```

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use chunkcomm::host::Instant;
use chunkcomm::layer::Reports;
use chunkcomm::report::{Cell, Report, Section, State};

/// Time after the last look at which the run gathers no more: 3 s.
const LOOKED_FOR: Duration = Duration::from_secs(3);

/// Age of a section at which the report says that the run stands: 3 s. A run with tasks has a turn each second.
const STANDS_AFTER: Duration = Duration::from_secs(3);

/// Kind of the section.
const KIND: &str = "farm";

/// Section of a farm.
pub(crate) struct Board {
    farm: String,
    is_looked_at: AtomicBool,
    state: Mutex<Posted>,
}

#[derive(Default)]
struct Posted {
    looked: Option<Instant>,
    /// The first look after a time without one: older sections say nothing about the run.
    began: Option<Instant>,
    section: Option<(Section, Instant)>,
    /// Whether the run of the section is over.
    is_over: bool,
}

impl Board {
    pub(crate) fn new(farm: &str) -> Board {
        Board {
            farm: farm.to_owned(),
            is_looked_at: AtomicBool::new(false),
            state: Mutex::default(),
        }
    }

    /// Whether somebody looks, so that a run gathers.
    #[inline]
    pub(crate) fn is_looked_at(&self) -> bool {
        self.is_looked_at.load(Ordering::Relaxed)
    }

    /// Looks whether somebody still looks.
    pub(crate) fn look_again(&self) -> bool {
        self.look_at(Instant::now())
    }

    fn look_at(&self, now: Instant) -> bool {
        let looked = self.state().looked;
        let looks = looked.is_some_and(|looked| now - looked < LOOKED_FOR);
        self.is_looked_at.store(looks, Ordering::Relaxed);
        looks
    }

    /// Returns whether the last section is older than this.
    pub(crate) fn is_older(&self, age: Duration) -> bool {
        self.state().section.as_ref().is_none_or(|(_, posted)| posted.elapsed() >= age)
    }

    /// Begins the section of a run.
    pub(crate) fn section(&self) -> Section {
        Section::new(KIND, &self.farm)
    }

    pub(crate) fn post(&self, section: Section, is_over: bool) {
        let mut state = self.state();
        (state.section, state.is_over) = (Some((section, Instant::now())), is_over);
    }

    fn report_at(&self, now: Instant, report: &mut Report) {
        let mut state = self.state();
        if state.looked.is_none_or(|looked| now - looked >= LOOKED_FOR) {
            state.began = Some(now);
        }
        state.looked = Some(now);
        self.is_looked_at.store(true, Ordering::Relaxed);
        let Some((section, posted)) = &state.section else {
            let none = Cell::state(State::Idle, "no run since somebody looks");
            report.add(self.section().fact("state", none));
            return;
        };
        let since = state.began.map_or(*posted, |began| began.max(*posted));
        let (mut section, age) = (section.clone(), now - since);
        if age >= STANDS_AFTER && !state.is_over {
            let stands = "the run has ended early, or its program does not poll it";
            section = section.fact("stands", Cell::state(State::Trouble, stands));
            section = section.fact("stands for", Cell::Micros(age.as_micros() as u64));
        }
        report.add(section);
    }

    fn state(&self) -> MutexGuard<'_, Posted> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reports for Board {
    fn report(&self, report: &mut Report) {
        self.report_at(Instant::now(), report);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_wanted_before_the_first_look() {
        let board = Board::new("a");
        assert!(!board.is_looked_at() && !board.look_again());
        let mut report = Report::default();
        board.report(&mut report);
        assert!(board.is_looked_at() && board.look_again());
        assert_eq!(
            (report.sections[0].kind.as_str(), report.sections[0].name.as_str()),
            ("farm", "a")
        );
        assert!(!board.look_at(Instant::now() + LOOKED_FOR) && !board.is_looked_at());
    }

    #[test]
    fn a_run_that_is_not_polled_stands() {
        for is_over in [false, true] {
            let (board, now) = (Board::new("a"), Instant::now());
            let facts = |after: Duration| {
                let mut report = Report::default();
                board.report_at(now + after, &mut report);
                report.sections[0].facts.len()
            };
            facts(Duration::ZERO);
            board.post(board.section(), is_over);
            assert_eq!(facts(STANDS_AFTER / 2), 0);
            assert_eq!(facts(STANDS_AFTER + Duration::from_secs(1)), if is_over { 0 } else { 2 });
            // A viewer that comes back later finds the old section, and waits for a new one as long again.
            let back = 9 * STANDS_AFTER;
            assert_eq!([facts(back), facts(back + STANDS_AFTER / 2)], [0, 0]);
            assert_eq!(facts(back + STANDS_AFTER), if is_over { 0 } else { 2 });
        }
    }
}
