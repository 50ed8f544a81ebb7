//! The pure machines of a link: the crate `chunkcomm-proto`. For this crate and those that measure
//! and test it; what a program needs is exported where it belongs.

pub use chunkcomm_proto::{
    Time, backoff, causes, codec, credential, credit, cycle, describe, endpoint, error, fair,
    hello, ids, limits, link, liveness, loss, message, outbox, packet, plain, random, resume,
    session, sorted, spares, trace, tuning,
};
