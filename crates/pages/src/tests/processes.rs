//! Ends and users of a process, each in a process of its own: this program again, with one test.

use std::env;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Output;

use chunkcomm_testkit::{Scratch, itself};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::*;

/// Set in a process that does what its test is about.
const CHILD: &str = "CHUNKCOMM_TRACKED_CHILD";

fn is_child() -> bool {
    env::var_os(CHILD).is_some()
}

/// Runs `test` of this file again, as a child, with `engine`.
fn child(test: &str, engine: impl std::fmt::Display) -> Output {
    let mut program = itself(&format!("tests::processes::{test}"));
    program.arg("--nocapture").env(CHILD, engine.to_string());
    program.output().expect("it runs")
}

/// Runs `test` of this file again, as a child of a user without rights.
fn child_of_nobody(test: &str) -> Output {
    const NOBODY: u32 = 65_534;
    // As another user, the program must lie where that user may run it.
    let folder = Scratch::folder("tracked");
    let copy = folder.join("tests");
    // By a process: a file that another test's child has open for writing is no program yet.
    let this = env::current_exe().expect("this program");
    let copied = std::process::Command::new("cp").args([&this, &copy]).status();
    assert!(copied.expect("a copy").success());
    let mut program = std::process::Command::new(copy);
    program.args(["--exact", "--nocapture"]).env(CHILD, "all").current_dir("/");
    program.arg(format!("tests::processes::{test}"));
    // Only a privileged test can become another user; else it is unprivileged itself.
    if rustix::process::geteuid().is_root() {
        program.uid(NOBODY).gid(NOBODY);
    }
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
        let _ = input
            .expect("the parent made one")
            .track(|bytes, _| bytes[9_000], |_| Ok::<_, AccessError>(()));
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
        let error = AccessError::System { engine: "any".to_owned(), source };
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
    if is_child() {
        each_output::<u64>(5_000, &Tracking::default(), |mut output| {
            let mut sum = 0;
            let done = |finished: Finished<'_, u64>| {
                sum += finished.elements.iter().sum::<u64>();
                Ok::<_, AccessError>(())
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
    let output = child_of_nobody("every_engine_works_for_an_unprivileged_user");
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

/// Ends the process when a test hangs, since the parent waits for it.
fn end_when_it_hangs() {
    std::thread::spawn(|| {
        std::thread::sleep(SOON);
        eprintln!("it hangs");
        std::process::abort();
    });
}

/// Sets the soft limit while `run` runs.
fn with_limit<R>(resource: Resource, most: u64, run: impl FnOnce() -> R) -> R {
    let before = getrlimit(resource);
    let limit = Rlimit { current: Some(most), ..before };
    setrlimit(resource, limit).expect("a lower limit");
    let result = run();
    setrlimit(resource, before).expect("the limit of before");
    result
}

/// A buffer that stayed protected would let the next access wait for ever.
#[test]
fn a_run_whose_thread_cannot_be_started_leaves_the_buffer_usable() {
    if is_child() {
        end_when_it_hangs();
        let no_threads = |run: &mut dyn FnMut()| {
            with_limit(Resource::Nproc, 0, || catch_unwind(AssertUnwindSafe(run)))
        };
        each_output::<u64>(5_000, &Tracking::default(), |mut output| {
            let engine = output.engine();
            no_threads(&mut || {
                drop(output.track(|elements| elements.fill(1), |_| Ok::<_, AccessError>(())));
            })
            .expect_err("there is no thread");
            output.elements_mut().fill(2);
            let (_, sent) = output
                .track(|elements| elements.fill(3), |_| Ok::<_, AccessError>(()))
                .expect("a run");
            assert!(sent.increments > 0, "{engine}");
        });
        each_input::<u64>(5_000, &Awaiting::default(), |mut input| {
            let read = |elements: &[u64], _: &Arrivals<'_>| elements[4_999];
            no_threads(&mut || drop(input.track(read, |filler| filler.put(0, &[1; 5_000]))))
                .expect_err("there is no thread");
            assert_eq!(input.elements()[4_999], 0, "{}", input.engine());
            let (last, _) = input.track(read, |filler| filler.put(0, &[2; 5_000])).expect("a run");
            assert_eq!(last, 2, "{}", input.engine());
        });
        println!("all were usable");
        return;
    }
    let test = "a_run_whose_thread_cannot_be_started_leaves_the_buffer_usable";
    let output = child_of_nobody(test);
    let words = String::from_utf8_lossy(&output.stdout);
    assert!(words.contains("all were usable"), "{output:?}");
}

/// The wait for faults fails when it has more descriptors than the process may have.
fn read_while_nobody_can_wait(input: &mut TrackedInput<u64>) -> (bool, Result<u64, AccessError>) {
    let (set, is_set) = std::sync::mpsc::channel();
    let mut read_ended = false;
    let run = input.track(
        |elements, _| {
            is_set.recv_timeout(SOON).expect("the limit is set");
            let last = elements[4_999];
            read_ended = true;
            last
        },
        |filler| {
            let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
            let stopped = with_limit(Resource::Nofile, 1, || {
                set.send(()).expect("the reader waits");
                runtime.block_on(filler.stopped());
                filler.put(0, &[1; 5_000])
            });
            assert!(matches!(stopped, Err(AccessError::Ended)), "{stopped:?}");
            stopped
        },
    );
    (read_ended, run.map(|(last, _)| last))
}

#[test]
fn reads_go_on_when_they_can_no_longer_be_looked_after() {
    let test = "reads_go_on_when_they_can_no_longer_be_looked_after";
    if is_child() {
        end_when_it_hangs();
        let settings = Awaiting::default().with_engine(child_engine());
        let settings = settings.with_missing(Missing::Unfilled);
        let mut input = TrackedInput::<u64>::new(5_000, settings).expect("the parent made one");
        let (read_ended, error) = read_while_nobody_can_wait(&mut input);
        assert!(read_ended && matches!(error, Err(AccessError::System { .. })), "{error:?}");
        let read = |elements: &[u64], _: &Arrivals<'_>| elements[4_999];
        let (last, _) = input.track(read, |filler| filler.put(0, &[2; 5_000])).expect("a run");
        assert_eq!(last, 2);
        return;
    }
    each_input::<u8>(1, &Awaiting::default(), |input| {
        // The engine of signals waits without descriptors.
        if input.engine() != RecvEngine::Mprotect {
            let output = child(test, input.engine());
            assert!(output.status.success(), "{}: {output:?}", input.engine());
        }
    });
}

#[test]
fn reads_that_can_no_longer_be_looked_after_end_the_process_with_the_reason() {
    let test = "reads_that_can_no_longer_be_looked_after_end_the_process_with_the_reason";
    if is_child() {
        end_when_it_hangs();
        let settings = Awaiting::default().with_engine(child_engine());
        let mut input = TrackedInput::<u64>::new(5_000, settings).expect("the parent made one");
        let _ = read_while_nobody_can_wait(&mut input);
        return;
    }
    each_input::<u8>(1, &Awaiting::default(), |input| {
        if input.engine() != RecvEngine::Mprotect {
            let output = child(test, input.engine());
            let words = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{words}");
            assert!(words.contains("can no longer be answered"), "{}: {words}", input.engine());
        }
    });
}
