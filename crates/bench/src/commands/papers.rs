//! The five papers whose mechanisms this workspace has: every statement of their texts beside ours.
//!
//! A paper is a list of *statements* (`papers/NAME.toml`) and of *runs* that decide them. The lists
//! were written before the runs; reasons why statements do not hold came after. A statement is *found*
//! (it came out of a run), *fitted* (it follows from the run's world, or a constant of it was taken from
//! it) or *input* (it feeds that world). Runs in virtual time have the same figures on every machine:
//! their *digest*.
//!
//! Reading order: this file (lists, runs and their findings), `report` (rows, lines, Markdown),
//! `curves` (pictures), `known` (figures that several runs need), then a module a paper.

mod curves;
mod delta;
mod eden;
mod gdh;
mod hpf;
mod known;
mod lan;
mod report;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::mpsc::channel;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;
use std::{fmt, thread};

use serde::Deserialize;

pub use curves::Curves;
pub use report::{Report, write};

use crate::failure::{Doing, Failure};
use crate::harness::machine;
use crate::table::{Column, Form, Row, Table};

/// All papers, in the order of their years.
pub static PAPERS: &[Paper] = &[
    Paper { name: "lan", list: lan::LIST_TEXT, runs: lan::RUNS },
    Paper { name: "hpf", list: include_str!("../../papers/hpf.toml"), runs: hpf::RUNS },
    Paper { name: "eden", list: include_str!("../../papers/eden.toml"), runs: eden::RUNS },
    Paper { name: "gdh", list: include_str!("../../papers/gdh.toml"), runs: gdh::RUNS },
    Paper { name: "delta", list: include_str!("../../papers/delta.toml"), runs: delta::RUNS },
];

/// A paper.
#[derive(Debug)]
pub struct Paper {
    /// Short name, as its options and files have it.
    pub name: &'static str,
    /// Text of its list.
    list: &'static str,
    /// Runs that decide its statements.
    pub runs: &'static [Run],
}

/// One or several runs of programs that decide some statements together.
#[derive(Debug, Clone, Copy)]
pub struct Run {
    /// Name, as the statements have it.
    pub name: &'static str,
    /// Where it runs.
    pub means: Means,
    /// Runs it.
    pub run: fn(&Scene<'_>, &mut Found) -> Result<(), Failure>,
}

impl Run {
    /// Makes a run in virtual time.
    const fn virtually(
        name: &'static str,
        run: fn(&Scene<'_>, &mut Found) -> Result<(), Failure>,
    ) -> Self {
        Self { name, means: Means::Virtual, run }
    }

    /// Makes a run on this machine.
    const fn really(
        name: &'static str,
        run: fn(&Scene<'_>, &mut Found) -> Result<(), Failure>,
    ) -> Self {
        Self { name, means: Means::Real, run }
    }
}

/// Where something runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Means {
    /// In virtual time, the same everywhere.
    Virtual,
    /// On this machine.
    Real,
}

/// The list of a paper.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct List {
    /// Title of the paper.
    pub title: String,
    /// Its authors.
    pub authors: String,
    /// Year of its publication.
    pub year: u32,
    /// Its statements, in their order.
    #[serde(rename = "statement")]
    pub statements: Vec<Statement>,
}

/// A statement of a paper.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Statement {
    /// Name, unique in its paper.
    pub id: String,
    /// Place of its sentence.
    pub place: String,
    /// Contents, in other words.
    pub says: String,
    /// Part that it has in ours.
    pub mark: Mark,
    /// Name of the run that decides it.
    pub run: Option<String>,
    /// Numbers of the paper that the run uses or compares.
    #[serde(default)]
    pub numbers: Vec<f64>,
    /// Reason why it cannot be run here.
    pub cannot: Option<String>,
    /// Reason why it does not hold for ours.
    pub why: Option<String>,
}

/// Part of a statement in our runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mark {
    /// It comes out of a run, or not.
    Found,
    /// It feeds the world of a run.
    Input,
    /// A constant of the world was taken from it.
    Fitted,
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Found => "found",
            Self::Input => "input",
            Self::Fitted => "fitted",
        })
    }
}

/// Sizes and programs of all runs.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Tiny sizes: only show that everything runs.
    pub quick: bool,
    /// Folder of the built examples.
    pub examples: PathBuf,
    /// A `chunkperf` without the feature `virtual`, for what is measured on this machine.
    pub real: Option<PathBuf>,
}

/// Surroundings of a run.
#[derive(Debug, Clone, Copy)]
pub struct Scene<'a> {
    /// Sizes and programs.
    pub settings: &'a Settings,
    list: &'a List,
}

impl Scene<'_> {
    /// Returns the numbers of a statement; none if there is no such statement.
    pub fn numbers(&self, id: &str) -> &[f64] {
        let statement = self.list.statements.iter().find(|statement| statement.id == id);
        statement.map_or(&[], |statement| &statement.numbers)
    }

    /// Returns the usual value, or that of a tiny run.
    pub fn sized<T>(&self, usual: T, quick: T) -> T {
        if self.settings.quick { quick } else { usual }
    }
}

/// A statement for ours.
#[derive(Debug, Clone)]
pub struct Verdict {
    /// Whether it holds.
    pub holds: bool,
    /// Figures behind that.
    pub ours: String,
}

