//! Pure bookkeeping of a delta: the bytes that may be sent, those that may be read, the best
//! increment, and the bytes that both sides state at the start.
//!
//! Nothing here uses a socket, a task, a lock or a clock: lengths and costs come in as arguments,
//! ranges and bytes come out as values. A test of the workspace checks this.

pub(crate) mod increment;
pub(crate) mod intervals;
pub(crate) mod notice;
pub(crate) mod opening;
