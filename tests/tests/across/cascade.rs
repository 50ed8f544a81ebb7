//! The example program `cascade`, run as its user runs it.

use super::example::Example;

pub(crate) const CASCADE: Example = Example { name: "cascade" };

#[test]
fn whole_buffers_and_deltas_give_the_sequential_result() {
    for (options, words) in [
        (
            &["--size", "64KiB"][..],
            ["3 nodes, 16384 numbers (65536 bytes), compute trig", "deltas"],
        ),
        (
            &["--size", "40KiB", "--nodes", "2", "--delta", "1KiB", "--compute", "random"],
            ["2 nodes, 10240 numbers (40960 bytes), compute random", "increments of 1024 bytes"],
        ),
        (
            &["--size", "4", "--nodes", "5", "--compute", "empty"],
            ["5 nodes, 1 numbers (4 bytes), compute empty", "whole buffers"],
        ),
    ] {
        let out = CASCADE.prints(&[options, &["--repeats", "2"]].concat());
        let always = ["one process", "all 6 results equal the sequential one"];
        for word in words.iter().chain(&always) {
            assert!(out.contains(word), "{options:?}: {word:?} is not in\n{out}");
        }
    }
}

#[test]
fn bad_options_say_what_is_allowed_and_exit_with_2() {
    CASCADE.refuses(&[
        (["--size", "5"], "4 to 4GiB in steps of 4"),
        (["--size", "5GiB"], "4 to 4GiB in steps of 4"),
        (["--nodes", "0"], "whole numbers from 1 to 4096"),
        (["--nodes", "many"], "whole numbers from 1 to 4096"),
        (["--nodes", "-3"], "whole numbers from 1 to 4096"),
        (["--repeats", "0"], "whole numbers from 1 to 1000"),
        (["--repeats", "often"], "whole numbers from 1 to 1000"),
        (["--delta", "0"], "auto and 4 to 4GiB"),
        (["--compute", "cosine"], "empty, random, trig"),
        (["--colour", "red"], "--help"),
    ]);
}

#[test]
fn a_chain_needs_a_second_node() {
    let output = CASCADE.command(&["--nodes", "1"]).output().unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(told.starts_with("error: --nodes 1 is no chain: allowed are 2 and more\n"), "{told}");
    // The number of a launcher is known only when the cluster is there.
    let mut command = CASCADE.command(&[]);
    command.env("CHUNKCOMM_RANK", "0").env("CHUNKCOMM_SIZE", "1");
    let manager = super::nodes::free_address();
    let output = command.env("CHUNKCOMM_MANAGER", manager).output().unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert_eq!(told, "cascade: a chain of 1 node: at least 2 are needed\n");
}

#[test]
fn a_closed_standard_output_is_a_plain_error() {
    CASCADE.needs_standard_output(&["--size", "4KiB", "--repeats", "1"]);
}

#[cfg(target_os = "linux")]
#[test]
fn a_killed_node_ends_the_program_with_an_error_and_nobody_is_left() {
    use chunkcomm_testkit::proc;
    use rustix::process::Signal;
    use std::io::Read as _;
    use std::process::Stdio;

    for victim in [0, 1] {
        // The runs take longer than the node lives.
        let mut program = CASCADE.command(&["--size", "4MiB", "--repeats", "1000"]);
        let mut program = proc::Program(program.stderr(Stdio::piped()).spawn().unwrap());
        let mut stderr = program.0.stderr.take().unwrap();
        let nodes = proc::children(program.0.id(), 2);
        let victim_pid = proc::placed(&nodes, victim);
        // The node is then about to join the cluster, or has joined the chain.
        proc::wait_until_handled(victim_pid, Signal::USR1);
        proc::signal(victim_pid, Signal::KILL);
        let mut told = String::new();
        stderr.read_to_string(&mut told).unwrap();
        assert_eq!(program.0.wait().unwrap().code(), Some(1), "{told}");
        // Each node prints why it ends and names a rank; rank 0 names the killed one.
        assert!(told.starts_with("cascade: "), "{told}");
        let name = format!("rank {}", victim + 1);
        assert!(told.contains(&name), "{told} names {name}");
        proc::wait_until_gone(&nodes);
    }
}
