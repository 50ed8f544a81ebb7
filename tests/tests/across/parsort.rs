//! The example program `parsort`, run as its user runs it: a cluster of copies on this machine.

use std::path::PathBuf;

use super::example::Example;

pub(crate) const PARSORT: Example = Example { name: "parsort" };

/// Writes a file of this text in the folder that cargo gives to integration tests.
fn file(name: &str, text: &str) -> String {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Returns way, policy, messages and packets of each row.
pub(crate) fn rows(table: &str) -> Vec<(String, String, u64, u64)> {
    let rows = table.lines().skip(2).take_while(|line| !line.contains(": "));
    let row = |line: &str| {
        let cells: Vec<&str> = line.split("  ").filter(|cell| !cell.is_empty()).collect();
        let [way, policy, _, messages, packets] = cells[..] else { panic!("{line:?}") };
        let number = |cell: &str| cell.trim().parse().unwrap();
        (way.to_owned(), policy.trim().to_owned(), number(messages), number(packets))
    };
    rows.map(row).collect()
}

#[test]
fn three_ways_by_two_policies_sort_and_only_one_policy_gathers() {
    let table = PARSORT.prints(&["--count", "2000", "--chunk", "50", "--repeat", "2"]);
    assert!(table.starts_with("2000 numbers, 2 workers; all sorted right\n"), "{table}");
    let rows = rows(&table);
    let order: Vec<_> = rows.iter().map(|row| (row.0.as_str(), row.1.as_str())).collect();
    let ways = ["plain", "input in chunks of 50", "both in chunks of 50"];
    let expected: Vec<_> = ["unbuffered", "chunked"]
        .iter()
        .flat_map(|policy| ways.map(|way| (way, *policy)))
        .collect();
    assert_eq!(order, expected, "{table}");
    for (way, policy, messages, packets) in &rows {
        let sent = if way == "plain" { 2000 } else { 40 };
        assert!((sent..sent + 20).contains(messages), "{table}");
        match policy.as_str() {
            // A few further messages have packets of their own.
            "unbuffered" => assert!((*messages..messages + 20).contains(packets), "{table}"),
            _ => assert!(*packets <= messages / 2 || sent < 100, "{table}"),
        }
    }
    assert!(table.contains("\nplain: chunked is "), "{table}");
    assert!(table.contains("times the time of the best by hand ("), "{table}");
}

#[test]
fn few_nodes_and_few_numbers_will_do() {
    for (arguments, first) in [
        (&["--nodes", "2", "--count", "100"][..], "100 numbers, 2 workers, some at their caller's"),
        (&["--nodes", "4", "--workers", "3", "--count", "10"], "10 numbers, 3 workers; all"),
        (&["--count", "0", "--workers", "1"], "0 numbers, 1 workers; all"),
        (&["--policy", "chunked", "--nodes", "2", "--count", "7"], "7 numbers, 2 workers; all"),
        (&["--policy", "unbuffered", "--count", "1"], "1 numbers, 2 workers; all"),
    ] {
        let arguments = [arguments, &["--repeat", "1"]].concat();
        let table = PARSORT.prints(&arguments);
        assert!(table.starts_with(first), "{arguments:?}: {table}");
        let policies = if arguments.contains(&"--policy") { 1 } else { 2 };
        assert_eq!(rows(&table).len(), 3 * policies, "{arguments:?}: {table}");
    }
}

#[test]
fn a_sweep_tries_every_chunk() {
    let table = PARSORT.prints(&["--count", "300", "--sweep", "--repeat", "1", "--workers", "1"]);
    assert_eq!(rows(&table).len(), 2 * (1 + 2 * 5), "{table}");
    for size in [10, 100, 1_000, 10_000, 100_000] {
        for way in ["input", "both"] {
            assert!(table.contains(&format!("\n{way} in chunks of {size} ")), "{table}");
        }
    }
}

#[test]
fn numbers_come_from_a_file() {
    let name = file("numbers.txt", "3 -1\n\n 9223372036854775807\t-9223372036854775808\n3\n");
    let table = PARSORT.prints(&["--file", &name, "--repeat", "1", "--chunk", "1"]);
    assert!(table.starts_with("5 numbers, 2 workers; all sorted right\n"), "{table}");
}

#[test]
fn what_makes_no_sense_is_named() {
    PARSORT.refuses(&[
        (["--workers", "0"], "whole numbers from 1 to 1000"),
        (["--chunk", "-1"], "whole numbers from 1 to 1000000"),
        (["--policy", "none"], "possible values: both, chunked, unbuffered"),
        (["--nodes", "1"], "each of 2 policies needs a node: allowed are 2 nodes and more"),
    ]);
    let word = file("word.txt", "1 2\n3 four\n");
    for (arguments, part) in [
        (["--file", &word], "word.txt, line 2: \"four\": invalid digit"),
        (["--file", "/nowhere/numbers"], "parsort: /nowhere/numbers: No such file"),
    ] {
        let output = PARSORT.command(&arguments).output().unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {told}");
        assert!(told.contains(part), "{arguments:?}: {told}");
        assert!(output.stdout.is_empty());
    }
    PARSORT.needs_standard_output(&["--count", "10"]);
}

/// The policy of a node is set before it joins, and this launcher gives the rank only later.
#[test]
fn a_rank_that_is_not_known_yet_is_said() {
    let mut command = PARSORT.command(&["--count", "10"]);
    let output = command.env("PMI_PORT", "127.0.0.1:9").env("PMI_ID", "0").output().unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("PMI-1") && told.contains("--policy chunked"), "{told}");
}

/// A killed worker breaks channels whose names only the library knows.
#[cfg(target_os = "linux")]
#[test]
fn a_killed_node_is_the_first_thing_that_is_said() {
    use super::nodes_faults::end_of;
    use chunkcomm_testkit::{blocking, proc};
    use rustix::process::Signal;
    use std::process::Stdio;

    for victim in [1, 2] {
        let mut command = PARSORT.command(&["--policy", "chunked", "--nodes", "3"]);
        command.args(["--repeat", "1000"]).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut program = proc::Program(command.spawn().unwrap());
        let nodes = proc::children(program.0.id(), 2);
        // The caller sorts for the comparison when its workers are about to start.
        blocking::until_some("nobody computes", || {
            proc::has_thread(program.0.id(), "computes").then_some(())
        });
        proc::signal(proc::placed(&nodes, victim - 1), Signal::KILL);
        let (status, told) = end_of(&mut program);
        assert_eq!(status.code(), Some(1), "{told}");
        let cause = format!("parsort: rank {victim} ");
        let first = told.lines().next().unwrap_or_default();
        assert!(first.starts_with(&cause), "{told}");
        assert!(!told.contains("chunkcomm."), "{told}");
    }
}
