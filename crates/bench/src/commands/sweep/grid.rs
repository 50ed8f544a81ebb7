//! What is swept: sizes, rates, and the fixed settings that ours is held to.

use std::fmt;
use std::time::Duration;

use crate::cli::values;
use crate::harness::near::Setting;
use crate::harness::protocol::{NodeKind, PolicyKind};

/// Sizes of packets that are tried.
const PACKET_BYTES: [usize; 4] = [4 << 10, 16 << 10, 64 << 10, 256 << 10];

/// How long an idle writer waits for more, where it does: the step of tokio's timers.
const LINGER: Duration = Duration::from_millis(1);

/// How fast messages come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rate {
    /// So many a second.
    PerSecond(u64),
    /// As many as go.
    Saturation,
}

impl Rate {
    /// So many, if it is not as many as go.
    pub(super) fn per_second(self) -> Option<u64> {
        match self {
            Self::PerSecond(rate) => Some(rate),
            Self::Saturation => None,
        }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PerSecond(rate) => rate.fmt(f),
            Self::Saturation => f.write_str("max"),
        }
    }
}

/// Messages a second, or `max`.
pub(super) fn rate(text: &str) -> Result<Rate, String> {
    match text {
        "max" => Ok(Rate::Saturation),
        _ => values::rate(text)
            .map(Rate::PerSecond)
            .map_err(|why| format!("{why}, or max for as many as go")),
    }
}

/// One point of the sweep.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cell {
    /// Encoded bytes of a message.
    pub(super) bytes: usize,
    pub(super) rate: Rate,
}

/// A setting that a user might choose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fixed {
    pub(super) packet_bytes: usize,
    pub(super) linger: Option<Duration>,
}

impl Fixed {
    /// All that are tried.
    pub(super) fn all() -> Vec<Self> {
        let lingers = [None, Some(LINGER)];
        let with = |linger| PACKET_BYTES.map(|packet_bytes| Self { packet_bytes, linger });
        lingers.into_iter().flat_map(with).collect()
    }

    pub(super) fn node(self, setting: &Setting) -> NodeKind {
        NodeKind { packet_bytes: Some(self.packet_bytes), ..setting.node(self.policy()) }
    }

    pub(super) fn policy(self) -> PolicyKind {
        self.linger.map_or(PolicyKind::Chunked, PolicyKind::Linger)
    }
}

impl fmt::Display for Fixed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} KiB", self.packet_bytes >> 10)?;
        match self.linger {
            Some(linger) => write!(f, ", linger {} ms", linger.as_millis()),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_numbers_or_max() {
        assert_eq!(rate("max"), Ok(Rate::Saturation));
        assert_eq!(rate("1000"), Ok(Rate::PerSecond(1000)));
        assert!(rate("0").is_err_and(|why| why.contains("max")));
    }

    #[test]
    fn every_fixed_setting_is_there_once() {
        let all = Fixed::all();
        assert_eq!(all.len(), 8);
        for (index, fixed) in all.iter().enumerate() {
            assert!(!all[..index].contains(fixed), "{fixed}");
        }
    }
}
