//! The programs of the guide of simulations: the guide shows them as they are run here.

use std::fs::read_to_string;
use std::path::Path;

use chunkcomm_tests::tickets; // a crate in the guide

/// The test of the guide, whose crate is the module above.
mod partition {
    use super::tickets;
    include!("tickets/partition.rs");
}

#[test]
fn the_guide_shows_what_is_run() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let guide = read_to_string(root.join("../docs/guide/simulation.md")).unwrap();
    for file in ["service.rs", "partition.rs"] {
        let text = read_to_string(root.join("tests/across/tickets").join(file)).unwrap();
        assert!(guide.contains(&text), "docs/guide/simulation.md has another {file}");
    }
}
