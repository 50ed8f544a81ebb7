//! Times in which workers are met, and after which they count as lost.
//!
//! ```text
//!   meeting   30 s   the workers of a start, or one in the place of the last lost one
//!             10 s   a node that its farmer has sent to a sub-farmer
//!   loss       2 s   from a broken link to the end of its worker, the better report
//!             10 s   of silence: a node of a cluster; a worker that computes is only named
//!             time-out + grace + 3 s of silence: a worker, where tasks have a time-out
//!              1 h   of silence: a link between nodes that the farm has built
//! ```
//!
//! A worker's tasks are open to others when it is lost here. A cluster may say later why.

use std::time::Duration;

/// Default time in which the workers must report: 30 s. A later worker is a mistake of the program.
pub(crate) const START_DEADLINE: Duration = Duration::from_secs(30);

/// Silence after which a cluster's node is dead: 10 s. A node leaves a sub-farmer that does not take
/// it in this time. It is also known by then which messages a lost worker has got. A worker that
/// has tasks and is as silent is named in a warning.
pub(crate) const SILENT: Duration = Duration::from_secs(10);

/// Silence after which a link that the farm has built is dead: an hour, since silence is no death
/// there. The launcher sees how a worker ends, and a worker sees the farmer's end. A worker with a
/// long task in its I/O loop is silent until the task ends. A farmer whose program computes on the
/// farm's runtime is silent too.
pub(crate) const LINK_DEAD: Duration = Duration::from_secs(3600);

/// Silence after which a worker with tasks is asked, and the time between two questions.
pub(crate) const PROBE: Duration = Duration::from_secs(1);

/// Silence beyond the time of a task and its grace after which a worker is lost. A machine that is
/// short of memory may halt a process for a second or two.
pub(crate) const BEYOND: Duration = Duration::from_secs(3);

/// Longest wait for the cause of a broken link. The farmer sees the break before the end of the
/// process that caused it.
pub(crate) const CAUSE_WAIT: Duration = Duration::from_secs(2);

/// Time in which an unwanted worker must hear that it is not wanted.
pub(crate) const PARTING: Duration = Duration::from_secs(1);

/// Time from the loss of a farmer to another attempt, if the cluster does not say that it is gone.
pub(crate) const RETRY: Duration = Duration::from_secs(1);

/// Pause after which a node that a sub-farmer has not taken says so to the farmer.
pub(crate) const REFUSED: Duration = Duration::from_millis(10);
