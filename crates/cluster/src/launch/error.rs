//! Errors of the start of processes, and of the place that a process has among them.

use super::CHILD_COUNT_MAX;
use chunkcomm::layer::with_limit;
use std::error::Error;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Reason why processes were not started, or why one of them does not know its place.
///
/// | variants | of |
/// |---|---|
/// | `Nested`, `Count`, `NoSuchCpu`, `System` | children on this machine |
/// | `Variable` | the environment that a launcher makes |
/// | `HostsFile`, `HostsLine`, `HostsSlots`, `Ssh`, `NodeEnded`, `NotStarted`, `Silent` | nodes on the hosts of a file |
/// | `PmiSocket`, `PmiLost`, `PmiAnswer`, `PmiFailed`, `PmiTooLong`, `PmiTimeout` | a launcher that speaks PMI-1 |
#[derive(Clone)]
#[non_exhaustive]
pub enum LaunchError {
    /// A launcher started this process itself.
    ///
    /// A program whose `main` does not ask for its [`child`](super::child) place would start copies of
    /// itself without end, so this is refused.
    Nested,
    /// No children, or more than [`CHILD_COUNT_MAX`], were asked for.
    Count(usize),
    /// A child is to run on a processor that this process may not use.
    NoSuchCpu {
        /// Processor asked for.
        cpu: usize,
        /// Processors that this process may use.
        allowed: Vec<usize>,
    },
    /// A system call of the start failed.
    System {
        /// Action that failed.
        what: &'static str,
        /// Program that was to be started.
        program: PathBuf,
        /// The system's error.
        source: Arc<io::Error>,
    },
    /// A variable of the environment makes no sense.
    Variable {
        /// The variable.
        variable: String,
        /// Its value; `None` when it is not set.
        value: Option<String>,
        /// Fault of the value, or its right form.
        why: String,
    },
    /// The hosts file cannot be read.
    HostsFile {
        /// The file.
        path: PathBuf,
        /// The reason.
        error: Arc<io::Error>,
    },
    /// A line of the hosts file makes no sense.
    HostsLine {
        /// The file.
        path: PathBuf,
        /// Number of the line, from 1; 0 for the file as a whole.
        line: usize,
        /// The fault.
        why: String,
    },
    /// More nodes were asked for than the hosts have slots.
    HostsSlots {
        /// The file.
        path: PathBuf,
        /// Number asked for.
        asked: u32,
        /// Number of slots.
        slots: u32,
    },
    /// ssh cannot be started here.
    Ssh {
        /// The command.
        program: String,
        /// The reason.
        error: Arc<io::Error>,
    },
    /// A node on a host of the file ended before all were ready.
    NodeEnded {
        /// Rank of the node.
        rank: u32,
        /// Host that the node was on.
        host: String,
        /// Status of the node, or the reason.
        why: String,
    },
    /// Rank 0 reports why the cluster has not started.
    NotStarted {
        /// Rank and host of each node to blame.
        at_fault: Vec<(u32, String)>,
        /// Report of rank 0.
        why: String,
    },
    /// Rank 0 did not send in time the word that the others wait for.
    Silent {
        /// Host that rank 0 is on.
        host: String,
        /// Missing word.
        awaited: &'static str,
        /// Length of the wait.
        waited: Duration,
    },
    /// The socket that `PMI_FD` or `PMI_PORT` names cannot be used.
    PmiSocket {
        /// Name of the socket in the environment.
        way: String,
        /// The reason.
        error: Arc<io::Error>,
    },
    /// The connection with the launcher broke.
    PmiLost {
        /// The command.
        command: &'static str,
        /// The reason.
        error: Arc<io::Error>,
    },
    /// The launcher's answer does not fit the command.
    PmiAnswer {
        /// The command.
        command: &'static str,
        /// Beginning of the answer.
        line: String,
    },
    /// The launcher reports a failure.
    PmiFailed {
        /// The command.
        command: &'static str,
        /// Code and text of the launcher.
        why: String,
    },
    /// A value is longer than the launcher takes.
    PmiTooLong {
        /// Length of the value, in bytes.
        bytes: usize,
        /// Longest value, in bytes.
        max: usize,
    },
    /// The launcher did not answer in time: perhaps ranks are missing.
    PmiTimeout,
}

