//! Memory that one writer fills from its start while others already read the filled part.
//!
//! The only fenced module of this crate. A sender computes into the memory while the link sends from
//! it; a receiver reads from it while the link lands bytes in it. Neither copies.
//!
//! ```text
//! 0                 published                               len
//! |= Reader, View: & =|===== Writer: &mut, one at a time =====|
//! ```
//!
//! # Soundness
//!
//! 1. *Validity.* The memory is that of a `Vec<T>`: allocated for `T`, aligned for `T`, all `len`
//!    elements initialised. `T: Pod` has no padding, no invalid bit pattern, no interior
//!    mutability and nothing to drop, so a `&[T]`, a `&[u8]` and a `&mut [u8]` over any part of
//!    it are valid whatever bytes were written, elements that were written half included.
//! 2. *No aliasing.* [`Memory`] keeps a raw pointer and never makes a reference to the whole. The
//!    only mutable references come from [`Writer`], lie at or behind `published`, and borrow the
//!    `Writer` mutably. There is one `Writer` (it cannot be cloned, and only [`share`], which
//!    consumes the `Vec`, makes it). All shared references end at or before `published`. So a
//!    mutable and a shared reference never cover the same byte at the same time: `published` only
//!    grows, and [`Writer::publish`] borrows the `Writer` mutably, so that no mutable reference
//!    made before is alive when the bytes below it become readable.
//! 3. *No data race.* `published` is stored with `Release` after the bytes below it were written
//!    by the thread that owns the `Writer` (moving the `Writer` to another thread synchronises by
//!    itself), and loaded with `Acquire` before a shared reference is made. Bytes below it are
//!    never written again while the memory is shared.
//! 4. *Lifetime.* Every reference borrows a holder, or is a `Bytes` that owns one, and a holder
//!    has a count in the `Arc`. The `Vec` is made again only by `Arc::try_unwrap`, that is when
//!    no holder is left, or by dropping the last one.
//! 5. *Threads.* `T: Pod` can be made from bytes by safe code on any thread and has no interior
//!    mutability, so nothing ties a value or a reference to its thread; with 2 and 3 [`Memory`]
//!    may be sent to and shared with other threads.

#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytemuck::Pod;
use bytes::Bytes;
use tokio::sync::Notify;

struct Memory<T: Pod> {
    base: NonNull<T>,
    len: usize,
    capacity: usize,
    /// Number of bytes from the start that are never written again.
    published: AtomicUsize,
    owns: PhantomData<T>,
}

// SAFETY: points 2, 3 and 5 of the module's argument.
unsafe impl<T: Pod> Send for Memory<T> {}
// SAFETY: the same.
unsafe impl<T: Pod> Sync for Memory<T> {}

impl<T: Pod> Memory<T> {
    fn new(buffer: Vec<T>) -> Self {
        const { assert!(size_of::<T>() > 0, "the elements of a delta have a size") };
        let mut buffer = ManuallyDrop::new(buffer);
        Self {
            base: NonNull::new(buffer.as_mut_ptr()).expect("a vector's pointer is never null"),
            len: buffer.len(),
            capacity: buffer.capacity(),
            published: AtomicUsize::new(0),
            owns: PhantomData,
        }
    }

    fn len_bytes(&self) -> usize {
        // A `Vec` holds at most `isize::MAX` bytes, so this cannot overflow.
        self.len * size_of::<T>()
    }

    fn published(&self) -> usize {
        self.published.load(Ordering::Acquire)
    }

    /// Returns the published bytes of `range`.
    ///
    /// # Panics
    /// When the range is not within the published bytes.
    fn bytes(&self, range: Range<usize>) -> &[u8] {
        assert!(range.start <= range.end && range.end <= self.published());
        // SAFETY: within the allocation since `published <= len_bytes`; initialised (1); no
        // mutable reference covers published bytes (2); written before the `Acquire` load (3).
        unsafe {
            slice::from_raw_parts(self.base.as_ptr().cast::<u8>().add(range.start), range.len())
        }
    }

    /// Returns the whole elements among the published bytes.
    fn elements(&self) -> &[T] {
        let whole = self.published() / size_of::<T>();
        // SAFETY: as in `bytes`; the base is aligned for `T` (1).
        unsafe { slice::from_raw_parts(self.base.as_ptr(), whole) }
    }

    /// Returns the vector.
    fn into_vec(self) -> Vec<T> {
        let this = ManuallyDrop::new(self);
        // SAFETY: the parts are those of the vector that `new` took, and `ManuallyDrop` keeps
        // `drop` from making it a second time. `self` by value: no holder is left (4).
        unsafe { Vec::from_raw_parts(this.base.as_ptr(), this.len, this.capacity) }
    }
}

impl<T: Pod> Drop for Memory<T> {
    fn drop(&mut self) {
        // SAFETY: as in `into_vec`, which never drops; this is the last holder (4).
        drop(unsafe { Vec::from_raw_parts(self.base.as_ptr(), self.len, self.capacity) });
    }
}

/// A share in the memory that notifies when it is dropped.
struct Holder<T: Pod> {
    memory: Option<Arc<Memory<T>>>,
    released: Arc<Notify>,
}

