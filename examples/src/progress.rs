//! Progress on standard error, shown only when that is a terminal: one line of it, whatever its width.

use std::io::{IsTerminal as _, stderr};
use std::time::Duration;

use chunkcomm_farm::Farm;
use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Steps of the bar for one task, or for all of a computation.
const STEPS: u64 = 1000;

/// Shows a bar with the progress of the farm's run, until the farm ends; none when `hidden`, or when
/// standard error is no terminal.
pub fn show_progress(farm: &mut Farm, hidden: bool) {
    let Some(bar) = Bar::on_terminal(hidden) else { return };
    farm.on_progress(move |progress| {
        if let Some(tasks) = progress.total() {
            let ended = progress.given - progress.unanswered;
            let (rate, left) = bar.fill(progress.done(), tasks);
            bar.0.set_message(of_run([ended, progress.given, tasks], rate, left));
        }
    });
}

/// A line of the terminal; gone when this is dropped.
#[derive(Debug)]
pub struct Bar(ProgressBar);

impl Bar {
    /// Makes a line; none when `hidden`, or when standard error is no terminal.
    #[must_use]
    pub fn on_terminal(hidden: bool) -> Option<Bar> {
        let draws = !hidden && stderr().is_terminal();
        draws.then(|| Bar::on(ProgressDrawTarget::stderr()))
    }

    fn on(target: ProgressDrawTarget) -> Bar {
        let bar = ProgressBar::with_draw_target(None, target);
        Bar(bar.with_style(style("{wide_msg}")))
    }

    /// Replaces the line of the terminal.
    pub fn draw(&self, line: &str) {
        self.0.set_message(line.to_owned());
    }

    /// Shows the fraction of a computation that is done, and the time that is left.
    pub fn draw_fraction(&self, computation: &str, done: f64) {
        let (_, left) = self.fill(done, 1);
        self.draw(&format!("{computation} {:.0} %{}", 100.0 * done, left_of(left)));
    }

    /// Fills a bar before the text. Returns the number of tasks that are done a second and the time
    /// that is left, both by the last 15 s or so: tasks may cost more or less than earlier ones.
    fn fill(&self, done: f64, all: u64) -> (f64, Duration) {
        if self.0.length().is_none() {
            self.0.set_style(style("{bar:14} {wide_msg}").progress_chars("█░"));
        }
        self.0.set_length(all * STEPS);
        self.0.set_position((done * STEPS as f64) as u64);
        (self.0.per_sec() / STEPS as f64, self.0.eta())
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("the template is right")
}

/// Returns the text for the numbers of tasks that have ended, of those that were given, and of all.
///
/// No time is named once all tasks are given. Then some workers have nothing to do: the rate falls, and
/// one long task may last for any time.
fn of_run([ended, given, tasks]: [u64; 3], rate: f64, left: Duration) -> String {
    let text = format!("{ended}/{tasks} tasks");
    match given == tasks {
        _ if rate == 0.0 => text,
        true => format!("{text}, the last {} run, {rate:.1}/s", tasks - ended),
        false => format!("{text}{}, {rate:.1}/s", left_of(left)),
    }
}

/// Returns the text of the time that is left, once it is known.
fn left_of(left: Duration) -> String {
    if left.is_zero() { String::new() } else { format!(", {:#} left", HumanDuration(left)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use indicatif::TermLike;
    use std::io;
    use std::sync::{Arc, Mutex};

    #[test]
    fn a_time_is_named_until_the_last_tasks_run() {
        let six = Duration::from_secs(6);
        assert_eq!(of_run([0, 9, 600], 0.0, Duration::ZERO), "0/600 tasks");
        assert_eq!(of_run([3, 5, 16], 2.125, six), "3/16 tasks, 6s left, 2.1/s");
        assert_eq!(of_run([15, 15, 16], 1.25, six), "15/16 tasks, 6s left, 1.2/s");
        // The rate so far would promise a second, and the task may be a long one.
        assert_eq!(of_run([15, 16, 16], 1.25, six), "15/16 tasks, the last 1 run, 1.2/s");
    }

    /// A terminal of some columns that notes its lines.
    #[derive(Clone, Debug)]
    struct Terminal {
        columns: u16,
        lines: Arc<Mutex<Vec<String>>>,
    }

    impl Terminal {
        fn note(&self, text: &str) -> io::Result<()> {
            self.lines.lock().unwrap().push(text.to_owned());
            Ok(())
        }
    }

    impl TermLike for Terminal {
        fn width(&self) -> u16 {
            self.columns
        }
        fn move_cursor_up(&self, lines: usize) -> io::Result<()> {
            assert_eq!(lines, 0, "it is one line");
            Ok(())
        }
        fn move_cursor_down(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_right(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_left(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn write_line(&self, line: &str) -> io::Result<()> {
            self.note(line)
        }
        fn write_str(&self, text: &str) -> io::Result<()> {
            self.note(text)
        }
        fn clear_line(&self) -> io::Result<()> {
            Ok(())
        }
        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_line_is_one_at_any_width() {
        for columns in [20, 40, 75, 200] {
            let lines = Arc::default();
            let terminal = Terminal { columns, lines: Arc::clone(&lines) };
            let bar = Bar::on(ProgressDrawTarget::term_like(Box::new(terminal)));
            bar.draw(&"a text of many words ".repeat(20));
            for done in 0..=600_u64 {
                let (rate, left) = bar.fill(done as f64, 600);
                bar.0.set_message(of_run([done, 600.min(done + 4), 600], rate, left));
            }
            bar.draw_fraction("sequential", 0.5);
            drop(bar);
            let lines = lines.lock().unwrap();
            let longest = lines.iter().map(|line| line.chars().count()).max().unwrap();
            assert_eq!(longest, usize::from(columns), "{lines:?}");
            let full = "█".repeat(14) + &" 600/600 tasks"[..usize::from(columns.min(28)) - 14];
            assert!(lines.iter().any(|line| line.starts_with(&full)), "{columns}: {lines:?}");
            assert!(lines.iter().any(|line| line.starts_with("███████░░░░░░░ seq")), "{columns}");
        }
    }
}
