//! K. Zielinski, M. Gajecki, G. Czajkowski, "Parallel Programming Systems for LAN Distributed Computing" (1994):
//! ping-pong and processor farms with six tools on workstations of one Ethernet.
//!
//! The farm of this workspace runs on hosts as fast as the paper's, with the costs of messages that the
//! paper measured. A cause is judged by a world without it.
//!
//! Reading order: `machines` (speeds and costs), `picture` (the work of pixels), `farm` (one farm), then the runs:
//! `ping`, `farms` (granularity, double buffering, ray tracing), `models` (A and B), `many` (many stations),
//! `idioms` (programs).

mod farm;
mod farms;
mod idioms;
mod machines;
mod many;
mod models;
mod picture;
mod ping;

use std::sync::LazyLock;

use super::{List, Means, Run};

pub(super) const LIST_TEXT: &str = include_str!("../../../papers/lan.toml");

pub(super) const RUNS: &[Run] = &[
    Run { name: "ping", means: Means::Virtual, run: ping::ping },
    Run { name: "granularity", means: Means::Virtual, run: farms::granularity },
    Run { name: "buffering", means: Means::Virtual, run: farms::buffering },
    Run { name: "a-and-b", means: Means::Virtual, run: models::a_and_b },
    Run { name: "rays", means: Means::Virtual, run: farms::rays },
    Run { name: "bridges", means: Means::Virtual, run: many::bridges },
    Run { name: "limit", means: Means::Virtual, run: many::limit },
    Run { name: "idioms", means: Means::Real, run: idioms::idioms },
];

/// Returns the numbers of a statement, as [`Scene::numbers`](super::Scene::numbers).
fn numbers(id: &str) -> &'static [f64] {
    static LIST: LazyLock<List> =
        LazyLock::new(|| toml::from_str(LIST_TEXT).expect("a test reads it"));
    let statement = LIST.statements.iter().find(|statement| statement.id == id);
    statement.map_or(&[], |statement| &statement.numbers)
}

/// Whether a figure is another one, but for this part of it.
fn is_near(ours: f64, theirs: f64, part: f64) -> bool {
    (ours - theirs).abs() <= part * theirs
}

/// Returns three digits of a figure.
fn short(figure: f64) -> String {
    let digits = 2 - figure.abs().log10().floor().clamp(-2.0, 2.0) as i32;
    format!("{figure:.*}", digits.max(0) as usize)
}

/// Returns a share as a percentage.
fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}
