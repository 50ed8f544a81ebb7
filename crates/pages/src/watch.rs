//! The engines of a buffer that is written: one interface, three means.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::faults::Guarded;
use super::guard::{Guard, Writes};
use super::settings::SendEngine;
use super::sys::Region;
use super::sys::bell::Bell;
use super::sys::uffd::{Mode, Pagemap, Uffd, feature};

/// Shortest time between two scans of `wp-async`. A shorter one costs the writer's core without showing
/// more, since an increment of 20 KiB takes about as long to compute; a longer one delays increments.
const SCAN_EVERY: Duration = Duration::from_micros(100);

/// Time between two scans, in scans: the tracker takes at most a fifth of a core to look.
///
/// A scan takes 0.26 us a MiB. So this counts from 100 MiB on; with 3 GiB the tracker looked all the time.
const SCANS_BETWEEN: u32 = 4;

/// Returns the time until the next scan, where one takes `scan`.
fn until_next(scan: Duration) -> Duration {
    SCAN_EVERY.max(scan.saturating_mul(SCANS_BETWEEN))
}

/// Learns the writes to a region's increments.
///
/// Order of calls: `arm`, then `wait` again and again with `seal` and `sent` between, then `disarm`.
pub(crate) trait Watch: Send {
    /// Protects all increments. Nobody may write meanwhile.
    fn arm(&mut self) -> io::Result<()>;

    /// Adds the increments that were touched to `touched`, waiting for one, or for the end of the
    /// bell, or for the engine's next look. An increment may be named again while it is open.
    fn wait(&mut self, touched: &mut Vec<usize>) -> io::Result<()>;

    /// Protects an open increment, so that it may be read; false when a writer holds it.
    fn seal(&mut self, index: usize) -> io::Result<bool>;

    /// Ends the reading of a sealed increment; false when it was touched meanwhile. Then `wait` names
    /// it.
    fn sent(&mut self, index: usize) -> io::Result<bool>;

    /// Allows all writes.
    fn disarm(&mut self) -> io::Result<()>;

    /// Whether the order of touches within a look is unknown.
    fn rests(&self) -> bool {
        false
    }
}

/// A region in increments.
#[derive(Clone)]
pub(crate) struct Parts {
    pub(crate) region: Arc<Region>,
    pub(crate) increment_bytes: usize,
    pub(crate) bell: Arc<Bell>,
}

impl Parts {
    pub(crate) fn count(&self) -> usize {
        self.region.map_bytes().div_ceil(self.increment_bytes)
    }

    pub(crate) fn bytes(&self, index: usize) -> Range<usize> {
        let start = index * self.increment_bytes;
        start..(start + self.increment_bytes).min(self.region.map_bytes())
    }

    fn all(&self) -> Range<usize> {
        0..self.region.map_bytes()
    }
}

/// Starts an engine for a region.
pub(crate) fn open(engine: SendEngine, parts: Parts) -> io::Result<Box<dyn Watch>> {
    Ok(match engine {
        SendEngine::WpAsync => Box::new(WpAsync::new(parts)?),
        SendEngine::Wp => Box::new(Wp::new(parts)?),
        SendEngine::Mprotect => Box::new(Mprotect::new(parts)?),
    })
}

/// Faults by signal.
struct Mprotect {
    guarded: Guarded,
    bell: Arc<Bell>,
}

impl Mprotect {
    fn new(parts: Parts) -> io::Result<Self> {
        let addresses = parts.region.addresses();
        let bell = parts.bell.clone();
        let writes = Writes::new(parts.region, parts.increment_bytes, parts.bell);
        let guarded = Guarded::new(Arc::new(Guard::Writes(writes)), addresses)?;
        Ok(Self { guarded, bell })
    }

    fn writes(&self) -> &Writes {
        match &**self.guarded.guard() {
            Guard::Writes(writes) => writes,
            Guard::Reads(_) => unreachable!("made with writes"),
        }
    }
}

impl Watch for Mprotect {
    fn arm(&mut self) -> io::Result<()> {
        self.writes().arm()
    }

    fn wait(&mut self, touched: &mut Vec<usize>) -> io::Result<()> {
        let rings = self.bell.rings();
        self.writes().take_touched(touched);
        if touched.is_empty() && !self.bell.has_ended() {
            self.bell.wait(rings, None);
            self.writes().take_touched(touched);
        }
        Ok(())
    }

    fn seal(&mut self, index: usize) -> io::Result<bool> {
        self.writes().seal(index)
    }

    fn sent(&mut self, index: usize) -> io::Result<bool> {
        Ok(self.writes().sent(index))
    }

    fn disarm(&mut self) -> io::Result<()> {
        self.writes().disarm()
    }
}

/// Faults as events, each answered by the tracker.
struct Wp {
    uffd: Uffd,
    parts: Parts,
    open: Vec<bool>,
    /// Increments of faults that were answered and not yet named.
    answered: Vec<usize>,
    offsets: Vec<usize>,
}

