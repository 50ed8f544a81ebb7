//! Parent's side: a thread that starts the children and waits for them.

use std::fmt;
use std::io::{self, PipeWriter, Write as _};
use std::path::Path;
use std::process::ExitStatus;
use std::task::{Context, Poll};
use std::thread::JoinHandle;

use tokio::process::{Child, Command};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::start_thread;
use super::{LaunchError, Token, place};
use crate::sync::{Giver, handover};
use crate::tasks::spawn_among;

/// End of a child process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChildExit {
    /// Index of the child, from 0.
    pub index: usize,
    /// Process id; the system may use it again.
    pub pid: u32,
    /// Exit status; `None` when the system did not report it, since the program ignores SIGCHLD again,
    /// or has waited for the child itself.
    pub status: Option<ExitStatus>,
}

impl fmt::Display for ChildExit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "child {} (process {}) ended: ", self.index, self.pid)?;
        match self.status {
            Some(status) => write!(f, "{status}"),
            None => f.write_str("its status is not known"),
        }
    }
}

/// Order to a child; an order never goes back to an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Order {
    Run,
    CloseInput,
    Die,
}

/// The orders for the children.
#[derive(Debug)]
struct Orders {
    all: Order,
    /// Children that must die before the others.
    doomed: Vec<u32>,
}

impl Orders {
    fn of(&self, pid: u32) -> Order {
        if self.doomed.contains(&pid) { Order::Die } else { self.all }
    }
}

/// Running child processes. Dropping it kills and reaps them, which takes a few milliseconds.
#[must_use = "children are killed when they are dropped"]
#[derive(Debug)]
pub struct Children {
    pids: Vec<u32>,
    token: Token,
    exits: UnboundedReceiver<ChildExit>,
    orders: watch::Sender<Orders>,
    supervisor: Option<JoinHandle<()>>,
}

impl Children {
    /// Starts the children on a thread of its own that lives as long as they do. The kernel ties a
    /// child to the thread that started it, and a caller's thread may end any time.
    pub(super) fn start(
        commands: Vec<std::process::Command>,
        words: Option<String>,
        program: &Path,
        token: Token,
    ) -> Result<Children, LaunchError> {
        let (orders, orders_seen) = watch::channel(Orders { all: Order::Run, doomed: Vec::new() });
        let (exits_told, exits) = unbounded_channel();
        let (started, starting) = handover();
        let work = move || supervise(commands, words, started, &orders_seen, &exits_told);
        let supervisor = start_thread("chunkcomm-children", Box::new(work))
            .map_err(|source| LaunchError::system("start a thread", program, source))?;
        let outcome = starting.take().expect("the supervisor answers before it ends");
        match outcome {
            Ok(pids) => Ok(Children { pids, token, exits, orders, supervisor: Some(supervisor) }),
            Err(source) => {
                let _ = supervisor.join();
                Err(LaunchError::system("start a process", program, source))
            }
        }
    }

    /// Returns the process ids by index, including those of ended children.
    #[must_use]
    pub fn pids(&self) -> &[u32] {
        &self.pids
    }

    /// Returns the random token that these children were given, by which they are known.
    #[must_use]
    pub fn token(&self) -> Token {
        self.token
    }

    /// Waits until any child ends, and returns each end once; `None` when all ends were returned.
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    pub async fn exited(&mut self) -> Option<ChildExit> {
        self.exits.recv().await
    }

    /// Returns the next end without waiting; `None` when there is none now.
    pub fn try_exited(&mut self) -> Option<ChildExit> {
        self.exits.try_recv().ok()
    }

    /// Polls for the next end, as [`exited`](Children::exited), for hand-written futures.
    ///
    /// It wakes the last context that it was polled with.
    pub fn poll_exited(&mut self, context: &mut Context<'_>) -> Poll<Option<ChildExit>> {
        self.exits.poll_recv(context)
    }

    /// Closes the children's standard input; they then end by themselves, as if this process were
    /// gone.
    pub fn close_input(&mut self) {
        self.order(Order::CloseInput);
    }

    /// Kills the children that still run; their ends are returned as usual.
    pub fn kill(&mut self) {
        self.order(Order::Die);
    }

    /// Kills one of the children, if it still runs; its end is returned as usual.
    pub fn kill_one(&mut self, pid: u32) {
        if self.pids.contains(&pid) {
            self.orders.send_modify(|orders| orders.doomed.push(pid));
        }
    }

