//! The table of the nodes.

use std::time::Duration;

use chunkcomm_cluster::cluster::Member;
use serde::{Deserialize, Serialize};

/// Message from a node to rank 0.
#[derive(Serialize, Deserialize)]
pub(crate) enum Answer {
    /// The first answer: the launcher that started the node.
    Launcher(String),
    Pong(u64),
    /// Number of bytes that came.
    Received(u64),
}

/// Row of the table: a node and its measurements.
pub(crate) struct Row {
    pub(crate) member: Member,
    pub(crate) launcher: String,
    /// Round trip and bytes a second; `None` for rank 0 itself.
    pub(crate) measured: Option<(Duration, f64)>,
}

impl Row {
    /// Returns the row of another node, with the median of these round trips.
    pub(crate) fn new(
        member: Member,
        launcher: String,
        mut trips: Vec<Duration>,
        bytes_per_second: f64,
    ) -> Row {
        trips.sort_unstable();
        Row { member, launcher, measured: Some((trips[trips.len() / 2], bytes_per_second)) }
    }
}

pub(crate) fn text(rows: &[Row]) -> String {
    let mut cells = vec![
        ["rank", "host", "process", "launcher", "at", "round trip", "bandwidth"].map(str::to_owned),
    ];
    for Row { member, launcher, measured } in rows {
        let (trip, rate) = match measured {
            Some((trip, rate)) => {
                (format!("{:.1} us", trip.as_secs_f64() * 1e6), format!("{:.0} MB/s", rate / 1e6))
            }
            None => ("-".to_owned(), "-".to_owned()),
        };
        let Member { id, host, pid, addresses, .. } = member;
        let at = addresses.first().cloned().unwrap_or_default();
        let (rank, pid) = (id.rank.to_string(), pid.to_string());
        cells.push([rank, host.clone(), pid, launcher.clone(), at, trip, rate]);
    }
    let widths: [usize; 7] = std::array::from_fn(|column| {
        cells.iter().map(|row| row[column].chars().count()).max().unwrap_or(0)
    });
    let mut text = String::new();
    for row in &cells {
        let padded = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        text += padded.collect::<Vec<_>>().join("  ").trim_end();
        text += "\n";
    }
    text
}
