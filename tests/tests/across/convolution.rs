//! The example program `convolution`, run as its user runs it: four groups of processes, or one.

use std::path::Path;
use std::process::{Output, Stdio};

use chunkcomm_examples::picture::{self, Pixel};
use chunkcomm_testkit::Scratch;
use serde_json::Value;

use super::example::Example;

pub(crate) const CONVOLUTION: Example = Example { name: "convolution" };

/// Columns between two pictures of the output.
const GAP: usize = 4;

/// Convolves with these options and checks; returns the figures, and the rows of the picture.
fn convolved(folder: &Path, options: &[&str]) -> (Value, Vec<Vec<Pixel>>) {
    let output = folder.join("convolved.png");
    let output_option = format!("--output={}", output.display());
    let common = ["--check", "--json", "--no-progress", &output_option];
    let line = CONVOLUTION.prints(&[&common, options].concat());
    assert_eq!(line.lines().count(), 1, "{line}");
    let ((width, _), pixels) = picture::load(&output).unwrap();
    let rows = pixels.chunks(width as usize).map(<[_]>::to_vec).collect();
    (serde_json::from_str(&line).unwrap(), rows)
}

/// Returns the three pictures of an output: image, kernel and result.
fn three(rows: &[Vec<Pixel>]) -> [Vec<Vec<u8>>; 3] {
    let columns = (rows[0].len() - 2 * GAP) / 3;
    [0, 1, 2].map(|index| {
        let first = index * (columns + GAP);
        rows.iter()
            .map(|row| row[first..first + columns].iter().map(|it| it[0]).collect())
            .collect()
    })
}

