//! Errors of a farm, one enum for each operation. Every message names the worker.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use chunkcomm::codec::EncodeError;
use chunkcomm::error::LinkCause;
use chunkcomm::error::Plain;
use chunkcomm::{
    AcceptError, ConnectError, Loss, LossKind, NodeError, RecvError, SendError, with_causes,
};
use chunkcomm_cluster::cluster::{Death, NameError};
use chunkcomm_cluster::launch::{ChildExit, LaunchError};
use chunkcomm_cluster::registry::{Difference, Signature};

use crate::journal::JournalError;
use crate::name::WorkerName;

pub use serve::ServeError;
pub use task::TaskError;

mod serve;
mod task;

/// The end of a worker, as the cause of its [`Loss`]. A loss has another cause where a link
/// ([`RecvError`], [`SendError`]) or a cluster ([`Death`]) says more.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum WorkerEnd {
    /// The worker's process ended.
    #[error("its process ended{}", told(.0.status))]
    Exited(ChildExit),
    /// The worker's thread ended with this reason; empty for an orderly end.
    #[error("its thread ended{}", told((!.0.is_empty()).then(|| Plain(.0))))]
    Thread(String),
    /// The worker was below a sub-farmer, which reported its loss.
    #[error("below it {0}")]
    Below(Loss),
    /// The worker closed its channel.
    #[error("it closed its channel")]
    Closed,
    /// The worker sent bytes that answer no assignment of its own.
    #[error("it sent what is no answer to any assignment")]
    Malformed,
    /// The farm had ended and killed the worker's process.
    #[error("it was killed with the farm")]
    Dismissed,
    /// The worker's process was ended, since its task did not end in time.
    #[error("it was ended at task {task}, which took too long")]
    Stuck {
        /// Index of the task.
        task: u64,
    },
    /// The worker had tasks and answered nothing for this time, as a stopped process does. A worker
    /// process was then killed.
    #[error("it had tasks and answered nothing for {} s", .0.as_secs_f64())]
    Silent(Duration),
    /// The worker had not ended after this time. A worker process was then killed.
    #[error("it was still at work after {} s", .0.as_secs_f64())]
    Late(Duration),
}

/// Returns a reason for the end of a text, if there is one.
fn told(reason: Option<impl fmt::Display>) -> String {
    reason.map_or_else(String::new, |reason| format!(": {reason}"))
}

chunkcomm::debug_with_causes!(WorkerEnd);

impl WorkerEnd {
    /// Whether the worker ended as it does when its farmer is done.
    fn is_orderly(&self) -> bool {
        match self {
            WorkerEnd::Exited(exit) => exit.status.is_none_or(|status| status.success()),
            WorkerEnd::Thread(why) => why.is_empty(),
            // A node of a cluster closes its channel when it is done.
            WorkerEnd::Closed => true,
            _ => false,
        }
    }
}

impl From<WorkerEnd> for Loss {
    fn from(end: WorkerEnd) -> Loss {
        let kind = match &end {
            WorkerEnd::Closed => LossKind::Left,
            WorkerEnd::Thread(why) if why.is_empty() => LossKind::Left,
            WorkerEnd::Below(loss) => loss.kind(),
            WorkerEnd::Malformed => LossKind::Refused,
            WorkerEnd::Stuck { .. } | WorkerEnd::Silent(_) | WorkerEnd::Late(_) => LossKind::Silent,
            _ => LossKind::Died,
        };
        Loss::of(kind, end)
    }
}

/// Whether this is the cause of a worker's loss, not only its symptom.
pub(crate) fn is_a_cause(loss: &Loss) -> bool {
    use WorkerEnd::{Exited, Malformed, Thread};
    let is_end = matches!(loss.cause(), Some(Exited(_) | Thread(_) | Malformed));
    is_end || loss.cause::<Death>().is_some()
}

/// Whether the worker ended as it does when its farmer is done.
pub(crate) fn is_orderly(loss: &Loss) -> bool {
    loss.cause().is_some_and(WorkerEnd::is_orderly)
}

/// Whether the farmer's node has lost its runtime, and with it all workers.
pub(crate) fn is_of_runtime(loss: &Loss) -> bool {
    let link = match (loss.cause(), loss.cause()) {
        (Some(RecvError::Lost { link, .. }), _) => link,
        (_, Some(SendError::Lost(lost))) => &lost.link,
        _ => return false,
    };
    matches!(link.cause(), LinkCause::DriverGone)
}

