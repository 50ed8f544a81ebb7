//! One value of all elements of an array.

use chunkcomm_group::{Element, Number, Op};

use super::{Array, whole};
use crate::ends::error::ArrayError;

impl<T: Element> Array<T> {
    /// Combines all elements of the whole array, each once, in an order that the layout gives; the same at all ranks.
    /// `None` for an array without elements.
    ///
    /// # Errors
    ///
    /// [`ArrayError::Group`]: a rank is gone.
    ///
    /// # Cancel safety
    ///
    /// The call goes on when the future is dropped.
    pub async fn reduce(&self, op: Op<T>) -> Result<Option<T>, ArrayError> {
        let (mut group, rank) = (self.group.share(), self.group.rank());
        whole(&group, &self.layout)?;
        let mut ours: Vec<T> = Vec::new();
        if self.layout.is_first_replica(rank) {
            let runs = self.layout.owned_runs(rank);
            ours = runs.filter_map(|run| op.fold(&self.storage[run])).collect();
        }
        let ours: Vec<T> = op.fold(&ours).into_iter().collect();
        let all = group.all_gather(ours).await.map_err(|error| ArrayError::Group(error.cause))?;
        Ok(op.fold(&all.result.data))
    }
}

impl<T: Number> Array<T> {
    /// Returns the sum of all elements, 0 for none; integers wrap.
    ///
    /// # Errors
    ///
    /// As [`reduce`](Self::reduce).
    ///
    /// # Cancel safety
    ///
    /// As `reduce`.
    pub async fn sum(&self) -> Result<T, ArrayError> {
        Ok(self.reduce(Op::sum()).await?.unwrap_or_else(T::zeroed))
    }

    /// Returns the smallest element, NaN where one is, and `None` for an array without elements.
    ///
    /// # Errors
    ///
    /// As [`reduce`](Self::reduce).
    ///
    /// # Cancel safety
    ///
    /// As `reduce`.
    pub async fn min(&self) -> Result<Option<T>, ArrayError> {
        self.reduce(Op::min()).await
    }

    /// Returns the largest element, NaN where one is, and `None` for an array without elements.
    ///
    /// # Errors
    ///
    /// As [`reduce`](Self::reduce).
    ///
    /// # Cancel safety
    ///
    /// As `reduce`.
    pub async fn max(&self) -> Result<Option<T>, ArrayError> {
        self.reduce(Op::max()).await
    }
}
