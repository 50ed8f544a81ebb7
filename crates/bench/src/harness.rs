//! Two processes, one a core, that measure between them slice by slice.
//!
//! The *near* end is the process that the user started. It commands the *far* end over a control
//! connection of JSON lines: pipes to a child, TCP to `chunkperf serve`, or pipes to a thread if
//! the transport is memory. Both ends keep all measured connections open for the whole run, so that
//! ours and its baseline alternate between the same two processes.

pub mod calls;
pub mod control;
pub mod far;
pub mod flows;
pub mod machine;
pub mod near;
pub mod protocol;
pub mod ranks;
pub mod runtime;
pub mod slices;
pub mod spinner;
pub mod ticks;
pub mod transfers;
pub mod work;
