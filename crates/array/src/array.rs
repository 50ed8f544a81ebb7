//! Arrays of a group: layout and storage in one value, whose methods move it.

mod file;
mod local;

use std::fmt;
use std::sync::Arc;

use chunkcomm::host::memory;
use chunkcomm::with_causes;
use chunkcomm_group::{Element, Group, Number, Op};

use crate::ends::error::{ArrayError, refused};
use crate::ends::exchange::{Kept, Memory, Opening, other_size};
use crate::layout::Layout;
use crate::layout::error::LayoutError;
use crate::layout::parts::WrapFault;
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
/// Its methods that are `async` are calls of the group (collective): all ranks make them in the same order, one at a time,
/// with the same arguments. Several arrays may be of one group; they keep it open.
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
/// When the future of a method is dropped, the elements that this rank owns are as they were. Ranks of a `to` or `gather`
/// that exchange elements with it get [`ArrayError::Peer`] with this one. A `halo`, `halo_periodic` or `copy_to` stays under way, and the other
/// ranks wait: call it again to go on, before any other.
///
/// A future that was never polled is no call.
///
/// # Errors
///
/// After an [`ArrayError::Peer`] in `halo`, or in `copy_to` into a layout, each further one gives it again: make another
/// array, on a group [without the dead](Group::shrink).
pub struct Array<T: Element> {
    group: Group,
    layout: Layout,
    /// Shared with a thread that writes it.
    storage: Arc<Vec<T>>,
    /// Brings the margins up to date.
    halo: Option<Kept>,
    /// Bring those at the edges, one after the other.
    wraps: Vec<Kept>,
    /// Number of those that have, in a call that is under way.
    wrapped: Option<usize>,
    /// Copies to arrays of this layout.
    copy: Option<(Layout, Kept)>,
}

impl<T: Element> Array<T> {
    /// Makes an array of zeros of this shape. It is no call.
    ///
    /// # Errors
    ///
    /// [`ArrayError::Layout`]: there is no such layout of that shape. [`ArrayError::Rank`] with this rank: the layout has another
    /// number of ranks than the group, or a region, or there is no memory.
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
    /// is no call.
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

    /// Makes an array of this rank's storage. It is no call.
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
        check(group, layout)?;
        let (found, expected) = (storage.len(), layout.local_len(rank));
        if found != expected {
            let why = format!("it gives {found} elements, its part of {layout} has {expected}");
            return Err(ArrayError::refused(rank, why));
        }
        Ok(Array::made(group, layout.clone(), storage))
    }

    fn of(group: &Group, layout: Layout) -> Result<Array<T>, ArrayError> {
        let rank = group.rank();
        check(group, &layout)?;
        let storage = zeroed(&layout, rank).map_err(|why| ArrayError::refused(rank, why))?;
        Ok(Array::made(group, layout, storage))
    }

    fn made(group: &Group, layout: Layout, storage: Vec<T>) -> Array<T> {
        let (group, storage) = (group.share(), Arc::new(storage));
        Array { group, layout, storage, halo: None, wraps: Vec::new(), wrapped: None, copy: None }
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

    fn storage_mut(&mut self) -> &mut Vec<T> {
        Arc::make_mut(&mut self.storage)
    }

    /// Returns the array in another layout, on the same ranks.
    ///
    /// Margins of the other layout are filled, too. Costs an agreement of all ranks; [`copy_to`](Self::copy_to) into the
    /// returned array costs none.
    ///
    /// # Errors
    ///
    /// [`ArrayError::Rank`] at all ranks: one has no such layout, or no memory for its part.
    /// [`ArrayError::Mismatch`], [`ArrayError::Differs`]: the ranks name different layouts. [`ArrayError::Peer`],
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
        copy.run(Memory::Two(&self.storage, Arc::make_mut(&mut to.storage).as_mut_slice())).await
    }

    /// Brings the margins up to date: each rank gets the elements there from their owners.
    ///
    /// A distributed dimension's margin below `width`, or none, is widened: storage and layout change, and margins begin
    /// with zeros again. Corners are filled as well; margins at the edges of the array stay as they are. The neighbours of
    /// an element lie at its place plus and minus the [strides](Local::strides).
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
        let mut fault = None;
        if let Some(layout) = self.layout.widened(width).map_err(ArrayError::Layout)? {
            match self.stored_as(&layout) {
                Ok(storage) => (self.layout, self.storage) = (layout, Arc::new(storage)),
                Err(why) => fault = Some(why),
            }
            (self.halo, self.wraps, self.copy) = (None, Vec::new(), None);
        }
        let halo = self.halo.get_or_insert_with(|| {
            let layouts = (self.layout.clone(), self.layout.clone());
            Kept::Opening(Opening::new::<T>(&self.group, layouts, fault, true))
        });
        let done = halo.run(Memory::One(Arc::make_mut(&mut self.storage).as_mut_slice())).await;
        if matches!(done, Err(ArrayError::Rank { .. })) {
            // All ranks have heard it, and may try again.
            self.halo = None;
        }
        done
    }

    /// Returns the elements in this layout, which has wider margins, or why there is no memory.
    fn stored_as(&self, layout: &Layout) -> Result<Vec<T>, String> {
        let rank = self.group.rank();
        let mut storage = zeroed(layout, rank)?;
        let (narrow, wide) = (self.layout.elements(rank), layout.elements(rank));
        narrow.zip(wide).for_each(|(from, to)| storage[to] = self.storage[from]);
        Ok(storage)
    }

    /// Brings the margins up to date as [`halo`](Self::halo) does; those at the edges of the array get the elements at
    /// the opposite edge, as if it went on there (NumPy's `roll`).
    ///
    /// # Errors
    ///
    /// As `halo`. [`ArrayError::Rank`] at all, each naming itself: the part at an edge is narrower than the margin.
    ///
    /// # Cancel safety
    ///
    /// See [the type](Self#cancel-safety).
    pub async fn halo_periodic(&mut self, width: usize) -> Result<(), ArrayError> {
        if self.wrapped.is_none() {
            self.halo(width).await?;
        }
        let wraps = self.layout.wraps().map_err(|fault| match fault {
            WrapFault::Layout(error) => ArrayError::Layout(error),
            WrapFault::Narrow { dim } => {
                let layout = stated(&self.layout);
                let why = format!("a margin of {layout} is wider than the part in dimension {dim}");
                ArrayError::refused(self.group.rank(), why)
            }
        })?;
        let first = *self.wrapped.get_or_insert(0);
        for (number, layouts) in wraps.into_iter().enumerate().skip(first) {
            self.wrapped = Some(number);
            if number == self.wraps.len() {
                let opening = Opening::new::<T>(&self.group, layouts, None, true);
                self.wraps.push(Kept::Opening(opening));
            }
            self.wraps[number]
                .run(Memory::One(Arc::make_mut(&mut self.storage).as_mut_slice()))
                .await?;
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
        let made = if root < size {
            self.layout.at_one(root, size).map_err(|error| with_causes(&error))
        } else {
            Err(format!("there is no rank {root} of {size}"))
        };
        let made = made.and_then(|layout| Ok((zeroed(&layout, rank)?, layout)));
        let (whole, ..) = self.copied(made).await?;
        Ok((rank == root).then_some(whole))
    }

    /// Returns the array of what `f` makes of each element, margins included. It is no call.
    #[must_use]
    pub fn map<U: Element>(&self, f: impl FnMut(&T) -> U) -> Array<U> {
        Array::made(&self.group, self.layout.clone(), self.storage.iter().map(f).collect())
    }

    /// Changes each element, margins included. It is no call.
    pub fn map_inplace(&mut self, f: impl FnMut(&mut T)) {
        self.storage_mut().iter_mut().for_each(f);
    }

    /// Returns the array of what `f` makes of the elements of both, margins included. It is no call.
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
        let mut ours: Vec<T> = Vec::new();
        if self.layout.is_first_replica(rank) {
            let runs = self.layout.owned_runs(rank);
            ours = runs.filter_map(|run| op.fold(&self.storage[run])).collect();
        }
        let ours: Vec<T> = op.fold(&ours).into_iter().collect();
        let all = group.all_gather(ours).await.map_err(|error| ArrayError::Group(error.cause))?;
        Ok(op.fold(&all.1.data))
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

impl<T: Element> Drop for Array<T> {
    fn drop(&mut self) {
        if let Some(storage) = Arc::get_mut(&mut self.storage) {
            memory::free_vec(std::mem::take(storage));
        }
    }
}

impl<T: Element> fmt::Debug for Array<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Array")
            .field("layout", &format_args!("{}", self.layout))
            .field("shape", &self.shape())
            .field("rank", &self.group.rank())
            .finish_non_exhaustive()
    }
}

