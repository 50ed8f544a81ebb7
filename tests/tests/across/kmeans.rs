//! The example program `kmeans`, run as its user runs it: a cluster of copies on this machine, of which
//! some die.

use std::fs;
use std::path::Path;

use chunkcomm_testkit::Scratch;

use super::example::Example;

pub(crate) const KMEANS: Example = Example { name: "kmeans" };

/// Writes generated points to a file; returns its path.
fn points_in(folder: &Path, count: &str, seed: &str) -> String {
    let file = folder.join("points.txt").to_str().unwrap().to_owned();
    KMEANS.prints(&["--make", &file, "--points", count, "--seed", seed, "--clusters", "5"]);
    file
}

/// Searches 5 clusters with these further options; returns the report and the picture's file.
fn found(folder: &Path, options: &[&str]) -> (String, Vec<u8>) {
    let picture = folder.join("found.png");
    let output = format!("--output={}", picture.display());
    let common = ["--clusters=5", "--check", "--no-progress", &output];
    let report = KMEANS.prints(&[&common, options].concat());
    let equal = "\ncheck           iterations and picture equal those of one process\n";
    assert!(report.ends_with(equal), "{report}");
    (report, fs::read(&picture).unwrap())
}

/// Returns the lines of a report that have this name.
fn rows<'a>(report: &'a str, name: &str) -> Vec<&'a str> {
    let named = report.lines().filter(|line| line.split_whitespace().next() == Some(name));
    named.map(|line| line[name.len()..].trim()).collect()
}

/// Returns number, x and y of each cluster of a report.
fn table(report: &str) -> Vec<[i64; 3]> {
    let lines = report.lines().skip_while(|line| !line.trim().starts_with("cluster ")).skip(1);
    let numbers = |line: &str| -> Option<Vec<i64>> {
        line.split_whitespace().map(|word| word.parse().ok()).collect()
    };
    lines.map_while(numbers).map(|row| row[1..].try_into().unwrap()).collect()
}

/// The same by definition: fractions in the place of rounded sums, and all distances compared.
fn by_definition(file: &str, count: usize) -> (Vec<[i64; 3]>, usize) {
    let text = fs::read_to_string(file).unwrap();
    let points: Vec<Vec<i128>> = text
        .lines()
        .map(|line| line.split(' ').map(|word| word.parse().unwrap()).collect())
        .collect();
    let mut centres: Vec<Vec<i128>> = Vec::new();
    for point in &points {
        if centres.len() < count && !centres.contains(point) {
            centres.push(point.clone());
        }
    }
    let mut before = Vec::new();
    for iteration in 1.. {
        let mut clusters = vec![Vec::new(); count];
        for point in &points {
            let distance =
                |at: &usize| (0..2).map(|i| (point[i] - centres[*at][i]).pow(2)).sum::<i128>();
            let nearest = (0..count).min_by_key(distance).unwrap();
            clusters[nearest].push(point.clone());
        }
        for (centre, cluster) in centres.iter_mut().zip(&clusters) {
            for axis in 0..2 {
                let (sum, number): (i128, i128) =
                    (cluster.iter().map(|point| point[axis]).sum(), cluster.len() as i128);
                // The whole number that differs from the mean by a half at most, the larger of two.
                let below = sum.div_euclid(number);
                centre[axis] = below + i128::from(2 * (sum - below * number) >= number);
            }
        }
        if clusters == before {
            let row = |(cluster, centre): (&Vec<_>, &Vec<i128>)| {
                [cluster.len() as i64, centre[0] as i64, centre[1] as i64]
            };
            return (clusters.iter().zip(&centres).map(row).collect(), iteration);
        }
        before = clusters;
    }
    unreachable!("the iterations come to an end")
}

