//! Rows that a sender's program writes.

use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::sync::Arc;

use chunkcomm_group::{Element, Part};

use crate::ends::shared::Log;

/// Some rows of a sender's storage, for one writer.
///
/// May be sent to another thread. [`commit`](Self::commit) puts the rows on their way, in any order of slabs.
/// Dropped without it, they may be asked for again.
#[must_use = "rows that are not committed are not sent"]
pub struct Slab<T: Element> {
    pub(super) part: Part<T>,
    pub(super) rows: Range<usize>,
    pub(super) log: Arc<Log>,
}

impl<T: Element> Slab<T> {
    /// Returns the rows in the rank's storage: indices of the dimension that is slowest in memory.
    #[must_use]
    pub fn rows(&self) -> Range<usize> {
        self.rows.clone()
    }

    /// Puts the rows on their way; never waits.
    pub fn commit(self) {
        let Self { part, rows, log } = self;
        part.commit();
        if !rows.is_empty() {
            log.push(rows);
        }
    }
}

impl<T: Element> Deref for Slab<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.part
    }
}

impl<T: Element> DerefMut for Slab<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.part
    }
}

impl<T: Element> fmt::Debug for Slab<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slab").field("rows", &self.rows).finish_non_exhaustive()
    }
}
