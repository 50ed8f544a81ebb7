//! The example programs `raytracer`, `primes` and `nqueens`, run as their user runs them.

use super::example::Example;
use super::picture::{Picture, path, rendered};

const RAYTRACER: Example = Example { name: "raytracer" };
const PRIMES: Example = Example { name: "primes" };
pub(crate) const NQUEENS: Example = Example { name: "nqueens" };

/// Writes an OBJ file and returns its path.
fn obj(name: &str, text: &str) -> String {
    let path = path(name);
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

/// The report's line of this name, or an empty text.
fn line<'a>(report: &'a str, name: &str) -> &'a str {
    report.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().trim()
}

const SMALL: [&str; 4] = ["--width", "61", "--height", "47"];

/// The whole picture is one task, which one worker renders row by row.
fn sequential() -> Picture {
    let options = ["--by", "tiles", "--tile", "64", "--workers", "1"];
    let (picture, report) = rendered(&RAYTRACER, "ray-whole.png", &[&SMALL[..], &options].concat());
    assert!(line(&report, "tasks").starts_with("1, "), "{report}");
    assert_eq!(line(&report, "check"), "", "nobody asked for it");
    assert_eq!(line(&report, "speed-up"), "", "nothing to compare with");
    picture
}

#[test]
fn lines_and_tiles_make_the_sequential_picture() {
    let expected = sequential();
    assert_eq!(expected.sides, (61, 47));
    for (name, tasks, options) in [
        ("ray-lines.png", "47, ", &["--by", "lines", "--workers", "2", "--grain", "3"][..]),
        ("ray-tiles.png", "12, ", &["--by", "tiles", "--tile", "16", "--workers", "2"]),
        (
            "ray-threads.png",
            "63, ",
            &["--by=tiles", "--tile=7", "--workers-as=thread", "--model=a"],
        ),
        ("ray-nodes.png", "47, ", &["--nodes", "3", "--prefetch", "auto"]),
        ("ray-virtual.png", "12, ", &["--lan=virtual:lan-1g", "--by=tiles", "--tile=16"]),
    ] {
        let (picture, report) =
            rendered(&RAYTRACER, name, &[&SMALL[..], &["--check"], options].concat());
        assert!(picture == expected, "{name} differs");
        assert!(line(&report, "tasks").starts_with(tasks), "{name}: {report}");
        let check = line(&report, "check");
        assert_eq!(check, "0 pixels differ from the sequential picture", "{name}");
        assert_ne!(line(&report, "speed-up"), "", "{name}: {report}");
    }
}

/// A square that faces the eye: it fills the middle, and the sky is around it.
#[test]
fn a_file_is_rendered() {
    let corners = "v -0.9 -1 0.4 # left\nv 0.9 -1 -0.4\nv 0.9 1 -0.4\nv -0.9 1 0.4\n";
    let file = obj("square.obj", &format!("{corners}f -4 -3 -2 -1\n"));
    let options = [&file, "--width", "40", "--height", "40", "--check", "--workers", "2"];
    let (picture, report) = rendered(&RAYTRACER, "ray-square.png", &options);
    assert!(line(&report, "picture").ends_with(", 2 triangles"), "{report}");
    let at = |column: usize, row: usize| picture.pixels[row * 40 + column];
    for (column, row) in [(0, 0), (39, 0), (0, 39), (39, 39)] {
        let [red, green, blue] = at(column, row);
        assert!(red < green && green < blue, "({column}, {row}) is not the sky");
    }
    let [red, green, blue] = at(20, 20);
    assert!(red > green && green > blue, "the middle is not the square");
}

#[test]
fn a_bad_file_is_told_with_its_line() {
    for (name, text, told) in [
        ("corner.obj", "v 0 0 0\n\n# two more\nf 1 2 3\n", ":4: f 1 2 3: vertex 2 does not exist"),
        ("number.obj", "v 0 0 0\nv 1 one 0\n", ":2: v 1 one 0: one is no number"),
        ("empty.obj", "v 0 0 0\n", ": no face is in this file"),
    ] {
        let file = obj(name, text);
        for options in [&[&*file][..], &[&file, "--nodes", "2"]] {
            let output = path("ray-none.png");
            let mut command = RAYTRACER.command(options);
            let output = command.arg("--output").arg(output).output().unwrap();
            let error = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(1), "{error}");
            assert!(error.starts_with(&format!("raytracer: {file}{told}")), "{error}");
            assert_eq!(error.lines().count(), 1, "{error}");
        }
    }
}

