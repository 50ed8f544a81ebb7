//! Counted instructions, and the programs that are counted.

use std::process::{Command, Output, Stdio};

use chunkcomm_testkit::Scratch;

use crate::program::chunkperf;

/// Whether the machine has valgrind; says so where it has not.
fn has_valgrind() -> bool {
    let has = Command::new("valgrind").arg("--version").stdout(Stdio::null()).status().is_ok();
    if !has {
        eprintln!("skipped: there is no valgrind");
    }
    has
}

/// Counts two programs; returns their rows.
fn counted(more: &[&str]) -> (Output, String) {
    let output =
        chunkperf(&[&["instructions", "--only", "bare,bare-tcp", "--json"], more].concat());
    let rows = String::from_utf8_lossy(&output.stdout).into_owned();
    (output, rows)
}

#[test]
fn counts_are_the_same_in_each_run_and_may_not_grow() {
    if !has_valgrind() {
        return;
    }
    let folder = Scratch::folder("instructions");
    let file = folder.join("counts.table");
    let name = file.to_str().expect("a name of letters");
    let (written, rows) = counted(&["--write", name]);
    assert!(written.status.success(), "{written:?}");
    assert_eq!(rows.lines().count(), 2, "{rows}");
    let (checked, again) = counted(&["--check", name]);
    assert!(checked.status.success(), "{checked:?}");
    assert_eq!(rows, again);

    let table = std::fs::read_to_string(&file).expect("a table");
    let row = table.lines().find(|line| line.starts_with("bare-tcp")).expect("a row of each");
    std::fs::write(&file, table.replace(row, "bare-tcp 100 10")).expect("the table is written");
    let (exceeds, _) = counted(&["--check", name]);
    let told = String::from_utf8_lossy(&exceeds.stderr);
    assert_eq!(exceeds.status.code(), Some(1), "{told}");
    assert!(told.contains("bare-tcp: ") && told.contains("in the table 100"), "{told}");
    assert!(!told.contains("bare: "), "{told}");
}

#[test]
fn without_valgrind_the_error_says_how_to_install_it() {
    let nothing = Scratch::folder("no-tools");
    let mut command = Command::new(env!("CARGO_BIN_EXE_chunkperf"));
    let output = command.arg("instructions").env("PATH", &*nothing).output().expect("it starts");
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(told.contains("apt-get install valgrind"), "{told}");
}

#[test]
fn the_programs_run_to_their_end() {
    // The idle link would take its real time.
    for program in chunkcomm_instructions::PROGRAMS.iter().filter(|it| it.name != "idle") {
        let output = chunkperf(&["instructions", "--run", program.name]);
        assert!(output.status.success(), "{}: {output:?}", program.name);
    }
}
