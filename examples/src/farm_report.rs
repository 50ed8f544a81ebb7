//! The table that a program with a farm prints at its end.

use std::fmt::{self, Write as _};
use std::time::Duration;

use chunkcomm_farm::RunStats;

use crate::command_line::ratio;
use crate::farm_options::FarmOptions;

/// Lines of names and values.
#[derive(Clone, Debug, Default)]
pub struct Report(String);

impl Report {
    /// Adds a line.
    pub fn row(&mut self, name: &str, value: impl fmt::Display) {
        // Writing into a string does not fail.
        let _ = writeln!(self.0, "{name:<16}{value}");
    }

    /// Adds the lines of a run: its workers and its speed, the latter also beside the time of the
    /// `sequential` computation where there was one.
    pub fn run(
        &mut self,
        options: &FarmOptions,
        in_a_cluster: bool,
        sequential: Option<Duration>,
        stats: &RunStats,
    ) {
        let workers = stats.workers.len();
        self.row("farm", options.describe(workers, in_a_cluster));
        self.times(workers, sequential, stats.elapsed);
        let rate = stats.tasks_per_second();
        self.row("tasks", format_args!("{}, {rate:.0} a second", stats.tasks));
        if options.journal.is_some() {
            self.row("journal", format_args!("had the results of {} tasks", stats.recalled));
        }
        self.workers(stats);
        self.traffic(stats);
    }

    fn times(&mut self, workers: usize, sequential: Option<Duration>, elapsed: Duration) {
        let elapsed = elapsed.as_secs_f64();
        let Some(sequential) = sequential else {
            return self.row("time", format_args!("{elapsed:.4} s"));
        };
        let sequential = sequential.as_secs_f64();
        let speed_up = sequential / elapsed;
        self.row("time", format_args!("{elapsed:.4} s, sequential {sequential:.4} s"));
        self.row("speed-up", ratio(speed_up, 2));
        let efficiency = ratio(speed_up / workers as f64, 2);
        self.row("efficiency", format_args!("{efficiency} (speed-up / workers)"));
    }

    /// Adds a table of the workers: their tasks, and the times of their threads in seconds.
    fn workers(&mut self, stats: &RunStats) {
        let seconds = |time: Duration| format!("{:.4}", time.as_secs_f64());
        let mut rows = vec![["", "tasks", "busy", "for farmer", "for wire"].map(String::from)];
        for worker in &stats.workers {
            let times = [worker.busy, worker.waited_for_farmer, worker.waited_for_wire];
            let [busy, farmer, wire] = times.map(seconds);
            let name = match worker.virtual_workers {
                0 => worker.worker.to_string(),
                count => format!("{}, {count} virtual", worker.worker),
            };
            rows.push([name, worker.tasks.to_string(), busy, farmer, wire]);
        }
        let width = rows.iter().map(|row| row[0].len()).max().unwrap_or_default();
        for [name, tasks, busy, farmer, wire] in rows {
            let times = format_args!("{busy:>10} {farmer:>11} {wire:>11}");
            self.row("", format_args!("{name:<width$} {tasks:>8} {times}"));
        }
    }

    fn traffic(&mut self, stats: &RunStats) {
        let traffic = &stats.traffic;
        self.row(
            "packets",
            format_args!(
                "{} to the workers, {} from them",
                traffic.message_packets_sent, traffic.packets_received
            ),
        );
        self.row(
            "messages/packet",
            format_args!(
                "{:.2} to the workers, {:.2} from them",
                traffic.messages_per_packet_mean(),
                traffic.messages_received as f64 / traffic.packets_received.max(1) as f64
            ),
        );
        self.row("flush reasons", flushes(stats));
    }

    /// Compares the pixels of the farm with the sequential ones and adds a line; returns the number
    /// of pixels that differ.
    pub fn check<P: PartialEq>(&mut self, pixels: &[P], sequential: &[P]) -> usize {
        let different = pixels.iter().zip(sequential).filter(|(one, other)| one != other).count();
        self.row("check", format_args!("{different} pixels differ from the sequential picture"));
        different
    }

    /// Returns the lines so far.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.0
    }
}

fn flushes(stats: &RunStats) -> String {
    let seen = stats.traffic.flushes.iter().filter(|(_, count)| *count > 0);
    let words: Vec<_> = seen.map(|(reason, count)| format!("{} {count}", reason.name())).collect();
    if words.is_empty() { "none".into() } else { words.join(", ") }
}
