//! Types of the settings of a farm: of [`FarmBuilder`](crate::FarmBuilder).

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use chunkcomm::host::Instant;
use chunkcomm::{Address, Policy};

use crate::proto::pace::NODES_OF_A_FARMER;
pub use crate::proto::pace::{Grain, NoSetting};
use crate::proto::tree::Rule;
pub use crate::proto::wire::TaskTimeout;
use crate::proto::wire::Terms;

/// Most workers of a farm when it starts: 1024, those below sub-farmers included.
pub const WORKER_COUNT_MAX: usize = 1024;

/// Returns a time in nanoseconds, or the largest number of 64 bits if it is longer.
pub(crate) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Whether the farmer's node works too (LAN farm study, section 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[cfg_attr(feature = "settings", derive(serde::Deserialize), serde(rename_all = "lowercase"))]
pub enum Model {
    /// The farmer has a worker of its own, the first, in its process.
    ///
    /// So every processor works, and tasks take time from the farmer. A task that ends its process
    /// ends the farmer. In a cluster that worker has a thread for each core of the node's share of
    /// the host's cores. Elsewhere it has one thread.
    A,
    /// The farmer only farms.
    B,
    /// Model [`A`](Model::A) in a cluster without another node, else model [`B`](Model::B); the
    /// default.
    ///
    /// In a cluster the farmer's node also works for a run whose tasks do not pay to be sent. In
    /// such a run the workers mostly wait for messages, and together compute less than half a core
    /// does. Tasks of less than 10 us on average always go to the workers. They cost the farmer as
    /// much time at home as on the wire. The farmer looks at most once in 100 ms, after at least
    /// four answers for each thread. Once its node takes part, it does so until the run ends.
    ///
    /// The farmer's own worker gets no copies of a silent worker's tasks. When another worker dies,
    /// the farmer's own returns the tasks that it has not begun. It gets no more in that run: the
    /// task that killed the other could end the farmer.
    #[default]
    Auto,
}

impl Model {
    /// Returns whether the farmer has a worker of its own, `alone` or beside others.
    pub(crate) fn works(self, alone: bool) -> bool {
        self == Model::A || self == Model::Auto && alone
    }
}

/// Kind of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[cfg_attr(feature = "settings", derive(serde::Deserialize), serde(rename_all = "lowercase"))]
pub enum WorkersAs {
    /// A copy of this program as a process of its own, reached over TCP on the loopback interface.
    #[default]
    Process,
    /// A thread of this process, reached through memory.
    Thread,
}

/// Number of unanswered assignments that a worker holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Prefetch {
    /// This number, at least 1. With 1 no assignment waits while one is at work; 2 is double
    /// buffering.
    Fixed(u32),
    /// As many as cover two round trips, by the measured round trip and times of tasks.
    ///
    /// At least 2, and enough that each thread has a task while one assignment waits. Assignments
    /// beyond these hold at most 10 ms of work.
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

/// Most tasks that a worker has begun and not finished, for each thread that computes.
///
/// A thread has more than one such task only if tasks wait. These are tasks of an [async
/// function](crate::RegistryExt::register_async_task), and tasks that declare that they
/// [block](crate::TaskContext::blocking) their thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum VirtualWorkers {
    /// This number a thread: 1 to [`VIRTUAL_WORKERS_MAX`]. With 1 a thread idles while its task
    /// waits.
    Fixed(u32),
    /// As many as keep the threads busy: 1 to 16 a thread.
    #[default]
    Auto,
}

/// Most virtual workers of a thread: 1024.
pub const VIRTUAL_WORKERS_MAX: u32 = 1024;

impl FromStr for VirtualWorkers {
    type Err = NoSetting;

    /// Parses `auto`, or a number a thread.
    fn from_str(text: &str) -> Result<VirtualWorkers, NoSetting> {
        match text.parse() {
            Ok(each) if (1..=VIRTUAL_WORKERS_MAX).contains(&each) => {
                Ok(VirtualWorkers::Fixed(each))
            }
            Err(_) if text == "auto" => Ok(VirtualWorkers::Auto),
            _ => Err(NoSetting { allowed: "auto, and numbers from 1 to 1024" }),
        }
    }
}

impl fmt::Display for VirtualWorkers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            VirtualWorkers::Auto => f.write_str("auto"),
            VirtualWorkers::Fixed(each) => each.fmt(f),
        }
    }
}

