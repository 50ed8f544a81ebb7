//! A program of another system, `peer-NAME`: two processes of its own that run slice after slice.
//!
//! ```text
//! chunkperf -> peer: peer-NAME BENCH SIZE NEAR FAR FLAVOUR
//! peer -> chunkperf: NAME VERSION            once, when its two processes are connected
//! chunkperf -> peer: N                       for each slice
//! peer -> chunkperf: {"seconds":..,"count":N,"p50_us":..,"p99_us":..}
//! ```
//!
//! For idle connections a slice opens N further ones, and the answer is `{"count":N,"bytes":..}`.
//! The end of its input ends the program. It tells a failure on standard error, with exit status 1,
//! and a bench that the system has not with status 3.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use serde::Deserialize;

use crate::failure::{Doing, Failure};
use crate::harness::machine;
use crate::harness::near::Bench;
use crate::harness::slices::{Contender, Slice};

/// Longest times that a program may be silent.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// Time until it is connected.
    pub opening: Duration,
    /// Time of a slice beyond twenty times what its messages took before.
    pub slice: Duration,
}

impl Patience {
    /// For a busy machine: 30 s to connect, since a daemon may have to start, and 20 s a slice.
    pub const USUAL: Self =
        Self { opening: Duration::from_secs(30), slice: Duration::from_secs(20) };
}

/// Longest time of a message of the first slice, whose speed is not known: 100 us.
const FIRST_MESSAGE: Duration = Duration::from_micros(100);

/// Longest time of a message, as a multiple of what one took before: 20.
const PATIENCE_TIMES: f64 = 20.0;

/// Longest time in which a connection is made: 1 s. zenoh's takes a third of it.
const CONNECTION: Duration = Duration::from_secs(1);

/// Time in which a program has to end after its input has: 2 s.
const END_TIMEOUT: Duration = Duration::from_secs(2);

/// Pause between two looks whether it has ended: 5 ms.
const LOOK: Duration = Duration::from_millis(5);

/// Longest wait for the next line of a program that has ended: 200 ms.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// Samples that stand for the percentiles of a slice.
const SAMPLES: usize = 100;

/// Words that start a program.
#[derive(Debug, Clone, Copy)]
pub struct Words {
    /// The bench: `one-way`, `round-trip`, `calls`, `bandwidth` or `idle`.
    pub bench: &'static str,
    /// Bytes of a message.
    pub bytes: usize,
    /// The settings: `docs` or `best`.
    pub flavour: &'static str,
}

/// Processes of a program between its slices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Between {
    /// They sleep, and wait for the next slice.
    Asleep,
    /// They poll without sleeping, and are stopped by a signal. It would interrupt waits of others.
    Held,
}

/// A running program.
pub struct External {
    name: String,
    version: String,
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    errors: Receiver<String>,
    between: Between,
    patience: Patience,
    /// Longest time of a message so far, in seconds; `None` before the first slice.
    message_seconds: Option<f64>,
    held: Vec<u32>,
}

/// Answer to a slice.
#[derive(Debug, Deserialize)]
struct Answer {
    count: u64,
    #[serde(default)]
    seconds: Option<f64>,
    #[serde(default)]
    p50_us: Option<f64>,
    #[serde(default)]
    p99_us: Option<f64>,
    #[serde(default)]
    bytes: Option<f64>,
}

impl External {
    /// Starts the program and waits until its two processes are connected.
    ///
    /// # Errors
    /// If it is not there, fails, or is silent for too long.
    pub fn open(
        bench: &Bench,
        program: &Path,
        words: Words,
        between: Between,
        patience: Patience,
    ) -> Result<Self, Failure> {
        let mut external = Self::start(program, words, between, patience)?;
        bench.while_held(|| external.greet())?;
        Ok(external)
    }

    fn start(
        program: &Path,
        words: Words,
        between: Between,
        patience: Patience,
    ) -> Result<Self, Failure> {
        let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let core = |index| machine::nth_core(index).map_or("-".to_owned(), |core| core.to_string());
        let mut command = Command::new(program);
        command
            .args([words.bench, &words.bytes.to_string(), &core(0), &core(1), words.flavour])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        // It pins itself, to a core that this thread may not use.
        machine::unpin();
        let child = command.spawn();
        machine::pin(0);
        let mut child = child.doing(&format!("starting {}", program.display()))?;
        let (lines, errors) = (lines_of(child.stdout.take()), lines_of(child.stderr.take()));
        let stdin = child.stdin.take();
        let (version, held) = (String::new(), Vec::new());
        Ok(Self {
            name,
            version,
            child,
            stdin,
            lines,
            errors,
            between,
            patience,
            message_seconds: None,
            held,
        })
    }

    fn greet(&mut self) -> Result<(), Failure> {
        self.version = self.line(self.patience.opening)?;
        self.hold();
        Ok(())
    }

    /// Returns the name and version that the program has told.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Opens `count` further connections; returns the bytes by which both processes have grown.
    ///
    /// # Errors
    /// If the program fails, or is silent for too long.
    pub fn grow(&mut self, bench: &Bench, count: u64) -> Result<f64, Failure> {
        let patience = CONNECTION.saturating_mul(u32::try_from(count).unwrap_or(u32::MAX));
        let answer = bench.while_held(|| self.ask(count, patience))?;
        answer.bytes.ok_or_else(|| self.broken("it told no bytes"))
    }

