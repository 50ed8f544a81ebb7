//! Pure parts of a farm: bytes, times and events go in, decisions come out.
//! Nothing here uses a socket, a task, a lock or a clock; a test of the workspace
//! checks this.
//!
//! Reading order: [`schedule`] (the schedule of the tasks), [`order`] (results in the
//! order of their tasks), [`wire`] (messages of farmer and worker), [`depth`] (how much
//! work a worker holds), [`placement`] (where a worker runs a task).

pub(crate) mod depth;
pub(crate) mod order;
pub(crate) mod placement;
pub(crate) mod schedule;
pub(crate) mod wire;
