//! A connection through the proxy.

use super::lane::{Conduct, Lane, Stop};
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::sync::watch;

/// Longest time for which the forgotten side of a half-open connection is kept: 60 s.
const FORGOTTEN: Duration = Duration::from_secs(60);

/// Direction of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the side that dialled.
    Forth,
    /// To the side that dialled.
    Back,
}

/// Way of cutting a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// Both sides are reset; bytes under way are lost.
    Reset,
    /// Both directions end; bytes under way arrive, the last packet in part.
    Close,
    /// The side that dialled is reset; the other believes the connection alive.
    HalfOpen,
}

/// Reason for which a connection is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// Both nodes have ended their direction.
    Said,
    /// A node reset it.
    Broken,
    /// The lab cut it.
    Cut(Cut),
}

/// The conduct of both directions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Conducts {
    /// From the side that dialled.
    pub forth: Conduct,
    /// To the side that dialled.
    pub back: Conduct,
    /// Way of the cut, if one of the conducts has a place for it.
    pub cut: Option<Cut>,
}

impl Conducts {
    /// Returns good conduct, except for a cut at a place of one direction.
    pub fn cut_at(direction: Direction, bytes: u64, how: Cut) -> Self {
        let mut conducts = Self { cut: Some(how), ..Self::default() };
        match direction {
            Direction::Forth => conducts.forth.cut_at = Some(bytes),
            Direction::Back => conducts.back.cut_at = Some(bytes),
        }
        conducts
    }
}

/// One connection and its history.
#[derive(Debug)]
pub struct Wire {
    /// Index of the connection in the order of dialling.
    pub index: usize,
    /// Time when it was dialled.
    pub dialled: Instant,
    /// From the side that dialled.
    pub forth: Lane,
    /// To the side that dialled.
    pub back: Lane,
    struck: OnceLock<Instant>,
    ended: OnceLock<Instant>,
    /// Way of the cut when a lane reaches its place.
    fuse: watch::Sender<Cut>,
    /// Cut that is to be made at once.
    cut: watch::Sender<Option<Cut>>,
    events: watch::Sender<u64>,
}

impl Wire {
    pub(super) fn new(index: usize, conducts: Conducts, events: watch::Sender<u64>) -> Self {
        Self {
            index,
            dialled: Instant::now(),
            forth: Lane::new(conducts.forth),
            back: Lane::new(conducts.back),
            struck: OnceLock::new(),
            ended: OnceLock::new(),
            fuse: watch::channel(conducts.cut.unwrap_or(Cut::Reset)).0,
            cut: watch::channel(None).0,
            events,
        }
    }

    /// Returns the lane of a direction.
    pub fn lane(&self, direction: Direction) -> &Lane {
        match direction {
            Direction::Forth => &self.forth,
            Direction::Back => &self.back,
        }
    }

    /// Cuts the connection at once.
    pub fn cut(&self, how: Cut) {
        self.cut.send_replace(Some(how));
    }

    /// Cuts the connection when `bytes` further bytes have passed in a direction.
    pub fn cut_after(&self, direction: Direction, bytes: u64, how: Cut) {
        self.fuse.send_replace(how);
        let lane = self.lane(direction);
        lane.set(|conduct| conduct.cut_at = Some(lane.passed() + bytes));
    }

    /// Makes one direction a blackhole, or both.
    pub fn swallow(&self, directions: &[Direction]) {
        self.struck.get_or_init(Instant::now);
        for &direction in directions {
            self.lane(direction).set(|conduct| conduct.blackhole = true);
        }
    }

    /// Stalls both directions until they are released.
    pub fn stall(&self) {
        self.struck.get_or_init(Instant::now);
        self.set_stalled(true);
    }

    /// Lets stalled directions continue.
    pub fn release(&self) {
        self.set_stalled(false);
    }

    fn set_stalled(&self, stalled: bool) {
        for lane in [&self.forth, &self.back] {
            lane.set(|conduct| conduct.stalled = stalled);
        }
    }

    /// Returns the time when it was cut, or when bytes began to vanish or to stand still.
    pub fn struck(&self) -> Option<Instant> {
        self.struck.get().copied()
    }

    /// Whether the connection has not ended.
    pub fn is_live(&self) -> bool {
        self.ended.get().is_none()
    }

    /// Carries bytes between the two sockets until the connection ends or is cut.
    pub(super) async fn carry(&self, mut dialler: TcpStream, mut target: TcpStream) {
        let (from_dialler, to_dialler) = dialler.split();
        let (from_target, to_target) = target.split();
        let mut asked = self.cut.subscribe();
        let stop = tokio::select! {
            biased;
            Ok(how) = asked.wait_for(Option::is_some) => End::Cut(how.unwrap_or(Cut::Reset)),
            end = self.both(
                self.forth.pump(from_dialler, to_target, || self.tell()),
                self.back.pump(from_target, to_dialler, || self.tell()),
            ) => end,
        };
        if let End::Cut(_) = stop {
            // Noted before the nodes can know.
            self.struck.get_or_init(Instant::now);
        }
        // A socket that is gone needs no reset.
        if matches!(stop, End::Broken | End::Cut(Cut::Reset | Cut::HalfOpen)) {
            let _ = dialler.set_zero_linger();
        }
        if matches!(stop, End::Broken | End::Cut(Cut::Reset)) {
            let _ = target.set_zero_linger();
        }
        self.end();
        drop(dialler);
        if stop == End::Cut(Cut::HalfOpen) {
            let _ = tokio::time::timeout(FORGOTTEN, swallow(&mut target)).await;
        }
    }

    /// Runs both lanes until the connection is over.
    async fn both(
        &self,
        forth: impl Future<Output = Stop>,
        back: impl Future<Output = Stop>,
    ) -> End {
        tokio::pin!(forth, back);
        let last = tokio::select! {
            stop = &mut forth => if stop == Stop::End { back.await } else { stop },
            stop = &mut back => if stop == Stop::End { forth.await } else { stop },
        };
        match last {
            Stop::End => End::Said,
            Stop::Broken => End::Broken,
            Stop::CutHere => End::Cut(*self.fuse.borrow()),
        }
    }

    pub(super) fn end(&self) {
        self.ended.get_or_init(Instant::now);
        self.tell();
    }

    pub(super) fn tell(&self) {
        self.events.send_modify(|count| *count += 1);
    }
}

/// Reads and drops bytes until the socket ends.
async fn swallow(socket: &mut TcpStream) {
    let mut buffer = vec![0; 4096];
    while socket.read(&mut buffer).await.is_ok_and(|bytes| bytes > 0) {}
}
