//! Runs of the program.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::{Condvar, Mutex};

use serde_json::Value;

/// Programs that run, and the sign that one has ended. Some spin: more than two take each other's cores.
struct Places {
    running: Mutex<usize>,
    ended: Condvar,
}

static PLACES: Places = Places { running: Mutex::new(0), ended: Condvar::new() };

/// A program's place, given back when this is dropped.
struct Place;

impl Place {
    fn wait() -> Self {
        let running = PLACES.running.lock().expect("no holder panics");
        let mut running = PLACES.ended.wait_while(running, |running| *running >= 2);
        *running.as_deref_mut().expect("no holder panics") += 1;
        Self
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        *PLACES.running.lock().expect("no holder panics") -= 1;
        PLACES.ended.notify_one();
    }
}

/// Runs the program; at most two run so at once, however many threads run tests.
pub(crate) fn chunkperf(arguments: &[&str]) -> Output {
    let _place = Place::wait();
    chunkperf_at_once(arguments)
}

/// As [`chunkperf`], with `tools` before the folders in which the program finds its own.
pub(crate) fn chunkperf_with(tools: &Path, arguments: &[&str]) -> Output {
    let _place = Place::wait();
    let path = std::env::var("PATH").expect("a search path");
    let path = format!("{}:{path}", tools.display());
    command(arguments).env("PATH", path).output().expect("chunkperf starts")
}

/// Runs the program beside any others: it is refused, or mostly waits.
pub(crate) fn chunkperf_at_once(arguments: &[&str]) -> Output {
    command(arguments).output().expect("chunkperf starts")
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_chunkperf"));
    command.args(arguments).stdin(Stdio::null());
    command
}

/// Returns the rows that the program printed with `--json`, a row a line.
pub(crate) fn rows_of(output: &Output) -> Vec<Value> {
    let out = String::from_utf8_lossy(&output.stdout);
    out.lines().map(|line| serde_json::from_str(line).expect("a row is JSON")).collect()
}

/// Runs a command that succeeds and returns its rows.
pub(crate) fn rows(arguments: &[&str]) -> Vec<Value> {
    let output = chunkperf(&[arguments, &["--json"]].concat());
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {}\n{err}", output.status);
    rows_of(&output)
}

/// Runs a command that succeeds and returns its one row.
pub(crate) fn row(arguments: &[&str]) -> Value {
    let [row] = <[Value; 1]>::try_from(rows(arguments)).expect("one row");
    row
}

#[track_caller]
pub(crate) fn assert_keys(row: &Value, keys: &[&str]) {
    for key in ["bench", "transport", "runtime"].iter().chain(keys) {
        assert!(row.get(key).is_some(), "no key {key} in {row}");
    }
}

/// Runs a command that is refused, and returns its message.
pub(crate) fn refusal(arguments: &[&str]) -> String {
    let output = chunkperf_at_once(arguments);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    assert!(output.stdout.is_empty(), "{arguments:?}: standard output is for rows");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Keys of every row of `stream`.
pub(crate) const STREAM_KEYS: &[&str] = &[
    "policy",
    "payload_bytes",
    "messages",
    "seconds",
    "messages_per_second",
    "bytes_per_second",
    "packets",
    "messages_per_packet",
    "writes",
    "flushes",
    "cpu_us_per_message",
    "delivery_p50_us",
    "delivery_p99_us",
];
