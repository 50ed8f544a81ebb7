//! Texts of errors: `{}` without the cause, `{:?}` with all causes.

mod array;
mod chunkcomm;
mod cluster;
mod farm;
mod group;
mod page;
mod pipeline;
mod proto;
mod simulation;
mod texts;

use crate::pure::sources;
use ::chunkcomm::{Address, Credential, Node, with_causes};
use chunkcomm_testkit::Scratch;
use std::error::Error;
use std::fs::read_to_string;
use std::io;
use std::sync::Arc;
use texts::{Texts, errors, label, words};

/// Errors that no user sees.
const OF_NO_USER: &[&str] = &["Stop"];

/// Errors that only their crate can make: a test beside them has their texts.
const MADE_INSIDE: &[&str] = &["FinishError"];

/// Folders of the published crates, with a number of sources that each has at least.
const FOLDERS: &[(&str, usize)] = &[
    ("array", 20),
    ("proto", 40),
    ("chunkcomm", 100),
    ("cluster", 70),
    ("farm", 15),
    ("page", 9),
    ("pages", 3),
    ("group", 45),
    ("pipeline", 9),
    ("simulation", 20),
];

/// The system's message.
fn said() -> Arc<io::Error> {
    Arc::new(io::Error::other("what the system said"))
}

fn address() -> Address {
    "127.0.0.1:1".parse().unwrap()
}

#[tokio::test(flavor = "current_thread")]
async fn the_texts_of_all_errors_are_those_of_the_file() {
    let mut texts = Texts::default();
    texts.part("proto");
    proto::all(&mut texts);
    texts.part("chunkcomm");
    chunkcomm::all(&mut texts).await;
    texts.part("cluster");
    cluster::all(&mut texts);
    texts.part("farm");
    farm::all(&mut texts).await;
    texts.part("pages");
    pipeline::pages(&mut texts);
    texts.part("group");
    group::all(&mut texts).await;
    texts.part("pipeline");
    pipeline::all(&mut texts);
    texts.part("array");
    array::all(&mut texts);
    texts.part("simulation");
    simulation::all(&mut texts);
    texts.part("page");
    page::all(&mut texts);
    let mut count = 0;
    for (folder, count_min) in FOLDERS {
        for source in sources(&format!("{folder}/src"), *count_min) {
            for label in labels(&read_to_string(&source).unwrap()) {
                assert!(texts.has(folder, &label), "no text of {label}: {}", source.display());
                count += 1;
            }
        }
    }
    assert!(count > 250, "only {count} errors");
    texts.compare("tests/across/error_texts.txt");
}

/// Returns the errors in this source that users can have, with their variants.
fn labels(source: &str) -> Vec<String> {
    let mut labels = Vec::new();
    let mut lines = source.lines();
    while let Some(line) = lines.next() {
        let named = |kind| {
            let name = line.strip_prefix(kind)?.split(['<', '(', ' ', ';']).next()?;
            (name.ends_with("Error") && !MADE_INSIDE.contains(&name)).then(|| name.to_owned())
        };
        labels.extend(named("pub struct "));
        let Some(name) = named("pub enum ") else { continue };
        for line in lines.by_ref().take_while(|line| *line != "}") {
            let variant =
                line.strip_prefix("    ").filter(|line| line.starts_with(char::is_uppercase));
            let variant = variant.and_then(|line| line.split([' ', '(', ',']).next());
            labels.extend(variant.map(|variant| format!("{name}::{variant}")));
        }
    }
    labels
}

#[test]
fn every_error_of_the_libraries_shows_its_causes() {
    let mut count = 0;
    for (folder, count_min) in FOLDERS {
        let sources = sources(&format!("{folder}/src"), *count_min);
        let texts = sources.iter().map(|source| read_to_string(source).unwrap());
        let texts: Vec<String> = texts.collect();
        for (source, text) in sources.iter().zip(&texts) {
            for name in errors_of(text) {
                let by_hand = format!("fmt::Debug for {name}<");
                let by_causes = format!("debug_with_causes!({name});");
                let shows =
                    text.contains(&by_hand) || texts.iter().any(|text| text.contains(&by_causes));
                assert!(shows, "{}: {name} shows itself otherwise", source.display());
                count += 1;
            }
        }
    }
    assert!(count > 50, "only {count} errors");
}

/// Returns the names of the types in this source that are errors, by hand or derived.
fn errors_of(text: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut derives = false;
    for line in text.lines() {
        let by_hand = line.strip_prefix("impl").and_then(|line| line.split_once("Error for "));
        let is_serde = line.contains("de::Error") || line.contains("ser::Error");
        let item = ["enum ", "struct "].iter().find_map(|kind| line.split_once(kind));
        let is_item =
            item.is_some_and(|(before, _)| before.is_empty() || before.starts_with("pub"));
        let name = match (by_hand, item) {
            (Some((_, name)), _) if !is_serde => Some(name),
            (_, Some((_, name))) if is_item && std::mem::take(&mut derives) => Some(name),
            _ => None,
        };
        derives |= line.starts_with("#[derive(") && line.contains("thiserror::Error");
        let name = name.and_then(|name| name.split(['<', '(', ' ', ';']).next());
        names.extend(name.filter(|name| !OF_NO_USER.contains(name)).map(str::to_owned));
    }
    names
}

/// Checks that `main`'s print of a returned error has its message and its causes, each once.
fn shows_each_cause_once(error: &dyn Error, parts: &[&str]) {
    let shown = format!("{error:?}");
    assert_eq!(shown, with_causes(error));
    for part in parts {
        assert_eq!(shown.matches(part).count(), 1, "{part:?} in {shown}");
    }
    if let Some(cause) = error.source() {
        let (error, cause) = (error.to_string(), cause.to_string());
        assert!(!error.contains(&cause), "{error}");
    }
}

#[cfg(unix)]
#[test]
fn what_main_prints_of_a_file_that_others_can_read_is_how_to_mend_it() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Scratch::folder("shown");
    let path = folder.join("credential");
    Credential::generate().unwrap().save(&path).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).unwrap();
    let error = Credential::load(&path).unwrap_err();
    drop(folder);
    shows_each_cause_once(&error, &["mode 0644", "chmod 600"]);
    shows_each_cause_once(&Credential::load(&path).unwrap_err(), &["No such file"]);
}

#[tokio::test(flavor = "current_thread")]
async fn an_address_without_a_node_is_told_with_the_systems_word_once() {
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let node = Node::builder().build().await.unwrap();
    let error = node.connect(&Address::from(gone)).await.unwrap_err();
    shows_each_cause_once(&error, &["cannot be reached", "refused", &gone.to_string()]);
}
