//! The example program `filters`, run as its user runs it.

use std::path::Path;

use chunkcomm_examples::picture;
use chunkcomm_testkit::Scratch;
use serde_json::Value;

use super::example::Example;

const FILTERS: Example = Example { name: "filters" };

/// Runs the chain on a picture of these sides; returns the result and the trace.
fn filtered(folder: &Path, (width, height): (u32, u32), rows: &str) -> (Vec<[u8; 3]>, Value) {
    let [input, output, trace] = ["in.png", "out.png", "trace.json"].map(|name| folder.join(name));
    let black_and_white = |index: u32| if index % width < width / 2 { [0; 3] } else { [200; 3] };
    let pixels: Vec<[u8; 3]> = (0..width * height).map(black_and_white).collect();
    picture::save((width, height), &pixels, &input).unwrap();
    let told = FILTERS.prints(&[
        &format!("--picture={}", input.display()),
        &format!("--output={}", output.display()),
        &format!("--trace={}", trace.display()),
        "--nodes=4",
        rows,
    ]);
    assert!(told.starts_with(&format!("{width}x{height} pixels through 3 filters: ")), "{told}");
    assert!(told.ends_with("all pixels equal those of one process\n"), "{told}");
    let (size, result) = picture::load(&output).unwrap();
    assert_eq!(size, (width, height));
    (result, serde_json::from_str(&std::fs::read_to_string(&trace).unwrap()).unwrap())
}

#[test]
fn a_picture_goes_through_all_filters_and_each_row_is_in_the_trace() {
    let folder = Scratch::folder("filters");
    for (size, rows, parts) in [((64, 30), "--rows=7", 5), ((1, 1), "--rows=8", 1)] {
        let (result, trace) = filtered(&folder, size, rows);
        // The only edge is in the middle, which the blur widens.
        let white = result.iter().filter(|pixel| **pixel != [0; 3]).count();
        assert_eq!(white > 0, size.0 > 1, "{white}");
        assert!(white <= result.len() / 2, "{white}");
        let spans: Vec<&Value> =
            trace["traceEvents"].as_array().unwrap().iter().filter(|it| it["ph"] == "X").collect();
        for (rank, name) in [(1, "blur"), (2, "edges"), (3, "thicken")] {
            let of_rank = |span: &&&Value| span["tid"] == rank && span["name"] == name;
            assert_eq!(spans.iter().filter(of_rank).count(), parts, "{trace}");
        }
        assert_eq!(spans.len(), 3 * parts);
    }
}

#[test]
fn wrong_options_say_what_is_allowed() {
    FILTERS.refuses(&[
        (["--nodes", "1"], "allowed are whole numbers from 2 to 64"),
        (["--rows", "0"], "allowed are whole numbers from 1 to 16384"),
        (["--output", "/nowhere/at/all/x.png"], "allowed is a file in a folder that exists"),
    ]);
}

#[test]
fn the_help_is_the_same_wherever_it_was_built() {
    let help = FILTERS.prints(&["--help"]);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    assert!(!help.contains(root.to_str().unwrap()), "{help}");
    assert!(help.contains("[default: a picture of the example mandelbrot]"), "{help}");
}
