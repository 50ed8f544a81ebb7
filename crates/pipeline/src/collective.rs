//! Collective calls among the nodes of a group.

#[allow(dead_code, reason = "the calls stand on it")]
pub(crate) mod op;
