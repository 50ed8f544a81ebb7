//! Two programs on this machine: a simulation, and a viewer that comes later.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use chunkcomm_testkit::Scratch;

use crate::commands::papers::{Found, Scene};
use crate::failure::{Doing, Failure};
use crate::harness::machine;

/// Longest wait for an answer: 60 s.
const ANSWER_WITHIN: Duration = Duration::from_secs(60);

/// Time between two looks of a viewer, which keeps a field for 0.1 s.
const BETWEEN: Duration = Duration::from_millis(500);

/// A program that ends with this value.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        machine::terminate(self.0.id());
        // It has told what it had to, however it ended.
        let _ = self.0.wait();
    }
}

/// A viewer, and the address of its page.
struct Viewer {
    _program: Program,
    at: String,
}

/// Attaches viewers to a simulation that runs, and steers it.
pub(super) fn run(scene: &Scene<'_>, found: &mut Found) -> Result<(), Failure> {
    let folder = &scene.settings.examples;
    if scene.settings.quick
        || ["multiblock", "steering"].iter().any(|it| !folder.join(it).is_file())
    {
        found.missing("needs the built examples multiblock and steering");
        return Ok(());
    }
    let pictures = Scratch::folder("pictures");
    let mut command = Command::new(folder.join("multiblock"));
    command.args(["--steered", "--nodes=4", "--side=16", "--no-progress", "--output"]);
    let mut simulation = started(command.arg(pictures.join("field.png")))?;
    let mut told = BufReader::new(simulation.0.stderr.take().ok_or_else(silent)?);
    let mut line = String::new();
    // The first line announces the second one.
    for _ in 0..2 {
        line.clear();
        told.read_line(&mut line).doing("reading how a viewer attaches")?;
    }
    let variables: Vec<_> = line.split(' ').filter_map(|word| word.split_once('=')).collect();

    let viewer = Viewer::start(folder, &variables)?;
    let first = viewer.sweep()?;
    let steered = viewer.ask("POST", "/parameter", "x=0.6&y=0.5&strength=50")?;
    sleep(BETWEEN);
    let second = viewer.sweep()?;
    drop(viewer);
    let third = Viewer::start(folder, &variables)?.sweep()?;

    let is_coupled = first.is_some() && is_fine(&steered);
    found.verdict("separately-compiled", is_coupled, "a viewer takes and gives");
    // None waits for the other: sweeps pass before it comes, between its looks, and after it has gone.
    let sweeps = [Some(0), first, second, third];
    let go_on = sweeps.is_sorted_by(|one, other| one < other);
    let told = sweeps[1..].iter().map(|it| it.map_or("none".to_owned(), |it| it.to_string()));
    let told = format!("sweeps {}", told.collect::<Vec<_>>().join(", "));
    found.verdict("asynchronous-coupling", go_on, told);
    Ok(())
}

fn started(command: &mut Command) -> Result<Program, Failure> {
    let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().map(Program).doing("starting an example")
}

fn silent() -> Failure {
    Failure::broken("listening to an example", "it says nothing")
}

/// Whether an answer has the status 200.
fn is_fine(answer: &[u8]) -> bool {
    answer.split(|byte| *byte == b' ').nth(1) == Some(b"200")
}

impl Viewer {
    fn start(folder: &Path, variables: &[(&str, &str)]) -> Result<Self, Failure> {
        let mut command = Command::new(folder.join("steering"));
        command.args(["--listen", "127.0.0.1:0"]).envs(variables.iter().copied());
        let mut program = started(&mut command)?;
        let mut line = String::new();
        let prints = program.0.stdout.take().ok_or_else(silent)?;
        BufReader::new(prints).read_line(&mut line).doing("reading a viewer's address")?;
        let at = line.trim_end().strip_prefix("listening at http://").ok_or_else(silent)?;
        Ok(Self { at: at.to_owned(), _program: program })
    }

    fn ask(&self, method: &str, path: &str, body: &str) -> Result<Vec<u8>, Failure> {
        let doing = "asking a viewer";
        let mut stream = TcpStream::connect(&self.at).doing(doing)?;
        stream.set_read_timeout(Some(ANSWER_WITHIN)).doing(doing)?;
        let bytes = body.len();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: viewer\r\nConnection: close\r\nContent-Type: \
             application/x-www-form-urlencoded\r\nContent-Length: {bytes}\r\n\r\n"
        );
        stream.write_all((head + body).as_bytes()).doing(doing)?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).doing(doing)?;
        Ok(answer)
    }

    /// Takes the field; returns the number of its sweep.
    fn sweep(&self) -> Result<Option<u64>, Failure> {
        let answer = self.ask("GET", "/field.png", "")?;
        let text = String::from_utf8_lossy(&answer);
        let sweep = text.lines().find_map(|line| line.strip_prefix("x-sweep: "));
        Ok(sweep.filter(|_| is_fine(&answer)).and_then(|sweep| sweep.trim().parse().ok()))
    }
}
