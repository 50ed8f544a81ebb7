//! Pure bookkeeping of a delta: what may be sent, what may be read, how big an increment is
//! best, and the bytes that both sides state at the start.
//!
//! Nothing here knows a socket, a task, a lock or a clock: lengths and costs come in as
//! arguments, ranges and bytes come out as values. A test of the workspace holds it to that.

pub(crate) mod increment;
pub(crate) mod intervals;
pub(crate) mod notice;
pub(crate) mod opening;
