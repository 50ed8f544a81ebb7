//! The idioms of older systems, each thin on channels, calls and clusters.

pub mod linda;
pub mod mailbox;
pub mod packed;
pub mod pvm;
mod sole;
pub mod sr;
