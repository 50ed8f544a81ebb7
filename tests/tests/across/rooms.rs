//! Rooms: the files and folders at the top of a crate's `src`. No two of them import each other,
//! neither directly nor by way of others.

use crate::pure::{crates, sources};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::read_to_string;

/// A circle that stays.
struct Accepted {
    krate: &'static str,
    rooms: &'static [&'static str],
    /// Why a cut would be worse.
    reason: &'static str,
}

const ACCEPTED: &[Accepted] = &[Accepted {
    krate: "chunkcomm",
    rooms: &["channel", "node"],
    reason: "A node opens channels, and the end of a channel holds its node.",
}];

/// Most circles that may stay, in all crates together.
const ACCEPTED_MAX: usize = 2;

/// Files and folders at the top of a crate that are no rooms: its root, its programs, its tests.
const NO_ROOMS: &[&str] = &["lib", "main", "bin", "tests"];

/// A file of a room that imports another room.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Import {
    pub(crate) file: String,
    pub(crate) from: String,
    pub(crate) to: String,
}

/// The rooms of a crate, and the imports between them.
pub(crate) struct House {
    pub(crate) rooms: BTreeSet<String>,
    pub(crate) imports: BTreeSet<Import>,
}

impl House {
    pub(crate) fn of(krate: &str) -> House {
        let folder = format!("{krate}/src/");
        let sources = sources(&folder, 1);
        let files: BTreeMap<String, String> = sources
            .iter()
            .map(|source| {
                let path = source.to_str().unwrap().replace('\\', "/");
                let (_, path) = path.split_once(&folder).unwrap();
                (path.to_owned(), code(&read_to_string(source).unwrap()))
            })
            .filter(|(path, _)| !path.contains("/tests/"))
            .collect();
        House::new(&files)
    }

    /// Makes the house of these files, the code of each by its path below `src`.
    fn new(files: &BTreeMap<String, String>) -> House {
        let rooms = files.keys().map(|path| room_of(path));
        let rooms = rooms.filter(|room| !NO_ROOMS.contains(room)).map(str::to_owned).collect();
        let mut house = House { rooms, imports: BTreeSet::new() };
        let root = files.get("lib.rs").or_else(|| files.get("main.rs")).unwrap();
        for (path, code) in files {
            let Some(from) = house.rooms.get(room_of(path)).cloned() else { continue };
            // That many modules up is the root.
            let code = code.replace(&"super::".repeat(depth(path)), "crate::");
            for name in code.split("crate::").skip(1).flat_map(names_of) {
                let to =
                    house.rooms.get(name).map(String::as_str).or_else(|| house.home(root, name));
                if let Some(to) = to.filter(|to| *to != from).map(str::to_owned) {
                    house.imports.insert(Import { file: path.clone(), from: from.clone(), to });
                }
            }
        }
        house
    }

    /// Returns the room of a name that the crate's root imports or exports.
    fn home<'a>(&self, root: &'a str, name: &str) -> Option<&'a str> {
        let uses = root.split("use ").skip(1).filter_map(|rest| rest.split_once(';'));
        let mut uses = uses.map(|(path, _)| path.trim_start_matches("crate::"));
        let path = uses.find(|path| path.split(|c| !is_of_name(c)).any(|word| word == name))?;
        path.split("::").next().filter(|room| self.rooms.contains(*room))
    }

    /// Returns the rooms that a room imports, directly or by way of others.
    fn reached<'a>(&'a self, room: &'a str) -> BTreeSet<&'a str> {
        let (mut reached, mut left) = (BTreeSet::new(), vec![room]);
        while let Some(room) = left.pop() {
            let next = self.imports.iter().filter(|import| import.from == room);
            left.extend(next.map(|import| &*import.to).filter(|to| reached.insert(*to)));
        }
        reached
    }

    /// Returns the groups of rooms of which each reaches all others.
    fn circles(&self) -> BTreeSet<BTreeSet<&str>> {
        let mut circles = BTreeSet::new();
        for room in &self.rooms {
            let reached = self.reached(room).into_iter();
            let circle: BTreeSet<_> =
                reached.filter(|other| self.reached(other).contains(&**room)).collect();
            if !circle.is_empty() {
                circles.insert(circle);
            }
        }
        circles
    }
}