/// Shows the layout, and this rank's part: at most six rows of six elements.
impl<T: Element + fmt::Display> fmt::Display for Array<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 6;
        let (rank, dims) = (self.group.rank(), self.shape().len());
        write!(f, "{}, rank {rank}:", stated(&self.layout))?;
        for dim in 0..dims {
            let mut owned = self.layout.indices(rank, dim).into_iter().flatten();
            let first = owned.next();
            let last = owned.last().or(first);
            match (first, last) {
                (Some(first), Some(last)) => write!(f, " {first}..{}", last + 1)?,
                _ => f.write_str(" nothing")?,
            }
        }
        let mut runs = self.layout.owned_runs(rank).flat_map(|run| {
            let fastest = self.layout.memory().last().copied();
            let length = fastest.map_or(1, |dim| self.layout.local_shape(rank)[dim]).max(1);
            run.clone().step_by(length).map(move |at| at..run.end.min(at + length))
        });
        for run in runs.by_ref().take(SHOWN) {
            let shown = &self.storage[run.clone()];
            f.write_str("\n")?;
            for element in shown.iter().take(SHOWN) {
                write!(f, " {element}")?;
            }
            if shown.len() > SHOWN {
                f.write_str(" ..")?;
            }
        }
        if runs.next().is_some() { f.write_str("\n ..") } else { Ok(()) }
    }
}

fn stated(layout: &Layout) -> String {
    let extents: Vec<String> = layout.global_shape().iter().map(ToString::to_string).collect();
    format!("{layout} of {}", extents.join("x"))
}

/// Checks that the layout is one of the group's ranks, and of whole arrays.
fn check(group: &Group, layout: &Layout) -> Result<(), ArrayError> {
    let has_region = layout.shape() != layout.global_shape();
    let region = || has_region.then(|| format!("the layout {layout} is one of a part of an array"));
    let fault = other_size(layout, group).or_else(region);
    fault.map_or(Ok(()), |why| Err(ArrayError::Rank { rank: group.rank(), loss: refused(why) }))
}

/// Returns the storage of a rank, or why there is none.
fn zeroed<T: Element>(layout: &Layout, rank: usize) -> Result<Vec<T>, String> {
    let elements = layout.local_len(rank);
    bytemuck::try_zeroed_vec(elements).map_err(|()| {
        let bytes = elements.saturating_mul(size_of::<T>());
        format!("there is no memory for {bytes} bytes, its part of {layout}")
    })
}
