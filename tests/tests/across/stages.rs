//! The example program `stages`, run as its user runs it.

use super::example::Example;

const STAGES: Example = Example { name: "stages" };

#[test]
fn three_nodes_give_the_sequential_results() {
    let told = STAGES.prints(&[]);
    let (parts, equal) = told.split_once('\n').unwrap();
    assert!(parts.starts_with("2097152 samples, smoothed in "), "{told}");
    assert_eq!(equal, "both buffers equal the sequential ones, element by element\n");
}

#[cfg(unix)]
#[test]
fn an_error_has_its_cause() {
    let output = STAGES.command(&[]).env("TMPDIR", "/nowhere/at/all").output().unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.starts_with("stages: nodes of this machine cannot meet by "), "{told}");
    assert!(told.contains(": No such file or directory"), "{told}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_killed_stage_ends_the_program_and_is_named() {
    use chunkcomm_testkit::proc;
    use rustix::process::Signal;
    use std::process::Stdio;

    let program = STAGES.command(&[]).stderr(Stdio::piped()).spawn().unwrap();
    let pids = proc::children(program.id(), 2);
    // The victim may be anywhere in its work, as long as it runs its own program.
    let victim = proc::placed(&pids, 1);
    proc::signal(victim, Signal::KILL);
    let output = program.wait_with_output().unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("rank 2"), "{told}");
    proc::wait_until_gone(&pids);
}
