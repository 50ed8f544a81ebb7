//! Deltas whose ends are ordinary code: buffers of `chunkcomm-pages`, which are written or read as plain
//! slices, joined to [`DeltaSender`](crate::DeltaSender) and [`DeltaReceiver`](crate::DeltaReceiver) (Linux).
//!
//! ```text
//!   write(&mut [T])                                              read(&[T])
//!         |                                                         ^
//!   TrackedOutput -- finished elements --> delta ~~~ delta -- put --> TrackedInput
//! ```
//!
//! [`tracked_send`](crate::DeltaSender::tracked_send) and
//! [`tracked_recv`](crate::DeltaReceiver::tracked_recv) are the two calls. The engines behind the buffers, and
//! their limits, are described in `chunkcomm-pages`.

mod delta;
mod error;

pub use chunkcomm_pages::{
    AccessError, Arrivals, Awaiting, Filler, Finished, INCREMENT_PAGES, INCREMENT_PAGES_MAX,
    Missing, Received, RecvEngine, Rewrites, SendEngine, Sent, SetupError, TrackedInput,
    TrackedOutput, Tracking, UnknownEngine, costs,
};
pub use error::TrackedError;

#[cfg(all(test, target_os = "linux"))]
mod tests;
