//! A buffer that ordinary code reads while its elements arrive.

use std::error::Error;
use std::fmt;
use std::io::{self, Write as _};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use bytemuck::Pod;
use chunkcomm::{host, with_causes};
use tokio::sync::Notify;

use super::error::{AccessError, SetupError};
use super::fill::{Fill, backing};
use super::pages::{Never, Pages};
use super::runs::Received;
use super::settings::{Awaiting, Missing, RecvEngine};
use super::sys::abort;
use super::sys::{Face, page_bytes};
use filler::{Armed, EndOnDrop, Stopping};

mod filler;

pub use filler::Filler;

/// Memory of `T` that ordinary code reads as a plain slice, while a thread fills it. A read of an element
/// that has not come waits for it.
///
/// May be used for any number of runs, one at a time.
///
/// ```
/// use chunkcomm_pages::{AccessError, Awaiting, TrackedInput};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut input = TrackedInput::<u32>::new(10_000, Awaiting::default())?;
/// let (sum, _received) = input.track(
///     |elements, _| elements.iter().sum::<u32>(),
///     |filler| {
///         for start in (0..10_000).step_by(1_000) {
///             filler.put(start, &[7; 1_000])?;
///         }
///         Ok::<_, AccessError>(())
///     },
/// )?;
/// assert_eq!(sum, 70_000);
/// # Ok(())
/// # }
/// ```
pub struct TrackedInput<T: Pod> {
    /// Before the face: ends the handling of faults before the memory goes.
    fill: Fill,
    face: Face<T>,
    pages: Arc<Pages>,
    engine: RecvEngine,
    settings: Awaiting,
}

impl<T: Pod> TrackedInput<T> {
    /// Makes a buffer of `len` elements, with the engine that the settings name or the first that works
    /// here.
    ///
    /// # Errors
    /// [`SetupError::Memory`] without memory, [`SetupError::Engine`] when the named engine, or the last
    /// one, does not work here. [`SetupError::NotSupportedHere`] on other systems than Linux and on a
    /// virtual host.
    pub fn new(len: usize, settings: Awaiting) -> Result<Self, SetupError> {
        if host::is_virtual() {
            return Err(SetupError::NotSupportedHere);
        }
        let engines = settings.engine.as_ref().map_or(RecvEngine::ALL, std::slice::from_ref);
        let mut failed = None;
        for engine in engines {
            match Self::with_engine(len, settings, *engine) {
                Ok(input) => return Ok(input),
                Err(error) => failed = Some(error),
            }
        }
        Err(failed.expect("there are engines"))
    }

    fn with_engine(len: usize, settings: Awaiting, engine: RecvEngine) -> Result<Self, SetupError> {
        let bytes = len.saturating_mul(size_of::<T>());
        let no_memory = |error| SetupError::Memory { bytes, source: Arc::new(error) };
        let face = Face::new(len, backing(engine)).map_err(no_memory)?;
        let region = face.region().clone();
        let pages = Pages::new(region.clone(), settings.deadline, settings.missing);
        let pages = Arc::new(pages.map_err(no_memory)?);
        let fill = Fill::new(engine, region, pages.clone());
        let fill = fill.map_err(|error| SetupError::Engine {
            engine: engine.to_string(),
            source: Arc::new(error),
        })?;
        Ok(Self { fill, face, pages, engine, settings })
    }

    /// Returns the engine in use.
    #[must_use]
    pub fn engine(&self) -> RecvEngine {
        self.engine
    }

