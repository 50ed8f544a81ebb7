//! How a farm is set up: what its builder is told, and what of that its workers
//! are told.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use chunkcomm::{Node, NodeBuilder, Policy};

/// Whether the farmer's node works too (LAN farm study, section 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Model {
    /// The first of the workers is the farmer's own, a thread of its process that
    /// is reached through memory. Every processor works; the farmer's answers
    /// compete with its own tasks.
    A,
    /// The farmer only farms.
    #[default]
    B,
}

/// What a worker is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum WorkersAs {
    /// A copy of this program as a process of its own, reached over TCP on the
    /// loopback interface.
    #[default]
    Process,
    /// A thread of this process, reached through memory.
    Thread,
}

/// How many assignments a worker holds that it has not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prefetch {
    /// So many: 1 is none held beside the one at work, 2 is double buffering.
    /// At least 1.
    Fixed(u32),
    /// As many as cover two round trips, from the round trip measured at the
    /// start and the time that tasks take; at least 2, and no more than 10 ms of
    /// work.
    Auto,
}

impl Default for Prefetch {
    /// Double buffering.
    fn default() -> Prefetch {
        Prefetch::Fixed(2)
    }
}

/// Where the nodes of farmer and workers move their bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Runtime {
    /// On the runtime that the farmer was started on; a worker's is of the
    /// current-thread kind.
    #[default]
    Ambient,
    /// On a thread of its own in every process.
    IoThread,
    /// Polling without ever sleeping: the shortest round trip, one whole
    /// processor a node. The farmer's own runtime must then be of the
    /// current-thread kind.
    BusyPoll,
}

const RUNTIMES: [(Runtime, &str); 3] = [
    (Runtime::Ambient, "ambient"),
    (Runtime::IoThread, "io-thread"),
    (Runtime::BusyPoll, "busy-poll"),
];

/// What farmer and workers must agree on, or had better: goes to a worker process
/// through its environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct NodeSettings {
    pub(crate) runtime: Runtime,
    pub(crate) policy: Policy,
    pub(crate) message_bytes_max: Option<usize>,
}

/// A silent end is asked for a sign of life, and its connection dialled anew, as soon as between
/// any two nodes.
const PROBE: Duration = Duration::from_secs(1);
const SUSPECT: Duration = Duration::from_secs(3);

/// Silence is no death here: the launcher sees how a worker ends, and a worker the farmer's end.
/// A worker in whose I/O loop a task turned out long is silent until that is done, and so is a
/// farmer whose program computes on the runtime of the farm.
const DEAD: Duration = Duration::from_secs(3600);

impl NodeSettings {
    /// The environment variable that makes a started copy a worker of a farm.
    pub(crate) const VARIABLE: &'static str = "CHUNKCOMM_FARM_WORKER";

    pub(crate) fn node(&self) -> NodeBuilder {
        // The error of a run says what was lost.
        let builder = Node::builder().quiet();
        let mut builder = builder.policy(self.policy).liveness(PROBE, SUSPECT, DEAD);
        if let Some(bytes) = self.message_bytes_max {
            builder = builder.message_bytes_max(bytes);
        }
        match self.runtime {
            Runtime::Ambient => builder,
            Runtime::IoThread => builder.io_thread(),
            Runtime::BusyPoll => builder.busy_poll(),
        }
    }
}

impl fmt::Display for NodeSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (_, runtime) = RUNTIMES[self.runtime as usize];
        write!(f, "{runtime}")?;
        match self.policy {
            Policy::Unbuffered => f.write_str(" unbuffered")?,
            Policy::Linger(duration) => write!(f, " {}", duration.as_micros())?,
            _ => f.write_str(" chunked")?,
        }
        match self.message_bytes_max {
            Some(bytes) => write!(f, " {bytes}"),
            None => Ok(()),
        }
    }
}

/// A text that is no setting: the farmer's program is another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BadSettings(String);

impl fmt::Display for BadSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={} is not understood", NodeSettings::VARIABLE, self.0)
    }
}

impl FromStr for NodeSettings {
    type Err = BadSettings;

    fn from_str(text: &str) -> Result<NodeSettings, BadSettings> {
        let bad = || BadSettings(text.to_owned());
        let mut words = text.split(' ');
        let word = words.next().unwrap_or_default();
        let (runtime, _) = *RUNTIMES.iter().find(|(_, name)| *name == word).ok_or_else(bad)?;
        let policy = match words.next() {
            Some("chunked") => Policy::Chunked,
            Some("unbuffered") => Policy::Unbuffered,
            Some(us) => Policy::Linger(Duration::from_micros(us.parse().map_err(|_| bad())?)),
            None => return Err(bad()),
        };
        let message_bytes_max = match words.next() {
            Some(bytes) => Some(bytes.parse().map_err(|_| bad())?),
            None => None,
        };
        Ok(NodeSettings { runtime, policy, message_bytes_max })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_survive_their_text() {
        for (runtime, name) in RUNTIMES {
            for policy in
                [Policy::Chunked, Policy::Unbuffered, Policy::Linger(Duration::from_micros(250))]
            {
                for message_bytes_max in [None, Some(1 << 20)] {
                    let settings = NodeSettings { runtime, policy, message_bytes_max };
                    assert!(settings.to_string().starts_with(name));
                    assert_eq!(settings.to_string().parse(), Ok(settings));
                }
            }
        }
        for text in ["", "ambient", "ambient sometimes", "soon chunked", "ambient chunked much"] {
            assert!(text.parse::<NodeSettings>().is_err(), "{text:?}");
        }
    }
}
