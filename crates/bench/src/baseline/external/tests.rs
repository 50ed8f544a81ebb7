use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use chunkcomm_testkit::blocking::until;
use chunkcomm_testkit::{Scratch, proc};

use super::*;
use crate::stats::percentile_us;

const WORDS: Words = Words { bench: "one-way", bytes: 16, flavour: "docs" };

/// Shorter than a test may take, longer than a shell needs on a busy machine.
const SHORT: Patience =
    Patience { opening: Duration::from_secs(10), slice: Duration::from_millis(300) };

/// Returns a program of this text, in a folder that lasts as long as the first value.
fn program(text: &str) -> (Scratch, PathBuf) {
    let folder = Scratch::folder("peer");
    let file = folder.join("peer-fake");
    fs::write(&file, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    (folder, file)
}

fn greeted(text: &str) -> Result<External, Failure> {
    let (_folder, file) = program(text);
    let mut external = External::start(&file, WORDS, Between::Held, SHORT)?;
    external.greet()?;
    Ok(external)
}

#[test]
fn the_words_reach_the_program_and_its_answers_come_back() {
    let text = "echo \"fake $1 $2 $5\"\n\
        while read n; do echo \"{\\\"seconds\\\":0.5,\\\"count\\\":$n,\\\"p50_us\\\":7}\"; done";
    let mut external = greeted(text).unwrap();
    assert_eq!(external.version(), "fake one-way 16 docs");
    for count in [3, 40] {
        let answer = external.ask(count, Duration::ZERO).unwrap();
        assert_eq!((answer.seconds, answer.p50_us, answer.bytes), (Some(0.5), Some(7.0), None));
    }
    external.end();
    assert!(external.child.wait().unwrap().success(), "the end of its input ends it");
}

#[test]
fn a_failure_is_told_in_the_words_of_the_program() {
    let said =
        |text: &str| match greeted(text).and_then(|mut external| external.ask(5, Duration::ZERO)) {
            Ok(answer) => panic!("{answer:?}"),
            Err(failure) => failure.to_string(),
        };
    assert_eq!(
        said("echo noise >&2; echo peer-fake: no daemon >&2; exit 1"),
        "peer-fake: no daemon"
    );
    assert_eq!(said("echo fake 1; read n; echo peer-fake: order >&2; exit 1"), "peer-fake: order");
    assert_eq!(said("exit 3"), "peer-fake: it ended with exit status: 3");
    // The pipe of its errors is still open.
    assert_eq!(said("sleep 3 & echo peer-fake: left >&2; exit 1"), "peer-fake: left");
    let silent = said("echo fake 1; read n; sleep 60");
    assert!(silent.starts_with("peer-fake: it was silent for 0.3 s"), "{silent}");
    let other = said("echo fake 1; read n; echo '{\"seconds\":1,\"count\":4}'; read n");
    assert_eq!(other, "peer-fake: it ran 4 of 5");
    assert!(said("echo fake 1; read n; echo yes; read n").contains("no answer is 'yes'"));
}

#[test]
fn no_process_of_a_program_is_left_however_it_hangs() {
    let mut external = greeted("sleep 600 & echo fake 1; trap '' TERM; sleep 600").unwrap();
    let pids = below(external.child.id());
    assert!(!pids.is_empty());
    external.kill();
    proc::wait_until_gone(&pids);
}

#[test]
fn between_slices_the_processes_that_work_stand_still() {
    let text = "(while :; do :; done) & spins=$!; echo fake 1\n\
        while read n; do echo \"{\\\"seconds\\\":0.1,\\\"count\\\":$n}\"; done; kill $spins";
    let mut external = greeted(text).unwrap();
    let [spinner] = external.held[..] else { panic!("{:?}", external.held) };
    let state = || {
        let stat = fs::read_to_string(format!("/proc/{spinner}/stat")).unwrap();
        stat.rsplit(") ").next().and_then(|rest| rest.chars().next())
    };
    // A process that runs takes the signal a little later.
    let still = || until("it is not stopped", || state() == Some('T'));
    still();
    external.release();
    until("it stays stopped", || state() != Some('T'));
    external.ask(1, Duration::ZERO).unwrap();
    still();
    external.end();
    proc::wait_until_gone(&[spinner]);
}

#[test]
fn percentiles_that_a_program_tells_are_those_of_its_samples() {
    let slices = [(50.0, 90.0), (52.0, 99.0), (60.0, 300.0)];
    let all: Vec<u64> =
        slices.iter().flat_map(|&(p50, p99)| samples_ns(Some(p50), Some(p99))).collect();
    assert_eq!((percentile_us(&all, 50), percentile_us(&all, 99)), (52.0, 99.0));
    assert!(samples_ns(None, None).is_empty());
}
