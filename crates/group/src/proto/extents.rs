//! The state of each byte of a buffer in one round: free, out with a writer, or done.
//!
//! ```text
//!          take                 commit
//!  free ─────────▶ out ───────────────────▶ done
//!    ◀───────────    with one writer          readable until the next round
//!       release
//! ```
//!
//! At the sender *done* means committed, at the receiver landed. The ranges that became done are also
//! noted in the order in which they did: a [`Cursor`] reads that journal, so that a forward and a
//! reader follow the order of landing.
//!
//! Order of calls: `take`, then `commit` of parts of the range and `release` of the rest; `reset`
//! when all is done.

use std::ops::Range;

use super::ranges::Ranges;

/// Fault of a range that cannot be taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Taken {
    /// The range reaches behind the end of the buffer, or its end lies before its start.
    Outside,
    /// These bytes of it are out with a writer.
    Out(Range<usize>),
    /// These bytes of it are done.
    Done(Range<usize>),
}

/// The bytes of one buffer.
#[derive(Debug)]
pub struct Extents {
    len: usize,
    /// The round is the last one, and its length was not known before.
    cut: bool,
    /// The bytes land: an empty round is over when its end has come, and not before.
    lands: bool,
    /// An empty round whose end has not come.
    open: bool,
    done: Ranges,
    out: Ranges,
    /// Ranges in the order in which they became done; one that continues the last is part of it.
    journal: Vec<Range<usize>>,
}

impl Extents {
    /// Begins a buffer of `len` bytes, all of them free.
    pub(crate) fn new(len: usize) -> Self {
        Self {
            len,
            cut: false,
            lands: false,
            open: false,
            done: Ranges::default(),
            out: Ranges::default(),
            journal: Vec::new(),
        }
    }

    /// Says that the bytes land. At a sender an empty round is whole at once; here it waits for its end.
    pub(crate) fn land(&mut self) {
        (self.lands, self.open) = (true, self.len == 0);
    }

    /// Ends an empty round; returns whether it was open.
    pub(crate) fn end_empty(&mut self) -> bool {
        std::mem::take(&mut self.open)
    }

    /// Whether this is an empty round whose end has not come.
    pub(crate) fn is_open(&self) -> bool {
        self.open
    }

    /// Takes all bytes of `range` for one writer.
    ///
    /// # Errors
    /// When a byte is not free; nothing is taken.
    pub(crate) fn take(&mut self, range: &Range<usize>) -> Result<(), Taken> {
        if range.start > range.end || range.end > self.len {
            return Err(Taken::Outside);
        }
        if let Some(part) = self.out.overlap(range) {
            return Err(Taken::Out(part));
        }
        if let Some(part) = self.done.overlap(range) {
            return Err(Taken::Done(part));
        }
        self.out.insert(range.clone());
        self.check();
        Ok(())
    }

    /// Gives back `range`, which is out: it is free again.
    pub(crate) fn release(&mut self, range: &Range<usize>) {
        self.out.remove(range);
        self.check();
    }

