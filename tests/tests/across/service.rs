//! The example program `service`: a shipper and a collector that are stopped, killed and started
//! again under load.

use super::example::Example;
use chunkcomm_testkit::own_host;
use chunkcomm_testkit::proc;
use chunkcomm_testkit::random::seeded;
use rustix::process::Signal;
use std::io::{BufRead as _, BufReader, BufWriter, Read as _, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{JoinHandle, sleep};
use std::time::Duration;

const SERVICE: Example = Example { name: "service" };
/// Least number of restarts of each side.
const RESTARTS: u32 = 50;
/// Number of lines that the log gets in each millisecond in which both sides run. A restart adds none:
/// each reads all lines, so that a slow machine would get more to read the longer it took.
const LINES_EACH_MS: u64 = 2;

fn file(name: &str) -> PathBuf {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("service-{name}"));
    let _ = std::fs::remove_file(&file);
    file
}

fn spawn(arguments: &[&str]) -> proc::Program {
    let mut command: Command = SERVICE.command(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    proc::Program(command.spawn().unwrap())
}

/// Starts a collector; returns it and its address.
fn collector(listen: &str, file: &Path) -> (proc::Program, String) {
    let mut program = spawn(&["collector", "--listen", listen, "--file", file.to_str().unwrap()]);
    let mut line = String::new();
    let mut printed = BufReader::new(program.0.stdout.take().unwrap());
    printed.read_line(&mut line).unwrap();
    let Some(address) = line.trim_end().strip_prefix("listening at ") else {
        let mut told = String::new();
        program.0.stderr.take().unwrap().read_to_string(&mut told).unwrap();
        panic!("the collector did not start: {line}{told}");
    };
    program.0.stdout = Some(printed.into_inner());
    (program, address.to_owned())
}

/// A log that grows until it is `done`, which each shipper reads from its first line.
#[derive(Clone, Default)]
struct Log {
    lines: Arc<AtomicU64>,
    done: Arc<AtomicBool>,
}

impl Log {
    /// Grows for this number of milliseconds.
    fn grow(&self, times_ms: u64) {
        for _ in 0..times_ms {
            sleep(Duration::from_millis(1));
            self.lines.fetch_add(LINES_EACH_MS, Ordering::SeqCst);
        }
    }

    /// Starts a shipper that reads the log, and a thread that writes the log to it. The thread returns
    /// the number of lines, once the log is done and all of it is written.
    fn ship(&self, to: &str) -> (proc::Program, JoinHandle<Option<u64>>) {
        let mut program = spawn(&["shipper", "--to", to]);
        let mut input = BufWriter::new(program.0.stdin.take().unwrap());
        let Log { lines, done } = self.clone();
        let writing = std::thread::spawn(move || {
            let mut written = 0;
            loop {
                let is_done = done.load(Ordering::SeqCst);
                while written < lines.load(Ordering::SeqCst) {
                    written += 1;
                    // A shipper that has ended no longer reads.
                    writeln!(input, "text {written}").ok()?;
                }
                input.flush().ok()?;
                if is_done {
                    return Some(written);
                }
                sleep(Duration::from_millis(1));
            }
        });
        (program, writing)
    }
}

/// Sends a program this signal, once it handles it.
fn stop(program: &proc::Program, by: Signal) {
    if by == Signal::TERM {
        proc::wait_until_handled(program.0.id(), by);
    }
    proc::signal(program.0.id(), by);
}

/// Waits for the end of a program that got this signal; returns its standard output.
fn ends(program: &mut proc::Program, by: Signal) -> String {
    let (mut out, mut told) = (String::new(), String::new());
    program.0.stdout.take().unwrap().read_to_string(&mut out).unwrap();
    program.0.stderr.take().unwrap().read_to_string(&mut told).unwrap();
    let status = program.0.wait().unwrap();
    if by == Signal::KILL {
        assert_eq!(status.signal(), Some(9), "{status}, {told}");
    } else {
        assert!(status.success(), "{status}, {told}");
    }
    // A collector that starts on a busy machine may accept and take nothing for as long.
    let told: Vec<&str> = told.lines().filter(|it| !it.contains("it for 5 s")).collect();
    assert!(told.is_empty(), "{told:?}");
    out
}

/// Returns the number of lines in the file; checks that each is there once, in order.
fn stored(file: &Path) -> u64 {
    let lines = std::fs::read_to_string(file).unwrap();
    let mut count = 0;
    for line in lines.lines() {
        count += 1;
        let start = format!(r#"["shipper",{count},"text {count}","#);
        assert!(line.starts_with(&start), "line {count} is {line}");
    }
    count
}

#[test]
fn every_line_is_stored_once_though_both_sides_are_killed() {
    let mut random = seeded(51);
    let file = file("restarts");
    let (mut collecting, to) = collector(&format!("{}:0", own_host()), &file);
    let log = Log::default();
    let (mut shipping, _) = log.ship(&to);
    let (mut collectors, mut shippers, mut again) = (0, 0, 0);
    // Goes on until a collector was killed between storing and settling.
    while collectors < RESTARTS || shippers < RESTARTS || again == 0 {
        assert!(collectors < 5 * RESTARTS, "nothing came again");
        log.grow(20 + random.below(200));
        let mut by = || if random.below(3) > 0 { Signal::KILL } else { Signal::TERM };
        let (collector_by, shipper_by) = (by(), by());
        let whom = random.below(3);
        if whom != 0 {
            stop(&collecting, collector_by);
            let printed = ends(&mut collecting, collector_by);
            again +=
                printed.strip_suffix(" lines came again\n").map_or(0, |it| it.parse().unwrap());
        }
        if whom != 1 {
            stop(&shipping, shipper_by);
        }
        if whom != 0 {
            collecting = collector(&to, &file).0;
            collectors += 1;
        }
        if whom != 1 {
            // A shipper asked to stop waits for the collector, which is back.
            ends(&mut shipping, shipper_by);
            shipping = log.ship(&to).0;
            shippers += 1;
        }
    }
    // The last shipper ships the rest of the log.
    stop(&shipping, Signal::KILL);
    ends(&mut shipping, Signal::KILL);
    let (mut shipping, writing) = log.ship(&to);
    log.done.store(true, Ordering::SeqCst);
    let count = writing.join().unwrap().unwrap();
    assert!(ends(&mut shipping, Signal::TERM).ends_with(" lines shipped and stored\n"));
    stop(&collecting, Signal::TERM);
    ends(&mut collecting, Signal::TERM);
    assert_eq!(stored(&file), count);
    println!(
        "{collectors} restarts of the collector, {shippers} of the shipper; {count} lines, {again} \
         came again"
    );
}

#[test]
fn an_error_names_the_file_and_its_cause() {
    let arguments = ["collector", "--listen", "127.0.0.1:0", "--file", "/nowhere/at/all"];
    let output = SERVICE.command(&arguments).output().unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.starts_with("service: /nowhere/at/all: No such file or directory"), "{told}");
}

#[test]
fn bad_options_say_what_is_allowed_and_exit_with_2() {
    let to = ["shipper", "--to", "127.0.0.1:1", "--count"];
    for (arguments, allowed) in [
        (&["collect"][..], "<collector|shipper>"),
        (&["collector", "--listen", "7700", "--file", "lines"], "allowed are tcp://host:port"),
        (&[&to[..], &["many"]].concat(), "allowed are whole numbers"),
        (&[&to[..], &["-1"]].concat(), "allowed are whole numbers"),
    ] {
        let output = SERVICE.command(arguments).output().unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {told}");
        assert!(told.contains(allowed), "{arguments:?}: {told}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn each_option_is_described() {
    for role in ["collector", "shipper"] {
        let help = SERVICE.prints(&[role, "--help"]);
        let lines: Vec<&str> = help.lines().collect();
        for (at, line) in lines.iter().enumerate() {
            let Some(option) = line.trim_start().strip_prefix("--") else { continue };
            let beside = option.split_once("  ").is_some_and(|(_, words)| !words.trim().is_empty());
            let below = lines.get(at + 1).is_some_and(|next| {
                let next = next.trim_start();
                !next.is_empty() && !next.starts_with('-')
            });
            assert!(beside || below, "{role}: nothing is said of {line:?}:\n{help}");
        }
    }
}
