//! The figures of a run.

use chunkcomm_examples::farm_report::Report;
use serde_json::json;

use super::TOLERANCE;
use super::options::Options;

/// The figures that are reported.
pub(crate) struct Table {
    pub(crate) options: &'static Options,
    /// Numbers of ranks.
    pub(crate) groups: Vec<usize>,
    pub(crate) shape: [usize; 2],
    /// Seconds until the result of each round, at the slowest rank.
    pub(crate) seconds: Vec<f64>,
    /// Largest difference that the check found.
    pub(crate) difference: f64,
}

impl Table {
    /// Returns the lines to read.
    pub(crate) fn report(&self) -> String {
        let mut report = Report::default();
        let [rows, columns] = self.shape;
        report.row("images", format_args!("{} of {rows} x {columns}", self.options.images));
        let ranks: Vec<_> = self.groups.iter().map(ToString::to_string).collect();
        report.row("form", format_args!("{}, ranks {}", self.form(), ranks.join(",")));
        let (all, each) = (self.all(), self.each());
        report.row("time", format_args!("{all:.6} s, {each:.6} s an image"));
        report.row("written", self.options.output.display());
        if let Some(file) = &self.options.npy {
            report.row("", file.display());
        }
        if self.options.check {
            let (checked, difference) = (self.checked(), self.difference);
            report.row(
                "check",
                format_args!(
                    "{checked} elements differ from the definition by {difference:.1e} at most, allowed is \
                     {TOLERANCE:e}"
                ),
            );
        }
        report.text().to_owned()
    }

    /// Returns one line of JSON.
    pub(crate) fn json(&self) -> String {
        let [rows, columns] = self.shape;
        let line = json!({
            "program": "convolution",
            "form": self.form(),
            "ranks": self.groups,
            "shape": format!("{rows}x{columns}"),
            "images": self.options.images,
            "seconds": self.all(),
            "seconds_an_array": self.each(),
            "elements_checked": self.checked(),
            "largest_difference": self.options.check.then_some(self.difference),
            "tolerance": TOLERANCE,
        });
        format!("{line}\n")
    }

    fn form(&self) -> &'static str {
        if self.options.data_parallel { "data-parallel" } else { "pipelined" }
    }

    /// Seconds until the last result.
    fn all(&self) -> f64 {
        self.seconds.last().copied().unwrap_or_default()
    }

    /// Steady seconds a round: without the first quarter, in which the pipeline fills, and the last, in which it runs
    /// dry.
    fn each(&self) -> f64 {
        let rounds = self.seconds.len();
        let (from, to) = (rounds / 4, rounds * 3 / 4);
        match to - from {
            0 => self.all() / rounds as f64,
            steady => (self.seconds[to] - self.seconds[from]) / steady as f64,
        }
    }

    fn checked(&self) -> usize {
        if self.options.check { self.seconds.len() * self.shape[0] * self.shape[1] } else { 0 }
    }
}