/// Returns a source without its tests and comments.
fn code(text: &str) -> String {
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    lines.flat_map(|line| [line, "\n"]).collect()
}

/// Returns the first folder of a path, or the file's own name without `.rs`.
fn room_of(path: &str) -> &str {
    path.split(['/', '.']).next().unwrap()
}

/// Returns the number of modules from a file up to the root of its crate.
fn depth(path: &str) -> usize {
    path.trim_end_matches("/mod.rs").split('/').count()
}

/// Returns the first name of a path, or those of a list of paths in braces.
fn names_of(path: &str) -> Vec<&str> {
    let name = |path: &'_ str| path.find(|c| !is_of_name(c)).unwrap_or(path.len());
    let Some(list) = path.strip_prefix('{') else { return vec![&path[..name(path)]] };
    let (mut names, mut braces, mut begins) = (Vec::new(), 0, true);
    for (at, c) in list.char_indices() {
        match c {
            '{' => braces += 1,
            '}' if braces == 0 => break,
            '}' => braces -= 1,
            ',' => begins |= braces == 0,
            c if begins && is_of_name(c) => {
                names.push(&list[at..at + name(&list[at..])]);
                begins = false;
            }
            _ => {}
        }
    }
    names
}

fn is_of_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[test]
fn rooms_of_a_crate_import_each_other_in_no_circle() {
    assert!(ACCEPTED.len() <= ACCEPTED_MAX);
    let (mut wrong, mut accepted) = (Vec::new(), ACCEPTED.iter().collect::<Vec<_>>());
    let entries = crates().read_dir().unwrap().map(|entry| entry.unwrap().path());
    let all: Vec<_> = entries.filter(|path| path.join("src").is_dir()).collect();
    assert!(all.len() >= 9, "only {all:?}");
    for path in all {
        let krate = path.file_name().unwrap().to_str().unwrap();
        let house = House::of(krate);
        for circle in house.circles() {
            let is_it = |it: &&Accepted| it.krate == krate && circle.iter().eq(it.rooms);
            if let Some(at) = accepted.iter().position(is_it) {
                accepted.swap_remove(at);
                continue;
            }
            let is_inside = |it: &&Import| circle.contains(&*it.from) && circle.contains(&*it.to);
            let imports = house.imports.iter().filter(is_inside);
            wrong.extend(imports.map(|it| format!("{krate}/src/{} imports {}", it.file, it.to)));
        }
    }
    assert!(wrong.is_empty(), "rooms import each other in circles: {wrong:#?}");
    let rest = accepted.iter().map(|it| format!("{}: {:?}: {}", it.krate, it.rooms, it.reason));
    assert_eq!(Vec::from_iter(rest), [""; 0], "accepted circles that are none");
}

#[test]
fn imports_and_circles_are_found_outside_comments_and_tests() {
    let files = [
        ("lib.rs", "mod a;\npub use d::{Held, Other};\npub use elsewhere::{Node, b};\n"),
        ("a.rs", "use super::b;\n// crate::c\n/// crate::c\nfn f(_: crate::Node) {}\n"),
        ("b/mod.rs", "use super::{d::{c, e}, a::x as y};\n"),
        ("b/below.rs", "use super::c;\nuse super::super::d;\n"),
        ("c.rs", "fn f() { crate::a::f() }\n#[cfg(test)]\nmod tests {\n    use crate::e;\n}\n"),
        ("d.rs", "use crate::d::x;\n"),
        ("e.rs", "use crate::{\n    Held,\n    c,\n};\n"),
    ];
    let files = files.map(|(path, text)| (path.to_owned(), code(text)));
    let house = House::new(&files.into());
    let found: Vec<_> = house.imports.iter().map(|it| (&*it.file, &*it.to)).collect();
    assert_eq!(
        found,
        [
            ("a.rs", "b"),
            ("b/below.rs", "d"),
            ("b/mod.rs", "a"),
            ("b/mod.rs", "d"),
            ("c.rs", "a"),
            ("e.rs", "c"),
            ("e.rs", "d"),
        ]
    );
    assert_eq!(house.reached("c"), BTreeSet::from(["a", "b", "d"]));
    assert_eq!(house.circles(), BTreeSet::from([BTreeSet::from(["a", "b"])]));
}
