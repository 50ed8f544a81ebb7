//! The one place that reads the time and names tokio's timers.
//!
//! Tokio's timers step one millisecond. In a simulation time is stretched, so that they step a
//! microsecond of the model. Everything here converts.

use crate::proto::Time;
use crate::proto::limits::ACK_DELAY_MS;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::OnceLock;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::task::coop::unconstrained;
use tokio::time::{Instant, Sleep};

/// Returns the nanoseconds since the first call in the process, or since the simulation of this
/// thread began. The time stands still while tokio's clock is paused.
#[inline]
pub(crate) fn now() -> Time {
    #[cfg(feature = "simulation")]
    if let Some(now) = stretch::now() {
        return now;
    }
    static EPOCH: OnceLock<Instant> = OnceLock::new();
    let epoch = *EPOCH.get_or_init(Instant::now);
    let passed = epoch.elapsed();
    // 584 years fit.
    Time(passed.as_secs() * 1_000_000_000 + u64::from(passed.subsec_nanos()))
}

/// Time before a timer goes off from which a later deadline moves it: half the delay of an
/// acknowledgement, 20 ms. While packets pass more often than that, no timer wakes the thread.
/// - less: a timer goes off between two packets, and nothing is due then
/// - more: the timer of a busy link is moved more often
const SOON: Duration = Duration::from_millis(ACK_DELAY_MS / 2);

/// Longest time from now to which such a timer is moved: 40 ms, the delay of an acknowledgement.
/// The deadline after the next packet is then no earlier. A timer for an earlier time wakes the
/// thread at once, which must learn when to wake.
const PUT_OFF: Duration = Duration::from_millis(ACK_DELAY_MS);

/// Step of tokio's timers.
const STEP: Duration = Duration::from_millis(1);

/// Longest time of one timer of tokio: ten days. A longer wait takes several of them.
///
/// Tokio cuts a longer one at 30 years by its clock, which are 10.95 days of a simulation. Not every system
/// has an `Instant` for that time.
const TIMER_MAX: Duration = Duration::from_secs(10 * 24 * 3600);

/// One timer that is moved as rarely as possible. A deadline that moves to a later time costs
/// nothing until the timer would soon go off. Then the timer is moved, too: a thread that wakes
/// for nothing takes a core from the thread that computes there.
#[derive(Default)]
pub struct Alarm {
    sleep: Option<Pin<Box<Sleep>>>,
    armed_for: Option<Time>,
}

impl Alarm {
    /// Is ready once `deadline` has come; wakes the task then, or earlier.
    #[inline]
    pub fn poll(
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
            Some(armed) if now < armed && armed <= deadline => {
                if armed > now.after(SOON) || armed.after(STEP) > deadline {
                    // The timer wakes the task before the deadline, which is when to look again.
                    return Poll::Pending;
                }
                // A timer that is reset to a later time still wakes its thread at the earlier one.
                let deadline = deadline.min(now.after(PUT_OFF));
                if let Some(sleep) = &mut self.sleep {
                    sleep.set(tokio::time::sleep_until(at(deadline, now)));
                }
                self.armed_for = Some(deadline);
            }
            _ => self.arm(deadline, now),
        }
        if self.poll_sleep(context) {
            // The timer was armed for an earlier deadline.
            self.arm(deadline, now);
            self.poll_sleep(context);
        }
        Poll::Pending
    }

    /// Whether the timer wakes the task before `due` and before all deadlines that begin now and are at
    /// least the delay of an acknowledgement away; and needs not be moved.
    #[inline]
    pub(crate) fn precedes(&self, due: Option<Time>, now: Time) -> bool {
        let Some(armed) = self.armed_for else { return false };
        now.after(SOON) < armed && armed <= now.after(PUT_OFF) && due.is_none_or(|due| armed <= due)
    }

    /// Returns whether the timer went off; otherwise it wakes the task when it does.
    #[inline]
    fn poll_sleep(&mut self, context: &mut Context<'_>) -> bool {
        self.sleep.as_mut().is_some_and(|sleep| sleep.as_mut().poll(context).is_ready())
    }

    fn arm(&mut self, deadline: Time, now: Time) {
        let deadline = deadline.min(now.after(TIMER_MAX));
        let at = at(deadline, now);
        match &mut self.sleep {
            Some(sleep) => sleep.as_mut().reset(at),
            None => self.sleep = Some(Box::pin(tokio::time::sleep_until(at))),
        }
        self.armed_for = Some(deadline);
    }
}

