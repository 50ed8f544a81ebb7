//! The example program `models`, run as its user runs it: one farm in four ways.

use super::example::Example;
use super::mandelbrot::{WHOLE, by_definition};
use super::picture::{Picture, path, rendered};

pub(crate) const MODELS: Example = Example { name: "models" };

/// The ways in which the farm is written.
pub(crate) const IDIOMS: [&str; 4] = ["linda", "pvm", "sr", "farm"];

const SIDES: (u32, u32) = (120, 90);

/// Renders with these further options; returns the picture and the line of JSON.
fn told(name: &str, options: &[&str]) -> (Picture, serde_json::Value) {
    let common = ["--size", "120x90", "--sequential-check", "--json"];
    let (picture, line) = rendered(&MODELS, name, &[&common, options].concat());
    (picture, serde_json::from_str(&line).expect(&line))
}

#[test]
fn each_farm_renders_the_picture_of_its_definition() {
    let expected = by_definition(SIDES, WHOLE, 256);
    for idiom in IDIOMS {
        for (model, nodes, workers, buffering) in
            [("a", "3", 3, "on"), ("b", "3", 2, "on"), ("a", "1", 1, "off"), ("b", "4", 3, "off")]
        {
            let name = format!("models-{idiom}-{model}-{nodes}.png");
            let words = ["--idiom", idiom, "--model", model, "--nodes", nodes];
            let words = [&words[..], &["--double-buffering", buffering]].concat();
            let (picture, line) = told(&name, &words);
            assert!(picture == expected, "{name} differs");
            assert_eq!((&line["idiom"], &line["model"]), (&idiom.into(), &model.into()));
            assert_eq!((&line["tasks"], &line["workers"]), (&90.into(), &workers.into()));
            assert_eq!(line["double_buffering"] == "none", buffering == "off", "{line}");
            assert_eq!(line["different_pixels"], 0, "{line}");
            let messages = line["messages_per_task"].as_f64().unwrap();
            match nodes {
                "1" => assert_eq!(messages, 0.0, "{line}"),
                _ => assert!((0.1..16.0).contains(&messages), "{line}"),
            }
            assert!(line["lines"].as_u64().unwrap() > 20, "{line}");
        }
    }
}

#[test]
fn a_farm_that_knows_of_deaths_ends_well_after_one() {
    let expected = by_definition(SIDES, WHOLE, 256);
    for idiom in ["linda", "pvm"] {
        let name = format!("models-{idiom}-dies.png");
        let (picture, line) = told(&name, &["--idiom", idiom, "--die", "1:5", "--nodes", "3"]);
        assert!(picture == expected, "{name} differs");
        assert_eq!((&line["workers"], &line["workers_left"]), (&2.into(), &1.into()), "{line}");
    }
}

#[test]
fn a_farm_without_workers_ends() {
    for idiom in ["linda", "pvm", "sr"] {
        let output = path("models-deserted.png");
        let words = ["--idiom", idiom, "--nodes", "2", "--die", "1:3", "--no-progress", "--output"];
        let words = [&words[..], &[output.to_str().unwrap()]].concat();
        let ended = MODELS.command(&words).output().unwrap();
        let error = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(ended.status.code(), Some(1), "{idiom}: {error}");
        assert!(error.contains("rank 1 is gone"), "{idiom}: {error}");
    }
}

#[test]
fn the_file_for_numpy_has_the_steps() {
    let file = path("models-steps.npy");
    let file = file.to_str().unwrap();
    let (picture, _) = told("models-npy.png", &["--npy", file]);
    let (shape, pixels) = (picture.sides, picture.pixels);
    let bytes = std::fs::read(file).unwrap();
    // A head of 128 bytes, then 16 bits a pixel.
    assert_eq!(bytes.len(), 128 + 2 * (shape.0 * shape.1) as usize);
    let steps = bytes[128..].chunks(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]]));
    assert!(steps.zip(pixels).all(|(steps, pixel)| (steps == 256) == (pixel == [0; 3])));
}

#[test]
fn wrong_options_are_refused() {
    MODELS.refuses(&[
        (["--idiom", "p4"], "linda, pvm, sr, farm"),
        (["--die", "1:1"], "allowed with --idiom linda, pvm, sr"),
        (["--output", "/nowhere/at/all.png"], "folder that exists"),
    ]);
    let output = MODELS.command(&["--nodes", "1"]).output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("nobody works: allowed are --model a, or 2 nodes"), "{error}");
}
