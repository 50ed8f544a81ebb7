//! The thread that hands on the finished increments of one run.

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use bytemuck::Pod;

use crate::contents::{Edges, hash};
use crate::runs::{Finished, Sent};
use crate::watch::{Parts, Watch};
use crate::window::Window;

/// Most bytes that are handed on together, but for an increment that is larger: 256 KiB.
///
/// A look finds several increments. One commit for all of them is one message; a commit each was two, of
/// which the second waited for the rest in turns of the runtime. More bytes are no faster on the link, and
/// leave later.
const TOGETHER_BYTES_MAX: usize = 256 * 1024;

/// Failure of a run; `Done` is the error of the receiver of what is finished.
pub(super) enum Failed<E> {
    System(io::Error),
    Rewritten(Range<usize>),
    Done(E),
}

impl<E> From<io::Error> for Failed<E> {
    fn from(error: io::Error) -> Self {
        Self::System(error)
    }
}

/// One run: the engine, the window, and the receiver of what is finished.
pub(super) struct Tracker<'a, T: Pod, D> {
    watch: &'a mut dyn Watch,
    parts: &'a Parts,
    window: Window,
    done: D,
    len: usize,
    strict: bool,
    sent: Sent,
    edges: Edges,
    /// Hash of each increment that was handed on.
    handed: Vec<Option<u64>>,
    /// Copy of the increments that are looked at.
    scratch: Vec<T>,
}

