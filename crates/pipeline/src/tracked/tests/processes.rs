//! Ends and users of a process, each in a process of its own: this program again, with one test.

use std::env;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::Output;

use chunkcomm_testkit::itself;

use super::*;

/// Set in a process that does what its test is about.
const CHILD: &str = "CHUNKCOMM_TRACKED_CHILD";

fn is_child() -> bool {
    env::var_os(CHILD).is_some()
}

/// Runs `test` of this file again, as a child, with `engine`.
fn child(test: &str, engine: impl std::fmt::Display) -> Output {
    let mut program = itself(&format!("tracked::tests::processes::{test}"));
    program.arg("--nocapture").env(CHILD, engine.to_string());
    program.output().expect("it runs")
}

fn child_engine<E: std::str::FromStr>() -> E {
    let name = env::var(CHILD).expect("only a child asks");
    name.parse().ok().expect("the parent names an engine")
}

#[test]
fn a_read_that_never_comes_aborts_with_its_reason() {
    if is_child() {
        let settings = Awaiting::default().with_engine(child_engine());
        let input = TrackedInput::<u8>::new(10_000, settings);
        let _ = input.expect("the parent made one").track(|bytes, _| bytes[9_000], |_| Ok(()));
        return;
    }
    each_input::<u8>(1, &Awaiting::default(), |input| {
        let engine = input.engine();
        let output = child("a_read_that_never_comes_aborts_with_its_reason", engine);
        assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{engine}: {output:?}");
        let words = String::from_utf8_lossy(&output.stderr);
        let expected = "a page of a tracked buffer is read and does not come: no more is filled";
        assert!(words.contains(expected), "{engine}: {words}");
    });
}

#[test]
fn a_read_that_an_error_ends_aborts_with_the_error() {
    if is_child() {
        let settings = Awaiting::default().with_engine(child_engine());
        let input = TrackedInput::<u8>::new(10_000, settings);
        let source = std::sync::Arc::new(std::io::Error::other("no more memory"));
        let error = TrackedRecvError::System { engine: "any".to_owned(), source };
        let _ = input.expect("the parent made one").track(|bytes, _| bytes[9_000], |_| Err(error));
        return;
    }
    each_input::<u8>(1, &Awaiting::default(), |input| {
        let engine = input.engine();
        let output = child("a_read_that_an_error_ends_aborts_with_the_error", engine);
        assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{engine}: {output:?}");
        let words = String::from_utf8_lossy(&output.stderr);
        for expected in ["the engine any failed", "no more memory", "no more is filled"] {
            assert!(words.contains(expected), "{engine}: {words}");
        }
    });
}

#[test]
fn every_engine_works_for_an_unprivileged_user() {
    const NOBODY: u32 = 65_534;
    if is_child() {
        each_output::<u64>(5_000, &Tracking::default(), |mut output| {
            let mut sum = 0;
            let done = |finished: Finished<'_, u64>| {
                sum += finished.elements.iter().sum::<u64>();
                Ok(())
            };
            output.track(|elements| elements.fill(1), done).expect("it works");
            assert_eq!(sum, 5_000);
            println!("sent by {}", output.engine());
        });
        each_input::<u64>(5_000, &Awaiting::default(), |mut input| {
            let sum = |elements: &[u64], _: &Arrivals<'_>| elements.iter().sum::<u64>();
            let (sum, _) = input.track(sum, |filler| filler.put(0, &[1; 5_000])).expect("it works");
            assert_eq!(sum, 5_000);
            println!("received by {}", input.engine());
        });
        return;
    }
    // As another user, the program must lie where that user may run it.
    let folder = env::temp_dir().join(format!("chunkcomm-tracked-{}", std::process::id()));
    std::fs::create_dir(&folder).expect("a folder");
    let copy = folder.join("tests");
    // By a process: a file that another test's child has open for writing is no program yet.
    let this = env::current_exe().expect("this program");
    let copied = std::process::Command::new("cp").args([&this, &copy]).status();
    assert!(copied.expect("a copy").success());
    let mut program = std::process::Command::new(copy);
    program.args(["--exact", "--nocapture"]).env(CHILD, "all").current_dir("/");
    program.arg("tracked::tests::processes::every_engine_works_for_an_unprivileged_user");
    // Only a privileged test can become another user; else it is unprivileged itself.
    if rustix::process::geteuid().is_root() {
        program.uid(NOBODY).gid(NOBODY);
    }
    let output = program.output().expect("it runs");
    std::fs::remove_dir_all(folder).expect("the folder is ours");
    assert!(output.status.success(), "{output:?}");
    let words = String::from_utf8_lossy(&output.stdout);
    // The kernel gives both users the same engines.
    each_output::<u8>(1, &Tracking::default(), |output| {
        assert!(words.contains(&format!("sent by {}\n", output.engine())), "{words}");
    });
    each_input::<u8>(1, &Awaiting::default(), |input| {
        assert!(words.contains(&format!("received by {}\n", input.engine())), "{words}");
    });
}
