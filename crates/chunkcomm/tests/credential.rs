//! The program that makes credentials.

#![cfg(feature = "tls")]
#![allow(clippy::unwrap_used)]

use chunkcomm::Node;
use chunkcomm_testkit::{Scratch, on_one_thread, pair_of, tcp};
use std::ffi::OsStr;
use std::process::Command;

/// Runs the program; returns its exit status and everything that it printed.
fn run(words: &[&OsStr]) -> (Option<i32>, String) {
    let program = env!("CARGO_BIN_EXE_chunkcomm-credential");
    let output = Command::new(program).args(words).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(text).unwrap())
}

#[test]
fn it_makes_a_file_that_nodes_take_and_writes_none_over() {
    let file = Scratch::new("program");
    let path = file.as_os_str();
    let (status, text) = run(&["new".as_ref(), path]);
    assert_eq!(status, Some(0), "{text}");
    let secret = std::fs::read_to_string(path).unwrap();
    let digits = secret.split(' ').nth(1).unwrap();
    assert!(text.contains("CHUNKCOMM_CREDENTIAL_FILE") && !text.contains(digits), "{text}");
    let (status, text) = run(&["new".as_ref(), path]);
    assert_eq!(status, Some(1), "{text}");
    assert_eq!(std::fs::read_to_string(path).unwrap(), secret);
    assert_eq!(run(&["check".as_ref(), path]).0, Some(0));
    on_one_thread(async {
        let node = || Node::builder().credential_file(&*file);
        pair_of(tcp(), node(), node()).await.is_well("file").await;
    });
}

#[test]
fn it_says_what_is_wrong_with_a_file_and_with_a_command_line() {
    let (status, text) = run(&["check".as_ref(), "/nowhere/at all".as_ref()]);
    assert!(status == Some(1) && text.contains("/nowhere/at all"), "{status:?} {text}");
    for words in [&[][..], &["new".as_ref()], &["make".as_ref(), "it".as_ref()]] {
        let (status, text) = run(words);
        assert!(status == Some(2) && text.contains("Usage"), "{status:?} {text}");
    }
    // A word that looks like an option is not taken for a file's name.
    for command in ["new", "check"] {
        let (status, text) = run(&[command.as_ref(), "-x".as_ref()]);
        assert!(status == Some(2) && text.contains("a file is ./-x"), "{status:?} {text}");
        assert!(!std::path::Path::new("-x").exists());
    }
    let (status, text) = run(&["--help".as_ref()]);
    assert!(status == Some(0) && text.contains("Usage"), "{status:?} {text}");
}
