//! Findings as lines, as rows of JSON, and as a page of Markdown with its pictures and the table of all
//! statements.

use std::fmt::{self, Write as _};
use std::fs;
use std::path::Path;

use super::{Curves, List, Mark, Means, PAPERS, Paper, Ran, Statement};
use crate::failure::{Doing, Failure};
use crate::harness::machine;
use crate::table::{Row, significant, write_out};

/// Folder of the pictures and of the table, beside the page.
const FOLDER: &str = "papers";

/// End of a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Holds,
    Differs,
    /// It feeds the world of a run.
    Input,
    /// It cannot be run here.
    Cannot,
    /// A program of its run is not built.
    Missing,
    /// Its run was left out, or was too small to decide it.
    Open,
}

impl Outcome {
    const ALL: [Self; 6] =
        [Self::Holds, Self::Differs, Self::Input, Self::Cannot, Self::Missing, Self::Open];

    /// Returns the key of its count.
    fn key(self) -> &'static str {
        match self {
            Self::Holds => "hold",
            Self::Differs => "differ",
            Self::Input => "inputs",
            Self::Cannot => "cannot",
            Self::Missing => "missing",
            Self::Open => "open",
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Holds => "holds",
            Self::Differs => "differs",
            Self::Input => "input",
            Self::Cannot => "cannot be run here",
            Self::Missing => "is not built",
            Self::Open => "open",
        })
    }
}

/// A statement and what came of it.
struct Decided<'a> {
    statement: &'a Statement,
    outcome: Outcome,
    ours: &'a str,
    why: Option<&'a str>,
    /// Where it was decided.
    means: Option<Means>,
}

impl<'a> Decided<'a> {
    fn of(statement: &'a Statement, ran: &'a [Ran], paper: &Paper) -> Self {
        let of_it = |ran: &&Ran| {
            ran.paper.name == paper.name && statement.run.as_deref() == Some(ran.run.name)
        };
        let ran = ran.iter().find(of_it);
        let verdict = ran.and_then(|ran| ran.found.verdicts.get(statement.id.as_str()));
        let missing = ran.and_then(|ran| ran.found.missing.as_deref());
        let (outcome, why) = match (verdict, missing, statement.cannot.as_deref()) {
            (_, _, Some(cannot)) => (Outcome::Cannot, Some(cannot)),
            (Some(verdict), _, _) if verdict.holds => (Outcome::Holds, None),
            (Some(_), _, _) => (Outcome::Differs, statement.why.as_deref()),
            (None, Some(_), _) => (Outcome::Missing, None),
            (None, None, _) if statement.run.is_none() => (Outcome::Input, None),
            _ => (Outcome::Open, None),
        };
        let ours = verdict.map_or("", |verdict| verdict.ours.as_str());
        Self { statement, outcome, ours, why, means: ran.map(|ran| ran.run.means) }
    }

    fn row(&self, paper: &Paper) -> Row {
        let Statement { id, place, says, mark, run, .. } = self.statement;
        let mut row = row_of(paper, self.means);
        row.set("run", run.as_deref())
            .set("statement", id.as_str())
            .set("place", place.as_str())
            .set("says", says.as_str())
            .set("mark", mark.to_string())
            .set("outcome", self.outcome.to_string())
            .set("ours", self.ours)
            .set("why", self.why);
        row
    }

    /// Prints it.
    fn write(&self, paper: &Paper, json: bool) {
        if json {
            return self.row(paper).print(true);
        }
        let Statement { place, says, mark, .. } = self.statement;
        let fitted = if *mark == Mark::Fitted { "fitted, " } else { "" };
        let ours =
            if self.ours.is_empty() { String::new() } else { format!("; ours: {}", self.ours) };
        let why = self.why.map_or_else(String::new, |why| format!(": {why}"));
        write_out(&format!("{fitted}{}{why}: {says} ({place}){ours}\n", self.outcome));
    }
}

fn row_of(paper: &Paper, means: Option<Means>) -> Row {
    let place = means.map(|means| if means == Means::Virtual { "virtual" } else { "real" });
    let mut row = Row::default();
    row.set("bench", "reproduce")
        .set("transport", place)
        .set("runtime", place)
        .set("paper", paper.name);
    row
}

