//! The example program `heat`, run as its user runs it: a cluster of copies on this machine.

use chunkcomm_array::{Layout, Npy};
use chunkcomm_examples::picture;
use chunkcomm_testkit::Scratch;

use super::example::Example;

const HEAT: Example = Example { name: "heat" };

#[test]
fn the_plate_is_that_of_one_process_and_each_hundredth_step_is_in_a_file() {
    let folder = Scratch::folder("heat");
    let (drawn, files) = (folder.join("drawn.png"), folder.display().to_string());
    let drawn_to = drawn.display().to_string();
    let options =
        ["--shape", "31x47", "--steps", "250", "--check", "--no-progress", "--output", &drawn_to];
    for nodes in ["1", "3", "4"] {
        let report = HEAT.prints(&[&options[..], &["--nodes", nodes, "--files", &files]].concat());
        assert!(report.contains("0 elements differ"), "{nodes}: {report}");
        let ((width, height), pixels) = picture::load(&drawn).unwrap();
        assert_eq!((width, height), (47, 31));
        // Heat where it began, and none at the edge.
        assert!(pixels[20 * 47 + 31][0] > 2 * pixels[0][0], "{:?}", pixels[20 * 47 + 31]);
        let whole = Layout::parse("(*,*)", &[31, 47]).unwrap();
        let heat = |step: &str| {
            let mut file = Npy::open(folder.join(format!("heat-{step}.npy"))).unwrap();
            file.read_local::<f64>(&whole, 0).unwrap().iter().sum::<f64>()
        };
        // It leaves over the edges.
        assert!(heat("000100") > heat("000200"), "{nodes}");
    }
}
