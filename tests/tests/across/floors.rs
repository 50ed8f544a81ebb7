//! Imports within each crate: a folder imports from its own floor and from those below it. Cargo
//! keeps the floors of the crates themselves. ARCHITECTURE.md has the same table.

use crate::pure::sources;
use std::collections::BTreeSet;
use std::fs::read_to_string;

/// The floors of a crate, the lowest first. A floor has files and folders of the crate's `src`.
struct Floors {
    krate: &'static str,
    floors: &'static [&'static [&'static str]],
    /// Files and folders that stand outside: the crate's root, programs, tests.
    outside: &'static [&'static str],
}

const CRATES: &[Floors] = &[
    Floors {
        krate: "proto",
        floors: &[
            &["causes", "plain", "limits", "random", "ids", "fair", "message", "trace", "tuning"],
            &["codec", "backoff", "spares", "credit", "liveness", "describe"],
            &["hello", "resume", "packet", "cycle"],
            &["credential", "session"],
            &["outbox"],
            &["link"],
            &["endpoint"],
        ],
        outside: &["lib"],
    },
    Floors {
        krate: "chunkcomm",
        floors: &[
            &["proto", "address", "portable", "descriptors"],
            &["credential", "explain", "stats", "error"],
            &["transport", "log"],
            &["driver"],
            &["channel", "node"],
            &["host", "layer"],
        ],
        outside: &["lib", "bin"],
    },
    Floors {
        krate: "cluster",
        floors: &[
            &["proto"],
            &["report", "sync"],
            &["launch", "registry", "moving"],
            &["call"],
            &["cluster"],
            &["ext"],
        ],
        outside: &["lib"],
    },
    Floors {
        krate: "simulation",
        floors: &[
            &["network"],
            &["lan", "system", "watchdog"],
            &["programs", "worlds"],
            &["repeat"],
        ],
        outside: &["lib"],
    },
    Floors {
        krate: "pages",
        floors: &[
            &["settings"],
            &["contents", "error", "runs", "window"],
            &["guard", "increments", "pages", "sys"],
            &["fill", "watch"],
            &["receiving", "sending"],
            &["costs", "elsewhere"],
        ],
        outside: &["lib", "tests"],
    },
    Floors {
        krate: "pipeline",
        floors: &[
            &["proto"],
            &["element", "error"],
            &["memory"],
            &["landing", "part", "pump", "turns"],
            &["send", "recv"],
            &["tracked"],
            &["patterns"],
        ],
        outside: &["lib"],
    },
    Floors {
        krate: "farm",
        floors: &[
            &["proto", "name", "settings"],
            &[
                "compute",
                "context",
                "error",
                "functions",
                "journal",
                "needs",
                "once",
                "pieces",
                "remains",
                "stats",
                "worker",
                "machine",
                "shared",
                "tasks",
                "threads",
                "values",
                "warning",
            ],
            &["crew", "link"],
            &["account", "handshake"],
            &["run"],
            &["pool", "problem", "results", "subfarm"],
            &["builder", "farm", "serving"],
        ],
        outside: &["lib"],
    },
];

impl Floors {
    fn floor(&self, folder: &str) -> Option<usize> {
        self.floors.iter().position(|floor| floor.contains(&folder))
    }

    /// The folder of a name that the crate's root exports.
    fn home_of<'a>(&self, root: &'a str, name: &str) -> Option<&'a str> {
        let exports = root.split("pub use ").skip(1).filter_map(|rest| rest.split_once(';'));
        let mut exports = exports.map(|(export, _)| export.trim_start_matches("crate::"));
        let is_it = |word: &str| word == name;
        let export = exports.find(|it| it.split(|c: char| !is_of_name(c)).any(is_it));
        export?.split("::").next().filter(|folder| self.floor(folder).is_some())
    }

    /// The folders of the crate that `source` names outside its tests and comments; `root` is its
    /// `lib.rs`.
    fn imports<'a>(&self, source: &'a str, root: &'a str) -> BTreeSet<&'a str> {
        let code = source.split("#[cfg(test)]\nmod tests {").next().unwrap();
        let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
        let named = lines.flat_map(|line| line.split("crate::").skip(1));
        let folders =
            named.map(|rest| rest.split(|c: char| !c.is_alphanumeric() && c != '_').next());
        let folders = folders.map(Option::unwrap).map(|folder| match self.floor(folder) {
            Some(_) => Some(folder),
            None => self.home_of(root, folder),
        });
        folders.flatten().collect()
    }
}

