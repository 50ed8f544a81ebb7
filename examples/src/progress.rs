//! A progress bar on standard error, shown only when that is a terminal.

use std::io::{IsTerminal as _, Write as _, stderr};
use std::time::Duration;

use chunkcomm::host::Instant;

const BAR_WIDTH: usize = 40;

/// Least time between two drawings: a terminal that draws each task would slow the farmer.
const DRAWN_EVERY: Duration = Duration::from_millis(50);

/// Line with the number of tasks done; gone when this is dropped.
#[derive(Debug)]
pub struct Progress {
    tasks: usize,
    done: usize,
    begun: Instant,
    /// `None` when nothing is shown.
    draw_at: Option<Instant>,
}

impl Progress {
    /// Begins to count the `tasks`; shows nothing when `hidden`, or when standard error is no terminal.
    #[must_use]
    pub fn new(tasks: usize, hidden: bool) -> Progress {
        let begun = Instant::now();
        let draw_at = (!hidden && stderr().is_terminal()).then_some(begun);
        Progress { tasks, done: 0, begun, draw_at }
    }

    /// Counts a task as done.
    pub fn advance(&mut self) {
        self.done += 1;
        let now = Instant::now();
        if self.draw_at.is_some_and(|at| at <= now) {
            self.draw_at = Some(now + DRAWN_EVERY);
            draw(&self.line(now - self.begun));
        }
    }

    fn line(&self, elapsed: Duration) -> String {
        let Progress { tasks, done, .. } = *self;
        let full = "█".repeat(BAR_WIDTH * done / tasks);
        let rate = done as f64 / elapsed.as_secs_f64();
        let left = (tasks - done) as f64 / rate;
        format!("{full:░<BAR_WIDTH$} {done}/{tasks} tasks, {rate:.0}/s, {left:.0}s left")
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.draw_at.is_some() {
            draw("");
        }
    }
}

/// Replaces the line of the terminal.
fn draw(line: &str) {
    // A terminal that is gone does not matter to the picture.
    let _ = write!(stderr().lock(), "\r\x1b[2K{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_fills_with_the_tasks() {
        let begun = Instant::now();
        let progress = Progress { tasks: 600, done: 150, begun, draw_at: None };
        let expected = format!(
            "{}{} 150/600 tasks, 75/s, 6s left",
            "█".repeat(BAR_WIDTH / 4),
            "░".repeat(3 * BAR_WIDTH / 4)
        );
        assert_eq!(progress.line(Duration::from_secs(2)), expected);
    }
}
