//! Findings as lines, as rows of JSON, and as a page of Markdown with its pictures.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use super::{Curves, List, Mark, Means, PAPERS, Paper, Ran, Statement};
use crate::failure::{Doing, Failure};
use crate::harness::machine;
use crate::table::{Row, write_out};

/// Folder of the pictures, beside the page.
const PICTURES: &str = "papers";

/// A statement and what came of it.
struct Decided<'a> {
    statement: &'a Statement,
    /// One word: `holds`, `differs`, `input`, `cannot` or `missing`; `open` if nothing decided it.
    outcome: &'static str,
    ours: &'a str,
    /// The reason of all outcomes but the first.
    why: Option<&'a str>,
}

impl<'a> Decided<'a> {
    fn of(statement: &'a Statement, ran: &'a [Ran], paper: &Paper) -> Self {
        let of_it = |ran: &&Ran| {
            ran.paper.name == paper.name && statement.run.as_deref() == Some(ran.run.name)
        };
        let found = ran.iter().find(of_it).map(|ran| &ran.found);
        let verdict = found.and_then(|found| found.verdicts.get(statement.id.as_str()));
        let missing = found.and_then(|found| found.missing.as_deref());
        let (outcome, why) = match (verdict, missing, statement.cannot.as_deref()) {
            (_, _, Some(cannot)) => ("cannot", Some(cannot)),
            (Some(verdict), _, _) if verdict.holds => ("holds", None),
            (Some(_), _, _) => ("differs", statement.why.as_deref()),
            (None, Some(missing), _) => ("missing", Some(missing)),
            (None, None, _) if statement.run.is_none() => ("input", None),
            _ => ("open", None),
        };
        let ours = verdict.map_or("", |verdict| verdict.ours.as_str());
        Self { statement, outcome, ours, why }
    }

    fn row(&self, paper: &Paper) -> Row {
        let Statement { id, place, says, mark, run, .. } = self.statement;
        let mut row = row_of(paper);
        row.set("run", run.as_deref())
            .set("statement", id.as_str())
            .set("place", place.as_str())
            .set("says", says.as_str())
            .set("mark", mark.to_string())
            .set("outcome", self.outcome)
            .set("ours", self.ours)
            .set("why", self.why);
        row
    }

    /// Returns the outcome as people read it.
    fn told(&self) -> String {
        let mark = if self.statement.mark == Mark::Fitted { "fitted, " } else { "" };
        let why = self.why.map_or_else(String::new, |why| format!(": {why}"));
        format!("{mark}{}{why}", self.outcome)
    }
}

fn row_of(paper: &Paper) -> Row {
    let mut row = Row::default();
    row.set("bench", "reproduce")
        .set("transport", "virtual")
        .set("runtime", "virtual")
        .set("paper", paper.name);
    row
}

/// Prints what a run has found.
pub fn write(ran: &Ran, json: bool) {
    let (paper, list) = (ran.paper, ran.paper.list());
    let name = format!("{} {}", paper.name, ran.run.name);
    eprintln!("chunkperf: {name}: {:.1} s", ran.seconds);
    let ran = std::slice::from_ref(ran);
    let of_run = |it: &&Statement| it.run.as_deref() == Some(ran[0].run.name);
    let decided = list.statements.iter().filter(of_run);
    let decided: Vec<_> = decided.map(|statement| Decided::of(statement, ran, paper)).collect();
    for (title, table) in &ran[0].found.tables {
        if json {
            for row in table.rows() {
                let mut all = row_of(paper);
                all.set("run", ran[0].run.name).set("table", title.as_str());
                all.append(row).print(true);
            }
        } else {
            write_out(&format!("{name}: {title}\n{}\n", table.to_lines()));
        }
    }
    for one in &decided {
        if json {
            one.row(paper).print(true);
        } else {
            let Statement { place, says, .. } = one.statement;
            write_out(&format!("{}: {says} ({place}); ours: {}\n", one.told(), one.ours));
        }
    }
    if !json {
        write_out("\n");
    }
}

/// All findings of some papers.
#[derive(Debug)]
pub struct Report<'a> {
    /// The runs.
    pub ran: &'a [Ran],
    /// Real seconds of all.
    pub seconds: f64,
}

