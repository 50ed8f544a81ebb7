//! Bytes that did not land, with the reasons.

use std::ops::Range;

use super::State;
use crate::error::DeltaRecvError;
use crate::proto::ranges::Ranges;
use crate::proto::sections::Sections;

/// The missing bytes of each landing that failed. Those that came in another way since are no loss.
#[derive(Default)]
pub(super) struct Lost(Vec<(Ranges, DeltaRecvError)>);

impl State {
    /// Says that what is not done of these sections will not land.
    pub(crate) fn lose(&mut self, sections: &Sections, error: &DeltaRecvError) {
        let mut lost = Ranges::default();
        for place in sections.places() {
            let mut rest = place.clone();
            while let Some(missing) = self.extents.missing(&rest) {
                rest.start = missing.end;
                lost.insert(missing);
            }
        }
        if !lost.is_empty() {
            self.lost.0.push((lost, error.clone()));
        }
    }

    /// Returns the reason why a byte of `range` is missing and will not land.
    pub(crate) fn end_of(&self, range: &Range<usize>) -> Option<&DeltaRecvError> {
        let is_lost = |lost: &Ranges| {
            lost.runs().any(|run| {
                let part = run.start.max(range.start)..run.end.min(range.end);
                self.extents.missing(&part).is_some()
            })
        };
        let lost = || self.lost.0.iter().find(|(lost, _)| is_lost(lost));
        self.end.as_ref().or_else(|| lost().map(|(_, error)| error))
    }

    /// Returns the reason why a byte of these sections is missing and will not land.
    pub(crate) fn end_of_any(&self, sections: &Sections) -> Option<&DeltaRecvError> {
        if self.end.is_none() && self.lost.0.is_empty() {
            return None;
        }
        sections.places().find_map(|place| self.end_of(place))
    }
}
