//! Other systems beside ours: which there are, and the fastest settings of each.
//!
//! tokio-util's `Framed` and tarpc run in the two processes of ours, behind the feature `peers`. The
//! others are programs of their own ([`crate::baseline::external`]), built by `peers/build`. Each is
//! written as its documentation says (*docs*) and with its best settings (*best*). Both run in turns
//! for a moment, and the faster one is measured.

pub mod against;
mod contest;
mod versions;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

use crate::baseline::external::{Between, External, Patience, Words};
use crate::failure::Failure;
use crate::harness::near::Bench;
use crate::harness::slices::{Contender, name_of};
use crate::options::values;

pub use contest::{Opened, open, open_best};

/// Another system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum System {
    /// tokio-util's Framed with its length-prefixed codec; needs the feature `peers`.
    Framed,
    /// timely: the exchange of its dataflow.
    Timely,
    /// tarpc over TCP, with the same runtime; needs the feature `peers`.
    Tarpc,
    /// tonic: gRPC with prost.
    Tonic,
    /// zenoh, between two peers.
    Zenoh,
    /// ZeroMQ's libzmq, in C.
    Zmq,
    /// NATS: async-nats through a nats-server.
    Nats,
    /// MPICH over TCP, which spins; in C.
    Mpich,
    /// Open MPI over TCP, which spins; in C.
    Openmpi,
}

/// A thing that systems are compared in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Discipline {
    /// Messages one way.
    OneWay,
    /// Round trips of one message, asleep between them where the system sleeps.
    RoundTrip,
    /// Calls with 256 in flight.
    Calls,
    /// Large payloads one way.
    Bandwidth,
    /// Connections that carry nothing.
    Idle,
}

/// Calls in flight in the programs of other systems.
pub const IN_FLIGHT: u64 = 256;

impl System {
    /// Returns the systems that are compared in a discipline, in the order of the table.
    pub fn of(discipline: Discipline) -> Vec<Self> {
        Self::value_variants().iter().copied().filter(|system| system.has(discipline)).collect()
    }

    /// Whether the system is compared in the discipline.
    pub fn has(self, discipline: Discipline) -> bool {
        match self {
            Self::Framed => discipline != Discipline::Calls,
            Self::Tarpc => !matches!(discipline, Discipline::OneWay | Discipline::Bandwidth),
            Self::Timely | Self::Mpich | Self::Openmpi => {
                !matches!(discipline, Discipline::Calls | Discipline::Idle)
            }
            Self::Tonic | Self::Zenoh | Self::Zmq | Self::Nats => true,
        }
    }

    /// Whether the system polls without sleeping.
    pub fn spins(self) -> bool {
        matches!(self, Self::Mpich | Self::Openmpi)
    }

    /// Whether the system runs in the two processes of ours.
    pub fn is_within(self) -> bool {
        matches!(self, Self::Framed | Self::Tarpc)
    }

    /// Returns name and version of a system that runs in the two processes of ours.
    pub fn version_within(self) -> String {
        versions::within(self)
    }

    /// Returns the systems of which `--against best` takes the fastest: in round trips those that
    /// sleep as ours does, or spin; one way all but timely, whose exchange is part of a computation.
    pub fn rivals(discipline: Discipline, spinning: bool) -> Vec<Self> {
        let is_rival = |system: &Self| match discipline {
            Discipline::RoundTrip => system.spins() == spinning,
            Discipline::OneWay => *system != Self::Timely,
            _ => true,
        };
        Self::of(discipline).into_iter().filter(is_rival).collect()
    }
}

impl Discipline {
    /// Returns the word by which a program is told the discipline.
    pub fn word(self) -> &'static str {
        match self {
            Self::OneWay => "one-way",
            Self::RoundTrip => "round-trip",
            Self::Calls => "calls",
            Self::Bandwidth => "bandwidth",
            Self::Idle => "idle",
        }
    }

    /// Whether a median time is compared, and less is better.
    pub fn is_timed(self) -> bool {
        self == Self::RoundTrip
    }
}

/// Settings of a system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flavour {
    /// As the documentation of the system says.
    Docs,
    /// The best settings that were found.
    Best,
}

impl Flavour {
    /// Returns the word by which a program is told its settings.
    pub fn word(self) -> &'static str {
        match self {
            Self::Docs => "docs",
            Self::Best => "best",
        }
    }

    /// Returns the settings that differ for a system in a discipline.
    fn of(system: System, discipline: Discipline) -> &'static [Self] {
        match system {
            System::Tarpc => &[Self::Docs],
            // As documented it polls without sleeping, and would stand beside systems that sleep.
            System::Timely if discipline == Discipline::RoundTrip => &[Self::Best],
            // The boundary of writes is all that there is to set.
            System::Framed if !matches!(discipline, Discipline::OneWay | Discipline::Bandwidth) => {
                &[Self::Docs]
            }
            _ => &[Self::Docs, Self::Best],
        }
    }
}

