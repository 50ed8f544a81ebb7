//! The turns that a computing task leaves to the others of its runtime.

use std::time::Duration;

use chunkcomm::host::Instant;

/// Time that a task computes before it lets the others run: 50 us.
///
/// A turn costs about 1 us, since the runtime asks the system for events. After each increment of 4 KiB
/// that was half the cost of the increment. The increments of one such time leave as one message, and
/// longer times keep bytes back that could leave.
const TURN_EVERY: Duration = Duration::from_micros(50);

/// Says when a task that computes lets others run.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    last: Option<Instant>,
}

impl Turns {
    /// Lets others run at the first call, and later where the last turn is [`TURN_EVERY`] ago.
    ///
    /// The turn is two yields: one for the task that has something to do now, and one for a link that
    /// first looks whether more is coming.
    pub(crate) async fn take(&mut self) {
        if self.last.is_none_or(|last| last.elapsed() >= TURN_EVERY) {
            tokio::task::yield_now().await;
            tokio::task::yield_now().await;
            self.last = Some(Instant::now());
        }
    }

    /// Lets others run at the next call.
    pub(crate) fn reset(&mut self) {
        self.last = None;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[tokio::test]
    async fn others_run_at_the_first_turn_and_then_not_more_often_than_promised() {
        let ran = Arc::new(AtomicU64::new(0));
        let others = ran.clone();
        tokio::spawn(async move {
            loop {
                others.fetch_add(1, Ordering::Relaxed);
                tokio::task::yield_now().await;
            }
        });
        let (began, mut turns) = (Instant::now(), Turns::default());
        turns.take().await;
        assert_eq!(ran.load(Ordering::Relaxed), 2);
        for _ in 0..10_000 {
            turns.take().await;
        }
        let most = 1 + began.elapsed().as_nanos() as u64 / TURN_EVERY.as_nanos() as u64;
        let before = ran.load(Ordering::Relaxed);
        assert!(before <= 2 * most, "{before} in {most} turns");
        turns.reset();
        turns.take().await;
        assert_eq!(ran.load(Ordering::Relaxed), before + 2);
    }
}
