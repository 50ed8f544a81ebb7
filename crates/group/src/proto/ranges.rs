//! A set of disjoint ranges of a buffer's bytes.
//!
//! Ranges that touch are kept as one run, so that a buffer filled from its start is one run,
//! however often it was added to. A change costs the logarithm of the number of runs.

use std::collections::BTreeMap;
use std::ops::Range;

/// Disjoint, non-empty runs, none of which touches another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranges {
    /// End of each run by its start.
    runs: BTreeMap<usize, usize>,
    bytes: usize,
}

impl Ranges {
    /// Returns the number of bytes in the set.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether the set has no bytes.
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Returns the runs in the order of their starts.
    pub fn runs(&self) -> impl Iterator<Item = Range<usize>> {
        self.runs.iter().map(|(start, end)| *start..*end)
    }

    /// Returns the first run.
    pub(crate) fn first(&self) -> Option<Range<usize>> {
        self.runs.first_key_value().map(|(start, end)| *start..*end)
    }

    /// Returns the run that holds byte `at`.
    pub(crate) fn run_at(&self, at: usize) -> Option<Range<usize>> {
        let (start, end) = self.runs.range(..=at).next_back()?;
        (at < *end).then_some(*start..*end)
    }

    /// Whether all bytes of `range` are in the set; true for an empty range.
    pub(crate) fn contains(&self, range: &Range<usize>) -> bool {
        range.is_empty() || self.run_at(range.start).is_some_and(|run| range.end <= run.end)
    }

    /// Returns the first part of `range` that is in the set.
    pub(crate) fn overlap(&self, range: &Range<usize>) -> Option<Range<usize>> {
        let run = self
            .run_at(range.start)
            .or_else(|| self.runs.range(range.start..).next().map(|(start, end)| *start..*end))?;
        let part = run.start.max(range.start)..run.end.min(range.end);
        (!part.is_empty()).then_some(part)
    }

    /// Adds `range`, none of which is in the set; returns the run that it is now part of.
    ///
    /// # Panics
    /// When a part of `range` is in the set.
    pub(crate) fn insert(&mut self, range: Range<usize>) -> Range<usize> {
        assert!(self.overlap(&range).is_none(), "{range:?} is added twice");
        if range.is_empty() {
            return range;
        }
        self.bytes += range.len();
        let mut run = range;
        if let Some(end) = self.runs.remove(&run.end) {
            run.end = end;
        }
        let before = self.runs.range_mut(..run.start).next_back();
        match before {
            Some((start, end)) if *end == run.start => {
                run.start = *start;
                *end = run.end;
            }
            _ => {
                self.runs.insert(run.start, run.end);
            }
        }
        run
    }

    /// Adds `range`, parts of which may be in the set.
    pub fn cover(&mut self, mut range: Range<usize>) {
        while let Some(part) = self.overlap(&range) {
            self.insert(range.start..part.start);
            range.start = part.end;
        }
        self.insert(range);
    }

    /// Removes `range`, all of which is in the set.
    ///
    /// # Panics
    /// When a part of `range` is not in the set.
    pub(crate) fn remove(&mut self, range: &Range<usize>) {
        if range.is_empty() {
            return;
        }
        let run = self.run_at(range.start).filter(|run| range.end <= run.end);
        let run = run.expect("only what is in the set is removed");
        self.bytes -= range.len();
        if run.start == range.start {
            self.runs.remove(&run.start);
        } else {
            self.runs.insert(run.start, range.start);
        }
        if range.end < run.end {
            self.runs.insert(range.end, run.end);
        }
    }

    /// Removes everything. The memory of a small set is kept.
    pub(crate) fn clear(&mut self) {
        while self.runs.pop_first().is_some() {}
        self.bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LEN: usize = 64;

    /// Returns the runs of the bytes that are set.
    fn runs_of(bits: &[bool]) -> Vec<Range<usize>> {
        let mut runs: Vec<Range<usize>> = Vec::new();
        for at in (0..bits.len()).filter(|at| bits[*at]) {
            match runs.last_mut() {
                Some(run) if run.end == at => run.end += 1,
                _ => runs.push(at..at + 1),
            }
        }
        runs
    }

    fn agree(set: &Ranges, bits: &[bool]) -> Result<(), TestCaseError> {
        let runs = runs_of(bits);
        prop_assert_eq!(set.runs().collect::<Vec<_>>(), runs.clone());
        prop_assert_eq!(set.bytes(), bits.iter().filter(|bit| **bit).count());
        prop_assert_eq!(set.is_empty(), runs.is_empty());
        prop_assert_eq!(set.first(), runs.first().cloned());
        for at in 0..bits.len() {
            prop_assert_eq!(set.run_at(at), runs.iter().find(|run| run.contains(&at)).cloned());
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn agrees_with_a_bitmap(
            steps in prop::collection::vec((any::<bool>(), 0..LEN, 0_usize..20), 0..80),
        ) {
            let (mut set, mut bits) = (Ranges::default(), [false; LEN]);
            for (add, start, count) in steps {
                let range = start..(start + count).min(LEN);
                let part = &mut bits[range.clone()];
                let set_bytes = part.iter().filter(|bit| **bit).count();
                let first = part.iter().position(|bit| *bit).map(|at| start + at);
                prop_assert_eq!(set.overlap(&range).map(|part| part.start), first);
                prop_assert_eq!(set.contains(&range), set_bytes == range.len());
                if add && set_bytes == 0 {
                    part.fill(true);
                    let run = set.insert(range.clone());
                    prop_assert!(run.start <= range.start && range.end <= run.end);
                } else if !add && set_bytes == range.len() {
                    part.fill(false);
                    set.remove(&range);
                } else if add {
                    part.fill(true);
                    set.cover(range);
                }
                agree(&set, &bits)?;
            }
            set.clear();
            agree(&set, &[false; LEN])?;
        }
    }

    #[test]
    #[should_panic(expected = "added twice")]
    fn nothing_is_added_twice() {
        let mut set = Ranges::default();
        set.insert(3..5);
        set.insert(4..6);
    }
}
