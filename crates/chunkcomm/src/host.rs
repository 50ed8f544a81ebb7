//! The machine that a program runs on: its time, randomness, tasks and cores.
//!
//! A program that takes these from here runs in a simulation as well, unchanged, as a program of a
//! virtual host. There a second lasts as long as the events in it, and one seed is one run. On a
//! real machine the functions are those of tokio and of the system.
//!
//! | in the place of | use |
//! |---|---|
//! | `std::time::Instant` | [`Instant`] |
//! | `std::time::SystemTime` | [`unix_time`] |
//! | `tokio::time::{sleep, timeout, interval}` | [`sleep`], [`timeout`], [`interval`] |
//! | `tokio::spawn` | [`spawn`] |
//! | `tokio::task::spawn_blocking`, a thread that computes | [`compute`] |
//! | `copy_from_slice`, `to_vec`, `drop` of many megabytes | [`memory`] |
//! | `rand`, `getrandom` | [`fill_random`], [`random`] |
//! | `HashMap::new` where the order of a walk matters | [`RandomState`], or `BTreeMap` |
//! | `std::env::var` for the place of a process | [`variables`] |
//! | `tokio::select!` | the same with `biased;` |
//!
//! ```
//! use chunkcomm::host;
//! use std::time::Duration;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! let started = host::Instant::now();
//! host::sleep(Duration::from_millis(2)).await;
//! assert!(started.elapsed() >= Duration::from_millis(2));
//! let sum = host::compute(Duration::ZERO, || (1..=10).sum::<u32>()).await;
//! assert_eq!(sum, 55);
//! # }
//! ```

use crate::Address;
pub use crate::driver::clock::Alarm;
use crate::driver::{clock, entropy};
pub use crate::node::{ONE_COPY_VARIABLE, SAME_HOST_VARIABLE};
pub use crate::portable::PORTABLE_VARIABLE;
pub use crate::proto::Time;
#[cfg(feature = "simulation")]
use crate::transport::world;
use std::hash::{BuildHasher, DefaultHasher, Hasher};
use std::io;
use std::ops::{Add, AddAssign, Sub};
use std::task::Poll;
use std::time::Duration;
use tokio::runtime::Handle;

/// A point in time of this host. In a simulation it is the time of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(Time);

impl Instant {
    /// Returns the present time, in steps of a nanosecond; in a simulation, of a microsecond.
    #[must_use]
    pub fn now() -> Instant {
        Instant(clock::now())
    }

    /// Returns the time since this instant; zero if it lies ahead.
    #[must_use]
    pub fn elapsed(self) -> Duration {
        Instant::now() - self
    }

    /// Returns the instant this much later; `None` beyond the clock's range of 584 years.
    #[must_use]
    pub fn checked_add(self, duration: Duration) -> Option<Instant> {
        let nanos = u64::try_from(duration.as_nanos()).ok()?;
        Some(Instant(Time(self.0.0.checked_add(nanos)?)))
    }

    /// Returns the time as pure machines and an [`Alarm`] take it.
    #[must_use]
    pub fn time(self) -> Time {
        self.0
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;

    /// Returns the instant this much later, or the last one of the clock's range.
    fn add(self, duration: Duration) -> Instant {
        Instant(self.0.after(duration))
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, duration: Duration) {
        *self = *self + duration;
    }
}

impl Sub for Instant {
    type Output = Duration;

