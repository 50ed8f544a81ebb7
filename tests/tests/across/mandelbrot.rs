//! The example program `mandelbrot`, run as its user runs it.

use std::f32::consts::TAU;

use super::example::Example;
use super::picture::{self, Picture, path};

pub(crate) const MANDELBROT: Example = Example { name: "mandelbrot" };

/// Renders with these further options; returns the picture and the report.
pub(crate) fn rendered(name: &str, options: &[&str]) -> (Picture, String) {
    picture::rendered(&MANDELBROT, name, &[&["--sequential-check"], options].concat())
}

/// Least and greatest real part, then imaginary part.
pub(crate) type Region = [f64; 4];

pub(crate) const WHOLE: Region = [-2.25, 0.75, -1.125, 1.125];

/// Computed independently of the program's own loop: complex numbers, whole formula.
pub(crate) fn by_definition(
    sides: (u32, u32),
    [left, right, bottom, top]: Region,
    most: usize,
) -> Picture {
    let (width, height) = (f64::from(sides.0), f64::from(sides.1));
    let pixel = |column: u32, row: u32| {
        let x = left + (right - left) / width * (f64::from(column) + 0.5);
        let y = top - (top - bottom) / height * (f64::from(row) + 0.5);
        let orbit = std::iter::successors(Some((0.0f64, 0.0f64)), |&(a, b)| {
            Some((a * a - b * b + x, 2.0 * a * b + y))
        });
        let steps = orbit.take(most).take_while(|&(a, b)| a * a + b * b <= 4.0).count();
        let share = (steps as f32 / most as f32).sqrt();
        let level = |phase: f32| ((0.5 - 0.5 * (TAU * (share + phase)).cos()) * 255.0) as u8;
        if steps == most { [0; 3] } else { [level(0.02), level(0.12), level(0.25)] }
    };
    let row = |row| (0..sides.0).map(move |column| pixel(column, row));
    Picture { sides, pixels: (0..sides.1).flat_map(row).collect() }
}

#[test]
fn the_picture_is_that_of_its_definition() {
    let expected = by_definition((120, 90), WHOLE, 256);
    let common = ["--size", "120x90", "--workers", "2"];
    for (name, options) in [
        ("process-b.png", vec![]),
        ("process-a.png", vec!["--model", "a", "--prefetch", "1"]),
        ("thread-b.png", vec!["--workers-as", "thread", "--grain", "4", "--prefetch", "auto"]),
        ("thread-a.png", vec!["--workers-as", "thread", "--model", "a", "--rows", "7"]),
        ("waits.png", vec!["--wait", "2", "--virtual-workers", "8"]),
    ] {
        let (picture, _) = rendered(name, &[&common[..], &options].concat());
        assert!(picture == expected, "{name} differs");
    }
}

#[test]
fn the_nodes_of_a_cluster_render_the_same_picture() {
    let expected = by_definition((120, 90), WHOLE, 256);
    for (nodes, model, workers) in
        [("1", "auto", "1"), ("2", "b", "1"), ("4", "b", "3"), ("3", "a", "3")]
    {
        let name = format!("nodes-{nodes}-{model}.png");
        let options = ["--size", "120x90", "--nodes", nodes, "--model", model, "--grain", "2"];
        let (picture, report) = rendered(&name, &options);
        assert!(picture == expected, "{name} differs");
        // There is one report, printed by rank 0.
        assert_eq!(report.matches("farm            ").count(), 1, "{report}");
        assert!(report.contains(&format!("farm            {workers} x node, ")), "{report}");
        let others: u32 = nodes.parse().unwrap();
        for rank in 1..others {
            assert!(report.contains(&format!("(rank {rank}, process ")), "{report}");
        }
        assert_eq!(report.contains("(thread)"), model == "a" || nodes == "1", "{report}");
    }
}

#[test]
fn a_part_of_the_plane_fills_the_picture() {
    let region = ["-0.8", "-0.7", "0.05", "0.125"];
    let options = ["--size", "40x30", "--iterations", "500", "--region", &region.join(",")];
    let (picture, _) = rendered("part.png", &options);
    let region = region.map(|number| number.parse().unwrap());
    assert!(picture == by_definition((40, 30), region, 500));
}

#[test]
fn the_report_has_every_figure() {
    let (_, report) = rendered("report.png", &["--size", "64x48", "--rows", "4"]);
    for word in [
        "64 x 48 pixels, 256 iterations",
        "time",
        "sequential",
        "speed-up",
        "efficiency",
        "tasks           12,",
        "packets",
        "messages/packet",
        "flush reasons",
        "report.png",
        "0 pixels differ",
    ] {
        assert!(report.contains(word), "{word:?} is not in\n{report}");
    }
}

#[test]
fn a_picture_that_is_not_rendered_sequentially_has_no_speed_up() {
    let (picture, report) =
        picture::rendered(&MANDELBROT, "alone.png", &["--size", "64x48", "--no-sequential"]);
    assert!(picture == by_definition((64, 48), WHOLE, 256));
    assert!(report.contains("time ") && report.contains("tasks "), "{report}");
    assert!(!report.contains("speed-up") && !report.contains("sequential"), "{report}");
}

