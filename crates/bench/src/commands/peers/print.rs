//! The table as lines, as Markdown and as rows of JSON.

use std::fmt::Write as _;
use std::time::Duration;

use super::lines::{LINES, Line};
use super::{Cell, Column, Measured};
use crate::harness::machine;
use crate::harness::slices::{SLICES_MIN, name_of};
use crate::peers::System;
use crate::stats::{Ratio, median};
use crate::table::{Row, aligned};

/// Cells as they come, and where and when they were measured.
pub(super) struct Table {
    systems: Vec<System>,
    cells: Vec<Cell>,
    machine: String,
    date: String,
}

impl Table {
    /// Makes an empty table of these systems.
    pub(super) fn new(systems: Vec<System>) -> Self {
        let (machine, date) = (machine::description(), machine::today());
        Self { systems, cells: Vec::new(), machine, date }
    }

    /// Adds the next cell.
    pub(super) fn add(&mut self, cell: Cell) {
        self.cells.push(cell);
    }

    /// Tells the last cell on standard error.
    pub(super) fn tell(&self, count: usize, elapsed: Duration) {
        let Some(cell) = self.cells.last() else { return };
        let told = match &cell.measured {
            Ok(measured) => format!("{} {}", figure(measured.figure()), cell.line.unit),
            Err(reason) => reason.clone(),
        };
        let (name, seconds) = (cell.column.name(), elapsed.as_secs());
        let done = self.cells.len();
        eprintln!("chunkperf: {done} of {count}, {seconds} s: {}, {name}: {told}", cell.line.name);
    }

    /// Returns the last cell as a row.
    pub(super) fn last_row(&self) -> Row {
        let mut row = Row::default();
        let Some(cell) = self.cells.last() else { return row };
        let runtime = if cell.line.spinning { "busy-poll:1" } else { "ambient:1" };
        let measured = cell.measured.as_ref().ok();
        let ratio = measured.map(Measured::ratio);
        row.set("bench", "peers")
            .set("transport", "tcp")
            .set("runtime", runtime)
            .set("line", cell.line.name)
            .set("unit", cell.line.unit)
            .set("direction", if cell.line.less_is_better() { "at most" } else { "at least" })
            .set("system", cell.column.name())
            .set("version", measured.map(|one| one.version.clone()))
            .set("flavour", measured.map(|one| one.flavour))
            .set("figure", measured.map(Measured::figure))
            .set("ours", measured.map(|one| median(&one.ours)))
            .set("ratio", ratio.map(|ratio| ratio.median))
            .set("ratio_low", ratio.map(|ratio| ratio.low))
            .set("ratio_high", ratio.map(|ratio| ratio.high))
            .set("pairs", measured.map(|one| one.theirs.len()))
            .set("wins", measured.map(|_| cell.wins()))
            .set("reason", cell.measured.as_ref().err().cloned())
            .set("machine", self.machine.as_str())
            .set("date", self.date.as_str());
        row
    }

    fn of(&self, line: &Line) -> impl Iterator<Item = &Cell> {
        self.cells.iter().filter(move |cell| cell.line.name == line.name)
    }

    /// Returns our figure of a line: the median of all pairs, whatever stood beside ours.
    fn ours(&self, line: &Line) -> Option<f64> {
        let measured = self.of(line).filter_map(|cell| cell.measured.as_ref().ok());
        let all: Vec<f64> = measured.flat_map(|one| one.ours.iter().copied()).collect();
        (!all.is_empty()).then(|| median(&all))
    }

    fn is_won(&self, line: &Line) -> bool {
        self.of(line).any(Cell::wins)
    }

    /// Returns a line for each system in each line of the table.
    pub(super) fn to_lines(&self) -> String {
        let heading = ["", "system", "figure", "ours / it", "spread", "settings"];
        let mut lines = vec![heading.map(str::to_owned).to_vec()];
        for line in LINES {
            let Some(ours) = self.ours(line) else { continue };
            lines.push(vec![named(line, self.is_won(line)), "ours".to_owned(), figure(ours)]);
            for cell in self.of(line) {
                let name = cell.column.name();
                let star = if cell.wins() { "*" } else { "" };
                lines.push(match &cell.measured {
                    Ok(one) => {
                        let Ratio { median, low, high } = one.ratio();
                        let spread = format!("{}..{}", times(low), times(high));
                        let ratio = format!("{}{star}", times(median));
                        let flavour = one.flavour.to_owned();
                        vec![String::new(), name, figure(one.figure()), ratio, spread, flavour]
                    }
                    Err(_) => [String::new(), name, "-".to_owned()].to_vec(),
                });
            }
        }
        format!("{}\n\n{}\n{}", self.told(), aligned(&lines), self.notes())
    }

    /// Returns a table with a column a system.
    pub(super) fn to_markdown(&self) -> String {
        let names: Vec<String> = self.systems.iter().map(|&system| self.heading(system)).collect();
        let ours = concat!("ours ", env!("CARGO_PKG_VERSION"));
        let mut text = format!("{}\n\n| | {ours} | {} |\n", self.told(), names.join(" | "));
        // Writing into a string does not fail.
        let _ = writeln!(text, "|---|{}", "---:|".repeat(names.len() + 1));
        for line in LINES {
            let Some(ours) = self.ours(line) else { continue };
            let _ = write!(text, "| {} | {}", named(line, self.is_won(line)), figure(ours));
            if let Some(many) = self.of(line).find(|cell| cell.column == Column::Many)
                && let Ok(measured) = &many.measured
            {
                let _ = write!(text, "; many {}", figure(measured.figure()));
            }
            for &system in &self.systems {
                let cell = self.of(line).find(|cell| cell.column == Column::Of(system));
                let _ = write!(text, " | {}", cell.map_or(String::new(), in_markdown));
            }
            text.push_str(" |\n");
        }
        format!("{text}\n{}", self.notes())
    }

