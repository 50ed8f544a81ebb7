//! The engines of a buffer that is read: one interface, three means.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytemuck::Pod;

use super::faults::Guarded;
use super::guard::Guard;
use super::pages::{Never, Pages};
use super::settings::RecvEngine;
use super::sys::uffd::{Mode, Uffd, feature};
use super::sys::{Access, Backing, Face, Region, page_bytes};

/// Time between two looks at faults that wait: the precision of deadlines.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Makes the pages of a region readable as their data comes.
pub(crate) struct Fill {
    region: Arc<Region>,
    pages: Arc<Pages>,
    means: Means,
}

enum Means {
    Mprotect { _guarded: Guarded },
    Minor(Uffd),
    Missing(Uffd),
}

/// Returns the pages behind a region of `engine`.
pub(crate) fn backing(engine: RecvEngine) -> Backing {
    match engine {
        RecvEngine::Missing => Backing::Private,
        RecvEngine::Minor | RecvEngine::Mprotect => Backing::Twice,
    }
}

impl Fill {
    /// Starts an engine for a region, whose pages it does not take away yet.
    pub(crate) fn new(
        engine: RecvEngine,
        region: Arc<Region>,
        pages: Arc<Pages>,
    ) -> io::Result<Self> {
        let means = match engine {
            RecvEngine::Mprotect => {
                let guard = Arc::new(Guard::Reads(pages.clone()));
                Means::Mprotect { _guarded: Guarded::new(guard, region.addresses())? }
            }
            RecvEngine::Minor => Means::Minor(Uffd::open(feature::MINOR_FILE)?),
            RecvEngine::Missing => Means::Missing(Uffd::open(0)?),
        };
        let fill = Self { region, pages, means };
        // A kernel without the mode is found now.
        if let Some((uffd, mode)) = fill.uffd() {
            uffd.register(&fill.region, mode)?;
            uffd.unregister(&fill.region)?;
        }
        Ok(fill)
    }

    fn uffd(&self) -> Option<(&Uffd, Mode)> {
        match &self.means {
            Means::Mprotect { .. } => None,
            Means::Minor(uffd) => Some((uffd, Mode::Minor)),
            Means::Missing(uffd) => Some((uffd, Mode::Missing)),
        }
    }

    /// Takes all pages away.
    pub(crate) fn arm<T: Pod>(&self, face: &mut Face<T>) -> io::Result<()> {
        match self.uffd() {
            None => self.region.protect(0..self.region.map_bytes(), Access::None),
            Some((uffd, mode)) => {
                uffd.register(&self.region, mode)?;
                self.region.forget_pages(face)
            }
        }
    }

    /// Makes all pages readable, with data or without; those that wait go on.
    pub(crate) fn disarm(&self) -> io::Result<()> {
        match self.uffd() {
            None => self.region.protect(0..self.region.map_bytes(), Access::Read),
            Some((uffd, _)) => uffd.unregister(&self.region),
        }
    }

    /// Fills claimed `pages` with `bytes`, whole pages, and makes them readable.
    pub(crate) fn fill(&self, pages: Range<usize>, bytes: &[u8]) -> io::Result<()> {
        let span = pages.start * page_bytes()..pages.end * page_bytes();
        assert_eq!(span.len(), bytes.len(), "pages are filled as a whole");
        match &self.means {
            Means::Missing(uffd) => uffd.fill(&self.region, span.start, bytes)?,
            Means::Minor(uffd) => {
                self.region.write_at(span.start, bytes);
                uffd.map(&self.region, span)?;
            }
            Means::Mprotect { .. } => {
                self.region.write_at(span.start, bytes);
                self.region.protect(span, Access::Read)?;
            }
        }
        self.pages.opened(pages);
        Ok(())
    }

    /// Whether [`look_after`](Self::look_after) is needed: the engine of signals looks after itself.
    pub(crate) fn needs_looking_after(&self) -> bool {
        self.uffd().is_some()
    }

    /// Gives up reads whose page does not come, until the bell of the pages ends.
    pub(crate) fn look_after(&self) -> io::Result<()> {
        let Some((uffd, _)) = self.uffd() else { return Ok(()) };
        let (bell, deadline) = (self.pages.bell(), self.pages.deadline());
        let (mut offsets, mut waiting) = (Vec::new(), Vec::<(usize, Instant)>::new());
        while !bell.has_ended() {
            uffd.wait(bell, (!waiting.is_empty()).then_some(LOOK_EVERY))?;
            // Read before the pages, since all pages come before the end is known.
            let over = self.pages.is_over();
            offsets.clear();
            uffd.faults(&self.region, &mut offsets)?;
            for page in offsets.iter().map(|offset| offset / page_bytes()) {
                if !self.pages.is_there(page) {
                    self.pages.stall();
                    waiting.push((page, Instant::now()));
                } else if matches!(self.means, Means::Minor(_)) {
                    // The kernel may drop the entry of a page that has come, as when it swaps.
                    self.map_again(uffd, page)?;
                }
            }
            waiting.retain(|(page, _)| !self.pages.is_there(*page));
            for (page, since) in &waiting {
                if over {
                    self.give(uffd, *page, Never::Ended)?;
                } else if since.elapsed() >= deadline {
                    self.give(uffd, *page, Never::Late)?;
                }
            }
            waiting.retain(|(page, _)| !self.pages.is_given(*page));
        }
        Ok(())
    }

    /// Lets all reads go on when they can no longer be looked after, with data or without.
    pub(crate) fn let_go(&self) -> io::Result<()> {
        self.pages.give_up_all();
        if let Means::Minor(uffd) = &self.means {
            // The end of the engine wakes reads of missing pages alone.
            for page in 0..self.region.map_bytes() / page_bytes() {
                self.map_again(uffd, page)?;
            }
        }
        self.disarm()
    }

    fn give(&self, uffd: &Uffd, page: usize, why: Never) -> io::Result<()> {
        if !self.pages.give_up(page, why) {
            return Ok(());
        }
        match &self.means {
            Means::Missing(_) => {
                let zeros = vec![0; page_bytes()];
                or_exists(uffd.fill(&self.region, page * page_bytes(), &zeros))
            }
            _ => self.map_again(uffd, page),
        }
    }

    fn map_again(&self, uffd: &Uffd, page: usize) -> io::Result<()> {
        let start = page * page_bytes();
        or_exists(uffd.map(&self.region, start..start + page_bytes()))
    }
}

/// Takes a page that is mapped already for success: two threads waited for it.
fn or_exists(done: io::Result<()>) -> io::Result<()> {
    match done {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        done => done,
    }
}
