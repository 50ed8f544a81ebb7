//! How long it took, size by size, and where the gain ends.

use super::Outcome;

/// Items of one size.
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

    /// How many times as fast chunking is: the median of the rounds, each of which has one of both.
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
        let gain = row.gain().map_or("-".to_owned(), |gain| format!("{gain:.2}x"));
        let [(unbuffered, one_each), (chunked, gathered)] = cells;
        let words = row.words;
        text += &format!(
            "{words:>7}  {unbuffered:>13}  {one_each:>10}  {chunked:>7}  {gathered:>10}  {gain:>7}\n"
        );
    }
    let gains: Vec<(u32, f64)> =
        rows.iter().filter_map(|row| Some((row.words, row.gain()?))).collect();
    if let Some((words, gain)) = gains.iter().copied().min_by(|a, b| a.1.total_cmp(&b.1)) {
        text += &format!("least gain: {gain:.2}x, of {words} words\n");
        text += &match crossover(gains, least_gain) {
            Some(words) => {
                format!("crossover: from {words} words on chunking gains less than {least_gain}x\n")
            }
            None => format!("crossover: none, the largest size gains {least_gain}x or more\n"),
        };
    }
    text
}

/// The smallest size from which on no gain reaches `least_gain`.
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