/// Returns a number of things of this name.
pub(crate) fn counted(count: u64, name: &str) -> String {
    format!("{count} {name}{}", if count == 1 { "" } else { "s" })
}

/// Names the tasks without a result: given ones, and the remaining ones if their number is known.
fn without_result(unanswered: u64, left: Option<u64>) -> String {
    match left {
        Some(left) => format!("{} without a result", counted(unanswered + left, "task")),
        None => format!("{} without a result, of those given out", counted(unanswered, "task")),
    }
}

/// Exit status of a worker process that could not go on: `EX_UNAVAILABLE` of `sysexits.h`. A program
/// that forgets to serve rather ends with 1.
pub(crate) const STATUS_STOPPED: i32 = 69;

/// Hint for a program whose workers do not come: the calls that it may have forgotten.
const SERVE_HINT: &str = "(a worker process must call serve_if_started first in main, a node of a \
                          cluster serve_in)";

/// Returns what may have kept workers away: the reasons for refused connections, or a missing call.
fn hint(refusals: &[String]) -> String {
    match refusals {
        [] => format!(" {SERVE_HINT}"),
        refusals => format!("; the farmer refused: {}", refusals.join("; ")),
    }
}

/// Reason why no process was started in the place of a dead one.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Unreplaced {
    /// The system could not start one.
    // The cause is part of the text, since the source of a run's error is that of the loss.
    #[error("{}", with_causes(.0))]
    Launch(LaunchError),
    /// This number of processes in a row ended before they were ready.
    #[error("{count} processes in a row ended before they were ready")]
    Unready {
        /// Number of these processes.
        count: u32,
    },
}

chunkcomm::debug_with_causes!(Unreplaced);

/// Error of a farm that did not start. No worker process is left.
#[non_exhaustive]
pub enum StartError {
    /// A number given to the builder is not allowed.
    Setting {
        /// Name of the number.
        name: &'static str,
        /// Value given.
        value: u64,
        /// Allowed values.
        allowed: &'static str,
    },
    /// The farmer's node could not be built.
    Node(NodeError),
    /// The signal that asks for an explanation cannot be handled.
    Signal(std::io::Error),
    /// The worker processes could not be started.
    Launch(LaunchError),
    /// A worker thread could not be started.
    Thread {
        /// The worker.
        worker: WorkerName,
        /// The system's error.
        source: std::io::Error,
    },
    /// The journal cannot be used.
    Journal(JournalError),
    /// The farm cannot be announced to the nodes of the cluster.
    Name(NameError),
    /// Another farm of the cluster has the name.
    Taken {
        /// The name.
        farm: String,
        /// Rank of the other farm's farmer.
        rank: u32,
    },
    /// The farmer's node cannot accept workers.
    Accept(AcceptError),
    /// A worker ended before it was ready.
    Lost {
        /// The worker.
        worker: WorkerName,
        /// How the worker was lost.
        loss: Loss,
        /// Reasons for which the farmer's node has refused connections, each once. A refused
        /// connection may have been that of the worker.
        refusals: Vec<String>,
    },
    /// The farmer's address cannot be reached, not even from its own process.
    Unreachable {
        /// A worker process that did not become ready.
        worker: WorkerName,
        /// The error of an attempt of the farmer's.
        cause: Box<ConnectError>,
    },
    /// A node of the cluster speaks no version that the farmer speaks.
    Versions {
        /// The worker.
        worker: WorkerName,
        /// Oldest and newest version that the farmer speaks.
        ours: (u16, u16),
        /// Oldest and newest version that the worker speaks.
        theirs: (u16, u16),
    },
    /// A worker's program does not have a function, or has it with other types.
    Differs {
        /// The worker.
        worker: WorkerName,
        /// The function as the worker sees both sides: `theirs` is the farmer's.
        difference: Box<Difference>,
    },
    /// Workers did not report in time.
    Late {
        /// Time that the farmer waited for the workers.
        waited: Duration,
        /// Workers that did not report.
        missing: Vec<WorkerName>,
        /// Reasons for which the farmer's node has refused connections, each once. A refused
        /// connection may have been that of a missing worker.
        refusals: Vec<String>,
    },
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::Setting { name, value, allowed } => {
                write!(f, "a farm with {name} {value}: allowed is {allowed}")
            }
            StartError::Node(_) => f.write_str("the farmer's node could not be built"),
            StartError::Signal(_) => f.write_str("the signal SIGUSR1 could not be handled"),
            StartError::Launch(LaunchError::Nested) => {
                write!(f, "a worker process was asked to start workers {SERVE_HINT}")
            }
            StartError::Launch(_) => f.write_str("the worker processes could not be started"),
            StartError::Thread { worker, .. } => write!(f, "{worker} could not be started"),
            StartError::Journal(error) => error.fmt(f),
            StartError::Name(error) => error.fmt(f),
            StartError::Taken { farm, rank } => {
                write!(f, "rank {rank} has a farm named {farm:?}, a second one needs another name")
            }
            StartError::Accept(_) => f.write_str("the farmer could not wait for its workers"),
            StartError::Lost { worker, loss, refusals } => {
                write!(f, "{worker} was lost before it was ready: {loss}")?;
                let code = match loss.cause() {
                    Some(WorkerEnd::Exited(exit)) => exit.status.and_then(|it| it.code()),
                    _ => None,
                };
                match (code, &refusals[..]) {
                    (Some(STATUS_STOPPED), []) => f.write_str(", and it has printed the reason"),
                    (None, []) => Ok(()),
                    _ => f.write_str(&hint(refusals)),
                }
            }
            StartError::Unreachable { worker, cause } => {
                write!(f, "{worker} was not ready: it has no way to the farmer: {cause}")
            }
            StartError::Versions { worker, ours, theirs } => write!(
                f,
                "{worker} speaks versions {} to {} of what farmers and workers say to each other, \
                 this program {} to {}",
                theirs.0, theirs.1, ours.0, ours.1
            ),
            StartError::Differs { worker, difference } => {
                let (farmers, workers) = (found(&difference.theirs), found(&difference.ours));
                write!(f, "the farmer registered {farmers}, {worker} has {workers}")
            }
            StartError::Late { waited, missing, refusals } => {
                let missing: Vec<_> = missing.iter().map(ToString::to_string).collect();
                let (waited, missing) = (waited.as_secs_f64(), missing.join(", "));
                write!(f, "not ready after {waited} s: {missing}{}", hint(refusals))
            }
        }
    }
}

