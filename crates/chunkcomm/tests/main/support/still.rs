//! Time that does not pass.

use std::sync::mpsc;
use std::time::Duration;
use tokio::time::Instant;

/// Longer than anything takes that has not to wait. After it the clock goes on, so that what
/// hangs meets its deadlines and is seen.
const LIMIT: Duration = Duration::from_secs(60);

/// Tokio's clock stands still until this ends, though everybody waits: no deadline comes, no
/// pause ends, nobody dials once more. What is done all the same took as long as the bytes and
/// the arithmetic that it needs, on any machine.
pub(crate) struct StandsStill {
    since: Instant,
    began: std::time::Instant,
    _keeps: mpsc::Sender<()>,
}

impl StandsStill {
    /// From now on; for a runtime of one thread.
    pub(crate) fn begin() -> StandsStill {
        tokio::time::pause();
        let (keeps, kept) = mpsc::channel::<()>();
        // A paused clock goes on by itself when nobody has anything to do, unless something
        // runs that may block.
        drop(tokio::task::spawn_blocking(move || kept.recv_timeout(LIMIT)));
        StandsStill { since: Instant::now(), began: std::time::Instant::now(), _keeps: keeps }
    }

    /// So much time passes after all, and what had to wait for it is done.
    pub(crate) async fn passes(&self, time: Duration) {
        // What was said before has arrived.
        Self::turns().await;
        tokio::time::advance(time).await;
        Self::turns().await;
    }

    async fn turns() {
        for _ in 0..1000 {
            tokio::task::yield_now().await;
        }
    }

    /// Waits until `done` says so.
    pub(crate) async fn until(&self, mut done: impl FnMut() -> bool) {
        while !done() {
            assert!(self.began.elapsed() < LIMIT, "it waits for time to pass");
            tokio::task::yield_now().await;
        }
    }

    /// No time has passed; it does so again.
    pub(crate) fn end(self, what: &str) {
        let passed = self.since.elapsed();
        assert_eq!(passed, Duration::ZERO, "{what}: time had to pass");
        tokio::time::resume();
    }
}