impl<T: Pod> Holder<T> {
    fn memory(&self) -> &Arc<Memory<T>> {
        self.memory.as_ref().expect("a holder has its memory until it is dropped")
    }
}

impl<T: Pod> Clone for Holder<T> {
    fn clone(&self) -> Self {
        Self { memory: self.memory.clone(), released: self.released.clone() }
    }
}

impl<T: Pod> Drop for Holder<T> {
    fn drop(&mut self) {
        // The share is dropped before the notice, so that a woken task finds the count already lower.
        drop(self.memory.take());
        self.released.notify_one();
    }
}

/// Makes `buffer` writable by one and readable by many, with nothing published yet.
pub(crate) fn share<T: Pod>(buffer: Vec<T>) -> (Writer<T>, Reader<T>) {
    let holder =
        Holder { memory: Some(Arc::new(Memory::new(buffer))), released: Arc::new(Notify::new()) };
    (Writer { holder: holder.clone() }, Reader { holder })
}

/// The only writer, from the start to the end.
pub(crate) struct Writer<T: Pod> {
    holder: Holder<T>,
}

impl<T: Pod> Writer<T> {
    /// Returns the length in bytes.
    pub(crate) fn len_bytes(&self) -> usize {
        self.holder.memory().len_bytes()
    }

    /// Returns the number of bytes that were published.
    pub(crate) fn published(&self) -> usize {
        self.holder.memory().published()
    }

    /// Returns all bytes that are not published.
    pub(crate) fn rest_mut(&mut self) -> &mut [u8] {
        let memory = self.holder.memory();
        let start = memory.published();
        // SAFETY: within the allocation and initialised (1); behind `published` and borrowed from
        // the only writer (2).
        unsafe {
            let first = memory.base.as_ptr().cast::<u8>().add(start);
            slice::from_raw_parts_mut(first, memory.len_bytes() - start)
        }
    }

    /// Returns the elements of `range`, none of which is published.
    ///
    /// # Panics
    /// When the range reaches into the published bytes or beyond the end.
    pub(crate) fn elements_mut(&mut self, range: Range<usize>) -> &mut [T] {
        let memory = self.holder.memory();
        assert!(range.start <= range.end && range.end <= memory.len);
        assert!(range.start * size_of::<T>() >= memory.published());
        // SAFETY: as in `rest_mut`; the base is aligned for `T` (1).
        unsafe { slice::from_raw_parts_mut(memory.base.as_ptr().add(range.start), range.len()) }
    }

    /// Makes the bytes below `end_bytes` readable for ever.
    ///
    /// # Panics
    /// When `end_bytes` is below the published bytes or beyond the end.
    pub(crate) fn publish(&mut self, end_bytes: usize) {
        let memory = self.holder.memory();
        assert!(memory.published() <= end_bytes && end_bytes <= memory.len_bytes());
        memory.published.store(end_bytes, Ordering::Release);
    }
}

/// One of the readers of the published bytes.
pub(crate) struct Reader<T: Pod> {
    holder: Holder<T>,
}

impl<T: Pod> Clone for Reader<T> {
    fn clone(&self) -> Self {
        Self { holder: self.holder.clone() }
    }
}

impl<T: Pod> Reader<T> {
    /// Returns the length in elements.
    pub(crate) fn len(&self) -> usize {
        self.holder.memory().len
    }

    /// Returns the length in bytes.
    pub(crate) fn len_bytes(&self) -> usize {
        self.holder.memory().len_bytes()
    }

    /// Returns the number of bytes that were published.
    pub(crate) fn published(&self) -> usize {
        self.holder.memory().published()
    }

    /// Whether all bytes were published.
    pub(crate) fn is_whole(&self) -> bool {
        self.published() == self.len_bytes()
    }

    /// Returns the whole elements among the published bytes.
    pub(crate) fn elements(&self) -> &[T] {
        self.holder.memory().elements()
    }

    /// Returns the published bytes of `range` as a handle that shares the memory.
    ///
    /// # Panics
    /// When the range is not within the published bytes.
    pub(crate) fn bytes(&self, range: Range<usize>) -> Bytes {
        assert!(range.start <= range.end && range.end <= self.published());
        Bytes::from_owner(View { holder: self.holder.clone(), range })
    }

    /// Waits until this is the only holder and returns the buffer. Cancelled, it releases the memory.
    pub(crate) async fn into_buffer(mut self) -> Vec<T> {
        loop {
            let memory = self.holder.memory.take().expect("put back each time round");
            match Arc::try_unwrap(memory) {
                Ok(memory) => return memory.into_vec(),
                Err(memory) => self.holder.memory = Some(memory),
            }
            // A holder dropped between the look and the wait leaves its notification behind.
            self.holder.released.notified().await;
        }
    }
}

/// Owner behind a `Bytes`: a share in the memory and a range of it.
struct View<T: Pod> {
    holder: Holder<T>,
    range: Range<usize>,
}

impl<T: Pod> AsRef<[u8]> for View<T> {
    fn as_ref(&self) -> &[u8] {
        self.holder.memory().bytes(self.range.clone())
    }
}

#[cfg(test)]
mod tests;
