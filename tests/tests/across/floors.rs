//! Imports within each crate: a room imports from its own floor and from those below it. Cargo
//! keeps the floors of the crates themselves. ARCHITECTURE.md has the same table.

use crate::pure::sources;
use crate::rooms::House;
use std::fs::read_to_string;

/// The floors of a crate, the lowest first, each with its rooms.
struct Floors {
    krate: &'static str,
    floors: &'static [&'static [&'static str]],
}

const CRATES: &[Floors] = &[
    Floors {
        krate: "proto",
        floors: &[
            &[
                "causes", "error", "plain", "loss", "limits", "random", "ids", "fair", "message",
                "sorted", "trace", "tuning",
            ],
            &["codec", "backoff", "spares", "credit", "liveness", "describe"],
            &["hello", "resume", "packet", "cycle"],
            &["credential", "session"],
            &["outbox"],
            &["link"],
            &["endpoint"],
        ],
    },
    Floors {
        krate: "chunkcomm",
        floors: &[
            &["proto", "address", "portable", "descriptors"],
            &["credential", "explain", "report", "stats", "error"],
            &["transport", "log"],
            &["driver"],
            &["channel", "node"],
            &["host", "layer", "settings", "watch"],
            &["feed"],
        ],
    },
    Floors {
        krate: "cluster",
        floors: &[
            &["proto"],
            &["report", "sync", "tasks"],
            &["launch", "registry", "moving"],
            &["call"],
            &["cluster"],
            &["ext", "interface", "roster"],
        ],
    },
    Floors {
        krate: "simulation",
        floors: &[
            &["network"],
            &["lan", "system", "watchdog"],
            &["programs", "worlds"],
            &["repeat"],
        ],
    },
    Floors {
        krate: "page",
        floors: &[
            &["error", "guard", "state"],
            &["gather", "metrics"],
            &["log"],
            &["door", "members"],
            &["hub"],
            &["events", "server"],
            &["page"],
        ],
    },
    Floors {
        krate: "pages",
        floors: &[
            &["settings"],
            &["contents", "error", "runs", "window"],
            &["guard", "increments", "pages", "sys"],
            &["faults"],
            &["fill", "watch"],
            &["receiving", "sending"],
            &["costs", "elsewhere"],
        ],
    },
    Floors {
        krate: "group",
        floors: &[
            &["proto"],
            &["element", "error"],
            &["memory", "trouble"],
            &["landing", "part", "pump"],
            &["region"],
            &["group"],
            &["collective"],
            &["layer"],
        ],
    },
    Floors { krate: "pipeline", floors: &[&["turns"], &["send", "recv"], &["flow", "tracked"]] },
    Floors {
        krate: "array",
        floors: &[&["layout"], &["plan"], &["pack"], &["ends", "npy"], &["array", "attach"]],
    },
    Floors {
        krate: "farm",
        floors: &[
            &["proto", "name", "settings"],
            &[
                "board",
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
            ],
            &["crew", "link"],
            &["account", "handshake"],
            &["run"],
            &["chosen", "pool", "problem", "results", "subfarm"],
            &["builder", "farm", "serving"],
        ],
    },
];

impl Floors {
    fn floor(&self, room: &str) -> Option<usize> {
        self.floors.iter().position(|floor| floor.contains(&room))
    }
}

#[test]
fn imports_run_downwards_in_every_crate() {
    let mut upwards = Vec::new();
    for floors in CRATES {
        let house = House::of(floors.krate);
        for room in &house.rooms {
            assert!(floors.floor(room).is_some(), "{}: {room} is on no floor", floors.krate);
        }
        let above = house.imports.iter().filter(|it| floors.floor(&it.to) > floors.floor(&it.from));
        upwards
            .extend(above.map(|it| format!("{}/src/{} imports {}", floors.krate, it.file, it.to)));
    }
    assert!(upwards.is_empty(), "imports run upwards: {upwards:#?}");
}

/// Most names that a reader of the docs of `chunkcomm` meets at its root.
const ROOT_NAMES_MAX: usize = 49;

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
