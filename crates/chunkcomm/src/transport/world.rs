//! The world of the nodes on this thread, where it is not the system's: a network, randomness and
//! time of its own. `chunkcomm-simulation` is one.

use super::{BoxFuture, Listener, Transport};
use crate::proto::sorted::SortedMap;
use std::cell::{Cell, RefCell};
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
    static HOSTS: RefCell<SortedMap<u32, Processes>> = const { RefCell::new(SortedMap::new()) };
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

    /// Returns the environment variables of a process.
    fn variables(&self, process: Process) -> Vec<(String, String)>;

    /// Returns the work of one call of the function with this name, if it is known.
    fn work_of(&self, function: &str) -> Option<Duration>;

    /// Occupies a core of the process's host until `work` is done: the time that it takes on the
    /// reference machine. Dropped early, the rest is not done.
    fn compute(&self, process: Process, work: Duration) -> BoxFuture<'static, ()>;

    /// Connects a process to a port of a host, which may be its own.
    fn connect(&self, from: Process, host: &str, port: u16) -> Connecting;

    /// Lets a process listen at a port of its host; 0 chooses one.
    ///
    /// # Errors
    ///
    /// The port is taken.
    fn listen(&self, process: Process, port: u16) -> io::Result<Box<dyn Listener>>;

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

/// A process of a virtual host. Each index has one at a time; most hosts have only index 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process {
    /// The host's number.
    pub host: u32,
    /// The place among the processes that the host has side by side, from 0.
    pub index: u32,
    /// The number of processes that the host had before, of all indexes. Unlike the index it is never
    /// given again.
    pub number: u32,
}

impl Process {
    /// Returns the present process with this index. Indexes below it get processes too.
    #[must_use]
    pub fn of(host: u32, index: u32) -> Process {
        let number = HOSTS.with_borrow_mut(|hosts| match hosts.get_mut(&host) {
            Some(processes) => processes.at(index).number,
            None if index == 0 => 0,
            None => processes_of(hosts, host).at(index).number,
        });
        Process { host, index, number }
    }

    /// Returns the process of this host that is being polled, else the host's first.
    pub(super) fn polled_on(host: u32) -> Process {
        current_process().filter(|it| it.host == host).unwrap_or_else(|| Process::of(host, 0))
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
            let own = processes_of(hosts, self.host).at(self.index);
            if own.tasks.len() >= 2 * own.left.max(16) {
                own.tasks.retain(|task| !task.is_finished());
                own.left = own.tasks.len();
            }
            own.tasks.push(task);
        });
    }

    /// Runs `act` as a part of this process: nodes built in it that listen nowhere dial from its
    /// host. `None` when the process has ended.
    pub fn run<R>(self, act: impl FnOnce() -> R) -> Option<R> {
        if self != Process::of(self.host, self.index) {
            return None;
        }
        let _within = self.enter();
        Some(act())
    }
}

/// Ends the present process with this index: its tasks are aborted, and none of it is polled any
/// more.
pub fn end_process(host: u32, index: u32) {
    end(host, |processes| processes.end(index));
}

/// Ends all present processes of a host, as [`end_process`] does.
pub fn end_processes(host: u32) {
    end(host, |processes| {
        let all = 0..processes.present.len() as u32;
        all.flat_map(|index| processes.end(index)).collect()
    });
}

fn end(host: u32, end: impl FnOnce(&mut Processes) -> Vec<AbortHandle>) {
    // Aborted without the borrow: a task that is dropped may spawn another.
    let tasks = HOSTS.with_borrow_mut(|hosts| end(processes_of(hosts, host)));
    for task in tasks {
        task.abort();
    }
}

fn processes_of(hosts: &mut SortedMap<u32, Processes>, host: u32) -> &mut Processes {
    if !hosts.contains_key(&host) {
        hosts.insert(host, Processes::default());
    }
    hosts.get_mut(&host).expect("it was there or is new")
}

/// The processes of a host. Number 0 is that of the first with index 0.
#[derive(Debug)]
struct Processes {
    /// The number of processes that began.
    begun: u32,
    /// The present ones by index.
    present: Vec<Present>,
}

impl Default for Processes {
    fn default() -> Processes {
        Processes { begun: 1, present: vec![Present::new(0)] }
    }
}

impl Processes {
    /// Returns the present process with this index; it begins if it is new.
    fn at(&mut self, index: u32) -> &mut Present {
        let index = index as usize;
        while self.present.len() <= index {
            let next = self.next();
            self.present.push(next);
        }
        &mut self.present[index]
    }

    fn next(&mut self) -> Present {
        self.begun += 1;
        Present::new(self.begun - 1)
    }

    /// Lets the next process take the place of this one, whose tasks are returned.
    fn end(&mut self, index: u32) -> Vec<AbortHandle> {
        let next = self.next();
        std::mem::replace(self.at(index), next).tasks
    }
}

/// A process that has not ended, and its tasks.
#[derive(Debug)]
struct Present {
    number: u32,
    tasks: Vec<AbortHandle>,
    /// The number of tasks that were left when ended ones were last removed.
    left: usize,
}

impl Present {
    fn new(number: u32) -> Present {
        Present { number, tasks: Vec::new(), left: 0 }
    }
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
    from: Option<Process>,
    host: &str,
    port: u16,
) -> io::Result<Box<dyn Transport>> {
    let world = current()?;
    let nowhere =
        || io::Error::new(io::ErrorKind::NotConnected, "the node is on no simulated host");
    world.connect(from.ok_or_else(nowhere)?, host, port).await
}

pub(super) fn listen(host: &str, port: u16) -> io::Result<Box<dyn Listener>> {
    let world = current()?;
    let host = world.host(host).ok_or(io::ErrorKind::AddrNotAvailable)?;
    world.listen(Process::polled_on(host), port)
}

/// Fills `bytes` from the world of this thread; returns false when it is the system's.
pub(crate) fn fill_random(bytes: &mut [u8]) -> bool {
    let Ok(world) = current() else { return false };
    world.fill_random(bytes);
    true
}
