//! How long it took.

use super::Outcome;
use super::ways::Way;

/// One way by one policy.
pub(super) struct Row {
    way: Way,
    policy: &'static str,
    /// The median.
    middle: Outcome,
}

impl Row {
    pub(super) fn new(way: Way, policy: &'static str, mut outcomes: Vec<Outcome>) -> Row {
        outcomes.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
        Row { way, policy, middle: outcomes.swap_remove(outcomes.len() / 2) }
    }
}

/// The table, then the ratios that count.
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
        let ratio = unbuffered / chunked;
        text += &format!("plain: chunked is {ratio:.1} times as fast as unbuffered\n");
    }
    let by_hand = rows.iter().filter(|row| row.way != Way::Plain);
    if let Some(best) = by_hand.min_by(|a, b| a.middle.seconds.total_cmp(&b.middle.seconds)) {
        let (ratio, Row { way, policy, .. }) = (chunked / best.middle.seconds, best);
        text += &format!(
            "plain, chunked: {ratio:.2} times the time of the best by hand ({way}, {policy})\n"
        );
    }
    text
}
