//! Progress on standard error, shown only when that is a terminal.

use std::io::{IsTerminal as _, Write as _, stderr};
use std::time::Duration;

use chunkcomm::host::Instant;
use chunkcomm_farm::Farm;

const BAR_WIDTH: usize = 40;

/// Shows a bar with the progress of the farm's run, until the farm ends; none when `hidden`, or when
/// standard error is no terminal.
pub fn show_progress(farm: &mut Farm, hidden: bool) {
    let Some(bar) = Bar::on_terminal(hidden) else { return };
    let begun = Instant::now();
    farm.on_progress(move |progress| {
        if let Some(tasks) = progress.total() {
            let ended = progress.given - progress.unanswered;
            bar.draw(&line([ended, progress.given, tasks], progress.done(), begun.elapsed()));
        }
    });
}

/// A line of the terminal; gone when this is dropped.
#[derive(Debug)]
pub struct Bar(());

impl Bar {
    /// Makes a line; none when `hidden`, or when standard error is no terminal.
    #[must_use]
    pub fn on_terminal(hidden: bool) -> Option<Bar> {
        (!hidden && stderr().is_terminal()).then(|| Bar(()))
    }

    /// Replaces the line of the terminal.
    pub fn draw(&self, line: &str) {
        // A terminal that is gone does not matter to the picture.
        let _ = write!(stderr().lock(), "\r\x1b[2K{line}");
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.draw("");
    }
}

/// Returns the line for the numbers of tasks that have ended, of those that were given, and of all; and for the
/// work that is done, in tasks.
///
/// The time that is left follows from the rate so far, until all tasks are given. Then some workers have
/// nothing to do: the rate falls, and one long task may last for any time.
fn line([ended, given, tasks]: [u64; 3], done: f64, elapsed: Duration) -> String {
    let full = "█".repeat((BAR_WIDTH as f64 * done / tasks as f64) as usize);
    let rate = done / elapsed.as_secs_f64();
    let bar = format!("{full:░<BAR_WIDTH$} {ended}/{tasks} tasks");
    if done == 0.0 {
        return bar;
    }
    if given == tasks {
        return format!("{bar}, {rate:.1}/s, the last {} run", tasks - ended);
    }
    let left = (tasks as f64 - done) / rate;
    format!("{bar}, {rate:.1}/s, {:.0}s left", left.ceil())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_fills_with_the_work_that_is_done() {
        let bar = |full| format!("{}{}", "█".repeat(full), "░".repeat(BAR_WIDTH - full));
        let two_seconds = Duration::from_secs(2);
        assert_eq!(line([0, 9, 600], 0.0, two_seconds), format!("{} 0/600 tasks", bar(0)));
        // Of 2 running tasks 5 quarters are done, together.
        let expected = format!("{} 3/16 tasks, 2.1/s, 6s left", bar(BAR_WIDTH / 4));
        assert_eq!(line([3, 5, 16], 4.25, two_seconds), expected);
    }

    #[test]
    fn no_time_is_named_while_the_last_tasks_run() {
        let text =
            |ended: u64, given| line([ended, given, 16], ended as f64, Duration::from_secs(12));
        assert!(text(15, 15).ends_with(" 15/16 tasks, 1.2/s, 1s left"), "{}", text(15, 15));
        // The rate so far would promise a second, and the task may be a long one.
        assert!(text(15, 16).ends_with(" 15/16 tasks, 1.2/s, the last 1 run"), "{}", text(15, 16));
    }
}