#[test]
fn four_processes_find_the_clusters_of_the_definition() {
    let folder = Scratch::folder("kmeans");
    let file = points_in(&folder, "3001", "7");
    let (expected, iterations) = by_definition(&file, 5);
    assert!(iterations > 5, "{iterations}");
    let (alone, picture) = found(&folder, &[&file, "--nodes=1"]);
    for (nodes, options) in [
        ("4", &[&*file][..]),
        ("3", &[&file, "--nodes=3"]),
        ("4", &["--points=3001", "--seed=7"]), // the points of the file
    ] {
        let (report, drawn) = found(&folder, options);
        assert_eq!(table(&report), expected, "{report}");
        let changed = format!("{iterations}, 0 points changed in the last");
        assert_eq!(rows(&report, "iterations"), [changed], "{report}");
        assert_eq!(rows(&report, "ranks"), [nodes], "{report}");
        assert!(!report.contains("resumed"), "{report}");
        assert!(drawn == picture, "{options:?}: another picture than that of\n{alone}");
    }
    let (cut, drawn) = found(&folder, &[&file, "--iterations=3"]);
    assert!(rows(&cut, "iterations")[0].starts_with("3, "), "{cut}");
    assert!(table(&cut) != expected && drawn != picture, "{cut}");
}

#[test]
fn the_others_share_the_points_of_ranks_that_die() {
    let folder = Scratch::folder("kmeans-dies");
    let file = points_in(&folder, "3001", "7");
    let (alone, picture) = found(&folder, &[&file, "--nodes=1"]);
    // The rank and the iteration of each death.
    for deaths in [&[(2, 3)][..], &[(3, 1)], &[(1, 2), (3, 5)], &[(1, 2), (2, 2), (3, 2)]] {
        let options: Vec<String> =
            deaths.iter().map(|(rank, iteration)| format!("--die={rank}:{iteration}")).collect();
        let options: Vec<&str> = options.iter().map(String::as_str).chain([&*file]).collect();
        let (report, drawn) = found(&folder, &options);
        assert!(drawn == picture, "{deaths:?}: another picture than that of\n{alone}\n{report}");
        assert_eq!(table(&report), table(&alone), "{report}");
        assert_eq!(rows(&report, "iterations"), rows(&alone, "iterations"), "{report}");
        let died = rows(&report, "died");
        assert_eq!(died.len(), deaths.len(), "{report}");
        let named = |rank: u32| died.iter().any(|row| row.starts_with(&format!("rank {rank} ")));
        assert!(deaths.iter().all(|(rank, _)| named(*rank)), "{report}");
        // Deaths of one iteration take one shrink or several.
        let resumed = rows(&report, "resumed");
        assert!(!resumed.is_empty() && resumed.len() <= deaths.len(), "{report}");
        let last = format!("by {} ranks, after iteration ", 4 - deaths.len());
        let last = resumed[resumed.len() - 1].strip_prefix(&last).expect(&report);
        // Words of the iteration before may not have left the dead rank.
        let (done, died_in): (u32, u32) = (last.parse().unwrap(), deaths[deaths.len() - 1].1);
        assert!(done < died_in && done + 2 >= died_in, "{report}");
    }
}

#[cfg(target_os = "linux")]
mod killed {
    use super::*;
    use crate::nodes_faults::{end_of, seed};
    use chunkcomm_testkit::{blocking, proc, random::seeded};
    use rustix::process::Signal;
    use std::process::Stdio;
    use std::time::Duration;

    /// Enough iterations, and enough work in each, that a kill falls into the middle.
    const LONG: [&str; 3] = ["--points=20000", "--clusters=40", "--no-progress"];

    /// Starts a long search; returns it, the other processes, and the victim once it computes.
    fn start(picture: &Path, victim: usize) -> (proc::Program, Vec<u32>, u32) {
        let output = format!("--output={}", picture.display());
        let mut command = KMEANS.command(&[&LONG[..], &[&output]].concat());
        let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let program = proc::Program(command.spawn().unwrap());
        let others = proc::children(program.0.id(), 3);
        let victim = match victim {
            0 => program.0.id(),
            rank => proc::placed(&others, rank - 1),
        };
        blocking::until_some("nobody computes", || {
            proc::has_thread(victim, "tokio-").then_some(())
        });
        (program, others, victim)
    }