    /// Returns the time from `earlier` to this instant; zero if `earlier` is later.
    fn sub(self, earlier: Instant) -> Duration {
        Duration::from_nanos(self.0.0.saturating_sub(earlier.0.0))
    }
}

/// The error of a [`timeout`]: its time was over.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the time is over")]
pub struct Elapsed(());

crate::debug_with_causes!(Elapsed);

/// Returns the time since 1970 by the clock on the wall, which may be set; in a simulation the time of
/// the model, which begins with 0.
#[must_use]
pub fn unix_time() -> Duration {
    #[cfg(feature = "simulation")]
    if world::of_this_thread().is_some() {
        return Duration::from_nanos(clock::now().0);
    }
    std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default()
}

/// Waits for `duration`.
///
/// # Cancel safety
///
/// Safe.
pub async fn sleep(duration: Duration) {
    after_work().await;
    clock::pause(duration).await;
}

/// Waits until the work is done that the async task around it has declared by [`spend`]: what follows
/// happens after it. Returns at once on a real machine, and where nothing was declared.
///
/// [`sleep`] does so itself.
///
/// # Cancel safety
///
/// Safe.
pub async fn after_work() {
    #[cfg(feature = "simulation")]
    std::future::poll_fn(|context| {
        if world::has_spent() {
            // The work passes when this poll has ended.
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(())
    })
    .await;
}

/// Waits until `deadline`; returns at once if it has passed.
///
/// # Cancel safety
///
/// Safe.
pub async fn sleep_until(deadline: Instant) {
    // A timer of tokio would take a millisecond for no time.
    match deadline - Instant::now() {
        Duration::ZERO => tokio::task::coop::consume_budget().await,
        left => clock::pause(left).await,
    }
}

/// Waits for `future`, at most for `limit`.
///
/// # Errors
///
/// [`Elapsed`]: the limit passed first, and `future` is dropped.
///
/// # Cancel safety
///
/// That of `future`.
///
/// # Panics
///
/// Outside a tokio runtime.
pub fn timeout<F: Future>(
    limit: Duration,
    future: F,
) -> impl Future<Output = Result<F::Output, Elapsed>> {
    timeout_on(&Handle::current(), limit, future)
}

/// As [`timeout`], with a timer of `runtime`: the caller needs none of its own.
///
/// # Errors
///
/// As [`timeout`].
///
/// # Cancel safety
///
/// That of `future`.
pub fn timeout_on<F: Future>(
    runtime: &Handle,
    limit: Duration,
    future: F,
) -> impl Future<Output = Result<F::Output, Elapsed>> + use<F> {
    let limited = clock::within(runtime, limit, future);
    async { limited.await.ok_or(Elapsed(())) }
}

/// Waits for `future`, at most until `deadline`.
///
/// # Errors
///
/// As [`timeout`].
///
/// # Cancel safety
///
/// That of `future`.
///
/// # Panics
///
/// Outside a tokio runtime.
pub fn timeout_at<F: Future>(
    deadline: Instant,
    future: F,
) -> impl Future<Output = Result<F::Output, Elapsed>> {
    let limited = timeout(deadline - Instant::now(), future);
    async move {
        let mut limited = std::pin::pin!(limited);
        std::future::poll_fn(|context| match limited.as_mut().poll(context) {
            // A timer of tokio would take a millisecond for no time.
            Poll::Pending if Instant::now() >= deadline => Poll::Ready(Err(Elapsed(()))),
            polled => polled,
        })
        .await
    }
}

/// Ticks at a fixed rate, made by [`interval`].
#[derive(Debug)]
pub struct Interval {
    next: Instant,
    period: Duration,
}

/// Returns ticks every `period`; the first comes at once. Late ticks follow one another without a
/// wait until they have caught up.
///
/// # Panics
///
/// `period` is zero.
#[must_use]
pub fn interval(period: Duration) -> Interval {
    assert!(!period.is_zero(), "an interval has a period");
    Interval { next: Instant::now(), period }
}

impl Interval {
    /// Waits for the next tick; returns the time for which it was due.
    ///
    /// # Cancel safety
    ///
    /// Safe: a tick that was waited for comes later.
    pub async fn tick(&mut self) -> Instant {
        sleep_until(self.next).await;
        let due = self.next;
        self.next += self.period;
        due
    }
}

/// Lets other tasks run. In a simulation a microsecond passes, so that a task that looks for
/// something again and again does not stop the time.
///
/// # Cancel safety
///
/// Safe.
pub async fn yield_now() {
    if is_virtual() {
        return sleep(Duration::from_micros(1)).await;
    }
    tokio::task::yield_now().await;
}

pub use crate::driver::memory;
pub use crate::driver::tasks::{Here, JoinHandle, here, is_virtual, spawn, spawn_on};

/// Runs `function`, which computes, without keeping the tasks of this thread from running.
///
/// - On a real machine it runs on one of the runtime's threads for blocking work; `work` is not
///   used.
/// - In a simulation a core of the host is occupied for `work`: the time that the function takes on
///   the reference machine. A host of half the speed takes twice as long, and computations share
///   the cores. Then the function runs at once.
///
/// # Cancel safety
///
/// When the future is dropped, a function that has begun runs to its end unseen.
///
/// # Panics
///
/// When `function` does, outside a tokio runtime, and in a simulation outside the programs of its
/// hosts.
pub async fn compute<R: Send + 'static>(
    work: Duration,
    function: impl FnOnce() -> R + Send + 'static,
) -> R {
    if is_virtual() {
        Work(work).done().await;
        let (result, declared) = working(function);
        declared.done().await;
        return result;
    }
    match tokio::task::spawn_blocking(function).await {
        Ok(result) => result,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime ends, and drops this future as well.
            Err(_) => std::future::pending().await,
        },
    }
}