impl VirtualWorkers {
    pub(crate) fn fixed(self) -> Option<u32> {
        match self {
            VirtualWorkers::Fixed(count) => Some(count),
            VirtualWorkers::Auto => None,
        }
    }
}

/// Whether sub-farmers stand between the farmer of a cluster and its workers.
///
/// An answer and the next assignment cost a farmer up to 0.1 ms. So a farmer keeps this many
/// workers busy:
///
/// ```text
/// time of an assignment / 0.1 ms  =  grain x time of a task / 0.1 ms
/// ```
///
/// `Auto` assumes assignments of 10 ms: 100 workers. One farmer with more workers must give longer
/// assignments. Then some workers still compute at the end while others wait. In a short run some
/// get no task at all. In groups of `n` the farmer speaks with `workers / n` sub-farmers, and each
/// of these with `n` workers. The sum is smallest if `n` is the square root of the number of
/// workers.
///
/// A sub-farmer is a node that works as well. It passes inputs and results on as they are, but
/// reduces results of [`map_reduce`](crate::Farm::map_reduce). When a sub-farmer dies, the nodes
/// below it get another, and no task is lost. Nodes that join later get a place in a group that has
/// room, or form a new group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Tree {
    /// Groups of the square root of the number of nodes, if more than 100 nodes are there at the
    /// start. No task has been timed by then, so the limit assumes assignments of 10 ms.
    #[default]
    Auto,
    /// One farmer speaks with all workers.
    Off,
    /// Groups of up to this many nodes, the sub-farmer among them: 2 or more.
    FanOut(u32),
    /// A group for each host: only one of its nodes speaks with the farmer over the network.
    Hosts,
}

// The machines of `proto` do not depend on `chunkcomm`, so this implementation is here.
chunkcomm::debug_with_causes!(NoSetting);

impl FromStr for Tree {
    type Err = NoSetting;

    /// Parses `auto`, `off`, `hosts`, or the number of nodes of a group.
    fn from_str(text: &str) -> Result<Tree, NoSetting> {
        match (text, text.parse::<u32>()) {
            ("auto", _) => Ok(Tree::Auto),
            ("off", _) => Ok(Tree::Off),
            ("hosts", _) => Ok(Tree::Hosts),
            (_, Ok(size)) if size >= 2 => Ok(Tree::FanOut(size)),
            _ => Err(NoSetting { allowed: "auto, off, hosts, and a number from 2 on" }),
        }
    }
}

impl fmt::Display for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Tree::Auto => f.write_str("auto"),
            Tree::Off => f.write_str("off"),
            Tree::Hosts => f.write_str("hosts"),
            Tree::FanOut(size) => size.fmt(f),
        }
    }
}

impl Tree {
    /// Returns the rule by which this many nodes are placed; `None` without sub-farmers.
    pub(crate) fn rule(self, nodes: usize) -> Option<Rule> {
        let size = match self {
            Tree::Auto if nodes > NODES_OF_A_FARMER => nodes.isqrt(),
            Tree::Auto | Tree::Off => return None,
            Tree::FanOut(size) => size as usize,
            Tree::Hosts => return Some(Rule::Host),
        };
        // The groups have about equal size; a single group has room for nodes that join later.
        Some(Rule::Size(match nodes.div_ceil(size) {
            0 | 1 => size,
            groups => nodes.div_ceil(groups),
        }))
    }
}

/// Moment from which accepted results survive a crash of the farmer's machine.
///
/// Results survive the end of the farmer's process, also by SIGKILL, once its writing thread has
/// written them. The farmer hands results to that thread as it goes, and waits while 4 MiB are
/// unwritten. Lost results are computed again.
///
/// The log of a redelivering sender has the same words, without `EverySecond` ([`chunkcomm::Fsync`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fsync {
    /// Before they are passed to the user: each answer of a worker waits for the disk.
    Always,
    /// At most a second after they are accepted; later only while the disk is at an earlier write.
    /// The default.
    ///
    /// The end of a run makes all its results permanent. Those of a dropped run become permanent
    /// when the next run begins or the farm ends.
    #[default]
    EverySecond,
    /// When the operating system makes them permanent.
    Never,
}

