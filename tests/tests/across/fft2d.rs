//! The example program `fft2d`, run as its user runs it: a cluster of copies on this machine.

use std::fs;

use chunkcomm_examples::picture;
use chunkcomm_testkit::Scratch;
use num_complex::Complex;
use rustfft::FftPlanner;

use super::example::Example;

pub(crate) const FFT2D: Example = Example { name: "fft2d" };

const EQUAL: &str = "check           all transforms equal the sums that define them within ";

/// Returns the elements of a file of complex numbers of this shape.
fn numbers(path: &std::path::Path, [rows, columns]: [usize; 2]) -> Vec<Complex<f64>> {
    let bytes = fs::read(path).unwrap();
    let header = 10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    let text = String::from_utf8_lossy(&bytes[10..header]);
    let [descr, shape] = ["'<c16'".to_owned(), format!("'shape': ({rows}, {columns})")];
    assert!(text.contains(&descr) && text.contains(&shape), "{text}");
    let part = |bytes: &[u8]| f64::from_le_bytes(bytes.try_into().unwrap());
    let number = |bytes: &[u8]| Complex::new(part(&bytes[..8]), part(&bytes[8..]));
    bytes[header..].chunks_exact(16).map(number).collect()
}

/// Groups of any sizes, arrays of any shape: fewer rows than ranks, one rank a group, no slabs.
#[test]
fn transforms_equal_the_sum_that_defines_them() {
    for options in [
        &["--shape=96x250"][..],
        &["--shape=48x125", "--ranks=1,1"],
        &["--shape=48x125", "--ranks=3,2", "--depth=1"],
        &["--shape=3x5", "--ranks=4,7"],
        &["--shape=7x1", "--ranks=2,3"],
        &["--shape=1x1", "--ranks=2,1", "--arrays=3"],
        &["--shape=64x33", "--slabs=off"],
        &["--shape=64x33", "--overlap=off", "--ranks=2,3"],
        &["--shape=64x33", "--arrays=1"],
        &["--shape=48x125", "--data-parallel", "--nodes=3"],
        &["--shape=5x9", "--data-parallel", "--nodes=7"],
        &["--shape=33x17", "--data-parallel", "--nodes=1"],
    ] {
        let report = FFT2D.prints(&[&["--check"][..], options].concat());
        assert!(report.contains(EQUAL), "{options:?}: {report}");
    }
}

/// Both forms write the same array and nearly the same transform, which is that of another algorithm.
#[test]
fn both_forms_write_what_another_transform_finds() {
    let shape @ [rows, columns] = [40, 27];
    let mut found = Vec::new();
    for (form, options) in
        [("pipelined", &["--ranks=3,2"]), ("data-parallel", &["--data-parallel"])]
    {
        let folder = Scratch::folder(&format!("fft2d-{form}"));
        let file = folder.join("transform.png");
        let common = [
            format!("--npy={}", folder.display()),
            format!("--output={}", file.display()),
            "--shape=40x27".to_owned(),
            "--seed=7".to_owned(),
            "--arrays=6".to_owned(),
        ];
        let words: Vec<&str> =
            common.iter().map(String::as_str).chain(options.iter().copied()).collect();
        let report = FFT2D.prints(&words);
        assert!(report.contains(&format!(", {form}\n")), "{report}");
        let array = numbers(&folder.join("input.npy"), shape);
        let transform = numbers(&folder.join("transform.npy"), shape);
        let mut expected = array.clone();
        let mut planner = FftPlanner::new();
        planner.plan_fft_forward(columns).process(&mut expected);
        let mut turned: Vec<_> =
            (0..rows * columns).map(|at| expected[at % rows * columns + at / rows]).collect();
        planner.plan_fft_forward(rows).process(&mut turned);
        for (at, number) in transform.iter().enumerate() {
            let expected = turned[at % columns * rows + at / columns];
            assert!((number - expected).norm() < 1e-9, "{at}: {number}, not {expected}");
        }
        let (size, pixels) = picture::load(&file).unwrap();
        assert_eq!(size, (27, 40));
        // Frequency 0 is the brightest, in the middle.
        assert_eq!(pixels[20 * 27 + 13], [255, 255, 190]);
        found.push((array, pixels));
    }
    assert!(found[0] == found[1]);
}

