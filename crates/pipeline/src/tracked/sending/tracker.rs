//! The thread that hands on the finished increments of one run.

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use bytemuck::Pod;

use crate::tracked::error::TrackedSendError;
use crate::tracked::runs::{Finished, Sent};
use crate::tracked::watch::{Parts, Watch};
use crate::tracked::window::{Touch, Window};

/// Failure of a run.
pub(super) enum Failed {
    System(io::Error),
    Other(TrackedSendError),
}

impl From<io::Error> for Failed {
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
    handed: Vec<bool>,
    scratch: Vec<T>,
}

impl<'a, T: Pod, D> Tracker<'a, T, D>
where
    D: FnMut(Finished<'_, T>) -> Result<(), TrackedSendError>,
{
    /// Makes a run over `len` elements, whose increments are protected.
    pub(super) fn new(
        watch: &'a mut dyn Watch,
        parts: &'a Parts,
        (len, open, strict): (usize, usize, bool),
        done: D,
    ) -> Self {
        let window = Window::new(parts.count(), open, watch.rests());
        let (handed, sent) = (vec![false; parts.count()], Sent::default());
        Self { watch, parts, window, done, len, strict, sent, handed, scratch: Vec::new() }
    }

    /// Hands on increments until the bell ends, and then the rest, unless the run is `cut` off.
    pub(super) fn run(mut self, cut: &AtomicBool) -> Result<Sent, Failed> {
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
            for index in &touched {
                if self.window.touch(*index) == Touch::Late {
                    self.late(*index)?;
                }
            }
            while let Some(index) = self.window.next_finished() {
                self.hand_on_sealed(index)?;
            }
            if ended {
                break;
            }
        }
        // Nobody writes any more.
        for index in 0..self.parts.count() {
            if !self.window.is_sent(index) {
                let range = self.whole_elements(index);
                self.read(range.clone())?;
                self.hand_on(index, range)?;
            }
        }
        Ok(self.sent)
    }

    fn late(&mut self, index: usize) -> Result<(), Failed> {
        self.sent.rewritten += 1;
        if self.strict {
            let elements = self.whole_elements(index);
            return Err(Failed::Other(TrackedSendError::Rewritten { elements }));
        }
        Ok(())
    }

    fn hand_on_sealed(&mut self, index: usize) -> Result<(), Failed> {
        if !self.watch.seal(index)? {
            self.window.touch(index);
            return Ok(());
        }
        let range = self.whole_elements(index);
        self.read(range.clone())?;
        // Touched while it was read: it is named again, and nothing of it has left.
        if self.watch.sent(index)? { self.hand_on(index, range) } else { Ok(()) }
    }

    /// Returns the elements of an increment, with those that lie partly in a neighbour that was sent.
    fn whole_elements(&self, index: usize) -> Range<usize> {
        let (bytes, size) = (self.parts.bytes(index), size_of::<T>());
        let is_sent = |index: usize| self.window.is_sent(index);
        let with_first = index == 0 || is_sent(index - 1);
        let with_last = index + 1 == self.parts.count() || is_sent(index + 1);
        let start = if with_first { bytes.start / size } else { bytes.start.div_ceil(size) };
        let end = if with_last { bytes.end.div_ceil(size) } else { bytes.end / size };
        let end = end.min(self.len);
        start.min(end)..end
    }

    /// Copies elements into the scratch memory, by system call.
    fn read(&mut self, range: Range<usize>) -> io::Result<()> {
        self.scratch.resize(range.len(), T::zeroed());
        let into = bytemuck::cast_slice_mut(&mut self.scratch);
        self.parts.region.read_at(range.start * size_of::<T>(), into)
    }

    fn hand_on(&mut self, index: usize, range: Range<usize>) -> Result<(), Failed> {
        self.window.sent(index);
        let again = std::mem::replace(&mut self.handed[index], true);
        self.sent.increments += 1;
        if !self.parts.bell.has_ended() {
            self.sent.before_return += range.len();
        }
        let finished = Finished { start: range.start, elements: &self.scratch, again };
        if range.is_empty() {
            return Ok(());
        }
        (self.done)(finished).map_err(Failed::Other)
    }
}

/// Allows all writes, so that a writer goes on whatever ended the run.
impl<T: Pod, D> Drop for Tracker<'_, T, D> {
    fn drop(&mut self) {
        self.watch.disarm().expect("the system allows again what it allowed before");
    }
}
