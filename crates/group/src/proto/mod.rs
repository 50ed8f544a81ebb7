//! Pure bookkeeping of buffers and calls: the state of each byte, the bytes that leave next, the best increment, and
//! the bytes that both sides exchange; the schedules of collective calls, and what ranks say to each other.
//!
//! Nothing here uses a socket, a task, a lock or a clock: lengths and costs come in as arguments,
//! ranges and bytes come out as values. A test of the workspace checks this.

pub(crate) mod corrections;
pub(crate) mod costs;
pub(crate) mod extents;
pub(crate) mod fault;
pub(crate) mod frame;
pub(crate) mod increment;
pub(crate) mod line;
pub(crate) mod meter;
pub(crate) mod opening;
pub(crate) mod ranges;
pub(crate) mod schedule;
pub(crate) mod sections;
pub(crate) mod sending;
pub(crate) mod talk;
