//! The report: the most frequent words, and what was sent for them.

use std::fmt::Write as _;
use std::time::Duration;

use super::tally::{Tally, most_frequent};
use super::text::Sent;

/// Returns the report; names wrong lines on standard error.
pub(crate) fn text(
    tally: &Tally,
    sent: &Sent,
    top: usize,
    elapsed: Duration,
    nodes: usize,
) -> String {
    for wrong in &sent.wrong {
        eprintln!("wordcount: {wrong}");
    }
    let mut text = String::new();
    for (word, times) in most_frequent(tally, top) {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{times:8}  {word}");
    }
    let Sent { lines, packets, .. } = sent;
    let words = tally.values().sum::<u64>();
    let _ = writeln!(text, "{lines} lines, {words} words, {} different", tally.len());
    let seconds = elapsed.as_secs_f64();
    let in_a_packet = if *packets == 0 { 0.0 } else { *lines as f64 / *packets as f64 };
    let _ = writeln!(
        text,
        "{seconds:.3} s, counted on {nodes} nodes; {packets} packets, {in_a_packet:.1} lines a packet"
    );
    text
}
