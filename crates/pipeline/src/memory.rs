//! Memory that one writer fills from its start while others already read what is filled.
//!
//! The one fenced module of this crate: a sender computes into it while the link sends from it, a
//! receiver reads from it while the link lands bytes in it, and neither copies.
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
    /// Bytes from the start that are never written again.
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

    /// The published bytes of `range`.
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

    /// The whole elements among the published bytes.
    fn elements(&self) -> &[T] {
        let whole = self.published() / size_of::<T>();
        // SAFETY: as in `bytes`; the base is aligned for `T` (1).
        unsafe { slice::from_raw_parts(self.base.as_ptr(), whole) }
    }

    /// Gives the vector back.
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

/// A share in the memory that says when it is let go.
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
        // First the share, then the word: who is woken finds the count already lower.
        drop(self.memory.take());
        self.released.notify_one();
    }
}

/// Makes the elements of `buffer` writable by one and readable by many, nothing published yet.
pub(crate) fn share<T: Pod>(buffer: Vec<T>) -> (Writer<T>, Reader<T>) {
    let holder =
        Holder { memory: Some(Arc::new(Memory::new(buffer))), released: Arc::new(Notify::new()) };
    (Writer { holder: holder.clone() }, Reader { holder })
}

/// The only one who writes, from the start to the end.
pub(crate) struct Writer<T: Pod> {
    holder: Holder<T>,
}

impl<T: Pod> Writer<T> {
    /// Length in bytes.
    pub(crate) fn len_bytes(&self) -> usize {
        self.holder.memory().len_bytes()
    }

    /// Bytes that were published.
    pub(crate) fn published(&self) -> usize {
        self.holder.memory().published()
    }

    /// All bytes that are not published.
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

    /// The elements of `range`, none of them published.
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

    /// Makes the bytes below `end_bytes` readable, for ever.
    ///
    /// # Panics
    /// When `end_bytes` is below what was published, or beyond the end.
    pub(crate) fn publish(&mut self, end_bytes: usize) {
        let memory = self.holder.memory();
        assert!(memory.published() <= end_bytes && end_bytes <= memory.len_bytes());
        memory.published.store(end_bytes, Ordering::Release);
    }
}

/// One of those who read what is published.
pub(crate) struct Reader<T: Pod> {
    holder: Holder<T>,
}

impl<T: Pod> Clone for Reader<T> {
    fn clone(&self) -> Self {
        Self { holder: self.holder.clone() }
    }
}

impl<T: Pod> Reader<T> {
    /// Length in elements.
    pub(crate) fn len(&self) -> usize {
        self.holder.memory().len
    }

    /// Length in bytes.
    pub(crate) fn len_bytes(&self) -> usize {
        self.holder.memory().len_bytes()
    }

    /// Bytes that were published.
    pub(crate) fn published(&self) -> usize {
        self.holder.memory().published()
    }

    /// Whether all bytes were published.
    pub(crate) fn is_whole(&self) -> bool {
        self.published() == self.len_bytes()
    }

    /// The whole elements among the published bytes.
    pub(crate) fn elements(&self) -> &[T] {
        self.holder.memory().elements()
    }

    /// The published bytes of `range` as a handle that shares the memory.
    ///
    /// # Panics
    /// When the range is not within the published bytes.
    pub(crate) fn bytes(&self, range: Range<usize>) -> Bytes {
        assert!(range.start <= range.end && range.end <= self.published());
        Bytes::from_owner(View { holder: self.holder.clone(), range })
    }

    /// The buffer, once nobody else holds the memory. Cancelled, the memory is let go.
    pub(crate) async fn into_buffer(mut self) -> Vec<T> {
        loop {
            let memory = self.holder.memory.take().expect("put back each time round");
            match Arc::try_unwrap(memory) {
                Ok(memory) => return memory.into_vec(),
                Err(memory) => self.holder.memory = Some(memory),
            }
            // A holder that is dropped between the look and the wait leaves its word behind.
            self.holder.released.notified().await;
        }
    }
}

/// What a `Bytes` owns: a share in the memory and its part of it.
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
mod tests {
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn fill<T: Pod + From<u16>>(writer: &mut Writer<T>, range: Range<usize>) {
        for (index, element) in writer.elements_mut(range.clone()).iter_mut().enumerate() {
            *element = T::from((range.start + index) as u16);
        }
        writer.publish(range.end * size_of::<T>());
    }

