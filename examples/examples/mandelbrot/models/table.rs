//! The report of rank 0.

use std::time::Duration;

use chunkcomm_examples::command_line::ratio;
use chunkcomm_examples::farm_report::Report;

use super::options::{Idiom, Model, Options, Switch};

/// Figures of a run.
pub(crate) struct Table {
    pub(crate) options: &'static Options,
    pub(crate) nodes: u32,
    pub(crate) workers: usize,
    /// Workers at the end.
    pub(crate) left: usize,
    pub(crate) tasks: usize,
    pub(crate) messages: u64,
    pub(crate) took: Duration,
    pub(crate) sequential: Duration,
    pub(crate) idiom: &'static str,
    /// Source of the farm.
    pub(crate) source: &'static str,
    pub(crate) buffering: &'static str,
    /// Number of pixels that differ from the sequential picture, if they were compared.
    pub(crate) different: Option<usize>,
}

impl Table {
    /// Returns the lines of code of the farm: those that are neither empty nor comments.
    fn lines(&self) -> usize {
        let lines = self.source.lines().map(str::trim);
        lines.filter(|line| !line.is_empty() && !line.starts_with("//")).count()
    }

    fn model(&self) -> &'static str {
        if self.options.model == Model::A { "a" } else { "b" }
    }

    fn buffering(&self) -> &'static str {
        if self.options.double_buffering == Switch::On { self.buffering } else { "none" }
    }

    fn us_per_task(&self) -> f64 {
        1e6 * self.took.as_secs_f64() / self.tasks as f64
    }

    fn messages_per_task(&self) -> f64 {
        self.messages as f64 / self.tasks as f64
    }

    /// Returns one line of JSON.
    pub(crate) fn json(&self) -> String {
        let (seconds, sequential) = (self.took.as_secs_f64(), self.sequential.as_secs_f64());
        let line = serde_json::json!({
            "program": "models",
            "idiom": self.idiom,
            "model": self.model(),
            "double_buffering": self.buffering(),
            "nodes": self.nodes,
            "workers": self.workers,
            "workers_left": self.left,
            "tasks": self.tasks,
            "lines": self.lines(),
            "messages_per_task": self.messages_per_task(),
            "seconds": seconds,
            "us_per_task": self.us_per_task(),
            "sequential_seconds": sequential,
            "speed_up": sequential / seconds,
            "different_pixels": self.different,
        });
        format!("{line}\n")
    }

    /// Returns a table for people.
    pub(crate) fn report(&self) -> String {
        let mut report = Report::default();
        let (width, height) = self.options.picture.size;
        let iterations = self.options.picture.iterations;
        report.row("picture", format_args!("{width} x {height} pixels, {iterations} iterations"));
        let model = if self.options.idiom == Idiom::Farm { "this workspace" } else { self.idiom };
        report.row("farm", format_args!("as in {model}, {} lines of code", self.lines()));
        let (nodes, workers) = (self.nodes, self.workers);
        report.row(
            "nodes",
            format_args!("{nodes}, of which {workers} work (model {})", self.model()),
        );
        report.row("double-buffered", self.buffering());
        let (seconds, us) = (self.took.as_secs_f64(), self.us_per_task());
        report.row("tasks", format_args!("{}, {us:.1} us a task", self.tasks));
        report.row("messages", format_args!("{:.2} a task, with rank 0", self.messages_per_task()));
        let sequential = self.sequential.as_secs_f64();
        report.row("time", format_args!("{seconds:.4} s, sequential {sequential:.4} s"));
        report.row("speed-up", ratio(sequential / seconds, 2));
        report.row("written", self.options.output.display());
        if let Some(path) = &self.options.npy {
            report.row("", path.display());
        }
        if let Some(different) = self.different {
            let verdict = match different {
                0 => "equal to the sequential picture".to_owned(),
                _ => format!("{different} pixels differ from the sequential picture"),
            };
            report.row("check", verdict);
        }
        report.text().to_owned()
    }
}