    /// Returns the longest time of a slice beyond the usual patience.
    fn longest(&self, count: u64) -> Duration {
        match self.message_seconds {
            Some(seconds) => {
                Duration::from_secs_f64((PATIENCE_TIMES * seconds * count as f64).min(1e6))
            }
            None => FIRST_MESSAGE.saturating_mul(u32::try_from(count).unwrap_or(u32::MAX)),
        }
    }

    fn ask(&mut self, count: u64, patience: Duration) -> Result<Answer, Failure> {
        self.release();
        let written = self.stdin.as_mut().map(|stdin| writeln!(stdin, "{count}"));
        if !matches!(written, Some(Ok(()))) {
            return Err(self.ended());
        }
        let line = self.line(self.patience.slice.saturating_add(patience))?;
        self.hold();
        let answer: Answer = serde_json::from_str(&line)
            .map_err(|error| self.broken(format!("no answer is '{line}': {error}")))?;
        if answer.count == count {
            return Ok(answer);
        }
        Err(self.broken(format!("it ran {} of {count}", answer.count)))
    }

    fn line(&mut self, patience: Duration) -> Result<String, Failure> {
        match self.lines.recv_timeout(patience) {
            Ok(line) => Ok(line),
            Err(RecvTimeoutError::Disconnected) => Err(self.ended()),
            Err(RecvTimeoutError::Timeout) => {
                self.kill();
                let seconds = patience.as_secs_f64();
                Err(self.broken(format!("it was silent for {seconds:.1} s")))
            }
        }
    }

    fn broken(&self, cause: impl std::fmt::Display) -> Failure {
        Failure::broken(self.name.clone(), cause)
    }

    /// Returns the failure of a program that has ended, with its own words.
    fn ended(&mut self) -> Failure {
        self.end();
        let mut told = Vec::new();
        // A daemon that it has left may keep the pipe open.
        while let Ok(line) = self.errors.recv_timeout(LAST_WORDS) {
            told.push(line);
        }
        let prefix = format!("{}: ", self.name);
        let lines = || told.iter().map(String::as_str).filter(|line| !line.trim().is_empty());
        let own = lines().rev().find_map(|line| line.strip_prefix(&prefix));
        match (own.or(lines().next_back()), self.child.wait()) {
            (Some(cause), _) => self.broken(cause),
            (None, Ok(status)) => self.broken(format!("it ended with {status}")),
            (None, Err(error)) => self.broken(error),
        }
    }

    /// Lets the processes of the program that do the work stand still, if they would take a core
    /// from others. Their parents run on, and can end them.
    fn hold(&mut self) {
        if self.between == Between::Asleep {
            return;
        }
        self.held = leaves(self.child.id());
        self.held.iter().for_each(|&pid| machine::hold(pid, true));
    }

    fn release(&mut self) {
        self.held.drain(..).for_each(|pid| machine::hold(pid, false));
    }

    /// Waits for the end of the program, whose input has ended, and kills it when it does not come.
    fn end(&mut self) {
        self.release();
        self.stdin = None;
        let deadline = Instant::now() + END_TIMEOUT;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < deadline {
            thread::sleep(LOOK);
        }
        self.kill();
    }

    /// Kills what still runs of the program; its far end and its daemon, too.
    fn kill(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            below(self.child.id()).into_iter().for_each(machine::kill);
        }
        // It may have ended; either way no process is left behind.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for External {
    fn drop(&mut self) {
        self.end();
    }
}

impl Contender for External {
    fn slice(&mut self, bench: &mut Bench, count: u64) -> Result<Slice, Failure> {
        let answer = bench.while_held(|| self.ask(count, self.longest(count)))?;
        let seconds = answer.seconds.filter(|seconds| seconds.is_finite() && *seconds > 0.0);
        let seconds = seconds.ok_or_else(|| self.broken("it told no seconds"))?;
        let each = seconds / count.max(1) as f64;
        self.message_seconds = Some(self.message_seconds.map_or(each, |known| known.max(each)));
        let samples_ns = samples_ns(answer.p50_us, answer.p99_us);
        Ok(Slice { samples_ns, ..Slice::timed(count, seconds) })
    }
}

/// Returns the lines of a pipe, as they come.
fn lines_of(pipe: Option<impl Read + Send + 'static>) -> Receiver<String> {
    let (into, lines) = channel();
    if let Some(pipe) = pipe {
        // The reader ends with the program, or when nobody wants its lines.
        thread::spawn(move || {
            let mut lines = BufReader::new(pipe).lines().map_while(Result::ok);
            lines.all(|line| into.send(line).is_ok())
        });
    }
    lines
}

/// Returns samples that have these percentiles, none without them. Those of several slices together
/// have the medians of the slices' percentiles.
fn samples_ns(p50_us: Option<f64>, p99_us: Option<f64>) -> Vec<u64> {
    let Some(p50_us) = p50_us else { return Vec::new() };
    let mut samples = vec![(p50_us * 1e3) as u64; SAMPLES];
    samples[SAMPLES - 2..].fill((p99_us.unwrap_or(p50_us) * 1e3) as u64);
    samples
}

/// Returns all processes that a process has started, and those that these have.
fn below(pid: u32) -> Vec<u32> {
    let mut found = Vec::new();
    let mut open = machine::children(pid);
    while let Some(pid) = open.pop() {
        open.extend(machine::children(pid));
        found.push(pid);
    }
    found
}

/// Returns the processes below this one that have started none.
fn leaves(pid: u32) -> Vec<u32> {
    below(pid).into_iter().filter(|&pid| machine::children(pid).is_empty()).collect()
}

#[cfg(test)]
mod tests;