impl LaunchError {
    pub(super) fn system(what: &'static str, program: &Path, source: io::Error) -> LaunchError {
        LaunchError::System {
            what,
            program: program.to_owned(),
            source: Arc::new(with_limit(source)),
        }
    }
}

impl fmt::Display for LaunchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LaunchError::Nested => f.write_str(
                "this process was started by a launcher and starts none itself: main must ask for \
                 its place before anything else (launch::child, or serve_if_started in a farm)",
            ),
            LaunchError::Count(count) => {
                write!(f, "{count} children were asked for; allowed are 1 to {CHILD_COUNT_MAX}")
            }
            LaunchError::NoSuchCpu { cpu, allowed } => {
                write!(f, "processor {cpu} is not one this process may use: {allowed:?}")
            }
            LaunchError::System { what, program, .. } => {
                write!(f, "could not {what} for {}", program.display())
            }
            LaunchError::Variable { variable, value: Some(value), why } => {
                write!(f, "{variable} is {value:?}: {why}")
            }
            LaunchError::Variable { variable, value: None, why } => {
                write!(f, "{variable} is not set: {why}")
            }
            LaunchError::HostsFile { path, .. } => write!(f, "hosts file {}", path.display()),
            LaunchError::HostsLine { path, line: 0, why } => {
                write!(f, "hosts file {}: {why}", path.display())
            }
            LaunchError::HostsLine { path, line, why } => {
                write!(f, "hosts file {}, line {line}: {why}", path.display())
            }
            LaunchError::HostsSlots { path, asked, slots } => write!(
                f,
                "{asked} nodes were asked for, and hosts file {} has slots for {slots}",
                path.display()
            ),
            LaunchError::NodeEnded { rank, host, why } => {
                write!(f, "rank {rank} on {host} ended before all were ready: {why}")
            }
            LaunchError::NotStarted { at_fault, why } => write!(f, "{why}{}", Blamed(at_fault)),
            LaunchError::Silent { host, awaited, waited } => {
                write!(f, "rank 0 on {host} did not say {awaited} within {waited:?}")
            }
            LaunchError::Ssh { program, .. } => {
                write!(f, "{program} cannot be started (CHUNKCOMM_SSH names another ssh)")
            }
            LaunchError::PmiSocket { way, .. } => {
                write!(f, "the launcher cannot be reached by {way}")
            }
            LaunchError::PmiLost { command, .. } => {
                write!(f, "the launcher hung up while it was asked for {command}")
            }
            LaunchError::PmiAnswer { command, line } => {
                write!(f, "the launcher answered {line:?} to {command}")
            }
            LaunchError::PmiFailed { command, why } => {
                write!(f, "the launcher says that {command} failed: {why}")
            }
            LaunchError::PmiTooLong { bytes, max } => {
                write!(f, "the launcher takes values of {max} bytes, and this one has {bytes}")
            }
            LaunchError::PmiTimeout => {
                f.write_str("the launcher did not answer in time: are all ranks there?")
            }
        }
    }
}

chunkcomm_proto::debug_with_causes!(LaunchError);

impl Error for LaunchError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            LaunchError::System { source: error, .. }
            | LaunchError::HostsFile { error, .. }
            | LaunchError::Ssh { error, .. }
            | LaunchError::PmiSocket { error, .. }
            | LaunchError::PmiLost { error, .. } => Some(error.as_ref()),
            _ => None,
        }
    }
}

/// The nodes to blame and their hosts, behind a report of rank 0.
struct Blamed<'a>(&'a [(u32, String)]);

impl fmt::Display for Blamed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().enumerate().try_for_each(|(index, (rank, host))| {
            write!(f, "{} rank {rank} is on {host}", if index == 0 { ";" } else { "," })
        })
    }
}