    /// Makes `range`, which is out, done.
    pub(crate) fn commit(&mut self, range: Range<usize>) {
        if range.is_empty() {
            return;
        }
        self.out.remove(&range);
        self.done.insert(range.clone());
        match self.journal.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => self.journal.push(range),
        }
        self.check();
    }

    /// Returns the first free bytes at or behind `start`, at most `count`.
    pub(crate) fn free_from(&self, start: usize, count: usize) -> Option<Range<usize>> {
        let mut start = start;
        while let Some(run) = self.out.run_at(start).or_else(|| self.done.run_at(start)) {
            start = run.end;
        }
        let mut range = start..start.saturating_add(count).min(self.len);
        for taken in [&self.out, &self.done] {
            range.end = taken.overlap(&range).map_or(range.end, |part| part.start);
        }
        (!range.is_empty()).then_some(range)
    }

    /// Begins the next round: all bytes are free.
    ///
    /// # Panics
    /// When bytes are out, or the last round was cut.
    pub(crate) fn reset(&mut self) {
        assert!(self.out.is_empty() && !self.cut, "bytes are out, or the last round is over");
        self.done.clear();
        self.journal.clear();
        self.open = self.lands && self.len == 0;
    }

    /// Lets the round end behind the bytes that are done; no round follows. Returns whether they are
    /// those from the start without a gap and no byte is out; else nothing changes.
    pub(crate) fn cut(&mut self) -> bool {
        let in_order = self.out.is_empty() && self.prefix() == self.done.bytes();
        if in_order {
            (self.len, self.cut, self.open) = (self.done.bytes(), true, false);
        }
        in_order
    }

    /// Whether the round was cut.
    pub fn is_cut(&self) -> bool {
        self.cut
    }

    /// Returns the number of bytes of the round.
    pub fn bytes(&self) -> usize {
        self.len
    }

    /// Returns the number of bytes that are done.
    pub fn done_bytes(&self) -> usize {
        self.done.bytes()
    }

    /// Whether no byte is out with a writer.
    pub(crate) fn none_out(&self) -> bool {
        self.out.is_empty()
    }

    /// Whether all bytes are done, and an empty round has ended.
    pub fn is_whole(&self) -> bool {
        self.done.bytes() == self.len && !self.open
    }

    /// Whether all bytes of `range` are done.
    pub fn is_done(&self, range: &Range<usize>) -> bool {
        self.done.contains(range)
    }

    /// Returns the first part of `range` that is not done.
    pub(crate) fn missing(&self, range: &Range<usize>) -> Option<Range<usize>> {
        let start = self.done.run_at(range.start).map_or(range.start, |run| run.end);
        let rest = start..range.end;
        let end = self.done.overlap(&rest).map_or(range.end, |part| part.start);
        (start < end).then_some(start..end)
    }

    /// Returns the number of bytes from the start that are done without a gap.
    pub fn prefix(&self) -> usize {
        self.done.run_at(0).map_or(0, |run| run.end)
    }

    fn check(&self) {
        assert!(self.done.bytes() + self.out.bytes() <= self.len);
    }
}

/// A place in the journal of the extents; `reset` with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    entry: usize,
    /// Number of bytes of the entry that were read.
    read: usize,
}

impl Cursor {
    /// Returns the next bytes that became done, and goes on behind them. The range is a multiple of
    /// `unit` bytes, counted from the start of its entry.
    pub fn next(&mut self, extents: &Extents, unit: usize) -> Option<Range<usize>> {
        self.next_before(extents, unit, 0)
    }

