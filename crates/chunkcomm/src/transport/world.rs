//! The world of the nodes on this thread, where it is not the system's: a network, randomness and
//! time of its own. `chunkcomm-simulation` is one.

use super::{BoxFuture, Listener, Transport};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::AbortHandle;

thread_local! {
    /// The world of this thread.
    static CURRENT: RefCell<Option<Arc<dyn World>>> = const { RefCell::new(None) };
    /// The process that is being polled.
    static PROCESS: Cell<Option<Process>> = const { Cell::new(None) };
    /// The processes of each host that has had one.
    static HOSTS: RefCell<BTreeMap<u32, HostTasks>> = const { RefCell::new(BTreeMap::new()) };
    /// Work that was declared by the computation that runs, if one does.
    static SPENT: Cell<Option<Duration>> = const { Cell::new(None) };
}

/// Hosts, a network and randomness in the place of the system's, for the programs of a thread.
/// Addresses in it have the form `sim:host/port`.
pub trait World: Send + Sync {
    /// Returns the number of the host with this name.
    fn host(&self, name: &str) -> Option<u32>;

    /// Returns the name of a host.
    fn name_of(&self, host: u32) -> String;

    /// Learns which host's program runs from now on; `None` is the main program.
    fn runs(&self, host: Option<u32>);

    /// Returns the number of a host's cores.
    fn cores(&self, host: u32) -> usize;

    /// Returns the environment variables of a host's programs.
    fn variables(&self, host: u32) -> Vec<(String, String)>;

    /// Returns the work of one call of the function with this name, if it is known.
    fn work_of(&self, function: &str) -> Option<Duration>;

    /// Occupies a core of a host until `work` is done: the time that it takes on the reference
    /// machine. Dropped early, the rest is not done.
    fn compute(&self, host: u32, work: Duration) -> BoxFuture<'static, ()>;

    /// Connects from a host to a port of another.
    fn connect(&self, from: u32, host: &str, port: u16) -> Connecting;

    /// Listens at a port of a host; 0 chooses one.
    ///
    /// # Errors
    ///
    /// There is no such host, or its port is taken.
    fn listen(&self, host: &str, port: u16) -> io::Result<Box<dyn Listener>>;

    /// Fills `bytes` with random ones, which follow from the world's seed.
    fn fill_random(&self, bytes: &mut [u8]);
}

/// A connection on its way.
pub type Connecting = BoxFuture<'static, io::Result<Box<dyn Transport>>>;

/// Makes `world` the world of this thread until the guard is dropped.
pub fn enter(world: Arc<dyn World>) -> Entered {
    CURRENT.with_borrow_mut(|current| *current = Some(world));
    Entered(())
}

/// See [`enter`].
#[must_use = "the world is left when its guard is dropped"]
pub struct Entered(());

impl fmt::Debug for Entered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Entered")
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        // The world may end other things when it is dropped.
        let before = CURRENT.with_borrow_mut(Option::take);
        PROCESS.set(None);
        drop(HOSTS.take());
        SPENT.set(None);
        drop(before);
    }
}

/// Whether this thread has a world of its own.
pub(crate) fn is_entered() -> bool {
    CURRENT.with_borrow(Option::is_some)
}

/// Returns the world of this thread; `None` where it is the system's.
pub(crate) fn of_this_thread() -> Option<Arc<dyn World>> {
    CURRENT.with_borrow(Option::clone)
}

fn current() -> io::Result<Arc<dyn World>> {
    let none = || io::Error::new(io::ErrorKind::NotConnected, "no simulation runs on this thread");
    of_this_thread().ok_or_else(none)
}

/// Adds `work` to that of the computation that runs on this thread, if one does.
pub(crate) fn spend(work: Duration) {
    SPENT.set(SPENT.get().map(|spent| spent.saturating_add(work)));
}

/// Whether the computation that runs on this thread has declared work.
pub(crate) fn has_spent() -> bool {
    SPENT.get().is_some_and(|spent| !spent.is_zero())
}

