//! Arrays that are distributed over the nodes of a group.
mod ends;
mod layout;
mod pack;
mod plan;

pub use ends::error::{ArrayError, StatementDifference};
pub use ends::exchange::ArrayExchange;
pub use ends::receiver::ArrayReceiver;
pub use ends::report::{ArrayReport, PeerReport, Timings};
pub use ends::sender::ArraySender;
pub use ends::settings::Transfer;
pub use ends::slab::Slab;
pub use layout::error::LayoutError;
pub use layout::{Distribution, Layout, LayoutBuilder};
pub use plan::Side;