/// How a farm keeps and reads its [journal](crate::FarmBuilder::journal).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JournalOptions {
    /// Moment from which accepted results are permanent.
    pub fsync: Fsync,
    /// Whether the farm goes on without damaged records; false by default, so that the start fails.
    ///
    /// The tasks of a damaged record run again; those of the whole run if the record is the run's
    /// beginning. A warning names each record's place. The records stay in the file, so later
    /// starts need this setting too.
    pub skip_damaged_records: bool,
}

impl From<Fsync> for JournalOptions {
    fn from(fsync: Fsync) -> JournalOptions {
        JournalOptions { fsync, ..JournalOptions::default() }
    }
}

/// Default time from a task's time-out until the task is given up: 1 s.
const GRACE: Duration = Duration::from_secs(1);

impl From<Duration> for TaskTimeout {
    fn from(timeout: Duration) -> TaskTimeout {
        TaskTimeout { timeout, grace: GRACE }
    }
}

/// How the nodes of a farm that [starts](crate::FarmBuilder::start) its workers send messages.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Messaging {
    /// Place where the nodes move their bytes; the farmer's runtime by default.
    pub runtime: Runtime,
    /// Way in which the nodes gather messages; [`Policy::Chunked`] by default.
    pub policy: Policy,
    /// Bytes of the largest message, and so of the largest assignment and answer; 32 MiB by default.
    pub message_bytes_max: Option<usize>,
    /// Address at which the farmer listens for its workers; by default a free port of the loopback
    /// interface for processes, memory for threads. The farmer's own worker always comes through
    /// memory.
    pub listen: Option<Address>,
}

impl Messaging {
    /// Returns the settings that the workers' nodes share.
    pub(crate) fn node(&self) -> NodeSettings {
        let Messaging { runtime, policy, message_bytes_max, .. } = *self;
        NodeSettings { runtime, policy, message_bytes_max }
    }
}

/// Default name of a farm.
pub(crate) const FARM_NAME: &str = "default";

/// Settings by which a farmer runs tasks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ways {
    pub(crate) terms: Terms,
    /// Time that workers have to report.
    pub(crate) start: Duration,
    /// Moment at which the farm's time is over, if that is known.
    pub(crate) end: Option<Instant>,
    /// Most spans of a run's timeline; 0 for none.
    pub(crate) spans_max: usize,
}

impl From<u32> for Grain {
    fn from(tasks: u32) -> Grain {
        Grain::Fixed(tasks)
    }
}

/// Place where the nodes of farmer and workers move their bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Runtime {
    /// The runtime on which the farmer was started; a worker's runtime is of the current-thread
    /// kind.
    #[default]
    Ambient,
    /// A separate thread in every process.
    IoThread,
    /// A thread that polls and never sleeps: the shortest round trip, for a whole processor a node.
    /// The farmer's own runtime must be of the current-thread kind.
    BusyPoll,
}

#[cfg(feature = "settings")]
pub use file::FarmSettings;
pub(crate) use node::NodeSettings;

#[cfg(feature = "settings")]
mod file;
mod node;
pub(crate) mod times;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trees_survive_their_text() {
        for tree in [Tree::Auto, Tree::Off, Tree::Hosts, Tree::FanOut(2), Tree::FanOut(33)] {
            assert_eq!(tree.to_string().parse(), Ok(tree));
        }
        for text in ["", "1", "-3", "on", "Auto"] {
            assert!(text.parse::<Tree>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn groups_have_about_equal_sizes() {
        assert_eq!((Tree::Auto.rule(100), Tree::Off.rule(1000)), (None, None));
        assert_eq!(Tree::Auto.rule(101), Some(Rule::Size(10)));
        assert_eq!(Tree::Auto.rule(1000), Some(Rule::Size(31)));
        assert_eq!(Tree::FanOut(6).rule(7), Some(Rule::Size(4)));
        assert_eq!(Tree::FanOut(6).rule(3), Some(Rule::Size(6)));
        assert_eq!(Tree::FanOut(2).rule(0), Some(Rule::Size(2)));
    }

    #[test]
    fn numbers_of_virtual_workers_survive_their_text() {
        for workers in [VirtualWorkers::Auto, VirtualWorkers::Fixed(1), VirtualWorkers::Fixed(1024)]
        {
            assert_eq!(workers.to_string().parse(), Ok(workers));
        }
        for text in ["", "0", "1025", "-1", "Auto"] {
            assert!(text.parse::<VirtualWorkers>().is_err(), "{text:?}");
        }
    }
}