#[test]
fn bad_options_say_what_is_allowed_and_exit_with_2() {
    RAYTRACER.refuses(&[
        (["--width", "0"], "whole numbers from 1 to 16384"),
        (["--by", "columns"], "lines, tiles"),
        (["--output", "/nowhere/at/all.png"], "a file in a folder that exists"),
        (["--workers=2", "--nodes=2"], "the other nodes of a cluster are the workers"),
    ]);
    PRIMES.refuses(&[(["--up-to", "0"], "whole numbers from 1 to 1000000000")]);
    NQUEENS.refuses(&[(["--queens", "19"], "whole numbers from 1 to 18")]);
}

#[test]
fn primes_are_counted() {
    for (up_to, range, primes, tasks) in
        [("1", "5", "0", "1, "), ("2", "1", "1", "2, "), ("100", "7", "25", "15, ")]
    {
        let report = PRIMES.prints(&["--up-to", up_to, "--range", range, "--workers", "2"]);
        let told = format!("{primes} up to {up_to}, by ranges of {range} numbers");
        assert_eq!(line(&report, "primes"), told);
        assert_eq!(line(&report, "check"), format!("the sieve finds {primes}"));
        assert!(line(&report, "tasks").starts_with(tasks), "{report}");
    }
    let report = PRIMES.prints(&["--up-to", "100000", "--grain", "3", "--prefetch", "auto"]);
    assert!(line(&report, "primes").starts_with("9592 up to 100000"), "{report}");
}

#[test]
fn queens_are_counted() {
    // The tasks are the ways to fill the first rows, and those to fill fewer.
    for (queens, rows, solutions, tasks) in [
        ("1", "0", "1", "1, "),
        ("3", "3", "0", "6, "),
        ("4", "4", "2", "17, "),
        ("8", "2", "92", "51, "),
        ("8", "18", "92", "2057, "),
    ] {
        let report = NQUEENS.prints(&["--queens", queens, "--rows", rows, "--workers", "2"]);
        assert_eq!(line(&report, "solutions"), format!("{solutions} with {queens} queens"));
        assert_eq!(line(&report, "check"), format!("{solutions} are known"));
        assert!(line(&report, "tasks").starts_with(tasks), "{report}");
        let (_, table) = report.split_once("tasks       busy  for farmer    for wire\n").unwrap();
        let rows = table.lines().take_while(|line| line.contains("worker "));
        let of = |row: &str| row.split_whitespace().rev().nth(3).unwrap().parse::<u64>().unwrap();
        let first = tasks.split(',').next().unwrap().parse::<u64>().unwrap();
        // A task that was copied counts twice if both workers ran it.
        assert!(rows.map(of).sum::<u64>() >= first, "{report}");
    }
}

#[test]
fn a_timeline_has_every_task() {
    let file = path("queens.json");
    let options = ["--queens", "8", "--rows", "2", "--workers", "2", "--timeline"];
    NQUEENS.prints(&[&options[..], &[file.to_str().unwrap()]].concat());
    let json = std::fs::read_to_string(file).unwrap();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let events = json["traceEvents"].as_array().unwrap();
    let of = |phase: &'static str| events.iter().filter(move |event| event["ph"] == phase);
    let tasks = of("X").map(|span| span["args"]["tasks"].as_u64().unwrap());
    assert!(tasks.sum::<u64>() >= 51, "{json}");
    let names = of("M").filter(|name| name["name"] == "process_name");
    let names: Vec<_> = names.map(|name| name["args"]["name"].as_str().unwrap()).collect();
    assert!(names[0].starts_with("worker 0 (process ") && names.len() == 2, "{names:?}");
}

#[test]
fn a_journal_has_the_results_of_the_program_before() {
    let journal = path("programs.journal");
    let file = journal.to_str().unwrap().to_owned();
    // An earlier test process may have left one.
    let _ = std::fs::remove_file(&journal);
    for (known, tasks) in [(0, "51, "), (51, "0, ")] {
        let report = NQUEENS.prints(&["--queens", "8", "--rows", "2", "--journal", &file]);
        assert_eq!(line(&report, "solutions"), "92 with 8 queens");
        assert_eq!(line(&report, "journal"), format!("had the results of {known} tasks"));
        assert!(line(&report, "tasks").starts_with(tasks), "{report}");
    }
    let output = PRIMES.command(&["--up-to", "100", "--journal", &file]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("its run 1 had function \"solve\""), "{said}");
    PRIMES.refuses(&[(["--task-timeout", "0"], "numbers of seconds above 0")]);
}