/// Work that a system is to do.
#[derive(Debug, Clone, Copy)]
pub struct Task {
    /// The discipline.
    pub discipline: Discipline,
    /// Bytes of a message.
    pub bytes: usize,
    /// Calls in flight, for a service.
    pub in_flight: u64,
    /// Messages of the first slice, from which the speed is found.
    pub first_try: u64,
}

/// Place of the programs of other systems.
#[derive(Debug, Clone, Args)]
pub struct PeersDir {
    /// Folder of the programs of other systems [default: where peers/build puts them]
    #[arg(long, value_name = "DIR", value_parser = values::folder)]
    peers_dir: Option<PathBuf>,
}

impl PeersDir {
    /// Returns the folder.
    pub fn path(&self) -> &Path {
        let built = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../peers/target/release"));
        self.peers_dir.as_deref().unwrap_or(built)
    }

    /// Returns the option that was given, as words of a command line.
    pub fn to_arguments(&self) -> Vec<OsString> {
        let folder = self.peers_dir.as_ref().map(|folder| folder.clone().into_os_string());
        folder.map_or_else(Vec::new, |folder| vec!["--peers-dir".into(), folder])
    }

    fn program(&self, system: System) -> Result<PathBuf, Failure> {
        let name = name_of(system);
        let program = self.path().join(format!("peer-{name}"));
        if program.is_file() {
            return Ok(program);
        }
        Err(Failure::broken(
            format!("looking for {}", program.display()),
            format!("it is not built; peers/build {name} builds it"),
        ))
    }
}

/// Starts the program of a system.
///
/// # Errors
/// If it is not built, or does not begin.
pub fn start(
    bench: &Bench,
    system: System,
    task: &Task,
    flavour: Flavour,
    folder: &PeersDir,
) -> Result<External, Failure> {
    let program = folder.program(system)?;
    let Task { discipline, bytes, in_flight, .. } = *task;
    if discipline == Discipline::Calls && in_flight != IN_FLIGHT {
        return Err(Failure::broken(
            format!("starting {}", program.display()),
            format!("it makes {IN_FLIGHT} calls at a time, not {in_flight}"),
        ));
    }
    let words = Words { bench: discipline.word(), bytes, flavour: flavour.word() };
    let between = if system.spins() { Between::Held } else { Between::Asleep };
    External::open(bench, &program, words, between, Patience::USUAL)
}

/// Opens a system that runs in the two processes of ours.
#[cfg(feature = "peers")]
fn open_within(
    bench: &mut Bench,
    system: System,
    task: &Task,
    flavour: Flavour,
) -> Result<Box<dyn Contender>, Failure> {
    use crate::baseline::framed::{BOUNDARY_BYTES, NearFramed};
    use crate::baseline::tarpc::Tarpc;
    use crate::harness::protocol::{FramedKind, FramedUse};

    let used = match task.discipline {
        Discipline::RoundTrip => FramedUse::RoundTrip,
        Discipline::Bandwidth => FramedUse::Payload,
        _ => FramedUse::OneWay,
    };
    if system == System::Framed {
        let boundary = (flavour == Flavour::Best).then_some(BOUNDARY_BYTES);
        let kind = FramedKind { bytes: task.bytes, used, boundary };
        return Ok(Box::new(NearFramed::open(bench, kind)?));
    }
    let in_flight = if task.discipline == Discipline::Calls { task.in_flight } else { 1 };
    Ok(Box::new(Tarpc::open(bench, task.bytes, in_flight)?))
}

/// Fails: this build has no such system.
#[cfg(not(feature = "peers"))]
fn open_within(
    _: &mut Bench,
    _: System,
    _: &Task,
    _: Flavour,
) -> Result<Box<dyn Contender>, Failure> {
    Err(crate::failure::no_peers())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rivals_sleep_or_spin_as_ours_does() {
        let asleep = System::rivals(Discipline::RoundTrip, false);
        assert!(asleep.contains(&System::Timely) && asleep.contains(&System::Tarpc));
        assert!(!asleep.contains(&System::Mpich));
        let spinning = System::rivals(Discipline::RoundTrip, true);
        assert_eq!(spinning, [System::Mpich, System::Openmpi]);
        let one_way = System::rivals(Discipline::OneWay, false);
        assert!(one_way.contains(&System::Framed) && !one_way.contains(&System::Timely));
        assert!(System::rivals(Discipline::Bandwidth, false).contains(&System::Mpich));
        assert!(!System::of(Discipline::Calls).contains(&System::Framed));
    }
}
