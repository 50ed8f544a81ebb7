//! Grid of the sweep: sizes, rates, and the fixed settings that ours is compared with.

use std::time::Duration;

use crate::harness::near::Setting;
use crate::harness::protocol::{NodeKind, PolicyKind};
use crate::options::values;

/// Packet sizes that are tried, in bytes.
const PACKET_BYTES: [usize; 4] = [4 << 10, 16 << 10, 64 << 10, 256 << 10];

/// Time for which an idle writer waits for more, in settings with a linger: 1 ms, the step of
/// tokio's timers.
const LINGER: Duration = Duration::from_millis(1);

/// Rate of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rate {
    /// Messages a second.
    PerSecond(u64),
    /// As many as the connection carries.
    Saturation,
}

impl Rate {
    /// Returns the messages a second; `None` at saturation.
    pub(super) fn per_second(self) -> Option<u64> {
        match self {
            Self::PerSecond(rate) => Some(rate),
            Self::Saturation => None,
        }
    }
}

/// Parses messages a second, or `max`.
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
    /// Returns all settings that are tried.
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
            assert!(!all[..index].contains(fixed), "{fixed:?}");
        }
    }
}
