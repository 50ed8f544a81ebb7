//! The example program `nodes`, run as its user runs it: a cluster of copies on this
//! machine. Tests with other launchers are in `tests/launchers`.

use super::example::Example;
use super::raytracer::NQUEENS;
use chunkcomm_testkit::{Scratch, free_port};
use std::process::{Command, Output};
use std::time::Duration;

pub(crate) const NODES: Example = Example { name: "nodes" };

fn nodes(arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    NODES.command(arguments).envs(variables.iter().copied()).output().unwrap()
}

#[test]
fn copies_on_this_machine_are_listed_by_rank() {
    for count in [1, 2, 5] {
        let count_text = count.to_string();
        let arguments = ["--nodes", &count_text, "--round-trips", "3", "--mebibytes", "1"];
        let output = nodes(&arguments, &[]);
        let table = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let rows: Vec<Vec<&str>> =
            table.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows.len(), 1 + count, "{table}");
        for (rank, row) in rows[1..].iter().enumerate() {
            assert_eq!(row[0], rank.to_string(), "{table}");
            let measured = row.ends_with(&["MB/s"]);
            assert_eq!(measured, rank > 0, "{table}");
        }
        let mut pids: Vec<&str> = rows[1..].iter().map(|row| row[2]).collect();
        pids.sort_unstable();
        pids.dedup();
        assert_eq!(pids.len(), count, "{table}");
    }
}

/// The names of sockets there go through the environment of the copies and the manager's words.
#[test]
fn copies_meet_in_any_temporary_folder_or_say_what_to_set() {
    use std::os::unix::ffi::OsStrExt as _;
    let scratch = Scratch::folder("temporary");
    let in_folder = |name: &[u8]| {
        let folder = scratch.join(std::ffi::OsStr::from_bytes(name));
        std::fs::create_dir(&folder).unwrap();
        let mut command = NODES.command(&[]);
        command.args(["--nodes", "3", "--round-trips", "3", "--mebibytes", "1"]);
        let output = command.env("TMPDIR", folder).output().unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    for name in [&b"\xE9t\xE9"[..], b"50%25 off", b"two\nlines"] {
        let (success, told) = in_folder(name);
        assert!(success, "{name:?}: {told}");
    }
    let (success, told) = in_folder(&[b'x'; 100]);
    assert!(!success && told.contains("at most 107 are allowed: set TMPDIR to a folder"), "{told}");
}

#[test]
fn what_was_detected_is_explained() {
    for (variables, words) in [
        (&[][..], &["started by hand", "no variable of any launcher"][..]),
        (
            &[("PMI_FD", "7"), ("PMI_RANK", "2"), ("PMI_SIZE", "4"), ("MPI_LOCALNRANKS", "2")],
            &["PMI-1", "2 of 4", "several", "PMI_FD=7"],
        ),
    ] {
        let output = nodes(&["--explain-launch"], variables);
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success());
        for word in words {
            assert!(text.contains(word), "{word:?} is not in\n{text}");
        }
    }
}

