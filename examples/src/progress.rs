//! A progress bar on standard error, shown only when that is a terminal.

use std::io::{IsTerminal as _, Write as _, stderr};
use std::time::Duration;

use chunkcomm::host::Instant;
use chunkcomm_farm::Farm;

const BAR_WIDTH: usize = 40;

/// Shows a bar with the progress of the farm's run, until the farm ends; none when `hidden`, or when
/// standard error is no terminal.
pub fn show_progress(farm: &mut Farm, hidden: bool) {
    if hidden || !stderr().is_terminal() {
        return;
    }
    let (bar, begun) = (Bar, Instant::now());
    farm.on_progress(move |progress| {
        if let Some(tasks) = progress.total() {
            let ended = progress.given - progress.unanswered;
            bar.draw(&line(ended, progress.done(), tasks, begun.elapsed()));
        }
    });
}

/// A line of the terminal; gone when this is dropped.
struct Bar;

impl Bar {
    /// Replaces the line of the terminal.
    fn draw(&self, line: &str) {
        // A terminal that is gone does not matter to the picture.
        let _ = write!(stderr().lock(), "\r\x1b[2K{line}");
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.draw("");
    }
}

/// Returns the line for a number of tasks that have ended, and for the work that is done of all tasks.
fn line(ended: u64, done: f64, tasks: u64, elapsed: Duration) -> String {
    let full = "█".repeat((BAR_WIDTH as f64 * done / tasks as f64) as usize);
    let rate = done / elapsed.as_secs_f64();
    let bar = format!("{full:░<BAR_WIDTH$} {ended}/{tasks} tasks");
    if done == 0.0 {
        return bar;
    }
    let left = (tasks as f64 - done) / rate;
    format!("{bar}, {rate:.1}/s, {left:.0}s left")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_fills_with_the_work_that_is_done() {
        let bar = |full| format!("{}{}", "█".repeat(full), "░".repeat(BAR_WIDTH - full));
        let two_seconds = Duration::from_secs(2);
        assert_eq!(line(0, 0.0, 600, two_seconds), format!("{} 0/600 tasks", bar(0)));
        // Of 2 running tasks 5 quarters are done, together.
        let expected = format!("{} 3/16 tasks, 2.1/s, 6s left", bar(BAR_WIDTH / 4));
        assert_eq!(line(3, 4.25, 16, two_seconds), expected);
    }
}