impl<'a, T: Pod, D, E> Tracker<'a, T, D>
where
    D: FnMut(Finished<'_, T>) -> Result<(), E>,
{
    /// Makes a run over `len` elements, whose increments are protected and whose ends are `edges`.
    pub(super) fn new(
        watch: &'a mut dyn Watch,
        parts: &'a Parts,
        (len, open, strict): (usize, usize, bool),
        edges: Edges,
        done: D,
    ) -> Self {
        let window = Window::new(parts.count(), open, watch.rests());
        let (handed, sent) = (vec![None; parts.count()], Sent::default());
        Self { watch, parts, window, done, len, strict, sent, edges, handed, scratch: Vec::new() }
    }

    /// Hands on increments until the bell ends, and then the rest, unless the run is `cut` off.
    pub(super) fn run(mut self, cut: &AtomicBool) -> Result<Sent, Failed<E>> {
        let mut touched = Vec::new();
        loop {
            let ended = self.parts.bell.has_ended();
            if ended && cut.load(Ordering::SeqCst) {
                return Ok(self.sent);
            }
            touched.clear();
            self.watch.wait(&mut touched)?;
            self.window.look();
            self.window.order(&mut touched);
            touched.iter().for_each(|index| self.window.touch(*index));
            let mut sealed = Vec::new();
            while let Some(index) = self.window.next_finished() {
                if self.watch.seal(index)? {
                    sealed.push(index);
                } else {
                    self.window.touch(index);
                }
            }
            sealed.sort_unstable();
            self.hand_on(&sealed, true)?;
            if ended {
                break;
            }
        }
        // Nobody writes any more.
        let rest: Vec<usize> =
            (0..self.parts.count()).filter(|index| !self.window.is_sent(*index)).collect();
        self.hand_on(&rest, false)?;
        Ok(self.sent)
    }

    /// Reads increments, in ascending order, and hands them on, neighbours together.
    fn hand_on(&mut self, indices: &[usize], sealed: bool) -> Result<(), Failed<E>> {
        let most = (TOGETHER_BYTES_MAX / self.parts.increment_bytes).max(1);
        let together = |one: &usize, next: &usize| {
            let is_next = one + 1 == *next && one / most == next / most;
            is_next && self.handed[*one].is_some() == self.handed[*next].is_some()
        };
        let runs = indices.chunk_by(together).map(|run| run[0]..run[0] + run.len());
        for run in runs.collect::<Vec<_>>() {
            let (mut first, end) = (run.start, run.end);
            let (read, again) = (self.read(&run)?, self.handed[run.start].is_some());
            for index in run {
                if !self.leaves(index, &read, sealed)? {
                    self.hand_on_run(first..index, read.start, again)?;
                    first = index + 1;
                }
            }
            self.hand_on_run(first..end, read.start, again)?;
        }
        Ok(())
    }

    /// Whether an increment is to be handed on now, of which the scratch memory has the elements `read`.
    fn leaves(
        &mut self,
        index: usize,
        read: &Range<usize>,
        sealed: bool,
    ) -> Result<bool, Failed<E>> {
        let (size, bytes) = (size_of::<T>(), self.parts.bytes(index));
        let before = read.start * size;
        let bytes = bytes.start - before..bytes.end.min(self.len * size) - before;
        let scratch: &[u8] = bytemuck::cast_slice(&self.scratch[..read.len()]);
        if sealed {
            // Where a late store is an error: a copy may store its first or last vector at its end.
            let waits = self.strict
                && (index == 0 && self.edges.first_waits(scratch)
                    || index + 1 == self.parts.count() && self.edges.last_waits(scratch));
            // One that was touched while it was read is named again.
            if waits || !self.watch.sent(index)? {
                return Ok(false);
            }
        }
        let now = hash(&scratch[bytes]);
        match self.handed[index].replace(now) {
            // An element that lies in two increments may be new, though this one is not.
            Some(before) if before == now && self.parts.increment_bytes.is_multiple_of(size) => {
                self.window.sent(index);
                return Ok(false);
            }
            Some(before) if before != now => {
                self.sent.rewritten += 1;
                if self.strict {
                    return Err(Failed::Rewritten(self.whole_elements(&(index..index + 1))));
                }
            }
            _ => {}
        }
        Ok(true)
    }

    /// Hands on increments that are in the scratch memory, which begins with the element of index `start`.
    fn hand_on_run(
        &mut self,
        run: Range<usize>,
        start: usize,
        again: bool,
    ) -> Result<(), Failed<E>> {
        if run.is_empty() {
            return Ok(());
        }
        let range = self.whole_elements(&run);
        for index in run {
            self.window.sent(index);
            self.sent.increments += 1;
        }
        if !self.parts.bell.has_ended() {
            self.sent.before_return += range.len();
        }
        if range.is_empty() {
            return Ok(());
        }
        let elements = &self.scratch[range.start - start..][..range.len()];
        (self.done)(Finished { start: range.start, elements, again }).map_err(Failed::Done)
    }

    /// Returns the elements of increments, with those that lie partly in a neighbour that was sent.
    fn whole_elements(&self, run: &Range<usize>) -> Range<usize> {
        let (first, last) = (self.parts.bytes(run.start), self.parts.bytes(run.end - 1));
        let (bytes, size) = (first.start..last.end, size_of::<T>());
        let is_sent = |index: usize| self.window.is_sent(index);
        let with_first = run.start == 0 || is_sent(run.start - 1);
        let with_last = run.end == self.parts.count() || is_sent(run.end);
        let start = if with_first { bytes.start / size } else { bytes.start.div_ceil(size) };
        let end = if with_last { bytes.end.div_ceil(size) } else { bytes.end / size };
        let end = end.min(self.len);
        start.min(end)..end
    }

    /// Copies increments into the scratch memory, by system call, with the elements that lie partly in them;
    /// returns the indices of these elements.
    fn read(&mut self, run: &Range<usize>) -> io::Result<Range<usize>> {
        let (first, last) = (self.parts.bytes(run.start), self.parts.bytes(run.end - 1));
        let start = first.start / size_of::<T>();
        let end = last.end.div_ceil(size_of::<T>()).min(self.len).max(start);
        let count = end - start;
        // It keeps its length: a longer one would be zeroed each time.
        self.scratch.resize(count.max(self.scratch.len()), T::zeroed());
        let into = bytemuck::cast_slice_mut(&mut self.scratch[..count]);
        self.parts.region.read_at(start * size_of::<T>(), into)?;
        Ok(start..end)
    }
}

/// Allows all writes, so that a writer goes on whatever ended the run.
impl<T: Pod, D> Drop for Tracker<'_, T, D> {
    fn drop(&mut self) {
        self.watch.disarm().expect("the system allows again what it allowed before");
    }
}
