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

pub(crate) fn crates() -> PathBuf {
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
    name_none_of(&[FORBIDDEN, &numbers_alone].concat(), &sources("group/src/proto", 5));
    let above_plans = ["crate::ends", "chunkcomm::"];
    for room in ["layout", "plan", "pack"] {
        let mut room = sources(&format!("array/src/{room}"), 2);
        room.push(crates().join("array/src/layout.rs"));
        room.extend(["plan.rs", "pack.rs"].map(|file| crates().join("array/src").join(file)));
        name_none_of(&[FORBIDDEN, &above_plans, UNORDERED].concat(), &room);
    }
}

#[test]
fn the_model_of_a_network_is_pure_and_has_no_order_by_chance() {
    let mut model = sources("simulation/src/network", 7);
    model.push(crates().join("simulation/src/network.rs"));
    name_none_of(&[FORBIDDEN, UNORDERED].concat(), &model);
}

#[test]
fn the_seeds_are_pure_and_have_no_order_by_chance() {
    let mut seeds = sources("proofs/src", 15);
    seeds.retain(|source| !source.starts_with(crates().join("proofs/src/bin")));
    name_none_of(&[FORBIDDEN, UNORDERED].concat(), &seeds);
}

/// The ways around the host of `chunkcomm::host`: a simulation would not be the same run twice.
const AROUND_THE_HOST: &[&str] = &[
    "tokio::time",
    "tokio::spawn",
    "spawn_blocking",
    "std::thread",
    "thread::Builder",
    "SystemTime",
    "std::time::Instant",
    "RandomState",
    "HashMap",
    "HashSet",
    "getrandom::fill",
    "process::id()",
    "available_parallelism",
    "env::var",
];

/// Folders and files about processes and threads of a real machine.
const REAL_MACHINES: &[&str] = &[
    "cluster/src/launch.rs",
    "cluster/src/launch/",
    "cluster/src/cluster/launch/",
    "farm/src/machine.rs",
    "farm/src/threads.rs",
    "../examples/coupled/src/patterns/machine.rs",
];

/// Returns the lines of code of a source, without its tests and comments.
fn code(text: &str) -> impl Iterator<Item = &str> {
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
    code.lines().filter(|line| !line.trim_start().starts_with("//"))
}

/// The ways around the host in a source.
fn ways_around(text: &str) -> Vec<String> {
    let lines: Vec<&str> = code(text).collect();
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let words = AROUND_THE_HOST.iter().filter(|word| line.contains(**word));
        found.extend(words.map(|word| format!("{word}: {line}")));
        let imports_instant = line.contains("use std::time::") && line.contains("Instant");
        found.extend(imports_instant.then(|| format!("Instant: {line}")));
        let unbiased = line.contains("select! {")
            && lines.get(at + 1).is_none_or(|next| next.trim() != "biased;");
        found.extend(unbiased.then(|| format!("select without biased: {line}")));
        // Launchers and methods of that name spawn no tasks.
        let others = ["launcher.spawn(", "self.spawn(", ".spawn(count)"];
        let is_task = line.contains(".spawn(") && !others.iter().any(|other| line.contains(other));
        let elsewhere = is_task && !line.contains("here(");
        found.extend(elsewhere.then(|| format!("a task of no host: {line}")));
    }
    found
}

#[test]
fn the_upper_crates_take_time_and_tasks_from_their_host() {
    let patterns = "../examples/coupled/src/patterns";
    let folders = ["array/src", "cluster/src", "farm/src", "group/src", "pipeline/src", patterns];
    let mut read = 0;
    for source in folders.iter().flat_map(|folder| sources(folder, 6)) {
        let path = source.to_str().unwrap().replace('\\', "/");
        let (_, path) = path.split_once("/../crates/").unwrap();
        let real = REAL_MACHINES.iter().any(|place| path.starts_with(place));
        if !real && !path.contains("/tests/") {
            let found = ways_around(&read_to_string(&source).unwrap());
            assert!(found.is_empty(), "{path}: {found:?}");
            read += 1;
        }
    }
    assert!(read > 90, "only {read} sources were read");
}

/// Whether a line decides by the words of an error, which are for people.
fn reads_words(line: &str) -> bool {
    let is_whole = |at: usize| !line[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
    let asks = ["why", "cause", "text", "to_string()"].iter().any(|words| {
        [".starts_with(", ".contains("].iter().any(|ask| {
            let asked = format!("{words}{ask}");
            line.match_indices(&asked).any(|(at, _)| is_whole(at))
        })
    });
    let compares = ["why == ", "why != "];
    asks || compares.iter().any(|it| line.match_indices(it).any(|(at, _)| is_whole(at)))
}

#[test]
fn nothing_is_decided_by_the_words_of_an_error() {
    let mut read = 0;
    for source in sources("", 500) {
        let path = source.to_str().unwrap().replace('\\', "/");
        let (_, path) = path.split_once("/../crates/").unwrap();
        // A measurement has nothing of other programs but what they print.
        if !path.contains("/src/") || path.contains("/tests/") || path.starts_with("bench/") {
            continue;
        }
        for line in code(&read_to_string(&source).unwrap()) {
            assert!(!reads_words(line), "{path}: {line}");
        }
        read += 1;
    }
    assert!(read > 400, "only {read} sources were read");
}

#[test]
fn words_that_decide_are_found() {
    for planted in [
        "if why.starts_with(\"rank \") {",
        "is_told: why != DROPPED,",
        "Err(error) if error.to_string().contains(\"closed\") => {}",
        "DeltaRecvError::Combine { cause, .. } if cause.starts_with(\"panicked\") => {",
    ] {
        assert!(reads_words(planted), "{planted}");
    }
    assert!(!reads_words("if context.contains(7) { somewhy == 3 }"));
}

#[test]
fn a_way_around_the_host_is_found() {
    for planted in [
        "let now = std::time::Instant::now();",
        "use std::time::{Duration, Instant};",
        "tokio::time::sleep(wait).await;",
        "let map: HashMap<u64, u64> = HashMap::new();",
        "tokio::select! {\n    a = b => {}",
        "self.runtime.spawn(task);",
        "set.spawn(async move {",
    ] {
        assert!(!ways_around(planted).is_empty(), "{planted}");
    }
    assert_eq!(ways_around("tokio::select! {\n    biased;\n    a = b => {}"), [""; 0]);
}
