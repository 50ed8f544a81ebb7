//! Arrays of a group: layout and storage in one value.
//!
//! ```text
//!   Array       made, element by element     this file
//!   Local       a rank's part                local; of ndarray: views
//!   to, halo    other layouts, margins       moving
//!   send        to another group             sender, receiver, slab
//!   sum, max    one value of all elements    reducing
//!   .npy        files                        file
//! ```

mod file;
mod local;
mod moving;
pub(crate) mod receiver;
mod reducing;
pub(crate) mod sender;
mod shown;
pub(crate) mod slab;
#[cfg(feature = "ndarray")]
mod views;

use std::sync::Arc;

use chunkcomm::host::memory;
use chunkcomm_group::{Element, Group};

use crate::ends::error::ArrayError;
use crate::ends::exchange::{Kept, other_size};
use crate::layout::Layout;
use crate::layout::error::LayoutError;
pub use local::Local;

/// Names a layout of an array: HPF's notation, whose grid may be left out ([`Layout::over`]), or a [`Layout`].
pub trait IntoLayout {
    /// Returns the layout of an array of this shape over these ranks.
    ///
    /// # Errors
    ///
    /// There is no such layout.
    fn into_layout(self, shape: &[usize], ranks: usize) -> Result<Layout, LayoutError>;
}

impl IntoLayout for &str {
    fn into_layout(self, shape: &[usize], ranks: usize) -> Result<Layout, LayoutError> {
        Layout::over(self, shape, ranks)
    }
}

impl IntoLayout for &Layout {
    fn into_layout(self, _: &[usize], _: usize) -> Result<Layout, LayoutError> {
        Ok(self.clone())
    }
}

/// An array that is distributed over the ranks of a group, as this rank has it.
///
/// Its methods that are `async` are calls of the group (collective), or of a pair of groups: all ranks make them in the
/// same order, one at a time, with the same arguments. Several arrays may be of one group; they keep it open.
///
/// Of a layout with a [region](Layout::region), `to`, `copy_to` and transfers to another group move the region alone; files,
/// reductions, `gather` and margins take no such array.
///
/// ```no_run
/// use chunkcomm_array::{Array, ArrayError};
/// use chunkcomm_group::Group;
///
/// # async fn example(group: &mut Group) -> Result<(), ArrayError> {
/// let mut rows = Array::<f64>::zeros(group, "(block,*)", [4096, 4096])?;
/// for (row, elements) in rows.slowest_mut() {
///     elements.fill(row as f64); // the row's number in the whole array
/// }
/// let columns = rows.to("(*,block)").await?; // on the same ranks
/// let largest = columns.max().await?;
/// assert_eq!(largest, Some(4095.0)); // at every rank
/// # Ok(())
/// # }
/// ```
///
/// # Cancel safety
///
/// When the future of a call of the group is dropped, the elements that this rank owns of `self` are as they were. Ranks of
/// a `to` or `gather` that exchange elements with it get [`ArrayError::Peer`] with this one. A `halo`, `halo_periodic` or
/// `copy_to` stays under way, and the other ranks wait: make the same call again to go on, with the same arrays and elements,
/// before any other.
///
/// A future that was never polled has made no call.
///
/// # Errors
///
/// After an [`ArrayError::Peer`] in `halo`, or in `copy_to` into a layout, each further such call gives it again: make
/// another array, on a group [without the dead](Group::shrink).
pub struct Array<T: Element> {
    pub(crate) group: Group,
    layout: Layout,
    /// Shared with a thread that writes it, and with a transfer that sends it.
    storage: Arc<Vec<T>>,
    /// Brings the margins up to date.
    halo: Option<Kept>,
    /// The layout with wider margins that its ranks agree on, and a storage for it.
    wide: Option<(Layout, Vec<T>)>,
    /// Bring those at the edges, one after the other.
    wraps: Vec<Kept>,
    /// Number of those that have, in a call that is under way.
    wrapped: Option<usize>,
    /// Copies to arrays of this layout.
    copy: Option<(Layout, Kept)>,
}

