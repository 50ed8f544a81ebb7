//! Settings for measurements and tests alone.

use crate::proto::hello::{VERSION_MAX, VERSION_MIN};
use crate::proto::tuning::without::Without;
use std::ops::RangeInclusive;

/// Settings for measurements and tests alone. No program needs them.
#[derive(Debug, Clone)]
pub struct Experiment {
    /// Size of a full packet in bytes, header included, from 1 KiB to 1 MiB; `None`, the default: the
    /// link tunes it.
    pub packet_bytes_max: Option<usize>,
    /// Whether acknowledgements are left out: `sync` and `close` then mean only that everything was
    /// put in packets. Both ends must agree.
    pub session_off: bool,
    /// Controllers that are switched off; the variable `CHUNKCOMM_WITHOUT` comes first.
    pub without: Without,
    /// Versions of the protocol that the node's hello names, as a node of another release does;
    /// nothing else of the protocol changes.
    pub versions: RangeInclusive<u16>,
}

impl Default for Experiment {
    fn default() -> Experiment {
        Experiment {
            packet_bytes_max: None,
            session_off: false,
            without: Without::default(),
            versions: VERSION_MIN..=VERSION_MAX,
        }
    }
}
