//! The same farm on PVM itself: a program of its own, compiled on the measured machine, under a daemon of its own.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use chunkcomm_testkit::Scratch;

use super::Job;
use crate::baseline::mpich::output_of;
use crate::failure::{Doing, Failure};

/// Source of the farm.
pub(super) const SOURCE: &str = include_str!("pvm.c");

/// Longest time of the compiler, of a run, and until the daemon is there.
const DEADLINE: Duration = Duration::from_secs(20);

/// Folder of PVM's own files, by Debian's package.
const ROOT: &str = "/usr/lib/pvm3";

/// The compiled farm, and the running daemon.
pub(super) struct Pvm {
    folder: Scratch,
    daemon: Child,
}

/// Figures of a run.
pub(super) struct Run {
    pub(super) seconds: f64,
    pub(super) messages: u64,
    /// Steps of all pixels, 16 bits each.
    pub(super) steps: Vec<u8>,
}

impl Pvm {
    /// Compiles the farm, and starts a daemon.
    ///
    /// # Errors
    /// If there is no PVM.
    pub(super) fn start() -> Result<Pvm, Failure> {
        let folder = Scratch::folder("pvm");
        let source = folder.join("farm.c");
        std::fs::write(&source, SOURCE).doing("writing the farm of PVM")?;
        let mut compiler = Command::new("cc");
        compiler.arg("-O2").arg("-o").arg(folder.join("farm")).arg(&source).arg("-lpvm3");
        output_of(compiler, "cc -lpvm3", DEADLINE)?;
        let mut daemon = Command::new("pvmd");
        // On the loopback address, which needs no name of this host.
        daemon.arg("-n127.0.0.1").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        environment(&mut daemon, &folder);
        let pvm = Pvm { daemon: daemon.spawn().doing("starting pvmd")?, folder };
        let begun = Instant::now();
        let mut tried = pvm.run(&Job { held: 1, workers: 1, pixels: [2, 2], iterations: 1 });
        while tried.is_err() && begun.elapsed() < DEADLINE {
            std::thread::sleep(Duration::from_millis(100));
            tried = pvm.run(&Job { held: 1, workers: 1, pixels: [2, 2], iterations: 1 });
        }
        tried.map(|_| pvm)
    }

    /// Runs the farm once.
    ///
    /// # Errors
    /// If it fails or hangs.
    pub(super) fn run(&self, job: &Job) -> Result<Run, Failure> {
        let mut command = Command::new(self.folder.join("farm"));
        let [width, height] = job.pixels;
        let numbers = [job.workers, job.held, width, height, job.iterations];
        let steps = self.folder.join("steps");
        command.args(numbers.map(|number| number.to_string())).arg(&steps);
        environment(&mut command, &self.folder);
        let output = output_of(command, "the farm of PVM", DEADLINE)?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let numbers: Vec<u64> = text.lines().filter_map(|line| line.parse().ok()).collect();
        let &[nanos, messages] = &numbers[..] else {
            return Err(Failure::broken("understanding the farm of PVM", text));
        };
        let steps = std::fs::read(steps).doing("reading the steps of PVM's farm")?;
        Ok(Run { seconds: nanos as f64 / 1e9, messages, steps })
    }
}

/// Its files are in a folder of this run: another daemon of this user does not matter.
fn environment(command: &mut Command, folder: &Scratch) {
    if std::env::var_os("PVM_ROOT").is_none() {
        command.env("PVM_ROOT", ROOT);
    }
    command.env("PVM_TMP", &**folder).env("PVM_ALLOW_ROOT", "1");
}

impl Drop for Pvm {
    fn drop(&mut self) {
        // It takes its tasks along.
        crate::harness::machine::terminate(self.daemon.id());
        let _ = self.daemon.wait();
    }
}