impl<T: Element> Array<T> {
    /// Makes an array of zeros of this shape. It is no call of the group.
    ///
    /// # Errors
    ///
    /// [`ArrayError::Layout`]: there is no such layout of that shape. [`ArrayError::Rank`] with this rank: the layout has another
    /// number of ranks than the group, or there is no memory.
    pub fn zeros(
        group: &Group,
        layout: impl IntoLayout,
        shape: impl AsRef<[usize]>,
    ) -> Result<Array<T>, ArrayError> {
        let shape = shape.as_ref();
        let layout = layout.into_layout(shape, group.size()).map_err(ArrayError::Layout)?;
        if layout.global_shape() != shape {
            let why = format!("{} has not the shape {shape:?}", stated(&layout));
            return Err(ArrayError::refused(group.rank(), why));
        }
        Array::of(group, layout)
    }

    /// Makes an array of the values that `element` gives for the indices of this rank's elements; its margins are zero. It
    /// is no call of the group.
    ///
    /// # Errors
    ///
    /// As [`zeros`](Self::zeros).
    pub fn from_fn(
        group: &Group,
        layout: &Layout,
        mut element: impl FnMut(&[usize]) -> T,
    ) -> Result<Array<T>, ArrayError> {
        let mut array = Array::of(group, layout.clone())?;
        let (rank, shape) = (group.rank(), layout.local_shape(group.rank()));
        let indices: Vec<_> = (0..shape.len()).map(|dim| layout.indices(rank, dim)).collect();
        let (mut at, mut index) = (vec![0; shape.len()], vec![0; shape.len()]);
        for place in array.storage_mut() {
            let mut is_owned = true;
            for dim in 0..shape.len() {
                is_owned &= indices[dim][at[dim]].map(|it| index[dim] = it).is_some();
            }
            if is_owned {
                *place = element(&index);
            }
            for &dim in layout.memory().iter().rev() {
                at[dim] += 1;
                if at[dim] < shape[dim] {
                    break;
                }
                at[dim] = 0;
            }
        }
        Ok(array)
    }

    /// Makes an array of this rank's storage. It is no call of the group.
    ///
    /// # Errors
    ///
    /// As [`zeros`](Self::zeros); or the storage has another length than [`Layout::local_len`].
    pub fn from_local(
        group: &Group,
        layout: &Layout,
        storage: Vec<T>,
    ) -> Result<Array<T>, ArrayError> {
        let rank = group.rank();
        fits(group, layout)?;
        let (found, expected) = (storage.len(), layout.local_len(rank));
        if found != expected {
            let why = format!("it gives {found} elements, its part of {layout} has {expected}");
            return Err(ArrayError::refused(rank, why));
        }
        Ok(Array::made(group, layout.clone(), storage))
    }

    fn of(group: &Group, layout: Layout) -> Result<Array<T>, ArrayError> {
        let storage = stored(group, &layout);
        let storage = storage.map_err(|why| ArrayError::refused(group.rank(), why))?;
        Ok(Array::made(group, layout, storage))
    }

    fn made(group: &Group, layout: Layout, storage: Vec<T>) -> Array<T> {
        let (group, storage) = (group.share(), Arc::new(storage));
        Array {
            group,
            layout,
            storage,
            halo: None,
            wide: None,
            wraps: Vec::new(),
            wrapped: None,
            copy: None,
        }
    }

    /// Returns the layout.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Returns the shape of the whole array.
    #[must_use]
    pub fn shape(&self) -> Vec<usize> {
        self.layout.global_shape()
    }

