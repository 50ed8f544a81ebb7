//! Table of the times, size by size, and the size at which the gain ends.

use chunkcomm_coupled::by_policy::verdict;
use chunkcomm_examples::command_line::ratio;
use serde::{Deserialize, Serialize};

/// Number of items that the budgets are for.
const BUDGET_ITEMS: u32 = 10_000;

/// Least gain by words in an item: how many times as fast as unbuffered chunked must be.
const GAIN_MIN: [(u32, f64); 2] = [(1, 10.0), (300, 3.0)];

/// Least gain at every size: chunked is never more than 5 % slower.
const GAIN_MIN_ANYWHERE: f64 = 1.0 / 1.05;

/// Outcome of sending all items there and back.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Outcome {
    pub(super) seconds: f64,
    /// Number of packets with messages that the caller sent.
    pub(super) packets: u64,
}

/// Outcomes for items of one size.
pub(super) struct Row {
    words: u32,
    chunked: Vec<Outcome>,
    unbuffered: Vec<Outcome>,
}

impl Row {
    pub(super) fn new(words: u32) -> Row {
        Row { words, chunked: Vec::new(), unbuffered: Vec::new() }
    }

    pub(super) fn add(&mut self, gathered: bool, outcome: Outcome) {
        if gathered { self.chunked.push(outcome) } else { self.unbuffered.push(outcome) }
    }

    /// Returns how many times as fast chunking is: the median of the rounds, each of which has both.
    fn gain(&self) -> Option<f64> {
        let rounds = self.unbuffered.iter().zip(&self.chunked);
        middle(rounds.map(|(unbuffered, chunked)| unbuffered.seconds / chunked.seconds))
    }
}

fn middle(of: impl Iterator<Item = f64>) -> Option<f64> {
    let mut sorted: Vec<f64> = of.collect();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied()
}

pub(super) fn text(items: u32, alone: bool, least_gain: f64, rows: &[Row]) -> String {
    let place = if alone { ", some to their caller's own node" } else { "" };
    let mut text = format!("{items} items there and back{place}; each came back as it was\n");
    text += &format!(
        "{:>7}  {:>13}  {:>10}  {:>7}  {:>10}  {:>7}\n",
        "words", "unbuffered ms", "packets", "chunked", "packets", "gain"
    );
    for row in rows {
        let cells = [&row.unbuffered, &row.chunked].map(|outcomes| {
            let milliseconds = middle(outcomes.iter().map(|it| it.seconds * 1e3));
            let packets = middle(outcomes.iter().map(|it| it.packets as f64));
            let cell = |number: Option<f64>, digits| {
                number.map_or("-".to_owned(), |number| format!("{number:.digits$}"))
            };
            (cell(milliseconds, 2), cell(packets, 0))
        });
        let gain = row.gain().map_or("-".to_owned(), |gain| ratio(gain, 2) + "x");
        let [(unbuffered, one_each), (chunked, gathered)] = cells;
        let words = row.words;
        text += &format!(
            "{words:>7}  {unbuffered:>13}  {one_each:>10}  {chunked:>7}  {gathered:>10}  {gain:>7}\n"
        );
    }
    let gains: Vec<(u32, f64)> =
        rows.iter().filter_map(|row| Some((row.words, row.gain()?))).collect();
    if let Some((words, gain)) = gains.iter().copied().min_by(|a, b| a.1.total_cmp(&b.1)) {
        text += &format!("least gain: {}x, of {words} words\n", ratio(gain, 2));
        text += &match crossover(gains.clone(), least_gain) {
            Some(words) => {
                format!("crossover: from {words} words on chunking gains less than {least_gain}x\n")
            }
            None => format!("crossover: none, the largest size gains {least_gain}x or more\n"),
        };
        if items == BUDGET_ITEMS && !alone {
            text += &budgets(&gains, gain);
        }
    }
    text
}

/// Returns the verdicts on the budgets; `least` is the smallest gain.
fn budgets(gains: &[(u32, f64)], least: f64) -> String {
    let mut text = String::new();
    for (words, gain_min) in GAIN_MIN {
        if let Some((_, gain)) = gains.iter().find(|it| it.0 == words) {
            let verdict = verdict(*gain >= gain_min);
            text += &format!("budget of size {words}: {gain_min}x or more: {verdict}\n");
        }
    }
    let verdict = verdict(least >= GAIN_MIN_ANYWHERE);
    text += &format!("budget of all sizes: {GAIN_MIN_ANYWHERE:.2}x or more: {verdict}\n");
    text
}

/// Returns the smallest size from which on no gain reaches `least_gain`.
fn crossover(mut gains: Vec<(u32, f64)>, least_gain: f64) -> Option<u32> {
    gains.sort_by_key(|&(words, _)| words);
    let beyond = gains.iter().rev().take_while(|(_, gain)| *gain < least_gain);
    beyond.last().map(|&(words, _)| words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_crossover_is_where_the_gain_ends_for_good() {
        let gains = vec![(1000, 0.9), (1, 20.0), (10, 1.0), (100, 3.0), (300, 1.05)];
        assert_eq!(crossover(gains.clone(), 1.1), Some(300));
        assert_eq!(crossover(gains.clone(), 1.0), Some(1000));
        assert_eq!(crossover(gains.clone(), 0.9), None);
        assert_eq!(crossover(gains, 30.0), Some(1));
        assert_eq!(crossover(Vec::new(), 1.1), None);
    }

    #[test]
    fn a_budget_is_for_its_size_and_for_all() {
        let told = |gains: &[(u32, f64)], least| budgets(gains, least);
        let text = told(&[(1, 10.0), (5, 0.96), (300, 2.99)], 0.96);
        let expected = "budget of size 1: 10x or more: met\n\
                        budget of size 300: 3x or more: MISSED\n\
                        budget of all sizes: 0.95x or more: met\n";
        assert_eq!(text, expected);
        assert_eq!(told(&[(5, 0.95)], 0.95), "budget of all sizes: 0.95x or more: MISSED\n");
    }

    #[test]
    fn budgets_are_told_of_the_run_that_they_are_for() {
        let mut row = Row::new(1);
        for (gathered, seconds) in [(false, 12.0), (true, 1.0)] {
            row.add(gathered, Outcome { seconds, packets: 1 });
        }
        let rows = [row];
        for (items, alone, budgets) in [(10_000, false, 2), (10_000, true, 0), (9_999, false, 0)] {
            let text = text(items, alone, 1.1, &rows);
            assert_eq!(text.matches("budget of").count(), budgets, "{text}");
        }
    }

    #[test]
    fn a_gain_is_that_of_rounds_not_of_medians() {
        let mut row = Row::new(1);
        for (unbuffered, chunked) in [(4.0, 1.0), (80.0, 10.0), (10.0, 5.0)] {
            for (gathered, seconds) in [(false, unbuffered), (true, chunked)] {
                row.add(gathered, Outcome { seconds, packets: 1 });
            }
        }
        assert_eq!(row.gain(), Some(4.0));
        assert_eq!(Row::new(1).gain(), None);
    }
}
