//! The service's counters in the text format of Prometheus, version 0.0.4.
//!
//! Written by hand: a dozen counters need no library. A service that has a recorder of the
//! `metrics` facade turns on chunkcomm's feature of that name instead.

use std::fmt::Write as _;

use chunkcomm::stats::FlushReason;
use chunkcomm::stats::{ChannelStats, PeerStats};

/// Value of the text's header `Content-Type`.
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Numbers of requests, by answer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Requests {
    /// Number answered with 202.
    pub(crate) accepted: u64,
    /// Number answered with another status.
    pub(crate) refused: u64,
}

/// Returns the text. `channel` is `None` when the service is ending.
pub(crate) fn text(
    requests: Requests,
    peer: &str,
    link: &PeerStats,
    channel: Option<ChannelStats>,
) -> String {
    let mut text = String::new();
    let mut family = |name: &str, help: &str, samples: &[(String, u64)]| {
        // Writing to a string does not fail.
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} counter");
        for (labels, value) in samples {
            let _ = writeln!(text, "{name}{{{labels}}} {value}");
        }
    };
    let answers = [("accepted", requests.accepted), ("refused", requests.refused)];
    let answers = answers.map(|(answer, count)| (label("answer", answer), count));
    family("telemetry_requests_total", "Requests with events, by answer.", &answers);
    let to = label("peer", peer);
    if let Some(channel) = channel {
        for (name, help, value) in [
            ("telemetry_events_accepted_total", "Events to the collector.", channel.accepted),
            ("telemetry_events_acknowledged_total", "Events in its inbox.", channel.acknowledged),
        ] {
            family(name, help, &[(to.clone(), value)]);
        }
    }
    for (name, help, value) in [
        ("chunkcomm_messages_sent_total", "Messages in packets.", link.messages_sent),
        ("chunkcomm_packets_sent_total", "Packets of all kinds.", link.packets_sent),
        ("chunkcomm_bytes_sent_total", "Bytes of packets.", link.packet_bytes_sent),
        ("chunkcomm_writes_total", "System calls that wrote.", link.writes),
        ("chunkcomm_credit_waits_total", "Waits for credit.", link.credit_waits),
        ("chunkcomm_resumes_total", "Connections after a lost one.", link.resumes),
    ] {
        family(name, help, &[(to.clone(), value)]);
    }
    let flushes = FlushReason::ALL.map(|reason| {
        (format!("{to},{}", label("reason", reason.name())), link.flushes.get(reason))
    });
    family("chunkcomm_flushes_total", "Packets with messages, by reason.", &flushes);
    text
}

fn label(name: &str, value: &str) -> String {
    let value = value.replace('\\', r"\\").replace('"', r#"\""#).replace('\n', r"\n");
    format!("{name}=\"{value}\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_have_a_type_and_labels_are_escaped() {
        let requests = Requests { accepted: 3, refused: 1 };
        let text = text(requests, "a \"b\"\\\n", &PeerStats::default(), None);
        let type_line = "# TYPE telemetry_requests_total counter\n";
        let samples = "telemetry_requests_total{answer=\"accepted\"} 3\n";
        assert!(text.contains(&format!("{type_line}{samples}")), "{text}");
        let escaped = r#"chunkcomm_flushes_total{peer="a \"b\"\\\n",reason="idle"} 0"#;
        assert!(text.contains(escaped), "{text}");
    }
}
