//! Imports within `chunkcomm`: a folder imports from its own floor and from those below it.
//! ARCHITECTURE.md has the same table.

use crate::pure::sources;
use std::collections::BTreeSet;
use std::fs::read_to_string;

/// Folders of `crates/chunkcomm/src`, the lowest floor first.
const FLOORS: &[&[&str]] = &[
    &["proto"],
    &["transport", "launch"],
    &["log"],
    &["driver"],
    &["channel", "node"],
    &["registry"],
    &["call"],
    &["moving"],
    &["process"],
    &["cluster"],
    &["simulation"],
];

/// Imports that still run upwards: a file and the folder above it. The list may only shrink.
const UPWARDS: &[(&str, &str)] = &[
    ("call/error.rs", "cluster"),
    ("channel/ports.rs", "moving"),
    ("channel/ports/staying.rs", "moving"),
    ("channel/receiver.rs", "moving"),
    ("channel/tx/packing.rs", "moving"),
    ("moving/line.rs", "process"),
    ("moving/mod.rs", "cluster"),
    ("moving/mod.rs", "process"),
    ("node/accepting.rs", "moving"),
    ("node/builder.rs", "registry"),
    ("node/builder/building.rs", "moving"),
    ("node/builder/building.rs", "process"),
    ("node/fingerprint.rs", "moving"),
    ("node/losses.rs", "cluster"),
    ("node/losses.rs", "moving"),
    ("node/mod.rs", "moving"),
    ("node/reaching.rs", "moving"),
    ("process/context.rs", "cluster"),
    ("process/creating.rs", "cluster"),
    ("process/error.rs", "cluster"),
    ("registry.rs", "process"),
];

fn floor(folder: &str) -> Option<usize> {
    FLOORS.iter().position(|floor| floor.contains(&folder))
}

/// The folders of the crate that `source` names outside its tests and comments.
fn imports(source: &str) -> BTreeSet<&str> {
    let code = source.split("#[cfg(test)]\nmod tests {").next().unwrap();
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    let named = lines.flat_map(|line| line.split("crate::").skip(1));
    let folders = named.map(|rest| rest.split(|c: char| !c.is_alphabetic() && c != '_').next());
    folders.map(Option::unwrap).filter(|folder| floor(folder).is_some()).collect()
}

#[test]
fn imports_of_chunkcomm_run_downwards() {
    let mut upwards = BTreeSet::new();
    for source in sources("chunkcomm/src", 150) {
        let path = source.to_str().unwrap().replace('\\', "/");
        let (_, path) = path.split_once("chunkcomm/src/").unwrap();
        let Some(own) = floor(path.split(['/', '.']).next().unwrap()) else { continue };
        let text = read_to_string(&source).unwrap();
        let above = imports(&text).into_iter().filter(|folder| floor(folder) > Some(own));
        upwards.extend(above.map(|folder| (path.to_owned(), folder.to_owned())));
    }
    let known = UPWARDS.iter().map(|(path, folder)| ((*path).to_owned(), (*folder).to_owned()));
    assert_eq!(upwards, known.collect(), "an import runs upwards, or one is no longer there");
}

#[test]
fn imports_are_found_outside_comments_and_tests() {
    let source = "use crate::node::Peer;\n// crate::call\nfn f() { crate::cluster::join() }\n\
                  #[cfg(test)]\nmod tests {\n    use crate::process::x;\n}\n";
    assert_eq!(imports(source), BTreeSet::from(["cluster", "node"]));
}
