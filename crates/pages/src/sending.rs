//! A buffer that ordinary code writes while its finished elements are handed on.

use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use bytemuck::Pod;
use chunkcomm::host;

use super::contents::Edges;
use super::error::{AccessError, SetupError};
use super::runs::{Finished, Sent};
use super::settings::{INCREMENT_PAGES_MAX, Rewrites, SendEngine, Tracking};
use super::sys::bell::Bell;
use super::sys::{Backing, Face, page_bytes};
use super::watch::{self, Parts, Watch};
use tracker::{Failed, Tracker};

mod tracker;

/// Memory of `T` that ordinary code writes as a plain slice, while a thread learns from page protection
/// the elements that are finished.
///
/// May be used for any number of runs, one at a time. Zeroed at first; later runs find the contents
/// of the one before. The memory is the system's own, in whole pages.
///
/// ```
/// use chunkcomm_pages::{AccessError, TrackedOutput, Tracking};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut squares = TrackedOutput::<u64>::new(100_000, Tracking::default())?;
/// let mut copy = vec![0; squares.len()];
/// let write = |squares: &mut [u64]| {
///     for (index, square) in squares.iter_mut().enumerate() {
///         *square = (index * index) as u64;
///     }
/// };
/// let ((), _sent) = squares.track(write, |finished| {
///     copy[finished.range()].copy_from_slice(finished.elements);
///     Ok::<_, AccessError>(())
/// })?;
/// assert_eq!(copy[99_999], 99_999 * 99_999);
/// # Ok(())
/// # }
/// ```
pub struct TrackedOutput<T: Pod> {
    face: Face<T>,
    watch: Box<dyn Watch>,
    parts: Parts,
    engine: SendEngine,
    settings: Tracking,
}

impl<T: Pod> TrackedOutput<T> {
    /// Makes a buffer of `len` elements, with the engine that the settings name or the first that works
    /// here.
    ///
    /// # Errors
    /// [`SetupError::Memory`] without memory, [`SetupError::Engine`] when the named engine, or the last
    /// one, does not work here. [`SetupError::NotSupportedHere`] on other systems than Linux and on a
    /// virtual host.
    pub fn new(len: usize, settings: Tracking) -> Result<Self, SetupError> {
        if host::is_virtual() {
            return Err(SetupError::NotSupportedHere);
        }
        let bytes = len.saturating_mul(size_of::<T>());
        let no_memory = |error| SetupError::Memory { bytes, source: Arc::new(error) };
        let face = Face::new(len, Backing::File).map_err(no_memory)?;
        // An element lies in two increments at most.
        let pages = settings.increment_pages.clamp(1, INCREMENT_PAGES_MAX);
        let pages = pages.max(size_of::<T>().div_ceil(page_bytes()));
        let parts = Parts {
            region: face.region().clone(),
            increment_bytes: pages * page_bytes(),
            bell: Arc::new(Bell::new().map_err(no_memory)?),
        };
        let engines = settings.engine.as_ref().map_or(SendEngine::ALL, std::slice::from_ref);
        let mut failed = None;
        for engine in engines {
            match watch::open(*engine, parts.clone()) {
                Ok(watch) => return Ok(Self { face, watch, parts, engine: *engine, settings }),
                Err(error) => {
                    let (engine, source) = (engine.to_string(), Arc::new(error));
                    failed = Some(SetupError::Engine { engine, source });
                }
            }
        }
        Err(failed.expect("there are engines"))
    }

    /// Returns the engine in use.
    #[must_use]
    pub fn engine(&self) -> SendEngine {
        self.engine
    }