    #[test]
    fn the_others_share_the_points_of_a_killed_rank() {
        let folder = Scratch::folder("kmeans-killed");
        let picture = folder.join("found.png");
        let output = format!("--output={}", picture.display());
        KMEANS.prints(&[&LONG[..], &[&output, "--nodes=1"]].concat());
        let expected = fs::read(&picture).unwrap();
        let seed = seed();
        let mut random = seeded(seed);
        for round in 0..3 {
            let victim = 1 + random.below(3) as usize;
            let delay = Duration::from_millis(random.below(150));
            println!("seed {seed}, round {round}: rank {victim} is killed after {delay:?}");
            let (mut program, others, pid) = start(&picture, victim);
            std::thread::sleep(delay);
            proc::signal(pid, Signal::KILL);
            let (status, told) = end_of(&mut program);
            assert!(status.success(), "{told}");
            let mut report = String::new();
            let mut stdout = program.0.stdout.take().unwrap();
            std::io::Read::read_to_string(&mut stdout, &mut report).unwrap();
            assert!(rows(&report, "died")[0].starts_with(&format!("rank {victim} ")), "{report}");
            assert!(rows(&report, "resumed")[0].starts_with("by 3 ranks, "), "{report}");
            assert!(fs::read(&picture).unwrap() == expected, "another picture: {report}");
            proc::wait_until_gone(&others);
        }
    }

    #[test]
    fn nobody_goes_on_without_rank_0() {
        let folder = Scratch::folder("kmeans-manager");
        let (mut program, others, pid) = start(&folder.join("none.png"), 0);
        proc::signal(pid, Signal::KILL);
        end_of(&mut program);
        proc::wait_until_gone(&others);
        assert!(!folder.join("none.png").exists());
    }
}

#[test]
fn what_makes_no_sense_is_named() {
    KMEANS.refuses(&[
        (["--clusters", "0"], "whole numbers from 1 to 256"),
        (["--points", "none"], "whole numbers from 1 to 100000000"),
        (["--iterations", "0"], "whole numbers from 1 to 10000"),
        (["--die", "0:2"], "rank 0 runs the manager of the cluster, which ends without it"),
        (["--die", "2"], "allowed is RANK:ITERATION, both from 1"),
        (["--die", "2:0"], "allowed is RANK:ITERATION, both from 1"),
        (["--output", "/nowhere/at/all.png"], "a file in a folder that exists"),
    ]);
    let folder = Scratch::folder("kmeans-wrong");
    let file = |name: &str, text: &str| {
        let path = folder.join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let allowed = ": allowed are two whole numbers from -1000000000 to 1000000000\n";
    for (text, told) in [
        ("1 2\n3 four\n", format!(", line 2: \"3 four\"{allowed}")),
        ("1 2\n\n", format!(", line 2: \"\"{allowed}")),
        ("1 2 3\n", format!(", line 1: \"1 2 3\"{allowed}")),
        ("1 2\n3 1000000001", format!(", line 2: \"3 1000000001\"{allowed}")),
        ("1 2\n3 4\n1 2\n", "2 distinct points are too few for --clusters 3".to_owned()),
    ] {
        let file = file("wrong.txt", text);
        let output = KMEANS.command(&[&file, "--clusters=3"]).output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{text:?}: {error}");
        assert!(error.contains(&told) && error.lines().count() == 1, "{text:?}: {error}");
        assert!(output.stdout.is_empty());
    }
    // The largest coordinates.
    let file = file("large.txt", "-1000000000 -1000000000\n1000000000 1000000000\n");
    let output = folder.join("large.png");
    let output = format!("--output={}", output.display());
    let report = KMEANS.prints(&[&file, "--clusters=1", "--check", &output]);
    assert_eq!(table(&report), [[2, 0, 0]], "{report}");
    KMEANS.needs_standard_output(&["--points=10", "--clusters=2", &output]);
}