    /// Returns this rank's part, margins included.
    #[must_use]
    pub fn local(&self) -> Local<'_, &[T]> {
        Local { layout: &self.layout, rank: self.group.rank(), elements: &self.storage }
    }

    /// Returns this rank's part, margins included, to write.
    pub fn local_mut(&mut self) -> Local<'_, &mut [T]> {
        let elements = Arc::make_mut(&mut self.storage);
        Local { layout: &self.layout, rank: self.group.rank(), elements }
    }

    /// Consumes the array: returns this rank's part.
    #[must_use]
    pub fn into_local(mut self) -> Vec<T> {
        std::mem::take(self.storage_mut())
    }

    /// Iterates over the indices that this rank owns of the dimension slowest in memory, each with its contiguous
    /// elements, margins of the other dimensions included.
    pub fn slowest_mut(&mut self) -> impl Iterator<Item = (usize, &mut [T])> {
        let indices = self.layout.indices(self.group.rank(), self.layout.memory()[0]);
        let storage = self.storage_mut();
        let length = (storage.len() / indices.len().max(1)).max(1);
        let rows = indices.into_iter().zip(storage.chunks_mut(length));
        rows.filter_map(|(index, elements)| Some((index?, elements)))
    }

    pub(crate) fn storage_mut(&mut self) -> &mut Vec<T> {
        Arc::make_mut(&mut self.storage)
    }

    /// Returns the array of what `f` makes of each element, margins included. It is no call of the group.
    #[must_use]
    pub fn map<U: Element>(&self, f: impl FnMut(&T) -> U) -> Array<U> {
        Array::made(&self.group, self.layout.clone(), self.storage.iter().map(f).collect())
    }

    /// Changes each element, margins included. It is no call of the group.
    pub fn map_inplace(&mut self, f: impl FnMut(&mut T)) {
        self.storage_mut().iter_mut().for_each(f);
    }

    /// Returns the array of what `f` makes of the elements of both, margins included. It is no call of the group.
    ///
    /// # Errors
    ///
    /// [`ArrayError::OtherGroup`]; [`ArrayError::Layouts`]: bring one into the layout of the other first.
    pub fn zip<U: Element, V: Element>(
        &self,
        other: &Array<U>,
        mut f: impl FnMut(&T, &U) -> V,
    ) -> Result<Array<V>, ArrayError> {
        if !self.group.is(&other.group) {
            return Err(ArrayError::OtherGroup);
        }
        if self.layout != other.layout {
            let dim = self.layout.first_difference(&other.layout);
            let (ours, theirs) = (stated(&self.layout), stated(&other.layout));
            return Err(ArrayError::Layouts { ours, theirs, dim });
        }
        let each = self.storage.iter().zip(other.storage.iter());
        let storage = each.map(|(one, other)| f(one, other)).collect();
        Ok(Array::made(&self.group, self.layout.clone(), storage))
    }
}

impl<T: Element> Drop for Array<T> {
    fn drop(&mut self) {
        if let Some(storage) = Arc::get_mut(&mut self.storage) {
            memory::free_vec(std::mem::take(storage));
        }
    }
}

fn stated(layout: &Layout) -> String {
    let extents: Vec<String> = layout.global_shape().iter().map(ToString::to_string).collect();
    format!("{layout} of {}", extents.join("x"))
}

/// Checks that the layout is one of the group's ranks.
fn fits(group: &Group, layout: &Layout) -> Result<(), ArrayError> {
    let fault = other_size(layout, group);
    fault.map_or(Ok(()), |why| Err(ArrayError::refused(group.rank(), why)))
}

/// Checks that the layout is one of whole arrays.
fn whole(group: &Group, layout: &Layout) -> Result<(), ArrayError> {
    if layout.shape() == layout.global_shape() {
        return Ok(());
    }
    let why = format!("the layout {layout} is one of a part of an array");
    Err(ArrayError::refused(group.rank(), why))
}

/// Returns the storage of this rank of a group, or why there is none.
fn stored<T: Element>(group: &Group, layout: &Layout) -> Result<Vec<T>, String> {
    other_size(layout, group).map_or_else(|| zeroed(layout, group.rank()), Err)
}

/// Returns the storage of a rank, or why there is none.
fn zeroed<T: Element>(layout: &Layout, rank: usize) -> Result<Vec<T>, String> {
    let elements = layout.local_len(rank);
    bytemuck::try_zeroed_vec(elements).map_err(|()| {
        let bytes = elements.saturating_mul(size_of::<T>());
        format!("there is no memory for {bytes} bytes, its part of {layout}")
    })
}
