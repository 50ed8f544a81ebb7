//! Arrays that are distributed over the nodes of a group.
mod layout;
mod pack;
mod plan;

pub use layout::error::LayoutError;
pub use layout::{Distribution, Layout, LayoutBuilder};