    /// Returns the next bytes as [`next`](Self::next) does, without the last `kept` bytes of the journal.
    pub(crate) fn next_before(
        &mut self,
        extents: &Extents,
        unit: usize,
        kept: usize,
    ) -> Option<Range<usize>> {
        loop {
            let entry = extents.journal.get(self.entry)?;
            let is_last = self.entry + 1 == extents.journal.len();
            let known = entry.len().saturating_sub(if is_last { kept } else { 0 });
            let whole = known - known % unit;
            if self.read < whole {
                let range = entry.start + self.read..entry.start + whole;
                self.read = whole;
                return Some(range);
            }
            if is_last {
                return None;
            }
            *self = Self { entry: self.entry + 1, read: 0 };
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LEN: usize = 48;

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Byte {
        Free,
        Out,
        Done,
    }

    proptest! {
        /// Random takes, commits of parts and releases against one state a byte.
        #[test]
        fn agrees_with_a_state_a_byte(
            steps in prop::collection::vec((0_u8..3, 0..LEN, 0_usize..16), 0..100),
        ) {
            let (mut extents, mut bytes) = (Extents::new(LEN), [Byte::Free; LEN]);
            let (mut cursor, mut journal) = (Cursor::default(), Vec::new());
            for (what, start, count) in steps {
                let range = start..(start + count).min(LEN);
                let part = &mut bytes[range.clone()];
                let all = |state| part.iter().all(|byte| *byte == state);
                match what {
                    0 => {
                        let expected = if part.contains(&Byte::Out) {
                            2
                        } else {
                            u8::from(part.contains(&Byte::Done))
                        };
                        let found = match extents.take(&range) {
                            Ok(()) => 0,
                            Err(Taken::Done(done)) => { prop_assert!(extents.is_done(&done)); 1 }
                            Err(Taken::Out(_)) => 2,
                            Err(Taken::Outside) => 3,
                        };
                        prop_assert_eq!(found, expected);
                        if found == 0 { part.fill(Byte::Out); }
                    }
                    1 if all(Byte::Out) => { extents.commit(range.clone()); part.fill(Byte::Done); }
                    2 if all(Byte::Out) => { extents.release(&range); part.fill(Byte::Free); }
                    _ => {}
                }
                while let Some(fresh) = cursor.next(&extents, 1) {
                    journal.extend(fresh);
                }
                let free = (0..LEN).find(|at| *at >= start && bytes[*at] == Byte::Free);
                prop_assert_eq!(extents.free_from(start, 3).map(|range| range.start), free);
                let undone = |at: &usize| bytes[*at] != Byte::Done;
                let first = range.clone().find(undone);
                let missing = first.map(|at| at..(at..range.end).find(|at| !undone(at)).unwrap_or(range.end));
                prop_assert_eq!(extents.missing(&range), missing);
                let prefix = bytes.iter().take_while(|byte| **byte == Byte::Done).count();
                prop_assert_eq!(extents.prefix(), prefix);
            }
            journal.sort_unstable();
            let done: Vec<usize> = (0..LEN).filter(|at| bytes[*at] == Byte::Done).collect();
            prop_assert_eq!(extents.done_bytes(), done.len());
            prop_assert_eq!(journal, done, "each byte is told once");
        }
    }

    #[test]
    fn a_cursor_follows_the_order_and_shows_whole_units() {
        let mut extents = Extents::new(40);
        extents.take(&(0..40)).unwrap();
        let mut cursor = Cursor::default();
        extents.commit(20..26);
        assert_eq!(cursor.next(&extents, 4), Some(20..24));
        assert_eq!(cursor.next(&extents, 4), None);
        extents.commit(26..28);
        extents.commit(0..8);
        assert_eq!(cursor.next_before(&extents, 4, 4), Some(24..28));
        assert_eq!(cursor.next_before(&extents, 4, 4), Some(0..4));
        assert_eq!(cursor.next_before(&extents, 4, 4), None);
        assert_eq!(cursor.next(&extents, 4), Some(4..8));
        assert_eq!(cursor.next(&extents, 4), None);
    }

    #[test]
    fn a_round_is_cut_behind_what_is_done_from_the_start() {
        let mut extents = Extents::new(10);
        extents.take(&(0..8)).unwrap();
        extents.commit(4..6);
        assert!(!extents.cut(), "bytes are out");
        extents.release(&(0..4));
        extents.release(&(6..8));
        assert!(!extents.cut(), "there is a gap");
        extents.take(&(0..4)).unwrap();
        extents.commit(0..4);
        assert!(!extents.is_whole() && extents.cut() && extents.is_cut() && extents.is_whole());
        assert_eq!((extents.bytes(), extents.free_from(0, 1)), (6, None));
        assert_eq!(extents.take(&(6..7)), Err(Taken::Outside));
        assert!(extents.cut(), "once more changes nothing");
    }

    #[test]
    fn an_empty_round_that_lands_waits_for_its_end() {
        let mut extents = Extents::new(0);
        assert!(extents.is_whole(), "at a sender");
        extents.land();
        for _ in 0..2 {
            assert!(extents.is_open() && !extents.is_whole());
            assert!(extents.end_empty() && extents.is_whole());
            assert!(!extents.end_empty(), "it ends once");
            extents.reset();
        }
        assert!(extents.cut() && extents.is_whole());
        let mut longer = Extents::new(1);
        longer.land();
        assert!(!longer.end_empty());
    }

    #[test]
    fn a_range_outside_is_not_taken() {
        let mut extents = Extents::new(4);
        assert_eq!(extents.take(&(2..5)), Err(Taken::Outside));
        assert_eq!(extents.take(&Range { start: 3, end: 2 }), Err(Taken::Outside));
        assert_eq!(extents.take(&(4..4)), Ok(()));
    }
}
