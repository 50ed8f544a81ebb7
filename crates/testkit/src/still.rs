//! Time that does not pass.

use std::sync::mpsc;
use std::time::Duration;
use tokio::time::Instant;

/// Time longer than anything takes that need not wait. After it the clock goes on, so that a
/// hanging task meets its deadlines and is seen.
const LIMIT: Duration = Duration::from_secs(60);

/// Lets `time` pass at once, after earlier words have arrived: the deadlines of everything that
/// waits come. For a runtime of one thread.
pub async fn leap(time: Duration) {
    StandsStill::begin().passes(time).await;
    tokio::time::resume();
}

/// Stops tokio's clock until this ends, though everybody waits: no deadline comes, no pause ends,
/// nobody dials once more. A result that comes all the same took only the time of its bytes and
/// its arithmetic, on any machine.
pub struct StandsStill {
    since: Instant,
    began: std::time::Instant,
    _keeps: mpsc::Sender<()>,
}

impl StandsStill {
    /// Stops the clock from now on; for a runtime of one thread.
    pub fn begin() -> StandsStill {
        tokio::time::pause();
        let (keeps, kept) = mpsc::channel::<()>();
        // A paused clock goes on by itself when nobody has anything to do, unless a task runs that
        // may block.
        drop(tokio::task::spawn_blocking(move || kept.recv_timeout(LIMIT)));
        StandsStill { since: Instant::now(), began: std::time::Instant::now(), _keeps: keeps }
    }

    /// Lets `time` pass after all; whatever had to wait for it is done on return.
    pub async fn passes(&self, time: Duration) {
        // Earlier words have arrived.
        Self::turns().await;
        tokio::time::advance(time).await;
        Self::turns().await;
    }

    async fn turns() {
        for _ in 0..1000 {
            tokio::task::yield_now().await;
        }
    }

    /// Waits until `done` returns true.
    pub async fn until(&self, mut done: impl FnMut() -> bool) {
        while !done() {
            assert!(self.began.elapsed() < LIMIT, "it waits for time to pass");
            tokio::task::yield_now().await;
        }
    }

    /// Checks that no time has passed, and lets the clock go on.
    pub fn end(self, what: &str) {
        let passed = self.since.elapsed();
        assert_eq!(passed, Duration::ZERO, "{what}: time had to pass");
        tokio::time::resume();
    }
}