#[test]
fn bad_options_say_what_is_allowed_and_exit_with_2() {
    MANDELBROT.refuses(&[
        (["--size", "0x0"], "WIDTHxHEIGHT"),
        (["--size", "-1x4"], "WIDTHxHEIGHT"),
        (["--workers", "none"], "allowed are 1 to 1024"),
        (["--workers-as", "fibre"], "process, thread"),
        (["--model", "c"], "a, b"),
        (["--prefetch", "0"], "auto"),
        (["--virtual-workers", "0"], "auto, and numbers from 1 to 1024"),
        (["--rows", "all"], "whole numbers from 1 to 16384"),
        (["--iterations", "many"], "whole numbers from 1 to 65535"),
        (["--grain", "-1"], "allowed are auto and whole numbers from 1"),
        (["--colour", "red"], "--help"),
        (["--no-sequential", "--sequential-check"], "--sequential-check"),
        (["--output", "/nowhere/at/all.png"], "a file in a folder that exists"),
        (["--workers=2", "--nodes=2"], "the other nodes of a cluster are the workers"),
        (["--workers-as=thread", "--nodes=2"], "the other nodes of a cluster are the workers"),
    ]);
}

#[test]
fn a_closed_standard_output_is_a_plain_error() {
    let picture = path("closed.png");
    let picture = picture.to_str().unwrap();
    MANDELBROT.needs_standard_output(&["--size", "8x6", "--no-progress", "--output", picture]);
}

#[cfg(target_os = "linux")]
#[test]
fn farmer_and_workers_explain_themselves_on_a_signal() {
    use chunkcomm_testkit::proc;
    use rustix::process::Signal;
    use std::io::{BufRead, BufReader};
    use std::process::Stdio;

    let picture = path("explained.png");
    let farmer = MANDELBROT
        .command(&["--size", "112x84", "--iterations", "30000", "--region", "-0.1,0.1,-0.1,0.1"])
        .args(["--workers", "2", "--no-progress", "--output", picture.to_str().unwrap()])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut farmer = proc::Program(farmer);
    let farmer = &mut farmer.0;
    let mut lines = BufReader::new(farmer.stderr.take().unwrap()).lines();
    let workers = proc::children(farmer.id(), 2);
    let (first, second) = (proc::placed(&workers, 0), proc::placed(&workers, 1));
    // The other one needs seconds for the picture, as it is not optimized.
    proc::signal(second, Signal::STOP);
    for (pid, name) in [(farmer.id(), "farmer"), (first, "farm-worker-0")] {
        proc::wait_until_handled(pid, Signal::USR1);
        proc::signal(pid, Signal::USR1);
        let first = format!("node {name}: ");
        assert!(lines.any(|line| line.unwrap().starts_with(&first)), "{name} explains nothing");
    }
    assert!(farmer.try_wait().unwrap().is_none(), "it goes on");
    proc::signal(second, Signal::CONT);
    farmer.kill().unwrap();
    farmer.wait().unwrap();
    proc::wait_until_gone(&workers);
}

/// Kills rank 2 of three, or rank 0; returns the end of rank 0, or `None` if all were done before.
#[cfg(target_os = "linux")]
fn killed(
    arguments: &[&str],
    victim: u32,
    token: &str,
    picture: &std::path::Path,
) -> Option<(std::process::ExitStatus, String)> {
    use super::nodes_faults::{TOKEN, end_of};
    use chunkcomm_testkit::{blocking, proc};
    use rustix::process::Signal;
    use std::process::Stdio;

    let mut farmer = MANDELBROT.command(&["--nodes", "3", "--no-progress"]);
    farmer.args(arguments);
    farmer.args(["--iterations", "65535", "--region", "-0.1,0.1,-0.1,0.1", "--output"]);
    farmer.arg(picture).env(TOKEN, token).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut farmer = proc::Program(farmer.spawn().unwrap());
    let nodes = proc::children(farmer.0.id(), 2);
    let pid = proc::placed(&nodes, 1);
    // When the farmer renders, all nodes are in the cluster.
    let rendering = blocking::until_some("the farmer neither renders nor ends", || {
        let ended = farmer.0.try_wait().unwrap().is_some();
        (ended || proc::has_thread(farmer.0.id(), "computes")).then_some(!ended)
    });
    if !rendering {
        return None;
    }
    if victim == 0 {
        farmer.0.kill().unwrap();
    } else {
        proc::try_signal(pid, Signal::STOP);
        // By then the farmer waits for this worker, or soon will: both must end well.
        std::thread::sleep(std::time::Duration::from_millis(500));
        if proc::is_gone(pid) {
            end_of(&mut farmer);
            return None;
        }
        proc::signal(pid, Signal::KILL);
    }
    Some(end_of(&mut farmer))
}

/// A node is killed while the farmer renders alone, and when the farmer waits for this worker.
#[cfg(target_os = "linux")]
#[test]
fn a_killed_node_is_named_by_its_rank_and_nobody_is_left() {
    use super::nodes_faults::{token, wait_until_nobody_has};

    let picture = path("killed.png");
    for (moment, size, victim) in
        [("alone", "1600x1200", 1), ("waiting", "20x15", 1), ("farmer", "1600x1200", 0)]
    {
        let token = token(format!("mandelbrot-{moment}"));
        // A small picture may be done before the test gets there.
        let (status, told) = (0..20)
            .find_map(|_| killed(&["--size", size], victim, &token, &picture))
            .expect("it is always done before");
        if victim > 0 {
            assert_eq!(status.code(), Some(1), "{moment}: {told}");
            // The other node prints nothing.
            assert!(
                told.starts_with("mandelbrot: ") && told.contains("rank 2"),
                "{moment}: {told}"
            );
            assert_eq!(told.lines().count(), 1, "{moment}: {told}");
        }
        wait_until_nobody_has(&token, moment);
    }
}
