//! Names of workers.

use std::fmt;
use std::sync::Arc;

use chunkcomm::error::Plain;
use chunkcomm_cluster::cluster::Member;

/// Name of a worker: its index, and its kind: a process, a thread or a node of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerName {
    /// Index, from 0 and below the farm's number of workers.
    pub index: usize,
    /// Id of the process that the farmer started for the worker; `None` for others.
    pub pid: Option<u32>,
    /// The cluster node that is the worker: its rank, host and process; `None` for others.
    pub member: Option<Arc<Member>>,
}

impl WorkerName {
    pub(crate) fn thread(index: usize) -> WorkerName {
        WorkerName { index, pid: None, member: None }
    }

    pub(crate) fn process(index: usize, pid: u32) -> WorkerName {
        WorkerName { index, pid: Some(pid), member: None }
    }

    pub(crate) fn member(index: usize, member: Member) -> WorkerName {
        WorkerName { index, pid: None, member: Some(Arc::new(member)) }
    }
}

impl fmt::Display for WorkerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "worker {}", self.index)?;
        match (&self.member, self.pid) {
            (Some(member), _) => {
                let host = Plain(&member.host);
                write!(f, " ({}, process {} on {host})", member.id, member.pid)
            }
            (None, Some(pid)) => write!(f, " (process {pid})"),
            (None, None) => f.write_str(" (thread)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use chunkcomm_cluster::cluster::NodeId;

    #[test]
    fn each_kind_of_worker_has_its_name() {
        let id = NodeId { rank: 3, incarnation: 9 };
        let member =
            Member { id, host: "pear".into(), pid: 4242, addresses: Vec::new(), name: None };
        assert_eq!(
            WorkerName::member(2, member).to_string(),
            "worker 2 (rank 3, process 4242 on pear)"
        );
        assert_eq!(WorkerName::process(1, 77).to_string(), "worker 1 (process 77)");
        assert_eq!(WorkerName::thread(0).to_string(), "worker 0 (thread)");
    }
}
