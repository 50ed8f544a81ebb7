//! Data of all ranks in one vector.

use std::ops::Range;

/// Elements of all ranks, one rank's behind the other's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parts<T> {
    /// The elements, those of rank 0 first.
    pub data: Vec<T>,
    /// Number of elements of each rank.
    pub counts: Vec<usize>,
}

/// Result of a call that also gives this rank's elements back.
///
/// As the data of a [`CollectiveError`](crate::CollectiveError) it has the `input` for another try, and a `result`
/// without elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exchanged<I, R> {
    /// The elements that this rank gave, as they were.
    pub input: I,
    /// The elements that this rank got.
    pub result: R,
}

impl<T> Default for Parts<T> {
    fn default() -> Parts<T> {
        Parts { data: Vec::new(), counts: Vec::new() }
    }
}

impl<T> Parts<T> {
    /// Divides `data` among `ranks` ranks; the parts differ by one element at most, the longer ones first.
    ///
    /// # Panics
    ///
    /// When `ranks` is 0.
    ///
    /// ```
    /// use chunkcomm_group::Parts;
    ///
    /// let parts = Parts::even(vec![1, 2, 3, 4, 5], 2);
    /// assert_eq!((parts.part(0), parts.part(1)), (&[1, 2, 3][..], &[4, 5][..]));
    /// ```
    #[must_use]
    pub fn even(data: Vec<T>, ranks: usize) -> Parts<T> {
        assert!(ranks > 0, "there is at least one rank");
        let (each, longer) = (data.len() / ranks, data.len() % ranks);
        let counts = (0..ranks).map(|rank| each + usize::from(rank < longer)).collect();
        Parts { data, counts }
    }

    /// Returns the elements of a rank.
    ///
    /// # Panics
    ///
    /// When there is no such rank, or the counts go beyond the data.
    #[must_use]
    pub fn part(&self, rank: usize) -> &[T] {
        let start = self.counts[..rank].iter().sum();
        &self.data[start..][..self.counts[rank]]
    }

    /// Returns the range of each rank, or what is wrong with the counts in a group of this size.
    pub(crate) fn ranges(&self, size: usize, out: &mut Vec<Range<usize>>) -> Result<(), String> {
        out.clear();
        if self.counts.len() != size {
            return Err(format!("{} counts for a group of {size}", self.counts.len()));
        }
        let mut end = 0_usize;
        for count in &self.counts {
            let start = end;
            end = start.saturating_add(*count);
            out.push(start..end);
        }
        if end == self.data.len() {
            return Ok(());
        }
        Err(format!("counts of {end} elements in all, and {} elements", self.data.len()))
    }
}