impl StartError {
    /// Returns the process that did not become ready for a reason that the farmer does not know.
    pub(crate) fn unexplained(&self) -> Option<&WorkerName> {
        let (workers, refusals) = match self {
            StartError::Lost { worker, loss, refusals }
                if matches!(loss.cause(), Some(WorkerEnd::Exited(_))) =>
            {
                (std::slice::from_ref(worker), refusals)
            }
            StartError::Late { missing, refusals, .. } => (&missing[..], refusals),
            _ => return None,
        };
        workers.iter().find(|worker| worker.pid.is_some() && refusals.is_empty())
    }

    /// Names the farmer's address as the reason, if an attempt of the farmer's has shown that nobody
    /// reaches it.
    pub(crate) fn explained_by(self, attempt: Option<ConnectError>) -> StartError {
        match (self.unexplained().cloned(), attempt) {
            (Some(worker), Some(cause @ ConnectError::Unreachable { .. })) => {
                StartError::Unreachable { worker, cause: Box::new(cause) }
            }
            _ => self,
        }
    }
}

/// Names the function that one side has.
fn found(function: &Option<Signature>) -> String {
    function.as_ref().map_or_else(|| "no function of that name".to_owned(), ToString::to_string)
}

chunkcomm::debug_with_causes!(StartError);

impl Error for StartError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            StartError::Node(source) => Some(source),
            StartError::Signal(source) => Some(source),
            StartError::Launch(source) => Some(source),
            StartError::Thread { source, .. } => Some(source),
            StartError::Journal(error) => error.source(),
            StartError::Name(error) => error.source(),
            StartError::Accept(source) => Some(source),
            StartError::Lost { loss, .. } => loss.source(),
            StartError::Unreachable { cause, .. } => cause.source(),
            _ => None,
        }
    }
}