/// Declares the work of the computation that calls this: the time that it takes on the reference
/// machine. Nothing happens on a real machine, and outside a computation.
///
/// For functions of a farm and of [`compute`] whose work depends on their input. In a simulation
/// their core is occupied for as long.
pub fn spend(work: Duration) {
    #[cfg(feature = "simulation")]
    world::spend(work);
    #[cfg(not(feature = "simulation"))]
    let _ = work;
}

/// Runs `function`, a computation, here and now; returns the work that it declared by [`spend`] as
/// well.
///
/// For crates that run functions of others.
#[inline]
pub fn working<R>(function: impl FnOnce() -> R) -> (R, Work) {
    #[cfg(feature = "simulation")]
    if is_virtual() {
        clock::moves();
        let (result, work) = world::working(function);
        return (result, Work(work));
    }
    (function(), Work(Duration::ZERO))
}

/// The work of a computation that has run; see [`working`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "in a simulation the work takes its time when it is awaited"]
pub struct Work(Duration);

impl Work {
    /// Occupies a core for the work. Returns at once on a real machine.
    ///
    /// # Panics
    ///
    /// In a simulation, outside the programs of its hosts.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the rest of the work is not done.
    pub async fn done(self) {
        #[cfg(feature = "simulation")]
        if let (false, Some(world)) = (self.0.is_zero(), world::of_this_thread()) {
            let process = world::current_process();
            let process =
                process.expect("a program that computes is run on a host of the simulation");
            world.compute(process, self.0).await;
        }
    }
}

/// Declares the work of one call of a function with this name, where the simulated world knows it.
pub fn spend_call(function: &str) {
    #[cfg(feature = "simulation")]
    if let Some(work) = world::of_this_thread().and_then(|world| world.work_of(function)) {
        world::spend(work);
    }
    #[cfg(not(feature = "simulation"))]
    let _ = function;
}

/// Returns the name of the virtual host; `None` on a real machine, and outside the host's programs.
#[must_use]
pub fn virtual_name() -> Option<String> {
    #[cfg(feature = "simulation")]
    let name = world::current_name();
    #[cfg(not(feature = "simulation"))]
    let name = None;
    name
}

/// Returns the address of a port of the virtual host, as [`virtual_name`]; port 0 lets the network
/// choose one to listen on.
#[must_use]
pub fn virtual_address(port: u16) -> Option<Address> {
    #[cfg(feature = "simulation")]
    let address = virtual_name().map(|host| Address::Simulated { host, port });
    #[cfg(not(feature = "simulation"))]
    let address = {
        let _ = port;
        None
    };
    address
}