/// Returns a deadline as tokio takes it.
#[inline]
fn at(deadline: Time, now: Time) -> Instant {
    Instant::now() + stretched(Duration::from_nanos(deadline.0 - now.0))
}

pin_project_lite::pin_project! {
    /// Waits for a time of any length.
    struct Timer {
        #[pin]
        sleep: Sleep,
        // Time behind the deadline of `sleep`.
        left: Duration,
    }
}

impl Timer {
    /// Begins now, on the current runtime.
    fn new(duration: Duration) -> Timer {
        let first = duration.min(TIMER_MAX);
        Timer { sleep: tokio::time::sleep(stretched(first)), left: duration - first }
    }
}

impl Future for Timer {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut this = self.project();
        loop {
            ready!(this.sleep.as_mut().poll(context));
            if this.left.is_zero() {
                return Poll::Ready(());
            }
            let next = (*this.left).min(TIMER_MAX);
            *this.left -= next;
            let deadline = this.sleep.deadline() + stretched(next);
            this.sleep.as_mut().reset(deadline);
        }
    }
}

pin_project_lite::pin_project! {
    /// A future with a limit.
    struct Within<F> {
        #[pin]
        future: F,
        #[pin]
        timer: Timer,
    }
}

impl<F: Future> Future for Within<F> {
    type Output = Option<F::Output>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        if let Poll::Ready(output) = this.future.poll(context) {
            return Poll::Ready(Some(output));
        }
        // The limit holds for a future that uses up the budget of its task each time, too.
        pin!(unconstrained(this.timer)).poll(context).map(|()| None)
    }
}

/// Waits for `future` at most `limit`. The timer is that of `runtime`, so the caller needs none of
/// its own.
///
/// # Cancel safety
///
/// That of `future`.
pub(crate) fn within<F: Future>(
    runtime: &Handle,
    limit: Duration,
    future: F,
) -> impl Future<Output = Option<F::Output>> + use<F> {
    let _entered = runtime.enter();
    Within { future, timer: Timer::new(limit) }
}

/// Waits for `duration`.
///
/// # Cancel safety
///
/// Safe.
pub(crate) async fn pause(duration: Duration) {
    Timer::new(duration).await;
}

/// Returns the length of `duration` by tokio's clock.
#[cfg(not(feature = "simulation"))]
fn stretched(duration: Duration) -> Duration {
    duration
}

#[cfg(feature = "simulation")]
use stretch::stretched;
#[cfg(feature = "simulation")]
pub use stretch::{Stretched, glance, guarded, moves};
#[cfg(feature = "simulation")]
pub(crate) use stretch::{stop, stopped};

/// Stretched time, for the thread on which a simulation runs.
#[cfg(feature = "simulation")]
mod stretch {
    use crate::proto::Time;
    use std::cell::Cell;
    use std::future::Future;
    use std::task::Waker;
    use std::time::Duration;
    use tokio::time::Instant;

    /// One microsecond of the model is a millisecond of tokio's clock, its step.
    const FACTOR: u32 = 1000;

    /// Most questions for the time while nothing of the world moves. More come only from a task that
    /// wakes itself for ever: then time would never go on.
    const SAME_MAX: u32 = 1_000_000;

    thread_local! {
        static EPOCH: Cell<Option<Instant>> = const { Cell::new(None) };
        /// The last answer, and the number of times that it was repeated.
        static LAST: Cell<(u128, u32)> = const { Cell::new((0, 0)) };
        /// The fault of a task that ends the main program.
        static STOPPED: Cell<Option<String>> = const { Cell::new(None) };
        /// The main program.
        static MAIN: Cell<Option<Waker>> = const { Cell::new(None) };
    }

    /// Stretches the time on this thread until it is dropped.
    #[derive(Debug)]
    pub struct Stretched(());

    impl Stretched {
        /// Begins the model's time now. Called within the runtime, whose clock is paused.
        #[must_use]
        pub fn begin() -> Stretched {
            EPOCH.set(Some(Instant::now()));
            LAST.set((0, 0));
            Stretched(())
        }
    }

    impl Drop for Stretched {
        fn drop(&mut self) {
            EPOCH.set(None);
            STOPPED.set(None);
            MAIN.set(None);
        }
    }

