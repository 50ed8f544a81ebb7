//! A rank's part of an array.

use std::ops::{Deref, DerefMut};

use crate::layout::Layout;

/// This rank's part of an [`Array`](super::Array), as a slice in the order of its memory, with the indices of the whole
/// array.
///
/// ```no_run
/// # use chunkcomm_array::Array;
/// # fn example(array: &mut Array<f64>) {
/// let mut local = array.local_mut();
/// if let Some(place) = local.place(&[7, 3]) {
///     local[place] = 1.0; // this rank owns the element
/// }
/// # }
/// ```
#[derive(Debug)]
pub struct Local<'a, S> {
    pub(super) layout: &'a Layout,
    pub(super) rank: usize,
    pub(super) elements: S,
}

impl<S> Local<'_, S> {
    /// Returns the shape, margins included.
    #[must_use]
    pub fn shape(&self) -> Vec<usize> {
        self.layout.local_shape(self.rank)
    }

    /// Returns the distance, in elements, of neighbours along each dimension.
    #[must_use]
    pub fn strides(&self) -> Vec<usize> {
        self.layout.strides(self.rank)
    }

    /// Returns the index, in the whole array, of the element at a place; `None` if it is in a margin outside of the
    /// array, or beyond the end.
    #[must_use]
    pub fn index(&self, place: usize) -> Option<Vec<usize>> {
        self.layout.global(self.rank, place)
    }

    /// Returns the place of an element of the whole array, if this rank owns it.
    #[must_use]
    pub fn place(&self, index: &[usize]) -> Option<usize> {
        self.layout.local(self.rank, index)
    }
}

impl<'a, T> Local<'a, &'a [T]> {
    /// Returns the elements; they may be used longer than this value, as long as the array is borrowed.
    #[must_use]
    pub fn elements(&self) -> &'a [T] {
        self.elements
    }
}

impl<T, S: Deref<Target = [T]>> Deref for Local<'_, S> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.elements
    }
}

impl<T, S: DerefMut<Target = [T]>> DerefMut for Local<'_, S> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.elements
    }
}