#[test]
fn what_makes_no_sense_is_named() {
    let hosts = concat!(env!("CARGO_TARGET_TMPDIR"), "/hosts-with-a-port").to_owned();
    std::fs::write(&hosts, "one slots=2\ntwo:22\n").unwrap();
    for (arguments, variables, status, part) in [
        (&["--nodes", "0"][..], &[][..], 2, "whole numbers from 1 to 4096"),
        (&["--hosts", "/nowhere/hosts"], &[], 2, "hosts file /nowhere/hosts: No such file"),
        (&["--hosts", &hosts], &[], 2, "hosts-with-a-port, line 2: \"two:22\" is no host"),
        (&[], &[("PMI_RANK", "1"), ("PMI_SIZE", "2")], 1, "PMI_FD is not set: PMI_RANK is set"),
        (&[], &[("SLURM_PROCID", "1")], 1, "SLURM_STEP_ID is not set: SLURM_PROCID is"),
        (&[], &[("PMI_FD", "x")], 1, "PMI_FD is \"x\""),
        // No launcher is at this descriptor.
        (
            &[],
            &[("PMI_FD", "900"), ("PMI_RANK", "0"), ("PMI_SIZE", "2")],
            1,
            "the launcher cannot be reached by PMI_FD=900: Bad file descriptor",
        ),
        (&[], &[("PMI_PORT", "here"), ("PMI_ID", "0")], 1, "PMI_PORT is \"here\": host:port"),
        (
            &[],
            &[("OMPI_COMM_WORLD_RANK", "2"), ("OMPI_COMM_WORLD_SIZE", "2")],
            1,
            "OMPI_COMM_WORLD_RANK is \"2\": it must be below OMPI_COMM_WORLD_SIZE, which is 2",
        ),
        (
            &[],
            &[("SLURM_PROCID", "x"), ("SLURM_STEP_ID", "0"), ("SLURM_JOB_ID", "1")],
            1,
            "SLURM_PROCID is \"x\": a whole number",
        ),
        (&[], &[("CHUNKCOMM_RANK", "one")], 1, "CHUNKCOMM_RANK is \"one\": a whole number"),
        (&[], &[("CHUNKCOMM_HOST", "not a host")], 1, "CHUNKCOMM_HOST is \"not a host\""),
        (&[], &[("JOB_COMPLETION_INDEX", "1")], 1, "CHUNKCOMM_SIZE is not set"),
        (&[], &[("CHUNKCOMM_READY_MS", "soon")], 1, "CHUNKCOMM_READY_MS is \"soon\""),
        (
            &["--nodes", "3"],
            &[
                ("CHUNKCOMM_RANK", "0"),
                ("CHUNKCOMM_SIZE", "2"),
                ("CHUNKCOMM_MANAGER", "127.0.0.1:9"),
            ],
            1,
            "3 nodes were asked for, and variables started 2",
        ),
        (
            &[],
            &[
                ("CHUNKCOMM_RANK", "1"),
                ("CHUNKCOMM_SIZE", "2"),
                ("CHUNKCOMM_MANAGER", "127.0.0.1:9"),
                ("CHUNKCOMM_READY_MS", "200"),
            ],
            1,
            "rank 0 was not reached within 200ms",
        ),
    ] {
        let output = nodes(arguments, variables);
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(status), "{error}");
        assert!(error.contains(part), "{part:?} is not in {error}");
        assert!(output.stdout.is_empty());
    }
}

