//! The one place that asks what time it is and that names tokio's timers.

use crate::proto::Time;
use std::future::Future;
use std::pin::Pin;
use std::sync::OnceLock;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::time::{Instant, Sleep};

/// Nanoseconds since the first question of the process. Stands still while
/// tokio's clock is paused.
pub(crate) fn now() -> Time {
    static EPOCH: OnceLock<Instant> = OnceLock::new();
    let epoch = *EPOCH.get_or_init(Instant::now);
    Time(u64::try_from(epoch.elapsed().as_nanos()).unwrap_or(u64::MAX))
}

/// One timer that is moved as rarely as can be: a deadline that goes to a later
/// time costs nothing until the earlier one has come.
#[derive(Default)]
pub(crate) struct Alarm {
    sleep: Option<Pin<Box<Sleep>>>,
    armed_for: Option<Time>,
}

impl Alarm {
    /// Ready once `deadline` has come; wakes the task then, or earlier.
    pub(crate) fn poll(
        &mut self,
        context: &mut Context<'_>,
        deadline: Option<Time>,
        now: Time,
    ) -> Poll<()> {
        let Some(deadline) = deadline else { return Poll::Pending };
        if deadline <= now {
            return Poll::Ready(());
        }
        match self.armed_for {
            // It wakes the task before the deadline: that is when to look again.
            Some(armed) if now < armed && armed <= deadline => return Poll::Pending,
            _ => self.arm(deadline, now),
        }
        if self.poll_sleep(context) {
            // It was armed for an earlier deadline.
            self.arm(deadline, now);
            self.poll_sleep(context);
        }
        Poll::Pending
    }

    /// The timer went off; else it wakes the task when it does.
    fn poll_sleep(&mut self, context: &mut Context<'_>) -> bool {
        self.sleep.as_mut().is_some_and(|sleep| sleep.as_mut().poll(context).is_ready())
    }

    fn arm(&mut self, deadline: Time, now: Time) {
        let at = Instant::now() + Duration::from_nanos(deadline.0 - now.0);
        match &mut self.sleep {
            Some(sleep) => sleep.as_mut().reset(at),
            None => self.sleep = Some(Box::pin(tokio::time::sleep_until(at))),
        }
        self.armed_for = Some(deadline);
    }
}

/// Waits for `future` at most `limit`.
/// The timer is that of `runtime`, so that no other needs to be around.
pub(crate) fn within<F: Future>(
    runtime: &Handle,
    limit: Duration,
    future: F,
) -> impl Future<Output = Option<F::Output>> {
    let entered = runtime.enter();
    let timeout = tokio::time::timeout(limit, future);
    drop(entered);
    async { timeout.await.ok() }
}

/// Waits.
pub(crate) async fn pause(duration: Duration) {
    tokio::time::sleep(duration).await;
}
