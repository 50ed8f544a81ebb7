//! The ways of an array's elements: into other layouts, into margins, to one rank.

use std::sync::Arc;

use chunkcomm::with_causes;
use chunkcomm_group::Element;

use super::{Array, IntoLayout, stated, whole, zeroed};
use crate::ends::error::ArrayError;
use crate::ends::exchange::{Kept, Memory, Opening, other_size};
use crate::layout::Layout;
use crate::layout::parts::WrapFault;

impl<T: Element> Array<T> {
    /// Returns the array in another layout, on the same ranks.
    ///
    /// Margins of the other layout are filled, too. If this one has a region, the other needs one of the same shape. Costs an
    /// agreement of all ranks; [`copy_to`](Self::copy_to) into the returned array costs none.
    ///
    /// # Errors
    ///
    /// [`ArrayError::Rank`] at all ranks: one has no such layout, or no memory for its part. [`ArrayError::Differs`]: the
    /// ranks name different layouts; [`ArrayError::Mismatch`]: one of another shape. [`ArrayError::Peer`],
    /// [`ArrayError::Group`]: a rank is gone.
    ///
    /// # Cancel safety
    ///
    /// See [the type](Self#cancel-safety).
    pub async fn to(&mut self, layout: impl IntoLayout) -> Result<Array<T>, ArrayError> {
        let layout = layout.into_layout(&self.shape(), self.group.size());
        let made = layout.map_err(|error| with_causes(&error)).and_then(|layout| {
            other_size(&layout, &self.group).map_or(Ok(()), Err)?;
            Ok((zeroed(&layout, self.group.rank())?, layout))
        });
        let (storage, layout, copy) = self.copied(made).await?;
        self.copy = Some((layout.clone(), copy));
        Ok(Array::made(&self.group, layout, storage))
    }

    /// Copies all elements into a new storage, if all ranks have one.
    async fn copied(
        &self,
        made: Result<(Vec<T>, Layout), String>,
    ) -> Result<(Vec<T>, Layout, Kept), ArrayError> {
        let (layout, fault) = match &made {
            Ok((_, layout)) => (layout, None),
            Err(fault) => (&self.layout, Some(fault.clone())),
        };
        let layouts = (self.layout.clone(), layout.clone());
        let mut exchange = Opening::new::<T>(&self.group, layouts, fault, false).await?;
        let (mut storage, layout) =
            made.map_err(|why| ArrayError::refused(self.group.rank(), why))?;
        exchange.run(Memory::Two(&self.storage, &mut storage)).await?;
        Ok((storage, layout, Kept::Open(Box::new(exchange))))
    }

    /// Copies all elements into another array of the group, in its layout.
    ///
    /// Plan and channels are kept: a further copy into an array of that layout costs no agreement.
    ///
    /// # Errors
    ///
    /// [`ArrayError::OtherGroup`]; [`ArrayError::Mismatch`]: the arrays have different shapes. [`ArrayError::Peer`],
    /// [`ArrayError::Group`]: a rank is gone; `to` has some of the new elements.
    ///
    /// # Cancel safety
    ///
    /// See [the type](Self#cancel-safety); `to` has some of the new elements.
    pub async fn copy_to(&mut self, to: &mut Array<T>) -> Result<(), ArrayError> {
        if !self.group.is(&to.group) {
            return Err(ArrayError::OtherGroup);
        }
        if self.copy.as_ref().is_none_or(|(layout, _)| *layout != to.layout) {
            let layouts = (self.layout.clone(), to.layout.clone());
            let opening = Opening::new::<T>(&self.group, layouts, None, false);
            self.copy = Some((to.layout.clone(), Kept::Opening(opening)));
        }
        let (_, copy) = self.copy.as_mut().expect("it was opened");
        if let Err(error) = copy.opened().await {
            if error.is_refusal() {
                self.copy = None;
            }
            return Err(error);
        }
        let storage = Arc::make_mut(&mut to.storage).as_mut_slice();
        copy.run(Memory::Two(&self.storage, storage)).await
    }