    /// Returns the number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.face.elements().len()
    }

    /// Whether there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the bytes of an increment: whole pages.
    #[must_use]
    pub fn increment_bytes(&self) -> usize {
        self.parts.increment_bytes
    }

    /// Returns the elements.
    #[must_use]
    pub fn elements(&self) -> &[T] {
        self.face.elements()
    }

    /// Returns the elements to change, between runs.
    pub fn elements_mut(&mut self) -> &mut [T] {
        self.face.elements_mut()
    }

    /// Runs `write` on the calling thread with the whole buffer, and `done` on another thread with the
    /// increments that are finished, neighbours together. Returns when both have ended.
    ///
    /// An increment is finished when [`open_increments`](Tracking::open_increments) others were
    /// begun after it, or when `write` has returned. The first and the last one also wait while their
    /// outermost 16 bytes are as they were and others are not: a large copy writes one end last. At the end `done` has had each element, those that
    /// were not written included. An element that lies in two increments comes with the later one.
    ///
    /// `write` may use the slice as any other, from several threads, too. A thread that does not run while others
    /// begin increments counts as done with its own: what it writes next comes again, or is an error with
    /// [`Rewrites::Strict`]. An increment that is the same after it was written again, by a hash of 64 bits, is
    /// not handed on again. A system call that writes to it
    /// (`read` into the slice) works with `wp-async`, and with `wp` for a privileged process; else
    /// it fails with `EFAULT` where the page is protected.
    ///
    /// With `mprotect`, a store that needs more mappings than the system allows **aborts the process**:
    /// [`SendEngine::Mprotect`] names the limit.
    ///
    /// When `write` panics, `done` gets no further increment and the panic goes on here.
    ///
    /// # Errors
    /// `write` has run to its end in each case. [`AccessError::Rewritten`] with strict settings
    /// when elements were written again after they were handed on; `done` got none after that. The
    /// error of `done`. [`AccessError::System`] when the system refuses a call.
    ///
    /// # Panics
    /// When `write` or `done` panics, or no thread can be started.
    pub fn track<R, E: From<AccessError> + Send>(
        &mut self,
        write: impl FnOnce(&mut [T]) -> R,
        done: impl FnMut(Finished<'_, T>) -> Result<(), E> + Send,
    ) -> Result<(R, Sent), E> {
        let Self { face, watch, parts, engine, settings } = self;
        let failed = |error: io::Error| {
            E::from(AccessError::System { engine: engine.to_string(), source: Arc::new(error) })
        };
        let edges = Edges::of(bytemuck::cast_slice(face.elements()), parts.increment_bytes);
        parts.bell.reset();
        if let Err(error) = watch.arm() {
            // A part may be protected. The first error is the one to tell.
            let _ = watch.disarm();
            return Err(failed(error));
        }
        let (len, bell) = (face.elements().len(), parts.bell.clone());
        let strict = settings.rewrites == Rewrites::Strict;
        let run = (len, settings.open_increments, strict);
        let (watch, parts) = (&mut **watch, &*parts);
        let cut = AtomicBool::new(false);
        let ran = thread::scope(|scope| {
            let tracking = thread::Builder::new().name("tracker".to_owned());
            let tracking = tracking
                .spawn_scoped(scope, || Tracker::new(watch, parts, run, edges, done).run(&cut));
            let tracking = tracking?;
            let result = catch_unwind(AssertUnwindSafe(|| write(face.elements_mut())));
            cut.store(result.is_err(), Ordering::SeqCst);
            bell.end();
            Ok::<_, io::Error>((result, tracking.join()))
        });
        if ran.is_err() {
            let _ = watch.disarm();
        }
        let (result, tracked) = ran.expect("a thread can be started");
        let result = result.unwrap_or_else(|panic| resume_unwind(panic));
        match tracked.unwrap_or_else(|panic| resume_unwind(panic)) {
            Ok(sent) => Ok((result, sent)),
            Err(Failed::System(error)) => Err(failed(error)),
            Err(Failed::Rewritten(elements)) => Err(AccessError::Rewritten { elements }.into()),
            Err(Failed::Done(error)) => Err(error),
        }
    }
}

impl TrackedOutput<u8> {
    /// Measures a look, the protection of an increment and its copy, in nanoseconds, after a run that
    /// touched each increment and sealed none.
    pub(super) fn part_costs(&mut self) -> io::Result<[f64; 3]> {
        let count = self.parts.count() as f64;
        let (mut scratch, mut touched) = (vec![0; self.increment_bytes()], Vec::new());
        let started = Instant::now();
        for index in 0..self.parts.count() {
            let bytes = self.parts.bytes(index);
            self.parts.region.read_at(bytes.start, &mut scratch[..bytes.len()])?;
        }
        let read_ns = started.elapsed().as_nanos() as f64 / count;
        let started = Instant::now();
        for index in 0..self.parts.count() {
            self.watch.seal(index)?;
        }
        let mut protect_ns = started.elapsed().as_nanos() as f64 / count;
        self.watch.disarm()?;
        self.watch.arm()?;
        // The bell has ended, so nothing waits.
        self.watch.wait(&mut touched)?;
        let started = Instant::now();
        self.watch.wait(&mut touched)?;
        let look_ns = started.elapsed().as_nanos() as f64;
        if self.watch.rests() {
            // The kernel answers faults by itself, and the scan protects.
            self.elements_mut().fill(2);
            let started = Instant::now();
            self.watch.wait(&mut touched)?;
            protect_ns = started.elapsed().as_nanos() as f64 / count;
        }
        self.watch.disarm()?;
        Ok([look_ns, protect_ns, read_ns])
    }
}

impl<T: Pod> fmt::Debug for TrackedOutput<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TrackedOutput")
            .field("len", &self.len())
            .field("engine", &self.engine)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}
