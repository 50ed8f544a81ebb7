//! The example program `mandelbrot`, run as its user runs it.
#![allow(clippy::unwrap_used)] // its helpers are tests too

use std::path::PathBuf;
use std::process::{Command, Output};

use chunkcomm_examples::mandelbrot::colours::{colour, paint};
use chunkcomm_examples::mandelbrot::view::{Region, View};
use image::RgbImage;

fn mandelbrot(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_mandelbrot-program")).args(arguments).output().unwrap()
}

/// A path in the folder that cargo gives to integration tests.
fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// Renders with these further options and reads the file.
fn rendered(name: &str, options: &[&str]) -> (RgbImage, String) {
    let path = path(name);
    let _ = std::fs::remove_file(&path);
    let mut arguments = vec!["--no-progress", "--sequential-check", "--output"];
    arguments.push(path.to_str().unwrap());
    arguments.extend(options);
    let output = mandelbrot(&arguments);
    let (out, err) = (String::from_utf8(output.stdout), String::from_utf8(output.stderr));
    let (out, err) = (out.unwrap(), err.unwrap());
    assert!(output.status.success(), "{arguments:?}: {err}");
    (image::open(&path).unwrap().into_rgb8(), out)
}

const WHOLE: Region = Region { left: -2.25, right: 0.75, bottom: -1.125, top: 1.125 };

#[test]
fn the_pixels_are_those_of_the_sequential_picture() {
    let view = View { width: 120, height: 90, region: WHOLE, iterations: 256 };
    let sequential = paint(&view, &view.render());
    let common = ["--size", "120x90", "--workers", "2"];
    for (name, options) in [
        ("process-b.png", vec![]),
        ("process-a.png", vec!["--model", "a", "--prefetch", "1"]),
        ("thread-b.png", vec!["--workers-as", "thread", "--grain", "4", "--prefetch", "auto"]),
        ("thread-a.png", vec!["--workers-as", "thread", "--model", "a", "--rows", "7"]),
    ] {
        let (picture, _) = rendered(name, &[&common[..], &options].concat());
        assert!(picture == sequential, "{name} differs");
    }
}

/// Independent of the program's own loop: complex numbers, whole formula.
#[test]
fn the_picture_is_that_of_its_definition() {
    let region = ["-0.8", "-0.7", "0.05", "0.125"];
    let [left, right, bottom, top] = region.map(|number| number.parse::<f64>().unwrap());
    let options = ["--size", "40x30", "--iterations", "500", "--region", &region.join(",")];
    let (picture, _) = rendered("part.png", &options);
    assert_eq!(picture.dimensions(), (40, 30));
    for (column, row, &pixel) in picture.enumerate_pixels() {
        let x = left + (right - left) / 40.0 * (f64::from(column) + 0.5);
        let y = top - (top - bottom) / 30.0 * (f64::from(row) + 0.5);
        let orbit = std::iter::successors(Some((0.0f64, 0.0f64)), |&(a, b)| {
            Some((a * a - b * b + x, 2.0 * a * b + y))
        });
        let steps = orbit.take(500).take_while(|&(a, b)| a * a + b * b <= 4.0).count();
        assert_eq!(pixel, colour(steps.try_into().unwrap(), 500), "at {column}, {row}");
    }
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
fn bad_options_say_what_is_allowed_and_exit_with_2() {
    for (arguments, allowed) in [
        (["--size", "0x0"], "WIDTHxHEIGHT"),
        (["--workers", "none"], "allowed are 1 to 1024"),
        (["--workers-as", "fibre"], "process, thread"),
        (["--model", "c"], "a, b"),
        (["--prefetch", "0"], "auto"),
        (["--colour", "red"], "--help"),
    ] {
        let output = mandelbrot(&arguments);
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
        assert!(error.contains(allowed), "{arguments:?}: {error}");
        assert!(output.stdout.is_empty());
    }
}