    #[test]
    fn readers_see_what_is_published_and_no_more() {
        let (mut writer, reader) = share(vec![0_u32; 10]);
        assert_eq!((reader.len(), reader.len_bytes(), reader.published()), (10, 40, 0));
        writer.elements_mut(0..4).copy_from_slice(&[1, 2, 3, 4]);
        assert_eq!(reader.elements(), [0_u32; 0]);
        writer.publish(16);
        assert_eq!(reader.elements(), [1, 2, 3, 4]);
        assert_eq!(writer.rest_mut().len(), 24);
        assert_eq!(&reader.bytes(4..6)[..], &2_u32.to_ne_bytes()[..2]);
        assert!(!reader.is_whole());
    }

    #[test]
    fn half_an_element_is_not_shown() {
        let (mut writer, reader) = share(vec![0_u32; 2]);
        writer.rest_mut()[..6].copy_from_slice(&[1, 1, 1, 1, 2, 2]);
        writer.publish(6);
        assert_eq!(reader.elements(), [0x0101_0101]);
        assert_eq!(reader.bytes(4..6), [2, 2][..]);
        assert_eq!(writer.rest_mut().len(), 2);
    }

    #[test]
    fn bytes_outlive_writer_and_reader() {
        let (mut writer, reader) = share(vec![0_u64; 8]);
        fill_u64(&mut writer);
        let bytes = reader.bytes(8..24);
        drop((writer, reader));
        assert_eq!(bytes[..8], 1_u64.to_ne_bytes());
        assert_eq!(bytes.slice(8..), 2_u64.to_ne_bytes()[..]);
    }

    fn fill_u64(writer: &mut Writer<u64>) {
        fill(writer, 0..8);
    }

    #[test]
    #[should_panic(expected = "assertion")]
    fn published_elements_are_not_handed_out() {
        let (mut writer, _reader) = share(vec![0_u8; 4]);
        writer.publish(2);
        let _ = writer.elements_mut(1..3);
    }

    #[test]
    #[should_panic(expected = "assertion")]
    fn unpublished_bytes_are_not_shown() {
        let (_writer, reader) = share(vec![0_u8; 4]);
        let _ = reader.bytes(0..1);
    }

    #[test]
    #[should_panic(expected = "assertion")]
    fn what_is_published_stays_so() {
        let (mut writer, _reader) = share(vec![0_u8; 4]);
        writer.publish(2);
        writer.publish(1);
    }

    #[test]
    fn the_buffer_comes_back_when_nobody_holds_it() {
        let mut buffer = Vec::with_capacity(100);
        buffer.extend(0..20_u16);
        let address = buffer.as_ptr();
        let (mut writer, reader) = share(buffer);
        writer.publish(40);
        let bytes = reader.bytes(0..40);
        let mut back = Box::pin(reader.into_buffer());
        let mut poll = || back.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(poll().is_pending());
        drop(writer);
        assert!(poll().is_pending());
        let slice = bytes.slice(3..5);
        drop(bytes);
        assert!(poll().is_pending());
        drop(slice);
        let Poll::Ready(buffer) = poll() else { panic!("nobody holds the memory") };
        assert_eq!((buffer.as_ptr(), buffer.capacity()), (address, 100));
        assert!(buffer.into_iter().eq(0..20));
    }

    #[test]
    fn no_elements_are_whole_at_once() {
        let (mut writer, reader) = share(Vec::<f64>::new());
        assert!(reader.is_whole() && reader.elements().is_empty());
        assert!(writer.rest_mut().is_empty() && writer.elements_mut(0..0).is_empty());
        assert!(reader.bytes(0..0).is_empty());
    }

    #[test]
    fn threads_read_while_one_writes() {
        const LEN: usize = 40_000;
        let (mut writer, reader) = share(vec![0_u64; LEN]);
        let check = |reader: Reader<u64>| {
            let mut seen = 0;
            while seen < LEN {
                let elements = reader.elements();
                assert!(elements[seen..].iter().zip(seen..).all(|(e, i)| *e == i as u64 + 1));
                if elements.len() > seen {
                    let bytes = reader.bytes(seen * 8..elements.len() * 8);
                    assert_eq!(bytes[..8], (seen as u64 + 1).to_ne_bytes());
                }
                seen = elements.len();
                std::thread::yield_now();
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..2 {
                let reader = reader.clone();
                scope.spawn(move || check(reader));
            }
            scope.spawn(move || {
                let mut start = 0;
                while start < LEN {
                    let end = (start + 1 + start % 977).min(LEN);
                    let part = writer.elements_mut(start..end);
                    part.iter_mut().zip(start..).for_each(|(e, i)| *e = i as u64 + 1);
                    writer.publish(end * 8);
                    start = end;
                }
            });
        });
        assert!(reader.is_whole());
    }
}
