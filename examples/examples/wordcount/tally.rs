//! Words and their numbers of occurrences.
//!
//! A word is a run of Unicode letters and digits, in lower case: `don't` is two words.

use std::collections::{BTreeMap, HashMap};
use std::error::Error;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use chunkcomm::host::{self, RandomState};
use chunkcomm_examples::command_line::write_out;
use chunkcomm_examples::program::on_a_thread;

/// Number of occurrences of each word.
pub(crate) type Tally = HashMap<String, u64, RandomState>;

/// Work of sending a count, or of taking and adding it, on a virtual host: as of a word below.
pub(crate) const COUNT_NANOS: u64 = 60;

/// Work of the sequential count on a virtual host, a byte: measured as below.
const SEQUENTIAL_NANOS_PER_BYTE: u64 = 21;

/// Returns the work of counting the words of a line on a virtual host. Measured once, as loops of
/// [`add`] over the lines of this project's documents and sources: 8 ns a byte, 60 ns a word.
pub(crate) fn line_nanos(line: &str) -> u64 {
    8 * line.len() as u64
}

/// Adds the words of a line.
pub(crate) fn add(tally: &mut Tally, line: &str) {
    for word in line.split(|one: char| !one.is_alphanumeric()).filter(|word| !word.is_empty()) {
        let word = word.to_lowercase();
        *tally.entry(word).or_default() += 1;
    }
}

/// Returns the `count` most frequent words; equally frequent ones by the alphabet.
pub(crate) fn most_frequent(tally: &Tally, count: usize) -> Vec<(&str, u64)> {
    let mut words: Vec<_> = tally.iter().map(|(word, &times)| (word.as_str(), times)).collect();
    words.sort_unstable_by_key(|&(word, times)| (std::cmp::Reverse(times), word));
    words.truncate(count);
    words
}

/// Compares with a sequential count of the same files.
///
/// # Errors
/// See [`Sequential::count`] and [`Sequential::compare`].
pub(crate) async fn check(
    files: Vec<PathBuf>,
    lines: u64,
    tally: &Tally,
) -> Result<(), Box<dyn Error>> {
    // On a thread, since it takes as long as all nodes together and the links must go on.
    let sequential = on_a_thread(move || Sequential::count(&files)).await??;
    sequential.compare(lines, tally)?;
    Ok(write_out("a sequential program counts the same\n")?)
}

/// Count of a plain program in whole files, letter by letter, to compare with the cluster's result.
/// It shares nothing with the counting of lines.
#[derive(Debug, Default, PartialEq, Eq)]
struct Sequential {
    /// Number of line ends, and of last lines without one.
    lines: u64,
    /// Number of occurrences of each word.
    words: BTreeMap<String, u64>,
}

impl Sequential {
    /// Counts the words and lines of these files.
    ///
    /// # Errors
    /// A file cannot be read.
    fn count(files: &[PathBuf]) -> io::Result<Sequential> {
        let mut counted = Sequential::default();
        for path in files {
            let text = fs::read(path)?;
            host::spend(Duration::from_nanos(SEQUENTIAL_NANOS_PER_BYTE * text.len() as u64));
            counted.add(&String::from_utf8_lossy(&text));
        }
        Ok(counted)
    }

    fn add(&mut self, text: &str) {
        let mut word = String::new();
        for letter in text.chars().chain(['\n']) {
            if letter.is_alphanumeric() {
                word.push(letter);
            } else if !word.is_empty() {
                *self.words.entry(word.to_lowercase()).or_insert(0) += 1;
                word.clear();
            }
        }
        let unfinished = !text.is_empty() && !text.ends_with('\n');
        self.lines += text.matches('\n').count() as u64 + u64::from(unfinished);
    }

    /// Compares with another count of the same files.
    ///
    /// # Errors
    /// The first difference, with both numbers.
    fn compare(&self, lines: u64, tally: &Tally) -> Result<(), String> {
        if lines != self.lines {
            return Err(format!("{lines} lines were counted, there are {}", self.lines));
        }
        for (word, times) in &self.words {
            let counted = tally.get(word).copied().unwrap_or(0);
            if counted != *times {
                return Err(format!(
                    "{word:?} was counted {counted} times, it comes {times} times"
                ));
            }
        }
        match tally.keys().find(|word| !self.words.contains_key(*word)) {
            Some(word) => Err(format!("{word:?} was counted and does not come")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_runs_of_letters_and_digits() {
        let mut tally = Tally::default();
        add(&mut tally, "Über 20 Äpfel, über\u{fffd}all: don't ΟΔΟΣ");
        let counted = most_frequent(&tally, 9);
        let expected = ["20", "all", "don", "t", "äpfel", "οδος"].map(|word| (word, 1));
        assert_eq!(counted[0], ("über", 2));
        assert_eq!(counted[1..], expected);
        assert_eq!(most_frequent(&tally, 1), [("über", 2)]);
    }

    #[test]
    fn what_differs_is_named() {
        let mut plain = Sequential::default();
        plain.add("one two\ntwo");
        let tally = |words: &[(&str, u64)]| {
            words.iter().map(|&(word, times)| (word.to_owned(), times)).collect::<Tally>()
        };
        assert_eq!(plain.compare(2, &tally(&[("one", 1), ("two", 2)])), Ok(()));
        for (lines, words, told) in [
            (3, &[][..], "3 lines were counted, there are 2"),
            (2, &[("one", 1)], "\"two\" was counted 0 times, it comes 2 times"),
            (2, &[("one", 1), ("two", 3)], "\"two\" was counted 3 times, it comes 2 times"),
            (2, &[("one", 1), ("two", 2), ("six", 1)], "\"six\" was counted and does not come"),
        ] {
            assert_eq!(plain.compare(lines, &tally(words)).unwrap_err(), told);
        }
    }
}