/// Writes a picture in shades of grey; returns its path.
fn png(folder: &Path, name: &str, rows: &[&[u8]]) -> String {
    let path = folder.join(name);
    let pixels: Vec<Pixel> = rows.concat().into_iter().map(|shade| [shade; 3]).collect();
    picture::save((rows[0].len() as u32, rows.len() as u32), &pixels, &path).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn results_are_those_of_the_definition() {
    let folder = Scratch::folder("convolution");
    for (shape, images, ranks, options) in [
        ("96x250", 8, vec![1, 1, 1, 1], &[][..]),
        ("96x250", 5, vec![3, 2, 1, 2], &["--ranks=3,2,1,2"]),
        ("96x250", 3, vec![1, 2, 2, 2], &["--nodes=7"]),
        ("250x96", 3, vec![1, 1, 3, 1], &["--ranks=1,1,3,1"]),
        ("7x5", 9, vec![1, 1, 1, 1], &["--nodes=4"]),
        ("7x5", 9, vec![9, 3, 6, 2], &["--ranks=9,3,6,2"]), // groups larger than rows and columns
        ("7x5", 40, vec![1, 1, 8, 1], &["--ranks=1,1,8,1"]),
        ("1x1", 2, vec![1, 1, 2, 1], &["--ranks=1,1,2,1"]),
        ("96x250", 4, vec![1], &["--data-parallel", "--nodes=1"]),
        ("96x250", 4, vec![3], &["--data-parallel", "--nodes=3"]),
        ("7x5", 9, vec![9], &["--data-parallel", "--nodes=9"]),
    ] {
        let shape_option = format!("--shape={shape}");
        let images_option = format!("--images={images}");
        let (told, _) = convolved(&folder, &[&[&*shape_option, &images_option], options].concat());
        let form = if ranks.len() == 1 { "data-parallel" } else { "pipelined" };
        assert_eq!((&told["program"], &told["form"]), (&"convolution".into(), &form.into()));
        // The remainder of a division among the groups may fall to any.
        let found: Vec<u64> = serde_json::from_value(told["ranks"].clone()).unwrap();
        if options == ["--nodes=7"] {
            assert_eq!(found.iter().sum::<u64>(), 7, "{told}");
        } else {
            assert_eq!(found, ranks, "{told}");
        }
        let extents: Vec<u64> = shape.split('x').map(|it| it.parse().unwrap()).collect();
        assert_eq!(told["shape"], shape);
        assert_eq!(told["elements_checked"], images * extents[0] * extents[1], "{told}");
        let [difference, tolerance, seconds, each] =
            ["largest_difference", "tolerance", "seconds", "seconds_an_array"]
                .map(|key| told[key].as_f64().unwrap());
        assert!(difference <= tolerance && tolerance <= 1e-12, "{told}");
        assert!(0.0 < each && each <= seconds, "{told}");
    }
}

/// The picture has the sums that a reader can do by hand.
#[test]
fn a_kernel_moves_and_spreads_an_image() {
    let folder = Scratch::folder("convolution-files");
    let image =
        png(&folder, "image.png", &[&[0, 0, 0, 0, 0], &[0, 200, 0, 0, 0], &[0; 5], &[100; 5]]);
    let same = png(&folder, "same.png", &[&[255]]);
    let spread = png(&folder, "spread.png", &[&[0, 0, 0], &[50, 0, 50], &[0, 0, 100]]);
    let image_option = format!("--image={image}");
    let result = |kernel: &str, options: &[&str]| {
        let kernel = format!("--kernel={kernel}");
        let (told, rows) = convolved(&folder, &[&[&*image_option, &kernel], options].concat());
        assert_eq!(told["shape"], "4x5", "{told}");
        three(&rows)
    };
    let [first, kernel, unchanged] = result(&same, &[]);
    assert_eq!(first[1], [0, 200, 0, 0, 0]);
    assert_eq!(unchanged, first);
    assert_eq!(kernel.concat().iter().filter(|shade| **shade > 0).count(), 1);
    // A quarter to the left, a quarter to the right, and half down and right, around the edges.
    for options in [&[][..], &["--ranks=2,1,2,1"], &["--data-parallel"]] {
        let [_, _, moved] = result(&spread, options);
        let expected: [[u8; 5]; 4] = [[50; 5], [50, 0, 50, 0, 0], [0, 0, 100, 0, 0], [50; 5]];
        assert_eq!(moved, expected, "{options:?}");
    }
}

#[test]
fn the_files_have_image_kernel_and_result() {
    let folder = Scratch::folder("convolution-npy");
    let file = folder.join("three.npy");
    let npy = format!("--npy={}", file.display());
    let shades = |options: &[&str]| {
        let (_, rows) = convolved(&folder, &[&["--shape=20x30", &npy], options].concat());
        let bytes = std::fs::read(&file).unwrap();
        let (header, at) = chunkcomm_array::NpyHeader::parse(&bytes).unwrap();
        assert_eq!(header.shape, [3, 20, 30]);
        let numbers: Vec<f64> = bytes[at..]
            .chunks_exact(8)
            .map(|it| f64::from_le_bytes(it.try_into().unwrap()))
            .collect();
        let shade = |number: &f64| (255.0 * number).round() as u8;
        let pictures = three(&rows);
        assert_eq!(pictures[0].concat(), numbers[..600].iter().map(shade).collect::<Vec<_>>());
        assert!((numbers[600..1200].iter().sum::<f64>() - 1.0).abs() < 1e-12);
        assert_eq!(pictures[2].concat(), numbers[1200..].iter().map(shade).collect::<Vec<_>>());
        pictures
    };
    // Of the last round; the kernel of each is another.
    let (fifth, sixth) = (shades(&["--images=5"]), shades(&["--images=6"]));
    assert!(fifth[1] != sixth[1] && fifth[2] != sixth[2]);
    assert_eq!(shades(&["--images=5", "--data-parallel", "--nodes=3"]), fifth);
}

#[test]
fn a_rank_that_dies_is_named_and_all_others_end() {
    let folder = Scratch::folder("convolution-dies");
    let output = format!("--output={}", folder.join("none.png").display());
    for (rank, options) in [
        (1, &[][..]),
        (2, &[]),
        (3, &[]),
        (1, &["--ranks=2,1,1,1"]),
        (5, &["--ranks=1,1,2,2"]),
        (2, &["--data-parallel"]),
    ] {
        let die = format!("--die={rank}:7");
        let common = ["--shape=30x40", "--images=500", "--no-progress", &output, &die];
        // It ends when no process has its standard error open any more.
        let ended = CONVOLUTION.command(&[&common, options].concat()).output().unwrap();
        let told = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(ended.status.code(), Some(1), "{told}");
        assert!(told.contains(&format!("convolution: rank {rank} is gone: ")), "{rank}: {told}");
        assert!(ended.stdout.is_empty() && !folder.join("none.png").exists());
    }
}

/// A launcher starts another number of processes than the groups have ranks.
#[test]
fn a_cluster_of_another_size_is_refused_once() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let start = |rank: usize| {
        let mut command = CONVOLUTION.command(&[]);
        command.args(["--ranks=1,1,2,1"]).env("CHUNKCOMM_RANK", rank.to_string());
        command.env("CHUNKCOMM_SIZE", "4").env("CHUNKCOMM_MANAGER", port.to_string());
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let started: Vec<_> = (0..4).map(start).collect();
    let ended: Vec<Output> = started.into_iter().map(|it| it.wait_with_output().unwrap()).collect();
    let told = String::from_utf8_lossy(&ended[0].stderr);
    assert!(told.starts_with("convolution: --ranks 1,1,2,1 in a cluster of 4 nodes"), "{told}");
    assert_eq!((told.lines().count(), ended[0].status.code()), (1, Some(1)), "{told}");
    assert!(ended[1..].iter().all(|it| it.stderr.is_empty()), "{ended:?}");
}

#[test]
fn what_makes_no_sense_is_named() {
    CONVOLUTION.refuses(&[
        (["--shape", "96"], "two whole numbers from 1 to"),
        (["--images", "0"], "whole numbers from 1 to 1000000"),
        (["--ranks", "1,1,1"], "4 whole numbers from 1 to"),
        (["--ranks=1,1,2,1", "--nodes=4"], "allowed is --nodes 5"),
        (["--ranks=1,1,2,1", "--data-parallel"], "cannot be used with"),
        (["--shape=3x3", "--image=x.png"], "cannot be used with"),
        (["--die", "0:3"], "both from 1; rank 0 runs the manager"),
        (["--die=1:3", "--lan=virtual:lan-1g"], "allowed is --lan real"),
        (["--flop", "none"], "numbers from 0 to"),
        (["--output", "/nowhere/at/all.png"], "a file in a folder that exists"),
        (["--npy", "/nowhere/at/all.npy"], "a file in a folder that exists"),
    ]);
    let folder = Scratch::folder("convolution-wrong");
    let [wide, black] = [png(&folder, "wide.png", &[&[9, 9, 9]]), png(&folder, "b.png", &[&[0]])];
    for (options, told) in [
        (["--image=/nowhere.png", "--images=1"], "/nowhere.png: "),
        (["--shape=2x2", &format!("--kernel={wide}")], "allowed are 2 and 2, those of the images"),
        (["--shape=2x2", &format!("--kernel={black}")], "allowed is a picture with light"),
        (["--nodes=3", "--images=1"], "4 groups in 3 nodes: allowed are 4 nodes or more"),
    ] {
        let ended = CONVOLUTION.command(&options).output().unwrap();
        let error = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(ended.status.code(), Some(1), "{options:?}: {error}");
        assert!(error.contains(told) && error.lines().count() == 1, "{options:?}: {error}");
        assert!(ended.stdout.is_empty());
    }
    let output = format!("--output={}", folder.join("closed.png").display());
    CONVOLUTION.needs_standard_output(&["--shape=9x9", "--images=1", &output]);
}
