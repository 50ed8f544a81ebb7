//! Place of a process: the launcher that started it, and its number among the nodes.
//!
//! [`Place::detect`] is a function of the environment alone. It looks in this order, and the first
//! match counts:
//!
//! | asked | for | where nodes meet |
//! |---|---|---|
//! | `CHUNKCOMM_PARENT` with `CHUNKCOMM_COPIES` | a copy that another node started on this machine | at its parent |
//! | `CHUNKCOMM_RANK`, `CHUNKCOMM_SIZE`, `CHUNKCOMM_MANAGER` | our own variables: by hand, systemd, ssh | at `CHUNKCOMM_MANAGER` |
//! | `PMI_FD` or `PMI_PORT` | PMI-1: MPICH's `mpiexec.hydra`, Slurm's `srun --mpi=pmi2` | in the launcher's key-value space |
//! | `JOB_COMPLETION_INDEX` | an indexed job of Kubernetes | at the DNS name of index 0 |
//! | `OMPI_COMM_WORLD_RANK` | Open MPI's `mpirun` | by a file on one machine, else at `CHUNKCOMM_MANAGER` |
//! | `SLURM_PROCID` in a step | Slurm's `srun` | by a file on one machine, else at the first host of the step |
//! | `CHUNKCOMM_MANAGER` alone | a node that comes later | there |
//! | nothing | a program started by its user | it starts copies of itself |
//!
//! A variable that only a launcher sets (`PMI_RANK`, `SLURM_PROCID`) is an error without the
//! variables that lead to the other nodes. Otherwise each of the nodes would start copies. Only
//! rank 0 of Slurm may lack them: that is a batch script.

mod environment;
mod hosts;
mod kubernetes;
mod look;
mod machine;
mod meeting;
mod openmpi;
mod own;
mod pmi;
mod slurm;
pub(super) mod ssh;
#[cfg(test)]
mod tests;

pub use environment::Environment;
use look::{Look, Way};
pub(super) use machine::{hostname, on_a_thread};
pub(super) use meeting::{MANAGER_SOCKET, Meeting, Removed, private_folder, socket_folder};
pub(super) use pmi::Pmi;

use crate::launch::LaunchError;
use chunkcomm::Address;
use std::fmt;
use std::ops::RangeInclusive;

/// Most nodes that a place may name.
const SIZE_MAX: u32 = crate::proto::cluster::MEMBER_COUNT_MAX;

/// Default ports of nodes whose port must be known beforehand; `CHUNKCOMM_PORTS` sets others. They
/// are below those that systems assign by themselves.
pub const PORTS_DEFAULT: RangeInclusive<u16> = 17_700..=17_799;

/// Launcher that started a process as a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Launcher {
    /// The user: the process starts copies of itself.
    User,
    /// Another node, which started this copy on its machine.
    Copy,
    /// The variables of this crate.
    Variables,
    /// The process that reads a hosts file, over ssh.
    Ssh,
    /// A launcher that speaks PMI-1, such as MPICH's `mpiexec.hydra`.
    Pmi,
    /// An indexed job of Kubernetes.
    Kubernetes,
    /// Open MPI's `mpirun`.
    OpenMpi,
    /// Slurm's `srun`.
    Slurm,
}

impl fmt::Display for Launcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Launcher::User => "started by hand",
            Launcher::Copy => "a copy of rank 0's program",
            Launcher::Variables => "variables",
            Launcher::Ssh => "ssh",
            Launcher::Pmi => "PMI-1",
            Launcher::Kubernetes => "Kubernetes",
            Launcher::OpenMpi => "Open MPI",
            Launcher::Slurm => "Slurm",
        })
    }
}

/// Way in which the nodes find rank 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Meet {
    /// This process starts the others.
    Start,
    /// At this address of the process that started this one.
    Parent(Address),
    /// Rank 0 listens at the first free one of these addresses; others try them in turn.
    At(Vec<Address>),
    /// By the key-value space of a PMI-1 launcher.
    Pmi(PmiWay),
    /// By a file of this name in a folder of this user.
    File(String),
    /// By the address from the process that started this one over ssh.
    Told,
}

/// Connection with a PMI-1 launcher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PmiWay {
    /// Through this inherited socket.
    Fd(i32),
    /// By TCP, with this process's number.
    Port { address: String, id: String },
}

/// Place of a process: its launcher, its rank, and the way to the other nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    launcher: Launcher,
    rank: Option<u32>,
    size: Option<u32>,
    /// Whether all nodes are on this machine, as far as the launcher reports.
    one_machine: bool,
    /// Number of nodes on this machine, if the launcher reports it.
    local_size: Option<u32>,
    /// The name that peers know this machine by.
    host: Option<String>,
    ports: Option<RangeInclusive<u16>>,
    cluster: Option<String>,
    pub(crate) meet: Meet,
    /// Variables that decided, in the order in which they were looked at.
    found: Vec<(String, String)>,
}

