//! The example `nodes` on the hosts of a file, with a program in the place of ssh that runs its
//! command on this machine: the end of a cluster where an ssh does not end.

use super::nodes::NODES;
use chunkcomm_testkit::{Scratch, blocking, proc};
use std::process::Output;

/// Runs two nodes, the second by an ssh that runs `then` when its node has ended. The processes
/// that this starts have the variable `NODES_SSH_TEST` with the name.
fn nodes(name: &str, then: &str) -> Output {
    let folder = Scratch::folder(&format!("nodes-ssh-{name}"));
    let ssh = folder.join("ssh");
    let script = format!(
        "while [ $# -gt 2 ]; do shift; done\n\
         sh -c \"$2\" || exit\n\
         [ \"$1\" = 127.0.0.1 ] || {then}\n"
    );
    std::fs::write(&ssh, script).unwrap();
    let hosts = folder.join("hosts");
    std::fs::write(&hosts, "127.0.0.1\n127.0.0.2\n").unwrap();
    let mut command = NODES.command(&[]);
    command.arg("--hosts").arg(&hosts).args(["--round-trips", "3", "--mebibytes", "1"]);
    command.env("CHUNKCOMM_SSH", format!("sh {}", ssh.display())).env("NODES_SSH_TEST", name);
    command.output().unwrap()
}

fn is_table(output: &Output) -> bool {
    let out = String::from_utf8_lossy(&output.stdout);
    out.lines().count() == 3 && out.lines().all(|line| line.starts_with("[0] "))
}

#[test]
fn an_ssh_that_does_not_end_is_given_up() {
    let output = nodes("stays", "exec sleep 1000");
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(255), "{told}");
    assert!(told.contains("rank 1 on 127.0.0.2: its ssh does not end"), "{told}");
    assert!(is_table(&output), "{output:?}");
    blocking::until_some("the ssh is left behind", || {
        proc::with_variable("NODES_SSH_TEST", "stays").is_empty().then_some(())
    });
}

#[test]
fn a_node_that_ends_with_its_input_ends_well() {
    let output = nodes("reads", "cat");
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{told}");
    assert!(told.is_empty() && is_table(&output), "{output:?}");
}
