//! Collective calls and transfers of MPICH and Open MPI over TCP: programs of their own (`calls.c`,
//! `arrays.c`), compiled on the measured machine.
//!
//! A *form* is a library with settings, and a way of calling. The fastest one depends on the operation
//! and the size, so heats find it.

use std::process::{Command, Stdio};
use std::thread;

use super::mpich::{OVER_TCP, Program, TOOLS};
use crate::failure::{Doing, Failure};
use crate::harness::machine;
use crate::harness::ranks::{Meeting, Ranks};

/// A program of an MPI.
#[derive(Debug)]
pub struct Source {
    name: &'static str,
    text: &'static str,
    /// Further options of each library's compiler: MPICH's and Open MPI's.
    options: [&'static [&'static str]; 2],
}

/// A rank of a collective call.
pub static CALLS: Source = Source {
    name: "calls",
    text: concat!(include_str!("rank.h"), include_str!("calls.c")),
    options: [&[], &[]],
};

/// A rank of a transfer by `MPI_Alltoallw`.
pub static ALL_TO_ALL: Source = Source { name: "arrays", text: ARRAYS, options: [&[], &[]] };

/// A rank of a transfer by ScaLAPACK.
pub static SCALAPACK: Source = Source {
    name: "arrays",
    text: ARRAYS,
    options: [&["-DSCALAPACK", "-lscalapack-mpich"], &["-DSCALAPACK", "-lscalapack-openmpi"]],
};

const ARRAYS: &str = concat!(include_str!("rank.h"), include_str!("arrays.c"));

/// Compiler and launcher of Open MPI: Debian's names beside other MPIs, then the usual ones.
const OPEN_MPI_TOOLS: [(&str, &str); 2] =
    [("mpicc.openmpi", "mpirun.openmpi"), ("mpicc", "mpirun")];

/// Environment in which `mpirun` runs for root too.
const ROOT_MAY: [(&str, &str); 2] =
    [("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")];

/// Options of `mpirun`: no binding, since ranks pin themselves, and TCP over loopback alone.
const OPEN_MPI_OVER_TCP: &str = "--bind-to none --mca pml ob1 --mca btl tcp,self --mca \
    btl_tcp_if_include lo";

/// Options of `mpirun` where ranks share cores: a rank that polls gives its core away.
const OPEN_MPI_SHARING: &str = "--oversubscribe --mca mpi_yield_when_idle 1";

/// Open MPI's pipelines of `adapt`, for broadcast and reduce.
const ADAPT: &str = "--mca coll_adapt_priority 100";

/// Open MPI's `tuned` with segments of 512 KiB: pipelines, and the segmented ring.
const SEGMENTS_512K: &str = "--mca coll_tuned_use_dynamic_rules 1 --mca coll_tuned_bcast_algorithm \
    3 --mca coll_tuned_bcast_algorithm_segmentsize 524288 --mca coll_tuned_reduce_algorithm 3 --mca \
    coll_tuned_reduce_algorithm_segmentsize 524288 --mca coll_tuned_allreduce_algorithm 5 --mca \
    coll_tuned_allreduce_algorithm_segmentsize 524288";

/// An MPI.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Library {
    /// MPICH.
    Mpich,
    /// Open MPI.
    OpenMpi,
}

/// A library with settings, and a way of calling.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Form {
    /// Library and settings.
    pub name: &'static str,
    /// Library.
    pub library: Library,
    /// Further options of the launcher.
    options: &'static str,
    /// Blocking, nonblocking or persistent.
    pub request: &'static str,
    /// Wait or yield.
    wait: &'static str,
}

impl Form {
    /// Returns the forms of MPICH. Where ranks share cores they look for the end of a call, and give
    /// the core away in between: a wait would keep it.
    pub fn mpich(shares_cores: bool) -> Vec<Self> {
        let form = |request, wait| Self {
            name: "mpich",
            library: Library::Mpich,
            options: "",
            request,
            wait,
        };
        if shares_cores {
            return vec![form("nonblocking", "yield"), form("persistent", "yield")];
        }
        vec![form("blocking", "wait"), form("persistent", "wait")]
    }

    /// Returns the forms of Open MPI with its own settings.
    pub fn open_mpi() -> Vec<Self> {
        let form = |request| Self {
            name: "openmpi",
            library: Library::OpenMpi,
            options: "",
            request,
            wait: "wait",
        };
        vec![form("blocking"), form("persistent")]
    }

    /// Returns the form of Open MPI with `adapt`.
    pub fn adapt() -> Self {
        Self { name: "openmpi-adapt", options: ADAPT, ..Self::open_mpi()[0] }
    }

    /// Returns the form of Open MPI with segments of 512 KiB.
    pub fn segments() -> Self {
        Self { name: "openmpi-512k", options: SEGMENTS_512K, ..Self::open_mpi()[0] }
    }
}

/// A program, compiled for the libraries that are here.
pub struct Compiled {
    source: &'static Source,
    mpich: Option<Program>,
    open_mpi: Option<Program>,
}

impl Compiled {
    /// Prepares a program; it is compiled when it is started.
    pub fn of(source: &'static Source) -> Self {
        Self { source, mpich: None, open_mpi: None }
    }

    /// Starts the ranks of a form; the program's arguments are the control port, these, and the
    /// form's.
    ///
    /// # Errors
    /// If there is no such library, or its ranks do not start.
    pub fn start(
        &mut self,
        form: Form,
        ranks: usize,
        arguments: &[String],
    ) -> Result<Ranks, Failure> {
        let program = self.program(form.library)?;
        let meeting = Meeting::open()?;
        let shares_cores = ranks > machine::core_count();
        let mut command = Command::new(program.launcher);
        command.envs(ROOT_MAY).args(["-n", &ranks.to_string()]);
        match form.library {
            Library::Mpich => command.envs(OVER_TCP).env("UCX_NET_DEVICES", "lo"),
            Library::OpenMpi => command.args(OPEN_MPI_OVER_TCP.split_whitespace()),
        };
        if form.library == Library::OpenMpi && shares_cores {
            command.args(OPEN_MPI_SHARING.split_whitespace());
        }
        command.args(form.options.split_whitespace()).arg(&program.file);
        command
            .arg(meeting.port()?.to_string())
            .args(arguments)
            .args([form.request, form.wait])
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        let name = program.launcher;
        // A launcher that inherits one core would have all ranks on it.
        let starting = thread::spawn(move || {
            machine::unpin();
            command.spawn()
        });
        let child = starting.join().map_err(|_| Failure::broken("starting", name))?;
        meeting.gather(ranks, vec![child.doing(&format!("starting {name}"))?])
    }

    fn program(&mut self, library: Library) -> Result<&Program, Failure> {
        let Source { name, text, options: [of_mpich, of_open_mpi] } = self.source;
        let (place, tools, options) = match library {
            Library::Mpich => (&mut self.mpich, &TOOLS, [&["-DWANT_MPICH"], *of_mpich].concat()),
            Library::OpenMpi => {
                (&mut self.open_mpi, &OPEN_MPI_TOOLS, [&["-DWANT_OPEN_MPI"], *of_open_mpi].concat())
            }
        };
        match place {
            Some(program) => Ok(program),
            None => Ok(place.insert(Program::compile_by(tools, name, text, &options)?)),
        }
    }
}
