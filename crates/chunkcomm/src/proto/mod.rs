//! The pure machines: those of a link, which are the crate `chunkcomm-proto`, and those of
//! the floors above, which speak over channels as users do: [`call`] (requests and their
//! answers), [`cluster`] (membership) and [`custody`] (ends that travel).

pub use chunkcomm_proto::{
    Time, attempts, backoff, causes, codec, credential, credit, cycle, describe, fair, flush,
    hello, ids, limits, link, liveness, message, outbox, pace, packet, resume, session, sizing,
    spares,
};
#[cfg(any(test, feature = "simulation"))]
pub(crate) use chunkcomm_proto::{planted, random};

pub mod call;
pub mod cluster;
pub mod custody;