impl Report<'_> {
    /// Returns the papers of which something has run.
    fn papers(&self) -> impl Iterator<Item = (&'static Paper, List)> {
        let has_run = |paper: &&Paper| self.ran.iter().any(|ran| ran.paper.name == paper.name);
        PAPERS.iter().filter(has_run).map(|paper| (paper, paper.list()))
    }

    /// Returns one row: the numbers of statements by outcome, and all figures of the runs.
    pub fn summary(&self) -> Row {
        let mut counts = [0; 5];
        let (mut judged, mut held) = (0, 0);
        for (paper, list) in self.papers() {
            for statement in &list.statements {
                let one = Decided::of(statement, self.ran, paper);
                let outcomes = ["holds", "differs", "input", "cannot", "missing"];
                if let Some(place) = outcomes.iter().position(|outcome| *outcome == one.outcome) {
                    counts[place] += 1;
                }
                if statement.why.is_none() && matches!(one.outcome, "holds" | "differs") {
                    judged += 1;
                    held += usize::from(one.outcome == "holds");
                }
            }
        }
        let mut row = Row::default();
        row.set("bench", "reproduce").set("transport", "virtual").set("runtime", "virtual");
        for (key, count) in
            ["hold", "differ", "inputs", "cannot", "missing"].into_iter().zip(counts)
        {
            row.set(key, count);
        }
        // Of those for which no reason is known why they cannot hold.
        row.set("share_held", held as f64 / f64::from(judged));
        for (key, figure) in self.ran.iter().flat_map(|ran| &ran.found.figures) {
            row.set(key, *figure);
        }
        row.set("digest", format!("{:016x}", self.digest(|_| true))).set("seconds", self.seconds);
        row
    }

    /// Returns a number of all that was found in virtual time.
    fn digest(&self, is_it: impl Fn(&Ran) -> bool) -> u64 {
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        for ran in self.ran.iter().filter(|ran| ran.run.means == Means::Virtual && is_it(ran)) {
            let tables = ran.found.tables.iter().map(|(_, table)| table.to_lines());
            let verdicts = ran.found.verdicts.iter();
            let verdicts = verdicts.map(|(id, it)| format!("{id} {} {}", it.holds, it.ours));
            for byte in tables.chain(verdicts).flat_map(String::into_bytes) {
                hash = (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
            }
        }
        hash
    }

    /// Writes the page `papers.md` and its pictures to a folder.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn write_page(&self, folder: &Path) -> Result<(), Failure> {
        let pictures = folder.join(PICTURES);
        fs::create_dir_all(&pictures).doing("making the folder of the pictures")?;
        let page = folder.join("papers.md");
        fs::write(&page, self.to_markdown()).doing(&format!("writing {}", page.display()))?;
        for ran in self.ran {
            for curves in &ran.found.curves {
                let file = pictures.join(format!("{}-{}.svg", ran.paper.name, curves.name));
                fs::write(&file, curves.to_svg()?).doing(&format!("writing {}", file.display()))?;
            }
        }
        Ok(())
    }

    fn to_markdown(&self) -> String {
        let mut text = format!(
            "# Five papers, statement by statement\n\nWritten by `chunkperf reproduce --report docs`, {}, {}, in \
             {:.0} s. *Input*: feeds the world of our run. *Fitted*: a constant of that world was \
             taken from it. All others were found or not.\n",
            machine::today(),
            machine::description(),
            self.seconds,
        );
        for (paper, list) in self.papers() {
            let digest = self.digest(|ran| ran.paper.name == paper.name);
            // Writing into a string does not fail.
            let _ = write!(
                text,
                "\n## {}\n\n{}, {}. Digest of the virtual figures: `{digest:016x}`.\n\n\
                 | place | the paper | ours | |\n|---|---|---|---|\n",
                list.title, list.authors, list.year,
            );
            for statement in &list.statements {
                let one = Decided::of(statement, self.ran, paper);
                let place = statement.place.replace("section ", "").replace("figure", "fig.");
                let _ = writeln!(
                    text,
                    "| {place} | {} | {} | {} |",
                    statement.says,
                    one.ours,
                    one.told()
                );
            }
            for ran in self.ran.iter().filter(|ran| ran.paper.name == paper.name) {
                for Curves { name, title, .. } in &ran.found.curves {
                    let file = format!("{PICTURES}/{}-{name}.svg", paper.name);
                    let _ = write!(text, "\n![{title}]({file})\n");
                }
            }
        }
        text
    }
}
