//! Baselines of ours, in the same program: plain sockets, used as well as one can by hand.

pub mod append;
pub mod dissemination;
pub mod eventfd;
mod exchange;
pub mod gathered;
pub mod hand_arrays;
pub mod hand_calls;
pub mod hand_farm;
mod mesh;
pub mod mpi_calls;
pub mod mpich;
pub mod raw;
pub mod raw_arrays;
pub mod raw_calls;
pub mod relay;
#[cfg(feature = "peers")]
pub mod tarpc;
mod wait;
pub mod wire;

/// Returns the failure of a build without the other systems.
#[cfg(not(feature = "peers"))]
pub(crate) fn no_tarpc() -> crate::failure::Failure {
    crate::failure::Failure::broken("using tarpc", "this build is without the feature peers")
}
