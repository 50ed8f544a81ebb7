//! Baselines of ours, in the same program: plain sockets, used as well as one can by hand.

pub mod append;
pub mod dissemination;
mod exchange;
pub mod external;
#[cfg(feature = "peers")]
pub mod framed;
pub mod gathered;
pub mod hand_arrays;
pub mod hand_calls;
pub mod hand_farm;
#[cfg(feature = "peers")]
pub mod held;
mod mesh;
pub mod mpi_calls;
pub mod mpich;
pub mod nats;
pub mod raw;
pub mod raw_arrays;
pub mod raw_calls;
pub mod relay;
#[cfg(feature = "peers")]
pub mod tarpc;
mod wait;
pub mod wire;
pub mod woken;
