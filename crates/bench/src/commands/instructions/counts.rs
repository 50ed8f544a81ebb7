//! A table of counts, as it is committed.
//!
//! ```text
//! date 2026-11-30
//! rustc rustc_1.95.0
//! libc glibc_2.36
//! lone        9467  726
//! ```

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::baseline::mpich::output_of;
use crate::failure::{Doing, Failure};
use crate::harness::machine;
use crate::table::aligned;

/// Part of a count by which it may grow: 5 %.
const MORE: f64 = 0.05;

/// Lines by which a small number of them may grow: 8. Functions begin anywhere in a line, so that another
/// order of them has a few more or fewer.
const LINES_MORE: u64 = 8;

/// Longest time in which a compiler tells its version: 30 s.
const DEADLINE: Duration = Duration::from_secs(30);

/// Counts of one thing that a program repeats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Count {
    /// Instructions in user space.
    pub(super) instructions: u64,
    /// Distinct lines of 64 bytes of code that are executed half of the times, or more often.
    pub(super) lines: u64,
}

/// Counts by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) rows: Vec<(String, Count)>,
}

impl Counts {
    /// Reads a table.
    pub(super) fn from_file(file: &Path) -> Result<Self, Failure> {
        let doing = format!("reading {}", file.display());
        let text = std::fs::read_to_string(file).doing(&doing)?;
        Self::parse(&text).map_err(|line| Failure::broken(doing, format!("no row is '{line}'")))
    }

    /// Reads the rows of a table; fails with the line that is none.
    fn parse(text: &str) -> Result<Self, &str> {
        let mut rows = Vec::new();
        for line in text.lines() {
            let mut words = line.split_whitespace();
            let name = words.next().unwrap_or_default();
            if matches!(name, "date" | "rustc" | "libc") {
                continue;
            }
            let mut number = || words.next()?.parse().ok();
            let (Some(instructions), Some(lines)) = (number(), number()) else { return Err(line) };
            rows.push((name.to_owned(), Count { instructions, lines }));
        }
        Ok(Self { rows })
    }

    /// Returns the table, with this day and the versions of what has compiled the programs.
    pub(super) fn to_text(&self) -> Result<String, Failure> {
        let said = |name: &str, argument: &str| {
            let mut command = Command::new(name);
            command.arg(argument);
            let output = output_of(command, name, DEADLINE)?;
            Ok::<_, Failure>(String::from_utf8_lossy(&output.stdout).trim().replace(' ', "_"))
        };
        let (rustc, libc) = (said("rustc", "--version")?, said("getconf", "GNU_LIBC_VERSION")?);
        let rows = self.rows.iter().map(|(name, count)| {
            vec![name.clone(), count.instructions.to_string(), count.lines.to_string()]
        });
        let rows = aligned(&rows.collect::<Vec<_>>());
        Ok(format!("date {}\nrustc {rustc}\nlibc {libc}\n{rows}", machine::today()))
    }

    /// Returns a sentence for each count that exceeds its limit by more than 5 %, or has none.
    pub(super) fn above(&self, limits: &Self) -> Vec<String> {
        let mut sentences = Vec::new();
        for (name, count) in &self.rows {
            let Some((_, limit)) = limits.rows.iter().find(|(limited, _)| limited == name) else {
                sentences.push(format!("{name}: the table does not have it"));
                continue;
            };
            for (what, counted, limit, more) in [
                ("instructions", count.instructions, limit.instructions, 0),
                ("lines of code", count.lines, limit.lines, LINES_MORE),
            ] {
                if counted as f64 > (limit as f64 * (1.0 + MORE)).max((limit + more) as f64) {
                    sentences.push(format!("{name}: {counted} {what}, in the table {limit}"));
                }
            }
        }
        sentences
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_may_exceed_its_limit_by_a_twentieth() {
        let limits = "date 2026-11-30\nrustc x\nlibc y\nlone  1000  100\ncall 2000 200\ntask 9 7\n";
        let limits = Counts::parse(limits).expect("a table");
        let counts = "lone 1050 108\ncall 2101 211\ntask 9 16\nidle 1 1\n";
        let counts = Counts::parse(counts).expect("a table");
        assert_eq!(limits.above(&limits), Vec::<String>::new());
        assert_eq!(
            counts.above(&limits),
            [
                "call: 2101 instructions, in the table 2000",
                "call: 211 lines of code, in the table 200",
                "task: 16 lines of code, in the table 7",
                "idle: the table does not have it"
            ]
        );
        assert_eq!(Counts::parse("lone 7\n"), Err("lone 7"));
    }

    #[test]
    #[cfg(target_env = "gnu")]
    fn a_table_is_read_as_it_was_written() {
        let counts = Counts::parse("lone 1050 105\n").expect("a table");
        let text = counts.to_text().expect("the versions are told");
        assert_eq!(Counts::parse(&text), Ok(counts));
        assert!(text.lines().any(|line| line.starts_with("rustc")), "{text}");
    }
}
