//! The allowed values of a node's settings.

use super::super::admission::Admission;
use super::NodeBuilder;
use crate::error::NodeError;
use crate::proto::hello::NAME_BYTES_MAX;
use crate::proto::limits::{
    INLINE_BYTES_MAX, OPEN_CREDIT_DIVISOR, PACKET_BYTES_DEFAULT, PACKET_BYTES_LARGEST,
    PACKET_BYTES_MIN, RESEND_BYTES_MIN, WINDOW_BYTES_INITIAL,
};
use crate::proto::liveness::Silence;
use std::fmt::Display;
use std::time::Duration;

impl NodeBuilder {
    pub(super) fn check(&self, admission: &Admission) -> Result<(), NodeError> {
        let settings = &self.settings;
        let limits = &settings.limits;
        let packet = settings.experiment.packet_bytes_max.unwrap_or(PACKET_BYTES_DEFAULT);
        if !(PACKET_BYTES_MIN..=PACKET_BYTES_LARGEST).contains(&packet) {
            let allowed = format!("{PACKET_BYTES_MIN} to {PACKET_BYTES_LARGEST}");
            return Err(setting("packet_bytes_max", packet, allowed));
        }
        if limits.message_bytes_max < INLINE_BYTES_MAX {
            let allowed = format!("at least {INLINE_BYTES_MAX}");
            return Err(setting("message_bytes_max", limits.message_bytes_max, allowed));
        }
        let window_min = (OPEN_CREDIT_DIVISOR * WINDOW_BYTES_INITIAL) as usize;
        if limits.window_bytes_max < window_min {
            let allowed = format!("at least {window_min}");
            return Err(setting("window_bytes_max", limits.window_bytes_max, allowed));
        }
        if limits.resend_bytes_max < RESEND_BYTES_MIN {
            let allowed = format!("at least {RESEND_BYTES_MIN}");
            return Err(setting("resend_bytes_max", limits.resend_bytes_max, allowed));
        }
        if limits.sessions_max == 0 {
            return Err(setting("sessions_max", 0, "at least 1"));
        }
        let Silence { probe, suspect, dead } = settings.silence;
        if probe < Duration::from_millis(10) || suspect <= probe || dead < suspect {
            let value = format!("{probe:?}, {suspect:?}, {dead:?}");
            return Err(setting("silence", value, "10 ms <= probe < suspect <= dead"));
        }
        self.layers.check()?;
        for (name, value) in [("name", &settings.name), ("cluster", &settings.cluster)] {
            if value.len() > NAME_BYTES_MAX {
                let allowed = format!("at most {NAME_BYTES_MAX} bytes");
                return Err(setting(name, value, allowed));
            }
        }
        for address in &self.listen {
            if !self.insecure && !admission.protects() && !address.is_loopback_only() {
                return Err(NodeError::BeyondLoopback { address: address.clone() });
            }
        }
        Ok(())
    }
}

pub(in crate::node) fn setting(
    name: &'static str,
    value: impl Display,
    allowed: impl Into<String>,
) -> NodeError {
    NodeError::Setting { name, value: value.to_string(), allowed: allowed.into() }
}
