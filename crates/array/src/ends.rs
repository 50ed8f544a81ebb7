//! Ends of transfers.
//!
//! ```text
//!   Exchange                   of a group with itself    exchange
//!   Outlet, Inlet              a task a peer             outlet, inlet
//!   Leaving, Arriving          a channel one way         one_way
//!   Way, Intake                a peer's tiles            way
//!   Line                       between two ranks, also of one node    line
//!   Shared                     what they share           shared
//!   End, agree                 the opening               opening, statement
//! ```

pub(crate) mod error;
pub(crate) mod exchange;
pub(crate) mod inlet;
mod line;
pub(crate) mod one_way;
pub(crate) mod opening;
pub(crate) mod outlet;
mod pool;
pub(crate) mod report;
pub(crate) mod settings;
pub(crate) mod shared;
pub(crate) mod statement;
pub(crate) mod way;
mod wire;
