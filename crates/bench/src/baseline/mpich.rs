//! MPICH over TCP: programs of its own (`ping_pong.c`, `farm.c`), compiled on the measured machine.

use std::io;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use chunkcomm_testkit::Scratch;

use super::hand_farm::HandFarmKind;
use crate::failure::{Doing, Failure};
use crate::harness::machine;
use crate::harness::near::{Bench, Timing};
use crate::harness::slices::{Contender, Slice};

/// Source of the round trips between two ranks.
const PING_PONG: &str = include_str!("ping_pong.c");

/// Source of the farm.
const FARM: &str = include_str!("farm.c");

/// Compiler and launcher: Debian's names for MPICH beside other MPIs, then the usual ones.
pub(super) const TOOLS: [(&str, &str); 2] =
    [("mpicc.mpich", "mpiexec.mpich"), ("mpicc", "mpiexec")];

/// Environment that keeps the ranks of one host from sharing memory, for both of MPICH's network
/// layers.
pub(super) const OVER_TCP: [(&str, &str); 3] =
    [("MPIR_CVAR_NOLOCAL", "1"), ("UCX_TLS", "tcp,self"), ("FI_PROVIDER", "tcp")];

/// Longest time of one run of a tool, beside the work of its tasks: 20 s. MPICH's ranks may wait for
/// each other for ever.
const DEADLINE: Duration = Duration::from_secs(20);

/// A compiled program; its folder is removed when this is dropped.
pub(super) struct Program {
    _folder: Scratch,
    pub(super) file: PathBuf,
    pub(super) launcher: &'static str,
}

impl Program {
    /// Compiles the program.
    ///
    /// # Errors
    /// If there is no MPICH.
    fn compile(name: &str, text: &str) -> Result<Self, Failure> {
        Self::compile_by(&TOOLS, name, text, &[])
    }

    /// Compiles the program by the first of these tools that can, with these options.
    ///
    /// # Errors
    /// If there is no such MPI.
    pub(super) fn compile_by(
        tools: &[(&'static str, &'static str)],
        name: &str,
        text: &str,
        options: &[&str],
    ) -> Result<Self, Failure> {
        let folder = Scratch::new("mpi");
        std::fs::create_dir(&folder).doing("making a folder for the program of an MPI")?;
        let (file, source) = (folder.join(name), folder.join(format!("{name}.c")));
        let mut program = Self { _folder: folder, file, launcher: "" };
        std::fs::write(&source, text).doing("writing the program of an MPI")?;
        let mut failed = Failure::broken("looking for mpicc", "there is none");
        for &(compiler, launcher) in tools {
            let mut command = Command::new(compiler);
            // Libraries stand behind what needs them.
            command.arg("-O2").arg("-o").arg(&program.file).arg(&source).args(options);
            match output_of(command, compiler, DEADLINE) {
                Ok(_) => {
                    program.launcher = launcher;
                    return Ok(program);
                }
                Err(failure) => failed = failure,
            }
        }
        Err(failed)
    }

    /// Runs the program on `ranks` cores, counted round; returns the numbers that it prints, a line
    /// each.
    ///
    /// # Errors
    /// If it fails, or prints another number of lines than `lines`.
    fn run(
        &self,
        ranks: usize,
        arguments: &[u64],
        lines: u64,
        deadline: Duration,
    ) -> Result<Vec<u64>, Failure> {
        let mut command = Command::new(self.launcher);
        command
            .args(["-n", &ranks.to_string(), "-bind-to", "core"])
            .arg(&self.file)
            .args(arguments.iter().map(u64::to_string))
            .envs(OVER_TCP);
        let output = output_of(command, self.launcher, deadline)?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let numbers: Result<Vec<u64>, _> = text.lines().map(str::parse).collect();
        let numbers = numbers.doing("reading times of MPICH")?;
        if numbers.len() as u64 != lines {
            let cause = format!("{} of {lines} were printed", numbers.len());
            return Err(Failure::broken("reading times of MPICH", cause));
        }
        Ok(numbers)
    }
}

