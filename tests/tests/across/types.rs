//! Two programs with a type of the same name, in which one field differs.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};

use chunkcomm::error::RefusalReason;
use chunkcomm::{AcceptError, Address, Node};
use chunkcomm_tests::farm_tasks::{Job, OTHER_TYPES, sample_job};

use chunkcomm_testkit::limited;

const PROGRAM: &str = env!("CARGO_BIN_EXE_farm-program");

/// Starts a program that opens a channel of its own `Job` to `node` and prints the outcome.
fn opener(node: &Node, other_types: bool) -> (Child, BufReader<ChildStdout>) {
    let mut program = Command::new(PROGRAM);
    program.arg("open").arg(node.addresses()[0].to_string()).stdout(Stdio::piped());
    if other_types {
        program.env(OTHER_TYPES, "1");
    }
    let mut program = program.spawn().unwrap();
    let said = BufReader::new(program.stdout.take().unwrap());
    (program, said)
}

async fn node() -> Node {
    let address: Address = "tcp://127.0.0.1:0".parse().unwrap();
    Node::builder().name("accepts").listen(address).build().await.unwrap()
}

/// Waits for the program's one line on another thread: this one may drive the node.
async fn line(mut said: BufReader<ChildStdout>) -> String {
    let reading = tokio::task::spawn_blocking(move || {
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        line
    });
    limited(reading).await.unwrap()
}

const OURS: &str = "Job{number: u64, text: str}";
const THEIRS: &str = "Job{number: u32, text: str}";

#[tokio::test]
async fn programs_with_one_field_changed_refuse_each_other() {
    let node = node().await;
    let (mut program, said) = opener(&node, true);
    let error = limited(node.accept::<Job>("jobs")).await.expect_err("the types differ");
    let AcceptError::Mismatch { reason, .. } = &error else { panic!("{error}") };
    let RefusalReason::TypeMismatch { sender, receiver } = reason else { panic!("{reason:?}") };
    assert_eq!((&sender[..], &receiver[..]), (THEIRS, OURS));
    let line = line(said).await;
    assert!(line.starts_with("refused: "), "{line}");
    assert!(line.contains(OURS), "{line}");
    assert!(program.wait().unwrap().success());
    // The next program, with the right type, is not affected.
    works(&node).await;
}

/// Checks that a value from a program of the same types arrives.
async fn works(node: &Node) {
    let (mut program, said) = opener(node, false);
    let (_, mut jobs) = limited(node.accept::<Job>("jobs")).await.unwrap();
    assert_eq!(limited(jobs.recv()).await.unwrap(), Some(sample_job()));
    drop(jobs);
    let line = line(said).await;
    assert!(line.starts_with("ended: "), "{line}");
    assert!(program.wait().unwrap().success());
}