/// Returns the number of cores that the program may use; 1 where the system does not say.
#[must_use]
pub fn cores() -> usize {
    #[cfg(feature = "simulation")]
    if let Some((world, host)) = world::of_this_thread().zip(world::current_host()) {
        return world.cores(host);
    }
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Returns the number of this process. In a simulation it follows from the host, and from the
/// number of processes that the host had before.
#[must_use]
pub fn process_id() -> u32 {
    #[cfg(feature = "simulation")]
    if let Some(process) = world::current_process() {
        return process.host + 1 + (process.number << 16);
    }
    std::process::id()
}

/// Returns the environment variables of this process. Bytes that are not UTF-8 are replaced.
#[must_use]
pub fn variables() -> Vec<(String, String)> {
    #[cfg(feature = "simulation")]
    if let Some(world) = world::of_this_thread() {
        return world::current_process().map_or_else(Vec::new, |it| world.variables(it));
    }
    let text = |text: std::ffi::OsString| text.to_string_lossy().into_owned();
    std::env::vars_os().map(|(name, value)| (text(name), text(value))).collect()
}

/// Fills `bytes` with unguessable ones; in a simulation, with bytes that follow from its seed.
///
/// # Errors
///
/// The system gave none.
pub fn fill_random(bytes: &mut [u8]) -> io::Result<()> {
    entropy::fill(bytes).map_err(io::Error::other)
}

/// Returns an unguessable number; in a simulation, one that follows from its seed.
///
/// # Errors
///
/// The system gave none.
pub fn random() -> io::Result<u64> {
    let mut bytes = [0; 8];
    fill_random(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}

/// Builds hashers with a key of their own, for `HashMap` and `HashSet`. In a simulation the key
/// follows from its seed, so that walks have the same order in each run.
#[derive(Clone, Copy, Debug)]
pub struct RandomState(u64);

impl Default for RandomState {
    /// # Panics
    ///
    /// The system gives no random numbers.
    fn default() -> RandomState {
        RandomState(random().expect("the system gives random numbers"))
    }
}

impl BuildHasher for RandomState {
    type Hasher = DefaultHasher;

    fn build_hasher(&self) -> DefaultHasher {
        let mut hasher = DefaultHasher::new();
        hasher.write_u64(self.0);
        hasher
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::task::{Context, Waker};

    #[test]
    fn instants_are_ordered_and_do_not_go_below_zero() {
        let first = Instant::now();
        let second = first + Duration::from_secs(1);
        assert_eq!(second - first, Duration::from_secs(1));
        assert_eq!(first - second, Duration::ZERO);
        assert_eq!(first.checked_add(Duration::MAX), None);
    }

    #[tokio::test(start_paused = true)]
    async fn an_interval_catches_up() {
        let mut ticks = interval(Duration::from_secs(1));
        let first = ticks.tick().await;
        tokio::time::advance(Duration::from_secs(3)).await;
        for late in 1..=3 {
            assert_eq!(ticks.tick().await - first, Duration::from_secs(late));
        }
    }

    fn at_once<F: Future>(future: F) -> F::Output {
        match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(output) => output,
            Poll::Pending => panic!("it waits"),
        }
    }

    #[tokio::test]
    async fn a_time_that_has_passed_is_not_waited_for() {
        let mut ticks = interval(Duration::from_micros(10));
        let past = Instant::now();
        std::thread::sleep(Duration::from_millis(1));
        // By tokio's timers a millisecond each.
        at_once(sleep_until(past));
        assert!(at_once(timeout_at(past, std::future::pending::<()>())).is_err());
        for _ in 0..100 {
            at_once(ticks.tick());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_lasts_longer_ends_by_the_limit() {
        let late = timeout(Duration::from_secs(1), std::future::pending::<()>()).await;
        assert_eq!(late.unwrap_err().to_string(), "the time is over");
        assert_eq!(timeout(Duration::from_secs(1), async { 7 }).await, Ok(7));
    }

    #[tokio::test]
    async fn a_computation_panics_where_it_is_awaited() {
        let caught = tokio::spawn(compute(Duration::ZERO, || panic!("no luck"))).await;
        assert!(caught.unwrap_err().is_panic());
    }

    #[test]
    fn a_state_hashes_alike_and_another_differs() {
        let state = RandomState::default();
        assert_eq!(state.hash_one(7), state.hash_one(7));
        assert_ne!(state.hash_one(7), RandomState::default().hash_one(7));
    }
}
