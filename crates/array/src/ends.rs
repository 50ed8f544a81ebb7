//! Ends of transfers.
//!
//! ```text
//!   ArraySender, Slab          the program's face        sender
//!   ArrayReceiver              the same                  receiver
//!   ArrayExchange              both at once, in place    exchange
//!   Outlet, Inlet              a task a peer             outlet, inlet
//!   Leaving, Arriving          a channel one way         one_way
//!   Way, Intake                a peer's tiles            way
//!   Line                       between two ranks, also of one node    line
//!   Shared                     what they share           shared
//!   End, agree                 the opening               opening, statement
//! ```

pub(crate) mod error;
pub(crate) mod exchange;
mod inlet;
mod line;
pub(crate) mod one_way;
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
pub(crate) mod way;
mod wire;