impl Wp {
    fn new(parts: Parts) -> io::Result<Self> {
        let uffd = Uffd::open(feature::WRITE | feature::WRITE_FILE | feature::WRITE_UNPOPULATED)?;
        uffd.register(&parts.region, Mode::Write)?;
        let open = vec![true; parts.count()];
        Ok(Self { uffd, parts, open, answered: Vec::new(), offsets: Vec::new() })
    }

    fn answer(&mut self) -> io::Result<()> {
        let mut offsets = std::mem::take(&mut self.offsets);
        offsets.clear();
        self.uffd.faults(&self.parts.region, &mut offsets)?;
        for offset in &offsets {
            let index = offset / self.parts.increment_bytes;
            if !std::mem::replace(&mut self.open[index], true) {
                self.answered.push(index);
                self.uffd.protect(&self.parts.region, self.parts.bytes(index), false)?;
            }
        }
        self.offsets = offsets;
        Ok(())
    }
}

impl Watch for Wp {
    fn arm(&mut self) -> io::Result<()> {
        self.answered.clear();
        self.open.fill(false);
        self.uffd.protect(&self.parts.region, self.parts.all(), true)
    }

    fn wait(&mut self, touched: &mut Vec<usize>) -> io::Result<()> {
        self.answer()?;
        if self.answered.is_empty() && !self.parts.bell.has_ended() {
            self.uffd.wait(&self.parts.bell, None)?;
            self.answer()?;
        }
        touched.append(&mut self.answered);
        Ok(())
    }

    fn seal(&mut self, index: usize) -> io::Result<bool> {
        self.uffd.protect(&self.parts.region, self.parts.bytes(index), true)?;
        self.open[index] = false;
        Ok(true)
    }

    fn sent(&mut self, index: usize) -> io::Result<bool> {
        self.answer()?;
        Ok(!self.open[index])
    }

    fn disarm(&mut self) -> io::Result<()> {
        self.open.fill(true);
        self.uffd.protect(&self.parts.region, self.parts.all(), false)
    }
}

/// Writes noted by the kernel, and scans.
struct WpAsync {
    /// Watches as long as it is open.
    uffd: Uffd,
    pagemap: Pagemap,
    parts: Parts,
    written: Vec<Range<usize>>,
    /// Time of the shortest scan so far: others found writes, or were interrupted.
    scan: Option<Duration>,
}

impl WpAsync {
    fn new(parts: Parts) -> io::Result<Self> {
        let features = feature::WRITE
            | feature::WRITE_FILE
            | feature::WRITE_UNPOPULATED
            | feature::WRITE_ASYNC;
        let uffd = Uffd::open(features)?;
        uffd.register(&parts.region, Mode::Write)?;
        let pagemap = Pagemap::open()?;
        // A kernel without the scan is found now.
        let mut written = Vec::new();
        pagemap.scan(&parts.region, &mut written)?;
        Ok(Self { uffd, pagemap, parts, written, scan: None })
    }
}

impl Watch for WpAsync {
    fn arm(&mut self) -> io::Result<()> {
        self.uffd.protect(&self.parts.region, self.parts.all(), true)
    }

    fn wait(&mut self, touched: &mut Vec<usize>) -> io::Result<()> {
        let rings = self.parts.bell.rings();
        if !self.parts.bell.has_ended() {
            self.parts.bell.wait(rings, Some(until_next(self.scan.unwrap_or_default())));
        }
        self.written.clear();
        let started = Instant::now();
        self.pagemap.scan(&self.parts.region, &mut self.written)?;
        let took = started.elapsed();
        self.scan = Some(self.scan.map_or(took, |scan| scan.min(took)));
        let first = touched.len();
        for bytes in &self.written {
            let size = self.parts.increment_bytes;
            let indices = bytes.start / size..bytes.end.div_ceil(size);
            let last = touched[first..].last().copied();
            touched.extend(indices.filter(|index| Some(*index) != last));
        }
        Ok(())
    }

    /// The scan that found the increment protected it.
    fn seal(&mut self, _index: usize) -> io::Result<bool> {
        Ok(true)
    }

    /// The next scan finds a touch.
    fn sent(&mut self, _index: usize) -> io::Result<bool> {
        Ok(true)
    }

    fn rests(&self) -> bool {
        true
    }

    fn disarm(&mut self) -> io::Result<()> {
        self.uffd.protect(&self.parts.region, self.parts.all(), false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tracker_looks_for_a_fifth_of_its_time_at_most() {
        assert_eq!(until_next(Duration::ZERO), SCAN_EVERY);
        assert_eq!(until_next(SCAN_EVERY / SCANS_BETWEEN), SCAN_EVERY);
        assert_eq!(until_next(Duration::from_millis(1)), Duration::from_millis(4));
    }
}