/// Prints what a run has found.
pub fn write(ran: &Ran, json: bool) {
    let (paper, run, list) = (ran.paper, ran.run, ran.paper.list());
    let name = format!("{} {}", paper.name, run.name);
    eprintln!("chunkperf: {name}: {:.1} s", ran.seconds);
    if let Some(reason) = &ran.found.missing {
        eprintln!("chunkperf: {name}: {reason}");
    }
    for (title, table) in &ran.found.tables {
        if json {
            for row in table.rows() {
                let mut all = row_of(paper, Some(run.means));
                all.set("run", run.name).set("table", title.as_str());
                all.append(row).print(true);
            }
        } else {
            write_out(&format!("{name}: {title}\n{}\n", table.to_lines()));
        }
    }
    let of_run = list.statements.iter().filter(|it| it.run.as_deref() == Some(run.name));
    for statement in of_run {
        Decided::of(statement, std::slice::from_ref(ran), paper).write(paper, json);
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

    /// Prints the statements that no run decides.
    pub fn write_rest(&self, json: bool) {
        for (paper, list) in self.papers() {
            for statement in list.statements.iter().filter(|statement| statement.run.is_none()) {
                Decided::of(statement, self.ran, paper).write(paper, json);
            }
        }
    }

    /// Returns one row: the numbers of statements by outcome, and all figures of the runs.
    pub fn summary(&self) -> Row {
        let mut counts = [0; Outcome::ALL.len()];
        let (mut judged, mut held) = (0, 0);
        for (paper, list) in self.papers() {
            for statement in &list.statements {
                let outcome = Decided::of(statement, self.ran, paper).outcome;
                counts[outcome as usize] += 1;
                let is_found = statement.mark == Mark::Found && statement.why.is_none();
                if is_found && matches!(outcome, Outcome::Holds | Outcome::Differs) {
                    judged += 1;
                    held += usize::from(outcome == Outcome::Holds);
                }
            }
        }
        let mut row = Row::default();
        row.set("bench", "reproduce").set("transport", "virtual").set("runtime", "virtual");
        for (outcome, count) in Outcome::ALL.into_iter().zip(counts) {
            row.set(outcome.key(), count);
        }
        // Of those found for which no reason is known why they cannot hold.
        row.set("share_held", held as f64 / f64::from(judged));
        for (key, figure) in self.ran.iter().flat_map(|ran| &ran.found.figures) {
            row.set(key, *figure);
        }
        row.set("digest", format!("{:016x}", self.digest(|_| true))).set("seconds", self.seconds);
        row
    }

    /// Returns a number of all that was found in virtual time, of figures four digits.
    fn digest(&self, is_it: impl Fn(&Ran) -> bool) -> u64 {
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        for ran in self.ran.iter().filter(|ran| ran.run.means == Means::Virtual && is_it(ran)) {
            let found = &ran.found;
            let rows = found.tables.iter().flat_map(|(_, table)| table.rows()).map(Row::to_lines);
            let verdicts = found.verdicts.iter();
            let verdicts = verdicts.map(|(id, it)| format!("{id} {} {}", it.holds, it.ours));
            let figures =
                found.figures.iter().map(|(key, it)| format!("{key} {}", significant(*it)));
            for text in rows.chain(verdicts).chain(figures) {
                for byte in text.bytes().chain([0]) {
                    hash = (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
                }
            }
        }
        hash
    }

    /// Writes the page `papers.md`, its pictures and the table of all statements to a folder.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn write_page(&self, folder: &Path) -> Result<(), Failure> {
        let beside = folder.join(FOLDER);
        fs::create_dir_all(&beside).doing("making the folder of the pictures")?;
        let write = |file: &Path, bytes: &[u8]| {
            fs::write(file, bytes).doing(&format!("writing {}", file.display()))
        };
        write(&folder.join("papers.md"), self.to_markdown().as_bytes())?;
        write(&beside.join("statements.csv"), self.to_csv().as_bytes())?;
        for ran in self.ran {
            for curves in &ran.found.curves {
                let file = format!("{}-{}.svg", ran.paper.name, curves.name);
                write(&beside.join(file), curves.to_svg()?.as_bytes())?;
            }
            for (name, _, png) in &ran.found.pictures {
                write(&beside.join(format!("{}-{name}.png", ran.paper.name)), png)?;
            }
        }
        Ok(())
    }

    /// Returns the statements that hold although their list has a reason why they cannot.
    pub fn surprises(&self) -> Vec<String> {
        let mut all = Vec::new();
        for (paper, list) in self.papers() {
            let holds = |it: &&Statement| {
                it.why.is_some() && Decided::of(it, self.ran, paper).outcome == Outcome::Holds
            };
            let held = list.statements.iter().filter(holds);
            all.extend(held.map(|statement| format!("{} of {}", statement.id, paper.name)));
        }
        all
    }

    /// Returns all statements, a line each.
    fn to_csv(&self) -> String {
        let quoted = |text: &str| format!("\"{}\"", text.replace('"', "\"\""));
        let mut text = "paper,place,statement,mark,outcome,ours,why\n".to_owned();
        for (paper, list) in self.papers() {
            for statement in &list.statements {
                let one = Decided::of(statement, self.ran, paper);
                let Statement { place, says, mark, .. } = statement;
                let (mark, outcome) = (mark.to_string(), one.outcome.to_string());
                let why = one.why.unwrap_or_default();
                let cells = [paper.name, place, says, &mark, &outcome, one.ours, why].map(quoted);
                text.push_str(&(cells.join(",") + "\n"));
            }
        }
        text
    }

    fn to_markdown(&self) -> String {
        let mut text = format!(
            "# Five papers, statement by statement\n\nWritten by `chunkperf reproduce --report docs`, {}, {}, in \
             {:.0} s. The programs of each paper run with this library in virtual time, on a *world*: hosts and \
             cables with the paper's costs, or with assumed ones where it has none. A few rows are measured on this \
             machine. Of a paper's statements, \
             \n\n- *inputs* feed the world;\n\
             - those that are *fitted* follow from it, or gave it a constant;\n\
             - all others were found by running;\n\
             - a number *holds* within 15 %, in the LAN study and GdH within 25 %; a number of tasks exactly;\n\
             - *differ* says nothing about who is right: the last column has the cause.\n\n\
             A digest is equal on every machine if all virtual figures are. [All statements]({FOLDER}/statements.csv) \
             with their places; below stand those with numbers that hold, and all that differ.\n",
            machine::today(),
            machine::description(),
            self.seconds,
        );
        for (paper, list) in self.papers() {
            let all: Vec<_> =
                list.statements.iter().map(|it| Decided::of(it, self.ran, paper)).collect();
            let of = |outcome| all.iter().filter(move |one| one.outcome == outcome);
            let digest = self.digest(|ran| ran.paper.name == paper.name);
            let counts = Outcome::ALL.map(|outcome| (outcome, of(outcome).count()));
            let counts = counts.into_iter().filter(|(_, count)| *count > 0);
            let fitted =
                of(Outcome::Holds).filter(|one| one.statement.mark == Mark::Fitted).count();
            let told = |(outcome, count): (Outcome, usize)| match outcome {
                Outcome::Holds => format!("{count} hold ({fitted} of them fitted)"),
                _ => format!("{count} {}", outcome.key()),
            };
            let counts: Vec<_> = counts.map(told).collect();
            // Writing into a string does not fail.
            let _ = write!(
                text,
                "\n## {}\n\n{}, {}: {} statements, of which {}. Digest `{digest:016x}`.\n",
                list.title,
                list.authors,
                list.year,
                all.len(),
                counts.join(", "),
            );
            for ran in self.ran.iter().filter(|ran| ran.paper.name == paper.name) {
                for Curves { name, title, .. } in &ran.found.curves {
                    let _ = write!(text, "\n![{title}]({FOLDER}/{}-{name}.svg)\n", paper.name);
                }
                for (name, title, _) in &ran.found.pictures {
                    let _ = write!(text, "\n![{title}]({FOLDER}/{}-{name}.png)\n", paper.name);
                }
            }
            let with_numbers = of(Outcome::Holds).filter(|one| !one.statement.numbers.is_empty());
            let lists: [(&str, Vec<_>); 3] = [
                ("Hold, of those with numbers", with_numbers.collect()),
                ("Differ", of(Outcome::Differs).collect()),
                ("Cannot be run here", of(Outcome::Cannot).collect()),
            ];
            for (heading, decided) in lists.iter().filter(|(_, decided)| !decided.is_empty()) {
                let has = |of: fn(&Decided<'_>) -> bool| decided.iter().any(|one| of(one));
                let columns = [
                    (*heading, true),
                    ("ours", has(|one| !one.ours.is_empty())),
                    ("why", has(|one| one.why.is_some())),
                ];
                let line = |cells: [&str; 3]| {
                    let cells = cells.iter().zip(columns).filter(|(_, (_, is_there))| *is_there);
                    let cells: Vec<&str> = cells.map(|(cell, _)| *cell).collect();
                    format!("| {} |\n", cells.join(" | "))
                };
                text.push('\n');
                text.push_str(&line(columns.map(|(name, _)| name)));
                text.push_str(&line(["---"; 3]));
                for one in decided {
                    let Statement { says, mark, .. } = one.statement;
                    let says = if *mark == Mark::Fitted {
                        format!("*fitted:* {says}")
                    } else {
                        says.clone()
                    };
                    text.push_str(&line([&says, one.ours, one.why.unwrap_or("")]));
                }
            }
        }
        text
    }
}