/// Runs a computation; returns the work that it declared as well.
pub(crate) fn working<R>(function: impl FnOnce() -> R) -> (R, Duration) {
    let outer = Outer(SPENT.replace(Some(Duration::ZERO)));
    let result = function();
    let spent = SPENT.get().unwrap_or_default();
    drop(outer);
    (result, spent)
}

/// The work of the computation around another one, restored when this is dropped: also by a panic.
struct Outer(Option<Duration>);

impl Drop for Outer {
    fn drop(&mut self) {
        SPENT.set(self.0);
    }
}

/// A process of a virtual host. A host has one at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process {
    /// The host's number.
    pub host: u32,
    /// The number of processes that the host had before.
    pub number: u32,
}

impl Process {
    /// Returns the present process of a host.
    #[must_use]
    pub fn of(host: u32) -> Process {
        let ended = HOSTS.with_borrow(|hosts| hosts.get(&host).map(|host| host.ended));
        Process { host, number: ended.unwrap_or_default() }
    }

    /// Makes the process the present one until the guard is dropped.
    pub(crate) fn enter(self) -> impl Drop {
        let before = Before(PROCESS.replace(Some(self)));
        runs();
        before
    }

    /// Notes a task, which ends with the process.
    pub fn owns(self, task: AbortHandle) {
        HOSTS.with_borrow_mut(|hosts| {
            let host = hosts.entry(self.host).or_default();
            if host.tasks.len() >= 2 * host.left.max(16) {
                host.tasks.retain(|task| !task.is_finished());
                host.left = host.tasks.len();
            }
            host.tasks.push(task);
        });
    }

    /// Runs `act` as a part of this process: nodes built in it that listen nowhere dial from its
    /// host. `None` when the process has ended.
    pub fn run<R>(self, act: impl FnOnce() -> R) -> Option<R> {
        if self != Process::of(self.host) {
            return None;
        }
        let _within = self.enter();
        Some(act())
    }
}

/// Ends the present process of a host: its tasks are aborted, and none of it is polled any more.
pub fn end_process(host: u32) {
    let tasks = HOSTS.with_borrow_mut(|hosts| {
        let host = hosts.entry(host).or_default();
        host.ended += 1;
        std::mem::take(&mut host.tasks)
    });
    for task in tasks {
        task.abort();
    }
}

/// The tasks of a host's present process.
#[derive(Debug, Default)]
struct HostTasks {
    /// The number of processes that ended.
    ended: u32,
    tasks: Vec<AbortHandle>,
    /// The number of tasks that were left when ended ones were last removed.
    left: usize,
}

/// Lets the world learn which host's program runs.
fn runs() {
    if let Some(world) = of_this_thread() {
        world.runs(current_host());
    }
}

/// The process that was polled before, restored when this is dropped: also by a panic.
struct Before(Option<Process>);

impl Drop for Before {
    fn drop(&mut self) {
        PROCESS.set(self.0);
        runs();
    }
}

/// Returns the process that is being polled.
pub(crate) fn current_process() -> Option<Process> {
    PROCESS.get()
}

/// Returns the host whose program is being polled.
pub(crate) fn current_host() -> Option<u32> {
    current_process().map(|process| process.host)
}

/// Returns the name of the host whose program is being polled.
pub(crate) fn current_name() -> Option<String> {
    of_this_thread().zip(current_host()).map(|(world, host)| world.name_of(host))
}

/// Returns the host with this name, in the world of this thread.
pub(super) fn host_named(name: &str) -> Option<u32> {
    current().ok()?.host(name)
}

pub(super) async fn connect(
    from: Option<u32>,
    host: &str,
    port: u16,
) -> io::Result<Box<dyn Transport>> {
    let world = current()?;
    let nowhere =
        || io::Error::new(io::ErrorKind::NotConnected, "the node is on no simulated host");
    world.connect(from.ok_or_else(nowhere)?, host, port).await
}

pub(super) fn listen(host: &str, port: u16) -> io::Result<Box<dyn Listener>> {
    current()?.listen(host, port)
}

/// Fills `bytes` from the world of this thread; returns false when it is the system's.
pub(crate) fn fill_random(bytes: &mut [u8]) -> bool {
    let Ok(world) = current() else { return false };
    world.fill_random(bytes);
    true
}
