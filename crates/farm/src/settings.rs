//! Settings of a farm: those of its builder, and those that go on to its workers.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use chunkcomm::{Node, NodeBuilder, Policy};

use crate::proto::wire::Limit;

/// Most workers that one farmer starts.
pub const WORKER_COUNT_MAX: usize = 1024;

/// Whether the farmer's node works too (LAN farm study, section 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Model {
    /// The first worker is the farmer's own, a thread of its process that is reached
    /// through memory. Every processor works; the farmer's answers compete with its
    /// own tasks.
    A,
    /// The farmer only farms.
    #[default]
    B,
}

/// Kind of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum WorkersAs {
    /// A copy of this program as a process of its own, reached over TCP on the
    /// loopback interface.
    #[default]
    Process,
    /// A thread of this process, reached through memory.
    Thread,
}

/// Number of unanswered assignments that a worker holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Prefetch {
    /// This number, at least 1. With 1 no assignment waits while one is at work; 2 is
    /// double buffering.
    Fixed(u32),
    /// A number that covers two round trips, from the round trip measured when the worker came
    /// and the time that tasks take: at least one more than the worker has threads, and beyond
    /// that no more than 10 ms of work.
    #[default]
    Auto,
}

/// Number of tasks in an assignment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Grain {
    /// This number, at least 1.
    Fixed(u32),
    /// As many as take 10 ms, or 0.1 ms for each worker of the farm if that is more, by the time
    /// that tasks take on that worker. Near the end of a known number of tasks half of what is left
    /// for it (factoring), but 25 us for each worker or more. One task while nothing is known.
    #[default]
    Auto,
}

impl Prefetch {
    pub(crate) fn fixed(self) -> Option<u32> {
        match self {
            Prefetch::Fixed(depth) => Some(depth),
            Prefetch::Auto => None,
        }
    }
}

impl Grain {
    pub(crate) fn fixed(self) -> Option<u32> {
        match self {
            Grain::Fixed(tasks) => Some(tasks),
            Grain::Auto => None,
        }
    }
}

/// How a farm shares its tasks out; prefetch and grain are measured where they are `None`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ways {
    pub(crate) prefetch: Option<u32>,
    pub(crate) grain: Option<u32>,
    /// Number of workers that die of a task before it is set aside.
    pub(crate) deaths_max: u32,
    /// Time of a task.
    pub(crate) limit: Option<Limit>,
}

/// Order of the results of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// That of the tasks. Results that are ahead of a slow task are held until then, at most a
    /// million of them.
    Tasks,
    /// That in which they come.
    Completed,
}

impl From<u32> for Grain {
    fn from(tasks: u32) -> Grain {
        Grain::Fixed(tasks)
    }
}

/// The place where the nodes of farmer and workers move their bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Runtime {
    /// On the runtime on which the farmer was started; a worker's runtime is of the
    /// current-thread kind.
    #[default]
    Ambient,
    /// On a separate thread in every process.
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

/// Settings that farmer and workers share. A worker process gets them through its
/// environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct NodeSettings {
    pub(crate) runtime: Runtime,
    pub(crate) policy: Policy,
    pub(crate) message_bytes_max: Option<usize>,
}

/// Silence after which a node asks its peer for a sign of life. After `SUSPECT` it dials the
/// connection anew. Both are as between any two nodes.
const PROBE: Duration = Duration::from_secs(1);
const SUSPECT: Duration = Duration::from_secs(3);

/// Silence after which a node counts as dead: an hour, since here silence is no death. The launcher
/// sees how a worker ends, and a worker sees the farmer's end. A worker with a long task in its I/O
/// loop is silent until the task is done. So is a farmer whose program computes on the farm's runtime.
const DEAD: Duration = Duration::from_secs(3600);

impl NodeSettings {
    /// Name of the environment variable that makes a started copy a worker of a farm.
    pub(crate) const VARIABLE: &'static str = "CHUNKCOMM_FARM_WORKER";

    pub(crate) fn node(&self) -> NodeBuilder {
        // The error of a run names the loss.
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

/// A text that is no setting: the farmer runs another program.
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
