//! The face for whole programs: a runtime whose clock is the model's.

use super::{HostId, Network};
use crate::Address;
use crate::driver::clock::{self, Alarm, Stretched};
use crate::transport::simulated::lan::{self, Lan};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::Duration;
use tokio::runtime::{Builder, Handle};
use tokio::task::JoinHandle;

/// How much time of the model [`run`] allows: a program in which nobody does
/// anything any more is there at once.
pub const RUN_LIMIT: Duration = Duration::from_secs(3600);

/// Runs `program` on `network` until it ends, and with it what it spawned.
///
/// # Panics
///
/// The program did not end within [`RUN_LIMIT`]: most probably everybody waits
/// for somebody. Also within another runtime.
pub fn run<T>(network: Network, program: impl AsyncFnOnce(Simulation) -> T) -> T {
    match run_within(network, RUN_LIMIT, program) {
        Some(done) => done,
        None => panic!("the simulated program did not end within {RUN_LIMIT:?} of its time"),
    }
}

/// As [`run`], with a limit of one's own; `None` when that was reached.
///
/// # Panics
///
/// Within another runtime.
pub fn run_within<T>(
    network: Network,
    limit: Duration,
    program: impl AsyncFnOnce(Simulation) -> T,
) -> Option<T> {
    let lan = Lan::new(network, clock::now);
    // Dropped after the runtime, whose tasks end with it.
    let _entered = lan::enter(&lan);
    let mut builder = Builder::new_current_thread();
    let runtime = builder.enable_time().start_paused(true).build().expect("no system call fails");
    let _stretched = runtime.block_on(async { Stretched::begin() });
    let simulation = Simulation { lan: Arc::clone(&lan) };
    let done = runtime.block_on(async {
        tokio::spawn(move_on(Arc::downgrade(&lan)));
        clock::within(&Handle::current(), limit, program(simulation)).await
    });
    drop(runtime);
    done
}

/// Lets the network's events happen when they are due.
async fn move_on(lan: Weak<Lan>) {
    let mut alarm = Alarm::default();
    poll_fn(|context| {
        let Some(lan) = lan.upgrade() else { return Poll::Ready(()) };
        loop {
            let deadline = lan.poll_move(context);
            if alarm.poll(context, deadline, clock::now()).is_pending() {
                return Poll::Pending;
            }
        }
    })
    .await;
}

/// The simulation that runs on this thread, for its program. Clones are the
/// same one.
#[derive(Debug, Clone)]
pub struct Simulation {
    lan: Arc<Lan>,
}

impl Simulation {
    /// Changes or asks the network at the time that it is: more hosts and links,
    /// faults, the digest of what arrived.
    ///
    /// ```
    /// # use chunkcomm::simulation::{self, LinkSpec, Network};
    /// let names = simulation::run(Network::new(1), async |simulation| {
    ///     simulation.with(|network, now| {
    ///         let (a, b) = (network.add_host("a"), network.add_host("b"));
    ///         network.link(a, b, LinkSpec::default());
    ///         network.partition(now, a, b);
    ///         network.host_name(b).to_owned()
    ///     })
    /// });
    /// assert_eq!(names, "b");
    /// ```
    pub fn with<R>(&self, act: impl FnOnce(&mut Network, crate::proto::Time) -> R) -> R {
        self.lan.with(act)
    }

    /// Time of the model since the simulation began.
    #[must_use]
    pub fn now(&self) -> Duration {
        Duration::from_nanos(clock::now().0)
    }

    /// Waits in time of the model, in steps of a microsecond.
    ///
    /// # Cancel safety
    ///
    /// Safe.
    pub async fn sleep(&self, duration: Duration) {
        clock::pause(duration).await;
    }

    /// Waits for `future` at most `limit`, in time of the model.
    ///
    /// # Cancel safety
    ///
    /// That of `future`.
    pub async fn within<F: Future>(&self, limit: Duration, future: F) -> Option<F::Output> {
        clock::within(&Handle::current(), limit, future).await
    }

    /// Runs `future` as a program of `host`: nodes built in it that listen
    /// nowhere dial from there. What it spawns is nobody's; see
    /// [`Simulation::spawn_on`].
    ///
    /// # Cancel safety
    ///
    /// That of `future`.
    pub async fn on<F: Future>(&self, host: HostId, future: F) -> F::Output {
        let mut future = pin!(future);
        poll_fn(|context| lan::on_host(host, || future.as_mut().poll(context))).await
    }

    /// Spawns `future` as a program of `host`.
    pub fn spawn_on<F>(&self, host: HostId, future: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        let simulation = self.clone();
        tokio::spawn(async move { simulation.on(host, future).await })
    }

    /// The address of a port of `host`; 0 to listen at one that the network
    /// chooses.
    #[must_use]
    pub fn address(&self, host: HostId, port: u16) -> Address {
        self.lan.address(host, port)
    }
}