    /// Returns the number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.elements().len()
    }

    /// Whether there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the elements of the last run; zeros before the first.
    #[must_use]
    pub fn elements(&self) -> &[T] {
        self.face.elements()
    }

    /// Runs `read` on the calling thread with the whole buffer, and `fill` on another thread, which puts
    /// the elements there. Returns when both have ended.
    ///
    /// `read` may use the slice as any other, from several threads, too. A load of an element that has not
    /// come waits, up to [`deadline`](Awaiting::deadline). A load cannot return an error, so a load whose
    /// element does not come ends as [`missing`](Awaiting::missing) says: by default **the process is
    /// aborted**, after the deadline, or at once when `fill` has ended or failed. The error of `fill` is
    /// written to the standard error before. [`Arrivals::wait`] is the way that returns an error.
    ///
    /// A system call that reads the slice (`write` from it) fails with `EFAULT` where a page has not come,
    /// but with a privileged process and `minor` or `missing`, where it waits. Call
    /// [`Arrivals::wait`] before.
    ///
    /// When `read` panics, [`Filler::stopped`] ends and the panic goes on here once `fill` has returned.
    /// [`Filler::stopped`] ends as well when `read` has returned after a load or a wait was late.
    ///
    /// # Errors
    /// The error of `fill`. [`AccessError::Late`] or [`AccessError::Ended`] when elements did not
    /// come. [`AccessError::System`] when the system refuses a call. `read` has run to its
    /// end in each case; its result is dropped.
    ///
    /// # Panics
    /// When `read` or `fill` panics, or no thread can be started.
    pub fn track<R, E: Error + From<AccessError> + Send>(
        &mut self,
        read: impl FnOnce(&[T], &Arrivals<'_>) -> R,
        fill: impl FnOnce(&mut Filler<'_, T>) -> Result<(), E> + Send,
    ) -> Result<(R, Received), E> {
        let Self { fill: engine, face, pages, engine: name, settings } = self;
        let failed = |error: io::Error| {
            E::from(AccessError::System { engine: name.to_string(), source: Arc::new(error) })
        };
        pages.reset();
        let (engine, pages) = (&*engine, &**pages);
        let armed = Armed(engine);
        engine.arm(face).map_err(failed)?;
        let face = &*face;
        let (len, stop) = (face.elements().len(), Notify::new());
        let read_ended = AtomicBool::new(false);
        let (result, filled, looked) = thread::scope(|scope| {
            let stopping = Stopping { pages, stop: &stop };
            let start = |name: &str| thread::Builder::new().name(name.to_owned());
            let filling = start("filler").spawn_scoped(scope, || {
                let _end = EndOnDrop(pages);
                let mut filler = Filler::new(engine, pages, len, *name, &stop);
                let filled = fill(&mut filler).map(|()| filler.is_whole());
                if let Err(error) = &filled
                    && settings.missing == Missing::Abort
                    && !read_ended.load(Ordering::SeqCst)
                {
                    tell(error);
                }
                filled
            });
            let looking = engine.needs_looking_after().then(|| {
                let looking = start("waits").spawn_scoped(scope, || {
                    let looked = engine.look_after();
                    if let Err(error) = &looked
                        && !read_ended.load(Ordering::SeqCst)
                    {
                        if settings.missing == Missing::Abort {
                            abort_unanswered(error);
                        }
                        engine.let_go()?;
                    }
                    looked
                });
                looking.expect("a thread can be started")
            });
            let filling = filling.expect("a thread can be started");
            let arrivals = Arrivals { pages, len, size: size_of::<T>(), settings };
            let result = catch_unwind(AssertUnwindSafe(|| read(face.elements(), &arrivals)));
            read_ended.store(true, Ordering::SeqCst);
            if result.is_err() || pages.gave().is_some() || pages.waited_in_vain() {
                stop.notify_one();
            }
            let filled = filling.join();
            drop(stopping);
            (result, filled, looking.map(thread::ScopedJoinHandle::join))
        });
        armed.disarm().map_err(failed)?;
        let result = result.unwrap_or_else(|panic| resume_unwind(panic));
        let filled = filled.unwrap_or_else(|panic| resume_unwind(panic));
        looked
            .unwrap_or(Ok(Ok(())))
            .unwrap_or_else(|panic| resume_unwind(panic))
            .map_err(failed)?;
        let late = AccessError::Late { deadline: settings.deadline };
        match (filled, pages.gave()) {
            // A late page is why nothing more was filled.
            (_, Some(Never::Late)) => Err(late.into()),
            (Err(error), _) => Err(error),
            (Ok(false), None) if pages.waited_in_vain() => Err(late.into()),
            (Ok(false), _) | (Ok(true), Some(Never::Ended)) => Err(AccessError::Ended.into()),
            (Ok(true), None) => Ok((result, Received { stalls: pages.stalls() })),
        }
    }
}

impl<T: Pod> fmt::Debug for TrackedInput<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TrackedInput")
            .field("len", &self.len())
            .field("engine", &self.engine)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

/// Ends the process, since its loads would wait for ever.
fn abort_unanswered(error: &io::Error) -> ! {
    let words = error.to_string();
    abort(&["reads of a tracked buffer can no longer be answered: ", &words, "\n"])
}

/// Writes an error to the standard error, since a load that now ends the process cannot return it.
fn tell(error: &impl Error) {
    let words = with_causes(error);
    // Without a standard error there is nobody to tell.
    let _ = writeln!(io::stderr(), "a tracked buffer is no longer filled: {words}");
}

/// The elements that have come, for code that asks before it reads.
#[derive(Clone, Copy)]
pub struct Arrivals<'a> {
    pages: &'a Pages,
    len: usize,
    size: usize,
    settings: &'a Awaiting,
}

impl Arrivals<'_> {
    /// Waits until all elements of `range` have come. Then reads of them do not wait.
    ///
    /// After it was late, nothing more is waited for when the code has returned: unless all elements have
    /// come by then, the run returns [`AccessError::Late`].
    ///
    /// # Errors
    /// [`AccessError::Late`] after the deadline of the settings, [`AccessError::Ended`] when
    /// they never come, [`AccessError::Range`] when the range is not within the buffer.
    pub fn wait(&self, range: Range<usize>) -> Result<(), AccessError> {
        let (start, end) = (range.start, range.end);
        if start > end || end > self.len {
            return Err(AccessError::Range { start, end, length: self.len });
        }
        let deadline = self.settings.deadline;
        self.pages.wait(self.pages_of(range), deadline).map_err(|why| match why {
            Never::Late => {
                self.pages.wait_in_vain();
                AccessError::Late { deadline }
            }
            Never::Ended => AccessError::Ended,
        })
    }

    /// Whether all elements of `range` have come. False when the range is not within the buffer.
    #[must_use]
    pub fn have_come(&self, range: Range<usize>) -> bool {
        range.start <= range.end
            && range.end <= self.len
            && self.pages_of(range).all(|page| self.pages.is_there(page))
    }

    fn pages_of(&self, range: Range<usize>) -> Range<usize> {
        if range.is_empty() {
            return 0..0;
        }
        let (start, end) = (range.start * self.size, range.end * self.size);
        start / page_bytes()..end.div_ceil(page_bytes())
    }
}

impl fmt::Debug for Arrivals<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Arrivals").field("len", &self.len).finish_non_exhaustive()
    }
}
