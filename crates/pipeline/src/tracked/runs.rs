//! Parts and numbers of one run.

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
}

/// Numbers of one run of a tracked buffer that was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Sent {
    /// Elements that were handed on before the code returned.
    pub before_return: usize,
    /// Increments that were handed on, corrections included.
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
