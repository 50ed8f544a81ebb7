//! The example program `mishaps`, run as its user runs it.

use super::example::Example;

const MISHAPS: Example = Example { name: "mishaps" };

#[test]
fn each_mishap_is_told_by_worker_and_task_and_the_rest_is_done() {
    let output = MISHAPS.command(&[]).output().unwrap();
    let told = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{told}");
    let line = |start: &str| {
        let found = told.lines().find(|line| line.starts_with(start));
        found.unwrap_or_else(|| panic!("no line starts with {start:?} in\n{told}"))
    };
    assert!(line("task 3000: ").starts_with("task 3000: refused, in process "), "{told}");
    let panicked = "task 7000 of \"steps\" failed at worker ";
    assert!(line("task 7000: ").contains(panicked), "{told}");
    assert!(
        line("task 7000: ").ends_with("function \"steps\" panicked: 7000 is unlucky"),
        "{told}"
    );
    let aside = "task 11000 of \"steps\" is set aside since 3 workers died of it, worker ";
    assert!(line("task 11000: ").contains(aside), "{told}");
    assert!(line("task 11000: ").ends_with("its process ended: exit status: 9"), "{told}");
    assert!(line("worker 1 (process ").contains(" was lost: "), "{told}");
    assert!(line("3 of 20000 tasks failed").ends_with(" s"), "{told}");
}

/// The program's file is gone when it starts its workers.
#[cfg(target_os = "linux")]
#[test]
fn workers_start_from_a_program_whose_file_is_gone() {
    let link = concat!(env!("CARGO_TARGET_TMPDIR"), "/mishaps-that-is-removed");
    let _ = std::fs::remove_file(link);
    std::fs::hard_link(MISHAPS.file(), link).unwrap();
    let script = "exec 3<\"$0\"; rm \"$0\"; exec /proc/self/fd/3";
    let output = std::process::Command::new("sh").args(["-c", script, link]).output().unwrap();
    let told = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(told.contains("3 of 20000 tasks failed"), "{told}");
}
