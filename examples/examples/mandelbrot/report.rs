//! The table at the end.

use std::fmt::Write as _;
use std::time::Duration;

use chunkcomm::FlushReason;
use chunkcomm_examples::command_line::ratio;
use chunkcomm_farm::RunStats;

use super::options::Options;

/// Lines of names and values.
#[derive(Default)]
pub(crate) struct Report(String);

impl Report {
    fn row(&mut self, name: &str, value: impl std::fmt::Display) {
        // Writing into a string does not fail.
        let _ = writeln!(self.0, "{name:<16}{value}");
    }

    /// Compares the picture of the farm with the sequential one, where that was asked for; returns
    /// the number of pixels that differ.
    pub(crate) fn check(&mut self, options: &Options, steps: &[u16], sequential: &[u16]) -> usize {
        if !options.sequential_check {
            return 0;
        }
        let different = steps.iter().zip(sequential).filter(|(one, other)| one != other).count();
        let told = format!("{different} pixels differ from the sequential picture");
        self.row("check", told);
        different
    }

    pub(crate) fn text(&self) -> &str {
        &self.0
    }
}

/// Returns the report of a run: its work and its speed.
pub(crate) fn of(
    options: &Options,
    in_a_cluster: bool,
    sequential: Duration,
    stats: &RunStats,
) -> Report {
    let mut report = Report::default();
    let mut row = |name: &str, value: std::fmt::Arguments<'_>| report.row(name, value);
    let view = options.view();
    let speed_up = sequential.as_secs_f64() / stats.elapsed.as_secs_f64();
    let (width, height, iterations) = (view.width, view.height, view.iterations);
    row("picture", format_args!("{width} x {height} pixels, {iterations} iterations"));
    let workers = stats.workers.len();
    row("farm", format_args!("{}", options.farm.describe(workers, in_a_cluster)));
    row(
        "time",
        format_args!(
            "{:.4} s, sequential {:.4} s",
            stats.elapsed.as_secs_f64(),
            sequential.as_secs_f64()
        ),
    );
    row("speed-up", format_args!("{}", ratio(speed_up, 2)));
    let efficiency = ratio(speed_up / workers as f64, 2);
    row("efficiency", format_args!("{efficiency} (speed-up / workers)"));
    row("tasks", format_args!("{}, {:.0} a second", stats.tasks, stats.tasks_per_second()));
    for worker in &stats.workers {
        let busy = worker.busy.as_secs_f64();
        row("", format_args!("{}: {}, busy {busy:.4} s", worker.worker, worker.tasks));
    }
    let traffic = &stats.traffic;
    row(
        "packets",
        format_args!(
            "{} to the workers, {} from them",
            traffic.packets_sent, traffic.packets_received
        ),
    );
    row(
        "messages/packet",
        format_args!(
            "{:.2} to the workers, {:.2} from them",
            traffic.messages_per_packet_sent(),
            traffic.messages_per_packet_received()
        ),
    );
    row("flush reasons", format_args!("{}", flushes(stats)));
    row("written", format_args!("{}", options.output.display()));
    report
}

fn flushes(stats: &RunStats) -> String {
    let counted = FlushReason::ALL.map(|reason| (reason, stats.traffic.flushes(reason)));
    let seen = counted.iter().filter(|(_, count)| *count > 0);
    let words: Vec<_> = seen.map(|(reason, count)| format!("{} {count}", reason.name())).collect();
    if words.is_empty() { "none".into() } else { words.join(", ") }
}