/// Error of a run that ended without all results.
///
/// Results that were already handed on are valid. Of the other tasks it is not known which were
/// done.
#[derive(Clone)]
#[non_exhaustive]
pub enum RunError {
    /// The function is not in the farm's registry. The farm can go on.
    NotRegistered {
        /// The function's name.
        function: String,
    },
    /// An input could not be encoded, or its type panicked. The farm can go on.
    Input {
        /// Index of the task.
        index: u64,
        /// The codec's error.
        source: EncodeError,
    },
    /// The journal could not be written, or is another program's. Further runs give the same error.
    Journal(JournalError),
    /// A task has no result. The farm can go on, and so do [`Results`](crate::Results).
    Task(TaskError),
    /// An assignment is larger than a message may be. The farm can go on.
    TooLarge {
        /// Index of the assignment's first task.
        index: u64,
        /// Number of the assignment's tasks.
        count: u32,
        /// The worker that the assignment was for.
        worker: WorkerName,
        /// Encoded bytes of the assignment.
        bytes: u64,
        /// Most bytes that the worker takes: the setting `message_bytes_max` of its node.
        bytes_max: u64,
    },
    /// The farm's [time](crate::FarmBuilder::walltime) is nearly over.
    ///
    /// The run waited for the tasks at work while there was time. Further runs give the same error.
    OutOfTime {
        /// Number of tasks that were given out.
        given: u64,
        /// Number of given tasks without a result.
        unanswered: u64,
    },
    /// No [chosen](crate::FunctionExt::only_on) worker is there for the run, or left of it. The
    /// farm can go on.
    NotChosen {
        /// Number of workers that are there.
        there: usize,
        /// Number of given tasks without a result.
        unanswered: u64,
        /// Number of tasks that were not given out; `None` unless the iterator tells it exactly.
        left: Option<u64>,
    },
    /// The last worker was lost, and with it the farm: further runs give the same error.
    Lost {
        /// The worker that was lost last.
        worker: WorkerName,
        /// Number of given tasks without a result.
        unanswered: u64,
        /// Number of tasks that were not given out; `None` unless the iterator tells it exactly.
        left: Option<u64>,
        /// How the worker was lost.
        loss: Loss,
        /// Reason why no process replaced the last dead one; `None` if none was to.
        unreplaced: Option<Box<Unreplaced>>,
    },
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RunError::NotRegistered { function } => {
                write!(f, "function {function:?} is not in the farm's registry")
            }
            RunError::Input { index, .. } => write!(f, "task {index} could not be encoded"),
            RunError::Journal(error) => error.fmt(f),
            RunError::Task(error) => error.fmt(f),
            RunError::TooLarge { index, count, worker, bytes, bytes_max } => {
                match count {
                    1 => write!(f, "task {index} is too large")?,
                    _ => write!(f, "the {count} tasks from {index} on are too large together")?,
                }
                write!(
                    f,
                    " for {worker}: {bytes} bytes, allowed are {bytes_max} (message_bytes_max)"
                )
            }
            RunError::OutOfTime { given, unanswered } => {
                let done = given - unanswered;
                write!(f, "the time of the farm was over after {done} tasks")?;
                match unanswered {
                    0 => Ok(()),
                    _ => write!(f, ", {unanswered} more had begun"),
                }
            }
            RunError::NotChosen { there, unanswered, left } => {
                let workers = counted(*there as u64, "worker");
                let tasks = without_result(*unanswered, *left);
                write!(f, "of {workers} none is chosen for the run, and {tasks}")
            }
            RunError::Lost { worker, unanswered, left, loss, unreplaced } => {
                let tasks = without_result(*unanswered, *left);
                write!(f, "no worker is left and {tasks}: {worker} was lost: {loss}")?;
                match unreplaced {
                    Some(why) => write!(f, "; none is started in its place: {why}"),
                    None => Ok(()),
                }
            }
        }
    }
}

chunkcomm::debug_with_causes!(RunError);

impl Error for RunError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            RunError::Input { source, .. } => Some(source),
            RunError::Journal(error) => error.source(),
            RunError::Task(error) => error.source(),
            RunError::Lost { loss, .. } => loss.source(),
            _ => None,
        }
    }
}

impl RunError {
    /// Returns the error of a run whose tasks are groups of inputs: an index becomes that of the
    /// group's first input.
    pub(crate) fn in_groups_of(mut self, size: usize) -> RunError {
        match &mut self {
            RunError::Input { index, .. }
            | RunError::TooLarge { index, .. }
            | RunError::Task(
                TaskError::Failed { index, .. }
                | TaskError::SetAside { index, .. }
                | TaskError::TimedOut { index, .. }
                | TaskError::Result { index, .. }
                | TaskError::ResultPanicked { index, .. },
            ) => *index *= size as u64,
            _ => {}
        }
        self
    }
}

