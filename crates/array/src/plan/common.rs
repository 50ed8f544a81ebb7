//! The closed form: which segments two periodic sets of indices have in common.
//!
//! A sender's blocks are `[a + i x, a + i x + r)`, a receiver's `[b + j y, b + j y + s)`. Two of them overlap
//! exactly if the distance `d = (a + i x) - (b + j y)` lies in `(-r, s)`:
//!
//! ```text
//!            a + i x          a + i x + r
//!   sender      |=================|
//!   receiver         |=====================|
//!                 b + j y              b + j y + s
//!               |-d-|
//! ```
//!
//! All distances are `a - b` modulo `g = gcd(x, y)`, so at most `ceil((r + s - 1) / g)` of them can be. Each
//! occurs once in a window of `lcm(x, y)` indices, at the `i` that solves `i x = b - a + d` modulo `y`: a segment
//! of the pattern, whatever the extent is. Where a window has fewer blocks than distances, the blocks are walked
//! instead.

use super::meeting::Segment;
use crate::layout::held::Held;
use std::ops::Range;

/// Distance of blocks of a set that has a single one: behind any index (an array has fewer than 2^60).
const NEVER: i64 = 1 << 61;

/// Numbers that follow from two periods alone, kept for all pairs of ranks that have them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Periods {
    sender: i64,
    receiver: i64,
    gcd: i64,
    /// Least common multiple; `None` if that is behind the end of any array.
    lcm: Option<i64>,
    /// Solves `inverse * sender = gcd` modulo the receiver's period.
    inverse: i64,
}

impl Periods {
    /// Makes these the values of two periods, if they are not yet.
    fn set(&mut self, sender: i64, receiver: i64, steps: &mut u64) {
        if (self.sender, self.receiver) == (sender, receiver) {
            return;
        }
        // Euclid: `factor * sender = value` modulo `receiver` holds for both pairs all the time.
        let (mut value, mut factor) = (sender, 1);
        let (mut next_value, mut next_factor) = (receiver, 0);
        while next_value != 0 {
            let quotient = value / next_value;
            (value, next_value) = (next_value, value - quotient * next_value);
            (factor, next_factor) = (next_factor, factor - quotient * next_factor);
            *steps += 1;
        }
        *self = Periods {
            sender,
            receiver,
            gcd: value,
            lcm: sender.checked_mul(receiver / value).filter(|lcm| *lcm < NEVER),
            inverse: factor.rem_euclid(receiver / value),
        };
    }
}

/// The blocks of one rank, from the start of the common range on.
#[derive(Clone, Copy, Debug)]
struct Part {
    /// Start of the block that has the start of the range, or of the last one before it.
    first: i64,
    block: i64,
    /// Distance of blocks; `NEVER` if all indices of the range are in one.
    period: i64,
    /// Index in the rank's storage of the first block's start.
    local: i64,
}

impl Part {
    /// Returns what a rank has of a range, whose end is cut if a single block has all of it.
    fn of(held: &Held, range: &mut Range<i64>) -> Part {
        let number = (range.start - held.first) / held.period;
        let first = held.first + number * held.period;
        let local = held.local + number * held.block;
        let is_last = first.saturating_add(held.period) >= range.end;
        if is_last && held.block < held.period {
            range.end = range.end.min(first.saturating_add(held.block));
        }
        if !is_last && held.block < held.period {
            return Part { first, block: held.block, period: held.period, local };
        }
        Part { first, block: NEVER, period: NEVER, local }
    }

    /// Whether one block has all of the range.
    fn is_dense(&self) -> bool {
        self.period == NEVER
    }

    /// Returns how far apart in storage are indices that are a whole window apart.
    fn distance(&self, window: i64) -> i64 {
        if self.is_dense() { window } else { window / self.period * self.block }
    }
}

/// Two ranks' indices within the range that may be common to them.
#[derive(Clone, Debug)]
pub(crate) struct Common {
    range: Range<i64>,
    sender: Part,
    receiver: Part,
    /// Number of indices after which all repeats, if that is less than the range.
    window: Option<i64>,
    /// The least distance of two blocks that overlap, if both ranks have several blocks.
    nearest: Option<i64>,
}