/// A daemon or a wrapper ignores SIGCHLD, and what it starts inherits that.
#[cfg(target_os = "linux")]
#[test]
fn programs_end_well_where_the_ends_of_children_are_ignored() {
    let files = [NODES, NQUEENS].map(|program| program.file().display().to_string());
    let nodes = [&files[0], "--nodes", "3", "--round-trips", "3", "--mebibytes", "1"];
    for program in [&nodes[..], &[&files[1], "--queens", "8"]] {
        let output =
            Command::new("env").arg("--ignore-signal=CHLD").args(program).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

/// Runs a node by our own variables, whose manager is at this port; returns the text of its failure.
fn failure(rank: &str, size: &str, port: u16, ready_ms: &str) -> String {
    let manager = format!("127.0.0.1:{port}");
    let variables = [
        ("CHUNKCOMM_RANK", rank),
        ("CHUNKCOMM_SIZE", size),
        ("CHUNKCOMM_MANAGER", &manager),
        ("CHUNKCOMM_READY_MS", ready_ms),
    ];
    let output = nodes(&[], &variables);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(output.stdout.is_empty());
    error
}

/// Returns a value for `CHUNKCOMM_MANAGER`: an address with a free port.
pub(crate) fn free_address() -> String {
    format!("127.0.0.1:{}", free_port())
}

/// Returns the time that rank 0 reports as its wait for the others: the time set, or longer where
/// the machine was busy.
pub(crate) fn waited(told: &str) -> Duration {
    let (_, rest) = told.split_once("not ready within ").expect(told);
    let mut words = rest.split([' ', ':']);
    let number = words.next().and_then(|it| it.parse().ok()).expect(told);
    match words.next() {
        Some("s") => Duration::from_secs(number),
        Some("ms") => Duration::from_millis(number),
        _ => panic!("{told}"),
    }
}

#[test]
fn who_never_says_that_it_is_ready_is_named_after_the_settable_time() {
    for ready_ms in [300, 1000] {
        let error = failure("0", "3", free_port(), &ready_ms.to_string());
        assert!(error.starts_with("nodes: not ready within "), "{error}");
        // The default is 30 s.
        let allowed = Duration::from_millis(ready_ms)..Duration::from_secs(30);
        assert!(allowed.contains(&waited(&error)), "{error}");
        assert!(error.trim_end().ends_with(": ranks 1, 2"), "{error}");
    }
}

#[test]
fn ranks_that_disagree_about_the_size_say_so() {
    let port = free_port();
    let first = std::thread::spawn(move || failure("0", "3", port, "30000"));
    let second = failure("1", "2", port, "30000");
    for error in [first.join().unwrap(), second] {
        let text = "nodes: rank 1 was told that the cluster has 2 nodes, rank 0 that it has 3\n";
        assert_eq!(error, text);
    }
}

#[cfg(target_os = "linux")]
mod killed {
    use super::{NODES, free_address};
    use chunkcomm::portable_only;
    use chunkcomm_testkit::{blocking, proc};
    use rustix::process::Signal;
    use std::io::{BufRead as _, BufReader, Read as _, Write as _};
    use std::process::Stdio;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;
    use std::time::Duration;

    /// Waits until the node has joined: it then answers the signal; before, it only outlives it.
    fn wait_until_joined(node: &mut proc::Program) {
        let pid = node.0.id();
        proc::wait_until_handled(pid, Signal::USR1);
        let (says, said) = std::sync::mpsc::channel();
        let stderr = node.0.stderr.take().unwrap();
        thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                // Nobody listens any more once the node has joined.
                let _ = says.send(line);
            }
        });
        blocking::until_some("the node does not explain itself", || {
            proc::signal(pid, Signal::USR1);
            said.recv_timeout(Duration::from_millis(50)).ok()
        });
    }

    /// Starts a cluster of three that measures for longer than the test lasts.
    fn busy() -> proc::Program {
        let mut command = NODES.command(&[]);
        command.args(["--nodes", "3", "--round-trips", "1000000"]);
        proc::Program(command.stderr(Stdio::piped()).spawn().unwrap())
    }

    #[test]
    fn a_copy_is_named_and_nobody_is_left() {
        for placed in [false, true] {
            let mut program = busy();
            let copies = proc::children(program.0.id(), 2);
            let victim = proc::placed(&copies, 0);
            if placed {
                proc::wait_until_placed(victim);
            }
            proc::signal(victim, Signal::KILL);
            let mut told = String::new();
            program.0.stderr.take().unwrap().read_to_string(&mut told).unwrap();
            assert_eq!(program.0.wait().unwrap().code(), Some(1), "{told}");
            let names = told.contains("rank 1") || told.contains("rank-1");
            assert!(names && told.contains("SIGKILL"), "{told}");
            proc::wait_until_gone(&copies);
        }
    }

    /// The nodes are started by hand and nobody waits for them: their peers notice their ends.
    #[test]
    fn nodes_that_nobody_started_are_missed() {
        for victim in [0, 1] {
            let manager = free_address();
            let start = |rank: usize| {
                let mut command = NODES.command(&[]);
                command.args(["--round-trips", "1000000"]).stderr(Stdio::piped());
                command.env("CHUNKCOMM_RANK", rank.to_string()).env("CHUNKCOMM_SIZE", "3");
                command.env("CHUNKCOMM_MANAGER", &manager);
                proc::Program(command.spawn().unwrap())
            };
            let mut nodes: Vec<_> = (0..3).map(start).collect();
            // An end is reported whether the nodes are still starting or at work by then.
            thread::sleep(Duration::from_secs(1));
            proc::signal(nodes[victim].0.id(), Signal::KILL);
            for (rank, node) in nodes.iter_mut().enumerate().filter(|(rank, _)| *rank != victim) {
                let mut told = String::new();
                node.0.stderr.take().unwrap().read_to_string(&mut told).unwrap();
                assert_eq!(node.0.wait().unwrap().code(), Some(1), "{told}");
                let names = ["rank 0", "rank 1", "rank-1"];
                let named = names.iter().any(|name| told.contains(name));
                assert!(named, "rank {rank}, {victim} killed: {told}");
            }
        }
    }

    #[test]
    fn who_comes_while_the_others_measure_ends_with_them() {
        let manager = free_address();
        let start = |rank: Option<usize>| {
            let mut command = NODES.command(&[]);
            command.args(["--round-trips", "20000", "--mebibytes", "1"]);
            command.env("CHUNKCOMM_MANAGER", &manager).stdout(Stdio::piped());
            command.stderr(Stdio::piped());
            if let Some(rank) = rank {
                command.env("CHUNKCOMM_RANK", rank.to_string()).env("CHUNKCOMM_SIZE", "2");
            }
            proc::Program(command.spawn().unwrap())
        };
        let mut first = start(Some(0));
        let mut second = start(Some(1));
        [&mut first, &mut second].into_iter().for_each(wait_until_joined);
        proc::signal(second.0.id(), Signal::STOP);
        let mut late = start(None);
        wait_until_joined(&mut late);
        proc::signal(second.0.id(), Signal::CONT);
        let mut table = String::new();
        first.0.stdout.take().unwrap().read_to_string(&mut table).unwrap();
        assert_eq!(table.lines().count(), 3, "{table}");
        for mut node in [first, second, late] {
            assert!(node.0.wait().unwrap().success());
        }
    }

    /// Nothing is left after an orderly end; after a kill the next start removes what was left.
    #[test]
    fn nothing_is_left_under_the_temporary_folder() {
        let folder = concat!(env!("CARGO_TARGET_TMPDIR"), "/left-behind");
        let _ = std::fs::remove_dir_all(folder);
        std::fs::create_dir_all(folder).unwrap();
        let left = || std::fs::read_dir(folder).unwrap().count();
        let by_file = |rank: &str| {
            let mut command = NODES.command(&[]);
            command.args(["--round-trips", "3", "--mebibytes", "1"]).env("TMPDIR", folder);
            command.env("OMPI_COMM_WORLD_RANK", rank).env("OMPI_COMM_WORLD_SIZE", "2");
            command.env("OMPI_COMM_WORLD_LOCAL_SIZE", "2").env("PMIX_NAMESPACE", "left");
            proc::Program(command.stdout(Stdio::piped()).spawn().unwrap())
        };
        let mut copies = NODES.command(&[]);
        copies.args(["--nodes", "3", "--mebibytes", "1", "--round-trips"]).env("TMPDIR", folder);
        let mut busy = copies.arg("1000000").spawn().map(proc::Program).unwrap();
        let pids = proc::children(busy.0.id(), 2);
        pids.iter().copied().for_each(proc::wait_until_placed);
        busy.0.kill().unwrap();
        proc::wait_until_ended(&busy.0);
        proc::wait_until_gone(&pids);
        assert_eq!(left(), 1, "where the nodes met is left by a kill");
        let mut nodes = [by_file("1"), by_file("0")];
        nodes.iter_mut().for_each(|node| assert!(node.0.wait().unwrap().success()));
        assert_eq!(left(), 0);
        let mut again = NODES.command(&[]);
        again.args(["--nodes", "3", "--mebibytes", "1", "--round-trips", "3"]);
        assert!(again.env("TMPDIR", folder).output().unwrap().status.success());
        assert_eq!(left(), 0);
    }

    #[test]
    fn rank_0_takes_its_copies_along() {
        for placed in [false, true] {
            let mut program = busy();
            let copies = proc::children(program.0.id(), 2);
            if placed {
                copies.iter().copied().for_each(proc::wait_until_placed);
                // A stopped copy ends, too, where the kernel lets it go on.
                if !portable_only() {
                    proc::signal(copies[0], Signal::STOP);
                }
            }
            proc::signal(program.0.id(), Signal::KILL);
            proc::wait_until_gone(&copies);
            let mut told = String::new();
            program.0.stderr.take().unwrap().read_to_string(&mut told).unwrap();
            let of_rank_0 = |line: &&str| line.contains("rank 0") || line.contains("rank-0");
            let lines = told.lines().filter(of_rank_0).count();
            assert!(lines >= 2 || !placed, "each copy says why it ends: {told}");
        }
    }

    /// Their last words wait for room in a pipe.
    #[test]
    fn copies_end_though_nobody_reads_their_standard_error() {
        let (unread, mut full) = std::io::pipe().unwrap();
        let mut command = NODES.command(&[]);
        command.args(["--nodes", "3", "--round-trips", "1000000"]);
        let program = proc::Program(command.stderr(full.try_clone().unwrap()).spawn().unwrap());
        let copies = proc::children(program.0.id(), 2);
        copies.iter().copied().for_each(proc::wait_until_placed);
        let pages = Arc::new(AtomicUsize::new(0));
        let written = Arc::clone(&pages);
        let filling = thread::spawn(move || {
            while full.write_all(&[b' '; 4096]).is_ok() {
                written.fetch_add(1, Ordering::Relaxed);
            }
        });
        let filled = blocking::settled("it has no end", || pages.load(Ordering::Relaxed));
        assert!(filled > 1);
        proc::signal(program.0.id(), Signal::KILL);
        proc::wait_until_gone(&copies);
        drop(unread);
        filling.join().unwrap();
    }
}
