//! A rank's part as the arrays of the crate `ndarray`.

use std::ops::DerefMut;

use chunkcomm_group::{Element, Group};
use ndarray::{
    ArrayView, ArrayViewD, ArrayViewMutD, Dimension, IxDyn, ShapeBuilder, Slice, StrideShape,
};

use super::{Array, Local};
use crate::ends::error::ArrayError;
use crate::layout::Layout;

impl<S> Local<'_, S> {
    fn strided(&self) -> StrideShape<IxDyn> {
        let shape = self.shape();
        // Without elements the strides are of no matter, and must not be beyond the end.
        let strides = if shape.contains(&0) { vec![0; shape.len()] } else { self.strides() };
        IxDyn(&shape).strides(IxDyn(&strides))
    }

    /// Returns the places along a dimension that this rank owns.
    fn owned(&self, dim: usize) -> Slice {
        let margin = self.layout.margin_of(dim);
        let stored = self.layout.local_shape(self.rank)[dim];
        Slice::from(margin.min(stored)..stored - margin.min(stored))
    }
}

impl<'a, T> Local<'a, &'a [T]> {
    /// Returns this part, margins included, as a view of `ndarray`.
    #[must_use]
    pub fn view(&self) -> ArrayViewD<'a, T> {
        let shape = self.strided();
        ArrayViewD::from_shape(shape, self.elements).expect("a part has its shape")
    }

    /// Returns what this rank owns, without margins, as a view of `ndarray`.
    #[must_use]
    pub fn interior(&self) -> ArrayViewD<'a, T> {
        let mut view = self.view();
        view.slice_each_axis_inplace(|axis| self.owned(axis.axis.index()));
        view
    }
}

impl<T, S: DerefMut<Target = [T]>> Local<'_, S> {
    /// Returns this part, margins included, as a view of `ndarray` to write.
    pub fn view_mut(&mut self) -> ArrayViewMutD<'_, T> {
        let shape = self.strided();
        ArrayViewMutD::from_shape(shape, &mut self.elements).expect("a part has its shape")
    }

    /// Returns what this rank owns, without margins, as a view of `ndarray` to write.
    pub fn interior_mut(&mut self) -> ArrayViewMutD<'_, T> {
        let owned: Vec<Slice> = (0..self.shape().len()).map(|dim| self.owned(dim)).collect();
        let mut view = self.view_mut();
        view.slice_each_axis_inplace(|axis| owned[axis.axis.index()]);
        view
    }
}

impl<T: Element> Array<T> {
    /// Makes an array from this rank's elements: those that it owns, or its whole part with margins. `part` may have any
    /// strides. It is no call of the group.
    ///
    /// ```
    /// # use chunkcomm_cluster::{Cluster, ClusterConfig};
    /// # use chunkcomm_group::Group;
    /// use chunkcomm_array::{Array, Layout};
    /// use ndarray::{Axis, array};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let cluster = Cluster::join(ClusterConfig::new().nodes(1)).await?;
    /// # let group = Group::world(&cluster).await?;
    /// let layout = Layout::over("(block,*) margin 1", &[2, 3], group.size())?;
    /// let mut array = Array::from_ndarray(&group, &layout, array![[1, 2, 3], [4, 5, 6]].view())?;
    /// assert_eq!(array.local().interior().sum_axis(Axis(0)), array![5, 7, 9].into_dyn());
    /// array.local_mut().view_mut().fill(1); // margins, too
    /// let view = array.local().view();
    /// assert_eq!(view.shape(), [4, 5]);
    /// assert_eq!(array.sum().await?, 6);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`ArrayError::Rank`] with this rank: `part` has neither shape, or as [`zeros`](Self::zeros).
    pub fn from_ndarray<D: Dimension>(
        group: &Group,
        layout: &Layout,
        part: ArrayView<'_, T, D>,
    ) -> Result<Array<T>, ArrayError> {
        let mut array = Array::of(group, layout.clone())?;
        let mut local = array.local_mut();
        let [owned, stored] = [local.interior_mut().shape().to_vec(), local.shape()];
        if part.shape() == owned {
            local.interior_mut().assign(&part.into_dyn());
        } else if part.shape() == stored {
            local.view_mut().assign(&part.into_dyn());
        } else {
            let found = part.shape();
            let why = format!("it gives the shape {found:?}, its part of {layout} has {owned:?}");
            return Err(ArrayError::refused(group.rank(), why));
        }
        Ok(array)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn views_have_each_element_where_the_layout_says() {
        for (text, shape, ranks) in [
            ("(block,*) margin 1", &[7, 3][..], 3),
            ("(cyclic(2),block) permuted 1,0", &[5, 9], 4),
            ("(block,cyclic,block) permuted 2,0,1", &[4, 5, 6], 6),
            ("(block,block) margin 2x1 permuted 1,0", &[4, 5], 4),
            ("(blocks(3,0,2)) margin 1", &[5], 3),
            ("(*,block)", &[0, 4], 2),
        ] {
            let layout = Layout::over(text, shape, ranks).expect("a layout");
            for rank in 0..ranks {
                let mut elements: Vec<usize> = (0..layout.local_len(rank)).collect();
                let local = Local { layout: &layout, rank, elements: &elements[..] };
                let strides = local.strides();
                for (index, element) in local.view().indexed_iter() {
                    let places = strides.iter().enumerate();
                    let place: usize = places.map(|(dim, stride)| index[dim] * stride).sum();
                    assert_eq!(*element, place, "{text}, rank {rank}");
                }
                let owned = local.interior().into_iter().copied().collect::<Vec<_>>();
                let is_owned = |at: &usize| {
                    let index = layout.global(rank, *at);
                    index.is_some_and(|it| layout.local(rank, &it) == Some(*at))
                };
                let mut expected: Vec<_> = (0..layout.local_len(rank)).filter(is_owned).collect();
                let mut found = owned.clone();
                found.sort_unstable();
                assert_eq!(found, expected, "{text}, rank {rank}");
                let mut local = Local { layout: &layout, rank, elements: &mut elements[..] };
                local.interior_mut().fill(usize::MAX);
                expected.retain(|at| local[*at] != usize::MAX);
                assert!(expected.is_empty(), "{text}, rank {rank}");
                let written = local.iter().filter(|it| **it == usize::MAX).count();
                assert_eq!(written, owned.len(), "{text}, rank {rank}");
            }
        }
    }
}
