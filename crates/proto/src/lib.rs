//! The pure machines of a chunkcomm link: formats and state machines. Bytes, time and
//! calls go in; bytes, deadlines and events come out. No socket, no task, no lock and no
//! clock is here: the crate does not depend on tokio, and a test of the workspace searches its
//! sources for these.
//!
//! This crate serves `chunkcomm`, which needs exactly its version: no stability is promised.
//! `chunkcomm` exports what a program needs: `codec`, `Lane`, `Policy`, `Silence` and the like.
//!
//! Reading order: [`packet`] (the wire), [`message`] (messages in a run), [`outbox`] (the content
//! of a packet), [`credit`] (how much may be sent), [`tuning`] (when a packet leaves, how large it
//! is, how much may be on its way), [`session`] (packets kept until they are acknowledged),
//! [`liveness`] (is the peer there), [`link`] (what is sent and received), [`endpoint`] (the whole
//! machine of one end of a session: the link and its connections), [`cycle`] (waits across links).
//! The faults of a peer that all of these find are in [`error`].
//! Before all of them come [`hello`], [`credential`] and [`resume`]. Beside them stand [`codec`],
//! [`describe`], [`causes`] (how errors show), [`plain`] (how text of a peer shows) and [`trace`]
//! (how spans of time show). Small parts of several of them are [`limits`], [`ids`], [`fair`],
//! [`backoff`], [`random`], [`sorted`] and [`spares`].
//!
//! # Features
//!
//! | feature | default | adds |
//! |---|---|---|
//! | `tls` | no | The proofs and keys of a [`credential`]. `chunkcomm` has the same by default. |
// Names the feature of each item that needs one; the compiler of docs.rs can.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod backoff;
pub mod causes;
pub mod codec;
pub mod credential;
pub mod credit;
pub mod cycle;
pub mod describe;
pub mod endpoint;
pub mod error;
pub mod fair;
pub mod hello;
pub mod ids;
pub mod limits;
pub mod link;
pub mod liveness;
pub mod loss;
pub mod message;
pub mod outbox;
pub mod packet;
pub mod plain;
#[doc(hidden)]
pub mod random;
pub mod resume;
pub mod session;
#[doc(hidden)]
pub mod sorted;
pub mod spares;
pub mod trace;
pub mod tuning;

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