impl From<JournalError> for RunError {
    fn from(error: JournalError) -> RunError {
        RunError::Journal(error)
    }
}

/// Workers that did not end well when the farm was finished, and that no run has reported as lost.
/// No worker process is left.
#[derive(Clone)]
#[non_exhaustive]
pub struct FinishError {
    /// The workers, and how each ended.
    pub workers: Vec<(WorkerName, Loss)>,
}

impl fmt::Display for FinishError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ended =
            |(worker, loss): &(WorkerName, Loss)| format!("{worker}: {}", with_causes(loss));
        let ended: Vec<String> = self.workers.iter().map(ended).collect();
        write!(f, "the farm did not end well: {}", ended.join("; "))
    }
}

chunkcomm::debug_with_causes!(FinishError);

impl Error for FinishError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_farm_that_did_not_end_well_names_each_worker_and_its_causes() {
        let said = std::io::Error::other("what the system said");
        let link = LinkCause::Io(said.into());
        let link = chunkcomm::LinkError::new("peer", link);
        let loss = RecvError::Lost { channel: "lines".into(), link, arrived: 3 }.into();
        let workers = vec![
            (WorkerName::process(3, 4242), loss),
            (WorkerName::thread(0), WorkerEnd::Closed.into()),
        ];
        let error = FinishError { workers };
        assert_eq!(
            error.to_string(),
            "the farm did not end well: worker 3 (process 4242): the connection with peer broke; \
             channel \"lines\": 3 messages had arrived, whether more were sent is unknown: what the \
             system said; worker 0 (thread): it closed its channel"
        );
        assert_eq!(format!("{error:?}"), error.to_string());
    }

    /// The error of a worker process that ended with this status, after these refusals.
    #[cfg(unix)]
    async fn ended(code: i32, refusals: &[&str]) -> StartError {
        use chunkcomm_cluster::launch::Launcher;
        use std::os::unix::process::ExitStatusExt as _;
        let address = chunkcomm::Address::Memory("nobody".to_owned());
        let mut child = Launcher::new(address).program("/bin/true").spawn(1).unwrap();
        let mut exit = child.exited().await.unwrap();
        (exit.pid, exit.status) = (4242, Some(std::process::ExitStatus::from_raw(code << 8)));
        let refusals = refusals.iter().map(|it| (*it).to_owned()).collect();
        let (worker, loss) = (WorkerName::process(1, 4242), WorkerEnd::Exited(exit).into());
        StartError::Lost { worker, loss, refusals }
    }

    #[cfg(unix)]
    fn late(worker: WorkerName) -> StartError {
        let (waited, refusals) = (Duration::from_secs(10), Vec::new());
        StartError::Late { waited, missing: vec![worker], refusals }
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn a_farmer_that_nobody_reaches_is_blamed_before_the_workers_program() {
        let unreachable = || {
            let address = chunkcomm::Address::Tcp { host: "127.0.0.1".to_owned(), port: 7 };
            let error = std::io::Error::from(std::io::ErrorKind::NetworkUnreachable).into();
            Some(ConnectError::Unreachable { address, error, tried: Duration::ZERO })
        };
        for error in [
            ended(1, &[]).await,
            ended(STATUS_STOPPED, &[]).await,
            late(WorkerName::process(1, 4242)),
        ] {
            let told = format!("{:?}", error.explained_by(unreachable()));
            assert_eq!(
                told,
                "worker 1 (process 4242) was not ready: it has no way to the farmer: \
                 tcp://127.0.0.1:7 cannot be reached: network unreachable"
            );
        }
        // The farmer was reached, or knows the reason.
        for (error, attempt) in [
            (ended(1, &[]).await, None),
            (ended(1, &[]).await, Some(ConnectError::Closed)),
            (ended(1, &["no hello"]).await, unreachable()),
            (late(WorkerName::thread(0)), unreachable()),
        ] {
            let text = error.to_string();
            assert_eq!(error.explained_by(attempt).to_string(), text);
        }
        let told = ended(1, &[]).await.to_string();
        assert!(told.ends_with(SERVE_HINT), "{told}");
        // It did serve.
        let told = ended(STATUS_STOPPED, &[]).await.to_string();
        let reason = "its process ended: exit status: 69, and it has printed the reason";
        assert!(told.ends_with(reason), "{told}");
    }
}
