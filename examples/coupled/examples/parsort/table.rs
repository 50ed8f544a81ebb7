//! Table of the times.

use chunkcomm_coupled::by_policy::verdict;
use chunkcomm_examples::command_line::ratio;
use serde::{Deserialize, Serialize};

use super::ways::Way;

/// Count of numbers and of workers that the budget `SPEEDUP_MIN` is for.
const BUDGET_COUNT: usize = 100_000;
const BUDGET_WORKERS: u32 = 2;
/// Least speed-up of chunked over unbuffered, as a factor.
const SPEEDUP_MIN: f64 = 15.0;

/// Count of numbers that the budget `TIMES_MAX` is for.
const BUDGET_COUNT_SWEPT: usize = 5_000_000;
/// Largest ratio of chunked's time to the best time by hand, of several sizes of chunk.
const TIMES_MAX: f64 = 1.15;

/// Outcome of one sorting.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Outcome {
    pub(super) seconds: f64,
    /// Whether the result equals that of another sort.
    pub(super) right: bool,
    /// Numbers of messages and packets that the caller sent.
    pub(super) messages: u64,
    pub(super) packets: u64,
}

/// Outcome of one way by one policy.
pub(super) struct Row {
    way: Way,
    policy: &'static str,
    /// Median of the outcomes, by time.
    middle: Outcome,
}

impl Row {
    pub(super) fn new(way: Way, policy: &'static str, mut outcomes: Vec<Outcome>) -> Row {
        outcomes.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
        Row { way, policy, middle: outcomes.swap_remove(outcomes.len() / 2) }
    }
}

/// Returns the table, then the ratios that count.
pub(super) fn text(count: usize, workers: u32, alone: bool, rows: &[Row]) -> String {
    let place = if alone { ", some at their caller's own node" } else { "" };
    let mut text = format!("{count} numbers, {workers} workers{place}; all sorted right\n");
    text += &format!(
        "{:<26}  {:<10}  {:>9}  {:>9}  {:>8}\n",
        "way", "policy", "seconds", "messages", "packets"
    );
    for Row { way, policy, middle } in rows {
        let Outcome { seconds, messages, packets, .. } = middle;
        let way = way.to_string();
        text += &format!("{way:<26}  {policy:<10}  {seconds:>9.4}  {messages:>9}  {packets:>8}\n");
    }
    let plain = |policy| {
        let row = rows.iter().find(|row| row.way == Way::Plain && row.policy == policy);
        row.map(|row| row.middle.seconds)
    };
    let Some(chunked) = plain("chunked") else { return text };
    if let Some(unbuffered) = plain("unbuffered") {
        let times = unbuffered / chunked;
        let shown = ratio(times, 1);
        text += &format!("plain: chunked is {shown} times as fast as unbuffered\n");
        if count == BUDGET_COUNT && workers == BUDGET_WORKERS && !alone {
            let verdict = verdict(times >= SPEEDUP_MIN);
            text += &format!("budget: {SPEEDUP_MIN} times or more: {verdict}\n");
        }
    }
    let by_hand = rows.iter().filter(|row| row.way != Way::Plain);
    if let Some(best) = by_hand.min_by(|a, b| a.middle.seconds.total_cmp(&b.middle.seconds)) {
        let (times, Row { way, policy, .. }) = (chunked / best.middle.seconds, best);
        text += &format!(
            "plain, chunked: {} times the time of the best by hand ({way}, {policy})\n",
            ratio(times, 2)
        );
        let swept = rows.iter().filter(|row| row.policy == "chunked").count() > 3;
        if count == BUDGET_COUNT_SWEPT && swept && !alone {
            let verdict = verdict(times <= TIMES_MAX);
            text += &format!("budget: {TIMES_MAX} times or less: {verdict}\n");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(way: Way, policy: &'static str, seconds: f64) -> Row {
        Row::new(way, policy, vec![Outcome { seconds, right: true, messages: 1, packets: 1 }])
    }

    #[test]
    fn tiny_inputs_have_ratios_that_say_something() {
        let rows = [
            row(Way::Plain, "unbuffered", 0.0003),
            row(Way::Plain, "chunked", 0.01),
            row(Way::ChunkedBoth(10), "chunked", 4.0),
        ];
        let text = text(0, 2, false, &rows);
        assert!(text.contains("chunked is 0.030 times as fast as"), "{text}");
        assert!(text.contains("plain, chunked: 0.0025 times the time"), "{text}");
    }

    #[test]
    fn budgets_are_told_of_the_runs_that_they_are_for() {
        let rows = |chunked| {
            let by_hand = [10, 100, 1000].map(|size| row(Way::ChunkedBoth(size), "chunked", 1.0));
            let plain = [("unbuffered", 16.0), ("chunked", chunked)];
            let plain = plain.map(|(policy, seconds)| row(Way::Plain, policy, seconds));
            plain.into_iter().chain(by_hand).collect::<Vec<_>>()
        };
        let told = |count, workers, alone, chunked| {
            let text = text(count, workers, alone, &rows(chunked));
            let told = text.lines().filter_map(|line| line.strip_prefix("budget: "));
            told.collect::<Vec<_>>().join(", ")
        };
        assert_eq!(told(100_000, 2, false, 1.0), "15 times or more: met");
        assert_eq!(told(100_000, 2, false, 1.1), "15 times or more: MISSED");
        assert_eq!(told(5_000_000, 2, false, 1.14), "1.15 times or less: met");
        assert_eq!(told(5_000_000, 2, false, 1.16), "1.15 times or less: MISSED");
        assert_eq!(told(100_000, 3, false, 1.0), "");
        assert_eq!(told(100_000, 2, true, 1.0), "");
        assert_eq!(told(4_000_000, 2, false, 1.0), "");
    }
}
