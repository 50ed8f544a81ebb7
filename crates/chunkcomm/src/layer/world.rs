//! The place below nodes, for a crate that stands there in the place of the system, as
//! `chunkcomm-simulation` does.
//!
//! [`Transport`] and [`Listener`] are the byte streams to peers. The rest needs the feature
//! `simulation`: the trait `World` has the hosts, the network and the randomness of the programs of a
//! thread.

#[cfg(feature = "simulation")]
pub use crate::driver::clock::{Stretched, glance, guarded, moves};
#[cfg(feature = "simulation")]
pub use crate::driver::tasks::panics;
#[cfg(target_os = "linux")]
pub use crate::transport::Below;
#[cfg(feature = "simulation")]
pub use crate::transport::world::{
    Connecting, Entered, Process, World, end_process, end_processes, enter,
};
pub use crate::transport::{BoxFuture, Listener, Transport};