impl Place {
    /// Reads the place from the environment of a process.
    ///
    /// # Errors
    /// [`LaunchError::Variable`]: a variable of the first matching launcher makes no sense, or is missing.
    pub fn detect(environment: &Environment) -> Result<Place, LaunchError> {
        let look = &mut Look { environment, found: Vec::new() };
        let ports = look.ports()?;
        let ways: [Way; 7] = [
            own::copy,
            own::variables,
            pmi::place,
            kubernetes::place,
            openmpi::place,
            slurm::place,
            own::later,
        ];
        let mut place = None;
        for way in ways {
            place = way(look)?;
            if place.is_some() {
                break;
            }
        }
        let mut place = match place {
            Some(place) => place,
            None => {
                pmi::check_nobody(look)?;
                slurm::check_nobody(look)?;
                Place::new(Launcher::User, Meet::Start)
            }
        };
        if place.host.is_none() {
            place.host = look.own_host()?;
        }
        place.found = std::mem::take(&mut look.found);
        place.ports = ports;
        Ok(place)
    }

    fn new(launcher: Launcher, meet: Meet) -> Place {
        Place {
            launcher,
            rank: None,
            size: None,
            one_machine: matches!(launcher, Launcher::User | Launcher::Copy),
            local_size: None,
            host: None,
            ports: None,
            cluster: None,
            meet,
            found: Vec::new(),
        }
    }

    fn of(self, rank: u32, size: u32) -> Place {
        Place { rank: Some(rank), size: Some(size), ..self }
    }

    /// Returns the launcher of this process.
    #[must_use]
    pub fn launcher(&self) -> Launcher {
        self.launcher
    }

    /// Returns the rank, if known from the environment alone.
    #[must_use]
    pub fn rank(&self) -> Option<u32> {
        self.rank
    }

    /// Returns the number of nodes, if known from the environment alone.
    #[must_use]
    pub fn size(&self) -> Option<u32> {
        self.size
    }

    /// Returns whether all nodes are on this machine, as far as the launcher reports.
    #[must_use]
    pub fn is_one_machine(&self) -> bool {
        self.one_machine
    }

    /// Adds the launcher's answer to the place.
    pub(super) fn learn(&mut self, rank: u32, size: u32) {
        (self.rank, self.size) = (Some(rank), Some(size));
        self.one_machine |= self.local_size == Some(size);
    }

    /// Whether rank 0 has ended, as far as this process can see before it has reached it.
    pub(super) fn rank_0_has_ended(&self) -> bool {
        let is_seen = self.launcher == Launcher::Slurm && self.one_machine;
        is_seen && self.size.is_some_and(slurm::rank_0_has_ended)
    }

    pub(super) fn host(&self) -> Option<&str> {
        self.host.as_deref()
    }

    pub(super) fn cluster(&self) -> Option<&str> {
        self.cluster.as_deref()
    }

    pub(super) fn ports(&self) -> Option<RangeInclusive<u16>> {
        self.ports.clone()
    }

    /// Explains the place and its reasons to people, in some lines.
    #[must_use]
    pub fn explain(&self) -> String {
        let number =
            |number: Option<u32>| number.map_or("not told yet".into(), |it| it.to_string());
        let rank = match self.meet {
            Meet::Start => "0, as nobody else started this program".to_owned(),
            _ => format!("{} of {}", number(self.rank), number(self.size)),
        };
        let machines = if self.one_machine { "one" } else { "several" };
        self.explain_as(&rank, machines, &self.meet.to_string())
    }

    /// Explains as [`Place::explain`], for the process that the user started with a hosts file.
    pub(super) fn explain_with_hosts(&self) -> String {
        let rank = "none: this process starts all nodes, and prints what they print";
        let meet = "at rank 0, as this process tells them by ssh";
        self.explain_as(rank, "those of the hosts file", meet)
    }

    fn explain_as(&self, rank: &str, machines: &str, meet: &str) -> String {
        let mut text = format!(
            "launcher    {}\nrank        {rank}\nmachines    {machines}\nmeet        {meet}\n",
            self.launcher
        );
        for (index, (name, value)) in self.found.iter().enumerate() {
            let head = if index == 0 { "because of" } else { "" };
            text += &format!("{head:11} {name}={value}\n");
        }
        if self.found.is_empty() {
            text += "because     no variable of any launcher is set\n";
        }
        text
    }
}

impl Meet {
    /// Returns the way to rank 0 at these ports of a host.
    fn at(host: &str, ports: impl IntoIterator<Item = u16>) -> Meet {
        let at = |port| Address::Tcp { host: host.to_owned(), port };
        Meet::At(ports.into_iter().map(at).collect())
    }
}

impl fmt::Display for Meet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Meet::Start => f.write_str("this process starts the others, on this machine"),
            Meet::Parent(address) => {
                write!(f, "at {address}, of the process that started this one")
            }
            Meet::At(addresses) => match &addresses[..] {
                [Address::Tcp { host, port }] => write!(f, "at {host}, port {port}"),
                [Address::Tcp { host, port }, ..] => write!(f, "at {host}, from port {port} on"),
                addresses => write!(f, "at {}", addresses[0]),
            },
            Meet::Pmi(PmiWay::Fd(fd)) => {
                write!(f, "in the launcher's key-value space, through descriptor {fd}")
            }
            Meet::Pmi(PmiWay::Port { address, .. }) => {
                write!(f, "in the launcher's key-value space, at {address}")
            }
            Meet::File(name) => write!(f, "by the file {name} in a folder of this user"),
            Meet::Told => f.write_str("as the process says that started this one over ssh"),
        }
    }
}
