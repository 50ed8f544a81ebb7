//! The example program `echo`, run as its user runs it: a cluster of copies on this machine.

use super::example::Example;

pub(crate) const ECHO: Example = Example { name: "echo" };

/// Returns the cells of each row.
pub(crate) fn rows(table: &str) -> Vec<Vec<&str>> {
    let rows = table.lines().skip(2).map(|line| line.split_whitespace().collect::<Vec<_>>());
    rows.take_while(|row| row[0].parse::<u32>().is_ok()).collect()
}

#[test]
fn items_of_all_sizes_come_back_and_only_one_policy_gathers() {
    let table = ECHO.prints(&["--items", "500", "--words", "0,1,300,5", "--repeat", "3"]);
    assert!(table.starts_with("500 items there and back; each came back as it was\n"), "{table}");
    let rows = rows(&table);
    assert_eq!(rows.iter().map(|row| row[0]).collect::<Vec<_>>(), ["0", "1", "300", "5"]);
    for row in rows {
        let packets: u64 = row[2].parse().unwrap();
        let gathered: u64 = row[4].parse().unwrap();
        assert!((500..520).contains(&packets), "{table}");
        assert!(gathered < 250, "{table}");
        assert!(row[5].ends_with('x'), "{table}");
    }
    assert!(table.contains("\nleast gain: "), "{table}");
    assert!(table.contains("\ncrossover: "), "{table}");
}

#[test]
fn the_crossover_follows_from_the_gain_that_is_asked_for() {
    let common = ["--items", "20", "--words", "9,3", "--repeat", "1", "--gain"];
    let with = |gain| ECHO.prints(&[&common[..], &[gain]].concat());
    let table = with("1000");
    let told = "crossover: from 3 words on chunking gains less than 1000x\n";
    assert!(table.ends_with(told), "{table}");
    let table = with("0.01");
    assert!(table.ends_with("crossover: none, the largest size gains 0.01x or more\n"), "{table}");
}

#[test]
fn one_policy_and_few_nodes_will_do() {
    let common = ["--items", "10", "--words", "2", "--repeat", "1"];
    for (arguments, cells) in [
        (&["--policy", "chunked"][..], [false, true]),
        (&["--policy", "unbuffered", "--nodes", "1"], [true, false]),
        (&["--nodes", "2"], [true, true]),
    ] {
        let table = ECHO.prints(&[&common[..], arguments].concat());
        let row = &rows(&table)[0];
        assert_eq!([row[1] != "-", row[3] != "-"], cells, "{arguments:?}: {table}");
        assert_eq!(table.contains("gain:"), cells == [true; 2], "{arguments:?}: {table}");
        let alone = arguments.contains(&"--nodes");
        assert_eq!(table.contains("some to their caller's own node"), alone, "{table}");
    }
}

#[test]
fn what_makes_no_sense_is_named() {
    ECHO.refuses(&[
        (["--items", "0"], "whole numbers from 1 to 10000000"),
        (["--words", "1,x"], "whole numbers from 0 to 1000000"),
        (["--gain", "-1"], "numbers from 0.01 to 1000"),
        (["--gain", "NaN"], "numbers from 0.01 to 1000"),
    ]);
    ECHO.needs_standard_output(&["--items", "10", "--words", "1"]);
}