    /// Returns name and version of a system, as far as it has told them.
    fn heading(&self, system: System) -> String {
        let of = |cell: &&Cell| cell.column == Column::Of(system);
        let told = self.cells.iter().filter(of).find_map(|cell| cell.measured.as_ref().ok());
        told.map_or_else(|| name_of(system), |one| one.version.clone())
    }

    /// Returns how, where and when the table was measured.
    fn told(&self) -> String {
        format!(
            "chunkperf peers, {}, {}. Medians of {SLICES_MIN} pairs in turns over loopback TCP \
             between two processes, a core each; ours / it with the lowest and the highest pair. \
             Less is better where the unit is us or B. Of two settings of a system, the better \
             counts.",
            self.date, self.machine
        )
    }

    /// Returns the versions, and the reasons of figures that are missing.
    fn notes(&self) -> String {
        let mut versions: Vec<String> = Vec::new();
        let mut missing: Vec<String> = Vec::new();
        for cell in &self.cells {
            match &cell.measured {
                Ok(one) => versions.push(one.version.clone()),
                Err(reason) => missing.push(format!("{}: {reason}", cell.column.name())),
            }
        }
        for list in [&mut versions, &mut missing] {
            let mut known = Vec::new();
            list.retain(|one| {
                !known.contains(one) && {
                    known.push(one.clone());
                    true
                }
            });
        }
        let mut text = format!("Versions: {}.\n", versions.join(", "));
        if LINES.iter().any(|line| self.is_won(line)) {
            text.push_str("* another system is better on this line.\n");
        }
        for reason in missing {
            let _ = writeln!(text, "- {reason}");
        }
        text
    }
}

fn named(line: &Line, is_won: bool) -> String {
    format!("{}, {}{}", line.name, line.unit, if is_won { " *" } else { "" })
}

fn in_markdown(cell: &Cell) -> String {
    let Ok(measured) = &cell.measured else { return "-".to_owned() };
    let Ratio { median, low, high } = measured.ratio();
    let told = figure(measured.figure());
    let told = if cell.wins() { format!("**{told}**") } else { told };
    format!("{told}; {} ({}-{})", times(median), times(low), times(high))
}

/// Returns a ratio with two decimals. That to nothing is no number.
fn times(ratio: f64) -> String {
    if ratio.is_finite() { format!("{ratio:.2}") } else { "-".to_owned() }
}

/// Returns a figure with three digits and a decimal prefix.
fn figure(number: f64) -> String {
    let (divisor, prefix) = match number.abs() {
        n if n >= 1e9 => (1e9, " G"),
        n if n >= 1e6 => (1e6, " M"),
        n if n >= 1e3 => (1e3, " k"),
        _ => (1.0, ""),
    };
    let number = number / divisor;
    let digits = match number.abs() {
        n if n >= 100.0 => 0,
        n if n >= 10.0 => 1,
        _ => 2,
    };
    format!("{number:.digits$}{prefix}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_three_digits() {
        let shown = [0.123, 9.876, 51.23, 999.4, 4_100.0, 98_765_432.0, 6.5e9].map(figure);
        assert_eq!(shown, ["0.12", "9.88", "51.2", "999", "4.10 k", "98.8 M", "6.50 G"]);
    }

    #[test]
    fn a_line_that_another_system_wins_is_marked() {
        let cell = |line: &'static Line, system, ours: f64, theirs: f64| {
            let (ours, theirs) = (vec![ours; 3], vec![theirs; 3]);
            let version = format!("{} 1.2", name_of(system));
            let measured = Ok(Measured { version, flavour: "docs", ours, theirs });
            Cell { line, column: Column::Of(system), measured }
        };
        let mut table = Table::new(vec![System::Framed, System::Zmq]);
        table.add(cell(&LINES[0], System::Framed, 8e6, 2e6));
        table.add(cell(&LINES[0], System::Zmq, 8e6, 1e6));
        let reason = Err("it is not built".to_owned());
        table.add(cell(&LINES[3], System::Framed, 50.0, 40.0));
        table.add(Cell { measured: reason, ..cell(&LINES[3], System::Zmq, 1.0, 1.0) });
        assert_eq!(
            table.last_row().get("reason").and_then(|it| it.as_str()),
            Some("it is not built")
        );
        let markdown = table.to_markdown();
        let lines: Vec<&str> = markdown.lines().filter(|line| line.starts_with("| ")).collect();
        assert_eq!(
            lines,
            [
                concat!("| | ours ", env!("CARGO_PKG_VERSION"), " | framed 1.2 | zmq 1.2 |"),
                "| one way 16 B, messages/s | 8.00 M | 2.00 M; 4.00 (4.00-4.00) | 1.00 M; 8.00 (8.00-8.00) |",
                "| round trip asleep, p50, us * | 50.0 | **40.0**; 1.25 (1.25-1.25) | - |",
            ]
        );
        assert!(markdown.contains("Versions: framed 1.2, zmq 1.2.\n* another"), "{markdown}");
        let text = table.to_lines();
        assert!(text.contains("1.25*") && text.contains("- zmq: it is not built"), "{text}");
    }
}
