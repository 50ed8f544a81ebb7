//! Parts and numbers of one run, and costs.

use std::ops::Range;

/// Finished elements of a tracked buffer.
#[derive(Debug)]
#[non_exhaustive]
pub struct Finished<'a, T> {
    /// Index of the first.
    pub start: usize,
    /// Copy of the elements, which no later store changes.
    pub elements: &'a [T],
    /// Whether some of them were handed on before and are corrected.
    pub again: bool,
}

impl<T> Finished<'_, T> {
    /// Returns the indices of the elements.
    #[must_use]
    pub fn range(&self) -> Range<usize> {
        self.start..self.start + self.elements.len()
    }

    /// Returns those of the elements whose indices are in `range`.
    ///
    /// # Panics
    /// When the range is not within [`range`](Self::range).
    #[must_use]
    pub fn within(&self, range: Range<usize>) -> Finished<'_, T> {
        let elements = &self.elements[range.start - self.start..range.end - self.start];
        Finished { start: range.start, elements, again: self.again }
    }
}

/// Numbers of one run of a tracked buffer that was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Sent {
    /// Elements that were handed on before the code returned.
    pub before_return: usize,
    /// Increments that were handed on, those included that were handed on again.
    pub increments: usize,
    /// Increments that were written again after they had been handed on.
    pub rewritten: usize,
}

/// Numbers of one run of a tracked buffer that was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Received {
    /// Reads that stopped their thread, since their page had not come.
    pub stalls: u32,
}

/// Costs of a sending engine, in nanoseconds, each the median of several runs.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct SendCosts {
    /// First store to an increment that is protected, in the writing thread, above that of a plain store.
    pub fault_ns: f64,
    /// One look at the whole buffer without news: a scan with `wp-async`, else a look at a list.
    pub look_ns: f64,
    /// Protecting one increment again; with `wp-async` its share of a scan that found all written.
    pub protect_ns: f64,
    /// Copy of one increment by system call.
    pub read_ns: f64,
}

/// Costs of a receiving engine, in nanoseconds, each the median of several runs.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct RecvCosts {
    /// Filling one increment and opening its pages.
    pub open_ns: f64,
    /// First load of a page that has come, above that of a plain load.
    pub load_ns: f64,
    /// From the start of a load to its end, when the page is put as soon as the load has stopped.
    pub stall_ns: f64,
}
