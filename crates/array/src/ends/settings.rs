//! Settings of a transfer.

use std::time::Duration;

/// Bytes of a slab, by default: 64 KiB. Smaller ones leave and are shown earlier; each costs about a
/// microsecond at both ends.
pub(super) const SLAB_BYTES: usize = 64 * 1024;

/// Rows of a slab at least, where a tile of a transposition touches a little of many rows: 32. With 2 rows the
/// unpacking of 4096 x 4096 numbers took twice as long.
const SLAB_ROWS_ACROSS: usize = 32;

/// Settings of one end of a transfer. Each end has its own.
///
/// ```
/// use std::time::Duration;
/// use chunkcomm_array::Transfer;
///
/// let settings = Transfer::default().depth(2).report_after(Duration::from_secs(3));
/// # let _ = settings;
/// ```
#[derive(Clone, Debug)]
#[must_use = "settings do nothing by themselves"]
pub struct Transfer {
    pub(crate) depth: usize,
    pub(crate) slab_rows: Option<usize>,
    pub(crate) report_after: Duration,
    pub(super) overlap: bool,
    pub(super) declared_nanos_per_byte: f64,
}

impl Default for Transfer {
    fn default() -> Transfer {
        Transfer {
            depth: 1,
            slab_rows: None,
            report_after: Duration::from_secs(10),
            overlap: true,
            declared_nanos_per_byte: 0.0,
        }
    }
}

impl Transfer {
    /// Sets how many rounds may be under way: 1, the default, or 2. Two take twice the memory: a sender computes
    /// a round while the last one travels, a receiver gets a round while the program uses the last one.
    ///
    /// # Panics
    ///
    /// When it is neither.
    pub fn depth(self, depth: usize) -> Transfer {
        assert!((1..=2).contains(&depth), "the depth of a transfer is 1 or 2, not {depth}");
        Transfer { depth, ..self }
    }

    /// Sets the number of rows of a slab; by default as many as have 64 KiB, at least one, at a receiver that
    /// transposes at least 32. A row has one index of the dimension that is slowest in memory.
    ///
    /// # Panics
    ///
    /// When it is 0.
    pub fn slab_rows(self, rows: usize) -> Transfer {
        assert!(rows > 0, "a slab has at least one row");
        Transfer { slab_rows: Some(rows), ..self }
    }

    /// Sets the time after which a wait for a rank is reported to the people who run the node; by default 10 s.
    pub fn report_after(self, time: Duration) -> Transfer {
        Transfer { report_after: time, ..self }
    }

    /// Sets whether packing overlaps sending, and unpacking receiving; by default true. Without, a sender packs
    /// all before the first byte leaves, and a receiver unpacks nothing before all has come: to measure against.
    pub fn overlap(self, overlap: bool) -> Transfer {
        Transfer { overlap, ..self }
    }

    /// Declares what packing and unpacking cost on the hosts of a simulation; by default nothing.
    #[doc(hidden)]
    pub fn declared_nanos_per_byte(self, nanos: f64) -> Transfer {
        Transfer { declared_nanos_per_byte: nanos, ..self }
    }

    /// Returns the number of rows of a slab, each of `row_bytes`.
    pub(super) fn rows_of_slab(&self, row_bytes: usize, is_across: bool) -> usize {
        let least = if is_across { SLAB_ROWS_ACROSS } else { 1 };
        self.slab_rows.unwrap_or_else(|| (SLAB_BYTES / row_bytes.max(1)).max(least))
    }

    /// Whether packing takes a declared time.
    pub(super) fn is_declared(&self) -> bool {
        self.declared_nanos_per_byte > 0.0
    }

    /// Lets the declared time of packing pass.
    pub(super) async fn spend(&self, bytes: usize) {
        if self.is_declared() {
            let nanos = self.declared_nanos_per_byte * bytes as f64;
            chunkcomm::host::compute(Duration::from_nanos(nanos as u64), || ()).await;
        }
    }
}
