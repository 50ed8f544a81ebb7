//! Ends of transfers.
//!
//! ```text
//!   ArraySender, Slab          the program's face        sender
//!   ArrayReceiver              the same                  receiver
//!   ArrayExchange              both at once, in place    exchange
//!   Outlet, Inlet              a task a peer             outlet, inlet
//!   Line                       between two ranks, also of one node    line
//!   Shared                     what they share           shared
//!   agree                      the opening               statement
//! ```

pub(crate) mod error;
pub(crate) mod exchange;
mod inlet;
mod line;
pub(crate) mod opening;
mod outlet;
mod pool;
pub(crate) mod receiver;
pub(crate) mod report;
pub(crate) mod sender;
pub(crate) mod settings;
pub(crate) mod shared;
pub(crate) mod slab;
pub(crate) mod statement;
mod wire;
