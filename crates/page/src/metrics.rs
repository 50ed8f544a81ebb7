//! The counters of links as Prometheus reads them, with the names of the feature `metrics` of `chunkcomm`.

use crate::state::{Counts, NodeState};
use std::fmt::Write as _;

type Count = (&'static str, fn(&Counts) -> u64);

const COUNTS: [Count; 13] = [
    ("chunkcomm_messages_sent_total", |it| it.messages_sent),
    ("chunkcomm_messages_received_total", |it| it.messages_received),
    ("chunkcomm_packets_sent_total", |it| it.packets_sent),
    ("chunkcomm_packets_received_total", |it| it.packets_received),
    ("chunkcomm_bytes_sent_total", |it| it.bytes_sent),
    ("chunkcomm_bytes_received_total", |it| it.bytes_received),
    ("chunkcomm_writes_total", |it| it.writes),
    ("chunkcomm_reads_total", |it| it.reads),
    ("chunkcomm_credit_waits_total", |it| it.credit_waits),
    ("chunkcomm_resumes_total", |it| it.resumes),
    ("chunkcomm_packets_resent_total", |it| it.packets_resent),
    ("chunkcomm_cycles_total", |it| it.cycles),
    ("chunkcomm_queueing_delay_microseconds_total", |it| it.queueing_delay_us),
];

/// Returns the text of all links of these nodes, of which each has a key. Peers of one name are summed.
pub(crate) fn text<'a>(nodes: impl Iterator<Item = (&'a str, &'a NodeState)> + Clone) -> String {
    let mut text = String::new();
    for (name, count) in COUNTS {
        let _ = writeln!(text, "# TYPE {name} counter");
        for (node, state) in nodes.clone() {
            for (peer, sum) in summed(state, count) {
                let _ = writeln!(
                    text,
                    "{name}{{node=\"{}\",peer=\"{}\"}} {sum}",
                    label(node),
                    label(peer)
                );
            }
        }
    }
    text.push_str("# TYPE chunkcomm_flushes_total counter\n");
    for (node, state) in nodes {
        let mut flushes = std::collections::BTreeMap::<_, u64>::new();
        for link in &state.links {
            for (reason, count) in &link.flushes {
                add(flushes.entry((&link.peer, reason)).or_default(), *count);
            }
        }
        for ((peer, reason), count) in flushes {
            let (node, peer, reason) = (label(node), label(peer), label(reason));
            let _ = writeln!(
                text,
                "chunkcomm_flushes_total{{node=\"{node}\",peer=\"{peer}\",reason=\"{reason}\"}} {count}"
            );
        }
    }
    text
}

fn summed(state: &NodeState, count: impl Fn(&Counts) -> u64) -> Vec<(&str, u64)> {
    let mut sums = std::collections::BTreeMap::<_, u64>::new();
    for link in &state.links {
        add(sums.entry(link.peer.as_str()).or_default(), count(&link.counts));
    }
    sums.into_iter().collect()
}

/// Adds to a sum of counts that peers may have chosen.
fn add(sum: &mut u64, count: u64) {
    *sum = sum.saturating_add(count);
}

/// Escapes a text for the value of a label.
fn label(text: &str) -> String {
    text.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::LinkState;

    #[test]
    fn a_peer_cannot_forge_a_line() {
        let link = LinkState {
            peer: "a\"} 7\n\\".to_owned(),
            counts: Counts { messages_sent: 3, ..Counts::default() },
            flushes: vec![("idle".to_owned(), 2)],
            ..LinkState::default()
        };
        let state = NodeState { links: vec![link.clone(), link], ..NodeState::default() };
        let text = text([("here", &state)].into_iter());
        let line = r#"chunkcomm_messages_sent_total{node="here",peer="a\"} 7\n\\"} 6"#;
        assert!(text.lines().any(|it| it == line), "{text}");
        let line = r#"chunkcomm_flushes_total{node="here",peer="a\"} 7\n\\",reason="idle"} 4"#;
        assert!(text.lines().any(|it| it == line), "{text}");
        assert_eq!(text.lines().count(), 2 * COUNTS.len() + 2);
    }

    #[test]
    fn sums_of_peers_do_not_overflow() {
        let link = LinkState {
            counts: Counts { reads: u64::MAX, ..Counts::default() },
            flushes: vec![("idle".to_owned(), u64::MAX)],
            ..LinkState::default()
        };
        let state = NodeState { links: vec![link.clone(), link], ..NodeState::default() };
        let text = text([("here", &state)].into_iter());
        let sums = text.lines().filter(|it| it.ends_with(&u64::MAX.to_string())).count();
        assert_eq!(sums, 2, "{text}");
    }
}