/// Round trips between two ranks.
pub struct MpichEcho {
    program: Program,
    message_bytes: usize,
}

impl MpichEcho {
    /// Compiles the program and lets two ranks meet.
    ///
    /// # Errors
    /// If there is no MPICH, or it does not run here.
    pub fn open(bench: &Bench, message_bytes: usize) -> Result<Self, Failure> {
        bench.while_held(|| {
            let echo = Self { program: Program::compile("ping_pong", PING_PONG)?, message_bytes };
            echo.round_trips_ns(1)?;
            Ok(echo)
        })
    }

    fn round_trips_ns(&self, count: u64) -> Result<Vec<u64>, Failure> {
        self.program.run(2, &[self.message_bytes as u64, count], count, DEADLINE)
    }
}

/// A farmer on rank 0, a worker on each of the others: one message a task.
pub struct MpichFarm {
    program: Program,
    kind: HandFarmKind,
    /// Time that each task computes.
    work: Duration,
}

impl MpichFarm {
    /// Compiles the program and lets the ranks meet.
    ///
    /// # Errors
    /// If there is no MPICH, or it does not run here.
    pub fn open(kind: HandFarmKind, work: Duration) -> Result<Self, Failure> {
        let farm = Self { program: Program::compile("farm", FARM)?, kind, work };
        farm.seconds(1)?;
        Ok(farm)
    }

    fn seconds(&self, tasks: u64) -> Result<f64, Failure> {
        let HandFarmKind { task_bytes, work_iterations, prefetch, workers, .. } = self.kind;
        let arguments = [task_bytes as u64, tasks, work_iterations, prefetch as u64];
        // Twice the work on one core: there is a warm-up, and the machine may have other work.
        let twice = u32::try_from(tasks.saturating_mul(2)).unwrap_or(u32::MAX);
        let deadline = DEADLINE.saturating_add(self.work.saturating_mul(twice));
        let times_ns = self.program.run(1 + workers, &arguments, 1, deadline)?;
        Ok(times_ns[0] as f64 / 1e9)
    }
}

/// Returns the output of the command, which may use all cores though this thread is pinned to one.
///
/// # Errors
/// If it fails, or does not end within the deadline.
pub(crate) fn output_of(
    mut command: Command,
    name: &str,
    deadline: Duration,
) -> Result<Output, Failure> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let ran = thread::spawn(move || {
        machine::unpin();
        let child = command.spawn()?;
        let pid = child.id();
        let (done, is_done) = mpsc::channel::<()>();
        let watching = thread::spawn(move || {
            let late = is_done.recv_timeout(deadline) == Err(RecvTimeoutError::Timeout);
            if late {
                machine::terminate(pid);
            }
            late
        });
        let output = child.wait_with_output();
        drop(done);
        match watching.join() {
            Ok(true) => Err(io::Error::new(
                io::ErrorKind::TimedOut,
                format!("it did not end within {} s", deadline.as_secs()),
            )),
            _ => output,
        }
    });
    let output = ran.join().map_err(|_| Failure::broken("running", name))?;
    let output = output.doing(&format!("running {name}"))?;
    if output.status.success() {
        return Ok(output);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let first = said.lines().find(|line| line.contains("error")).or(said.lines().next());
    let cause = format!("{}: {}", output.status, first.unwrap_or_default());
    Err(Failure::broken(format!("running {name}"), cause))
}

impl Contender for MpichEcho {
    fn slice(&mut self, bench: &mut Bench, count: u64) -> Result<Slice, Failure> {
        let started = Instant::now();
        let samples_ns = bench.while_held(|| self.round_trips_ns(count))?;
        let seconds = started.elapsed().as_secs_f64();
        // Its processor time is not measured: only round trips are compared.
        let timing = Timing { seconds, cpu_ns: 0, marks_ns: Vec::new() };
        Ok(Slice::new(count, &timing, samples_ns))
    }
}

impl Contender for MpichFarm {
    fn slice(&mut self, _bench: &mut Bench, count: u64) -> Result<Slice, Failure> {
        let seconds = self.seconds(count)?;
        Ok(Slice::timed(count, seconds))
    }
}
