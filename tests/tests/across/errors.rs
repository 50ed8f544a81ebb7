//! Texts of errors: `{}` without the cause, `{:?}` with all causes.

use crate::pure::sources;
use chunkcomm::{Address, Credential, Node, with_causes};
use chunkcomm_cluster::launch::{LaunchError, Launcher};
use chunkcomm_farm::StartError;
use chunkcomm_testkit::Scratch;
use std::error::Error;
use std::fs::read_to_string;

/// Errors that no user sees.
const OF_NO_USER: &[&str] = &["Stop"];

#[test]
fn every_error_of_the_libraries_shows_its_causes() {
    let mut count = 0;
    let folders = [
        ("proto/src", 40),
        ("chunkcomm/src", 100),
        ("cluster/src", 70),
        ("simulation/src", 20),
        ("farm/src", 15),
        ("pipeline/src", 15),
    ];
    for (folder, count_min) in folders {
        let sources = sources(folder, count_min);
        let texts = sources.iter().map(|source| read_to_string(source).unwrap());
        let texts: Vec<String> = texts.collect();
        for (source, text) in sources.iter().zip(&texts) {
            let named = |line: &str| {
                let (_, name) = line.strip_prefix("impl")?.split_once("Error for ")?;
                let is_serde = line.contains("de::Error") || line.contains("ser::Error");
                let name = name.split(['<', ' ']).next()?;
                (!is_serde && !OF_NO_USER.contains(&name)).then(|| name.to_owned())
            };
            for name in text.lines().filter_map(named) {
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

#[test]
fn an_outer_error_shows_the_inner_ones() {
    let nowhere = Launcher::new(Address::Memory("nobody".into())).program("/nowhere/at-all");
    let error: LaunchError = nowhere.spawn(1).unwrap_err();
    let error = StartError::Launch(error);
    shows_each_cause_once(
        &error,
        &["worker processes could not be started", "/nowhere/at-all", "No such file"],
    );
}
