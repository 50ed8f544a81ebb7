//! Parts that several of the example programs share: their command lines and the frame around them.
//!
//! A program is compiled with all of this, so little is here, and none of it is about one program.

pub mod attaching;
pub mod cluster_options;
pub mod command_line;
pub mod farm_options;
pub mod farm_report;
pub mod farming;
pub mod give_way;
pub mod groups;
mod lan;
mod page;
pub mod picture;
pub mod program;
pub mod progress;
pub mod thread;
