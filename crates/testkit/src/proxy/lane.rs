//! One direction of a connection.

use std::collections::VecDeque;
use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::watch;
use tokio::time::sleep_until;

/// Most bytes that are read at once: 64 KiB.
const CHUNK_BYTES: usize = 64 * 1024;

/// Most bytes that a delayed lane holds, like a long line: 64 MiB. At the limit its sender waits.
const HELD_BYTES_MAX: usize = 64 << 20;

/// Chunks a second of a lane with a rate: it takes 1/200 of a second's bytes at once.
const CHUNKS_PER_SECOND: u64 = 200;

/// Bytes after which a lane counts as carrying data: 8 KiB, above every opening of a connection.
const CARRYING_BYTES: u64 = 8 * 1024;

/// Treatment of a lane's bytes. Byte counts are from the beginning of the connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Conduct {
    /// Added time until each byte arrives.
    pub delay: Duration,
    /// Bytes that pass in a second; with `None` as many as the sockets carry.
    pub bytes_per_second: Option<u64>,
    /// Whether the lane reads nothing: the sender's buffers fill up.
    pub stalled: bool,
    /// Whether the lane reads everything and passes nothing on.
    pub blackhole: bool,
    /// Place of the byte in which one bit is turned.
    pub flip_at: Option<u64>,
    /// Number of passed bytes at which the connection is cut.
    pub cut_at: Option<u64>,
}

/// A lane's conduct, and its progress.
#[derive(Debug)]
pub struct Lane {
    conduct: watch::Sender<Conduct>,
    passed: AtomicU64,
    began: OnceLock<Instant>,
    carrying: OnceLock<Instant>,
}

/// Reason for which a lane stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    /// Its sender has ended the stream.
    End,
    /// One of the two sockets broke.
    Broken,
    /// The lane reached the place of its cut.
    CutHere,
}

impl Lane {
    pub(super) fn new(conduct: Conduct) -> Self {
        let conduct = watch::channel(conduct).0;
        let [began, carrying] = [(); 2].map(|()| OnceLock::new());
        Self { conduct, passed: AtomicU64::new(0), began, carrying }
    }

    /// Changes the treatment of the bytes from now on.
    pub fn set(&self, change: impl FnOnce(&mut Conduct)) {
        self.conduct.send_modify(change);
    }

    /// Returns the number of bytes that have passed.
    pub fn passed(&self) -> u64 {
        self.passed.load(Ordering::Relaxed)
    }

    /// Returns the time when the first bytes had passed.
    pub fn began(&self) -> Option<Instant> {
        self.began.get().copied()
    }

    /// Returns the time when more than the opening of a connection had passed.
    pub fn carrying(&self) -> Option<Instant> {
        self.carrying.get().copied()
    }

    /// Passes bytes on until there is a reason to stop. Calls `began` when the lane first counts as
    /// carrying data.
    pub(super) async fn pump(
        &self,
        mut from: ReadHalf<'_>,
        mut to: WriteHalf<'_>,
        began: impl Fn(),
    ) -> Stop {
        let mut conducts = self.conduct.subscribe();
        let mut buffer = vec![0; CHUNK_BYTES];
        let mut held = Held::default();
        let mut ended = false;
        loop {
            let conduct = *conducts.borrow_and_update();
            if ended && held.is_empty() {
                // A socket that is gone has ended already.
                let _ = to.shutdown().await;
                return Stop::End;
            }
            let room = room(&conduct);
            let reads = !conduct.stalled && !ended && held.bytes < HELD_BYTES_MAX;
            let chunk = tokio::select! {
                // A requested cut or stall comes before the next byte.
                biased;
                Ok(()) = conducts.changed() => continue,
                chunk = held.due(), if !conduct.stalled => chunk,
                read = from.read(&mut buffer[..room]), if reads => match read {
                    Ok(0) => {
                        ended = true;
                        continue;
                    }
                    // Bytes that came after the lane became a blackhole vanish.
                    Ok(_) if self.conduct.borrow().blackhole => continue,
                    Ok(bytes) if conduct.delay.is_zero() && held.is_empty() => {
                        buffer[..bytes].to_vec()
                    }
                    Ok(bytes) => {
                        held.add(Instant::now() + conduct.delay, &buffer[..bytes]);
                        continue;
                    }
                    Err(_) => return Stop::Broken,
                },
            };
            let pause = pause(&conduct, chunk.len());
            match self.pass(chunk, &conduct, &mut to).await {
                Ok(true) => return Stop::CutHere,
                Ok(false) => {}
                Err(_) => return Stop::Broken,
            }
            self.began.get_or_init(Instant::now);
            if self.passed() >= CARRYING_BYTES && self.carrying.set(Instant::now()).is_ok() {
                began();
            }
            if !pause.is_zero() {
                tokio::time::sleep(pause).await;
            }
        }
    }

    /// Writes a chunk, or its part before the cut; returns true if the cut is due now.
    async fn pass(
        &self,
        mut chunk: Vec<u8>,
        conduct: &Conduct,
        to: &mut WriteHalf<'_>,
    ) -> io::Result<bool> {
        let passed = self.passed();
        let place = |at: u64| usize::try_from(at.saturating_sub(passed)).unwrap_or(usize::MAX);
        let cut = conduct.cut_at.map(place).filter(|&left| left <= chunk.len());
        chunk.truncate(cut.unwrap_or(chunk.len()));
        if let Some(at) = conduct.flip_at.filter(|&at| at >= passed)
            && let Some(byte) = chunk.get_mut(place(at))
        {
            *byte ^= 1 << (at % 8);
        }
        to.write_all(&chunk).await?;
        self.passed.fetch_add(chunk.len() as u64, Ordering::Relaxed);
        Ok(cut.is_some())
    }
}

fn room(conduct: &Conduct) -> usize {
    let rate = conduct.bytes_per_second.map(|rate| (rate / CHUNKS_PER_SECOND).max(1));
    rate.map_or(CHUNK_BYTES, |bytes| CHUNK_BYTES.min(bytes as usize))
}

fn pause(conduct: &Conduct, bytes: usize) -> Duration {
    conduct
        .bytes_per_second
        .map_or(Duration::ZERO, |rate| Duration::from_secs_f64(bytes as f64 / rate.max(1) as f64))
}

/// Bytes under way on a long line.
#[derive(Default)]
struct Held {
    chunks: VecDeque<(Instant, Vec<u8>)>,
    bytes: usize,
}

impl Held {
    fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    fn add(&mut self, due: Instant, chunk: &[u8]) {
        self.bytes += chunk.len();
        self.chunks.push_back((due, chunk.to_vec()));
    }

    /// Waits until the oldest chunk is due; for ever if there is none.
    async fn due(&mut self) -> Vec<u8> {
        match self.chunks.front() {
            Some((due, _)) => sleep_until((*due).into()).await,
            None => std::future::pending().await,
        }
        let (_, chunk) = self.chunks.pop_front().expect("the front was just looked at");
        self.bytes -= chunk.len();
        chunk
    }
}