    /// Returns the time of the model, not as a question of a program.
    #[must_use]
    pub fn glance() -> Option<Time> {
        let elapsed = EPOCH.get()?.elapsed().as_nanos() / u128::from(FACTOR);
        u64::try_from(elapsed).ok().map(Time)
    }

    /// Notes that something moves, if not the time: a message, a task's end.
    pub fn moves() {
        LAST.set((LAST.get().0, 0));
    }

    /// Ends the main program for the fault of a task. The first fault counts.
    pub(crate) fn stop(why: String) {
        STOPPED.set(STOPPED.take().or(Some(why)));
        if let Some(main) = MAIN.take() {
            main.wake();
        }
    }

    /// Returns the fault that has not ended the main program yet.
    pub(crate) fn stopped() -> Option<String> {
        STOPPED.take()
    }

    /// Runs the main program of a simulation. A task ends it that wakes itself for ever, or that panics
    /// unseen.
    ///
    /// # Panics
    ///
    /// When such a task is found.
    pub async fn guarded<F: Future>(program: F) -> F::Output {
        let mut program = std::pin::pin!(program);
        std::future::poll_fn(|context| {
            MAIN.set(Some(context.waker().clone()));
            let polled = program.as_mut().poll(context);
            if let Some(why) = stopped() {
                panic!("{why}");
            }
            polled
        })
        .await
    }

    pub(super) fn now() -> Option<Time> {
        let elapsed = EPOCH.get()?.elapsed().as_nanos() / u128::from(FACTOR);
        let (last, times) = LAST.get();
        let times = if last == elapsed { times + 1 } else { 0 };
        LAST.set((elapsed, times));
        if times > SAME_MAX {
            LAST.set((elapsed, 0));
            let host = crate::transport::world::current_name();
            let whose = host.map_or_else(String::new, |host| format!(" of the host {host}"));
            let why = format!(
                "a task{whose} wakes itself for ever {elapsed} ns after the simulation began"
            );
            // The panic ends this task, and the main program with it.
            stop(why.clone());
            panic!("{why}");
        }
        Some(Time(u64::try_from(elapsed).unwrap_or(u64::MAX)))
    }

    pub(crate) fn stretched(duration: Duration) -> Duration {
        if EPOCH.get().is_some() { duration.saturating_mul(FACTOR) } else { duration }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;

    const MS: Duration = Duration::from_millis(1);

    fn parks() -> u64 {
        Handle::current().metrics().worker_park_count(0)
    }

    /// Lets a packet pass after each `gap`, and returns how often the thread slept meanwhile. Each
    /// packet puts the deadline off by `delay`.
    async fn sleeps(gap: Duration, delay: Duration) -> u64 {
        let mut alarm = Alarm::default();
        let before = parks();
        for _ in 0..100 {
            poll_fn(|context| {
                let now = now();
                assert!(alarm.poll(context, Some(now.after(delay)), now).is_pending());
                Poll::Ready(())
            })
            .await;
            tokio::time::sleep(gap).await;
        }
        parks() - before
    }

    #[tokio::test(start_paused = true)]
    async fn the_timer_of_a_busy_link_wakes_nothing() {
        for gap in [1, 3, 9, 10, 15, 19, 21, 30, 39] {
            let without = sleeps(gap * MS, 1000 * gap * MS).await;
            let with = sleeps(gap * MS, PUT_OFF).await;
            assert!(with < without + 5, "a packet each {gap} ms: {with} sleeps, {without} without");
        }
        let [without, with] =
            [sleeps(3 * PUT_OFF, 500 * PUT_OFF).await, sleeps(3 * PUT_OFF, PUT_OFF).await];
        assert!(with >= without + 100, "a quiet link needs its timer: {with}, {without} without");
    }

    #[tokio::test(start_paused = true)]
    async fn a_timer_that_was_put_off_goes_off_at_its_deadline() {
        let mut alarm = Alarm::default();
        let (begun, start) = (now(), Instant::now());
        for (passed, due) in [(0, 40), (16, 40), (32, 72), (68, 300)] {
            tokio::time::sleep_until(start + passed * MS).await;
            poll_fn(|context| {
                assert!(alarm.poll(context, Some(begun.after(due * MS)), now()).is_pending());
                Poll::Ready(())
            })
            .await;
        }
        poll_fn(|context| alarm.poll(context, Some(begun.after(300 * MS)), now())).await;
        let passed = Duration::from_nanos(now().0 - begun.0);
        assert!((300 * MS..302 * MS).contains(&passed), "{passed:?}");
    }
}