fn is_of_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The first folder of a source of a crate, or its own name without `.rs`.
fn folder_of(path: &str) -> &str {
    path.split(['/', '.']).next().unwrap()
}

#[test]
fn imports_run_downwards_in_every_crate() {
    let mut upwards = Vec::new();
    for floors in CRATES {
        let folder = format!("{}/src", floors.krate);
        let sources = sources(&folder, 10);
        let root = sources.iter().find(|it| it.ends_with("src/lib.rs")).unwrap();
        let root = read_to_string(root).unwrap();
        for source in &sources {
            let path = source.to_str().unwrap().replace('\\', "/");
            let (_, path) = path.split_once(&format!("{folder}/")).unwrap();
            let own = folder_of(path);
            let Some(floor) = floors.floor(own) else {
                assert!(floors.outside.contains(&own), "{folder}/{path} is on no floor");
                continue;
            };
            let text = read_to_string(source).unwrap();
            // At the top of a crate `super` is its root.
            let text = if path.contains('/') { text } else { text.replace("super::", "crate::") };
            let above = floors.imports(&text, &root).into_iter();
            let above = above.filter(|folder| floors.floor(folder) > Some(floor));
            upwards.extend(above.map(|above| format!("{folder}/{path} imports {above}")));
        }
    }
    assert!(upwards.is_empty(), "imports run upwards: {upwards:#?}");
}

/// Most names that a reader of the docs of `chunkcomm` meets at its root.
const ROOT_NAMES_MAX: usize = 45;

/// Most names that the author of a layer meets in `chunkcomm::layer`.
const LAYER_NAMES_MAX: usize = 35;

/// The names that a module of `chunkcomm` exports and its docs show: those behind `pub` in its file
/// from `begin` on.
fn exported_names(file: &str, begin: &str) -> Vec<String> {
    let path = sources("chunkcomm/src", 100).into_iter().find(|it| it.ends_with(file));
    let text = read_to_string(path.unwrap()).unwrap();
    let (_, text) = text.split_once(begin).unwrap();
    let mut names = Vec::new();
    let text = text.replace("#[doc(hidden)]\npub ", "");
    for item in text.split("pub ").skip(1) {
        let item = item.split(';').next().unwrap();
        let items =
            item.split_once('{').map_or_else(|| vec![item], |(_, it)| it.split(',').collect());
        let last = |name: &str| {
            let name = name.rsplit("::").next().unwrap().rsplit(' ').next().unwrap();
            name.trim_matches([' ', '}', '\n']).to_owned()
        };
        names.extend(items.into_iter().map(last).filter(|it| !it.is_empty()));
    }
    // A module and a function may share a name.
    names.sort_unstable();
    names.dedup();
    names
}

#[test]
fn the_root_of_chunkcomm_has_few_names() {
    let names = exported_names("src/lib.rs", "\nmod address;");
    assert!((30..=ROOT_NAMES_MAX).contains(&names.len()), "{}: {names:?}", names.len());
    let names = exported_names("src/layer.rs", "\nmod ends;");
    assert!((25..=LAYER_NAMES_MAX).contains(&names.len()), "{}: {names:?}", names.len());
}

#[test]
fn imports_are_found_outside_comments_and_tests() {
    let source = "use crate::moving::Held;\n// crate::call\nfn f(_: crate::Node) { crate::cluster::join() }\n\
                  use crate::NodeExt;\n\
                  #[cfg(test)]\nmod tests {\n    use crate::launch::x;\n}\n";
    let floors = CRATES.iter().find(|it| it.krate == "cluster").unwrap();
    let root = "pub use ext::{NodeExt, SenderExt};\npub use chunkcomm::Node;\n";
    assert_eq!(floors.imports(source, root), BTreeSet::from(["cluster", "ext", "moving"]));
}