    /// Brings the margins up to date: each rank gets the elements there from their owners.
    ///
    /// Dimensions that are distributed, other than `*`, get margins of this width if theirs are narrower, once all ranks
    /// have agreed: storage and layout change, and margins begin with zeros again. Corners are filled as well; margins at the edges of the array
    /// stay as they are. The neighbours of an element lie at its place plus and minus the
    /// [strides](super::Local::strides).
    ///
    /// # Errors
    ///
    /// [`ArrayError::Layout`]: a dimension is cyclic. [`ArrayError::Rank`] at all: a rank has no memory for its margins.
    /// [`ArrayError::Peer`], [`ArrayError::Group`]: a rank is gone.
    ///
    /// # Cancel safety
    ///
    /// See [the type](Self#cancel-safety).
    pub async fn halo(&mut self, width: usize) -> Result<(), ArrayError> {
        whole(&self.group, &self.layout)?;
        let opening = |layout: &Layout, fault| {
            let layouts = (layout.clone(), layout.clone());
            Kept::Opening(Opening::new::<T>(&self.group, layouts, fault, true))
        };
        // One that is under way is that of this call.
        if !matches!(self.halo, Some(Kept::Opening(_)))
            && let Some(layout) = self.layout.widened(width).map_err(ArrayError::Layout)?
        {
            let storage = zeroed(&layout, self.group.rank());
            self.halo = Some(opening(&layout, storage.as_ref().err().cloned()));
            self.wide = storage.ok().map(|storage| (layout, storage));
        }
        let halo = self.halo.get_or_insert_with(|| opening(&self.layout, None));
        if let Err(error) = halo.opened().await {
            if error.is_refusal() {
                (self.halo, self.wide) = (None, None);
            }
            return Err(error);
        }
        // All ranks have the wider layout.
        if let Some((layout, mut storage)) = self.wide.take() {
            let rank = self.group.rank();
            let (narrow, wide) = (self.layout.elements(rank), layout.elements(rank));
            narrow.zip(wide).for_each(|(from, to)| storage[to] = self.storage[from]);
            (self.layout, self.storage) = (layout, Arc::new(storage));
            (self.wraps, self.copy) = (Vec::new(), None);
        }
        let halo = self.halo.as_mut().expect("it was opened");
        halo.run(Memory::One(Arc::make_mut(&mut self.storage).as_mut_slice())).await
    }

    /// Brings the margins up to date as [`halo`](Self::halo) does; those at the edges of the array get the elements at
    /// the opposite edge, as if it went on there (NumPy's `roll`).
    ///
    /// # Errors
    ///
    /// As `halo`. [`ArrayError::Rank`] with this rank, at all of them: the part at an edge is narrower than the margin.
    ///
    /// # Cancel safety
    ///
    /// See [the type](Self#cancel-safety).
    pub async fn halo_periodic(&mut self, width: usize) -> Result<(), ArrayError> {
        whole(&self.group, &self.layout)?;
        if self.wrapped.is_none() {
            self.halo(width).await?;
        }
        if self.wraps.is_empty() {
            let wraps = self.layout.wraps().map_err(|fault| match fault {
                WrapFault::Layout(error) => ArrayError::Layout(error),
                WrapFault::Narrow { dim } => {
                    let layout = stated(&self.layout);
                    let why =
                        format!("a margin of {layout} is wider than the part in dimension {dim}");
                    ArrayError::refused(self.group.rank(), why)
                }
            })?;
            let opening = |layouts| Opening::new::<T>(&self.group, layouts, None, true);
            self.wraps = wraps.into_iter().map(opening).map(Kept::Opening).collect();
        }
        let first = *self.wrapped.get_or_insert(0);
        for (number, wrap) in self.wraps.iter_mut().enumerate().skip(first) {
            self.wrapped = Some(number);
            wrap.run(Memory::One(Arc::make_mut(&mut self.storage).as_mut_slice())).await?;
        }
        self.wrapped = None;
        Ok(())
    }

    /// Returns the whole array at one rank, in C's order; `None` at the others.
    ///
    /// # Errors
    ///
    /// [`ArrayError::Rank`] at all ranks: there is no rank `root`, or no memory there. [`ArrayError::Peer`],
    /// [`ArrayError::Group`]: a rank is gone.
    ///
    /// # Cancel safety
    ///
    /// See [the type](Self#cancel-safety).
    pub async fn gather(&self, root: usize) -> Result<Option<Vec<T>>, ArrayError> {
        let (rank, size) = (self.group.rank(), self.group.size());
        whole(&self.group, &self.layout)?;
        let made = if root < size {
            self.layout.at_one(root, size).map_err(|error| with_causes(&error))
        } else {
            Err(format!("there is no rank {root} of {size}"))
        };
        let made = made.and_then(|layout| Ok((zeroed(&layout, rank)?, layout)));
        let (whole, ..) = self.copied(made).await?;
        Ok((rank == root).then_some(whole))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use chunkcomm::host;
    use chunkcomm_cluster::{Cluster, ClusterConfig};
    use chunkcomm_group::Group;
    use std::time::Duration;

    /// A rank's own elements are more than a task works at a time.
    #[tokio::test]
    async fn a_copy_that_is_dropped_again_and_again_comes_to_its_end() {
        let cluster = Cluster::join(ClusterConfig::new().nodes(1)).await.expect("a cluster");
        let group = Group::world(&cluster).await.expect("a group");
        let mut rows = Array::<u64>::zeros(&group, "(*,*)", [1024, 2048]).expect("an array");
        let mut columns =
            Array::<u64>::zeros(&group, "(*,*) permuted 1,0", [1024, 2048]).expect("an array");
        let mut next = 0..;
        rows.map_inplace(|element| *element = next.next().expect("a number"));
        let mut calls = 0;
        loop {
            calls += 1;
            let call = host::timeout(Duration::ZERO, rows.copy_to(&mut columns));
            if let Ok(copied) = call.await {
                break copied.expect("it is copied");
            }
            assert!(calls < 1_000, "it begins again and again");
        }
        assert!(calls > 4, "{calls} calls");
        let local = columns.local();
        let right = |at: usize| {
            local.index(at).is_some_and(|it| local[at] == (it[0] * 2048 + it[1]) as u64)
        };
        assert!((0..local.len()).step_by(1009).all(right));
    }
}
