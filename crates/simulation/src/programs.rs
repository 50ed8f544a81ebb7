//! The face for whole programs: a runtime whose clock is the model's.

mod processes;

use crate::lan::Lan;
use crate::system::System;
use crate::watchdog::Watchdog;
use crate::{Network, Timeline};
use chunkcomm::host::{self, Alarm, Instant};
use chunkcomm::layer::world::{self, Stretched, panics};
use chunkcomm_proto::Time;
use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::Duration;
use tokio::runtime::Builder;

/// Time of the model that [`run`] allows: one hour. A program in which nobody does anything any
/// more reaches it at once.
pub const RUN_LIMIT: Duration = Duration::from_secs(3600);

/// Runs `program` on `network` until it ends; the tasks that it spawned end with it.
///
/// # Panics
///
/// - The program does not end within [`RUN_LIMIT`], most probably because everybody waits for
///   somebody.
/// - A program of a host, or a task of `chunkcomm::host::spawn`, panicked, and its handle was not awaited.
///   The panic names the host. It comes at once where the handle was dropped, else when it is dropped, and
///   at the latest when `program` ends.
/// - The call is made within another runtime.
pub fn run<T>(network: Network, program: impl AsyncFnOnce(Simulation) -> T) -> T {
    match run_within(network, RUN_LIMIT, program) {
        Some(done) => done,
        None => panic!(
            "the simulated program did not end within {RUN_LIMIT:?} of its time: most probably \
             everybody waits for somebody"
        ),
    }
}

/// Runs `program` as [`run`] does, with a limit of the caller's; `None` when the limit is reached.
///
/// # Panics
///
/// As [`run`], but for the limit.
pub fn run_within<T>(
    network: Network,
    limit: Duration,
    program: impl AsyncFnOnce(Simulation) -> T,
) -> Option<T> {
    assert!(!host::is_virtual(), "a simulation is run within another");
    let lan = Lan::new(network, || Instant::now().time());
    let _watchdog = Watchdog::start(&lan);
    // These are dropped after the runtime, whose tasks end with it: also by a panic.
    let _entered = world::enter(Arc::new(System(Arc::clone(&lan))));
    let mut builder = Builder::new_current_thread();
    let paused = builder.enable_time().start_paused(true).build().expect("no system call fails");
    let _stretched = paused.block_on(async { Stretched::begin() });
    let runtime = paused;
    let _run = Run::begin();
    let simulation = Simulation { lan: Arc::clone(&lan), run: RUN.get() };
    panics::clear();
    let ended = runtime.block_on(async {
        tokio::spawn(move_on(Arc::downgrade(&lan)));
        let program: Pin<Box<dyn Future<Output = T>>> = Box::pin(program(simulation));
        let program = world::guarded(program);
        host::timeout(limit, program).await.ok()
    });
    panics::check();
    ended
}

/// Lets the network's events happen when they are due.
async fn move_on(lan: Weak<Lan>) {
    let mut alarm = Alarm::default();
    poll_fn(|context| {
        let Some(lan) = lan.upgrade() else { return Poll::Ready(()) };
        loop {
            let (deadline, now) = (lan.poll_move(context), Instant::now().time());
            if alarm.poll(context, deadline, now).is_pending() {
                return Poll::Pending;
            }
        }
    })
    .await;
}

/// A program's handle of the simulation that runs on this thread. Clones share the simulation.
#[derive(Debug, Clone)]
pub struct Simulation {
    lan: Arc<Lan>,
    /// Number of the run that it belongs to.
    run: u64,
}

thread_local! {
    /// Number of the run on this thread; 0 without one.
    static RUN: Cell<u64> = const { Cell::new(0) };
}

/// A run on this thread, until it is dropped.
struct Run;

impl Run {
    fn begin() -> Run {
        static RUNS: AtomicU64 = AtomicU64::new(0);
        RUN.set(RUNS.fetch_add(1, Ordering::Relaxed) + 1);
        Run
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        RUN.set(0);
    }
}

/// The outcome of a run so far, beside its results.
#[derive(Debug, Clone)]
pub struct Report {
    /// Time of the model.
    pub time: Duration,
    /// Digest of all deliveries: the same in each run.
    pub digest: u64,
    /// Steps of the network ([`Network::steps`]).
    pub steps: u64,
    /// The timeline, if [`Network::keep_timeline`] asked for one.
    pub timeline: Option<Timeline>,
}

impl Simulation {
    /// Changes or queries the network at the current time: adds hosts and links, injects faults,
    /// reads the digest of what arrived. `act` calls nothing else of the simulation.
    ///
    /// ```
    /// # use chunkcomm_simulation::{LinkSpec, Network, run};
    /// let names = run(Network::new(1), async |simulation| {
    ///     simulation.with(|network, now| {
    ///         let (a, b) = (network.add_host("a"), network.add_host("b"));
    ///         network.link(a, b, LinkSpec::default());
    ///         network.partition(now, a, b);
    ///         network.host_name(b).to_owned()
    ///     })
    /// });
    /// assert_eq!(names, "b");
    /// ```
    pub fn with<R>(&self, act: impl FnOnce(&mut Network, Time) -> R) -> R {
        self.lan.with(act)
    }

    /// Returns the time of the model since the simulation began.
    #[must_use]
    pub fn now(&self) -> Duration {
        Duration::from_nanos(Instant::now().time().0)
    }

    /// Reports on the run so far.
    #[must_use]
    pub fn report(&self) -> Report {
        self.with(|network, now| Report {
            time: Duration::from_nanos(now.0),
            digest: network.digest(),
            steps: network.steps(),
            timeline: network.timeline(),
        })
    }

    /// Waits in time of the model, in steps of a microsecond.
    ///
    /// # Cancel safety
    ///
    /// Safe.
    pub async fn sleep(&self, duration: Duration) {
        host::sleep(duration).await;
    }

    /// Waits for `future` at most `limit`, in time of the model; `None` when the limit passes
    /// first.
    ///
    /// # Cancel safety
    ///
    /// That of `future`.
    pub async fn within<F: Future>(&self, limit: Duration, future: F) -> Option<F::Output> {
        host::timeout(limit, future).await.ok()
    }
}