impl Common {
    /// Returns the range in which two ranks may have indices in common; `None` if it is plain that they have none.
    pub(crate) fn of(
        sender: &Held,
        receiver: &Held,
        periods: &mut Periods,
        steps: &mut u64,
    ) -> Option<Common> {
        *steps += 1;
        let start = sender.bounds.start.max(receiver.bounds.start);
        let end = sender.bounds.end.min(receiver.bounds.end);
        if start.max(sender.first).max(receiver.first) >= end {
            return None;
        }
        let start = next_held(sender, start).max(next_held(receiver, start));
        if start >= end {
            return None;
        }
        let mut range = start..end;
        let sender = Part::of(sender, &mut range);
        let receiver = Part::of(receiver, &mut range);
        if range.is_empty() {
            return None;
        }
        let extent = range.end - range.start;
        let mut common = Common { range, sender, receiver, window: None, nearest: None };
        let window = match (sender.is_dense(), receiver.is_dense()) {
            (true, true) => None,
            (true, false) => Some(receiver.period),
            (false, true) => Some(sender.period),
            (false, false) => {
                periods.set(sender.period, receiver.period, steps);
                common.nearest = Some(common.nearest_distance(periods.gcd)?);
                periods.lcm
            }
        };
        common.window = window.filter(|window| *window < extent);
        Some(common)
    }

    /// Returns the segments of a window, ascending; `before` is the distance of the first index from the start.
    pub(crate) fn pattern(&self, periods: &Periods, steps: &mut u64) -> Vec<Segment> {
        let end = self.window.map_or(self.range.end, |window| self.range.start + window);
        let (outer, inner, is_sender) = self.by_period();
        let blocks = (end - self.range.start) / outer.period + 1;
        if let Some(nearest) = self.nearest {
            let distances = (self.receiver.block - 1 - nearest) / periods.gcd + 1;
            if distances <= blocks {
                return self.by_distance(periods, nearest, distances, end, steps);
            }
        }
        let window = self.range.start..end;
        let mut pattern = Vec::new();
        walk(outer, inner, &window, steps, |from, to, at_outer, at_inner| {
            let (at_sender, at_receiver) =
                if is_sender { (at_outer, at_inner) } else { (at_inner, at_outer) };
            pattern.extend(Overlap { from, to, at_sender, at_receiver }.within(&window));
        });
        pattern
    }

    /// Returns the number of whole windows in the range.
    pub(crate) fn whole_windows(&self) -> usize {
        let extent = self.range.end - self.range.start;
        self.window.map_or(1, |window| to_usize(extent / window))
    }

    /// Returns the number of indices of the range behind its last whole window.
    pub(crate) fn tail(&self) -> usize {
        let extent = self.range.end - self.range.start;
        self.window.map_or(0, |window| to_usize(extent % window))
    }

    /// Returns the distance of two windows in the storage of the sender and of the receiver.
    pub(crate) fn distances(&self) -> (usize, usize) {
        let Some(window) = self.window else { return (0, 0) };
        (to_usize(self.sender.distance(window)), to_usize(self.receiver.distance(window)))
    }

    /// Returns the least distance in `(-r, s)` that can be, if there is one.
    fn nearest_distance(&self, gcd: i64) -> Option<i64> {
        let least = 1 - self.sender.block;
        let distance = self.sender.first - self.receiver.first;
        let nearest = least + (distance - least).rem_euclid(gcd);
        (nearest < self.receiver.block).then_some(nearest)
    }

    /// Returns the part with the longer period, the other one, and whether the first is the sender's.
    ///
    /// A part with a single block is the other one, since it has nothing that could be walked.
    fn by_period(&self) -> (&Part, &Part, bool) {
        let is_sender = match (self.sender.is_dense(), self.receiver.is_dense()) {
            (false, false) => self.sender.period >= self.receiver.period,
            (_, receiver_is_dense) => receiver_is_dense,
        };
        if is_sender {
            (&self.sender, &self.receiver, true)
        } else {
            (&self.receiver, &self.sender, false)
        }
    }