#[test]
fn figures_are_one_line_of_json() {
    let line = FFT2D.prints(&["--json", "--shape=64x48", "--ranks=2,1", "--arrays=8", "--check"]);
    assert_eq!(line.lines().count(), 1, "{line}");
    let told: serde_json::Value = serde_json::from_str(&line).unwrap();
    for (key, expected) in [
        ("program", serde_json::json!("fft2d")),
        ("form", "pipelined".into()),
        ("ranks", vec![2, 1].into()),
        ("shape", "64x48".into()),
        ("arrays", 8.into()),
    ] {
        assert_eq!(told[key], expected, "{line}");
    }
    let [all, each] = ["seconds", "seconds_an_array"].map(|key| told[key].as_f64().unwrap());
    assert!(each > 0.0 && all > 4.0 * each, "{line}");
    for share in told["waiting_share"].as_array().unwrap() {
        assert!((0.0..1.0).contains(&share.as_f64().unwrap()), "{line}");
    }
    assert!(told["difference"].as_f64().unwrap() < 1e-12, "{line}");
}

/// A rank of either group dies in the stream: it is named, and all others end.
#[test]
fn a_rank_that_dies_is_named() {
    for (victim, options) in [
        (1, &["--ranks=2,2"][..]),
        (3, &["--ranks=2,2"]),
        (1, &["--ranks=1,3"]),
        (2, &["--data-parallel", "--nodes=3"]),
    ] {
        let die = format!("--die={victim}:50");
        let common = [die.as_str(), "--arrays=100000", "--shape=64x64"];
        let ended = FFT2D.command(&[&common[..], options].concat()).output().unwrap();
        let told = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(ended.status.code(), Some(1), "{options:?}: {told}");
        assert!(told.contains(&format!("fft2d: rank {victim} ")), "{options:?}: {told}");
        assert!(ended.stdout.is_empty());
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_rank_that_is_killed_is_named() {
    use crate::nodes_faults::{end_of, seed};
    use chunkcomm_testkit::{proc, random::seeded};
    use rustix::process::Signal;
    use std::process::Stdio;
    use std::time::Duration;

    let seed = seed();
    let mut random = seeded(seed);
    for victim in [1, 2, 3] {
        let options = ["--ranks=2,2", "--arrays=100000", "--shape=256x256", "--no-progress"];
        let mut command = FFT2D.command(&options);
        let command = command.stdout(Stdio::null()).stderr(Stdio::piped());
        let mut program = proc::Program(command.spawn().unwrap());
        let others = proc::children(program.0.id(), 3);
        let pid = proc::placed(&others, victim - 1);
        proc::wait_until_placed(pid);
        let delay = Duration::from_millis(random.below(400));
        println!("seed {seed}: rank {victim} is killed after {delay:?}");
        std::thread::sleep(delay);
        proc::signal(pid, Signal::KILL);
        let (status, told) = end_of(&mut program);
        assert_eq!(status.code(), Some(1), "{told}");
        assert!(told.contains(&format!("fft2d: rank {victim} ")), "{told}");
        proc::wait_until_gone(&others);
    }
}

#[test]
fn what_makes_no_sense_is_named() {
    FFT2D.refuses(&[
        (["--shape", "96"], "allowed are two whole numbers from 1 to 65536, as 96x250"),
        (["--ranks", "1"], "allowed are 2 whole numbers from 1 to 1024, as 4,1"),
        (["--ranks=2,2", "--nodes=3"], "--nodes 3 with --ranks 2,2: allowed is --nodes 4"),
        (["--die", "0:1"], "rank 0 runs the manager"),
        (["--flop", "-1"], "allowed are numbers from 0"),
        (["--npy", "no-such-folder"], "allowed is a folder that exists"),
        (["--output", "no-such-folder/a.png"], "allowed is a file in a folder that exists"),
        (["--die=1:1", "--lan=virtual:sp2"], "allowed is --lan real"),
        (["--data-parallel", "--ranks=1,1"], "cannot be used with"),
    ]);
    let alone = FFT2D.command(&["--nodes=1"]).output().unwrap();
    let told = String::from_utf8(alone.stderr).unwrap();
    assert_eq!((alone.status.code(), told.lines().count()), (Some(1), 1), "{told}");
    assert!(told.contains("2 groups in 1 nodes: allowed are 2 nodes or more"), "{told}");
    // A launcher's number of nodes is not that of the ranks.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut command = FFT2D.command(&["--ranks=1,2"]);
    command.env("CHUNKCOMM_RANK", "0").env("CHUNKCOMM_SIZE", "1");
    command.env("CHUNKCOMM_MANAGER", free.to_string());
    let told = String::from_utf8(command.output().unwrap().stderr).unwrap();
    assert!(told.contains("--ranks 1,2 in a cluster of 1 nodes"), "{told}");
    FFT2D.needs_standard_output(&["--shape=4x4", "--arrays=1"]);
}
