//! The filling side of one run.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::mem;
use std::ops::Range;
use std::sync::Arc;

use bytemuck::Pod;
use tokio::sync::Notify;

use crate::error::AccessError;
use crate::fill::Fill;
use crate::pages::Pages;
use crate::settings::RecvEngine;
use crate::sys::page_bytes;

/// Puts elements into a tracked buffer that is being read.
pub struct Filler<'a, T> {
    engine: &'a Fill,
    pages: &'a Pages,
    len: usize,
    name: RecvEngine,
    stop: &'a Notify,
    /// Pages that are filled in part, each with its bytes and the number that has come.
    parts: BTreeMap<usize, (Vec<u8>, usize)>,
    /// Number of bytes that were put.
    put_bytes: usize,
    owns: PhantomData<fn(T)>,
}

impl<'a, T: Pod> Filler<'a, T> {
    pub(super) fn new(
        engine: &'a Fill,
        pages: &'a Pages,
        len: usize,
        name: RecvEngine,
        stop: &'a Notify,
    ) -> Self {
        let (parts, put_bytes) = (BTreeMap::new(), 0);
        Self { engine, pages, len, name, stop, parts, put_bytes, owns: PhantomData }
    }

    /// Puts `elements` at index `start`. They can be read as soon as their pages are whole.
    ///
    /// Ranges may come in any order and must be disjoint.
    ///
    /// # Errors
    /// [`AccessError::Ended`] when a page was given up before it came; nothing more may be put then.
    /// [`AccessError::System`] when the system refuses a call.
    ///
    /// # Panics
    /// When the elements are not within the buffer.
    pub fn put(&mut self, start: usize, elements: &[T]) -> Result<(), AccessError> {
        let end = start.checked_add(elements.len()).filter(|end| *end <= self.len);
        let end = end.expect("the elements are within the buffer") * size_of::<T>();
        let (mut offset, mut bytes) = (start * size_of::<T>(), bytemuck::cast_slice(elements));
        self.put_bytes += bytes.len();
        while !bytes.is_empty() {
            let page = offset / page_bytes();
            let whole =
                if offset.is_multiple_of(page_bytes()) { bytes.len() / page_bytes() } else { 0 };
            let count = if whole > 0 {
                let count = whole * page_bytes();
                self.open(page..page + whole, &bytes[..count])?;
                count
            } else {
                let count = ((page + 1) * page_bytes()).min(end) - offset;
                self.put_part(page, offset % page_bytes(), &bytes[..count])?;
                count
            };
            offset += count;
            bytes = &bytes[count..];
        }
        Ok(())
    }

    /// Returns the number of reads that had to wait in this run, so far.
    #[must_use]
    pub fn stalls(&self) -> u32 {
        self.pages.stalls()
    }

    /// Waits until nobody reads any more and no further elements are of use.
    ///
    /// # Cancel safety
    /// A stop is seen by one call. Nothing is lost when the future is dropped before.
    pub async fn stopped(&self) {
        self.stop.notified().await;
    }

    /// Whether every element was put.
    pub(super) fn is_whole(&self) -> bool {
        self.put_bytes == self.len * size_of::<T>()
    }

    fn put_part(&mut self, page: usize, at: usize, bytes: &[u8]) -> Result<(), AccessError> {
        let length = (self.len * size_of::<T>() - page * page_bytes()).min(page_bytes());
        let part = self.parts.entry(page).or_insert_with(|| (vec![0; page_bytes()], 0));
        part.0[at..at + bytes.len()].copy_from_slice(bytes);
        part.1 += bytes.len();
        if part.1 < length {
            return Ok(());
        }
        let (bytes, _) = self.parts.remove(&page).expect("it is there");
        self.open(page..page + 1, &bytes)
    }

    fn open(&self, pages: Range<usize>, bytes: &[u8]) -> Result<(), AccessError> {
        let claimed = self.pages.claim(pages.clone());
        if !claimed.is_empty() {
            let bytes = &bytes[..claimed.len() * page_bytes()];
            self.engine.fill(claimed.clone(), bytes).map_err(|error: io::Error| {
                self.pages.unclaim(claimed.clone());
                let (engine, source) = (self.name.to_string(), Arc::new(error));
                AccessError::System { engine, source }
            })?;
        }
        if claimed == pages { Ok(()) } else { Err(AccessError::Ended) }
    }
}

impl<T> fmt::Debug for Filler<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Filler")
            .field("len", &self.len)
            .field("put_bytes", &self.put_bytes)
            .finish_non_exhaustive()
    }
}

/// Tells that no further page comes, also when the filler panics.
pub(super) struct EndOnDrop<'a>(pub(super) &'a Pages);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Pages that are away: readable again when this is dropped, whatever ended the run.
pub(super) struct Armed<'a>(pub(super) &'a Fill);

impl Armed<'_> {
    /// Makes all pages readable, with the system's error.
    pub(super) fn disarm(self) -> io::Result<()> {
        let engine = self.0;
        mem::forget(self);
        engine.disarm()
    }
}

impl Drop for Armed<'_> {
    fn drop(&mut self) {
        // Another error is on its way.
        let _ = self.0.disarm();
    }
}

/// Ends the threads of a run, also when one of them cannot be started.
pub(super) struct Stopping<'a> {
    pub(super) pages: &'a Pages,
    pub(super) stop: &'a Notify,
}

impl Drop for Stopping<'_> {
    fn drop(&mut self) {
        self.stop.notify_one();
        self.pages.bell().end();
    }
}
