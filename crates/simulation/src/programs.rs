//! The face for whole programs: a runtime whose clock is the model's.

use crate::lan::Lan;
use crate::system::System;
use crate::watchdog::Watchdog;
use crate::{HostId, Network, Timeline};
use chunkcomm::Address;
use chunkcomm::host::{self, Alarm, Instant, JoinHandle};
use chunkcomm::layer::world::{self, Process, Stretched, panics};
use chunkcomm_proto::Time;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::Duration;
use tokio::runtime::Builder;
use tokio::task::{JoinError, LocalSet};

/// Port at which rank 0 of a launched cluster listens.
const MANAGER_PORT: u16 = 17_700;

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

    /// Runs `future` as a program of `host`: nodes built in it that listen nowhere dial from there.
    /// Tasks that it spawns by `chunkcomm::host::spawn` are of that host too. After
    /// [`Simulation::kill`] and [`Simulation::crash`] the future is never ready.
    ///
    /// # Cancel safety
    ///
    /// That of `future`.
    pub async fn on<F: Future>(&self, host: HostId, future: F) -> F::Output {
        Process::of(host.number()).owned(future).await
    }

    /// Spawns `future` as a program of `host`. Several of one host are parts of one process.
    ///
    /// A panic of the program fails the run, unless the handle is awaited: then [`JoinError`] tells of it.
    /// Await the handle, or let the program panic at an error: an error that it returns is seen nowhere
    /// else.
    ///
    /// # Panics
    ///
    /// The host was stopped by [`Simulation::crash`] and is still off.
    pub fn spawn_on<F>(&self, host: HostId, future: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        let process = self.process_of(host);
        // The runtime's code for a task is then compiled once, and not for each program.
        let future: Pin<Box<dyn Future<Output = F::Output> + Send>> = Box::pin(future);
        process.spawn(future, |task| tokio::spawn(task))
    }

    /// Returns the present process of a host that runs.
    fn process_of(&self, host: HostId) -> Process {
        let off = self
            .with(|network, _| (!network.is_up(host)).then(|| network.host_name(host).to_owned()));
        assert!(off.is_none(), "the host {} is off: restart it first", off.unwrap_or_default());
        Process::of(host.number())
    }

    /// Runs `program` once on each host, as a launcher does: with the environment variables by which
    /// `Cluster::join` of `chunkcomm-cluster` finds its rank and the others. The first host has
    /// rank 0, which listens at port 17700. Returns the tasks by rank.
    ///
    /// A rank that was killed is started again by [`Simulation::spawn_on`]: its variables stay.
    ///
    /// # Panics
    ///
    /// There is no host, one stands there twice, or one is off.
    pub fn launch<F>(
        &self,
        hosts: &[HostId],
        mut program: impl FnMut(usize) -> F,
    ) -> Vec<JoinHandle<F::Output>>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        self.set_places(hosts);
        let each = hosts.iter().enumerate();
        each.map(|(rank, &host)| self.spawn_on(host, program(rank))).collect()
    }

    /// Runs `program` once on each host, as [`Simulation::launch`] does. Its futures need not be
    /// [`Send`]. Returns the results by rank when all have ended: an error for a program that
    /// panicked or was killed.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the programs are dropped with it.
    ///
    /// # Panics
    ///
    /// There is no host.
    pub async fn launch_local<F>(
        &self,
        hosts: &[HostId],
        mut program: impl FnMut(usize) -> F,
    ) -> Vec<Result<F::Output, JoinError>>
    where
        F: Future<Output: 'static> + 'static,
    {
        self.set_places(hosts);
        let local = LocalSet::new();
        let mut tasks = Vec::new();
        for (rank, &host) in hosts.iter().enumerate() {
            let process = self.process_of(host);
            tasks.push(process.spawn(program(rank), |task| local.spawn_local(task)));
        }
        let ends = async {
            let mut results = Vec::new();
            for task in tasks {
                results.push(task.await);
            }
            results
        };
        local.run_until(ends).await
    }

    /// Tells the programs of each host the rank of the host, and where rank 0 listens.
    fn set_places(&self, hosts: &[HostId]) {
        let once: BTreeSet<_> = hosts.iter().collect();
        assert_eq!(once.len(), hosts.len(), "a host has one rank");
        let manager = self.address(*hosts.first().expect("at least one host"), MANAGER_PORT);
        for (rank, &host) in hosts.iter().enumerate() {
            let variables = [
                ("CHUNKCOMM_RANK", rank.to_string()),
                ("CHUNKCOMM_SIZE", hosts.len().to_string()),
                ("CHUNKCOMM_MANAGER", manager.to_string()),
            ];
            self.set_variables(host, variables);
        }
    }

    /// Sets the environment variables of the host's programs (`chunkcomm::host::variables`), in
    /// the place of those that they had.
    pub fn set_variables<N: Into<String>, V: Into<String>>(
        &self,
        host: HostId,
        variables: impl IntoIterator<Item = (N, V)>,
    ) {
        let variables = variables.into_iter().map(|(name, value)| (name.into(), value.into()));
        let variables = variables.collect();
        self.lan.act(|state, _| state.variables.insert(host, variables));
    }

    /// Kills the program of a host, as `kill -9` does: its tasks end where they are, and the system
    /// closes its connections. A program that is spawned on the host afterwards is another process.
    ///
    /// Tasks of plain `tokio::spawn` belong to no host, and go on.
    ///
    /// # Panics
    ///
    /// Outside the run of this simulation.
    pub fn kill(&self, host: HostId) {
        self.end_program(host, Network::close);
    }

    /// Stops a host without a word, as a power failure does. Its peers hear nothing. A program that
    /// is spawned there before [`Simulation::restart`] is an error.
    ///
    /// # Panics
    ///
    /// Outside the run of this simulation.
    pub fn crash(&self, host: HostId) {
        self.end_program(host, Network::crash);
    }

    /// Lets a host that was stopped run again. It answers connections of before by a reset. A program
    /// is to be spawned on it.
    pub fn restart(&self, host: HostId) {
        self.with(|network, now| network.restart(now, host));
    }

    fn end_program(&self, host: HostId, end: fn(&mut Network, Time, HostId)) {
        assert_eq!(RUN.get(), self.run, "a host is stopped within the run of its simulation");
        self.lan.act(|state, now| {
            end(&mut state.network, now, host);
            state.forget(host, now);
        });
        world::end_process(host.number());
    }

    /// Returns the address of `port` on `host`. A node that listens at port 0 gets a port that the
    /// network chooses.
    #[must_use]
    pub fn address(&self, host: HostId, port: u16) -> Address {
        self.lan.address(host, port)
    }
}
