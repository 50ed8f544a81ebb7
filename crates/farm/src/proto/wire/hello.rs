//! Words before the first task, one each way: what a worker is and has, and the seat that it gets.
//!
//! The worker's first message begins with 4 bytes: the oldest and the newest version of this
//! protocol that it speaks. These bytes never change, so that two sides without a common version
//! get an error that says so. A seat names the version that both use: the newest that both speak.

use std::time::Duration;

use chunkcomm::codec::{EncodeError, decode, encode_into_vec};
use chunkcomm_cluster::launch::Token;
use chunkcomm_cluster::registry::{Difference, Signature};
use serde::{Deserialize, Serialize};

use crate::proto::pace::Grain;

/// Returns the name of the duplexes between the workers of this farm and its farmer, or a
/// sub-farmer. A cluster's farmer provides something under the same name.
pub(crate) fn duplex(farm: &str) -> String {
    format!("chunkcomm-farm.{farm}")
}

/// The versions that this code speaks, from the oldest to the newest.
pub(crate) const VERSIONS: (u16, u16) = (1, 1);

const _: () = assert!(VERSIONS.0 <= VERSIONS.1);

/// A worker's statement: its first message, after its versions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Hello {
    pub(crate) who: Who,
    /// Number of threads on which the worker computes, without those below it.
    pub(crate) threads: u32,
    pub(crate) functions: Vec<Signature>,
}

/// Identity of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Who {
    /// The worker that was started with this index and this token.
    Started { token: Token, index: u64 },
    /// A node of the farmer's cluster; its link tells which one.
    Member,
    /// A node of the farmer's cluster whose sub-farmer is gone.
    Orphan,
    /// A node that the farm of this token has sent to this sub-farmer.
    Placed(Token),
}

/// Encodes the worker's first message.
pub(crate) fn hello(hello: &Hello) -> Result<Vec<u8>, EncodeError> {
    let (oldest, newest) = VERSIONS;
    let mut bytes = [oldest.to_le_bytes(), newest.to_le_bytes()].concat();
    encode_into_vec(hello, &mut bytes)?;
    Ok(bytes)
}

/// Reads a worker's first message: its hello, and the version that both sides use. Without such a
/// version the error has the worker's versions; it has none if the bytes are no hello.
pub(crate) fn read_hello(bytes: &[u8]) -> Result<(Hello, u16), Option<(u16, u16)>> {
    let (&[a, b, c, d], hello) = bytes.split_first_chunk().ok_or(None)?;
    let theirs = (u16::from_le_bytes([a, b]), u16::from_le_bytes([c, d]));
    if theirs.0 > theirs.1 {
        return Err(None);
    }
    let version = common(VERSIONS, theirs).ok_or(Some(theirs))?;
    Ok((decode(hello).map_err(|_| None)?, version))
}

/// Returns the newest version that is in both ranges.
fn common(ours: (u16, u16), theirs: (u16, u16)) -> Option<u16> {
    let newest = ours.1.min(theirs.1);
    (newest >= ours.0.max(theirs.0)).then_some(newest)
}

/// The farmer's first message: a seat, or the difference of the functions.
pub(crate) type Seated = Result<Seat, Box<Difference>>;

/// The part of a worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Seat {
    /// Version that both sides use.
    pub(crate) version: u16,
    /// Each of the farmer's functions, by its index among the worker's.
    pub(crate) functions: Vec<u32>,
    pub(crate) terms: Terms,
    pub(crate) role: Role,
}

/// Returns the index of each function of the farmer among those of a worker, or the first one that
/// the worker does not have, or has with other types. The worker may have more.
pub(crate) fn places(
    farmers: &[Signature],
    workers: &[Signature],
) -> Result<Vec<u32>, Box<Difference>> {
    let types = |it: &Signature| (it.input.hash, it.output.as_ref().map(|output| output.hash));
    let place = |theirs: &Signature| {
        let at = workers.iter().position(|ours| ours.name == theirs.name);
        match at {
            Some(at) if types(&workers[at]) == types(theirs) => Ok(at as u32),
            at => Err(Box::new(Difference {
                theirs: Some(theirs.clone()),
                ours: at.map(|at| workers[at].clone()),
            })),
        }
    };
    farmers.iter().map(place).collect()
}