/// Findings of a run.
#[derive(Debug, Default)]
pub struct Found {
    verdicts: BTreeMap<&'static str, Verdict>,
    tables: Vec<(String, Table)>,
    curves: Vec<Curves>,
    /// Names, headings and PNG.
    pictures: Vec<(&'static str, &'static str, Vec<u8>)>,
    figures: Vec<(&'static str, f64)>,
    missing: Option<String>,
}

impl Found {
    /// Notes whether a statement holds, and our figures in a few words.
    pub fn verdict(&mut self, id: &'static str, holds: bool, ours: impl Into<String>) {
        self.verdicts.insert(id, Verdict { holds, ours: ours.into() });
    }

    /// Adds a table.
    pub fn table(&mut self, title: impl Into<String>, columns: &[Column], rows: Vec<Row>) {
        let mut table = Table::new(columns, Form::Kept);
        rows.into_iter().for_each(|row| table.add(row));
        self.tables.push((title.into(), table));
    }

    /// Adds a picture of curves.
    pub fn curves(&mut self, curves: Curves) {
        self.curves.push(curves);
    }

    /// Adds a picture as PNG.
    pub fn picture(&mut self, name: &'static str, title: &'static str, png: Vec<u8>) {
        self.pictures.push((name, title, png));
    }

    /// Adds a figure to the row of a summary.
    pub fn figure(&mut self, key: &'static str, figure: f64) {
        self.figures.push((key, figure));
    }

    /// Notes that a program of the run is not there: nothing of it is decided.
    pub fn missing(&mut self, reason: impl Into<String>) {
        self.missing = Some(reason.into());
    }
}

/// A run that has ended.
#[derive(Debug)]
pub struct Ran {
    /// Its paper.
    pub paper: &'static Paper,
    /// The run.
    pub run: Run,
    found: Found,
    /// Real seconds.
    pub seconds: f64,
}

impl Paper {
    /// Returns the list of its statements.
    ///
    /// # Panics
    /// Never: a test reads the lists.
    pub fn list(&self) -> List {
        toml::from_str(self.list).expect("a test reads it")
    }

    fn try_run(&'static self, run: Run, settings: &Settings) -> Result<Ran, Failure> {
        let (list, begun) = (self.list(), Instant::now());
        let mut found = Found::default();
        (run.run)(&Scene { settings, list: &list }, &mut found)?;
        let of_run = |statement: &&Statement| statement.run.as_deref() == Some(run.name);
        let expected: Vec<&str> =
            list.statements.iter().filter(of_run).map(|statement| statement.id.as_str()).collect();
        let strange = found.verdicts.keys().find(|id| !expected.contains(*id)).copied();
        let open = expected.into_iter().find(|id| !found.verdicts.contains_key(id));
        let may_be_open = settings.quick || found.missing.is_some();
        if let Some(id) = strange.or(open.filter(|_| !may_be_open)) {
            let doing = format!("deciding {} of {}", id, self.name);
            return Err(Failure::broken(
                doing,
                format!("the list and the run {} differ", run.name),
            ));
        }
        let seconds = begun.elapsed().as_secs_f64();
        Ok(Ran { paper: self, run, found, seconds })
    }
}

/// Runs all of these, those in virtual time one a core, and tells each as it ends; they are returned in
/// their order.
///
/// # Errors
/// The first failure of a run.
pub fn run_all(
    runs: Vec<(&'static Paper, Run)>,
    settings: &Settings,
    mut each: impl FnMut(&Ran),
) -> Result<Vec<Ran>, Failure> {
    let (mut virtually, mut really) = (Vec::new(), Vec::new());
    for (place, (paper, run)) in runs.into_iter().enumerate() {
        let list = if run.means == Means::Virtual { &mut virtually } else { &mut really };
        list.push((place, paper, run));
    }
    let mut done = BTreeMap::new();
    for (threads, runs) in [(machine::core_count(), virtually), (1, really)] {
        let (queue, (told, ended)) = (Mutex::new(runs.into_iter()), channel());
        thread::scope(|scope| {
            for _ in 0..threads {
                let (told, queue) = (told.clone(), &queue);
                scope.spawn(move || {
                    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).next();
                    while let Some((place, paper, run)) = next() {
                        let ran = paper.try_run(run, settings);
                        // Nobody listens after a failure of another run.
                        if told.send((place, ran)).is_err() {
                            return;
                        }
                    }
                });
            }
            drop(told);
            for (place, ran) in ended {
                let ran = ran?;
                each(&ran);
                done.insert(place, ran);
            }
            Ok::<(), Failure>(())
        })
        .doing("reproducing")?;
    }
    Ok(done.into_values().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_list_is_read_and_each_statement_has_its_run() {
        for paper in PAPERS {
            let list = toml::from_str::<List>(paper.list);
            let list = list.unwrap_or_else(|error| panic!("{}: {error}", paper.name));
            let mut ids: Vec<&str> = list.statements.iter().map(|it| it.id.as_str()).collect();
            ids.sort_unstable();
            let count = ids.len();
            ids.dedup();
            assert_eq!(ids.len(), count, "two statements of {} have one name", paper.name);
            for Statement { id, run, cannot, mark, .. } in &list.statements {
                let has_run =
                    run.as_ref().is_some_and(|run| paper.runs.iter().any(|it| it.name == run));
                let alone = *mark == Mark::Input && run.is_none() && cannot.is_none();
                assert!(has_run != cannot.is_some() || alone, "{} of {}: {run:?}", id, paper.name);
            }
            for run in paper.runs {
                let decides = list.statements.iter().any(|it| it.run.as_deref() == Some(run.name));
                assert!(decides, "{} of {} decides nothing", run.name, paper.name);
            }
        }
    }
}
