//! MPICH over TCP: a program of its own (`ping_pong.c`), compiled on the measured machine.

use std::io;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use crate::failure::{Doing, Failure};
use crate::harness::machine;
use crate::harness::near::{Bench, Timing};
use crate::harness::slices::{Contender, Slice};

/// Source of the program: round trips between two ranks.
const PROGRAM: &str = include_str!("ping_pong.c");

/// Compiler and launcher: Debian's names for MPICH beside other MPIs, then the usual ones.
const TOOLS: [(&str, &str); 2] = [("mpicc.mpich", "mpiexec.mpich"), ("mpicc", "mpiexec")];

/// Environment that keeps two ranks of one host from sharing memory, for both of MPICH's network
/// layers.
const OVER_TCP: [(&str, &str); 3] =
    [("MPIR_CVAR_NOLOCAL", "1"), ("UCX_TLS", "tcp,self"), ("FI_PROVIDER", "tcp")];

/// Longest time of one run of a tool: 20 s. MPICH's ranks may wait for each other for ever.
const DEADLINE: Duration = Duration::from_secs(20);

/// The compiled program; its folder is removed when this is dropped.
pub struct MpichEcho {
    folder: PathBuf,
    launcher: &'static str,
    message_bytes: usize,
}

impl MpichEcho {
    /// Compiles the program and lets two ranks meet.
    ///
    /// # Errors
    /// If there is no MPICH, or it does not run here.
    pub fn open(message_bytes: usize) -> Result<Self, Failure> {
        let name = format!("chunkperf-mpich-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir(&folder).doing("making a folder for the program of MPICH")?;
        let mut echo = Self { folder, launcher: "", message_bytes };
        let source = echo.folder.join("ping_pong.c");
        std::fs::write(&source, PROGRAM).doing("writing the program of MPICH")?;
        let mut failed = Failure::broken("looking for mpicc", "there is none");
        for (compiler, launcher) in TOOLS {
            let mut command = Command::new(compiler);
            command.arg("-O2").arg("-o").arg(echo.program()).arg(&source);
            match output_of(command, compiler) {
                Ok(_) => {
                    echo.launcher = launcher;
                    echo.round_trips_ns(1)?;
                    return Ok(echo);
                }
                Err(failure) => failed = failure,
            }
        }
        Err(failed)
    }

    fn program(&self) -> PathBuf {
        self.folder.join("ping_pong")
    }

    fn round_trips_ns(&self, count: u64) -> Result<Vec<u64>, Failure> {
        let mut command = Command::new(self.launcher);
        command
            .args(["-n", "2", "-bind-to", "core"])
            .arg(self.program())
            .args([self.message_bytes.to_string(), count.to_string()])
            .envs(OVER_TCP);
        let output = output_of(command, self.launcher)?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let samples_ns: Result<Vec<u64>, _> = text.lines().map(str::parse).collect();
        let samples_ns = samples_ns.doing("reading round trips of MPICH")?;
        if samples_ns.len() as u64 != count {
            let cause = format!("{} of {count} were printed", samples_ns.len());
            return Err(Failure::broken("reading round trips of MPICH", cause));
        }
        Ok(samples_ns)
    }
}

/// Returns the output of the command, which may use all cores though this thread is pinned to one.
fn output_of(mut command: Command, name: &str) -> Result<Output, Failure> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let ran = thread::spawn(move || {
        machine::unpin();
        let child = command.spawn()?;
        let pid = child.id();
        let (done, is_done) = mpsc::channel::<()>();
        let watching = thread::spawn(move || {
            let late = is_done.recv_timeout(DEADLINE) == Err(RecvTimeoutError::Timeout);
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
                format!("it did not end within {} s", DEADLINE.as_secs()),
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

impl Drop for MpichEcho {
    fn drop(&mut self) {
        // If this fails, a folder of a few KiB stays under the system's temporary one.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Contender for MpichEcho {
    fn slice(&mut self, bench: &mut Bench, count: u64) -> Result<Slice, Failure> {
        bench.hold_far_ends(true);
        let started = Instant::now();
        let samples_ns = self.round_trips_ns(count);
        bench.hold_far_ends(false);
        let samples_ns = samples_ns?;
        let seconds = started.elapsed().as_secs_f64();
        // Its processor time is not measured: only round trips are compared.
        let timing = Timing { seconds, cpu_ns: 0, marks_ns: Vec::new() };
        Ok(Slice::new(count, &timing, samples_ns))
    }
}
