//! Sources that must stay pure: they name nothing that waits, locks, asks for the time or touches
//! the machine.

use std::fs::read_to_string;
use std::path::{Path, PathBuf};

const FORBIDDEN: &[&str] = &[
    "tokio",
    "async",
    "Mutex",
    "RwLock",
    "Condvar",
    "Instant",
    "SystemTime",
    "getrandom",
    "std::thread",
    "std::net",
    "std::io",
    "std::fs",
    "std::env",
    "std::process",
];

/// Modules above `proto` and beside it.
const ABOVE: &[&str] = &[
    "crate::transport",
    "crate::driver",
    "crate::channel",
    "crate::node",
    "crate::simulation",
    "crate::call::",
    "crate::moving",
    "crate::cluster",
    "crate::process",
    "crate::sync",
    "crate::ext",
    "crate::launch",
    "crate::registry",
    "chunkcomm::",
];

/// Collections without a fixed order.
const UNORDERED: &[&str] = &["HashMap", "HashSet"];

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates")
}

/// Returns the sources in this folder of `crates`, except tests; at least `count_min` must be there.
pub(crate) fn sources(folder: &str, count_min: usize) -> Vec<PathBuf> {
    let folder = crates().join(folder);
    let (mut sources, mut folders) = (Vec::new(), vec![folder.clone()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|is| is == "rs") && !path.ends_with("tests.rs") {
                sources.push(path);
            }
        }
    }
    assert!(sources.len() >= count_min, "only {} under {}", sources.len(), folder.display());
    sources
}

fn name_none_of(words: &[&str], sources: &[PathBuf]) {
    for source in sources {
        let text = read_to_string(source).unwrap();
        for line in text.lines().filter(|line| !line.trim_start().starts_with("//")) {
            let named = words.iter().find(|word| line.contains(**word));
            assert_eq!(named, None, "{}: {line}", source.display());
        }
    }
}

#[test]
fn the_machines_of_every_crate_are_pure() {
    name_none_of(&[FORBIDDEN, ABOVE].concat(), &sources("cluster/src/proto", 10));
    name_none_of(FORBIDDEN, &sources("proto/src", 40));
    name_none_of(FORBIDDEN, &sources("farm/src/proto", 6));
    let numbers_alone = ["chunkcomm::", "std::sync", "std::time"];
    name_none_of(&[FORBIDDEN, &numbers_alone].concat(), &sources("pipeline/src/proto", 5));
}

#[test]
fn the_model_of_a_network_is_pure_and_has_no_order_by_chance() {
    let mut model = sources("simulation/src/network", 7);
    model.push(crates().join("simulation/src/network.rs"));
    name_none_of(&[FORBIDDEN, UNORDERED].concat(), &model);
}

#[test]
fn the_seeds_are_pure_and_have_no_order_by_chance() {
    let seeds = sources("simulation/src/seeds", 15);
    name_none_of(&[FORBIDDEN, UNORDERED].concat(), &seeds);
}
