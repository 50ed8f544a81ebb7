//! Words before the first task: a worker's identity, and the part that it gets.
//!
//! The worker's first message begins with 4 bytes: the oldest and the newest version of this
//! protocol that it speaks. These bytes and the form of Hello never change, so that two sides
//! without a common version get an error that says so. The first 2 bytes of Setup are the version
//! that both use: the newest that both speak.

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

/// The worker's first message, after its versions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Hello {
    /// The worker that was started with this index and this token.
    Started { token: Token, index: u64 },
    /// A node of the farmer's cluster; its link tells which one.
    Member,
    /// A node of the farmer's cluster whose sub-farmer is gone.
    Orphan,
    /// A node that the farm of this token has sent to this sub-farmer.
    Placed(Token),
}

/// Reason why bytes are no hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HelloError {
    /// The worker's versions, none of which this code speaks.
    Versions((u16, u16)),
    Malformed,
}

/// Encodes the worker's first message.
pub(crate) fn hello(hello: &Hello) -> Result<Vec<u8>, EncodeError> {
    let (oldest, newest) = VERSIONS;
    let mut bytes = [oldest.to_le_bytes(), newest.to_le_bytes()].concat();
    encode_into_vec(hello, &mut bytes)?;
    Ok(bytes)
}

/// Reads a worker's first message: its hello, and the version that both sides use.
pub(crate) fn read_hello(bytes: &[u8]) -> Result<(Hello, u16), HelloError> {
    let (&[a, b, c, d], hello) = bytes.split_first_chunk().ok_or(HelloError::Malformed)?;
    let theirs = (u16::from_le_bytes([a, b]), u16::from_le_bytes([c, d]));
    if theirs.0 > theirs.1 {
        return Err(HelloError::Malformed);
    }
    let version = common(VERSIONS, theirs).ok_or(HelloError::Versions(theirs))?;
    Ok((decode(hello).map_err(|_| HelloError::Malformed)?, version))
}

/// Returns the newest version that is in both ranges.
fn common(ours: (u16, u16), theirs: (u16, u16)) -> Option<u16> {
    let newest = ours.1.min(theirs.1);
    (newest >= ours.0.max(theirs.0)).then_some(newest)
}

/// The farmer's first message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Setup {
    /// Version that both sides use.
    pub(crate) version: u16,
    pub(crate) functions: Vec<Signature>,
    pub(crate) limit: Option<Limit>,
    /// Virtual workers of a thread; `None` if they are measured.
    pub(crate) virtual_workers: Option<u32>,
    pub(crate) role: Role,
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
        prefetch: Option<u32>,
        grain: Grain,
        deaths_max: u32,
    },
    /// Work for the node of this rank, in the farm of this token.
    Below {
        rank: u32,
        token: Token,
    },
}

/// Time limit of a task, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Limit {
    /// Time until the task is asked to end.
    pub(crate) timeout_ns: u64,
    /// Time from that request until the task is given up.
    pub(crate) grace_ns: u64,
}

impl Limit {
    /// Returns the time after which a task is given up, in nanoseconds.
    pub(crate) fn after_ns(self) -> u64 {
        self.timeout_ns.saturating_add(self.grace_ns)
    }
}

/// Answer of the worker to the [`Setup`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Reply {
    /// The worker computes on this number of threads.
    Ready {
        threads: u32,
    },
    Differs(Difference),
    /// Results for a farmer that takes the place of a lost one. Another reply follows.
    Results(Handed),
}

/// Results of a run that a worker has finished without a farmer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Handed {
    pub(crate) run: u32,
    /// Index of the function in the farmer's Setup.
    pub(crate) function: u32,
    /// Digest of each task's encoded input, and its encoded result.
    pub(crate) results: Vec<(u128, Vec<u8>)>,
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let said = hello(&Hello::Member).unwrap();
        assert_eq!(read_hello(&said), Ok((Hello::Member, VERSIONS.1)));
        let with = |oldest: u16, newest: u16| {
            let versions = [oldest.to_le_bytes(), newest.to_le_bytes()].concat();
            read_hello(&[&versions, &said[4..]].concat())
        };
        assert_eq!(with(1, VERSIONS.1 + 4), Ok((Hello::Member, VERSIONS.1)));
        let newer = (VERSIONS.1 + 1, VERSIONS.1 + 2);
        assert_eq!(with(newer.0, newer.1), Err(HelloError::Versions(newer)));
        assert_eq!(with(4, 3), Err(HelloError::Malformed));
        assert_eq!(read_hello(&said[..3]), Err(HelloError::Malformed));
    }
}
