//! Pure parts of a farm: bytes, times and events go in, decisions come out.
//! Nothing here knows a socket, a task, a lock or a clock, which a test of the
//! workspace holds it to.
//!
//! Reading order: [`schedule`] (who gets work), [`order`] (results into the order
//! of their tasks), [`wire`] (what farmer and worker say to each other),
//! [`depth`] (how much work a worker holds), [`placement`] (where a worker runs a
//! task).

pub(crate) mod depth;
pub(crate) mod order;
pub(crate) mod placement;
pub(crate) mod schedule;
pub(crate) mod wire;