    fn order(&self, order: Order) {
        self.orders.send_modify(|orders| orders.all = order.max(orders.all));
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        self.order(Order::Die);
        if let Some(supervisor) = self.supervisor.take() {
            // The supervisor ends when every child is reaped, which SIGKILL makes certain.
            let _ = supervisor.join();
        }
    }
}

/// The supervisor's thread: starts all children, then waits for all of them.
fn supervise(
    commands: Vec<std::process::Command>,
    words: Option<String>,
    started: Giver<io::Result<Vec<u32>>>,
    orders: &watch::Receiver<Orders>,
    exits: &UnboundedSender<ChildExit>,
) {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_io().build() {
        Ok(runtime) => runtime,
        Err(error) => return started.give(Err(error)),
    };
    runtime.block_on(async {
        if let Err(error) = keep_statuses() {
            return started.give(Err(error));
        }
        match start_all(commands, words).await {
            Ok(children) => {
                let pids = children.iter().map(|child| child.pid).collect();
                started.give(Ok(pids));
                let mut running = JoinSet::new();
                for (index, child) in children.into_iter().enumerate() {
                    let watching = watch_over(index, child, orders.clone(), exits.clone());
                    spawn_among(&mut running, Box::pin(watching));
                }
                running.join_all().await;
            }
            Err(error) => started.give(Err(error)),
        }
    });
}

/// Ends an ignoring of SIGCHLD, which a program inherits from a daemon or a wrapper: the system then
/// keeps no status of any child. Another handling of the signal stays.
#[cfg(target_os = "linux")]
pub(crate) fn keep_statuses() -> io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let child = SignalKind::child();
    let ignored = || {
        let status = std::fs::read_to_string("/proc/self/status").ok()?;
        let set = status.lines().find_map(|line| line.strip_prefix("SigIgn:"))?;
        let set = u128::from_str_radix(set.trim(), 16).ok()?;
        Some(set >> (child.as_raw_value() - 1) & 1 == 1)
    };
    // The handler stays when its receiver is dropped.
    if ignored() == Some(true) { signal(child).map(drop) } else { Ok(()) }
}

/// Elsewhere the wait for a child handles the signal.
#[cfg(not(target_os = "linux"))]
pub(crate) fn keep_statuses() -> io::Result<()> {
    Ok(())
}

/// A started child.
struct Started {
    pid: u32,
    child: Child,
    /// Parent's end of the child's standard input; dropping it ends that input.
    input: PipeWriter,
}

/// Starts all children or none: if one fails, those before it are killed and reaped. Each child
/// finds `words` at the start of its standard input.
async fn start_all(
    commands: Vec<std::process::Command>,
    words: Option<String>,
) -> io::Result<Vec<Started>> {
    let mut children: Vec<Started> = Vec::with_capacity(commands.len());
    for command in commands {
        match start(command, words.as_deref()) {
            Ok(child) => children.push(child),
            Err(error) => {
                for mut started in children {
                    let _ = started.child.kill().await;
                }
                return Err(error);
            }
        }
    }
    Ok(children)
}

fn start(mut command: std::process::Command, words: Option<&str>) -> io::Result<Started> {
    let mut input = place::give_input(&mut command)?;
    let child = Command::from(command).kill_on_drop(true).spawn()?;
    if let Some(words) = words {
        // The pipe has room for the words. The end of a child that is gone is reported anyway.
        let _ = input.write_all(words.as_bytes());
    }
    let pid = child.id().expect("a child that was not waited for has an id");
    Ok(Started { pid, child, input })
}

async fn watch_over(
    index: usize,
    Started { pid, mut child, input }: Started,
    mut orders: watch::Receiver<Orders>,
    exits: UnboundedSender<ChildExit>,
) {
    let mut input = Some(input);
    let status = loop {
        let asked = if input.is_some() { Order::CloseInput } else { Order::Die };
        tokio::select! {
            status = child.wait() => break status,
            order = at_least(asked, pid, &mut orders) => {
                if order == Order::Die {
                    // Before its input ends, which it would report.
                    let _ = child.start_kill();
                    drop(input.take());
                    break child.wait().await;
                }
                input = None;
            }
        }
    };
    // Fails when the receiver was dropped, which needs no more ends.
    let _ = exits.send(ChildExit { index, pid, status: status.ok() });
}

/// Waits for an order to this child that goes as far as `asked`.
async fn at_least(asked: Order, pid: u32, orders: &mut watch::Receiver<Orders>) -> Order {
    // An error means that the giver of orders is gone, which is the last order.
    let given = orders.wait_for(|orders| orders.of(pid) >= asked).await;
    given.map_or(Order::Die, |orders| orders.of(pid))
}