    /// Returns the segments before `end` by the distances of blocks that overlap.
    fn by_distance(
        &self,
        periods: &Periods,
        nearest: i64,
        distances: i64,
        end: i64,
        steps: &mut u64,
    ) -> Vec<Segment> {
        let (sender, receiver) = (&self.sender, &self.receiver);
        let modulus = receiver.period / periods.gcd;
        let wanted = (nearest - (sender.first - receiver.first)) / periods.gcd;
        let mut number = multiply_modulo(wanted.rem_euclid(modulus), periods.inverse, modulus);
        let window = self.range.start..end;
        let mut pattern = Vec::with_capacity(to_usize(distances) + 1);
        for step in 0..distances {
            *steps += 1;
            if let Some(overlap) = self.overlap(number, nearest + step * periods.gcd, end) {
                pattern.extend(overlap.within(&window));
                // The part before the window comes again at its end.
                let again = periods.lcm.filter(|_| overlap.from < window.start);
                pattern.extend(again.and_then(|lcm| {
                    let (at_sender, at_receiver) = (sender.distance(lcm), receiver.distance(lcm));
                    overlap.moved(lcm, at_sender, at_receiver).within(&window)
                }));
            }
            number += periods.inverse;
            number -= if number >= modulus { modulus } else { 0 };
        }
        pattern.sort_unstable_by_key(|segment| segment.before);
        pattern
    }

    /// Returns the overlap of the sender's block of that number and the receiver's at that distance from it, unless
    /// they are behind `end`.
    fn overlap(&self, number: i64, distance: i64, end: i64) -> Option<Overlap> {
        let (sender, receiver) = (&self.sender, &self.receiver);
        let block = number.checked_mul(sender.period)?.checked_add(sender.first)?;
        if block >= end {
            return None;
        }
        let other = block - distance;
        let other_number = (other - receiver.first) / receiver.period;
        let from = block.max(other);
        Some(Overlap {
            from,
            to: (block + sender.block).min(other + receiver.block),
            at_sender: sender.local + number * sender.block + (from - block),
            at_receiver: receiver.local + other_number * receiver.block + (from - other),
        })
    }
}

/// Indices that two blocks have in common, and where the first one is stored.
#[derive(Clone, Copy, Debug)]
struct Overlap {
    from: i64,
    to: i64,
    at_sender: i64,
    at_receiver: i64,
}

impl Overlap {
    /// Returns the indices in a window as a segment; `before` is the distance from the window's start.
    fn within(self, window: &Range<i64>) -> Option<Segment> {
        let cut = (window.start - self.from).max(0);
        let (from, to) = (self.from + cut, self.to.min(window.end));
        (from < to).then(|| Segment {
            before: to_usize(from - window.start),
            length: to_usize(to - from),
            at_sender: to_usize(self.at_sender + cut),
            at_receiver: to_usize(self.at_receiver + cut),
        })
    }

    /// Returns the same, farther by a number of indices and by those distances in storage.
    fn moved(self, indices: i64, at_sender: i64, at_receiver: i64) -> Overlap {
        Overlap {
            from: self.from + indices,
            to: self.to + indices,
            at_sender: self.at_sender + at_sender,
            at_receiver: self.at_receiver + at_receiver,
        }
    }
}

/// Tells `found` what the blocks of two parts have in common in a range, ascending: start, end, and the index of the
/// start in the storage of each.
fn walk(
    outer: &Part,
    inner: &Part,
    range: &Range<i64>,
    steps: &mut u64,
    mut found: impl FnMut(i64, i64, i64, i64),
) {
    let mut block = outer.first;
    let mut local = outer.local;
    while block < range.end {
        *steps += 1;
        let start = block.max(range.start);
        let end = block.saturating_add(outer.block).min(range.end);
        let mut number = (start - inner.first) / inner.period;
        while start < end && inner.first + number * inner.period < end {
            *steps += 1;
            let other = inner.first + number * inner.period;
            let from = start.max(other);
            let to = end.min(other + inner.block);
            if from < to {
                found(
                    from,
                    to,
                    local + from - block,
                    inner.local + number * inner.block + from - other,
                );
            }
            number += 1;
        }
        block += outer.period;
        local += outer.block;
    }
}

/// Returns the first index from `index` on that is in a block, whatever the bounds.
fn next_held(held: &Held, index: i64) -> i64 {
    let index = index.max(held.first);
    let block = index - (index - held.first) % held.period;
    let is_held = index - block < held.block;
    if is_held { index } else { block.saturating_add(held.period) }
}

/// Returns `a * b` modulo `modulus`, for `a` and `b` in `0..modulus`.
fn multiply_modulo(a: i64, b: i64, modulus: i64) -> i64 {
    if let Some(product) = a.checked_mul(b) {
        return product % modulus;
    }
    let product = i128::from(a) * i128::from(b) % i128::from(modulus);
    i64::try_from(product).expect("a remainder is less than its divisor")
}

fn to_usize(number: i64) -> usize {
    usize::try_from(number).expect("indices within bounds are not negative, and counts fit")
}
