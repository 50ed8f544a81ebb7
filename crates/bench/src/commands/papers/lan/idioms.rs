//! Programs of the farm: the built example `models`, written as in Linda, PVM and SR. There is none as in
//! Strand, P4 and ANSA.

use chunkcomm_testkit::Scratch;
use serde_json::{Map, Value};

use crate::commands::coupled::program::{Said, line_of, number_of};
use crate::commands::papers::{Found, Scene};
use crate::failure::Failure;
use crate::table::{Row, column};

const PROGRAM: &str = "models";

/// Runs the farms of a small picture on this machine.
pub(super) fn idioms(scene: &Scene<'_>, found: &mut Found) -> Result<(), Failure> {
    let folder = Scratch::folder("idioms");
    let mut rows = Vec::new();
    let mut all: Vec<Map<String, Value>> = Vec::new();
    for idiom in ["linda", "pvm", "sr"] {
        let words = [
            "--json".to_owned(),
            "--no-progress".to_owned(),
            "--sequential-check".to_owned(),
            "--size=160x120".to_owned(),
            format!("--idiom={idiom}"),
            format!("--output={}", folder.join("picture.png").display()),
        ];
        let said = match line_of(&scene.settings.examples, PROGRAM, &words)? {
            Said::Line(said) => said,
            Said::NotBuilt(reason) => {
                found.missing(reason);
                return Ok(());
            }
        };
        let mut row = Row::default();
        row.set("idiom", idiom)
            .set("lines", number_of(&said, PROGRAM, "lines")?)
            .set("double_buffering", said.get("double_buffering").cloned().unwrap_or_default());
        rows.push(row);
        all.push(said);
    }
    let columns = [
        column("idiom", "idiom", 0),
        column("lines", "lines", 0),
        column("double_buffering", "double buffering", 0),
    ];
    found.table("farms", &columns, rows);
    let lines = |at: usize| number_of(&all[at], PROGRAM, "lines");
    let [linda, pvm] = [lines(0)?, lines(1)?];
    found.verdict("compact", linda < pvm, format!("{linda}, {pvm} lines"));
    Ok(())
}
