//! Floor 1, pure: state machines and formats. Bytes, time and calls go in; bytes, deadlines and
//! events come out. Nothing here knows a socket, a task, a lock or a clock; a test of the
//! workspace checks that.
//!
//! Reading order: [`packet`] (the bytes on the wire), [`message`] (messages in a run),
//! [`flush`] (when a packet leaves), [`outbox`] (how a packet is filled), [`credit`] (how much
//! may be sent), [`pace`] (how much may be on its way), [`sizing`] (how large a packet is),
//! [`session`] (packets kept until they are acknowledged), [`liveness`] (is the peer there),
//! [`link`] (the whole machine of one peer), [`cycle`] (cycles of waiting nodes across links).
//!
//! [`hello`], [`credential`] and [`resume`] come before all of them. [`codec`], [`describe`]
//! and [`causes`] (how errors show) stand beside. [`cluster`] (membership) and [`call`]
//! (requests and their answers) speak over channels as users do.

pub mod attempts;
pub mod backoff;
pub mod call;
pub mod causes;
pub mod cluster;
pub mod codec;
pub mod credential;
pub mod credit;
pub mod custody;
pub mod cycle;
pub mod describe;
pub mod fair;
pub mod flush;
pub mod hello;
pub mod ids;
pub mod limits;
pub mod link;
pub mod liveness;
pub mod message;
pub mod outbox;
pub mod pace;
pub mod packet;
pub(crate) mod planted;
#[cfg(any(test, feature = "simulation"))]
pub(crate) mod random;
pub mod resume;
pub mod session;
pub mod sizing;
pub mod spares;

/// A point in time in nanoseconds since an epoch that the driver chose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Hash)]
pub struct Time(pub u64);

impl Time {
    /// Returns this point plus `duration`, at most the end of time.
    #[must_use]
    pub fn after(self, duration: std::time::Duration) -> Time {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Time(self.0.saturating_add(nanos))
    }

    /// Returns the microseconds from `earlier` to this point; 0 when `earlier` is later.
    #[must_use]
    pub fn micros_since(self, earlier: Time) -> u64 {
        self.0.saturating_sub(earlier.0) / 1_000
    }
}