/// Settings by which a farm shares its tasks out, below sub-farmers too.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Terms {
    /// Assignments that a worker holds; `None` if they are measured.
    pub(crate) prefetch: Option<u32>,
    pub(crate) grain: Grain,
    /// Number of workers that die of a task before it is set aside.
    pub(crate) deaths_max: u32,
    /// Time limit of a task.
    pub(crate) limit: Option<TaskTimeout>,
    /// Virtual workers of a thread; `None` if they are measured.
    pub(crate) virtual_workers: Option<u32>,
}

/// Part of a node in the farm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Role {
    Work,
    /// Work, and farm for the nodes that the farm of this token sends; ready when `below` of them
    /// are.
    Farm {
        token: Token,
        below: u32,
    },
    /// Work for the node of this rank, in the farm of this token.
    Below {
        rank: u32,
        token: Token,
    },
}

/// Longest time that an attempt at a task may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskTimeout {
    /// Time after which the task is asked to end.
    pub timeout: Duration,
    /// Time that the task then has to end; 1 s by default. A result that comes within it counts.
    pub grace: Duration,
}

impl TaskTimeout {
    /// Returns the time after which a task is given up.
    pub(crate) fn after(self) -> Duration {
        self.timeout.saturating_add(self.grace)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use chunkcomm_cluster::Registry;

    #[test]
    fn both_go_by_the_newest_version_that_both_speak() {
        for (ours, theirs, newest) in [
            ((3, 3), (3, 3), Some(3)),
            ((3, 4), (2, 3), Some(3)),
            ((2, 3), (3, 4), Some(3)),
            ((1, 9), (4, 5), Some(5)),
            ((3, 4), (1, 2), None),
            ((1, 2), (3, 4), None),
        ] {
            assert_eq!(common(ours, theirs), newest, "{ours:?} and {theirs:?}");
        }
    }

    #[test]
    fn a_hello_says_its_versions_first() {
        let functions = Registry::new().signatures();
        let member = Hello { who: Who::Member, threads: 3, functions };
        let said = hello(&member).unwrap();
        assert_eq!(read_hello(&said), Ok((member.clone(), VERSIONS.1)));
        let with = |oldest: u16, newest: u16| {
            let versions = [oldest.to_le_bytes(), newest.to_le_bytes()].concat();
            read_hello(&[&versions, &said[4..]].concat())
        };
        assert_eq!(with(1, VERSIONS.1 + 4), Ok((member, VERSIONS.1)));
        let newer = (VERSIONS.1 + 1, VERSIONS.1 + 2);
        assert_eq!(with(newer.0, newer.1), Err(Some(newer)));
        assert_eq!(with(4, 3), Err(None));
        assert_eq!(read_hello(&said[..3]), Err(None));
        assert_eq!(read_hello(&said[..5]), Err(None));
    }

    #[test]
    fn a_worker_may_have_more_functions_in_another_order() {
        let (mut farmer, mut worker) = (Registry::new(), Registry::new());
        farmer.register("one", |it: u32| it);
        farmer.register("two", |it: u32| it);
        for name in ["two", "more", "one"] {
            worker.register(name, |it: u32| it);
        }
        let (farmers, mut workers) = (farmer.signatures(), worker.signatures());
        assert_eq!(places(&farmers, &workers), Ok(vec![2, 0]));
        workers[2].output = workers[2].output.take().map(|mut it| {
            it.hash += 1;
            it
        });
        let differs = |ours| Box::new(Difference { theirs: Some(farmers[0].clone()), ours });
        assert_eq!(places(&farmers, &workers), Err(differs(Some(workers[2].clone()))));
        assert_eq!(places(&farmers, &workers[..2]), Err(differs(None)));
    }
}
